//! The kernel's side of a mount: its device, its protocol, and the mount itself.
//!
//! [`abi`] has the bytes of the protocol, [`device`] reads requests and writes answers, and
//! [`spliced`] answers long reads without a copy in this process. [`mount`] mounts and unmounts.
//!
//! Bytes of the kernel are read once and checked. What a request means is not known here.

pub(crate) mod abi;
pub(crate) mod device;
pub(crate) mod mount;
pub(crate) mod spliced;

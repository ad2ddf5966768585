//! The processes that a supervisor starts, seen from inside.
//!
//! Each is the command `mayfly` under a hidden word: [`daemon`] gets from the configuration to the
//! serving loop, [`fuse`] serves a mount, [`image`] makes one image. [`processors`] says where they
//! may run, and [`proc_stat`] reads what the kernel says of any of them.
//!
//! Such a process takes what it needs from its arguments, the run directory and the descriptors
//! that it was started with. When it is started, and again, is decided in [`crate::supervisor`].

pub(crate) mod daemon;
pub(crate) mod fuse;
pub(crate) mod image;
pub(crate) mod proc_stat;
pub(crate) mod processors;
pub(crate) mod tier;

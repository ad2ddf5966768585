//! Paths of the host: where they lead, to the kernel or to the instance.
//!
//! [`text`] compares a path with the mount point, without a system call; [`hints`] tells of most
//! paths that they differ, by their first bytes. [`locate`] does it for a call: it takes the
//! directory that a relative path begins at into account, which may be ours by its descriptor,
//! because the process works in it ([`cwd`]), or by a name in procfs ([`procfs`]). A link of the
//! kernel's that leads below the mount point shows only when the kernel has failed; [`links`] finds
//! it then.
//!
//! A path is never resolved inside the instance here: components below the mount point, and the
//! links among them, are the daemon's.

pub(crate) mod cwd;
pub(crate) mod hints;
pub(crate) mod links;
pub(crate) mod locate;
pub(crate) mod procfs;
pub(crate) mod text;

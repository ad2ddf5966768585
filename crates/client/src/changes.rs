//! Telling of changes, by who has made them.
//!
//! The daemon does not tell anybody of a change; the process that has made it does, after the call
//! was answered. [`told`] tells mounts whose kernel may keep pages of the file, [`watched`] those
//! who watch a file with inotify: it repeats on a stand-in, a real file that the kernel watches
//! ([`mirror`]), what was done to the file.
//!
//! Nothing of the instance depends on a stand-in, and a change that cannot be told has happened all
//! the same.

pub(crate) mod mirror;
mod notify;
pub(crate) mod watched;

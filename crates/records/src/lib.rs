//! The daemon's records, as another process reads them.
//!
//! The metadata of an instance that need only outlive its processes lie in a mapped file that is
//! changed in place (`meta::tree`). A program of the same node can map it too, for reading, and
//! find what a path names, and what a directory has, without asking anybody.
//!
//! **What is seen is what was committed.** The file's header has a *version* that is odd while a
//! transaction is under way and another even number after each. A reader looks at it, reads, and
//! looks again: the same even number means that nothing was changed meanwhile, so what it read is
//! the state at that moment, with everything that any call had returned by then. Anything else is
//! [`Unsure`], and the reader asks the daemon instead. So is whatever the records do not tell: the
//! length of a file that is being written, links to be followed, `..`.
//!
//! The bytes may change while they are read, so nothing here relies on what they say: each number
//! is read once and looked at before it is used, every walk is bounded, and there is no panic.
//!
//! The layout of pages and the order of dentries are defined here, since both sides need them;
//! `meta` writes them. A test of `meta` reads its trees by way of this crate.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod apart;
mod attributes;
pub mod key;
mod link;
mod list;
pub mod page;
mod search;
mod small;
mod walk;
pub mod way;

pub use apart::{Changed, apart, path_of};
pub use attributes::{Dentry, Own, RECORD_CHUNKS, Seen, of_dentry, of_inode};
pub use link::{Linked, read_link};
pub use list::{Entry, directory, list};
pub use search::{KEY_BYTES_MAX, Origins, Runs, Source, get};
pub use small::{Bytes, Reached, Regular, SMALL_NAME_BYTES_MAX, find_again, reach};
pub use walk::{Found, Question, is_still, look, version};

/// It has to be asked for: something is being changed, or the records do not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsure;

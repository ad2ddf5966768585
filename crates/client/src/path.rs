//! Names: what a path names, and what makes, moves and removes names.
//!
//! [`names`] has the operations on names and attributes. Most are one request. An operation that
//! changes nothing asks nobody where it can: [`records`] searches the daemon's records in shared
//! memory, and [`ways`] remembers where the directories of paths have led, so that the next search
//! begins there.
//!
//! **Invariants.** An answer from the records is of one committed state, at one moment of the call.
//! A remembered way is used only while the number of moves in the records' header is the one that
//! it was remembered with. The daemon is asked for what the records do not tell for certain.

pub(crate) mod names;
pub(crate) mod records;
mod replaced;
mod submitted;
mod turn;
mod ways;
mod whole;
pub mod xattrs;

//! The keeper of a caching tier: what the daemon has done in directories outside the instance.
//!
//! A keeper is a process of the node, and a session of the instance like any other. Each of its
//! threads asks the daemon for something to do, does it, and says what came of it
//! ([`mayfly_wire::tier`]). It decides nothing: what is known of a master copy, and whether it has
//! changed, is the daemon's to judge, with two exceptions that need both at one moment. A flush
//! looks once more whether the master copy is still the known one ([`flush`]), and a change of
//! attributes says whether it was ([`names`]).
//!
//! Every item may be done twice, since the daemon or the keeper may die in between: what is made
//! may be there then, and what is removed may be gone.
//!
//! An origin is a directory, or a bucket of an object store ([`bucket`]).
//!
//! **Paths.** A name in a directory outside is found from the origin's own directory, which is
//! opened once, by names that are no symbolic links.
#![forbid(unsafe_code)]

mod bucket;
mod busy;
mod bytes;
mod chunks;
mod flush;
mod keeper;
mod merged;
mod names;
mod outcome;
mod place;
mod xattrs;

pub use keeper::{Origins, Outside, keep};

//! Files whose bytes are on several nodes.
//!
//! A striped file has its inode at its home and one *stripe object* on each of its servers.
//! `file*.rs` is what the home does: it knows the layout, the length, and who appends.
//! `object*.rs` is what a server does with its own object. `unlinked.rs` has the objects of
//! removed files removed. `arithmetic.rs` says which bytes are in which object, `layouts.rs` what
//! users may choose.
//!
//! Invariants:
//! - Bytes behind a cut are never seen again: a server has heard of a cut before the home
//!   acknowledges it.
//! - The length is what the servers say, settled at the home when nobody can change it.
//! - An append has the end of the file for itself until it is done.

pub(crate) mod arithmetic;
pub(crate) mod file;
pub(crate) mod file_append;
pub(crate) mod file_size;
pub(crate) mod file_space;
pub(crate) mod file_tail;
pub(crate) mod layouts;
pub(crate) mod object;
pub(crate) mod object_append;
pub(crate) mod object_change;
pub(crate) mod object_hold;
pub(crate) mod object_leave;
pub(crate) mod object_life;
pub(crate) mod state;
pub(crate) mod unlinked;

use crate::striping::state::{file::Striped, object::Table};

/// What a shard keeps in mind of striped files.
pub(crate) struct Striping {
    /// Stripe objects here that are being changed.
    pub(crate) objects: Table,
    /// Striped files that are at home here.
    pub(crate) files: Striped,
}

impl Striping {
    /// Its changes are numbered from here on: no earlier daemon's have these numbers.
    pub(crate) fn numbered_from(first: u64) -> Striping {
        Striping { objects: Table::default(), files: Striped::numbered_from(first) }
    }
}

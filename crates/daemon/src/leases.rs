//! Leases: processes that may act without asking, and mounts and nodes that are told before
//! something changes.
//!
//! A process that makes names in a directory gets it *delegated* (`delegation.rs`): it puts what
//! it makes and removes into a submission ring (`submissions.rs`), and finds the names that are
//! there in a name table (`name_table.rs`, `covered_directories.rs`). A process that opens files
//! for reading is *leased* descriptions (`file_leases.rs`). What this node remembers of other
//! nodes' names and files a process finds in the records (`shown_names.rs`); a file's home tells of
//! it, and tells again before it changes (`attributes.rs`). What processes read so stays open
//! (`kept_files.rs`). A mount is told when bytes
//! change of which its kernel keeps pages (`mounts.rs`), and before names and attributes change
//! that its kernel believes (`mount_names.rs`).
//!
//! Invariants:
//! - A change that a holder must not miss is told, or the lease recalled, before the change is
//!   acknowledged.
//! - What is in the rings of this node is executed before any request that could see it.
//! - Each table is bounded; who finds it full asks as everybody did before there were leases.

pub(crate) mod attributes;
pub(crate) mod covered_directories;
pub(crate) mod delegation;
pub(crate) mod file_leases;
pub(crate) mod kept_files;
pub(crate) mod mount_names;
pub(crate) mod mounts;
pub(crate) mod name_table;
pub(crate) mod shown_names;
pub(crate) mod state;
pub(crate) mod submissions;
pub(crate) mod submitted_before;
mod submitted_changes;
mod submitted_contents;
mod submitted_files;

use mayfly_transport_shm::layout::NodeHead;

use crate::leases::{
    attributes::AskedFiles,
    kept_files::KeptFiles,
    state::{
        attributes::LeasedAttributes, delegation::Delegations, file_leases::FileLeases,
        mount_names::MountNames, mounts::Mounts,
    },
};

/// What processes and mounts of the node hold.
pub(crate) struct Leases {
    /// The second in which the batch began, by a clock that nobody sets.
    pub(crate) now: i64,
    /// Who may make names without asking.
    pub(crate) delegations: Delegations,
    /// Who may open small files without asking.
    pub(crate) files: FileLeases,
    /// Mounts of this node, where this shard is its front.
    pub(crate) mounts: Mounts,
    /// What the kernels of these mounts believe.
    pub(crate) mount_names: MountNames,
    /// Files of which other shards may know the attributes, with the name.
    pub(crate) attributes: LeasedAttributes,
    /// How often files in other nodes' directories were looked at.
    pub(crate) asked_files: AskedFiles,
    /// The same of those that were opened to be read.
    pub(crate) asked_contents: AskedFiles,
    /// When to look at what processes read of other nodes' files.
    pub(crate) kept_files: KeptFiles,
}

impl Leases {
    pub(crate) fn new(head: &'static NodeHead) -> Leases {
        Leases {
            now: 0,
            delegations: Delegations::new(head),
            files: FileLeases::default(),
            mounts: Mounts::default(),
            mount_names: MountNames::default(),
            attributes: LeasedAttributes::default(),
            asked_files: AskedFiles::default(),
            asked_contents: AskedFiles::default(),
            kept_files: KeptFiles::default(),
        }
    }
}

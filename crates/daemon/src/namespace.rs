//! Names, and what files and directories are.
//!
//! An operation on a path falls into steps at the *owner* of a dentry, who knows what the name
//! stands for (`dentry.rs`), and steps at the *home* of an inode, who knows what the file is
//! (`inode.rs`). `walk.rs` goes from a path to the last of its names; `names.rs`, `rename.rs`,
//! `open.rs`, `attr.rs`, `xattrs.rs`, `layout.rs`, `list.rs` and `special.rs` are the operations,
//! put together from such steps. `seat.rs` says which shard has a name; `member.rs` has what
//! directories that are spread have at each shard.
//!
//! Invariants:
//! - An operation checks everything before its first write. An error leaves nothing behind.
//! - What this shard remembers of other shards' names is in `cache`, and what other shards
//!   remember of names here is in `remembered`: whoever changes such a name tells them first.
//! - `found_file`, `touched` and `touched_record` are copies of records. Whatever writes a record
//!   forgets its copy.

pub(crate) mod attr;
pub(crate) mod dentry;
pub(crate) mod dentry_cache;
pub(crate) mod found;
pub(crate) mod inode;
pub(crate) mod layout;
pub(crate) mod list;
pub(crate) mod member;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod pending_create;
pub(crate) mod removed;
pub(crate) mod rename;
pub(crate) mod room;
pub(crate) mod seat;
pub(crate) mod special;
pub(crate) mod state;
pub(crate) mod temporary;
pub(crate) mod walk;
pub(crate) mod xattrs;

use std::ops::Range;

use mayfly_meta::{key::DentryKey, record::Inode};
use mayfly_types::FileId;

use crate::{
    api::Directories,
    maps::HashMap,
    message::SpaceFacts,
    namespace::{
        dentry_cache::DentryCache,
        state::{
            inode::FoundFile,
            remembered::{RememberedNames, ShownNames},
            removed::Removed,
            seats::Seats,
        },
    },
    shards::slots::ShardId,
};

/// What a shard keeps in mind of names and inodes besides their records.
pub(crate) struct Namespace {
    /// Dentries of other shards.
    pub(crate) cache: DentryCache,
    /// So many names of other nodes are shown to processes.
    pub(crate) shown_names: ShownNames,
    /// Names that other shards may have in their dentry caches.
    pub(crate) remembered: RememberedNames,
    /// The last record that the walk of this request has found, so that it need not be read again.
    /// Whatever writes a record forgets it.
    pub(crate) found_file: Option<FoundFile>,
    /// The key of a dentry, made where it stays.
    pub(crate) key: DentryKey,
    /// The directory in which a name was made or removed last, as its record has it. Whoever loads
    /// it takes it; whatever writes that record otherwise forgets it.
    pub(crate) touched: Option<Box<Inode>>,
    /// Its record, and of which directory it is: none when it was written otherwise since.
    pub(crate) touched_record: (FileId, Vec<u8>),
    /// Directories that were removed while processes may still work in them.
    pub(crate) removed: Removed,
    /// How far directories are spread.
    pub(crate) seats: Seats,
    /// What other nodes have said of their space, and when, seconds.
    pub(crate) rooms: HashMap<u32, (SpaceFacts, i64)>,
    /// Numbers of files that are to be made at other shards.
    pub(crate) numbers: HashMap<ShardId, Range<u64>>,
    /// Orphans that nobody has open and that an operation may be about to name.
    pub(crate) spared_orphans: Vec<FileId>,
    /// A record that is being made: a buffer that is there already.
    pub(crate) record: Vec<u8>,
}

impl Namespace {
    pub(crate) fn new(cached_dentries_max: usize, directories: Directories) -> Namespace {
        Namespace {
            cache: DentryCache::new(cached_dentries_max),
            shown_names: ShownNames::default(),
            remembered: RememberedNames::default(),
            found_file: None,
            key: DentryKey::default(),
            touched: None,
            touched_record: (FileId::NONE, Vec::new()),
            removed: Removed::default(),
            seats: Seats::new(directories),
            rooms: HashMap::default(),
            numbers: HashMap::default(),
            spared_orphans: Vec::new(),
            record: Vec::new(),
        }
    }
}

//! What [`crate::namespace::member`] keeps and works with.

use mayfly_meta::record::{Layout, Member};
use mayfly_types::{Errno, FileId, limits::SUBDIRECTORIES_MAX};

use crate::{message::Answer, namespace::state::inode::Located};

/// A directory in which names are made and removed here.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "one lives for a moment, and a box costs each create")]
pub(crate) enum Parent {
    Home(Located),
    Member(FileId, Member),
}

impl Parent {
    pub(crate) fn mode(&self) -> u32 {
        match self {
            Parent::Home(located) => u32::from(located.inode.mode),
            Parent::Member(_, member) => u32::from(member.mode),
        }
    }

    /// Group of what is made in it: the directory's when that is marked so.
    pub(crate) fn inherited_group(&self, gid: u32) -> u32 {
        match self {
            _ if self.mode() & 0o2000 == 0 => gid,
            Parent::Home(located) => located.inode.gid,
            Parent::Member(_, member) => member.gid,
        }
    }

    /// Layout of what is made in it.
    pub(crate) fn layout(&self) -> &Layout {
        match self {
            Parent::Home(located) => &located.inode.layout,
            Parent::Member(_, member) => &member.layout,
        }
    }

    /// Whether no other directory can be made in it. With members the bound is each shard's.
    /// Names in the directory, those of other shards not counted.
    pub(crate) fn entries(&self) -> u64 {
        match self {
            Parent::Home(located) => located.directory().map_or(0, |node| node.entries),
            Parent::Member(_, member) => member.entries,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        match self {
            Parent::Home(located) => located.inode.links >= SUBDIRECTORIES_MAX,
            Parent::Member(_, member) => member.subdirectories >= SUBDIRECTORIES_MAX,
        }
    }
}

/// An answer that is an error; any other one would be a mistake of ours.
pub(crate) fn unexpected(answer: &Answer) -> crate::fault::Fault {
    match answer {
        Answer::Failed(errno) => (*errno).into(),
        _ => Errno::EIO.into(),
    }
}

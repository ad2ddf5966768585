//! What [`crate::namespace::inode`] keeps and works with.

use mayfly_meta::record::{BirthKey, Content, DirectoryNode, Inode};
use mayfly_types::{Errno, FileId};

use crate::fault::Outcome;

/// An inode and where its record is.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    /// Boxed, since it is long and handed on a few times in each request.
    pub(crate) inode: Box<Inode>,
    /// The dentry that it is fused into.
    pub(crate) fused: Option<BirthKey>,
}

/// A file that a walk found fused into a dentry.
#[derive(Debug)]
pub(crate) struct FoundFile {
    pub(crate) directory: FileId,
    pub(crate) cookie: u64,
    pub(crate) id: FileId,
    /// Its inode; none where the name was looked up and the file is light ([`Dentry::is_light`]).
    pub(crate) inode: Option<Box<Inode>>,
}

impl FoundFile {
    pub(crate) fn is(&self, id: FileId, directory: FileId, cookie: u64) -> bool {
        self.id == id && self.directory == directory && self.cookie == cookie
    }
}

impl Located {
    /// With what an open file finds it again.
    pub(crate) fn birth(&self) -> BirthKey {
        self.fused.clone().unwrap_or_default()
    }

    pub(crate) fn directory(&self) -> Outcome<&DirectoryNode> {
        match &self.inode.content {
            Content::Directory(node) => Ok(node),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    pub(crate) fn directory_mut(&mut self) -> Outcome<&mut DirectoryNode> {
        match &mut self.inode.content {
            Content::Directory(node) => Ok(node),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }
}

/// Owner and permission bits of a new file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ownership {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

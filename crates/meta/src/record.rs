//! The records and their bytes (`docs/design/on-disk.md`).
//!
//! Every record starts with a byte that names its form and version. Decoding takes any bytes: a
//! record that does not make sense is [`StoreError::Corrupt`], never a panic.

mod chunks;
mod inode;
mod intent;
pub mod journal;
mod master;
mod part;
mod small;
mod step;
#[cfg(test)]
mod tests;
mod xattrs;

pub use chunks::Chunks;
pub use inode::{Content, DirectoryNode, Inode, Layout, Origin, Policy, Seen};
pub use intent::{Intent, Member, Spread};
pub use master::{Begun, Master};
pub use part::{Part, PendingCut, Unlinked};
pub use small::{
    Append, BirthKey, Counters, HeldLock, Instance, SlotRanges, decode_locks, encode_locks,
};
pub use step::{Maker, NamedFile, PartOf, Step};
pub use xattrs::Xattrs;

use mayfly_types::{FileId, FileKind};

use crate::{
    StoreError,
    bytes::{Put, Take},
};

/// A dentry that names its file and no more; the inode has a record of its own.
const PLAIN_V1: u8 = 0x11;
/// A dentry with the inode in it.
const FUSED_V1: u8 = 0x12;
/// An inode under its own key.
const INODE_V1: u8 = 0x21;

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dentry {
    /// The file, whose inode is found under its id.
    Plain {
        /// The file.
        id: FileId,
        /// Its type.
        kind: FileKind,
    },
    /// The file with its inode: it was created under this name and never moved or linked.
    Fused(Box<Inode>),
}

impl Dentry {
    /// The file.
    #[must_use]
    pub fn id(&self) -> FileId {
        match self {
            Dentry::Plain { id, .. } => *id,
            Dentry::Fused(inode) => inode.id,
        }
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        match self {
            Dentry::Plain { kind, .. } => *kind,
            Dentry::Fused(inode) => inode.kind(),
        }
    }

    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Dentry::Plain { id, kind } => {
                let mut record = vec![PLAIN_V1, *kind as u8];
                record.put_u64(id.0);
                record
            }
            Dentry::Fused(inode) => inode.encode_fused(),
        }
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Dentry, StoreError> {
        match record.split_first() {
            Some((&FUSED_V1, body)) => Ok(Dentry::Fused(Box::new(Inode::decode_body(body)?))),
            Some((&PLAIN_V1, body)) => {
                let (id, kind) = Dentry::plain(body)?;
                Ok(Dentry::Plain { id, kind })
            }
            _ => Err(StoreError::Corrupt("an unknown form of dentry")),
        }
    }

    /// File and type alone, without the inode's content being copied.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn peek(record: &[u8]) -> Result<(FileId, FileKind), StoreError> {
        match record.split_first() {
            Some((&FUSED_V1, body)) => inode::peek(body),
            Some((&PLAIN_V1, body)) => Dentry::plain(body),
            _ => Err(StoreError::Corrupt("an unknown form of dentry")),
        }
    }

    /// Whether all there is of the file is in this record, and the file ends with this name: a
    /// regular file without an object, with this one name, without extended attributes, and of a
    /// layout that lets no other shard have made it.
    #[must_use]
    pub fn is_light(record: &[u8]) -> bool {
        matches!(record.split_first(), Some((&FUSED_V1, body)) if inode::is_light(body))
    }

    fn plain(body: &[u8]) -> Result<(FileId, FileKind), StoreError> {
        let mut from = Take(body);
        let kind = kind(from.u8()?)?;
        let id = FileId(from.u64()?);
        from.finish()?;
        Ok((id, kind))
    }
}

impl Inode {
    /// The record of a dentry with this inode in it ([`Dentry::Fused`]).
    #[must_use]
    pub fn encode_fused(&self) -> Vec<u8> {
        let mut record = Vec::new();
        self.encode_fused_to(&mut record);
        record
    }

    /// The same in the place of what is in `record`.
    pub fn encode_fused_to(&self, record: &mut Vec<u8>) {
        self.encode(FUSED_V1, record);
    }

    /// The same of a small file that has `bytes` now, whatever it had before.
    pub fn encode_fused_with(&self, bytes: &[u8], record: &mut Vec<u8>) {
        debug_assert!(matches!(self.content, Content::Inline(_)));
        debug_assert_eq!(self.size_bytes, bytes.len() as u64);
        self.encode_with(FUSED_V1, Some(bytes), record);
    }

    /// The record under the inode's own key.
    #[must_use]
    pub fn encode_own(&self) -> Vec<u8> {
        let mut record = Vec::new();
        self.encode_own_to(&mut record);
        record
    }

    /// The same in the place of what is in `record`.
    pub fn encode_own_to(&self, record: &mut Vec<u8>) {
        self.encode(INODE_V1, record);
    }

    /// Brings `record` up to date, which was this directory's before names were made or removed in
    /// it: links, times of change and number of entries. False when it has to be made anew.
    pub fn touch_own(&self, record: &mut [u8]) -> bool {
        record.first() == Some(&INODE_V1) && self.touch(record)
    }

    /// From the record under the inode's own key.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode_own(record: &[u8]) -> Result<Inode, StoreError> {
        match record.split_first() {
            Some((&INODE_V1, body)) => Inode::decode_body(body),
            _ => Err(StoreError::Corrupt("an unknown form of inode")),
        }
    }
}

fn kind(raw: u8) -> Result<FileKind, StoreError> {
    FileKind::from_raw(raw).ok_or(StoreError::Corrupt("an unknown type of file"))
}

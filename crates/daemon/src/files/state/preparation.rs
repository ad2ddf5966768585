//! What [`crate::files::preparation`] keeps and works with.

use mayfly_meta::record::{Content, Inode, PendingCut};
use mayfly_object::{ObjectAttr, ObjectId, ObjectStore};
use mayfly_types::{Errno, FileId, Timestamp};

use crate::striping::state::object_change::ObjectChange;

/// What is missing.
#[derive(Debug)]
pub(crate) enum Preparation {
    /// To look at this object.
    Open(ObjectId),
    /// To cut what was never acknowledged off an object.
    Cut(ObjectId, Cut),
    /// To make an object with these bytes.
    Move(Moved),
    /// To make the object of a part if there is none, and to cut it.
    Part(ObjectId, Option<PendingCut>),
    /// To change the object of a part for the file's home.
    Change(ObjectId, ObjectChange),
    /// To know what space the objects of open files take.
    Survey(Vec<ObjectId>),
    /// What somebody else has begun.
    Join(Subject),
}

/// What a preparation is about; there is one at a time for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Object(ObjectId),
    Content(FileId),
    Part(ObjectId),
    /// Nobody else changes it meanwhile.
    Append(ObjectId),
    Sync(ObjectId),
    Space,
}

impl Subject {
    /// What a change of a stripe object keeps others away from.
    fn of_change(change: &ObjectChange, object: ObjectId) -> Subject {
        match change {
            ObjectChange::Append { .. } | ObjectChange::Allocate { .. } => Subject::Append(object),
            ObjectChange::Sync | ObjectChange::Seek { .. } => Subject::Sync(object),
        }
    }
}

/// What an object has to be like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) size_bytes: u64,
    pub(crate) mtime: Timestamp,
}

/// An object that takes the bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) object: ObjectId,
    pub(crate) bytes: Vec<u8>,
    pub(crate) size_bytes: u64,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
}

impl Moved {
    pub(crate) fn make(&self, objects: &dyn ObjectStore) -> Result<ObjectAttr, Errno> {
        let make = || {
            objects.create(self.object, &self.bytes)?;
            if self.size_bytes != self.bytes.len() as u64 {
                objects.set_size(self.object, self.size_bytes)?;
            }
            objects.set_times(self.object, Some(self.atime), Some(self.mtime))?;
            objects.attr(self.object)
        };
        make().inspect_err(|_| {
            // The bytes that are there already take space on a disk that may be full. If it cannot
            // be removed its name is used again.
            let _removed = objects.remove(self.object);
        })
    }

    /// Whether the object is still what the file is to become.
    pub(crate) fn is_right(&self, inode: &Inode, size_bytes: u64) -> bool {
        let same = |bytes: &[u8]| *bytes == self.bytes;
        self.object.file == inode.id
            && matches!(&inode.content, Content::Inline(bytes) if same(bytes))
            && (self.size_bytes, self.mtime) == (size_bytes, inode.mtime)
    }
}

impl Cut {
    pub(crate) fn make(&self, object: ObjectId, objects: &dyn ObjectStore) -> Result<(), Errno> {
        objects.set_size(object, self.size_bytes)?;
        objects.set_times(object, None, Some(self.mtime))
    }
}

impl Preparation {
    pub(crate) fn subject(&self) -> Subject {
        match self {
            Preparation::Open(object) => Subject::Object(*object),
            Preparation::Cut(object, _) => Subject::Content(object.file),
            Preparation::Move(moved) => Subject::Content(moved.object.file),
            Preparation::Part(object, _) => Subject::Part(*object),
            Preparation::Change(object, change) => Subject::of_change(change, *object),
            Preparation::Survey(_) => Subject::Space,
            Preparation::Join(subject) => *subject,
        }
    }
}

/// What came of a preparation.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// The object is open, or cut.
    Object(ObjectId, Result<(), Errno>),
    Moved(Moved, Result<ObjectAttr, Errno>),
    Part(ObjectId, Option<PendingCut>, Result<(), Errno>),
    /// As [`ObjectChange::make`] says.
    Changed(ObjectId, Result<u64, Errno>),
    /// With the space that each takes, in blocks, where that can be seen.
    Survey(Vec<(ObjectId, Option<u64>)>),
}

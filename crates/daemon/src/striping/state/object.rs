//! What [`crate::striping::object`] keeps and works with.

use std::collections::HashMap;

use mayfly_meta::record::PendingCut;
use mayfly_object::{ObjectId, ObjectStore};
use mayfly_types::{Errno, FileId};
use mayfly_wire::{Read, Written};

use crate::{
    api::Caller,
    message::PartPlace,
    striping::state::{object_append::Appended, object_hold::Hold, object_leave::Leave},
};

/// The parts that are being changed.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) active: HashMap<FileId, Active>,
    /// What processes of the node may do by themselves.
    pub(crate) leaves: HashMap<FileId, Leave>,
    /// When there are so many, those are looked for whose file is not open any more.
    pub(crate) leaves_max: usize,
    /// Who must not become longer.
    pub(crate) holds: HashMap<FileId, Hold>,
}

#[derive(Debug, Default)]
pub(crate) struct Active {
    /// Of which generation the file's home knows that the part may change.
    pub(crate) admitted: Option<u32>,
    /// There is an object.
    pub(crate) exists: bool,
    /// Space set aside for it while its record is dirty, bytes.
    pub(crate) charged_bytes: u64,
    /// Writes under way.
    pub(crate) jobs: u32,
    /// What is appended, or was last.
    pub(crate) appended: Option<Appended>,
}

/// A read of a part that was done.
#[derive(Debug)]
pub(crate) struct ReadDone {
    pub(crate) caller: Caller,
    pub(crate) place: PartPlace,
    pub(crate) read: Read,
    pub(crate) count: usize,
    /// Length of the file, when it was asked for.
    pub(crate) size_bytes: Option<u64>,
    pub(crate) cuts: u32,
    pub(crate) result: Result<Vec<u8>, Errno>,
}

/// A write that was done.
#[derive(Debug)]
pub(crate) struct WriteDone {
    pub(crate) caller: Caller,
    pub(crate) object: ObjectId,
    pub(crate) written: Written,
    /// Its place among those that were begun.
    pub(crate) place: Option<usize>,
    pub(crate) result: Result<(), Errno>,
}

/// Makes the object of a part, unless there is one, and cuts it.
pub(crate) fn make_ready(
    object: ObjectId,
    cut: Option<PendingCut>,
    objects: &dyn ObjectStore,
) -> Result<(), Errno> {
    match objects.attr(object) {
        Err(Errno::ENOENT) => objects.create(object, &[])?,
        other => drop(other?),
    }
    let Some(cut) = cut else { return Ok(()) };
    if objects.attr(object)?.size_bytes > cut.at_most {
        objects.set_size(object, cut.at_most)?;
    }
    if objects.attr(object)?.size_bytes < cut.at_least {
        objects.set_size(object, cut.at_least)?;
    }
    Ok(())
}

/// Writes bytes at `at`, where the object should end; false when others have written there. The
/// same bytes may have been written before, or a beginning of them, by a daemon that was killed;
/// when somebody has written `behind` them, it was all of them or none.
pub(crate) fn append_at(
    object: ObjectId,
    at: u64,
    (bytes, behind): (&[u8], bool),
    objects: &dyn ObjectStore,
) -> Result<bool, Errno> {
    let mut there = vec![0; bytes.len()];
    let count = objects.read(object, at, &mut there)?;
    if behind {
        return Ok(there[..count] == *bytes);
    }
    let ours = bytes.starts_with(&there[..count]);
    if !ours || objects.attr(object)?.size_bytes > at + bytes.len() as u64 {
        return Ok(false);
    }
    // Bytes that are all there need no space; others may have taken the space since.
    if count < bytes.len() {
        objects.write(object, at, bytes)?;
    }
    Ok(true)
}

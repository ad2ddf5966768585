//! What [`crate::striping::object_change`] keeps and works with.

use mayfly_meta::record::PartOf;
use mayfly_object::{Allocation, ObjectId, ObjectStore};
use mayfly_types::Errno;

use crate::{
    message::PartPlace,
    striping::{arithmetic::Stripes, state::object::append_at},
};

/// Runs of other parts' chunks that one seek passes over.
pub(crate) const SEEKS_MAX: usize = 4096;

/// And their length at most, bytes.
pub(crate) const RUN_BYTES_MAX: u64 = 1 << 40;

/// What is to be done to the object of a part.
#[derive(Debug)]
pub(crate) enum ObjectChange {
    /// As [`append_at`] does.
    Append {
        at: u64,
        bytes: Vec<u8>,
        behind: bool,
    },
    /// In these ranges of the object, as offset and length.
    Allocate {
        what: Allocation,
        ranges: Vec<(u64, u64)>,
    },
    Sync,
    /// Where the part's next data or the next hole is.
    Seek {
        place: PartPlace,
        offset: u64,
        hole: bool,
    },
}

/// What [`ObjectChange::make`] says when others have written where bytes were to be appended.
pub(crate) const OTHERS: u64 = 0;

pub(crate) const DONE: u64 = 1;

/// And when there is no data, or no hole.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// Looks for data or a hole in the part's own chunks, from this offset of the file on.
pub(crate) fn seek(
    place: &PartPlace,
    mut offset: u64,
    hole: bool,
    objects: &dyn ObjectStore,
) -> Result<u64, Errno> {
    let PartOf { layout, index, .. } = place.part;
    let extent = layout.tail.start_bytes;
    for _ in 0..SEEKS_MAX {
        if layout.tail.is_there() && index == 0 && offset >= extent {
            return Ok(NOWHERE);
        }
        let (others, own) = layout.chunks().run(place.file, index, offset, RUN_BYTES_MAX);
        if !own {
            offset = offset.saturating_add(others);
            if others == RUN_BYTES_MAX {
                break;
            }
        }
        let at = layout.in_part(offset);
        let found = match objects.seek(place.object(), at, hole) {
            // Its record is there, and it was not made.
            Err(Errno::ENOENT) => None,
            found => found?,
        };
        let found = match found {
            // Behind the extent are others' bytes.
            Some(found) if layout.tail.is_there() && index == 0 && found >= extent => extent,
            Some(found) => layout.end_of_part(index, found + 1) - 1,
            // Behind the end of the object.
            None if hole => offset,
            None => return Ok(NOWHERE),
        };
        if layout.part_of(place.file, found) == index {
            return Ok(found);
        }
        offset = found;
    }
    // So many runs of others' chunks: it is taken for one without holes.
    Ok(if hole { NOWHERE } else { offset })
}

impl ObjectChange {
    /// [`DONE`], or [`OTHERS`], or where it was found.
    pub(crate) fn make(&self, object: ObjectId, objects: &dyn ObjectStore) -> Result<u64, Errno> {
        match self {
            ObjectChange::Append { at, bytes, behind } => {
                let done = append_at(object, *at, (bytes, *behind), objects)?;
                Ok(if done { DONE } else { OTHERS })
            }
            ObjectChange::Seek { place, offset, hole } => seek(place, *offset, *hole, objects),
            ObjectChange::Allocate { what, ranges } => {
                for (at, bytes) in ranges {
                    objects.allocate(object, *what, *at, *bytes)?;
                }
                Ok(DONE)
            }
            ObjectChange::Sync => objects.sync(object).map(|()| DONE),
        }
    }
}

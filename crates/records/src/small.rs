//! Where the bytes of files are: those of small ones in their records, of others in an object.
//!
//! What is found holds as long as the version is the same: who copies the bytes looks at it once
//! more afterwards ([`crate::is_still`]).

use mayfly_types::{Attr, FileId};

use crate::{
    Unsure,
    attributes::{self, RECORD_CHUNKS, RegularRecord, of_regular, plain},
    key,
    search::{KEY_BYTES_MAX, Place, Runs, Source, find},
    walk::{
        Last, Question, believed_until, find_dentry, find_remembered, is_whole, settled, to_last,
    },
};

/// Longest name under which a small file is looked for, bytes.
pub const SMALL_NAME_BYTES_MAX: usize = KEY_BYTES_MAX - key::PLACE_BYTES;

/// Where the bytes of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    /// In its record.
    Runs(Runs),
    /// In the object of this generation.
    Object {
        /// Which.
        generation: u32,
        /// The attributes tell its length; otherwise the object does.
        settled: bool,
    },
}

/// A regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Regular {
    /// For which version of the records this holds.
    pub version: u64,
    /// Attributes; length, space and times are the object's while that is not settled.
    pub attr: Attr,
    /// Where its bytes are.
    pub bytes: Bytes,
    /// Not to be believed from here on, by the processors' counter; [`u64::MAX`] for a file that is
    /// at home here.
    pub until: u64,
    /// Until when it may be opened without asking, by the processors' counter: of a file that has
    /// an origin. Who has it open keeps what it had.
    pub opens_until: u64,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached<'a> {
    /// A file, and where it is found again: under its name in this directory, or, with
    /// [`FileId::NONE`], under its identity alone.
    Regular(Regular, FileId, &'a [u8]),
    /// No file of that name, in a directory that is there.
    Nothing,
}

/// Follows a path to a regular file.
///
/// # Errors
/// [`Unsure`]: to be asked for.
pub fn reach<'a, S: Source>(source: &S, question: Question<'a>) -> Result<Reached<'a>, Unsure> {
    settled(source, |version| {
        let (directory, name, certain) =
            match to_last(source, version, question.start, question.path)? {
                Last::Name { directory, name, slash: false, certain } => (directory, name, certain),
                Last::Nothing => return Ok(Reached::Nothing),
                Last::Name { .. } | Last::Directory(_) => return Err(Unsure),
            };
        let Some(place) = find_dentry(source, directory, name)? else {
            return if certain && is_whole(source, directory)? {
                Ok(Reached::Nothing)
            } else {
                let found = of_others(source, directory, name, version)?;
                Ok(Reached::Regular(found, directory, name))
            };
        };
        let record = record(&place)?;
        match plain(record.as_flattened())? {
            None => {
                let found =
                    regular((source, &place), 0, of_regular(record.as_flattened())?, version)?;
                Ok(Reached::Regular(found, directory, name))
            }
            Some(id) => Ok(Reached::Regular(own(source, id, version)?, FileId::NONE, b"")),
        }
    })
}

/// Looks for a file once more: under the name in the directory where it was, and under its
/// identity if it has been moved since.
///
/// # Errors
/// [`Unsure`]: to be asked for.
pub fn find_again<S: Source>(
    source: &S,
    id: FileId,
    directory: FileId,
    name: &[u8],
) -> Result<Regular, Unsure> {
    settled(source, |version| {
        if directory != FileId::NONE {
            if let Some(place) = find_dentry(source, directory, name)? {
                if let Ok(found) = of_regular(record(&place)?.as_flattened())
                    && found.attr.id == id
                    && found.fused
                {
                    return regular((source, &place), 0, found, version);
                }
            } else if let Ok(found) = of_others(source, directory, name, version)
                && found.attr.id == id
            {
                return Ok(found);
            }
        }
        own(source, id, version)
    })
}

/// A small file of another node's, whose bytes are remembered with the name.
fn of_others<S: Source>(
    source: &S,
    directory: FileId,
    name: &[u8],
    version: u64,
) -> Result<Regular, Unsure> {
    let file = find_remembered(source, directory, name)?;
    let found = of_regular(file.record())?;
    if !found.fused || found.attr.id != file.id {
        return Err(Unsure);
    }
    // Its object is not here.
    let attributes::Place::Record(_) = found.place else { return Err(Unsure) };
    let found = regular((source, &file.place), key::REMEMBERED_BYTES, found, version)?;
    Ok(Regular { until: file.until, ..found })
}

/// The beginning of a record, with zeros behind one that is shorter.
pub(crate) fn record<S: Source>(place: &Place<'_, S>) -> Result<[[u8; 8]; RECORD_CHUNKS], Unsure> {
    let mut record = [[0; 8]; RECORD_CHUNKS];
    place.value(&mut record)?;
    Ok(record)
}

fn own<S: Source>(source: &S, id: FileId, version: u64) -> Result<Regular, Unsure> {
    let place = find(source, &key::numbered(key::INODE, id))?.ok_or(Unsure)?;
    let found = of_regular(record(&place)?.as_flattened())?;
    if found.fused || found.attr.id != id {
        return Err(Unsure);
    }
    regular((source, &place), 0, found, version)
}

/// The file whose record begins at `record_at` of what stands at the place.
fn regular<S: Source>(
    (source, entry): (&S, &Place<'_, S>),
    record_at: usize,
    found: RegularRecord,
    version: u64,
) -> Result<Regular, Unsure> {
    let RegularRecord { attr, place, unsettled, seen, .. } = found;
    let bytes = match place {
        attributes::Place::Object(generation) => Bytes::Object { generation, settled: !unsettled },
        attributes::Place::Record(_) if unsettled => return Err(Unsure),
        attributes::Place::Record(content_at) => {
            let mut runs = entry.runs()?.behind(record_at + content_at);
            if seen.is_some() {
                // More about the origin stands behind them.
                runs = runs.up_to(attr.size_bytes);
            }
            if runs.bytes() as u64 != attr.size_bytes {
                return Err(Unsure);
            }
            Bytes::Runs(runs)
        }
    };
    let opens_until = believed_until(source, seen.map(|seen| seen.until));
    Ok(Regular { version, attr, bytes, until: u64::MAX, opens_until })
}

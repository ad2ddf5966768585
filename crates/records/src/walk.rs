//! From a path to attributes.

use core::sync::atomic::{Ordering::Acquire, fence};

use mayfly_types::{
    Attr, FileId, FileKind,
    limits::{NAME_BYTES_MAX, PATH_BYTES_MAX},
};

use crate::{
    Unsure,
    attributes::{Dentry, Own, RECORD_CHUNKS, Seen, above_in, of_dentry, of_inode},
    key::{self, PLACE_BYTES},
    page::{MOVES_AT, VERSION_AT},
    search::{KEY_BYTES_MAX, Origins, Place, Source, find, get},
    way::Way,
};

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Where a relative path begins.
    pub start: FileId,
    /// The path; a leading slash is the root of the instance.
    pub path: &'a [u8],
    /// A symbolic link at the end is followed.
    pub follow: bool,
}

/// What is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A file, as its record has it.
    File(Attr),
    /// No file of that name, in a directory that is there.
    Nothing,
}

/// Looks at the records for what a path names.
///
/// # Errors
/// [`Unsure`]: to be asked for.
pub fn look<S: Source>(source: &S, question: Question<'_>) -> Result<Found, Unsure> {
    settled(source, |version| walk(source, version, question))
}

/// The version of the records; none while a transaction is under way.
#[must_use]
pub fn version<S: Source>(source: &S) -> Option<u64> {
    source.word(VERSION_AT).filter(|version| version.is_multiple_of(2))
}

/// Was what has been read until now read at this version?
#[must_use]
pub fn is_still<S: Source>(source: &S, version: u64) -> bool {
    // What was read was read before the version is looked at again.
    fence(Acquire);
    source.word(VERSION_AT) == Some(version)
}

/// What `look` finds, if that is what was committed at one moment.
pub(crate) fn settled<S: Source, T>(
    source: &S,
    look: impl FnOnce(u64) -> Result<T, Unsure>,
) -> Result<T, Unsure> {
    let before = version(source).ok_or(Unsure)?;
    let found = look(before)?;
    if is_still(source, before) { Ok(found) } else { Err(Unsure) }
}

fn walk<S: Source>(source: &S, version: u64, question: Question<'_>) -> Result<Found, Unsure> {
    match to_last(source, version, question.start, question.path)? {
        Last::Directory(id) => end_at_directory(source, id).map(Found::File),
        Last::Nothing => Ok(Found::Nothing),
        Last::Name { directory, name, slash, certain } => match dentry(source, directory, name)? {
            Some(dentry) => end(source, dentry, question.follow, slash).map(Found::File),
            None if certain && is_whole(source, directory)? => Ok(Found::Nothing),
            None if slash => Err(Unsure),
            None => remembered_file(source, directory, name).map(Found::File),
        },
    }
}

/// Until when what was seen of an origin is believed, if the record says so: that of a file without
/// one at any time.
pub(crate) fn believed_until<S: Source>(source: &S, until: Option<u64>) -> u64 {
    match (source.origins(), until) {
        (_, None) | (Origins::ForEver, _) => u64::MAX,
        (Origins::Until, Some(until)) => until,
        (Origins::None | Origins::Never, Some(_)) => 0,
    }
}

pub(crate) fn believe<S: Source>(source: &S, until: Option<u64>) -> Result<(), Unsure> {
    let until = believed_until(source, until);
    if until == u64::MAX || source.now() < until { Ok(()) } else { Err(Unsure) }
}

fn until(seen: Option<Seen>) -> Option<u64> {
    seen.map(|seen| seen.until)
}

/// Whether all names of a directory are in these records. It is there, too, where that had to be
/// looked up, and its names are as they are outside.
pub(crate) fn is_whole<S: Source>(source: &S, directory: FileId) -> Result<bool, Unsure> {
    let origins = source.origins();
    if origins == Origins::None && source.has_all() {
        return Ok(true);
    }
    let version = version(source).ok_or(Unsure)?;
    if origins != Origins::Never && source.recall_whole(directory, version) {
        return Ok(true);
    }
    let mut until = u64::MAX;
    if origins != Origins::None {
        let Own { seen, unlisted, .. } = own(source, directory)?;
        if unlisted {
            return Err(Unsure);
        }
        let names_until = seen.map(|seen| seen.names_until);
        until = believed_until(source, names_until);
        believe(source, names_until)?;
    }
    let whole = is_unspread(source, directory)?;
    if whole && is_still(source, version) {
        source.remember_whole(directory, version, until);
    }
    Ok(whole)
}

/// Whether nothing of a directory is at other shards.
fn is_unspread<S: Source>(source: &S, directory: FileId) -> Result<bool, Unsure> {
    Ok(source.has_all()
        || find(source, &key::numbered(key::INODE, directory))?.is_some()
            && find(source, &key::numbered(key::SPREAD, directory))?.is_none())
}

/// Where a path ends.
pub(crate) enum Last<'a> {
    /// In the directory where it began, or the root: there were no names.
    Directory(FileId),
    /// Nowhere: a name on the way is not there.
    Nothing,
    /// With a name.
    Name {
        directory: FileId,
        name: &'a [u8],
        /// There is a slash behind it.
        slash: bool,
        /// The directory is one, and is there.
        certain: bool,
    },
}

/// Follows a path to its last name, in the records of `version`.
#[inline]
pub(crate) fn to_last<'a, S: Source>(
    source: &S,
    version: u64,
    start: FileId,
    path: &'a [u8],
) -> Result<Last<'a>, Unsure> {
    if path.is_empty() || path.len() >= PATH_BYTES_MAX {
        return Err(Unsure);
    }
    let Some((way, name)) = Way::of(start, path, || source.word(MOVES_AT)) else {
        return follow(source, start, path).map(|(last, _)| last);
    };
    if let Some(directory) = source.recall(way) {
        return Ok(Last::Name { directory, name, slash: false, certain: true });
    }
    let (last, until) = follow(source, start, path)?;
    if let Last::Name { directory, .. } = last
        && is_still(source, version)
    {
        source.remember(way, directory, until);
    }
    Ok(last)
}

/// Where the path ends, and until when its directories are believed to lead there.
fn follow<'a, S: Source>(
    source: &S,
    start: FileId,
    path: &'a [u8],
) -> Result<(Last<'a>, u64), Unsure> {
    let absolute = path[0] == b'/';
    let mut directory = if absolute { FileId::ROOT } else { start };
    // That the first one is a directory, and is there, is known of the root only.
    let mut is_directory = directory == FileId::ROOT;
    let mut until = u64::MAX;
    let mut rest = path;
    while let Some(name) = next(&mut rest) {
        if name.len() > NAME_BYTES_MAX {
            return Err(Unsure);
        }
        if name == b"." {
            continue;
        }
        if name == b".." {
            (directory, is_directory) = (above(source, directory)?, true);
            continue;
        }
        if rest.iter().all(|byte| *byte == b'/') {
            let (slash, certain) = (!rest.is_empty(), is_directory);
            return Ok((Last::Name { directory, name, slash, certain }, until));
        }
        let id = match dentry(source, directory, name)? {
            Some(Dentry::Plain(id, FileKind::Directory)) => id,
            None if is_directory && is_whole(source, directory)? => {
                return Ok((Last::Nothing, until));
            }
            None => {
                let (id, known_until) = remembered(source, directory, name)?;
                until = until.min(known_until);
                id
            }
            _ => return Err(Unsure),
        };
        (directory, is_directory) = (id, true);
    }
    // Nothing but slashes and dots.
    if !is_directory && !is_there(source, directory)? {
        return Err(Unsure);
    }
    Ok((Last::Directory(directory), until))
}

/// Whether there is a directory of that number, which has a name.
pub(crate) fn is_there<S: Source>(source: &S, directory: FileId) -> Result<bool, Unsure> {
    let Own { attr, .. } = own(source, directory)?;
    Ok(attr.kind == FileKind::Directory && attr.links > 0)
}

/// The directory above one that is there. Above the root is the outside.
fn above<S: Source>(source: &S, directory: FileId) -> Result<FileId, Unsure> {
    if directory == FileId::ROOT {
        return Err(Unsure);
    }
    let mut record = [[0; 8]; RECORD_CHUNKS];
    let count = get(source, &key::numbered(key::INODE, directory), &mut record)?.ok_or(Unsure)?;
    above_in(&record.as_flattened()[..count])
}

/// The directory for which a name of another node's stands, and until when.
fn remembered<S: Source>(
    source: &S,
    directory: FileId,
    name: &[u8],
) -> Result<(FileId, u64), Unsure> {
    if source.has_all() {
        return Err(Unsure);
    }
    let place = find_name(source, key::REMEMBERED, directory, name)?.ok_or(Unsure)?;
    let mut record = [[0; 8]; key::REMEMBERED_BYTES / 8];
    if place.value(&mut record)? != key::REMEMBERED_BYTES {
        return Err(Unsure);
    }
    let [id, until] = record.map(u64::from_le_bytes);
    if source.now() < until { Ok((FileId(id), until)) } else { Err(Unsure) }
}

/// What is remembered of a file of another node's.
pub(crate) struct RememberedFile<'a, S: Source> {
    /// The record; what follows stands behind [`key::REMEMBERED_BYTES`].
    pub(crate) place: Place<'a, S>,
    pub(crate) id: FileId,
    /// Not to be believed from here on, by the processors' counter.
    pub(crate) until: u64,
    record: [[u8; 8]; RECORD_CHUNKS],
    bytes: usize,
}

impl<S: Source> RememberedFile<'_, S> {
    /// The beginning of the record that the file's name has where it is at home.
    pub(crate) fn record(&self) -> &[u8] {
        let record = self.record.as_flattened();
        record.get(..self.bytes).unwrap_or(record)
    }
}

/// The file of another node's that the name stands for.
pub(crate) fn find_remembered<'a, S: Source>(
    source: &'a S,
    directory: FileId,
    name: &[u8],
) -> Result<RememberedFile<'a, S>, Unsure> {
    const HEAD_CHUNKS: usize = key::REMEMBERED_BYTES / 8;
    if source.has_all() {
        return Err(Unsure);
    }
    let place = find_name(source, key::REMEMBERED, directory, name)?.ok_or(Unsure)?;
    let mut value = [[0; 8]; HEAD_CHUNKS + RECORD_CHUNKS];
    let bytes = place.value(&mut value)?.saturating_sub(key::REMEMBERED_BYTES);
    let ([id, until], rest) = value.split_first_chunk().ok_or(Unsure)?;
    let record = *rest.first_chunk().ok_or(Unsure)?;
    let (id, until) = (FileId(u64::from_le_bytes(*id)), u64::from_le_bytes(*until));
    if source.now() < until {
        Ok(RememberedFile { place, id, until, record, bytes })
    } else {
        Err(Unsure)
    }
}

/// The attributes of a file of another node's that the name stands for.
fn remembered_file<S: Source>(source: &S, directory: FileId, name: &[u8]) -> Result<Attr, Unsure> {
    let file = find_remembered(source, directory, name)?;
    match of_dentry(file.record())? {
        Dentry::Fused(attr, None) if attr.id == file.id => Ok(attr),
        _ => Err(Unsure),
    }
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let start = rest.iter().position(|byte| *byte != b'/')?;
    let path = &rest[start..];
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    let (name, after) = path.split_at(end);
    *rest = after;
    Some(name)
}

/// The file that the last name stands for. Whether what a slash follows is a directory, and where a
/// link leads, is the daemon's affair.
fn end<S: Source>(source: &S, dentry: Dentry, follow: bool, slash: bool) -> Result<Attr, Unsure> {
    let attr = match dentry {
        Dentry::Fused(attr, seen) => {
            believe(source, until(seen))?;
            attr
        }
        Dentry::Plain(id, _) => inode(source, id)?,
    };
    let directory = attr.kind == FileKind::Directory;
    let link = attr.kind == FileKind::Symlink;
    // A spread directory has links and times at other shards, too.
    let partly = directory && !is_unspread(source, attr.id)?;
    if link && follow || slash && !directory || partly { Err(Unsure) } else { Ok(attr) }
}

fn dentry<S: Source>(source: &S, directory: FileId, name: &[u8]) -> Result<Option<Dentry>, Unsure> {
    let Some(place) = find_dentry(source, directory, name)? else { return Ok(None) };
    let mut record = [[0; 8]; RECORD_CHUNKS];
    let count = place.value(&mut record)?;
    of_dentry(&record.as_flattened()[..count]).map(Some)
}

/// The record of a name.
#[inline]
pub(crate) fn find_dentry<'a, S: Source>(
    source: &'a S,
    directory: FileId,
    name: &[u8],
) -> Result<Option<Place<'a, S>>, Unsure> {
    find_name(source, key::DENTRY, directory, name)
}

#[inline]
fn find_name<'a, S: Source>(
    source: &'a S,
    tag: u8,
    directory: FileId,
    name: &[u8],
) -> Result<Option<Place<'a, S>>, Unsure> {
    let mut key = [0; KEY_BYTES_MAX];
    let (place, rest) = key.split_at_mut(PLACE_BYTES);
    place.copy_from_slice(&key::place(directory, key::cookie(directory, name)));
    place[0] = tag;
    // Longer names are left to the daemon.
    let there = rest.get_mut(..name.len()).ok_or(Unsure)?;
    there.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    find(source, &key[..PLACE_BYTES + name.len()])
}

fn end_at_directory<S: Source>(source: &S, id: FileId) -> Result<Attr, Unsure> {
    if is_unspread(source, id)? { inode(source, id) } else { Err(Unsure) }
}

/// Attributes that are believed.
fn inode<S: Source>(source: &S, id: FileId) -> Result<Attr, Unsure> {
    let Own { attr, seen, .. } = own(source, id)?;
    believe(source, until(seen))?;
    Ok(attr)
}

fn own<S: Source>(source: &S, id: FileId) -> Result<Own, Unsure> {
    let mut record = [[0; 8]; RECORD_CHUNKS];
    let count = get(source, &key::numbered(key::INODE, id), &mut record)?.ok_or(Unsure)?;
    of_inode(&record.as_flattened()[..count])
}

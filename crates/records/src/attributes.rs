//! What a record tells of its file, as far as stat wants to know.
//!
//! `meta::record` has the whole of it. A record that has more than usual in the middle (a residency
//! map) is left to the daemon. Of a file that has an origin the record says until when it is
//! believed ([`Seen`]).

use mayfly_types::{
    Attr, BLOCK_BYTES, DIRECTORY_BYTES, FileId, FileKind, Timestamp, inline_blocks,
};

use crate::Unsure;

const PLAIN: u8 = 0x11;
const FUSED: u8 = 0x12;
const OWN: u8 = 0x21;
/// Flags of an inode.
const UNSETTLED: u8 = 1;
const UNLISTED: u8 = 2;
/// What the first byte about an origin is of a file that has one, besides its flags.
const ORIGIN: u8 = 2;
const RESIDENT: u8 = 1;

/// What tells is in the first bytes of a record, in eights.
pub const RECORD_CHUNKS: usize = 16;

/// What the record of a file that has an origin says of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// All bytes are here.
    pub resident: bool,
    /// Until when its attributes are believed, by the processors' counter.
    pub until: u64,
    /// Of a directory: the same of its names.
    pub names_until: u64,
}

/// What a dentry's record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dentry {
    /// The inode has a record of its own.
    Plain(FileId, FileKind),
    /// The inode is in the dentry.
    Fused(Attr, Option<Seen>),
}

/// Bytes of a record, from the front.
struct Take<'a>(&'a [u8]);

impl Take<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unsure> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Unsure)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, Unsure> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, Unsure> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Unsure> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Unsure> {
        self.array().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Result<Timestamp, Unsure> {
        let seconds = i64::from_le_bytes(self.array()?);
        let nanoseconds = self.u32()?;
        if nanoseconds < 1_000_000_000 {
            Ok(Timestamp { seconds, nanoseconds })
        } else {
            Err(Unsure)
        }
    }

    fn kind(&mut self) -> Result<FileKind, Unsure> {
        FileKind::from_raw(self.u8()?).ok_or(Unsure)
    }
}

/// From the record of a dentry.
///
/// # Errors
/// [`Unsure`].
pub fn of_dentry(record: &[u8]) -> Result<Dentry, Unsure> {
    match record.split_first() {
        Some((&PLAIN, body)) => {
            let mut from = Take(body);
            let kind = from.kind()?;
            Ok(Dentry::Plain(FileId(from.u64()?), kind))
        }
        Some((&FUSED, body)) => {
            let Taken { attr, seen, .. } = take_with(&mut Take(body), 0)?;
            Ok(Dentry::Fused(attr, seen))
        }
        _ => Err(Unsure),
    }
}

/// The identity from the record of a dentry whose inode has a record of its own.
///
/// # Errors
/// [`Unsure`].
pub(crate) fn plain(record: &[u8]) -> Result<Option<FileId>, Unsure> {
    match record.first() {
        Some(&PLAIN) => peek(record).map(|(id, _)| Some(id)),
        Some(&FUSED) => Ok(None),
        _ => Err(Unsure),
    }
}

/// An inode that has a record of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// Its attributes.
    pub attr: Attr,
    /// What is known of its origin, if it has one.
    pub seen: Option<Seen>,
    /// It is a directory, and nobody has looked yet which names it has.
    pub unlisted: bool,
}

/// From the record of an inode of its own.
///
/// # Errors
/// [`Unsure`].
pub fn of_inode(record: &[u8]) -> Result<Own, Unsure> {
    let Some((&OWN, body)) = record.split_first() else { return Err(Unsure) };
    let Taken { attr, flags, seen, .. } = take_with(&mut Take(body), UNLISTED)?;
    Ok(Own { attr, seen, unlisted: flags & UNLISTED != 0 })
}

/// Identity and type from the beginning of a dentry's record.
///
/// # Errors
/// [`Unsure`].
pub(crate) fn peek(record: &[u8]) -> Result<(FileId, FileKind), Unsure> {
    let (form, body) = record.split_first().ok_or(Unsure)?;
    let mut from = Take(body);
    match *form {
        PLAIN => {
            let kind = from.kind()?;
            Ok((FileId(from.u64()?), kind))
        }
        FUSED => {
            let id = FileId(from.u64()?);
            Ok((id, from.kind()?))
        }
        _ => Err(Unsure),
    }
}

/// From the record of a directory: its attributes, and its parent.
///
/// # Errors
/// [`Unsure`].
pub(crate) fn of_directory(record: &[u8]) -> Result<(Attr, FileId), Unsure> {
    let Some((&OWN, body)) = record.split_first() else { return Err(Unsure) };
    let mut from = Take(body);
    let attr = take_with(&mut from, 0)?.attr;
    if attr.kind != FileKind::Directory {
        return Err(Unsure);
    }
    Ok((attr, FileId(from.u64()?)))
}

/// From the record of a directory that has a name: the directory above.
///
/// # Errors
/// [`Unsure`].
pub(crate) fn above_in(record: &[u8]) -> Result<FileId, Unsure> {
    let Some((&OWN, body)) = record.split_first() else { return Err(Unsure) };
    let mut from = Take(body);
    let attr = take_with(&mut from, UNLISTED)?.attr;
    if attr.kind != FileKind::Directory || attr.links == 0 {
        return Err(Unsure);
    }
    Ok(FileId(from.u64()?))
}

/// From the record of a directory: its parent, and its name there.
///
/// # Errors
/// [`Unsure`].
pub(crate) fn of_directory_with_name(record: &[u8]) -> Result<(FileId, &[u8]), Unsure> {
    let Some((&OWN, body)) = record.split_first() else { return Err(Unsure) };
    let mut from = Take(body);
    if take_with(&mut from, UNLISTED)?.attr.kind != FileKind::Directory {
        return Err(Unsure);
    }
    let (parent, bytes) = (FileId(from.u64()?), usize::from(from.u8()?));
    Ok((parent, from.0.get(..bytes).ok_or(Unsure)?))
}

/// Where the record of a regular file says that its bytes are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// From here on in the record; as many as the file is long.
    Record(usize),
    /// In the object of this generation.
    Object(u32),
}

/// What the record of a regular file says, of whichever form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegularRecord {
    pub(crate) attr: Attr,
    pub(crate) place: Place,
    /// The object knows better how long it is.
    pub(crate) unsettled: bool,
    /// The inode is in the dentry.
    pub(crate) fused: bool,
    pub(crate) seen: Option<Seen>,
}

/// From the beginning of the record of a regular file whose bytes are in it, or in one object.
///
/// # Errors
/// [`Unsure`].
pub(crate) fn of_regular(record: &[u8]) -> Result<RegularRecord, Unsure> {
    let (form, body) = record.split_first().ok_or(Unsure)?;
    if !matches!(*form, FUSED | OWN) {
        return Err(Unsure);
    }
    let mut from = Take(body);
    let Taken { attr, flags, generation, seen } = take_with(&mut from, UNSETTLED)?;
    // What comes last says whether the bytes are in an object.
    let content = record.len().checked_sub(from.0.len()).ok_or(Unsure)?;
    let place = match content.checked_sub(1).and_then(|at| record.get(at)) {
        _ if attr.kind != FileKind::Regular => return Err(Unsure),
        // The bytes are elsewhere.
        _ if seen.is_some_and(|seen| !seen.resident) => return Err(Unsure),
        Some(0) if u64::from(from.u32()?) == attr.size_bytes => Place::Record(content + 4),
        Some(1) if generation != 0 => Place::Object(generation),
        _ => return Err(Unsure),
    };
    let (unsettled, fused) = (flags & UNSETTLED != 0, *form == FUSED);
    Ok(RegularRecord { attr, place, unsettled, fused, seen })
}

/// What the record of a file says of where a link leads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkRecord {
    /// Of a symbolic link: where its target begins in the record, and how long that is, bytes.
    pub(crate) target: Option<(usize, usize)>,
    pub(crate) seen: Option<Seen>,
}

/// From the beginning of the record of any file.
///
/// # Errors
/// [`Unsure`].
pub(crate) fn of_link(record: &[u8]) -> Result<LinkRecord, Unsure> {
    let (form, body) = record.split_first().ok_or(Unsure)?;
    if !matches!(*form, FUSED | OWN) {
        return Err(Unsure);
    }
    let mut from = Take(body);
    let Taken { attr, seen, .. } = take_with(&mut from, UNSETTLED | UNLISTED)?;
    if attr.kind != FileKind::Symlink {
        return Ok(LinkRecord { target: None, seen });
    }
    let bytes = from.u32()? as usize;
    let at = record.len().checked_sub(from.0.len()).ok_or(Unsure)?;
    Ok(LinkRecord { target: Some((at, bytes)), seen })
}

/// What stands before the content.
struct Taken {
    attr: Attr,
    flags: u8,
    /// Of the latest object.
    generation: u32,
    seen: Option<Seen>,
}

/// As far as the attributes go, of an inode that has no other flags than these. Any other leads to
/// the daemon: an object that is being written knows better.
fn take_with(from: &mut Take<'_>, known: u8) -> Result<Taken, Unsure> {
    let id = FileId(from.u64()?);
    let kind = from.kind()?;
    let flags = from.u8()?;
    if flags & !known != 0 {
        return Err(Unsure);
    }
    let mode = u32::from(from.u16()?);
    let (links, uid, gid, generation) = (from.u32()?, from.u32()?, from.u32()?, from.u32()?);
    let (mut size_bytes, mut blocks) = (from.u64()?, from.u64()?);
    let (atime, mtime, ctime, btime) = (from.time()?, from.time()?, from.time()?, from.time()?);
    // The layout and the replica.
    let _layout: [u8; 9] = from.array()?;
    let seen = take_seen(from)?;
    // A residency map.
    if from.u8()? != 0 {
        return Err(Unsure);
    }
    match kind {
        FileKind::Directory => {
            (size_bytes, blocks) = (DIRECTORY_BYTES, DIRECTORY_BYTES / BLOCK_BYTES)
        }
        FileKind::Regular => match from.u8()? {
            0 => blocks = inline_blocks(size_bytes),
            1 => {}
            _ => return Err(Unsure),
        },
        FileKind::Symlink | FileKind::Fifo | FileKind::Socket => {}
    }
    let attr =
        Attr { id, kind, mode, links, uid, gid, size_bytes, blocks, atime, mtime, ctime, btime };
    Ok(Taken { attr, flags, generation, seen })
}

fn take_seen(from: &mut Take<'_>) -> Result<Option<Seen>, Unsure> {
    match from.u8()? {
        0 => Ok(None),
        form @ ORIGIN..=5 => {
            let resident = (form - ORIGIN) & RESIDENT != 0;
            Ok(Some(Seen { resident, until: from.u64()?, names_until: from.u64()? }))
        }
        _ => Err(Unsure),
    }
}

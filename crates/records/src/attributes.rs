//! What a record tells of its file, as far as stat wants to know.
//!
//! `meta::record` has the whole of it. A record that has more than usual in the middle (a master
//! copy, a residency map) is left to the daemon.

use mayfly_types::{
    Attr, BLOCK_BYTES, DIRECTORY_BYTES, FileId, FileKind, Timestamp, inline_blocks,
};

use crate::Unsure;

const PLAIN: u8 = 0x11;
const FUSED: u8 = 0x12;
const OWN: u8 = 0x21;
/// Flag of an inode.
const UNSETTLED: u8 = 1;

/// What tells is in the first bytes of a record, in eights.
pub const RECORD_CHUNKS: usize = 14;

/// What a dentry's record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dentry {
    /// The inode has a record of its own.
    Plain(FileId, FileKind),
    /// The inode is in the dentry.
    Fused(Attr),
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
        Some((&FUSED, body)) => attributes(body).map(Dentry::Fused),
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

/// From the record of an inode of its own.
///
/// # Errors
/// [`Unsure`].
pub fn of_inode(record: &[u8]) -> Result<Attr, Unsure> {
    match record.split_first() {
        Some((&OWN, body)) => attributes(body),
        _ => Err(Unsure),
    }
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
    let attr = take_attributes(&mut from)?;
    if attr.kind != FileKind::Directory {
        return Err(Unsure);
    }
    Ok((attr, FileId(from.u64()?)))
}

fn attributes(body: &[u8]) -> Result<Attr, Unsure> {
    take_attributes(&mut Take(body))
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
    let Taken { attr, flags, generation } = take_with(&mut from, UNSETTLED)?;
    // What comes last says whether the bytes are in an object.
    let content = record.len().checked_sub(from.0.len()).ok_or(Unsure)?;
    let place = match content.checked_sub(1).and_then(|at| record.get(at)) {
        _ if attr.kind != FileKind::Regular => return Err(Unsure),
        Some(0) if u64::from(from.u32()?) == attr.size_bytes => Place::Record(content + 4),
        Some(1) if generation != 0 => Place::Object(generation),
        _ => return Err(Unsure),
    };
    Ok(RegularRecord { attr, place, unsettled: flags & UNSETTLED != 0, fused: *form == FUSED })
}

/// As far as the attributes go. Any flag leads to the daemon: an object that is being written knows
/// better, a directory may have to be fetched.
fn take_attributes(from: &mut Take<'_>) -> Result<Attr, Unsure> {
    take_with(from, 0).map(|taken| taken.attr)
}

/// What stands before the content.
struct Taken {
    attr: Attr,
    flags: u8,
    /// Of the latest object.
    generation: u32,
}

/// As far as the attributes go, of an inode that has no other flags than these.
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
    // A master copy, a residency map.
    if (from.u8()?, from.u8()?) != (0, 0) {
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
    Ok(Taken { attr, flags, generation })
}

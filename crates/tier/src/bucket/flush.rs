//! Bytes of a file that go to its object.
//!
//! The object's metadata say which flush has put it. A note in the instance's data directory has
//! the same, before it is put: a keeper that comes again takes it for what it is.

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io::{Read, Seek},
    path::{Path, PathBuf},
};

use mayfly_stage::{Expected, Object as Stored};
use mayfly_types::{Errno, Timestamp};
use mayfly_wire::{
    TierItem,
    tier::{NO_ATTR, TIER_CONFLICT, TierParts},
};

use super::{PIECE_BYTES, Store, about, joined, parent_of};
use crate::{
    bytes::copy,
    flush::{COPIES_MAX, copy_name, is_expected, is_partly, is_whole, note_of, note_put, noted},
    merged::{Merged, Object},
    outcome::Outcome,
    place::io_errno,
};

/// What is to be put.
struct Content<'a> {
    source: Box<dyn Read + 'a>,
    bytes: u64,
    mtime: Timestamp,
    mapped: bool,
}

fn content_of<'a>(
    item: &TierItem<'a>,
    object: impl Fn() -> Result<PathBuf, Errno>,
    (master, scratch): (impl Fn() -> Result<Master<'a>, Errno>, &Path),
) -> Result<Content<'a>, Errno> {
    if item.other.is_empty() {
        let bytes = item.bytes.len() as u64;
        let mtime = item.attr.mtime;
        return Ok(Content { source: Box::new(item.bytes), bytes, mtime, mapped: false });
    }
    let object = Object::open(item, &object()?)?;
    let (bytes, mtime, mapped) = (object.bytes.min(object.limit), object.mtime, object.mapped);
    let source: Box<dyn Read + 'a> = match TierParts::of(item)? {
        Some(parts) => {
            let mut master = master()?;
            let read = |at, end, to: &mut [u8]| master.read(at, end, to);
            Box::new(put_together(Merged::new(object, parts, read), scratch)?)
        }
        None => Box::new(object.file),
    };
    Ok(Content { source, bytes, mtime, mapped })
}

/// All bytes in a file without a name: while an object is put, no other one can be read.
fn put_together(mut source: impl Read, scratch: &Path) -> Result<File, Errno> {
    let options = &mut File::options();
    let made = options.read(true).write(true).create(true).truncate(true).open(scratch);
    let mut whole = made.map_err(|error| io_errno(&error))?;
    let _ = std::fs::remove_file(scratch);
    let copied = copy(&mut source, &mut whole).and_then(|_| whole.rewind());
    copied.map_err(|error| io_errno(&error))?;
    Ok(whole)
}

/// The object that is there, which is read a piece at a time.
struct Master<'a> {
    store: &'a Store,
    path: &'a str,
    there: Stored,
    /// Where the last piece began, and its bytes.
    piece: (u64, Vec<u8>),
}

impl Master<'_> {
    fn read(&mut self, at: u64, end: u64, to: &mut [u8]) -> std::io::Result<usize> {
        let stale = |errno: Errno| std::io::Error::from_raw_os_error(errno.raw());
        let (start, bytes) = &self.piece;
        if !(*start..*start + bytes.len() as u64).contains(&at) {
            let range = at..end.min(at + PIECE_BYTES);
            let (read, bytes) = self.store.read(self.path, range).map_err(stale)?;
            if !read.is_still(&self.there) {
                return Err(stale(Errno::ESTALE));
            }
            self.piece = (at, bytes);
        }
        let (start, bytes) = &self.piece;
        let left = bytes.get((at - start) as usize..).unwrap_or_default();
        let count = left.len().min(to.len());
        to[..count].copy_from_slice(&left[..count]);
        Ok(count)
    }
}

impl Store {
    pub(super) fn flush(
        &self,
        path: &str,
        item: &TierItem<'_>,
        object: impl Fn() -> Result<PathBuf, Errno>,
        notes: &Path,
    ) -> Result<Outcome, Errno> {
        let note = note_of(notes, item);
        let earlier = noted(&note);
        let there = self.look(path)?;
        let attr = there.as_ref().map(|there| self.attr_of(there));
        let expected = is_expected(item, attr.as_ref(), earlier);
        let mark = RandomState::new().hash_one(item.number);
        if !expected && is_partly(item) {
            return Err(Errno::ESTALE);
        }
        let master = || {
            let there = there.clone().ok_or(Errno::ESTALE)?;
            Ok(Master { store: self, path, there, piece: (0, Vec::new()) })
        };
        let scratch = note.with_extension("whole");
        let mut content = content_of(item, &object, (master, &scratch))?;
        let about = about(item.attr.mode, content.mtime, mark);
        let mapped = content.mapped;
        if expected && !is_whole(item) && there.is_some() {
            return Err(Errno::ESTALE);
        }
        if expected && is_whole(item) {
            note_put(&note, (mark, content.mtime, content.bytes))?;
            let source: &mut dyn Read = &mut content.source;
            let source = (source, content.bytes);
            let expected = there.as_ref().map_or(Expected::Nothing, Expected::Object);
            match self.bucket.put_file(path, &about, source, expected) {
                Ok(()) => {
                    let now = self.look(path)?.ok_or(Errno::ENOENT)?;
                    return Ok(Outcome { same: mapped, ..Outcome::of(self.attr_of(&now)) });
                }
                // Somebody was faster.
                Err(refused) if refused.errno == Errno::ESTALE.raw() && is_partly(item) => {
                    return Err(Errno::ESTALE);
                }
                Err(refused)
                    if [Errno::ESTALE, Errno::EEXIST].map(Errno::raw).contains(&refused.errno) => {}
                Err(refused) => return Err(super::errno_of(path, &refused)),
            }
        }
        for number in 1..COPIES_MAX {
            let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
            let copy = copy_name(name.as_bytes(), number, is_whole(item));
            let copy = String::from_utf8_lossy(&copy).into_owned();
            let mut content = content_of(item, &object, (master, &scratch))?;
            let source: &mut dyn Read = &mut content.source;
            let source = (source, content.bytes);
            let beside = joined(parent_of(path), &copy);
            match self.bucket.put_file(&beside, &about, source, Expected::Nothing) {
                Ok(()) => {
                    let attr = self.look(path)?.map_or(NO_ATTR, |now| self.attr_of(&now));
                    let bytes = copy.into_bytes();
                    return Ok(Outcome {
                        status: TIER_CONFLICT,
                        same: mapped,
                        bytes,
                        ..Outcome::of(attr)
                    });
                }
                Err(refused) if refused.errno == Errno::EEXIST.raw() => {}
                Err(refused) => return Err(super::errno_of(&beside, &refused)),
            }
        }
        Err(Errno::EEXIST)
    }
}

//! Bytes of a file that go to its object.
//!
//! The object's metadata say which flush has put it. A note in the instance's data directory has
//! the same, before it is put: a keeper that comes again takes it for what it is.

use std::{
    hash::{BuildHasher, RandomState},
    io::Read,
    path::{Path, PathBuf},
};

use mayfly_stage::Expected;
use mayfly_types::{Errno, Timestamp};
use mayfly_wire::{
    TierItem,
    tier::{NO_ATTR, TIER_CONFLICT},
};

use super::{Store, about, joined, parent_of};
use crate::{
    flush::{COPIES_MAX, Object, copy_name, is_expected, is_whole, note_of, note_put, noted},
    outcome::Outcome,
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
) -> Result<Content<'a>, Errno> {
    if item.other.is_empty() {
        let bytes = item.bytes.len() as u64;
        let mtime = item.attr.mtime;
        return Ok(Content { source: Box::new(item.bytes), bytes, mtime, mapped: false });
    }
    let Object { file, limit, bytes, mtime, mapped } = Object::open(item, &object()?)?;
    Ok(Content { source: Box::new(file), bytes: bytes.min(limit), mtime, mapped })
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
        let mut content = content_of(item, &object)?;
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
                Err(refused)
                    if [Errno::ESTALE, Errno::EEXIST].map(Errno::raw).contains(&refused.errno) => {}
                Err(refused) => return Err(super::errno_of(path, &refused)),
            }
        }
        for number in 1..COPIES_MAX {
            let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
            let copy = copy_name(name.as_bytes(), number, is_whole(item));
            let copy = String::from_utf8_lossy(&copy).into_owned();
            let mut content = content_of(item, &object)?;
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

//! What keepers do, as `mayfly-tier` does it: some things in two steps, between which others may
//! come.

use mayfly_object::{ObjectId, ObjectStore};
use mayfly_types::{Attr, Errno, FileKind, Timestamp, limits::INLINE_BYTES_MAX};
use mayfly_wire::{
    SET_MODE, SET_MTIME, SET_MTIME_NOW, TierItem,
    tier::{
        NO_ATTR, TIER_CHECK, TIER_CHUNKS, TIER_CONFLICT, TIER_CREATE, TIER_FETCH, TIER_FLUSH,
        TIER_INCOMPLETE, TIER_LOOK, TIER_MAKE_DIRECTORY, TIER_PARTLY, TIER_REMOVE,
        TIER_REMOVE_DIRECTORY, TIER_RENAME, TIER_SET_ATTR, TIER_UNSETTLED, TIER_UNSURE, TierEntry,
        TierParts, pack,
    },
};

use super::{Entry, External, is_same};
use crate::{
    disk::Disk,
    origin::{Bug, MARK_BYTES, content_of, parent_of},
};

/// What one entry takes besides its name, bytes.
const ENTRY_BYTES: usize = 256;

/// What the first step has seen.
#[derive(Debug)]
pub enum Glimpse {
    /// Nothing yet.
    None,
    /// The attributes of a directory or file.
    Attr(Attr),
    /// What is to be put in the place of a file, and its time.
    Bytes(Vec<u8>, Timestamp),
}

/// What came of an item.
#[derive(Debug, Clone)]
pub struct Done {
    /// 0, or `TIER_CONFLICT`.
    pub status: u32,
    /// See `TierDone::same`.
    pub same: bool,
    /// See `TierDone::attr`.
    pub attr: Attr,
    /// See `TierDone::bytes`.
    pub bytes: Vec<u8>,
}

fn put_of(attr: &Attr) -> (u64, Timestamp, u64) {
    (attr.id.0, attr.mtime, attr.size_bytes)
}

impl Done {
    fn of(attr: Attr) -> Done {
        Done { status: 0, same: false, attr, bytes: Vec::new() }
    }
}

impl External {
    fn find<'a>(&self, item: &TierItem<'a>) -> Result<&'a str, Errno> {
        let path = std::str::from_utf8(item.path).map_err(|_| Errno::EINVAL)?;
        self.check_parent(path)?;
        Ok(path)
    }

    fn check_parent(&self, path: &str) -> Result<(), Errno> {
        match self.entries.get(parent_of(path)) {
            _ if path.is_empty() => Ok(()),
            Some(parent) if parent.is_directory => Ok(()),
            Some(_) => Err(Errno::ENOTDIR),
            None => Err(Errno::ENOENT),
        }
    }

    /// The first step.
    ///
    /// # Errors
    /// As a file system has them.
    pub fn glimpse(&self, item: &TierItem<'_>, disk: &Disk) -> Result<Glimpse, Errno> {
        let path = self.find(item)?;
        match item.what {
            TIER_LOOK => {
                let attr = self.attr(path)?;
                if attr.kind != FileKind::Directory {
                    return Err(Errno::ENOTDIR);
                }
                Ok(Glimpse::Attr(attr))
            }
            TIER_FETCH => {
                let entry = self.file(path)?;
                if entry.bytes.len() > INLINE_BYTES_MAX {
                    disk.fill_of_process(object_of(item)?, &entry.bytes)?;
                }
                Ok(Glimpse::Attr(entry.attr()))
            }
            TIER_FLUSH => {
                let master = self.entries.get(path).map(|entry| &*entry.bytes);
                let (bytes, mtime) = bytes_to_flush(item, disk, master)?;
                Ok(Glimpse::Bytes(bytes, mtime))
            }
            _ => Ok(Glimpse::None),
        }
    }

    /// Whether an earlier daemon has had this move done: who looks sees that, and tries nothing.
    pub fn was_moved(&self, item: &TierItem<'_>) -> bool {
        let is_there = |path: &[u8]| {
            std::str::from_utf8(path).is_ok_and(|path| self.entries.contains_key(path))
        };
        item.what == TIER_RENAME && item.again && !is_there(item.path) && is_there(item.other)
    }

    /// Does what the daemon of a node wants.
    ///
    /// # Errors
    /// As a file system has them.
    pub fn perform(
        &mut self,
        node: usize,
        item: &TierItem<'_>,
        seen: Glimpse,
        disk: &Disk,
    ) -> Result<Done, Errno> {
        let path = self.find(item)?;
        match (item.what, seen) {
            (TIER_LOOK, Glimpse::Attr(attr)) => self.look(path, item, attr),
            (TIER_CHECK, _) => Ok(Done::of(self.attr(path)?)),
            (TIER_FETCH, Glimpse::Attr(attr)) => self.fetch(path, item, attr, disk),
            (TIER_CHUNKS, _) => self.fetch_chunks(path, item, disk),
            (TIER_FLUSH, Glimpse::Bytes(bytes, mtime)) => {
                self.flush((node, path), item, bytes, mtime)
            }
            (TIER_CREATE | TIER_MAKE_DIRECTORY, _) => self.make(path, item),
            (TIER_REMOVE | TIER_REMOVE_DIRECTORY, _) => self.remove(path, item),
            (TIER_RENAME, _) => self.rename(path, item),
            (TIER_SET_ATTR, _) => self.set_attr(path, item),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn look(&self, path: &str, item: &TierItem<'_>, attr: Attr) -> Result<Done, Errno> {
        let blind = self.bug == Some(Bug::SeesNothing) && item.known.kind == FileKind::Directory;
        if blind || is_same(&item.known, &attr) {
            return Ok(Done { same: true, ..Done::of(attr) });
        }
        if !self.is_directory(path) {
            // It has gone meanwhile: it is open, and has no names any more.
            return Ok(Done::of(attr));
        }
        let (mut packed, mut used) = (Vec::new(), 0);
        for name in self.names(path) {
            let full = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            let attr = self.attr(&full)?;
            packed.resize(used + name.len() + ENTRY_BYTES, 0);
            let entry = TierEntry { name: name.as_bytes(), attr, target: b"" };
            used = pack(&entry, &mut packed, used).ok_or(Errno::EOVERFLOW)?;
        }
        packed.truncate(used);
        Ok(Done { bytes: packed, ..Done::of(attr) })
    }

    fn file(&self, path: &str) -> Result<&Entry, Errno> {
        let entry = self.entries.get(path).ok_or(Errno::ENOENT)?;
        if entry.is_directory { Err(Errno::ESTALE) } else { Ok(entry) }
    }

    fn fetch(
        &self,
        path: &str,
        item: &TierItem<'_>,
        seen: Attr,
        disk: &Disk,
    ) -> Result<Done, Errno> {
        let entry = self.file(path)?;
        if entry.bytes.len() <= INLINE_BYTES_MAX {
            return Ok(Done { bytes: entry.bytes.clone(), ..Done::of(entry.attr()) });
        }
        let object = object_of(item)?;
        if self.bug == Some(Bug::TellsEarly) {
            disk.fill_of_process(object, &vec![0; entry.bytes.len()])?;
        } else if seen.id != entry.attr().id || !is_same(&seen, &entry.attr()) {
            disk.fill_of_process(object, &entry.bytes)?;
        }
        disk.objects().set_times(object, Some(entry.mtime), Some(entry.mtime))?;
        let blocks = disk.objects().attr(object)?.blocks;
        Ok(Done::of(Attr { blocks, ..entry.attr() }))
    }

    fn fetch_chunks(&self, path: &str, item: &TierItem<'_>, disk: &Disk) -> Result<Done, Errno> {
        let entry = self.file(path)?;
        let attr = entry.attr();
        if !is_same(&item.known, &attr) {
            return Ok(Done::of(attr));
        }
        let object = object_of(item)?;
        if item.which != 0 && disk.objects().attr(object).is_err() {
            disk.fill_of_process(object, b"")?;
        }
        let range = item.start as usize..(item.end as usize).min(entry.bytes.len());
        let bytes = entry.bytes.get(range).ok_or(Errno::ESTALE)?;
        disk.check_room()?;
        match self.bug {
            Some(Bug::TellsEarly) => disk.objects().write(object, item.end - 1, &[0])?,
            _ => disk.objects().write(object, item.start, bytes)?,
        }
        disk.objects().set_times(object, Some(entry.mtime), Some(entry.mtime))?;
        Ok(Done { same: true, ..Done::of(attr) })
    }

    fn flush(
        &mut self,
        (node, path): (usize, &str),
        item: &TierItem<'_>,
        bytes: Vec<u8>,
        mtime: Timestamp,
    ) -> Result<Done, Errno> {
        if item.which & TIER_INCOMPLETE != 0 {
            return self.flush_incomplete((node, path), item, &bytes);
        }
        let is_partly = item.which & TIER_PARTLY != 0;
        if is_partly && !self.is_expected((node, path), item) {
            return Err(Errno::ESTALE);
        }
        let Some(content) = content_of(&bytes) else {
            self.judge.say(format!("{path} is flushed with a mark that is not whole"));
            return Err(Errno::EIO);
        };
        let there = self.entries.get(path).map(Entry::attr);
        let note = (node, item.file.0);
        let expected = self.is_expected((node, path), item);
        self.flushes += 1;
        if self.bug == Some(Bug::LosesFlushes) && self.flushes.is_multiple_of(3) {
            return Ok(Done::of(there.ok_or(Errno::ENOENT)?));
        }
        let written = Entry { bytes, mode: item.attr.mode, mtime, ..self.fresh() };
        if expected || self.bug == Some(Bug::FlushesUnseen) {
            let old = self
                .entries
                .get(path)
                .map(|entry| (content_of(&entry.bytes).unwrap_or_default(), entry.by_others_ns));
            let (old, by_others_ns) = old.unwrap_or_default();
            self.judge.replaced(path, (&old, by_others_ns), &content);
            self.notes.insert(note, put_of(&written.attr()));
            self.insert(path, written);
            return Ok(Done::of(self.attr(path)?));
        }
        if !self.is_touched(path) {
            let known = &item.known;
            self.judge.say(format!("{path} is {there:?} outside, which is no conflict: {known:?}"));
        }
        let mut copies = (1..).map(|number| format!("{path}.mayfly-conflict-sim-{number}"));
        let copy = copies.find(|copy| !self.entries.contains_key(copy)).ok_or(Errno::EEXIST)?;
        self.insert(&copy, written);
        self.judge.kept_beside(&copy, &content);
        let name = copy.rsplit_once('/').map_or(&*copy, |(_, name)| name).as_bytes().to_vec();
        let attr = there.unwrap_or(NO_ATTR);
        Ok(Done { status: TIER_CONFLICT, bytes: name, ..Done::of(attr) })
    }

    /// Whether the master copy is the known one, or what an earlier flush has put there.
    fn is_expected(&self, (node, path): (usize, &str), item: &TierItem<'_>) -> bool {
        let earlier = self.notes.get(&(node, item.file.0)).copied();
        let unsure = item.which & TIER_UNSURE != 0 && self.bug != Some(Bug::TakesOwnForOthers);
        self.entries.get(path).map(Entry::attr).map_or(unsure, |there| {
            let ctime = if unsure { there.ctime } else { item.known.ctime };
            is_same(&Attr { ctime, ..item.known }, &there)
                || there.kind == FileKind::Regular && earlier == Some(put_of(&there))
        })
    }

    /// What there is of a file of which the rest is nowhere any more. Nobody looks at the copy.
    fn flush_incomplete(
        &mut self,
        (node, path): (usize, &str),
        item: &TierItem<'_>,
        bytes: &[u8],
    ) -> Result<Done, Errno> {
        let is_there = self.entries.contains_key(path);
        if is_there && self.is_expected((node, path), item) {
            return Err(Errno::ESTALE);
        }
        // What the instance has moved itself, for a call that failed, is not there either.
        if !self.is_touched(path) && item.which & TIER_UNSURE == 0 {
            self.judge.say(format!("{path} is incomplete, and nobody has changed it outside"));
        }
        let here = bytes.chunks(MARK_BYTES).filter(|block| block.iter().any(|byte| *byte != 0));
        match content_of(&here.collect::<Vec<_>>().concat()) {
            Some(content) => self.judge.kept_in_part(path, &content),
            None => self.judge.say(format!("a mark of {path} is not whole")),
        }
        let attr = self.entries.get(path).map_or(NO_ATTR, Entry::attr);
        Ok(Done { status: TIER_CONFLICT, bytes: b"incomplete".to_vec(), ..Done::of(attr) })
    }

    fn make(&mut self, path: &str, item: &TierItem<'_>) -> Result<Done, Errno> {
        let is_directory = item.what == TIER_MAKE_DIRECTORY;
        match self.entries.get(path) {
            Some(entry)
                if item.again && entry.is_directory == is_directory && entry.bytes.is_empty() =>
            {
                return Ok(Done { same: is_directory, ..Done::of(self.attr(path)?) });
            }
            Some(_) => return Err(Errno::EEXIST),
            None => {
                let entry = Entry { is_directory, mode: item.attr.mode, ..self.fresh() };
                self.insert(path, entry);
            }
        }
        Ok(Done::of(self.attr(path)?))
    }

    fn remove(&mut self, path: &str, item: &TierItem<'_>) -> Result<Done, Errno> {
        let wants_directory = item.what == TIER_REMOVE_DIRECTORY;
        match self.entries.get(path) {
            None if item.again => return Ok(Done::of(NO_ATTR)),
            None => return Err(Errno::ENOENT),
            Some(entry) if entry.is_directory && !wants_directory => return Err(Errno::EISDIR),
            Some(entry) if !entry.is_directory && wants_directory => return Err(Errno::ENOTDIR),
            Some(_) if wants_directory && !self.names(path).is_empty() => {
                return Err(Errno::ENOTEMPTY);
            }
            Some(_) => {}
        }
        self.take(path);
        Ok(Done::of(NO_ATTR))
    }

    fn rename(&mut self, path: &str, item: &TierItem<'_>) -> Result<Done, Errno> {
        let to = std::str::from_utf8(item.other).map_err(|_| Errno::EINVAL)?;
        self.check_parent(to)?;
        let known = |before: &Attr| {
            let ctime = if item.again { before.ctime } else { item.known.ctime };
            is_same(&Attr { ctime, ..item.known }, before)
        };
        let Some(before) = self.entries.get(path).map(Entry::attr) else {
            let there = self.attr(to).ok().filter(|_| item.again).ok_or(Errno::ENOENT)?;
            // Perhaps it was not done, and others have removed it.
            if self.is_touched(path) {
                self.note_touched(to);
            }
            return Ok(Done { same: known(&there), ..Done::of(there) });
        };
        if self.is_directory(to) && before.kind != FileKind::Directory {
            return Err(Errno::EISDIR);
        }
        let is_touched = self.is_touched(path);
        if !self.move_entry(path, to) {
            return Err(Errno::ENOTEMPTY);
        }
        if is_touched {
            self.note_touched(to);
        }
        self.touched_move(path, to);
        Ok(Done { same: known(&before), ..Done::of(self.attr(to)?) })
    }

    fn set_attr(&mut self, path: &str, item: &TierItem<'_>) -> Result<Done, Errno> {
        let before = self.attr(path)?;
        let time = self.time();
        let entry = self.entries.get_mut(path).ok_or(Errno::ENOENT)?;
        if item.which & SET_MODE != 0 {
            entry.mode = item.attr.mode;
        }
        if item.which & SET_MTIME != 0 {
            entry.mtime = item.attr.mtime;
        }
        if item.which & SET_MTIME_NOW != 0 {
            entry.mtime = time;
        }
        entry.ctime = time;
        let ctime = if item.again { before.ctime } else { item.known.ctime };
        let same = is_same(&Attr { ctime, ..item.known }, &before);
        Ok(Done { same, ..Done::of(self.attr(path)?) })
    }
}

/// The bytes that go back, and the file's time.
fn bytes_to_flush(
    item: &TierItem<'_>,
    disk: &Disk,
    master: Option<&[u8]>,
) -> Result<(Vec<u8>, Timestamp), Errno> {
    if item.other.is_empty() {
        return Ok((item.bytes.to_vec(), item.attr.mtime));
    }
    let object = object_of(item)?;
    let attr = disk.objects().attr(object)?;
    let (limit, mtime) = match item.which & TIER_UNSETTLED {
        0 => (item.attr.size_bytes.min(attr.size_bytes), item.attr.mtime),
        _ => (attr.size_bytes, attr.mtime),
    };
    let mut bytes = vec![0; limit as usize];
    disk.objects().read(object, 0, &mut bytes)?;
    let Some(parts) = TierParts::of(item)? else { return Ok((bytes, mtime)) };
    let master = master.ok_or(Errno::ESTALE)?;
    let mut at = 0;
    while at < limit {
        let (is_here, end) = parts.run_at(at);
        let end = end.min(limit);
        if !is_here {
            let part = master.get(at as usize..end as usize).ok_or(Errno::ESTALE)?;
            bytes[at as usize..end as usize].copy_from_slice(part);
        }
        at = end;
    }
    Ok((bytes, item.attr.mtime))
}

fn object_of(item: &TierItem<'_>) -> Result<ObjectId, Errno> {
    let path = std::str::from_utf8(item.other).map_err(|_| Errno::EINVAL)?;
    ObjectId::of_path(path).ok_or(Errno::EINVAL)
}

/// An object that a fetch has filled and nobody knows of.
pub fn undo(item: &TierItem<'_>, disk: &Disk) {
    let makes = item.what == TIER_CHUNKS && item.which != 0;
    if (item.what == TIER_FETCH || makes)
        && let Ok(object) = object_of(item)
    {
        disk.remove_of_process(object);
    }
}

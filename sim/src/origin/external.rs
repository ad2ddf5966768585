//! A directory outside, in memory: what a keeper finds and changes there, and what others do.

use std::collections::BTreeMap;

use mayfly_object::{ObjectId, ObjectStore};
use mayfly_types::{Attr, Errno, FileId, FileKind, Timestamp, limits::INLINE_BYTES_MAX};
use mayfly_wire::{
    SET_MODE, SET_MTIME, SET_MTIME_NOW, TierItem,
    tier::{
        NO_ATTR, TIER_CHECK, TIER_CHUNKS, TIER_CONFLICT, TIER_CREATE, TIER_FETCH, TIER_FLUSH,
        TIER_LOOK, TIER_MAKE_DIRECTORY, TIER_REMOVE, TIER_REMOVE_DIRECTORY, TIER_RENAME,
        TIER_SET_ATTR, TierEntry, pack,
    },
};

use super::{Bug, Content, bytes_of, content_of, judge::Judge};
use crate::disk::Disk;

/// What one entry takes besides its name, bytes.
const ENTRY_BYTES: usize = 256;
/// Room for the listing of a directory of these runs, bytes.
const LISTING_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Default)]
struct Entry {
    is_directory: bool,
    number: u64,
    bytes: Vec<u8>,
    mode: u32,
    mtime: Timestamp,
    ctime: Timestamp,
}

/// What came of an item.
#[derive(Debug)]
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

impl Done {
    fn of(attr: Attr) -> Done {
        Done { status: 0, same: false, attr, bytes: Vec::new() }
    }
}

/// The directory, and what outlives the keeper.
#[derive(Debug, Default)]
pub struct External {
    entries: BTreeMap<String, Entry>,
    last_number: u64,
    ticks: u64,
    /// Which file a flush was about to put, by the daemon's numbers.
    notes: BTreeMap<u64, (u64, Timestamp, u64)>,
    /// A bug that is put in.
    pub bug: Option<Bug>,
    flushes: u64,
    /// What is wrong, and what was seen.
    pub judge: Judge,
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn is_same(known: &Attr, now: &Attr) -> bool {
    let sized = now.kind != FileKind::Regular || known.size_bytes == now.size_bytes;
    known.kind == now.kind && sized && known.mtime == now.mtime && known.ctime == now.ctime
}

impl Entry {
    fn attr(&self) -> Attr {
        let kind = if self.is_directory { FileKind::Directory } else { FileKind::Regular };
        Attr {
            id: FileId(self.number),
            kind,
            mode: self.mode,
            links: 1,
            uid: 1,
            gid: 1,
            size_bytes: self.bytes.len() as u64,
            blocks: self.bytes.len().div_ceil(512) as u64,
            atime: self.mtime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.ctime,
        }
    }
}

impl External {
    /// With nothing in it.
    #[must_use]
    pub fn new() -> External {
        let mut external = External::default();
        let entry = Entry { is_directory: true, mode: 0o755, ..external.fresh() };
        external.entries.insert(String::new(), entry);
        external
    }

    /// Each change has a time of its own.
    fn time(&mut self) -> Timestamp {
        self.ticks += 1;
        let ns = self.judge.now_ns + self.ticks;
        Timestamp {
            seconds: 1_000_000_000 + (ns / 1_000_000_000) as i64,
            nanoseconds: (ns % 1_000_000_000) as u32,
        }
    }

    fn fresh(&mut self) -> Entry {
        self.last_number += 1;
        let time = self.time();
        let number = self.last_number;
        Entry { number, mode: 0o644, mtime: time, ctime: time, ..Entry::default() }
    }

    fn touch_parent(&mut self, path: &str) {
        let time = self.time();
        if let Some(parent) = self.entries.get_mut(parent_of(path)) {
            (parent.mtime, parent.ctime) = (time, time);
        }
    }

    fn tell(&mut self, path: &str) {
        let there = self.entries.get(path).filter(|entry| !entry.is_directory);
        let content = there.map(|entry| content_of(&entry.bytes).unwrap_or_default());
        self.judge.external_is(path, content);
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        self.entries.insert(path.to_owned(), entry);
        self.touch_parent(path);
        self.tell(path);
    }

    fn take(&mut self, path: &str) -> Option<Entry> {
        let entry = self.entries.remove(path)?;
        self.touch_parent(path);
        self.tell(path);
        Some(entry)
    }

    /// Somebody else writes a file: a new one, or in place of the old one.
    pub fn write(&mut self, path: &str, content: &[u32], in_place: bool) {
        if !self.entries.contains_key(parent_of(path)) {
            return;
        }
        let fresh = self.fresh();
        match self.entries.get_mut(path) {
            Some(entry) if entry.is_directory => {}
            Some(entry) if in_place => {
                entry.bytes = bytes_of(content);
                (entry.mtime, entry.ctime) = (fresh.mtime, fresh.ctime);
                self.tell(path);
            }
            _ => self.insert(path, Entry { bytes: bytes_of(content), ..fresh }),
        }
    }

    /// Somebody else makes a directory.
    pub fn make_directory(&mut self, path: &str) {
        if !self.entries.contains_key(path) {
            let entry = Entry { is_directory: true, mode: 0o755, ..self.fresh() };
            self.insert(path, entry);
        }
    }

    /// Somebody else removes a file.
    pub fn remove(&mut self, path: &str) {
        if self.entries.get(path).is_some_and(|entry| !entry.is_directory) {
            self.take(path);
        }
    }

    /// All files.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Content> {
        let files = self.entries.iter().filter(|(_, entry)| !entry.is_directory);
        files
            .map(|(path, entry)| (path.clone(), content_of(&entry.bytes).unwrap_or_default()))
            .collect()
    }

    /// The names of a directory.
    #[must_use]
    pub fn names(&self, directory: &str) -> Vec<String> {
        let below =
            self.entries.keys().filter(|path| !path.is_empty() && parent_of(path) == directory);
        let start = if directory.is_empty() { 0 } else { directory.len() + 1 };
        below.map(|path| path[start..].to_owned()).collect()
    }

    /// The daemon knows what was flushed.
    pub fn forget_note(&mut self, file: FileId) {
        self.notes.remove(&file.0);
    }

    fn attr(&self, path: &str) -> Result<Attr, Errno> {
        self.entries.get(path).map(Entry::attr).ok_or(Errno::ENOENT)
    }

    /// Does what the daemon wants.
    ///
    /// # Errors
    /// As a file system has them.
    pub fn perform(&mut self, item: &TierItem<'_>, disk: &Disk) -> Result<Done, Errno> {
        let path = std::str::from_utf8(item.path).map_err(|_| Errno::EINVAL)?;
        if !path.is_empty() {
            match self.entries.get(parent_of(path)) {
                Some(parent) if parent.is_directory => {}
                Some(_) => return Err(Errno::ENOTDIR),
                None => return Err(Errno::ENOENT),
            }
        }
        match item.what {
            TIER_LOOK => self.look(path, item),
            TIER_CHECK => Ok(Done::of(self.attr(path)?)),
            TIER_FETCH => self.fetch(path, item, disk),
            TIER_CHUNKS => self.fetch_chunks(path, item, disk),
            TIER_FLUSH => self.flush(path, item, disk),
            TIER_CREATE | TIER_MAKE_DIRECTORY => self.make(path, item),
            TIER_REMOVE | TIER_REMOVE_DIRECTORY => self.remove_for(path, item),
            TIER_RENAME => self.rename(path, item),
            TIER_SET_ATTR => self.set_attr(path, item),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn look(&self, path: &str, item: &TierItem<'_>) -> Result<Done, Errno> {
        let attr = self.attr(path)?;
        if attr.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let is_listed = item.known.kind == FileKind::Directory;
        let blind = self.bug == Some(Bug::SeesNothing) && is_listed;
        if blind || is_same(&item.known, &attr) {
            return Ok(Done { same: true, ..Done::of(attr) });
        }
        let (mut packed, mut used) = (vec![0; LISTING_BYTES], 0);
        for name in self.names(path) {
            let full = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            let attr = self.attr(&full)?;
            packed.resize(packed.len().max(used + name.len() + ENTRY_BYTES), 0);
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

    fn fetch(&self, path: &str, item: &TierItem<'_>, disk: &Disk) -> Result<Done, Errno> {
        let entry = self.file(path)?;
        if entry.bytes.len() <= INLINE_BYTES_MAX {
            return Ok(Done { bytes: entry.bytes.clone(), ..Done::of(entry.attr()) });
        }
        let object = object_of(item)?;
        disk.fill_of_process(object, &entry.bytes)?;
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
        disk.objects().write(object, item.start, bytes)?;
        disk.objects().set_times(object, Some(entry.mtime), Some(entry.mtime))?;
        Ok(Done { same: true, ..Done::of(attr) })
    }

    fn flush(&mut self, path: &str, item: &TierItem<'_>, disk: &Disk) -> Result<Done, Errno> {
        let (mut bytes, mut mtime) = (item.bytes.to_vec(), item.attr.mtime);
        if !item.other.is_empty() {
            let object = object_of(item)?;
            let attr = disk.objects().attr(object)?;
            let limit = match item.which {
                0 => item.attr.size_bytes.min(attr.size_bytes),
                _ => attr.size_bytes,
            };
            bytes = vec![0; limit as usize];
            disk.objects().read(object, 0, &mut bytes)?;
            mtime = if item.which == 0 { mtime } else { attr.mtime };
        }
        let Some(content) = content_of(&bytes) else {
            self.judge.wrong.push(format!("{path} is flushed with a mark that is not whole"));
            return Err(Errno::EIO);
        };
        let there = self.entries.get(path).map(Entry::attr);
        let earlier = self.notes.get(&item.file.0).copied();
        let put_of = |attr: &Attr| (attr.id.0, attr.mtime, attr.size_bytes);
        let expected = there.is_some_and(|there| {
            is_same(&item.known, &there)
                || there.kind == FileKind::Regular && earlier == Some(put_of(&there))
        });
        self.flushes += 1;
        if self.bug == Some(Bug::LosesFlushes) && self.flushes.is_multiple_of(3) {
            return Ok(Done::of(there.ok_or(Errno::ENOENT)?));
        }
        let written = Entry { bytes, mode: item.attr.mode, mtime, ..self.fresh() };
        if expected {
            let old = self.entries.get(path).map(|entry| content_of(&entry.bytes));
            self.judge.replaced(path, &old.flatten().unwrap_or_default(), &content);
            self.notes.insert(item.file.0, put_of(&written.attr()));
            self.insert(path, written);
            return Ok(Done::of(self.attr(path)?));
        }
        let mut copies = (1..).map(|number| format!("{path}.mayfly-conflict-sim-{number}"));
        let copy = copies.find(|copy| !self.entries.contains_key(copy)).ok_or(Errno::EEXIST)?;
        self.insert(&copy, written);
        let name = copy.rsplit_once('/').map_or(&*copy, |(_, name)| name).as_bytes().to_vec();
        let attr = there.unwrap_or(NO_ATTR);
        Ok(Done { status: TIER_CONFLICT, bytes: name, ..Done::of(attr) })
    }

    fn make(&mut self, path: &str, item: &TierItem<'_>) -> Result<Done, Errno> {
        let is_directory = item.what == TIER_MAKE_DIRECTORY;
        match self.entries.get(path) {
            Some(entry) if item.again && entry.is_directory == is_directory => {}
            Some(_) => return Err(Errno::EEXIST),
            None => {
                let entry = Entry { is_directory, mode: item.attr.mode, ..self.fresh() };
                self.insert(path, entry);
            }
        }
        Ok(Done::of(self.attr(path)?))
    }

    fn remove_for(&mut self, path: &str, item: &TierItem<'_>) -> Result<Done, Errno> {
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

    /// Of files; a directory is not moved in these runs.
    fn rename(&mut self, path: &str, item: &TierItem<'_>) -> Result<Done, Errno> {
        let to = std::str::from_utf8(item.other).map_err(|_| Errno::EINVAL)?;
        let known = |before: &Attr| {
            let ctime = if item.again { before.ctime } else { item.known.ctime };
            is_same(&Attr { ctime, ..item.known }, before)
        };
        let Some(entry) = self.entries.get(path).cloned() else {
            let there = self.attr(to).ok().filter(|_| item.again).ok_or(Errno::ENOENT)?;
            return Ok(Done { same: known(&there), ..Done::of(there) });
        };
        if !self.entries.get(parent_of(to)).is_some_and(|parent| parent.is_directory) {
            return Err(Errno::ENOENT);
        }
        let before = entry.attr();
        self.take(path);
        let ctime = self.time();
        self.insert(to, Entry { ctime, ..entry });
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

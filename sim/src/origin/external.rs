//! A directory outside, in memory: what others do there, and what keepers find and change.

mod perform;

use std::collections::{BTreeMap, BTreeSet};

use mayfly_types::{Attr, Errno, FileId, FileKind, Timestamp};
pub use perform::{Done, Glimpse, undo};

use super::{
    Bug, Content, bytes_of,
    client::Job,
    content_of,
    judge::{Judge, There},
    parent_of,
    plan::{Act, below},
};

#[derive(Debug, Clone, Default)]
struct Entry {
    is_directory: bool,
    number: u64,
    bytes: Vec<u8>,
    mode: u32,
    mtime: Timestamp,
    ctime: Timestamp,
    /// When others have put it there or changed it last, nanoseconds.
    by_others_ns: Option<u64>,
}

/// Which file a flush was about to put: its number, time and length.
type Put = (u64, Timestamp, u64);

/// The directory, and what outlives keepers.
#[derive(Debug, Default)]
pub struct External {
    entries: BTreeMap<String, Entry>,
    last_number: u64,
    ticks: u64,
    /// By the node and the daemon's number of the file.
    notes: BTreeMap<(usize, u64), Put>,
    /// Paths at which others have changed something.
    touched: BTreeSet<String>,
    /// A bug that is put in.
    pub bug: Option<Bug>,
    flushes: u64,
    /// What is wrong, and what was seen.
    pub judge: Judge,
}

fn is_same(known: &Attr, now: &Attr) -> bool {
    let sized = now.kind != FileKind::Regular || known.size_bytes == now.size_bytes;
    known.kind == now.kind && sized && known.mtime == now.mtime && known.ctime == now.ctime
}

pub(super) fn is_below(path: &str, directory: &str) -> bool {
    below(path, directory).is_some()
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

    fn there(&self) -> There {
        match self.is_directory {
            true => There::Directory,
            false => There::File(content_of(&self.bytes).unwrap_or_default()),
        }
    }
}

impl External {
    /// With nothing in it.
    #[must_use]
    pub fn new(bug: Option<Bug>) -> External {
        let mut external = External { bug, ..External::default() };
        let entry = Entry { is_directory: true, mode: 0o755, ..external.fresh() };
        external.insert("", entry);
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
        let there = self.entries.get(path).map_or(There::Nothing, Entry::there);
        self.judge.is_there(path, there);
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

    fn is_directory(&self, path: &str) -> bool {
        self.entries.get(path).is_some_and(|entry| entry.is_directory)
    }

    fn below(&self, directory: &str) -> Vec<String> {
        self.entries.keys().filter(|path| is_below(path, directory)).cloned().collect()
    }

    /// Others do something, if that is possible. True when it was.
    pub fn act(&mut self, act: &Act) -> bool {
        let did = match act {
            Act::Write { path, first, count, in_place } => {
                let content: Content = (*first..*first + *count).collect();
                self.write(path, &content, *in_place)
            }
            Act::Remove(path) => !self.is_directory(path) && self.take(path).is_some(),
            Act::MakeDirectory(path) => self.make_directory(path),
            Act::RemoveTree(path) => self.remove_tree(path),
            Act::Rename(from, to) => self.move_entry(from, to),
            Act::SetMode(path, mode) => self.set_mode(path, *mode),
        };
        if did {
            match act {
                Act::Rename(from, to) => {
                    self.note_touched(from);
                    self.note_touched(to);
                    if let Some(entry) = self.entries.get_mut(to) {
                        entry.by_others_ns = Some(self.judge.now_ns);
                    }
                }
                Act::Write { path, .. }
                | Act::Remove(path)
                | Act::MakeDirectory(path)
                | Act::RemoveTree(path)
                | Act::SetMode(path, _) => self.note_touched(path),
            }
        }
        did
    }

    /// Others have changed something there.
    pub fn note_touched(&mut self, path: &str) {
        self.judge.others_change(path);
        self.touched.insert(path.to_owned());
    }

    /// A program does not know what has become of something that it did: it may have been done
    /// outside without the daemon knowing of it. A daemon must not take that for others', but what
    /// stands outside where a file was moved to is another one's content.
    pub fn note_unknown(&mut self, job: &Job) {
        if let Job::Move { to, .. } = job
            && !self.judge.untroubled
        {
            self.note_touched(to);
        }
    }

    /// What others have changed in a directory is in another one now.
    fn touched_move(&mut self, from: &str, to: &str) {
        let touched = self.touched.iter();
        let moved = touched.filter_map(|path| Some(format!("{to}{}", below(path, from)?)));
        let moved: Vec<String> = moved.collect();
        self.touched.extend(moved);
    }

    /// Whether others have changed what is at the path, or above it.
    fn is_touched(&self, path: &str) -> bool {
        self.touched.iter().any(|touched| touched == path || is_below(path, touched))
    }

    fn write(&mut self, path: &str, content: &[u32], in_place: bool) -> bool {
        if !self.is_directory(parent_of(path)) {
            return false;
        }
        let by_others_ns = Some(self.judge.now_ns);
        let fresh = Entry { by_others_ns, ..self.fresh() };
        match self.entries.get_mut(path) {
            Some(entry) if entry.is_directory => return false,
            Some(entry) if in_place => {
                entry.bytes = bytes_of(content);
                (entry.mtime, entry.ctime) = (fresh.mtime, fresh.ctime);
                entry.by_others_ns = by_others_ns;
                self.tell(path);
            }
            _ => self.insert(path, Entry { bytes: bytes_of(content), ..fresh }),
        }
        true
    }

    /// A directory is made, unless there is something.
    pub fn make_directory(&mut self, path: &str) -> bool {
        if self.entries.contains_key(path) || !self.is_directory(parent_of(path)) {
            return false;
        }
        let entry = Entry { is_directory: true, mode: 0o755, ..self.fresh() };
        self.insert(path, entry);
        true
    }

    fn remove_tree(&mut self, path: &str) -> bool {
        if !self.is_directory(path) {
            return false;
        }
        for inner in self.below(path).into_iter().rev() {
            self.take(&inner);
        }
        self.take(path).is_some()
    }

    fn set_mode(&mut self, path: &str, mode: u32) -> bool {
        let time = self.time();
        let Some(entry) = self.entries.get_mut(path) else { return false };
        (entry.mode, entry.ctime) = (mode, time);
        // As far as others can tell it is another one.
        self.tell(path);
        true
    }

    /// A file takes the place of a file, a directory that of nothing.
    fn move_entry(&mut self, from: &str, to: &str) -> bool {
        let Some(moved) = self.entries.get(from) else { return false };
        let fits = match self.entries.get(to) {
            Some(there) => !there.is_directory && !moved.is_directory,
            None => true,
        };
        if from == to || !fits || is_below(to, from) || !self.is_directory(parent_of(to)) {
            return false;
        }
        for inner in self.below(from) {
            let Some(entry) = self.entries.remove(&inner) else { continue };
            self.tell(&inner);
            let new = format!("{to}{}", &inner[from.len()..]);
            self.entries.insert(new.clone(), entry);
            self.tell(&new);
        }
        let Some(entry) = self.take(from) else { return false };
        let ctime = self.time();
        self.insert(to, Entry { ctime, ..entry });
        true
    }

    /// What others did so far was nothing that programs could meet.
    pub fn forget_touched(&mut self) {
        self.touched.clear();
    }

    /// Everything goes.
    pub fn clear(&mut self) {
        for path in self.below_root() {
            self.take(&path);
        }
    }

    fn below_root(&self) -> Vec<String> {
        self.entries.keys().rev().filter(|path| !path.is_empty()).cloned().collect()
    }

    /// All files, with their contents and modes.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, (Content, u32)> {
        let files = self.entries.iter().filter(|(_, entry)| !entry.is_directory);
        let told = |entry: &Entry| (content_of(&entry.bytes).unwrap_or_default(), entry.mode);
        files.map(|(path, entry)| (path.clone(), told(entry))).collect()
    }

    /// All directories; the first one is the directory itself.
    #[must_use]
    pub fn directories(&self) -> Vec<String> {
        let all = self.entries.iter().filter(|(_, entry)| entry.is_directory);
        all.map(|(path, _)| path.clone()).collect()
    }

    /// The names of a directory.
    #[must_use]
    pub fn names(&self, directory: &str) -> Vec<String> {
        let below =
            self.entries.keys().filter(|path| !path.is_empty() && parent_of(path) == directory);
        let start = if directory.is_empty() { 0 } else { directory.len() + 1 };
        below.map(|path| path[start..].to_owned()).collect()
    }

    /// The daemon of a node knows what was flushed.
    pub fn forget_note(&mut self, node: usize, file: FileId) {
        self.notes.remove(&(node, file.0));
    }

    /// The keeper of a node has died.
    pub fn keeper_died(&mut self, node: usize) {
        if self.bug == Some(Bug::ForgetsNotes) {
            self.notes.retain(|(of, _), _| *of != node);
        }
    }

    fn attr(&self, path: &str) -> Result<Attr, Errno> {
        self.entries.get(path).map(Entry::attr).ok_or(Errno::ENOENT)
    }
}

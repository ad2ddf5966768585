//! Counts and notes of what this process does, for people ([`mayfly_transport_shm::tally`]).
//!
//! Each operation is counted where it ends, by its kind and by the way it went. A client counts
//! only what it was told to count.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use mayfly_transport::Transport;
use mayfly_transport_shm::{
    layout::{KeyEntry, NodeRegion},
    tally::{Began, Done, Kind, PATH_BYTES, Subject, Tally, Timeline, Way, cut},
};
use mayfly_types::{Errno, OpenRef, limits::NAME_BYTES_MAX};
use mayfly_wire::{Target, Walk};

use crate::{Client, Descriptors, OpenFile, Stop};

/// Descriptions whose last transfer is remembered, by their number.
const ENDS: usize = 32;

/// Where it is counted.
#[derive(Clone, Copy)]
pub struct Counts {
    /// By this session.
    pub tally: &'static Tally,
    /// By the node.
    pub timeline: &'static Timeline,
    /// Names of open files.
    pub keys: &'static [KeyEntry],
}

/// Descriptions that were asked for whose names are remembered, by their number.
const NAMES: usize = 16;

/// By which path a description was asked for. The node's table has names of files that are at home
/// there.
struct Asked {
    /// Number and generation.
    of: AtomicU64,
    directory: AtomicU64,
    path_bytes: AtomicU64,
    path: [AtomicU64; PATH_BYTES / 8],
}

impl Asked {
    const fn none() -> Asked {
        Asked {
            of: AtomicU64::new(0),
            directory: AtomicU64::new(0),
            path_bytes: AtomicU64::new(0),
            path: [const { AtomicU64::new(0) }; PATH_BYTES / 8],
        }
    }

    /// Threads that are here at the same moment may mix up two names, of which neither is found
    /// then.
    fn write(&self, reference: OpenRef, walk: &Walk<'_>) {
        self.of.store(0, Relaxed);
        self.directory.store(walk.start.0, Relaxed);
        let path = cut(walk.path);
        self.path_bytes.store(path.len() as u64, Relaxed);
        for (to, bytes) in self.path.iter().zip(path.chunks(8)) {
            let mut word = [0; 8];
            word.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
            to.store(u64::from_le_bytes(word), Relaxed);
        }
        self.of.store(number_of(reference), Release);
    }

    fn read<'n>(&self, reference: OpenRef, name: &'n mut [u8]) -> Option<(u64, &'n [u8])> {
        if self.of.load(Acquire) != number_of(reference) {
            return None;
        }
        let directory = self.directory.load(Relaxed);
        let bytes = (self.path_bytes.load(Relaxed) as usize).min(PATH_BYTES);
        for (to, word) in name.chunks_mut(8).zip(&self.path) {
            let word = word.load(Relaxed).to_le_bytes();
            to.iter_mut().zip(word).for_each(|(to, byte)| *to = byte);
        }
        fence(Acquire);
        (self.of.load(Relaxed) == number_of(reference)).then_some(())?;
        Some((directory, name.get(..bytes)?))
    }
}

fn number_of(reference: OpenRef) -> u64 {
    u64::from(reference.index) << 32 | u64::from(reference.generation)
}

impl Counts {
    /// Those of a session of this node.
    #[must_use]
    pub fn of(node: &'static NodeRegion, tally: &'static Tally) -> Counts {
        Counts { tally, timeline: &node.timeline, keys: &node.keys }
    }
}

/// Where the last transfer by a description ended.
#[derive(Default)]
struct End {
    /// Number and generation.
    of: AtomicU64,
    at: AtomicU64,
}

pub(crate) struct Counting {
    counts: Option<Counts>,
    ends: [End; ENDS],
    asked: [Asked; NAMES],
}

impl Counting {
    pub(crate) fn none() -> Counting {
        Counting {
            counts: None,
            ends: [const { End { of: AtomicU64::new(0), at: AtomicU64::new(0) } }; ENDS],
            asked: [const { Asked::none() }; NAMES],
        }
    }

    pub(crate) fn by(&mut self, counts: Counts) {
        self.counts = Some(counts);
    }
}

/// A transfer by a description.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) kind: Kind,
    pub(crate) way: Way,
    pub(crate) reference: OpenRef,
    pub(crate) offset: u64,
    /// For how many bytes it was.
    pub(crate) began: Option<Began>,
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Counts what it does from now on.
    pub fn count_in(&mut self, counts: Counts) {
        self.counting.by(counts);
    }

    /// Before an operation.
    #[inline]
    pub(crate) fn begin(&self, bytes: usize) -> Option<Began> {
        self.counting.counts.as_ref().map(|counts| counts.tally.begin(bytes))
    }

    /// After an operation.
    #[inline]
    pub(crate) fn end<'a>(&self, began: Option<Began>, done: impl FnOnce() -> Done<'a>) {
        if let (Some(counts), Some(began)) = (&self.counting.counts, began) {
            counts.tally.end(began, counts.timeline, done);
        }
    }

    /// After one about a path.
    #[inline]
    pub(crate) fn end_at(
        &self,
        began: Option<Began>,
        (kind, way): (Kind, Way),
        walk: &Walk<'_>,
        failed: bool,
    ) {
        let subject = Subject { file: 0, directory: walk.start.0, path: walk.path };
        self.end(began, || Done { kind, way, failed, bytes: 0, subject });
    }

    /// After one about a description.
    #[inline]
    pub(crate) fn end_open(
        &self,
        began: Option<Began>,
        (kind, way): (Kind, Way),
        reference: OpenRef,
        failed: bool,
    ) {
        self.end_transfer(Transfer { kind, way, reference, offset: 0, began }, failed, 0);
    }

    /// After reading or writing.
    #[inline]
    pub(crate) fn transferred(&self, transfer: Transfer, done: &Result<usize, Errno>) {
        if self.counting.counts.is_none() {
            return;
        }
        let bytes = done.unwrap_or(0);
        let Transfer { kind, reference, offset, .. } = transfer;
        if let Some(counts) = &self.counting.counts
            && let Some(end) = self.counting.ends.get(reference.index as usize % ENDS)
        {
            let of = number_of(reference);
            let is_known = end.of.load(Relaxed) == of;
            let goes_on = if is_known { end.at.load(Relaxed) == offset } else { offset == 0 };
            if goes_on && bytes > 0 {
                counts.tally.in_order(kind);
            }
            end.of.store(of, Relaxed);
            end.at.store(offset + bytes as u64, Relaxed);
        }
        self.end_transfer(transfer, done.is_err(), bytes);
    }

    #[inline]
    fn end_transfer(&self, transfer: Transfer, failed: bool, bytes: usize) {
        let Some(counts) = &self.counting.counts else { return };
        let Transfer { kind, way, reference, began, .. } = transfer;
        let Some(began) = began else { return };
        if !counts.tally.is_noted(began, bytes) {
            let subject = Subject::default();
            let done = Done { kind, way, failed, bytes, subject };
            return counts.tally.end(began, counts.timeline, || done);
        }
        let mut name = [0; NAME_BYTES_MAX];
        let subject = self.subject_of(reference, counts.keys, &mut name);
        counts.tally.end(began, counts.timeline, || Done { kind, way, failed, bytes, subject });
    }

    /// Remembers by which path a description was asked for.
    pub(crate) fn note_name(&self, reference: OpenRef, walk: &Walk<'_>) {
        if self.counting.counts.is_some()
            && let Some(asked) = self.counting.asked.get(reference.index as usize % NAMES)
        {
            asked.write(reference, walk);
        }
    }

    /// By which path from a directory a description was opened, if that is remembered: how many
    /// bytes of it stand in `room`.
    pub(crate) fn opened_name(
        &self,
        reference: OpenRef,
        room: &mut [u8; NAME_BYTES_MAX],
    ) -> Option<(u64, usize)> {
        if let Some(found) = self.leased_name(reference, room) {
            return Some(found);
        }
        let asked = self.counting.asked.get(reference.index as usize % NAMES)?;
        asked.read(reference, room).map(|(directory, path)| (directory, path.len()))
    }

    /// The file of a description, and the name that it was made with.
    #[cold]
    #[inline(never)]
    fn subject_of<'n>(
        &self,
        reference: OpenRef,
        keys: &[KeyEntry],
        name: &'n mut [u8; NAME_BYTES_MAX],
    ) -> Subject<'n> {
        let Some(entry) = self.node.opens.get(reference.index as usize) else {
            return Subject::default();
        };
        let file = entry.id.load(Relaxed);
        if let Some((directory, bytes)) = self.leased_name(reference, name) {
            return Subject { file, directory, path: name.get(..bytes).unwrap_or_default() };
        }
        // One that is promised has no file so far: what stands there is an earlier one's.
        let index = entry.file.load(Relaxed) as usize;
        let is_its = self.node.files.get(index).is_some_and(|of| of.id.load(Relaxed) == file);
        if let Some(key) = keys.get(index).filter(|_| is_its)
            && key.directory.load(Relaxed) != 0
        {
            let bytes = (key.name_bytes.load(Relaxed) as usize).min(NAME_BYTES_MAX);
            for (to, word) in name.chunks_mut(4).zip(&key.name) {
                let word = word.load(Relaxed).to_le_bytes();
                to.iter_mut().zip(word).for_each(|(to, byte)| *to = byte);
            }
            let path = name.get(..bytes).unwrap_or_default();
            return Subject { file, directory: key.directory.load(Relaxed), path };
        }
        let asked = self.counting.asked.get(reference.index as usize % NAMES);
        match asked.and_then(|asked| asked.read(reference, name)) {
            Some((directory, path)) => Subject { file, directory, path },
            None => Subject { file, ..Subject::default() },
        }
    }

    /// After one about whatever it is.
    pub(crate) fn end_about(
        &self,
        began: Option<Began>,
        done: (Kind, Way),
        target: &Target<'_>,
        failed: bool,
    ) {
        match *target {
            Target::Path(walk) => self.end_at(began, done, &walk, failed),
            Target::Open(open) => self.end_open(began, done, open, failed),
            Target::Directory(start) => {
                self.end_at(began, done, &Walk { start, path: b"", flags: 0 }, failed);
            }
        }
    }

    /// Counts a request about whatever it is.
    pub(crate) fn asked_about<R>(
        &self,
        kind: Kind,
        target: &Target<'_>,
        ask: impl FnOnce() -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        let began = self.begin(0);
        let done = ask();
        // One that leads elsewhere is none of ours.
        if !matches!(done, Err(Stop::Escaped)) {
            self.end_about(began, (kind, Way::Asked), target, done.is_err());
        }
        done
    }

    /// Counts a request about a path.
    pub(crate) fn asked_at<R>(
        &self,
        kind: Kind,
        walk: &Walk<'_>,
        ask: impl FnOnce() -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        self.asked_about(kind, &Target::Path(*walk), ask)
    }

    /// Counts a request about a description.
    pub(crate) fn asked_open<R>(
        &self,
        kind: Kind,
        open: OpenRef,
        ask: impl FnOnce() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let began = self.begin(0);
        let done = ask();
        self.end_open(began, (kind, Way::Asked), open, done.is_err());
        done
    }

    /// Counts a read that somebody made of what [`Client::with_object`] gave.
    pub fn count_read(&self, open: OpenFile, offset: u64, bytes: usize) {
        let began = self.begin(0);
        let (kind, way, reference) = (Kind::Read, Way::Itself, open.reference);
        self.transferred(Transfer { kind, way, reference, offset, began }, &Ok(bytes));
    }
}

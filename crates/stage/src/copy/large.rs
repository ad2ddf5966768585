//! Large files: copied in parts, by several threads.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString},
    fs::File,
    os::{fd::AsFd, unix::fs::FileExt},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::AcqRel},
    },
};

use nix::{
    errno::Errno,
    unistd::{Whence, lseek},
};

use super::{
    entry::Done,
    settle::Stat,
    whole::{Partial, failed},
};
use crate::{
    journal::done_parts::DoneParts,
    report::Problem,
    walk::{
        Stager,
        tree::{Dir, os},
    },
};

/// So long is a part, bytes.
pub(crate) const PART_BYTES: u64 = 32 << 20;

/// A file on its way.
#[derive(Debug)]
pub(crate) struct Large {
    pub(crate) dir: Arc<Dir>,
    pub(crate) name: CString,
    /// As it was when it was opened.
    pub(crate) stat: Stat,
    pub(crate) source: File,
    pub(crate) target: File,
    pub(crate) temporary: CString,
    /// So often it had changed before.
    pub(super) tries: u32,
    /// Parts that an earlier try has copied; not all of them.
    earlier: BTreeSet<u64>,
    /// Parts that are not done.
    left: AtomicU64,
    problem: Mutex<Option<Problem>>,
}

impl Large {
    pub(super) fn new(
        (dir, name): (Arc<Dir>, CString),
        (source, stat): (File, Stat),
        (target, temporary): (File, CString),
        tries: u32,
        mut earlier: BTreeSet<u64>,
    ) -> Result<Large, Problem> {
        target.set_len(stat.bytes).map_err(|error| failed("give the file its length", &error))?;
        let parts = parts(stat.bytes);
        earlier.retain(|part| *part < parts);
        if earlier.len() as u64 == parts {
            // Whoever ends the last part gives the file its name.
            earlier.pop_last();
        }
        let left = AtomicU64::new(parts - earlier.len() as u64);
        let large = Large::begun((dir, name), (source, stat), (target, temporary));
        Ok(Large { tries, earlier, left, ..large })
    }

    /// One that is copied elsewhere too.
    pub(crate) fn begun(
        (dir, name): (Arc<Dir>, CString),
        (source, stat): (File, Stat),
        (target, temporary): (File, CString),
    ) -> Large {
        let (earlier, left, problem) = (BTreeSet::new(), AtomicU64::new(1), Mutex::new(None));
        Large { dir, name, stat, source, target, temporary, tries: 0, earlier, left, problem }
    }

    pub(crate) fn parts(&self) -> u64 {
        parts(self.stat.bytes)
    }

    /// Has an earlier try copied it?
    pub(crate) fn was_done(&self, part: u64) -> bool {
        self.earlier.contains(&part)
    }

    /// What was copied is on the disk.
    pub(crate) fn sync(&self) -> Result<(), Problem> {
        let synced = self.target.sync_data();
        synced.map_err(|error| failed("have the disk keep what was written", &error))
    }

    /// A part is done; true when it was the last one.
    pub(super) fn end(&self, done: Result<(), Problem>) -> bool {
        if let Err(problem) = done
            && let Ok(mut first) = self.problem.lock()
        {
            first.get_or_insert(problem);
        }
        self.left.fetch_sub(1, AcqRel) == 1
    }

    /// What went wrong with a part.
    pub(crate) fn problem(&self) -> Option<Problem> {
        self.problem.lock().ok().and_then(|problem| *problem)
    }

    /// Copies a part, piece by piece; `turn` is told of each before, and may end it.
    pub(crate) fn copy(
        &self,
        part: u64,
        buffer: &mut [u8],
        mut turn: impl FnMut(u64) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let mut at = part * PART_BYTES;
        let end = (at + PART_BYTES).min(self.stat.bytes);
        while at < end {
            if self.problem().is_some() {
                return Ok(());
            }
            let Some((from, to)) = self.data(at, end)? else { return Ok(()) };
            let bytes = (to - from).min(buffer.len() as u64) as usize;
            turn(bytes as u64)?;
            let piece = &mut buffer[..bytes];
            let read = self.source.read_at(piece, from);
            match read.map_err(|error| failed("read the file", &error))? {
                // It is shorter now.
                0 => return Err(Problem::Changing),
                count => {
                    let written = self.target.write_all_at(&piece[..count], from);
                    written.map_err(|error| failed("write the file", &error))?;
                    at = from + count as u64;
                }
            }
        }
        Ok(())
    }

    /// The next bytes in a range that are no hole.
    fn data(&self, at: u64, end: u64) -> Result<Option<(u64, u64)>, Problem> {
        if self.stat.allocated >= self.stat.bytes {
            return Ok(Some((at, end)));
        }
        let from = match lseek(self.source.as_fd(), at as i64, Whence::SeekData) {
            Ok(from) => from as u64,
            Err(Errno::ENXIO) => return Ok(None),
            // The file system does not tell.
            Err(_) => return Ok(Some((at, end))),
        };
        if from >= end {
            return Ok(None);
        }
        let hole = lseek(self.source.as_fd(), from as i64, Whence::SeekHole);
        Ok(Some((from, hole.map_or(end, |hole| (hole as u64).min(end)))))
    }
}

impl Stager<'_> {
    /// Begins a file, or goes on with one that an earlier try has begun; it is ended with its last
    /// part.
    pub(crate) fn large(
        &self,
        dir: &Arc<Dir>,
        name: &CStr,
        (source, stat): (File, Stat),
        tries: u32,
    ) -> Result<(), Problem> {
        let (partial, earlier) = self.begun_before(dir, name, &stat)?;
        let (temporary, Some(target)) = partial.leave() else { return Err(Problem::Ended) };
        let own = (Arc::clone(dir), name.to_owned());
        let large = Large::new(own, (source, stat), (target, temporary), tries, earlier)?;
        self.queue.push_parts(Arc::new(large));
        Ok(())
    }

    /// The copy, and which of its parts an earlier try has made.
    fn begun_before<'a>(
        &self,
        dir: &'a Dir,
        name: &CStr,
        stat: &Stat,
    ) -> Result<(Partial<'a>, BTreeSet<u64>), Problem> {
        let temporary = self.first_name(dir, dir.target_name(os(name)));
        if let Some(parts) = &self.parts {
            let key = self.key(dir, name, stat);
            let found = || Partial::find(dir.target().ok()?, &temporary, stat);
            if let Some(earlier) = parts.earlier(key)
                && let Some(partial) = found()
            {
                return Ok((partial, earlier.clone()));
            }
            parts.forget(key);
        }
        Ok((Partial::make(dir.target()?, temporary, stat)?, BTreeSet::new()))
    }

    fn key(&self, dir: &Dir, name: &CStr, stat: &Stat) -> u64 {
        DoneParts::key(&dir.target_path(os(name)), &stat.still())
    }

    /// Notes a part of a file that has several: whoever goes on makes it no more.
    fn part_kept(&self, large: &Large, part: u64) {
        if let Some(parts) = &self.parts
            && large.parts() > 1
        {
            parts.note(self.key(&large.dir, &large.name, &large.stat), part);
        }
    }

    /// Copies a part of a large file, and with the last one ends it.
    pub(crate) fn part(&self, large: &Arc<Large>, part: u64, buffer: &mut [u8]) {
        let done = large.copy(part, buffer, |bytes| self.turn(bytes));
        // What is noted as done is there after the machine's end too.
        let done = done.and_then(|()| if self.options.sync { large.sync() } else { Ok(()) });
        self.part_done(large, part, done, buffer);
    }

    /// Waits until so many bytes may be copied.
    pub(crate) fn turn(&self, bytes: u64) -> Result<(), Problem> {
        self.pace.bytes(bytes, || self.is_over());
        if self.is_over() { Err(Problem::Ended) } else { Ok(()) }
    }

    /// A part is done, here or elsewhere.
    pub(crate) fn part_done(
        &self,
        large: &Arc<Large>,
        part: u64,
        done: Result<(), Problem>,
        buffer: &mut [u8],
    ) {
        if done.is_ok() && large.problem().is_none() {
            self.part_kept(large, part);
        }
        if !large.end(done) {
            return;
        }
        let (dir, name, stat) = (&large.dir, large.name.as_c_str(), &large.stat);
        let done = match self.whole(large, buffer) {
            Err(Problem::Changing) => self.file(dir, name, (large.tries + 1, true), buffer),
            done => done.map(|()| Done::Now),
        };
        if matches!(done, Ok(Done::Later)) {
            return;
        }
        self.names_follow(dir, name, stat, done.is_ok(), buffer);
        if let Err(problem) = done {
            self.fail(dir, name, problem);
        }
        self.end(dir);
    }

    fn whole(&self, large: &Large, buffer: &mut [u8]) -> Result<(), Problem> {
        let (dir, name) = (&large.dir, large.name.as_c_str());
        let target = large.target.try_clone().map_err(|error| failed("close the file", &error))?;
        let partial = Partial::take_up(dir.target()?, large.temporary.clone(), target);
        large.problem().map_or(Ok(()), Err)?;
        let now = Stat::of(&large.source).map_err(Problem::of("look at the file"))?;
        if !large.stat.is_still(&now) {
            return Err(Problem::Changing);
        }
        self.attributes(dir, name, &large.source, partial.as_file()?, &large.stat)?;
        partial.finish(dir.target_name(os(name)), &large.stat)?;
        self.finished(dir, name, &large.stat, buffer)
    }
}

fn parts(bytes: u64) -> u64 {
    bytes.div_ceil(PART_BYTES).max(1)
}

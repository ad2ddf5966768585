//! A large file whose parts are copied by several threads, and nodes.

use std::{
    collections::BTreeSet,
    ffi::CString,
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

use crate::{
    copy::{settle::Stat, whole::failed},
    report::Problem,
    walk::tree::Dir,
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
    pub(crate) tries: u32,
    /// Parts that an earlier try has copied; not all of them.
    pub(crate) earlier: BTreeSet<u64>,
    /// Parts that are not done.
    pub(crate) left: AtomicU64,
    pub(crate) problem: Mutex<Option<Problem>>,
}

impl Large {
    pub(crate) fn new(
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
    pub(crate) fn end(&self, done: Result<(), Problem>) -> bool {
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
    pub(crate) fn data(&self, at: u64, end: u64) -> Result<Option<(u64, u64)>, Problem> {
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

pub(crate) fn parts(bytes: u64) -> u64 {
    bytes.div_ceil(PART_BYTES).max(1)
}

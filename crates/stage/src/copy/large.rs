//! Large files: copied in parts, by several threads.

use std::{collections::BTreeSet, ffi::CStr, fs::File, sync::Arc};

use crate::{
    copy::{
        kind::Done,
        parts::Large,
        settle::Stat,
        whole::{Partial, failed},
    },
    journal::done_parts::DoneParts,
    report::Problem,
    stager::Stager,
    walk::tree::{Dir, os},
};

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

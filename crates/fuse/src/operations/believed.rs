//! Leases of names for the kernel, and taking them back ([`crate::memory::believed`]).

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::PoisonError,
    thread,
    time::{Duration, Instant},
};

use mayfly_types::{Attr, Errno, FileId, FileKind, limits::NOTICE_MS};
use mayfly_wire::{
    Wire, Writer,
    notices::{LEASED_ATTRIBUTES, LEASED_NOTHING, NAME_HEAD_BYTES, Name},
};

use crate::{
    memory::{
        believed::{Key, Leased, Promise},
        consistency::Consistency,
    },
    server::Server,
};

/// Between two looks at a thread that has not taken an answer in.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

fn hash_of(directory: FileId, name: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((directory.0, name))
}

/// Leases that were asked for together.
pub(crate) struct Asked {
    recalls: u64,
    until: Instant,
    pub(crate) what: Vec<u8>,
}

impl Asked {
    /// The promise that goes with an answer to `thread`, if that may hold no lock.
    pub(crate) fn promise(self, thread: Option<u32>, names: Vec<Leased>) -> Promise {
        Promise { recalls: self.recalls, until: self.until, thread, names }
    }
}

impl Server {
    /// May the kernel believe what is leased?
    pub(crate) fn leases(&self) -> bool {
        self.consistency == Consistency::Strict && self.believed.is_possible()
    }

    /// The daemon knows that this is a mount, and keeps for it what it has to hear of.
    ///
    /// # Errors
    /// EIO: nobody would tell of changes.
    pub(crate) fn have_told(&self) -> Result<(), Errno> {
        let mut state = self.mapped.state();
        if !state.watching {
            // Changes are kept for this process from the answer on.
            self.client.begin_watching()?;
            state.watching = true;
            self.mapped.begun.notify_one();
        }
        Ok(())
    }

    /// Asks for leases of names of a directory. `None` when none of them is to be had.
    pub(crate) fn ask_for(&self, directory: FileId, names: &[&[u8]]) -> Option<Asked> {
        self.have_told().ok()?;
        let (recalls, began) = (self.believed.recalls(), Instant::now());
        let mut packed = vec![0; names.iter().map(|name| NAME_HEAD_BYTES + name.len()).sum()];
        let mut to = Writer::new(&mut packed);
        for name in names {
            Name { directory, file: FileId::NONE, name }.encode(&mut to).ok()?;
        }
        let (seconds, what) =
            self.client.lease(&packed, |leased| (leased.seconds, leased.what.to_vec())).ok()?;
        let until = began + Duration::from_secs(seconds.into());
        what.iter().any(|what| *what != LEASED_NOTHING).then_some(Asked { recalls, until, what })
    }

    /// Asks for a lease of a name that is looked at, if it is worth one.
    pub(crate) fn ask_for_one(
        &self,
        directory: FileId,
        name: &[u8],
        kind: FileKind,
    ) -> Option<Asked> {
        if !self.leases() {
            return None;
        }
        let hash = hash_of(directory, name);
        if !self.believed.is_wanted(hash, kind != FileKind::Regular) {
            return None;
        }
        let asked = self.ask_for(directory, &[name]);
        if asked.is_none() {
            self.believed.refused(hash);
        }
        asked
    }

    /// A name of a directory at which `thread` looks, and the attributes of its file now: leased,
    /// if it is worth it.
    pub(crate) fn look_leased(
        &self,
        thread: u32,
        (directory, name): (FileId, &[u8]),
        (attr, entry): (Attr, bool),
        again: impl FnOnce() -> Result<Attr, Errno>,
    ) -> Result<(Attr, Option<Promise>), Errno> {
        if thread == 0 {
            return Ok((attr, None));
        }
        let Some(asked) = self.ask_for_one(directory, name, attr.kind) else {
            return Ok((attr, None));
        };
        let attr = again()?;
        let attributes = asked.what.first() == Some(&LEASED_ATTRIBUTES);
        let key = Key { directory, name: name.into() };
        let names = vec![Leased { key, id: attr.id, at: 0, entry, attributes }];
        Ok((attr, Some(asked.promise(entry.then_some(thread), names))))
    }

    /// Somebody is about to change a name or its file: has the kernel forget it.
    pub(crate) fn forget_name(&self, directory: FileId, name: &[u8], file: FileId) {
        let key = Key { directory, name: name.into() };
        let (id, looks) = self.believed.recall(&key).unwrap_or((file, Vec::new()));
        self.have_forgotten(&key, id, &looks);
        if id != file && file != FileId::NONE {
            self.device.forget_attributes(file.0);
        }
    }

    /// Has the kernel forget all that it believes.
    pub(crate) fn forget_names(&self) {
        for (key, id, looks) in self.believed.recall_all() {
            self.have_forgotten(&key, id, &looks);
        }
    }

    fn have_forgotten(&self, key: &Key, id: FileId, looks: &[u32]) {
        // In this order: a file of which the kernel does not know yet becomes known under the lock
        // of the directory, for which the first notice waits.
        self.device.expire(key.directory.0, &key.name);
        self.device.forget_attributes(id.0);
        if looks.is_empty() {
            return;
        }
        // No lease is longer.
        let end = Instant::now() + Duration::from_millis(4 * u64::from(NOTICE_MS));
        for thread in looks {
            while may_take_in(*thread) && Instant::now() < end {
                thread::sleep(LOOK_AGAIN);
            }
        }
        self.device.expire(key.directory.0, &key.name);
    }

    /// Waits until the daemon may tell something.
    pub(crate) fn wait_for_watch(&self) {
        let mut state = self.mapped.state();
        while !state.watching {
            state = self.mapped.begun.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Whether a thread that was answered may not have taken the answer in. It runs until it has, or
/// waits for pages of the file.
fn may_take_in(thread: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{thread}/stat")) else { return false };
    let state = stat.rsplit_once(')').and_then(|(_, fields)| fields.trim_start().chars().next());
    matches!(state, Some('R' | 'D') | None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_runs_may_take_an_answer_in_and_one_that_sleeps_has() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert!(may_take_in(own));
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let sleeper = thread::spawn(move || {
            let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            tell.send(own).expect("somebody listens");
            let _ = stopped.recv();
        });
        let id = told.recv().expect("a thread");
        while may_take_in(id) {
            thread::yield_now();
        }
        drop(stop);
        sleeper.join().expect("it ends");
        assert!(!may_take_in(id));
    }
}

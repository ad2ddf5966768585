//! Locks of flock and fcntl.
//!
//! The daemon knows three kinds of owners: an open file description for flock, a process, and an
//! open file description again for byte ranges. All of a mount's programs are one process to it, so
//! fcntl's locks of each of the kernel's owners are held by an open file description of their own,
//! which goes when that owner closes any descriptor of the file. Whose locks they are makes no
//! difference to those that stand in their way.
//!
//! **Waiting.** A lock that is not free is put into a queue here; one thread tries all of it, in
//! the order in which they came, when a lock was given up through this mount, and every few
//! milliseconds for those that others hold. So no number of waiting programs uses up the threads or
//! the lanes, an interrupt takes a wait out of the queue, and a restarted daemon needs to know
//! nothing. The price: two programs that wait for each other are not told (EDEADLK).
//!
//! A lock that is not to be waited for stands there too, for a moment, when a descriptor through
//! which the file was locked was closed just now: the kernel does not wait until it has told us of
//! the last close, and who asks after that must find the lock free.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use mayfly_sys::file::O_RDWR;
use mayfly_types::{Errno, FileId, OpenRef};
use mayfly_wire::{
    LOCK_FLOCK, LOCK_OFD, LOCK_READ, LOCK_UNLOCK, LOCK_WRITE, LockRange, WALK_EMPTY, Walk,
};

use crate::{
    abi::{Body, Fields, Header, LOCK_IS_FLOCK},
    attributes::failed,
    dispatch::Reply,
    server::Server,
};

/// Locks that may be waited for at a time through one mount; more are refused with ENOLCK.
const WAITS_MAX: usize = 4096;
/// Interrupts remembered whose request has not come to the queue yet.
const EARLY_MAX: usize = 64;
/// First pause between two tries of what others hold.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// How long after the close of a descriptor the word of the last close may take.
const CLOSING_MAX: Duration = Duration::from_millis(100);
/// How the kernel says "to the end, wherever that is".
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Who holds fcntl's locks: the file and the kernel's number of the owner.
type Owner = (u64, u64);

#[derive(Debug, Clone, Copy)]
struct Held {
    /// The description that holds them.
    open: OpenRef,
    /// The handle through which the first one was taken.
    handle: u64,
    pid: u32,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    unique: u64,
    open: OpenRef,
    range: LockRange,
    interrupted: bool,
    /// It is busy if it is not free by then.
    until: Option<Instant>,
}

/// A handle through which flock's lock was taken.
#[derive(Debug, Clone, Copy)]
struct Flocked {
    node: u64,
    /// When a descriptor of it was closed.
    closed: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    holders: HashMap<Owner, Held>,
    flocked: HashMap<u64, Flocked>,
    waits: VecDeque<Wait>,
    early: VecDeque<u64>,
    /// Counts what was given up.
    freed: u64,
}

/// The locks of a mount.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    state: Mutex<State>,
    changed: Condvar,
}

/// A lock as the kernel asks for it.
struct Asked {
    handle: u64,
    owner: u64,
    range: LockRange,
    pid: u32,
}

impl Asked {
    fn of(mut fields: Fields<'_>) -> Result<Asked, Errno> {
        let (handle, owner) = (fields.u64()?, fields.u64()?);
        let (start, last, kind, pid) = (fields.u64()?, fields.u64()?, fields.u32()?, fields.u32()?);
        let flock = fields.u32()? & LOCK_IS_FLOCK != 0;
        if !matches!(kind, LOCK_READ | LOCK_WRITE | LOCK_UNLOCK) {
            return Err(Errno::EINVAL);
        }
        let end = if last >= OFFSET_MAX { u64::MAX } else { last + 1 };
        let range =
            LockRange { owner: if flock { LOCK_FLOCK } else { LOCK_OFD }, kind, start, end };
        Ok(Asked { handle, owner, range, pid })
    }
}

impl Locks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was given up: those that wait are tried at once.
    fn freed(&self) {
        self.state().freed += 1;
        self.changed.notify_one();
    }

    /// Puts a request into the queue; the errno with which it is answered otherwise.
    fn queue(&self, wait: Wait) -> Result<(), Errno> {
        let mut state = self.state();
        if let Some(place) = state.early.iter().position(|unique| *unique == wait.unique) {
            state.early.remove(place);
            return Err(Errno::EINTR);
        }
        if state.waits.len() >= WAITS_MAX {
            return Err(Errno::ENOLCK);
        }
        state.waits.push_back(wait);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a reason to try those in the queue, at most for `pause` unless it is empty; the
    /// first pause of a new round, or twice the last one.
    fn rest(&self, seen: &mut u64, pause: Duration) -> Duration {
        let mut state = self.state();
        while state.waits.is_empty() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let known = *seen;
        if state.freed == known {
            let waited = self
                .changed
                .wait_timeout_while(state, pause, |state| state.freed == known)
                .unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
        }
        let fresh = state.freed != known;
        *seen = state.freed;
        if fresh { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) }
    }

    fn flocked(&self, handle: u64, node: u64) {
        self.state().flocked.insert(handle, Flocked { node, closed: None });
    }

    /// A descriptor of the handle was closed, maybe the last one.
    pub(crate) fn closed(&self, handle: u64) {
        if let Some(flocked) = self.state().flocked.get_mut(&handle) {
            flocked.closed = Some(Instant::now());
        }
    }

    /// May a lock of the file be on its way out?
    fn is_closing(&self, node: u64) -> bool {
        let recent = |at: Instant| at.elapsed() < CLOSING_MAX;
        let state = self.state();
        let mut of_it = state.flocked.values().filter(|flocked| flocked.node == node);
        of_it.any(|flocked| flocked.closed.is_some_and(recent))
    }

    fn waiting(&self) -> Vec<Wait> {
        self.state().waits.iter().copied().collect()
    }

    fn take_out(&self, unique: u64) {
        self.state().waits.retain(|wait| wait.unique != unique);
    }
}

impl Server {
    /// The description that holds an owner's locks, made when there is none. It can write and read
    /// whatever the program's descriptor can: that was checked by the kernel.
    fn holder(&self, node: u64, asked: &Asked) -> Result<OpenRef, Errno> {
        let key = (node, asked.owner);
        if let Some(held) = self.locks.state().holders.get(&key) {
            return Ok(held.open);
        }
        // By identity, which does for a file that the asking program has open.
        let walk = Walk { start: FileId(node), flags: WALK_EMPTY, path: b"" };
        let none = mayfly_client::NewOwner { mode: 0, uid: 0, gid: 0 };
        let mut escape = mayfly_sys::text::PathText::new();
        let opened = self.client.open(walk, O_RDWR, none, &mut escape).map_err(failed)?;
        let held = Held { open: opened.open, handle: asked.handle, pid: asked.pid };
        let first = self.locks.state().holders.entry(key).or_insert(held).open;
        if first != opened.open {
            // Another thread of the owner was quicker.
            self.client.close(self.client.open_file(opened.open)?)?;
        }
        Ok(first)
    }

    pub(crate) fn lock(
        &self,
        header: &Header,
        fields: Fields<'_>,
        wait: bool,
    ) -> Result<Reply, Errno> {
        let asked = Asked::of(fields)?;
        let range = asked.range;
        let known = || self.locks.state().holders.get(&(header.node, asked.owner)).copied();
        let open = if range.owner == LOCK_FLOCK {
            self.handle(asked.handle)?.reference
        } else if range.kind == LOCK_UNLOCK {
            let Some(held) = known() else { return Ok(Reply::Body) };
            held.open
        } else {
            self.holder(header.node, &asked)?
        };
        match self.client.lock(open, range, false) {
            Err(Errno::EAGAIN) if wait || self.locks.is_closing(header.node) => {
                let unique = header.unique;
                let until = (!wait).then(|| Instant::now() + CLOSING_MAX);
                if range.owner == LOCK_FLOCK {
                    self.locks.flocked(asked.handle, header.node);
                }
                self.locks.queue(Wait { unique, open, range, interrupted: false, until })?;
                Ok(Reply::Later)
            }
            Ok(()) => {
                if range.owner == LOCK_FLOCK && range.kind != LOCK_UNLOCK {
                    self.locks.flocked(asked.handle, header.node);
                }
                // A lock may also have become a weaker one.
                self.locks.freed();
                Ok(Reply::Body)
            }
            Err(errno) => Err(errno),
        }
    }

    pub(crate) fn test_lock(
        &self,
        header: &Header,
        fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let asked = Asked::of(fields)?;
        let open = self.holder(header.node, &asked)?;
        let conflict = self.client.test_lock(open, asked.range)?;
        let range = conflict.range;
        let last = if range.end == u64::MAX { OFFSET_MAX } else { range.end - 1 };
        let pid = match u32::try_from(conflict.pid) {
            Ok(pid) => pid,
            Err(_) => self.someone_else(header.node, asked.owner),
        };
        body.u64(range.start).u64(last).u32(range.kind).u32(pid);
        Ok(())
    }

    /// A process that holds locks of the file through this mount; 0 when it is none of them.
    fn someone_else(&self, node: u64, owner: u64) -> u32 {
        let state = self.locks.state();
        let mut others = state.holders.iter().filter(|(key, _)| key.0 == node && key.1 != owner);
        others.next().map_or(0, |(_, held)| held.pid)
    }

    /// An owner has closed a descriptor of the file.
    pub(crate) fn release_owner(&self, node: u64, owner: u64) {
        let held = self.locks.state().holders.remove(&(node, owner));
        if let Some(held) = held {
            self.give_up(held.open);
        }
    }

    /// A handle is going; what was locked through it and not by a process (F_OFD_SETLK) goes too.
    pub(crate) fn release_handle(&self, handle: u64) {
        let gone: Vec<OpenRef> = {
            let mut state = self.locks.state();
            state.flocked.remove(&handle);
            let of_it = state.holders.extract_if(|_, held| held.handle == handle);
            of_it.map(|(_, held)| held.open).collect()
        };
        for open in gone {
            self.give_up(open);
        }
        self.locks.freed();
    }

    fn give_up(&self, open: OpenRef) {
        // The end of the session gives them up too.
        if let Ok(open) = self.client.open_file(open) {
            let _ = self.client.close(open);
        }
        self.locks.freed();
    }

    /// The program that waits for request `unique` got a signal. A request that does not wait for a
    /// lock is answered soon.
    pub(crate) fn interrupt(&self, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        let unique = fields.u64()?;
        let mut state = self.locks.state();
        match state.waits.iter_mut().find(|wait| wait.unique == unique) {
            Some(wait) => {
                wait.interrupted = true;
                state.freed += 1;
                self.locks.changed.notify_one();
            }
            None => {
                if state.early.len() >= EARLY_MAX {
                    state.early.pop_front();
                }
                state.early.push_back(unique);
            }
        }
        Ok(Reply::Later)
    }

    /// Tries those that wait, for ever.
    pub(crate) fn serve_waiting(&self) {
        let (mut seen, mut pause) = (0, PAUSE_MIN);
        loop {
            pause = self.locks.rest(&mut seen, pause);
            for wait in self.locks.waiting() {
                let tried = match wait.interrupted {
                    true => Err(Errno::EINTR),
                    false => self.client.lock(wait.open, wait.range, false),
                };
                let in_time = wait.until.is_none_or(|until| Instant::now() < until);
                if tried == Err(Errno::EAGAIN) && in_time {
                    continue;
                }
                self.locks.take_out(wait.unique);
                match tried {
                    Ok(()) => self.device.answer(wait.unique, &[]),
                    Err(errno) => self.device.refuse(wait.unique, errno),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(last: u64, kind: u32, flags: u32) -> Vec<u8> {
        let mut body = Body::default();
        body.u64(3).u64(77).u64(10).u64(last).u32(kind).u32(4711).u32(flags).u32(0);
        body.bytes().to_vec()
    }

    #[test]
    fn the_kernels_last_byte_becomes_an_end_and_flock_is_told_from_fcntl() {
        let of = |bytes: &[u8]| Asked::of(Fields(bytes)).map(|asked| asked.range);
        let range = of(&request(19, LOCK_WRITE, 0)).expect("a range");
        assert_eq!((range.owner, range.start, range.end), (LOCK_OFD, 10, 20));
        let range = of(&request(OFFSET_MAX, LOCK_READ, LOCK_IS_FLOCK)).expect("a range");
        assert_eq!((range.owner, range.end), (LOCK_FLOCK, u64::MAX));
        assert_eq!(of(&request(19, 3, 0)), Err(Errno::EINVAL));
    }

    #[test]
    fn an_interrupt_that_overtakes_its_request_ends_it() {
        let locks = Locks::default();
        let range = LockRange { owner: LOCK_OFD, kind: LOCK_WRITE, start: 0, end: 1 };
        let wait =
            Wait { unique: 8, open: OpenRef::default(), range, interrupted: false, until: None };
        locks.state().early.push_back(8);
        assert_eq!(locks.queue(wait), Err(Errno::EINTR));
        assert_eq!(locks.queue(wait), Ok(()));
        assert_eq!(locks.waiting().len(), 1);
        locks.take_out(8);
        assert!(locks.waiting().is_empty());
    }

    #[test]
    fn pauses_grow_to_a_bound_and_begin_anew_when_something_is_freed() {
        let locks = Locks::default();
        let range = LockRange { owner: LOCK_OFD, kind: LOCK_WRITE, start: 0, end: 1 };
        let wait =
            Wait { unique: 8, open: OpenRef::default(), range, interrupted: false, until: None };
        locks.queue(wait).expect("room");
        let (mut seen, mut pause) = (0, PAUSE_MIN);
        for _ in 0..8 {
            pause = locks.rest(&mut seen, pause);
        }
        assert_eq!(pause, PAUSE_MAX);
        locks.freed();
        assert_eq!(locks.rest(&mut seen, pause), PAUSE_MIN);
    }
}

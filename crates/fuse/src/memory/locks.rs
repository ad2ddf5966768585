//! Locks of flock and fcntl.
//!
//! The daemon knows three kinds of owners: an open file description for flock, a process, and an
//! open file description again for byte ranges. To it, all of a mount's programs are one process.
//! So for each of the kernel's owners, an open file description of its own holds that owner's fcntl
//! locks. It is closed when that owner closes any descriptor of the file. Whose locks they are
//! makes no difference to those that stand in their way.
//!
//! **Waiting.** A request for a lock that is not free is put into a queue here. One thread tries
//! all of them, in their order. It does so when a lock was given up through this mount, and every
//! few milliseconds for locks that others hold. So no number of waiting programs uses up the
//! threads or the lanes, an interrupt takes a wait out of the queue, and a restarted daemon needs
//! to know nothing. The price: the daemon does not see who waits. So programs that wait for each
//! other are told (EDEADLK) only when all of them are of this mount. For that the locks of each
//! owner are kept here. A lock is noted after it was taken, and crossed out before it is given up.
//! So a noted owner does hold the lock.
//!
//! The kernel does not say whether an owner is a process or a description (F_OFD_SETLK). A
//! description is never told. Where procfs shows the call in which the thread waits, that call says
//! which it is. Elsewhere an owner that holds a lock by another open file than the one by which it
//! waits is a process.
//!
//! A request that is not to wait may stand in the queue too, for a moment: when a descriptor
//! through which the file was locked was closed just now. The kernel tells us of the last close
//! late. A program that asks after that close must find the lock free.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use mayfly_types::{Errno, OpenRef};
use mayfly_wire::{LOCK_FLOCK, LOCK_OFD, LOCK_READ, LOCK_UNLOCK, LOCK_WRITE, LockRange};

use crate::{
    kernel::abi::{Fields, LOCK_IS_FLOCK},
    memory::waiter::Waiter,
};

/// Locks that may be waited for at a time through one mount; more are refused with ENOLCK.
pub(crate) const WAITS_MAX: usize = 4096;
/// Interrupts remembered whose request has not come to the queue yet.
pub(crate) const EARLY_MAX: usize = 64;
/// First pause between two tries of what others hold.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest pause.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(20);
/// How long after the close of a descriptor the word of the last close may take.
pub(crate) const CLOSING_MAX: Duration = Duration::from_millis(100);
/// How the kernel says "to the end, wherever that is".
pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;

/// An owner of fcntl locks: the file, and the kernel's number of the owner.
type Owner = (u64, u64);

#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// The description that holds them.
    pub(crate) open: OpenRef,
    /// The handle through which the first one was taken.
    pub(crate) handle: u64,
    pub(crate) pid: u32,
    /// The locked ranges; no two of them overlap.
    pub(crate) ranges: Vec<LockRange>,
}

impl Held {
    /// Takes in what was locked or given up.
    pub(crate) fn note(&mut self, range: LockRange) {
        let mut now = range;
        let mut rest = Vec::new();
        for old in std::mem::take(&mut self.ranges) {
            let touches = old.start <= range.end && range.start <= old.end;
            if touches && old.kind == range.kind {
                (now.start, now.end) = (now.start.min(old.start), now.end.max(old.end));
                continue;
            }
            let before = LockRange { end: old.end.min(range.start), ..old };
            let behind = LockRange { start: old.start.max(range.end), ..old };
            rest.extend([before, behind].into_iter().filter(|part| part.start < part.end));
        }
        if range.kind != LOCK_UNLOCK {
            rest.push(now);
        }
        self.ranges = rest;
    }

    pub(crate) fn is_in_the_way_of(&self, wanted: &LockRange) -> bool {
        self.ranges.iter().any(|held| {
            held.start < wanted.end
                && wanted.start < held.end
                && (held.kind == LOCK_WRITE || wanted.kind == LOCK_WRITE)
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) unique: u64,
    pub(crate) owner: Owner,
    pub(crate) handle: u64,
    pub(crate) open: OpenRef,
    pub(crate) range: LockRange,
    pub(crate) by: Waiter,
    pub(crate) interrupted: bool,
    /// It is busy if it is not free by then.
    pub(crate) until: Option<Instant>,
}

/// A handle through which flock's lock was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flocked {
    pub(crate) node: u64,
    /// When a descriptor of it was closed.
    pub(crate) closed: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) holders: HashMap<Owner, Held>,
    pub(crate) flocked: HashMap<u64, Flocked>,
    pub(crate) waits: VecDeque<Wait>,
    pub(crate) early: VecDeque<u64>,
    /// Counts what was given up.
    pub(crate) freed: u64,
}

impl State {
    /// Whether a wait that begins would wait for itself, by way of others of this mount.
    pub(crate) fn closes_a_circle(&self, begins: &Wait) -> bool {
        let (mut seen, mut next) = (HashSet::new(), vec![*begins]);
        while let Some(wait) = next.pop() {
            if !wait.may_last() {
                continue;
            }
            let others = self
                .holders
                .iter()
                .filter(|(other, _)| other.0 == wait.owner.0 && other.1 != wait.owner.1);
            let in_the_way = others.filter(|(_, held)| held.is_in_the_way_of(&wait.range));
            for ((_, owner), held) in in_the_way {
                if *owner == begins.owner.1 && begins.by.counts(held.handle, begins.handle) {
                    return true;
                }
                let theirs = self
                    .waits
                    .iter()
                    .filter(|other| other.owner.1 == *owner)
                    .filter(|other| other.by.counts(held.handle, other.handle));
                next.extend(theirs.filter(|other| seen.insert(other.unique)));
            }
        }
        false
    }

    /// An owner holds something, or does not any more.
    pub(crate) fn note(&mut self, owner: Owner, range: LockRange) {
        if range.owner != LOCK_FLOCK
            && let Some(held) = self.holders.get_mut(&owner)
        {
            held.note(range);
        }
    }
}

impl Wait {
    /// A wait for fcntl's lock, however long.
    pub(crate) fn may_last(&self) -> bool {
        self.until.is_none() && self.range.owner != LOCK_FLOCK
    }
}

/// The locks of a mount.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
}

/// A lock as the kernel asks for it.
pub(crate) struct Asked {
    pub(crate) handle: u64,
    pub(crate) owner: u64,
    pub(crate) range: LockRange,
    pub(crate) pid: u32,
}

impl Asked {
    pub(crate) fn of(mut fields: Fields<'_>) -> Result<Asked, Errno> {
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
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was given up: those that wait are tried at once.
    pub(crate) fn freed(&self) {
        self.state().freed += 1;
        self.changed.notify_one();
    }

    /// Puts a request into the queue; the errno with which it is answered otherwise.
    pub(crate) fn queue(&self, wait: Wait) -> Result<(), Errno> {
        let mut state = self.state();
        if let Some(place) = state.early.iter().position(|unique| *unique == wait.unique) {
            state.early.remove(place);
            return Err(Errno::EINTR);
        }
        if state.waits.len() >= WAITS_MAX {
            return Err(Errno::ENOLCK);
        }
        if state.closes_a_circle(&wait) {
            return Err(Errno::EDEADLK);
        }
        state.waits.push_back(wait);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a reason to try those in the queue, at most for `pause` unless it is empty; the
    /// first pause of a new round, or twice the last one.
    pub(crate) fn rest(&self, seen: &mut u64, pause: Duration) -> Duration {
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

    pub(crate) fn flocked(&self, handle: u64, node: u64) {
        self.state().flocked.insert(handle, Flocked { node, closed: None });
    }

    /// A descriptor of the handle was closed, maybe the last one.
    pub(crate) fn closed(&self, handle: u64) {
        if let Some(flocked) = self.state().flocked.get_mut(&handle) {
            flocked.closed = Some(Instant::now());
        }
    }

    /// May a lock of the file be on its way out?
    pub(crate) fn is_closing(&self, node: u64) -> bool {
        let recent = |at: Instant| at.elapsed() < CLOSING_MAX;
        let state = self.state();
        let mut of_it = state.flocked.values().filter(|flocked| flocked.node == node);
        of_it.any(|flocked| flocked.closed.is_some_and(recent))
    }

    pub(crate) fn waiting(&self) -> Vec<Wait> {
        self.state().waits.iter().copied().collect()
    }

    /// A wait is over, with the lock or without it.
    pub(crate) fn take_out(&self, wait: &Wait, served: bool) {
        let mut state = self.state();
        state.waits.retain(|other| other.unique != wait.unique);
        if served {
            state.note(wait.owner, wait.range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::abi::Body;

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

    fn range(kind: u32, (start, end): (u64, u64)) -> LockRange {
        LockRange { owner: LOCK_OFD, kind, start, end }
    }

    fn wait(unique: u64, owner: Owner, handle: u64, bytes: (u64, u64)) -> Wait {
        let (open, range) = (OpenRef::default(), range(LOCK_WRITE, bytes));
        let by = Waiter::Unknown;
        Wait { unique, owner, handle, open, range, by, interrupted: false, until: None }
    }

    fn hold(locks: &Locks, owner: Owner, handle: u64, bytes: (u64, u64)) {
        let mut state = locks.state();
        let (open, ranges) = (OpenRef::default(), Vec::new());
        state.holders.entry(owner).or_insert(Held { open, handle, pid: 1, ranges });
        state.note(owner, range(LOCK_WRITE, bytes));
    }

    #[test]
    fn what_an_owner_holds_is_cut_and_joined() {
        let held = Held { open: OpenRef::default(), handle: 1, pid: 1, ranges: Vec::new() };
        let mut held = held;
        let bytes = |held: &Held| {
            let mut bytes: Vec<_> =
                held.ranges.iter().map(|range| (range.start, range.end, range.kind)).collect();
            bytes.sort_unstable();
            bytes
        };
        for byte in 0..50 {
            held.note(range(LOCK_WRITE, (byte, byte + 1)));
        }
        assert_eq!(bytes(&held), [(0, 50, LOCK_WRITE)]);
        held.note(range(LOCK_READ, (10, 20)));
        held.note(range(LOCK_UNLOCK, (15, 30)));
        assert_eq!(bytes(&held), [(0, 10, LOCK_WRITE), (10, 15, LOCK_READ), (30, 50, LOCK_WRITE)]);
        assert!(held.is_in_the_way_of(&range(LOCK_WRITE, (14, 16))));
        assert!(!held.is_in_the_way_of(&range(LOCK_READ, (10, 30))));
        held.note(range(LOCK_UNLOCK, (0, u64::MAX)));
        assert!(held.ranges.is_empty());
    }

    #[test]
    fn who_would_wait_for_itself_is_told_and_only_then() {
        let locks = Locks::default();
        // Processes 1 to 3 hold a file each, and have opened all of them.
        for owner in 1..=3 {
            hold(&locks, (owner, owner), 10 * owner + owner, (0, 10));
        }
        let ask = |owner: u64, file: u64| {
            let handle = 10 * owner + file;
            locks.queue(wait(handle, (file, owner), handle, (5, 6)))
        };
        assert_eq!(ask(1, 2), Ok(()));
        assert_eq!(ask(2, 3), Ok(()));
        assert_eq!(ask(3, 1), Err(Errno::EDEADLK));
        // The second one is interrupted.
        locks.take_out(&wait(23, (3, 2), 23, (5, 6)), false);
        assert_eq!(ask(3, 1), Ok(()));
        assert_eq!(ask(2, 3), Err(Errno::EDEADLK));
        // The third one gives up what the first one's way to itself leads by.
        locks.state().note((3, 3), range(LOCK_UNLOCK, (0, 10)));
        assert_eq!(ask(2, 3), Ok(()));
    }

    #[test]
    fn an_owner_that_may_be_a_description_is_not_told() {
        let locks = Locks::default();
        hold(&locks, (1, 7), 17, (0, 10));
        hold(&locks, (1, 8), 18, (10, 20));
        assert_eq!(locks.queue(wait(1, (1, 7), 17, (10, 20))), Ok(()));
        assert_eq!(locks.queue(wait(2, (1, 8), 18, (0, 10))), Ok(()));
    }

    #[test]
    fn two_of_one_file_are_told_when_both_are_processes() {
        let ask = |by| {
            let locks = Locks::default();
            hold(&locks, (1, 7), 17, (0, 10));
            hold(&locks, (1, 8), 18, (10, 20));
            let first = Wait { by, ..wait(1, (1, 7), 17, (10, 20)) };
            assert_eq!(locks.queue(first), Ok(()));
            locks.queue(Wait { by, ..wait(2, (1, 8), 18, (0, 10)) })
        };
        assert_eq!(ask(Waiter::Process), Err(Errno::EDEADLK));
        assert_eq!(ask(Waiter::Description), Ok(()));
    }

    #[test]
    fn an_interrupt_that_overtakes_its_request_ends_it() {
        let locks = Locks::default();
        let wait = wait(8, (3, 77), 1, (0, 1));
        locks.state().early.push_back(8);
        assert_eq!(locks.queue(wait), Err(Errno::EINTR));
        assert_eq!(locks.queue(wait), Ok(()));
        assert_eq!(locks.waiting().len(), 1);
        locks.take_out(&wait, false);
        assert!(locks.waiting().is_empty());
    }

    #[test]
    fn pauses_grow_to_a_bound_and_begin_anew_when_something_is_freed() {
        let locks = Locks::default();
        let wait = wait(8, (3, 77), 1, (0, 1));
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

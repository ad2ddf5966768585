//! Locks: flock, POSIX and OFD byte ranges, who waits for them, and who would wait for ever.
//!
//! A plain data structure: the shard stores what is held (so that a restarted daemon knows it) and
//! answers those whose wait ended. The rules are the kernel's (`fs/locks.c`): flock locks are a
//! world of their own; POSIX and OFD locks share one. A POSIX lock belongs to a process, the others
//! to an open file description. Locks of one owner never conflict: a new one replaces those that it
//! overlaps. Waiters are tried in their order, and one that cannot be served does not stop those
//! behind it. Only POSIX waits are searched for deadlocks: here those that lie within the shard, in
//! `locks/deadlock.rs` the others.

use std::collections::{BTreeMap, VecDeque};

use mayfly_meta::record::HeldLock;
use mayfly_types::{Errno, FileId, OpenRef, SessionId, Timestamp, limits::LOCKS_PER_FILE_MAX};
use mayfly_wire::{LOCK_FLOCK, LOCK_OFD, LOCK_POSIX, LOCK_READ, LOCK_UNLOCK, LOCK_WRITE};

use crate::{api::Caller, maps::HashMap};

/// Whose a lock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Flock(OpenRef),
    /// A process: its number, and in the upper half its node, if that is another one, and one.
    Posix(u64),
    Ofd(OpenRef),
}

impl Owner {
    fn is_flock(self) -> bool {
        matches!(self, Owner::Flock(_))
    }

    pub(super) fn wire_kind(self) -> u32 {
        match self {
            Owner::Flock(_) => LOCK_FLOCK,
            Owner::Posix(_) => LOCK_POSIX,
            Owner::Ofd(_) => LOCK_OFD,
        }
    }

    fn open(self) -> Option<OpenRef> {
        match self {
            Owner::Flock(open) | Owner::Ofd(open) => Some(open),
            Owner::Posix(_) => None,
        }
    }

    fn process(self) -> Option<u64> {
        match self {
            Owner::Posix(process) => Some(process),
            Owner::Flock(_) | Owner::Ofd(_) => None,
        }
    }
}

/// A lock: held, or wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(super) owner: Owner,
    pub(crate) write: bool,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Lock {
    fn conflicts(&self, other: &Lock) -> bool {
        self.owner != other.owner
            && self.owner.is_flock() == other.owner.is_flock()
            && (self.write || other.write)
            && self.start < other.end
            && other.start < self.end
    }

    pub(crate) fn kind(&self) -> u32 {
        if self.write { LOCK_WRITE } else { LOCK_READ }
    }
}

/// Number of a wait, of which a shard has no two, nor has it those of its predecessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WaitId(pub(crate) u64);

/// A caller that waits for a lock, and since when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patient {
    pub(crate) caller: Caller,
    pub(super) since: Timestamp,
}

/// A process that a wait was seen to be held up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) process: u64,
    /// The same only as long as the process was in the way without a break.
    pub(super) sighting: u64,
}

/// A wait of a process for a lock, as others are told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitFacts {
    pub(super) wait: WaitId,
    pub(super) since: Timestamp,
    pub(super) by: Vec<Seen>,
}

#[derive(Debug)]
struct Waiter {
    id: WaitId,
    patient: Patient,
    lock: Lock,
    /// Who was seen in its way, as far as he still is.
    seen: Vec<Seen>,
}

#[derive(Debug, Default)]
struct FileLocks {
    held: Vec<Lock>,
    waiting: VecDeque<Waiter>,
}

impl FileLocks {
    fn waiter(&self, wait: WaitId) -> Option<&Waiter> {
        self.waiting.iter().find(|waiter| waiter.id == wait)
    }

    fn waiter_mut(&mut self, wait: WaitId) -> Option<&mut Waiter> {
        self.waiting.iter_mut().find(|waiter| waiter.id == wait)
    }
}

/// What became of a wish for a lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LockResult {
    Held,
    Waiting(WaitId),
}

/// All locks of the shard's files.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    files: HashMap<FileId, FileLocks>,
    /// Where processes wait (not descriptions).
    waits: BTreeMap<(u64, WaitId), FileId>,
    /// Number of the last wait or sighting.
    last: u64,
}

impl LockTable {
    /// Waits and sightings get numbers above this one.
    pub(super) fn numbered_from(last: u64) -> LockTable {
        LockTable { last, ..LockTable::default() }
    }

    /// Takes `lock`, or queues the wish when `wait`.
    pub(crate) fn take(
        &mut self,
        file: FileId,
        lock: Lock,
        wait: Option<Patient>,
    ) -> Result<LockResult, Errno> {
        let locks = self.files.entry(file).or_default();
        if locks.held.len() + 2 > LOCKS_PER_FILE_MAX {
            return Err(Errno::ENOLCK);
        }
        if !locks.held.iter().any(|held| held.conflicts(&lock)) {
            replace(&mut locks.held, lock.owner, lock.start, lock.end, Some(lock));
            return Ok(LockResult::Held);
        }
        let Some(patient) = wait else { return Err(Errno::EAGAIN) };
        self.last += 1;
        let id = WaitId(self.last);
        if let Owner::Posix(process) = lock.owner {
            if self.would_deadlock(process, file, &lock) {
                return Err(Errno::EDEADLK);
            }
            self.waits.insert((process, id), file);
        }
        let locks = self.files.entry(file).or_default();
        locks.waiting.push_back(Waiter { id, patient, lock, seen: Vec::new() });
        Ok(LockResult::Waiting(id))
    }

    /// Follows who waits for whom, from the owners that stand in the way of `lock`, back to
    /// `process`.
    fn would_deadlock(&self, process: u64, file: FileId, lock: &Lock) -> bool {
        let mut seen = vec![];
        let mut next = self.blockers(file, lock);
        while let Some(blocker) = next.pop() {
            if blocker == process {
                return true;
            }
            if seen.contains(&blocker) {
                continue;
            }
            seen.push(blocker);
            for (wait, file) in self.waits_of(blocker) {
                let waiter = self.files.get(&file).and_then(|locks| locks.waiter(wait));
                next.extend(waiter.into_iter().flat_map(|of| self.blockers(file, &of.lock)));
            }
        }
        false
    }

    fn waits_of(&self, process: u64) -> impl Iterator<Item = (WaitId, FileId)> + use<'_> {
        let all = (process, WaitId(0))..=(process, WaitId(u64::MAX));
        self.waits.range(all).map(|((_, wait), file)| (*wait, *file))
    }

    /// The lock that a process waits for here, and the holders in its way.
    pub(super) fn look_at(&mut self, process: u64) -> Vec<WaitFacts> {
        let waits: Vec<(WaitId, FileId)> = self.waits_of(process).collect();
        let facts = waits.into_iter().filter_map(|(wait, file)| self.look_at_wait(wait, file));
        facts.collect()
    }

    /// The same of one wait, if it still lasts.
    pub(super) fn look_at_one(&mut self, process: u64, wait: WaitId) -> Option<WaitFacts> {
        let file = *self.waits.get(&(process, wait))?;
        self.look_at_wait(wait, file)
    }

    fn look_at_wait(&mut self, wait: WaitId, file: FileId) -> Option<WaitFacts> {
        let lock = self.files.get(&file)?.waiter(wait)?.lock;
        let mut blockers = self.blockers(file, &lock);
        blockers.sort_unstable();
        blockers.dedup();
        let waiter = self.files.get_mut(&file)?.waiter_mut(wait)?;
        for process in blockers {
            if waiter.seen.iter().all(|seen| seen.process != process) {
                self.last += 1;
                waiter.seen.push(Seen { process, sighting: self.last });
            }
        }
        Some(WaitFacts { wait, since: waiter.patient.since, by: waiter.seen.clone() })
    }

    /// Whether that wait still lasts and is held up as it was when that was seen.
    pub(super) fn still(&self, process: u64, wait: WaitId, seen: Seen) -> bool {
        let file = self.waits.get(&(process, wait)).and_then(|file| self.files.get(file));
        file.and_then(|locks| locks.waiter(wait)).is_some_and(|waiter| waiter.seen.contains(&seen))
    }

    /// Ends that wait; the caller to be answered with EDEADLK.
    pub(super) fn refuse(&mut self, process: u64, wait: WaitId) -> Option<Caller> {
        let file = self.waits.remove(&(process, wait))?;
        let waiting = &mut self.files.get_mut(&file)?.waiting;
        let at = waiting.iter().position(|waiter| waiter.id == wait)?;
        waiting.remove(at).map(|waiter| waiter.patient.caller)
    }

    /// The waits of processes by the request that this session made.
    pub(super) fn waits_for(&self, session: SessionId, request_id: u64) -> Vec<(u64, WaitId)> {
        let is_it = |waiter: &&Waiter| {
            let caller = waiter.patient.caller;
            caller.session == session && caller.request_id == request_id
        };
        let waiting = self.files.values().flat_map(|locks| &locks.waiting).filter(is_it);
        waiting.filter_map(|waiter| Some((waiter.lock.owner.process()?, waiter.id))).collect()
    }

    fn blockers(&self, file: FileId, lock: &Lock) -> Vec<u64> {
        let held = self.files.get(&file).map(|locks| locks.held.as_slice()).unwrap_or_default();
        let in_the_way = held.iter().filter(|held| held.conflicts(lock));
        in_the_way.filter_map(|held| held.owner.process()).collect()
    }

    /// Gives up what `owner` holds in a range; true when it held something.
    pub(crate) fn release(&mut self, file: FileId, owner: Owner, start: u64, end: u64) -> bool {
        let Some(locks) = self.files.get_mut(&file) else { return false };
        replace(&mut locks.held, owner, start, end, None)
    }

    /// Gives up a flock lock so that another kind of it can be taken: a conversion is not atomic.
    pub(super) fn release_for_conversion(&mut self, file: FileId, lock: &Lock) -> bool {
        let Some(locks) = self.files.get_mut(&file) else { return false };
        let other = |held: &Lock| held.owner == lock.owner && held.write != lock.write;
        let converts = locks.held.iter().any(other);
        converts && replace(&mut locks.held, lock.owner, 0, u64::MAX, None)
    }

    /// Gives flock's lock of `from` to `to`, if it has one; `None` while there are other locks.
    pub(super) fn hand_on(&mut self, file: FileId, from: OpenRef, to: OpenRef) -> Option<bool> {
        let Some(locks) = self.files.get_mut(&file) else { return Some(false) };
        let waits = locks.waiting.iter().any(|waiter| waiter.lock.owner.open() == Some(from));
        if waits || !locks.held.iter().all(|held| held.owner.is_flock()) {
            return None;
        }
        let own = locks.held.iter_mut().find(|held| held.owner == Owner::Flock(from));
        Some(own.map(|held| held.owner = Owner::Flock(to)).is_some())
    }

    /// Gives up everything of an open file description, waits included.
    pub(crate) fn release_open(&mut self, file: FileId, open: OpenRef) -> bool {
        let Some(locks) = self.files.get_mut(&file) else { return false };
        locks.waiting.retain(|waiter| waiter.lock.owner.open() != Some(open));
        let before = locks.held.len();
        locks.held.retain(|held| held.owner.open() != Some(open));
        before != locks.held.len()
    }

    /// Gives up every POSIX lock of processes that are over; returns the files that changed.
    pub(crate) fn release_processes(&mut self, is_over: impl Fn(u64) -> bool) -> Vec<FileId> {
        let mut changed = Vec::new();
        for (file, locks) in &mut self.files {
            let before = locks.held.len();
            locks.held.retain(|held| !held.owner.process().is_some_and(&is_over));
            if locks.held.len() < before {
                changed.push(*file);
            }
        }
        changed
    }

    /// Forgets the waits of a session; returns nothing because nobody is there to be answered.
    pub(crate) fn drop_waits(&mut self, session: SessionId) {
        let waits = &mut self.waits;
        for locks in self.files.values_mut() {
            locks.waiting.retain(|waiter| {
                let stays = waiter.patient.caller.session != session;
                if !stays && let Some(process) = waiter.lock.owner.process() {
                    waits.remove(&(process, waiter.id));
                }
                stays
            });
        }
    }

    /// Ends one wait; the caller to be answered with EINTR.
    pub(crate) fn cancel(&mut self, session: SessionId, request_id: u64) -> Option<Caller> {
        for locks in self.files.values_mut() {
            let is_it = |waiter: &Waiter| {
                let caller = waiter.patient.caller;
                caller.session == session && caller.request_id == request_id
            };
            if let Some(at) = locks.waiting.iter().position(is_it) {
                let waiter = locks.waiting.remove(at)?;
                if let Some(process) = waiter.lock.owner.process() {
                    self.waits.remove(&(process, waiter.id));
                }
                return Some(waiter.patient.caller);
            }
        }
        None
    }

    /// Serves the waiters of `file` that can be served now, first come first served.
    pub(super) fn grant_waiting(&mut self, file: FileId) -> Vec<Caller> {
        let Some(locks) = self.files.get_mut(&file) else { return Vec::new() };
        let mut granted = Vec::new();
        let mut still = VecDeque::new();
        for waiter in std::mem::take(&mut locks.waiting) {
            let lock = waiter.lock;
            if locks.held.iter().any(|held| held.conflicts(&lock)) {
                still.push_back(waiter);
            } else {
                replace(&mut locks.held, lock.owner, lock.start, lock.end, Some(lock));
                granted.push(waiter.patient.caller);
                if let Some(process) = lock.owner.process() {
                    self.waits.remove(&(process, waiter.id));
                }
            }
        }
        for waiter in &mut still {
            let lock = waiter.lock;
            waiter.seen.retain(|seen| {
                let theirs = |held: &&Lock| held.owner == Owner::Posix(seen.process);
                locks.held.iter().filter(theirs).any(|held| held.conflicts(&lock))
            });
        }
        locks.waiting = still;
        if locks.held.is_empty() && locks.waiting.is_empty() {
            self.files.remove(&file);
        }
        granted
    }

    /// The lock with the lowest start that stands in the way.
    pub(super) fn conflict(&self, file: FileId, lock: &Lock) -> Option<Lock> {
        let locks = self.files.get(&file)?;
        let in_the_way = locks.held.iter().filter(|held| held.conflicts(lock));
        in_the_way.min_by_key(|held| held.start).copied()
    }

    /// Locks held.
    pub(crate) fn count(&self) -> usize {
        self.files.values().map(|locks| locks.held.len()).sum()
    }

    /// What is held on `file`, for the store.
    pub(super) fn held(&self, file: FileId) -> Vec<HeldLock> {
        let held = self.files.get(&file).map(|locks| locks.held.as_slice()).unwrap_or_default();
        held.iter().map(to_record).collect()
    }

    /// Puts back what the store remembers; `alive` says which owners still exist.
    pub(crate) fn restore(
        &mut self,
        file: FileId,
        held: &[HeldLock],
        alive: impl Fn(Owner) -> bool,
    ) {
        let held: Vec<Lock> =
            held.iter().map(from_record).filter(|lock| alive(lock.owner)).collect();
        if !held.is_empty() {
            self.files.entry(file).or_default().held = held;
        }
    }
}

fn to_record(lock: &Lock) -> HeldLock {
    let (owner, owner_generation) = match lock.owner {
        Owner::Flock(open) | Owner::Ofd(open) => (open.index, open.generation),
        Owner::Posix(process) => (process as u32, (process >> 32) as u32),
    };
    HeldLock {
        owner_kind: lock.owner.wire_kind() as u8,
        kind: lock.kind() as u8,
        owner,
        owner_generation,
        start: lock.start,
        end: lock.end,
    }
}

fn from_record(held: &HeldLock) -> Lock {
    let open = OpenRef { index: held.owner, generation: held.owner_generation };
    let owner = match u32::from(held.owner_kind) {
        LOCK_FLOCK => Owner::Flock(open),
        LOCK_OFD => Owner::Ofd(open),
        _ => Owner::Posix(u64::from(held.owner) | u64::from(held.owner_generation) << 32),
    };
    Lock { owner, write: u32::from(held.kind) == LOCK_WRITE, start: held.start, end: held.end }
}

/// Takes `owner`'s locks out of a range, splitting those that reach beyond it, and puts `new` in;
/// then joins neighbours of one kind. True when something was taken out.
fn replace(held: &mut Vec<Lock>, owner: Owner, start: u64, end: u64, new: Option<Lock>) -> bool {
    let mut mine = Vec::new();
    let mut took = false;
    held.retain(|lock| {
        if lock.owner != owner {
            return true;
        }
        if lock.start < end && start < lock.end {
            took = true;
            if lock.start < start {
                mine.push(Lock { end: start, ..*lock });
            }
            if end < lock.end {
                mine.push(Lock { start: end, ..*lock });
            }
        } else {
            mine.push(*lock);
        }
        false
    });
    mine.extend(new);
    mine.sort_unstable_by_key(|lock| lock.start);
    for lock in mine {
        match held.last_mut() {
            Some(last)
                if last.owner == owner && last.end == lock.start && last.write == lock.write =>
            {
                last.end = lock.end;
            }
            _ => held.push(lock),
        }
    }
    took
}

/// A wish from the wire.
pub(super) fn wish(owner: Owner, kind: u32, start: u64, end: u64) -> Result<Option<Lock>, Errno> {
    if start >= end {
        return Err(Errno::EINVAL);
    }
    match kind {
        LOCK_UNLOCK => Ok(None),
        LOCK_READ | LOCK_WRITE => Ok(Some(Lock { owner, write: kind == LOCK_WRITE, start, end })),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(9);

    fn lock(process: u64, write: bool, start: u64, end: u64) -> Lock {
        Lock { owner: Owner::Posix(process), write, start, end }
    }

    fn caller(request_id: u64) -> Caller {
        Caller { session: SessionId(1), lane: 0, request_id }
    }

    fn patient(request_id: u64) -> Option<Patient> {
        Some(Patient { caller: caller(request_id), since: Timestamp::default() })
    }

    fn ranges(table: &LockTable) -> Vec<(u64, u64, bool)> {
        table.files[&FILE].held.iter().map(|lock| (lock.start, lock.end, lock.write)).collect()
    }

    #[test]
    fn unlocking_the_middle_splits_a_lock_and_locking_it_again_joins_it() {
        let mut table = LockTable::default();
        table.take(FILE, lock(1, true, 0, 100), None).unwrap();
        table.release(FILE, Owner::Posix(1), 40, 60);
        assert_eq!(ranges(&table), [(0, 40, true), (60, 100, true)]);
        table.take(FILE, lock(1, false, 40, 60), None).unwrap();
        assert_eq!(ranges(&table), [(0, 40, true), (40, 60, false), (60, 100, true)]);
        table.take(FILE, lock(1, true, 30, 70), None).unwrap();
        assert_eq!(ranges(&table), [(0, 100, true)]);
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_all_of_them() {
        let mut table = LockTable::default();
        table.take(FILE, lock(1, false, 0, 10), None).unwrap();
        table.take(FILE, lock(2, false, 0, 10), None).unwrap();
        assert_eq!(table.take(FILE, lock(3, true, 5, 6), None), Err(Errno::EAGAIN));
        let waits = table.take(FILE, lock(3, true, 5, 6), patient(7));
        assert!(matches!(waits, Ok(LockResult::Waiting(_))));
        table.release(FILE, Owner::Posix(1), 0, u64::MAX);
        assert!(table.grant_waiting(FILE).is_empty());
        table.release(FILE, Owner::Posix(2), 0, u64::MAX);
        assert_eq!(table.grant_waiting(FILE), [caller(7)]);
    }

    #[test]
    fn a_circle_of_waiting_processes_is_refused() {
        let mut table = LockTable::default();
        for process in 1..=3_u64 {
            table.take(FILE, lock(process, true, process, process + 1), None).unwrap();
        }
        for process in 1..=2_u64 {
            let wish = lock(process, true, process + 1, process + 2);
            let waits = table.take(FILE, wish, patient(process));
            assert!(matches!(waits, Ok(LockResult::Waiting(_))));
        }
        assert_eq!(table.take(FILE, lock(3, true, 1, 2), patient(3)), Err(Errno::EDEADLK));
    }

    #[test]
    fn who_went_out_of_the_way_and_came_back_was_not_there_all_the_time() {
        let mut table = LockTable::default();
        table.take(FILE, lock(1, true, 0, 10), None).unwrap();
        table.take(FILE, lock(2, true, 10, 20), None).unwrap();
        let waits = table.take(FILE, lock(3, true, 0, 20), patient(7));
        let Ok(LockResult::Waiting(wait)) = waits else { panic!("{waits:?}") };
        let by = table.look_at(3).remove(0).by;
        assert_eq!(by.iter().map(|seen| seen.process).collect::<Vec<_>>(), [1, 2]);
        assert!(by.iter().all(|seen| table.still(3, wait, *seen)));
        table.release(FILE, Owner::Posix(1), 0, 10);
        assert!(table.grant_waiting(FILE).is_empty());
        table.take(FILE, lock(1, true, 0, 10), None).unwrap();
        let again = table.look_at_one(3, wait).unwrap().by;
        let still: Vec<bool> = by.iter().map(|seen| table.still(3, wait, *seen)).collect();
        assert_eq!(still, [false, true]);
        assert!(again.iter().all(|seen| table.still(3, wait, *seen)));
        assert_eq!(table.refuse(3, wait), Some(caller(7)));
        assert!(table.look_at(3).is_empty() && table.refuse(3, wait).is_none());
    }

    #[test]
    fn flock_and_byte_ranges_do_not_see_each_other() {
        let mut table = LockTable::default();
        let open = OpenRef { index: 1, generation: 1 };
        let whole = Lock { owner: Owner::Flock(open), write: true, start: 0, end: u64::MAX };
        table.take(FILE, whole, None).unwrap();
        assert_eq!(table.take(FILE, lock(1, true, 0, 10), None), Ok(LockResult::Held));
        let ofd = Lock { owner: Owner::Ofd(open), ..whole };
        assert_eq!(table.take(FILE, ofd, None), Err(Errno::EAGAIN));
    }

    #[test]
    fn a_cancelled_wait_is_not_granted_later() {
        let mut table = LockTable::default();
        table.take(FILE, lock(1, true, 0, 10), None).unwrap();
        table.take(FILE, lock(2, true, 0, 10), patient(7)).unwrap();
        assert_eq!(table.cancel(SessionId(1), 7), Some(caller(7)));
        table.release(FILE, Owner::Posix(1), 0, u64::MAX);
        assert!(table.grant_waiting(FILE).is_empty());
        assert_eq!(table.count(), 0);
    }

    #[test]
    fn locks_come_back_from_the_store_when_their_owner_lives() {
        let mut table = LockTable::default();
        table.take(FILE, lock(1, true, 0, 10), None).unwrap();
        table.take(FILE, lock(2, true, 10, 20), None).unwrap();
        let mut after = LockTable::default();
        after.restore(FILE, &table.held(FILE), |owner| owner == Owner::Posix(2));
        assert_eq!(ranges(&after), [(10, 20, true)]);
    }
}

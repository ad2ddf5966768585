//! Lock requests, and what is kept of locks so that they outlive the daemon.
//!
//! What is held stands in a record of the file; waits do not: their requests are still unanswered
//! when the daemon comes back, and are made again.

use mayfly_meta::{key, record::encode_locks};
use mayfly_transport_shm::layout::FILE_LOCKED;
use mayfly_types::{Errno, FileId, OpenRef, SessionId};
use mayfly_wire::{
    Conflict, LOCK_FLOCK, LOCK_OFD, LOCK_POSIX, LOCK_READ, LOCK_UNLOCK, LOCK_WRITE, Lock,
    LockRange, MoveLock, TestLock, Wire, Writer,
};

use crate::{
    api::Caller,
    fault::{Outcome, Served},
    files::descriptions::Open,
    locks::table::{Lock as Wish, LockResult, Owner, Patient, wish},
    message::Message,
    shard::Shard,
};

const O_PATH: u32 = 0o10_000_000;

impl Shard {
    fn owner(&self, caller: Caller, open: OpenRef, range: &LockRange) -> Outcome<Owner> {
        match range.owner {
            LOCK_FLOCK => Ok(Owner::Flock(open)),
            LOCK_OFD => Ok(Owner::Ofd(open)),
            LOCK_POSIX => {
                let process = self.sessions.get(&caller.session).ok_or(Errno::ESRCH)?;
                Ok(Owner::Posix(*process))
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn lock_target(&self, open: OpenRef) -> Outcome<Open> {
        if !self.config.locks {
            return Err(Errno::ENOLCK.into());
        }
        let open = self.files.opens.get(open)?;
        if open.flags & O_PATH != 0 {
            return Err(Errno::EBADF.into());
        }
        Ok(open)
    }

    pub(crate) fn lock(&mut self, caller: Caller, lock: &Lock) -> Outcome<Served> {
        let open = self.lock_target(lock.open)?;
        let range = &lock.range;
        let owner = self.owner(caller, lock.open, range)?;
        if range.owner != LOCK_FLOCK {
            let allowed = match range.kind {
                LOCK_READ => open.may_read(),
                LOCK_WRITE => open.may_write(),
                _ => true,
            };
            if !allowed {
                return Err(Errno::EBADF.into());
            }
        }
        let (start, end) =
            if range.owner == LOCK_FLOCK { (0, u64::MAX) } else { (range.start, range.end) };
        let Some(wish) = wish(owner, range.kind, start, end)? else {
            if self.locks.table.release(open.id, owner, start, end) {
                self.locks_changed(open.id)?;
            }
            return Ok(Served::Replied);
        };
        self.take_lock(caller, open.id, wish, lock.wait)
    }

    fn take_lock(
        &mut self,
        caller: Caller,
        file: FileId,
        wish: Wish,
        wait: bool,
    ) -> Outcome<Served> {
        if matches!(wish.owner, Owner::Flock(_))
            && self.locks.table.release_for_conversion(file, &wish)
        {
            self.locks_changed(file)?;
        }
        let patient = wait.then_some(Patient { caller, since: self.now });
        match self.locks.table.take(file, wish, patient)? {
            LockResult::Waiting(wait) => {
                if let Owner::Posix(process) = wish.owner {
                    self.search_deadlock(process, wait);
                }
                Ok(Served::Pending)
            }
            LockResult::Held => {
                // A write lock that became a read lock lets others in.
                self.locks_changed(file)?;
                Ok(Served::Replied)
            }
        }
    }

    /// A description becomes another one, which has its lock from now on. Those of fcntl are of
    /// processes, or of numbers of the kernel's that nobody knows here.
    pub(crate) fn move_lock(&mut self, asked: &MoveLock) -> Outcome<Served> {
        let (from, to) = (self.files.opens.get(asked.open)?, self.files.opens.get(asked.to)?);
        if from.id != to.id {
            return Err(Errno::EINVAL.into());
        }
        if self.locks.table.hand_on(from.id, asked.open, asked.to).ok_or(Errno::EBUSY)? {
            self.save_locks(from.id)?;
        }
        Ok(Served::Replied)
    }

    /// Serves who can be served now and keeps what is held.
    pub(crate) fn locks_changed(&mut self, file: FileId) -> Outcome<()> {
        for caller in self.locks.table.grant_waiting(file) {
            self.answer_after_commit(caller, 0, Vec::new());
        }
        self.save_locks(file)
    }

    pub(crate) fn save_locks(&mut self, file: FileId) -> Outcome<()> {
        let held = self.locks.table.held(file);
        let key = key::numbered(key::LOCKS, file);
        if held.is_empty() {
            self.store.delete(&key)?;
        } else {
            self.files.opens.set_flag(file, FILE_LOCKED);
            self.store.put(&key, &encode_locks(&held))?;
        }
        Ok(())
    }

    pub(crate) fn test_lock(
        &mut self,
        caller: Caller,
        test: &TestLock,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let open = self.lock_target(test.open)?;
        let range = &test.range;
        let owner = self.owner(caller, test.open, range)?;
        let wish = wish(owner, range.kind, range.start, range.end)?.ok_or(Errno::EINVAL)?;
        let conflict = match self.locks.table.conflict(open.id, &wish) {
            None => Conflict { range: LockRange { kind: LOCK_UNLOCK, ..*range }, pid: 0 },
            Some(held) => Conflict {
                range: LockRange {
                    owner: held.owner.wire_kind(),
                    kind: held.kind(),
                    start: held.start,
                    end: held.end,
                },
                pid: match held.owner {
                    Owner::Posix(process) => process as u32 as i32,
                    Owner::Flock(_) | Owner::Ofd(_) => -1,
                },
            },
        };
        conflict.encode(to)?;
        Ok(Served::Replied)
    }

    pub(crate) fn cancel(&mut self, caller: Caller, request_id: u64) -> Outcome<Served> {
        self.cancel_here(caller.session, request_id);
        for shard in self.place.numbering.here().filter(|shard| *shard != self.place.shard) {
            self.tasks.send(shard, Message::Cancel(caller.session, request_id));
        }
        Ok(Served::Replied)
    }

    /// The request of this session that waits for a lock here, if any, is answered.
    pub(crate) fn cancel_here(&mut self, session: SessionId, request_id: u64) {
        if let Some(waiting) = self.locks.table.cancel(session, request_id) {
            self.answer_after_commit(waiting, Errno::EINTR.raw() as u32, Vec::new());
        }
    }
}

//! The life of sessions and of open file descriptions.
//!
//! A private description belongs to its session and ends with a `Close` or with the session. A
//! shared one belongs to the kernel: it ends when the kernel's last reference is gone, whatever
//! becomes of the process that opened it. With its last description an orphan ends, and with its
//! last writer the size of a file is settled.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_types::{OpenRef, SessionId};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    locks::table::Owner,
    log,
    remote::state::requests::process_of,
    shard::Shard,
};

/// A store need not have room for more than so many at once.
const STEPS_PER_COMMIT: u32 = 128;

impl Shard {
    /// A process has attached. A session of the same process that is still there (before an exec)
    /// keeps its POSIX locks: they belong to the process.
    pub fn session_opened(&mut self, session: SessionId, pid: u32) {
        self.sessions.insert(session, process_of(session, pid));
    }

    /// A session's process image is gone: its private descriptions and its locks go, and nobody
    /// waits for its requests any more. Changes records: a commit must follow.
    pub fn session_closed(&mut self, session: SessionId) {
        self.execute_submitted();
        self.end_delegation(session);
        self.end_leases(session);
        self.look_at_clocks();
        self.locks.table.drop_waits(session);
        self.mount_ended(session);
        self.tier_session_ended(session);
        self.locks.deadlocks.session_closed(session);
        self.batch.ready.retain(|done| done.caller.session != session);
        self.batch.uncommitted.retain(|done| done.caller.session != session);
        self.forget_unclaimed(|made| made.session == session);
        for open in self.files.opens.of_session(session) {
            if !self.files.opens.is_shared(open.index) {
                self.end_open(open);
                // A store that fails has said so.
                drop(self.commit_now_and_then());
            }
        }
        self.forget_appends_in_doubt(session);
        self.end_in_doubt_of_sessions(|other| other == session);
        self.forget_finished(session);
        self.forget_answers(session);
        let known = self.sessions.remove(&session);
        self.forget_pending_creates_of(session);
        let Some(process) = known else { return };
        if self.sessions.values().any(|other| *other == process) {
            return;
        }
        self.release_locks(|other| other == process);
    }

    /// Processes are over. Changes records.
    pub(crate) fn release_locks(&mut self, is_over: impl Fn(u64) -> bool) {
        for file in self.locks.table.release_processes(is_over) {
            // A store that fails has said so.
            drop(self.locks_changed(file));
        }
    }

    /// Ends the batch when it has become long. Only between steps that are whole by themselves.
    pub(crate) fn commit_now_and_then(&mut self) -> Outcome<()> {
        self.batch.steps += 1;
        if self.batch.steps.is_multiple_of(STEPS_PER_COMMIT)
            && self.store.pending_transaction() != 0
        {
            self.commit().map_err(Fault::Errno)?;
        }
        Ok(())
    }

    /// The kernel holds no reference to the shared description `index` any more. Changes records: a
    /// commit must follow.
    pub fn open_released(&mut self, index: u32) {
        self.execute_submitted();
        self.look_at_clocks();
        if let Some((open, _)) = self.files.opens.at(index)
            && self.files.opens.is_shared(index)
        {
            self.end_open(open);
        }
    }

    pub(super) fn close(&mut self, caller: Caller, open: OpenRef) -> Outcome<Served> {
        // A close that is repeated after a restart finds the description gone: that is what it
        // wanted.
        let Ok(found) = self.files.opens.get(open) else { return Ok(Served::Replied) };
        if let Some(remote) = found.remote {
            return self.close_elsewhere(caller, open, remote);
        }
        if let Some(process) = self.sessions.get(&caller.session).copied()
            && self.locks.table.release(found.id, Owner::Posix(process), 0, u64::MAX)
        {
            self.locks_changed(found.id)?;
        }
        if !self.files.opens.is_shared(open.index) {
            self.end_open(open);
        }
        Ok(Served::Replied)
    }

    /// Frees a description with everything that ends with it.
    pub(crate) fn end_open(&mut self, open: OpenRef) {
        // An object that cannot be asked leaves the size unsettled, which is a correct state.
        let file = self.files.opens.get(open).map(|found| found.id).unwrap_or_default();
        if let Err(Fault::Errno(errno)) = self.try_end_open(open) {
            log::error(format_args!("file {:016x}", file.0), format_args!("closing it: {errno}"));
        }
    }

    fn try_end_open(&mut self, open: OpenRef) -> Outcome<()> {
        let Some((found, last)) = self.files.opens.remove(open) else { return Ok(()) };
        if found.may_write() {
            self.flush_closed(found.id);
        }
        if found.may_write() && self.node.head.watched.load(Relaxed) != 0 {
            self.files.written.push(found.id);
        }
        if let Some(remote) = found.remote {
            self.end_remote(open, remote);
            self.forget_place(found.id);
            return Ok(());
        }
        if self.locks.table.release_open(found.id, open) {
            self.locks_changed(found.id)?;
        }
        if let Some(file) = &last {
            self.files.charged_bytes -= file.charged_bytes;
            if file.unlinked {
                return self.end_orphan(found.id);
            }
        }
        let file = last.as_ref().or_else(|| self.files.opens.file(found.id));
        let Some(file) = file.filter(|file| file.object && file.writers == 0) else {
            return Ok(());
        };
        if found.may_write() && !self.files.background.is_in_flight(found.id) {
            let birth = file.birth.clone();
            let mut located = self.load_birth(found.id, &birth)?;
            self.settle_soon(&mut located)?;
        }
        Ok(())
    }
}

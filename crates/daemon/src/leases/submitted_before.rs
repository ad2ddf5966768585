//! What was submitted before the daemon was restarted.
//!
//! The rings are in the node region, which the supervisor kept. The transaction that an earlier
//! daemon noted tells which operations it had executed. The rest is executed now, with the
//! descriptions that were promised for it. Processes may use these already.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use mayfly_transport_shm::submission_ring::{RECORDS, RINGS, name_table::Spare};
use mayfly_types::{FileId, FileKind, OpenRef, SessionId};

use crate::{
    fault::Outcome,
    leases::state::submissions::{Ring, place_of},
    shard::{OpenError, Shard},
    shards::slots::TRANSACTION_SHARD_SHIFT,
};

impl Shard {
    /// Judges what an earlier daemon had executed: before anything is committed, since a new
    /// transaction may have the number of one that was lost. The descriptions that are promised for
    /// the rest: they may have been made, in a transaction that is not.
    pub(crate) fn judge_submitted(&mut self) -> Vec<OpenRef> {
        let mut awaited = Vec::new();
        if !self.has_rings() {
            return awaited;
        }
        let committed = self.store.committed_transaction();
        for submissions in self
            .node
            .submission_rings
            .iter()
            .filter(|submissions| submissions.session.load(Relaxed) != 0)
        {
            let transaction = submissions.transaction.load(Acquire);
            let number = transaction & ((1 << TRANSACTION_SHARD_SHIFT) - 1);
            if transaction != 0 && number <= committed {
                submissions.executed.store(submissions.stored.load(Relaxed), Relaxed);
            }
            submissions.transaction.store(0, Release);
            submissions.stored.store(submissions.executed.load(Relaxed), Relaxed);
            let first = submissions.executed.load(Relaxed);
            let waiting = submissions.waiting().min(RECORDS as u32);
            let records = (0..waiting).map(|record| place_of(first.wrapping_add(record)));
            awaited.extend(records.map(|at| submissions.records[at].promise()));
        }
        awaited
    }

    /// Executes what waits in the rings. Nothing is delegated any more.
    pub(crate) fn take_up_submitted(&mut self) -> Result<(), OpenError> {
        self.end_settling();
        let noted = self.noted_promises()?;
        let mut taken_up = Vec::new();
        for ring in 0..RINGS {
            let session = SessionId(self.submissions(ring).session.load(Relaxed));
            if session != SessionId(0) && self.has_rings() {
                taken_up.extend(self.take_up_ring(ring, session, noted.get(&ring))?);
            }
        }
        self.end_noted(noted, &taken_up)?;
        self.files.opens.break_reserved();
        if self.has_rings() {
            let node = self.node;
            self.leases.delegations.spare = Spare::all(&node.name_tables);
        }
        Ok(())
    }

    /// The last daemon may have died before it said again what it had taken back.
    fn end_settling(&self) {
        let head = &self.node.head;
        let settling = head.rings.settling.load(SeqCst);
        head.submitted.fetch_or(settling, SeqCst);
        head.rings.replacing.fetch_or(settling, SeqCst);
        head.rings.settling.fetch_and(!settling, SeqCst);
    }

    /// The files that were promised for what waits in the ring.
    fn take_up_ring(
        &mut self,
        at: usize,
        session: SessionId,
        noted: Option<&Vec<FileId>>,
    ) -> Outcome<Vec<FileId>> {
        let submissions = self.submissions(at);
        submissions.take_back();
        let first = submissions.executed.load(Relaxed);
        let published = submissions.published.load(Acquire) as u32;
        let waiting = published.wrapping_sub(first);
        let whole = waiting as usize <= RECORDS;
        let waiting = if whole { waiting } else { 0 };
        let (promises, ids) = self.promises_before((at, session), waiting, noted);
        let places = (0..waiting).map(|record| place_of(first.wrapping_add(record)));
        let taken_up = places.map(|at| ids[at]).collect();
        let mut ring = Ring::new(session, if whole { first } else { published }, promises, ids);
        ring.directory = self.directory_before(FileId(submissions.directory.load(Relaxed)));
        self.note_promised(at, &ring)?;
        self.leases.delegations.rings[at] = Some(ring);
        self.execute_ring(at);
        // Also where nothing was executed.
        self.leases.delegations.touched |= 1 << at;
        if !self.is_known(session) {
            self.end_delegation(session);
            for open in self.files.opens.of_session(session) {
                if !self.files.opens.is_shared(open.index) {
                    self.end_open(open);
                }
            }
        }
        Ok(taken_up)
    }

    fn directory_before(&mut self, id: FileId) -> Option<FileId> {
        let located = self.load_own(id).ok()?;
        (located.inode.kind() == FileKind::Directory).then_some(id)
    }

    /// The promises by place: the descriptions of the records that wait stand in the region, and
    /// their files in the note. The others are made anew, since nobody has them.
    fn promises_before(
        &mut self,
        (ring, session): (usize, SessionId),
        waiting: u32,
        noted: Option<&Vec<FileId>>,
    ) -> (Vec<Option<OpenRef>>, Vec<FileId>) {
        let submissions = self.submissions(ring);
        let first = submissions.executed.load(Relaxed);
        let (mut promises, mut ids) = (vec![None; RECORDS], vec![FileId::NONE; RECORDS]);
        for record in 0..RECORDS as u32 {
            let at = place_of(first.wrapping_add(record));
            let said = submissions.records[at].promise();
            let kept = record < waiting && self.files.opens.take_reserved(said, session);
            let id = noted.and_then(|noted| noted.get(at)).filter(|_| record < waiting);
            ids[at] = match id {
                Some(id) if self.is_promise(*id) => *id,
                _ => self.promised_id(),
            };
            promises[at] =
                if kept { Some(said) } else { self.files.opens.promise(session, ids[at]) };
            if let Some(promise) = promises[at] {
                submissions.records[at].set_promise(promise);
            }
        }
        (promises, ids)
    }

    /// Whether an earlier daemon may have promised this file.
    fn is_promise(&mut self, id: FileId) -> bool {
        id != FileId::NONE
            && self.is_home(id)
            && number_of(id) < self.counters.next_file
            && !self.is_taken(id)
    }

    /// Whether there is such a file already, so that it cannot have been promised.
    fn is_taken(&mut self, id: FileId) -> bool {
        self.load_own(id).is_ok() || self.files.opens.file(id).is_some()
    }
}

fn number_of(id: FileId) -> u64 {
    id.0 & ((1 << FileId::NUMBER_BITS) - 1)
}

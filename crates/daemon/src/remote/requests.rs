//! Requests of processes of other nodes, and descriptions of files that are at home on other nodes.
//!
//! A process has all its descriptions in its own node's table. One whose file is at home elsewhere
//! only stands for a description there, which belongs to the node and is given back when this one
//! ends. Requests about it go there with the other number in them.
//!
//! A node that asks for something may be restarted, and so may the one that is asked; either way
//! the same request may come again. What it changed must not be changed twice, so the answer to the
//! last such request of each lane is kept with the change itself.
//!
//! A write at an offset, too, is done once: when it comes again after its node's restart, somebody
//! may have cut the file or written the same bytes since. Its answer is kept in memory, which costs
//! no commit. It goes to the store with the batch that is open, if one is, as whenever the bytes go
//! to the record; and when its node cannot be reached, so that it is there when this daemon, too,
//! dies before the request comes again. Both must die at once for bytes to be written twice.

#[cfg(test)]
mod alone;
mod answers;

use mayfly_meta::key;
use mayfly_transport_shm::layout::{FILE_BY_REQUEST, FILE_LOCKED, FILE_MAPPED};
use mayfly_types::{Errno, OpenRef, SessionId, limits::LANES};
use mayfly_wire::{
    GRANT_PART, Granted, MoveLock, Op, Opened, OwnPart, Reader, Request, Wire, Writer,
};

use crate::{
    api::{Caller, Reached},
    fault::{Fault, Outcome, Served, store_failed},
    files::{descriptions::Elsewhere, state::data::check_grant},
    locks::table::Owner,
    maps::HashSet,
    message::{Answer, Question},
    namespace::{open::ONCE, state::open::effective},
    remote::state::requests::node_of_process,
    shard::{Shard, state::task::Purpose},
    shards::{
        numbering::{node_of_owner, origin, session_elsewhere, session_of_node},
        slots::ShardId,
    },
};

impl Shard {
    /// Sessions of other nodes are there until their node says otherwise.
    pub(crate) fn is_known(&self, session: SessionId) -> bool {
        origin(session).is_some()
            || node_of_owner(session).is_some()
            || self.sessions.contains_key(&session)
    }

    /// A node can be reached no more, or again. What its processes have written is done once, even
    /// if this daemon is restarted before they ask again.
    pub fn node_reached(&mut self, node: u32, reached: Reached) {
        if reached != Reached::No {
            if self.remote.unreached.remove(&node) {
                self.anything_may_have_changed(self.place.numbering.front_of(node));
            }
            self.ask_what_was_missed(node, reached);
            return;
        }
        if !self.remote.unreached.insert(node) {
            return;
        }
        for (caller, status, body) in self.remote.written_from(node) {
            self.store_answer(caller, status, &body);
        }
    }

    /// Nobody repeats a request of this session any more.
    pub(crate) fn forget_answers(&mut self, session: SessionId) {
        if origin(session).is_none() {
            return;
        }
        self.end_spared(|made| made.session == session);
        self.remote.unheard.retain(|caller| caller.session != session);
        self.remote.given_up.retain(|caller| caller.session != session);
        self.end_unanswered(session);
        for lane in 0..LANES as u32 {
            self.forget_written(session, lane);
            let key = key::answer(session.0, lane);
            let deleted = match self.store.get(&key) {
                Ok(Some(_)) => self.store.delete(&key).map(drop),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = deleted {
                store_failed(&error);
            }
        }
    }

    /// What is being executed for this session nobody will hear of: what it has opened by now goes.
    fn end_unanswered(&mut self, session: SessionId) {
        let of_it = |caller: &Caller| caller.session == session;
        let unheard: HashSet<Caller> = self.remote.noted.extract_if(of_it).collect();
        let node = origin(session).map(|(node, _)| session_of_node(node));
        let Some(node) = node.filter(|_| !unheard.is_empty()) else { return };
        for open in self.files.opens.of_session(node) {
            if unheard.contains(&self.files.opens.made_by(open.index)) {
                self.end_open(open);
            }
        }
    }

    /// Of the sessions of a node, with their processes, only these are there any more: answers that
    /// are kept for others go, and locks. A daemon that was restarted knows those by nothing else.
    pub fn end_strangers(&mut self, node: u32, living: &[(SessionId, u32)]) {
        let prefix = [key::ANSWER];
        let is_over = |session: &SessionId| {
            let theirs = origin(*session).filter(|origin| origin.0 == node);
            let lives = |number| living.iter().any(|(session, _)| *session == number);
            theirs.is_some_and(|(_, number)| !lives(number))
        };
        let written = self.remote.written.keys().map(|(session, _)| *session);
        let mut over: Vec<SessionId> = written.filter(is_over).collect();
        let kept = self.store.scan(&prefix, &prefix, &mut |key, _| {
            let session = key::split_answer(key).map(|(session, _)| SessionId(session));
            over.extend(session.filter(is_over));
            mayfly_meta::Scan::More
        });
        if let Err(error) = kept {
            store_failed(&error);
        }
        self.end_in_doubt_of_sessions(|session| is_over(&session));
        over.extend(
            self.transactions.completed.keys().map(|(session, _)| *session).filter(is_over),
        );
        over.extend(self.tier.journal.begun.keys().map(|(session, _)| *session).filter(is_over));
        over.sort_unstable_by_key(|session| session.0);
        over.dedup();
        for session in over {
            self.forget_finished(session);
            self.tier_session_ended(session);
            self.forget_answers(session);
        }
        self.end_locks_of_strangers(node, living);
    }

    /// Gives up the locks of processes of a node that have ended. They may have ended while this
    /// daemon was not there, and theirs has been restarted since.
    fn end_locks_of_strangers(&mut self, node: u32, living: &[(SessionId, u32)]) {
        let lives = |process: u64| living.iter().any(|(_, pid)| *pid == process as u32);
        self.release_locks(|process| node_of_process(process) == Some(node) && !lives(process));
    }

    fn remote(&self, request: &Request<'_>) -> Option<(Elsewhere, mayfly_types::FileId)> {
        let found = self.files.opens.get(request.open()?).ok()?;
        found.remote.map(|remote| (remote, found.id))
    }

    /// Sends a request away whose description only stands for one at another node; true when it
    /// could be answered here.
    pub(crate) fn opens_elsewhere(
        &mut self,
        request: &Request<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<bool> {
        let Some((remote, file)) = self.remote(request) else { return Ok(false) };
        if self.is_session() && self.serve_in_session(request, (file, remote), to)? {
            return Ok(true);
        }
        match request {
            Request::Close(_) => return Ok(false),
            // What is dirty goes back from there.
            Request::Flush(_) if !self.goes_back_at_close() => return Ok(false),
            Request::Grant(grant) if grant.want & GRANT_PART != 0 => {
                check_grant(&self.files.opens.get(grant.open)?, grant)?;
                return match self.grant_elsewhere(file, to)? {
                    Some((shard, place)) => Err(self.to_part(shard, place)),
                    None => Ok(true),
                };
            }
            // There is no object here.
            Request::Grant(_) => {
                Granted { object_path: b"", generation: 0, own: OwnPart::WHOLE }.encode(to)?;
                return Ok(true);
            }
            Request::Read(_) | Request::Write(_) => {
                if let Some((shard, place)) = self.known_place(file, request) {
                    return Err(self.to_part(shard, place));
                }
            }
            Request::Lock(_) => self.files.opens.set_flag(file, FILE_LOCKED),
            _ => {}
        }
        Err(Fault::Elsewhere(remote.shard, Box::default()))
    }

    /// The request as the shard understands it that it is sent to.
    pub(crate) fn as_there<'r>(&self, request: &Request<'r>, fault: &Fault) -> Request<'r> {
        match (fault, self.remote(request)) {
            (Fault::Elsewhere(shard, _), Some((remote, _))) if *shard == remote.shard => {
                match request.with_open(remote.open) {
                    // The other one, too; one that is not there is nobody's.
                    Request::MoveLock(MoveLock { open, to }) => {
                        let to = self.files.opens.get(to).ok().and_then(|to| to.remote);
                        let to = to.map_or_else(OpenRef::default, |to| to.open);
                        Request::MoveLock(MoveLock { open, to })
                    }
                    there => there,
                }
            }
            _ => *request,
        }
    }

    /// A process closed a descriptor of a file that is elsewhere.
    pub(crate) fn close_elsewhere(
        &mut self,
        caller: Caller,
        open: OpenRef,
        remote: Elsewhere,
    ) -> Outcome<Served> {
        let found = self.files.opens.get(open)?;
        let entry = self.files.opens.entry(found.id);
        let locked = entry.is_some_and(|entry| {
            entry.flags.load(std::sync::atomic::Ordering::Relaxed) & FILE_LOCKED != 0
        });
        let last = !self.files.opens.is_shared(open.index);
        if locked {
            // Its locks are gone when close returns.
            let closed_by = Some(caller.session);
            let question = Question::Drop { open: remote.open, closed_by, last };
            if let Answer::Failed(errno) = self.fact(remote.shard, question)? {
                return Err(errno.into());
            }
        }
        let failed = self.failure_of_close(open);
        if last && locked {
            self.remote.ahead.end(open);
            self.files.opens.remove(open);
            self.forget_place(found.id);
        } else if last {
            self.end_open(open);
        }
        failed.map_or(Ok(Served::Replied), |errno| Err(errno.into()))
    }

    /// Gives a description back that a node had here.
    pub(crate) fn drop_for(
        &mut self,
        node: u32,
        open: OpenRef,
        closed_by: Option<SessionId>,
        last: bool,
    ) -> Outcome<()> {
        let Ok(found) = self.files.opens.get(open) else { return Ok(()) };
        if node_of_owner(found.session) != Some(node) {
            return Err(Errno::EBADF.into());
        }
        let process =
            closed_by.and_then(|session| self.sessions.get(&session_elsewhere(node, session)));
        if let Some(process) = process.copied()
            && self.locks.table.release(found.id, Owner::Posix(process), 0, u64::MAX)
        {
            self.locks_changed(found.id)?;
        }
        if last {
            self.end_open(open);
        }
        Ok(())
    }

    /// Tells another node that a description there is of no more use.
    pub(crate) fn drop_elsewhere(&mut self, remote: Option<Elsewhere>) {
        if let Some(Elsewhere { shard, open }) = remote {
            let question = Question::Drop { open, closed_by: None, last: true };
            self.ask(shard, question, Purpose::Nothing);
        }
    }

    /// A description was made at another node: makes the one that stands for it. The status and the
    /// body of the answer that the process gets.
    pub fn adopt_open(
        &mut self,
        caller: Caller,
        shard: ShardId,
        request: &[u8],
        answer: &[u8],
    ) -> (u32, Vec<u8>) {
        let Ok(mut opened) = Opened::decode(&mut Reader::new(answer)) else {
            return (Errno::EIO.raw() as u32, Vec::new());
        };
        // The node may have passed it on to another one of its shards.
        let first = self.place.numbering.front_of(self.place.numbering.node_of(shard)).0;
        let shard = ShardId(first + opened.open.index % self.place.numbering.shards);
        let remote = Elsewhere { shard, open: opened.open };
        match self.stand_for(caller, remote, request, &opened) {
            Ok(open) => {
                opened.open = open;
                let mut body = vec![0; answer.len()];
                let mut to = Writer::new(&mut body);
                match opened.encode(&mut to) {
                    Ok(()) => (0, body),
                    Err(_) => (Errno::EIO.raw() as u32, Vec::new()),
                }
            }
            Err(errno) => {
                self.drop_elsewhere(Some(remote));
                (errno.raw() as u32, Vec::new())
            }
        }
    }

    fn stand_for(
        &mut self,
        caller: Caller,
        remote: Elsewhere,
        request: &[u8],
        opened: &Opened,
    ) -> Result<OpenRef, Errno> {
        let Ok(Request::Open(open)) = Request::decode(Op::Open, request) else {
            return Err(Errno::EIO);
        };
        if !self.sessions.contains_key(&caller.session) {
            return Err(Errno::EIO);
        }
        // Made before this daemon was started.
        if let Some(index) = self.files.unclaimed_opens.remove(&caller)
            && let Some((reference, found)) = self.files.opens.at(index)
            && found.remote == Some(remote)
        {
            return Ok(reference);
        }
        let flags = effective(open.flags).map_err(|fault| fault.errno())? & !ONCE;
        let of = (opened.attr.id, opened.attr.kind);
        let birth = mayfly_meta::record::BirthKey::default();
        let made = self.files.opens.insert(caller, of, birth, flags, Some(remote))?;
        self.files.opens.set_flag(of.0, FILE_BY_REQUEST);
        if opened.mapped || self.leases.mounts.was_mapped(of.0) {
            self.files.opens.set_flag(of.0, FILE_MAPPED);
        }
        Ok(made)
    }
}

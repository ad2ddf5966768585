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
use mayfly_transport_tcp::Body;
use mayfly_types::{Errno, OpenRef, SessionId, limits::LANES};
use mayfly_wire::{
    GRANT_PART, Granted, MoveLock, Op, Opened, OwnPart, Reader, Request, Wire, Writer,
};

use crate::{
    api::{Caller, Completion, Reached},
    files::{data::check_grant, descriptions::Elsewhere},
    locks::table::Owner,
    maps::{HashMap, HashSet},
    message::{Answer, OperationId, Question},
    namespace::open::{ONCE, effective},
    numbering::{node_of_owner, origin, session_elsewhere, session_of_node},
    shard::{Fault, Outcome, Served, Shard, store_failed, task::Purpose},
    slots::ShardId,
};

/// What a shard knows of requests of other nodes that it is at.
#[derive(Debug, Default)]
pub(crate) struct Remote {
    /// The answer will be kept.
    noted: HashSet<Caller>,
    /// Those of them that nobody waits for.
    pub(crate) given_up: HashSet<Caller>,
    /// The last write at an offset of each lane.
    written: HashMap<(SessionId, u32), Written>,
    /// Nodes that cannot be reached, so that answers may not arrive.
    unreached: HashSet<u32>,
    /// Descriptions that a node does not stand for, by the requests that made them, whose answers
    /// may come again there.
    pub(crate) spared: HashMap<Caller, OpenRef>,
    /// Requests that made descriptions of which their nodes are asked whether they stand for them.
    pub(super) asked_about: HashSet<Caller>,
    /// Requests that are being executed for daemons that are gone.
    pub(super) unheard: HashSet<Caller>,
    /// Operations that were over before it was known that this shard has a part in them.
    pub(crate) over: HashSet<OperationId>,
}

/// A write at an offset.
#[derive(Debug)]
struct Written {
    request_id: u64,
    /// Nothing, while it is under way or when another shard does it.
    answer: Option<(u32, Body)>,
    /// Where the node's memory has it (`files/in_doubt.rs`), once it was done.
    place: Option<usize>,
}

impl Remote {
    /// The write is done that this place is about: it is kept as long as the answer. False when
    /// that is not kept in memory.
    pub(crate) fn keep_place(&mut self, caller: Caller, place: usize) -> bool {
        let written = self.written.get_mut(&(caller.session, caller.lane));
        let written = written.filter(|written| written.request_id == caller.request_id);
        written.map(|written| written.place = Some(place)).is_some()
    }

    /// What an earlier daemon has answered to a write; false when that is nobody's here.
    pub(crate) fn take_up_written(
        &mut self,
        caller: Caller,
        answer: (u32, Body),
        place: usize,
    ) -> bool {
        let Caller { session, lane, request_id } = caller;
        let known = origin(session).is_some() && !self.written.contains_key(&(session, lane));
        if known {
            let written = Written { request_id, answer: Some(answer), place: Some(place) };
            self.written.insert((session, lane), written);
        }
        known
    }

    /// Keeps the answer in memory; false when it is none to a write at an offset.
    fn keep_written(&mut self, done: &Completion) -> bool {
        if self.written.is_empty() {
            return false;
        }
        let Caller { session, lane, request_id } = done.caller;
        let written = self.written.get_mut(&(session, lane));
        let Some(written) = written.filter(|written| written.request_id == request_id) else {
            return false;
        };
        written.answer = Some((done.status, done.body.clone()));
        true
    }

    fn is_unreached(&self, caller: Caller) -> bool {
        origin(caller.session).is_some_and(|(node, _)| self.unreached.contains(&node))
    }

    /// Answers to the last writes of a node's processes.
    fn written_from(&self, node: u32) -> Vec<(Caller, u32, Body)> {
        let theirs = |session| origin(session).is_some_and(|(other, _)| other == node);
        let written = self.written.iter().filter(|((session, _), _)| theirs(*session));
        let answers = written.filter_map(|((session, lane), written)| {
            let (status, body) = written.answer.clone()?;
            let caller = Caller { session: *session, lane: *lane, request_id: written.request_id };
            Some((caller, status, body))
        });
        answers.collect()
    }

    /// Requests that are being executed and whose answers will be kept.
    pub(super) fn noted(&self) -> impl Iterator<Item = &Caller> {
        self.noted.iter()
    }

    /// Its answer, which is not known yet, will be heard.
    pub(crate) fn heard_again(&mut self, session: SessionId, request_id: u64) {
        let other = |caller: &Caller| (caller.session, caller.request_id) != (session, request_id);
        self.unheard.retain(other);
        self.spared.retain(|caller, _| other(caller));
    }

    /// Another shard executes it.
    pub(crate) fn sent_on(&mut self, caller: Caller) {
        if !self.noted.is_empty() {
            self.noted.remove(&caller);
            self.unheard.remove(&caller);
        }
        if !self.given_up.is_empty() {
            self.given_up.remove(&caller);
        }
    }

    /// Whether the request is being executed, and its answer will be kept.
    pub(crate) fn is_noted(&self, caller: Caller) -> bool {
        self.noted.contains(&caller)
    }
}

/// A process, among those of all nodes.
pub(crate) fn process_of(session: SessionId, pid: u32) -> u64 {
    let node = origin(session).map_or(0, |(node, _)| u64::from(node) + 1);
    node << 32 | u64::from(pid)
}

/// Whether it is another node's.
pub(crate) fn is_distant(process: u64) -> bool {
    node_of_process(process).is_some()
}

/// Of which other node.
pub(crate) fn node_of_process(process: u64) -> Option<u32> {
    ((process >> 32) as u32).checked_sub(1)
}

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
            over.extend(key::split_answer(key).map(SessionId).filter(is_over));
            mayfly_meta::Scan::More
        });
        if let Err(error) = kept {
            store_failed(&error);
        }
        self.end_doubts_of(|session| is_over(&session));
        over.extend(
            self.transactions.completed.keys().map(|(session, _)| *session).filter(is_over),
        );
        over.sort_unstable_by_key(|session| session.0);
        over.dedup();
        for session in over {
            self.forget_finished(session);
            self.forget_answers(session);
        }
        self.end_locks_of_strangers(node, living);
    }

    /// What processes of a node held that are not there any more. They may have ended while this
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
        match request {
            Request::Close(_) => return Ok(false),
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
            if last {
                self.files.opens.remove(open);
                self.forget_place(found.id);
            }
        } else if last {
            self.end_open(open);
        }
        Ok(Served::Replied)
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

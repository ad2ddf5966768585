//! Requests of processes of other nodes, and descriptions of files that are at home on other nodes.
//!
//! A process has all its descriptions in its own node's table. One whose file is at home elsewhere
//! only stands for a description there, which belongs to the node and is given back when this one
//! ends. Requests about it go there with the other number in them.
//!
//! A node that asks for something may be restarted, and so may the one that is asked; either way
//! the same request may come again. What it changed must not be changed twice, so the answer to the
//! last such request of each lane is kept with the change itself.

use mayfly_meta::{StoreError, key};
use mayfly_transport_shm::layout::{FILE_BY_REQUEST, FILE_LOCKED};
use mayfly_types::{Errno, OpenRef, SessionId, limits::LANES};
use mayfly_wire::{GRANT_PART, Granted, Op, Opened, OwnPart, Reader, Request, Wire, Writer};

use super::{
    Core, Fault, Outcome, Served,
    data::check_grant,
    open::{ONCE, effective},
    store_failed,
    task::Purpose,
};
use crate::{
    api::{Caller, Completion},
    locks::Owner,
    maps::{HashMap, HashSet},
    message::{Answer, Forward, OperationId, Question, SpaceFacts},
    numbering::{node_of_owner, origin, session_elsewhere, session_of_node},
    opens::Remote,
    slots::ShardId,
};

/// What a shard knows of requests of other nodes that it is at.
#[derive(Debug, Default)]
pub(super) struct Distant {
    /// The answer will be kept.
    noted: HashSet<Caller>,
    /// Descriptions that a node does not stand for, by the requests that made them, whose answers
    /// may come again there.
    pub(super) spared: HashMap<Caller, OpenRef>,
    /// Operations that were over before it was known that this shard has a part in them.
    pub(super) over: HashSet<OperationId>,
}

impl Distant {
    /// Whether the request is being executed, and its answer will be kept.
    pub(super) fn is_noted(&self, caller: Caller) -> bool {
        self.noted.contains(&caller)
    }
}

/// A process, among those of all nodes.
pub(super) fn process_of(session: SessionId, pid: u32) -> u64 {
    let node = origin(session).map_or(0, |(node, _)| u64::from(node) + 1);
    node << 32 | u64::from(pid)
}

/// Whether it is another node's.
pub(super) fn is_distant(process: u64) -> bool {
    node_of_process(process).is_some()
}

/// Of which other node.
pub(super) fn node_of_process(process: u64) -> Option<u32> {
    ((process >> 32) as u32).checked_sub(1)
}

/// Whether a request that comes again must not be executed again. Bytes that are written at an
/// offset may be written twice.
fn is_once(op: Op, body: &[u8]) -> bool {
    match op {
        Op::Write => {
            matches!(Request::decode(op, body), Ok(Request::Write(write)) if write.append)
        }
        Op::Open
        | Op::MakeDirectory
        | Op::Unlink
        | Op::Rename
        | Op::Link
        | Op::Symlink
        | Op::SetAttr
        | Op::SetXattr
        | Op::RemoveXattr
        | Op::Allocate
        | Op::MakeSpecial => true,
        _ => false,
    }
}

impl Core {
    /// Sessions of other nodes are there until their node says otherwise.
    pub(super) fn is_known(&self, session: SessionId) -> bool {
        origin(session).is_some()
            || node_of_owner(session).is_some()
            || self.sessions.contains_key(&session)
    }

    /// Whether this request was answered before; then it is again.
    pub(super) fn answer_again(&mut self, forward: &Forward) -> bool {
        let Forward { caller, op, body, .. } = forward;
        self.lane_goes_on(*caller);
        if origin(caller.session).is_none() || !is_once(*op, body) {
            return false;
        }
        match self.kept_answer(*caller) {
            Ok(Some(done)) => {
                self.tasks.answer(done);
                true
            }
            Ok(None) => {
                self.distant.noted.insert(*caller);
                false
            }
            Err(error) => {
                self.tasks.answer(Completion::failed(*caller, store_failed(&error)));
                true
            }
        }
    }

    /// Whether the answer to this very request may be given again.
    pub(super) fn is_answer_kept(&mut self, caller: Caller) -> bool {
        // A store that fails says so at the next commit; until then nothing is given up.
        self.kept_answer(caller).map_or(true, |kept| kept.is_some())
    }

    fn kept_answer(&mut self, caller: Caller) -> Result<Option<Completion>, StoreError> {
        let Some(record) = self.store.get(&key::answer(caller.session.0, caller.lane))? else {
            return Ok(None);
        };
        let short = || StoreError::Corrupt("an answer is too short");
        let (request_id, rest) = record.split_first_chunk().ok_or_else(short)?;
        let (status, body) = rest.split_first_chunk().ok_or_else(short)?;
        let same = u64::from_le_bytes(*request_id) == caller.request_id;
        let (status, body) = (u32::from_le_bytes(*status), body.to_vec());
        Ok(same.then_some(Completion { caller, status, body }))
    }

    /// Keeps an answer, if it is to be; it then rests on the batch that is open.
    pub(super) fn note_answer(&mut self, done: &Completion) -> bool {
        if self.distant.noted.is_empty() || !self.distant.noted.remove(&done.caller) {
            return false;
        }
        let Caller { session, lane, request_id } = done.caller;
        let mut record = request_id.to_le_bytes().to_vec();
        record.extend_from_slice(&done.status.to_le_bytes());
        record.extend_from_slice(&done.body);
        if let Err(error) = self.store.put(&key::answer(session.0, lane), &record) {
            store_failed(&error);
        }
        true
    }

    /// Nobody repeats a request of this session any more.
    pub(super) fn forget_answers(&mut self, session: SessionId) {
        if origin(session).is_none() {
            return;
        }
        self.end_spared(|made| made.session == session);
        self.end_unanswered(session);
        for lane in 0..LANES as u32 {
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
        let unheard: HashSet<Caller> = self.distant.noted.extract_if(of_it).collect();
        let node = origin(session).map(|(node, _)| session_of_node(node));
        let Some(node) = node.filter(|_| !unheard.is_empty()) else { return };
        for open in self.opens.of_session(node) {
            if unheard.contains(&self.opens.made_by(open.index)) {
                self.end_open(open);
            }
        }
    }

    /// Of the sessions of a node only these are there any more: answers that are kept for others
    /// go. A daemon that was restarted knows those by nothing else.
    pub fn end_strangers(&mut self, node: u32, living: &[SessionId]) {
        let (mut over, prefix) = (Vec::new(), [key::ANSWER]);
        let kept = self.store.scan(&prefix, &prefix, &mut |key, _| {
            let session = key::split_answer(key).map(SessionId);
            let theirs = session.and_then(origin).filter(|origin| origin.0 == node);
            if theirs.is_some_and(|(_, number)| !living.contains(&number)) {
                over.extend(session);
            }
            mayfly_meta::Scan::More
        });
        if let Err(error) = kept {
            store_failed(&error);
        }
        over.dedup();
        for session in over {
            self.forget_answers(session);
        }
    }

    fn remote(&self, request: &Request<'_>) -> Option<(Remote, mayfly_types::FileId)> {
        let found = self.opens.get(request.open()?).ok()?;
        found.remote.map(|remote| (remote, found.id))
    }

    /// Sends a request away whose description only stands for one at another node; true when it
    /// could be answered here.
    pub(super) fn opens_elsewhere(
        &mut self,
        request: &Request<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<bool> {
        let Some((remote, file)) = self.remote(request) else { return Ok(false) };
        match request {
            Request::Close(_) => return Ok(false),
            Request::Grant(grant) if grant.want & GRANT_PART != 0 => {
                check_grant(&self.opens.get(grant.open)?, grant)?;
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
            Request::Lock(_) => self.opens.set_flag(file, FILE_LOCKED),
            _ => {}
        }
        Err(Fault::Elsewhere(remote.shard, Box::default()))
    }

    /// The request as the shard understands it that it is sent to.
    pub(super) fn as_there<'r>(&self, request: &Request<'r>, fault: &Fault) -> Request<'r> {
        match (fault, self.remote(request)) {
            (Fault::Elsewhere(shard, _), Some((remote, _))) if *shard == remote.shard => {
                request.with_open(remote.open)
            }
            _ => *request,
        }
    }

    /// A process closed a descriptor of a file that is elsewhere.
    pub(super) fn close_elsewhere(
        &mut self,
        caller: Caller,
        open: OpenRef,
        remote: Remote,
    ) -> Outcome<Served> {
        let found = self.opens.get(open)?;
        let entry = self.opens.entry(found.id);
        let locked = entry.is_some_and(|entry| {
            entry.flags.load(std::sync::atomic::Ordering::Relaxed) & FILE_LOCKED != 0
        });
        let last = !self.opens.is_shared(open.index);
        if locked {
            // Its locks are gone when close returns.
            let closed_by = Some(caller.session);
            let question = Question::Drop { open: remote.open, closed_by, last };
            if let Answer::Failed(errno) = self.fact(remote.shard, question)? {
                return Err(errno.into());
            }
            if last {
                self.opens.remove(open);
                self.forget_place(found.id);
            }
        } else if last {
            self.end_open(open);
        }
        Ok(Served::Replied)
    }

    /// Gives a description back that a node had here.
    pub(super) fn drop_for(
        &mut self,
        node: u32,
        open: OpenRef,
        closed_by: Option<SessionId>,
        last: bool,
    ) -> Outcome<()> {
        let Ok(found) = self.opens.get(open) else { return Ok(()) };
        if node_of_owner(found.session) != Some(node) {
            return Err(Errno::EBADF.into());
        }
        let process =
            closed_by.and_then(|session| self.sessions.get(&session_elsewhere(node, session)));
        if let Some(process) = process.copied()
            && self.locks.release(found.id, Owner::Posix(process), 0, u64::MAX)
        {
            self.locks_changed(found.id)?;
        }
        if last {
            self.end_open(open);
        }
        Ok(())
    }

    /// Tells another node that a description there is of no more use.
    pub(super) fn drop_elsewhere(&mut self, remote: Option<Remote>) {
        if let Some(Remote { shard, open }) = remote {
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
        let first = self.numbering.front_of(self.numbering.node_of(shard)).0;
        let shard = ShardId(first + opened.open.index % self.numbering.shards);
        let remote = Remote { shard, open: opened.open };
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
        remote: Remote,
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
        if let Some(index) = self.unclaimed_opens.remove(&caller)
            && let Some((reference, found)) = self.opens.at(index)
            && found.remote == Some(remote)
        {
            return Ok(reference);
        }
        let flags = effective(open.flags).map_err(|fault| fault.errno())? & !ONCE;
        let of = (opened.attr.id, opened.attr.kind);
        let birth = mayfly_meta::record::BirthKey::default();
        let made = self.opens.insert(caller, of, birth, flags, Some(remote))?;
        self.opens.set_flag(of.0, FILE_BY_REQUEST);
        Ok(made)
    }

    /// Capacity and use of this node.
    pub(super) fn space(&self) -> SpaceFacts {
        let counters = self.counters();
        SpaceFacts {
            capacity_bytes: counters.capacity_bytes,
            used_bytes: counters.used_bytes,
            files: counters.files + counters.directories,
        }
    }

    /// Of all servers that answer.
    pub(super) fn space_of_all(&mut self) -> Outcome<SpaceFacts> {
        let mut sum = self.space();
        let (me, roles) = (self.numbering.node, &self.config.roles);
        let others = (0..self.numbering.nodes).filter(|node| *node != me && roles.is_server(*node));
        let others: Vec<u32> = others.map(|node| self.numbering.front_of(node).0).collect();
        if others.is_empty() {
            return Ok(sum);
        }
        for answer in self.facts(&others, &Question::Space)? {
            if let Answer::Space(space) = answer {
                sum.capacity_bytes = sum.capacity_bytes.saturating_add(space.capacity_bytes);
                sum.used_bytes = sum.used_bytes.saturating_add(space.used_bytes);
                sum.files = sum.files.saturating_add(space.files);
            }
        }
        Ok(sum)
    }
}

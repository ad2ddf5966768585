//! Requests of this daemon's own about other nodes' files, under session consistency.
//!
//! They go as those of a process do: sent again while an answer is missing, executed once, failed
//! with EIO at their deadline. The process is the daemon itself, which is called session 0. What it
//! had asked for when it died nobody asks for any more; the numbers of its successor's requests are
//! greater, so nothing that is kept of the old ones stands in their way.

use mayfly_transport_tcp::Body;
use mayfly_types::{Errno, FileId};
use mayfly_wire::{Op, Reader, Request, Wire, Written as Reply};

use crate::{
    api::{Caller, Completion, Consistency},
    fault::{Fault, Outcome},
    files::descriptions::Elsewhere,
    message::{Forward, Message, Question, Resolved, request_in},
    namespace::state::open::{O_CREAT, O_EXCL, O_TRUNC},
    remote::state::{
        behind::Written,
        own_requests::{Held, Own},
    },
    shard::Shard,
    shards::{
        numbering::{OWN_SESSION, origin},
        slots::ShardId,
    },
};

impl Shard {
    /// Processes see what was closed before they open, and this node may be ahead and behind of
    /// others in between.
    pub(crate) fn is_session(&self) -> bool {
        self.config.leases.consistency == Consistency::Session && !self.place.alone
    }

    /// Sends a request of the daemon's own; there is a lane for it.
    pub(super) fn send_own(&mut self, caller: Caller, remote: Elsewhere, op: Op, body: Body) {
        let forward = Forward { caller, op, body, place: Resolved::default() };
        self.tasks.send(remote.shard, Message::Forward(Box::new(forward)));
    }

    /// One was answered.
    pub(crate) fn own_answered(&mut self, done: &Completion) {
        let Completion { caller, status, body, .. } = done;
        match self.remote.own.end(*caller) {
            Some(Own::Behind(open)) => {
                let count = match *status {
                    0 => Reply::decode(&mut Reader::new(&body.to_vec()))
                        .map_or(Err(Errno::EIO), |written| Ok(written.count as usize)),
                    status => Err(Errno::from_raw(status as i32).unwrap_or(Errno::EIO)),
                };
                let left = self.remote.behind.answered(open, caller.request_id, count);
                self.take_left(open, left);
            }
            Some(Own::Ahead(open)) => {
                let reply = (*status == 0).then(|| body.clone());
                self.remote.ahead.answered(open, caller.request_id, reply);
                self.wake_blocked();
            }
            None => {}
        }
        // There is a lane again.
        self.send_behind();
        if std::mem::take(&mut self.remote.behind.awaited) {
            self.wake_blocked();
            for Held { to, forward, upto } in std::mem::take(&mut self.remote.held) {
                self.send_or_hold(to, forward, upto);
            }
        }
    }

    /// A request was sent to another node and is to go on to this one. It has waited for what it
    /// names by a description.
    pub(crate) fn send_on_behind(&mut self, to: ShardId, forward: Forward) {
        let waits = match request_in(forward.op, &forward.body) {
            Ok(request) => request.open().is_none() && looks_at_contents(&request),
            Err(_) => false,
        };
        let upto = if waits { self.remote.behind.writes } else { 0 };
        self.send_or_hold(to, forward, upto);
    }

    fn send_or_hold(&mut self, to: ShardId, forward: Forward, upto: u64) {
        let numbering = self.place.numbering;
        let node = numbering.node_of(to);
        let there = |written: &Written| numbering.node_of(written.remote.shard) == node;
        if upto > 0 && self.remote.behind.close_pieces(upto, there) {
            self.send_behind();
            self.remote.held.push(Held { to, forward, upto });
        } else {
            self.tasks.send(to, Message::Forward(Box::new(forward)));
        }
    }

    /// Nobody waits for a request that is held back; true when it was.
    pub(super) fn drop_held(&mut self, caller: Caller) -> bool {
        let before = self.remote.held.len();
        self.remote.held.retain(|held| held.forward.caller != caller);
        self.remote.held.len() < before
    }

    /// Whether a request that names a file by its path, or no file, has to wait before it leaves
    /// this shard: where it goes it finds what this node's processes have written by then.
    pub(crate) fn departs_too_early(
        &mut self,
        caller: Caller,
        request: &Request<'_>,
        fault: &Fault,
    ) -> bool {
        if self.remote.behind.is_empty() {
            return false;
        }
        let own = origin(caller.session).is_none() && caller.session != OWN_SESSION;
        if !own || request.open().is_some() || !looks_at_contents(request) {
            return false;
        }
        let asks = |question: &Question| matches!(question, Question::File { .. });
        let to = match fault {
            Fault::Elsewhere(shard, _) => Some(*shard),
            Fault::Ask(asked) => asked.iter().find(|asked| asks(&asked.1)).map(|asked| asked.0),
            _ => None,
        };
        let Some(to) = to else { return false };
        let numbering = self.place.numbering;
        let (node, here) = (numbering.node_of(to), numbering.is_here(to));
        // From another shard of this node it may go anywhere.
        let there = move |remote: Elsewhere| here || numbering.node_of(remote.shard) == node;
        self.all_sent(|_, remote| there(remote)).is_err()
    }

    /// Everything is at its home that was written so far and `is_it` is true of; the request waits
    /// until then.
    pub(crate) fn all_sent(&mut self, is_it: impl Fn(FileId, Elsewhere) -> bool) -> Outcome<()> {
        if self.remote.behind.is_empty() {
            return Ok(());
        }
        let upto = *self.run.behind.get_or_insert(self.remote.behind.writes);
        let behind =
            self.remote.behind.close_pieces(upto, |written| is_it(written.file, written.remote));
        self.send_behind();
        if behind { Err(Fault::Busy) } else { Ok(()) }
    }

    /// Another node has executed a process's request: what was read ahead there before that may not
    /// be seen any more, if it has changed bytes.
    pub fn done_elsewhere(&mut self, node: u32, op: Op, body: &Body) {
        if self.remote.ahead.is_empty() {
            return;
        }
        let changes = match op {
            Op::Write | Op::Allocate | Op::SetAttr | Op::Lock => true,
            Op::Open => matches!(
                request_in(op, body),
                Ok(Request::Open(open)) if open.flags & O_TRUNC != 0
            ),
            _ => false,
        };
        if changes {
            let numbering = self.place.numbering;
            self.remote.ahead.drop_of(|_, remote| numbering.node_of(remote.shard) == node);
        }
    }

    /// Whether something is behind that goes to this node.
    #[must_use]
    pub fn is_behind_at(&self, node: u32) -> bool {
        let numbering = self.place.numbering;
        self.remote.behind.is_any(|written| numbering.node_of(written.remote.shard) == node)
    }
}

/// Whether a request tells something of a file's bytes or length, or may change them.
fn looks_at_contents(request: &Request<'_>) -> bool {
    match request {
        // A new file has none.
        Request::Open(open) => open.flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL,
        Request::MakeDirectory(_)
        | Request::Unlink(_)
        | Request::Symlink(_)
        | Request::ReadLink(_)
        | Request::MakeSpecial(_)
        | Request::Reach(_)
        | Request::PathOf(_) => false,
        _ => true,
    }
}

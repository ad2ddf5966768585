//! Answers to other nodes' requests that are kept, because the same request may come again.

use std::cmp::Ordering;

use mayfly_meta::{StoreError, key};
use mayfly_transport_tcp::Body;
use mayfly_types::{Errno, SessionId};
use mayfly_wire::{Op, Request};

use crate::{
    api::{Caller, Completion},
    fault::store_failed,
    message::{Forward, request_in},
    remote::{requests::Shard, state::requests::Written},
    shards::numbering::origin,
};

/// Which answers are kept, because the request must not be executed again when it comes again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retention {
    No,
    /// To a write at an offset.
    InMemory,
    WithChange,
}

fn retention(op: Op, body: &Body) -> Retention {
    match op {
        Op::Write => match request_in(op, body) {
            Ok(Request::Write(write)) if write.append => Retention::WithChange,
            Ok(_) => Retention::InMemory,
            Err(_) => Retention::No,
        },
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
        | Op::MakeSpecial => Retention::WithChange,
        _ => Retention::No,
    }
}

/// Whether a request that arrives is new, under way or answered. A lane has one request at a time,
/// and their numbers grow.
enum Earlier {
    /// It was not executed, as far as answers are kept.
    Nothing,
    /// It was, and this is its answer.
    Answer(Completion),
    /// A later one of its lane was: its process has given it up. It may have been executed before
    /// that one, whose answer took the place of its own, so it is not executed now.
    Later,
}

impl Shard {
    /// Whether this request was answered before; then it is again.
    pub(crate) fn answer_again(&mut self, forward: &Forward) -> bool {
        let Forward { caller, op, body, .. } = forward;
        self.lane_goes_on(*caller);
        if origin(caller.session).is_none() {
            return false;
        }
        let found = match retention(*op, body) {
            Retention::No => return false,
            Retention::InMemory => self.find_written(*caller),
            Retention::WithChange => self.find_change(*caller),
        };
        match found {
            Ok(Earlier::Answer(done)) if self.has_lost_what_it_made(forward, &done) => {
                self.remote.noted.insert(*caller);
                false
            }
            Ok(Earlier::Answer(done)) => {
                if !self.go_to_created(forward, &done) {
                    self.tasks.answer(done);
                }
                true
            }
            Ok(Earlier::Later) => {
                self.tasks.answer(Completion::failed(*caller, Errno::EIO));
                true
            }
            Ok(Earlier::Nothing) => false,
            Err(error) => {
                self.tasks.answer(Completion::failed(*caller, store_failed(&error)));
                true
            }
        }
    }

    /// The answer to this very write, if it was done; otherwise that will be kept.
    fn find_written(&mut self, caller: Caller) -> Result<Earlier, StoreError> {
        let Caller { session, lane, request_id } = caller;
        match self.remote.written.get(&(session, lane)) {
            Some(written) if written.request_id > request_id => return Ok(Earlier::Later),
            Some(written) if written.request_id == request_id => {
                if let Some((status, body)) = &written.answer {
                    let (status, body) = (*status, body.clone());
                    return Ok(Earlier::Answer(Completion::new(caller, status, body)));
                }
            }
            Some(_) => {}
            // The lane's first one since the start: perhaps a predecessor did it.
            None => match self.earlier_answer(caller)? {
                Earlier::Nothing => {}
                found => return Ok(found),
            },
        }
        self.forget_written(session, lane);
        let written = Written { request_id, answer: None, place: None };
        self.remote.written.insert((session, lane), written);
        Ok(Earlier::Nothing)
    }

    /// The answer to this very request, if it was executed; otherwise that will be kept.
    fn find_change(&mut self, caller: Caller) -> Result<Earlier, StoreError> {
        let Caller { session, lane, request_id } = caller;
        let written = self.remote.written.get(&(session, lane));
        if written.is_some_and(|written| written.request_id > request_id) {
            return Ok(Earlier::Later);
        }
        // The lane goes on, and its last answer is another one.
        self.forget_written(session, lane);
        let found = self.earlier_answer(caller)?;
        if let Earlier::Nothing = found {
            self.remote.noted.insert(caller);
        }
        Ok(found)
    }

    /// The lane goes on: its answer has arrived, or nobody waits for it.
    pub(in crate::remote) fn forget_written(&mut self, session: SessionId, lane: u32) {
        if !self.remote.written.is_empty()
            && let Some(written) = self.remote.written.remove(&(session, lane))
            && let Some(place) = written.place
        {
            self.free_started(place);
        }
    }

    /// Whether the answer to this very request may be given again.
    pub(in crate::remote) fn has_answer(&mut self, caller: Caller) -> bool {
        // A store that fails says so at the next commit; until then nothing is given up.
        self.earlier_answer(caller).map_or(true, |kept| matches!(kept, Earlier::Answer(_)))
    }

    /// Whether another one than that to this request is kept of its lane, and a later one.
    pub(crate) fn has_later_answer(&mut self, caller: Caller) -> bool {
        matches!(self.earlier_answer(caller), Ok(Earlier::Later))
    }

    fn earlier_answer(&mut self, caller: Caller) -> Result<Earlier, StoreError> {
        let Some(record) = self.store.get(&key::answer(caller.session.0, caller.lane))? else {
            return Ok(Earlier::Nothing);
        };
        let short = || StoreError::Corrupt("an answer is too short");
        let (request_id, rest) = record.split_first_chunk().ok_or_else(short)?;
        let (status, body) = rest.split_first_chunk().ok_or_else(short)?;
        Ok(match u64::from_le_bytes(*request_id).cmp(&caller.request_id) {
            Ordering::Less => Earlier::Nothing,
            Ordering::Greater => Earlier::Later,
            Ordering::Equal => {
                let (status, body) = (u32::from_le_bytes(*status), body.to_vec().into());
                Earlier::Answer(Completion::new(caller, status, body))
            }
        })
    }

    /// Keeps an answer, if it is to be; it then rests on the batch that is open.
    pub(crate) fn note_answer(&mut self, done: &Completion) -> bool {
        self.forget_cut(done.caller);
        let noted = !self.remote.noted.is_empty() && self.remote.noted.remove(&done.caller);
        let written = self.remote.keep_written(done)
            && (self.store.pending_transaction() != 0 || self.remote.is_unreached(done.caller));
        if !noted && !written {
            return false;
        }
        let outlived = self.is_outlived(done.caller);
        if !outlived {
            self.store_answer(done.caller, done.status, &done.body);
        }
        self.spare_unheard(done.caller);
        !outlived
    }

    pub(crate) fn store_answer(&mut self, caller: Caller, status: u32, body: &Body) {
        let Caller { session, lane, request_id } = caller;
        let mut record = request_id.to_le_bytes().to_vec();
        record.extend_from_slice(&status.to_le_bytes());
        let (head, rest) = body.pieces();
        record.extend_from_slice(head);
        record.extend_from_slice(rest);
        if let Err(error) = self.store.put(&key::answer(session.0, lane), &record) {
            store_failed(&error);
        }
    }
}

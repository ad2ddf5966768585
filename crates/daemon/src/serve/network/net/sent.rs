//! What was sent to other nodes and is not answered.

use mayfly_transport_tcp::Body;
use mayfly_types::SessionId;
use mayfly_wire::Op;

use super::words::{self, Call};
use crate::{
    ShardId,
    message::{Question, Resolved},
    serve::Caller,
};

/// A client's request that was passed on.
#[derive(Debug)]
pub(in crate::serve) struct Away {
    pub(in crate::serve) caller: Caller,
    pub(in crate::serve) pid: u32,
    pub(in crate::serve) op: Op,
    pub(in crate::serve) body: Body,
    pub(in crate::serve) place: Resolved,
    pub(in crate::serve) to: ShardId,
    /// By the network's clock.
    pub(in crate::serve) until_ns: u64,
    /// It may take as long as others hold a lock.
    pub(in crate::serve) waits: bool,
    /// Its process does not wait for it any more.
    pub(in crate::serve) given_up: bool,
}

/// What was sent and is not answered.
#[derive(Debug)]
pub(in crate::serve) enum Sent {
    Forward(Box<Away>),
    Ask {
        from: ShardId,
        to: ShardId,
        id: u64,
        question: Question,
        /// By the network's clock.
        until_ns: u64,
    },
    /// A session's end, to be told until it is heard.
    SessionEnded {
        node: u32,
        session: SessionId,
        pid: u32,
        successor: Option<SessionId>,
    },
    /// An open that was given up, to be told until it is heard.
    GivenUp {
        node: u32,
        caller: Caller,
    },
    /// Whether it is heard makes no difference.
    Notice,
}

impl Sent {
    pub(super) fn is_unhurried(&self) -> bool {
        matches!(self, Sent::Ask { question, .. } if may_wait(question))
    }
}

/// Whether nobody waits for the answer to a question: a description ends that has no locks.
pub(super) fn may_wait(question: &Question) -> bool {
    matches!(question, Question::Drop { closed_by: None, .. })
}

pub(super) fn encoded(sent: &Sent) -> Body {
    match sent {
        Sent::Forward(away) => {
            let Caller { session, lane, request_id } = away.caller;
            let (pid, to, op) = (away.pid, away.to.0, away.op as u16);
            let place = away.place.clone();
            let call = Call::Forward { to, session, pid, lane, request_id, op, place };
            words::encode(&call, &away.body)
        }
        Sent::Ask { from, to, question, .. } => {
            let question = question.clone();
            words::encode(&Call::Ask { from: from.0, to: to.0, question }, &Body::default())
        }
        Sent::SessionEnded { session, pid, successor, .. } => {
            let (session, pid, successor) = (*session, *pid, *successor);
            words::encode(&Call::SessionEnded { session, pid, successor }, &Body::default())
        }
        Sent::GivenUp { caller, .. } => {
            let Caller { session, lane, request_id } = *caller;
            words::encode(&Call::GivenUp { session, lane, request_id }, &Body::default())
        }
        Sent::Notice => Body::default(),
    }
}

//! A door for fuzzing: what other nodes say, without a connection. No part of the interface.

use mayfly_types::{FileId, OpenRef, SessionId};
use mayfly_wire::Op;
use serde::Serialize;

use crate::{
    message::{Answer, At, Description, Question, Resolved},
    serve::network::net::words::{Call, Reply, decode, decode_call, encode},
};

/// Reads a call and a reply.
///
/// # Panics
/// When what was read is not what would be written.
pub fn words(bytes: &[u8]) {
    if let Some((call, body)) = decode_call(bytes) {
        assert_eq!(decode_call(&written(&call, body)), Some((call, body)));
    }
    if let Some((reply, body)) = decode::<Reply>(bytes) {
        assert_eq!(decode::<Reply>(&written(&reply, body)), Some((reply, body)));
    }
}

fn written(head: &impl Serialize, body: &[u8]) -> Vec<u8> {
    encode(head, &body.to_vec().into()).to_vec()
}

/// Some of each that are right.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let open = OpenRef { index: 3, generation: 7 };
    let proxied = Description { open, session: SessionId(2), lane: 1, request_id: 3 };
    let place = Resolved {
        at: At::Path(FileId(1), b"a/b".to_vec(), 5),
        follows: 1,
        restarts: 0,
        gone: Some(FileId(3)),
    };
    let questions = [
        Question::Lookup { directory: FileId(1), name: b"name".to_vec(), upto: 5 },
        Question::Entries { directory: FileId(1), from: 0, until: 9, bytes_max: 4096 },
        Question::Drop { open, closed_by: Some(SessionId(2)), last: true },
        Question::Returned,
        Question::Proxies(vec![proxied; 3]),
        Question::Space,
    ];
    let (session, op) = (SessionId(2), Op::Open as u16);
    let calls = [
        Call::Forward { to: 1, session, pid: 9, lane: 3, request_id: 4, op, place },
        Call::Cancel { session, request_id: 5 },
        Call::SessionEnded { session, pid: 9, successor: Some(SessionId(3)) },
        Call::Introduce { sessions: vec![(SessionId(1), 8), (session, 9)] },
    ];
    let asked = questions.map(|question| Call::Ask { from: 0, to: 1, question });
    let replies = [
        Reply::Done { status: 0 },
        Reply::Unknown,
        Reply::Answer(Answer::Entries { packed: vec![1; 9], more: true }),
    ];
    let calls = calls.iter().chain(&asked).map(|call| written(call, b"body"));
    calls.chain(replies.iter().map(|reply| written(reply, b"body"))).collect()
}

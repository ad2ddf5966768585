//! What daemons say to each other, in the bodies of the transport's requests and replies.
//!
//! A head in postcard's form, and behind it, for the body of a client's request or reply, its bytes
//! as they are. What cannot be read is a protocol error of its sender.

use mayfly_meta::record::Step;
use mayfly_transport_tcp::{Body, Class};
use mayfly_types::{
    SessionId,
    limits::{
        DEADLOCK_LOOKS_MAX, FILE_BYTES_MAX, LANES, NAME_BYTES_MAX, OPEN_FILES_MAX, REPLY_BYTES_MAX,
        SESSIONS_MAX, TRANSFER_BYTES_MAX,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    message::{Answer, Append, At, Description, Question, Resolved},
    shards::numbering::origin,
};

/// What a node asks of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    /// A client's request, for the shard `to`; its body follows.
    Forward {
        to: u32,
        session: SessionId,
        pid: u32,
        lane: u32,
        request_id: u64,
        op: u16,
        place: Resolved,
    },
    /// What one shard asks another.
    Ask { from: u32, to: u32, question: Question },
    /// A session of the sender does not wait for this request any more.
    Cancel { session: SessionId, request_id: u64 },
    /// The sender takes no answer to this request of its session any more: if it only waits it
    /// ends, and what it opens, or has opened, is of no use.
    GivenUp { session: SessionId, lane: u32, request_id: u64 },
    /// A session of the sender is over; its process may go on as another one.
    SessionEnded { session: SessionId, pid: u32, successor: Option<SessionId> },
    /// The sender's sessions with their processes; what the receiver knows of others is over.
    Introduce { sessions: Vec<(SessionId, u32)> },
}

/// What it says to that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The request was executed; the body of its reply follows.
    Done { status: u32 },
    /// It belongs to this shard.
    Elsewhere { shard: u32, place: Resolved },
    /// The sender has to introduce itself first.
    Unknown,
    /// To a question.
    Answer(Answer),
    /// To anything else.
    Heard,
}

/// Puts a head and what follows it together.
pub(crate) fn encode(head: &impl Serialize, body: &Body) -> Body {
    // It fails for types that postcard has no form for, of which there is none here.
    body.behind(postcard::to_stdvec(head).unwrap_or_default())
}

/// The head and what follows it.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<(T, &'a [u8])> {
    postcard::take_from_bytes(bytes).ok()
}

/// A call, if every number and name in it can be.
pub(crate) fn decode_call(bytes: &[u8]) -> Option<(Call, &[u8])> {
    decode(bytes).filter(|(call, _)| is_sound(call))
}

fn is_sound(call: &Call) -> bool {
    let session = |session: &SessionId| session.0 < SESSIONS_MAX;
    match call {
        Call::Forward { session: of, lane, place, .. } => {
            session(of) && (*lane as usize) < LANES && is_sound_place(place)
        }
        Call::GivenUp { session: of, lane, .. } => session(of) && (*lane as usize) < LANES,
        Call::Ask { question, .. } => is_sound_question(question),
        Call::Cancel { session: of, .. } => session(of),
        Call::SessionEnded { session: of, successor, .. } => {
            session(of) && successor.as_ref().is_none_or(session)
        }
        Call::Introduce { sessions } => sessions.iter().all(|(of, _)| session(of)),
    }
}

fn is_sound_place(place: &Resolved) -> bool {
    match &place.at {
        At::Part(place) => place.part.is_possible(),
        At::Start | At::Path(..) | At::File { .. } => true,
    }
}

fn is_sound_append(append: &Append) -> bool {
    append.by.is_none_or(|by| origin(by.session).is_some() && (by.lane as usize) < LANES)
}

fn is_sound_question(question: &Question) -> bool {
    match question {
        Question::Lookup { name, .. }
        | Question::File { name, .. }
        | Question::Forget { name, .. } => name.len() <= NAME_BYTES_MAX,
        Question::LinkTarget { birth, .. } => birth.name.len() <= NAME_BYTES_MAX,
        Question::Keep(kept) => {
            kept.birth.name.len() <= NAME_BYTES_MAX && kept.session.0 < SESSIONS_MAX
        }
        Question::Prepare { steps, .. } | Question::Apply { steps, .. } => {
            steps.iter().all(Step::is_sound)
        }
        Question::Entries { bytes_max, .. } => *bytes_max as usize <= REPLY_BYTES_MAX,
        Question::Proxies(proxied) => {
            let sound = |proxied: &Description| {
                proxied.session.0 < SESSIONS_MAX && (proxied.lane as usize) < LANES
            };
            proxied.len() <= OPEN_FILES_MAX as usize && proxied.iter().all(sound)
        }
        Question::HoldEnd { append, .. } | Question::LetEnd { append, .. } => {
            is_sound_append(append)
        }
        Question::AppendPart { place, append, bytes, .. } => {
            let possible = place.part.is_possible() && is_sound_append(append);
            possible && bytes.len() <= TRANSFER_BYTES_MAX
        }
        Question::SeekPart { place, .. } => place.part.is_possible(),
        Question::AllocatePart { place, start, end, .. } => {
            place.part.is_possible() && start <= end && *end <= FILE_BYTES_MAX
        }
        Question::WentOn { session, lane, .. } => {
            session.0 < SESSIONS_MAX && (*lane as usize) < LANES
        }
        Question::Waits { processes } => processes.len() <= DEADLOCK_LOOKS_MAX,
        Question::StillWaiting { delays } => delays.len() <= DEADLOCK_LOOKS_MAX,
        Question::Drop { closed_by, .. } => {
            closed_by.is_none_or(|session| session.0 < SESSIONS_MAX)
        }
        _ => true,
    }
}

/// The class in which a question is asked. One that may ask another node itself must not stand
/// behind its own kind: becoming a member asks a directory's home, which asks nobody.
pub(crate) fn class_of(question: &Question) -> Class {
    match question {
        Question::Lookup { .. }
        | Question::File { .. }
        | Question::LinkTarget { .. }
        | Question::Directory(_)
        | Question::Join(_)
        | Question::Member(_)
        | Question::Entries { .. }
        | Question::Release(_)
        | Question::WentOn { .. }
        | Question::Drop { .. }
        | Question::IsOver(_)
        | Question::Keep(_)
        | Question::Proxies(_)
        | Question::Part { .. }
        | Question::CleanPart { .. }
        | Question::SettlePart { .. }
        | Question::DropPart { .. }
        | Question::Admit { .. }
        | Question::HoldEnd { .. }
        | Question::LetEnd { .. }
        | Question::Waits { .. }
        | Question::StillWaiting { .. }
        | Question::Suspect { .. }
        | Question::Space => Class::Leaf,
        // What processes there read is kept first.
        Question::Forget { .. } | Question::Returned => Class::Holder,
        _ => Class::Shard,
    }
}

#[cfg(test)]
mod tests {
    use mayfly_types::{Errno, FileId};
    use mayfly_wire::Op;
    use proptest::prelude::*;

    use super::*;

    fn written(head: &impl Serialize, body: &[u8]) -> Vec<u8> {
        encode(head, &body.to_vec().into()).to_vec()
    }

    #[test]
    fn what_is_said_is_what_is_heard() {
        let place = Resolved {
            at: At::Path(FileId(7), b"a/b\n".to_vec(), 9),
            follows: 3,
            restarts: 1,
            gone: Some(FileId(8)),
        };
        let call = Call::Forward {
            to: 5,
            session: SessionId(9),
            pid: 77,
            lane: 3,
            request_id: u64::MAX,
            op: Op::Write as u16,
            place,
        };
        let bytes = written(&call, b"the body");
        assert_eq!(decode::<Call>(&bytes), Some((call, &b"the body"[..])));
        let reply = Reply::Answer(Answer::Failed(Errno::ENOENT));
        assert_eq!(decode::<Reply>(&written(&reply, b"")), Some((reply, &b""[..])));
    }

    #[test]
    fn garbage_and_what_was_cut_off_is_no_message() {
        let question = Question::Lookup { directory: FileId(1), name: b"name".to_vec(), upto: 9 };
        let bytes = written(&Call::Ask { from: 1, to: 2, question }, b"");
        for length in 0..bytes.len() {
            assert_eq!(decode::<Call>(&bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(decode::<Call>(&[0xff; 40]), None);
        assert_eq!(decode::<Reply>(&[0x80; 40]), None);
    }

    #[test]
    fn numbers_and_names_that_cannot_be_are_no_message() {
        let session = SessionId(SESSIONS_MAX);
        let open = mayfly_types::OpenRef { index: 1, generation: 1 };
        let proxied = Description { open, session: SessionId(1), lane: 0, request_id: 1 };
        let name = vec![b'x'; NAME_BYTES_MAX + 1];
        let ask = |question| Call::Ask { from: 0, to: 1, question };
        let bad = [
            Call::Cancel { session, request_id: 1 },
            Call::SessionEnded { session: SessionId(1), pid: 1, successor: Some(session) },
            Call::Introduce { sessions: vec![(SessionId(1), 7), (session, 7)] },
            ask(Question::Lookup { directory: FileId(1), name: name.clone(), upto: 0 }),
            ask(Question::Entries { directory: FileId(1), from: 0, until: 1, bytes_max: u32::MAX }),
            ask(Question::Proxies(vec![proxied; OPEN_FILES_MAX as usize + 1])),
            ask(Question::Proxies(vec![Description { session, ..proxied }])),
            ask(Question::Prepare {
                transaction: crate::message::TransactionId(1),
                steps: vec![Step::Moved {
                    id: FileId(1),
                    birth: mayfly_meta::record::BirthKey::default(),
                    parent: FileId(2),
                    name,
                }],
            }),
        ];
        for call in bad {
            let bytes = written(&call, b"");
            assert!(decode::<Call>(&bytes).is_some());
            assert_eq!(decode_call(&bytes), None, "{call:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            // Neither panics, whatever comes.
            drop(decode_call(&bytes));
            drop(decode::<Reply>(&bytes));
        }
    }
}

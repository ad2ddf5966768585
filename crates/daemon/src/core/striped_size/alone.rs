//! The home of a striped file by itself: a test that answers as the shard which has the other part.

use mayfly_meta::MemoryDisk;
use mayfly_transport_shm::region::{self, NodeSettings};
use mayfly_types::{Attr, FileId, OpenRef, SessionId, Timestamp};
use mayfly_wire::{
    Open, Opened, Operation, Reader, Request, SET_SIZE, SetAttr, Stat, Target, WALK_EMPTY, Walk,
    Wire, Writer,
};

use crate::{
    api::{Caller, Completion, Progress},
    core::{Core, part_alone::open},
    message::{Answer, Message, PartFacts, Question},
    numbering::Numbering,
};

const HERE: Numbering = Numbering { node: 0, nodes: 2, shards: 1 };
const CHUNK_BYTES: u64 = 1 << 16;
const BODY_BYTES: usize = 4096;
const O_RDWR: u32 = 0o2;
const O_TMPFILE: u32 = 0o20_200_000;

/// A file with a part here and one elsewhere.
struct Home {
    core: Core,
    _objects: tempfile::TempDir,
    /// Where the other part ends: in each round of the parts, and while it is held.
    ends: fn(&Question) -> u64,
    /// What the other part was asked.
    asked: Vec<Question>,
    requests: u64,
}

fn end_of(end_bytes: u64) -> Answer {
    Answer::Part(PartFacts { end_bytes, ..PartFacts::default() })
}

impl Home {
    fn new(ends: fn(&Question) -> u64) -> Home {
        let settings = NodeSettings { instance: 1, times: 0, locks: 0, deadline_ms: 60_000 };
        let node = region::make_node(&settings).expect("there is memory").1;
        let (disk, objects) = (MemoryDisk::default(), tempfile::tempdir().expect("there is room"));
        let mut core = open(node, &disk, &objects, HERE);
        core.session_opened(SessionId(3), 100);
        Home { core, _objects: objects, ends, asked: Vec::new(), requests: 0 }
    }

    fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::Part { .. } | Question::HoldEnd { .. } => end_of((self.ends)(question)),
            Question::Prepare { .. } => Answer::Prepared(Vec::new()),
            Question::Returned => Answer::Involved { operations: Vec::new(), executed: Vec::new() },
            _ => Answer::Done,
        }
    }

    /// Everything is answered until nothing more is said, or done in the pool.
    fn go_on(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        loop {
            self.core.commit().expect("the store is in memory");
            done.extend(self.core.completions());
            done.extend(self.core.answers());
            self.core.commit().expect("the store is in memory");
            let said = self.core.outbox();
            if said.is_empty() && !self.core.run_job(0) {
                return done;
            }
            for (to, message) in said {
                match message {
                    message if to == self.core.shard => self.core.deliver(to, message),
                    Message::Ask(id, question) => {
                        let answer = self.answer(&question);
                        self.asked.push(question);
                        self.core.deliver(to, Message::Answer(id, answer));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// The reply to a request of a process of this node.
    fn ask<'a, O: Operation<'a>, T: for<'r> Wire<'r>>(&mut self, request: &O) -> T {
        let mut sent = vec![0; BODY_BYTES];
        let mut to = Writer::new(&mut sent);
        request.encode(&mut to).expect("there is room");
        let used = to.used();
        let request = Request::decode(O::OP, &sent[..used]).expect("it was encoded here");
        self.requests += 1;
        let caller = Caller { session: SessionId(3), lane: 0, request_id: self.requests };
        let mut body = vec![0; BODY_BYTES];
        let (status, body) = match self.core.handle(caller, request, &mut body) {
            Progress::Replied(status, used) => (status, body[..used].to_vec()),
            Progress::Pending => {
                let done = self.go_on().into_iter().find(|done| done.caller == caller);
                let done = done.expect("it is answered");
                (done.status, done.body.to_vec())
            }
        };
        self.go_on();
        assert_eq!(status, 0);
        T::decode(&mut Reader::new(&body)).expect("a reply")
    }

    /// A file without a name that reaches into the other part.
    fn make(&mut self) -> OpenRef {
        let walk = Walk { start: FileId::ROOT, flags: WALK_EMPTY, path: b"" };
        let make = Open { walk, flags: O_TMPFILE | O_RDWR, mode: 0o600, uid: 0, gid: 0 };
        let made: Opened = self.ask(&make);
        let target = Target::Open(made.open);
        let size_bytes = 2 * CHUNK_BYTES;
        let (atime, mtime) = (Timestamp::default(), Timestamp::default());
        let which = SET_SIZE;
        let set = SetAttr { target, which, mode: 0, uid: 0, gid: 0, size_bytes, atime, mtime };
        self.ask::<_, Attr>(&set);
        self.asked.clear();
        made.open
    }

    fn size(&mut self, open: OpenRef) -> u64 {
        self.ask::<_, Attr>(&Stat { target: Target::Open(open) }).size_bytes
    }

    fn asked(&self, is_it: fn(&Question) -> bool) -> usize {
        self.asked.iter().filter(|question| is_it(question)).count()
    }
}

/// The last of six rounds was told, which may have met one part before a cut and the other behind
/// (seed 500022).
#[test]
fn parts_that_grow_in_every_round_are_held_until_they_have_said_their_ends() {
    let mut home = Home::new(|question| match question {
        Question::Part { round, .. } => 2 * CHUNK_BYTES + u64::from(*round),
        _ => 3 * CHUNK_BYTES,
    });
    let open = home.make();
    for _ in 0..2 {
        home.asked.clear();
        assert_eq!(home.size(open), 3 * CHUNK_BYTES);
        assert_eq!(home.asked(|question| matches!(question, Question::HoldEnd { .. })), 1);
        assert_eq!(home.asked(|question| matches!(question, Question::LetEnd { .. })), 1);
    }
}

#[test]
fn nobody_is_held_where_two_rounds_agree() {
    let mut home = Home::new(|question| match question {
        Question::Part { round, .. } => 2 * CHUNK_BYTES + u64::from(*round).min(1),
        _ => 0,
    });
    let open = home.make();
    assert_eq!(home.size(open), 2 * CHUNK_BYTES + 1);
    assert_eq!(home.asked(|question| matches!(question, Question::Part { .. })), 3);
    assert_eq!(home.asked.len(), 3);
}

//! A shard by itself, of which a process of another node asks something: a test that sends its
//! requests as that node does, and again when the daemon was killed.

use mayfly_types::{Errno, FileId, OpenRef, SessionId};
use mayfly_wire::{Open, Opened, Operation, Reader, Rename, Unlink, Walk, Wire};

use crate::{
    api::{Caller, Completion, Reached},
    message::{Answer, Forward, Message, Question, Resolved},
    shard::alone::{Alone, encoded, not_involved},
    shards::{
        numbering::{Numbering, session_elsewhere},
        slots::ShardId,
    },
};

/// The node of the root directory, and the other one, of the process.
const HERE: Numbering = Numbering { node: 0, nodes: 2, shards: 1 };
const THERE: ShardId = ShardId(1);
const O_RDWR: u32 = 0o2;
const O_CREAT_EXCL: u32 = 0o300;

struct Asked {
    shard: Alone,
    /// What the other shard was asked while it cannot be reached.
    lost: Option<Vec<u64>>,
}

/// A request of the one lane, whose numbers grow.
fn caller(request_id: u64) -> Caller {
    Caller { session: session_elsewhere(1, SessionId(3)), lane: 0, request_id }
}

impl Asked {
    fn new() -> Asked {
        let mut asked = Asked { shard: Alone::new(HERE), lost: None };
        asked.meet();
        asked
    }

    /// The daemon is killed, with what it has not committed, and started again.
    fn start_again(&mut self) {
        self.shard.start_again();
        self.meet();
    }

    fn meet(&mut self) {
        self.shard.core.session_opened(caller(0).session, 100);
        self.go_on();
    }

    /// Everything is committed, until nothing more is said.
    fn go_on(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        loop {
            let (executed, said) = self.shard.commit();
            done.extend(executed);
            if said.is_empty() && !self.shard.core.run_job(0) {
                return done;
            }
            for (to, message) in said {
                match message {
                    message if to == self.shard.core.place.shard => {
                        self.shard.core.deliver(to, message)
                    }
                    Message::Ask(id, question) => self.hear(to, id, &question),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// The other shard is asked.
    fn hear(&mut self, to: ShardId, id: u64, question: &Question) {
        if let Some(lost) = &mut self.lost {
            return lost.push(id);
        }
        let answer = match question {
            Question::Returned => not_involved(),
            _ => Answer::Done,
        };
        self.shard.core.deliver(to, Message::Answer(id, answer));
    }

    /// A request arrives, and is executed as far as nobody else is asked.
    fn arrive<'a, O: Operation<'a>>(&mut self, request_id: u64, request: &O) {
        let (caller, place) = (caller(request_id), Resolved::default());
        let forward = Forward { caller, op: O::OP, body: encoded(request).into(), place };
        self.shard.core.deliver(THERE, Message::Forward(Box::new(forward)));
    }

    /// Its status and reply.
    fn ask<'a, O: Operation<'a>>(&mut self, request_id: u64, request: &O) -> (u32, Vec<u8>) {
        self.arrive(request_id, request);
        let mut done = self.go_on().into_iter();
        let done = done.find(|done| done.caller == caller(request_id)).expect("it is answered");
        (done.status, done.body.to_vec())
    }

    fn open_descriptions(&self) -> Vec<OpenRef> {
        let mut open = Vec::new();
        self.shard.core.tell_opens(0, &mut |found| {
            open.push(found.open);
            true
        });
        open
    }

    /// Names that this shard has.
    fn names(&self) -> [Vec<u8>; 2] {
        self.names_of(self.shard.core.place.shard)
    }

    fn names_of(&self, shard: ShardId) -> [Vec<u8>; 2] {
        let is_here =
            |name: &Vec<u8>| self.shard.core.place.slots.dentry_owner(FileId::ROOT, name) == shard;
        let mut names = (0..).map(|number: u32| number.to_string().into_bytes()).filter(is_here);
        [(); 2].map(|()| names.next().expect("a shard has names"))
    }
}

fn walk(path: &[u8]) -> Walk<'_> {
    Walk { start: FileId::ROOT, flags: 0, path }
}

/// A file that is not there yet.
fn make(path: &[u8]) -> Open<'_> {
    Open { walk: walk(path), flags: O_RDWR | O_CREAT_EXCL, mode: 0o600, uid: 0, gid: 0 }
}

fn made((status, body): (u32, Vec<u8>)) -> Opened {
    assert_eq!(status, 0);
    Opened::decode(&mut Reader::new(&body)).expect("a reply")
}

/// A process had given up a removal, which was executed late and whose answer was lost, and made
/// the file anew on the same lane. When the daemon had died both came again: the name was removed
/// once more, and the file that was acknowledged was gone.
#[test]
fn a_request_that_was_given_up_is_not_executed_behind_a_later_one_of_its_lane() {
    let mut asked = Asked::new();
    let [name, _] = asked.names();
    let remove = Unlink { walk: walk(&name), directory: false };
    made(asked.ask(1, &make(&name)));
    assert_eq!(asked.ask(2, &remove).0, 0);
    let file = made(asked.ask(3, &make(&name)));
    asked.start_again();
    assert_ne!(asked.ask(2, &remove).0, 0, "nobody hears of this");
    let again = made(asked.ask(3, &make(&name)));
    assert_eq!((again.attr.id, again.open), (file.attr.id, file.open));
}

/// A daemon died before it had committed two opens, the first of which had been given up. When it
/// was back the first one came again, and what the second had opened was nobody's for ever (the
/// simulator's seed 2100979).
#[test]
fn what_was_opened_goes_when_its_request_comes_again_behind_one_that_was_given_up() {
    let mut asked = Asked::new();
    let names = asked.names();
    let [first, second] = names.each_ref().map(|name| Open { flags: O_RDWR, ..make(name) });
    made(asked.ask(1, &make(&names[0])));
    made(asked.ask(2, &make(&names[1])));
    asked.arrive(3, &first);
    asked.arrive(4, &second);
    asked.start_again();
    made(asked.ask(3, &first));
    let last = made(asked.ask(4, &second));
    let open = asked.open_descriptions();
    assert!(open.contains(&last.open));
    assert_eq!(open.len(), 4, "{open:?}");
}

/// A rename waited for another node when its own node's daemon was killed, and failed when its
/// process had long made a file on the same lane. The answer to the rename took the place of the
/// one to this, which came again, since that daemon had been killed once more: it was executed a
/// second time (the simulator's seed 11178).
#[test]
fn an_answer_of_before_a_daemons_death_does_not_take_the_place_of_a_later_one_of_its_lane() {
    let mut asked = Asked::new();
    let [first, second] = asked.names();
    let [elsewhere, _] = asked.names_of(THERE);
    made(asked.ask(1, &make(&first)));
    asked.lost = Some(Vec::new());
    asked.arrive(2, &Rename { from: walk(&first), to: walk(&elsewhere), flags: 0 });
    assert!(asked.go_on().is_empty(), "it waits");
    let lost = asked.lost.take().expect("nobody was reached");
    asked.shard.core.node_reached(1, Reached::Restarted);
    let file = made(asked.ask(3, &make(&second)));
    for id in lost {
        asked.shard.core.deliver(THERE, Message::Answer(id, Answer::Failed(Errno::EIO)));
    }
    assert_eq!(asked.go_on().len(), 1, "it has failed");
    let again = made(asked.ask(3, &make(&second)));
    assert_eq!((again.attr.id, again.open), (file.attr.id, file.open));
}

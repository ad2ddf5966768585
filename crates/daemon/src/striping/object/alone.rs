//! A part of a striped file by itself: tests that speak to its shard as the file's home does, and
//! decide when the I/O pool does what.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_meta::record::{Layout, PartOf, Policy, Step};
use mayfly_transport_shm::layout::{APPENDED, StartedWrite, WRITE_STARTED_APPEND};
use mayfly_types::{Errno, FileId, OpenRef, SessionId};
use mayfly_wire::{Op, Write};

use crate::{
    api::Caller,
    message::{Answer, Append, At, Forward, Message, PartPlace, Question, Resolved, TransactionId},
    shard::alone::{Alone, CHUNK_LOG2, encoded, not_involved},
    shards::{
        numbering::{Numbering, session_elsewhere},
        slots::ShardId,
    },
    striping::arithmetic::Stripes,
};

/// The file's home, on the node of the processes.
const HOME: ShardId = ShardId(0);
const HERE: Numbering = Numbering { node: 1, nodes: 2, shards: 1 };
/// Where the part begins in the file.
const OFFSET: u64 = 1 << CHUNK_LOG2;
const OURS: &[u8] = b"what was appended";
const THEIRS: &[u8] = b"what others wrote";

struct Part {
    shard: Alone,
    place: PartPlace,
    /// The shard's answers to questions, by their numbers.
    answers: Vec<(u64, Answer)>,
    asked: u64,
    /// Of which generations the home was asked for admission.
    admitted: Vec<u32>,
    /// Nobody can write any more.
    closed: bool,
}

/// A request of a process, as this shard calls it.
fn caller(request_id: u64) -> Caller {
    Caller { session: session_elsewhere(0, SessionId(3)), lane: request_id as u32, request_id }
}

impl Part {
    fn new() -> Part {
        let shard = Alone::new(HERE);
        let file = (10..)
            .map(FileId)
            .find(|file| shard.core.place.slots.home(*file) == HOME)
            .expect("a home has files");
        let layout = Layout {
            first_server: 0,
            width: 2,
            policy: Policy::Stripe,
            chunk_log2: CHUNK_LOG2,
            tail: mayfly_types::Tail::default(),
            striped: true,
        };
        let place = PartPlace { file, part: PartOf { generation: 1, layout, index: 1 } };
        let (answers, admitted) = (Vec::new(), Vec::new());
        let mut part = Part { shard, place, answers, asked: 0, admitted, closed: false };
        part.meet();
        part
    }

    fn meet(&mut self) {
        self.shard.core.session_opened(caller(0).session, 100);
        self.go_on();
    }

    /// The daemon is killed and started again.
    fn start_again(&mut self) {
        self.shard.start_again();
        self.meet();
    }

    /// What is said is answered as the home does, until nothing more is said.
    fn go_on(&mut self) {
        loop {
            let (_, said) = self.shard.commit();
            if said.is_empty() {
                return;
            }
            for (to, message) in said {
                match message {
                    message if to == self.shard.core.place.shard => {
                        self.shard.core.deliver(to, message)
                    }
                    Message::Answer(id, answer) => self.answers.push((id, answer)),
                    Message::Ask(id, question) => {
                        let answer = match question {
                            Question::Admit { .. } if self.closed => Answer::Failed(Errno::EBADF),
                            Question::Admit { generation, index: 1, .. } => {
                                self.admitted.push(generation);
                                Answer::Done
                            }
                            Question::Returned => not_involved(),
                            other => panic!("{other:?}"),
                        };
                        self.shard.core.deliver(to, Message::Answer(id, answer));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// The pool has done everything.
    fn finish(&mut self) {
        while self.shard.core.run_job(0) {
            self.go_on();
        }
    }

    /// Asks, and returns the number of the question.
    fn ask(&mut self, question: Question) -> u64 {
        self.asked += 1;
        self.shard.core.deliver(HOME, Message::Ask(self.asked, question));
        self.go_on();
        self.asked
    }

    fn answer(&self, id: u64) -> Option<&Answer> {
        self.answers.iter().find(|of| of.0 == id).map(|of| &of.1)
    }

    /// Somebody writes at the beginning of the part.
    fn write(&mut self, request_id: u64) {
        let open = OpenRef { index: 0, generation: 0 };
        let write = Write { open, offset: OFFSET, append: false, bytes: THEIRS };
        let place = Resolved { at: At::Part(self.place), ..Resolved::default() };
        let (caller, body) = (caller(request_id), encoded(&write).into());
        let forward = Forward { caller, op: Op::Write, body, place };
        self.shard.core.deliver(HOME, Message::Forward(Box::new(forward)));
        self.go_on();
    }

    fn writes_under_way(&self) -> u32 {
        self.shard
            .core
            .striping
            .objects
            .active
            .get(&self.place.file)
            .map_or(0, |active| active.jobs)
    }

    fn hold(&mut self, append: Append) {
        let PartPlace { file, part } = self.place;
        let id = self.ask(Question::HoldEnd { file, generation: part.generation, append });
        self.finish();
        assert!(matches!(self.answer(id), Some(Answer::Part(_))));
    }

    fn append(&mut self, append: Append) -> Option<Answer> {
        let (place, bytes) = (self.place, OURS.to_vec());
        let id =
            self.ask(Question::AppendPart { place, append, offset: OFFSET, bytes, behind: false });
        self.finish();
        self.answer(id).cloned()
    }

    fn content(&self) -> Vec<u8> {
        self.shard
            .core
            .objects
            .read_up_to(self.place.object(), 0, 100)
            .expect("the object is there")
    }

    /// The home has appended, and the part has noted that it has the bytes.
    fn appended(append: Append) -> Part {
        let mut part = Part::new();
        part.hold(append);
        assert_eq!(part.append(append), Some(Answer::Done));
        assert_eq!(part.started(), [APPENDED]);
        part
    }

    fn notes(&self) -> impl Iterator<Item = &'static StartedWrite> {
        let node = self.shard.node;
        node.started_writes[0].iter().filter(|of| of.file.load(Relaxed) != 0)
    }

    /// The states of what was begun.
    fn started(&self) -> Vec<u32> {
        self.notes().map(|of| of.done.load(Relaxed)).collect()
    }

    /// As if the daemon had been killed while it wrote more.
    fn begin_again(&self) -> &'static StartedWrite {
        let note = self.notes().next().expect("something was begun");
        note.done.store(WRITE_STARTED_APPEND, Relaxed);
        note
    }
}

/// The home looks how long the file is.
const LOOK: Append = Append { number: 2, by: None };

/// The home's number for an append, and a request of a process of its node.
fn append_of(request_id: u64) -> Append {
    Append { number: 1, by: Some(caller(request_id)) }
}

/// The home of a file that was emptied and grew again does not know of parts that were admitted
/// before, and would neither ask them how far they reach nor have them removed.
#[test]
fn who_was_admitted_to_what_a_file_had_before_it_was_emptied_asks_again() {
    let mut part = Part::new();
    for (request, generation) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
        part.place.part.generation = generation;
        part.write(request);
        part.finish();
    }
    assert_eq!(part.admitted, [1, 2]);
}

/// A write had begun when a cut was decided, and others saw its bytes. Its daemon died before it
/// answered, and the write was made once more behind the cut.
#[test]
fn a_cut_waits_for_the_writes_that_are_under_way_at_a_part() {
    let mut part = Part::new();
    part.write(1);
    while part.writes_under_way() == 0 {
        assert!(part.shard.core.run_job(0), "the part is made ready first");
        part.go_on();
    }
    let PartPlace { file, part: of } = part.place;
    let steps = vec![Step::CutPart { id: file, part: of, size_bytes: 0 }];
    let cut = part.ask(Question::Prepare { transaction: TransactionId::new(1, HOME.0), steps });
    assert_eq!(part.answer(cut), None, "the write may be made twice");
    part.write(2);
    assert_eq!(part.writes_under_way(), 1, "what comes later waits for the cut");
    part.finish();
    assert!(matches!(part.answer(cut), Some(Answer::Prepared(_))));
}

/// Bytes were appended, and the part's daemon died before it had said so. Others wrote over them
/// before the home asked again; it was refused, and the bytes got another place as well.
#[test]
fn bytes_that_a_part_may_have_got_come_before_others_when_its_daemon_is_back() {
    let append = append_of(1);
    let mut part = Part::appended(append);
    // Nobody knows how much of it was written.
    part.begin_again().count.store(0, Relaxed);
    part.start_again();
    part.write(2);
    part.finish();
    assert_eq!(part.content(), OURS, "others wait");
    let again = Append { number: 2, ..append };
    part.hold(again);
    assert_eq!(part.append(again), Some(Answer::Done));
    part.finish();
    assert_eq!(part.content(), THEIRS, "and go on");
    let file = part.place.file;
    part.ask(Question::LetEnd { file, append: again });
    part.finish();
    assert_eq!(part.started(), [1], "what the write was answered stays until its lane goes on");
}

/// The same when the part knew that it had the bytes: nobody has to wait, and it does not write
/// them over what others have written since.
#[test]
fn a_part_knows_what_it_has_got_when_its_daemon_is_back() {
    let append = append_of(1);
    let mut part = Part::appended(append);
    part.start_again();
    part.write(2);
    part.finish();
    assert_eq!(part.content(), THEIRS);
    part.hold(append);
    assert_eq!(part.append(append), Some(Answer::Done));
    assert_eq!(part.content(), THEIRS);
}

/// The home only wants to know how long the file is, since its rounds do not agree.
#[test]
fn a_part_that_is_held_for_a_look_does_not_grow_until_it_is_over() {
    let mut part = Part::new();
    part.hold(LOOK);
    part.write(1);
    part.finish();
    assert_eq!(part.writes_under_way(), 0);
    let file = part.place.file;
    part.ask(Question::LetEnd { file, append: LOOK });
    part.finish();
    assert_eq!(part.content(), THEIRS);
}

/// The home was killed, and somebody looked before the append came again.
#[test]
fn a_look_does_not_make_a_part_forget_what_it_has_got() {
    let append = append_of(1);
    let mut part = Part::appended(append);
    part.write(2);
    part.finish();
    part.hold(LOOK);
    let file = part.place.file;
    part.ask(Question::LetEnd { file, append: LOOK });
    let again = Append { number: 3, ..append };
    part.hold(again);
    assert_eq!(part.append(again), Some(Answer::Done));
    assert_eq!(part.content(), THEIRS);
}

/// The home was killed as well, and the process that had appended.
#[test]
fn nobody_waits_for_an_append_that_does_not_come_again() {
    type Told = fn(&mut Part);
    let tell: [Told; 3] = [
        |part| {
            let file = part.place.file;
            part.ask(Question::LetEnd { file, append: Append { number: 0, ..append_of(1) } });
        },
        |part| part.hold(append_of(5)),
        |part| {
            let PartPlace { file, part: of } = part.place;
            part.ask(Question::SettlePart { file, generation: of.generation });
        },
    ];
    for tell in tell {
        let mut part = Part::appended(append_of(1));
        part.begin_again();
        part.start_again();
        part.write(2);
        part.finish();
        assert_eq!(part.content(), OURS);
        tell(&mut part);
        part.finish();
        assert_eq!(part.content(), THEIRS);
    }
}

/// A cut comes once more, when the file was emptied and has bytes again.
#[test]
fn a_cut_of_before_does_not_end_the_part_that_a_file_has_now() {
    let mut part = Part::new();
    let before = part.place.part;
    part.place.part.generation += 1;
    part.write(1);
    part.finish();
    let steps = vec![Step::CutPart { id: part.place.file, part: before, size_bytes: 2 * OFFSET }];
    let transaction = TransactionId::new(1, HOME.0);
    part.ask(Question::Apply { transaction, wave: 0, steps, last: true });
    part.finish();
    assert_eq!(part.content(), THEIRS);
}

/// The file's home is told how far the part reaches, for good.
fn settle(part: &mut Part) -> u64 {
    let PartPlace { file, part: of } = part.place;
    part.closed = true;
    part.ask(Question::SettlePart { file, generation: of.generation })
}

/// What was asked for before nobody could write any more was done behind the length that the file
/// has from then on (found by `mayfly fsck` after kills: its object was longer).
#[test]
fn a_part_does_not_grow_behind_what_it_has_told_for_a_settled_size() {
    let PartPlace { file, .. } = Part::new().place;
    let allocate = |place| {
        let (start, end) = (OFFSET, OFFSET + 4096);
        Question::AllocatePart { place, mode: 0, start, end, look: false }
    };
    let append = |place| {
        let (append, bytes) = (append_of(2), OURS.to_vec());
        Question::AppendPart { place, append, offset: OFFSET + 17, bytes, behind: false }
    };
    let late: [&dyn Fn(PartPlace) -> Question; 2] = [&allocate, &append];
    for late in late {
        let mut part = Part::new();
        part.write(1);
        part.finish();
        part.start_again();
        part.hold(append_of(2));
        let asked = part.ask(late(part.place));
        assert_eq!(part.answer(asked), None, "the object is looked at in the pool");
        let settled = settle(&mut part);
        // What was asked for last is looked at first.
        while part.shard.core.run_job(1) || part.shard.core.run_job(0) {
            part.go_on();
        }
        let Some(Answer::Part(facts)) = part.answer(settled) else { panic!("{file:?}") };
        let layout = part.place.part.layout;
        let length = part.shard.core.objects.attr(part.place.object()).expect("it is there");
        assert_eq!(facts.end_bytes, layout.end_of_part(1, length.size_bytes));
    }
}

/// The object was made behind its removal, and belonged to no file (found by `mayfly fsck` after
/// kills).
#[test]
fn the_object_of_a_part_that_goes_while_it_is_made_goes() {
    let mut part = Part::new();
    part.write(1);
    let PartPlace { file, part: of } = part.place;
    part.closed = true;
    let dropped = part.ask(Question::DropPart { file, generation: of.generation });
    assert_eq!(part.answer(dropped), Some(&Answer::Done));
    while part.shard.core.run_job(1) || part.shard.core.run_job(0) {
        part.go_on();
    }
    let left = part.shard.core.objects.attr(part.place.object());
    assert_eq!(left.err(), Some(Errno::ENOENT));
}

//! A keeper's process: asks its daemon for something to do by several lanes, does it in the
//! directory outside after a while, and says what came of it after another while.

use std::collections::VecDeque;

use mayfly_types::{Errno, limits::LANES};
use mayfly_wire::{
    Reader, Request, TierDone, TierItem, TierWork, Wire,
    tier::{NO_ATTR, TIER_CHUNKS, TIER_FLUSH, TIER_RENAME},
};

use super::external::{Done, External, Glimpse, undo};
use crate::{lanes::Lanes, node::Node};

/// Threads of the keeper.
const THREADS: usize = 4;
/// Bytes of an answer that go at once.
const PIECE_BYTES: usize = 4096;

const _: () = assert!(THREADS < LANES);

/// What a thread is at.
#[derive(Debug)]
enum Doing {
    /// Nothing.
    Idle,
    /// It has asked for work, by this request.
    Asks(u64),
    /// It has an item, and waits for its turn.
    Has(Vec<u8>),
    /// It has begun with it outside, or could not.
    Began(Vec<u8>, Result<Glimpse, Errno>),
    /// It has done it, or could not.
    Did(Vec<u8>, Result<Done, Errno>),
    /// It says what came of it, by this request; how much was said before.
    Tells(Vec<u8>, Result<Done, Errno>, u64, usize),
}

/// A keeper that lives.
#[derive(Debug)]
pub struct Keeper {
    node: usize,
    session: u32,
    lanes: Lanes,
    threads: [Doing; THREADS],
    /// Threads that have an item, in the order in which it came.
    order: VecDeque<usize>,
    /// Which of several.
    pub life: u64,
}

fn item_of(body: &[u8]) -> TierItem<'_> {
    TierItem::decode(&mut Reader::new(body)).expect("a daemon's items can be read")
}

/// What an item is about, for who looks at a run.
fn told(item: &TierItem<'_>) -> String {
    let path = String::from_utf8_lossy(item.path);
    let again = if item.again { " again" } else { "" };
    format!("{}: what {}{again} {path:?} file {:?}", item.number, item.what, item.file)
}

/// Names and objects of which one thing at a time is done.
fn busy_with(item: &TierItem<'_>) -> Vec<(bool, u64, Vec<u8>)> {
    match item.what {
        TIER_CHUNKS => vec![(true, item.number >> 32, item.other.to_vec())],
        TIER_RENAME => vec![(false, 0, item.path.to_vec()), (false, 0, item.other.to_vec())],
        _ => vec![(false, 0, item.path.to_vec())],
    }
}

fn is_in_the_way(other: &TierItem<'_>, item: &TierItem<'_>) -> bool {
    let (theirs, ours) = (busy_with(other), busy_with(item));
    ours.iter().any(|(object, daemon, name)| {
        theirs.iter().any(|(other_object, earlier, same)| match (object, other_object) {
            (true, true) => name == same && earlier < daemon,
            (false, false) => name == same,
            _ => false,
        })
    })
}

impl Keeper {
    /// Attaches one to the daemon of this node, if there is a number for its session.
    #[must_use]
    pub fn attach((number, node): (usize, &mut Node), life: u64) -> Option<Keeper> {
        let (session, lanes) = node.attach()?;
        let threads = [Doing::Idle, Doing::Idle, Doing::Idle, Doing::Idle];
        Some(Keeper { node: number, session, lanes, threads, order: VecDeque::new(), life })
    }

    /// It is killed. What it was at was done or was not, as `happens` says of each.
    pub fn kill(self, node: &mut Node, external: &mut External, mut happens: impl FnMut() -> bool) {
        for thread in self.threads {
            if let Doing::Began(item, Ok(seen)) = thread
                && happens()
            {
                let item = item_of(&item);
                let _nobody_hears = external.perform(self.node, &item, seen, &node.disk);
            }
        }
        external.keeper_died(self.node);
        node.detach(self.session);
    }

    /// Whether it has nothing to do, and has said what came of everything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.threads.iter().all(|doing| matches!(doing, Doing::Idle | Doing::Asks(_)))
    }

    /// What a thread is at.
    #[must_use]
    pub fn tell_of(&self, thread: usize) -> String {
        match &self.threads[thread] {
            Doing::Idle | Doing::Asks(_) => "nothing".to_owned(),
            Doing::Has(item) | Doing::Began(item, _) => told(&item_of(item)),
            Doing::Did(item, done) | Doing::Tells(item, done, ..) => {
                let done = done.as_ref().map(|done| (done.status, done.same));
                format!("{}: {done:?}", told(&item_of(item)))
            }
        }
    }

    /// Threads that ask, hear and go on; those that begin something outside, which fails as
    /// `fails` says of its kind.
    pub fn go_on(
        &mut self,
        node: &Node,
        external: &mut External,
        mut fails: impl FnMut(u32) -> Option<Errno>,
    ) -> Vec<usize> {
        for thread in 0..THREADS {
            self.hear(node, external, thread);
        }
        let mut begun = Vec::new();
        for thread in self.order.clone() {
            let Doing::Has(body) = &self.threads[thread] else { continue };
            let item = item_of(body);
            let waits = self.threads.iter().any(|doing| match doing {
                Doing::Began(theirs, _) => is_in_the_way(&item_of(theirs), &item),
                _ => false,
            });
            if !waits {
                let seen = match fails(item.what).filter(|_| !external.was_moved(&item)) {
                    Some(errno) => Err(errno),
                    None => external.glimpse(&item, &node.disk),
                };
                self.threads[thread] = Doing::Began(body.clone(), seen);
                begun.push(thread);
            }
        }
        begun
    }

    fn hear(&mut self, node: &Node, external: &mut External, thread: usize) {
        match &self.threads[thread] {
            Doing::Idle => self.ask(node, thread),
            Doing::Asks(request) => {
                let Some((status, body)) = self.lanes.reply(thread, *request) else { return };
                match status {
                    0 => {
                        self.threads[thread] = Doing::Has(body);
                        self.order.push_back(thread);
                    }
                    _ => self.ask(node, thread),
                }
            }
            Doing::Tells(_, _, request, _) => {
                let Some((status, _)) = self.lanes.reply(thread, *request) else { return };
                self.heard(node, external, thread, status);
            }
            Doing::Has(_) | Doing::Began(..) | Doing::Did(..) => {}
        }
    }

    fn heard(&mut self, node: &Node, external: &mut External, thread: usize, status: u32) {
        let doing = std::mem::replace(&mut self.threads[thread], Doing::Idle);
        let Doing::Tells(item, done, _, said) = doing else { return };
        let bytes = done.as_ref().map_or(0, |done| done.bytes.len());
        if status == 0 && said < bytes {
            return self.say(node, thread, item, done, said);
        }
        let item = item_of(&item);
        let lost = [Errno::ESTALE, Errno::EFBIG].map(|errno| errno.raw() as u32);
        if lost.contains(&status) {
            undo(&item, &node.disk);
        } else if item.what == TIER_FLUSH && status == 0 && done.is_ok_and(|done| done.status == 0)
        {
            external.forget_note(self.node, item.file);
        }
        self.ask(node, thread);
    }

    fn ask(&mut self, node: &Node, thread: usize) {
        let request = Request::TierWork(TierWork {});
        let request = self.lanes.submit(node.region(), thread, &request);
        self.threads[thread] = Doing::Asks(request);
    }

    /// A thread ends its item outside. False when it has none.
    pub fn perform(&mut self, node: &Node, external: &mut External, thread: usize) -> bool {
        let doing = std::mem::replace(&mut self.threads[thread], Doing::Idle);
        let Doing::Began(body, seen) = doing else {
            self.threads[thread] = doing;
            return false;
        };
        self.order.retain(|other| *other != thread);
        let item = item_of(&body);
        let done = seen.and_then(|seen| external.perform(self.node, &item, seen, &node.disk));
        self.threads[thread] = Doing::Did(body, done);
        true
    }

    /// A thread says what came of its item.
    pub fn tell(&mut self, node: &Node, thread: usize) {
        let doing = std::mem::replace(&mut self.threads[thread], Doing::Idle);
        match doing {
            Doing::Did(item, done) => self.say(node, thread, item, done, 0),
            doing => self.threads[thread] = doing,
        }
    }

    fn say(
        &mut self,
        node: &Node,
        thread: usize,
        item: Vec<u8>,
        done: Result<Done, Errno>,
        said: usize,
    ) {
        let number = item_of(&item).number;
        let failed = |errno: &Errno| {
            let status = errno.raw() as u32;
            Done { status, same: false, attr: NO_ATTR, bytes: Vec::new() }
        };
        let Done { status, same, attr, bytes } =
            done.as_ref().map_or_else(failed, |done: &Done| done.clone());
        let end = bytes.len().min(said + PIECE_BYTES);
        let (more, bytes) = (end < bytes.len(), &bytes[said..end]);
        let told = TierDone { number, status, more, same, attr, bytes };
        let request = self.lanes.submit(node.region(), thread, &Request::TierDone(told));
        self.threads[thread] = Doing::Tells(item, done, request, end);
    }
}

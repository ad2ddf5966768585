//! The keeper's process: asks the daemon for something to do by several lanes, does it in the
//! directory outside after a while, and says what came of it.

use std::collections::VecDeque;

use mayfly_types::{Errno, limits::LANES};
use mayfly_wire::{
    Reader, Request, TierDone, TierItem, TierWork, Wire,
    tier::{NO_ATTR, TIER_CHUNKS, TIER_FLUSH, TIER_RENAME},
};

use super::external::{Done, External, undo};
use crate::{lanes::Lanes, node::Node};

/// Threads of the keeper.
const THREADS: usize = 4;

const _: () = assert!(THREADS < LANES);

/// What a thread is at.
#[derive(Debug)]
enum Doing {
    /// Nothing.
    Idle,
    /// It has asked for work, by this request.
    Asks(u64),
    /// It has an item, and waits for its turn or for the directory outside.
    Has { item: Vec<u8>, begun: bool },
    /// It has said what came of it, by this request.
    Told { item: Vec<u8>, request: u64, failed: bool },
}

/// A keeper that lives.
#[derive(Debug)]
pub struct Keeper {
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
    /// Attaches one, if there is a number for its session.
    #[must_use]
    pub fn attach(node: &mut Node, life: u64) -> Option<Keeper> {
        let (session, lanes) = node.attach()?;
        let threads = [Doing::Idle, Doing::Idle, Doing::Idle, Doing::Idle];
        Some(Keeper { session, lanes, threads, order: VecDeque::new(), life })
    }

    /// It is killed. What it was at was done or was not, as `happens` says of each.
    pub fn kill(self, node: &mut Node, external: &mut External, mut happens: impl FnMut() -> bool) {
        for thread in &self.threads {
            if let Doing::Has { item, begun: true } = thread
                && happens()
            {
                let _nobody_hears = external.perform(&item_of(item), &node.disk);
            }
        }
        node.detach(self.session);
    }

    /// Threads that ask, hear and go on; those that begin something outside.
    pub fn go_on(&mut self, node: &Node, external: &mut External) -> Vec<usize> {
        for thread in 0..THREADS {
            self.hear(node, external, thread);
        }
        let mut begun = Vec::new();
        for thread in self.order.clone() {
            let Doing::Has { item, begun: false } = &self.threads[thread] else { continue };
            let item = item_of(item);
            let waits = self.threads.iter().enumerate().any(|(other, doing)| match doing {
                Doing::Has { item: theirs, begun: true } if other != thread => {
                    is_in_the_way(&item_of(theirs), &item)
                }
                _ => false,
            });
            if !waits {
                if let Doing::Has { begun, .. } = &mut self.threads[thread] {
                    *begun = true;
                }
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
                        self.threads[thread] = Doing::Has { item: body, begun: false };
                        self.order.push_back(thread);
                    }
                    _ => self.ask(node, thread),
                }
            }
            Doing::Told { item, request, failed } => {
                let Some((status, _)) = self.lanes.reply(thread, *request) else { return };
                let item = item_of(item);
                let lost = [Errno::ESTALE, Errno::EFBIG].map(|errno| errno.raw() as u32);
                if lost.contains(&status) {
                    undo(&item, &node.disk);
                } else if item.what == TIER_FLUSH && status == 0 && !failed {
                    external.forget_note(item.file);
                }
                self.ask(node, thread);
            }
            Doing::Has { .. } => {}
        }
    }

    fn ask(&mut self, node: &Node, thread: usize) {
        let request = Request::TierWork(TierWork {});
        let request = self.lanes.submit(node.region(), thread, &request);
        self.threads[thread] = Doing::Asks(request);
    }

    /// A thread has done its item, or could not.
    pub fn done(&mut self, node: &Node, external: &mut External, thread: usize, fails: bool) {
        let doing = std::mem::replace(&mut self.threads[thread], Doing::Idle);
        let Doing::Has { item, .. } = doing else { return };
        self.order.retain(|other| *other != thread);
        let told = item_of(&item);
        let done = match fails {
            true => Err(Errno::EIO),
            false => external.perform(&told, &node.disk),
        };
        let number = told.number;
        let failed = |errno: Errno| {
            let status = errno.raw() as u32;
            Done { status, same: false, attr: NO_ATTR, bytes: Vec::new() }
        };
        let is_failed = done.is_err();
        let Done { status, same, attr, bytes } = done.unwrap_or_else(failed);
        let done = TierDone { number, status, more: false, same, attr, bytes: &bytes };
        let request = self.lanes.submit(node.region(), thread, &Request::TierDone(done));
        self.threads[thread] = Doing::Told { item, request, failed: is_failed };
    }
}

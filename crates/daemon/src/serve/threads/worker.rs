//! The thread of a shard that takes no requests from clients: it acts on its inbox.
//!
//! To wake it is a switch of threads, and where there are few processors it has to wait for one,
//! while the thread that woke it has nothing to do. So the serving thread may take its place while
//! it sleeps, as the network thread takes that one's ([`super::leader`]): the loop is behind a
//! lock, which the thread has whenever it does not sleep. The serving thread does that only where
//! one client asks at a time. Of several it would keep the others waiting, and the two threads work
//! at the same time.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
};

use mayfly_transport_shm::layout::OPEN_SHARED;
use mayfly_types::SessionId;

use crate::serve::{
    Service,
    network::door::StandIn,
    threads::{
        driver::Driver,
        idle::{For, Idle},
        peers::{Report, ToShard},
        place::{Place, TURNS_MAX},
    },
};

/// The loop of such a thread.
#[derive(Debug)]
pub(in crate::serve) struct Worker<S> {
    shard: Driver<S>,
    idle: Idle,
    inbox: VecDeque<ToShard>,
    /// Sessions whose end is part of the batch.
    closed: Vec<SessionId>,
    recovering: bool,
    stopped: bool,
}

impl<S: Service> Worker<S> {
    pub(in crate::serve) fn new(shard: Driver<S>) -> Worker<S> {
        let idle = Idle::new(shard.peers.waker().clone());
        let (inbox, closed) = (VecDeque::new(), Vec::new());
        Worker { shard, idle, inbox, closed, recovering: true, stopped: false }
    }

    pub(in crate::serve) fn shard(&mut self) -> &mut Driver<S> {
        &mut self.shard
    }

    /// Works until told to stop, or until the store cannot commit.
    pub(in crate::serve) fn run(mut self)
    where
        S: Send + 'static,
    {
        self.begin();
        let (peers, moves) = (self.shard.peers.clone(), self.shard.service.may_move());
        let place = Arc::new(Place::new(peers.waker().clone()));
        if moves {
            let stand_in: Weak<Place<Worker<S>>> = Arc::downgrade(&place);
            peers.may_be_stood_in_for(stand_in);
        }
        live(&place, self);
    }

    /// Ends the batch of what opening the shard changed, and sends its first messages.
    pub(in crate::serve) fn begin(&mut self) {
        self.finish();
    }

    pub(in crate::serve) fn is_over(&self) -> bool {
        self.stopped || self.shard.failed().is_some()
    }

    /// Does what there is to do; false when that is nothing until somebody wakes it.
    pub(in crate::serve) fn turn(&mut self) -> bool {
        if self.shard.peers.waker().was_poked() {
            self.attend();
            self.finish();
        } else if self.shard.service.idle_work() {
            self.finish();
        } else {
            return false;
        }
        true
    }

    fn attend(&mut self) {
        self.shard.peers.take(&mut self.inbox);
        while let Some(item) = self.inbox.pop_front() {
            match item {
                ToShard::Message { from, message } => self.shard.deliver(from, message),
                ToShard::SessionOpened { pid, shared } => {
                    self.shard.open_session(shared.number(), pid);
                    self.shard.server.share_session(shared);
                }
                ToShard::SessionClosed(session) => {
                    self.shard.close_session(session);
                    self.shard.server.remove_session(session);
                    self.closed.push(session);
                }
                ToShard::StrangerCame { session, pid } => {
                    self.shard.service.session_opened(session, pid);
                }
                ToShard::StrangerLeft(session) => self.shard.close_session(session),
                ToShard::StrangersAre { node, sessions } => {
                    self.shard.end_strangers(node, &sessions);
                }
                ToShard::NodeReached { node, reached } => self.shard.node_reached(node, reached),
                ToShard::OpenReleased { index, generation } => self.release(index, generation),
                ToShard::Stop => self.stopped = true,
                ToShard::Report(_) => {}
            }
        }
    }

    /// The entry may have been freed and used again since the serving thread looked.
    fn release(&mut self, index: u32, generation: u32) {
        let entry = self.shard.node().opens.get(index as usize);
        let same = entry.is_some_and(|entry| {
            entry.state.load(Relaxed) == OPEN_SHARED && entry.generation.load(Relaxed) == generation
        });
        if same {
            self.shard.release(index);
        }
    }

    /// Ends the batch, and says what it ended. The number of a session may be used again then: what
    /// the batch had to say to other shards about the old one is in their inboxes.
    fn finish(&mut self) {
        self.shard.finish();
        if let Some(errno) = self.shard.failed() {
            self.shard.peers.report(Report::Failed(errno));
            return;
        }
        for session in self.closed.drain(..) {
            self.shard.peers.report(Report::SessionGone(session));
        }
        if self.recovering && !self.shard.service.is_recovering() {
            self.recovering = false;
            self.shard.peers.report(Report::Recovered);
        }
    }
}

/// The thread's life. It has the lock whenever it does not sleep.
fn live<S: Service>(place: &Place<Worker<S>>, worker: Worker<S>) {
    let mut held = place.lock();
    let mut worker = held.insert(worker);
    while !worker.is_over() {
        if worker.turn() {
            continue;
        }
        let Some(wakes) = worker.idle.lie_down(For::Waker, || None) else { continue };
        let at_most = worker.shard.service.due();
        held = place.sleep(held, (wakes, at_most));
        let Some(back) = held.as_mut() else { unreachable!("nobody else takes it") };
        worker = back;
        worker.idle.rise();
    }
    *held = None;
}

impl<S: Service + Send> StandIn for Place<Worker<S>> {
    fn stand_in(&self) {
        Place::stand_in(self, |worker| {
            stand_in(worker) && !self.oversleeps(worker.shard.service.due())
        });
    }
}

/// Takes a few turns; false when somebody has to go on.
fn stand_in<S: Service>(worker: &mut Worker<S>) -> bool {
    worker.idle.rise();
    for _ in 0..TURNS_MAX {
        // The thread finds the same, and ends.
        if worker.is_over() {
            break;
        }
        if !worker.turn() && worker.idle.is_over(For::Waker) {
            return true;
        }
    }
    worker.idle.give_up_place();
    false
}

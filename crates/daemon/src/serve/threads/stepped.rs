//! A daemon without threads, driven by hand: for the simulator.
//!
//! The loops are those of a real daemon ([`crate::serve::run`]); what decides when each goes on,
//! what carries messages to other nodes and what the supervisor says is handed in.

use std::{fmt, sync::Arc, time::Duration};

use mayfly_transport_shm::{layout::NodeRegion, server::Server};

use crate::{
    Numbering,
    serve::{
        Ending, HostEnvironment, Known, Opener, PeerNetwork, Service, Waker,
        network::net::Net,
        threads::{
            driver::Driver,
            idle::For,
            peers::Peers,
            rounds::{Serving, Turn},
            start::{is_committed, map_sessions, place, say},
            worker::Worker,
        },
    },
};

/// What surrounds a daemon.
pub struct Surroundings {
    /// The node region, whose count of starts includes this one.
    pub node: &'static NodeRegion,
    /// All shards.
    pub numbering: Numbering,
    /// The sessions that exist.
    pub sessions: Vec<Known>,
    /// The supervisor and the kernel.
    pub host: Box<dyn HostEnvironment>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("numbering", &self.numbering).finish_non_exhaustive()
    }
}

/// What became of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Something; there may be more.
    Done,
    /// Nothing, until [`Stepped::has_work`].
    Idle,
    /// The daemon has ended.
    Over(Ending),
}

/// The daemon. To drop it is to kill it.
#[derive(Debug)]
pub struct Stepped<S> {
    serving: Serving<S, Box<dyn HostEnvironment>>,
    workers: Vec<Worker<S>>,
}

impl<S: Service> Stepped<S> {
    /// Opens all shards and takes up what is there. `connect` makes the connections to other nodes
    /// and is given what to wake when something has come.
    ///
    /// # Errors
    /// A shard cannot be opened, and why.
    pub fn start<O: Opener<Service = S>>(
        surroundings: Surroundings,
        connect: impl FnOnce(Waker) -> Box<dyn PeerNetwork>,
        opener: &O,
    ) -> Result<Stepped<S>, String> {
        let Surroundings { node, numbering, sessions, host } = surroundings;
        let waker = Waker::new(node);
        let mut peers = Peers::new(waker.clone(), numbering);
        let network = connect(waker.clone());
        let deadline_ms = node.head.deadline_ms.load(std::sync::atomic::Ordering::Relaxed);
        let deadline = Duration::from_millis(deadline_ms.into());
        peers.connect(Arc::new(Net::over(network, deadline, numbering, node, waker)));
        let here = place(node, &sessions, &peers);
        let mut server = Server::new(node);
        let (lanes, sessions) = map_sessions(sessions, &mut server);
        let views: Vec<Peers> = std::iter::once(peers.clone()).chain(peers.others()).collect();
        let (mut opened, mut committed) = (Vec::new(), Vec::new());
        for peers in views {
            let place = here.of(&peers);
            let (store, last) = opener.store(&place).map_err(say)?;
            committed.push(last);
            opened.push((place, peers, store));
        }
        for at in &lanes {
            server.judge(*at, |transaction| is_committed(&committed, transaction));
        }
        let mut shards = Vec::new();
        let mut server = Some(server);
        for (place, peers, store) in opened {
            let service = opener.service(&place, store).map_err(say)?;
            let server = server.take().unwrap_or_else(|| Server::new(node));
            shards.push(Driver::new(service, server, peers));
        }
        let mut shards = shards.into_iter();
        let first = shards.next().ok_or("a daemon has a shard")?;
        let mut serving = Serving::new(first, host, lanes);
        let mut workers: Vec<Worker<S>> = shards.map(Worker::new).collect();
        let starts = node.head.daemon_starts.load(std::sync::atomic::Ordering::Relaxed);
        serving.take_up(sessions, starts > 1);
        serving.begin();
        workers.iter_mut().for_each(Worker::begin);
        Ok(Stepped { serving, workers })
    }

    /// One turn of a shard's loop.
    pub fn turn(&mut self, shard: u32) -> Step {
        match self.worker(shard) {
            None => match self.serving.turn() {
                Turn::Done => Step::Done,
                Turn::Idle(_) => Step::Idle,
                Turn::Over(ending) => Step::Over(ending),
            },
            Some(worker) => {
                let went = !worker.is_over() && worker.turn();
                if went { Step::Done } else { Step::Idle }
            }
        }
    }

    /// Whether somebody has woken a shard's loop since its last turn.
    pub fn has_work(&mut self, shard: u32) -> bool {
        match self.worker(shard) {
            None => {
                let what = if self.serving.is_open() { For::Requests } else { For::Waker };
                self.serving.shard.peers.waker().is_called(what)
            }
            Some(worker) => worker.shard().peers.waker().is_called(For::Waker),
        }
    }

    /// Wakes the loop that listens to the supervisor.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.serving.shard.peers.waker().clone()
    }

    /// A shard.
    pub fn service(&mut self, shard: u32) -> &mut S {
        match shard.checked_sub(1) {
            None => &mut self.serving.shard.service,
            Some(worker) => &mut self.workers[worker as usize].shard().service,
        }
    }

    fn worker(&mut self, shard: u32) -> Option<&mut Worker<S>> {
        self.workers.get_mut((shard as usize).checked_sub(1)?)
    }
}

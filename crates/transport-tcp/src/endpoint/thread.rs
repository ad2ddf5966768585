//! A network thread, and what it has: the connections to its part of the nodes.
//!
//! The first one has the socket that others call at. Who calls is known when the first message of
//! the handshake is there; the connection then goes to the thread that has the caller's node. So
//! the two sides of a connection need not have as many threads, and a node is always at one thread:
//! what goes to one node and comes from it keeps its order.

use std::{
    io,
    net::TcpListener,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, TryLockError, atomic::Ordering::SeqCst},
    time::Duration,
};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use super::{Finder, Shared, lock};
use crate::{
    Event, NodeId,
    clock::{Clock as _, MonotonicClock},
    complaints::{Complaints, Log},
    core::{Command, Core, LISTENER, POKE, Parts, SharedClock},
    handshake::Identity,
    limits::Limits,
    peer::Gauges,
    watch::Watch,
};

/// Events of epoll handled at a time.
const EVENTS_AT_ONCE: usize = 256;

/// Which of so many threads has the connections to a node.
pub(crate) fn of_node(node: NodeId, threads: usize) -> usize {
    node.0 as usize % threads
}

/// Whether a turn at the core brought anything for the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    None,
    Some,
}

pub(super) struct NetworkThread {
    core: Mutex<Core>,
    commands: Mutex<Vec<Command>>,
    epoll: Arc<OwnedFd>,
    poke: Arc<OwnedFd>,
}

impl NetworkThread {
    pub(super) fn new(
        (me, limits, clock, gauges): (Identity, Limits, SharedClock, Arc<Gauges>),
        number: usize,
        listener: Option<TcpListener>,
        log: Log,
    ) -> io::Result<NetworkThread> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let poke = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&*epoll, &*poke, epoll::EventData::new_u64(POKE), epoll::EventFlags::IN)?;
        let core = Core::new(Parts {
            me,
            thread: number,
            limits,
            clock,
            complaints: Complaints::new(log),
            epoll: Arc::clone(&epoll),
            poke: Arc::clone(&poke),
            listener,
            gauges,
        })?;
        Ok(NetworkThread { core: Mutex::new(core), commands: Mutex::default(), epoll, poke })
    }

    pub(super) fn command(&self, command: Command) {
        lock(&self.commands).push(command);
    }

    pub(super) fn poke(&self) {
        // It is full only when the thread has been poked before and will look.
        let _ = rustix::io::write(&*self.poke, &1_u64.to_ne_bytes());
    }

    /// Waits for what comes; true when something has.
    fn wait(&self, events: &mut Vec<epoll::Event>, patience: Option<Duration>) -> bool {
        let timeout = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let room = rustix::buffer::spare_capacity(events);
        // Interrupted is as good as woken.
        matches!(epoll::wait(&*self.epoll, room, timeout.as_ref()), Ok(1..))
    }
}

impl Shared {
    /// Does what is wanted of all threads.
    pub(super) fn serve_all(&self) {
        (0..self.threads.len()).for_each(|thread| self.serve(thread));
    }

    /// Does what is wanted of a thread, unless another one has its core: that one does it, since it
    /// looks at the list again after it has given the core back.
    pub(super) fn serve(&self, number: usize) {
        let thread = &self.threads[number];
        while !lock(&thread.commands).is_empty() {
            let mut core = match thread.core.try_lock() {
                Ok(core) => core,
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            core.begin();
            let news = self.drive(thread, &mut core);
            drop(core);
            self.wake_for(news, Finder::Caller);
        }
    }

    /// Ends a turn at the core. Events are put into the inbox while the core is still held. So they
    /// lie there in their order.
    fn drive(&self, thread: &NetworkThread, core: &mut Core) -> News {
        core.apply_all(lock(&thread.commands));
        core.flush();
        for (to, connection) in core.moved() {
            self.threads[to].command(Command::Adopt(connection));
            // Its thread does it: this one holds a core.
            self.threads[to].poke();
        }
        let mut deliveries = core.deliveries().peekable();
        if deliveries.peek().is_none() {
            return News::None;
        }
        let mut inbox = lock(&self.inbox);
        for delivery in deliveries {
            match delivery.event {
                Event::Peer { node, state } => {
                    inbox.states.insert(node, state);
                }
                _ => inbox.events.push_back(delivery),
            }
        }
        News::Some
    }

    fn wake_for(&self, news: News, finder: Finder) {
        if news == News::Some {
            (self.wake)(finder);
        }
    }

    /// A network thread's life.
    pub(super) fn run(&self, number: usize) {
        let thread = &self.threads[number];
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
        // Looking takes time of the processor, whatever clock the endpoint was given.
        let clock = MonotonicClock::default();
        let mut watch = Watch::new(std::thread::available_parallelism().map_or(1, usize::from));
        while !self.stopping.load(SeqCst) {
            let mut core = lock(&thread.core);
            let patience = core.sleep();
            // Where long bodies travel, processor time is what is short.
            let may_look = !events.is_empty() && core.is_brief();
            drop(core);
            events.clear();
            // A command that came while the core was held is not left behind.
            self.serve(number);
            let mut wait = |patience| thread.wait(&mut events, patience);
            if may_look {
                watch.wait(patience, || clock.now_ns(), wait);
            } else {
                wait(patience);
            }
            let mut core = lock(&thread.core);
            core.awake();
            for event in &events {
                match event.data.u64() {
                    LISTENER => core.accept(),
                    POKE => {
                        let _ = rustix::io::read(&*thread.poke, &mut [0; 8]);
                    }
                    token => core.ready(token, event.flags),
                }
            }
            core.tick();
            let news = self.drive(thread, &mut core);
            drop(core);
            self.wake_for(news, Finder::Network);
        }
    }
}

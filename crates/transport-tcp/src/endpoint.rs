//! The door: what a daemon holds in its hands.
//!
//! One network thread for all nodes, or several with a part of the nodes each (`thread.rs`). A
//! sender puts what it wants into that thread's list and takes its core for a moment to write it;
//! if another thread has the core, that one writes it too. So a message goes out without waking a
//! thread, nobody waits for a lock that is held while sockets are served, and what several threads
//! send at a time travels in one system call.
//!
//! What arrives is put into the inbox and the program is woken. The inbox is bounded: requests by
//! the credits of their senders, replies and losses by this program's own requests, states of nodes
//! by the number of nodes (only the latest is kept).

mod thread;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

pub(crate) use self::thread::of_node;

use self::thread::NetworkThread;
use crate::{
    Body, Class, Encryption, Event, Lane, NodeId, PeerState, RequestId, Secret, Ticket,
    clock::{Clock, ms},
    core::{Command, Delivery, SharedClock},
    handshake::Identity,
    limits::{Limits, NODES_MAX, THREADS_MAX},
    peer::Gauges,
};

/// What an endpoint is made of.
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// Grows with every start of this node's daemon; not 0.
    pub incarnation: u64,
    /// What the nodes of the instance know and nobody else.
    pub secret: Secret,
    /// Which instance.
    pub instance: [u8; 16],
    /// Where the others connect to.
    pub listener: TcpListener,
    /// Whether frames are sealed.
    pub encryption: Encryption,
    /// How long to wait, how much to queue.
    pub limits: Limits,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Called when [`Endpoint::take`] has something. It may call the endpoint.
    pub wake: Box<dyn Fn(Finder) + Send + Sync>,
    /// Takes lines for people. It must not call the endpoint.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
}

/// Whose thread has found that there is something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Finder {
    /// That of somebody who called the endpoint, with whatever it holds.
    Caller,
    /// The network thread, which holds nothing. Nobody looks after the sockets until it is back.
    Network,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Why a message was not accepted. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendError {
    /// It is longer than its lane allows.
    TooLong,
    /// Too many requests of the class to the node are without a reply. [`Event::Room`] will say
    /// when to try again.
    Full,
    /// There is no such node, or it is this one.
    NoSuchNode,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::TooLong => "the message is longer than its lane allows",
            SendError::Full => "too many requests to the node are without a reply",
            SendError::NoSuchNode => "there is no such node",
        })
    }
}

impl std::error::Error for SendError {}

/// A request on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Who shall answer.
    pub to: NodeId,
    /// Which connection it takes. The reply may take another one.
    pub lane: Lane,
    /// Its class.
    pub class: Class,
    /// How long its sender waits, milliseconds; then it is [`Event::Lost`].
    pub patience_ms: u64,
    /// Nobody waits for the reply: it may wait for something else that goes to the same node, for
    /// some milliseconds.
    pub may_wait: bool,
    /// What it says.
    pub body: Body,
}

#[derive(Debug, Default)]
struct Inbox {
    events: VecDeque<Delivery>,
    states: BTreeMap<NodeId, PeerState>,
}

struct Shared {
    /// Each has the nodes whose number it is when divided by how many there are.
    threads: Box<[NetworkThread]>,
    inbox: Mutex<Inbox>,
    gauges: Arc<Gauges>,
    clock: SharedClock,
    node: NodeId,
    outstanding_max: u32,
    next_id: AtomicU64,
    stopping: AtomicBool,
    wake: Box<dyn Fn(Finder) + Send + Sync>,
}

/// Connections to the other nodes of the instance. Dropping it ends them; what is under way is
/// neither delivered nor reported.
pub struct Endpoint {
    shared: Arc<Shared>,
    address: SocketAddr,
    running: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("node", &self.shared.node).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Listens; connects to nobody yet.
    ///
    /// # Errors
    /// What the kernel says when it has no descriptors or threads left; `InvalidInput` for a node
    /// number that cannot be, an incarnation of 0, or a number of threads that is not from 1 to
    /// [`THREADS_MAX`].
    pub fn new(config: Config) -> io::Result<Endpoint> {
        let count = config.limits.threads;
        let is_right = config.node.0 < NODES_MAX && config.incarnation != 0;
        if !is_right || !(1..=THREADS_MAX).contains(&count) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let address = config.listener.local_addr()?;
        let (gauges, clock) = (Arc::<Gauges>::default(), SharedClock(config.clock));
        let me = Identity {
            node: config.node,
            incarnation: config.incarnation,
            instance: config.instance,
            secret: config.secret,
            encryption: config.encryption,
        };
        let (log, mut listener) = (Arc::new(config.log), Some(config.listener));
        let thread = |number| {
            let (log, listener) = (Arc::clone(&log), listener.take());
            let known = (me.clone(), config.limits, clock.clone(), Arc::clone(&gauges));
            NetworkThread::new(known, number, listener, Box::new(move |line| log(line)))
        };
        let threads = (0..count).map(thread).collect::<io::Result<_>>()?;
        let shared = Arc::new(Shared {
            threads,
            inbox: Mutex::default(),
            gauges,
            clock,
            node: config.node,
            outstanding_max: config.limits.outstanding_max,
            next_id: AtomicU64::new(1),
            stopping: AtomicBool::new(false),
            wake: config.wake,
        });
        let mut endpoint = Endpoint { shared, address, running: Vec::new() };
        for number in 0..count {
            let runner = Arc::clone(&endpoint.shared);
            let thread = std::thread::Builder::new().name("mayfly-net".into());
            endpoint.running.push(thread.spawn(move || runner.run(number))?);
        }
        Ok(endpoint)
    }

    /// Where this endpoint listens.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Where a node listens, or that nobody knows. Connections that are up stay. Either side of a
    /// pair must know the other's: a reply may need a lane that its asker never opened.
    pub fn set_address(&self, node: NodeId, address: Option<SocketAddr>) {
        if node.0 < NODES_MAX && node != self.shared.node {
            self.shared.command(node, Command::Address(node, address));
            self.shared.serve_all();
        }
    }

    /// Sends a request. It ends with exactly one [`Event::Reply`] or [`Event::Lost`].
    ///
    /// # Errors
    /// [`SendError`]; then there will be no event.
    pub fn request(&self, request: Request) -> Result<RequestId, SendError> {
        let id = self.queue(request)?;
        self.shared.serve_all();
        Ok(id)
    }

    /// As [`Endpoint::request`], but it may wait for [`Endpoint::flush`], so that several go out in
    /// one system call.
    ///
    /// # Errors
    /// [`SendError`]; then there will be no event.
    pub fn queue(&self, request: Request) -> Result<RequestId, SendError> {
        let Request { to, lane, class, patience_ms, may_wait, body } = request;
        if to.0 >= NODES_MAX || to == self.shared.node {
            return Err(SendError::NoSuchNode);
        }
        check_length(lane, &body)?;
        if !self.shared.gauges.of(to).enter(lane, class, self.shared.outstanding_max) {
            return Err(SendError::Full);
        }
        // By its number it is known which thread has it.
        let (number, threads) = (self.shared.next_id.fetch_add(1, SeqCst), &self.shared.threads);
        let id = RequestId(number * threads.len() as u64 + self.shared.thread_of(to) as u64);
        let deadline_ns = self.shared.clock.0.now_ns().saturating_add(ms(patience_ms));
        let command = Command::Request { id, to, lane, class, deadline_ns, may_wait, body };
        self.shared.command(to, command);
        Ok(id)
    }

    /// So many requests of one class to one node may be under way.
    #[must_use]
    pub fn outstanding_max(&self) -> usize {
        self.shared.outstanding_max as usize
    }

    /// Sends what was queued, requests and replies.
    pub fn flush(&self) {
        self.shared.serve_all();
    }

    /// Answers a request. A second answer, or one to a daemon that was replaced, goes nowhere.
    ///
    /// # Errors
    /// [`SendError::TooLong`].
    pub fn reply(&self, ticket: Ticket, lane: Lane, body: Body) -> Result<(), SendError> {
        self.queue_reply(ticket, lane, body, false)?;
        self.shared.serve_all();
        Ok(())
    }

    /// As [`Endpoint::reply`], but it may wait for [`Endpoint::flush`]; when nobody waits for it
    /// also as a request with [`Request::may_wait`] does.
    ///
    /// # Errors
    /// [`SendError::TooLong`].
    pub fn queue_reply(
        &self,
        ticket: Ticket,
        lane: Lane,
        body: Body,
        may_wait: bool,
    ) -> Result<(), SendError> {
        check_length(lane, &body)?;
        self.shared.command(ticket.node, Command::Reply { ticket, lane, may_wait, body });
        Ok(())
    }

    /// Nobody waits for the reply any more, or only a little: a request that was not sent is
    /// [`Event::Lost`], the server of one that was sent hears [`Event::Cancelled`] and answers.
    pub fn cancel(&self, id: RequestId) {
        let thread = (id.0 % self.shared.threads.len() as u64) as usize;
        self.shared.threads[thread].command(Command::Cancel(id));
        self.shared.serve(thread);
    }

    /// Appends what has happened, and gives the credits of the requests among it back.
    pub fn take(&self, events: &mut Vec<Event>) {
        self.take_some(events, usize::MAX);
    }

    /// As [`Endpoint::take`], but no more than `max` events.
    pub fn take_some(&self, events: &mut Vec<Event>, max: usize) {
        let mut credits: [Vec<_>; THREADS_MAX] = Default::default();
        {
            let mut inbox = lock(&self.shared.inbox);
            let states = std::mem::take(&mut inbox.states);
            events.extend(states.into_iter().map(|(node, state)| Event::Peer { node, state }));
            let count = max.min(inbox.events.len());
            for Delivery { event, credit } in inbox.events.drain(..count) {
                events.push(event);
                if let Some(credit) = credit {
                    credits[self.shared.thread_of(credit.node)].push(credit);
                }
            }
        }
        for (thread, credits) in credits.into_iter().enumerate() {
            if !credits.is_empty() {
                self.shared.threads[thread].command(Command::Taken(credits));
                self.shared.serve(thread);
            }
        }
    }

    /// Looks at the clock, for who has moved it.
    pub fn look(&self) {
        self.shared.threads.iter().for_each(NetworkThread::poke);
    }
}

fn check_length(lane: Lane, body: &Body) -> Result<(), SendError> {
    if body.len() > lane.bytes_max() { Err(SendError::TooLong) } else { Ok(()) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.stopping.store(true, SeqCst);
        self.look();
        // The last holder may be a waker that a network thread itself runs.
        let is_here = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        for thread in self.running.drain(..).filter(|thread| !is_here(thread)) {
            // It ends by itself; a panic in it was said when it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Which thread has the connections to a node.
    fn thread_of(&self, node: NodeId) -> usize {
        of_node(node, self.threads.len())
    }

    fn command(&self, node: NodeId, command: Command) {
        self.threads[self.thread_of(node)].command(command);
    }
}

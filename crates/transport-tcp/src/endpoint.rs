//! The door: what a daemon holds in its hands.
//!
//! One network thread for all nodes. A sender puts what it wants into a list and takes the core for
//! a moment to write it; if another thread has the core, that one writes it too. So a message goes
//! out without waking a thread, nobody waits for a lock that is held while sockets are served, and
//! what several threads send at a time travels in one system call.
//!
//! What arrives is put into the inbox and the program is woken. The inbox is bounded: requests by
//! the credits of their senders, replies and losses by this program's own requests, states of nodes
//! by the number of nodes (only the latest is kept).

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use crate::{
    Body, Class, Encryption, Event, Lane, NodeId, PeerState, RequestId, Secret, Ticket,
    clock::{Clock, MonotonicClock, ms},
    complaints::Complaints,
    core::{Command, Core, Delivery, LISTENER, POKE, Parts, SharedClock},
    handshake::Identity,
    limits::{Limits, NODES_MAX},
    peer::Gauges,
    watch::Watch,
};

/// Events of epoll handled at a time.
const EVENTS_AT_ONCE: usize = 256;

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
    /// What it says.
    pub body: Body,
}

#[derive(Debug, Default)]
struct Inbox {
    events: VecDeque<Delivery>,
    states: BTreeMap<NodeId, PeerState>,
}

/// Whether a turn at the core brought anything for the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    None,
    Some,
}

struct Shared {
    core: Mutex<Core>,
    commands: Mutex<Vec<Command>>,
    inbox: Mutex<Inbox>,
    gauges: Arc<Gauges>,
    epoll: Arc<OwnedFd>,
    poke: Arc<OwnedFd>,
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
    thread: Option<JoinHandle<()>>,
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
    /// number that cannot be or an incarnation of 0.
    pub fn new(config: Config) -> io::Result<Endpoint> {
        if config.node.0 >= NODES_MAX || config.incarnation == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let address = config.listener.local_addr()?;
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let poke = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&*epoll, &*poke, epoll::EventData::new_u64(POKE), epoll::EventFlags::IN)?;
        let (gauges, clock) = (Arc::<Gauges>::default(), SharedClock(config.clock));
        let core = Core::new(Parts {
            me: Identity {
                node: config.node,
                incarnation: config.incarnation,
                instance: config.instance,
                secret: config.secret,
                encryption: config.encryption,
            },
            limits: config.limits,
            clock: clock.clone(),
            complaints: Complaints::new(config.log),
            epoll: Arc::clone(&epoll),
            poke: Arc::clone(&poke),
            listener: config.listener,
            gauges: Arc::clone(&gauges),
        })?;
        let shared = Arc::new(Shared {
            core: Mutex::new(core),
            commands: Mutex::default(),
            inbox: Mutex::default(),
            gauges,
            epoll,
            poke,
            clock,
            node: config.node,
            outstanding_max: config.limits.outstanding_max,
            next_id: AtomicU64::new(1),
            stopping: AtomicBool::new(false),
            wake: config.wake,
        });
        let runner = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("mayfly-net".into()).spawn(move || runner.run())?;
        Ok(Endpoint { shared, address, thread: Some(thread) })
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
            self.shared.command(Command::Address(node, address));
            self.shared.serve();
        }
    }

    /// Sends a request. It ends with exactly one [`Event::Reply`] or [`Event::Lost`].
    ///
    /// # Errors
    /// [`SendError`]; then there will be no event.
    pub fn request(&self, request: Request) -> Result<RequestId, SendError> {
        let id = self.queue(request)?;
        self.shared.serve();
        Ok(id)
    }

    /// As [`Endpoint::request`], but it may wait for [`Endpoint::flush`], so that several go out in
    /// one system call.
    ///
    /// # Errors
    /// [`SendError`]; then there will be no event.
    pub fn queue(&self, request: Request) -> Result<RequestId, SendError> {
        let Request { to, lane, class, patience_ms, body } = request;
        if to.0 >= NODES_MAX || to == self.shared.node {
            return Err(SendError::NoSuchNode);
        }
        check_length(lane, &body)?;
        if !self.shared.gauges.of(to).enter(lane, class, self.shared.outstanding_max) {
            return Err(SendError::Full);
        }
        let id = RequestId(self.shared.next_id.fetch_add(1, SeqCst));
        let deadline_ns = self.shared.clock.0.now_ns().saturating_add(ms(patience_ms));
        self.shared.command(Command::Request { id, to, lane, class, deadline_ns, body });
        Ok(id)
    }

    /// So many requests of one class to one node may be under way.
    #[must_use]
    pub fn outstanding_max(&self) -> usize {
        self.shared.outstanding_max as usize
    }

    /// Sends what was queued, requests and replies.
    pub fn flush(&self) {
        self.shared.serve();
    }

    /// Answers a request. A second answer, or one to a daemon that was replaced, goes nowhere.
    ///
    /// # Errors
    /// [`SendError::TooLong`].
    pub fn reply(&self, ticket: Ticket, lane: Lane, body: Body) -> Result<(), SendError> {
        self.queue_reply(ticket, lane, body)?;
        self.shared.serve();
        Ok(())
    }

    /// As [`Endpoint::reply`], but it may wait for [`Endpoint::flush`].
    ///
    /// # Errors
    /// [`SendError::TooLong`].
    pub fn queue_reply(&self, ticket: Ticket, lane: Lane, body: Body) -> Result<(), SendError> {
        check_length(lane, &body)?;
        self.shared.command(Command::Reply { ticket, lane, body });
        Ok(())
    }

    /// Nobody waits for the reply any more, or only a little: a request that was not sent is
    /// [`Event::Lost`], the server of one that was sent hears [`Event::Cancelled`] and answers.
    pub fn cancel(&self, id: RequestId) {
        self.shared.command(Command::Cancel(id));
        self.shared.serve();
    }

    /// Appends what has happened, and gives the credits of the requests among it back.
    pub fn take(&self, events: &mut Vec<Event>) {
        self.take_some(events, usize::MAX);
    }

    /// As [`Endpoint::take`], but no more than `max` events.
    pub fn take_some(&self, events: &mut Vec<Event>, max: usize) {
        let mut credits = Vec::new();
        {
            let mut inbox = lock(&self.shared.inbox);
            let states = std::mem::take(&mut inbox.states);
            events.extend(states.into_iter().map(|(node, state)| Event::Peer { node, state }));
            let count = max.min(inbox.events.len());
            for Delivery { event, credit } in inbox.events.drain(..count) {
                events.push(event);
                credits.extend(credit);
            }
        }
        if !credits.is_empty() {
            self.shared.command(Command::Taken(credits));
            self.shared.serve();
        }
    }

    /// Looks at the clock, for who has moved it.
    pub fn look(&self) {
        self.shared.poke();
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
        self.shared.poke();
        // The last holder may be a waker that the network thread itself runs.
        let is_here = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| !is_here(thread)) {
            // It ends by itself; a panic in it was said when it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn command(&self, command: Command) {
        lock(&self.commands).push(command);
    }

    fn poke(&self) {
        // It is full only when the thread has been poked before and will look.
        let _ = rustix::io::write(&*self.poke, &1_u64.to_ne_bytes());
    }

    /// Does what is wanted, unless another thread has the core: that one does it, since it looks at
    /// the list again after it has given the core back.
    fn serve(&self) {
        while !lock(&self.commands).is_empty() {
            let mut core = match self.core.try_lock() {
                Ok(core) => core,
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            core.begin();
            let news = self.drive(&mut core);
            drop(core);
            self.wake_for(news, Finder::Caller);
        }
    }

    /// Ends a turn at the core. Events are put into the inbox while the core is still held. So they
    /// lie there in their order.
    fn drive(&self, core: &mut Core) -> News {
        core.apply_all(lock(&self.commands));
        core.flush();
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

    /// The network thread.
    fn run(&self) {
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
        // Looking takes time of the processor, whatever clock the endpoint was given.
        let clock = MonotonicClock::default();
        let mut watch = Watch::new(std::thread::available_parallelism().map_or(1, usize::from));
        while !self.stopping.load(SeqCst) {
            let mut core = lock(&self.core);
            let patience = core.sleep();
            // Where long bodies travel, processor time is what is short.
            let may_look = !events.is_empty() && core.is_brief();
            drop(core);
            events.clear();
            // A command that came while the core was held is not left behind.
            self.serve();
            let mut wait = |patience| self.wait(&mut events, patience);
            if may_look {
                watch.wait(patience, || clock.now_ns(), wait);
            } else {
                wait(patience);
            }
            let mut core = lock(&self.core);
            core.awake();
            for event in &events {
                match event.data.u64() {
                    LISTENER => core.accept(),
                    POKE => {
                        let _ = rustix::io::read(&*self.poke, &mut [0; 8]);
                    }
                    token => core.ready(token, event.flags),
                }
            }
            core.tick();
            let news = self.drive(&mut core);
            drop(core);
            self.wake_for(news, Finder::Network);
        }
    }

    /// Waits for what comes; true when something has.
    fn wait(&self, events: &mut Vec<epoll::Event>, patience: Option<Duration>) -> bool {
        let timeout = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let room = rustix::buffer::spare_capacity(events);
        // Interrupted is as good as woken.
        matches!(epoll::wait(&*self.epoll, room, timeout.as_ref()), Ok(1..))
    }
}

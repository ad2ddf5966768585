//! A node: what outlives its daemons, and the daemon that runs at the moment.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet, VecDeque},
    os::fd::OwnedFd,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
};

use mayfly_daemon::{
    Clock, Config, Consistency, Directories, LeaseTimes, Link, Numbering, Roles, Seams, Shard,
    Survivors, Totals, WriteBack,
    serve::{
        Event, HostEnvironment, Known, Opener, Place,
        channel::Message,
        releases::Released,
        stepped::{Step, Stepped, Surroundings},
    },
};
use mayfly_meta::{MemoryDisk, MemoryStore, Store, record::Policy};
use mayfly_object::{BY_HAND, ObjectStore};
use mayfly_transport_shm::{
    layout::{DAEMON_ABSENT, LAYOUT_VERSION, MAGIC, NodeRegion},
    region,
};
use mayfly_types::{
    Durability, SessionId, Times, Timestamp,
    limits::{CHUNK_BYTES_DEFAULT, DEADLINE_MS_DEFAULT, LEASE_SECONDS},
};

use crate::{
    bytes::CHUNK_BYTES,
    dice::Dice,
    disk::{Disk, Forgetful},
    fuse::{Fuse, Fused, until_death},
    lanes::Lanes,
    network::{Shared, SimPeerNetwork},
};

/// Identity of the simulated instance.
const INSTANCE: u64 = 77;
/// Seconds since the epoch at which runs begin.
const EPOCH_SECONDS: i64 = 1_000_000_000;
/// Space of a node, bytes.
const CAPACITY_BYTES: u64 = 1 << 30;
/// Request ids of a session, as the supervisor deals them out.
const REQUESTS_LOG2: u64 = 44;

/// A node's clock: virtual time, and how far this one is off.
#[derive(Debug, Clone, Default)]
pub struct SimClock {
    now_ns: Arc<AtomicU64>,
    /// How far it is off, nanoseconds.
    pub off_ns: Arc<AtomicI64>,
}

impl SimClock {
    /// One that shows the same time, and may be off by itself.
    #[must_use]
    pub fn another(&self) -> SimClock {
        SimClock { now_ns: Arc::clone(&self.now_ns), off_ns: Arc::default() }
    }

    /// Time goes on.
    pub fn set(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let ns = self.now_ns.load(Relaxed) as i64 + self.off_ns.load(Relaxed);
        let seconds = EPOCH_SECONDS + ns.div_euclid(1_000_000_000);
        Timestamp { seconds, nanoseconds: ns.rem_euclid(1_000_000_000) as u32 }
    }

    fn elapsed(&self) -> Timestamp {
        let ns = self.now_ns.load(Relaxed);
        let seconds = (ns / 1_000_000_000) as i64;
        Timestamp { seconds, nanoseconds: (ns % 1_000_000_000) as u32 }
    }
}

#[derive(Debug, Default)]
struct World {
    events: VecDeque<Event>,
    messages: Vec<Message>,
}

/// The supervisor and the kernel, as the daemon meets them.
#[derive(Debug, Clone, Default)]
struct SimHost(Rc<RefCell<World>>);

impl HostEnvironment for SimHost {
    fn take(&mut self) -> VecDeque<Event> {
        std::mem::take(&mut self.0.borrow_mut().events)
    }

    fn take_releases(&mut self) -> Released {
        Released::default()
    }

    fn tell(&mut self, message: &Message) {
        self.0.borrow_mut().messages.push(message.clone());
    }

    fn watch(&mut self, _session: SessionId, _process: OwnedFd) {}

    fn forget(&mut self, _session: SessionId) {}

    fn ended(&mut self) -> Vec<SessionId> {
        Vec::new()
    }

    fn held(&self) -> HashSet<u32> {
        HashSet::new()
    }
}

struct Shards {
    metas: Vec<MemoryDisk>,
    disk: Arc<Disk>,
    clock: SimClock,
    totals: Arc<Totals>,
    forgetful: Option<u64>,
    placing: Placing,
    fuse: Fuse,
    origin: Option<Option<u64>>,
    policy: CachePolicy,
}

/// Where the chunks of files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Chunks {
    /// All of a file at its home.
    #[default]
    AtHome,
    /// On all nodes in turn, some blocks each.
    OnAll,
    /// All of a file on the node whose client makes it.
    AtMaker,
    /// At home, and a file that is longer than a chunk goes on at others, as if its
    /// home were full.
    Outgrowing,
    /// On all nodes in turn, so many bytes each.
    Striped(u64),
}

/// What is dirty goes back by itself, and there may be little space.
#[derive(Debug, Clone, Copy, Default)]
pub struct CachePolicy {
    /// When it goes back.
    pub write_back: WriteBack,
    /// Space of a node, bytes, if that is short.
    pub space_bytes: Option<u64>,
    /// Names of a directory that is being listed are looked at alone after so long, milliseconds,
    /// if that is not what it is elsewhere.
    pub patience_ms: Option<u64>,
}

/// Where everything is.
#[derive(Debug, Clone)]
pub struct Placing {
    /// Chunks of files.
    pub chunks: Chunks,
    /// Names of directories.
    pub directories: Directories,
    /// Names, and parts of files.
    pub roles: Roles,
    /// When what is written is seen by whom.
    pub consistency: Consistency,
}

impl Opener for Shards {
    type Store = Box<dyn Store>;
    type Service = Shard;
    type Error = String;

    fn store(&self, place: &Place) -> Result<(Box<dyn Store>, u64), String> {
        let disk = &self.metas[place.shard() as usize];
        let store: Box<dyn Store> = match self.forgetful {
            None => {
                let store = MemoryStore::open(disk, CAPACITY_BYTES);
                Box::new(Fused::new(store, self.fuse.clone()))
            }
            Some(seed) => {
                let dice = Dice::new(seed, u64::from(place.shard()));
                Box::new(Forgetful::open(disk, CAPACITY_BYTES, dice))
            }
        };
        let committed = store.committed_transaction();
        Ok((store, committed))
    }

    fn service(&self, place: &Place, store: Box<dyn Store>) -> Result<Shard, String> {
        let waker = place.waker();
        let objects: Arc<dyn ObjectStore> = Arc::<Disk>::clone(&self.disk);
        let parts = Seams {
            store,
            objects,
            node: place.node(),
            clock: Box::new(self.clock.clone()),
            shard: place.shard(),
            numbering: place.numbering(),
            totals: Arc::clone(&self.totals),
            wake: Box::new(move || waker.wake()),
        };
        let survivors = Survivors { sessions: place.sessions().to_vec() };
        let capacity_bytes = self.policy.space_bytes.unwrap_or(CAPACITY_BYTES);
        let config = Config { capacity_bytes, ..config(&self.placing) };
        let opened = Shard::open(config, parts, &survivors);
        let mut shard = opened.map_err(|error| error.to_string())?;
        if let Some(valid_ms) = self.origin {
            let link = Link::default();
            shard.link_origins(&[link], valid_ms).map_err(|error| error.to_string())?;
            shard.write_back(self.policy.write_back);
            if let Some(patience_ms) = self.policy.patience_ms {
                shard.look_alone_after(patience_ms);
            }
        }
        Ok(shard)
    }
}

fn config(placing: &Placing) -> Config {
    let home_bytes_max = match placing.chunks {
        // More than fits in a record, so that there is an object to outgrow.
        Chunks::Outgrowing => 2 * CHUNK_BYTES as u64,
        _ => u64::MAX,
    };
    let (chunk_bytes, width, policy) = match placing.chunks {
        Chunks::AtHome => (CHUNK_BYTES_DEFAULT, 1, Policy::Stripe),
        Chunks::OnAll => (CHUNK_BYTES as u64, u16::MAX, Policy::Stripe),
        Chunks::Outgrowing => (CHUNK_BYTES as u64, 1, Policy::Stripe),
        Chunks::AtMaker => (CHUNK_BYTES_DEFAULT, 1, Policy::Local),
        Chunks::Striped(chunk_bytes) => (chunk_bytes, u16::MAX, Policy::Stripe),
    };
    Config {
        instance: INSTANCE,
        mount: b"/mnt".to_vec(),
        capacity_bytes: CAPACITY_BYTES,
        home_bytes_max,
        chunk_bytes,
        policy,
        pool: 0,
        pools: Vec::new(),
        width,
        roles: placing.roles.clone(),
        times: Times::Mtime,
        durability: Durability::Process,
        locks: true,
        uid: 1,
        gid: 1,
        cached_dentries_max: 100,
        directories: placing.directories,
        leases: LeaseTimes {
            seconds: LEASE_SECONDS,
            at_rest_ms: 1,
            consistency: placing.consistency,
        },
        io_threads: BY_HAND,
        processors: usize::MAX,
    }
}

type Region = (OwnedFd, &'static NodeRegion);

thread_local! {
    /// Regions stay mapped for good, so those of earlier runs are used again.
    static REGIONS: RefCell<Vec<Region>> = const { RefCell::new(Vec::new()) };
}

fn fresh_region() -> (OwnedFd, &'static NodeRegion) {
    let settings = region::NodeSettings {
        instance: INSTANCE,
        times: 1,
        locks: 1,
        deadline_ms: DEADLINE_MS_DEFAULT as u32,
    };
    let Some((fd, node)) = REGIONS.with_borrow_mut(Vec::pop) else {
        return region::make_node(&settings).expect("memory for a node region");
    };
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&fd, flags, 0, size_of::<NodeRegion>() as u64)
        .expect("a memory file gives its pages back");
    let head = &node.head;
    head.version.store(LAYOUT_VERSION, Relaxed);
    head.instance.store(INSTANCE, Relaxed);
    head.times.store(settings.times, Relaxed);
    head.locks.store(settings.locks, Relaxed);
    head.deadline_ms.store(settings.deadline_ms, Relaxed);
    head.magic.store(MAGIC, Relaxed);
    (fd, node)
}

struct Session {
    pid: u32,
    region: OwnedFd,
}

/// A node.
pub struct Node {
    number: u32,
    numbering: Numbering,
    region: Option<(OwnedFd, &'static NodeRegion)>,
    metas: Vec<MemoryDisk>,
    /// Its objects.
    pub disk: Arc<Disk>,
    /// Its clock.
    pub clock: SimClock,
    /// When its daemon dies in the middle of something.
    pub fuse: Fuse,
    /// Its daemon, while there is one.
    pub daemon: Option<Stepped<Shard>>,
    host: SimHost,
    sessions: BTreeMap<u32, Session>,
    ending: Vec<u32>,
    free: VecDeque<u32>,
    sessions_made: u64,
    last_pid: u32,
    null: OwnedFd,
    forgetful: Option<u64>,
    placing: Placing,
    /// How long what is seen of the root's origin is believed, milliseconds, if it has one.
    origin: Option<Option<u64>>,
    policy: CachePolicy,
    /// Daemons so far.
    pub lives: u64,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Node {
    /// Without a daemon yet. With `forgetful` its stores break their promise.
    #[must_use]
    pub fn new(
        numbering: Numbering,
        clock: SimClock,
        forgetful: Option<u64>,
        placing: Placing,
    ) -> Node {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty());
        Node {
            number: numbering.node,
            numbering,
            region: Some(fresh_region()),
            metas: (0..numbering.shards).map(|_| MemoryDisk::default()).collect(),
            disk: Arc::default(),
            clock,
            fuse: Fuse::default(),
            daemon: None,
            host: SimHost::default(),
            sessions: BTreeMap::new(),
            ending: Vec::new(),
            free: (1..200).collect(),
            sessions_made: 0,
            last_pid: 100,
            null: null.expect("there is a null device"),
            forgetful,
            placing,
            origin: None,
            policy: CachePolicy::default(),
            lives: 0,
        }
    }

    /// The root shows a directory outside; what is seen there is believed so long, milliseconds.
    pub fn link_origin(&mut self, valid_ms: Option<u64>) {
        self.origin = Some(valid_ms);
    }

    /// What is dirty goes back by itself, and there may be little space, bytes.
    pub fn keep_policy(&mut self, policy: CachePolicy) {
        self.policy = policy;
    }

    /// The number of its first shard.
    #[must_use]
    pub fn first_shard(&self) -> u32 {
        self.numbering.node * self.numbering.shards
    }

    /// The node region.
    #[must_use]
    pub fn region(&self) -> &'static NodeRegion {
        self.region.as_ref().expect("until it is dropped").1
    }

    /// Starts a daemon; false when it died meanwhile.
    ///
    /// # Errors
    /// It cannot be opened, and why.
    pub fn start(&mut self, network: &Shared) -> Result<bool, String> {
        let node = self.region();
        node.head.daemon_state.store(DAEMON_ABSENT, SeqCst);
        let starts = node.head.daemon_starts.fetch_add(1, Relaxed) + 1;
        self.lives = u64::from(starts);
        self.disk.forget();
        self.host = SimHost::default();
        let sessions = self.sessions.iter().map(|(number, session)| Known {
            session: SessionId(*number),
            pid: session.pid,
            region: session.region.try_clone().expect("a descriptor"),
            process: self.null.try_clone().expect("a descriptor"),
        });
        let surroundings = Surroundings {
            node,
            numbering: self.numbering,
            sessions: sessions.collect(),
            host: Box::new(self.host.clone()),
        };
        let opener = Shards {
            metas: self.metas.clone(),
            disk: Arc::clone(&self.disk),
            clock: self.clock.clone(),
            totals: Arc::new(Totals::new(self.numbering.shards)),
            forgetful: self.forgetful.map(|seed| seed + u64::from(starts)),
            placing: self.placing.clone(),
            fuse: self.fuse.clone(),
            origin: self.origin,
            policy: self.policy,
        };
        let (network, number, fuse) = (network.clone(), self.number, self.fuse.clone());
        let connect = |waker: mayfly_daemon::serve::Waker| {
            network.lock().begin(number, u64::from(starts), waker);
            Box::new(SimPeerNetwork::new(network.clone(), number, fuse)) as Box<_>
        };
        let started = until_death(|| Stepped::start(surroundings, connect, &opener)).transpose()?;
        self.daemon = started;
        Ok(self.daemon.is_some())
    }

    /// The daemon is killed. Each thing that it had asked its disk for happened or did not.
    pub fn kill(&mut self, network: &Shared, dice: &mut Dice) {
        let Some(mut daemon) = self.daemon.take() else { return };
        for shard in 0..self.numbering.shards {
            while dice.once_in(2) && daemon.service(shard).run_job(0) {}
        }
        drop(daemon);
        network.lock().end(self.number);
        self.region().head.daemon_state.store(DAEMON_ABSENT, SeqCst);
        let ending = std::mem::take(&mut self.ending);
        self.free.extend(ending);
    }

    /// A turn of a shard's loop; `None` when the daemon died in it.
    pub fn turn(&mut self, shard: u32) -> Option<Step> {
        let daemon = self.daemon.as_mut();
        let step = daemon.map_or(Some(Step::Idle), |daemon| until_death(|| daemon.turn(shard)));
        let told = std::mem::take(&mut self.host.0.borrow_mut().messages);
        for message in told {
            if let Message::Ended(session) = message
                && let Some(place) = self.ending.iter().position(|of| *of == session.0)
            {
                self.ending.swap_remove(place);
                self.free.push_back(session.0);
            }
        }
        step
    }

    /// Whether a shard's loop has something to do.
    pub fn has_work(&mut self, shard: u32) -> bool {
        self.daemon.as_mut().is_some_and(|daemon| daemon.has_work(shard))
    }

    /// The next commit of a shard fails.
    pub fn fail_commit(&self, shard: u32) {
        self.metas[shard as usize].fail_next_commit();
    }

    /// What a shard has committed.
    #[must_use]
    pub fn records(&self, shard: u32) -> MemoryStore {
        MemoryStore::open(&self.metas[shard as usize], CAPACITY_BYTES)
    }

    fn poke(&self, event: Event) {
        if self.daemon.is_some() {
            self.host.0.borrow_mut().events.push_back(event);
            // As the thread does that waits for the supervisor.
            mayfly_daemon::serve::Waker::wake(&self.waker());
        }
    }

    fn waker(&self) -> mayfly_daemon::serve::Waker {
        self.daemon.as_ref().expect("a daemon lives").waker()
    }

    /// A process attaches: the number of its session and its side of it. `None`: no number is free.
    pub fn attach(&mut self) -> Option<(u32, Lanes)> {
        let number = self.free.pop_front()?;
        self.sessions_made += 1;
        self.last_pid += 1;
        let pid = self.last_pid;
        let region = region::make_session(SessionId(number), pid).expect("memory for a session");
        let theirs = region.try_clone().expect("a descriptor");
        let event = Event::Session {
            session: SessionId(number),
            pid,
            region: region.try_clone().expect("a descriptor"),
            process: self.null.try_clone().expect("a descriptor"),
        };
        self.poke(event);
        self.sessions.insert(number, Session { pid, region });
        Some((number, Lanes::new(theirs, number, self.sessions_made << REQUESTS_LOG2)))
    }

    /// The process of a session is gone.
    pub fn detach(&mut self, number: u32) {
        if self.sessions.remove(&number).is_none() {
            return;
        }
        if self.daemon.is_some() {
            self.ending.push(number);
            self.poke(Event::End(SessionId(number)));
        } else {
            self.free.push_back(number);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.daemon = None;
        if let Some(region) = self.region.take() {
            REGIONS.with_borrow_mut(|regions| regions.push(region));
        }
    }
}

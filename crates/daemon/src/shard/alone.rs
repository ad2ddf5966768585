//! A shard by itself, for tests that speak to it as the others do: the only one of its node, whose
//! store is in memory and whose I/O pool does something when it is told to.

use std::sync::Arc;

use mayfly_meta::{MemoryDisk, MemoryStore, record::Policy};
use mayfly_object::{BY_HAND, DirectoryStore};
use mayfly_transport_shm::{
    layout::NodeRegion,
    region::{self, NodeSettings},
};
use mayfly_types::{Durability, SessionId, Times};
use mayfly_wire::{Operation, Writer};

use crate::{
    api::{Completion, Config, Consistency, Directories, LeaseTimes, Survivors, SystemClock},
    message::{Answer, Message},
    shard::{Seams, Shard},
    shards::{numbering::Numbering, roles::Roles, slots::ShardId, totals::Totals},
};

pub(crate) const CHUNK_LOG2: u8 = 16;
pub(crate) const BODY_BYTES: usize = 4096;
const CAPACITY_BYTES: u64 = 1 << 30;

pub(crate) struct Alone {
    pub(crate) core: Shard,
    pub(crate) node: &'static NodeRegion,
    disk: MemoryDisk,
    objects: tempfile::TempDir,
    numbering: Numbering,
    consistency: Consistency,
}

fn config(consistency: Consistency) -> Config {
    Config {
        instance: 1,
        mount: b"/mnt/mayfly".to_vec(),
        capacity_bytes: CAPACITY_BYTES,
        home_bytes_max: u64::MAX,
        chunk_bytes: 1 << CHUNK_LOG2,
        policy: Policy::Stripe,
        width: u16::MAX,
        pool: 0,
        pools: Vec::new(),
        roles: Roles::default(),
        times: Times::Mtime,
        durability: Durability::Process,
        locks: true,
        uid: 0,
        gid: 0,
        cached_dentries_max: 64,
        directories: Directories::Spread,
        leases: LeaseTimes { seconds: 1, at_rest_ms: 0, consistency },
        io_threads: BY_HAND,
        processors: usize::MAX,
    }
}

fn open(
    node: &'static NodeRegion,
    disk: &MemoryDisk,
    objects: &tempfile::TempDir,
    (numbering, consistency): (Numbering, Consistency),
    survivors: &Survivors,
) -> Shard {
    let parts = Seams {
        store: Box::new(MemoryStore::open(disk, CAPACITY_BYTES)),
        objects: Arc::new(DirectoryStore::open(objects.path()).expect("a directory")),
        node,
        clock: Box::new(SystemClock),
        shard: 0,
        numbering,
        totals: Arc::new(Totals::new(1)),
        wake: Box::new(|| {}),
    };
    Shard::open(config(consistency), parts, survivors).expect("it opens")
}

impl Alone {
    pub(crate) fn new(numbering: Numbering) -> Alone {
        Alone::with(numbering, Consistency::Strict)
    }

    pub(crate) fn with(numbering: Numbering, consistency: Consistency) -> Alone {
        let settings = NodeSettings { instance: 1, times: 0, locks: 0, deadline_ms: 60_000 };
        let node = region::make_node(&settings).expect("there is memory").1;
        let (disk, objects) = (MemoryDisk::default(), tempfile::tempdir().expect("there is room"));
        let core = open(node, &disk, &objects, (numbering, consistency), &Survivors::default());
        Alone { core, node, disk, objects, numbering, consistency }
    }

    /// The daemon is killed, with what it has not committed, and started again.
    pub(crate) fn start_again(&mut self) {
        self.survive(&[]);
    }

    /// The same, and these sessions are still there.
    pub(crate) fn survive(&mut self, sessions: &[(SessionId, u32)]) {
        let survivors = Survivors { sessions: sessions.to_vec() };
        let place = (self.numbering, self.consistency);
        self.core = open(self.node, &self.disk, &self.objects, place, &survivors);
    }

    /// Everything is committed: what was executed, and what is said.
    pub(crate) fn commit(&mut self) -> (Vec<Completion>, Vec<(ShardId, Message)>) {
        self.core.commit().expect("the store is in memory");
        let mut done: Vec<Completion> = self.core.completions().collect();
        done.extend(self.core.answers());
        self.core.commit().expect("the store is in memory");
        (done, self.core.outbox())
    }
}

/// What a shard of another node answers that has no part in anything.
pub(crate) fn not_involved() -> Answer {
    Answer::Involved { operations: Vec::new(), executed: Vec::new() }
}

pub(crate) fn encoded<'a, O: Operation<'a>>(request: &O) -> Vec<u8> {
    let mut body = vec![0; BODY_BYTES];
    let mut to = Writer::new(&mut body);
    request.encode(&mut to).expect("there is room");
    let used = to.used();
    body.truncate(used);
    body
}

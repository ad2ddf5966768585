//! Opening a shard: a new one, or one whose daemon died.
//!
//! The store gives back every acknowledged operation. Open files are in the node region, which the
//! supervisor kept: each entry is checked against the store and against who still lives. What
//! nobody holds any more is finished as its owner would have: orphans are removed, sizes settled,
//! locks dropped.

use std::{fmt, sync::atomic::Ordering::Relaxed};

use mayfly_meta::{
    Scan, StoreError, key,
    record::{BirthKey, Content, Counters, DirectoryNode, Instance, SlotRanges, decode_locks},
};
use mayfly_object::{Jobs, ObjectId};
use mayfly_transport_tcp::Bytes;
use mayfly_types::{Errno, FileId, OpenRef};

use super::{
    Core, Fault, Outcome, Parts,
    background::Work,
    begun::Begun,
    chase,
    claims::Claims,
    data::{BLOCK_BYTES, object_of},
    delegation::Delegations,
    distant::{Distant, is_distant},
    home::{Located, Ownership},
    lending::Lendings,
    part,
    preparation::Preparations,
    removed::Removed,
    run::Run,
    striped,
    task::Tasks,
};
use crate::{
    api::{Config, Survivors},
    cache::DentryCache,
    locks::{LockTable, Owner},
    maps::HashMap,
    opens::{Found, OpenTable},
    slots::SlotTable,
};

/// Above so many bits, the age of an operation and the number of a wait have the number of starts
/// of its daemon.
const STARTS_SHIFT: u32 = 32;

/// Why a shard cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The store refuses.
    Store(StoreError),
    /// The store belongs to another instance.
    OtherInstance(u64),
    /// The chunk size differs from the one that the instance was made with, in bytes.
    OtherChunkSize(u64),
    /// The store is another shard's.
    OtherShard(u32),
    /// The instance was made with so many shards that own names.
    OtherShards(u32),
    /// Names belonged to other shards when the instance was made.
    OtherOwners,
    /// Something failed on the way.
    Failed(Errno),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Store(error) => write!(f, "{error}"),
            OpenError::OtherInstance(id) => {
                write!(f, "the data directory belongs to another instance ({id:016x})")
            }
            OpenError::OtherChunkSize(bytes) => {
                write!(f, "the data directory was made with a chunk size of {bytes} bytes")
            }
            OpenError::OtherShard(shard) => {
                write!(f, "the metadata directory belongs to shard {shard}")
            }
            OpenError::OtherShards(shards) => {
                write!(f, "the data directory was made with {shards} shards")
            }
            OpenError::OtherOwners => {
                write!(f, "the data directory was made with other metadata nodes")
            }
            OpenError::Failed(errno) => write!(f, "cannot take up the metadata: {errno}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        OpenError::Store(error)
    }
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        OpenError::Failed(fault.errno())
    }
}

impl Core {
    /// Opens a shard on what its parts hold.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: Config, parts: Parts, survivors: &Survivors) -> Result<Core, OpenError> {
        let Parts { store, objects, node, clock, shard, numbering, totals, wake } = parts;
        let now = clock.now();
        // Numbers of an earlier daemon may still be in use elsewhere.
        let first_number = u64::from(node.head.daemon_starts.load(Relaxed)) << STARTS_SHIFT;
        let mut core = Core {
            store,
            objects,
            clock,
            node,
            alone: numbering.all() == 1,
            run: Run::default(),
            tasks: Tasks::default(),
            claims: Claims::default(),
            operations: HashMap::default(),
            next_age: first_number,
            finished: HashMap::default(),
            finished_elsewhere: HashMap::default(),
            remembered: HashMap::default(),
            shard: numbering.shard(shard),
            numbering,
            jobs: Jobs::new(config.io_threads, wake),
            preparations: Preparations::default(),
            work: Work::default(),
            begun: Begun::default(),
            slots: SlotTable::of(1, &config.roles.owners(numbering)),
            cache: DentryCache::new(config.cached_dentries_max),
            looked_up: None,
            key: key::DentryKey::default(),
            touched: None,
            touched_record: (FileId::NONE, Vec::new()),
            removed: Removed::default(),
            parts: part::Table::default(),
            striped: striped::Striped::numbered_from(first_number),
            mounts: super::mounts::Mounts::default(),
            numbers: HashMap::default(),
            spared_orphans: Vec::new(),
            appends: HashMap::default(),
            opens: OpenTable::new(node, shard, numbering.shards),
            opened_content: None,
            written: Vec::new(),
            lent: Bytes::default(),
            record: Vec::new(),
            delegations: Delegations::new(&node.head),
            lendings: Lendings::default(),
            locks: LockTable::numbered_from(first_number),
            chases: chase::Chases::default(),
            sessions: survivors
                .sessions
                .iter()
                .map(|(session, pid)| (*session, (*pid).into()))
                .collect(),
            distant: Distant::default(),
            counters: Counters::default(),
            counters_saved: Counters::default(),
            charged_bytes: 0,
            now,
            uncommitted: Vec::new(),
            ready: Vec::new(),
            unclaimed_opens: HashMap::default(),
            requests: 0,
            steps: 0,
            totals,
            config,
        };
        core.take_up()?;
        Ok(core)
    }

    /// Goes on with what an earlier daemon left.
    fn take_up(&mut self) -> Result<(), OpenError> {
        let awaited = self.judge_posted();
        self.take_up_store()?;
        self.take_up_opens(&awaited);
        self.take_up_lent();
        self.take_up_appends().map_err(OpenError::Failed)?;
        self.take_up_orphans()?;
        self.take_up_parts()?;
        self.take_up_cuts()?;
        self.take_up_unsettled()?;
        self.take_up_locks()?;
        self.take_up_doomed()?;
        self.take_up_operations()?;
        // Behind these: they may be cuts of such files.
        self.take_up_gone()?;
        self.take_up_begun();
        self.take_up_posted();
        self.commit().map_err(OpenError::Failed)?;
        self.node.head.slot_table_version.store(self.slots.version(), Relaxed);
        Ok(())
    }

    fn take_up_store(&mut self) -> Result<(), OpenError> {
        let Some(record) = self.store.get(key::INSTANCE)? else { return self.make_root() };
        let instance = Instance::decode(record)?;
        if instance.id != self.config.instance {
            return Err(OpenError::OtherInstance(instance.id));
        }
        if 1 << instance.chunk_log2 != self.config.chunk_bytes {
            return Err(OpenError::OtherChunkSize(1 << instance.chunk_log2));
        }
        if instance.shard != self.shard.0 {
            return Err(OpenError::OtherShard(instance.shard));
        }
        if let Some(record) = self.store.get(key::SLOTS)? {
            let made_with = SlotTable::from_record(&SlotRanges::decode(record)?);
            if made_with.shards() != self.slots.shards() {
                return Err(OpenError::OtherShards(made_with.shards()));
            }
            if made_with != self.slots {
                return Err(OpenError::OtherOwners);
            }
        }
        let missing = StoreError::Corrupt("the counters are missing");
        self.counters = Counters::decode(self.store.get(key::COUNTERS)?.ok_or(missing)?)?;
        self.counters_saved = self.counters;
        Ok(())
    }

    fn make_root(&mut self) -> Result<(), OpenError> {
        let chunk_log2 = self.config.chunk_bytes.trailing_zeros() as u8;
        let shard = self.shard.0;
        let instance = Instance { id: self.config.instance, shard, chunk_log2 };
        self.store.put(key::INSTANCE, &instance.encode())?;
        self.store.put(key::SLOTS, &self.slots.to_record().encode())?;
        self.counters = Counters { next_file: 2, ..Counters::default() };
        if !self.is_home(FileId::ROOT) {
            return Ok(());
        }
        let owner = Ownership { mode: 0o755, uid: self.config.uid, gid: self.config.gid };
        let node = DirectoryNode { parent: FileId::ROOT, ..DirectoryNode::default() };
        let layout = self.usual_layout();
        let inode = self.new_inode(FileId::ROOT, owner, Content::Directory(node), &layout);
        self.save(&Located { inode: Box::new(inode), fused: None })?;
        self.counters.directories = 1;
        Ok(())
    }

    fn take_up_opens(&mut self, awaited: &[OpenRef]) {
        for found in self.opens.survey(awaited) {
            let held = found.shared || self.is_known(found.open.session);
            if !held || !self.is_right(&found) || !self.opens.adopt(&found) {
                self.opens.discard(&found);
                self.drop_elsewhere(found.open.remote);
                continue;
            }
            if !found.shared {
                self.unclaimed_opens.insert(found.made_by, found.index);
            }
        }
        self.opens.finish_survey();
    }

    /// Whether the entry is about a file that exists. An entry of a create that was never committed
    /// is not.
    fn is_right(&mut self, found: &Found) -> bool {
        if let Some(remote) = found.open.remote {
            return remote.shard.0 < self.numbering.all() && !self.is_home(found.open.id);
        }
        let Ok(located) = self.load_birth(found.open.id, &found.birth) else { return false };
        located.inode.kind() == found.kind
    }

    pub(super) fn marks(&mut self, tag: u8) -> Result<Vec<(FileId, Vec<u8>)>, StoreError> {
        let mut marks = Vec::new();
        self.store.scan(&[tag], &[tag], &mut |key, record| {
            if let Some(id) = key::split_numbered(key) {
                marks.push((id, record.to_vec()));
            }
            Scan::More
        })?;
        Ok(marks)
    }

    fn take_up_orphans(&mut self) -> Result<(), OpenError> {
        for (id, _) in self.marks(key::ORPHAN)? {
            if self.opens.file(id).is_some() {
                self.opens.mark_unlinked(id);
            } else if !self.is_awaited(id)? {
                self.drop_orphan(id)?;
                self.commit_now_and_then()?;
            }
        }
        Ok(())
    }

    fn take_up_unsettled(&mut self) -> Result<(), OpenError> {
        for (id, record) in self.marks(key::UNSETTLED)? {
            let birth = BirthKey::decode(&record)?;
            let mut located = self.load_birth(id, &birth)?;
            if located.inode.layout.striped {
                self.settle_if_closed(&located);
                continue;
            }
            if self.opens.file(id).is_none_or(|file| file.writers == 0) {
                self.settle_now(&mut located)?;
                self.commit_now_and_then()?;
                continue;
            }
            let allowance = self.opens.file(id).map_or(0, |file| file.allowance_end);
            let Content::Object(generation) = located.inode.content else { continue };
            let object = self.objects.attr(ObjectId { file: id, generation });
            let (blocks, size_bytes) =
                object.map_or((0, 0), |object| (object.blocks, object.size_bytes));
            self.doubt_appends(id, size_bytes);
            let charge = (blocks * BLOCK_BYTES).max(allowance.min(self.config.capacity_bytes));
            self.charge(id, charge);
        }
        let open: Vec<FileId> = self.opens.files().map(|(id, _)| id).collect();
        for id in open {
            self.check_entry(id)?;
        }
        Ok(())
    }

    /// Nobody waits for anything but the start itself.
    fn settle_now(&mut self, located: &mut Located) -> Outcome<()> {
        let Some(object) = object_of(&located.inode) else { return Ok(()) };
        let attr = self.objects.attr(object)?;
        self.settle(located, &attr)
    }

    /// The words of an open file's entry, as the store has it.
    fn check_entry(&mut self, id: FileId) -> Outcome<()> {
        let inode = self.load_open(id)?.inode;
        if matches!(inode.content, Content::Object(_)) {
            self.opens.mark_object(id);
        }
        self.mark_layout(&inode);
        let allowed = inode.unsettled && !inode.layout.striped;
        let end = self.opens.file(id).map_or(0, |file| file.allowance_end);
        self.opens.set_allowance(id, if allowed { end } else { 0 });
        Ok(())
    }

    fn take_up_locks(&mut self) -> Result<(), OpenError> {
        for (id, record) in self.marks(key::LOCKS)? {
            let held = decode_locks(&record)?;
            let (opens, sessions) = (&self.opens, &self.sessions);
            self.locks.restore(id, &held, |owner| match owner {
                Owner::Posix(process) => {
                    is_distant(process) || sessions.values().any(|other| *other == process)
                }
                Owner::Flock(open) | Owner::Ofd(open) => opens.get(open).is_ok(),
            });
            self.save_locks(id)?;
            self.commit_now_and_then()?;
        }
        Ok(())
    }

    fn take_up_doomed(&mut self) -> Result<(), OpenError> {
        let work = &mut self.work;
        self.store.scan(&[key::DOOMED], &[key::DOOMED], &mut |key, _| {
            if let Some((file, generation)) = key::split_doomed(key) {
                work.doomed.push(ObjectId { file, generation });
            }
            Scan::More
        })?;
        Ok(())
    }
}

//! Opening a shard: a new one, or one whose daemon died.
//!
//! The store gives back every acknowledged operation. Open files are in the node region, which the
//! supervisor kept. Each entry is checked against the store, and against the sessions that still
//! live. A file that nobody holds any more is finished as its owner would have done: orphans are
//! removed, sizes settled, locks dropped.

use std::{fmt, sync::atomic::Ordering::Relaxed};

use mayfly_meta::{
    Scan, StoreError, key,
    record::{BirthKey, Content, Counters, DirectoryNode, Instance, SlotRanges, decode_locks},
};
use mayfly_object::{Jobs, ObjectId};
use mayfly_types::{Errno, FileId, OpenRef};

use crate::{
    api::{Config, Survivors},
    fault::{Fault, Outcome},
    files::{Files, data::BLOCK_BYTES, descriptions::Found, state::data::object_of},
    leases::Leases,
    locks::{Locks, table::Owner},
    log,
    namespace::{
        Namespace,
        state::inode::{Located, Ownership},
    },
    remote::{Remote, state::requests::is_remote},
    shard::{
        Batch, Place, Seams, Shard,
        state::{run::Run, task::Tasks},
    },
    shards::slots::SlotTable,
    striping::Striping,
    tier::{gates::is_absent, state::table::Table},
    transactions::Transactions,
};

/// The age of an operation, and the number of a wait, have the number of starts of their daemon in
/// the bits above these.
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
    /// The instance was made with another number of shards that own names; this is that number.
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

impl Shard {
    /// Opens a shard on what its parts hold.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: Config, parts: Seams, survivors: &Survivors) -> Result<Shard, OpenError> {
        let Seams { store, objects, node, clock, shard, numbering, totals, wake } = parts;
        let now = clock.now();
        // Numbers that an earlier daemon gave may still be in use elsewhere.
        let first_number = u64::from(node.head.daemon_starts.load(Relaxed)) << STARTS_SHIFT;
        let slots = SlotTable::of(1, &config.roles.owners(numbering));
        let alone = numbering.all() == 1;
        let place = Place { shard: numbering.shard(shard), numbering, slots, totals, alone };
        let jobs = Jobs::new(config.io_threads, wake);
        let sessions = survivors.sessions.iter();
        let mut core = Shard {
            store,
            objects,
            clock,
            node,
            place,
            run: Run::default(),
            tasks: Tasks::default(),
            batch: Batch::default(),
            now,
            counters: Counters::default(),
            sessions: sessions.map(|(session, pid)| (*session, (*pid).into())).collect(),
            namespace: Namespace::new(config.cached_dentries_max, config.directories),
            leases: Leases::new(&node.head),
            files: Files::new(node, (shard, numbering.shards), jobs),
            striping: Striping::numbered_from(first_number),
            locks: Locks::numbered_from(first_number),
            transactions: Transactions::numbered_from(first_number),
            remote: Remote::of_start(node.head.daemon_starts.load(Relaxed)),
            tier: Table::default(),
            config,
        };
        core.take_up()?;
        Ok(core)
    }

    /// Goes on with what an earlier daemon left.
    fn take_up(&mut self) -> Result<(), OpenError> {
        let awaited = self.judge_submitted();
        self.take_up_store()?;
        self.take_up_seats()?;
        self.hide_all()?;
        self.show_prepare_locks();
        self.take_up_opens(&awaited);
        self.take_up_leased();
        self.take_up_appends().map_err(OpenError::Failed)?;
        self.take_up_orphans()?;
        self.take_up_parts()?;
        self.take_up_cuts()?;
        self.take_up_unsettled()?;
        self.take_up_locks()?;
        self.take_up_doomed()?;
        self.take_up_operations()?;
        // After those above: they may be cuts of such files.
        self.take_up_unlinked()?;
        self.take_up_started();
        self.expect_old_names();
        self.take_up_submitted()?;
        self.commit().map_err(OpenError::Failed)?;
        self.node.head.slot_table_version.store(self.place.slots.version(), Relaxed);
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
        if instance.shard != self.place.shard.0 {
            return Err(OpenError::OtherShard(instance.shard));
        }
        if let Some(record) = self.store.get(key::SLOTS)? {
            let made_with = SlotTable::from_record(&SlotRanges::decode(record)?);
            if made_with.shards() != self.place.slots.shards() {
                return Err(OpenError::OtherShards(made_with.shards()));
            }
            if made_with != self.place.slots {
                return Err(OpenError::OtherOwners);
            }
        }
        let missing = StoreError::Corrupt("the counters are missing");
        self.counters = Counters::decode(self.store.get(key::COUNTERS)?.ok_or(missing)?)?;
        self.batch.counters_saved = self.counters;
        Ok(())
    }

    fn make_root(&mut self) -> Result<(), OpenError> {
        let chunk_log2 = self.config.chunk_bytes.trailing_zeros() as u8;
        let shard = self.place.shard.0;
        let instance = Instance { id: self.config.instance, shard, chunk_log2 };
        self.store.put(key::INSTANCE, &instance.encode())?;
        self.store.put(key::SLOTS, &self.place.slots.to_record().encode())?;
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
        for found in self.files.opens.survey(awaited) {
            let held = found.shared || self.is_known(found.open.session);
            if !held || !self.is_right(&found) || !self.files.opens.adopt(&found) {
                self.files.opens.discard(&found);
                self.drop_elsewhere(found.open.remote);
                continue;
            }
            if found.behind
                && let Some((open, _)) = self.files.opens.at(found.index)
            {
                self.is_lost(open, found.open.id, found.open.remote);
            }
            if !found.shared {
                self.files.unclaimed_opens.insert(found.made_by, found.index);
            }
        }
        self.files.opens.finish_survey();
    }

    /// Whether the entry is about a file that exists. An entry of a create that was never committed
    /// is not.
    fn is_right(&mut self, found: &Found) -> bool {
        if let Some(remote) = found.open.remote {
            return remote.shard.0 < self.place.numbering.all() && !self.is_home(found.open.id);
        }
        let Ok(located) = self.load_birth(found.open.id, &found.birth) else { return false };
        located.inode.kind() == found.kind
    }

    pub(crate) fn marks(&mut self, tag: u8) -> Result<Vec<(FileId, Vec<u8>)>, StoreError> {
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
            if self.files.opens.file(id).is_some() {
                self.files.opens.mark_unlinked(id);
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
            if self.files.opens.file(id).is_none_or(|file| file.writers == 0) {
                match self.settle_now(&mut located) {
                    // Whoever may write to the directory can take objects away, and a process can
                    // say that it has made one. That concerns this file, and not the start.
                    Err(Fault::Errno(Errno::ENOENT)) => {
                        log::error("start", format_args!("the object of file {} is gone", id.0));
                    }
                    settled => settled?,
                }
                self.commit_now_and_then()?;
                continue;
            }
            let allowance = self.files.opens.file(id).map_or(0, |file| file.allowance_end);
            let Content::Object(generation) = located.inode.content else { continue };
            let object = self.objects.attr(ObjectId { file: id, generation });
            let (blocks, size_bytes) =
                object.map_or((0, 0), |object| (object.blocks, object.size_bytes));
            self.bound_appends_in_doubt(id, size_bytes);
            let charge = (blocks * BLOCK_BYTES).max(allowance.min(self.config.capacity_bytes));
            self.charge(id, charge);
        }
        let open: Vec<FileId> = self.files.opens.files().map(|(id, _)| id).collect();
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
        if matches!(inode.content, Content::Object(_)) && !is_absent(&inode) {
            self.files.opens.mark_object(id);
        }
        self.mark_layout(&inode);
        let allowed = inode.unsettled && !inode.layout.striped;
        let end = self.files.opens.file(id).map_or(0, |file| file.allowance_end);
        self.files.opens.set_allowance(id, if allowed { end } else { 0 });
        Ok(())
    }

    fn take_up_locks(&mut self) -> Result<(), OpenError> {
        for (id, record) in self.marks(key::LOCKS)? {
            let held = decode_locks(&record)?;
            let (opens, sessions) = (&self.files.opens, &self.sessions);
            self.locks.table.restore(id, &held, |owner| match owner {
                Owner::Posix(process) => {
                    is_remote(process) || sessions.values().any(|other| *other == process)
                }
                Owner::Flock(open) | Owner::Ofd(open) => opens.get(open).is_ok(),
            });
            self.save_locks(id)?;
            self.commit_now_and_then()?;
        }
        Ok(())
    }

    fn take_up_doomed(&mut self) -> Result<(), OpenError> {
        let work = &mut self.files.background;
        self.store.scan(&[key::DOOMED], &[key::DOOMED], &mut |key, _| {
            if let Some((file, generation)) = key::split_doomed(key) {
                work.doomed.push(ObjectId { file, generation });
            }
            Scan::More
        })?;
        Ok(())
    }
}

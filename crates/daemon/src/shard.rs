//! The shard as a state machine.
//!
//! One thread drives a [`Shard`]: it hands in decoded requests ([`Shard::handle`]), ends the batch
//! ([`Shard::commit`]), and only then sends the replies; a reply that was sent is true for ever. A
//! shard owns no thread but its I/O pool's, reads no clock but the injected one, and knows neither
//! sockets nor lanes.
//!
//! Its state is that of its parts, each of which has a folder of its own: [`crate::namespace`],
//! [`crate::leases`], [`crate::files`], [`crate::striping`], [`crate::locks`],
//! [`crate::transactions`] and [`crate::remote`]. What several of them use is here: the store, the
//! objects, the clock, the counters, and which shard this is.
//!
//! **An operation checks everything before its first write**, so an error leaves nothing behind;
//! only a failing disk can strike in the middle, and then the whole batch is lost, unacknowledged.
//! The same rule lets an operation that needs other shards be broken off and run again: `run.rs`
//! has what it has found out, `task.rs` what waits, `answer.rs` what others are told. `life.rs`
//! ends sessions, `recover.rs` opens a shard whose daemon died. With one shard most of this stays
//! idle.

#[cfg(test)]
pub(crate) mod alone;
mod answer;
mod idle;
pub(crate) mod inspect;
mod life;
mod recover;
pub(crate) mod shared_body;
pub(crate) mod state;
mod step;
pub(crate) mod task;

pub use recover::OpenError;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use mayfly_meta::{Store, key, record::Counters as StoredCounters};
use mayfly_object::ObjectStore;
use mayfly_transport_shm::layout::NodeRegion;
use mayfly_transport_tcp::Bytes;
use mayfly_types::{Errno, FileId, SessionId, Timestamp};
use mayfly_wire::{Counters, Escaped, Full, Request, STATUS_ESCAPED, Wire, Writer};

use crate::{
    api::{Caller, Clock, Completion, Config, Progress},
    fault::{Fault, Outcome, Served, store_failed},
    files::Files,
    leases::Leases,
    locks::Locks,
    maps::HashMap,
    message::At,
    namespace::Namespace,
    remote::Remote,
    shard::state::{run::Run, task::Tasks},
    shards::{
        numbering::{Numbering, origin},
        slots::{ShardId, SlotTable, TRANSACTION_SHARD_SHIFT},
        totals::{ShardTotals, Totals},
    },
    striping::Striping,
    tier::state::table::Table,
    transactions::Transactions,
};

/// What a core works with.
pub struct Seams {
    /// Keeps the records.
    pub store: Box<dyn Store>,
    /// Keeps the objects.
    pub objects: Arc<dyn ObjectStore>,
    /// The shared memory of the node.
    pub node: &'static NodeRegion,
    /// Tells the time.
    pub clock: Box<dyn Clock>,
    /// Which shard of the daemon this is, from 0.
    pub shard: u32,
    /// All shards.
    pub numbering: Numbering,
    /// The counters of all shards of the daemon.
    pub totals: Arc<Totals>,
    /// Called from a thread of the I/O pool when [`Shard::completions`] has something to do.
    pub wake: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Seams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seams").finish_non_exhaustive()
    }
}

/// Which shard it is, among which.
pub(crate) struct Place {
    /// Its number, over all nodes.
    pub(crate) shard: ShardId,
    /// All shards.
    pub(crate) numbering: Numbering,
    /// Which shard owns which part of the namespace.
    pub(crate) slots: SlotTable,
    /// The counters of all shards of the daemon.
    pub(crate) totals: Arc<Totals>,
    /// There is no other shard.
    pub(crate) alone: bool,
}

/// The work of the open batch, and the number of batches.
#[derive(Default)]
pub(crate) struct Batch {
    /// Answers that become true with the commit of the batch.
    pub(crate) uncommitted: Vec<Completion>,
    /// Answers that are true and were not fetched yet.
    pub(crate) ready: Vec<Completion>,
    /// The counters that the store has.
    pub(crate) counters_saved: StoredCounters,
    /// The body of the request that is being executed, if that may be kept.
    pub(crate) body: Bytes,
    /// Requests so far.
    pub(crate) requests: u64,
    /// Steps of background work so far, for the length of its batches.
    pub(crate) steps: u32,
}

/// A shard.
pub struct Shard {
    pub(crate) config: Config,
    pub(crate) store: Box<dyn Store>,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) node: &'static NodeRegion,
    pub(crate) place: Place,
    /// Facts that the running operation knows of other shards.
    pub(crate) run: Run,
    /// Operations that wait.
    pub(crate) tasks: Tasks,
    pub(crate) batch: Batch,
    /// The time of the batch.
    pub(crate) now: Timestamp,
    pub(crate) counters: StoredCounters,
    /// Attached processes, those of other nodes too as far as they have asked for something here.
    pub(crate) sessions: HashMap<SessionId, u64>,
    pub(crate) namespace: Namespace,
    pub(crate) leases: Leases,
    pub(crate) files: Files,
    pub(crate) striping: Striping,
    pub(crate) locks: Locks,
    pub(crate) transactions: Transactions,
    pub(crate) remote: Remote,
    pub(crate) tier: Table,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Of the space of a node of several, one in so many bytes is kept for names.
const NAMES_SHARE: u64 = 64;
/// No more than this is kept for them, bytes.
const NAMES_BYTES_MAX: u64 = 256 << 20;

impl Shard {
    /// Serves one request; the reply's body is written to `body`.
    pub fn handle(&mut self, caller: Caller, request: Request<'_>, body: &mut [u8]) -> Progress {
        self.begin_request(caller);
        self.locks.deadlocks.lane_goes_on(caller);
        if !self.run.is_fresh() {
            self.run = Run::default();
        }
        let progress = self.serve(caller, request, body);
        if !self.place.alone {
            self.publish_totals();
        }
        progress
    }

    /// The content of the file that the last request opened, if it was opened for reading alone and
    /// has no object.
    pub fn opened_content(&mut self) -> Option<Vec<u8>> {
        self.files.opened_content.take()
    }

    /// Files of which a description has ended that could be written to, while somebody on this node
    /// watches files; each is returned once.
    pub fn written(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.files.written)
    }

    /// It is now, for time stamps and for leases.
    pub(crate) fn look_at_clocks(&mut self) {
        self.now = self.clock.now();
        self.remote.clock = self.clock.elapsed();
        self.leases.now = self.remote.clock.seconds;
    }

    pub(crate) fn begin_request(&mut self, caller: Caller) {
        self.batch.requests += 1;
        self.look_at_clocks();
        self.keep_in_time();
        self.forget_in_time();
        self.namespace.found_file = None;
        self.files.opened_content = None;
        self.end_in_doubt_behind(caller);
        if !self.transactions.completed_elsewhere.is_empty() {
            self.go_on_behind(caller);
        }
        self.end_long_waits();
        if !self.tier.journal.begun.is_empty() {
            self.end_changes_behind(caller);
        }
        if !self.files.unclaimed_opens.is_empty() {
            self.drop_unclaimed(caller);
        }
    }

    pub(crate) fn serve(
        &mut self,
        caller: Caller,
        request: Request<'_>,
        body: &mut [u8],
    ) -> Progress {
        if matches!(request, Request::Close(_)) {
            // What is closed was made before, and nobody waits for the answer.
            self.execute_ripe();
        } else {
            self.execute_submitted();
        }
        self.make_room(&request);
        let mut to = Writer::new(body);
        self.files.in_doubt.runs(Some(caller));
        self.acts(Some(caller.session));
        let fault = match self.attempt(caller, &request, &mut to) {
            Ok(served) => {
                let used = to.used();
                self.end_changes_at_origin(caller);
                self.journal_change();
                self.end_run();
                return match served {
                    Served::Replied => {
                        self.forget_cut(caller);
                        Progress::Replied(0, used)
                    }
                    Served::Pending => Progress::Pending,
                };
            }
            Err(fault) => fault,
        };
        let errno = match fault {
            Fault::Errno(errno) => errno,
            Fault::Escaped(path) => {
                self.end_run();
                let mut to = Writer::new(body);
                return match (Escaped { path: &path }).encode(&mut to) {
                    Ok(()) => Progress::Replied(STATUS_ESCAPED, to.used()),
                    Err(Full) => Progress::Replied(Errno::ENAMETOOLONG.raw() as u32, 0),
                };
            }
            fault => match self.put_aside(caller, &request, fault) {
                Ok(()) => return Progress::Pending,
                Err(errno) => errno,
            },
        };
        self.end_changes_at_origin(caller);
        self.end_run();
        self.end_in_doubt_of(caller);
        Progress::Replied(errno.raw() as u32, 0)
    }

    pub(crate) fn attempt(
        &mut self,
        caller: Caller,
        request: &Request<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        self.run.outside.entry = None;
        if self.waits_for_old_names(request) || self.waits_for_room(request) {
            return Err(Fault::Busy);
        }
        if let At::Part(place) = self.run.place.at {
            return self.serve_part(caller, request, &place, to);
        }
        if (!self.transactions.completed.is_empty()
            || !self.transactions.completed_elsewhere.is_empty())
            && self.was_executed(caller, request)?
        {
            return Ok(Served::Replied);
        }
        if !self.place.alone {
            if let Request::Sync(mayfly_wire::Sync { all: true, .. }) = request {
                self.all_sent(|_, _| true)?;
            }
            if self.run.place.at == At::Start {
                self.check_owner(request)?;
            }
            if self.opens_elsewhere(request, to)? {
                return Ok(Served::Replied);
            }
        }
        self.dispatch(caller, request, to)
    }

    pub(crate) fn dispatch(
        &mut self,
        caller: Caller,
        request: &Request<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        match request {
            Request::Ping(_) => {
                self.make_wanted(caller.session)?;
                Ok(Served::Replied)
            }
            Request::Stat(stat) => self.stat(&stat.target, to),
            Request::Open(open) => self.open_file(caller, open, to),
            Request::Close(close) => self.close(caller, close.open),
            Request::MakeDirectory(make) => self.make_directory(caller, make),
            Request::Unlink(unlink) => self.unlink(caller, unlink),
            Request::Rename(rename) => self.rename(rename),
            Request::Link(link) => self.link(link),
            Request::Symlink(symlink) => self.symlink(caller, symlink),
            Request::ReadLink(read) => self.read_link(&read.target, to),
            Request::SetAttr(set) => self.set_attr(caller, set, to),
            Request::Read(read) => self.read(caller, read, to),
            Request::Write(write) => self.write(caller, write, to),
            Request::Grant(grant) => self.grant(caller, grant, to),
            Request::List(list) => self.list(list, to),
            Request::PathOf(path) => self.path_of(path.file, to),
            Request::StatFs(_) => self.stat_fs(to),
            Request::Sync(sync) => self.sync(caller, sync),
            Request::Lock(lock) => self.lock(caller, lock),
            Request::TestLock(test) => self.test_lock(caller, test, to),
            Request::Cancel(cancel) => self.cancel(caller, cancel.request_id),
            Request::SetXattr(set) => self.set_xattr(set),
            Request::GetXattr(get) => self.get_xattr(get, to),
            Request::ListXattr(list) => self.list_xattrs(&list.target, to),
            Request::RemoveXattr(remove) => self.remove_xattr(remove),
            Request::Allocate(allocate) => self.allocate(caller, allocate),
            Request::MakeSpecial(make) => self.make_special(make),
            Request::Seek(seek) => self.seek(seek, to),
            // Nothing is behind of what is at home here.
            Request::Flush(flush) => {
                let open = self.files.opens.get(flush.open)?;
                let (id, writes) = (open.id, open.may_write());
                if writes {
                    self.written_back_at_close(id)?;
                }
                Ok(Served::Replied)
            }
            Request::Reach(reach) => self.reach(&reach.target, to),
            Request::MoveLock(asked) => self.move_lock(asked),
            Request::Map(map) => self.map(caller, map.open),
            Request::Tell(tell) => self.tell(caller, tell),
            Request::Watch(_) => self.watch(caller, to),
            Request::Inspect(inspect) => self.inspect(caller, inspect, to),
            Request::RemoveStray(stray) => self.remove_stray(stray),
            Request::TierWork(_) => self.tier_work(caller),
            Request::TierDone(done) => self.tier_done(caller, done),
            Request::TierAsk(ask) => self.tier_ask(caller, ask, to),
            Request::Lease(lease) => self.lease(caller, lease, to),
            Request::Status(_) => {
                self.counters().encode(to)?;
                Ok(Served::Replied)
            }
        }
    }

    /// Ends the batch: everything that was answered in it is true from here on. Returns the number
    /// of the transaction.
    ///
    /// # Errors
    /// EIO: nothing of the batch happened and nothing more will be written. The process should exit
    /// without sending the batch's replies; its successor starts from the last commit.
    pub fn commit(&mut self) -> Result<u64, Errno> {
        if self.counters != self.batch.counters_saved && self.store.pending_transaction() != 0 {
            let record = self.counters.encode();
            self.store.put(key::COUNTERS, &record).map_err(|error| store_failed(&error))?;
            self.batch.counters_saved = self.counters;
        }
        let number = self.store.commit().map_err(|error| store_failed(&error))?;
        self.submissions_committed();
        self.close_started();
        self.settle_names();
        let number = self.tagged(number);
        if !self.batch.uncommitted.is_empty() {
            self.batch.ready.append(&mut self.batch.uncommitted);
        }
        self.release_messages();
        if !self.place.alone {
            self.publish_totals();
        }
        self.start_deferred();
        Ok(number)
    }

    /// Number that the commit of this batch will get; 0 when the batch has changed nothing so far.
    #[must_use]
    pub fn batch_transaction(&self) -> u64 {
        self.tagged(self.store.pending_transaction())
    }

    /// Whether another thread may go on after a commit.
    #[must_use]
    pub fn may_move(&self) -> bool {
        self.store.may_move()
    }

    /// A transaction's number, unique over the shards of the daemon. 0 stays 0.
    pub(crate) fn tagged(&self, transaction: u64) -> u64 {
        let shard = u64::from(self.own()) << TRANSACTION_SHARD_SHIFT;
        if transaction == 0 { 0 } else { transaction | shard }
    }

    /// Which shard of its daemon this is.
    pub(crate) fn own(&self) -> u32 {
        self.place.numbering.own(self.place.shard)
    }

    /// Number of the last commit.
    #[must_use]
    pub fn committed_transaction(&self) -> u64 {
        self.tagged(self.store.committed_transaction())
    }

    /// Requests that were pending and are answered now. Answers appear after the commit of the
    /// batch that made them true, so this is to be called after [`Shard::commit`].
    pub fn completions(&mut self) -> impl Iterator<Item = Completion> + use<> {
        self.absorb();
        if !self.place.alone {
            // A description that was closed by nobody's request changes them without a commit.
            self.publish_totals();
        }
        if self.store.pending_transaction() == 0 {
            self.batch.ready.append(&mut self.batch.uncommitted);
        }
        std::mem::take(&mut self.batch.ready).into_iter()
    }

    pub(crate) fn publish_totals(&self) {
        let row = self.place.totals.of(self.own());
        let counters = &self.counters;
        row.open_files.store(self.files.opens.count().into(), Relaxed);
        row.locks.store(self.locks.table.count() as u64, Relaxed);
        row.files.store(counters.files, Relaxed);
        row.directories.store(counters.directories, Relaxed);
        row.orphans.store(counters.orphans, Relaxed);
        row.objects.store(counters.objects, Relaxed);
        row.used_bytes.store(self.own_used_bytes(), Relaxed);
        row.requests.store(self.batch.requests, Relaxed);
        row.transactions.store(self.store.committed_transaction(), Relaxed);
    }

    /// What the daemon counts. Other shards' numbers are those of their last commit.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let sum = |own: u64, counter: fn(&ShardTotals) -> &AtomicU64| {
            own + if self.place.alone { 0 } else { self.place.totals.others(self.own(), counter) }
        };
        // A node without names and bytes of the instance adds nothing to its space.
        let is_server = self.config.roles.is_server(self.place.numbering.node);
        let free_bytes = self.free_bytes().saturating_sub(self.kept_for_names());
        Counters {
            daemon_pid: std::process::id(),
            sessions: self.sessions.keys().filter(|session| origin(**session).is_none()).count()
                as u32,
            open_files: sum(self.files.opens.count().into(), |row| &row.open_files) as u32
                + self.leased_in_use() as u32,
            locks: sum(self.locks.table.count() as u64, |row| &row.locks) as u32,
            files: sum(self.counters.files, |row| &row.files),
            directories: sum(self.counters.directories, |row| &row.directories),
            orphans: sum(self.counters.orphans, |row| &row.orphans),
            objects: sum(self.counters.objects, |row| &row.objects),
            used_bytes: if is_server { self.used_bytes() } else { 0 },
            capacity_bytes: if is_server { self.config.capacity_bytes } else { 0 },
            free_bytes: if is_server { free_bytes } else { 0 },
            requests: sum(self.batch.requests, |row| &row.requests),
            transactions: sum(self.store.committed_transaction(), |row| &row.transactions),
            restarts: self.node.head.daemon_starts.load(Relaxed).saturating_sub(1),
        }
    }

    pub(crate) fn own_used_bytes(&self) -> u64 {
        self.store.used_bytes() + self.counters.settled_bytes + self.files.charged_bytes
    }

    /// Space in use, objects and metadata of all shards together, bytes.
    pub(crate) fn used_bytes(&self) -> u64 {
        let own = self.own_used_bytes();
        if self.place.alone {
            own
        } else {
            own + self.place.totals.others(self.own(), |row| &row.used_bytes)
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.config.capacity_bytes.saturating_sub(self.used_bytes())
    }

    /// Of that, what no bytes of files get: on a full node names can still be made of files whose
    /// bytes go to others. The only node of an instance keeps nothing.
    pub(crate) fn kept_for_names(&self) -> u64 {
        if self.place.numbering.nodes == 1 {
            return 0;
        }
        (self.config.capacity_bytes / NAMES_SHARE).min(NAMES_BYTES_MAX)
    }

    /// To be called before an operation that adds records.
    pub(crate) fn check_room(&mut self) -> Outcome<()> {
        if self.store.has_room() && self.find_room(1)? { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    pub(crate) fn answer_after_commit(&mut self, caller: Caller, status: u32, body: Vec<u8>) {
        let done = self.completion(caller, status, body.into());
        self.note_answer(&done);
        self.batch.uncommitted.push(done);
    }
}

//! A core with everything it needs, and a caller that talks to it as the client in a process does.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test file uses its part; a failing helper is a failing test"
)]

pub mod clock;
pub mod crowd;
pub mod fsck;
pub mod outside;
mod records;
pub mod several;
mod slow;
pub mod submitting;

use std::{
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use mayfly_daemon::{
    Caller, Completion, Config, Consistency, Directories, LeaseTimes, Link, Numbering, Progress,
    Seams, Shard, Survivors, Totals,
};
use mayfly_meta::{LmdbOptions, LmdbStore, MemoryDisk, MemoryStore, Store, TreeOptions, TreeStore};
use mayfly_object::{BY_HAND, DirectoryStore, ObjectStore};
use mayfly_transport_shm::layout::NodeRegion;
use mayfly_types::{
    Attr, Durability, Errno, FileId, FileKind, OpenRef, SessionId, Times, Timestamp,
};
use mayfly_wire::{
    Close, Data, Escaped, GRANT_READ, GRANT_WRITE, GetXattr, Grant, Granted, List, Listing,
    MakeDirectory, Open, OpenReply, Operation, Read, ReadLink, Reader, Rename, Request,
    STATUS_ESCAPED, SetAttr, SetXattr, Stat, Symlink, Target, Text, Unlink, WALK_FOLLOW, Walk,
    Wire, Write, Writer, Written,
};

pub use clock::TestClock;
pub use several::Several;
pub use slow::SlowStore;

pub const INLINE_MAX: u64 = mayfly_types::limits::INLINE_BYTES_MAX as u64;
pub const O_RDWR: u32 = 2;
pub const O_CREAT: u32 = 0o100;
pub const O_DIRECTORY: u32 = 0o200_000;
pub const O_PATH: u32 = 0o10_000_000;
pub const SESSION: SessionId = SessionId(1);
pub const PID: u32 = 4711;

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    Errno(Errno),
    Escaped(Vec<u8>),
}

pub type Answer<T> = Result<T, Failed>;

pub fn region() -> &'static NodeRegion {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // Mapped, so that only the pages that are used take memory: a test makes hundreds of them.
    let (read_write, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh mapping of that length, aligned to pages and never unmapped; a region of
    // zeros is a valid one, since all its fields are atomics.
    unsafe {
        let length = size_of::<NodeRegion>();
        let at = mmap_anonymous(std::ptr::null_mut(), length, read_write, private).unwrap();
        &*at.cast::<NodeRegion>()
    }
}

#[derive(Clone)]
pub enum Kept {
    Memory(MemoryDisk),
    /// In files, as the daemon keeps it: in LMDB where it is to survive a power loss.
    Disk(PathBuf),
}

/// What survives a core, and the core.
pub struct Node {
    pub cores: Vec<Shard>,
    pub kept: Kept,
    /// Stores of the other shards.
    pub more: Vec<Kept>,
    pub several: Several,
    pub objects: PathBuf,
    pub region: &'static NodeRegion,
    pub clock: TestClock,
    pub config: Config,
    pub sessions: Vec<(SessionId, u32)>,
    /// As for [`Shard::link_origins`].
    pub links: (Vec<Link>, Option<u64>),
    /// Every object has to be waited for; jobs run when they are told.
    pub slow: bool,
    /// Whoever calls the objects now may wait for them.
    pub may_wait: Arc<AtomicBool>,
    request_id: u64,
    sent: Vec<u8>,
    directory: Option<tempfile::TempDir>,
}

pub fn config() -> Config {
    Config {
        policy: mayfly_meta::record::Policy::Stripe,
        pool: 0,
        pools: Vec::new(),
        width: 1,
        roles: mayfly_daemon::Roles::default(),
        instance: 0x1234,
        mount: b"/mnt/mayfly".to_vec(),
        capacity_bytes: 1 << 30,
        home_bytes_max: u64::MAX,
        chunk_bytes: mayfly_types::limits::CHUNK_BYTES_DEFAULT,
        times: Times::Mtime,
        durability: Durability::Process,
        locks: true,
        uid: 0,
        gid: 0,
        cached_dentries_max: 64,
        directories: Directories::Spread,
        leases: LeaseTimes {
            seconds: mayfly_types::limits::LEASE_SECONDS,
            at_rest_ms: 0,
            consistency: Consistency::Strict,
        },
        io_threads: 0,
        processors: usize::MAX,
    }
}

/// One that has directories in another way with each seed.
pub fn config_of(seed: u64) -> Config {
    let ways = [Directories::Restless, Directories::Spread, Directories::Whole];
    Config { directories: ways[seed as usize % ways.len()], ..config() }
}

impl Node {
    /// With several shards, whose messages travel as the seed says.
    pub fn several(config: Config, shards: u32, seed: u64, on_disk: bool) -> Node {
        let kept = |directory: &std::path::Path, shard: u32| match on_disk {
            true => Kept::Disk(directory.join(format!("shard-{shard}"))),
            false => Kept::Memory(MemoryDisk::default()),
        };
        let directory = tempfile::tempdir().unwrap();
        let more = (1..shards).map(|shard| kept(directory.path(), shard)).collect();
        let first = kept(directory.path(), 0);
        Node::within(config, directory, (first, more), seed)
    }

    pub fn memory(config: Config) -> Node {
        Node::new(config, |_| Kept::Memory(MemoryDisk::default()))
    }

    pub fn on_disk(config: Config) -> Node {
        Node::new(config, |directory| Kept::Disk(directory.join("meta")))
    }

    /// With everything it keeps in a new directory in `place`.
    pub fn on_disk_in(config: Config, place: &std::path::Path) -> Node {
        let directory = tempfile::tempdir_in(place).unwrap();
        let kept = Kept::Disk(directory.path().join("meta"));
        Node::within(config, directory, (kept, Vec::new()), 0)
    }

    fn new(config: Config, kept: impl FnOnce(&std::path::Path) -> Kept) -> Node {
        let directory = tempfile::tempdir().unwrap();
        let kept = kept(directory.path());
        Node::within(config, directory, (kept, Vec::new()), 0)
    }

    fn within(
        config: Config,
        directory: tempfile::TempDir,
        (kept, more): (Kept, Vec<Kept>),
        seed: u64,
    ) -> Node {
        let mut node = Node {
            cores: Vec::new(),
            kept,
            more,
            several: Several::new(seed),
            objects: directory.path().join("objects"),
            region: region(),
            clock: TestClock::default(),
            config,
            sessions: vec![(SESSION, PID)],
            links: (Vec::new(), None),
            slow: false,
            may_wait: Arc::default(),
            request_id: 0,
            sent: Vec::new(),
            directory: Some(directory),
        };
        node.restart();
        node
    }

    /// What `shards` shards left in `directory`, if anything.
    pub fn reopened(config: Config, directory: &std::path::Path, shards: u32) -> Node {
        let kept = |shard: u32| Kept::Disk(directory.join(format!("shard-{shard}")));
        let mut node = Node {
            cores: Vec::new(),
            kept: kept(0),
            more: (1..shards).map(kept).collect(),
            several: Several::new(u64::from(std::process::id())),
            slow: false,
            may_wait: Arc::default(),
            objects: directory.join("objects"),
            region: region(),
            clock: TestClock::default(),
            config,
            sessions: vec![(SESSION, PID)],
            links: (Vec::new(), None),
            // A request is not to be taken for one that an earlier process made, whose answer
            // may still be kept.
            request_id: u64::from(std::process::id()) << 32,
            sent: Vec::new(),
            directory: None,
        };
        node.restart();
        node
    }

    /// Around a core that somebody else opened.
    pub fn around(core: Shard, objects: PathBuf) -> Node {
        Node {
            cores: vec![core],
            kept: Kept::Memory(MemoryDisk::default()),
            more: Vec::new(),
            several: Several::new(0),
            objects,
            region: region(),
            clock: TestClock::default(),
            config: config(),
            sessions: Vec::new(),
            links: (Vec::new(), None),
            slow: false,
            may_wait: Arc::default(),
            request_id: 0,
            sent: Vec::new(),
            directory: None,
        }
    }

    /// With objects that have to be waited for.
    pub fn slowed(mut self) -> Node {
        self.slow = true;
        self.config.io_threads = BY_HAND;
        self.restart();
        self
    }

    /// Runs a job of a shard, counted from the one that has waited longest; false when there are
    /// not so many.
    pub fn run_job(&mut self, shard: usize, which: usize) -> bool {
        self.may_wait.store(true, SeqCst);
        let run = self.cores[shard].run_job(which);
        self.may_wait.store(false, SeqCst);
        run
    }

    /// The daemon dies here and now; its successor takes up what was committed.
    pub fn restart(&mut self) {
        self.cores.clear();
        // As the supervisor does.
        self.region.head.writers.store(0, SeqCst);
        self.several.forget_messages();
        self.several.committed.clear();
        let totals = Arc::new(Totals::new(1 + self.more.len() as u32));
        let kept: Vec<Kept> = [self.kept.clone()].into_iter().chain(self.more.clone()).collect();
        self.may_wait.store(true, SeqCst);
        for (shard, kept) in (0..).zip(kept) {
            let core = self.open_shard(shard, &kept, &totals);
            self.cores.push(core);
        }
        self.may_wait.store(false, SeqCst);
        if self.cores.len() > 1 {
            self.recover();
        }
    }

    fn open_shard(&mut self, shard: u32, kept: &Kept, totals: &Arc<Totals>) -> Shard {
        let limit_bytes = self.config.capacity_bytes;
        let store: Box<dyn Store> = match kept {
            Kept::Memory(disk) => Box::new(MemoryStore::open(disk, limit_bytes)),
            Kept::Disk(directory) if self.config.durability == Durability::Sync => Box::new(
                LmdbStore::open(&LmdbOptions {
                    directory: directory.clone(),
                    limit_bytes,
                    sync: true,
                    boot_id: b"boot".to_vec(),
                })
                .unwrap(),
            ),
            Kept::Disk(directory) => Box::new(
                TreeStore::open(&TreeOptions {
                    directory: directory.clone(),
                    limit_bytes,
                    boot_id: b"boot".to_vec(),
                })
                .unwrap(),
            ),
        };
        // As the daemon does, which judges the replies in the lanes by it.
        let number = store.committed_transaction() | u64::from(shard) << 48;
        self.several.committed.push(number);
        let directory = DirectoryStore::open(&self.objects).unwrap();
        let objects: Arc<dyn ObjectStore> = match self.slow {
            true => Arc::new(SlowStore {
                objects: directory,
                may_wait: Arc::clone(&self.may_wait),
                at_hand: Mutex::default(),
            }),
            false => Arc::new(directory),
        };
        let parts = Seams {
            store,
            objects,
            node: self.region,
            clock: Box::new(self.clock.clone()),
            shard,
            numbering: Numbering::of_one_node(totals.shards()),
            totals: Arc::clone(totals),
            wake: Box::new(|| {}),
        };
        let survivors = Survivors { sessions: self.sessions.clone() };
        let mut core = Shard::open(self.config.clone(), parts, &survivors).unwrap();
        core.link_origins(&self.links.0, self.links.1).unwrap();
        core
    }

    /// Background work until there is none left.
    pub fn settle_down(&mut self) {
        while self.move_on() {}
        for shard in 0..self.cores.len() {
            self.end_batch(shard);
        }
    }

    pub fn core(&mut self) -> &mut Shard {
        &mut self.cores[0]
    }

    pub fn next_caller(&mut self, session: SessionId) -> Caller {
        self.request_id += 1;
        Caller { session, lane: 0, request_id: self.request_id }
    }

    /// Hands in a request without ending the batch.
    pub fn submit<'a, O: Operation<'a>>(
        &mut self,
        caller: Caller,
        request: &O,
        body: &mut [u8],
    ) -> Progress {
        let mut sent = std::mem::take(&mut self.sent);
        sent.resize(300_000, 0);
        let mut to = Writer::new(&mut sent);
        request.encode(&mut to).unwrap();
        let used = to.used();
        let request = Request::decode(O::OP, &sent[..used]).unwrap();
        let progress = self.cores[0].handle(caller, request, body);
        self.sent = sent;
        progress
    }

    pub fn ask_as<'a, O: Operation<'a>, T>(
        &mut self,
        session: SessionId,
        request: &O,
        take: impl for<'r> FnOnce(O::Reply<'r>) -> T,
    ) -> Answer<T> {
        let caller = self.next_caller(session);
        let Completion { status, body, .. } = self.answer_to(caller, request);
        let body = body.to_vec();
        match status {
            0 => {
                let mut from = Reader::new(&body);
                let reply = <O::Reply<'_>>::decode(&mut from).unwrap();
                from.finish().unwrap();
                Ok(take(reply))
            }
            STATUS_ESCAPED => {
                let escaped = Escaped::decode(&mut Reader::new(&body)).unwrap();
                Err(Failed::Escaped(escaped.path.to_vec()))
            }
            status => Err(Failed::Errno(Errno::from_raw(status as i32).unwrap())),
        }
    }

    /// Hands in a request, or hands it in again, and drives the shards until it is answered.
    pub fn answer_to<'a, O: Operation<'a>>(&mut self, caller: Caller, request: &O) -> Completion {
        let mut sent = vec![0; 300_000];
        let mut to = Writer::new(&mut sent);
        request.encode(&mut to).unwrap();
        let used = to.used();
        let request = Request::decode(O::OP, &sent[..used]).unwrap();
        let mut body = vec![0; 300_000];
        self.several.published.retain(|done| done.caller != caller);
        let (status, bytes) =
            self.drive(caller, request, &mut body).expect("the request is answered");
        body.truncate(bytes);
        Completion::new(caller, status, body.into())
    }

    pub fn ask<'a, O: Operation<'a>, T>(
        &mut self,
        request: &O,
        take: impl for<'r> FnOnce(O::Reply<'r>) -> T,
    ) -> Answer<T> {
        self.ask_as(SESSION, request, take)
    }

    pub fn completions(&mut self) -> Vec<Completion> {
        self.core().commit().unwrap();
        let mut done = std::mem::take(&mut self.several.published);
        done.extend(self.core().completions());
        done.extend(self.core().answers());
        self.core().commit().unwrap();
        done
    }

    pub fn mkdir(&mut self, path: &str) -> Answer<()> {
        self.ask(&MakeDirectory { walk: walk(path, 0), mode: 0o755, uid: 0, gid: 0 }, |()| ())
    }

    pub fn open(&mut self, path: &str, flags: u32) -> Answer<(OpenRef, bool)> {
        let request = Open { walk: walk(path, 0), flags, mode: 0o644, uid: 0, gid: 0 };
        self.ask(&request, |reply: OpenReply<'_>| (reply.opened.open, reply.opened.created))
    }

    pub fn close(&mut self, open: OpenRef) {
        self.ask(&Close { open }, |()| ()).unwrap();
    }

    pub fn unlink(&mut self, path: &str, directory: bool) -> Answer<()> {
        self.ask(&Unlink { walk: walk(path, 0), directory }, |()| ())
    }

    pub fn rename(&mut self, from: &str, to: &str, flags: u32) -> Answer<()> {
        self.ask(&Rename { from: walk(from, 0), to: walk(to, 0), flags }, |()| ())
    }

    pub fn link(&mut self, from: &str, to: &str) -> Answer<()> {
        self.ask(&mayfly_wire::Link { from: Target::Path(walk(from, 0)), to: walk(to, 0) }, |()| ())
    }

    pub fn symlink(&mut self, target: &str, at: &str) -> Answer<()> {
        self.ask(&Symlink { target: target.as_bytes(), at: walk(at, 0), uid: 0, gid: 0 }, |()| ())
    }

    pub fn read_link(&mut self, path: &str) -> Answer<Vec<u8>> {
        self.ask(&ReadLink { target: Target::Path(walk(path, 0)) }, |text: Text<'_>| {
            text.bytes.to_vec()
        })
    }

    pub fn stat(&mut self, path: &str, follow: bool) -> Answer<Attr> {
        let flags = if follow { WALK_FOLLOW } else { 0 };
        let answer = self.ask(&Stat { target: Target::Path(walk(path, flags)) }, |attr| attr);
        if self.cores.len() == 1 {
            self.end_batch(0);
            records::check(&self.kept, path, follow, &answer);
        }
        answer
    }

    pub fn set_xattr(
        &mut self,
        target: Target<'_>,
        name: &str,
        value: &[u8],
        flags: u32,
    ) -> Answer<()> {
        self.ask(&SetXattr { target, name: name.as_bytes(), value, flags }, |()| ())
    }

    pub fn get_xattr(&mut self, target: Target<'_>, name: &str) -> Answer<Vec<u8>> {
        let request = GetXattr { target, name: name.as_bytes() };
        self.ask(&request, |text: Text<'_>| text.bytes.to_vec())
    }

    pub fn fstat(&mut self, open: OpenRef) -> Answer<Attr> {
        self.ask(&Stat { target: Target::Open(open) }, |attr| attr)
    }

    pub fn set_attr(
        &mut self,
        target: Target<'_>,
        which: u32,
        set: SetAttr<'static>,
    ) -> Answer<Attr> {
        self.ask(&SetAttr { target, which, ..set }, |attr| attr)
    }

    pub fn grant(&mut self, open: OpenRef, want: u32, end: u64) -> Answer<String> {
        self.ask(&Grant { open, want, end }, |granted: Granted<'_>| {
            String::from_utf8(granted.object_path.to_vec()).unwrap()
        })
    }

    /// Writes as a client does: small files through the daemon, others directly.
    pub fn write(&mut self, open: OpenRef, offset: u64, bytes: &[u8]) -> Answer<u64> {
        let end = offset + bytes.len() as u64;
        let path =
            if bytes.is_empty() { String::new() } else { self.grant(open, GRANT_WRITE, end)? };
        if path.is_empty() {
            let request = Write { open, offset, append: false, bytes };
            return self.ask(&request, |written: Written| written.end);
        }
        let file = std::fs::File::options().write(true).open(self.objects.join(path)).unwrap();
        file.write_all_at(bytes, offset).unwrap();
        Ok(end)
    }

    pub fn append(&mut self, open: OpenRef, bytes: &[u8]) -> Answer<u64> {
        let request = Write { open, offset: 0, append: true, bytes };
        self.ask(&request, |written: Written| written.end)
    }

    pub fn read(&mut self, open: OpenRef, offset: u64, count: u32) -> Answer<Vec<u8>> {
        self.ask(&Read { open, offset, count }, |data: Data<'_>| data.bytes.to_vec())
    }

    /// Reads the object itself, when there is one.
    pub fn read_direct(&mut self, open: OpenRef, offset: u64, count: u32) -> Answer<Vec<u8>> {
        let path = self.grant(open, GRANT_READ, 0)?;
        if path.is_empty() {
            return self.read(open, offset, count);
        }
        let file = std::fs::File::open(self.objects.join(path)).unwrap();
        let mut bytes = vec![0; count as usize];
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], offset + done as u64).unwrap() {
                0 => break,
                count => done += count,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    /// All names of a directory with their types, read in pages of `bytes_max`.
    pub fn list(&mut self, open: OpenRef, bytes_max: u32) -> Answer<Vec<(Vec<u8>, FileKind)>> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let page: Vec<(Vec<u8>, FileKind, u64)> =
                self.ask(&List { open, cookie, bytes_max }, |listing: Listing<'_>| {
                    mayfly_wire::listing::entries(listing.entries)
                        .map(|entry| {
                            let entry = entry.unwrap();
                            (entry.name.to_vec(), entry.kind, entry.next_cookie)
                        })
                        .collect()
                })?;
            let Some(last) = page.last() else { return Ok(names) };
            cookie = last.2;
            names.extend(page.into_iter().map(|(name, kind, _)| (name, kind)));
        }
    }
}

pub fn walk(path: &str, flags: u32) -> Walk<'_> {
    Walk { start: FileId::ROOT, flags, path: path.as_bytes() }
}

pub fn set() -> SetAttr<'static> {
    SetAttr {
        target: Target::Directory(FileId::ROOT),
        which: 0,
        mode: 0,
        uid: 0,
        gid: 0,
        size_bytes: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
    }
}

pub fn failed<T: std::fmt::Debug>(answer: Answer<T>) -> Errno {
    match answer {
        Err(Failed::Errno(errno)) => errno,
        other => panic!("expected an error, got {other:?}"),
    }
}

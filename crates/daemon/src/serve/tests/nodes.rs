//! Several nodes in one process: daemons with real file systems, connected over the loopback.

use std::{
    net::TcpListener,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use mayfly_meta::{TreeOptions, TreeStore, record::Policy};
use mayfly_object::DirectoryStore;
use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::{Attachment, layout::OPEN_FREE};
use mayfly_types::{
    Attr, Durability, Errno, FileId, OpenRef, Times,
    limits::{DEADLINE_MS_DEFAULT, LEASE_SECONDS},
};
use mayfly_wire::{
    Close, LOCK_FLOCK, LOCK_POSIX, LOCK_UNLOCK, LOCK_WRITE, Link, List, Lock, LockRange,
    MakeDirectory, Open, Operation, Read, Rename, Stat, StatFs, Status, Symlink, Target, Unlink,
    WALK_EMPTY, Walk, Write, listing,
};

use crate::{
    Config, Consistency, Directories, LeaseTimes, Pool, Roles, Seams, Shard, Survivors,
    SystemClock, Totals,
    serve::{Ending, Nodes, Opener, Place, run, sessions::channel::Message, tests::host::Host},
};

const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_DIRECTORY: u32 = 0o200_000;

/// Opens the shards of one node.
struct Files {
    directory: PathBuf,
    chunks: (u64, Policy),
    width: u16,
    roles: Roles,
    durability: Durability,
    totals: Arc<Totals>,
}

impl Opener for Files {
    type Store = TreeStore;
    type Service = Shard;
    type Error = String;

    fn store(&self, place: &Place) -> Result<(TreeStore, u64), String> {
        use mayfly_meta::Store;
        let options = TreeOptions {
            directory: self.directory.join(format!("meta-{}", place.shard())),
            limit_bytes: 1 << 30,
            boot_id: b"boot".to_vec(),
        };
        let store = TreeStore::open(&options).map_err(|error| error.to_string())?;
        let committed = store.committed_transaction();
        Ok((store, committed))
    }

    fn service(&self, place: &Place, store: TreeStore) -> Result<Shard, String> {
        let objects = DirectoryStore::open(&self.directory.join("objects"));
        let waker = place.waker();
        let parts = Seams {
            store: Box::new(store),
            objects: Arc::new(objects.map_err(|errno| errno.to_string())?),
            node: place.node(),
            clock: Box::new(SystemClock),
            shard: place.shard(),
            numbering: place.numbering(),
            totals: Arc::clone(&self.totals),
            wake: Box::new(move || waker.wake()),
        };
        let config = Config {
            instance: 77,
            mount: b"/mnt".to_vec(),
            capacity_bytes: 1 << 30,
            home_bytes_max: u64::MAX,
            chunk_bytes: self.chunks.0,
            policy: self.chunks.1,
            width: self.width,
            roles: self.roles.clone(),
            pool: 0,
            pools: vec![Pool { name: "near".to_owned(), nodes: vec![1, 2] }],
            times: Times::Mtime,
            durability: self.durability,
            locks: true,
            uid: 1,
            gid: 1,
            cached_dentries_max: 1000,
            directories: Directories::Spread,
            leases: LeaseTimes {
                seconds: LEASE_SECONDS,
                at_rest_ms: 0,
                consistency: Consistency::Strict,
            },
            io_threads: 1,
            processors: usize::MAX,
        };
        let survivors = Survivors { sessions: place.sessions().to_vec() };
        Shard::open(config, parts, &survivors).map_err(|error| error.to_string())
    }
}

pub(super) struct Served {
    pub(super) host: Host,
    chunks: (u64, Policy),
    width: u16,
    roles: Roles,
    /// From the next start on.
    pub(super) durability: Durability,
    thread: Option<JoinHandle<std::io::Result<Ending>>>,
    nodes: Nodes,
}

impl Served {
    pub(super) fn start(&mut self) {
        let channel: OwnedFd = self.host.begin();
        let slot_files = self.host.directory.join("ofd");
        let (nodes, shards) = (self.nodes.clone(), self.host.shards);
        let totals = Arc::new(Totals::new(shards));
        let directory = self.host.directory.clone();
        let (chunks, width, roles) = (self.chunks, self.width, self.roles.clone());
        let durability = self.durability;
        let files = Files { directory, chunks, width, roles, durability, totals };
        self.thread =
            Some(thread::spawn(move || run(channel, &slot_files, shards, Some(nodes), &files)));
        assert_eq!(self.host.hear(), Message::Ready);
    }

    /// Objects of the node.
    pub(super) fn objects(&self) -> usize {
        fn count(directory: &std::path::Path) -> usize {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
        }
        count(&self.host.directory.join("objects"))
    }

    pub(super) fn stop(&mut self) {
        self.host.stop();
        let ending = self.thread.take().expect("it runs").join().expect("no panic");
        assert_eq!(ending.expect("served"), Ending::Stopped);
    }
}

/// An instance of several nodes; each has a process attached.
pub(super) struct Instance {
    pub(super) served: Vec<Served>,
    pub(super) clients: Vec<Attachment>,
}

impl Instance {
    pub(super) fn new(name: &str, nodes: u32, shards: u32) -> Instance {
        Instance::striped(name, nodes, shards, (1 << 19, Policy::Stripe))
    }

    /// With chunks of that size, dealt out so.
    pub(super) fn striped(name: &str, nodes: u32, shards: u32, chunks: (u64, Policy)) -> Instance {
        Instance::laid(name, nodes, shards, chunks, u16::MAX)
    }

    /// On so many nodes.
    pub(super) fn laid(
        name: &str,
        nodes: u32,
        shards: u32,
        chunks: (u64, Policy),
        width: u16,
    ) -> Instance {
        Instance::made(name, (nodes, shards), (chunks, width), &Roles::default())
    }

    /// With so many nodes of so many shards that have these roles.
    pub(super) fn of_roles(
        name: &str,
        counts: (u32, u32),
        chunks: (u64, Policy),
        roles: &Roles,
    ) -> Instance {
        Instance::made(name, counts, (chunks, u16::MAX), roles)
    }

    fn made(
        name: &str,
        (nodes, shards): (u32, u32),
        (chunks, width): ((u64, Policy), u16),
        roles: &Roles,
    ) -> Instance {
        let listeners: Vec<TcpListener> =
            (0..nodes).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let addresses: Vec<_> =
            listeners.iter().map(|listener| listener.local_addr().expect("bound")).collect();
        let mut served = Vec::new();
        for (me, listener) in (0..).zip(listeners) {
            let mut host = Host::of_shards(&format!("{name}-{me}"), 20_000, shards);
            host.listener = Some(listener);
            let instance = [7; 16];
            let nodes = Nodes {
                me,
                addresses: addresses.clone(),
                instance,
                encrypt: me == u32::MAX,
                // Whoever is at the other end may have fewer or more.
                threads: Some(1 + me as usize % 3),
                deadline_ms: DEADLINE_MS_DEFAULT,
            };
            let roles = roles.clone();
            let durability = Durability::Process;
            served.push(Served { host, chunks, width, roles, durability, thread: None, nodes });
        }
        served.iter_mut().for_each(Served::start);
        let clients = served.iter().map(|served| served.host.attach()).collect();
        Instance { served, clients }
    }

    pub(super) fn take_clients(mut self) -> Vec<Attachment> {
        std::mem::take(&mut self.clients)
    }

    pub(super) fn ask<'a, O: Operation<'a>, T>(
        &self,
        node: usize,
        request: &O,
        take: impl FnOnce(O::Reply<'_>) -> T,
    ) -> Result<T, Errno> {
        let transport = &self.clients[node].transport;
        transport.exchange(request, Patience::Deadline, |answer| match answer {
            Answer::Done(reply) => Ok(take(reply)),
            Answer::Failed(errno) => Err(errno),
            Answer::Escaped(_) => Err(Errno::EPROTO),
        })
    }

    pub(super) fn open(&self, node: usize, path: &str, flags: u32) -> Result<OpenRef, Errno> {
        let open = Open { walk: walk(path), flags, mode: 0o644, uid: 1, gid: 1 };
        self.ask(node, &open, |reply| reply.opened.open)
    }

    pub(super) fn write(
        &self,
        node: usize,
        open: OpenRef,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u32, Errno> {
        let write = Write { open, offset, append: false, bytes };
        self.ask(node, &write, |written| written.count)
    }

    pub(super) fn read(
        &self,
        node: usize,
        open: OpenRef,
        offset: u64,
        count: u32,
    ) -> Result<Vec<u8>, Errno> {
        self.ask(node, &Read { open, offset, count }, |data| data.bytes.to_vec())
    }

    pub(super) fn stat(&self, node: usize, path: &str) -> Result<Attr, Errno> {
        self.ask(node, &Stat { target: Target::Path(walk(path)) }, |attr| attr)
    }

    pub(super) fn close(&self, node: usize, open: OpenRef) -> Result<(), Errno> {
        self.ask(node, &Close { open }, |()| ())
    }

    pub(super) fn make_directory(&self, node: usize, path: &str) -> Result<(), Errno> {
        let make = MakeDirectory { walk: walk(path), mode: 0o755, uid: 1, gid: 1 };
        self.ask(node, &make, |()| ())
    }

    pub(super) fn unlink(&self, node: usize, path: &str, directory: bool) -> Result<(), Errno> {
        self.ask(node, &Unlink { walk: walk(path), directory }, |()| ())
    }

    pub(super) fn names(&self, node: usize, path: &str) -> Vec<String> {
        let open = self.open(node, path, O_DIRECTORY).expect("a directory");
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let list = List { open, cookie, bytes_max: 4096 };
            let page = self.ask(node, &list, |page| {
                let entries = listing::entries(page.entries).map(|entry| {
                    let entry = entry.expect("well formed");
                    (entry.next_cookie, String::from_utf8(entry.name.to_vec()).expect("text"))
                });
                entries.collect::<Vec<_>>()
            });
            let page = page.expect("a listing");
            let Some((last, _)) = page.last() else { break };
            cookie = *last;
            names.extend(page.into_iter().map(|(_, name)| name));
        }
        self.close(node, open).expect("closed");
        names.sort();
        names
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.clients.clear();
            self.served.iter_mut().for_each(Served::stop);
        }
    }
}

pub(super) fn walk(path: &str) -> Walk<'_> {
    Walk { start: FileId::ROOT, flags: WALK_EMPTY, path: path.as_bytes() }
}

#[test]
fn what_one_node_makes_all_see_change_and_remove() {
    let instance = Instance::new("common", 3, 2);
    instance.make_directory(0, "d").expect("made");
    assert_eq!(instance.make_directory(1, "d"), Err(Errno::EEXIST));
    for number in 0..60 {
        let path = format!("d/file-{number}");
        let open = instance.open(number % 3, &path, O_RDWR | O_CREAT | O_EXCL).expect("made");
        let text = path.repeat(number + 1);
        let written = instance.write(number % 3, open, 0, text.as_bytes());
        assert_eq!(written, Ok(text.len() as u32));
        instance.close(number % 3, open).expect("closed");
    }
    for node in 0..3 {
        for number in 0..60 {
            let path = format!("d/file-{number}");
            let text = path.repeat(number + 1);
            assert_eq!(instance.stat(node, &path).expect("there").size_bytes, text.len() as u64);
            let open = instance.open(node, &path, 0).expect("opened");
            assert_eq!(instance.read(node, open, 0, 100_000).expect("read"), text.as_bytes());
            instance.close(node, open).expect("closed");
            let again = instance.open(node, &path, O_RDWR | O_CREAT | O_EXCL);
            assert_eq!(again, Err(Errno::EEXIST));
        }
        assert_eq!(instance.names(node, "d").len(), 62);
    }
    assert_eq!(instance.unlink(2, "d", true), Err(Errno::ENOTEMPTY));
    for number in 0..60 {
        let (node, path) = ((number + 1) % 3, format!("d/file-{number}"));
        instance.unlink(node, &path, false).expect("removed");
        assert_eq!(instance.stat((node + 1) % 3, &path), Err(Errno::ENOENT));
    }
    assert_eq!(instance.names(1, "d"), [".", ".."]);
    instance.unlink(1, "d", true).expect("removed");
    assert_eq!(instance.stat(0, "d"), Err(Errno::ENOENT));
}

fn lock(owner: u32, kind: u32, open: OpenRef, wait: bool) -> Lock {
    let end = if owner == LOCK_FLOCK { u64::MAX } else { 10 };
    Lock { open, range: LockRange { owner, kind, start: 0, end }, wait }
}

#[test]
fn locks_exclude_each_other_over_nodes_and_end_with_their_process() {
    let mut instance = Instance::new("locks", 3, 1);
    for (round, owner) in [LOCK_FLOCK, LOCK_POSIX].into_iter().enumerate() {
        let path = format!("file-{round}");
        let opens: Vec<OpenRef> = (0..3)
            .map(|node| instance.open(node, &path, O_RDWR | O_CREAT).expect("opened"))
            .collect();
        let take = |node: usize, kind, wait| {
            instance.ask(node, &lock(owner, kind, opens[node], wait), |()| ())
        };
        assert_eq!(take(0, LOCK_WRITE, false), Ok(()));
        assert_eq!(take(1, LOCK_WRITE, false), Err(Errno::EAGAIN));
        assert_eq!(take(2, LOCK_WRITE, false), Err(Errno::EAGAIN));
        thread::scope(|scope| {
            let waits = scope.spawn(|| take(1, LOCK_WRITE, true));
            thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waits.is_finished());
            assert_eq!(take(0, LOCK_UNLOCK, false), Ok(()));
            assert_eq!(waits.join().expect("no panic"), Ok(()));
        });
        assert_eq!(take(2, LOCK_WRITE, false), Err(Errno::EAGAIN));
        // Closing any description gives a POSIX lock up, closing the last one the other.
        let other = instance.open(1, &path, O_RDWR).expect("opened");
        instance.close(1, other).expect("closed");
        let expected = if owner == LOCK_POSIX { Ok(()) } else { Err(Errno::EAGAIN) };
        assert_eq!(take(2, LOCK_WRITE, false), expected);
        instance.close(1, opens[1]).expect("closed");
        assert_eq!(take(2, LOCK_WRITE, true), Ok(()));
        // The process is gone, and with it its lock.
        let wait = lock(owner, LOCK_WRITE, opens[0], true);
        thread::scope(|scope| {
            let waits = scope.spawn(|| instance.ask(0, &wait, |()| ()));
            thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waits.is_finished());
            instance.served[2].host.end_last_session();
            assert_eq!(waits.join().expect("no panic"), Ok(()));
        });
        instance.clients[2] = instance.served[2].host.attach();
    }
}

#[test]
fn names_move_between_nodes_and_links_are_counted() {
    let instance = Instance::new("moves", 3, 2);
    for directory in ["a", "b", "c"] {
        instance.make_directory(0, directory).expect("made");
    }
    let mut before = Vec::new();
    for number in 0..40 {
        let path = format!("a/{number}");
        let open = instance.open(number % 3, &path, O_RDWR | O_CREAT).expect("made");
        instance.write(number % 3, open, 0, path.as_bytes()).expect("written");
        instance.close(number % 3, open).expect("closed");
        before.push(instance.stat(0, &path).expect("there").id);
    }
    for (number, id) in before.into_iter().enumerate() {
        let node = (number + 1) % 3;
        let (from, to, more) =
            (format!("a/{number}"), format!("b/{number}"), format!("c/{number}"));
        let rename = Rename { from: walk(&from), to: walk(&to), flags: 0 };
        instance.ask(node, &rename, |()| ()).expect("renamed");
        let link = Link { from: Target::Path(walk(&to)), to: walk(&more) };
        instance.ask(node, &link, |()| ()).expect("linked");
        for node in 0..3 {
            assert_eq!(instance.stat(node, &from), Err(Errno::ENOENT));
            let attr = instance.stat(node, &more).expect("there");
            assert_eq!((attr.id, attr.links), (id, 2), "{number} on {node}");
        }
        instance.unlink(node, &to, false).expect("removed");
        let open = instance.open(number % 3, &more, 0).expect("opened");
        instance.unlink(node, &more, false).expect("removed");
        assert_eq!(instance.read(number % 3, open, 0, 99), Ok(from.into_bytes()), "while open");
        instance.close(number % 3, open).expect("closed");
    }
    let rename = Rename { from: walk("a"), to: walk("c/a"), flags: 0 };
    instance.ask(1, &rename, |()| ()).expect("a directory moves");
    assert_eq!(instance.names(2, "c"), [".", "..", "a"]);
    for served in &instance.served {
        assert_eq!(served.objects(), 0, "nothing is left");
    }
    // What was closed on another node goes a moment later.
    let space = || instance.ask(2, &StatFs {}, |space| space).expect("counted");
    while space().files > 4 {
        thread::yield_now();
    }
    assert_eq!((space().capacity_bytes, space().files), (3 << 30, 4));
}

#[test]
fn a_removed_link_that_other_nodes_remember_is_not_counted_any_more() {
    let instance = Instance::new("links", 3, 1);
    instance.make_directory(0, "d").expect("made");
    let files = || instance.ask(0, &StatFs {}, |space| space.files).expect("counted");
    let before = files();
    for number in 0..24 {
        let path = format!("link-{number}");
        let link = Symlink { at: walk(&path), target: b"d", uid: 1, gid: 1 };
        instance.ask(0, &link, |()| ()).expect("made");
        for node in 0..3 {
            instance.stat(node, &format!("{path}/.")).expect("a directory");
        }
        instance.unlink(number % 3, &path, false).expect("removed");
        for node in 0..3 {
            assert_eq!(instance.stat(node, &format!("{path}/.")), Err(Errno::ENOENT));
        }
    }
    assert_eq!(files(), before);
}

#[test]
fn a_node_that_comes_back_has_everything_and_others_waited_for_it() {
    let mut instance = Instance::new("back", 3, 1);
    instance.make_directory(0, "d").expect("made");
    let kept: Vec<OpenRef> = (0..12)
        .map(|number| instance.open(0, &format!("kept-{number}"), O_RDWR | O_CREAT).expect("made"))
        .collect();
    for round in 0..3 {
        let node = 1 + round % 2;
        instance.served[node].stop();
        let Instance { served, clients } = &mut instance;
        let view = Instance { served: Vec::new(), clients: std::mem::take(clients) };
        thread::scope(|scope| {
            let works = scope.spawn(|| {
                for number in 0..30 {
                    let path = format!("d/{round}-{number}");
                    let open = view.open(0, &path, O_RDWR | O_CREAT | O_EXCL).expect("made");
                    view.write(0, open, 0, path.as_bytes()).expect("written");
                    view.close(0, open).expect("closed");
                    view.stat(0, &path).expect("there");
                }
                for (number, open) in kept.iter().enumerate() {
                    let text = format!("{round} {number}");
                    view.write(0, *open, 0, text.as_bytes()).expect("written");
                    assert_eq!(view.read(0, *open, 0, 99), Ok(text.into_bytes()));
                }
            });
            thread::sleep(std::time::Duration::from_millis(100));
            served[node].start();
            works.join().expect("no panic");
        });
        *clients = { view }.take_clients();
    }
    for node in 0..3 {
        assert_eq!(instance.names(node, "d").len(), 92, "on {node}");
    }
}

/// Descriptions in all tables of a node.
fn descriptions(instance: &Instance, node: usize) -> u32 {
    instance.ask(node, &Status {}, |counters| counters.open_files).expect("counted")
}

/// Waits until a node has no more of them.
fn until_descriptions(instance: &Instance, node: usize, at_most: u32) {
    let end = Instant::now() + Duration::from_millis(DEADLINE_MS_DEFAULT);
    while descriptions(instance, node) > at_most {
        assert!(Instant::now() < end, "{} are left", descriptions(instance, node));
        thread::sleep(Duration::from_millis(5));
    }
}

/// A daemon was killed after it had freed its own descriptions and before the nodes of their files
/// heard of it: nobody was left who would ever give those back.
#[test]
fn what_a_killed_daemon_was_giving_back_is_given_back_when_another_one_is_there() {
    let mut instance = Instance::new("given", 2, 2);
    let opened: Vec<OpenRef> = (0..40)
        .map(|number| instance.open(0, &format!("file-{number}"), O_RDWR | O_CREAT).expect("made"))
        .collect();
    let there = descriptions(&instance, 1);
    assert!(there > 4, "{there} files are at home on the other node");
    for number in 0..40 {
        instance.unlink(0, &format!("file-{number}"), false).expect("removed");
    }
    instance.served[0].stop();
    let node = instance.served[0].host.node;
    let is_proxy = |open: &OpenRef| {
        let entry = &node.opens[open.index as usize];
        entry.reserved[2].load(Relaxed) >> 8 != 0
    };
    let remote: Vec<OpenRef> = opened.iter().copied().filter(is_proxy).collect();
    assert_eq!(remote.len() as u32, there);
    let (kept, freed) = remote.split_at(remote.len() / 2);
    for open in freed {
        let entry = &node.opens[open.index as usize];
        entry.state.store(OPEN_FREE, SeqCst);
        entry.generation.fetch_add(1, SeqCst);
    }
    instance.served[0].start();
    // The other node asks when it reaches this one again. The answer to the last request of a lane
    // may come again, so what it made is spared until the lane goes on.
    until_descriptions(&instance, 1, kept.len() as u32 + 2);
    for number in 0..40 {
        assert_eq!(instance.stat(0, &format!("file-{number}")), Err(Errno::ENOENT));
    }
    until_descriptions(&instance, 1, kept.len() as u32);
    assert_eq!(descriptions(&instance, 1), kept.len() as u32);
    for open in kept {
        assert_eq!(instance.write(0, *open, 0, b"still"), Ok(5));
        assert_eq!(instance.read(0, *open, 0, 9).expect("read"), b"still");
        instance.close(0, *open).expect("closed");
    }
    let is_over = |instance: &Instance| descriptions(instance, 1) == 0;
    while !is_over(&instance) {
        thread::yield_now();
    }
}

/// The answer to an open may come again at a node whose daemon was killed before it took it in.
#[test]
fn an_open_whose_answer_a_killed_daemon_did_not_take_in_is_not_given_back() {
    let mut instance = Instance::new("spared", 2, 1);
    let mut number = 0;
    let open = loop {
        number += 1;
        let open = instance.open(0, &format!("file-{number}"), O_RDWR | O_CREAT).expect("made");
        if descriptions(&instance, 1) > 0 {
            break open;
        }
    };
    let node = instance.served[0].host.node;
    instance.served[0].stop();
    let entry = &node.opens[open.index as usize];
    entry.state.store(OPEN_FREE, SeqCst);
    entry.generation.fetch_add(1, SeqCst);
    instance.served[0].start();
    assert_eq!(descriptions(&instance, 1), 1, "it is spared");
    // Its process ends without having asked again.
    instance.served[0].host.end_last_session();
    while descriptions(&instance, 1) > 0 {
        thread::yield_now();
    }
    instance.clients[0] = instance.served[0].host.attach();
}

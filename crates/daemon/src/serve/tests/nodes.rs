//! Several nodes in one process: daemons with real file systems, connected over the loopback.

use std::{
    net::TcpListener,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
};

use mayfly_meta::{TreeOptions, TreeStore};
use mayfly_object::DirectoryStore;
use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::Attachment;
use mayfly_types::{Attr, Durability, Errno, FileId, OpenRef, Times};
use mayfly_wire::{
    Close, LOCK_FLOCK, LOCK_POSIX, LOCK_UNLOCK, LOCK_WRITE, Link, List, Lock, LockRange,
    MakeDirectory, Open, Operation, Read, Rename, Request, Stat, StatFs, Target, Unlink,
    WALK_EMPTY, Walk, Write, listing,
};

use super::{
    super::{Ending, Nodes, Opener, Place, channel::Message, run},
    host::Host,
};
use crate::{Config, Core, Parts, Survivors, SystemClock, Totals};

const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_DIRECTORY: u32 = 0o200_000;

/// Opens the shards of one node.
struct Files {
    directory: PathBuf,
    totals: Arc<Totals>,
}

impl Opener for Files {
    type Store = TreeStore;
    type Service = Core;
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

    fn service(&self, place: &Place, store: TreeStore) -> Result<Core, String> {
        let objects = DirectoryStore::open(&self.directory.join("objects"));
        let waker = place.waker();
        let parts = Parts {
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
            chunk_bytes: 1 << 19,
            times: Times::Mtime,
            durability: Durability::Process,
            locks: true,
            uid: 1,
            gid: 1,
            cached_dentries_max: 1000,
            io_threads: 1,
        };
        let survivors = Survivors { sessions: place.sessions().to_vec() };
        Core::open(config, parts, &survivors).map_err(|error| error.to_string())
    }
}

struct Served {
    host: Host,
    thread: Option<JoinHandle<std::io::Result<Ending>>>,
    nodes: Nodes,
}

impl Served {
    fn start(&mut self) {
        let channel: OwnedFd = self.host.begin();
        let slot_files = self.host.directory.join("ofd");
        let (nodes, shards) = (self.nodes.clone(), self.host.shards);
        let totals = Arc::new(Totals::new(shards));
        let files = Files { directory: self.host.directory.clone(), totals };
        self.thread =
            Some(thread::spawn(move || run(channel, &slot_files, shards, Some(nodes), &files)));
        assert_eq!(self.host.hear(), Message::Ready);
    }

    fn stop(&mut self) {
        self.host.stop();
        let ending = self.thread.take().expect("it runs").join().expect("no panic");
        assert_eq!(ending.expect("served"), Ending::Stopped);
    }
}

/// An instance of several nodes; each has a process attached.
struct Instance {
    served: Vec<Served>,
    clients: Vec<Attachment>,
}

impl Instance {
    fn new(name: &str, nodes: u32, shards: u32) -> Instance {
        let listeners: Vec<TcpListener> =
            (0..nodes).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let addresses: Vec<_> =
            listeners.iter().map(|listener| listener.local_addr().expect("bound")).collect();
        let mut served = Vec::new();
        for (me, listener) in (0..).zip(listeners) {
            let mut host = Host::of_shards(&format!("{name}-{me}"), 20_000, shards);
            host.listener = Some(listener);
            let instance = [7; 16];
            let nodes =
                Nodes { me, addresses: addresses.clone(), instance, encrypt: me == u32::MAX };
            served.push(Served { host, thread: None, nodes });
        }
        served.iter_mut().for_each(Served::start);
        let clients = served.iter().map(|served| served.host.attach()).collect();
        Instance { served, clients }
    }

    fn ask<'a, O: Operation<'a>, T>(
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

    fn open(&self, node: usize, path: &str, flags: u32) -> Result<OpenRef, Errno> {
        let open = Open { walk: walk(path), flags, mode: 0o644, uid: 1, gid: 1 };
        self.ask(node, &open, |reply| reply.opened.open)
    }

    fn write(&self, node: usize, open: OpenRef, offset: u64, bytes: &[u8]) -> Result<u32, Errno> {
        let write = Write { open, offset, append: false, bytes };
        self.ask(node, &write, |written| written.count)
    }

    fn read(&self, node: usize, open: OpenRef, offset: u64, count: u32) -> Result<Vec<u8>, Errno> {
        self.ask(node, &Read { open, offset, count }, |data| data.bytes.to_vec())
    }

    fn stat(&self, node: usize, path: &str) -> Result<Attr, Errno> {
        self.ask(node, &Stat { target: Target::Path(walk(path)) }, |attr| attr)
    }

    fn close(&self, node: usize, open: OpenRef) -> Result<(), Errno> {
        self.ask(node, &Close { open }, |()| ())
    }

    fn make_directory(&self, node: usize, path: &str) -> Result<(), Errno> {
        let make = MakeDirectory { walk: walk(path), mode: 0o755, uid: 1, gid: 1 };
        self.ask(node, &make, |()| ())
    }

    fn unlink(&self, node: usize, path: &str, directory: bool) -> Result<(), Errno> {
        self.ask(node, &Unlink { walk: walk(path), directory }, |()| ())
    }

    fn names(&self, node: usize, path: &str) -> Vec<String> {
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

fn walk(path: &str) -> Walk<'_> {
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

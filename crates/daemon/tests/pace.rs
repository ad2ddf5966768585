//! What the operations of a core cost, each in a transaction of its own, without the way from and
//! to a process. Run in release with `--ignored --nocapture`; nothing is asserted.
//! `PACE_STORE=tree` leaves the other stores out, `PACE_FILES` is the number of files, `PACE_BATCH`
//! that of requests between two commits, and
//! `PACE_UNTIL=create` leaves out what comes after the creates, and so on: under valgrind the
//! difference of two such runs, or of two numbers of files, is what an operation costs in
//! instructions, which are the same on a busy machine. `PACE_BYTES` is what a small file has
//! that is made, written and closed (`fill`), and opened, read and closed (`look`).
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::{
    ops::ControlFlow,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Instant,
};

use mayfly_daemon::{Numbering, Progress, Seams, Shard, Survivors, Totals};
use mayfly_meta::{LmdbOptions, LmdbStore, MemoryStore, Store, TreeOptions, TreeStore};
use mayfly_object::DirectoryStore;
use mayfly_transport_shm::submission_ring::RECORDS;
use mayfly_types::OpenRef;
use mayfly_wire::{
    Close, Open, Opened, Operation, Read, Reader, Stat, Target, Unlink, Walk, Wire, Write,
};
use support::{
    Node, O_CREAT, O_RDWR, SESSION, TestClock, config, region,
    submitting::{make_as, remove, ring_at as ring, submit_create, warm},
    walk,
};

const LIMIT_BYTES: u64 = 1 << 30;
/// Files that stay open.
const OPENS_MAX: usize = 50_000;

/// Where files are in memory, if there is such a place.
fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

struct Bed {
    node: Node,
    body: Vec<u8>,
    directory: tempfile::TempDir,
    asked: u32,
    /// Requests of a transaction.
    batch: u32,
}

type Opening = fn(&Path) -> Box<dyn Store>;

/// The stores that a core can be kept in.
const STORES: [(&str, Opening); 3] = [
    ("tree", |directory| {
        let options = TreeOptions {
            directory: directory.to_owned(),
            limit_bytes: LIMIT_BYTES,
            boot_id: b"boot".to_vec(),
        };
        Box::new(TreeStore::open(&options).unwrap())
    }),
    ("LMDB", |directory| {
        let options = LmdbOptions {
            directory: directory.to_owned(),
            limit_bytes: LIMIT_BYTES,
            sync: false,
            boot_id: b"boot".to_vec(),
        };
        Box::new(LmdbStore::open(&options).unwrap())
    }),
    ("in memory", |_| Box::new(MemoryStore::volatile(LIMIT_BYTES))),
];

impl Bed {
    fn new(open: Opening) -> Bed {
        let directory = tempfile::tempdir_in(memory()).unwrap();
        let objects = directory.path().join("objects");
        let parts = Seams {
            store: open(&directory.path().join("meta")),
            objects: Arc::new(DirectoryStore::open(&objects).unwrap()),
            node: region(),
            clock: Box::new(TestClock::default()),
            shard: 0,
            numbering: Numbering::of_one_node(1),
            totals: Arc::new(Totals::new(1)),
            wake: Box::new(|| {}),
        };
        let core = Shard::open(config(), parts, &Survivors::default()).unwrap();
        let node = Node::around(core, objects);
        let batch = std::env::var("PACE_BATCH").map_or(1, |batch| batch.parse().unwrap());
        Bed { node, body: vec![0; 8192], directory, asked: 0, batch }
    }

    /// What the store's files take, allocated ahead or used.
    fn meta_bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.directory.path().join("meta")).into_iter().flatten();
        files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
    }

    fn ask<'a, O: Operation<'a>>(&mut self, request: &O) -> usize {
        let caller = self.node.next_caller(SESSION);
        let progress = self.node.submit(caller, request, &mut self.body);
        let core = self.node.core();
        self.asked += 1;
        if core.batch_transaction() != 0 && self.asked.is_multiple_of(self.batch) {
            core.commit().unwrap();
        }
        match progress {
            Progress::Replied(0, bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, walk: Walk<'_>, flags: u32) -> OpenRef {
        let bytes = self.ask(&Open { walk, flags, mode: 0o644, uid: 0, gid: 0 });
        let mut from = Reader::new(&self.body[..bytes]);
        Opened::decode(&mut from).unwrap().open
    }
}

/// How many files are made.
fn files() -> u32 {
    std::env::var("PACE_FILES").map_or(100_000, |files| files.parse().unwrap())
}

/// Whether `name` was to be the last.
fn each(name: &str, mut work: impl FnMut(u32)) -> ControlFlow<()> {
    let begun = Instant::now();
    (0..files()).for_each(&mut work);
    println!("{name:14} {:?}", begun.elapsed() / files());
    let last = std::env::var("PACE_UNTIL").is_ok_and(|last| last == name);
    if last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

#[test]
#[ignore = "a measurement"]
fn operations() {
    let only = std::env::var("PACE_STORE").ok();
    for (name, open) in STORES {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        println!("on the store {name}");
        let _until = operations_of(Bed::new(open));
    }
}

/// What is submitted in a row, with the process's own part, on the tree alone.
#[test]
#[ignore = "a measurement"]
fn submissions() {
    let mut node = Node::on_disk_in(config(), &memory());
    let _until = submissions_of(&mut node);
}

fn submissions_of(node: &mut Node) -> ControlFlow<()> {
    node.mkdir("d").unwrap();
    let paths: Vec<String> = (0..files()).map(|number| format!("d/file{number}")).collect();
    let path = |number: u32| paths[number as usize].as_str();
    warm(node, "d");
    each("post a create", |number| {
        make_room(node);
        // A segment of the name table that is full is divided with a request.
        let open = submit_create(node, path(number))
            .unwrap_or_else(|| make_as(node, SESSION, path(number)).unwrap().0);
        if !ring(node, SESSION).withdraw(open) {
            node.close(open);
        }
    })?;
    each("post an unlink", |number| {
        make_room(node);
        if !remove(node, path(number)) {
            node.unlink(path(number), false).unwrap();
        }
    })
}

/// Has what was submitted executed, when the ring is full.
fn make_room(node: &mut Node) {
    if ring(node, SESSION).waiting() < RECORDS as u32 {
        return;
    }
    node.region.head.rings.ripe.store(node.region.head.submitted.load(SeqCst), SeqCst);
    while node.region.head.rings.ripe.load(SeqCst) != 0 {
        node.core().idle_work();
        node.core().commit().unwrap();
    }
}

fn operations_of(mut bed: Bed) -> ControlFlow<()> {
    bed.node.mkdir("d").unwrap();
    let paths: Vec<String> = (0..files()).map(|number| format!("d/file{number}")).collect();
    let path = |number: u32| walk(&paths[number as usize], 0);
    let mut opens = Vec::new();
    each("create", |number| {
        let open = bed.open(path(number), O_CREAT | O_RDWR);
        if number.is_multiple_of(2) || opens.len() == OPENS_MAX {
            bed.ask(&Close { open });
        } else {
            opens.push(open);
        }
    })?;
    println!("{:14} {} MiB", "on disk", bed.meta_bytes() >> 20);
    each("close", |number| {
        if let Some(open) = opens.get(number as usize) {
            bed.ask(&Close { open: *open });
        }
    })?;
    each("stat", |number| {
        bed.ask(&Stat { target: Target::Path(path(number)) });
    })?;
    each("open", |number| {
        let open = bed.open(path(number), O_RDWR);
        bed.ask(&Close { open });
    })?;
    each("unlink", |number| {
        bed.ask(&Unlink { walk: path(number), directory: false });
    })?;
    let Ok(bytes) = std::env::var("PACE_BYTES") else { return ControlFlow::Continue(()) };
    let content = vec![7; bytes.parse().unwrap()];
    each("fill", |number| {
        let open = bed.open(path(number), O_CREAT | O_RDWR);
        bed.ask(&Write { open, offset: 0, append: false, bytes: &content });
        bed.ask(&Close { open });
    })?;
    each("look", |number| {
        let open = bed.open(path(number), 0);
        assert_eq!(bed.node.core().opened_content().unwrap_or_default(), content);
        bed.ask(&Close { open });
    })?;
    each("read", |number| {
        let open = bed.open(path(number), O_RDWR);
        bed.ask(&Read { open, offset: 0, count: content.len() as u32 });
        bed.ask(&Close { open });
    })?;
    each("remove", |number| {
        bed.ask(&Unlink { walk: path(number), directory: false });
    })
}

//! What the operations of a core cost, each in a transaction of its own, without the way from and
//! to a process. Run in release with `--ignored --nocapture`; nothing is asserted.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use mayfly_daemon::{Core, Parts, Progress, ShardId, Survivors, Totals};
use mayfly_meta::{LmdbOptions, LmdbStore};
use mayfly_object::DirectoryStore;
use mayfly_wire::{Close, Open, Operation, Stat, Target, Unlink};
use support::{Node, O_CREAT, O_RDWR, SESSION, TestClock, config, region, walk};

const FILES: u32 = 100_000;

struct Bed {
    node: Node,
    body: Vec<u8>,
    _directory: tempfile::TempDir,
}

impl Bed {
    fn new() -> Bed {
        let memory = PathBuf::from("/dev/shm");
        let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let directory = tempfile::tempdir_in(place).unwrap();
        let objects = directory.path().join("objects");
        let options = LmdbOptions {
            directory: directory.path().join("meta"),
            limit_bytes: 1 << 30,
            sync: false,
            boot_id: b"boot".to_vec(),
        };
        let parts = Parts {
            store: Box::new(LmdbStore::open(&options).unwrap()),
            objects: Arc::new(DirectoryStore::open(&objects).unwrap()),
            node: region(),
            clock: Box::new(TestClock::default()),
            shard: ShardId(0),
            totals: Arc::new(Totals::new(1)),
            wake: Box::new(|| {}),
        };
        let core = Core::open(config(), parts, &Survivors::default()).unwrap();
        let node = Node::around(core, objects);
        Bed { node, body: vec![0; 8192], _directory: directory }
    }

    fn ask<'a, O: Operation<'a>>(&mut self, request: &O) -> usize {
        let caller = self.node.next_caller(SESSION);
        let progress = self.node.submit(caller, request, &mut self.body);
        let core = self.node.core();
        if core.batch_transaction() != 0 {
            core.commit().unwrap();
        }
        match progress {
            Progress::Replied(0, bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }
}

fn each(name: &str, mut work: impl FnMut(u32)) -> Duration {
    let begun = Instant::now();
    (0..FILES).for_each(&mut work);
    let each = begun.elapsed() / FILES;
    println!("{name:14} {each:?}");
    each
}

#[test]
#[ignore = "a measurement"]
fn operations() {
    let mut bed = Bed::new();
    bed.node.mkdir("d").unwrap();
    let paths: Vec<String> = (0..FILES).map(|number| format!("d/file{number}")).collect();
    let path = |number: u32| walk(&paths[number as usize], 0);
    let mut opens = Vec::new();
    each("create", |number| {
        let flags = O_CREAT | O_RDWR;
        let open = Open { walk: path(number), flags, mode: 0o644, uid: 0, gid: 0 };
        let bytes = bed.ask(&open);
        let mut from = mayfly_wire::Reader::new(&bed.body[..bytes]);
        let opened = <mayfly_wire::Opened as mayfly_wire::Wire>::decode(&mut from).unwrap();
        if number.is_multiple_of(2) {
            bed.ask(&Close { open: opened.open });
        } else {
            opens.push(opened.open);
        }
    });
    each("close (half)", |number| {
        if let Some(open) = opens.get(number as usize) {
            bed.ask(&Close { open: *open });
        }
    });
    each("stat", |number| {
        bed.ask(&Stat { target: Target::Path(path(number)) });
    });
    each("open, close", |number| {
        let open = Open { walk: path(number), flags: O_RDWR, mode: 0, uid: 0, gid: 0 };
        let bytes = bed.ask(&open);
        let mut from = mayfly_wire::Reader::new(&bed.body[..bytes]);
        let opened = <mayfly_wire::Opened as mayfly_wire::Wire>::decode(&mut from).unwrap();
        bed.ask(&Close { open: opened.open });
    });
    each("unlink", |number| {
        bed.ask(&Unlink { walk: path(number), directory: false });
    });
}

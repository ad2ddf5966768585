//! Several processes that write the same files, which lie on a disk that has to be waited for.
//!
//! Small writes that make a file grow out of its inode, and appends, meet in any order while the
//! disk answers in any order and the daemon dies now and then. What each has written is there in
//! the end, once.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_types::{OpenRef, SessionId};
use mayfly_wire::{Open, OpenReply, SET_SIZE, SetAttr, Target, Write};
use proptest::prelude::*;
use support::{
    Node, O_CREAT, O_RDWR, config_of,
    crowd::{Crowd, sent},
    set, walk,
};

const CLIENTS: u32 = 4;
/// Each client's part of the common file, bytes.
const PART: usize = 2000;
const RECORD: usize = 300;

#[derive(Debug, Clone)]
enum Do {
    /// Bytes from this offset in its part.
    Write(usize, usize, u8),
    Append,
    /// Makes the common file longer than all parts.
    Extend,
}

fn what() -> impl Strategy<Value = Do> {
    prop_oneof![
        5 => (0..PART, 1..PART, 1..=255_u8).prop_map(|(at, count, byte)| {
            Do::Write(at, count.min(PART - at), byte)
        }),
        5 => Just(Do::Append),
        1 => Just(Do::Extend),
    ]
}

struct Files {
    /// Of each client: its descriptions of the common file and of the log.
    opens: Vec<[OpenRef; 2]>,
    parts: Vec<[u8; PART]>,
    records: Vec<[u8; RECORD]>,
    length: usize,
}

impl Files {
    fn open(crowd: &mut Crowd) -> Files {
        let mut opens = Vec::new();
        for client in 1..=CLIENTS {
            let both = ["common", "log"].map(|name| {
                let flags = O_CREAT | O_RDWR;
                let walk = walk(name, 0);
                let open = Open { walk, flags, mode: 0o600, uid: 0, gid: 0 };
                let opened = |reply: OpenReply<'_>| reply.opened.open;
                crowd.node.ask_as(SessionId(client), &open, opened).unwrap()
            });
            opens.push(both);
        }
        let parts = vec![[0; PART]; CLIENTS as usize];
        Files { opens, parts, records: Vec::new(), length: 0 }
    }

    /// Begins what a client does next, and notes what it must come to.
    fn begin(&mut self, crowd: &mut Crowd, client: u32, what: &Do) {
        let which = client as usize - 1;
        let [common, log] = self.opens[which];
        match *what {
            Do::Write(at, count, byte) => {
                self.parts[which][at..at + count].fill(byte);
                let offset = which * PART + at;
                self.length = self.length.max(offset + count);
                let bytes = vec![byte; count];
                let offset = offset as u64;
                let write = Write { open: common, offset, append: false, bytes: &bytes };
                crowd.begin(client, sent(&write));
            }
            Do::Append => {
                let number = self.records.len() as u8;
                let record: [u8; RECORD] =
                    std::array::from_fn(|at| if at % 2 == 0 { number } else { at as u8 });
                self.records.push(record);
                let write = Write { open: log, offset: 0, append: true, bytes: &record };
                crowd.begin(client, sent(&write));
            }
            Do::Extend => {
                let target = Target::Open(common);
                let size_bytes = (CLIENTS as usize * PART) as u64;
                self.length = CLIENTS as usize * PART;
                crowd
                    .begin(client, sent(&SetAttr { target, which: SET_SIZE, size_bytes, ..set() }));
            }
        }
    }

    fn check(&self, node: &mut Node) {
        let content = |node: &mut Node, name: &str| {
            let open = node.open(name, 0).unwrap().0;
            let bytes = node.read(open, 0, 200_000).unwrap();
            node.close(open);
            bytes
        };
        let common = content(node, "common");
        assert_eq!(common, self.parts.concat()[..self.length]);
        let log = content(node, "log");
        let mut found: Vec<&[u8]> = log.chunks(RECORD).collect();
        let mut wanted: Vec<&[u8]> = self.records.iter().map(<[u8; RECORD]>::as_slice).collect();
        found.sort_unstable();
        wanted.sort_unstable();
        let numbers =
            |records: &[&[u8]]| records.iter().map(|record| record[0]).collect::<Vec<_>>();
        assert_eq!(numbers(&found), numbers(&wanted), "each record is there once");
        assert!(found == wanted, "and whole");
    }
}

fn play(plan: &[(u32, Do, usize)], node: Node, deaths: usize) {
    let mut crowd = Crowd::new(node, CLIENTS, 0);
    let mut files = Files::open(&mut crowd);
    crowd.node.several.deaths = deaths;
    crowd.play(plan, |crowd, client, what| files.begin(crowd, client, what));
    assert!(crowd.statuses.iter().all(|(_, status)| *status == 0), "{:?}", crowd.statuses);
    let mut node = crowd.leave();
    node.settle_down();
    node.sessions = vec![(support::SESSION, support::PID)];
    node.restart();
    files.check(&mut node);
    for name in ["common", "log"] {
        node.unlink(name, false).unwrap();
    }
    node.settle_down();
    let counters: Vec<(u64, u64)> =
        node.cores.iter().map(|core| (core.counters().objects, core.counters().orphans)).collect();
    assert!(counters.iter().all(|counts| *counts == (0, 0)), "{counters:?}");
    let left = std::fs::read_dir(&node.objects).unwrap().flatten();
    let left: Vec<_> = left.flat_map(|at| std::fs::read_dir(at.path()).unwrap()).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn plan() -> impl Strategy<Value = Vec<(u32, Do, usize)>> {
    prop::collection::vec((1..=CLIENTS, what(), 0..6_usize), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_many_have_written_is_there_once(
        plan in plan(),
        shards in prop_oneof![Just(1_u32), Just(3)],
        deaths in prop_oneof![Just(0_usize), Just(30)],
        seed in any::<u64>(),
    ) {
        play(&plan, Node::several(config_of(seed), shards, seed, false).slowed(), deaths);
    }
}

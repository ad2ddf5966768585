//! An origin whose directories have their seats at several shards, each with a keeper.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_types::{Errno, FileKind, limits::INLINE_BYTES_MAX};
use mayfly_wire::{
    Close, MakeDirectory, Rename, Stat, Target, TierTold, Unlink, Wire,
    tier::{TIER_EVICT, TIER_FETCH, TIER_FLUSH_NOW, TIER_LOOK},
};
use support::{O_CREAT, O_RDWR, SESSION, outside::Bench, walk};

const SHARDS: u32 = 3;
const TREES: usize = 8;

/// A bench with trees outside.
fn bench(seed: u64, valid_ms: Option<u64>) -> Bench {
    let mut bench = Bench::several(SHARDS, seed, valid_ms);
    for tree in 0..TREES {
        let mut add = |name: &str, bytes: Vec<u8>| {
            bench.outside.insert(format!("d{tree}/{name}"), (1, bytes));
        };
        add("", Vec::new());
        add("f", b"small".to_vec());
        add("sub/", Vec::new());
        add("sub/deep/", Vec::new());
        add("sub/deep/g", vec![tree as u8; 2 * INLINE_BYTES_MAX]);
    }
    bench
}

fn read_all(bench: &mut Bench) {
    for tree in 0..TREES {
        assert_eq!(bench.read_whole(&format!("in/d{tree}/f")).unwrap(), b"small");
        let deep = bench.read_whole(&format!("in/d{tree}/sub/deep/g")).unwrap();
        assert_eq!(deep, vec![tree as u8; 2 * INLINE_BYTES_MAX]);
    }
}

fn all_shards(bench: &mut Bench, what: u32) -> u64 {
    let told = |shard| {
        let body = bench.tier_ask_at(shard, what);
        TierTold::decode(&mut mayfly_wire::Reader::new(&body)).unwrap().flushed
    };
    (0..SHARDS as usize).map(told).sum()
}

fn dirty(bench: &mut Bench) -> u64 {
    (0..SHARDS as usize).map(|shard| bench.source_at(shard).dirty_files).sum()
}

#[test]
fn each_tree_is_fetched_once_at_the_shard_of_its_seat_whoever_asks() {
    let mut worked = 0;
    for seed in 0..20 {
        let mut bench = bench(seed, None);
        read_all(&mut bench);
        assert_eq!(bench.count(TIER_FETCH), 2 * TREES);
        // The origin, and of each tree all three directories.
        assert_eq!(bench.count(TIER_LOOK), 1 + 3 * TREES);
        worked = worked.max(bench.worked.len());
        read_all(&mut bench);
        bench.restart();
        read_all(&mut bench);
        assert_eq!(bench.count(TIER_FETCH), 2 * TREES, "what is here is fetched again");
        assert_eq!(bench.count(TIER_LOOK), 1 + 3 * TREES);
        bench.expect_nothing_wrong();
        assert_eq!(all_shards(&mut bench, TIER_EVICT), TREES as u64, "small files stay");
        bench.expect_nothing_wrong();
        read_all(&mut bench);
    }
    assert_eq!(worked, SHARDS as usize, "not all shards have worked");
}

#[test]
fn what_is_gone_outside_is_gone_at_all_shards() {
    for seed in 0..20 {
        let mut bench = bench(seed, Some(0));
        read_all(&mut bench);
        bench.outside.retain(|name, _| !name.starts_with("d3/") && !name.starts_with("d4/"));
        bench.outside.retain(|name, _| !name.starts_with("d5/sub/"));
        bench.outside.insert("d4".to_owned(), (3, b"a file".to_vec()));
        for name in ["d3", "d3/f", "d3/sub/deep/g", "d5/sub", "d5/sub/deep/g"] {
            let found = bench.stat(&format!("in/{name}")).err();
            assert_eq!(found, Some(Errno::ENOENT), "{name}, seed {seed}");
        }
        assert_eq!(bench.stat("in/d4").unwrap().kind, FileKind::Regular);
        assert_eq!(bench.read_whole("in/d4").unwrap(), b"a file");
        assert_eq!(bench.read_whole("in/d5/f").unwrap(), b"small");
        bench.expect_nothing_wrong();
        // It comes back as something else.
        bench.outside.insert("d3/".to_owned(), (9, Vec::new()));
        bench.outside.insert("d3/other".to_owned(), (9, b"other".to_vec()));
        assert_eq!(bench.read_whole("in/d3/other").unwrap(), b"other");
        assert_eq!(bench.stat("in/d3/f").err(), Some(Errno::ENOENT));
        bench.expect_nothing_wrong();
    }
}

#[test]
fn what_is_dirty_stays_when_its_directory_is_gone_outside_and_goes_back_when_that_is_there() {
    for seed in 0..20 {
        let mut bench = bench(seed, Some(0));
        let open = bench.open("in/d2/sub/deep/g", O_RDWR).unwrap();
        bench.write(open, b"precious");
        bench.ask(&Close { open }).unwrap();
        let away: Vec<_> =
            bench.outside.extract_if(.., |name, _| name.starts_with("d2/")).collect();
        let _ = bench.stat("in/d2");
        assert_eq!(dirty(&mut bench), 1);
        bench.outside.extend(away);
        assert_eq!(all_shards(&mut bench, TIER_FLUSH_NOW), 1);
        assert_eq!(dirty(&mut bench), 0);
        assert!(bench.outside["d2/sub/deep/g"].1.starts_with(b"precious"));
        bench.expect_nothing_wrong();
    }
}

#[test]
fn names_are_changed_within_a_tree_and_refused_between_trees() {
    let mut refused = 0;
    for seed in 0..20 {
        let mut bench = bench(seed, None);
        let rename = |from: &'static str, to: &'static str| Rename {
            from: walk(from, 0),
            to: walk(to, 0),
            flags: 0,
        };
        read_all(&mut bench);
        match bench.ask(&rename("in/d1", "in/other")) {
            // Its seat is where the directory above has its own.
            Ok(_) => {
                assert_eq!(bench.stat("in/d1").err(), Some(Errno::ENOENT));
                continue;
            }
            Err(errno) => assert_eq!(errno, Errno::EXDEV),
        }
        refused += 1;
        let made = MakeDirectory { walk: walk("in/d1/new", 0), mode: 0o755, uid: 0, gid: 0 };
        bench.ask(&made).unwrap();
        bench.open("in/d1/new/file", O_CREAT | O_RDWR).unwrap();
        let emptied = |path: &'static str| Unlink { walk: walk(path, 0), directory: true };
        assert_eq!(bench.ask(&emptied("in/d1/sub")).err(), Some(Errno::ENOTEMPTY));
        bench.ask(&Unlink { walk: walk("in/d6/sub/deep/g", 0), directory: false }).unwrap();
        for path in ["in/d6/sub/deep", "in/d6/sub"] {
            bench.ask(&emptied(path)).unwrap();
            assert_eq!(bench.stat(path).err(), Some(Errno::ENOENT));
        }
        assert!(!bench.outside.contains_key("d6/sub/"));
        assert_eq!(bench.ask(&rename("in", "elsewhere")).err(), Some(Errno::EBUSY));
        bench.expect_nothing_wrong();
    }
    assert!(refused > 0, "all trees were at one shard");
}

#[test]
fn a_daemon_that_dies_while_seats_are_given_finds_them_again() {
    for seed in 0..60 {
        let mut bench = bench(seed, Some(0));
        bench.begin(SESSION, &Stat { target: Target::Path(walk("in/d0", 0)) });
        let mut steps = seed % 15;
        while let Some(item) = bench.given.pop() {
            if item.what != TIER_LOOK {
                bench.perform(&item);
                continue;
            }
            bench.perform_and_stop(&item);
            while steps > 0 && bench.node.move_on() {
                steps -= 1;
            }
            if steps == 0 {
                break;
            }
            bench.settle();
        }
        bench.restart();
        read_all(&mut bench);
        bench.expect_nothing_wrong();
        let files: u64 = (0..SHARDS as usize).map(|shard| bench.source_at(shard).files).sum();
        // Of each tree three directories and two files; two files more, and the origin.
        assert_eq!(files, 5 * TREES as u64 + 3, "seed {seed}");
    }
}

//! What can be fetched again goes when space is short.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_types::{Errno, limits::TIER_WHOLE_BYTES_MAX};
use mayfly_wire::{
    Close, TierAsk, Write,
    tier::{TIER_CHUNKS, TIER_FETCH, TIER_FLUSH, TIER_FLUSH_NOW},
};
use support::{O_CREAT, O_RDWR, outside::Bench};

const CAPACITY: u64 = 16 << 20;
/// Of a file that is fetched as a whole, and of one that is not.
const WHOLE: usize = 900 << 10;
const LONG: usize = 3 << 20;

fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at + seed) % 251) as u8).collect()
}

/// Twice as much as there is room for.
fn bench() -> Bench {
    const { assert!(WHOLE as u64 <= TIER_WHOLE_BYTES_MAX && LONG as u64 > TIER_WHOLE_BYTES_MAX) };
    let mut bench = Bench::with_capacity(CAPACITY);
    for seed in 0..20 {
        bench.outside.insert(format!("whole-{seed}"), (1, content(seed, WHOLE)));
    }
    for seed in 0..5 {
        bench.outside.insert(format!("long-{seed}"), (1, content(seed, LONG)));
    }
    bench
}

#[test]
fn a_working_set_of_twice_the_capacity_is_read_by_turns() {
    let mut bench = bench();
    for _ in 0..2 {
        for seed in 0..20 {
            let read = bench.read_whole(&format!("in/whole-{seed}")).unwrap();
            assert!(read == content(seed, WHOLE), "whole-{seed}");
        }
        for seed in 0..5 {
            let read = bench.read_whole(&format!("in/long-{seed}")).unwrap();
            assert!(read == content(seed, LONG), "long-{seed}");
        }
        assert!(bench.source().cached_bytes < CAPACITY);
    }
    assert!(bench.count(TIER_FETCH) > 20, "some were fetched again");
    bench.expect_nothing_wrong();
}

/// What is open did not go, so that one file of more than a node's space could not be read.
#[test]
fn a_file_that_is_longer_than_there_is_room_is_read_and_changed_through_one_description() {
    let mut bench = Bench::with_capacity(CAPACITY);
    let mut expected = content(3, 20 << 20);
    bench.outside.insert("longest".to_owned(), (1, expected.clone()));
    let open = bench.open("in/longest", O_RDWR).unwrap();
    let mut at = 0;
    while at < expected.len() {
        let read = bench.read_at(open, at as u64).unwrap_or_else(|errno| panic!("{at}: {errno}"));
        assert!(!read.is_empty() && read[..] == expected[at..at + read.len()], "{at}");
        at += read.len();
    }
    for at in (1000..expected.len()).step_by(4 << 20) {
        let write = Write { open, offset: at as u64, append: false, bytes: &[9; 100] };
        bench.ask(&write).unwrap_or_else(|errno| panic!("{at}: {errno}"));
        expected[at..at + 100].fill(9);
    }
    bench.ask(&TierAsk { what: TIER_FLUSH_NOW, shard: 0, path: b"" }).unwrap();
    assert!(bench.outside["longest"].1 == expected);
    bench.ask(&Close { open }).unwrap();
    bench.expect_nothing_wrong();
}

#[test]
fn a_write_is_not_refused_while_something_clean_can_go() {
    let mut bench = bench();
    for seed in 0..14 {
        bench.read_whole(&format!("in/whole-{seed}")).unwrap();
    }
    // More than is free, though nothing of it has an origin.
    let open = bench.open("transient", O_CREAT | O_RDWR).unwrap();
    let bytes = vec![7; 50_000];
    for piece in 0..(12 << 20) / bytes.len() as u64 {
        let offset = piece * bytes.len() as u64;
        let write = Write { open, offset, append: false, bytes: &bytes };
        bench.ask(&write).unwrap_or_else(|errno| panic!("{offset}: {errno}"));
    }
    assert!(bench.source().cached_bytes < 4 << 20, "{:?}", bench.source());
    bench.expect_nothing_wrong();
}

#[test]
fn what_is_dirty_or_open_stays_and_the_rest_goes_when_it_is_told_to() {
    let mut bench = bench();
    for seed in 0..4 {
        bench.read_whole(&format!("in/whole-{seed}")).unwrap();
    }
    bench.read_whole("in/long-0").unwrap();
    let part = bench.open("in/long-1", 0).unwrap();
    bench.read_at(part, 1 << 20).unwrap();
    let open = bench.open("in/whole-0", 0).unwrap();
    let dirty = bench.open("in/whole-1", O_RDWR).unwrap();
    bench.write(dirty, b"ours");
    bench.ask(&Close { open: dirty }).unwrap();
    assert_eq!(bench.evict("in/whole-2"), 1);
    assert_eq!(bench.evict("other"), 0);
    assert_eq!(bench.evict(""), 3, "whole-3, long-0, and what is here of long-1");
    let cached = bench.source().cached_bytes;
    assert_eq!(cached, 2 * WHOLE as u64);
    assert_eq!(bench.read_at(open, 0).unwrap(), content(0, 100_000));
    assert_eq!(bench.read_at(part, 1 << 20).unwrap()[..], content(1, LONG)[1 << 20..][..100_000]);
    bench.ask(&Close { open: part }).unwrap();
    assert_eq!(bench.evict("in"), 1, "of the long one what was here");
    assert_eq!(bench.read_whole("in/whole-1").unwrap()[..5], *b"ours\x05");
    assert_eq!(bench.stat("in/long-0").unwrap().size_bytes, LONG as u64);
    assert!(bench.read_whole("in/long-0").unwrap() == content(0, LONG));
    assert!(bench.count(TIER_CHUNKS) > 2);
    bench.expect_nothing_wrong();
}

#[test]
fn what_is_dirty_is_written_back_when_nothing_else_can_go_and_goes_then() {
    let mut bench = bench();
    for seed in 0..17 {
        let path = format!("in/whole-{seed}");
        let open = bench.open(&path, O_RDWR).unwrap();
        bench.write(open, b"ours");
        bench.ask(&Close { open }).unwrap();
    }
    let mut refused = 0;
    for seed in 17..20 {
        let path = format!("in/whole-{seed}");
        while bench.read_whole(&path) == Err(Errno::ENOSPC) {
            refused += 1;
            assert!(refused < 50, "there is never room");
        }
    }
    assert!(bench.count(TIER_FLUSH) > 0);
    assert_eq!(bench.outside["whole-0"].1[..5], *b"ours\x04");
    bench.expect_nothing_wrong();
}

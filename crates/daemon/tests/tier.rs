//! What has an origin, at a shard whose keeper pretends to work there.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_types::{Errno, FileKind, limits::INLINE_BYTES_MAX};
use mayfly_wire::{
    MakeDirectory, Open, Read, Stat, Target, TierAsk, TierDone, TierWork, Unlink,
    tier::{
        NO_ATTR, TIER_CREATE, TIER_FETCH, TIER_FLUSH, TIER_FLUSH_NOW, TIER_LOOK,
        TIER_MAKE_DIRECTORY, TIER_REMOVE_DIRECTORY,
    },
};
use support::{
    O_CREAT, O_RDWR, SESSION,
    outside::{Bench, KEEPER, OTHER},
    walk,
};

#[test]
fn who_reads_what_is_being_fetched_waits_and_others_do_not() {
    let mut bench = Bench::new();
    let (large, small) = (bench.open("in/large", 0).unwrap(), bench.open("in/small", 0).unwrap());
    let read = |open| Read { open, offset: 0, count: 100_000 };
    let first = bench.begin(SESSION, &read(large));
    let second = bench.begin(OTHER, &read(large));
    let fetch = bench.take_given(TIER_FETCH);
    assert!(bench.given.is_empty(), "one fetch for both");
    assert_eq!(bench.read(small).unwrap(), b"small");
    assert!(bench.answer(first).is_none() && bench.answer(second).is_none());
    bench.perform(&fetch);
    for reader in [first, second] {
        assert_eq!(bench.answer(reader).unwrap().0, 0);
    }
    assert_eq!(bench.read(large).unwrap(), vec![7; 3 * INLINE_BYTES_MAX]);
    assert_eq!(bench.count(TIER_FETCH), 2, "what is here is not fetched again");
    assert_eq!(bench.source().cached_bytes, 3 * INLINE_BYTES_MAX as u64 + 5);
    bench.expect_nothing_wrong();
}

#[test]
fn a_fetch_that_fails_tells_all_who_wait_and_the_next_reader_tries_again() {
    let mut bench = Bench::new();
    let large = bench.open("in/large", 0).unwrap();
    bench.fails = Some(Errno::EACCES);
    assert_eq!(bench.read(large).err(), Some(Errno::EACCES));
    bench.fails = None;
    assert_eq!(bench.read(large).unwrap().len(), 3 * INLINE_BYTES_MAX);
    assert_eq!(bench.source().errors, 1);
    bench.expect_nothing_wrong();
}

#[test]
fn a_daemon_that_dies_while_a_file_is_fetched_leaves_it_absent() {
    let mut bench = Bench::new();
    let large = bench.open("in/large", 0).unwrap();
    let reader = bench.begin(SESSION, &Read { open: large, offset: 0, count: 9 });
    let fetch = bench.take_given(TIER_FETCH);
    bench.act(&fetch).unwrap();
    bench.restart();
    // The old keeper's word about it comes too late.
    let (number, attr) = (fetch.number, NO_ATTR);
    let told = TierDone { number, status: 0, more: false, same: false, attr, bytes: b"" };
    let late = bench.begin(KEEPER, &told);
    assert_eq!(bench.answer(late).unwrap().0, Errno::ESTALE.raw() as u32);
    assert_eq!(bench.answer(reader), None);
    assert_eq!(bench.source().cached_bytes, 0);
    assert_eq!(bench.read(large).unwrap(), vec![7; 3 * INLINE_BYTES_MAX]);
    assert_eq!(bench.count(TIER_FETCH), 1, "it was fetched once more");
    bench.expect_nothing_wrong();
}

#[test]
fn what_a_dead_keeper_had_is_done_by_another() {
    let mut bench = Bench::new();
    let (walk, flags) = (walk("in/new", 0), O_CREAT | O_RDWR);
    let maker = Open { walk, flags, mode: 0o600, uid: 0, gid: 0 };
    let caller = bench.begin(SESSION, &maker);
    bench.work_until(TIER_CREATE);
    let create = bench.take_given(TIER_CREATE);
    assert!(!create.again);
    bench.act(&create).unwrap();
    bench.node.core().session_closed(KEEPER);
    bench.node.core().session_opened(KEEPER, 9);
    bench.begin(KEEPER, &TierWork {});
    let create = bench.take_given(TIER_CREATE);
    assert!(create.again, "it may have been done");
    bench.perform(&create);
    bench.work();
    assert_eq!(bench.answer(caller).unwrap().0, 0);
    assert_eq!(bench.stat("in/new").unwrap().size_bytes, 0);
}

#[test]
fn a_change_that_comes_again_after_a_restart_may_have_been_made() {
    let mut bench = Bench::new();
    bench.stat("in/small").unwrap();
    let make = MakeDirectory { walk: walk("in/made", 0), mode: 0o755, uid: 0, gid: 0 };
    let caller = bench.begin(SESSION, &make);
    bench.work_until(TIER_MAKE_DIRECTORY);
    let item = bench.take_given(TIER_MAKE_DIRECTORY);
    bench.act(&item).unwrap();
    bench.restart();
    // The next daemon looks at the directory first, and finds what the last one has made there.
    bench.hand_in(caller, &make);
    bench.work_until(TIER_MAKE_DIRECTORY);
    assert!(bench.given.iter().any(|given| given.again), "it may have been done");
    bench.work();
    assert_eq!(bench.answer(caller).expect("it is answered").0, 0);
    assert_eq!(bench.stat("in/made").unwrap().kind, FileKind::Directory);
}

/// The next daemon looked at the directory first, did not find it, and said so.
#[test]
fn a_directory_that_was_removed_before_is_removed_when_the_request_comes_again() {
    let mut bench = Bench::new();
    bench.outside.insert("made/".to_owned(), (1, Vec::new()));
    assert_eq!(bench.stat("in/made").unwrap().kind, FileKind::Directory);
    let remove = Unlink { walk: walk("in/made", 0), directory: true };
    let caller = bench.begin(SESSION, &remove);
    bench.work_until(TIER_REMOVE_DIRECTORY);
    let item = bench.take_given(TIER_REMOVE_DIRECTORY);
    bench.act(&item).unwrap();
    bench.restart();
    bench.hand_in(caller, &remove);
    bench.work();
    assert_eq!(bench.answer(caller).expect("it is answered").0, 0);
    assert_eq!(bench.stat("in/made").err(), Some(Errno::ENOENT));
}

#[test]
fn a_look_that_was_begun_before_a_name_was_made_does_not_remove_it() {
    let mut bench = Bench::new();
    bench.stat("in/small").unwrap();
    let looks = Stat { target: Target::Path(walk("in/small", 0)) };
    let looker = bench.begin(OTHER, &looks);
    let look = bench.take_given(TIER_LOOK);
    let (seen, packed) = bench.act(&look).unwrap();
    // Meanwhile somebody makes a name; he waits for the same look, so it is made at once outside.
    bench.outside.insert("late".to_owned(), (9, b"x".to_vec()));
    let (number, bytes) = (look.number, packed.as_slice());
    let told = TierDone { number, status: 0, more: false, same: false, attr: seen, bytes };
    bench.begin(KEEPER, &told);
    bench.begin(KEEPER, &TierWork {});
    bench.work();
    assert_eq!(bench.answer(looker).unwrap().0, 0);
    assert_eq!(bench.stat("in/late").unwrap().size_bytes, 1);
}

#[test]
fn a_file_that_is_written_while_it_is_flushed_stays_dirty() {
    let mut bench = Bench::new();
    let small = bench.open("in/small", O_RDWR).unwrap();
    bench.write(small, b"SMALL");
    assert_eq!(bench.source().dirty_files, 1);
    let flusher = bench.begin(OTHER, &TierAsk { what: TIER_FLUSH_NOW, shard: 0, path: b"in" });
    let flush = bench.take_given(TIER_FLUSH);
    bench.write(small, b"again");
    bench.perform(&flush);
    assert_eq!(bench.answer(flusher).unwrap().0, 0);
    assert_eq!(bench.outside["small"].1, b"SMALL");
    assert_eq!(bench.source().dirty_files, 1);
    bench.ask(&TierAsk { what: TIER_FLUSH_NOW, shard: 0, path: b"in/small" }).unwrap();
    assert_eq!(bench.outside["small"].1, b"again");
    assert_eq!(bench.source().dirty_files, 0);
    bench.ask(&TierAsk { what: TIER_FLUSH_NOW, shard: 0, path: b"" }).unwrap();
    assert_eq!(bench.count(TIER_FLUSH), 2, "what is clean is not flushed");
}

#[test]
fn a_dirty_file_is_dirty_after_the_daemons_death_whatever_it_was_at() {
    let mut bench = Bench::new();
    let large = bench.open("in/large", O_RDWR).unwrap();
    bench.write(large, b"head");
    bench.restart();
    assert_eq!(bench.source().dirty_files, 1);
    let flusher = bench.begin(SESSION, &TierAsk { what: TIER_FLUSH_NOW, shard: 0, path: b"" });
    let flush = bench.take_given(TIER_FLUSH);
    bench.act(&flush).unwrap();
    bench.restart();
    assert_eq!(bench.answer(flusher), None);
    assert_eq!(bench.source().dirty_files, 1, "nobody has said that it is clean");
    bench.ask(&TierAsk { what: TIER_FLUSH_NOW, shard: 0, path: b"" }).unwrap();
    assert_eq!(bench.source().dirty_files, 0);
    assert!(bench.outside["large"].1.starts_with(b"head\x07"));
    bench.restart();
    assert_eq!(bench.source().dirty_files, 0);
    bench.expect_nothing_wrong();
}

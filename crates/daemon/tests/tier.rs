//! What has an origin, at a shard whose keeper pretends to work there.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::Relaxed;

use mayfly_types::{
    Errno, FileKind, OpenRef,
    limits::{INLINE_BYTES_MAX, TIER_LONG_LOOK_MS},
};
use mayfly_wire::{
    MakeDirectory, Open, Read, Rename, Stat, Target, TierAsk, TierDone, TierWork, Unlink,
    tier::{
        NO_ATTR, TIER_CHECK, TIER_CREATE, TIER_FETCH, TIER_FLUSH, TIER_FLUSH_NOW, TIER_LOOK,
        TIER_MAKE_DIRECTORY, TIER_REMOVE_DIRECTORY, TIER_RENAME,
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

/// A job that made many files had all that it had made so far listed anew each second.
#[test]
fn what_took_long_to_list_is_not_listed_again_at_once() {
    let mut bench = Bench::several(1, 1, Some(1000));
    bench.outside.insert("d/".to_owned(), (1, Vec::new()));
    bench.outside.extend((0..100).map(|number| (format!("d/{number}"), (1, Vec::new()))));
    let new = Stat { target: Target::Path(walk("in/d/new", 0)) };
    let looker = bench.begin(SESSION, &new);
    while !bench.given.is_empty() {
        let look = bench.given.remove(0);
        let took_ms = if look.path == "d" { 400 } else { 0 };
        bench.node.clock.0.fetch_add(took_ms, Relaxed);
        bench.perform(&look);
    }
    assert_eq!(bench.answer(looker).unwrap().0, Errno::ENOENT.raw() as u32);
    bench.outside.insert("d/new".to_owned(), (2, Vec::new()));
    bench.outside.insert("d/7".to_owned(), (2, b"longer".to_vec()));
    bench.node.clock.0.fetch_add(1_100, Relaxed);
    assert_eq!(bench.stat("in/d/new").err(), Some(Errno::ENOENT));
    assert_eq!(bench.stat("in/d/7").unwrap().size_bytes, 6, "what is known is looked at itself");
    // However long it took, of a hundred names it is not believed for ever.
    bench.node.clock.0.fetch_add(200, Relaxed);
    assert_eq!(bench.stat("in/d/new").unwrap().size_bytes, 0);
    bench.expect_nothing_wrong();
}

/// The first file of a directory with a million names was opened when all of them were listed.
#[test]
fn who_wants_one_name_does_not_wait_until_many_are_listed() {
    let mut bench = Bench::several(1, 1, Some(1000));
    bench.outside.insert("d/".to_owned(), (1, Vec::new()));
    bench.outside.extend((0..100).map(|number| (format!("d/{number}"), (1, b"old".to_vec()))));
    let of = |path| Stat { target: Target::Path(walk(path, 0)) };
    let failed = Errno::ENOENT.raw() as u32;
    let first = bench.begin(SESSION, &of("in/d/7"));
    let top = bench.take_given(TIER_LOOK);
    bench.perform(&top);
    let look = bench.take_given(TIER_LOOK);
    let (seen, packed) = bench.act(&look).unwrap();
    assert_eq!((look.path.as_str(), bench.given.len()), ("d", 0));
    // Both are made when the listing has been read, and one goes.
    bench.outside.insert("d/late".to_owned(), (2, b"later".to_vec()));
    bench.outside.insert("d/7".to_owned(), (2, b"longer".to_vec()));
    bench.outside.remove("d/9");
    bench.node.clock.0.fetch_add(TIER_LONG_LOOK_MS, Relaxed);
    let others = ["in/d/late", "in/d/9", "in/d/8"].map(|path| bench.begin(OTHER, &of(path)));
    bench.work();
    let statuses = others.map(|caller| bench.answer(caller).unwrap().0);
    assert_eq!((bench.answer(first).unwrap().0, statuses), (0, [0, failed, 0]));
    assert_eq!(bench.count(TIER_CHECK), 4);
    assert_eq!(bench.stat("in/d/7").unwrap().size_bytes, 6);
    assert_eq!(bench.count(TIER_CHECK), 4, "it was seen lately");
    assert_eq!(bench.stat("in/d").unwrap().mtime.seconds, 1, "nobody has changed it here");
    // What the listing says of these names is older than what is known.
    let (number, bytes) = (look.number, packed.as_slice());
    let told = TierDone { number, status: 0, more: false, same: false, attr: seen, bytes };
    bench.begin(KEEPER, &told);
    bench.begin(KEEPER, &TierWork {});
    for (path, found) in [("in/d/late", Ok(5)), ("in/d/9", Err(Errno::ENOENT)), ("in/d/7", Ok(6))] {
        assert_eq!(bench.stat(path).map(|attr| attr.size_bytes), found, "{path}");
    }
    assert_eq!(bench.stat("in/d/50").unwrap().size_bytes, 3);
    assert_eq!(bench.count(TIER_LOOK), 3, "what was left out of the first is found by another one");
    bench.expect_nothing_wrong();
}

/// A file in a directory is dirty.
fn dirty_below() -> (Bench, OpenRef) {
    let mut bench = Bench::new();
    bench.outside.insert("d/".to_owned(), (1, Vec::new()));
    bench.outside.insert("d/file".to_owned(), (1, b"file".to_vec()));
    let file = bench.open("in/d/file", O_RDWR).unwrap();
    bench.write(file, b"FILE");
    (bench, file)
}

/// A file was flushed by the old path of a directory that was being moved, where another one had
/// been made since: the keeper put a copy into that.
#[test]
fn the_keeper_has_a_move_of_a_directory_or_what_is_below() {
    let (mut bench, file) = dirty_below();
    let all = TierAsk { what: TIER_FLUSH_NOW, shard: 0, path: b"in" };
    let flusher = bench.begin(OTHER, &all);
    let flush = bench.take_given(TIER_FLUSH);
    let (new, flags) = (walk("in/d/new", 0), O_CREAT | O_RDWR);
    let maker = bench.begin(OTHER, &Open { walk: new, flags, mode: 0o600, uid: 0, gid: 0 });
    bench.work_until(TIER_CREATE);
    let create = bench.take_given(TIER_CREATE);
    let moves = Rename { from: walk("in/d", 0), to: walk("in/e", 0), flags: 0 };
    let mover = bench.begin(SESSION, &moves);
    bench.work();
    bench.perform(&create);
    assert_eq!(bench.answer(maker).unwrap().0, 0);
    assert_eq!(bench.count(TIER_RENAME), 0, "something is written back below");
    assert_eq!(bench.stat("in/d/new").unwrap().size_bytes, 0, "who looks does not wait for that");
    let make = MakeDirectory { walk: walk("in/d/sub", 0), mode: 0o755, uid: 0, gid: 0 };
    let late = bench.begin(OTHER, &make);
    bench.work();
    assert_eq!(bench.answer(late), None, "who changes something waits for the move");
    bench.perform(&flush);
    assert_eq!(bench.answer(flusher).unwrap().0, 0);
    assert_eq!(bench.outside["d/file"].1, b"FILE");
    bench.work();
    assert_eq!(bench.answer(mover).unwrap().0, 0);
    assert_eq!(bench.answer(late).unwrap().0, Errno::ENOENT.raw() as u32);
    assert!(bench.outside.keys().all(|name| !name.starts_with("d/") && !name.ends_with("sub/")));
    assert_eq!(bench.outside["e/file"].1, b"FILE");
    assert!(bench.outside.contains_key("e/new"));
    assert_eq!(bench.read(file).unwrap(), b"FILE");
    bench.expect_nothing_wrong();
}

/// Until it has come again nobody knows under which name the directory is.
#[test]
fn what_is_below_a_directory_waits_for_a_move_that_an_earlier_daemon_had_begun() {
    let (mut bench, _) = dirty_below();
    let moves = Rename { from: walk("in/d", 0), to: walk("in/e", 0), flags: 0 };
    let mover = bench.begin(SESSION, &moves);
    bench.work_until(TIER_RENAME);
    let rename = bench.take_given(TIER_RENAME);
    bench.act(&rename).unwrap();
    bench.restart();
    let all = TierAsk { what: TIER_FLUSH_NOW, shard: 0, path: b"in" };
    let flusher = bench.begin(OTHER, &all);
    assert!(bench.given.is_empty(), "{:?}", bench.given);
    bench.hand_in(mover, &moves);
    bench.work();
    assert_eq!(bench.answer(mover).unwrap().0, 0);
    assert_eq!(bench.answer(flusher).unwrap().0, 0);
    assert_eq!(bench.outside["e/file"].1, b"FILE");
    assert_eq!(bench.source().conflicts, 0);
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

//! What people ask of the tier: prefetch, pin, unlink, and what goes back
//! by itself.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_daemon::{Clock as _, WriteBack};
use mayfly_types::Errno;
use mayfly_wire::{
    Close, Flush, Read, Reader, Sync, Target, TierAsk, TierTold, Wire,
    tier::{
        TIER_CHUNKS, TIER_FETCH, TIER_FLUSH, TIER_FLUSH_DUE, TIER_PIN, TIER_PREFETCH, TIER_UNLINK,
        TIER_UNPIN,
    },
};
use support::{
    O_RDWR, SESSION,
    outside::{Bench, OTHER},
};

/// Longer than what is fetched as a whole.
const LONG: usize = 20 << 20;

struct Told {
    fetched: u64,
    bytes: u64,
    is_directory: bool,
}

fn told(body: &[u8]) -> Told {
    let told = TierTold::decode(&mut Reader::new(body)).unwrap();
    Told { fetched: told.flushed, bytes: told.bytes, is_directory: told.is_directory }
}

fn prefetch(bench: &mut Bench, path: &str) -> Result<Told, Errno> {
    let body = bench.ask(&TierAsk { what: TIER_PREFETCH, shard: 0, path: path.as_bytes() })?;
    Ok(told(&body))
}

fn bench() -> Bench {
    let mut bench = Bench::with_capacity(64 << 20);
    let long = (0..LONG).map(|at| (at % 251) as u8).collect();
    bench.outside.insert("long".to_owned(), (1, long));
    bench
}

#[test]
fn what_was_prefetched_is_read_without_the_origin() {
    let mut bench = bench();
    let root = prefetch(&mut bench, "in").unwrap();
    assert!(root.is_directory && root.fetched == 0);
    for (name, bytes) in [("small", 5), ("large", bench.outside["large"].1.len()), ("long", LONG)] {
        let first = prefetch(&mut bench, &format!("in/{name}")).unwrap();
        assert_eq!((first.fetched, first.bytes), (1, bytes as u64), "{name}");
        assert!(!first.is_directory);
    }
    let cached = bench.source().cached_bytes;
    assert_eq!(cached, (5 + LONG + bench.outside["large"].1.len()) as u64);
    bench.done.clear();
    assert_eq!(prefetch(&mut bench, "in/long").unwrap().fetched, 0);
    assert!(bench.read_whole("in/long").unwrap() == bench.outside["long"].1);
    assert_eq!(bench.read_whole("in/small").unwrap(), b"small");
    assert_eq!((bench.count(TIER_CHUNKS), bench.count(TIER_FETCH)), (0, 0));
    assert_eq!(prefetch(&mut bench, "in/none").err(), Some(Errno::ENOENT));
    assert_eq!(prefetch(&mut bench, "other").err(), Some(Errno::ENOENT));
    bench.expect_nothing_wrong();
}

#[test]
fn who_reads_meanwhile_goes_first_and_shares_what_is_being_fetched() {
    let mut bench = bench();
    for name in ["a", "b", "c", "d", "e"] {
        bench.outside.insert(name.to_owned(), (1, vec![1; 9000]));
    }
    let (large, b) = (bench.open("in/large", 0).unwrap(), bench.open("in/b", 0).unwrap());
    let callers = ["a", "b", "c", "d", "e"].map(|name| {
        let path = format!("in/{name}");
        bench.begin(OTHER, &TierAsk { what: TIER_PREFETCH, shard: 0, path: path.as_bytes() })
    });
    let is_fetch = |given: &support::outside::Given| given.what == TIER_FETCH;
    while let Some(at) = bench.given.iter().position(|given| !is_fetch(given)) {
        let item = bench.given.remove(at);
        bench.perform(&item);
    }
    // The keeper does four things at a time.
    assert_eq!(bench.given.len(), 4, "{:?}", bench.given);
    let readers = [large, b].map(|open| bench.begin(SESSION, &Read { open, offset: 0, count: 9 }));
    let waits = bench.given.remove(0);
    bench.perform(&waits);
    let next = &bench.given.last().unwrap().path;
    assert_eq!(next, "large", "what nobody reads was begun before what somebody reads");
    bench.work();
    for reader in readers {
        assert_eq!(bench.answer(reader).expect("it is answered").0, 0);
    }
    for caller in callers {
        let (status, body) = bench.answer(caller).expect("it is answered");
        assert_eq!((status, told(&body).bytes), (0, 9000));
    }
    let fetches = |path: &str| {
        bench.done.iter().filter(|done| done.0 == TIER_FETCH && done.1 == path).count()
    };
    assert_eq!((fetches("b"), fetches("e"), fetches("large")), (1, 1, 1));
    bench.expect_nothing_wrong();
}

fn ask(bench: &mut Bench, what: u32, path: &str) -> (u64, u64, u64) {
    let body = bench.ask(&TierAsk { what, shard: 0, path: path.as_bytes() }).unwrap();
    bench.settle();
    let told = TierTold::decode(&mut Reader::new(&body)).unwrap();
    (told.flushed, told.failed, told.left)
}

#[test]
fn what_is_pinned_stays_here_whatever_happens_until_it_is_unpinned() {
    let mut bench = bench();
    bench.read_whole("in/small").unwrap();
    for path in ["in/long", "in/large"] {
        ask(&mut bench, TIER_PIN, path);
    }
    let source = bench.source();
    assert_eq!(source.pinned_files, 2);
    assert_eq!(source.pinned_bytes, (LONG + bench.outside["large"].1.len()) as u64);
    assert_eq!(bench.evict(""), 0);
    assert_eq!(ask(&mut bench, TIER_UNPIN, "in/lon").0, 0);
    assert_eq!(ask(&mut bench, TIER_UNPIN, "in/long").0, 1);
    assert_eq!((bench.evict(""), bench.source().pinned_files), (1, 1));
    assert_eq!(bench.source().counts.evicted_bytes, LONG as u64);
    bench.restart();
    assert_eq!((bench.evict(""), bench.source().pinned_files), (0, 1));
    assert_eq!(ask(&mut bench, TIER_UNPIN, "").0, 1);
    bench.restart();
    assert_eq!(bench.source().pinned_files, 0);
    bench.expect_nothing_wrong();
}

#[test]
fn an_origin_that_is_unlinked_leaves_a_directory_and_nothing_outside_changes() {
    let mut bench = bench();
    bench.read_whole("in/long").unwrap();
    let open = bench.open("in/small", O_RDWR).unwrap();
    bench.write(open, b"SMALL");
    assert_eq!(ask(&mut bench, TIER_UNLINK, "in").1, 1, "a file is open");
    bench.ask(&Close { open }).unwrap();
    let (done, failed, left) = ask(&mut bench, TIER_UNLINK, "in");
    assert_eq!((done, failed), (0, 0));
    assert!(left > 0, "it is dirty");
    let body =
        bench.ask(&TierAsk { what: mayfly_wire::tier::TIER_FLUSH_NOW, shard: 0, path: b"in" });
    body.unwrap();
    let outside = bench.outside.clone();
    let refused = bench.ask(&TierAsk { what: TIER_UNLINK, shard: 0, path: b"in/small" });
    assert_eq!(refused.err(), Some(Errno::EINVAL));
    assert_eq!(ask(&mut bench, TIER_UNLINK, "in"), (1, 0, 0));
    assert!(bench.outside == outside && outside["small"].1 == b"SMALL");
    for _ in 0..2 {
        bench.done.clear();
        assert_eq!(bench.stat("in/small").err(), Some(Errno::ENOENT));
        assert!(bench.stat("in").is_ok());
        let open = bench.open("in/own", support::O_CREAT | O_RDWR).unwrap();
        bench.write(open, b"own");
        bench.ask(&Close { open }).unwrap();
        assert_eq!(bench.read_whole("in/own").unwrap(), b"own");
        assert!(bench.done.is_empty(), "something was asked for outside: {:?}", bench.done);
        assert!(!bench.outside.contains_key("own"));
        bench.expect_nothing_wrong();
        bench.restart();
    }
}

#[test]
fn a_close_and_a_sync_wait_for_the_flush_that_was_asked_for() {
    let mut bench = bench();
    let when = WriteBack { at_close: true, at_sync: true, ..WriteBack::default() };
    bench.node.core().write_back(when);
    let open = bench.open("in/small", O_RDWR).unwrap();
    bench.write(open, b"first");
    bench.ask(&Sync { target: Target::Open(open), all: false }).unwrap();
    assert_eq!(bench.outside["small"].1, b"first");
    bench.write(open, b"other");
    bench.ask(&Flush { open }).unwrap();
    assert_eq!(bench.outside["small"].1, b"other");
    bench.ask(&Flush { open }).unwrap();
    assert_eq!(bench.count(TIER_FLUSH), 2, "what is clean is not flushed");
    bench.write(open, b"third");
    bench.fails = Some(Errno::EDQUOT);
    assert_eq!(bench.ask(&Flush { open }).err(), Some(Errno::EDQUOT));
    bench.fails = None;
    assert_eq!(bench.source().dirty_files, 1, "what could not go back stays dirty");
    bench.ask(&Sync { target: Target::Open(open), all: true }).unwrap();
    assert_eq!(bench.outside["small"].1, b"third");
    // Nobody waits for a close alone.
    bench.write(open, b"close");
    bench.ask(&Close { open }).unwrap();
    bench.work();
    assert_eq!(bench.source().dirty_files, 0);
    assert_eq!(bench.outside["small"].1, b"close");
    bench.expect_nothing_wrong();
}

#[test]
fn a_flush_that_was_under_way_is_not_the_one_that_a_sync_waits_for() {
    let mut bench = bench();
    let when = WriteBack { at_sync: true, ..WriteBack::default() };
    bench.node.core().write_back(when);
    let open = bench.open("in/small", O_RDWR).unwrap();
    bench.write(open, b"first");
    let flush = bench
        .begin(OTHER, &TierAsk { what: mayfly_wire::tier::TIER_FLUSH_NOW, shard: 0, path: b"" });
    let under_way = bench.take_given(TIER_FLUSH);
    bench.ask(&mayfly_wire::Write { open, offset: 0, append: false, bytes: b"later" }).unwrap();
    let sync = bench.begin(SESSION, &Sync { target: Target::Open(open), all: false });
    bench.perform(&under_way);
    assert!(bench.answer(flush).is_some());
    assert!(bench.answer(sync).is_none(), "the older bytes were taken for the newer ones");
    bench.work();
    assert_eq!(bench.answer(sync).expect("it is answered").0, 0);
    assert_eq!(bench.outside["small"].1, b"later");
    bench.expect_nothing_wrong();
}

#[test]
fn what_was_not_written_for_a_while_goes_back_when_the_keeper_looks() {
    let mut bench = bench();
    let after_ms = Some(100);
    bench.node.core().write_back(WriteBack { after_ms, ..WriteBack::default() });
    let open = bench.open("in/small", O_RDWR).unwrap();
    bench.write(open, b"young");
    assert_eq!(ask(&mut bench, TIER_FLUSH_DUE, "").0, 0);
    // Each look takes a millisecond.
    for _ in 0..150 {
        let _ = bench.node.clock.now();
    }
    assert_eq!(ask(&mut bench, TIER_FLUSH_DUE, "").0, 1);
    assert_eq!(bench.outside["small"].1, b"young");
    assert_eq!(ask(&mut bench, TIER_FLUSH_DUE, "").0, 0);
    bench.expect_nothing_wrong();
}

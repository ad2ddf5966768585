//! What people ask of the tier: prefetching.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_types::Errno;
use mayfly_wire::{
    Read, Reader, TierAsk, TierTold, Wire,
    tier::{TIER_CHUNKS, TIER_FETCH, TIER_PREFETCH},
};
use support::{
    SESSION,
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
    let body = bench.ask(&TierAsk { what: TIER_PREFETCH, path: path.as_bytes() })?;
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
        bench.begin(OTHER, &TierAsk { what: TIER_PREFETCH, path: path.as_bytes() })
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

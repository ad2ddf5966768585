//! Files of an origin that are fetched by chunks.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_types::{
    Errno, OpenRef,
    limits::{TIER_AHEAD_ITEMS_MAX, TIER_CHUNK_BYTES_MIN, TIER_WHOLE_BYTES_MAX},
};
use mayfly_wire::{
    Read, TierDone,
    tier::{NO_ATTR, TIER_CHUNKS, TIER_FETCH},
};
use support::{
    SESSION,
    outside::{Bench, Given, KEEPER, OTHER},
};

const CHUNK: u64 = TIER_CHUNK_BYTES_MIN;
const LENGTH: u64 = 60 * CHUNK + 5;

fn content(seed: u64) -> Vec<u8> {
    (0..LENGTH).map(|at| ((at + seed) % 251) as u8).collect()
}

/// With a file that is fetched by chunks, and open.
fn bench() -> (Bench, OpenRef) {
    const { assert!(LENGTH > TIER_WHOLE_BYTES_MAX) };
    let mut bench = Bench::new();
    bench.outside.insert("long".to_owned(), (1, content(0)));
    let open = bench.open("in/long", 0).unwrap();
    (bench, open)
}

fn part(seed: u64, offset: u64) -> Vec<u8> {
    let end = (offset + 100_000).min(LENGTH);
    content(seed)[offset as usize..end as usize].to_vec()
}

/// The item that fetches a chunk.
fn take_chunk(bench: &mut Bench, chunk: u64) -> Given {
    let at = chunk * CHUNK;
    let has_it =
        |given: &Given| given.what == TIER_CHUNKS && (given.range.0..given.range.1).contains(&at);
    let found = bench.given.iter().position(has_it);
    bench.given.remove(found.unwrap_or_else(|| panic!("{chunk}: {:?}", bench.given)))
}

fn fetched(bench: &Bench) -> usize {
    bench.count(TIER_CHUNKS)
}

#[test]
fn a_read_waits_for_its_own_chunk_and_for_no_other() {
    let (mut bench, open) = bench();
    // The first one makes the object.
    assert_eq!(bench.read_at(open, 3 * CHUNK).unwrap(), part(0, 3 * CHUNK));
    let read = bench.source().cached_bytes;
    let ask = |chunk| Read { open, offset: chunk * CHUNK, count: 1000 };
    let (first, second) = (bench.begin(SESSION, &ask(30)), bench.begin(OTHER, &ask(57)));
    let (near, far) = (take_chunk(&mut bench, 30), take_chunk(&mut bench, 57));
    assert_eq!(near.range, (30 * CHUNK, 31 * CHUNK));
    let third = bench.begin(SESSION, &ask(30));
    assert!(bench.given.is_empty(), "one fetch for both");
    assert_eq!(bench.read_at(open, 3 * CHUNK).unwrap(), part(0, 3 * CHUNK));
    bench.perform(&far);
    assert_eq!(bench.answer(second).unwrap().0, 0);
    assert!(bench.answer(first).is_none() && bench.answer(third).is_none());
    bench.perform(&near);
    assert!(bench.answer(first).is_some() && bench.answer(third).is_some());
    assert_eq!(bench.source().cached_bytes, read + 2 * CHUNK);
    bench.expect_nothing_wrong();
}

/// A busy origin had some bytes read twice: a long read had everything fetched that was not here,
/// also what another one was having fetched.
#[test]
fn what_is_being_fetched_is_not_fetched_with_what_is_before_it() {
    let (mut bench, open) = bench();
    assert_eq!(bench.read_at(open, 3 * CHUNK).unwrap(), part(0, 3 * CHUNK));
    let one = bench.begin(SESSION, &Read { open, offset: 32 * CHUNK, count: 1000 });
    let beside = take_chunk(&mut bench, 32);
    let long = Read { open, offset: 30 * CHUNK, count: 4 * CHUNK as u32 };
    let all = bench.begin(OTHER, &long);
    let before = take_chunk(&mut bench, 30);
    assert_eq!(before.range, (30 * CHUNK, 32 * CHUNK));
    bench.perform(&before);
    assert!(bench.answer(all).is_none());
    bench.perform(&beside);
    assert!(bench.answer(one).is_some());
    let behind = take_chunk(&mut bench, 33);
    assert_eq!(behind.range, (33 * CHUNK, 34 * CHUNK));
    bench.perform(&behind);
    assert_eq!(bench.answer(all).unwrap().0, 0);
    bench.expect_nothing_wrong();
}

#[test]
fn a_file_is_whole_when_all_of_it_was_read_and_is_read_once() {
    let (mut bench, open) = bench();
    let mut at = 0;
    while at < LENGTH {
        assert_eq!(bench.read_at(open, at).unwrap(), part(0, at), "{at}");
        at += 100_000;
    }
    assert_eq!(bench.source().cached_bytes, LENGTH);
    let wanted = fetched(&bench);
    assert!(wanted < 40, "{wanted} items, though it was read in order");
    assert_eq!(bench.read_at(open, 0).unwrap(), part(0, 0));
    bench.restart();
    assert_eq!(bench.source().cached_bytes, LENGTH);
    assert_eq!(bench.read_at(open, LENGTH - 7).unwrap(), part(0, LENGTH - 7));
    assert_eq!(fetched(&bench), wanted);
    assert_eq!(bench.count(TIER_FETCH), 0);
    bench.expect_nothing_wrong();
}

#[test]
fn several_items_are_under_way_for_who_reads_in_order_and_not_more() {
    let (mut bench, open) = bench();
    for chunk in 0..4 {
        bench.read_at(open, chunk * CHUNK).unwrap();
    }
    let reader = bench.begin(SESSION, &Read { open, offset: 9 * CHUNK, count: 1000 });
    let _ = bench.answer(reader);
    for chunk in 10..20 {
        bench.begin(SESSION, &Read { open, offset: chunk * CHUNK, count: 1000 });
    }
    bench.work();
    assert!(bench.most_given > 1, "nothing overlaps");
    let bound = TIER_AHEAD_ITEMS_MAX + 11;
    assert!(bench.most_given <= bound, "{} at once", bench.most_given);
    bench.expect_nothing_wrong();
}

#[test]
fn a_chunk_that_fails_is_an_error_for_who_wants_it_and_is_tried_again() {
    let (mut bench, open) = bench();
    bench.read_at(open, 0).unwrap();
    bench.fails = Some(Errno::EACCES);
    assert_eq!(bench.read_at(open, 52 * CHUNK).err(), Some(Errno::EACCES));
    assert_eq!(bench.read_at(open, 0).unwrap(), part(0, 0), "that one is here");
    bench.fails = None;
    assert_eq!(bench.read_at(open, 52 * CHUNK).unwrap(), part(0, 52 * CHUNK));
    bench.expect_nothing_wrong();
}

#[test]
fn the_first_item_fails_and_the_next_reader_begins_anew() {
    let (mut bench, open) = bench();
    bench.fails = Some(Errno::EIO);
    assert_eq!(bench.read_at(open, 0).err(), Some(Errno::EIO));
    bench.fails = None;
    assert_eq!(bench.read_at(open, 0).unwrap(), part(0, 0));
    bench.expect_nothing_wrong();
}

#[test]
fn chunks_outlive_the_daemon_and_what_was_under_way_is_fetched_again() {
    let (mut bench, open) = bench();
    bench.read_at(open, 35 * CHUNK).unwrap();
    bench.begin(SESSION, &Read { open, offset: 9 * CHUNK, count: 10 });
    let lost = take_chunk(&mut bench, 9);
    bench.restart();
    let (number, attr) = (lost.number, NO_ATTR);
    let told = TierDone { number, status: 0, more: false, same: true, attr, bytes: b"" };
    let late = bench.begin(KEEPER, &told);
    assert_eq!(bench.answer(late).unwrap().0, Errno::ESTALE.raw() as u32);
    assert_eq!(bench.source().cached_bytes, CHUNK);
    let before = fetched(&bench);
    assert_eq!(bench.read_at(open, 35 * CHUNK).unwrap(), part(0, 35 * CHUNK));
    assert_eq!(fetched(&bench), before, "that one was here");
    assert_eq!(bench.read_at(open, 9 * CHUNK).unwrap(), part(0, 9 * CHUNK));
    bench.expect_nothing_wrong();
}

/// Its object may be made by the keeper after the next daemon has begun.
#[test]
fn an_object_of_which_nothing_was_here_is_not_used_by_the_next_daemon() {
    let (mut bench, open) = bench();
    bench.begin(SESSION, &Read { open, offset: 0, count: 10 });
    let lost = take_chunk(&mut bench, 0);
    assert_eq!(lost.which, 1, "it makes the object");
    bench.restart();
    bench.begin(SESSION, &Read { open, offset: 0, count: 10 });
    let next = take_chunk(&mut bench, 0);
    assert!(next.which == 1 && next.other != lost.other, "{next:?}");
    bench.perform(&next);
    assert_eq!(bench.read_at(open, 0).unwrap(), part(0, 0));
    bench.expect_nothing_wrong();
}

#[test]
fn what_was_fetched_goes_when_the_file_is_another_one_outside() {
    let (mut bench, open) = bench();
    bench.read_at(open, 0).unwrap();
    bench.begin(SESSION, &Read { open, offset: 8 * CHUNK, count: 10 });
    let under_way = take_chunk(&mut bench, 8);
    bench.outside.insert("long".to_owned(), (9, content(1)));
    // Somebody looks, and sees it.
    assert_eq!(bench.stat("in/long").unwrap().mtime.seconds, 9);
    assert_eq!(bench.source().cached_bytes, 0);
    // What comes of the other one counts no more, though it says that nothing has changed.
    bench.is_careless = true;
    bench.perform(&under_way);
    bench.is_careless = false;
    bench.work();
    assert_eq!(bench.read_at(open, 0).err(), Some(Errno::ESTALE), "some of each");
    let open = bench.open("in/long", 0).unwrap();
    for chunk in [0, 8] {
        assert_eq!(bench.read_at(open, chunk * CHUNK).unwrap(), part(1, chunk * CHUNK));
    }
    bench.expect_nothing_wrong();
}

#[test]
fn a_file_whose_name_goes_takes_its_chunks_with_it() {
    let (mut bench, open) = bench();
    bench.read_at(open, 0).unwrap();
    bench.ask(&mayfly_wire::Close { open }).unwrap();
    bench.outside.remove("long");
    assert_eq!(bench.stat("in/long").err(), Some(Errno::ENOENT));
    assert_eq!(bench.source().cached_bytes, 0);
    bench.expect_nothing_wrong();
}

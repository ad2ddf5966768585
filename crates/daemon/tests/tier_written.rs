//! Files of an origin that are written to before they are here.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::Relaxed;

use mayfly_types::{
    Attr, Errno, OpenRef, Timestamp,
    limits::{INLINE_BYTES_MAX, TIER_CHUNK_BYTES_MIN, TIER_WHOLE_BYTES_MAX},
};
use mayfly_wire::{
    ALLOCATE_KEEP_SIZE, ALLOCATE_PUNCH_HOLE, Allocate, Close, Data, FsUse, GRANT_OBJECT,
    GRANT_READ, GRANT_WRITE, Grant, Granted, Operation, Read, Reader, SET_MODE, SET_SIZE, SetAttr,
    Stat, StatFs, Target, TierAsk, TierTold, Wire, Write, Written,
    tier::{TIER_CHUNKS, TIER_FETCH, TIER_FLUSH_LAST, TIER_FLUSH_NOW},
};
use support::{
    O_RDWR, SESSION,
    outside::{Bench, Given, OTHER},
    several::Dice,
};

const CHUNK: u64 = TIER_CHUNK_BYTES_MIN;
const LENGTH: u64 = 12 * CHUNK + 5;
const O_TRUNC: u32 = 0o1000;

fn content(seed: u64) -> Vec<u8> {
    (0..LENGTH).map(|at| ((at + seed) % 251) as u8).collect()
}

/// With a file of which nothing is here, and open.
fn bench() -> (Bench, OpenRef) {
    const { assert!(LENGTH > TIER_WHOLE_BYTES_MAX) };
    let mut bench = Bench::new();
    bench.outside.insert("long".to_owned(), (1, content(0)));
    let open = bench.open("in/long", O_RDWR).unwrap();
    (bench, open)
}

fn write(bench: &mut Bench, open: OpenRef, offset: u64, bytes: &[u8]) -> Result<u64, Errno> {
    let body = bench.ask(&Write { open, offset, append: false, bytes })?;
    Ok(Written::decode(&mut Reader::new(&body)).unwrap().end)
}

fn append(bench: &mut Bench, open: OpenRef, bytes: &[u8]) -> u64 {
    let body = bench.ask(&Write { open, offset: 0, append: true, bytes }).unwrap();
    Written::decode(&mut Reader::new(&body)).unwrap().end
}

fn resize_request(open: OpenRef, size_bytes: u64) -> SetAttr<'static> {
    let (atime, mtime) = (Timestamp::default(), Timestamp::default());
    let target = Target::Open(open);
    SetAttr { target, which: SET_SIZE, mode: 0, uid: 0, gid: 0, size_bytes, atime, mtime }
}

fn resize(bench: &mut Bench, open: OpenRef, size_bytes: u64) -> Attr {
    let body = bench.ask(&resize_request(open, size_bytes)).unwrap();
    Attr::decode(&mut Reader::new(&body)).unwrap()
}

fn punch(open: OpenRef, offset: u64, bytes: u64) -> Allocate {
    Allocate { open, mode: ALLOCATE_KEEP_SIZE | ALLOCATE_PUNCH_HOLE, offset, bytes }
}

const FLUSH: TierAsk<'_> = TierAsk { what: TIER_FLUSH_NOW, shard: 0, path: b"" };

fn flush(bench: &mut Bench) -> TierToldCounts {
    let body = bench.ask(&FLUSH).expect("it is answered");
    counts(&body)
}

/// Files that were flushed, failed, and are left.
type TierToldCounts = (u64, u64, u64);

fn counts(body: &[u8]) -> TierToldCounts {
    let told = TierTold::decode(&mut Reader::new(body)).unwrap();
    (told.flushed, told.failed, told.left)
}

fn used_bytes(bench: &mut Bench) -> u64 {
    let body = bench.ask(&StatFs {}).unwrap();
    FsUse::decode(&mut Reader::new(&body)).unwrap().used_bytes
}

/// Which chunks were fetched so far, in the order in which that was begun.
fn fetched(bench: &Bench) -> usize {
    bench.count(TIER_CHUNKS)
}

fn expect_all(bench: &mut Bench, open: OpenRef, expected: &[u8]) {
    let mut at = 0;
    while at <= expected.len() {
        let end = expected.len().min(at + 100_000);
        let read = bench.read_at(open, at as u64).unwrap();
        assert!(read == expected[at..end], "at {at}: {} bytes", read.len());
        at += 100_000;
    }
}

/// The bytes are outside, and the file is clean. A flush fetches nothing.
fn expect_flushed(bench: &mut Bench, expected: &[u8]) {
    let before = fetched(bench);
    assert_eq!(flush(bench), (1, 0, 0));
    assert!(bench.outside["long"].1 == expected);
    assert_eq!((bench.source().dirty_files, fetched(bench)), (0, before));
    bench.expect_nothing_wrong();
}

#[test]
fn a_small_write_fetches_its_chunk_and_no_other() {
    let (mut bench, open) = bench();
    assert_eq!(write(&mut bench, open, 5 * CHUNK + 100, &[9; 4096]), Ok(5 * CHUNK + 4196));
    assert_eq!((fetched(&bench), bench.count(TIER_FETCH)), (1, 0));
    assert_eq!((bench.source().dirty_files, bench.source().cached_bytes), (1, CHUNK));
    // In a chunk that is here another one fetches nothing.
    write(&mut bench, open, 5 * CHUNK, &[8; 10]).unwrap();
    assert_eq!(fetched(&bench), 1);
    let mut expected = content(0);
    expected[5 * CHUNK as usize..][..10].fill(8);
    expected[5 * CHUNK as usize + 100..][..4096].fill(9);
    assert_eq!(bench.stat("in/long").unwrap().size_bytes, LENGTH);
    bench.expect_nothing_wrong();
    expect_all(&mut bench, open, &expected);
    expect_flushed(&mut bench, &expected);
}

#[test]
fn a_write_that_covers_chunks_fetches_nothing_but_what_is_at_its_edges() {
    let (mut bench, open) = bench();
    write(&mut bench, open, 2 * CHUNK, &[1; 2 * CHUNK as usize]).unwrap();
    assert_eq!((fetched(&bench), bench.source().cached_bytes), (0, 2 * CHUNK));
    // The last chunk is a short one.
    write(&mut bench, open, 11 * CHUNK, &[2; CHUNK as usize + 5]).unwrap();
    assert_eq!(fetched(&bench), 0);
    write(&mut bench, open, 7 * CHUNK - 1, &[3; CHUNK as usize + 2]).unwrap();
    assert_eq!(fetched(&bench), 2, "the ones before and behind");
    let mut expected = content(0);
    for (at, count, byte) in
        [(2 * CHUNK, 2 * CHUNK, 1), (11 * CHUNK, CHUNK + 5, 2), (7 * CHUNK - 1, CHUNK + 2, 3)]
    {
        expected[at as usize..][..count as usize].fill(byte);
    }
    bench.restart();
    expect_all(&mut bench, open, &expected);
    expect_flushed(&mut bench, &expected);
}

#[test]
fn what_comes_behind_the_end_fetches_nothing() {
    let (mut bench, open) = bench();
    assert_eq!(append(&mut bench, open, b"one"), LENGTH + 3);
    assert_eq!(append(&mut bench, open, b"two"), LENGTH + 6);
    write(&mut bench, open, LENGTH + 1000, b"far").unwrap();
    assert_eq!(resize(&mut bench, open, LENGTH + 9000).size_bytes, LENGTH + 9000);
    assert_eq!(fetched(&bench), 0);
    let mut expected = content(0);
    expected.extend(b"onetwo");
    expected.resize(LENGTH as usize + 1000, 0);
    expected.extend(b"far");
    expected.resize(LENGTH as usize + 9000, 0);
    bench.restart();
    assert_eq!(bench.stat("in/long").unwrap().size_bytes, LENGTH + 9000);
    assert_eq!(bench.read_at(open, LENGTH - 2).unwrap(), expected[LENGTH as usize - 2..]);
    expect_all(&mut bench, open, &expected);
    expect_flushed(&mut bench, &expected);
}

#[test]
fn a_cut_fetches_nothing_and_what_is_behind_it_never_comes_back() {
    let (mut bench, open) = bench();
    bench.read_at(open, 8 * CHUNK).unwrap();
    let before = fetched(&bench);
    let end = 3 * CHUNK + 7;
    assert_eq!(resize(&mut bench, open, end).size_bytes, end);
    assert_eq!(resize(&mut bench, open, LENGTH).size_bytes, LENGTH);
    assert_eq!(fetched(&bench), before);
    assert_eq!(bench.source().cached_bytes, 0, "that chunk went");
    let mut expected = content(0)[..end as usize].to_vec();
    expected.resize(LENGTH as usize, 0);
    expect_all(&mut bench, open, &expected);
    expect_flushed(&mut bench, &expected);
}

/// A file that is cut to what is here is whole.
#[test]
fn a_cut_before_all_that_is_missing_makes_the_file_whole() {
    let (mut bench, open) = bench();
    bench.read_at(open, 0).unwrap();
    let before = fetched(&bench);
    resize(&mut bench, open, 1000);
    expect_flushed(&mut bench, &content(0)[..1000]);
    assert_eq!(fetched(&bench), before);
    resize(&mut bench, open, 0);
    expect_flushed(&mut bench, b"");
}

#[test]
fn a_hole_fetches_the_chunks_at_its_edges() {
    let (mut bench, open) = bench();
    bench.ask(&punch(open, CHUNK + 1, 4 * CHUNK)).unwrap();
    assert_eq!((fetched(&bench), bench.source().cached_bytes), (2, 5 * CHUNK));
    // Space that is taken ahead changes no bytes.
    let ahead = Allocate { open, mode: 0, offset: 7 * CHUNK, bytes: 2 * CHUNK };
    bench.ask(&ahead).unwrap();
    assert_eq!(fetched(&bench), 2);
    let mut expected = content(0);
    expected[CHUNK as usize + 1..][..4 * CHUNK as usize].fill(0);
    expect_all(&mut bench, open, &expected);
    expect_flushed(&mut bench, &expected);
}

#[test]
fn a_file_that_is_emptied_is_not_fetched_however_much_is_here() {
    let (mut bench, open) = bench();
    write(&mut bench, open, 0, &[9; 10]).unwrap();
    assert_eq!(fetched(&bench), 1);
    let other = bench.open("in/long", O_RDWR | O_TRUNC).unwrap();
    assert_eq!(bench.source().cached_bytes, LENGTH, "as of any file that is dirty and here");
    write(&mut bench, other, 0, b"new").unwrap();
    assert_eq!(fetched(&bench), 1);
    assert_eq!(flush(&mut bench), (1, 0, 0));
    assert_eq!(bench.outside["long"].1, b"new");
    bench.expect_nothing_wrong();
}

/// A process that writes asks for the object first, and had all of the file fetched.
#[test]
fn who_writes_gets_no_leave_before_all_is_here_and_who_maps_has_all_fetched() {
    let (mut bench, open) = bench();
    let mut grant = |want| {
        let body = bench.ask(&Grant { open, want, end: LENGTH }).unwrap();
        Granted::decode(&mut Reader::new(&body)).unwrap().object_path.to_vec()
    };
    assert_eq!(grant(GRANT_WRITE | GRANT_OBJECT), b"");
    assert_eq!(grant(GRANT_READ), b"");
    let path = grant(GRANT_READ | GRANT_OBJECT);
    assert!(!path.is_empty());
    assert_eq!(bench.source().cached_bytes, LENGTH);
    bench.expect_nothing_wrong();
}

/// The keeper's writes to the object are none to the file.
#[test]
fn what_is_fetched_changes_no_times() {
    let (mut bench, open) = bench();
    let mtime = |bench: &mut Bench| {
        let body = bench.ask(&Stat { target: Target::Open(open) }).unwrap();
        Attr::decode(&mut Reader::new(&body)).unwrap().mtime
    };
    let before = mtime(&mut bench);
    bench.node.clock.0.store(5_000_000, Relaxed);
    write(&mut bench, open, 0, &[9; 10]).unwrap();
    let written = mtime(&mut bench);
    assert!(written > before);
    bench.read_at(open, 9 * CHUNK).unwrap();
    assert_eq!(mtime(&mut bench), written);
    expect_all(&mut bench, open, &[&[9; 10], &content(0)[10..]].concat());
    assert_eq!(mtime(&mut bench), written, "all of it is here");
    bench.ask(&Close { open }).unwrap();
    assert_eq!(bench.stat("in/long").unwrap().mtime, written);
    bench.expect_nothing_wrong();
}

#[test]
fn a_chunk_that_is_being_fetched_is_not_overwritten_by_what_was_outside() {
    let (mut bench, open) = bench();
    write(&mut bench, open, 0, &[9; 10]).unwrap();
    let read = Read { open, offset: 6 * CHUNK, count: 1000 };
    let reader = bench.begin(OTHER, &read);
    let under_way = bench.take_given(TIER_CHUNKS);
    let bytes = &[7; CHUNK as usize];
    let write = Write { open, offset: 6 * CHUNK, append: false, bytes };
    let writer = bench.begin(SESSION, &write);
    assert!(bench.answer(writer).is_none(), "the keeper would write over it");
    bench.perform(&under_way);
    bench.work();
    assert!(bench.answer(reader).is_some() && bench.answer(writer).is_some());
    assert_eq!(bench.read_at(open, 6 * CHUNK).unwrap(), &bytes[..100_000]);
    bench.expect_nothing_wrong();
}

#[test]
fn a_chunk_that_is_being_covered_is_not_fetched() {
    let (mut bench, open) = bench();
    write(&mut bench, open, 0, &[9; 10]).unwrap();
    let before = fetched(&bench);
    let bytes = &[7; CHUNK as usize];
    let covers = Write { open, offset: 6 * CHUNK, append: false, bytes };
    let writer = bench.begin_at(0, SESSION, &covers);
    let reader = bench.begin_at(0, OTHER, &Read { open, offset: 6 * CHUNK, count: 1000 });
    bench.settle();
    let of_it = bench.given.iter().find(|given| given.range.0 <= 6 * CHUNK);
    assert!(of_it.is_none(), "{of_it:?}");
    assert_eq!(bench.answer(writer).unwrap().0, 0);
    let (_, body) = bench.answer(reader).unwrap();
    assert_eq!(Data::decode(&mut Reader::new(&body)).unwrap().bytes, &bytes[..1000]);
    assert_eq!(fetched(&bench), before);
    bench.expect_nothing_wrong();
}

/// Its keeper may be writing the chunk yet.
#[test]
fn after_the_daemons_death_a_covered_chunk_is_fetched_first() {
    let (mut bench, open) = bench();
    write(&mut bench, open, 0, &[9; 10]).unwrap();
    bench.begin(OTHER, &Read { open, offset: 6 * CHUNK, count: 1000 });
    let late = bench.take_given(TIER_CHUNKS);
    bench.restart();
    let bytes = &[7; CHUNK as usize];
    let writer = bench.begin(SESSION, &Write { open, offset: 6 * CHUNK, append: false, bytes });
    let fence = bench.take_given(TIER_CHUNKS);
    assert_eq!(fence.range, late.range);
    bench.act(&late).unwrap();
    bench.perform(&fence);
    assert_eq!(bench.answer(writer).unwrap().0, 0);
    // Nothing of the earlier daemon's is under way any more.
    write(&mut bench, open, 9 * CHUNK, bytes).unwrap();
    assert!(bench.given.is_empty());
    let mut expected = content(0);
    expected[..10].fill(9);
    expected[6 * CHUNK as usize..][..CHUNK as usize].fill(7);
    expected[9 * CHUNK as usize..][..CHUNK as usize].fill(7);
    expect_all(&mut bench, open, &expected);
    expect_flushed(&mut bench, &expected);
}

#[test]
fn what_was_not_fetched_is_nowhere_when_the_file_has_changed_outside_and_nothing_is_lost() {
    let (mut bench, open) = bench();
    write(&mut bench, open, 3 * CHUNK, &[9; 10]).unwrap();
    bench.outside.insert("long".to_owned(), (9, content(1)));
    assert_eq!(
        bench.read_at(open, 3 * CHUNK).unwrap()[..11],
        [&[9; 10], &content(0)[3 * CHUNK as usize + 10..][..1]].concat()
    );
    assert_eq!(bench.read_at(open, 0).err(), Some(Errno::ESTALE));
    assert_eq!(write(&mut bench, open, 0, b"x").err(), Some(Errno::ESTALE));
    for _ in 0..2 {
        assert_eq!(flush(&mut bench), (0, 1, 0));
        assert!(bench.outside["long"].1 == content(1));
        assert_eq!(bench.source().dirty_files, 1);
        bench.restart();
    }
    // What is written over needs nothing from there.
    for at in (0..LENGTH).step_by(CHUNK as usize) {
        let count = (LENGTH - at).min(CHUNK) as usize;
        let written = write(&mut bench, open, at, &vec![5; count]);
        // The keeper may be fetching for the daemon that died.
        let again =
            if written.is_err() { write(&mut bench, open, at, &vec![5; count]) } else { written };
        assert!(again.is_ok(), "{at}");
    }
    expect_all(&mut bench, open, &vec![5; LENGTH as usize]);
    bench.expect_nothing_wrong();
}

#[test]
fn the_last_flush_puts_what_there_is_beside_what_is_there_now() {
    for open_meanwhile in [false, true] {
        let (mut bench, open) = bench();
        write(&mut bench, open, 3 * CHUNK, &[9; 10]).unwrap();
        if !open_meanwhile {
            bench.ask(&Close { open }).unwrap();
        }
        bench.outside.insert("long".to_owned(), (9, content(1)));
        let ask = TierAsk { what: TIER_FLUSH_LAST, shard: 0, path: b"" };
        let body = bench.ask(&ask).unwrap();
        let told = TierTold::decode(&mut Reader::new(&body)).unwrap();
        assert_eq!((told.flushed, told.failed, told.conflicts, told.left), (0, 0, 1, 0));
        let copy = &bench.outside["long-incomplete"].1;
        assert!(copy.len() as u64 == LENGTH && copy[3 * CHUNK as usize..][..10] == [9; 10]);
        assert!(bench.outside["long"].1 == content(1) && bench.source().dirty_files == 0);
        assert!(bench.read_whole("in/long").unwrap() == content(1), "the file is theirs now");
        if open_meanwhile {
            assert_eq!(bench.read_at(open, 3 * CHUNK).err(), Some(Errno::ESTALE));
            bench.ask(&Close { open }).unwrap();
        }
        bench.expect_nothing_wrong();
    }
}

#[test]
fn a_file_that_is_gone_outside_keeps_what_was_written_and_can_be_emptied() {
    let (mut bench, open) = bench();
    write(&mut bench, open, 3 * CHUNK, &[9; 10]).unwrap();
    bench.outside.remove("long");
    assert_eq!(bench.read_at(open, 0).err(), Some(Errno::ESTALE));
    assert_eq!(flush(&mut bench), (0, 1, 0));
    assert_eq!(bench.read_at(open, 3 * CHUNK).unwrap()[..10], [9; 10]);
    resize(&mut bench, open, 0);
    write(&mut bench, open, 0, b"other").unwrap();
    assert_eq!(bench.read_at(open, 0).unwrap(), b"other");
    bench.expect_nothing_wrong();
}

/// The times outside are others after that, and the file is the same.
#[test]
fn attributes_that_are_set_meanwhile_are_no_change_by_others() {
    let (mut bench, open) = bench();
    write(&mut bench, open, 0, &[9; 10]).unwrap();
    let set = SetAttr { which: SET_MODE, mode: 0o600, ..resize_request(open, 0) };
    bench.ask(&set).unwrap();
    let mut expected = content(0);
    expected[..10].fill(9);
    expect_all(&mut bench, open, &expected);
    expect_flushed(&mut bench, &expected);
}

/// A flush fetched the rest first, so that two files that had no room for all of their bytes were
/// never written back, and nothing else had room either.
#[test]
fn a_flush_takes_what_is_missing_from_outside_and_what_is_here_may_go_then() {
    let (mut bench, open) = bench();
    write(&mut bench, open, 0, &[9; 10]).unwrap();
    append(&mut bench, open, &[7; 10]);
    let mut expected = content(0);
    expected[..10].fill(9);
    expected.extend([7; 10]);
    expect_flushed(&mut bench, &expected);
    assert_eq!((fetched(&bench), bench.source().cached_bytes), (1, CHUNK));
    let used = used_bytes(&mut bench);
    write(&mut bench, open, 5, &[8; 10]).unwrap();
    expected[5..15].fill(8);
    expect_flushed(&mut bench, &expected);
    assert_eq!((fetched(&bench), used_bytes(&mut bench)), (1, used));
    expect_all(&mut bench, open, &expected);
    bench.ask(&Close { open }).unwrap();
    assert_eq!(bench.evict("/in/long"), 1);
    assert_eq!(bench.source().cached_bytes, 0);
    bench.expect_nothing_wrong();
}

/// One process, and a keeper whose work may come in any order; the daemon dies now and then.
struct Play {
    bench: Bench,
    dice: Dice,
    expected: Vec<u8>,
    open: OpenRef,
    /// What the keeper has of earlier daemons.
    late: Vec<Given>,
    deaths: usize,
}

impl Play {
    fn new(seed: u64) -> Play {
        let (bench, open) = bench();
        let (dice, expected) = (Dice::new(seed), content(0));
        Play { bench, dice, expected, open, late: Vec::new(), deaths: 0 }
    }

    /// What an earlier daemon gave is done, of this object or of all.
    fn act_late(&mut self, object: Option<&str>) {
        let of_it = |given: &mut Given| object.is_none_or(|object| given.other == object);
        let late: Vec<Given> = self.late.extract_if(.., of_it).collect();
        for given in late {
            let there = &self.bench.outside["long"];
            let known = &given.known;
            let same =
                known.mtime.seconds as u64 == there.0 && known.size_bytes == there.1.len() as u64;
            if same && self.bench.node.objects.join(&given.other).exists() {
                self.bench.act(&given).unwrap();
            }
        }
    }

    fn disturb(&mut self) {
        match self.dice.below(12) {
            0 => self.act_late(None),
            1..4 => {
                for _ in 0..self.dice.below(4) {
                    self.bench.node.move_on();
                }
            }
            _ if self.bench.given.is_empty() => self.bench.settle(),
            _ => {
                let at = self.dice.below(self.bench.given.len());
                let given = self.bench.given.remove(at);
                self.act_late(Some(&given.other));
                self.bench.perform_and_stop(&given);
                self.bench.settle();
            }
        }
    }

    fn ask<'a, O: Operation<'a>>(&mut self, request: &O) -> Vec<u8> {
        let caller = self.bench.begin_at(0, SESSION, request);
        for _ in 0..2000 {
            if let Some((status, body)) = self.bench.answer(caller) {
                assert_eq!(status, 0);
                return body;
            }
            self.bench.collect();
            let is_answered = self.bench.answers.iter().any(|done| done.caller == caller);
            if !is_answered && self.dice.below(10) == 0 {
                let chunks = |given: &&Given| given.what == TIER_CHUNKS && given.which == 0;
                self.late.extend(self.bench.given.iter().filter(chunks).cloned());
                self.bench.restart();
                self.deaths += 1;
                self.bench.hand_in_at(0, caller, request);
            }
            self.disturb();
        }
        panic!("it is not answered");
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = self.expected.len().max(at + bytes.len());
        self.expected.resize(end, 0);
        self.expected[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn place(&mut self) -> usize {
        self.dice.below(self.expected.len() + 50_000)
    }

    fn step(&mut self) {
        let open = self.open;
        let byte = self.dice.below(256) as u8;
        match self.dice.below(15) {
            0..3 => {
                let (at, count) = (self.place(), 1 + self.dice.below(9000));
                let bytes = vec![byte; count];
                self.ask(&Write { open, offset: at as u64, append: false, bytes: &bytes });
                self.put(at, &bytes);
            }
            3..6 => {
                let at = self.dice.below(13) * CHUNK as usize;
                let bytes = vec![byte; (1 + self.dice.below(3)) * CHUNK as usize];
                self.ask(&Write { open, offset: at as u64, append: false, bytes: &bytes });
                self.put(at, &bytes);
            }
            // What is appended to a record is answered when it is committed, and not before.
            6 if self.expected.len() > INLINE_BYTES_MAX => {
                let bytes = vec![byte; 1 + self.dice.below(5000)];
                self.ask(&Write { open, offset: 0, append: true, bytes: &bytes });
                self.put(self.expected.len(), &bytes);
            }
            7 => {
                let size = self.place();
                let size = if self.dice.below(4) == 0 { 0 } else { size };
                self.ask(&resize_request(open, size as u64));
                self.expected.resize(size, 0);
            }
            8 => {
                let (at, count) = (self.place(), 1 + self.dice.below(3 * CHUNK as usize));
                self.ask(&punch(open, at as u64, count as u64));
                let end = self.expected.len().min(at + count);
                self.expected[at.min(end)..end].fill(0);
            }
            9 => {
                let offset = self.place() as u64;
                self.bench.begin_at(0, OTHER, &Read { open, offset, count: 1000 });
            }
            10 => self.flush_and_forget(),
            // It goes on as it is, whatever comes of the flush.
            11 => drop(self.bench.begin_at(0, OTHER, &FLUSH)),
            _ => {
                let at = self.place().min(self.expected.len());
                let body = self.ask(&Read { open, offset: at as u64, count: 50_000 });
                let end = self.expected.len().min(at + 50_000);
                let read = Data::decode(&mut Reader::new(&body)).unwrap().bytes;
                assert!(read == &self.expected[at..end], "at {at}: {} bytes", read.len());
            }
        }
    }

    /// All goes back, and then from here.
    fn flush_and_forget(&mut self) {
        self.act_late(None);
        self.bench.work();
        self.bench.ask(&FLUSH).unwrap();
        assert!(self.bench.outside["long"].1 == self.expected, "it went back as it was");
        assert_eq!(self.bench.source().dirty_files, 0);
        self.bench.ask(&Close { open: self.open }).unwrap();
        self.bench.settle();
        self.bench.evict("/in/long");
        self.bench.expect_nothing_wrong();
        self.open = self.bench.open("in/long", O_RDWR).unwrap();
    }
}

#[test]
fn bytes_are_what_was_written_whatever_dies_and_comes_late() {
    let mut deaths = 0;
    for seed in 0..60 {
        let mut play = Play::new(seed);
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // A description tells of lanes up to that.
            while play.bench.lanes < 200 {
                play.step();
            }
            play.flush_and_forget();
        }));
        assert!(passed.is_ok(), "seed {seed}");
        deaths += play.deaths;
    }
    assert!(deaths > 40, "{deaths}");
}

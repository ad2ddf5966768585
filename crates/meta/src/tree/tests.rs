//! The tree in memory that can be cut off, and with bytes that nobody wrote.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;

use super::{
    Tree, empty_leaf,
    journal::Journal,
    page::{PAGE_BYTES, ROOM_BYTES},
    pages::Pages,
    space::{OUTSIDE, Space},
};
use crate::{Scan, Store, StoreError};

const LIMIT_BYTES: u64 = 1 << 30;

/// One change of one of the two spaces.
#[derive(Debug, Clone)]
enum Change {
    Bytes { at: usize, bytes: Vec<u8>, whole: bool },
    Length(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Pages,
    Journal,
}

type Changes = Arc<Mutex<Vec<(Which, Change)>>>;

/// Memory that remembers in which order it was changed.
#[derive(Debug)]
struct Traced {
    bytes: Vec<u8>,
    which: Which,
    changes: Option<Changes>,
}

impl Traced {
    fn new(bytes: Vec<u8>, which: Which) -> Traced {
        Traced { bytes, which, changes: None }
    }

    fn trace(&self, change: impl FnOnce() -> Change) {
        if let Some(changes) = &self.changes {
            changes.lock().expect("nobody panics").push((self.which, change()));
        }
    }

    fn set(&mut self, at: usize, from: &[u8], whole: bool) -> Result<(), StoreError> {
        let to = self.bytes.get_mut(at..).and_then(|rest| rest.get_mut(..from.len()));
        to.ok_or(OUTSIDE)?.copy_from_slice(from);
        self.trace(|| Change::Bytes { at, bytes: from.to_vec(), whole });
        Ok(())
    }
}

impl Space for Traced {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn write(&mut self, at: usize, from: &[u8]) -> Result<(), StoreError> {
        self.set(at, from, false)
    }

    fn shift(&mut self, from: usize, bytes: usize, to: usize) -> Result<(), StoreError> {
        let moved = self.bytes.get(from..).and_then(|rest| rest.get(..bytes));
        let moved = moved.ok_or(OUTSIDE)?.to_vec();
        self.set(to, &moved, false)
    }

    fn publish(&mut self, at: usize, value: u64) -> Result<(), StoreError> {
        assert!(at.is_multiple_of(8));
        self.set(at, &value.to_le_bytes(), true)
    }

    fn grow(&mut self, bytes: usize) -> Result<(), StoreError> {
        if bytes > self.bytes.len() {
            self.bytes.resize(bytes, 0);
            self.trace(|| Change::Length(bytes));
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// What a process leaves.
#[derive(Debug, Clone)]
struct Files {
    pages: Vec<u8>,
    journal: Vec<u8>,
}

impl Files {
    fn of(&mut self, which: Which) -> &mut Vec<u8> {
        match which {
            Which::Pages => &mut self.pages,
            Which::Journal => &mut self.journal,
        }
    }

    fn apply(&mut self, (which, change): &(Which, Change)) {
        match change {
            Change::Bytes { at, bytes, .. } => {
                self.of(*which)[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Change::Length(length) => self.of(*which).resize(*length, 0),
        }
    }

    /// The process dies in the middle of it, wherever that can be.
    fn apply_half(&mut self, (which, change): &(Which, Change)) {
        if let Change::Bytes { at, bytes, whole: false } = change {
            let half = &bytes[..bytes.len() / 2];
            self.of(*which)[*at..at + half.len()].copy_from_slice(half);
        }
    }
}

/// Files of an empty store.
fn fresh() -> Files {
    let mut pages = Traced::new(Vec::new(), Which::Pages);
    let mut journal = Traced::new(Vec::new(), Which::Journal);
    Pages::create(&mut pages, b"boot", &empty_leaf().unwrap()).unwrap();
    Journal::create(&mut journal).unwrap();
    // Small, so that many copies are cheap.
    pages.bytes.truncate(2 * PAGE_BYTES);
    journal.bytes.truncate(PAGE_BYTES);
    Files { pages: pages.bytes, journal: journal.bytes }
}

fn open(files: Files) -> Result<Tree<Traced>, StoreError> {
    let pages = Traced::new(files.pages, Which::Pages);
    let journal = Traced::new(files.journal, Which::Journal);
    Pages::open(pages, journal, LIMIT_BYTES).map(Tree::new)
}

/// As [`open`]; with it all changes that are made from now on.
fn open_traced(files: Files) -> Result<(Tree<Traced>, Changes), StoreError> {
    let changes = Changes::default();
    let mut pages = Traced::new(files.pages, Which::Pages);
    let mut journal = Traced::new(files.journal, Which::Journal);
    (pages.changes, journal.changes) = (Some(Arc::clone(&changes)), Some(Arc::clone(&changes)));
    Ok((Pages::open(pages, journal, LIMIT_BYTES).map(Tree::new)?, changes))
}

fn files(tree: Tree<Traced>) -> Files {
    let (pages, journal) = tree.pages.into_spaces();
    Files { pages: pages.bytes, journal: journal.bytes }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn all(tree: &mut Tree<Traced>) -> Result<Model, StoreError> {
    let mut seen = Model::new();
    tree.scan(b"", b"\0", &mut |key, value| {
        seen.insert(key.to_vec(), value.to_vec());
        Scan::More
    })?;
    Ok(seen)
}

#[derive(Debug, Clone)]
enum Op {
    Put(Vec<u8>, usize, u8),
    Delete(Vec<u8>),
    Commit,
    Reopen,
}

/// Keys that share beginnings, and some as long as keys may be.
fn a_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..3_u8, any::<u8>()).prop_map(|(one, two)| vec![b'K', one, two]),
        2 => (0..40_u16).prop_map(|number| {
            [&[b'L'; 18][..], &number.to_be_bytes(), &[b'x'; 200]].concat()
        }),
        1 => (0..8_u8).prop_map(|number| [&[b'M'; 510][..], &[number]].concat()),
    ]
}

fn a_length() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..160_usize, 2 => 160..2500_usize, 1 => 2500..20_000_usize]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (a_key(), a_length(), any::<u8>())
            .prop_map(|(key, length, byte)| Op::Put(key, length, byte)),
        6 => a_key().prop_map(Op::Delete),
        2 => Just(Op::Commit),
        1 => Just(Op::Reopen),
    ]
}

fn apply(store: &mut dyn Store, model: &mut Model, op: &Op) -> Result<(), StoreError> {
    match op {
        Op::Put(key, length, byte) => {
            store.put(key, &vec![*byte; *length])?;
            model.insert(key.clone(), vec![*byte; *length]);
        }
        Op::Delete(key) => {
            let there = store.delete(key)?;
            assert_eq!(there, model.remove(key).is_some(), "{key:?}");
        }
        Op::Commit | Op::Reopen => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn long_keys_and_long_values_come_and_go_as_in_a_map(
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let mut tree = open(fresh()).unwrap();
        let (mut model, mut committed) = (Model::new(), Model::new());
        for op in &ops {
            apply(&mut tree, &mut model, op).unwrap();
            match op {
                Op::Commit => {
                    tree.commit().unwrap();
                    committed = model.clone();
                }
                Op::Reopen => {
                    tree = open(files(tree)).unwrap();
                    model = committed.clone();
                }
                Op::Put(key, ..) | Op::Delete(key) => {
                    prop_assert_eq!(tree.get(key).unwrap(), model.get(key).map(Vec::as_slice));
                }
            }
        }
        prop_assert_eq!(all(&mut tree).unwrap(), model);
    }

    #[test]
    fn bytes_that_nobody_wrote_are_an_error_or_a_wrong_answer_and_no_more(
        ops in prop::collection::vec(op(), 1..120),
        garbage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24),
        part in 0..3,
    ) {
        let mut tree = open(fresh()).unwrap();
        let mut model = Model::new();
        for op in &ops {
            apply(&mut tree, &mut model, op).unwrap();
        }
        let end = tree.pages.end() as usize * PAGE_BYTES;
        // Heads and slots of pages, any bytes of pages, the journal of what is under way.
        if part < 2 {
            tree.commit().unwrap();
        }
        let mut files = files(tree);
        for (at, byte) in garbage {
            match part {
                0 => files.pages[at.index(end / PAGE_BYTES) * PAGE_BYTES + at.index(96)] = byte,
                1 => files.pages[at.index(end)] = byte,
                _ => files.journal[at.index(PAGE_BYTES)] = byte,
            }
        }
        let Ok(mut tree) = open(files) else { return Ok(()) };
        drop(all(&mut tree));
        for op in &ops {
            match op {
                Op::Put(key, length, byte) => {
                    let _read = tree.get(key);
                    drop(tree.put(key, &vec![*byte; *length / 2]));
                }
                Op::Delete(key) => drop(tree.delete(key)),
                Op::Commit | Op::Reopen => drop(tree.commit()),
            }
            // What follows is to be tried as well.
            tree.poisoned = false;
        }
        drop(all(&mut tree));
    }
}

/// Runs transactions and looks, after every single change that they made and in the middle of it,
/// whether what a death there leaves is what one of the commits left. Returns the number of
/// changes.
fn die_everywhere(before: Files, model: &Model, ops: &[Op]) -> usize {
    let (mut tree, changes) = open_traced(before.clone()).unwrap();
    let first = tree.committed_transaction();
    let (mut now, mut committed) = (model.clone(), vec![model.clone()]);
    for op in ops {
        apply(&mut tree, &mut now, op).unwrap();
        if matches!(op, Op::Commit) {
            tree.commit().unwrap();
            committed.push(now.clone());
        }
    }
    let mut left = before;
    let changes = changes.lock().expect("nobody panics");
    for (at, change) in changes.iter().enumerate() {
        let mut half = left.clone();
        half.apply_half(change);
        check_left(half, &committed, first, at);
        left.apply(change);
        check_left(left.clone(), &committed, first, at);
    }
    changes.len()
}

fn check_left(left: Files, committed: &[Model], first: u64, cut: usize) {
    // The one who takes it up is killed as well, somewhere.
    let (tree, undoing) = open_traced(left.clone()).unwrap();
    drop(tree);
    let mut again = left;
    let undoing = undoing.lock().expect("nobody panics");
    for change in &undoing[..cut % (undoing.len() + 1)] {
        again.apply(change);
    }
    let mut tree = open(again).unwrap();
    let number = (tree.committed_transaction() - first) as usize;
    assert_eq!(all(&mut tree).unwrap(), committed[number], "cut after {cut} changes");
    // It is not only whole but can be gone on with.
    tree.put(b"after", &[1; 100]).unwrap();
    tree.put(b"long after", &[2; 9000]).unwrap();
    tree.commit().unwrap();
    let mut wanted = committed[number].clone();
    wanted.insert(b"after".to_vec(), vec![1; 100]);
    wanted.insert(b"long after".to_vec(), vec![2; 9000]);
    assert_eq!(all(&mut tree).unwrap(), wanted, "cut after {cut} changes, gone on with");
}

fn key(number: u32) -> Vec<u8> {
    [b"K".as_slice(), &number.wrapping_mul(0x9e37_79b1).to_be_bytes(), b"-a-name"].concat()
}

#[test]
fn a_death_after_any_change_leaves_the_last_commit_and_nothing_else() {
    let mut tree = open(fresh()).unwrap();
    let mut model = Model::new();
    for number in 0..90 {
        apply(&mut tree, &mut model, &Op::Put(key(number), 120, 1)).unwrap();
    }
    apply(&mut tree, &mut model, &Op::Put(b"long".to_vec(), 9000, 9)).unwrap();
    tree.commit().unwrap();
    let mut ops = Vec::new();
    // Transactions that add, replace by longer and shorter ones, and remove so much that pages are
    // split and joined and the tree loses a level.
    for number in 90..120 {
        ops.push(Op::Put(key(number), 130, 2));
    }
    ops.push(Op::Commit);
    for number in 0..30 {
        ops.push(Op::Put(key(number), (number as usize * 37) % 300, 3));
    }
    ops.push(Op::Put(b"long".to_vec(), 12_500, 4));
    ops.push(Op::Commit);
    // What lies lowest in its page becomes shorter or goes, and others come where it was.
    for number in 120..126 {
        for (length, byte) in [(130, 6), (4000, 7), (40, 8), (100, 9)] {
            ops.push(Op::Put(key(number), length, byte));
            ops.extend((number % 2 == 0).then_some(Op::Commit));
        }
        ops.extend([Op::Delete(key(number)), Op::Put(key(number + 10), 90, 10)]);
        ops.push(Op::Commit);
    }
    ops.extend((130..136).map(|number| Op::Delete(key(number))));
    ops.extend((0..115).map(|number| Op::Delete(key(number))));
    ops.push(Op::Delete(b"long".to_vec()));
    ops.push(Op::Commit);
    ops.push(Op::Put(b"long".to_vec(), 30_000, 5));
    ops.push(Op::Commit);
    let changes = die_everywhere(files(tree), &model, &ops);
    assert!(changes > 800, "{changes}");
}

#[test]
fn filling_and_emptying_does_not_make_the_file_grow() {
    let mut tree = open(fresh()).unwrap();
    let mut ends = Vec::new();
    for round in 0..6_u32 {
        for number in 0..3000 {
            tree.put(&key(round * 7919 + number), &[1; 120]).unwrap();
            if number % 16 == 0 {
                tree.commit().unwrap();
            }
        }
        for number in 0..3000 {
            assert!(tree.delete(&key(round * 7919 + number)).unwrap());
            if number % 16 == 0 {
                tree.commit().unwrap();
            }
        }
        tree.commit().unwrap();
        assert_eq!(tree.used_bytes(), PAGE_BYTES as u64, "one empty leaf is left");
        ends.push(tree.pages.end());
    }
    assert!(ends[5] <= ends[0] + ends[0] / 20, "{ends:?}");
}

/// Each such file took the room of both its records in its page, which was put in order again after
/// every sixth.
#[test]
fn a_record_that_is_made_short_and_then_long_leaves_its_page_in_order() {
    let (mut tree, changes) = open_traced(fresh()).unwrap();
    for number in 0..400 {
        tree.put(&key(number), &[1; 140]).unwrap();
        tree.commit().unwrap();
        tree.put(&key(number), &[2; 4000]).unwrap();
        tree.commit().unwrap();
    }
    let changes = changes.lock().expect("nobody panics");
    let of_whole_page = |change: &&(Which, Change)| match change {
        (Which::Pages, Change::Bytes { bytes, .. }) => bytes.len() == PAGE_BYTES,
        _ => false,
    };
    let pages = changes.iter().filter(of_whole_page).count();
    assert!(pages < 60, "{pages} pages");
}

#[test]
fn half_of_the_keys_do_not_take_more_than_two_thirds_of_the_pages() {
    let mut tree = open(fresh()).unwrap();
    for number in 0..6000 {
        tree.put(&key(number), &[1; 120]).unwrap();
    }
    let full = tree.used_bytes();
    for number in (0..6000).filter(|number| number % 4 != 0) {
        tree.delete(&key(number)).unwrap();
    }
    assert!(tree.used_bytes() < full * 2 / 3, "{} of {full}", tree.used_bytes());
}

#[test]
fn keys_in_order_leave_full_pages() {
    for stride in [1_u32, 3] {
        let mut tree = open(fresh()).unwrap();
        // Behind them all stands a key that others change in between.
        tree.put(b"Z", &[0; 40]).unwrap();
        let mut bytes = 0;
        for number in 0..5000_u32 {
            let key = [b"K".as_slice(), &(number * stride).to_be_bytes()].concat();
            tree.put(&key, &[1; 120]).unwrap();
            tree.put(b"Z", &[1; 40]).unwrap();
            bytes += key.len() + 120 + 10;
        }
        let pages = tree.used_bytes() as usize / PAGE_BYTES;
        assert!(pages * ROOM_BYTES < bytes * 11 / 10, "{pages} pages for {bytes} bytes");
    }
}

#[test]
fn a_transaction_larger_than_the_journal_makes_it_grow() {
    let mut tree = open(fresh()).unwrap();
    for number in 0..20_000 {
        tree.put(&key(number), &[1; 120]).unwrap();
    }
    let mut tree = open(files(tree)).unwrap();
    assert!(all(&mut tree).unwrap().is_empty());
}

/// A place that was believed after its page had been joined with another one, or split, took the
/// value with it.
#[test]
fn values_that_are_written_again_and_again_are_found_wherever_their_pages_went() {
    let mut tree = open(fresh()).unwrap();
    let again: Vec<Vec<u8>> = (1000..1004).map(key).collect();
    let mut written = 0_u32;
    let mut write_again = |tree: &mut Tree<Traced>| {
        written += 1;
        for key in &again {
            tree.put(key, &written.to_be_bytes()).unwrap();
        }
        for key in &again {
            assert_eq!(tree.get(key).unwrap(), Some(&written.to_be_bytes()[..]));
        }
    };
    write_again(&mut tree);
    for round in 0..3 {
        for number in 0..400 {
            tree.put(&key(number), &[1; 200]).unwrap();
            write_again(&mut tree);
        }
        for number in (0..400).rev() {
            tree.delete(&key(number)).unwrap();
            write_again(&mut tree);
            if round == 1 {
                tree.commit().unwrap();
            }
        }
    }
    assert_eq!(all(&mut tree).unwrap().len(), again.len());
}

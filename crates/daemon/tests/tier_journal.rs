//! Names that are changed outside after they were changed here.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_daemon::Directories;
use mayfly_types::{
    Errno, FileKind, OpenRef,
    limits::{TIER_JOURNAL_AT_ONCE, TIER_JOURNAL_MAX},
};
use mayfly_wire::{
    MakeDirectory, OpenReply, Read, Rename, TierAsk, TierTold, Unlink, Wire,
    tier::{
        TIER_CREATE, TIER_FETCH, TIER_FLUSH, TIER_FLUSH_NOW, TIER_MAKE_DIRECTORY, TIER_REMOVE,
        TIER_RENAME,
    },
};
use support::{Node, O_CREAT, O_RDWR, SESSION, config, outside::Bench, walk};

fn bench() -> Bench {
    let config = mayfly_daemon::Config { directories: Directories::Whole, ..config() };
    Bench::with_journal(Node::memory(config), None)
}

fn make(path: &str) -> MakeDirectory<'_> {
    MakeDirectory { walk: walk(path, 0), mode: 0o755, uid: 0, gid: 0 }
}

/// Does it without the keeper.
fn at_once<'a, O: mayfly_wire::Operation<'a>>(bench: &mut Bench, request: &O) -> u32 {
    let caller = bench.begin(SESSION, request);
    bench.answer(caller).expect("it waits for nobody").0
}

fn create(bench: &mut Bench, path: &str) -> u32 {
    let (walk, flags) = (walk(path, 0), O_CREAT | O_RDWR);
    at_once(bench, &mayfly_wire::Open { walk, flags, mode: 0o644, uid: 0, gid: 0 })
}

fn open_at_once(bench: &mut Bench, path: &str, flags: u32) -> OpenRef {
    let open = mayfly_wire::Open { walk: walk(path, 0), flags, mode: 0o644, uid: 0, gid: 0 };
    let opener = bench.begin(SESSION, &open);
    let body = bench.answer(opener).expect("it waits for nobody").1;
    OpenReply::decode(&mut mayfly_wire::Reader::new(&body)).unwrap().opened.open
}

fn flush(bench: &mut Bench) -> (u64, u64) {
    let body = bench.ask(&TierAsk { what: TIER_FLUSH_NOW, shard: 0, path: b"" }).unwrap();
    let told = TierTold::decode(&mut mayfly_wire::Reader::new(&body)).unwrap();
    (told.flushed, told.failed)
}

#[test]
fn a_tree_is_made_without_waiting_and_is_there_outside_when_it_was_flushed() {
    let mut bench = bench();
    bench.stat("in/small").unwrap();
    assert_eq!(at_once(&mut bench, &make("in/d")), 0);
    assert_eq!(create(&mut bench, "in/d/f"), 0);
    assert!(!bench.outside.contains_key("d/"));
    let given: Vec<u32> = bench.given.iter().map(|given| given.what).collect();
    assert_eq!(given, [TIER_MAKE_DIRECTORY], "what is in it waits for the directory");
    bench.restart();
    assert_eq!(bench.given.len(), 1);
    assert_eq!(flush(&mut bench), (0, 0));
    assert!(bench.outside.contains_key("d/") && bench.outside.contains_key("d/f"));
    assert_eq!(bench.source().names_waiting, 0);
    bench.expect_nothing_wrong();
}

#[test]
fn what_was_acknowledged_is_done_after_the_daemons_death() {
    let mut bench = bench();
    bench.stat("in/small").unwrap();
    assert_eq!(at_once(&mut bench, &make("in/d")), 0);
    assert_eq!(create(&mut bench, "in/d/f"), 0);
    let item = bench.take_given(TIER_MAKE_DIRECTORY);
    bench.act(&item).unwrap();
    bench.restart();
    assert_eq!(bench.stat("in/d/f").unwrap().kind, FileKind::Regular);
    assert!(bench.given.is_empty() || bench.given[0].again);
    bench.work();
    assert!(bench.outside.contains_key("d/f"));
    assert_eq!(bench.source().names_waiting, 0);
    bench.expect_nothing_wrong();
}

#[test]
fn bytes_go_back_when_the_name_is_there() {
    let mut bench = bench();
    bench.stat("in/small").unwrap();
    let file = bench.begin(SESSION, &make("in/d"));
    bench.answer(file).unwrap();
    let open = open_at_once(&mut bench, "in/d/f", O_CREAT | O_RDWR);
    let bytes = b"bytes";
    let write = mayfly_wire::Write { open, offset: 0, append: false, bytes };
    assert_eq!(at_once(&mut bench, &write), 0);
    assert_eq!(flush(&mut bench), (1, 0));
    assert_eq!(bench.outside["d/f"].1, b"bytes");
    let order: Vec<u32> = bench.done.iter().map(|done| done.0).collect();
    assert!(order.ends_with(&[TIER_MAKE_DIRECTORY, TIER_CREATE, TIER_FLUSH]), "{order:?}");
    bench.expect_nothing_wrong();
}

#[test]
fn what_fails_stays_with_all_that_waits_for_it_and_is_told_once_and_tried_again() {
    let mut bench = bench();
    bench.stat("in/small").unwrap();
    assert_eq!(at_once(&mut bench, &make("in/d")), 0);
    assert_eq!(create(&mut bench, "in/d/f"), 0);
    assert_eq!(create(&mut bench, "in/other"), 0);
    bench.fails = Some(Errno::EDQUOT);
    let item = bench.take_given(TIER_MAKE_DIRECTORY);
    bench.perform(&item);
    bench.fails = None;
    bench.work();
    assert!(bench.outside.contains_key("other"));
    assert_eq!((bench.source().names_waiting, bench.source().names_failed), (0, 2));
    bench.restart();
    assert_eq!((bench.source().names_waiting, bench.source().names_failed), (0, 2));
    assert_eq!(bench.stat("in/d").err(), Some(Errno::EDQUOT));
    assert_eq!(bench.stat("in/d").unwrap().kind, FileKind::Directory, "it is told once");
    assert_eq!(bench.stat("in/d/f").err(), Some(Errno::EDQUOT));
    assert_eq!(bench.stat("in/d/f").unwrap().kind, FileKind::Regular);
    // What is made in it now waits, too.
    assert_eq!(create(&mut bench, "in/d/g"), 0);
    assert_eq!(bench.source().names_failed, 3);
    bench.fails = Some(Errno::EDQUOT);
    assert_eq!(flush(&mut bench), (0, 3));
    bench.fails = None;
    assert_eq!(flush(&mut bench), (0, 0));
    assert!(bench.outside.contains_key("d/f") && bench.outside.contains_key("d/g"));
    assert_eq!(bench.source().names_failed, 0);
    bench.expect_nothing_wrong();
}

#[test]
fn a_name_that_is_moved_and_removed_is_so_outside_and_others_are_not_touched() {
    let mut bench = bench();
    bench.stat("in/small").unwrap();
    let rename = Rename { from: walk("in/small", 0), to: walk("in/moved", 0), flags: 0 };
    assert_eq!(at_once(&mut bench, &rename), 0);
    let remove = Unlink { walk: walk("in/large", 0), directory: false };
    assert_eq!(at_once(&mut bench, &remove), 0);
    assert_eq!(bench.stat("in/large").err(), Some(Errno::ENOENT));
    // Its bytes are outside, where it has its old name.
    assert_eq!(bench.read_whole("in/moved").unwrap(), b"small");
    assert_eq!(flush(&mut bench), (0, 0));
    assert!(bench.outside.contains_key("moved") && !bench.outside.contains_key("small"));
    assert!(!bench.outside.contains_key("large"));
    assert_eq!((bench.count(TIER_RENAME), bench.count(TIER_REMOVE)), (1, 1));
    bench.expect_nothing_wrong();
}

#[test]
fn what_could_not_be_made_is_forgotten_when_it_is_removed_here() {
    let mut bench = bench();
    bench.stat("in/small").unwrap();
    bench.outside.insert("d/".to_owned(), (9, Vec::new()));
    bench.outside.insert("taken".to_owned(), (9, b"theirs".to_vec()));
    // Others have made both meanwhile: a directory is shared, a file is not overwritten.
    assert_eq!(at_once(&mut bench, &make("in/d")), 0);
    assert_eq!(create(&mut bench, "in/taken"), 0);
    assert_eq!(create(&mut bench, "in/d/f"), 0);
    assert_eq!(flush(&mut bench), (0, 1));
    assert!(bench.outside.contains_key("d/f"));
    assert_eq!(bench.stat("in/taken").err(), Some(Errno::EEXIST));
    assert_eq!(bench.read_whole("in/taken").unwrap(), b"");
    let remove = Unlink { walk: walk("in/taken", 0), directory: false };
    assert_eq!(at_once(&mut bench, &remove), 0);
    assert_eq!(flush(&mut bench), (0, 0));
    assert_eq!(bench.outside["taken"].1, b"theirs");
    assert_eq!(bench.count(TIER_REMOVE), 0);
    bench.expect_nothing_wrong();
}

#[test]
fn what_is_made_and_removed_before_the_keeper_hears_of_it_is_never_done() {
    let mut bench = bench();
    bench.stat("in/small").unwrap();
    assert_eq!(at_once(&mut bench, &make("in/d")), 0);
    assert_eq!(create(&mut bench, "in/d/f"), 0);
    let remove = Unlink { walk: walk("in/d/f", 0), directory: false };
    assert_eq!(at_once(&mut bench, &remove), 0);
    assert_eq!(create(&mut bench, "in/d/g"), 0);
    assert_eq!(flush(&mut bench), (0, 0));
    assert_eq!((bench.count(TIER_CREATE), bench.count(TIER_REMOVE)), (1, 0));
    assert!(bench.outside.contains_key("d/g") && !bench.outside.contains_key("d/f"));
    bench.expect_nothing_wrong();
}

#[test]
fn who_finds_the_journal_full_waits_until_something_is_done() {
    let mut bench = bench();
    bench.stat("in/small").unwrap();
    assert_eq!(at_once(&mut bench, &make("in/d")), 0);
    for number in 1..TIER_JOURNAL_MAX {
        assert_eq!(at_once(&mut bench, &make(&format!("in/d/{number}"))), 0);
    }
    assert!(bench.given.len() <= TIER_JOURNAL_AT_ONCE);
    let late = bench.begin(SESSION, &make("in/late"));
    assert!(bench.answer(late).is_none(), "it does not wait");
    let item = bench.take_given(TIER_MAKE_DIRECTORY);
    bench.perform(&item);
    assert_eq!(bench.answer(late).expect("there is room").0, 0);
}

#[test]
fn who_reads_a_file_that_was_moved_waits_for_that_and_is_told_why_it_failed() {
    let mut bench = bench();
    bench.stat("in/small").unwrap();
    let rename = Rename { from: walk("in/small", 0), to: walk("in/moved", 0), flags: 0 };
    assert_eq!(at_once(&mut bench, &rename), 0);
    let open = open_at_once(&mut bench, "in/moved", O_RDWR);
    let read = Read { open, offset: 0, count: 100 };
    let reader = bench.begin(SESSION, &read);
    assert!(bench.answer(reader).is_none(), "its bytes are under another name");
    bench.fails = Some(Errno::EPERM);
    bench.work();
    assert_eq!(bench.answer(reader).unwrap().0, Errno::EPERM.raw() as u32);
    assert_eq!((bench.count(TIER_RENAME), bench.count(TIER_FETCH)), (1, 0));
    bench.fails = None;
    assert_eq!(flush(&mut bench), (0, 0));
    assert_eq!(bench.read(open).unwrap(), b"small");
    bench.expect_nothing_wrong();
}

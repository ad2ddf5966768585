//! Names that are changed outside after they were changed here.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_daemon::Directories;
use mayfly_types::{Errno, FileKind};
use mayfly_wire::{
    MakeDirectory, Rename, TierAsk, TierTold, Unlink, Wire,
    tier::{
        TIER_CREATE, TIER_FLUSH, TIER_FLUSH_NOW, TIER_MAKE_DIRECTORY, TIER_REMOVE, TIER_RENAME,
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
    let (walk, flags) = (walk("in/d/f", 0), O_CREAT | O_RDWR);
    let open = mayfly_wire::Open { walk, flags, mode: 0o644, uid: 0, gid: 0 };
    let opener = bench.begin(SESSION, &open);
    let body = bench.answer(opener).unwrap().1;
    let reply = mayfly_wire::OpenReply::decode(&mut mayfly_wire::Reader::new(&body)).unwrap();
    let bytes = b"bytes";
    let write = mayfly_wire::Write { open: reply.opened.open, offset: 0, append: false, bytes };
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

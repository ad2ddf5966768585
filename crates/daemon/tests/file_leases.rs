//! What is leased to a process for reading is a description as soon as somebody wants it.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use mayfly_daemon::Config;
use mayfly_transport_shm::{
    file_leases::{FILE_LEASES_MAX, SessionLeases},
    layout::{
        OPEN_FREE, OPEN_LEASED, OPEN_LEASED_BUSY, OPEN_LEASED_RECALLED, OPEN_LEASED_USED,
        OPEN_PRIVATE,
    },
};
use mayfly_types::{Durability, Errno, FileId, FileKind, OpenRef, SessionId, Times};
use mayfly_wire::{Open, OpenReply, Ping};
use proptest::prelude::*;
use support::{Node, O_CREAT, O_DIRECTORY, O_PATH, O_RDWR, PID, SESSION, config, failed, walk};

const OTHER: SessionId = SessionId(2);

fn leases(node: &Node, session: SessionId) -> &'static SessionLeases {
    let region = node.region;
    &region.file_leases[session.0 as usize]
}

fn state(node: &Node, open: OpenRef) -> u32 {
    let entry = &node.region.opens[open.index as usize];
    if entry.generation.load(Relaxed) == open.generation {
        entry.state.load(Relaxed)
    } else {
        OPEN_FREE
    }
}

fn make(node: &mut Node, path: &str, bytes: &[u8]) -> FileId {
    let (open, created) = node.open(path, O_CREAT | O_RDWR).unwrap();
    assert!(created);
    node.write(open, 0, bytes).unwrap();
    let id = node.fstat(open).unwrap().id;
    node.close(open);
    id
}

/// Opens a small file so often by asking that descriptions are leased.
fn warm(node: &mut Node, session: SessionId) {
    for _ in 0..4 {
        let request = Open { walk: walk("d/warm", 0), flags: 0, mode: 0, uid: 0, gid: 0 };
        let open = node.ask_as(session, &request, |reply: OpenReply<'_>| reply.opened.open);
        node.close(open.unwrap());
    }
}

fn node_with(config: Config) -> Node {
    let mut node = Node::on_disk(config);
    node.core().session_opened(OTHER, PID + 1);
    node.sessions.push((OTHER, PID + 1));
    node.mkdir("d").unwrap();
    make(&mut node, "d/warm", b"warm");
    node
}

fn node() -> Node {
    let mut node = node_with(config());
    warm(&mut node, SESSION);
    node
}

/// Takes a place into use, as a process does.
fn read_by(node: &Node, session: SessionId, id: FileId, found: (FileId, &str)) -> Option<OpenRef> {
    let leases = leases(node, session);
    let free = |place: &usize| {
        let index = leases.entry_at(*place)?;
        let entry = &node.region.opens[index as usize];
        (entry.state.load(Acquire) == OPEN_LEASED).then_some((*place, index, entry))
    };
    let (place, index, entry) = (0..FILE_LEASES_MAX).find_map(|place| free(&place))?;
    leases.births[place].write(found.0, found.1.as_bytes());
    entry.id.store(id.0, Relaxed);
    entry.offset.store(0, Relaxed);
    entry.state.store(OPEN_LEASED_USED, SeqCst);
    leases.show(place, id);
    Some(OpenRef { index, generation: entry.generation.load(Relaxed) })
}

fn open_leased(node: &mut Node, name: &str) -> OpenRef {
    let id = node.stat(&format!("d/{name}"), false).unwrap().id;
    let directory = node.stat("d", false).unwrap().id;
    read_by(node, SESSION, id, (directory, name)).unwrap()
}

fn close_leased(node: &Node, open: OpenRef) {
    let (leases, entry) = (leases(node, SESSION), &node.region.opens[open.index as usize]);
    assert_eq!(state(node, open), OPEN_LEASED_USED);
    leases.hide(leases.place_of(open.index).unwrap());
    entry.generation.fetch_add(1, SeqCst);
    entry.state.store(OPEN_LEASED, SeqCst);
}

/// Has a description made, as a process does.
fn settle(node: &mut Node, open: OpenRef) {
    let leases = leases(node, SESSION);
    leases.wanted.fetch_or(1 << leases.place_of(open.index).unwrap(), SeqCst);
    node.ask(&Ping {}, |()| ()).unwrap();
}

fn leased_count(node: &Node, session: SessionId) -> usize {
    (0..FILE_LEASES_MAX).filter(|place| leases(node, session).entry_at(*place).is_some()).count()
}

fn in_states(node: &Node, states: &[u32]) -> usize {
    let is_one = |state: u32| states.contains(&state);
    node.region.opens.iter().filter(|entry| is_one(entry.state.load(Relaxed))).count()
}

const LEASED: [u32; 4] = [OPEN_LEASED, OPEN_LEASED_BUSY, OPEN_LEASED_USED, OPEN_LEASED_RECALLED];

#[test]
fn who_reads_files_with_objects_by_asking_is_leased_descriptions() {
    let mut node = node_with(config());
    make(&mut node, "d/long", &[7; 5000]);
    for opened in 0..4 {
        assert_eq!(leased_count(&node, SESSION), 0, "after {opened}");
        let (open, _) = node.open("d/long", 0).unwrap();
        node.close(open);
    }
    assert_eq!(leased_count(&node, SESSION), FILE_LEASES_MAX);
}

#[test]
fn the_object_of_a_file_that_is_read_stays_without_a_name() {
    let mut node = node();
    make(&mut node, "d/long", &[7; 5000]);
    let open = open_leased(&mut node, "long");
    node.unlink("d/long", false).unwrap();
    assert_eq!(state(&node, open), OPEN_PRIVATE);
    assert_eq!(node.read(open, 4990, 100).unwrap(), [7; 10]);
    assert_eq!(node.core().counters().objects, 1);
    node.close(open);
    assert_eq!(node.core().counters().objects, 0);
}

#[test]
fn who_reads_small_files_by_asking_is_leased_descriptions() {
    let mut node = node_with(config());
    assert_eq!(leased_count(&node, SESSION), 0);
    warm(&mut node, SESSION);
    assert_eq!((leased_count(&node, SESSION), leased_count(&node, OTHER)), (FILE_LEASES_MAX, 0));
    warm(&mut node, OTHER);
    assert_eq!(in_states(&node, &LEASED), 2 * FILE_LEASES_MAX);
    assert_eq!(node.core().counters().open_files, 0);
}

#[test]
fn nothing_is_leased_where_reads_are_noted_or_records_are_not_shown() {
    let noted = Config { times: Times::All, ..config() };
    let synced = Config { durability: Durability::Sync, ..config() };
    for config in [noted, synced] {
        let mut node = node_with(config);
        warm(&mut node, SESSION);
        assert_eq!(leased_count(&node, SESSION), 0);
    }
}

#[test]
fn a_file_that_is_read_outlives_its_last_name() {
    for replace in [false, true] {
        let mut node = node();
        make(&mut node, "d/f", b"text");
        let open = open_leased(&mut node, "f");
        assert_eq!(node.core().counters().open_files, 1);
        if replace {
            make(&mut node, "d/g", b"another");
            node.rename("d/g", "d/f", 0).unwrap();
        } else {
            node.unlink("d/f", false).unwrap();
            make(&mut node, "d/f", b"another");
        }
        assert_eq!(state(&node, open), OPEN_PRIVATE);
        assert_eq!(node.read(open, 0, 100).unwrap(), b"text");
        assert_eq!(node.fstat(open).unwrap().links, 0);
        assert_eq!(node.core().counters().orphans, 1);
        assert_eq!(leased_count(&node, SESSION), FILE_LEASES_MAX, "another one is leased");
        node.close(open);
        assert_eq!(node.core().counters().orphans, 0);
        assert_eq!(node.core().counters().open_files, 0);
    }
}

#[test]
fn a_file_that_is_not_read_any_more_goes_with_its_name() {
    let mut node = node();
    make(&mut node, "d/f", b"text");
    let open = open_leased(&mut node, "f");
    close_leased(&node, open);
    let files = node.core().counters().files;
    node.unlink("d/f", false).unwrap();
    let counters = node.core().counters();
    assert_eq!((counters.files, counters.orphans, counters.open_files), (files - 1, 0, 0));
}

#[test]
fn a_file_with_two_names_is_read_until_the_last_one_is_gone() {
    let mut node = node();
    make(&mut node, "d/f", b"text");
    node.link("d/f", "d/g").unwrap();
    let open = open_leased(&mut node, "f");
    node.unlink("d/f", false).unwrap();
    assert_eq!(state(&node, open), OPEN_LEASED_USED);
    node.unlink("d/g", false).unwrap();
    assert_eq!(node.read(open, 0, 100).unwrap(), b"text");
    node.close(open);
    assert_eq!(node.core().counters().orphans, 0);
}

#[test]
fn who_wants_a_description_gets_one_wherever_the_file_is_by_then() {
    let mut node = node();
    make(&mut node, "d/f", b"text");
    let there = open_leased(&mut node, "f");
    let moved = open_leased(&mut node, "f");
    settle(&mut node, there);
    assert_eq!(node.read(there, 0, 100).unwrap(), b"text");
    node.rename("d/f", "d/h", 0).unwrap();
    make(&mut node, "d/f", b"another");
    settle(&mut node, moved);
    assert_eq!(node.read(moved, 0, 100).unwrap(), b"text");
    assert_eq!(node.core().counters().open_files, 2);
    node.close(there);
    node.close(moved);
    assert_eq!(in_states(&node, &LEASED), FILE_LEASES_MAX);
}

#[test]
fn a_directory_that_is_open_outlives_its_name() {
    let mut node = node_with(config());
    for opened in 0..4_usize {
        assert_eq!(leased_count(&node, SESSION), 0, "after {opened}");
        let (open, _) = node.open("d", [O_DIRECTORY, O_PATH][opened % 2]).unwrap();
        node.close(open);
    }
    assert_eq!(leased_count(&node, SESSION), FILE_LEASES_MAX, "directories count, too");
    for lose in [false, true] {
        node.mkdir("d/sub").unwrap();
        let id = node.stat("d/sub", false).unwrap().id;
        let open = read_by(&node, SESSION, id, (FileId::NONE, "")).unwrap();
        let moved = read_by(&node, SESSION, id, (FileId::NONE, "")).unwrap();
        node.rename("d/sub", "moved", 0).unwrap();
        settle(&mut node, moved);
        assert_eq!(node.fstat(moved).unwrap().id, id);
        node.close(moved);
        node.unlink("moved", true).unwrap();
        assert_eq!(state(&node, open), OPEN_PRIVATE);
        let kind = &node.region.opens[open.index as usize].kind;
        assert_eq!(kind.load(Relaxed), FileKind::Directory as u32);
        if lose {
            node.restart();
        }
        assert_eq!((node.fstat(open).unwrap().id, node.fstat(open).unwrap().links), (id, 0));
        assert_eq!(node.core().counters().orphans, 1);
        node.close(open);
        assert_eq!(node.core().counters().orphans, 0);
        assert_eq!(failed(node.stat("moved", false)), Errno::ENOENT);
    }
}

#[test]
fn a_place_that_says_what_is_not_true_is_left_alone() {
    let mut node = node();
    let id = make(&mut node, "d/f", b"text");
    let directory = node.stat("d", false).unwrap().id;
    let none = read_by(&node, SESSION, FileId(id.0 + 1000), (directory, "f")).unwrap();
    settle(&mut node, none);
    assert_eq!(state(&node, none), OPEN_LEASED_USED);
    assert_eq!(failed(node.read(none, 0, 100)), Errno::EBADF);
    leases(&node, SESSION).entries[3].store(u32::MAX, SeqCst);
    leases(&node, SESSION).wanted.store(u32::MAX, SeqCst);
    node.ask(&Ping {}, |()| ()).unwrap();
    node.unlink("d/f", false).unwrap();
    node.restart();
    node.stat("d", false).unwrap();
}

#[test]
fn the_end_of_a_process_takes_back_what_it_was_leased() {
    let mut node = node();
    make(&mut node, "d/f", b"text");
    let (open, kept) = (open_leased(&mut node, "f"), open_leased(&mut node, "f"));
    settle(&mut node, kept);
    node.core().session_closed(SESSION);
    node.core().commit().unwrap();
    assert_eq!((state(&node, open), state(&node, kept)), (OPEN_FREE, OPEN_FREE));
    assert_eq!((in_states(&node, &LEASED), leased_count(&node, SESSION)), (0, 0));
    assert_eq!(node.core().counters().open_files, 0);
    node.unlink("d/f", false).unwrap();
    assert_eq!(node.core().counters().orphans, 0);
}

#[test]
fn a_restarted_daemon_knows_what_was_leased() {
    let mut node = node();
    make(&mut node, "d/f", b"text");
    make(&mut node, "d/g", b"other");
    let (open, wanted) = (open_leased(&mut node, "f"), open_leased(&mut node, "g"));
    node.restart();
    assert_eq!((state(&node, open), state(&node, wanted)), (OPEN_LEASED_USED, OPEN_LEASED_USED));
    assert_eq!(leased_count(&node, SESSION), FILE_LEASES_MAX);
    settle(&mut node, wanted);
    node.unlink("d/f", false).unwrap();
    node.restart();
    assert_eq!(node.read(open, 0, 100).unwrap(), b"text");
    assert_eq!(node.read(wanted, 0, 100).unwrap(), b"other");
    node.close(open);
    node.close(wanted);
    assert_eq!(node.core().counters().orphans, 0);
}

#[test]
fn a_daemon_that_dies_before_the_commit_of_a_removal_leaves_file_and_reader() {
    let mut node = node();
    make(&mut node, "d/f", b"text");
    make(&mut node, "d/g", b"other");
    let (removed, replaced) = (open_leased(&mut node, "f"), open_leased(&mut node, "g"));
    let mut body = vec![0; 4096];
    let caller = node.next_caller(SESSION);
    let unlink = mayfly_wire::Unlink { walk: walk("d/f", 0), directory: false };
    node.submit(caller, &unlink, &mut body);
    let caller = node.next_caller(SESSION);
    let rename = mayfly_wire::Rename { from: walk("d/warm", 0), to: walk("d/g", 0), flags: 0 };
    node.submit(caller, &rename, &mut body);
    node.restart();
    assert_eq!(node.stat("d/f", false).unwrap().links, 1);
    for (open, text) in [(removed, &b"text"[..]), (replaced, b"other")] {
        assert_eq!(state(&node, open), OPEN_PRIVATE);
        assert_eq!(node.read(open, 0, 100).unwrap(), text);
    }
}

#[test]
fn a_daemon_that_died_over_a_description_goes_on_leasing_it() {
    let mut node = node();
    make(&mut node, "d/f", b"text");
    let open = open_leased(&mut node, "f");
    node.region.opens[open.index as usize].state.store(OPEN_LEASED_RECALLED, SeqCst);
    node.restart();
    assert_eq!(state(&node, open), OPEN_LEASED_USED);
    settle(&mut node, open);
    assert_eq!(node.read(open, 0, 100).unwrap(), b"text");
}

#[test]
fn a_process_that_is_gone_after_a_restart_has_nothing_leased() {
    let mut node = node();
    make(&mut node, "d/f", b"text");
    let open = open_leased(&mut node, "f");
    node.sessions.retain(|(session, _)| *session != SESSION);
    node.restart();
    assert_eq!(state(&node, open), OPEN_FREE);
    assert_eq!((in_states(&node, &LEASED), leased_count(&node, SESSION)), (0, 0));
    assert_eq!(leases(&node, SESSION).used(), 0);
}

/// What may happen, in any order.
#[derive(Debug, Clone)]
enum Step {
    Make(u8),
    Read(u8),
    Settle(u8),
    Close(u8),
    Unlink(u8),
    Replace(u8, u8),
    Link(u8, u8),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..4_u8;
    prop_oneof![
        3 => name().prop_map(Step::Make),
        6 => name().prop_map(Step::Read),
        2 => any::<u8>().prop_map(Step::Settle),
        4 => any::<u8>().prop_map(Step::Close),
        3 => name().prop_map(Step::Unlink),
        3 => (name(), name()).prop_map(|(from, to)| Step::Replace(from, to)),
        2 => (name(), name()).prop_map(|(from, to)| Step::Link(from, to)),
        1 => Just(Step::Restart),
    ]
}

/// A reader holds its file's bytes for ever; when all readers are gone, files without names are.
fn play(steps: Vec<Step>) {
    let mut node = node();
    let mut made = 0_u32;
    let mut readers: Vec<(OpenRef, Vec<u8>)> = Vec::new();
    let path = |name: u8| format!("d/n{name}");
    for step in steps {
        match step {
            Step::Make(name) if node.stat(&path(name), false).is_err() => {
                made += 1;
                make(&mut node, &path(name), made.to_string().as_bytes());
            }
            Step::Read(name) => {
                let Ok((open, _)) = node.open(&path(name), O_RDWR) else { continue };
                let (id, bytes) = (node.fstat(open).unwrap().id, node.read(open, 0, 100).unwrap());
                node.close(open);
                let directory = node.stat("d", false).unwrap().id;
                let found = (directory, &path(name)[2..]);
                if let Some(open) = read_by(&node, SESSION, id, found) {
                    readers.push((open, bytes));
                }
            }
            Step::Settle(which) if !readers.is_empty() => {
                let (open, _) = &readers[usize::from(which) % readers.len()];
                if state(&node, *open) == OPEN_LEASED_USED {
                    settle(&mut node, *open);
                }
            }
            Step::Close(which) if !readers.is_empty() => {
                let at = usize::from(which) % readers.len();
                let (open, bytes) = readers.swap_remove(at);
                end(&mut node, open, &bytes);
            }
            Step::Unlink(name) => drop(node.unlink(&path(name), false)),
            Step::Replace(from, to) => drop(node.rename(&path(from), &path(to), 0)),
            Step::Link(from, to) => drop(node.link(&path(from), &path(to))),
            Step::Restart => node.restart(),
            _ => {}
        }
    }
    for (open, bytes) in readers {
        settle_if_leased(&mut node, open);
        assert_eq!(node.read(open, 0, 100).unwrap(), bytes);
        node.close(open);
    }
    let counters = node.core().counters();
    assert_eq!((counters.open_files, counters.orphans), (0, 0));
}

fn settle_if_leased(node: &mut Node, open: OpenRef) {
    if state(node, open) == OPEN_LEASED_USED {
        settle(node, open);
    }
}

fn end(node: &mut Node, open: OpenRef, bytes: &[u8]) {
    if state(node, open) == OPEN_LEASED_USED {
        return close_leased(node, open);
    }
    assert_eq!(node.read(open, 0, 100).unwrap(), bytes);
    node.close(open);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_reader_keeps_its_file_whatever_becomes_of_the_names(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        play(steps);
    }
}

//! What processes submit is executed once, whatever comes between.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use mayfly_daemon::{Caller, Config};
use mayfly_transport_shm::{
    layout::{OPEN_FREE, OPEN_PRIVATE, OPEN_PROMISED},
    submission_ring::RECORDS,
};
use mayfly_types::{Durability, Errno};
use mayfly_wire::{Open, OpenReply, Ping, Symlink, Unlink};
use proptest::prelude::*;
use support::{
    Node, O_CREAT, O_RDWR, SESSION, config, failed,
    submitting::{
        O_EXCL, OTHER, THIRD, add, add_as, make_as, make_file_as, mkdir_as, node, node_of_three,
        remove, remove_as, ring_at, state, submit_create, submit_create_as, warm, warm_as,
    },
    walk,
};

#[test]
fn what_was_submitted_is_there_for_the_next_request_with_its_description() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    assert_eq!(state(&node, open), OPEN_PROMISED);
    let attr = node.stat("d/f", false).unwrap();
    assert_eq!((attr.mode & 0o7777, attr.uid, attr.gid, attr.links), (0o640, 3, 4, 1));
    assert_eq!(state(&node, open), OPEN_PRIVATE);
    node.write(open, 0, b"text").unwrap();
    assert_eq!(node.fstat(open).unwrap().size_bytes, 4);
    node.close(open);
    assert_eq!(state(&node, open), OPEN_FREE);
    assert_eq!(node.region.head.submitted.load(SeqCst), 0);
}

#[test]
fn a_description_that_was_closed_before_it_was_made_never_is() {
    let mut node = node();
    let before = node.core().counters().open_files;
    for round in 0..3 * RECORDS {
        let open = submit_create(&node, &format!("d/f{round}")).unwrap();
        assert!(ring_at(&node, SESSION).withdraw(open));
        if round % 40 == 39 {
            node.ask(&Ping {}, |()| ()).unwrap();
            assert_eq!(node.core().counters().open_files, before);
        }
        assert_ne!(state(&node, open), OPEN_PRIVATE);
    }
    node.stat("d/f0", false).unwrap();
    assert_eq!(node.core().counters().files as usize, 8 + 3 * RECORDS);
}

#[test]
fn a_full_ring_has_its_process_ask_and_goes_on_then() {
    let mut node = node();
    let submitted =
        (0..).take_while(|number| submit_create(&node, &format!("d/f{number}")).is_some()).count();
    assert_eq!(submitted, RECORDS);
    let (open, created) = make_as(&mut node, SESSION, "d/asked").unwrap();
    assert!(created);
    node.close(open);
    assert!(submit_create(&node, "d/more").is_some());
    assert_eq!(node.core().counters().files as usize, 8 + RECORDS + 1);
}

#[test]
fn a_full_ring_is_executed_in_part_while_nobody_asks_and_has_room_then() {
    let mut node = node();
    let mut number = 0..;
    let mut fill = |node: &Node| {
        number
            .by_ref()
            .take_while(|number| submit_create(node, &format!("d/f{number}")).is_some())
            .count()
    };
    assert_eq!(fill(&node), RECORDS);
    let ring = node.region.head.submitted.load(SeqCst);
    node.region.head.rings.ripe.store(ring, SeqCst);
    assert!(node.core().idle_work());
    node.core().commit().unwrap();
    let room = fill(&node);
    assert!((1..RECORDS).contains(&room), "{room} of {RECORDS}");
    // What is left is as ripe as it was, and is executed but for the last file, which is open.
    while node.region.head.rings.ripe.load(SeqCst) != 0 {
        node.core().idle_work();
        node.core().commit().unwrap();
    }
    assert_eq!(
        (node.region.head.submitted.load(SeqCst), ring_at(&node, SESSION).waiting()),
        (ring, 1)
    );
    node.stat("d/f0", false).unwrap();
    assert_eq!(node.region.head.submitted.load(SeqCst), 0);
    assert_eq!(node.core().counters().files as usize, 8 + RECORDS + room);
}

#[test]
fn a_restart_before_the_commit_executes_it_and_one_after_it_does_not() {
    let mut node = node();
    let early = submit_create(&node, "d/early").unwrap();
    node.restart();
    assert_eq!(state(&node, early), OPEN_PRIVATE);
    node.write(early, 0, b"text").unwrap();
    node.close(early);
    node.unlink("d/early", false).unwrap();
    assert!(submit_create(&node, "d/none").is_none(), "nothing is delegated after a restart");
    node.restart();
    assert_eq!(failed(node.stat("d/early", false)), Errno::ENOENT);

    warm(&mut node, "d/.");
    let executed = submit_create(&node, "d/./executed").unwrap();
    // Executed, and not committed.
    let mut body = vec![0; 4096];
    let caller = node.next_caller(SESSION);
    node.submit(caller, &Ping {}, &mut body);
    node.restart();
    node.stat("d/executed", false).unwrap();
    assert_eq!(state(&node, executed), OPEN_PRIVATE);
    assert_eq!(node.core().counters().files, 8 + 8 + 1);
}

#[test]
fn a_process_that_is_gone_after_a_restart_leaves_its_files_and_no_description() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    let closed = submit_create(&node, "d/g").unwrap();
    assert!(ring_at(&node, SESSION).withdraw(closed));
    node.sessions.retain(|(session, _)| *session != SESSION);
    node.restart();
    assert_eq!((state(&node, open), state(&node, closed)), (OPEN_FREE, OPEN_FREE));
    assert_eq!(node.core().counters().open_files, 0);
    assert_eq!(node.core().counters().files, 8 + 2);
    assert_eq!(ring_at(&node, SESSION).session.load(Relaxed), 0);
    let promised = |entry: &&mayfly_transport_shm::layout::OpenEntry| {
        entry.state.load(Relaxed) == OPEN_PROMISED
    };
    assert_eq!(node.region.opens.iter().filter(promised).count(), 0);
}

#[test]
fn the_end_of_a_process_executes_what_it_submitted() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    node.core().session_closed(SESSION);
    node.core().commit().unwrap();
    assert_eq!(state(&node, open), OPEN_FREE);
    assert!(submit_create(&node, "d/late").is_none());
    let counters = node.core().counters();
    assert_eq!((counters.files, counters.open_files), (9, 0));
}

#[test]
fn a_name_that_another_process_makes_is_submitted_by_nobody() {
    let mut node = node();
    submit_create(&node, "d/mine").unwrap();
    assert!(!make_as(&mut node, OTHER, "d/mine").unwrap().1);
    assert!(make_as(&mut node, OTHER, "d/theirs").unwrap().1);
    assert!(submit_create(&node, "d/theirs").is_none());
    assert!(submit_create(&node, "d/next").is_some(), "other names are");
    node.link("d/next", "d/linked").unwrap();
    node.symlink("nowhere", "d/symbolic").unwrap();
    node.mkdir("d/made").unwrap();
    node.rename("d/mine", "d/moved", 0).unwrap();
    for name in ["linked", "symbolic", "made", "moved"] {
        assert!(submit_create(&node, &format!("d/{name}")).is_none(), "{name}");
    }
    assert!(submit_create(&node, "d/last").is_some());
}

#[test]
fn a_name_that_was_submitted_just_before_is_there_for_what_would_make_it() {
    let mut node = node();
    make_as(&mut node, OTHER, "e").unwrap();
    // As if it were submitted after the request was taken up: what reserves the name finds it.
    submit_create(&node, "d/f").unwrap();
    node.region.head.submitted.store(0, SeqCst);
    let exclusive = Open {
        walk: walk("d/f", 0),
        flags: O_CREAT | O_EXCL | O_RDWR,
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    let made = node.ask_as(OTHER, &exclusive, |_: OpenReply<'_>| ());
    assert_eq!(failed(made), Errno::EEXIST);
    for (number, made) in [
        Node::mkdir as fn(&mut Node, &str) -> support::Answer<()>,
        |node, path| node.link("e", path),
        |node, path| node.symlink("e", path),
        |node, path| node.rename("e", path, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("d/f{number}");
        submit_create(&node, &path).unwrap();
        node.region.head.submitted.store(0, SeqCst);
        assert_eq!(failed(made(&mut node, &path)), Errno::EEXIST, "{number}");
    }
}

#[test]
fn a_directory_that_is_moved_or_removed_is_delegated_no_more() {
    let mut node = node();
    submit_create(&node, "d/f").unwrap();
    node.region.head.submitted.store(0, SeqCst);
    assert_eq!(failed(node.unlink("d", true)), Errno::ENOTEMPTY);
    assert!(submit_create(&node, "d/g").is_none());
    warm(&mut node, "d/.");
    assert!(submit_create(&node, "d/./g").is_some());
    node.mkdir("e").unwrap();
    node.rename("e", "elsewhere", 0).unwrap();
    assert!(submit_create(&node, "d/./h").is_none(), "the way to it may have changed");
    node.stat("d/g", false).unwrap();
}

#[test]
fn several_submit_in_one_directory_and_ask_about_what_others_have_submitted() {
    let mut node = node();
    assert!(submit_create_as(&node, OTHER, "d/early").is_none());
    warm_as(&mut node, OTHER, "d");
    let mine = submit_create(&node, "d/mine").unwrap();
    let theirs = submit_create_as(&node, OTHER, "d/theirs").unwrap();
    assert!(
        submit_create_as(&node, OTHER, "d/mine").is_none()
            && submit_create(&node, "d/theirs").is_none()
    );
    assert!(!remove_as(&node, OTHER, "d/mine") && !remove(&node, "d/theirs"));
    assert!(
        remove(&node, "d/mine") && submit_create(&node, "d/mine").is_some(),
        "one's own is known"
    );
    assert!(add_as(&node, OTHER, theirs, b"theirs"));
    assert_eq!(node.stat("d/theirs", false).unwrap().size_bytes, 6);
    // Now it is committed.
    assert!(remove(&node, "d/theirs") && remove_as(&node, OTHER, "d/mine"));
    assert_eq!(failed(node.stat("d/theirs", false)), Errno::ENOENT);
    assert_eq!(failed(node.stat("d/mine", false)), Errno::ENOENT);
    assert!(
        submit_create(&node, "d/theirs").is_some()
            && submit_create_as(&node, OTHER, "d/mine").is_some()
    );
    assert_ne!(state(&node, mine), OPEN_FREE, "a file that is open stays");
}

#[test]
fn who_goes_leaves_a_directory_to_the_others_who_have_it() {
    let mut node = node();
    warm_as(&mut node, OTHER, "d");
    submit_create(&node, "d/mine").unwrap();
    node.core().session_closed(SESSION);
    node.core().commit().unwrap();
    assert!(
        submit_create_as(&node, OTHER, "d/theirs").is_some() && remove_as(&node, OTHER, "d/mine")
    );
    assert_eq!(node.core().counters().files, 17);
    // Somebody who comes later has it beside them, and what ends it ends it for all.
    warm_as(&mut node, THIRD, "d");
    assert!(
        submit_create_as(&node, THIRD, "d/third").is_some() && remove_as(&node, THIRD, "d/theirs")
    );
    node.mkdir("e").unwrap();
    node.rename("e", "f", 0).unwrap();
    assert!(
        submit_create_as(&node, THIRD, "d/x").is_none()
            && submit_create_as(&node, OTHER, "d/x").is_none()
    );
    assert!(node.stat("d/third", false).is_ok() && node.stat("d/theirs", false).is_err());
}

/// Who has claimed a name and died before it came to submit leaves it to who asks.
#[test]
fn a_claim_that_nothing_came_of_is_found_by_who_asks() {
    let mut node = node();
    warm_as(&mut node, OTHER, "d");
    let published = &ring_at(&node, SESSION).published;
    let before = published.load(SeqCst);
    submit_create(&node, "d/new").unwrap();
    assert!(remove(&node, "d/warm0"));
    published.store(before, SeqCst);
    node.core().session_closed(SESSION);
    node.core().commit().unwrap();
    assert!(
        submit_create_as(&node, OTHER, "d/new").is_none() && !remove_as(&node, OTHER, "d/warm0")
    );
    assert!(make_as(&mut node, OTHER, "d/new").unwrap().1);
    let unlink = Unlink { walk: walk("d/warm0", 0), directory: false };
    node.ask_as(OTHER, &unlink, |()| ()).unwrap();
    assert!(
        remove_as(&node, OTHER, "d/new") && submit_create_as(&node, OTHER, "d/warm0").is_some()
    );
}

#[test]
fn nothing_is_delegated_where_it_could_not_be_kept() {
    let small = Config { capacity_bytes: 4 << 20, ..config() };
    let volatile = Config { durability: Durability::None, ..config() };
    for config in [small, volatile] {
        let mut node = Node::memory(config);
        node.mkdir("d").unwrap();
        warm(&mut node, "d");
        assert!(submit_create(&node, "d/f").is_none());
    }
    let mut node = Node::several(config(), 2, 1, false);
    node.mkdir("d").unwrap();
    warm(&mut node, "d");
    assert!(submit_create(&node, "d/f").is_none(), "with several shards");
    let mut node = Node::memory(config());
    node.mkdir("d").unwrap();
    node.symlink("d", "link").unwrap();
    warm(&mut node, "link");
    assert!(submit_create(&node, "link/f").is_none(), "by way of a link, which could be set anew");
}

#[test]
fn names_come_and_go_without_anybody_asking() {
    let mut node = node();
    for round in 0..3 {
        for number in 0..RECORDS / 4 {
            let name = format!("d/f{number}");
            let open = submit_create(&node, &name).unwrap();
            assert!(add(&node, open, name.as_bytes()), "round {round}");
            assert!(ring_at(&node, SESSION).withdraw(open));
            assert!(submit_create(&node, &name).is_none(), "it is there");
            assert!(number % 2 == 0 || remove(&node, &name));
        }
        for number in 0..RECORDS / 4 {
            let name = format!("d/f{number}");
            let attr = node.stat(&name, false);
            assert_eq!(attr.is_ok(), number % 2 == 0);
            assert!(attr.is_err() || attr.unwrap().size_bytes == name.len() as u64);
            assert_eq!(remove(&node, &name), number % 2 == 0);
        }
    }
    node.ask(&Ping {}, |()| ()).unwrap();
    assert_eq!(node.core().counters().files, 8);
    assert!(!remove(&node, "d/f0") && !remove(&node, "d/nowhere"));
}

#[test]
fn a_file_that_is_open_outlives_the_submitted_removal_of_its_name() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    assert!(add(&node, open, b"kept") && remove(&node, "d/f"));
    assert_eq!(failed(node.stat("d/f", false)), Errno::ENOENT);
    let attr = node.fstat(open).unwrap();
    assert_eq!((attr.size_bytes, attr.links), (4, 0));
    node.write(open, 4, b" and written").unwrap();
    assert_eq!(node.read(open, 0, 99).unwrap(), b"kept and written");
    node.close(open);
    assert_eq!(node.core().counters().files, 8);
}

#[test]
fn who_removes_in_a_row_need_not_ask_for_what_others_have_made() {
    let mut node = node_of_three();
    mkdir_as(&mut node, THIRD, "d");
    for number in 0..40 {
        make_file_as(&mut node, OTHER, &format!("d/f{number}"));
    }
    mkdir_as(&mut node, OTHER, "d/directory");
    node.link("d/f39", "d/linked").unwrap();
    node.ask(&Ping {}, |()| ()).unwrap();
    for number in 0..8 {
        assert!(!remove(&node, &format!("d/f{number}")));
        node.unlink(&format!("d/f{number}"), false).unwrap();
    }
    for name in ["f16", "f17", "f39", "linked", "f8"] {
        assert!(remove(&node, &format!("d/{name}")), "{name}");
    }
    assert!(!remove(&node, "d/directory"));
    assert_eq!(failed(node.unlink("d/f17", false)), Errno::ENOENT);
    assert_eq!(node.stat("d", false).unwrap().links, 3);
    assert_eq!(node.core().counters().files, 28);
}

/// As many files are expected as in the directory before.
#[test]
fn who_made_many_files_in_a_directory_has_the_next_one_delegated_sooner() {
    let mut node = node();
    let asks_for = |node: &mut Node, directory: &str, files: u32| {
        mkdir_as(node, THIRD, directory);
        (0..files)
            .filter(|number| {
                let path = format!("{directory}/f{number}");
                if let Some(open) = submit_create(node, &path) {
                    assert!(ring_at(node, SESSION).withdraw(open));
                    return false;
                }
                let (open, _) = node.open(&path, O_CREAT).unwrap();
                node.close(open);
                true
            })
            .count()
    };
    assert_eq!(asks_for(&mut node, "e", 20), 1, "there were eight in `d`");
    assert_eq!(asks_for(&mut node, "f", 3), 1, "and twenty in `e`");
    assert_eq!(asks_for(&mut node, "g", 20), 8, "but three in `f`");
    assert_eq!(asks_for(&mut node, "h", 1), 1);
    assert_eq!(asks_for(&mut node, "i", 20), 8, "and one in `h`");
    mkdir_as(&mut node, SESSION, "j");
    mkdir_as(&mut node, SESSION, "j/k");
    assert_eq!(asks_for(&mut node, "l", 20), 1, "a single directory says nothing");
    node.ask(&Ping {}, |()| ()).unwrap();
    assert_eq!(node.core().counters().files, 8 + 20 + 3 + 20 + 1 + 20 + 20);
}

/// A holder that saw what another process had asked for, and the daemon had not committed, could
/// submit what came to nothing: the request comes again after that when the daemon has died.
#[test]
fn what_others_ask_for_counts_for_a_holder_from_its_commit_on() {
    let mut node = node();
    make_file_as(&mut node, OTHER, "d/theirs");
    let unlink = Unlink { walk: walk("d/theirs", 0), directory: false };
    let link = Symlink { at: walk("d/new", 0), target: b"x", uid: 0, gid: 0 };
    let mut answer = [0; 4096];
    let removed = node.next_caller(OTHER);
    node.submit(removed, &unlink, &mut answer);
    let made = Caller { lane: 1, ..node.next_caller(OTHER) };
    node.submit(made, &link, &mut answer);
    assert!(submit_create(&node, "d/theirs").is_none() && !remove(&node, "d/new"));
    assert!(submit_create(&node, "d/mine").is_some(), "other names are submitted");
    node.restart();
    assert!(node.stat("d/theirs", false).is_ok() && node.stat("d/new", false).is_err());
    for again in 0..8 {
        make_as(&mut node, SESSION, &format!("d/again{again}")).unwrap();
    }
    node.submit(removed, &unlink, &mut answer);
    node.submit(made, &link, &mut answer);
    node.core().commit().unwrap();
    assert!(remove(&node, "d/new") && submit_create(&node, "d/theirs").is_some());
}

/// Who found its ring full and asked had its places freed before the commit, and a daemon that died
/// then took its records for executed.
#[test]
fn a_full_ring_is_executed_again_by_who_follows_a_daemon_that_died_before_the_commit() {
    let mut node = node();
    for number in 0..RECORDS {
        let open = submit_create(&node, &format!("d/f{number}")).unwrap();
        assert!(ring_at(&node, SESSION).withdraw(open));
    }
    let open = Open { walk: walk("d/asked", 0), flags: O_CREAT, mode: 0o644, uid: 0, gid: 0 };
    let caller = node.next_caller(SESSION);
    node.submit(caller, &open, &mut [0; 4096]);
    assert!(submit_create(&node, "d/more").is_none(), "the places are not free yet");
    node.restart();
    for number in 0..RECORDS {
        node.stat(&format!("d/f{number}"), false).unwrap();
    }
}

#[test]
fn a_directory_is_delegated_from_the_commit_on() {
    let mut node = Node::memory(config());
    node.mkdir("d").unwrap();
    for number in 0..8 {
        assert!(submit_create(&node, "d/early").is_none());
        let path = format!("d/f{number}");
        let flags = O_CREAT | O_RDWR;
        let open = Open { walk: walk(&path, 0), flags, mode: 0o644, uid: 0, gid: 0 };
        let caller = node.next_caller(SESSION);
        node.submit(caller, &open, &mut [0; 4096]);
    }
    assert!(submit_create(&node, "d/early").is_none());
    node.core().commit().unwrap();
    assert!(submit_create(&node, "d/now").is_some() && remove(&node, "d/f0"));
}

/// Words that a process without reason writes into its ring.
#[derive(Debug, Clone)]
struct Scribble {
    published: u64,
    record: usize,
    words: [u32; 8],
    name: Vec<u64>,
    bits: u64,
    restart: bool,
}

fn scribble() -> impl Strategy<Value = Scribble> {
    let published = prop_oneof![0..200_u64, (1_u64 << 32)..(1_u64 << 32) + 200, any::<u64>()];
    let word = prop_oneof![0..70_u32, any::<u32>()];
    let record =
        (0..RECORDS, proptest::array::uniform8(word), prop::collection::vec(any::<u64>(), 32));
    (published, record, any::<u64>(), any::<bool>()).prop_map(
        |(published, (record, words, name), bits, restart)| Scribble {
            published,
            record,
            words,
            name,
            bits,
            restart,
        },
    )
}

impl Scribble {
    fn write(&self, node: &Node) {
        let submissions = ring_at(node, SESSION);
        let record = &submissions.records[self.record];
        let [state, index, generation, flags, mode, uid, gid, bytes] = self.words;
        record.state.store(state, Relaxed);
        record.open_index.store(index, Relaxed);
        record.open_generation.store(generation, Relaxed);
        record.flags.store(flags, Relaxed);
        record.mode.store(mode, Relaxed);
        record.uid.store(uid, Relaxed);
        record.gid.store(gid, Relaxed);
        record.path_bytes.store(bytes, Relaxed);
        record.cycles.store(self.bits, Relaxed);
        record.path.iter().zip(&self.name).for_each(|(to, word)| to.store(*word, Relaxed));
        submissions.published.store(self.published, SeqCst);
        submissions.executed.store(state, Relaxed);
        submissions.stored.store(index, Relaxed);
        submissions.directory.store(u64::from(flags), Relaxed);
        // Heads of tables stand before the segments, both of them words.
        let words = size_of_val(&node.region.name_tables) / 8;
        let tables = (&raw const node.region.name_tables).cast::<AtomicU64>();
        for (at, word) in self.name.iter().enumerate() {
            let at = if self.record.is_multiple_of(2) { at * 16 } else { words / 1024 * at };
            // SAFETY: the tables have so many words, all of them atomics.
            unsafe { (*tables.add(at)).store(*word, Relaxed) };
        }
        node.region.head.submitted.store(self.bits, SeqCst);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..<_>::default() })]

    #[test]
    fn a_process_that_scribbles_over_its_ring_harms_nobody_else(
        scribbles in prop::collection::vec(scribble(), 1..12),
    ) {
        let mut node = node();
        node.mkdir("theirs").unwrap();
        for (number, scribble) in scribbles.iter().enumerate() {
            scribble.write(&node);
            if scribble.restart {
                node.restart();
            }
            let path = format!("theirs/f{number}");
            prop_assert!(make_file_as(&mut node, OTHER, &path));
            node.settle_down();
            prop_assert_eq!(node.region.head.submitted.load(SeqCst), 0, "the daemon can rest");
        }
        for number in 0..scribbles.len() {
            node.stat(&format!("theirs/f{number}"), false).unwrap();
        }
        node.core().session_closed(SESSION);
        node.core().commit().unwrap();
        prop_assert_eq!(node.core().counters().open_files, 0);
    }
}

//! What is posted is as if it had been asked for.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::SeqCst;

use mayfly_daemon::{Caller, Progress};
use mayfly_transport_shm::posts::ring_of;
use mayfly_types::{Errno, FileKind, SessionId};
use mayfly_wire::{Link, MakeDirectory, Open, OpenReply, Rename, Target, Unlink};
use proptest::prelude::*;
use support::{
    Node, O_CREAT, O_RDWR, SESSION, failed,
    posting::{O_EXCL, OTHER, add, make_as, node, post, posts, remove},
    walk,
};

/// What is done with one of a few names.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Make,
    Remove,
    RemoveDirectory,
    MakeDirectory,
    Rename(u8),
    Link(u8),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => Just(Deed::Make),
        6 => Just(Deed::Remove),
        1 => Just(Deed::RemoveDirectory),
        1 => Just(Deed::MakeDirectory),
        1 => (0..6_u8).prop_map(Deed::Rename),
        1 => (0..6_u8).prop_map(Deed::Link),
    ]
}

/// Names and whether each is a directory's.
type Model = std::collections::BTreeMap<u8, bool>;

fn path_of(name: u8) -> String {
    format!("d/name{name}")
}

/// What the deed does to the names, or the error of it.
fn expect(model: &mut Model, name: u8, deed: Deed) -> Result<(), Errno> {
    let found = model.get(&name).copied();
    match (deed, found) {
        (Deed::Make | Deed::MakeDirectory, Some(_)) => Err(Errno::EEXIST),
        (Deed::Remove | Deed::RemoveDirectory | Deed::Rename(_) | Deed::Link(_), None) => {
            Err(Errno::ENOENT)
        }
        (Deed::Make | Deed::MakeDirectory, None) => {
            model.insert(name, matches!(deed, Deed::MakeDirectory));
            Ok(())
        }
        (Deed::Remove, Some(true)) => Err(Errno::EISDIR),
        (Deed::RemoveDirectory, Some(false)) => Err(Errno::ENOTDIR),
        (Deed::Remove | Deed::RemoveDirectory, Some(_)) => {
            model.remove(&name);
            Ok(())
        }
        (Deed::Rename(to) | Deed::Link(to), Some(_)) if model.contains_key(&to) => {
            Err(Errno::EEXIST)
        }
        (Deed::Rename(to), Some(directory)) => {
            model.remove(&name);
            model.insert(to, directory);
            Ok(())
        }
        (Deed::Link(_), Some(true)) => Err(Errno::EPERM),
        (Deed::Link(to), Some(false)) => {
            model.insert(to, false);
            Ok(())
        }
    }
}

fn ask_for(node: &mut Node, session: SessionId, name: u8, deed: Deed) -> Result<(), Errno> {
    let path = path_of(name);
    let walk_there = walk(&path, 0);
    let done = match deed {
        Deed::Make => {
            let flags = O_CREAT | O_EXCL | O_RDWR;
            let request = Open { walk: walk_there, flags, mode: 0o644, uid: 0, gid: 0 };
            let made = node.ask_as(session, &request, |reply: OpenReply<'_>| reply.opened.open);
            made.map(|open| {
                node.ask_as(session, &mayfly_wire::Close { open }, |()| ()).unwrap();
            })
        }
        Deed::Remove | Deed::RemoveDirectory => {
            let directory = matches!(deed, Deed::RemoveDirectory);
            node.ask_as(session, &Unlink { walk: walk_there, directory }, |()| ())
        }
        Deed::MakeDirectory => node.mkdir(&path),
        Deed::Rename(to) => node.rename(&path, &path_of(to), 1),
        Deed::Link(to) => node.link(&path, &path_of(to)),
    };
    match done {
        Ok(()) => Ok(()),
        other => Err(failed(other)),
    }
}

/// Without asking, where that is possible.
fn do_unasked(node: &Node, name: u8, deed: Deed, contents: &[u8]) -> bool {
    let path = path_of(name);
    match deed {
        Deed::Make => post(node, &path).is_some_and(|open| {
            assert!(add(node, open, contents));
            posts(node, SESSION).withdraw(open)
        }),
        Deed::Remove => remove(node, &path),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..<_>::default() })]

    /// One process posts what it can, another asks, sometimes for what was posted after its request
    /// was taken up, and daemons come and go.
    #[test]
    fn names_are_what_they_would_be_if_everybody_asked(
        steps in prop::collection::vec((0..6_u8, deed(), 0..8_u8), 1..160),
    ) {
        let mut node = node();
        let mut model = Model::new();
        for (number, (name, deed, how)) in steps.into_iter().enumerate() {
            let others = how < 2;
            if how == 1 {
                // Only what looks for it finds what waits.
                node.region.head.posted.store(0, SeqCst);
            }
            if how == 7 && number % 5 == 0 {
                node.restart();
                for again in 0..8 {
                    make_as(&mut node, SESSION, &format!("d/{number} {again}")).unwrap();
                }
            }
            let mut after = model.clone();
            let expected = expect(&mut after, name, deed);
            if !others && do_unasked(&node, name, deed, &[name; 7]) {
                prop_assert_eq!(expected, Ok(()), "{:?} of {}", deed, name);
            } else {
                let session = if others { OTHER } else { SESSION };
                let done = ask_for(&mut node, session, name, deed);
                if how == 1 && done.is_err() {
                    // What was posted came after that.
                    after = model.clone();
                } else {
                    prop_assert_eq!(done, expected, "{:?} of {}", deed, name);
                }
            }
            model = after;
            let waits = posts(&node, SESSION).waiting() != 0;
            node.region.head.posted.store(u64::from(waits) << ring_of(SESSION.0), SeqCst);
        }
        for name in 0..6 {
            let found = node.stat(&path_of(name), false).ok();
            let directory = found.map(|attr| attr.kind == FileKind::Directory);
            prop_assert_eq!(directory, model.get(&name).copied());
        }
    }
}

/// Hands in a request without ending the batch.
fn submit_for(node: &mut Node, caller: Caller, name: u8, deed: Deed) -> Result<(), Errno> {
    let (path, mut answer) = (path_of(name), [0; 4096]);
    let there = walk(&path, 0);
    let progress = match deed {
        Deed::Make => {
            let flags = O_CREAT | O_EXCL | O_RDWR;
            let request = Open { walk: there, flags, mode: 0o644, uid: 0, gid: 0 };
            node.submit(caller, &request, &mut answer)
        }
        Deed::Remove | Deed::RemoveDirectory => {
            let directory = matches!(deed, Deed::RemoveDirectory);
            node.submit(caller, &Unlink { walk: there, directory }, &mut answer)
        }
        Deed::MakeDirectory => {
            let request = MakeDirectory { walk: there, mode: 0o755, uid: 0, gid: 0 };
            node.submit(caller, &request, &mut answer)
        }
        Deed::Rename(to) => {
            let to = path_of(to);
            let request = Rename { from: there, to: walk(&to, 0), flags: 1 };
            node.submit(caller, &request, &mut answer)
        }
        Deed::Link(to) => {
            let to = path_of(to);
            let request = Link { from: Target::Path(there), to: walk(&to, 0) };
            node.submit(caller, &request, &mut answer)
        }
    };
    match progress {
        Progress::Replied(0, _) => Ok(()),
        Progress::Replied(status, _) => Err(Errno::from_raw(status as i32).unwrap()),
        Progress::Pending => panic!("it is answered at once"),
    }
}

fn names_of(node: &mut Node) -> Model {
    let mut found = Model::new();
    for name in 0..6 {
        if let Ok(attr) = node.stat(&path_of(name), false) {
            found.insert(name, attr.kind == FileKind::Directory);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..<_>::default() })]

    /// What one process asks for is executed, another one posts, and then the daemon commits, or it
    /// dies and the request comes again: it is as if one had come after the other.
    #[test]
    fn what_was_posted_survives_a_daemon_that_had_executed_more_than_it_committed(
        steps in prop::collection::vec((0..6_u8, deed(), 0..6_u8, deed(), any::<bool>()), 1..40),
    ) {
        let mut node = node();
        let mut model = Model::new();
        for (number, (name, deed, posted, unasked, dies)) in steps.into_iter().enumerate() {
            let caller = node.next_caller(OTHER);
            let mut done = submit_for(&mut node, caller, name, deed);
            let unasked = do_unasked(&node, posted, unasked, b"content").then_some(unasked);
            if dies {
                node.restart();
                done = submit_for(&mut node, caller, name, deed);
            }
            node.core().commit().unwrap();
            let asked = (name, deed, done);
            let orders = match unasked.map(|unasked| (posted, unasked, Ok(()))) {
                Some(unasked) => vec![vec![asked, unasked], vec![unasked, asked]],
                None => vec![vec![asked]],
            };
            let outcomes = orders.into_iter().filter_map(|order| {
                let mut after = model.clone();
                let holds = |(name, deed, done)| expect(&mut after, name, deed) == done;
                order.into_iter().all(holds).then_some(after)
            });
            let outcomes: Vec<Model> = outcomes.collect();
            let found = names_of(&mut node);
            prop_assert!(
                outcomes.contains(&found),
                "{:?}, posted {:?}: {:?} became {:?}", asked, unasked, model, found
            );
            model = found;
            for again in 0..if dies { 8 } else { 0 } {
                make_as(&mut node, SESSION, &format!("d/{number} {again}")).unwrap();
            }
        }
    }
}

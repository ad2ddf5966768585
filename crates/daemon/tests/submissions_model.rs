//! What is submitted is as if it had been asked for.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::SeqCst;

use mayfly_daemon::{Caller, Directories, Progress};
use mayfly_records::Found;
use mayfly_transport_shm::submission_ring::{Changes, ring_of};
use mayfly_types::{Errno, FileKind, SessionId};
use mayfly_wire::{Link, MakeDirectory, Open, OpenReply, Rename, SET_MODE, Target, Unlink};
use proptest::prelude::*;
use support::{
    Node, O_CREAT, O_RDWR, SESSION, failed,
    submitting::{
        O_EXCL, OTHER, THIRD, add_as, change_as, found_beside, link_as, mkdir_as, move_as, node,
        node_of_several, node_on_disk, remove_as, remove_directory_as, ring_at, submit_create_as,
        submit_directory_as, warm_as,
    },
    walk,
};

/// What is done with one of a few paths.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Make,
    Remove,
    RemoveDirectory,
    MakeDirectory,
    Rename(usize),
    Link(usize),
}

/// The paths, so that some lead through others.
const PATHS: [&str; 12] = [
    "a", "a/a", "a/b", "a/a/a", "a/a/b", "a/a/a/a", "b", "b/a", "b/b", "b/a/a", "b/a/b", "b/a/a/a",
];

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        12 => Just(Deed::Make),
        12 => Just(Deed::Remove),
        10 => Just(Deed::RemoveDirectory),
        14 => Just(Deed::MakeDirectory),
        8 => (0..PATHS.len()).prop_map(Deed::Rename),
        4 => (0..PATHS.len()).prop_map(Deed::Link),
    ]
}

fn step() -> impl Strategy<Value = (usize, Deed)> {
    (0..PATHS.len(), deed())
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thing {
    File,
    Directory,
}

type Model = std::collections::BTreeMap<&'static str, Thing>;

/// How a path is spelled that leads to the directory.
const PLAIN: &str = "d";
const SPELLED: [&str; 2] = [PLAIN, "d/."];

fn path_of(name: usize) -> String {
    path_by(PLAIN, name)
}

fn path_by(spelling: &str, name: usize) -> String {
    format!("{spelling}/{}", PATHS[name])
}

/// Whether a path leads through another one, or what it leads by behind that one.
fn inside(path: &'static str, directory: &str) -> Option<&'static str> {
    path.strip_prefix(directory).filter(|rest| rest.starts_with('/'))
}

/// The error of a path's way to its last name.
fn check_way(model: &Model, path: &str) -> Result<(), Errno> {
    for (slash, _) in path.match_indices('/') {
        match model.get(&path[..slash]) {
            None => return Err(Errno::ENOENT),
            Some(Thing::File) => return Err(Errno::ENOTDIR),
            Some(Thing::Directory) => {}
        }
    }
    Ok(())
}

fn is_empty(model: &Model, directory: &str) -> bool {
    model.keys().all(|path| inside(path, directory).is_none())
}

/// What the deed does to the names, or the error of it.
fn expect(model: &mut Model, name: usize, deed: Deed) -> Result<(), Errno> {
    let path = PATHS[name];
    check_way(model, path)?;
    let found = model.get(path).copied();
    match (deed, found) {
        (Deed::Make | Deed::MakeDirectory, Some(_)) => Err(Errno::EEXIST),
        (Deed::Make, None) => {
            model.insert(path, Thing::File);
            Ok(())
        }
        (Deed::MakeDirectory, None) => {
            model.insert(path, Thing::Directory);
            Ok(())
        }
        (_, None) => Err(Errno::ENOENT),
        (Deed::Remove, Some(Thing::Directory)) => Err(Errno::EISDIR),
        (Deed::RemoveDirectory, Some(Thing::File)) => Err(Errno::ENOTDIR),
        (Deed::RemoveDirectory, Some(_)) if !is_empty(model, path) => Err(Errno::ENOTEMPTY),
        (Deed::Remove | Deed::RemoveDirectory, Some(_)) => {
            model.remove(path);
            Ok(())
        }
        (Deed::Rename(to) | Deed::Link(to), Some(thing)) => {
            let to = PATHS[to];
            check_way(model, to)?;
            if inside(to, path).is_some() {
                return Err(Errno::EINVAL);
            }
            if model.contains_key(to) {
                return Err(Errno::EEXIST);
            }
            if matches!(deed, Deed::Rename(_)) {
                move_all(model, path, to);
                Ok(())
            } else if thing == Thing::File {
                model.insert(to, Thing::File);
                Ok(())
            } else {
                Err(Errno::EPERM)
            }
        }
    }
}

/// Where a path leads when what it leads through is moved; none when that is none of ours.
fn moved(path: &'static str, from: &str, to: &str) -> Option<&'static str> {
    let rest = path.strip_prefix(from).unwrap_or_default();
    PATHS.iter().find(|path| **path == format!("{to}{rest}")).copied()
}

fn move_all(model: &mut Model, from: &str, to: &str) {
    let before = std::mem::take(model);
    for (path, thing) in before {
        let goes = path == from || inside(path, from).is_some();
        let path = if goes { moved(path, from, to) } else { Some(path) };
        model.insert(path.expect("it is asked for only then"), thing);
    }
}

/// Whether all that may be at a path is seen after such a move.
fn fits(from: usize, to: usize) -> bool {
    let (from, to) = (PATHS[from], PATHS[to]);
    let mut within = PATHS.iter().filter(|path| inside(path, from).is_some());
    within.all(|path| moved(path, from, to).is_some())
}

/// What is done, and what comes of it.
type Done = (usize, Deed, Result<(), Errno>);

/// The names after all of it, one by one; none when something else would have come of it.
fn in_order(model: &Model, order: &[Done]) -> Option<Model> {
    let mut after = model.clone();
    let holds = |(name, deed, done): &Done| {
        let expected = expect(&mut after, *name, *deed);
        // Of two paths either error may come first.
        let of_two = matches!(deed, Deed::Rename(_) | Deed::Link(_));
        expected == *done || of_two && expected.is_err() && done.is_err()
    };
    order.iter().all(holds).then_some(after)
}

/// The names that there may be when what was submitted came one after the other, and what was asked
/// for anywhere behind the first `from` of it.
fn outcomes(model: &Model, submitted: &[Done], asked: Done, from: usize) -> Vec<Model> {
    let orders = (from..=submitted.len()).map(|at| {
        let mut order = submitted.to_vec();
        order.insert(at, asked);
        order
    });
    orders.filter_map(|order| in_order(model, &order)).collect()
}

fn ask_for(node: &mut Node, session: SessionId, name: usize, deed: Deed) -> Result<(), Errno> {
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
fn do_unasked(node: &Node, session: SessionId, name: usize, deed: Deed) -> bool {
    do_unasked_by(PLAIN, node, session, name, deed)
}

fn do_unasked_by(spelling: &str, node: &Node, session: SessionId, name: usize, deed: Deed) -> bool {
    let path = path_by(spelling, name);
    match deed {
        Deed::Make => submit_create_as(node, session, &path).is_some_and(|open| {
            assert!(add_as(node, session, open, &[name as u8; 7]));
            ring_at(node, session).withdraw(open)
        }),
        Deed::MakeDirectory => submit_directory_as(node, session, &path),
        Deed::Remove => remove_as(node, session, &path),
        Deed::RemoveDirectory => remove_directory_as(node, session, &path),
        Deed::Rename(to) => {
            let to = path_by(spelling, to);
            move_as(node, session, (&path, &to), true)
        }
        Deed::Link(to) => link_as(node, session, (&path, &path_by(spelling, to))),
    }
}

/// Two processes make eight files each, so that the directory is delegated to them.
fn delegate(node: &mut Node) {
    warm_as(node, SESSION, "d");
    warm_as(node, OTHER, "d");
}

fn delegated() -> Node {
    let mut node = node();
    warm_as(&mut node, OTHER, "d");
    node
}

fn delegated_of_several(shards: u32, seed: u64) -> Node {
    let mut node = node_of_several(shards, seed, Directories::Whole);
    mkdir_as(&mut node, THIRD, "d");
    delegate(&mut node);
    let path = path_of(0);
    assert!(do_unasked(&node, SESSION, 0, Deed::Make), "{path} is asked for");
    assert!(do_unasked(&node, SESSION, 0, Deed::Remove), "{path} is asked for");
    node
}

/// A turn of the daemon's in which nobody has asked.
fn idle(node: &mut Node) {
    node.region.head.rings.ripe.fetch_or(node.region.head.submitted.load(SeqCst), SeqCst);
    if node.cores.len() > 1 {
        // In any order.
        for _ in 0..node.cores.len() {
            let shard = node.several.dice.below(node.cores.len());
            node.end_batch(shard);
        }
        return;
    }
    node.core().idle_work();
    node.core().commit().unwrap();
}

/// Two processes submit what they can, which the daemon executes in part when nobody asks; a third
/// asks, sometimes for what was submitted after its request was taken up; and daemons come and go.
fn submit_and_ask(mut node: Node, steps: Vec<(usize, Deed, u8)>) -> Result<(), TestCaseError> {
    let (mut model, mut submitted) = (Model::new(), Vec::new());
    for (number, (name, deed, how)) in steps.into_iter().enumerate() {
        if how == 7 && number % 5 == 0 {
            node.restart();
            delegate(&mut node);
            model = in_order(&model, &std::mem::take(&mut submitted)).expect("submitted");
        }
        if how == 8 && number % 4 == 0 {
            delegate(&mut node);
            model = in_order(&model, &std::mem::take(&mut submitted)).expect("submitted");
        }
        if how > 12 {
            idle(&mut node);
        }
        if matches!(deed, Deed::Rename(to) if !fits(name, to)) {
            continue;
        }
        let session = match how {
            0 | 1 => THIRD,
            2..5 => OTHER,
            _ => SESSION,
        };
        if session != THIRD && do_unasked(&node, session, name, deed) {
            submitted.push((name, deed, Ok(())));
            let possible = in_order(&model, &submitted).is_some();
            prop_assert!(possible, "{:?} of {}: {:?} {:?}", deed, name, model, submitted);
            continue;
        }
        if how == 1 {
            // As if it were submitted after the request was taken up.
            node.region.head.submitted.store(0, SeqCst);
        }
        let done = ask_for(&mut node, session, name, deed);
        let waits = [SESSION, OTHER].into_iter().filter(|of| ring_at(&node, *of).waiting() > 0);
        let bits = waits.fold(0, |bits, of| bits | 1 << ring_of(of.0));
        node.region.head.submitted.store(bits, SeqCst);
        let from = if how == 1 { 0 } else { submitted.len() };
        let found = names_of(&mut node);
        let mut outcomes = outcomes(&model, &submitted, (name, deed, done), from);
        if how == 1 && done.is_err() {
            // It may have looked at one of its names before, and at the other one after that.
            outcomes.extend(in_order(&model, &submitted));
        }
        prop_assert!(
            outcomes.contains(&found),
            "{:?} of {} was {:?}, submitted {:?}: {:?} became {:?}",
            deed,
            name,
            done,
            submitted,
            model,
            found
        );
        (model, submitted) = (found, Vec::new());
    }
    prop_assert_eq!(Some(names_of(&mut node)), in_order(&model, &submitted));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..<_>::default() })]

    #[test]
    fn names_are_what_they_would_be_if_everybody_asked(
        steps in prop::collection::vec((0..PATHS.len(), deed(), 0..16_u8), 1..200),
    ) {
        submit_and_ask(delegated(), steps)?;
    }

    #[test]
    fn at_the_first_of_several_shards_names_are_so_too(
        steps in prop::collection::vec((0..PATHS.len(), deed(), 0..16_u8), 1..120),
        shards in 2..5_u32,
        seed in any::<u64>(),
    ) {
        submit_and_ask(delegated_of_several(shards, seed), steps)?;
    }
}

/// Hands in a request without ending the batch.
fn submit_for(node: &mut Node, caller: Caller, name: usize, deed: Deed) -> Result<(), Errno> {
    submit_by(PLAIN, node, caller, name, deed)
}

fn submit_by(
    spelling: &str,
    node: &mut Node,
    caller: Caller,
    name: usize,
    deed: Deed,
) -> Result<(), Errno> {
    let (path, mut answer) = (path_by(spelling, name), [0; 4096]);
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
            let to = path_by(spelling, to);
            let request = Rename { from: there, to: walk(&to, 0), flags: 1 };
            node.submit(caller, &request, &mut answer)
        }
        Deed::Link(to) => {
            let to = path_by(spelling, to);
            let request = Link { from: Target::Path(there), to: walk(&to, 0) };
            node.submit(caller, &request, &mut answer)
        }
    };
    answer_of(progress)
}

fn answer_of(progress: Progress) -> Result<(), Errno> {
    match progress {
        Progress::Replied(0, _) => Ok(()),
        Progress::Replied(status, _) => Err(Errno::from_raw(status as i32).unwrap()),
        Progress::Pending => panic!("it is answered at once"),
    }
}

/// A process makes eight files in a row in the directory, in the present batch.
fn submit_warm(spelling: &str, node: &mut Node, session: SessionId, number: usize) {
    for file in 0..8 {
        let (caller, path) = (node.next_caller(session), format!("{spelling}/row{number}.{file}"));
        let (walk, flags) = (walk(&path, 0), O_CREAT | O_EXCL | O_RDWR);
        let request = Open { walk, flags, mode: 0o644, uid: 0, gid: 0 };
        assert_eq!(answer_of(node.submit(caller, &request, &mut [0; 4096])), Ok(()));
    }
}

/// Asks for the removal of the directory, which has names: nobody has it delegated any more.
fn submit_removal(node: &mut Node) {
    let request = Unlink { walk: walk(PLAIN, 0), directory: true };
    let caller = node.next_caller(THIRD);
    let removed = answer_of(node.submit(caller, &request, &mut [0; 4096]));
    assert_eq!(removed, Err(Errno::ENOTEMPTY));
}

fn names_of(node: &mut Node) -> Model {
    let mut found = Model::new();
    for (name, path) in PATHS.iter().enumerate() {
        if let Ok(attr) = node.stat(&path_of(name), false) {
            let is_directory = attr.kind == FileKind::Directory;
            found.insert(path, if is_directory { Thing::Directory } else { Thing::File });
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..<_>::default() })]

    /// A process submits, what another one asks for is executed, two submit, and then the daemon
    /// commits, or it dies and the request comes again: it is as if one had come after the other.
    #[test]
    fn what_was_submitted_survives_a_daemon_that_had_executed_more_than_it_committed(
        steps in prop::collection::vec(
            (step(), prop::array::uniform3(step()), any::<bool>()), 1..40,
        ),
    ) {
        let mut node = delegated();
        let mut model = Model::new();
        for (asked, [before, first, second], dies) in steps {
            let submit_create = |node: &Node, of: SessionId, (name, deed): (usize, Deed)| {
                do_unasked(node, of, name, deed).then_some((name, deed, Ok(())))
            };
            let (name, deed) = asked;
            if matches!(deed, Deed::Rename(to) if !fits(name, to)) {
                continue;
            }
            let mut submitted = Vec::from_iter(submit_create(&node, OTHER, before));
            let before = submitted.len();
            let caller = node.next_caller(THIRD);
            let mut done = submit_for(&mut node, caller, name, deed);
            submitted.extend(submit_create(&node, SESSION, first));
            submitted.extend(submit_create(&node, OTHER, second));
            if dies {
                node.restart();
                done = submit_for(&mut node, caller, name, deed);
            }
            node.core().commit().unwrap();
            let outcomes = outcomes(&model, &submitted, (name, deed, done), before);
            let found = names_of(&mut node);
            prop_assert!(
                outcomes.contains(&found),
                "{:?} of {}, submitted {:?}: {:?} became {:?}", deed, name, submitted, model, found
            );
            model = found;
            if dies {
                delegate(&mut node);
            }
        }
    }
    /// Two processes submit what they can by two paths to the directory, and ask for the rest as a
    /// third does, many times in one batch: each is told what comes of it at that moment.
    #[test]
    fn of_many_in_one_batch_each_is_told_what_comes_of_it(
        steps in prop::collection::vec((step(), 0..3_usize, 0..2_usize, 0..24_u8), 1..200),
    ) {
        let mut node = delegated();
        let mut model = Model::new();
        for (number, ((name, deed), who, spelled, how)) in steps.into_iter().enumerate() {
            let (session, spelling) = ([SESSION, OTHER, THIRD][who], SPELLED[spelled]);
            match how {
                0 => submit_warm(spelling, &mut node, session, number),
                1 => submit_removal(&mut node),
                2..6 => drop(node.core().commit().unwrap()),
                _ => {}
            }
            if matches!(deed, Deed::Rename(to) if !fits(name, to)) {
                continue;
            }
            let expected = expect(&mut model, name, deed);
            if do_unasked_by(spelling, &node, session, name, deed) {
                prop_assert_eq!(Ok(()), expected, "{:?} of {} was submitted", deed, name);
                continue;
            }
            let caller = node.next_caller(session);
            let done = submit_by(spelling, &mut node, caller, name, deed);
            // Of two paths either error may come first.
            let of_two = matches!(deed, Deed::Rename(_) | Deed::Link(_));
            prop_assert!(
                done == expected || of_two && done.is_err() && expected.is_err(),
                "{:?} of {} was {:?}, not {:?}", deed, name, done, expected
            );
        }
        node.core().commit().unwrap();
        prop_assert_eq!(names_of(&mut node), model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..<_>::default() })]

    /// Two processes submit, and one asks now and then: what a process finds in the records about
    /// which nothing waits is what the daemon says, which executes everything first.
    #[test]
    fn about_what_nothing_waits_the_records_are_right(
        steps in prop::collection::vec(
            (step(), 0..12_u8, prop::array::uniform3(0..PATHS.len())), 1..150,
        ),
    ) {
        let mut node = node_on_disk();
        delegate(&mut node);
        for (number, ((name, deed), how, looks)) in steps.into_iter().enumerate() {
            if matches!(deed, Deed::Rename(to) if !fits(name, to)) {
                continue;
            }
            let session = if how % 2 == 0 { SESSION } else { OTHER };
            let mode = 0o600 + number as u32 % 64;
            let changes = Changes { which: SET_MODE, mode, ..Changes::default() };
            if how < 3 {
                let _ = change_as(&node, session, &path_of(name), &changes);
            } else if !do_unasked(&node, session, name, deed) && how > 9 {
                let _ = ask_for(&mut node, session, name, deed);
            }
            if how == 11 {
                idle(&mut node);
            }
            let found = looks.map(|at| (path_of(at), found_beside(&node, &path_of(at))));
            if number % 3 > 0 || found.iter().all(|(_, found)| found.is_none()) {
                continue;
            }
            for (path, found) in found {
                let said = node.stat(&path, false);
                match found {
                    Some(Found::File(attr)) => prop_assert_eq!(Ok(attr), said, "{}", path),
                    Some(Found::Nothing) => prop_assert!(said.is_err(), "{}", path),
                    None => {}
                }
            }
        }
    }
}

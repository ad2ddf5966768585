use super::*;
use crate::submission_ring::{
    Certain, Changed, Changes, Submission, Submitted,
    tests::{Ring, ring},
};

impl Ring {
    fn moves(&self, from: &str, to: &str, certain: bool) -> bool {
        self.moves_to(from, to, MoveKind::Replace, certain)
    }

    fn links(&self, from: &str, to: &str, certain: bool) -> bool {
        self.moves_to(from, to, MoveKind::Link, certain)
    }

    fn moves_to(&self, from: &str, to: &str, how: MoveKind, certain: bool) -> bool {
        let given = self.delegation().expect("it was given");
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let moved = Move { from, to, how, moment: Moment { cycles: 9, processor: 1 } };
        self.submissions.submit_move((&*self.tables, given), &moved, |_, _| certain)
    }
}

#[test]
fn a_move_takes_two_records_that_are_published_together() {
    let mut ring = ring();
    ring.put("f", NameState::Plain);
    assert!(ring.moves("f", "g", false), "nothing is there that could be the same file");
    let records = &ring.submissions.records;
    assert_eq!(ring.submissions.waiting(), 2);
    assert_eq!([0, 1].map(|at| records[at].execute()), [Submitted::Move, Submitted::MoveTarget]);
    assert_eq!((records[0].read_path(), records[1].read_path()), (b"f".to_vec(), b"g".to_vec()));
    assert_eq!((ring.submissions.target_of(0), ring.submissions.target_of(1)), (Some(1), None));
    let given = ring.delegation().expect("it was given");
    assert!(!ring.remove(given, "f") && ring.create(given, "f").is_some(), "the name is free");
    assert!(ring.remove(given, "g"));
}

#[test]
fn what_is_there_is_replaced_by_a_file_that_certainly_has_one_name() {
    let mut ring = ring();
    for name in ["f", "g"] {
        ring.put(name, NameState::Plain);
    }
    assert!(!ring.moves("f", "g", false) && !ring.moves_to("f", "g", MoveKind::New, true));
    assert_eq!(ring.submissions.waiting(), 0);
    let given = ring.delegation().expect("it was given");
    ring.create(given, "new").expect("the claims were given up");
    assert!(!ring.moves_to("new", "f", MoveKind::New, false), "it is there");
    assert!(ring.moves("new", "f", false), "it is new");
    assert!(!ring.moves("f", "g", true), "nothing tells what waits there");
    assert!(ring.moves("f", "h", false));
    assert!(!ring.moves("g", "g", true) && !ring.moves("g", "inside/g", true));
}

#[test]
fn a_name_moves_between_two_directories_inside() {
    let mut ring = ring();
    for (name, name_state) in [
        ("one", NameState::Covered),
        ("two", NameState::NewDirectory),
        ("other", NameState::AskDaemon),
        ("one/f", NameState::Plain),
    ] {
        ring.put(name, name_state);
    }
    assert!(!ring.moves("one/f", "other/f", true) && !ring.moves("other/f", "one/g", true));
    let given = ring.delegation().expect("it was given");
    assert!(ring.moves("one/f", "two/f", false));
    assert!(!ring.remove_directory(given, "two"), "something is in it");
    assert!(ring.moves("two/f", "f", false) && ring.moves("f", "one/f", false));
    let path = |at: usize| ring.submissions.records[at].read_path();
    assert_eq!((path(0), path(1)), (b"one/f".to_vec(), b"two/f".to_vec()));
}

#[test]
fn a_file_that_certainly_has_one_name_gets_another_one() {
    let mut ring = ring();
    ring.put("old", NameState::Plain);
    ring.put("there", NameState::Plain);
    assert!(!ring.links("old", "new", false), "it may have more than one");
    assert!(!ring.links("old", "there", true) && !ring.links("old", "old", true));
    assert_eq!(ring.submissions.waiting(), 0, "the claims were given up");
    assert!(ring.links("old", "new", true));
    let records = &ring.submissions.records;
    assert_eq!([0, 1].map(|at| records[at].execute()), [Submitted::Link, Submitted::MoveTarget]);
    assert_eq!((ring.submissions.target_of(0), records[1].read_path()), (Some(1), b"new".to_vec()));
    let given = ring.delegation().expect("it was given");
    ring.create(given, ".tmp").expect("a new name");
    assert!(ring.links(".tmp", "object", false), "it is its own, and new");
    assert!(!ring.links(".tmp", "third", true) && !ring.links("object", "third", true));
    assert!(!ring.moves(".tmp", "object", true), "both are of one file");
    assert!(ring.remove(given, ".tmp") && ring.remove(given, "object"), "each is there");
}

#[test]
fn attributes_are_changed_before_a_move_and_asked_for_after_it() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    let open = ring.create(given, "f").expect("a new name");
    assert!(ring.moves("f", "g", false));
    let changes = Changes { which: mayfly_wire::SET_MODE, ..Changes::default() };
    let change = |changed| {
        let given = (&*ring.tables, given);
        ring.submissions.submit_changes(given, changed, &changes, |_, _| Certain::All)
    };
    assert_eq!(change(Changed::Name(b"g")), None);
    assert_eq!(change(Changed::Name(b"f")), None);
    assert_eq!(change(Changed::Open(open)), Some(Submission::Joined), "whatever it is called");
}

#[test]
fn a_ring_with_one_place_left_takes_no_move() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    for number in 0..RECORDS - 1 {
        ring.create(given, &format!("f{number}")).expect("there is room");
    }
    assert!(!ring.moves("f1", "g", false));
    assert!(ring.remove(given, "f1"), "the claim was given up");
}

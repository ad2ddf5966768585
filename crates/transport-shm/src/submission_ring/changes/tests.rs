use mayfly_types::Timestamp;
use mayfly_wire::SET_SIZE;

use super::*;
use crate::submission_ring::{
    Made, Submitted,
    tests::{Ring, ring},
};

fn changes(which: u32, mode: u32) -> Changes {
    let moment = Moment { cycles: 9, processor: 1 };
    let mtime = Timestamp { seconds: 5, nanoseconds: 6 };
    Changes { which, mode, uid: 1, gid: 2, mtime, moment, ..Changes::default() }
}

impl Ring {
    fn change(&self, changed: Changed<'_>, which: u32, certain: bool) -> Option<Submission> {
        let certain = if certain { Certain::All } else { Certain::Nothing };
        self.change_known(changed, which, certain)
    }

    fn change_known(
        &self,
        changed: Changed<'_>,
        which: u32,
        certain: Certain,
    ) -> Option<Submission> {
        let given = self.delegation().expect("it was given");
        let (changes, given) = (changes(which, 0o700), (&*self.tables, given));
        self.submissions.submit_changes(given, changed, &changes, |_, _| certain)
    }

    fn state(&self, place: usize) -> State {
        State(self.submissions.records[place].state.load(SeqCst))
    }
}

#[test]
fn a_change_joins_the_record_that_makes_its_file_until_that_is_executed() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    let open = ring.create(given, "f").expect("a new name");
    let by_open = Changed::Open(open);
    assert_eq!(ring.change(by_open, SET_MTIME, false), Some(Submission::Joined));
    assert!(ring.submissions.addition(open).is_none(), "the time would be too late");
    assert!(ring.submissions.withdraw(open));
    assert_eq!(ring.change(Changed::Name(b"f"), SET_UID, false), Some(Submission::Joined));
    assert_eq!(ring.state(0).changes(), SET_MTIME | SET_UID);
    assert_eq!(ring.state(0).kind(), RECORD_CLOSED);

    let executed = ring.submissions.records[0].execute();
    let which = SET_MTIME | SET_UID;
    assert_eq!(
        executed,
        Submitted::File { open: false, bytes: 0, which, seen: false, object: Made::Nothing }
    );
    assert_eq!(ring.submissions.records[0].execute(), executed, "after a restart");
    let read = ring.submissions.records[0].read_changes(which);
    assert_eq!((read.uid, read.mtime), (1, Timestamp { seconds: 5, nanoseconds: 6 }));
    // It takes a record of its own, for which the first one's name is still claimed.
    assert_eq!(ring.change(Changed::Name(b"f"), SET_MODE, false), Some(Submission::Record));
    assert_eq!(ring.state(1).changes(), SET_MODE);
    assert_eq!(ring.submissions.records[1].execute(), Submitted::Changes { which: SET_MODE });
    assert_eq!(ring.submissions.records[1].read_path(), b"f");
}

#[test]
fn what_would_count_in_another_order_takes_a_further_record() {
    for (first, second, joins) in [
        (SET_UID, SET_MODE, true),
        (SET_MODE, SET_UID, false),
        (SET_MODE, SET_MODE, false),
        (SET_MTIME, SET_MTIME_NOW, false),
        (SET_MTIME, SET_ATIME_NOW, true),
        (SET_UID, SET_GID, true),
    ] {
        let ring = ring();
        let given = ring.delegation().expect("it was given");
        ring.create(given, "f").expect("a new name");
        let name = Changed::Name(b"f");
        assert_eq!(ring.change(name, first, false), Some(Submission::Joined));
        let how = if joins { Submission::Joined } else { Submission::Record };
        assert_eq!(ring.change(name, second, false), Some(how), "{first} {second}");
        assert_eq!(ring.submissions.waiting(), 1 + u32::from(!joins));
        if !joins {
            assert_eq!(ring.change(name, SET_ATIME, false), Some(Submission::Joined));
            assert_eq!(ring.state(1).changes(), second | SET_ATIME, "it joins the last one");
        }
    }
}

#[test]
fn a_name_that_is_there_is_changed_when_it_is_certain_what_it_is() {
    let mut ring = ring();
    ring.put("f", NameState::Plain);
    ring.put("directory", NameState::NewDirectory);
    ring.put("asked", NameState::AskDaemon);
    let (name, which) = (Changed::Name(b"f"), SET_MODE);
    assert_eq!(ring.change(name, which, false), None);
    assert_eq!(ring.change(name, which | SET_SIZE, true), None);
    assert_eq!(ring.change(name, 0, true), None);
    assert_eq!(ring.submissions.waiting(), 0);
    assert_eq!(ring.change(name, which, true), Some(Submission::Record), "the claim was given up");
    for other in ["directory", "asked", "none"] {
        assert_eq!(ring.change(Changed::Name(other.as_bytes()), which, true), None, "{other}");
    }
}

/// A file was written, its mode was set, which found no record to join, and then its times, which
/// joined that one: the object's time counted, and what was asked for was nowhere.
#[test]
fn times_that_an_object_has_join_no_change_of_other_attributes() {
    let mut ring = ring();
    ring.put("f", NameState::Plain);
    let (name, known) = (Changed::Name(b"f"), Certain::AllButTimes);
    assert_eq!(ring.change_known(name, SET_MTIME, known), None);
    assert_eq!(ring.change_known(name, SET_MODE | SET_ATIME, known), None);
    assert_eq!(ring.change_known(name, SET_GID, known), Some(Submission::Record));
    for which in [SET_MTIME, SET_ATIME_NOW, SET_MTIME | SET_UID] {
        assert_eq!(ring.change_known(name, which, known), None, "{which}");
    }
    assert_eq!(ring.change_known(name, SET_MODE, known), Some(Submission::Joined));
    assert_eq!(ring.submissions.waiting(), 1);
    assert_eq!(
        ring.submissions.records[0].execute(),
        Submitted::Changes { which: SET_MODE | SET_GID }
    );
    for (which, taken) in [(SET_MODE, Some(Submission::Record)), (SET_MTIME, None)] {
        assert_eq!(ring.change_known(name, which, known), taken, "it is executed: {which}");
    }
}

#[test]
fn a_removed_file_is_changed_by_its_description_alone() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    let open = ring.create(given, "f").expect("a new name");
    assert!(ring.remove(given, "f"));
    assert_eq!(ring.change(Changed::Name(b"f"), SET_MODE, true), None);
    assert_eq!(ring.change(Changed::Open(open), SET_MODE, false), Some(Submission::Joined));
    let other = ring.create(given, "f").expect("the name is free");
    // Of the first one nothing more can be told by the name.
    assert_eq!(ring.change(Changed::Open(open), SET_MODE, true), None);
    assert_eq!(ring.change(Changed::Open(other), SET_MODE, true), Some(Submission::Joined));
    assert_eq!(ring.state(2).changes(), SET_MODE);
}

#[test]
fn nothing_is_changed_after_the_delegation_was_taken_back() {
    let mut ring = ring();
    ring.put("f", NameState::Plain);
    let given = ring.delegation().expect("it was given");
    ring.submissions.take_back();
    let given = (&*ring.tables, given);
    let changes = changes(SET_MODE, 0o700);
    let changed = Changed::Name(b"f");
    assert_eq!(
        ring.submissions.submit_changes(given, changed, &changes, |_, _| Certain::All),
        None
    );
    assert_eq!(ring.submissions.waiting(), 0);
}

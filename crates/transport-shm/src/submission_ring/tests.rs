use mayfly_sys::arch::Moment;
use mayfly_types::limits::NAME_BYTES_MAX;

use super::{
    name_table::{Entered, NameState, NameTables, Spare, Tally},
    *,
};

const SESSION: u32 = 7;
const PREFIX: &[u8] = b"a/directory/";

/// A ring and the tables, in which the first is its.
pub(super) struct Ring {
    pub(super) submissions: Box<SubmissionRing>,
    pub(super) tables: Box<NameTables>,
    tally: Tally,
}

fn zeroed<T>() -> Box<T> {
    // SAFETY: memory of that layout, from the allocator that the box gives it back to; it
    // consists of atomics, of which zeros are a value.
    unsafe { Box::from_raw(std::alloc::alloc_zeroed(std::alloc::Layout::new::<T>()).cast::<T>()) }
}

pub(super) fn ring() -> Ring {
    let (submissions, tables) = (zeroed::<SubmissionRing>(), zeroed::<NameTables>());
    for (index, record) in (0..).zip(&submissions.records) {
        record.set_promise(OpenRef { index, generation: 3 });
    }
    submissions.promised.store(RECORDS as u32, Relaxed);
    submissions.dedicate(SESSION, (1, PREFIX), (5, 0));
    let mut tally = Tally::default();
    let mut spare = Spare::all(&tables);
    assert!(tables.names(0).lay_out(&mut tally, &mut spare, 0));
    submissions.give();
    Ring { submissions, tables, tally }
}

/// A file without an object, of which no attributes are changed.
fn file(open: bool, bytes: usize, seen: bool) -> Submitted {
    Submitted::File { open, bytes, which: 0, seen, object: Made::Nothing }
}

/// The delegation of a session for what is behind [`PREFIX`].
fn delegation_of(submissions: &SubmissionRing, session: u32) -> Option<u32> {
    submissions.delegation_for(session, 1, &[PREFIX, b"f"].concat()).map(|(given, _)| given)
}

impl Ring {
    pub(super) fn delegation(&self) -> Option<u32> {
        delegation_of(&self.submissions, SESSION)
    }

    pub(super) fn create(&self, given: u32, name: &str) -> Option<OpenRef> {
        self.submissions.submit_create(&self.tables, given, &create(name))
    }

    fn make_directory(&self, given: u32, name: &str) -> bool {
        self.submissions.submit_directory(&self.tables, given, &create(name))
    }

    pub(super) fn remove(&self, given: u32, name: &str) -> bool {
        self.submit_removal(given, name, false)
    }

    pub(super) fn remove_directory(&self, given: u32, name: &str) -> bool {
        self.submit_removal(given, name, true)
    }

    fn submit_removal(&self, given: u32, name: &str, directory: bool) -> bool {
        let (path, moment) = (name.as_bytes(), Moment { cycles: 7, processor: 1 });
        self.submissions.submit_removal(&self.tables, given, &Removal { path, directory, moment })
    }

    pub(super) fn put(&mut self, name: &str, name_state: NameState) {
        assert!(self.tables.names(0).put(&mut self.tally, Print::of(name.as_bytes()), name_state));
    }

    /// The daemon has executed and committed all, after which the name of the record of a place
    /// stands so.
    fn release(&mut self, name: &str, place: usize, name_state: Option<NameState>) {
        self.submissions.executed.store(self.submissions.count(), Relaxed);
        self.tables.names(0).release(
            &mut self.tally,
            Print::of(name.as_bytes()),
            place,
            name_state,
        );
    }
}

fn create(name: &str) -> Create<'_> {
    let (path, moment) = (name.as_bytes(), Moment { cycles: 7, processor: 1 });
    Create { path, flags: 0o101, mode: 0o644, uid: 1, gid: 2, moment }
}

#[test]
fn a_create_is_submitted_with_its_name_and_the_promise_of_its_place() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    for (index, name) in (0..).zip(["f", "eight by", "nine byte", &"n".repeat(NAME_BYTES_MAX)]) {
        let promise = ring.create(given, name);
        assert_eq!(promise, Some(OpenRef { index, generation: 3 }), "{name}");
        assert_eq!(ring.submissions.records[index as usize].read_path(), name.as_bytes());
    }
    assert_eq!((ring.submissions.count(), ring.submissions.waiting()), (4, 4));
}

#[test]
fn nothing_is_submitted_for_another_path_or_process() {
    let ring = ring();
    let file = b"a/directory/f";
    let rest = ring.submissions.delegation_for(SESSION, 1, file).map(|(_, rest)| rest);
    assert_eq!(rest, Some(&b"f"[..]));
    assert_eq!(ring.submissions.delegation_for(SESSION + 64, 1, file), None);
    assert_eq!(ring.submissions.delegation_for(SESSION, 2, file), None);
    for other in ["a/directory", "", "b/directory/f", "f", "a/directory/", "a/directory/b/.."] {
        assert_eq!(ring.submissions.delegation_for(SESSION, 1, other.as_bytes()), None, "{other}");
    }
    let long = [PREFIX, &[b'n'; NAME_BYTES_MAX], b"n"].concat();
    assert_eq!(ring.submissions.delegation_for(SESSION, 1, &long), None);
}

#[test]
fn a_name_that_is_there_or_was_submitted_is_asked_for() {
    let mut ring = ring();
    let given = ring.delegation().expect("it was given");
    ring.put("there", NameState::Plain);
    assert_eq!(ring.create(given, "there"), None);
    assert!(ring.create(given, "new").is_some());
    assert_eq!(ring.create(given, "new"), None);
    ring.tables.names(0).remove(&ring.tally, Print::of(b"there"));
    assert!(ring.create(given, "there").is_some());
}

#[test]
fn a_name_is_removed_that_is_there_or_was_submitted_and_no_other() {
    let mut ring = ring();
    let given = ring.delegation().expect("it was given");
    ring.put("there", NameState::Plain);
    ring.put("directory", NameState::AskDaemon);
    assert!(!ring.remove(given, "nowhere") && !ring.remove(given, "directory"));
    assert!(ring.remove(given, "there") && !ring.remove(given, "there"));
    for _ in 0..3 {
        assert!(ring.create(given, "there").is_some());
        assert!(ring.remove(given, "there") && !ring.remove(given, "there"));
    }
    assert_eq!(ring.submissions.records[0].execute(), Submitted::Removal { directory: false });
    ring.release("there", 6, None);
    assert!(ring.create(given, "there").is_some());
    ring.release("there", 7, Some(NameState::Plain));
    assert!(ring.remove(given, "there"), "what was committed counts as the table has it");
}

#[test]
fn a_directory_is_removed_as_long_as_nothing_was_made_in_it() {
    let mut ring = ring();
    let given = ring.delegation().expect("it was given");
    assert!(!ring.remove_directory(given, "new"), "it is not there");
    assert!(ring.make_directory(given, "new") && !ring.make_directory(given, "new"));
    assert_eq!(ring.create(given, "new"), None);
    assert!(!ring.remove(given, "new"), "it is a directory");
    assert_eq!(ring.submissions.records[0].execute(), Submitted::Directory);
    ring.release("new", 0, Some(NameState::NewDirectory));
    assert!(!ring.remove(given, "new"), "it is a directory");
    assert!(ring.remove_directory(given, "new") && !ring.remove_directory(given, "new"));
    assert_eq!(ring.submissions.records[1].execute(), Submitted::Removal { directory: true });
    assert!(ring.create(given, "new").is_some(), "and a file may have its name");
    assert!(!ring.remove_directory(given, "new"), "which is no directory");

    assert!(ring.make_directory(given, "used"));
    ring.release("used", 3, Some(NameState::NewDirectory));
    let names = ring.tables.names(0);
    assert_eq!(names.enter(&ring.tally, Print::of(b"used")), Entered::Covered);
    assert!(!ring.remove_directory(given, "used"), "something may have been made in it");
    assert!(!ring.make_directory(given, "used") && ring.create(given, "used").is_none());
}

#[test]
fn something_is_submitted_in_a_directory_that_was_submitted_and_in_no_other() {
    let mut ring = ring();
    let given = ring.delegation().expect("it was given");
    assert!(ring.create(given, "new/f").is_none(), "it is not there");
    assert!(ring.make_directory(given, "new") && ring.make_directory(given, "new/inner"));
    assert!(ring.create(given, "new/inner/f").is_some());
    assert!(!ring.remove_directory(given, "new/inner") && !ring.remove_directory(given, "new"));
    for (name, place) in [("new", 0), ("new/inner", 1)] {
        ring.release(name, place, Some(NameState::NewDirectory));
        assert!(!ring.remove_directory(given, name), "{name}");
    }
    ring.release("new/inner/f", 2, Some(NameState::Plain));
    assert!(ring.remove(given, "new/inner/f") && ring.create(given, "new/inner/g").is_some());
    ring.put("file", NameState::Plain);
    ring.put("asked", NameState::AskDaemon);
    assert!(ring.create(given, "file/f").is_none() && ring.create(given, "asked/f").is_none());
}

#[test]
fn what_another_has_submitted_about_a_name_is_asked_for() {
    let mut ring = ring();
    let given = ring.delegation().expect("it was given");
    let other = zeroed::<SubmissionRing>();
    other.promised.store(RECORDS as u32, Relaxed);
    other.dedicate(SESSION + 1, (1, PREFIX), (5, 0));
    other.give();
    let by_other = |name: &str| {
        let given = delegation_of(&other, SESSION + 1).expect("it was given");
        other.submit_create(&ring.tables, given, &create(name)).is_some()
    };
    // Places and numbers of records are the same in both rings.
    assert!(by_other("theirs") && ring.create(given, "ours").is_some());
    assert!(!by_other("ours") && ring.create(given, "theirs").is_none());
    assert!(!ring.remove(given, "theirs"));
    ring.release("theirs", 0, Some(NameState::Plain));
    assert!(ring.remove(given, "theirs"), "it is committed");
}

#[test]
fn content_goes_with_its_file_until_that_is_executed_or_closed() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    let add = |open, bytes: &[u8]| {
        let addition = ring.submissions.addition(open)?;
        let room = addition.room(bytes.len())?;
        // SAFETY: room for so many bytes in a ring that nobody else knows.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), room, bytes.len()) };
        addition.add(bytes.len(), 9).then_some(())
    };
    let first = ring.create(given, "first").expect("there is room");
    assert!(add(first, b"some ").is_some() && add(first, b"content").is_some());
    assert!(add(first, &[0; INLINE_BYTES_MAX - 11]).is_none(), "more than a record takes");
    assert_eq!(ring.submissions.records[0].execute(), file(true, 12, false));
    assert!(add(first, b"late").is_none());
    let mut content = vec![1, 2];
    ring.submissions.read_content(0, 12, &mut content);
    assert_eq!(content, b"some content");
    let second = ring.create(given, "second").expect("there is room");
    assert!(add(second, b"x").is_some() && ring.submissions.withdraw(second));
    assert!(add(second, b"y").is_none());
    assert_eq!(ring.submissions.records[1].execute(), file(false, 1, false));
}

#[test]
fn a_full_ring_takes_nothing_until_places_are_free() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    let names: Vec<String> = (0..=RECORDS).map(|number| format!("f{number}")).collect();
    for name in &names[..RECORDS] {
        assert!(ring.create(given, name).is_some());
    }
    assert_eq!(ring.create(given, &names[RECORDS]), None);
    ring.submissions.promised.fetch_add(1, Relaxed);
    assert!(ring.create(given, "one more").is_some());
}

#[test]
fn nothing_is_submitted_after_a_delegation_was_taken_back() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    ring.submissions.take_back();
    assert_eq!((ring.delegation(), ring.create(given, "late")), (None, None));
    ring.submissions.give();
    assert_eq!(ring.create(given, "later"), None, "that was another delegation");
    let again = ring.delegation().expect("it was given again");
    assert!(ring.create(again, "now").is_some());
    assert_eq!(ring.submissions.count(), 1);
}

/// What the daemon has looked through then is all that there is under the number of before.
#[test]
fn nothing_is_published_under_a_delegation_that_was_renewed() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    assert!(ring.create(given, "before").is_some());
    let (seen, place) = ring.submissions.next(given).expect("there is room");
    let print = Print::of(b"late");
    let claim =
        ring.submissions.claim(ring.tables.names(0), (seen as u32, place), print, (None, None));
    assert_eq!(ring.submissions.renew(), 1);
    assert!(!ring.submissions.publish(seen, claim.expect("nobody has it")));
    assert_eq!((ring.create(given, "late"), ring.submissions.count()), (None, 1));
    let again = ring.delegation().expect("it was given again");
    assert!(ring.create(again, "late").is_some() && ring.submissions.count() == 2);
}

#[test]
fn a_claim_is_given_up_when_the_delegation_is_taken_back_before_it_is_submitted() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    let (seen, place) = ring.submissions.next(given).expect("there is room");
    let print = Print::of(b"late");
    let claim =
        ring.submissions.claim(ring.tables.names(0), (seen as u32, place), print, (None, None));
    ring.submissions.take_back();
    assert!(!ring.submissions.publish(seen, claim.expect("nobody has it")));
    ring.submissions.give();
    let again = ring.delegation().expect("it was given again");
    assert!(ring.create(again, "late").is_some());
}

#[test]
fn either_the_process_closes_a_description_or_the_daemon_makes_it() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    let first = ring.create(given, "first").expect("there is room");
    assert!(ring.submissions.withdraw(first) && !ring.submissions.withdraw(first));
    let closed = file(false, 0, false);
    assert!(
        ring.submissions.records[0].execute() == closed
            && ring.submissions.records[0].execute() == closed
    );
    let second = ring.create(given, "second").expect("there is room");
    let opened = file(true, 0, false);
    assert_eq!(ring.submissions.records[1].execute(), opened);
    assert!(!ring.submissions.withdraw(second));
    assert_eq!(
        ring.submissions.records[1].execute(),
        opened,
        "and so does a daemon that is started again"
    );
}

#[test]
fn a_name_is_absent_that_is_in_the_table_of_a_directory_that_is_there_and_not_otherwise() {
    let mut ring = ring();
    ring.put("f", NameState::Plain);
    ring.put("asked", NameState::AskDaemon);
    ring.put("covered", NameState::Covered);
    let given = ring.delegation().expect("it was given");
    ring.create(given, "new").expect("a new name");
    assert!(ring.make_directory(given, "made") && ring.remove(given, "f"));
    let absent = |given, name: &str| {
        ring.submissions.is_there((&*ring.tables, given), name.as_bytes()) == Some(false)
    };
    assert!(ring.make_directory(given, "over") && ring.remove_directory(given, "over"));
    for name in ["f", "none", "covered/f", "made/f"] {
        assert!(absent(given, name), "{name}");
    }
    // A directory on the way is not there.
    for name in ["none/f", "none/none/f", "covered/none/f", "made/none/f", "over/f", "f/f"] {
        assert!(absent(given, name), "{name}");
    }
    for name in ["asked", "covered", "new", "made", "asked/f", "asked/none/f", "new/f"] {
        assert!(!absent(given, name), "{name}");
    }
    for name in ["covered//f", "covered/./f", "none/../f", "./none/f", "none//f", "/none/f"] {
        assert!(!absent(given, name), "{name}");
    }
    // Somebody else's claim.
    let other = zeroed::<SubmissionRing>();
    other.promised.store(RECORDS as u32, Relaxed);
    other.dedicate(SESSION + 1, (1, PREFIX), (5, 0));
    other.give();
    let theirs = delegation_of(&other, SESSION + 1).expect("it was given");
    assert!(other.submit_create(&ring.tables, theirs, &create("theirs")).is_some());
    assert!(!absent(given, "theirs"));
    assert!(!absent(given + 1, "none"));
    ring.submissions.take_back();
    assert!(!absent(given, "none"), "the table may be another directory's");
}

#[test]
fn what_is_there_is_known_by_the_table_and_the_own_records() {
    let mut ring = ring();
    let states = [NameState::Plain, NameState::Covered, NameState::AskDaemon];
    for (name, name_state) in ["f", "covered", "asked"].into_iter().zip(states) {
        ring.put(name, name_state);
    }
    let given = ring.delegation().expect("it was given");
    ring.create(given, "new").expect("a new name");
    let there =
        |given, name: &str| ring.submissions.is_there((&*ring.tables, given), name.as_bytes());
    for (name, is_there) in [
        ("f", Some(true)),
        ("covered", Some(true)),
        ("new", Some(true)),
        ("none", Some(false)),
        ("asked", None),
        ("asked/f", None),
    ] {
        assert_eq!(there(given, name), is_there, "{name}");
    }
    assert_eq!(there(given + 1, "f"), None);
}

#[test]
fn any_process_finds_about_which_names_nothing_waits() {
    let mut ring = ring();
    for (name, name_state) in [
        ("f", NameState::Plain),
        ("gone", NameState::Plain),
        ("asked", NameState::AskDaemon),
        ("covered", NameState::Covered),
        ("covered/f", NameState::Plain),
        ("covered/asked", NameState::AskDaemon),
        ("asked/claimed", NameState::Plain),
    ] {
        ring.put(name, name_state);
    }
    let given = ring.delegation().expect("it was given");
    ring.create(given, "new").expect("a new name");
    // Of a name that was claimed before its directory was to be asked about.
    let (names, print) = (ring.tables.names(0), Print::of(b"asked/claimed"));
    names.claim(print, RECORDS - 1, |_| true).expect("nobody has claimed it");
    assert!(ring.make_directory(given, "made") && ring.remove(given, "gone"));
    let alone = |name: &str| ring.submissions.leaves_alone(&ring.tables, name.as_bytes());
    for name in ["f", "none", "covered/f", "covered/none"] {
        assert!(alone(name), "{name}");
    }
    // In a directory whose names are not in the table nobody submits anything.
    for name in ["asked/f", "asked/in/f", "covered/asked/f"] {
        assert!(alone(name), "{name}");
    }
    for name in ["gone", "new", "made", "made/f", "asked", "covered", "none/f", "asked/claimed"] {
        assert!(!alone(name), "{name}");
    }
    ring.submissions.take_back();
    assert!(!alone("f"), "the table may be another directory's");
}

#[test]
fn a_file_that_was_submitted_is_looked_at_once_and_has_its_time_from_then() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    let open = ring.create(given, "f").expect("a new name");
    let now = mayfly_types::Timestamp { seconds: 77, nanoseconds: 8 };
    let addition = ring.submissions.addition(open).expect("nobody has executed it");
    assert!(addition.room(3).is_some() && addition.add(3, 9));
    assert_eq!(ring.submissions.look(open, now, |_, _| false), None);
    let told = ring.submissions.look(open, now, |directory, path| {
        assert_eq!((directory.0, path), (5, &b""[..]));
        true
    });
    assert_eq!(told, Some(Submitting { mode: 0o644, uid: 1, gid: 2, bytes: 3 }));
    assert_eq!(ring.submissions.look(open, now, |_, _| true), None, "its time is told");
    let addition = ring.submissions.addition(open).expect("more may come");
    assert!(addition.room(4).is_some() && addition.add(4, 9) && ring.submissions.withdraw(open));
    let record = &ring.submissions.records[0];
    let made = file(false, 7, true);
    assert_eq!((record.execute(), record.read_look()), (made, (now, 3)));
}

/// fstat of a file said that it had a name, which was removed (pjdfstest, `open_file_not_freed`).
#[test]
fn a_file_whose_name_was_removed_since_is_not_looked_at() {
    let ring = ring();
    let given = ring.delegation().expect("it was given");
    let open = ring.create(given, "f").expect("a new name");
    let also = ring.create(given, "g").expect("a new name");
    assert!(ring.remove(given, "f"));
    let now = mayfly_types::Timestamp { seconds: 77, nanoseconds: 8 };
    assert_eq!(ring.submissions.look(open, now, |_, _| true), None);
    assert!(ring.submissions.look(also, now, |_, _| true).is_some(), "that is another one");
}

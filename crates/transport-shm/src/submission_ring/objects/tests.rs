use mayfly_types::FileId;
use mayfly_wire::{SET_ATIME, SET_MODE, SET_UID};

use super::super::{
    Certain, Changed, Changes, Made, RECORD_CLOSED, Submitted,
    tests::{Ring, ring},
};
use super::*;

const ROOM: u32 = 1 << 16;

/// A ring with a file that was submitted in it, with some content.
fn ring_with_file() -> (Ring, OpenRef) {
    let ring = ring();
    ring.submissions.object_bytes.store(ROOM, Relaxed);
    let given = ring.delegation().expect("it was given");
    let open = ring.create(given, "f").expect("a new name");
    let addition = ring.submissions.addition(open).expect("nobody has executed it");
    let room = addition.room(4).expect("there is room");
    // SAFETY: room for so many bytes in a ring that nobody else knows.
    unsafe { core::ptr::copy_nonoverlapping(b"some".as_ptr(), room, 4) };
    assert!(addition.add(4, 9));
    (ring, open)
}

fn made(ring: &Ring) -> Made {
    match ring.submissions.records[0].execute() {
        Submitted::File { object, .. } => object,
        other => panic!("{other:?}"),
    }
}

#[test]
fn content_that_a_record_has_no_room_for_goes_to_an_object_that_counts_when_it_is_filled() {
    let (ring, open) = ring_with_file();
    let submissions = &ring.submissions;
    assert_eq!(submissions.object_end(open), None, "there is none");
    assert!(submissions.begin_object(open, (3, 9000)).is_none(), "not at the end");
    assert!(submissions.begin_object(open, (4, u64::from(ROOM) + 1)).is_none(), "too far");
    let new = submissions.begin_object(open, (4, 9000)).expect("nobody has executed it");
    assert_eq!(submissions.content_before(new), b"some");
    assert!(submissions.begin_object(open, (4, 9000)).is_none(), "one is begun");
    assert!(submissions.addition(open).is_none(), "the content is in the object");
    assert_eq!(submissions.object_end(open), None, "it is not filled");
    assert!(submissions.finish_object(new));
    assert_eq!(submissions.object_end(open), Some(u64::from(ROOM)));
    assert!(submissions.withdraw(open));
    assert_eq!(submissions.object_end(open), None, "it is closed");
    assert_eq!(made(&ring), Made::All { end: u64::from(ROOM) });
}

#[test]
fn an_object_that_was_filled_too_late_is_not_the_files() {
    let (ring, open) = ring_with_file();
    let new = ring.submissions.begin_object(open, (4, 9000)).expect("nobody has executed it");
    assert_eq!(made(&ring), Made::Started);
    assert!(!ring.submissions.finish_object(new));
    assert_eq!(ring.submissions.object_end(open), None);
    assert_eq!(made(&ring), Made::Started, "and so finds a daemon that is started again");
}

#[test]
fn a_file_that_is_closed_by_another_thread_meanwhile_gets_its_object() {
    let (ring, open) = ring_with_file();
    let new = ring.submissions.begin_object(open, (4, 9000)).expect("nobody has executed it");
    assert!(ring.submissions.withdraw(open));
    assert!(ring.submissions.finish_object(new));
    let record = &ring.submissions.records[0];
    assert_eq!(State(record.state.load(Relaxed)).kind(), RECORD_CLOSED);
    assert_eq!(made(&ring), Made::All { end: u64::from(ROOM) });
}

#[test]
fn the_object_of_another_file_that_got_the_place_is_not_finished() {
    let (ring, open) = ring_with_file();
    let new = ring.submissions.begin_object(open, (4, 9000)).expect("nobody has executed it");
    let next = OpenRef { generation: open.generation + 1, ..open };
    ring.submissions.records[0].set_promise(next);
    assert!(!ring.submissions.finish_object(new));
}

#[test]
fn what_is_written_behind_a_change_of_times_or_a_later_record_is_asked_for() {
    for (first, last) in [(SET_MODE, SET_UID), (SET_MODE, SET_ATIME), (SET_ATIME, SET_MODE)] {
        what_is_written_behind_changes(first, last);
    }
}

fn what_is_written_behind_changes(first: u32, last: u32) {
    let (ring, open) = ring_with_file();
    let given = ring.delegation().expect("it was given");
    let change = |which| {
        let changes = Changes { which, mode: 0o600, uid: 1, ..Changes::default() };
        let time_object: &mut dyn FnMut(OpenRef) -> bool = &mut |_| true;
        let how = (|_: FileId, _: &[u8]| Certain::Nothing, time_object);
        let (tables, changed) = (&*ring.tables, Changed::Open(open));
        ring.submissions.submit_changes_with((tables, given), changed, &changes, how).is_some()
    };
    assert!(change(first));
    let is_written = first != SET_ATIME;
    assert_eq!(ring.submissions.addition(open).is_some(), is_written);
    let new = ring.submissions.begin_object(open, (4, 9000));
    assert_eq!(new.is_some(), is_written);
    if let Some(new) = new {
        assert!(ring.submissions.finish_object(new));
        assert_eq!(ring.submissions.object_end(open), Some(u64::from(ROOM)));
    }
    assert!(change(last));
    assert_eq!(ring.submissions.object_end(open), None);
}

#[test]
fn without_space_set_aside_an_object_is_asked_for() {
    let (ring, open) = ring_with_file();
    ring.submissions.object_bytes.store(0, Relaxed);
    assert!(ring.submissions.begin_object(open, (4, 5)).is_none());
}

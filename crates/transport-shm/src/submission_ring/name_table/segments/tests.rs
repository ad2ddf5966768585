use std::collections::HashMap;

use proptest::prelude::*;

use super::{
    super::{DETAIL_BITS, PARTS_MAX, RINGS, SLOTS_MAX},
    *,
};
use crate::region::{NodeSettings, make_node};

/// The tables of a node, of which the first is laid out.
struct Bed {
    tables: Box<NameTables>,
    spare: Spare,
    tally: Tally,
}

fn tables() -> Box<NameTables> {
    // SAFETY: memory of that layout, from the allocator that the box gives it back to; it
    // consists of atomics, of which zeros are a value.
    unsafe {
        Box::from_raw(
            std::alloc::alloc_zeroed(std::alloc::Layout::new::<NameTables>()).cast::<NameTables>(),
        )
    }
}

fn laid_out() -> Bed {
    let tables = tables();
    let (mut spare, mut tally) = (Spare::all(&tables), Tally::default());
    assert!(tables.names(0).lay_out(&mut tally, &mut spare, 0));
    Bed { tables, spare, tally }
}

impl Bed {
    fn names(&self) -> NameTable<'_> {
        self.tables.names(0)
    }

    /// As a client finds it.
    fn seen(&self, number: u32) -> Option<Seen> {
        seen(self.names(), number)
    }

    fn claim(&self, number: u32, place: usize, from: Seen) -> bool {
        claim(self.names(), number, place, from)
    }

    fn put(&mut self, number: u32, name_state: NameState) -> bool {
        self.tables.names(0).put(&mut self.tally, print_of(number), name_state)
    }

    fn reserve(&mut self, number: u32) -> Reserved {
        self.tables.names(0).reserve(&mut self.tally, print_of(number))
    }

    fn release(&mut self, number: u32, place: usize, name_state: Option<NameState>) {
        self.tables.names(0).release(&mut self.tally, print_of(number), place, name_state);
    }

    fn make_room(&mut self, number: u32) -> bool {
        self.tables.names(0).make_room(&mut self.tally, &mut self.spare, print_of(number))
    }

    fn relieve(&mut self) -> bool {
        self.tables.names(0).relieve(&mut self.tally, &mut self.spare, usize::MAX)
    }

    /// Puts a name, and makes room where there is none; false when there is none to be had.
    fn add(&mut self, number: u32) -> bool {
        let name = (print_of(number), NameState::Plain);
        self.tables.names(0).add(&mut self.tally, &mut self.spare, name)
    }

    /// The daemon makes something in a directory; whether that is covered, and how it stands then.
    fn enter(&self, number: u32) -> (bool, Seen) {
        let entered = self.names().enter(&self.tally, print_of(number));
        (entered == Entered::Covered, self.seen(number).unwrap_or(Seen::Absent))
    }

    /// The same of a process that has made what the even places say.
    fn lead(&self, number: u32) -> (bool, Seen) {
        let leads = self.names().leads_into(print_of(number), |place| place % 2 == 0);
        (leads, self.seen(number).unwrap_or(Seen::Absent))
    }

    fn segments(&self) -> usize {
        self.tally.held.len()
    }
}

fn print_of(number: u32) -> Print {
    Print::of(format!("file.{number:08}").as_bytes())
}

fn seen(names: NameTable<'_>, number: u32) -> Option<Seen> {
    let print = print_of(number);
    names.slots(print)?.look(print).map(Slot::seen)
}

fn claim(names: NameTable<'_>, number: u32, place: usize, from: Seen) -> bool {
    names.claim(print_of(number), place, |seen| seen == from).is_some()
}

#[test]
fn a_table_that_was_not_laid_out_tells_nothing() {
    let tables = tables();
    let names = tables.names(RINGS + 1);
    assert_eq!(seen(names, 1), None);
    assert!(!claim(names, 1, 0, Seen::Absent));
}

#[test]
fn a_table_whose_head_says_anything_is_looked_through_all_the_same() {
    let bed = laid_out();
    let head = bed.names().head;
    head.mask.store(u32::MAX, Relaxed);
    head.segments.iter().for_each(|segment| segment.store(u32::MAX, Relaxed));
    for slots in [1 << 31, u32::MAX, 3] {
        head.slots.store(slots, Relaxed);
        assert!((0..1000).all(|number| bed.seen(number) == Some(Seen::Absent)));
    }
}

#[test]
fn names_of_one_directory_have_prints_of_their_own() {
    let mut prints: Vec<u64> = (0..1_000_000).map(|number| print_of(number).0).collect();
    prints.extend((0..1_000_000).map(|number| Print::of(format!("{number}").as_bytes()).0));
    prints.sort_unstable();
    assert!(prints.windows(2).all(|pair| pair[0] >> DETAIL_BITS != pair[1] >> DETAIL_BITS));
}

#[test]
fn a_table_takes_a_million_names_and_no_end_of_them() {
    let mut bed = laid_out();
    let mut put = 0;
    while put < 1_100_000 {
        let segments = bed.segments();
        assert!(bed.add(put), "{put} names");
        assert!(bed.segments() <= segments + 1, "one is divided at a time");
        put += 1;
    }
    assert!(
        (0..put).step_by(7).all(|number| bed.seen(number) == Some(Seen::There(NameState::Plain)))
    );
    assert!((put..2 * put).step_by(7).all(|number| bed.seen(number) == Some(Seen::Absent)));
    while bed.add(put) {
        put += 1;
    }
    assert!(bed.segments() == PARTS_MAX && put < SLOTS_MAX as u32, "{put} names are too many");
    let tally = core::mem::take(&mut bed.tally);
    bed.spare.take_in(tally);
    let mut taken = Vec::from_iter(core::iter::from_fn(|| bed.spare.take()));
    taken.sort_unstable();
    assert_eq!(taken, Vec::from_iter(0..SEGMENTS as u16), "each is there once again");
}

#[test]
fn segments_are_not_divided_one_upon_the_other() {
    let mut bed = laid_out();
    let (mut segments, mut most) = (1, 0);
    for number in 0..400_000 {
        assert!(bed.add(number));
        // As many names as are submitted between some commits.
        if number % 2048 == 2047 {
            most = most.max(bed.segments() - segments);
            segments = bed.segments();
        }
    }
    assert!(segments > 40 && most <= 4, "{segments} segments, {most} at once");
}

#[test]
fn a_node_without_segments_has_room_for_no_other_table() {
    let mut bed = laid_out();
    let held: Vec<u16> = core::iter::from_fn(|| bed.spare.take()).collect();
    assert_eq!(held.len(), SEGMENTS - 1);
    let full = (0..SEGMENT_SLOTS as u32).position(|number| !bed.add(number));
    assert!(full.is_some_and(|names| names > SEGMENT_SLOTS * 3 / 8), "{full:?}");
    let mut other = Tally::default();
    assert!(!bed.tables.names(1).lay_out(&mut other, &mut bed.spare, 0));
    let tally = core::mem::take(&mut bed.tally);
    bed.spare.take_in(tally);
    assert!(bed.tables.names(1).lay_out(&mut other, &mut bed.spare, 0));
    assert_eq!(seen(bed.tables.names(1), 5), Some(Seen::Absent), "what the other one had is gone");
}

#[test]
fn names_that_come_and_go_leave_a_small_table() {
    let mut bed = laid_out();
    for round in 0..1000 {
        let numbers = round * 100..round * 100 + 100;
        for number in numbers.clone() {
            assert!(bed.claim(number, 5, Seen::Absent));
            bed.release(number, 5, Some(NameState::Plain));
        }
        for number in numbers {
            assert!(bed.claim(number, 6, Seen::There(NameState::Plain)));
            bed.release(number, 6, None);
        }
        assert!(bed.relieve());
    }
    assert!(bed.tally.slots <= 1024, "it did not grow for what is gone");
}

#[test]
fn names_that_come_and_go_in_a_large_table_take_no_more_segments() {
    let mut bed = laid_out();
    assert!((0..40_000).all(|number| bed.add(number)));
    let segments = bed.segments();
    for number in 40_000..200_000 {
        assert!(bed.claim(number, 5, Seen::Absent));
        bed.release(number, 5, Some(NameState::Plain));
        assert!(bed.claim(number - 20_000, 6, Seen::There(NameState::Plain)));
        bed.release(number - 20_000, 6, None);
        assert!(bed.relieve());
    }
    // Those that were nearly full then, at most.
    assert!(bed.segments() <= 2 * segments, "{} of {segments}", bed.segments());
    assert_eq!(bed.seen(19_999), Some(Seen::There(NameState::Plain)));
    assert_eq!(bed.seen(20_000), Some(Seen::Absent));
    assert_eq!(bed.seen(199_999), Some(Seen::There(NameState::Plain)));
}

#[test]
fn a_claim_is_given_up_released_or_taken_over() {
    let mut bed = laid_out();
    let first = bed.names().claim(print_of(1), 3, |seen| seen == Seen::Absent);
    first.expect("nobody has it").give_up();
    assert_eq!(bed.seen(1), Some(Seen::Absent));
    assert!(bed.claim(1, 4, Seen::Absent) && bed.claim(1, 5, Seen::Claimed(4)));
    assert_eq!(bed.reserve(1), Reserved::Claimed);
    bed.release(1, 4, Some(NameState::Plain));
    assert_eq!(bed.seen(1), Some(Seen::Claimed(5)), "by a later record");
    assert!(bed.make_room(1));
    assert_eq!(bed.seen(1), Some(Seen::Claimed(5)), "in another table, too");
    bed.release(1, 5, Some(NameState::Plain));
    let (names, print) = (bed.tables.names(0), print_of(1));
    let second =
        names.claim(print, 6, |seen| seen == Seen::There(NameState::Plain)).expect("nobody has it");
    assert!(names.put(&mut bed.tally, print, NameState::AskDaemon));
    second.give_up();
    assert_eq!(
        bed.seen(1),
        Some(Seen::There(NameState::AskDaemon)),
        "the daemon said so meanwhile"
    );
    assert_eq!(bed.reserve(1), Reserved::Done);
}

/// Who gives a removal up, since the daemon has taken the delegation back, leaves the directory as
/// one in which the daemon has made something meanwhile.
#[test]
fn a_claim_that_is_given_up_leaves_a_directory_entered() {
    let mut bed = laid_out();
    assert!(bed.put(1, NameState::NewDirectory));
    let claim = || {
        let removed = bed.names().claim(print_of(1), 3, |seen| seen != Seen::Absent);
        removed.expect("nobody has it")
    };
    claim().give_up();
    assert_eq!(bed.seen(1), Some(Seen::There(NameState::NewDirectory)));
    let removed = claim();
    assert_eq!(bed.names().enter(&bed.tally, print_of(1)), Entered::Claimed);
    assert!(bed.names().enter_claimed(&bed.tally, print_of(1)));
    removed.give_up();
    assert_eq!(bed.seen(1), Some(Seen::There(NameState::Covered)));
}

#[test]
fn a_claim_keeps_its_name_when_its_segment_is_divided() {
    let mut bed = laid_out();
    assert!(bed.claim(0, 7, Seen::Absent));
    bed.tally.count(0);
    let mut number = 1;
    while bed.segments() < 8 {
        assert!(bed.add(number));
        number += 1;
    }
    assert_eq!(bed.seen(0), Some(Seen::Claimed(7)));
    bed.release(0, 7, Some(NameState::Plain));
    assert_eq!(bed.seen(0), Some(Seen::There(NameState::Plain)));
}

#[test]
fn segments_that_nobody_has_give_their_memory_back() {
    let settings = NodeSettings { instance: 1, times: 0, locks: 0, deadline_ms: 0 };
    let (fd, node) = make_node(&settings).expect("there is memory");
    let taken = || rustix::fs::fstat(&fd).expect("it is open").st_blocks as u64 * 512;
    let mut spare = Spare::all(&node.name_tables);
    let (names, mut tally) = (node.name_tables.names(0), Tally::default());
    assert!(names.lay_out(&mut tally, &mut spare, 0));
    let few = taken();
    let mut number = 0;
    while tally.held.len() < 100 {
        assert!(names.add(&mut tally, &mut spare, (print_of(number), NameState::Plain)));
        number += 1;
    }
    let segment_bytes = size_of::<Segment>() as u64;
    assert!(taken() >= 100 * segment_bytes);
    spare.take_in(tally);
    let mut turns = 0;
    while spare.has_too_many() {
        spare.give_back(&node.name_tables, 16);
        turns += 1;
    }
    assert_eq!(turns, (100 - SPARE_MAX).div_ceil(16));
    assert!(taken() <= few + SPARE_MAX as u64 * segment_bytes);
    assert_eq!(spare.clean.len() + spare.used.len(), SEGMENTS);
    spare = Spare::all(&node.name_tables);
    assert!(taken() <= few && spare.clean.len() == SEGMENTS);
}

#[test]
fn of_several_who_claim_a_name_one_has_it() {
    const THREADS: usize = 4;
    const NAMES: u32 = 30_000;
    let mut bed = laid_out();
    for number in 0..NAMES {
        assert!(bed.add(number));
        if number % 10 == 0 {
            bed.names().remove(&bed.tally, print_of(number));
        }
    }
    let names = bed.names();
    let claimed: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let claiming = |thread: usize| {
            move || {
                (0..NAMES)
                    .map(|number| {
                        let from = if number % 10 == 0 {
                            Seen::Absent
                        } else {
                            Seen::There(NameState::Plain)
                        };
                        claim(names, number, thread, from)
                    })
                    .collect()
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|at| scope.spawn(claiming(at))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    for number in 0..NAMES {
        let has = |thread: &usize| claimed[*thread][number as usize];
        let owners: Vec<_> = (0..THREADS).filter(has).collect();
        assert_eq!(owners.len(), 1, "{number}: {owners:?}");
        assert_eq!(seen(names, number), Some(Seen::Claimed(owners[0])));
    }
}

/// Whether somebody may have submitted something about the name, or in it.
fn is_claimed(seen: Seen) -> bool {
    use NameState::{Covered, NewDirectory};
    matches!(seen, Seen::Claimed(_) | Seen::Entered(_) | Seen::There(NewDirectory | Covered))
}

/// How the name of a directory stands after something was made in it, by the daemon or by the
/// process that has made what even places say; none when that is not to be.
fn entered(was: Seen, by_process: bool) -> Option<Seen> {
    match was {
        Seen::There(NameState::NewDirectory | NameState::Covered) => {
            Some(Seen::There(NameState::Covered))
        }
        Seen::Entered(place) if place % 2 == 0 || !by_process => Some(was),
        Seen::Claimed(place) if place % 2 == 0 && by_process => Some(Seen::Entered(place)),
        _ => None,
    }
}

impl Bed {
    fn reserve_with_room(&mut self, number: u32) -> Reserved {
        match self.reserve(number) {
            Reserved::Full if self.make_room(number) => self.reserve(number),
            reserved => reserved,
        }
    }

    /// Claims, and what is gone, are not counted before they are released: a new name for which
    /// there is no slot is asked for, and the daemon makes room.
    fn claim_with_room(&mut self, number: u32, place: usize, was: Seen) -> bool {
        self.claim(number, place, was)
            || was == Seen::Absent && self.make_room(number) && self.claim(number, place, was)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..<_>::default() })]

    #[test]
    fn a_table_tells_what_a_map_would(
        steps in prop::collection::vec((0..400_u32, 0..7_u8), 1..2000), fill in 0..6000_u32,
    ) {
        let mut bed = laid_out();
        for number in 1000..1000 + fill {
            prop_assert!(bed.add(number));
        }
        let mut model: HashMap<u32, Seen> = HashMap::new();
        for (number, what) in steps {
            let was = model.get(&number).copied().unwrap_or(Seen::Absent);
            match (what, was) {
                (0, Seen::There(NameState::AskDaemon)) => {
                    bed.names().remove(&bed.tally, print_of(number));
                    model.remove(&number);
                }
                (0, Seen::Claimed(place)) => {
                    bed.release(number, place, None);
                    model.remove(&number);
                }
                (1, Seen::Claimed(place) | Seen::Entered(place)) => {
                    let (said, is) = match was {
                        Seen::Entered(_) => (NameState::NewDirectory, NameState::Covered),
                        _ if number % 2 == 0 => (NameState::NewDirectory, NameState::NewDirectory),
                        _ => (NameState::Plain, NameState::Plain),
                    };
                    bed.release(number, place, Some(said));
                    model.insert(number, Seen::There(is));
                }
                (2, _) => {
                    let reserved = bed.reserve_with_room(number);
                    let claimed = is_claimed(was);
                    let expected = if claimed { Reserved::Claimed } else { Reserved::Done };
                    prop_assert_eq!(reserved, expected);
                    if !claimed {
                        model.insert(number, Seen::There(NameState::AskDaemon));
                    }
                }
                (4, Seen::There(NameState::AskDaemon)) if number % 2 == 0 => {
                    let (names, print) = (bed.tables.names(0), print_of(number));
                    prop_assert!(names.cover(&bed.tally, print, NameState::NewDirectory));
                    model.insert(number, Seen::There(NameState::NewDirectory));
                }
                (5 | 6, was) => {
                    let (did, is) = if what == 5 { bed.enter(number) } else { bed.lead(number) };
                    let expected = entered(was, what == 6);
                    prop_assert_eq!((did, is), (expected.is_some(), expected.unwrap_or(was)));
                    model.insert(number, is);
                }
                (3, was) if was != Seen::There(NameState::AskDaemon) => {
                    let place = number as usize % 8 * 16 + number as usize / 8 % 16;
                    prop_assert!(bed.claim_with_room(number, place, was));
                    model.insert(number, Seen::Claimed(place));
                }
                (_, Seen::There(NameState::AskDaemon)) => {
                    prop_assert!(bed.put(number, NameState::Plain));
                    model.insert(number, Seen::There(NameState::Plain));
                }
                _ => {}
            }
            prop_assert!(bed.relieve());
        }
        for number in 0..400 {
            let is = model.get(&number).copied().unwrap_or(Seen::Absent);
            prop_assert_eq!(bed.seen(number), Some(is));
        }
    }
}

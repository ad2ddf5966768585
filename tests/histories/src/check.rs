//! The search for an order.

use std::collections::HashSet;

use crate::{Event, State};

/// Which events of a history have been put into the order.
type Chosen = Vec<u64>;

/// Calls and returns in the order of their times, as a list that events can be taken out of.
struct Ends {
    /// The next place of each; the last place is the beginning, and stands for the end.
    next: Vec<usize>,
    previous: Vec<usize>,
}

impl Ends {
    /// Places below the number of events are calls, those behind it returns.
    fn of(events: &[Event]) -> Ends {
        let count = events.len();
        let mut places: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * count);
        for (at, event) in events.iter().enumerate() {
            // Of what happened at one moment calls come first: that forbids nothing.
            places.push((event.called, false, at));
            places.push((event.returned, true, at + count));
        }
        places.sort_unstable();
        let mut ends = Ends { next: vec![0; 2 * count + 1], previous: vec![0; 2 * count + 1] };
        let mut before = 2 * count;
        for (_, _, place) in places {
            (ends.next[before], ends.previous[place]) = (place, before);
            before = place;
        }
        (ends.next[before], ends.previous[2 * count]) = (2 * count, before);
        ends
    }

    fn take(&mut self, place: usize) {
        let (before, behind) = (self.previous[place], self.next[place]);
        (self.next[before], self.previous[behind]) = (behind, before);
    }

    /// Undoes the latest [`Ends::take`] that is not undone.
    fn put_back(&mut self, place: usize) {
        let (before, behind) = (self.previous[place], self.next[place]);
        (self.next[before], self.previous[behind]) = (place, place);
    }
}

/// Whether the events of one object, which is `first` before them, are linearizable.
///
/// # Errors
/// Those that none of the orders that were tried could go beyond, as text.
pub fn check(first: State, events: &[Event]) -> Result<(), String> {
    let count = events.len();
    let (mut ends, head) = (Ends::of(events), 2 * count);
    let mut chosen: Chosen = vec![0; count.div_ceil(64)];
    let mut tried: HashSet<(Chosen, State)> = HashSet::new();
    let mut order: Vec<(usize, State)> = Vec::new();
    let (mut state, mut at, mut best) = (first, ends.next[head], 0);
    while ends.next[head] != head {
        if at < count {
            let bit = 1 << (at % 64);
            chosen[at / 64] |= bit;
            let after = state.after(events[at].action);
            let fresh = after.filter(|after| tried.insert((chosen.clone(), *after)));
            if let Some(after) = fresh {
                order.push((at, state));
                state = after;
                ends.take(at);
                ends.take(at + count);
                best = best.max(order.len());
                at = ends.next[head];
            } else {
                chosen[at / 64] &= !bit;
                at = ends.next[at];
            }
            continue;
        }
        // An event has returned and could not be chosen: the last choice was wrong.
        let Some((wrong, before)) = order.pop() else {
            return Err(complaint(events, best));
        };
        state = before;
        chosen[wrong / 64] &= !(1 << (wrong % 64));
        ends.put_back(wrong + count);
        ends.put_back(wrong);
        at = ends.next[wrong];
    }
    Ok(())
}

/// The events around the one behind which no order goes on.
fn complaint(events: &[Event], best: usize) -> String {
    const AROUND: usize = 8;
    let mut sorted: Vec<&Event> = events.iter().collect();
    sorted.sort_by_key(|event| event.returned);
    let shown = sorted.iter().skip(best.saturating_sub(AROUND)).take(2 * AROUND);
    let lines: Vec<String> = shown.map(|event| event.line("  ")).collect();
    format!("no order explains more than {best} of {}; near\n{}", events.len(), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Action::{self, *},
        model::digest,
    };

    fn history(events: &[(u64, u64, Action)]) -> Vec<Event> {
        let event = |&(called, returned, action)| Event { called, returned, action };
        events.iter().map(event).collect()
    }

    fn holds(object: &str, events: &[(u64, u64, Action)]) -> bool {
        let first = State::first(object).expect("a known object");
        check(first, &history(events)).is_ok()
    }

    #[test]
    fn what_overlaps_may_be_in_either_order_and_what_does_not_may_not() {
        assert!(holds("small", &[(0, 9, Write(1)), (1, 2, Read(1)), (3, 4, Read(1))]));
        assert!(holds("small", &[(0, 9, Write(1)), (1, 2, Read(0)), (3, 4, Read(1))]));
        assert!(!holds("small", &[(0, 9, Write(1)), (1, 2, Read(1)), (3, 4, Read(0))]));
        assert!(!holds("small", &[(0, 1, Write(1)), (2, 3, Read(0))]));
        assert!(!holds("small", &[(0, 5, Write(1)), (0, 5, Write(2)), (6, 7, Read(0))]));
    }

    /// Each reader by itself is content; only together they contradict each other.
    #[test]
    fn two_readers_that_see_two_writes_in_two_orders_are_found() {
        let writes = [(0, 20, Write(1)), (0, 20, Write(2))];
        let agree = [(1, 2, Read(1)), (3, 4, Read(2)), (1, 2, Read(1)), (5, 6, Read(2))];
        let differ = [(1, 2, Read(1)), (5, 6, Read(2)), (1, 4, Read(2)), (7, 8, Read(1))];
        assert!(holds("large", &[&writes[..], &agree].concat()));
        assert!(!holds("large", &[&writes[..], &differ].concat()));
    }

    #[test]
    fn two_creates_of_one_name_cannot_both_make_it() {
        assert!(holds("names", &[(0, 5, Create(0, Some(7))), (0, 5, Create(0, None))]));
        assert!(!holds("names", &[(0, 5, Create(0, Some(7))), (0, 5, Create(0, Some(8)))]));
        assert!(!holds("names", &[(0, 5, Create(0, None))]));
    }

    /// A moved file that is for a moment under neither name, or under both.
    #[test]
    fn a_rename_that_is_seen_half_done_is_found() {
        let start = [(0, 1, Create(0, Some(7))), (2, 20, Rename(1, 0, 1, true))];
        let with = |looks: &[(u64, u64, Action)]| [&start[..], looks].concat();
        assert!(holds("names", &with(&[(3, 4, Look(0, Some(7))), (5, 6, Look(1, Some(7)))])));
        assert!(!holds("names", &with(&[(3, 4, Look(0, None)), (5, 6, Look(1, None))])));
        assert!(!holds("names", &with(&[(3, 4, Look(1, Some(7))), (5, 6, Look(0, Some(7)))])));
        assert!(!holds("names", &with(&[(21, 22, Remove(0, true))])));
    }

    /// Both names for a moment, but never neither, and not the old one again.
    #[test]
    fn a_rename_in_halves_may_be_seen_under_both_names() {
        let with = |looks: &[(u64, u64, Action)]| {
            let start = [(0, 1, Create(0, Some(7))), (2, 20, Rename(1, 0, 1, true))];
            let events = history(&[&start[..], looks].concat());
            let halves: Vec<Event> = events.into_iter().flat_map(Event::in_halves).collect();
            check(State::first("names").expect("known"), &halves).is_ok()
        };
        assert!(with(&[(3, 4, Look(1, Some(7))), (5, 6, Look(0, Some(7)))]));
        assert!(!with(&[(3, 4, Look(0, None)), (5, 6, Look(1, None))]));
        assert!(!with(&[(3, 4, Look(0, None)), (5, 6, Look(0, Some(7)))]));
        assert!(!with(&[(21, 22, Look(0, Some(7)))]));
        assert!(!with(&[(3, 4, Look(1, Some(7))), (5, 6, Look(1, None))]));
    }

    /// Two moves of one file that both succeed, of which one found it moved; but not of two files.
    #[test]
    fn a_kernel_may_say_that_it_moved_what_somebody_else_did() {
        let with = |looks: &[(u64, u64, Action)]| {
            let start = [
                (0, 1, Create(0, Some(7))),
                (2, 20, Rename(1, 0, 1, true)),
                (3, 10, Rename(2, 0, 1, true)),
            ];
            let events = history(&[&start[..], looks].concat());
            let seen = events.into_iter().flat_map(|event| match event.action {
                Rename(1, ..) => event.by_a_kernel(),
                _ => vec![event],
            });
            check(State::first("names").expect("known"), &seen.collect::<Vec<_>>()).is_ok()
        };
        assert!(with(&[(21, 22, Look(1, Some(7))), (23, 24, Look(0, None))]));
        assert!(!with(&[(21, 22, Look(0, Some(7)))]));
        assert!(!with(&[(11, 12, Look(0, Some(7)))]));
        // A file that came to the first name meanwhile is moved, or stays.
        assert!(with(&[(11, 12, Create(0, Some(8))), (21, 22, Look(1, Some(8)))]));
        assert!(with(&[(11, 12, Create(0, Some(8))), (21, 22, Look(1, Some(7)))]));
        assert!(!with(&[(11, 12, Create(0, Some(8))), (21, 22, Look(1, None))]));
    }

    #[test]
    fn an_append_that_is_lost_or_torn_out_of_its_place_is_found() {
        let both = digest(digest(0, 1), 2);
        let appends = [(0, 1, Append(1)), (2, 3, Append(2))];
        let then = |whole| [&appends[..], &[(4, 5, whole)]].concat();
        assert!(holds("log", &then(Whole(2, both))));
        assert!(!holds("log", &then(Whole(2, digest(digest(0, 2), 1)))));
        assert!(!holds("log", &then(Whole(1, digest(0, 2)))));
    }

    #[test]
    fn a_lock_that_two_have_or_nobody_gets_is_found() {
        assert!(holds("lock", &[(0, 1, Lock(1, true)), (2, 3, Lock(2, false)), (4, 5, Unlock(1))]));
        assert!(!holds("lock", &[(0, 1, Lock(1, true)), (2, 3, Lock(2, true)), (4, 5, Unlock(1))]));
        let free = [(0, 1, Lock(1, true)), (2, 3, Unlock(1)), (4, 5, Lock(2, false))];
        assert!(!holds("lock", &free));
    }

    /// With many writers at once the orders are more than could be tried one by one.
    #[test]
    fn a_crowd_of_writers_is_searched_in_time() {
        let mut events: Vec<_> = (1..=12).map(|value| (0, 100, Write(value))).collect();
        events.extend((1..=12).map(|value| (101, 102, Read(value))));
        assert!(!holds("small", &events));
    }

    #[test]
    fn a_line_comes_back_as_it_was() {
        for action in [
            Create(1, Some(5)),
            Create(0, None),
            Rename(1, 0, 2, true),
            Enter(1, 0, 2),
            Leave(1, 0),
            Notice(2, 1),
            Arrive(2, 1, 0),
            Remove(1, false),
            Look(2, None),
            Write(3),
            Read(0),
            Append(9),
            Whole(3, u64::MAX),
            Lock(4, false),
            Unlock(4),
        ] {
            let event = Event { called: 1, returned: u64::MAX, action };
            let back = Event::parse(&event.line("log"));
            assert_eq!(back, Some(("log".to_owned(), event)));
        }
        assert_eq!(Event::parse("log 1 2 append"), None);
    }
}

//! Who sleeps on a reply that is shown, and when they are woken.
//!
//! At once, as a rule. But where several processes share a processor, to wake each as soon as it
//! can go on costs more than the requests do. On the daemon's own processor whoever is woken takes
//! that from it, asks again and sleeps again: two switches of threads for one request, during which
//! nobody is served. On others it takes the daemon as long as two requests to wake somebody, so
//! replies come late, whoever spins for one gives up, sleeps, and has to be woken too.
//!
//! So those who share a processor with a few others that sleep are put off: while one of them asks
//! and spins, the rest need not be awake. They are woken one after the other, with a pause in
//! between in which others are served, and the next one whenever nobody asks: first those of other
//! processors, which can go on while the daemon serves them. All at once would keep the daemon from
//! its processor for so long that whoever spins gives up.

use mayfly_types::SessionId;

use super::LaneRef;

/// A processor is crowded where at least so many sessions sleep.
const CROWD_MIN: u32 = 4;
/// Cycles between two who are woken: some 50 µs. To wake one of this processor, and to get that
/// back, takes 10.
const PAUSE_CYCLES: u64 = 120_000;
/// So many lanes are put off; with more the first is woken at once. With the above it bounds how
/// much later a reply is seen: 1.6 ms, half a slice of the scheduler's.
const PUT_OFF_MAX: usize = 32;
/// Sessions are counted over so many cycles, some 1 ms, twice: longer than any is put off.
const WINDOW_CYCLES: u64 = 3_000_000;
/// Processors are told apart by so much of their number.
const PLACES: usize = 64;

/// The lanes whose replies are shown, and whose threads sleep.
#[derive(Debug)]
pub(super) struct Sleepers {
    /// To be woken.
    now: Vec<LaneRef>,
    /// To be woken later.
    later: Vec<PutOff>,
    /// When one of those was last woken, or the first was put off, in cycles.
    since: u64,
    /// Clients of other processors ask too.
    beside_others: bool,
    crowds: Vec<Crowd>,
}

#[derive(Debug, Clone, Copy)]
struct PutOff {
    at: LaneRef,
    /// He sleeps where the daemon runs.
    here: bool,
}

/// Where a request was made, and where the daemon runs: numbers of processors plus one, 0 where
/// that is not known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) made: u32,
    pub(super) here: u32,
}

impl Sleepers {
    pub(super) fn new() -> Sleepers {
        Sleepers {
            now: Vec::new(),
            later: Vec::new(),
            since: 0,
            beside_others: false,
            crowds: vec![Crowd::default(); PLACES],
        }
    }

    /// The processor that is served from is not the only one where requests are made.
    pub(super) fn beside_others(&mut self, beside_others: bool) {
        self.beside_others = beside_others;
    }

    /// Somebody sleeps. `now` is in cycles.
    pub(super) fn add(&mut self, at: LaneRef, places: Places, now: u64) {
        if !self.can_wait(at.session, places, now) {
            self.now.push(at);
            return;
        }
        if self.later.is_empty() {
            self.since = now;
        }
        self.later.push(PutOff { at, here: places.made == places.here });
    }

    fn can_wait(&mut self, session: SessionId, places: Places, now: u64) -> bool {
        let Places { made, here } = places;
        if made == 0 || here == 0 {
            return false;
        }
        let crowded = self.crowds[made as usize % PLACES].is_with(session, now);
        crowded && (made != here || self.beside_others)
    }

    /// Whether anybody sleeps.
    pub(super) fn is_empty(&self) -> bool {
        self.now.is_empty() && self.later.is_empty()
    }

    /// Whether somebody is put off.
    pub(super) fn has_put_off(&self) -> bool {
        !self.later.is_empty()
    }

    /// Takes those that are to be woken. [`Sleepers::give_back`] takes the emptied room back.
    pub(super) fn due(&mut self, now: u64) -> Vec<LaneRef> {
        let paused = now.wrapping_sub(self.since) > PAUSE_CYCLES;
        if self.later.len() > PUT_OFF_MAX || paused && self.has_put_off() {
            let PutOff { at, .. } = self.later.remove(0);
            self.now.push(at);
            self.since = now;
        }
        std::mem::take(&mut self.now)
    }

    /// Nobody asks, so the next of those who are put off is woken.
    pub(super) fn go_on(&mut self) {
        let elsewhere = self.later.iter().position(|put_off| !put_off.here);
        let next = elsewhere.unwrap_or(0);
        if next < self.later.len() {
            self.now.push(self.later.remove(next).at);
        }
    }

    /// Nobody is put off any longer.
    pub(super) fn end_put_off(&mut self) {
        self.now.extend(self.later.drain(..).map(|put_off| put_off.at));
    }

    pub(super) fn give_back(&mut self, mut room: Vec<LaneRef>) {
        room.clear();
        self.now = room;
    }
}

/// How many sessions sleep on a processor, give or take those that share a bit.
#[derive(Debug, Default, Clone, Copy)]
struct Crowd {
    /// Sessions of this window and of the one before, a bit each.
    windows: [u64; 2],
    /// When this window began, in cycles.
    since: u64,
}

impl Crowd {
    /// Takes note of a session; whether there are enough of them with it.
    fn is_with(&mut self, session: SessionId, now: u64) -> bool {
        let age = now.wrapping_sub(self.since);
        if age > WINDOW_CYCLES {
            let [this, _] = self.windows;
            let last = if age > 2 * WINDOW_CYCLES { 0 } else { this };
            (self.windows, self.since) = ([0, last], now);
        }
        self.windows[0] |= 1 << (session.0 % u64::BITS);
        let [this, last] = self.windows;
        (this | last).count_ones() >= CROWD_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Places = Places { made: 7, here: 7 };
    const ELSEWHERE: Places = Places { made: 8, here: 7 };

    fn lane(session: u32) -> LaneRef {
        LaneRef { session: SessionId(session), lane: 0 }
    }

    fn sleepers(beside_others: bool) -> Sleepers {
        Sleepers { beside_others, ..Sleepers::new() }
    }

    /// Who is woken when `sessions` were shown their replies at `now`.
    fn shown(sleepers: &mut Sleepers, places: Places, sessions: u32, now: u64) -> usize {
        (1..=sessions).for_each(|session| sleepers.add(lane(session), places, now));
        sleepers.due(now).len()
    }

    /// With a crowd of eight that is known at `now`, none of whom sleeps.
    fn crowded(places: Places, now: u64) -> Sleepers {
        let mut sleepers = sleepers(true);
        shown(&mut sleepers, places, 8, now);
        sleepers.end_put_off();
        sleepers.due(now);
        sleepers
    }

    #[test]
    fn few_are_woken_at_once_however_often_they_ask() {
        let mut sleepers = sleepers(true);
        let few = CROWD_MIN - 1;
        for turn in 0..100 {
            assert_eq!(shown(&mut sleepers, HERE, few, turn * 1000), few as usize);
            assert_eq!(shown(&mut sleepers, ELSEWHERE, few, turn * 1000), few as usize);
        }
        assert!(!sleepers.has_put_off() && sleepers.is_empty());
    }

    #[test]
    fn many_are_woken_one_after_the_other_with_pauses() {
        for places in [HERE, ELSEWHERE] {
            let start = 10 * WINDOW_CYCLES;
            let mut sleepers = crowded(places, start);
            assert_eq!(shown(&mut sleepers, places, 3, start), 0);
            assert!(sleepers.has_put_off());
            let mut now = start;
            for session in 1..=3 {
                assert_eq!(sleepers.due(now + PAUSE_CYCLES), []);
                now += PAUSE_CYCLES + 1;
                assert_eq!(sleepers.due(now), [lane(session)]);
            }
            assert!(sleepers.is_empty());
        }
    }

    #[test]
    fn when_nobody_asks_those_of_other_processors_are_woken_first() {
        let mut sleepers = crowded(HERE, 1);
        shown(&mut sleepers, ELSEWHERE, 8, 1);
        sleepers.end_put_off();
        sleepers.due(1);
        assert_eq!(shown(&mut sleepers, HERE, 2, 1), 0);
        sleepers.add(lane(3), ELSEWHERE, 1);
        sleepers.add(lane(4), ELSEWHERE, 1);
        for session in [3, 4, 1, 2] {
            sleepers.go_on();
            assert_eq!(sleepers.due(2), [lane(session)]);
        }
        sleepers.go_on();
        assert!(sleepers.is_empty());
    }

    #[test]
    fn nobody_is_put_off_where_nobody_else_asks_or_places_are_not_known() {
        let mut sleepers = crowded(HERE, 1);
        sleepers.beside_others(false);
        assert_eq!(shown(&mut sleepers, HERE, 8, 1), 8);
        for places in [Places { made: 0, here: 7 }, Places { made: 7, here: 0 }] {
            let mut sleepers = crowded(places, 1);
            assert_eq!(shown(&mut sleepers, places, 8, 1), 8);
        }
    }

    #[test]
    fn not_more_than_so_many_are_put_off() {
        let mut sleepers = crowded(HERE, 1);
        let many = PUT_OFF_MAX as u32;
        assert_eq!(shown(&mut sleepers, HERE, many, 1), 0);
        for session in many + 1..many + 4 {
            sleepers.add(lane(session), HERE, 1);
            assert_eq!(sleepers.due(1), [lane(session - many)]);
        }
    }

    #[test]
    fn a_crowd_that_has_gone_is_forgotten() {
        let mut sleepers = crowded(HERE, 1);
        assert_eq!(shown(&mut sleepers, HERE, 2, 10 * WINDOW_CYCLES), 2);
    }
}

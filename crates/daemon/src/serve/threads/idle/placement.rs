//! Whether the thread that takes requests runs where its clients run.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use mayfly_sys::{
    arch::Moments,
    process::{step_aside, step_over},
};
use mayfly_transport_shm::layout::ON_THE_WAY;

/// So many waits in a row say that no client runs elsewhere.
const SURE: u32 = 4;
/// After a move in vain the next one in that direction comes after twice as many waits, so many
/// times. The kernel places whom a reply wakes: where it has a processor without work it moves
/// clients away from this thread, and where it takes the other processor for loaded it moves them
/// to it.
const DOUBLED_MAX: u32 = 10;
/// So many polls that paid since a move away from clients say that it was not in vain.
const SETTLED: u32 = 64;
/// So many operations that were submitted from elsewhere since then say the same.
const SUBMITTED: u32 = 1024;

/// Of so many requests most are made here before this thread moves away from those who make them:
/// the other processors have less to do than this one.
const COUNTED: u32 = 128;

/// Where the requests since the last wait were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Makers {
    Nobody,
    /// On the processor with this number, plus one.
    On(u32),
    Mixed,
}

/// What is known about places.
#[derive(Debug)]
pub(super) struct Placement {
    moments: Moments,
    makers: Makers,
    /// Where this thread was when requests began to be counted, its number plus one.
    here: u32,
    /// How many they are, and how many of them were made there.
    counted: (u32, u32),
    /// At the last look some were made elsewhere.
    others: bool,
    /// Waits in a row that found all clients on this thread's processor.
    together: u32,
    /// Waits in a row that found all clients on one other processor, and which.
    elsewhere: (u32, u32),
    /// Moves away from clients that did not follow.
    asides_in_vain: u32,
    /// Polls that paid since the last of them.
    paid: u32,
    /// Asynchronous operations, executed since the last of them.
    submitted: u32,
    /// Moves to clients that stayed where they were.
    overs_in_vain: u32,
}

/// Where the clients are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clients {
    /// On this thread's processor, all of them: none can ask while it polls.
    Here,
    /// On one other processor.
    There(u32),
    /// On several, or it is not certain.
    Anywhere,
}

impl Placement {
    pub(super) fn new() -> Placement {
        Placement {
            moments: Moments::find(),
            makers: Makers::Nobody,
            here: 0,
            counted: (0, 0),
            others: false,
            together: 0,
            elsewhere: (0, 0),
            asides_in_vain: 0,
            paid: 0,
            submitted: 0,
            overs_in_vain: 0,
        }
    }

    /// Can it be told where somebody runs?
    pub(super) fn tells_places(&self) -> bool {
        self.moments.has_processor()
    }

    /// Were requests made elsewhere, when that was last looked at?
    pub(super) fn knows_of_others(&self) -> bool {
        self.others
    }

    /// A request was taken that was made on `processor`.
    pub(super) fn served(&mut self, processor: u32) {
        let (all, here) = self.counted;
        self.counted = (all + 1, here + u32::from(processor == self.here));
        self.makers = match self.makers {
            Makers::Nobody if processor != 0 => Makers::On(processor),
            Makers::On(other) if processor == other => Makers::On(processor),
            _ => Makers::Mixed,
        };
    }

    /// Asynchronous operations were executed, the last of which was submitted on `processor`;
    /// true when their process is kept from this processor by this thread, and a move away may pay.
    pub(super) fn crowds_out(&mut self, processor: u32, count: u32) -> bool {
        let here = self.moments.now().processor;
        self.crowds_out_from(here, processor, count)
    }

    fn crowds_out_from(&mut self, here: u32, processor: u32, count: u32) -> bool {
        if processor == 0 || processor != here {
            self.submitted = self.submitted.saturating_add(count);
            if self.submitted >= SUBMITTED {
                self.asides_in_vain = 0;
            }
            return false;
        }
        self.together = self.together.saturating_add(1);
        self.may_step_aside()
    }

    /// Whether all requests since the last look were made on one other processor.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.makers, Makers::On(place) if place != self.moments.now().processor)
    }

    /// Looks where the clients are, and shows them where this thread is.
    pub(super) fn look(&mut self, shown: &AtomicU32) -> Clients {
        let here = self.show(shown);
        self.look_from(here)
    }

    fn look_from(&mut self, here: u32) -> Clients {
        let makers = std::mem::replace(&mut self.makers, Makers::Nobody);
        self.others = match makers {
            Makers::Nobody => false,
            Makers::On(place) => here != 0 && place != here,
            Makers::Mixed => true,
        };
        let (waits, there) = self.elsewhere;
        (self.together, self.elsewhere) = match makers {
            Makers::On(place) if place == here => (self.together + 1, (0, 0)),
            Makers::On(place) if place == there => (0, (waits + 1, there)),
            Makers::On(place) if here != 0 => (0, (1, place)),
            _ => (0, (0, 0)),
        };
        match self.elsewhere {
            _ if self.together >= SURE => {
                self.overs_in_vain = 0;
                Clients::Here
            }
            (waits, there) if waits >= SURE => Clients::There(there),
            _ => Clients::Anywhere,
        }
    }

    /// Whether three of four requests were made here, as often as so many have been made.
    pub(super) fn leans_here(&mut self) -> bool {
        self.counted.0 >= COUNTED && self.leans_to(self.moments.now().processor)
    }

    fn leans_to(&mut self, place: u32) -> bool {
        let (all, here) = std::mem::take(&mut self.counted);
        let stayed = place == std::mem::replace(&mut self.here, place);
        stayed && place != 0 && here > all / 4 * 3
    }

    /// A poll paid.
    pub(super) fn poll_paid(&mut self) {
        self.paid += 1;
        if self.paid == SETTLED {
            self.asides_in_vain = 0;
        }
    }

    /// Whether clients have been here long enough for a move away from them.
    pub(super) fn may_step_aside(&self) -> bool {
        self.together >= SURE << self.asides_in_vain
    }

    /// To another processor than this; false when there is none.
    pub(super) fn step_aside(&mut self, shown: &AtomicU32) -> bool {
        self.asides_in_vain = DOUBLED_MAX.min(self.asides_in_vain + 1);
        (self.paid, self.submitted) = (0, 0);
        let here = self.moments.now().processor;
        self.go(shown, || here != 0 && step_aside(here - 1))
    }

    /// To the processor with the number `there`, less one, unless such moves are in vain.
    pub(super) fn step_over(&mut self, there: u32, shown: &AtomicU32) -> bool {
        if self.elsewhere.0 < SURE << self.overs_in_vain {
            return false;
        }
        self.overs_in_vain = DOUBLED_MAX.min(self.overs_in_vain + 1);
        self.go(shown, || there != 0 && step_over(there - 1))
    }

    /// Who asks while the kernel moves this thread must not take it for where it was: it would
    /// sleep, and be woken on this thread's new processor.
    fn go(&mut self, shown: &AtomicU32, step: impl FnOnce() -> bool) -> bool {
        shown.store(ON_THE_WAY, Relaxed);
        let moved = step();
        (self.together, self.elsewhere) = (0, (0, 0));
        self.show(shown);
        moved
    }

    /// Clients look at the word with each request, so it is written when it has changed only.
    pub(super) fn show(&self, shown: &AtomicU32) -> u32 {
        let here = self.moments.now().processor;
        if shown.load(Relaxed) != here {
            shown.store(here, Relaxed);
        }
        here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a request made on `processor`, then looks.
    fn serve(placement: &mut Placement, processor: u32) -> Clients {
        placement.served(processor);
        placement.look(&AtomicU32::new(0))
    }

    #[test]
    fn clients_are_somewhere_only_when_all_of_them_are_for_some_waits() {
        let mut placement = Placement::new();
        if !placement.moments.has_processor() {
            return;
        }
        // The test's thread may be moved meanwhile, so it is tried more than once.
        let found = |placement: &mut Placement, further: u32| {
            (0..100).find_map(|_| {
                let place = placement.moments.now().processor + further;
                let looks: Vec<Clients> = (0..SURE).map(|_| serve(placement, place)).collect();
                let (last, first) = looks.split_last()?;
                let unsure = first.iter().all(|clients| *clients == Clients::Anywhere);
                (unsure && *last != Clients::Anywhere).then_some((place, *last))
            })
        };
        assert_eq!(found(&mut placement, 0).map(|(_, clients)| clients), Some(Clients::Here));
        let (place, clients) = found(&mut placement, 1000).expect("sure in the end");
        assert_eq!(clients, Clients::There(place));
        placement.served(place);
        assert_eq!(serve(&mut placement, place + 1), Clients::Anywhere, "one of several");
        assert_eq!(serve(&mut placement, 0), Clients::Anywhere, "where it runs need not be known");
    }

    /// Sixteen processes that sleep in turns leave the kernel no reason to move any of them: most
    /// were on the daemon's processor, and the other one had nothing to do.
    #[test]
    fn a_crowd_leans_here_when_three_of_four_requests_are_made_here() {
        let mut placement = Placement::new();
        let mut leans = |made_here: u32, made_elsewhere: u32| {
            (0..made_here).for_each(|_| placement.served(7));
            (0..made_elsewhere).for_each(|_| placement.served(8));
            placement.leans_to(7)
        };
        assert!(!leans(COUNTED, 0), "this thread came here meanwhile");
        assert!(leans(COUNTED, 0));
        assert!(leans(COUNTED, COUNTED / 4));
        assert!(!leans(COUNTED, COUNTED / 2));
        assert!(!leans(0, COUNTED));
    }

    /// Each move costs as much as some requests; daemon and client used to change places every five
    /// requests for as long as they lasted, at 100 µs a request.
    #[test]
    fn after_moves_in_vain_the_next_comes_later_until_polls_have_paid() {
        let mut placement = Placement::new();
        let shown = AtomicU32::new(0);
        let waits_for =
            |placement: &mut Placement, place: u32, moves: &dyn Fn(&mut Placement) -> bool| {
                (1..10_000).find(|_| {
                    placement.served(place);
                    let moving = placement.look_from(7) != Clients::Anywhere;
                    moving && moves(placement)
                })
            };
        let aside = |placement: &mut Placement| {
            let due = placement.may_step_aside();
            if due {
                placement.step_aside(&shown);
            }
            due
        };
        let over = |placement: &mut Placement| {
            let before = placement.overs_in_vain;
            placement.step_over(4096, &shown);
            placement.overs_in_vain > before
        };
        let asides: Vec<_> = (0..3).map(|_| waits_for(&mut placement, 7, &aside)).collect();
        assert_eq!(asides, [Some(SURE), Some(2 * SURE), Some(4 * SURE)]);
        (0..SETTLED).for_each(|_| placement.poll_paid());
        assert_eq!(waits_for(&mut placement, 7, &aside), Some(SURE));
        let overs: Vec<_> = (0..3).map(|_| waits_for(&mut placement, 8, &over)).collect();
        assert_eq!(overs, [Some(SURE), Some(2 * SURE), Some(4 * SURE)]);
        assert_eq!(waits_for(&mut placement, 7, &aside), Some(2 * SURE), "some stayed");
        assert_eq!(waits_for(&mut placement, 8, &over), Some(SURE));
    }

    /// A process that submits is woken for nothing, so it runs when the daemon has moved away;
    /// where the kernel brings it after the daemon each time, the daemon stays.
    #[test]
    fn a_process_that_submits_is_left_its_processor_as_long_as_it_stays_there() {
        let mut placement = Placement::new();
        let shown = AtomicU32::new(0);
        let submissions_until_aside = |placement: &mut Placement| {
            let turns = (1..10_000).find(|_| placement.crowds_out_from(7, 7, 32));
            placement.step_aside(&shown);
            turns
        };
        let asides: Vec<_> = (0..3).map(|_| submissions_until_aside(&mut placement)).collect();
        assert_eq!(asides, [Some(SURE), Some(2 * SURE), Some(4 * SURE)]);
        let turns = SUBMITTED / 32;
        assert!((0..turns).all(|_| !placement.crowds_out_from(8, 7, 32)));
        assert_eq!(submissions_until_aside(&mut placement), Some(SURE));
        assert!(!placement.crowds_out_from(7, 0, 32), "where it was submitted is not known");
    }

    #[test]
    fn who_steps_aside_runs_elsewhere_and_may_still_run_everywhere() {
        let shown = AtomicU32::new(0);
        let mut placement = Placement::new();
        let allowed = std::thread::available_parallelism().expect("known").get();
        if !placement.moments.has_processor() || allowed < 2 {
            return;
        }
        let back = (0..100).any(|_| {
            let before = placement.show(&shown);
            let there = placement.step_aside(&shown) && shown.load(Relaxed) != before;
            placement.elsewhere = (u32::MAX, before);
            there && placement.step_over(before, &shown) && shown.load(Relaxed) == before
        });
        assert!(back);
        placement.elsewhere = (u32::MAX, 4096);
        assert!(!placement.step_over(4096, &shown), "there is no such processor");
        assert_eq!(std::thread::available_parallelism().expect("known").get(), allowed);
    }
}

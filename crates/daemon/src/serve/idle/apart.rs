//! Whether the thread that takes requests runs where its clients run.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use mayfly_sys::{
    arch::Moments,
    process::{step_aside, step_over},
};

/// So many waits in a row say that no client runs elsewhere.
const SURE: u32 = 4;

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
pub(super) struct Apart {
    moments: Moments,
    makers: Makers,
    /// Waits in a row that found all clients on this thread's processor.
    together: u32,
    /// Waits in a row that found all clients on one other processor, and which.
    elsewhere: (u32, u32),
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

impl Apart {
    pub(super) fn new() -> Apart {
        Apart { moments: Moments::find(), makers: Makers::Nobody, together: 0, elsewhere: (0, 0) }
    }

    /// A request was taken that was made on `processor`.
    pub(super) fn served(&mut self, processor: u32) {
        self.makers = match self.makers {
            Makers::Nobody if processor != 0 => Makers::On(processor),
            Makers::On(other) if processor == other => Makers::On(processor),
            _ => Makers::Mixed,
        };
    }

    /// Looks where the clients are, and shows them where this thread is.
    pub(super) fn look(&mut self, shown: &AtomicU32) -> Clients {
        let here = self.show(shown);
        let makers = std::mem::replace(&mut self.makers, Makers::Nobody);
        let (waits, there) = self.elsewhere;
        (self.together, self.elsewhere) = match makers {
            Makers::On(place) if place == here => (self.together + 1, (0, 0)),
            Makers::On(place) if place == there => (0, (waits + 1, there)),
            Makers::On(place) if here != 0 => (0, (1, place)),
            _ => (0, (0, 0)),
        };
        match self.elsewhere {
            _ if self.together >= SURE => Clients::Here,
            (waits, there) if waits >= SURE => Clients::There(there),
            _ => Clients::Anywhere,
        }
    }

    /// To another processor than this; false when there is none.
    pub(super) fn step_aside(&mut self, shown: &AtomicU32) -> bool {
        let here = self.moments.now().processor;
        self.moved(here != 0 && step_aside(here - 1), shown)
    }

    /// To the processor with the number `there`, less one.
    pub(super) fn step_over(&mut self, there: u32, shown: &AtomicU32) -> bool {
        self.moved(there != 0 && step_over(there - 1), shown)
    }

    fn moved(&mut self, moved: bool, shown: &AtomicU32) -> bool {
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
    fn serve(apart: &mut Apart, processor: u32) -> Clients {
        apart.served(processor);
        apart.look(&AtomicU32::new(0))
    }

    #[test]
    fn clients_are_somewhere_only_when_all_of_them_are_for_some_waits() {
        let mut apart = Apart::new();
        if !apart.moments.tells_processor() {
            return;
        }
        // The test's thread may be moved meanwhile, so it is tried more than once.
        let found = |apart: &mut Apart, further: u32| {
            (0..100).find_map(|_| {
                let place = apart.moments.now().processor + further;
                let looks: Vec<Clients> = (0..SURE).map(|_| serve(apart, place)).collect();
                let (last, first) = looks.split_last()?;
                let unsure = first.iter().all(|clients| *clients == Clients::Anywhere);
                (unsure && *last != Clients::Anywhere).then_some((place, *last))
            })
        };
        assert_eq!(found(&mut apart, 0).map(|(_, clients)| clients), Some(Clients::Here));
        let (place, clients) = found(&mut apart, 1000).expect("sure in the end");
        assert_eq!(clients, Clients::There(place));
        apart.served(place);
        assert_eq!(serve(&mut apart, place + 1), Clients::Anywhere, "one of several");
        assert_eq!(serve(&mut apart, 0), Clients::Anywhere, "where it runs need not be known");
    }

    #[test]
    fn who_steps_aside_runs_elsewhere_and_may_still_run_everywhere() {
        let shown = AtomicU32::new(0);
        let mut apart = Apart::new();
        let allowed = std::thread::available_parallelism().expect("known").get();
        if !apart.moments.tells_processor() || allowed < 2 {
            return;
        }
        let back = (0..100).any(|_| {
            let before = apart.show(&shown);
            apart.step_aside(&shown)
                && shown.load(Relaxed) != before
                && apart.step_over(before, &shown)
                && shown.load(Relaxed) == before
        });
        assert!(back);
        assert!(!apart.step_over(4096, &shown), "there is no such processor");
        assert_eq!(std::thread::available_parallelism().expect("known").get(), allowed);
    }
}

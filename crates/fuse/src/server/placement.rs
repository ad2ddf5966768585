//! On which processor requests are served.
//!
//! A program that makes a call sleeps until it is answered, so whoever serves it can as well run on
//! the same processor: that costs two switches of threads. The kernel's scheduler does not know
//! this, and wakes the server on another processor if that is idle, from which it has to be fetched
//! first. So the threads stay where the caller is, as long as one request comes after the other.
//! Where several are under way at a time, the scheduler has them all.
//!
//! Where a caller runs stands in procfs only, which is looked at once in many requests. To look
//! may have to wait for the caller, as while it executes a program of the mount; and that waits for
//! its request. So a thread of its own looks, and nobody waits for that.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::kernel::abi::{Header, Opcode};

/// Requests from one decision to the next.
const WINDOW: u32 = 256;
/// This many of them may have met another one.
const MET_MAX: u32 = WINDOW / 4;

/// The state that all threads share.
#[derive(Debug)]
pub(super) struct Placement {
    /// The processor to serve on plus one, 0 for any.
    home: Arc<AtomicU32>,
    /// The thread that is to be looked at next; one at a time.
    callers: SyncSender<u32>,
    under_way: AtomicU32,
    requests: AtomicU32,
    met: AtomicU32,
}

/// A request that is being served.
#[derive(Debug)]
pub(super) struct UnderWay<'a>(&'a Placement);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

impl Placement {
    /// Starts the thread that looks. It ends with this.
    pub(super) fn start() -> std::io::Result<Placement> {
        Placement::looking(processor_of)
    }

    fn looking(look: impl Fn(u32) -> Option<u32> + Send + 'static) -> std::io::Result<Placement> {
        let (callers, asked) = sync_channel(1);
        let home = Arc::new(AtomicU32::new(0));
        let found = Arc::clone(&home);
        thread::Builder::new().name("fuse-place".to_owned()).spawn(move || {
            for caller in asked {
                if let Some(number) = look(caller) {
                    found.store(number + 1, Relaxed);
                }
            }
        })?;
        let zero = || AtomicU32::new(0);
        Ok(Placement { home, callers, under_way: zero(), requests: zero(), met: zero() })
    }

    /// A request has come. One for which nobody waits does not count: it runs beside its caller's
    /// next one.
    pub(super) fn attend(&self, header: &Header) -> Option<UnderWay<'_>> {
        use Opcode::{BatchForget, Forget, Interrupt, Release, ReleaseDirectory};
        let unattended = [Forget, BatchForget, Interrupt, Release, ReleaseDirectory];
        let operation = Opcode::of(header.opcode)?;
        (!unattended.contains(&operation)).then(|| self.begin(header.thread))
    }

    /// A request for whose answer `thread` waits has come. The words only steer, so no order
    /// between them is needed.
    fn begin(&self, thread: u32) -> UnderWay<'_> {
        if self.under_way.fetch_add(1, Relaxed) > 0 {
            self.met.fetch_add(1, Relaxed);
        }
        if self.requests.fetch_add(1, Relaxed) % WINDOW == WINDOW - 1 {
            match self.met.swap(0, Relaxed) {
                // Where it still looks at somebody, it looks at another one later.
                ..=MET_MAX => drop(self.callers.try_send(thread)),
                _ => self.home.store(0, Relaxed),
            }
        }
        UnderWay(self)
    }
}

/// One thread's place.
#[derive(Debug)]
pub(super) struct Place {
    /// Where it may run.
    allowed: Option<CpuSet>,
    home: u32,
}

impl Place {
    /// That of the calling thread.
    pub(super) fn here() -> Place {
        Place { allowed: sched_getaffinity(None).ok(), home: 0 }
    }

    /// Has the calling thread run where it should from now on.
    pub(super) fn follow(&mut self, placement: &Placement) {
        let home = placement.home.load(Relaxed);
        let Some(allowed) = self.allowed.filter(|_| home != self.home) else { return };
        self.home = home;
        let mut there = CpuSet::new();
        match home.checked_sub(1).map(|number| number as usize) {
            Some(number) if number < CpuSet::MAX_CPU && allowed.is_set(number) => there.set(number),
            _ => there = allowed,
        }
        // Where it cannot move it serves as well, only slower.
        let _ = sched_setaffinity(None, &there);
    }
}

/// Where a thread ran last; `None` when it has ended, or is not of this namespace.
fn processor_of(thread: u32) -> Option<u32> {
    /// Place of the processor after the name, which ends with the last parenthesis.
    const PROCESSOR: usize = 36;
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(PROCESSOR)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_thread() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
    }

    #[test]
    fn one_request_after_the_other_is_served_where_it_is_made() {
        let placement = Placement::start().expect("a thread");
        let mut place = Place::here();
        for _ in 0..WINDOW {
            drop(placement.begin(own_thread()));
        }
        while placement.home.load(Relaxed) == 0 {
            thread::yield_now();
        }
        place.follow(&placement);
        let now = sched_getaffinity(None).expect("a thread has processors");
        assert_eq!(now.count(), 1);
        assert!(now.is_set(placement.home.load(Relaxed) as usize - 1));
    }

    /// Once the thread that served a request looked itself. A program that was just being executed
    /// let nobody look before it had its answer, and both waited for ever.
    #[test]
    fn no_request_waits_for_a_look_at_its_caller() {
        let placement = Placement::looking(|_| {
            loop {
                thread::park();
            }
        });
        let placement = placement.expect("a thread");
        for _ in 0..10 * WINDOW {
            drop(placement.begin(own_thread()));
        }
    }

    #[test]
    fn requests_that_meet_are_served_anywhere() {
        let placement = Placement::start().expect("a thread");
        let mut place = Place::here();
        let before = sched_getaffinity(None).expect("a thread has processors");
        placement.home.store(1, Relaxed);
        place.follow(&placement);
        let _other = placement.begin(own_thread());
        for _ in 1..WINDOW {
            drop(placement.begin(own_thread()));
        }
        place.follow(&placement);
        assert_eq!(sched_getaffinity(None).expect("a thread has processors"), before);
    }
}

//! Claiming and releasing lanes.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use mayfly_sys::{clock, futex, interrupt::DEFERRED};
use mayfly_transport::Patience;
use mayfly_types::{Errno, limits::LANES};

use super::{ShmTransport, wait::POLL_NS};
use crate::layout::{LANE_CLAIMED, LANE_FREE, LANES_RESERVED};

const EVERYBODY: u32 = i32::MAX as u32;

impl ShmTransport {
    /// A free lane; waits for one when all are in use.
    pub(super) fn claim(&self, patience: Patience) -> Result<usize, Errno> {
        match self.try_claim(patience) {
            Some(lane) => Ok(lane),
            None => self.wait_for_lane(patience),
        }
    }

    pub(super) fn try_claim(&self, patience: Patience) -> Option<usize> {
        let first = match patience {
            Patience::Deadline | Patience::Brief => 0,
            Patience::Interruptible | Patience::Endless => LANES_RESERVED,
        };
        let count = LANES - first;
        let here = 0_u8;
        let start = (&raw const here) as usize >> 14;
        (0..count).map(|step| first + (start.wrapping_add(step)) % count).find(|lane| {
            let state = &self.lane(*lane).state;
            state.load(Relaxed) == LANE_FREE
                && state.compare_exchange(LANE_FREE, LANE_CLAIMED, Acquire, Relaxed).is_ok()
        })
    }

    fn wait_for_lane(&self, patience: Patience) -> Result<usize, Errno> {
        let head = self.head();
        head.lane_waiters.fetch_add(1, SeqCst);
        let claimed = self.sleep_for_lane(patience);
        head.lane_waiters.fetch_sub(1, SeqCst);
        claimed
    }

    fn sleep_for_lane(&self, patience: Patience) -> Result<usize, Errno> {
        let freed = &self.head().lanes_freed;
        let deadline = clock::monotonic_ns() + self.deadline_ns();
        loop {
            let seen = freed.load(SeqCst);
            if let Some(lane) = self.try_claim(patience) {
                return Ok(lane);
            }
            let look_up = clock::monotonic_ns() + POLL_NS;
            let wake_at = match patience {
                Patience::Deadline | Patience::Brief => deadline.min(look_up),
                Patience::Interruptible | Patience::Endless => look_up,
            };
            let slept = futex::wait(freed, seen, Some(wake_at));
            if self.node.is_lost() {
                return Err(Errno::EIO);
            }
            match patience {
                Patience::Deadline | Patience::Brief => {
                    if clock::monotonic_ns() >= deadline {
                        return Err(Errno::EIO);
                    }
                }
                Patience::Interruptible | Patience::Endless => {
                    if slept == Err(Errno::EINTR) && DEFERRED.load(Relaxed) > 0 {
                        return Err(Errno::EINTR);
                    }
                    if crate::raw::hung_up(self.evidence_fd) {
                        return Err(Errno::EIO);
                    }
                }
            }
        }
    }

    /// Gives a lane back. The exchange is a full fence: either the waiter's second look finds the
    /// lane, or we find the waiter. All are woken, since not every lane suits everyone.
    pub(super) fn release(&self, lane: usize) {
        let head = self.head();
        head.lanes[lane].state.swap(LANE_FREE, SeqCst);
        if head.lane_waiters.load(SeqCst) > 0 {
            head.lanes_freed.fetch_add(1, SeqCst);
            futex::wake(&head.lanes_freed, EVERYBODY);
        }
    }
}

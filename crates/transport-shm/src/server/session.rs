//! A session, as the threads of the daemon share it.

use std::{
    collections::HashSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            Ordering::{Acquire, Relaxed, SeqCst},
            fence,
        },
    },
};

use mayfly_sys::futex;
use mayfly_types::{
    SessionId,
    limits::{GIVEN_UP_MAX, LANES, REQUEST_BYTES_MAX},
};
use mayfly_wire::{HEADER_BYTES, Header};

use super::under_way::{Holder, UnderWay};
use crate::{
    layout::{
        LANE_ABANDONED, LANE_ASYNCHRONOUS, LANE_FREE, LANE_REPLY, LANE_REQUEST, LANE_SLEEPER, Lane,
        LaneBuffers, NodeRegion,
    },
    region::SessionMapping,
};

/// The mapping of a session and what is under way in it. Unmapped when the last thread lets go.
#[derive(Debug)]
pub struct Session {
    number: SessionId,
    mapping: SessionMapping,
    /// The server that takes its requests.
    pub(super) taker: Holder,
    /// Kept here and not in shared memory, where the client could change it.
    under_way: [UnderWay; LANES],
    /// Requests that have no lane any more and are not answered yet, by their ids.
    given_up: Mutex<HashSet<u64>>,
}

impl Session {
    pub(super) fn new(number: SessionId, mapping: SessionMapping, taker: Holder) -> Session {
        let under_way = std::array::from_fn(|_| UnderWay::default());
        Session { number, mapping, taker, under_way, given_up: Mutex::default() }
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> SessionId {
        self.number
    }

    pub(super) fn lane(&self, lane: u32) -> Option<(&Lane, &UnderWay)> {
        let control = self.mapping.head().lanes.get(lane as usize)?;
        Some((control, self.under_way.get(lane as usize)?))
    }

    pub(super) fn buffers(&self, lane: u32) -> *mut LaneBuffers {
        let lane = lane as usize % LANES;
        // SAFETY: below LANES, so inside the mapping; no reference is made.
        unsafe { (&raw mut (*self.mapping.region()).buffers).cast::<LaneBuffers>().add(lane) }
    }

    /// The lanes that ask for the daemon, a bit each. A mark is one for the whole session: to look
    /// at all of its lanes, whose lines stay with this processor while nothing happens in them,
    /// takes less time than one more line takes that both sides write.
    pub(super) fn waiting(&self) -> u64 {
        self.lanes_where(|_, state| {
            matches!(state, LANE_REQUEST | LANE_ASYNCHRONOUS | LANE_ABANDONED)
        })
    }

    /// The lanes with a request that nobody has taken, a bit each.
    pub(super) fn fresh(&self) -> u64 {
        self.lanes_where(|at, state| {
            matches!(state, LANE_REQUEST | LANE_ASYNCHRONOUS) && !self.under_way[at].is_busy()
        })
    }

    /// The lanes that are in use and of which `holds` is true, given their state without
    /// [`LANE_SLEEPER`]; a bit each.
    fn lanes_where(&self, holds: impl Fn(usize, u32) -> bool) -> u64 {
        let mut found = 0;
        for (at, lane) in self.mapping.head().lanes.iter().enumerate() {
            let state = lane.state.load(Acquire);
            if state != LANE_FREE && holds(at, state & !LANE_SLEEPER) {
                found |= 1 << at;
            }
        }
        found
    }

    /// Marks the session as its client does, and wakes the taker.
    pub(super) fn mark(&self, node: &NodeRegion) {
        node.mark(self.number.0);
        node.wake_daemon();
    }

    /// An earlier daemon may have died between a change and the wake-up that belongs to it.
    pub(super) fn finish_wakes(&self) {
        let answered = |lane: &&Lane| lane.state.load(SeqCst) == LANE_REPLY;
        for lane in self.mapping.head().lanes.iter().filter(answered) {
            futex::wake(&lane.state, 1);
        }
        self.wake_lane_waiters();
    }

    /// Frees a lane that was abandoned. Only the daemon moves a lane out of that state.
    pub(super) fn free(&self, lane: &Lane) {
        lane.state.store(LANE_FREE, SeqCst);
        self.wake_lane_waiters();
    }

    /// Takes an abandoned lane from the request that was left in it; the request's id. The client
    /// may use the lane at once, so of such requests there are only so many: with more the lane
    /// stays theirs.
    pub(super) fn detach(&self, lane: u32) -> Option<u64> {
        let (control, under_way) = self.lane(lane)?;
        if control.state.load(Acquire) != LANE_ABANDONED {
            return None;
        }
        // Held until the id is in: the answer may be known at any moment.
        let mut given_up = self.given_up();
        if given_up.len() >= GIVEN_UP_MAX {
            return None;
        }
        let request_id = under_way.detach()?;
        given_up.insert(request_id);
        drop(given_up);
        self.free(control);
        Some(request_id)
    }

    /// The answer to a request that has no lane is known; false when there is no such request.
    pub(super) fn end_given_up(&self, request_id: u64) -> bool {
        self.given_up().remove(&request_id)
    }

    fn given_up(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake_lane_waiters(&self) {
        let head = self.mapping.head();
        fence(SeqCst);
        if head.lane_waiters.load(SeqCst) > 0 {
            head.lanes_freed.fetch_add(1, SeqCst);
            futex::wake(&head.lanes_freed, i32::MAX as u32);
        }
    }

    /// Copies header and body of a lane's request out of shared memory and checks them against each
    /// other.
    pub(super) fn copy_request(&self, lane: u32, body: &mut Vec<u8>) -> Option<Header> {
        body.clear();
        let length = self.lane(lane)?.0.request_bytes.load(Relaxed) as usize;
        let body_bytes = length.checked_sub(HEADER_BYTES)?;
        if length > REQUEST_BYTES_MAX {
            return None;
        }
        let mut bytes = [0; HEADER_BYTES];
        body.reserve(body_bytes);
        let request = {
            let buffers = self.buffers(lane);
            // SAFETY: stays inside the lane's buffers; no reference is made.
            unsafe { (&raw const (*buffers).request).cast::<u8>() }
        };
        // SAFETY: source in bounds since `length` is; the targets are the daemon's own and large
        // enough. The client may write meanwhile, then the copy holds a mixture, and any bytes are
        // valid as `u8`.
        unsafe {
            request.copy_to_nonoverlapping(bytes.as_mut_ptr(), HEADER_BYTES);
            request.add(HEADER_BYTES).copy_to_nonoverlapping(body.as_mut_ptr(), body_bytes);
            body.set_len(body_bytes);
        }
        let header = Header::decode(&bytes).ok()?;
        let sound =
            !header.reply && header.body_bytes as usize == body_bytes && header.request_id != 0;
        sound.then_some(header)
    }
}

//! Who may answer the request of a lane.
//!
//! The thread that takes requests *holds* a lane from the moment it takes its request. It answers,
//! or *leaves* the lane to whoever comes to know the answer, on any thread: that one claims the
//! lane by compare-and-swap, for one request by its id, holds it, and ends the matter when the
//! reply is shown. Every request has a round of its own in the word, so a claim that comes too late
//! finds another word than it has seen, whatever the lane is used for by then.
//!
//! A request that was left and that its client has given up has its lane taken from it: the taker
//! makes the lane idle by compare-and-swap, so it is either answered or finds nothing to claim.
//!
//! Nothing of this is in shared memory: a client can neither free a lane that is held nor have one
//! request taken twice.
//!
//! **No request is overlooked.** The reply is shown before the lane counts as idle here, so the
//! taker may meet the client's next request while the lane is still held. It leaves a note in the
//! word (`MISSED`) then, and whoever ends the holding marks the lane again for the taker.

use std::sync::atomic::{
    AtomicU16, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use mayfly_wire::Op;

/// Nobody is at it: the taker may take a request.
const IDLE: u64 = 0;
/// A server is writing the reply, or will decide who does.
const HELD: u64 = 1;
/// The request waits for somebody who knows the answer.
const LEFT: u64 = 2;
const STATE: u64 = 3;
/// The taker came by in vain.
const MISSED: u64 = 4;
const HOLDER_SHIFT: u32 = 3;
const HOLDER_BITS: u32 = 21;
const ROUND_SHIFT: u32 = HOLDER_SHIFT + HOLDER_BITS;

/// Number of a server, in the word of a lane it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder(u64);

impl Holder {
    pub(super) fn new(number: u64) -> Holder {
        Holder((number & ((1 << HOLDER_BITS) - 1)) << HOLDER_SHIFT)
    }
}

/// The request of a lane, as far as answering it goes. A cache line each: threads answer
/// neighbouring lanes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct UnderWay {
    word: AtomicU64,
    request_id: AtomicU64,
    op: AtomicU16,
    /// When its client made it, in cycles of the counter, as far as that is told.
    submitted: AtomicU64,
    /// When it was left; 0: it was not.
    left: AtomicU64,
}

/// The word's round, with everything else zero.
const fn round_of(word: u64) -> u64 {
    word >> ROUND_SHIFT << ROUND_SHIFT
}

impl UnderWay {
    /// For the taker: true when nobody is at the lane. Otherwise whoever is will mark it again.
    pub(super) fn is_idle(&self) -> bool {
        let mut seen = self.word.load(Acquire);
        while seen & STATE != IDLE {
            match self.word.compare_exchange_weak(seen, seen | MISSED, AcqRel, Acquire) {
                Ok(_) => return false,
                Err(other) => seen = other,
            }
        }
        true
    }

    /// Whether somebody is at the lane.
    pub(super) fn is_busy(&self) -> bool {
        self.word.load(Acquire) & STATE != IDLE
    }

    /// For the taker: true when this very request is being answered. Only the taker changes the id.
    pub(super) fn is_at(&self, request_id: u64) -> bool {
        self.word.load(Acquire) & STATE != IDLE && self.request_id.load(Relaxed) == request_id
    }

    /// For the taker, when the lane is idle: it holds the lane for this request. Others act on a
    /// lane that was left only, so plain stores do.
    pub(super) fn hold(&self, taker: Holder, request_id: u64, op: Op, submitted: u64) {
        let round = round_of(self.word.load(Relaxed)).wrapping_add(1 << ROUND_SHIFT);
        self.request_id.store(request_id, Relaxed);
        self.op.store(op as u16, Relaxed);
        self.submitted.store(submitted, Relaxed);
        self.left.store(0, Relaxed);
        self.word.store(round | taker.0 | HELD, Relaxed);
    }

    /// The holder leaves the request to whoever claims it, at `now`.
    pub(super) fn leave(&self, holder: Holder, now: u64) {
        let seen = self.word.load(Relaxed);
        if holds(seen, holder) {
            self.left.store(now, Relaxed);
            self.word.store(round_of(seen) | (seen & MISSED) | LEFT, Release);
        }
    }

    /// Holds the lane if it was left with this request; the operation then, and when its client
    /// made it.
    pub(super) fn claim(&self, by: Holder, request_id: u64) -> Option<(Op, u64)> {
        let mut seen = self.word.load(Acquire);
        loop {
            let id = self.request_id.load(Relaxed);
            let op = Op::from_raw(self.op.load(Relaxed))?;
            let submitted = self.submitted.load(Relaxed);
            if seen & STATE != LEFT || id != request_id {
                return None;
            }
            // Success means that the round is the one whose id and operation were read: all change
            // only between a holding and the next.
            let held = round_of(seen) | (seen & MISSED) | by.0 | HELD;
            match self.word.compare_exchange_weak(seen, held, AcqRel, Acquire) {
                Ok(_) => return Some((op, submitted)),
                Err(other) => seen = other,
            }
        }
    }

    /// For the taker: nobody waits for the request that was left here, and the lane is idle; its
    /// id. Whoever comes to know the answer finds nothing to claim. `None` when somebody answers
    /// it, or has.
    pub(super) fn detach(&self) -> Option<u64> {
        let mut seen = self.word.load(Acquire);
        while seen & STATE == LEFT {
            match self.word.compare_exchange_weak(seen, round_of(seen), AcqRel, Acquire) {
                Ok(_) => return Some(self.request_id.load(Relaxed)),
                Err(other) => seen = other,
            }
        }
        None
    }

    /// For the holder, or the taker while nobody holds it: the operation, when its client made the
    /// request, and when it was left.
    pub(super) fn course(&self) -> Option<(Op, u64, u64)> {
        let op = Op::from_raw(self.op.load(Relaxed))?;
        Some((op, self.submitted.load(Relaxed), self.left.load(Relaxed)))
    }

    /// Only the holder itself changes that, so it stays true until it does.
    pub(super) fn is_held_by(&self, holder: Holder) -> bool {
        holds(self.word.load(Relaxed), holder)
    }

    /// The taker ends its holding. It cannot have missed anything: it was busy with this.
    pub(super) fn end_of_taker(&self) {
        self.word.store(round_of(self.word.load(Relaxed)), Relaxed);
    }

    /// Another holder ends its holding; true when the taker came by meanwhile.
    pub(super) fn end(&self) -> bool {
        let idle = round_of(self.word.load(Relaxed));
        self.word.swap(idle, AcqRel) & MISSED != 0
    }
}

fn holds(word: u64, holder: Holder) -> bool {
    word & STATE == HELD && (word ^ holder.0) & (((1 << HOLDER_BITS) - 1) << HOLDER_SHIFT) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKER: Holder = Holder(1 << HOLDER_SHIFT);
    const OTHER: Holder = Holder(2 << HOLDER_SHIFT);

    #[test]
    fn a_request_is_answered_by_one_of_those_who_claim_it() {
        let lane = UnderWay::default();
        for request_id in 1..2000 {
            assert!(lane.is_idle());
            lane.hold(TAKER, request_id, Op::Stat, 0);
            assert_eq!(lane.claim(OTHER, request_id), None, "it was not left");
            lane.leave(TAKER, 1);
            let claimed: usize = std::thread::scope(|scope| {
                let claims = [2, 3].map(|number| {
                    let lane = &lane;
                    scope.spawn(move || lane.claim(Holder::new(number), request_id).is_some())
                });
                claims.map(|claim| usize::from(claim.join().expect("no panic"))).iter().sum()
            });
            assert_eq!(claimed, 1);
            assert!(!lane.end());
        }
    }

    #[test]
    fn an_answer_to_an_earlier_request_claims_nothing() {
        let lane = UnderWay::default();
        lane.hold(TAKER, 7, Op::Stat, 0);
        lane.leave(TAKER, 1);
        assert_eq!(lane.claim(OTHER, 6), None);
        assert_eq!(lane.claim(OTHER, 7), Some((Op::Stat, 0)));
        assert!(lane.is_held_by(OTHER) && !lane.is_held_by(TAKER));
        lane.end();
        assert_eq!(lane.claim(OTHER, 7), None);
    }

    #[test]
    fn a_request_that_was_given_up_is_answered_or_its_lane_is_taken_from_it() {
        let lane = UnderWay::default();
        for request_id in 1..2000 {
            lane.hold(TAKER, request_id, Op::Stat, 0);
            assert_eq!(lane.detach(), None, "it was not left");
            lane.leave(TAKER, 1);
            let claimed = std::thread::scope(|scope| {
                let claim = scope.spawn(|| lane.claim(OTHER, request_id).is_some());
                let detached = lane.detach();
                assert!(detached.is_none_or(|id| id == request_id));
                let claimed = claim.join().expect("no panic");
                assert_ne!(claimed, detached.is_some());
                claimed
            });
            assert_eq!(lane.claim(OTHER, request_id), None);
            if claimed {
                lane.end();
            }
            assert!(lane.is_idle());
        }
    }

    #[test]
    fn a_request_that_comes_before_the_holding_ends_is_not_overlooked() {
        let lane = UnderWay::default();
        lane.hold(TAKER, 7, Op::Stat, 0);
        lane.leave(TAKER, 1);
        assert!(!lane.is_idle());
        assert_eq!(lane.claim(OTHER, 7), Some((Op::Stat, 0)));
        assert!(!lane.is_idle());
        assert!(lane.end(), "the taker wants to know");
        assert!(lane.is_idle());
    }
}

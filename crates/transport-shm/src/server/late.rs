//! Requests that took long, for people to look at.
//!
//! A client says when it made a request by the processors' counter, which it has read anyway. Here
//! it is read for clients that sleep: who has waited for long does, and to wake one takes a system
//! call. So a request that is answered while its client spins pays nothing for being watched.

use mayfly_sys::arch::cycles;
use mayfly_wire::Op;

use super::{LaneRef, Session, under_way::UnderWay};

/// A request whose answer came late, or not at all. Its client may have written anything.
#[derive(Debug)]
pub struct Late {
    /// Where it was.
    pub at: LaneRef,
    /// The operation.
    pub op: Op,
    /// The body of the request.
    pub body: Vec<u8>,
    /// When its client made it, by the processors' counter, as are the others.
    pub submitted: u64,
    /// When it was taken up, executed as far as possible, and left to wait; 0: it did not wait.
    pub left: u64,
    /// Now.
    pub shown: u64,
}

/// Whether it is in the nature of the request to wait: for whoever holds a lock, or for what may
/// never happen.
fn waits_by_design(op: Op) -> bool {
    matches!(op, Op::Lock | Op::Watch | Op::TierWork | Op::TierAsk)
}

impl Session {
    /// The request that is held in a lane, or was left there, if it has taken longer than so many
    /// cycles. To be asked for while the lane still has the request.
    pub(super) fn late(&self, at: LaneRef, of: &UnderWay, late_cycles: u64) -> Option<Late> {
        let (op, submitted, left) = of.course()?;
        self.if_late(Late { at, op, body: Vec::new(), submitted, left, shown: 0 }, late_cycles)
    }

    /// The same of one that was given up before anybody took it.
    pub(super) fn given_up_untaken(&self, at: LaneRef, late_cycles: u64) -> Option<Late> {
        let header = self.copy_request(at.lane, &mut Vec::new())?;
        let (op, submitted) = (header.op, header.submitted_cycles);
        self.if_late(Late { at, op, body: Vec::new(), submitted, left: 0, shown: 0 }, late_cycles)
    }

    fn if_late(&self, late: Late, late_cycles: u64) -> Option<Late> {
        if late.submitted == 0 || late_cycles == u64::MAX || waits_by_design(late.op) {
            return None;
        }
        let shown = cycles();
        // Counters of two processors may differ a little.
        if shown.saturating_sub(late.submitted) < late_cycles {
            return None;
        }
        let mut body = Vec::new();
        let header = self.copy_request(late.at.lane, &mut body)?;
        (header.op == late.op).then_some(Late { body, shown, ..late })
    }
}

//! A session: everything that two incarnations of two nodes have said to each other on one lane,
//! however many connections it took.
//!
//! Numbered frames are kept until the peer acknowledges them. When a connection breaks they are
//! sent again over the next one, from where the peer says it is; the peer takes each number once.
//! So **a request is delivered at most once and a reply too**, whatever happens to connections. The
//! receiver must remember one number only. A request whose deadline passed meanwhile is replaced by
//! a [`Kind::Void`]: nobody waits for it, and it must not be executed late.
//!
//! Requests wait here for credit, each class in a queue of its own. Replies and cancels need none.
//! Of what may be sent, replies and cancels go first, then the classes from the highest down.
//!
//! A session does no input or output and reads no clock.

use std::collections::VecDeque;

use mayfly_wire::Malformed;

use crate::{
    Bytes, Class, Lane,
    class::CLASSES,
    frame::{CREDIT_BYTES, FrameHeader, Kind},
    limits::{ACKNOWLEDGE_BYTES, ACKNOWLEDGE_FRAMES, KEPT_QUIETLY_BYTES, UNACKNOWLEDGED_BYTES_MAX},
};

/// A numbered frame.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) request_id: u64,
    /// Of a request.
    pub(crate) deadline_ns: u64,
    pub(crate) body: Pieces,
}

/// The body of a frame, in two pieces behind each other.
pub(crate) type Pieces = [Bytes; 2];

/// Length of both, bytes.
pub(crate) fn length(body: &Pieces) -> usize {
    body.iter().map(|piece| piece.len()).sum()
}

impl Item {
    fn header(&self, sequence: u64, now_ns: u64) -> FrameHeader {
        let left_ms = self.deadline_ns.saturating_sub(now_ns) / 1_000_000;
        FrameHeader {
            kind: self.kind,
            body_bytes: length(&self.body) as u32,
            sequence,
            acknowledged: 0,
            request_id: self.request_id,
            left_ms: u32::try_from(left_ms).unwrap_or(u32::MAX),
            body_checksum: 0,
        }
    }
}

/// A numbered frame that arrived is either new or was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    New,
    Again,
}

#[derive(Debug)]
pub(crate) struct Session {
    /// Requests of one class that may wait for the program here.
    credits: u64,
    /// Number of the first one in `retained`.
    first_retained: u64,
    retained: VecDeque<Item>,
    retained_bytes: usize,
    /// Of `retained`, which one is to be written next.
    cursor: u64,
    /// Replies and cancels.
    urgent: VecDeque<Item>,
    waiting: [VecDeque<Item>; CLASSES],
    /// What may wait for others.
    late: Vec<Item>,
    granted: [u64; CLASSES],
    used: [u64; CLASSES],
    received: u64,
    acknowledged: u64,
    bytes_unacknowledged: usize,
    arrived: [u64; CLASSES],
    consumed: [u64; CLASSES],
    announced: [u64; CLASSES],
}

impl Session {
    pub(crate) fn new(credits: u32) -> Session {
        Session {
            credits: u64::from(credits),
            first_retained: 1,
            retained: VecDeque::new(),
            retained_bytes: 0,
            cursor: 1,
            urgent: VecDeque::new(),
            waiting: Default::default(),
            late: Vec::new(),
            granted: [0; CLASSES],
            used: [0; CLASSES],
            received: 0,
            acknowledged: 0,
            bytes_unacknowledged: 0,
            arrived: [0; CLASSES],
            consumed: [0; CLASSES],
            announced: [0; CLASSES],
        }
    }

    /// The peer is another incarnation: only requests that were never sent are left.
    pub(crate) fn restart(&mut self) {
        self.late.retain(|item| matches!(item.kind, Kind::Request(_)));
        let (waiting, late) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.late));
        *self = Session { waiting, late, ..Session::new(self.credits as u32) };
    }

    pub(crate) fn push(&mut self, item: Item) {
        match item.kind {
            Kind::Request(class) => self.waiting[class.index()].push_back(item),
            _ => self.urgent.push_back(item),
        }
    }

    /// The same of something that may wait until [`Session::send_late`].
    pub(crate) fn push_late(&mut self, item: Item) {
        self.late.push(item);
    }

    /// Something goes to the node: what has waited goes with it.
    pub(crate) fn send_late(&mut self) {
        let mut late = std::mem::take(&mut self.late);
        late.drain(..).for_each(|item| self.push(item));
        self.late = late;
    }

    /// Takes back a request that was not sent.
    pub(crate) fn withdraw(&mut self, class: Class, request_id: u64) -> bool {
        let is_it = |item: &Item| is_request(item, class, request_id);
        if let Some(place) = self.late.iter().position(is_it) {
            self.late.remove(place);
            return true;
        }
        let waiting = &mut self.waiting[class.index()];
        let place = waiting.iter().position(is_it);
        place.is_some_and(|place| waiting.remove(place).is_some())
    }

    /// True when the request was never given to a connection.
    pub(crate) fn is_waiting(&self, class: Class, request_id: u64) -> bool {
        let all = self.waiting[class.index()].iter().chain(&self.late);
        all.into_iter().any(|item| is_request(item, class, request_id))
    }

    /// True when there is something that was never given to a connection.
    pub(crate) fn is_queued(&self) -> bool {
        let is_any = self.waiting.iter().any(|queue| !queue.is_empty());
        is_any || !self.urgent.is_empty() || !self.late.is_empty()
    }

    /// True when something may have to be sent again.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        !self.retained.is_empty()
    }

    /// True when the peer will say on its own that it has what was sent.
    pub(crate) fn awaits_acknowledgement(&self) -> bool {
        self.retained_bytes >= KEPT_QUIETLY_BYTES
    }

    /// A new connection carries the session on; the peer has everything up to `received`.
    pub(crate) fn attach(&mut self, received: u64) -> Result<(), Malformed> {
        self.acknowledge(received)?;
        self.cursor = self.first_retained;
        self.announced = [0; CLASSES];
        Ok(())
    }

    /// The peer has everything up to `sequence`.
    pub(crate) fn acknowledge(&mut self, sequence: u64) -> Result<(), Malformed> {
        if sequence >= self.first_retained + self.retained.len() as u64 {
            return Err(Malformed);
        }
        while self.first_retained <= sequence {
            let item = self.retained.pop_front().expect("the number is that of a kept frame");
            self.retained_bytes -= length(&item.body);
            self.first_retained += 1;
        }
        self.cursor = self.cursor.max(self.first_retained);
        Ok(())
    }

    /// The next frame to write, if there is one that may be written.
    pub(crate) fn next(&mut self, now_ns: u64) -> Option<(FrameHeader, Pieces)> {
        let end = self.first_retained + self.retained.len() as u64;
        if self.cursor == end {
            let item = self.next_new()?;
            self.retained_bytes += length(&item.body);
            self.retained.push_back(item);
        }
        let sequence = self.cursor;
        self.cursor += 1;
        let item = &mut self.retained[(sequence - self.first_retained) as usize];
        if let Kind::Request(class) = item.kind
            && item.deadline_ns <= now_ns
        {
            self.retained_bytes -= length(&item.body);
            item.kind = Kind::Void(class);
            item.body = Pieces::default();
        }
        Some((item.header(sequence, now_ns), item.body.clone()))
    }

    fn next_new(&mut self) -> Option<Item> {
        if self.retained_bytes >= UNACKNOWLEDGED_BYTES_MAX {
            return None;
        }
        if let Some(item) = self.urgent.pop_front() {
            return Some(item);
        }
        for class in (0..CLASSES).rev().filter(|class| self.used[*class] < self.granted[*class]) {
            if let Some(item) = self.waiting[class].pop_front() {
                self.used[class] += 1;
                return Some(item);
            }
        }
        None
    }

    /// A numbered frame came.
    pub(crate) fn arrive(&mut self, header: &FrameHeader) -> Result<Arrival, Malformed> {
        if header.sequence <= self.received {
            return Ok(Arrival::Again);
        }
        if header.sequence != self.received + 1 {
            return Err(Malformed);
        }
        if let Kind::Request(class) | Kind::Void(class) = header.kind {
            let arrived = &mut self.arrived[class.index()];
            // More than was ever granted; a void one counts, since its sender used a credit for it.
            if *arrived >= self.consumed[class.index()] + self.credits {
                return Err(Malformed);
            }
            *arrived += 1;
        }
        self.received += 1;
        self.bytes_unacknowledged += header.body_bytes as usize;
        if let Kind::Void(class) = header.kind {
            self.take(class);
        }
        Ok(Arrival::New)
    }

    /// The program took a request of this class.
    pub(crate) fn take(&mut self, class: Class) {
        let index = class.index();
        self.consumed[index] = self.arrived[index].min(self.consumed[index] + 1);
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// What every frame says: up to where everything was received.
    pub(crate) fn acknowledge_now(&mut self) -> u64 {
        self.acknowledged = self.received;
        self.bytes_unacknowledged = 0;
        self.received
    }

    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.acknowledged < self.received
    }

    /// True when the peer should hear after a while, even if no frame says it by the way.
    pub(crate) fn will_acknowledge(&self) -> bool {
        self.bytes_unacknowledged >= KEPT_QUIETLY_BYTES
    }

    /// True when the peer should hear without waiting for a frame that says it by the way.
    pub(crate) fn must_acknowledge(&self) -> bool {
        self.received - self.acknowledged >= ACKNOWLEDGE_FRAMES
            || self.bytes_unacknowledged >= ACKNOWLEDGE_BYTES
    }

    fn grants(&self) -> [u64; CLASSES] {
        self.consumed.map(|consumed| consumed + self.credits)
    }

    /// True when the peer should hear of grants: half of one is used up.
    pub(crate) fn owes_grants(&self) -> bool {
        let step = (self.credits / 2).max(1);
        self.grants()
            .iter()
            .zip(&self.announced)
            .any(|(grant, announced)| grant - announced >= step)
    }

    /// True when there is something that may be written at once.
    pub(crate) fn has_to_write(&self) -> bool {
        let sendable = |class: usize| {
            !self.waiting[class].is_empty() && self.used[class] < self.granted[class]
        };
        self.cursor < self.first_retained + self.retained.len() as u64
            || !self.urgent.is_empty()
            || self.must_acknowledge()
            || self.owes_grants()
            || (0..CLASSES).any(sendable)
    }

    /// The grants, when the peer should hear them.
    pub(crate) fn grants_to_tell(&mut self) -> Option<[u8; CREDIT_BYTES]> {
        if !self.owes_grants() {
            return None;
        }
        let grants = self.grants();
        self.announced = grants;
        let mut body = [0; CREDIT_BYTES];
        for (bytes, grant) in body.chunks_exact_mut(8).zip(grants) {
            bytes.copy_from_slice(&grant.to_le_bytes());
        }
        Some(body)
    }

    /// The peer grants so many in all. An older grant changes nothing.
    pub(crate) fn grant(&mut self, body: &[u8]) -> Result<(), Malformed> {
        if body.len() != CREDIT_BYTES {
            return Err(Malformed);
        }
        for (granted, bytes) in self.granted.iter_mut().zip(body.chunks_exact(8)) {
            *granted = (*granted).max(u64::from_le_bytes(bytes.try_into().map_err(|_| Malformed)?));
        }
        Ok(())
    }
}

/// Replies have numbers of the other side.
fn is_request(item: &Item, class: Class, request_id: u64) -> bool {
    item.kind == Kind::Request(class) && item.request_id == request_id
}

/// Credits on this lane.
pub(crate) fn credits(limits: &crate::limits::Limits, lane: Lane) -> u32 {
    match lane {
        Lane::Messages => limits.message_credits,
        Lane::Bulk => limits.bulk_credits,
    }
}

#[cfg(test)]
mod tests;

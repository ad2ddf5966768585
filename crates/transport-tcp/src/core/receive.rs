//! What a connection brings.

use rustix::event::epoll::{self, EventFlags};

use super::{Core, Credit, Delivery, End};
use crate::{
    Event, Lane, NodeId, RequestId, Ticket,
    clock::ms,
    complaints::Trouble,
    connection::{Connection, Progress, Stage},
    frame::{Frame, Kind},
    limits::{ACKNOWLEDGE_MS, READ_TURN_BYTES},
    peer::Token,
    session::{Arrival, Pieces},
};

/// Requests of one node that may be unanswered at a time. Its own bound keeps an honest one far
/// below.
const OWED_MAX: usize = 1 << 20;
/// For so many frames there is memory without asking for it.
const FRAMES_CAPACITY: usize = 256;

impl Core {
    /// Epoll says that something can be done.
    pub(crate) fn ready(&mut self, token: Token, flags: EventFlags) {
        // It may have been closed since epoll looked.
        let Some(mut connection) = self.connections.remove(&token) else { return };
        match self.advance(token, &mut connection, flags) {
            Ok(()) => {
                self.watch(token, &mut connection);
                self.connections.insert(token, connection);
            }
            Err(End::Moved(thread)) => {
                // Its token means something else there.
                let _ = epoll::delete(&*self.epoll, connection.stream());
                self.door.move_to(thread, connection);
            }
            Err(end) => self.closed(token, &connection, &end),
        }
    }

    fn advance(
        &mut self,
        token: Token,
        connection: &mut Connection,
        flags: EventFlags,
    ) -> Result<(), End> {
        if flags.contains(EventFlags::OUT) && !matches!(connection.stage, Stage::Dialing(..)) {
            connection.flush()?;
        }
        if !connection.is_up() {
            self.shake(token, connection)?;
        }
        let Some((node, lane, _)) = connection.peer.filter(|_| connection.is_up()) else {
            return Ok(());
        };
        self.note_lane(lane);
        // Even when it has broken: what came before that counts.
        let mut bytes = 0;
        let now_ns = self.now();
        let mut frames = std::mem::take(&mut self.read.frames);
        while bytes < READ_TURN_BYTES {
            let progress = connection.read_frames(&mut self.read.bytes, now_ns, &mut frames);
            for frame in frames.drain(..) {
                self.frame(connection, node, lane, frame)?;
            }
            match progress? {
                Progress::Some(count) => bytes += count,
                Progress::Drained => break,
            }
        }
        if frames.capacity() <= FRAMES_CAPACITY {
            self.read.frames = frames;
        }
        if let Some(since_ns) = connection.frame_since_ns {
            self.arm(since_ns + ms(self.limits.frame_ms));
        }
        if connection.output_bytes() > 0 || self.peer(node).lane(lane).session.has_to_write() {
            self.touch(node, lane);
        }
        Ok(())
    }

    fn frame(
        &mut self,
        connection: &mut Connection,
        node: NodeId,
        lane: Lane,
        frame: Frame,
    ) -> Result<(), End> {
        let Frame { header, body } = frame;
        let session = &mut self.peer(node).lane(lane).session;
        session.acknowledge(header.acknowledged)?;
        match header.kind {
            Kind::Credit => session.grant(&body)?,
            Kind::Probe => {
                let alive = super::send::control(Kind::Alive, session, 0);
                connection.write_frame(alive, Pieces::default());
            }
            Kind::Acknowledge | Kind::Alive => {}
            Kind::Request(_) | Kind::Reply | Kind::Cancel | Kind::Void(_) => {
                let arrival = session.arrive(&header)?;
                if session.will_acknowledge() {
                    let due_ns = self.now() + ms(ACKNOWLEDGE_MS);
                    let due = self.peer(node).lane(lane).acknowledge_ns.get_or_insert(due_ns);
                    let due_ns = *due;
                    self.arm_lane(node, lane, due_ns);
                }
                if arrival == Arrival::New {
                    self.deliver(node, lane, Frame { header, body })?;
                }
            }
        }
        Ok(())
    }

    fn deliver(&mut self, node: NodeId, lane: Lane, frame: Frame) -> Result<(), End> {
        let Frame { header, body } = frame;
        let id = RequestId(header.request_id);
        let peer = self.peer(node);
        let incarnation = peer.incarnation;
        let ticket = Ticket { node, incarnation, id };
        match header.kind {
            Kind::Request(class) => {
                if peer.owed.len() >= OWED_MAX || !peer.owed.insert(id.0) {
                    return Err(End::Trouble(Trouble::Broken));
                }
                // From now on silence means something.
                self.arm(self.now() + ms(self.limits.probe_after_ms));
                let event = Event::Request { ticket, class, left_ms: header.left_ms, body };
                let credit = Some(Credit { node, incarnation, lane, class });
                self.deliveries.push(Delivery { event, credit });
            }
            Kind::Reply => {
                // Nobody waits for it when its deadline has passed, or if it was never asked for.
                if self.requests.is_asked(id.0, node) && self.finish(id.0).is_some() {
                    self.tell(Event::Reply { id, from: node, body });
                }
            }
            Kind::Cancel => {
                if peer.owed.contains(&id.0) {
                    self.tell(Event::Cancelled(ticket));
                }
            }
            Kind::Void(_) | Kind::Acknowledge | Kind::Credit | Kind::Probe | Kind::Alive => {}
        }
        Ok(())
    }
}

//! Writing to connections. One call writes all frames that may be sent on a lane, as far as the
//! kernel takes them.

use super::{Core, End};
use crate::{
    Bytes, Lane, NodeId,
    clock::ms,
    connection::Connection,
    frame::{FrameHeader, Kind},
    limits::OUTPUT_BYTES_MAX,
    peer::Token,
    session::{Pieces, Session},
};

/// The header of a frame that is about its connection.
pub(super) fn control(kind: Kind, session: &mut Session, body_bytes: usize) -> FrameHeader {
    FrameHeader {
        kind,
        body_bytes: body_bytes as u32,
        sequence: 0,
        acknowledged: session.acknowledge_now(),
        request_id: 0,
        left_ms: 0,
        body_checksum: 0,
    }
}

impl Core {
    /// Writes what there is to send, and connects lanes that need a connection for it.
    pub(crate) fn flush(&mut self) {
        // Closing a connection makes its lane dirty again: it is dialed in the second round.
        for _ in 0..3 {
            if self.dirty.is_empty() {
                return;
            }
            let mut dirty = std::mem::take(&mut self.dirty);
            for (node, lane) in dirty.drain(..) {
                let peer = self.peer(node);
                peer.lane(lane).listed = false;
                let (up, needs) = (peer.lane(lane).up, peer.needs(lane));
                match up {
                    Some((token, _)) => self.pump(token, node, lane),
                    None if needs => self.dial(node, lane),
                    None => {}
                }
            }
            // Kept, so that the next turn allocates nothing.
            if self.dirty.is_empty() {
                self.dirty = dirty;
            }
        }
    }

    fn pump(&mut self, token: Token, node: NodeId, lane: Lane) {
        let Some(mut connection) = self.connections.remove(&token) else { return };
        match self.write(&mut connection, node, lane) {
            Ok(()) => {
                self.watch(token, &mut connection);
                self.connections.insert(token, connection);
                if self.peer(node).waits(lane) {
                    let at_ns = self.now() + ms(self.limits.probe_after_ms);
                    self.arm(at_ns);
                }
            }
            Err(end) => self.closed(token, &connection, &end),
        }
    }

    fn write(&mut self, connection: &mut Connection, node: NodeId, lane: Lane) -> Result<(), End> {
        let now_ns = self.now();
        let state = self.peer(node).lane(lane);
        let is_due = state.late_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if is_due || state.late_ns.is_some() && state.session.has_to_write() {
            state.session.send_late();
            state.late_ns = None;
        }
        loop {
            fill(connection, &mut state.session, now_ns);
            if connection.output_bytes() == 0 {
                break;
            }
            connection.flush()?;
            if connection.output_bytes() > 0 {
                break;
            }
        }
        let late = state.acknowledge_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if state.session.must_acknowledge() || late && state.session.owes_acknowledgement() {
            let header = control(Kind::Acknowledge, &mut state.session, 0);
            connection.write_frame(header, Pieces::default());
            connection.flush()?;
        }
        if !state.session.owes_acknowledgement() {
            state.acknowledge_ns = None;
        }
        Ok(())
    }
}

/// Takes frames from the session until there is enough to write.
fn fill(connection: &mut Connection, session: &mut Session, now_ns: u64) {
    if let Some(grants) = session.grants_to_tell() {
        let header = control(Kind::Credit, session, grants.len());
        connection.write_frame(header, [grants.to_vec().into(), Bytes::default()]);
    }
    while connection.output_bytes() < OUTPUT_BYTES_MAX {
        let Some((mut header, body)) = session.next(now_ns) else { return };
        header.acknowledged = session.acknowledge_now();
        connection.write_frame(header, body);
    }
}

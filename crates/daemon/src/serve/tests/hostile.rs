//! A client that writes nonsense into its region harms only itself.

use std::sync::atomic::Ordering::SeqCst;

use mayfly_transport_shm::{
    layout::{LANE_ABANDONED, LANE_REQUEST, SessionHead, SessionRegion},
    region::{self, NodeSettings, SessionMapping},
    server::{LaneRef, Reply, Server},
};
use mayfly_types::{SessionId, limits::REQUEST_BYTES_MAX};
use mayfly_wire::{HEADER_BYTES, Header, Op};
use proptest::prelude::*;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A write by the client: to the words of the head, or to a request.
#[derive(Debug, Clone)]
pub(super) enum Scribble {
    Head { offset: usize, value: u32 },
    Request { lane: usize, bytes: Vec<u8> },
    Submit { lane: usize, length: u32, header: Option<(u64, u32)> },
    Abandon { lane: usize },
}

fn scribble() -> impl Strategy<Value = Scribble> {
    let length = prop_oneof![any::<u32>(), 0_u32..256, Just(REQUEST_BYTES_MAX as u32)];
    prop_oneof![
        (0_usize..1024, any::<u32>())
            .prop_map(|(word, value)| Scribble::Head { offset: word * 4, value }),
        (0_usize..16, proptest::collection::vec(any::<u8>(), 0..256))
            .prop_map(|(lane, bytes)| Scribble::Request { lane, bytes }),
        (0_usize..16, length, proptest::option::of((any::<u64>(), 0_u32..300)))
            .prop_map(|(lane, length, header)| Scribble::Submit { lane, length, header }),
        (0_usize..16).prop_map(|lane| Scribble::Abandon { lane }),
    ]
}

/// The client's mapping.
pub(super) struct Client(*mut SessionRegion);

impl Client {
    pub(super) fn head(&self) -> &SessionHead {
        // SAFETY: mapped as long as `self` lives, and made of atomics.
        unsafe { &(*self.0).head }
    }

    pub(super) fn map(fd: &std::os::fd::OwnedFd) -> Client {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let length = size_of::<SessionRegion>();
        // SAFETY: a fresh mapping disturbs nothing.
        let mapped =
            unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, fd, 0) };
        Client(mapped.expect("mapped").cast())
    }

    pub(super) fn act(&self, scribble: &Scribble) {
        match scribble {
            Scribble::Head { offset, value } => {
                // SAFETY: the head is a page, and the offset is aligned and inside it.
                unsafe { self.0.cast::<u8>().add(*offset).cast::<u32>().write_volatile(*value) };
            }
            Scribble::Request { lane, bytes } => self.write(*lane, bytes),
            Scribble::Abandon { lane } => {
                self.head().lanes[*lane].state.store(LANE_ABANDONED, SeqCst);
            }
            Scribble::Submit { lane, length, header } => {
                if let Some((request_id, body_bytes)) = *header {
                    let mut bytes = [0; HEADER_BYTES];
                    let header = Header {
                        reply: false,
                        op: Op::ALL[request_id as usize % Op::ALL.len()],
                        request_id,
                        submitted_cycles: request_id,
                        slot_table_version: 0,
                        body_bytes,
                        status: 0,
                        body_checksum: 0,
                    };
                    header.encode(&mut bytes).expect("it fits");
                    self.write(*lane, &bytes);
                }
                // SAFETY: mapped, and made of atomics.
                let control = unsafe { &(*self.0).head.lanes[*lane] };
                let whole = header.map_or(*length, |(_, body)| HEADER_BYTES as u32 + body);
                control.request_id.store(header.map_or(0, |(request_id, _)| request_id), SeqCst);
                control.request_bytes.store(whole, SeqCst);
                control.state.store(LANE_REQUEST, SeqCst);
            }
        }
    }

    fn write(&self, lane: usize, bytes: &[u8]) {
        // SAFETY: inside the request buffer of a lane that exists.
        unsafe {
            let request = (&raw mut (*self.0).buffers[lane].request).cast::<u8>();
            request.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: nobody uses the mapping any more.
        unsafe { munmap(self.0.cast(), size_of::<SessionRegion>()) }.expect("unmapped");
    }
}

/// A round of the daemon over the session; requests stay inside their bounds. Every other one is
/// answered by the other server.
fn round(server: &mut Server, other: &mut Server, session: SessionId) -> Result<(), TestCaseError> {
    let mut body = Vec::new();
    let mut lanes = Vec::new();
    server.collect(&mut lanes);
    lanes.extend((0..18).map(|lane| LaneRef { session, lane }));
    for at in lanes {
        let Some(incoming) = server.take(at, &mut body) else {
            if let Some(request_id) = server.detach(at) {
                prop_assert_eq!(other.claim(at, request_id), None);
                prop_assert!(other.end_given_up(session, request_id));
            }
            continue;
        };
        prop_assert!(body.len() + HEADER_BYTES <= REQUEST_BYTES_MAX);
        // Decoding may fail, and may not panic.
        let _request = mayfly_wire::Request::decode(incoming.op, &body);
        let request_id = incoming.request_id;
        prop_assert_eq!(other.claim(at, request_id), None);
        let answering = if at.lane % 3 == 0 {
            // Until it is given up.
            server.leave(at);
            continue;
        } else if at.lane % 2 == 0 {
            &mut *server
        } else {
            server.leave(at);
            prop_assert!(server.reply_body(at).is_none());
            prop_assert_eq!(other.claim(at, request_id.wrapping_add(1)), None);
            prop_assert_eq!(other.claim(at, request_id), Some((incoming.op, request_id)));
            &mut *other
        };
        if let Some(reply) = answering.reply_body(at) {
            reply[0] = 1;
        }
        let reply = Reply { op: incoming.op, request_id, status: 0, body_bytes: 1, transaction: 1 };
        answering.store_reply(at, &reply);
        answering.publish(at);
        prop_assert!(answering.reply_body(at).is_none());
        prop_assert_eq!(answering.claim(at, request_id), None);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn whatever_a_client_scribbles_the_server_stays_sound(
        scribbles in proptest::collection::vec(scribble(), 1..60),
    ) {
        let session = SessionId(5);
        let settings = NodeSettings { instance: 1, times: 0, locks: 0, deadline_ms: 1 };
        let (_node_fd, node) = region::make_node(&settings).expect("a node region");
        let fd = region::make_session(session, 1).expect("a session region");
        let client = Client::map(&fd);
        let mut server = Server::new(node);
        let mapping = SessionMapping::map(&fd).expect("mapped");
        let shared = server.add_session(session, mapping, &mut Vec::new()).expect("a number");
        let mut other = Server::new(node);
        other.share_session(shared);
        for scribble in &scribbles {
            client.act(scribble);
            node.head.pending_summary.store(u64::MAX, SeqCst);
            node.head.sessions_pending[0].store(u64::MAX, SeqCst);
            round(&mut server, &mut other, session)?;
        }
    }
}

//! The memory that a process shares with its daemon, written by a process that has gone mad.

use std::{sync::OnceLock, sync::atomic::Ordering::SeqCst};

use mayfly_transport_shm::{
    layout::{LANE_REQUEST, NodeRegion},
    region::{self, NodeSettings, SessionMapping},
    server::{LaneRef, Reply, Server},
};
use mayfly_types::{
    SessionId,
    limits::{LANES, REQUEST_BYTES_MAX},
};
use mayfly_wire::{HEADER_BYTES, Op, Request};

use crate::{input::Input, process::Process};

const SESSION: SessionId = SessionId(5);

/// One for the whole run: it is mapped for good.
fn node() -> &'static NodeRegion {
    static NODE: OnceLock<&NodeRegion> = OnceLock::new();
    NODE.get_or_init(|| {
        let settings = NodeSettings { instance: 1, times: 0, locks: 0, deadline_ms: 1 };
        region::make_node(&settings).expect("there is memory").1
    })
}

/// A request with a right header.
fn submit(process: &Process, lane: usize, input: &mut Input<'_>) {
    let (which, request_id) = (input.u8(), u64::from(input.u8()));
    let count = usize::from(input.u8());
    let op = Op::ALL[usize::from(which) % Op::ALL.len()];
    process.submit(lane, op, request_id, input.take(count));
}

pub(crate) fn run(bytes: &[u8]) {
    let node = node();
    let process = Process::new(SESSION);
    let mapping = SessionMapping::map(&process.0).expect("it is a session's");
    let mut server = Server::new(node);
    let Some(shared) = server.add_session(SESSION, mapping, &mut Vec::new()) else { return };
    let mut other = Server::new(node);
    other.share_session(shared);
    let mut input = Input::new(bytes);
    while !input.is_over() {
        let what = input.u8();
        let lane = usize::from(what >> 4) % LANES;
        match what % 5 {
            0 => process.write(usize::from(input.u16()) % 4096, &input.u32().to_le_bytes()),
            1 => {
                let count = usize::from(input.u8());
                process.request(lane, input.take(count));
            }
            2 => process.words(lane, input.u64(), input.u32(), LANE_REQUEST),
            3 => submit(&process, lane, &mut input),
            _ => round(&mut server, &mut other),
        }
    }
    round(&mut server, &mut other);
}

/// The daemon looks at all lanes; every other one is answered by another shard's thread.
fn round(server: &mut Server, other: &mut Server) {
    let node = node();
    node.head.pending_summary.store(u64::MAX, SeqCst);
    node.head.sessions_pending[0].store(u64::MAX, SeqCst);
    let (mut body, mut lanes) = (Vec::new(), Vec::new());
    server.collect(&mut lanes);
    lanes.extend((0..LANES as u32 + 2).map(|lane| LaneRef { session: SESSION, lane }));
    for at in lanes {
        server.judge(at, |transaction| transaction % 2 == 0);
        let Some(incoming) = server.take(at, &mut body) else { continue };
        assert!(body.len() + HEADER_BYTES <= REQUEST_BYTES_MAX);
        let _request = Request::decode(incoming.op, &body);
        let request_id = incoming.request_id;
        let answering = if at.lane % 2 == 0 {
            &mut *server
        } else {
            server.leave(at);
            assert!(server.reply_body(at).is_none());
            assert_eq!(other.claim(at, request_id).map(|(op, _)| op), Some(incoming.op));
            &mut *other
        };
        if let Some(reply) = answering.reply_body(at) {
            reply[0] = 1;
        }
        let reply = Reply { op: incoming.op, request_id, status: 0, body_bytes: 1, transaction: 1 };
        answering.store_reply(at, &reply);
        answering.publish(at);
        assert!(answering.reply_body(at).is_none());
        assert_eq!(answering.claim(at, request_id), None);
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![
        vec![3, 0, 1, 4, 1, 2, 3, 4, 4],
        vec![2, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 4],
        vec![0, 64, 0, 3, 0, 0, 0, 4, 19, 7, 2, 2, 9, 9, 4],
    ]
}

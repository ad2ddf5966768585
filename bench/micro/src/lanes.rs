//! A client and a server on the lanes of one session, in one process.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::JoinHandle,
};

use mayfly_transport::{Patience, Transport};
use mayfly_transport_shm::{
    ShmTransport,
    layout::{DAEMON_AWAKE, NodeRegion},
    region::{self, NodeSettings, SessionMapping},
    server::{Incoming, LaneRef, Reply, Server},
};
use mayfly_types::{FileId, OpenRef, SessionId};
use mayfly_wire::{Close, Read, Request, Stat, Target, WALK_FOLLOW, Walk, Wire, Writer};

use crate::messages::attr;

/// What a file of mdtest-hard has, bytes.
const READ_BYTES: u32 = 3901;

/// Looks in vain before the server lets others run.
const IDLE_MAX: u32 = 500;

fn node() -> &'static NodeRegion {
    let settings = NodeSettings { instance: 7, times: 0, locks: 1, deadline_ms: 10_000 };
    let (_fd, node) = region::make_node(&settings).expect("memory");
    node.head.daemon_state.store(DAEMON_AWAKE, SeqCst);
    node
}

fn connect(node: &'static NodeRegion) -> (ShmTransport, Echo) {
    let session = SessionId(1);
    let fd = region::make_session(session, std::process::id()).expect("memory");
    let client = region::connect(node, &fd).expect("a session region");
    let mut server = Server::new(node);
    let mapping = SessionMapping::map(&fd).expect("a session region");
    server.add_session(session, mapping, &mut Vec::new()).expect("the number is in range");
    let data = vec![7; READ_BYTES as usize];
    (client, Echo { server, lanes: Vec::new(), body: Vec::new(), data })
}

/// Answers every request with a reply of its kind, and keeps nothing.
struct Echo {
    server: Server,
    lanes: Vec<LaneRef>,
    body: Vec<u8>,
    data: Vec<u8>,
}

impl Echo {
    /// Answers what has come; false when nothing has.
    fn round(&mut self) -> bool {
        self.server.collect(&mut self.lanes);
        let lanes = std::mem::take(&mut self.lanes);
        for at in &lanes {
            let mut body = std::mem::take(&mut self.body);
            if let Some(incoming) = self.server.take(*at, &mut body) {
                self.answer(*at, &incoming, &body);
            }
            self.body = body;
        }
        let any = !lanes.is_empty();
        self.lanes = lanes;
        self.lanes.clear();
        any
    }

    fn answer(&mut self, at: LaneRef, incoming: &Incoming, body: &[u8]) {
        let Incoming { op, request_id, .. } = *incoming;
        let request = Request::decode(op, body).expect("a request of this module");
        let mut to = Writer::new(self.server.reply_body(at).expect("the lane was taken"));
        match request {
            Request::Stat(_) => attr().encode(&mut to).expect("room"),
            Request::Read(read) => {
                let bytes = &self.data[..read.count as usize];
                mayfly_wire::Data { object: false, bytes }.encode(&mut to).expect("room");
            }
            _ => {}
        }
        let body_bytes = to.used();
        self.server
            .store_reply(at, &Reply { op, request_id, status: 0, body_bytes, transaction: 0 });
        self.server.publish(at);
    }
}

/// Requests that nobody waits for, taken, answered and shown by the thread that sent them: all that
/// both sides do for a request but waiting and decoding the reply.
pub(crate) fn submitted(count: u64) {
    let (client, mut echo) = connect(node());
    for _ in 0..count {
        client
            .send_unawaited(&Close { open: OpenRef { index: 7, generation: 3 } })
            .expect("a free lane");
        assert!(echo.round());
    }
}

/// A client with a server in another thread, which spins.
#[derive(Debug)]
pub struct RoundTrip {
    client: ShmTransport,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Default for RoundTrip {
    fn default() -> Self {
        Self::new()
    }
}

impl RoundTrip {
    /// Starts the server.
    #[must_use]
    pub fn new() -> RoundTrip {
        let (client, mut echo) = connect(node());
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut idle = 0_u32;
            while !until.load(Relaxed) {
                idle = if echo.round() { 0 } else { idle + 1 };
                std::hint::spin_loop();
                if idle > IDLE_MAX {
                    // Both may have come to one processor.
                    idle = 0;
                    std::thread::yield_now();
                }
            }
        });
        RoundTrip { client, stop, thread: Some(thread) }
    }

    /// A path there, attributes back.
    pub fn stat(&self) {
        let walk = Walk {
            start: FileId::ROOT,
            flags: WALK_FOLLOW,
            path: std::hint::black_box(b"/run-17/d4711/f123456"),
        };
        self.client.exchange(&Stat { target: Target::Path(walk) }, Patience::Deadline, |answer| {
            std::hint::black_box(answer);
        });
    }

    /// The content of a small file back, copied into `to`.
    pub fn read(&self, to: &mut Vec<u8>) {
        let open = OpenRef { index: 7, generation: 3 };
        let read = Read { open, offset: 0, count: READ_BYTES };
        self.client.exchange(&read, Patience::Deadline, |answer| {
            let mayfly_transport::Answer::Done(data) = answer else { panic!("no answer") };
            to.clear();
            to.extend_from_slice(data.bytes);
        });
    }

    /// Nothing there and back but the operation's number.
    pub fn ping(&self) {
        self.client.exchange(&mayfly_wire::Ping {}, Patience::Deadline, |answer| {
            std::hint::black_box(answer);
        });
    }
}

impl Drop for RoundTrip {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

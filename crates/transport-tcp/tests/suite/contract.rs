//! What the suite needs of a transport, and what it has on top of it.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use mayfly_transport_tcp::{Class, Event, Lane, NodeId, Request, RequestId, SendError, Ticket};

/// No test waits longer for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
/// Requests of a class on the message lane that may wait for the program, in the suite's networks.
pub(crate) const MESSAGE_CREDITS: u32 = 8;
/// The same on the bulk lane.
pub(crate) const BULK_CREDITS: u32 = 4;
/// Requests of a class that may be without a reply.
pub(crate) const OUTSTANDING_MAX: u32 = 512;

/// One node's transport.
pub(crate) trait Node {
    fn request(&self, request: Request) -> Result<RequestId, SendError>;
    fn reply(&self, ticket: Ticket, lane: Lane, body: Vec<u8>);
    fn cancel(&self, id: RequestId);
    fn take(&self, events: &mut Vec<Event>);
}

/// Some nodes and what is between them.
pub(crate) trait Network {
    type Node: Node + Sync;
    /// Nodes 0 to `nodes` - 1 that know of each other.
    fn new(nodes: u32) -> Self;
    fn node(&self, node: u32) -> &Self::Node;
    /// Breaks the connections of two nodes.
    fn cut(&self, one: u32, other: u32);
    /// Lets nothing through between two nodes, in silence.
    fn hold(&self, one: u32, other: u32);
    /// Lets everything through again.
    fn release(&self, one: u32, other: u32);
    /// A node dies.
    fn stop(&mut self, node: u32);
    /// A node that was stopped starts, as a new incarnation.
    fn start(&mut self, node: u32);
}

/// A node, and what it was told and the test has not looked at yet.
pub(crate) struct Seat<'n, N> {
    pub(crate) node: &'n N,
    seen: RefCell<Vec<Event>>,
}

impl<'n, N: Node> Seat<'n, N> {
    pub(crate) fn new(node: &'n N) -> Self {
        Seat { node, seen: RefCell::default() }
    }

    /// Sends a small request of a class with a long deadline.
    pub(crate) fn ask(&self, to: u32, class: Class, body: &[u8]) -> RequestId {
        self.node.request(request(to, class, body)).expect("there is room")
    }

    /// The first event that `wanted` accepts; others stay for later.
    pub(crate) fn wait<T>(&self, what: &str, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut seen = self.seen.borrow_mut();
            let found = seen.iter().enumerate().find_map(|(at, it)| Some((at, wanted(it)?)));
            if let Some((at, found)) = found {
                seen.remove(at);
                return found;
            }
            self.node.take(&mut seen);
            assert!(Instant::now() < until, "{what} did not come; there is {seen:?}");
            drop(seen);
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// The next request, its class and body.
    pub(crate) fn next_request(&self) -> (Ticket, Class, Vec<u8>) {
        self.wait("a request", |event| match event {
            Event::Request { ticket, class, body, .. } => Some((*ticket, *class, body.clone())),
            _ => None,
        })
    }

    /// The reply to a request.
    pub(crate) fn reply_to(&self, id: RequestId) -> Vec<u8> {
        self.wait("the reply", |event| match event {
            Event::Reply { id: it, body, .. } if *it == id => Some(body.clone()),
            Event::Lost { id: it, cause, .. } if *it == id => panic!("it was lost: {cause:?}"),
            _ => None,
        })
    }

    /// Answers the next request with its own body.
    pub(crate) fn echo(&self) {
        let (ticket, _, body) = self.next_request();
        let lane =
            if body.len() > Lane::Messages.bytes_max() { Lane::Bulk } else { Lane::Messages };
        self.node.reply(ticket, lane, body);
    }
}

/// A request on the message lane with a long deadline.
pub(crate) fn request(to: u32, class: Class, body: &[u8]) -> Request {
    let (to, body) = (NodeId(to), body.to_vec().into());
    Request { to, lane: Lane::Messages, class, patience_ms: 60_000, may_wait: false, body }
}

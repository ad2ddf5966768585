//! Nodes of this crate in one process, with a proxy on each way between two of them.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    sync::{Arc, Mutex, OnceLock, Weak},
};

use mayfly_transport_tcp::{
    Config, Encryption, Endpoint, Event, Lane, MonotonicClock, NodeId, Request, RequestId, Secret,
    SendError, Ticket, limits::Limits,
};

use crate::contract::{BULK_CREDITS, MESSAGE_CREDITS, Network, Node, OUTSTANDING_MAX};
use crate::proxy::Proxy;

/// Lines for people.
pub(crate) type Lines = Arc<Mutex<Vec<String>>>;

pub(crate) fn limits() -> Limits {
    Limits {
        message_credits: MESSAGE_CREDITS,
        bulk_credits: BULK_CREDITS,
        outstanding_max: OUTSTANDING_MAX,
        probe_after_ms: 300,
        probe_ms: 700,
        backoff_ms: 5,
        backoff_ms_max: 50,
        ..Limits::default()
    }
}

/// A node of an instance, listening anywhere.
pub(crate) fn config(node: u32, incarnation: u64, lines: &Lines) -> Config {
    let lines = Arc::clone(lines);
    Config {
        node: NodeId(node),
        incarnation,
        secret: Secret([42; 32]),
        instance: [1; 16],
        listener: TcpListener::bind("127.0.0.1:0").expect("loopback has ports"),
        encryption: Encryption::Off,
        // Whoever is at the other end may have fewer or more.
        limits: Limits { threads: 1 + node as usize % 3, ..limits() },
        clock: Arc::new(MonotonicClock::default()),
        wake: Box::new(|_| {}),
        log: Box::new(move |line| lines.lock().expect("no panic").push(line.to_owned())),
    }
}

/// A node whose `answer` is called on its network thread with every event.
pub(crate) fn answering(
    base: Config,
    answer: impl Fn(&Endpoint, Event) + Send + Sync + 'static,
) -> Arc<Endpoint> {
    let door: Arc<OnceLock<Weak<Endpoint>>> = Arc::default();
    let inside = Arc::clone(&door);
    let wake = move |_| {
        let Some(endpoint) = inside.get().and_then(Weak::upgrade) else { return };
        let mut events = Vec::new();
        endpoint.take(&mut events);
        events.into_iter().for_each(|event| answer(&endpoint, event));
    };
    let config = Config { wake: Box::new(wake), ..base };
    let endpoint = Arc::new(Endpoint::new(config).expect("there are descriptors"));
    door.set(Arc::downgrade(&endpoint)).expect("it is set once");
    endpoint
}

impl Node for Endpoint {
    fn request(&self, request: Request) -> Result<RequestId, SendError> {
        Endpoint::request(self, request)
    }

    fn reply(&self, ticket: Ticket, lane: Lane, body: Vec<u8>) {
        Endpoint::reply(self, ticket, lane, body.into()).expect("it is short enough");
    }

    fn cancel(&self, id: RequestId) {
        Endpoint::cancel(self, id);
    }

    fn take(&self, events: &mut Vec<Event>) {
        Endpoint::take(self, events);
    }
}

pub(crate) struct Tcp<const ENCRYPTED: bool> {
    nodes: Vec<Option<Endpoint>>,
    incarnations: u64,
    /// From the first to the second.
    proxies: BTreeMap<(u32, u32), Proxy>,
    lines: Lines,
}

impl<const ENCRYPTED: bool> Tcp<ENCRYPTED> {
    fn both(&self, one: u32, other: u32) -> impl Iterator<Item = &Proxy> {
        [(one, other), (other, one)].into_iter().map(|way| &self.proxies[&way])
    }
}

impl<const ENCRYPTED: bool> Network for Tcp<ENCRYPTED> {
    type Node = Endpoint;

    fn new(nodes: u32) -> Self {
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        let proxies = pairs.filter(|(from, to)| from != to).map(|way| (way, Proxy::new()));
        let mut network = Tcp {
            nodes: (0..nodes).map(|_| None).collect(),
            incarnations: 0,
            proxies: proxies.collect(),
            lines: Lines::default(),
        };
        (0..nodes).for_each(|node| network.start(node));
        network
    }

    fn node(&self, node: u32) -> &Endpoint {
        self.nodes[node as usize].as_ref().expect("it runs")
    }

    fn cut(&self, one: u32, other: u32) {
        self.both(one, other).for_each(Proxy::cut);
    }

    fn hold(&self, one: u32, other: u32) {
        self.both(one, other).for_each(|proxy| proxy.hold(true));
    }

    fn release(&self, one: u32, other: u32) {
        self.both(one, other).for_each(|proxy| proxy.hold(false));
    }

    fn stop(&mut self, node: u32) {
        self.nodes[node as usize] = None;
        for proxy in self.proxies.iter().filter(|((_, to), _)| *to == node).map(|(_, it)| it) {
            proxy.lead_to(None);
        }
    }

    fn start(&mut self, node: u32) {
        self.incarnations += 1;
        let encryption = if ENCRYPTED { Encryption::On } else { Encryption::Off };
        let config = Config { encryption, ..config(node, self.incarnations, &self.lines) };
        let endpoint = Endpoint::new(config).expect("there are descriptors");
        for ((from, to), proxy) in &self.proxies {
            if *to == node {
                proxy.lead_to(Some(endpoint.local_address()));
            }
            if *from == node {
                endpoint.set_address(NodeId(*to), Some(proxy.address()));
            }
        }
        self.nodes[node as usize] = Some(endpoint);
    }
}

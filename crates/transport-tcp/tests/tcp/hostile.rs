//! What strangers, and networks that lie, cannot do.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use mayfly_transport_tcp::{
    Cause, Class, Clock, Config, Encryption, Endpoint, Event, Lane, MonotonicClock, NodeId,
    PROTOCOL_VERSION, Request, Secret, limits::Limits,
};

use crate::contract::{PATIENCE, Seat, request};
use crate::network::{Lines, config, limits};
use crate::proxy::Proxy;

fn start(config: Config) -> Endpoint {
    Endpoint::new(config).expect("there are descriptors")
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn says(lines: &Lines, text: &str) -> bool {
    lines.lock().expect("no panic").iter().any(|line| line.contains(text))
}

fn until_said(lines: &Lines, text: &str) {
    until(text, || says(lines, text));
}

/// A connection that says nothing more is closed by the other side.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).expect("it listens")
}

/// Two nodes of which the first reaches the second through a proxy.
fn pair(first: Config, second: Config) -> (Endpoint, Endpoint, Proxy) {
    let (one, two, proxy) = (start(first), start(second), Proxy::new());
    proxy.lead_to(Some(two.local_address()));
    one.set_address(NodeId(1), Some(proxy.address()));
    (one, two, proxy)
}

fn exchange(one: &Endpoint, two: &Endpoint, body: &[u8]) {
    let (asker, server) = (Seat::new(one), Seat::new(two));
    let id = asker.ask(1, Class::Leaf, body);
    server.echo();
    assert_eq!(asker.reply_to(id), body);
}

/// The request is lost and the other node hears nothing of it.
fn is_kept_apart(one: &Endpoint, two: &Endpoint) {
    let seat = Seat::new(one);
    let hurried = Request { patience_ms: 500, ..request(1, Class::Leaf, b"psst") };
    one.request(hurried).expect("there is room");
    seat.wait("its loss", |event| {
        matches!(event, Event::Lost { cause: Cause::Deadline, .. }).then_some(())
    });
    let mut events = Vec::new();
    two.take(&mut events);
    assert!(events.is_empty(), "{events:?}");
}

#[test]
fn garbage_is_refused_at_its_first_bytes_and_said_once() {
    let lines = Lines::default();
    let node = start(config(1, 1, &lines));
    for _ in 0..20 {
        let mut stream = connect(node.local_address());
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it listens");
        assert!(is_closed(&mut stream));
    }
    until_said(&lines, "does not speak this protocol");
    assert_eq!(lines.lock().expect("no panic").len(), 1);
}

#[test]
fn another_version_is_refused_by_name() {
    let lines = Lines::default();
    let node = start(config(1, 1, &lines));
    let mut stream = connect(node.local_address());
    let next = (PROTOCOL_VERSION + 1).to_le_bytes();
    stream.write_all(&[&b"MFYN"[..], &next].concat()).expect("it listens");
    assert!(is_closed(&mut stream));
    until_said(&lines, "another version");
}

#[test]
fn who_has_another_secret_is_refused_and_heard_by_nobody() {
    let lines = Lines::default();
    let stranger = Config { secret: Secret([7; 32]), ..config(0, 1, &Lines::default()) };
    let (one, two, _proxy) = pair(stranger, config(1, 1, &lines));
    is_kept_apart(&one, &two);
    until_said(&lines, "does not know the secret");
}

#[test]
fn another_instance_another_node_and_another_encryption_are_refused() {
    let with = |change: fn(&mut Config), text: &str| {
        let lines = Lines::default();
        let mut other = config(1, 1, &lines);
        change(&mut other);
        let (one, two, _proxy) = pair(config(0, 1, &Lines::default()), other);
        is_kept_apart(&one, &two);
        until_said(&lines, text);
    };
    with(|config| config.instance = [2; 16], "another instance");
    with(|config| config.node = NodeId(5), "another node");
    with(|config| config.encryption = Encryption::On, "only one side wants encryption");
}

#[test]
fn a_replayed_connection_delivers_nothing() {
    for encryption in [Encryption::Off, Encryption::On] {
        let lines = Lines::default();
        let with = |node, lines| Config { encryption, ..config(node, 1, lines) };
        let (one, two, proxy) = pair(with(0, &Lines::default()), with(1, &lines));
        exchange(&one, &two, b"do it once");
        drop(one);
        for recorded in proxy.recorded() {
            let mut stream = connect(two.local_address());
            stream.write_all(&recorded).expect("it listens");
            let mut answer = vec![0; 64];
            stream.read_exact(&mut answer).expect("the first message is believed so far");
            assert!(is_closed(&mut stream));
        }
        until_said(&lines, "does not know the secret");
        let mut events = Vec::new();
        two.take(&mut events);
        let is_request = |event: &Event| matches!(event, Event::Request { .. });
        assert!(!events.iter().any(is_request), "{events:?}");
    }
}

#[test]
fn a_flood_of_connections_keeps_no_honest_node_out() {
    let lines = Lines::default();
    let limits = Limits { handshakes_max: 16, handshake_ms: 60_000, ..limits() };
    let flooded = Config { limits, ..config(1, 1, &lines) };
    let (one, two, _proxy) = pair(config(0, 1, &Lines::default()), flooded);
    let mut flood: Vec<_> = (0..200).map(|_| connect(two.local_address())).collect();
    exchange(&one, &two, b"let me through");
    until_said(&lines, "too many handshakes");
    assert!(is_closed(&mut flood[0]), "the oldest one is closed");
}

#[test]
fn who_dribbles_a_handshake_is_closed_at_its_deadline() {
    let lines = Lines::default();
    let limits = Limits { handshake_ms: 300, ..limits() };
    let node = start(Config { limits, ..config(1, 1, &lines) });
    let mut stream = connect(node.local_address());
    stream.write_all(b"MFYN\x01").expect("it listens");
    assert!(is_closed(&mut stream));
    until_said(&lines, "its handshake took too long");
}

#[test]
fn a_frame_that_never_ends_ends_its_connection_and_comes_again() {
    let lines = Lines::default();
    let limits = Limits { frame_ms: 300, probe_after_ms: 600_000, probe_ms: 600_000, ..limits() };
    let slow = |node, lines| Config { limits, ..config(node, 1, lines) };
    let (one, two, proxy) = pair(slow(0, &Lines::default()), slow(1, &lines));
    exchange(&one, &two, b"hello");
    proxy.silent_after(2_000);
    let (asker, server) = (Seat::new(&one), Seat::new(&two));
    let id = asker.ask(1, Class::Shard, &[5; 30_000]);
    until_said(&lines, "a frame took too long");
    proxy.silent_after(0);
    server.echo();
    assert_eq!(asker.reply_to(id), [5; 30_000]);
}

#[test]
fn a_changed_byte_of_a_frame_costs_a_connection_and_no_message() {
    for encryption in [Encryption::Off, Encryption::On] {
        let lines = Lines::default();
        let with = |node, lines| Config { encryption, ..config(node, 1, lines) };
        let (one, two, proxy) = pair(with(0, &Lines::default()), with(1, &lines));
        exchange(&one, &two, b"hello");
        proxy.flip_at(500);
        exchange(&one, &two, &[9; 3_000]);
        until_said(&lines, "break the protocol");
    }
}

#[test]
fn encrypted_messages_are_not_to_be_read_on_the_way() {
    const WORDS: &[u8] = b"words that are easily found";
    for encryption in [Encryption::Off, Encryption::On] {
        let with = |node| Config { encryption, ..config(node, 1, &Lines::default()) };
        let (one, two, proxy) = pair(with(0), with(1));
        exchange(&one, &two, WORDS);
        let recorded = proxy.recorded().concat();
        let found = recorded.windows(WORDS.len()).any(|window| window == WORDS);
        assert_eq!(found, encryption == Encryption::Off);
    }
}

#[test]
fn two_nodes_that_connect_to_each_other_end_with_one_connection() {
    for _ in 0..20 {
        let lines = Lines::default();
        let (one, two, forth) = pair(config(0, 1, &lines), config(1, 1, &lines));
        let back = Proxy::new();
        back.lead_to(Some(one.local_address()));
        two.set_address(NodeId(0), Some(back.address()));
        let (asker, other) = (Seat::new(&one), Seat::new(&two));
        let ids = (asker.ask(1, Class::Client, b"a"), other.ask(0, Class::Client, b"b"));
        other.echo();
        asker.echo();
        assert_eq!((asker.reply_to(ids.0), other.reply_to(ids.1)), (b"a".into(), b"b".into()));
        until("one connection", || forth.open() + back.open() == 1);
    }
}

#[test]
fn messages_and_bulk_take_a_connection_each_however_many_there_are() {
    let lines = Lines::default();
    let (one, two, proxy) = pair(config(0, 1, &lines), config(1, 1, &lines));
    let (asker, server) = (Seat::new(&one), Seat::new(&two));
    for _ in 0..50 {
        let bulk = Request { lane: Lane::Bulk, ..request(1, Class::Leaf, &[1; 100_000]) };
        asker.ask(1, Class::Client, b"small");
        one.request(bulk).expect("there is room");
    }
    (0..100).for_each(|_| server.echo());
    assert_eq!(proxy.recorded().len(), 2);
}

/// Time as the test says.
#[derive(Default)]
struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn now_ns(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

#[test]
fn deadlines_are_those_of_the_injected_clock() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let clock = Arc::new(HandClock::default());
    let injected: Arc<dyn Clock> = Arc::<HandClock>::clone(&clock);
    let node = start(Config { clock: injected, ..config(0, 1, &Lines::default()) });
    let patient = Request { patience_ms: 3_600_000, ..request(1, Class::Client, b"") };
    let id = node.request(patient).expect("there is room");
    clock.0.store(HOUR_NS - 1, SeqCst);
    node.look();
    std::thread::sleep(Duration::from_millis(20));
    let mut events = Vec::new();
    node.take(&mut events);
    assert!(events.is_empty(), "{events:?}");
    clock.0.store(HOUR_NS, SeqCst);
    node.look();
    let lost = |event: &Event| match event {
        Event::Lost { id, cause, .. } => Some((*id, *cause)),
        _ => None,
    };
    assert_eq!(Seat::new(&node).wait("its loss", lost), (id, Cause::Deadline));
}

/// Counts how often it is asked.
#[derive(Default)]
struct CountingClock {
    clock: MonotonicClock,
    asked: AtomicU64,
}

impl Clock for CountingClock {
    fn now_ns(&self) -> u64 {
        self.asked.fetch_add(1, SeqCst);
        self.clock.now_ns()
    }
}

#[test]
fn an_endpoint_with_nothing_to_do_looks_at_no_clock() {
    let clock = Arc::new(CountingClock::default());
    let injected: Arc<dyn Clock> = Arc::<CountingClock>::clone(&clock);
    let lines = Lines::default();
    let watched = Config { clock: injected, ..config(0, 1, &lines) };
    let (one, two, _proxy) = pair(watched, config(1, 1, &lines));
    exchange(&one, &two, b"hello");
    // What is under way ends: an acknowledgement, and the last of the timers.
    let mut before = u64::MAX;
    until("rest", || {
        std::thread::sleep(Duration::from_millis(700));
        std::mem::replace(&mut before, clock.asked.load(SeqCst)) == before
    });
    let rested = clock.asked.load(SeqCst);
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(clock.asked.load(SeqCst), rested);
    exchange(&one, &two, b"and it goes on");
}

//! Who is woken when nothing happens any more.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    thread::{self, ThreadId, sleep},
    time::{Duration, Instant},
};

use mayfly_transport_tcp::{
    Class, Clock, Config, Endpoint, Event, Lane, MonotonicClock, NodeId, Request, limits::Limits,
};

use crate::contract::{PATIENCE, request};
use crate::network::{Lines, answering, config};

/// Two looks at the clock that are further apart belong to two wake-ups.
const APART: Duration = Duration::from_millis(150);
/// What may wait does so for at least this time.
const WAITS: Duration = Duration::from_millis(5);
/// Longer than an acknowledgement waits, and a probe.
const LONG: Duration = Duration::from_millis(1_600);

/// A clock that remembers when it was asked, and when by the network thread.
#[derive(Default)]
struct Asked {
    clock: MonotonicClock,
    times: Mutex<Vec<u64>>,
    by_network: Mutex<Vec<u64>>,
}

impl Clock for Asked {
    fn now_ns(&self) -> u64 {
        let now_ns = self.clock.now_ns();
        self.times.lock().expect("no panic").push(now_ns);
        if std::thread::current().name() == Some("mayfly-net") {
            self.by_network.lock().expect("no panic").push(now_ns);
        }
        now_ns
    }
}

impl Asked {
    /// How often somebody woke up after this time.
    fn wakes_since(&self, since_ns: u64) -> usize {
        let times = self.times.lock().expect("no panic");
        let mut last = since_ns;
        let mut wakes = 0;
        for at in times.iter().filter(|at| **at > since_ns) {
            wakes += usize::from(at - last > APART.as_nanos() as u64);
            last = *at;
        }
        wakes
    }
}

fn until_replied(endpoint: &Endpoint) {
    let (end, mut events) = (Instant::now() + PATIENCE, Vec::new());
    while !events.iter().any(|event| matches!(event, Event::Reply { .. })) {
        assert!(Instant::now() < end, "no reply");
        sleep(Duration::from_millis(1));
        endpoint.take(&mut events);
    }
}

/// Waits until the network thread has done what it was woken for; the time then.
fn until_calm(clock: &Asked) -> u64 {
    loop {
        let since_ns = clock.clock.now_ns();
        sleep(Duration::from_millis(50));
        let looks = clock.by_network.lock().expect("no panic");
        if looks.iter().all(|at| *at <= since_ns) {
            return clock.clock.now_ns();
        }
    }
}

/// How often a server wakes up after its last reply of so many bytes. It used to wake up for the
/// acknowledgement that the reply had carried, too, and to see whether it had to ask if the other
/// side lives.
fn wakes_after_replies_of(bytes: usize) -> usize {
    let (clock, lines) = (Arc::<Asked>::default(), Lines::default());
    let calm = |node| Config { limits: Limits::default(), ..config(node, 1, &lines) };
    // In its network thread, as a daemon does.
    let server = answering(Config { clock: clock.clone(), ..calm(1) }, move |endpoint, event| {
        if let Event::Request { ticket, .. } = event {
            let body = vec![7; bytes].into();
            endpoint.reply(ticket, Lane::Messages, body).expect("it is short");
        }
    });
    let client = Endpoint::new(calm(0)).expect("there are descriptors");
    client.set_address(NodeId(1), Some(server.local_address()));
    server.set_address(NodeId(0), Some(client.local_address()));
    for _ in 0..2 {
        client.request(request(1, Class::Client, b"question")).expect("there is room");
        until_replied(&client);
        sleep(Duration::from_millis(5));
    }
    let since_ns = clock.clock.now_ns();
    sleep(LONG);
    clock.wakes_since(since_ns)
}

/// To keep it costs less than to wake two nodes so that it can be forgotten.
#[test]
fn nobody_is_woken_to_acknowledge_a_short_reply() {
    assert_eq!(wakes_after_replies_of(200), 0);
}

#[test]
fn a_server_is_woken_once_after_its_last_long_reply() {
    assert_eq!(wakes_after_replies_of(20_000), 1);
}

/// It used to be woken by each request that came when nothing else was under way, to know when to
/// ask if the other side lives.
#[test]
fn a_request_soon_after_another_does_not_wake_its_senders_network_thread() {
    const ANSWERS_AFTER: Duration = Duration::from_millis(300);
    let (clock, lines) = (Arc::<Asked>::default(), Lines::default());
    let calm = |node| Config { limits: Limits::default(), ..config(node, 1, &lines) };
    let server = answering(calm(1), |endpoint, event| {
        if let Event::Request { ticket, .. } = event {
            sleep(ANSWERS_AFTER);
            endpoint.reply(ticket, Lane::Messages, Vec::new().into()).expect("it is short");
        }
    });
    let client = Endpoint::new(Config { clock: clock.clone(), ..calm(0) }).expect("descriptors");
    client.set_address(NodeId(1), Some(server.local_address()));
    server.set_address(NodeId(0), Some(client.local_address()));
    client.request(request(1, Class::Client, b"question")).expect("there is room");
    until_replied(&client);
    let since_ns = until_calm(&clock);
    client.request(request(1, Class::Client, b"question")).expect("there is room");
    sleep(ANSWERS_AFTER / 2);
    let looks = clock.by_network.lock().expect("no panic").clone();
    assert!(looks.iter().all(|at| *at <= since_ns), "{looks:?} since {since_ns}");
}

/// Each used to be a system call of its sender's, and woke its receiver.
#[test]
fn replies_that_were_queued_travel_together_and_wake_their_receiver_once() {
    const REQUESTS: usize = 16;
    const PAUSE: Duration = Duration::from_millis(50);
    let (clock, lines) = (Arc::<Asked>::default(), Lines::default());
    let server = Endpoint::new(config(1, 1, &lines)).expect("there are descriptors");
    let client = Config { clock: clock.clone(), ..config(0, 1, &lines) };
    let client = Endpoint::new(client).expect("there are descriptors");
    client.set_address(NodeId(1), Some(server.local_address()));
    server.set_address(NodeId(0), Some(client.local_address()));
    for _ in 0..REQUESTS {
        client.request(request(1, Class::Leaf, b"question")).expect("there is room");
    }
    let (end, mut requests) = (Instant::now() + PATIENCE, Vec::new());
    let is_request = |event: &Event| matches!(event, Event::Request { .. });
    while requests.iter().filter(|event| is_request(event)).count() < REQUESTS {
        assert!(Instant::now() < end, "no requests");
        sleep(Duration::from_millis(1));
        server.take(&mut requests);
    }
    sleep(PAUSE);
    let since_ns = clock.clock.now_ns();
    for event in requests {
        if let Event::Request { ticket, .. } = event {
            server
                .queue_reply(ticket, Lane::Messages, b"answer".to_vec().into(), false)
                .expect("short");
        }
    }
    server.flush();
    let (end, mut replies) = (Instant::now() + PATIENCE, Vec::new());
    let is_reply = |event: &&Event| matches!(event, Event::Reply { .. });
    while replies.iter().filter(is_reply).count() < REQUESTS {
        assert!(Instant::now() < end, "no replies");
        sleep(PAUSE);
        client.take(&mut replies);
    }
    // It looks at the clock when it wakes up, and before it sleeps.
    let looks = clock.by_network.lock().expect("no panic").clone();
    let looks = looks.iter().filter(|at| **at > since_ns).count();
    assert!(looks < REQUESTS / 2, "{looks} looks at the clock");
}

/// A close at another node used to wake that node and this one for itself.
#[test]
fn what_may_wait_goes_with_the_next_request_and_arrives_before_it() {
    let lines = Lines::default();
    let server = Endpoint::new(config(1, 1, &lines)).expect("there are descriptors");
    let client = Endpoint::new(config(0, 1, &lines)).expect("there are descriptors");
    client.set_address(NodeId(1), Some(server.local_address()));
    server.set_address(NodeId(0), Some(client.local_address()));
    let heard = |count: usize| {
        let (end, mut bodies) = (Instant::now() + PATIENCE, Vec::new());
        while bodies.len() < count {
            assert!(Instant::now() < end, "nothing came");
            sleep(Duration::from_micros(100));
            let mut events = Vec::new();
            server.take(&mut events);
            for event in events {
                let Event::Request { ticket, body, .. } = event else { continue };
                let may_wait = body == b"closed";
                let reply = Vec::from(*b"done").into();
                server.queue_reply(ticket, Lane::Messages, reply, may_wait).expect("short");
                server.flush();
                bodies.push(body);
            }
        }
        bodies
    };
    let replies = |count: usize| {
        let (end, mut came) = (Instant::now() + PATIENCE, 0);
        while came < count {
            assert!(Instant::now() < end, "a reply was forgotten");
            sleep(Duration::from_millis(1));
            let mut events = Vec::new();
            client.take(&mut events);
            came += events.iter().filter(|event| matches!(event, Event::Reply { .. })).count();
        }
    };
    // Only where nodes ask each other often does anything wait.
    let often = || {
        for _ in 0..2 {
            client.request(request(1, Class::Shard, b"often")).expect("there is room");
        }
        heard(2);
        replies(2);
    };
    often();
    let closed = Request { may_wait: true, ..request(1, Class::Shard, b"closed") };
    client.request(closed.clone()).expect("there is room");
    client.request(request(1, Class::Shard, b"asked")).expect("there is room");
    assert_eq!(heard(2), [b"closed".to_vec(), b"asked".to_vec()]);
    replies(2);
    often();
    // Alone it waits, and is not forgotten; nor is its reply.
    let alone = Instant::now();
    client.request(closed).expect("there is room");
    assert_eq!(heard(1), [b"closed"]);
    assert!(alone.elapsed() >= WAITS, "it was sent at once");
    replies(1);
}

/// Six nodes ask one that has four network threads, which are heard from in their own names.
#[test]
fn each_network_thread_answers_its_part_of_the_nodes() {
    let (lines, servers) = (Lines::default(), Arc::<Mutex<BTreeMap<NodeId, ThreadId>>>::default());
    let base = config(3, 1, &lines);
    let limits = Limits { threads: 4, ..base.limits };
    let seen = Arc::clone(&servers);
    let server = answering(Config { limits, ..base }, move |endpoint, event| {
        let Event::Request { ticket, body, .. } = event else { return };
        seen.lock().expect("no panic").insert(ticket.node, thread::current().id());
        endpoint.reply(ticket, Lane::Messages, body.into()).expect("it is short enough");
    });
    let asking = [0, 1, 2, 4, 5, 6];
    let clients = asking.map(|node| {
        let client = Endpoint::new(config(node, 1, &lines)).expect("there are descriptors");
        // A reply goes back by the connection on which it was asked for.
        client.set_address(NodeId(3), Some(server.local_address()));
        client
    });
    for client in &clients {
        client.request(request(3, Class::Client, b"hello")).expect("there is room");
        until_replied(client);
    }
    let servers = servers.lock().expect("no panic");
    for (one, other) in asking.iter().flat_map(|one| asking.map(|other| (*one, other))) {
        let is_same = servers[&NodeId(one)] == servers[&NodeId(other)];
        assert_eq!(is_same, one % 4 == other % 4, "{one} and {other}");
    }
    assert!(lines.lock().expect("no panic").is_empty());
}

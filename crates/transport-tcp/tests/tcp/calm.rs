//! Who is woken when nothing happens any more.

use std::{
    sync::{Arc, Mutex},
    thread::sleep,
    time::{Duration, Instant},
};

use mayfly_transport_tcp::{
    Class, Clock, Config, Endpoint, Event, Lane, MonotonicClock, NodeId, limits::Limits,
};

use crate::contract::{PATIENCE, request};
use crate::network::{Lines, answering, config};

/// Two looks at the clock that are further apart belong to two wake-ups.
const APART: Duration = Duration::from_millis(150);
/// Longer than an acknowledgement waits, and a probe.
const LONG: Duration = Duration::from_millis(1_600);

/// A clock that remembers who asked it when.
#[derive(Default)]
struct Asked {
    clock: MonotonicClock,
    times: Mutex<Vec<u64>>,
}

impl Clock for Asked {
    fn now_ns(&self) -> u64 {
        let now_ns = self.clock.now_ns();
        self.times.lock().expect("no panic").push(now_ns);
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

/// Once for the acknowledgement of its reply. It used to wake up for the one that the reply had
/// carried too, and to see whether it had to ask if the other side lives.
#[test]
fn a_server_is_woken_once_after_its_last_reply() {
    let (clock, lines) = (Arc::<Asked>::default(), Lines::default());
    let calm = |node| Config { limits: Limits::default(), ..config(node, 1, &lines) };
    // In its network thread, as a daemon does.
    let server = answering(Config { clock: clock.clone(), ..calm(1) }, |endpoint, event| {
        if let Event::Request { ticket, body, .. } = event {
            endpoint.reply(ticket, Lane::Messages, body.into()).expect("it is short");
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
    assert_eq!(clock.wakes_since(since_ns), 1);
}

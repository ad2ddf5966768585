//! The claims. Each makes a network of its own.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::{Duration, Instant},
};

use mayfly_transport_tcp::{
    Cause, Class, Event, Fate, Lane, NodeId, PeerState, Request, RequestId, SendError,
};

use crate::contract::{
    BULK_CREDITS, MESSAGE_CREDITS, Network, Node, OUTSTANDING_MAX, Seat, request,
};

/// A pair that has spoken.
fn acquaint<N: Node>(one: &Seat<'_, N>, other: &Seat<'_, N>, number: u32) {
    let id = one.ask(number, Class::Leaf, b"hello");
    other.echo();
    assert_eq!(one.reply_to(id), b"hello");
}

fn lost(event: &Event) -> Option<(RequestId, Cause, Fate)> {
    match event {
        Event::Lost { id, cause, fate, .. } => Some((*id, *cause, *fate)),
        _ => None,
    }
}

fn state_of(node: u32, wanted: PeerState) -> impl Fn(&Event) -> Option<()> {
    move |event| match event {
        Event::Peer { node: it, state } => (it.0 == node && *state == wanted).then_some(()),
        _ => None,
    }
}

pub(crate) fn requests_of_a_class_arrive_in_order<W: Network>() {
    let network = W::new(2);
    let (asker, server) = (Seat::new(network.node(0)), Seat::new(network.node(1)));
    for number in 0..100_u32 {
        for class in Class::ALL {
            asker.ask(1, class, &number.to_le_bytes());
        }
    }
    let mut next = BTreeMap::new();
    for _ in 0..300 {
        let (_, class, body) = server.next_request();
        let number = next.entry(class).or_insert(0_u32);
        assert_eq!(body, number.to_le_bytes(), "of {class:?}");
        *number += 1;
    }
}

pub(crate) fn replies_overtake_each_other<W: Network>() {
    let network = W::new(2);
    let (asker, server) = (Seat::new(network.node(0)), Seat::new(network.node(1)));
    let ids: Vec<_> = (0..5).map(|number| asker.ask(1, Class::Client, &[number])).collect();
    let requests: Vec<_> = ids.iter().map(|_| server.next_request()).collect();
    for (ticket, _, body) in requests.into_iter().rev() {
        server.node.reply(ticket, Lane::Messages, body);
    }
    for id in ids.iter().rev() {
        let first = asker.wait("a reply", |event| match event {
            Event::Reply { id, .. } => Some(*id),
            _ => None,
        });
        assert_eq!(first, *id);
    }
}

pub(crate) fn a_request_without_a_reply_is_lost_at_its_deadline<W: Network>() {
    let network = W::new(2);
    let (asker, server) = (Seat::new(network.node(0)), Seat::new(network.node(1)));
    acquaint(&asker, &server, 1);
    let start = Instant::now();
    let hurried = Request { patience_ms: 300, ..request(1, Class::Shard, b"quick") };
    let id = asker.node.request(hurried).expect("there is room");
    let (ticket, ..) = server.next_request();
    assert_eq!(asker.wait("its loss", lost), (id, Cause::Deadline, Fate::Unknown));
    assert!(start.elapsed() >= Duration::from_millis(300));
    // A late reply is dropped, and what comes after it arrives.
    server.node.reply(ticket, Lane::Messages, b"late".to_vec());
    acquaint(&asker, &server, 1);
}

pub(crate) fn a_class_whose_receiver_takes_nothing_stops_and_no_other_does<W: Network>() {
    let network = W::new(2);
    let (asker, server) = (Seat::new(network.node(0)), Seat::new(network.node(1)));
    acquaint(&asker, &server, 1);
    let many = 5 * MESSAGE_CREDITS;
    for _ in 0..many {
        asker.ask(1, Class::Client, b"low");
    }
    asker.ask(1, Class::Shard, b"middle");
    asker.ask(1, Class::Leaf, b"high");
    let order: Vec<_> = (0..many + 2).map(|_| server.next_request().1).collect();
    for class in [Class::Shard, Class::Leaf] {
        let place = order.iter().position(|it| *it == class).expect("it came");
        assert!(place <= MESSAGE_CREDITS as usize + 1, "{class:?} came as number {place}");
    }
}

pub(crate) fn who_was_refused_for_want_of_room_hears_when_there_is_some<W: Network>() {
    let network = W::new(2);
    let (asker, server) = (Seat::new(network.node(0)), Seat::new(network.node(1)));
    for _ in 0..OUTSTANDING_MAX {
        asker.ask(1, Class::Client, b"one of many");
    }
    assert_eq!(asker.node.request(request(1, Class::Client, b"")), Err(SendError::Full));
    let other = asker.ask(1, Class::Shard, b"another class");
    for _ in 0..=OUTSTANDING_MAX {
        server.echo();
    }
    asker.wait("room", |event| match event {
        Event::Room { node: NodeId(1), lane: Lane::Messages, class: Class::Client } => Some(()),
        _ => None,
    });
    assert_eq!(asker.reply_to(other), b"another class");
    asker.ask(1, Class::Client, b"again");
}

pub(crate) fn a_small_message_does_not_stand_behind_bulk<W: Network>() {
    let network = W::new(2);
    let (asker, server) = (Seat::new(network.node(0)), Seat::new(network.node(1)));
    acquaint(&asker, &server, 1);
    let body = vec![7; Lane::Bulk.bytes_max()];
    for _ in 0..8 * BULK_CREDITS {
        let bulk = Request { lane: Lane::Bulk, ..request(1, Class::Leaf, &body) };
        asker.node.request(bulk).expect("there is room");
    }
    asker.ask(1, Class::Leaf, b"small");
    let mut before = 0;
    while server.next_request().2 != b"small" {
        before += 1;
    }
    assert!(before <= 4 * BULK_CREDITS, "{before} MiB came first");
}

pub(crate) fn a_cancelled_request_is_lost_or_its_server_hears_of_it<W: Network>() {
    let network = W::new(2);
    let (asker, server) = (Seat::new(network.node(0)), Seat::new(network.node(1)));
    let sent = asker.ask(1, Class::Client, b"sent");
    let (ticket, ..) = server.next_request();
    for _ in 0..10 * MESSAGE_CREDITS {
        asker.ask(1, Class::Client, b"fills");
    }
    let unsent = asker.ask(1, Class::Client, b"unsent");
    asker.node.cancel(unsent);
    assert_eq!(asker.wait("its loss", lost), (unsent, Cause::Cancelled, Fate::Unsent));
    asker.node.cancel(sent);
    asker.node.cancel(sent);
    server.wait("the cancel", |event| (*event == Event::Cancelled(ticket)).then_some(()));
    server.node.reply(ticket, Lane::Messages, b"interrupted".to_vec());
    assert_eq!(asker.reply_to(sent), b"interrupted");
}

pub(crate) fn the_largest_message_arrives_whole_and_a_larger_one_is_refused<W: Network>() {
    let network = W::new(2);
    let (asker, server) = (Seat::new(network.node(0)), Seat::new(network.node(1)));
    for lane in Lane::ALL {
        let body: Vec<u8> = (0..lane.bytes_max()).map(|at| (at * 7 / 3) as u8).collect();
        let largest = Request { lane, ..request(1, Class::Shard, &body) };
        let mut larger = largest.clone();
        larger.body = [&body[..], &[0]].concat().into();
        let id = asker.node.request(largest).expect("it is allowed");
        server.echo();
        assert!(asker.reply_to(id) == body, "on {lane:?}");
        assert_eq!(asker.node.request(larger), Err(SendError::TooLong));
    }
}

pub(crate) fn a_dead_node_loses_its_requests_and_no_others<W: Network>() {
    let mut network = W::new(3);
    let hurried = |to| Request { patience_ms: 1_500, ..request(to, Class::Leaf, b"?") };
    {
        let asker = Seat::new(network.node(0));
        acquaint(&asker, &Seat::new(network.node(1)), 1);
        acquaint(&asker, &Seat::new(network.node(2)), 2);
    }
    network.stop(1);
    let (asker, alive) = (Seat::new(network.node(0)), Seat::new(network.node(2)));
    let id = asker.node.request(hurried(1)).expect("there is room");
    asker.wait("the news", state_of(1, PeerState::Down));
    acquaint(&asker, &alive, 2);
    let (it, cause, _) = asker.wait("its loss", lost);
    assert_eq!((it, cause), (id, Cause::Deadline));
}

pub(crate) fn a_half_open_connection_is_found_and_made_again<W: Network>() {
    let network = W::new(2);
    let (asker, server) = (Seat::new(network.node(0)), Seat::new(network.node(1)));
    acquaint(&asker, &server, 1);
    network.hold(0, 1);
    let id = asker.ask(1, Class::Leaf, b"into the void");
    asker.wait("the news", state_of(1, PeerState::Down));
    network.release(0, 1);
    server.echo();
    assert_eq!(asker.reply_to(id), b"into the void");
}

pub(crate) fn a_request_waits_for_a_node_that_is_not_there_yet<W: Network>() {
    let mut network = W::new(2);
    network.stop(1);
    let id = Seat::new(network.node(0)).ask(1, Class::Client, b"early");
    std::thread::sleep(Duration::from_millis(30));
    network.start(1);
    Seat::new(network.node(1)).echo();
    assert_eq!(Seat::new(network.node(0)).reply_to(id), b"early");
}

pub(crate) fn requests_are_executed_once_while_connections_are_cut<W: Network + Sync>() {
    const REQUESTS: u32 = 400;
    let network = W::new(2);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut pause_ms = 30;
            while !over.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(pause_ms));
                network.cut(0, 1);
                pause_ms = pause_ms * 7 % 101 + 20;
            }
        });
        let server = scope.spawn(|| {
            let seat = Seat::new(network.node(1));
            let mut executed = vec![0; REQUESTS as usize];
            for _ in 0..REQUESTS {
                let (ticket, _, body) = seat.next_request();
                let number = u32::from_le_bytes(body[..4].try_into().expect("four bytes"));
                executed[number as usize] += 1;
                seat.node.reply(ticket, Lane::Messages, body);
            }
            executed
        });
        let asker = Seat::new(network.node(0));
        let mut ids = std::collections::VecDeque::new();
        for number in 0..REQUESTS {
            // Of different lengths, so that cuts fall into frames too.
            let mut body = number.to_le_bytes().to_vec();
            body.resize(4 + (number as usize * 997) % 20_000, 1);
            let class = Class::ALL[number as usize % 3];
            ids.push_back((asker.ask(1, class, &body), body));
            std::thread::sleep(Duration::from_millis(3));
            if ids.len() > 40 {
                let (id, body) = ids.pop_front().expect("there are forty");
                assert!(asker.reply_to(id) == body);
            }
        }
        for (id, body) in ids {
            assert!(asker.reply_to(id) == body);
        }
        let executed = server.join().expect("the server counts");
        over.store(true, SeqCst);
        assert!(executed.iter().all(|count| *count == 1), "{executed:?}");
        let mut events = Vec::new();
        network.node(1).take(&mut events);
        assert!(!events.iter().any(|event| matches!(event, Event::Request { .. })));
    });
}

pub(crate) fn a_restarted_node_executes_nothing_that_was_sent_to_the_earlier_one<W: Network>() {
    let mut network = W::new(2);
    let id = {
        let (asker, server) = (Seat::new(network.node(0)), Seat::new(network.node(1)));
        let id = asker.ask(1, Class::Client, b"first");
        server.next_request();
        id
    };
    network.stop(1);
    network.start(1);
    let (asker, server) = (Seat::new(network.node(0)), Seat::new(network.node(1)));
    assert_eq!(asker.wait("its loss", lost), (id, Cause::Restarted, Fate::Unknown));
    let second = asker.ask(1, Class::Client, b"second");
    let (ticket, _, body) = server.next_request();
    assert_eq!(body, b"second");
    server.node.reply(ticket, Lane::Messages, body);
    assert_eq!(asker.reply_to(second), b"second");
}

pub(crate) fn nodes_that_connect_to_each_other_at_the_same_time_both_get_through<
    W: Network + Sync,
>() {
    for _ in 0..10 {
        let network = W::new(2);
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for me in 0..2 {
                let (network, start) = (&network, &start);
                scope.spawn(move || {
                    let seat = Seat::new(network.node(me));
                    start.wait();
                    let id = seat.ask(1 - me, Class::Shard, &[me as u8]);
                    seat.echo();
                    assert_eq!(seat.reply_to(id), [me as u8]);
                    start.wait();
                });
            }
        });
    }
}

pub(crate) fn many_senders_share_the_connections_of_a_pair<W: Network + Sync>() {
    const SENDERS: u32 = 8;
    const EACH: u32 = 50;
    let network = W::new(2);
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let network = &network;
                scope.spawn(move || {
                    let body = |number: u32| [sender.to_le_bytes(), number.to_le_bytes()].concat();
                    for number in 0..EACH {
                        let asked = request(1, Class::Client, &body(number));
                        network.node(0).request(asked).expect("there is room");
                    }
                })
            })
            .collect();
        let server = Seat::new(network.node(1));
        let mut next = vec![0_u32; SENDERS as usize];
        for _ in 0..SENDERS * EACH {
            let (_, _, body) = server.next_request();
            let number = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().expect("four"));
            let (sender, number) = (number(0) as usize, number(4));
            assert_eq!(number, next[sender], "of sender {sender}");
            next[sender] += 1;
        }
        senders.into_iter().for_each(|sender| sender.join().expect("it sends"));
    });
}

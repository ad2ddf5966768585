use proptest::{collection::vec, prelude::*};

use super::*;

fn request(class: Class, id: u64) -> Item {
    let body = [vec![id as u8; 10].into(), Bytes::default()];
    Item { kind: Kind::Request(class), request_id: id, deadline_ns: 1_000, body }
}

fn reply(id: u64) -> Item {
    Item { kind: Kind::Reply, ..request(Class::Leaf, id) }
}

fn grant(to: &mut Session, from: &mut Session) {
    if let Some(body) = from.grants_to_tell() {
        to.grant(&body).expect("a grant has its length");
    }
}

fn ids(session: &mut Session) -> Vec<u64> {
    std::iter::from_fn(|| session.next(0)).map(|(header, _)| header.request_id).collect()
}

#[test]
fn a_class_without_credit_stops_no_other() {
    let (mut sender, mut receiver) = (Session::new(2), Session::new(2));
    grant(&mut sender, &mut receiver);
    for id in 1..=4 {
        sender.push(request(Class::Client, id));
    }
    sender.push(request(Class::Shard, 5));
    sender.push(request(Class::Leaf, 6));
    sender.push(reply(7));
    assert_eq!(ids(&mut sender), [7, 6, 5, 1, 2]);
    receiver.take(Class::Client);
    assert!(receiver.grants_to_tell().is_none(), "nothing arrived that could be taken");
}

#[test]
fn a_request_whose_deadline_passed_is_not_sent_again() {
    let mut sender = Session::new(1);
    let mut receiver = Session::new(1);
    grant(&mut sender, &mut receiver);
    sender.push(request(Class::Shard, 1));
    assert_eq!(ids(&mut sender), [1]);
    sender.attach(0).expect("the peer has nothing");
    let (header, body) = sender.next(2_000).expect("it is sent again");
    assert_eq!((header.kind, header.sequence), (Kind::Void(Class::Shard), 1));
    assert!(length(&body) == 0);
    assert_eq!(receiver.arrive(&header), Ok(Arrival::New));
    grant(&mut sender, &mut receiver);
    sender.push(request(Class::Shard, 2));
    assert_eq!(ids(&mut sender), [2], "the credit came back");
}

#[test]
fn what_was_never_sent_outlives_a_restart_of_the_peer_and_nothing_else_does() {
    let (mut sender, mut receiver) = (Session::new(1), Session::new(1));
    grant(&mut sender, &mut receiver);
    sender.push(request(Class::Client, 1));
    sender.push(request(Class::Client, 2));
    sender.push(reply(3));
    assert_eq!(ids(&mut sender), [3, 1]);
    sender.restart();
    assert_eq!(ids(&mut sender), [] as [u64; 0], "grants of the earlier one do not count");
    grant(&mut sender, &mut Session::new(1));
    let (header, _) = sender.next(0).expect("there is credit");
    assert_eq!((header.request_id, header.sequence), (2, 1));
}

#[test]
fn a_gap_and_an_acknowledgement_of_what_was_never_sent_are_malformed() {
    let mut session = Session::new(1);
    assert_eq!(session.acknowledge(1), Err(Malformed));
    let header = reply(1).header(2, 0);
    assert_eq!(session.arrive(&header), Err(Malformed));
}

#[test]
fn more_requests_than_were_granted_are_malformed() {
    let mut session = Session::new(2);
    for sequence in 1..=2 {
        let header = request(Class::Client, sequence).header(sequence, 0);
        assert_eq!(session.arrive(&header), Ok(Arrival::New));
    }
    let third = request(Class::Client, 3).header(3, 0);
    assert_eq!(session.arrive(&third), Err(Malformed));
    session.take(Class::Client);
    assert_eq!(session.arrive(&third), Ok(Arrival::New));
}

proptest! {
    /// Connections are cut after any number of frames, some of which were still on the way. What
    /// the receiver says that it has may be old: an earlier connection was read meanwhile.
    #[test]
    fn every_frame_arrives_once_and_in_order_however_connections_are_cut(
        cuts in vec((0..5_usize, 0..5_usize, 0..4_u64), 0..40), total in 1..60_u64,
    ) {
        let (mut sender, mut receiver) = (Session::new(1), Session::new(1));
        (1..=total).for_each(|id| sender.push(reply(id)));
        let mut got = Vec::new();
        for (arriving, lost, behind) in cuts.into_iter().chain([(usize::MAX, 0, 0)]) {
            let said = receiver.received().saturating_sub(behind);
            sender.attach(said).expect("the receiver had that");
            for _ in 0..arriving {
                let Some((header, _)) = sender.next(0) else { break };
                if receiver.arrive(&header) == Ok(Arrival::New) {
                    got.push(header.request_id);
                }
            }
            for _ in 0..lost {
                sender.next(0);
            }
        }
        prop_assert_eq!(got, (1..=total).collect::<Vec<_>>());
    }
}

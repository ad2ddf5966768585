//! Doors for fuzzing: what strangers and wrong peers send, without sockets. No part of the
//! interface.

use crate::{
    Bytes, Class, Encryption, Lane, NodeId, Secret,
    class::CLASSES,
    frame::{Decoder, Frame, Kind, Sums},
    handshake::{Acceptance, CALL_BYTES, CONFIRMATION_BYTES, Callee, Caller, Hello, Identity},
    session::{Arrival, Item, Session},
};

/// Requests of a class that may wait: few, so that a fuzzer meets the bound.
const CREDITS: u32 = 4;

fn identity(node: u32) -> Identity {
    Identity {
        node: NodeId(node),
        incarnation: 1,
        instance: [7; 16],
        secret: Secret([5; 32]),
        encryption: Encryption::On,
    }
}

/// What a caller sends instead of a handshake, and a callee.
///
/// # Panics
/// When bytes that nobody who knows the secret has made are believed.
pub fn stranger(bytes: &[u8]) {
    let _ = Hello::check_start(bytes);
    let (caller, call) = Caller::start(&identity(0), NodeId(1), Lane::Messages, 1);
    // From the first byte that differs on; all of it where none does.
    let mut changed = call.clone();
    changed.iter_mut().zip(bytes).for_each(|(byte, change)| *byte ^= change);
    let message: &[u8; CALL_BYTES] = changed.first_chunk().expect("a call has its length");
    let called = Callee::start(&identity(1), message);
    assert_eq!(called.is_ok(), changed == call, "only what was not changed is believed");
    let whole: &[u8; CALL_BYTES] = call.first_chunk().expect("a call has its length");
    let callee = Callee::start(&identity(1), whole).expect("it is right");
    let acceptance = Acceptance { incarnation: 1, received: 0 };
    let (mut answer, mut accepted) = callee.answer(acceptance).expect("it can be sealed");
    let right = answer.clone();
    answer.iter_mut().zip(bytes).for_each(|(byte, change)| *byte ^= change);
    let finished = caller.finish(&answer);
    assert_eq!(finished.is_ok(), answer == right);
    let Ok((_, mut sealed)) = finished else { return };
    let mut last = sealed.confirm(0);
    let right = last.clone();
    let end = last.len().min(CONFIRMATION_BYTES);
    last[..end].iter_mut().rev().zip(bytes).for_each(|(byte, change)| *byte ^= change);
    assert_eq!(accepted.sealed.confirmed(&last).is_ok(), last == right);
}

/// One side of a session that has met a peer which may say anything.
#[derive(Debug)]
pub struct Ear {
    lane: Lane,
    decoder: Decoder,
    session: Session,
    /// Requests that were delivered and not taken.
    delivered: [u32; CLASSES],
}

impl Ear {
    /// At the start of a connection.
    #[must_use]
    pub fn new(lane: Lane) -> Ear {
        let (decoder, session) = (Decoder::new(lane, Sums::Checked), Session::new(CREDITS));
        Ear { lane, decoder, session, delivered: [0; CLASSES] }
    }

    /// Hears bytes as they came; false when the connection would end.
    pub fn hear(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match self.decoder.next(&mut bytes) {
                Ok(None) => {}
                Ok(Some(frame)) if self.frame(&frame) => {}
                Ok(Some(_)) | Err(_) => return false,
            }
        }
        true
    }

    fn frame(&mut self, frame: &Frame) -> bool {
        let Frame { header, body } = frame;
        assert!(body.len() <= self.lane.bytes_max());
        if self.session.acknowledge(header.acknowledged).is_err() {
            return false;
        }
        match header.kind {
            Kind::Credit => self.session.grant(body).is_ok(),
            kind if kind.is_numbered() => match self.session.arrive(header) {
                Ok(Arrival::New) => {
                    self.deliver(kind);
                    true
                }
                Ok(Arrival::Again) => true,
                Err(_) => false,
            },
            _ => true,
        }
    }

    fn deliver(&mut self, kind: Kind) {
        if let Kind::Request(class) = kind {
            let waiting = &mut self.delivered[class.index()];
            *waiting += 1;
            assert!(*waiting <= CREDITS, "more requests wait than were granted");
        }
    }

    /// The program takes a request.
    pub fn take(&mut self, class: Class) {
        let waiting = &mut self.delivered[class.index()];
        if *waiting > 0 {
            *waiting -= 1;
            self.session.take(class);
        }
    }

    /// The program sends something, as far as the peer has granted it.
    pub fn send(&mut self, class: Class, id: u64) {
        let (kind, body) = (Kind::Request(class), [vec![1; 16].into(), Bytes::default()]);
        self.session.push(Item { kind, request_id: id, deadline_ns: 9, body });
        while self.session.next(1).is_some() {}
    }
}

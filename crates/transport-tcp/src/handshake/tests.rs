use proptest::{collection::vec, prelude::*};

use super::*;

fn node(number: u32) -> Identity {
    Identity {
        node: NodeId(number),
        incarnation: 100 + u64::from(number),
        instance: [7; 16],
        secret: Secret([9; 32]),
        encryption: Encryption::Off,
    }
}

fn call(from: &Identity, to: u32) -> (Caller, [u8; CALL_BYTES]) {
    let (caller, message) = Caller::start(from, NodeId(to), Lane::Bulk, 5);
    (caller, message.try_into().expect("a call has its length"))
}

fn refusal(me: &Identity, message: &[u8; CALL_BYTES]) -> Option<Refusal> {
    Callee::start(me, message).err()
}

#[test]
fn three_messages_prove_both_sides_and_carry_what_they_say() {
    let (caller, first) = call(&node(1), 2);
    let callee = Callee::start(&node(2), &first).expect("they know the same secret");
    assert_eq!(callee.offer, Offer { incarnation: 101, attempt: 5 });
    assert_eq!((callee.hello.from, callee.hello.lane), (NodeId(1), Lane::Bulk));
    let says = Acceptance { incarnation: 102, received: 33 };
    let (second, mut accepted) = callee.answer(says).expect("it is its turn");
    let (heard, mut sealed) = caller.finish(&second).expect("they know the same secret");
    assert_eq!(heard, says);
    assert_eq!(accepted.sealed.confirmed(&sealed.confirm(44)), Ok(44));
}

#[test]
fn the_bytes_of_a_hello_do_not_change() {
    let hello = Hello {
        encryption: Encryption::On,
        lane: Lane::Bulk,
        from: NodeId(0x0102),
        to: NodeId(3),
        instance: [0xaa; 16],
    };
    let bytes = hello.encode();
    assert_eq!(bytes[..16], [b'M', b'F', b'Y', b'N', 8, 0, 3, 0, 2, 1, 0, 0, 3, 0, 0, 0]);
    assert_eq!(bytes[16..], [0xaa; 16]);
    assert_eq!(Hello::decode(&bytes), Ok(hello));
}

#[test]
fn what_differs_is_named_and_refused() {
    let (_, message) = call(&node(1), 2);
    assert_eq!(refusal(&node(3), &message), Some(Refusal::Node));
    assert_eq!(
        refusal(&Identity { instance: [8; 16], ..node(2) }, &message),
        Some(Refusal::Instance)
    );
    let encrypted = Identity { encryption: Encryption::On, ..node(2) };
    assert_eq!(refusal(&encrypted, &message), Some(Refusal::Encryption));
    let stranger = Identity { secret: Secret([8; 32]), ..node(2) };
    assert_eq!(refusal(&stranger, &message), Some(Refusal::Secret));
    let mut newer = message;
    newer[4] = 9;
    assert_eq!(refusal(&node(2), &newer), Some(Refusal::Version));
}

#[test]
fn any_flipped_bit_of_a_call_is_refused() {
    let (_, message) = call(&node(1), 2);
    for bit in 0..CALL_BYTES * 8 {
        let mut torn = message;
        torn[bit / 8] ^= 1 << (bit % 8);
        assert!(refusal(&node(2), &torn).is_some(), "bit {bit}");
    }
}

#[test]
fn a_caller_without_the_secret_believes_no_answer() {
    let (caller, first) = call(&node(1), 2);
    let mut message = vec![0; ANSWER_BYTES];
    message.copy_from_slice(&first[..ANSWER_BYTES]);
    assert!(caller.finish(&message).is_err());
}

#[test]
fn a_recorded_call_and_confirmation_open_no_second_connection() {
    let (caller, first) = call(&node(1), 2);
    let says = Acceptance { incarnation: 102, received: 0 };
    let answer = |first| {
        let callee = Callee::start(&node(2), first).expect("the call itself can be replayed");
        callee.answer(says).expect("it is its turn")
    };
    let (second, _) = answer(&first);
    let third = caller.finish(&second).expect("an honest answer").1.confirm(0);
    let (_, mut replayed) = answer(&first);
    assert_eq!(replayed.sealed.confirmed(&third), Err(Refusal::Secret));
}

proptest! {
    // Each case computes keys.
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn no_bytes_upset_the_handshake(bytes in vec(any::<u8>(), CALL_BYTES), real in 0..CALL_BYTES) {
        let (caller, mut message) = call(&node(1), 2);
        message[real..].copy_from_slice(&bytes[real..]);
        let _ = Hello::check_start(&bytes[..real]);
        let _ = refusal(&node(2), &message);
        prop_assert!(caller.finish(&bytes[..real]).is_err());
    }
}

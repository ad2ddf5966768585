use proptest::{collection::vec, prelude::*};

use super::*;

fn sample() -> FrameHeader {
    FrameHeader {
        kind: Kind::Request(Class::Leaf),
        body_bytes: 3,
        sequence: 0x0102_0304_0506_0708,
        acknowledged: 9,
        request_id: 10,
        left_ms: 8000,
        body_checksum: body_checksum(b"abc"),
    }
}

fn all_frames(decoder: &mut Decoder, mut bytes: &[u8]) -> Result<Vec<Frame>, Malformed> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        frames.extend(decoder.next(&mut bytes)?);
    }
    Ok(frames)
}

#[test]
fn the_bytes_of_a_frame_do_not_change() {
    let bytes = sample().encode();
    let start = [0x4d, 0x54, 4, 0, 3, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes[..24], start);
    let end = [10, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x1f, 0, 0];
    assert_eq!(bytes[24..36], end);
    assert_eq!(bytes[36..40], GOLDEN_BODY_SUM.to_le_bytes());
    assert_eq!(bytes[40..], GOLDEN_HEADER_SUM.to_le_bytes());
}

const GOLDEN_BODY_SUM: u32 = 0x3524_41c2;
const GOLDEN_HEADER_SUM: u64 = 0xcc4d_9614_d1bc_b019;

#[test]
fn the_sum_of_a_body_is_the_crc_32_that_others_know() {
    // The check value of the catalogues of CRCs.
    assert_eq!(body_checksum(b"123456789"), 0xcbf4_3926);
    assert_eq!(body_checksum(b""), 1, "0 is for bodies without a sum");
}

#[test]
fn any_flipped_bit_of_a_header_is_found() {
    for bit in 0..FRAME_HEADER_BYTES * 8 {
        let mut torn = sample().encode();
        torn[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(FrameHeader::decode(&torn, Lane::Messages), Err(Malformed), "bit {bit}");
    }
}

#[test]
fn a_body_that_is_too_long_for_its_lane_is_refused_before_memory_is_set_aside() {
    let mut header = sample();
    header.body_bytes = limits::MESSAGE_BYTES_MAX as u32 + 1;
    let mut decoder = Decoder::new(Lane::Messages, Sums::Checked);
    assert_eq!(decoder.next(&mut &header.encode()[..]), Err(Malformed));
    assert!(Decoder::new(Lane::Bulk, Sums::Checked).next(&mut &header.encode()[..]).is_ok());
}

#[test]
fn a_torn_body_is_found() {
    let mut bytes = sample().encode().to_vec();
    bytes.extend(b"abd");
    let mut decoder = Decoder::new(Lane::Messages, Sums::Checked);
    assert_eq!(all_frames(&mut decoder, &bytes), Err(Malformed));
}

proptest! {
    #[test]
    fn no_bytes_upset_the_frame_decoder(bytes in vec(any::<u8>(), 0..400)) {
        let _ = all_frames(&mut Decoder::new(Lane::Messages, Sums::Checked), &bytes);
    }

    #[test]
    fn no_bytes_after_a_good_header_upset_it(
        kind in 0..Kind::ALL.len(), body_bytes in 0..100_u32, sequence in 0..3_u64,
        rest in vec(any::<u8>(), 0..300),
    ) {
        let kind = Kind::ALL[kind].1;
        let mut bytes = FrameHeader { kind, body_bytes, sequence, ..sample() }.encode().to_vec();
        bytes.extend(rest);
        let _ = all_frames(&mut Decoder::new(Lane::Messages, Sums::Checked), &bytes);
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut(
        bodies in vec(vec(any::<u8>(), 0..200), 1..6), cuts in vec(1..97_usize, 1..30),
    ) {
        let mut bytes = Vec::new();
        for (index, body) in bodies.iter().enumerate() {
            let header = FrameHeader {
                kind: Kind::Reply,
                body_bytes: body.len() as u32,
                sequence: index as u64 + 1,
                body_checksum: body_checksum(body),
                ..sample()
            };
            bytes.extend(header.encode());
            bytes.extend(body);
        }
        let mut decoder = Decoder::new(Lane::Messages, Sums::Checked);
        let (mut rest, mut frames) = (&bytes[..], Vec::new());
        for cut in cuts.iter().cycle() {
            let (head, tail) = rest.split_at(rest.len().min(*cut));
            frames.extend(all_frames(&mut decoder, head).expect("whole frames"));
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
        let got: Vec<_> = frames.into_iter().map(|frame| frame.body).collect();
        prop_assert_eq!(got, bodies);
        prop_assert!(!decoder.is_inside());
    }

    #[test]
    fn a_body_in_pieces_has_the_sum_of_the_whole(
        body in vec(any::<u8>(), 0..400), cuts in vec(0..400_usize, 0..3),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &body[cut[0]..cut[1]]).collect();
        prop_assert_eq!(body_checksum_of(&pieces), body_checksum(&body));
    }
}

#[test]
fn any_flipped_bit_of_a_body_is_found() {
    let body: Vec<u8> = (0..200_u32).map(|at| (at * 7 / 3) as u8).collect();
    let sum = body_checksum(&body);
    for bit in 0..body.len() * 8 {
        let mut torn = body.clone();
        torn[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(body_checksum(&torn), sum, "bit {bit}");
    }
    // Nor are zeros nothing.
    let zeros = [0; 200];
    assert_ne!(body_checksum(&zeros), body_checksum(&zeros[1..]));
}

#[test]
fn what_is_put_behind_a_body_ends_its_frame() {
    let body = b"read where it stays";
    let (body_bytes, body_checksum) = (body.len() as u32, body_checksum(body));
    let header = FrameHeader { body_bytes, body_checksum, ..sample() }.encode();
    let mut decoder = Decoder::new(Lane::Bulk, Sums::Checked);
    assert!(decoder.hole().is_none());
    let mut input = &[&header[..], b"read"].concat()[..];
    assert_eq!(decoder.next(&mut input), Ok(None));
    for (piece, missing) in [(&body[4..10], 15), (&body[10..], 9)] {
        assert_eq!(decoder.filled(), Ok(None));
        let hole = decoder.hole().expect("a body is under way");
        assert_eq!(hole.1, missing);
        hole.0.extend(piece);
    }
    let frame = decoder.filled().expect("it is sound").expect("it is whole");
    assert_eq!(frame.body, body);
    assert!(!decoder.is_inside());
}

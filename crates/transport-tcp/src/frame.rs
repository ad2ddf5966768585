//! Frames: what a connection carries once both sides have proved who they are.
//!
//! A header of 48 bytes and a body. The header stands alone: it has a checksum of its own, so a
//! length is believed only when the header is whole, and no memory is set aside for a frame that is
//! longer than its lane allows. The body is opaque here; for the daemon it is a message of
//! `mayfly_wire` with that header of its own.
//!
//! The checksums find mistakes (a torn frame, a bug), no adversary: that is what encryption is for,
//! and on an encrypted connection the body has none.

use mayfly_wire::{Malformed, Reader, Wire, Writer};

use crate::{Class, Lane, limits};

/// Length of an encoded header, bytes.
pub const FRAME_HEADER_BYTES: usize = 48;

const MAGIC: u16 = 0x544d; // "MT"
/// Bytes of the header that its checksum covers.
const COVERED: usize = 40;

/// What a frame is. Up to [`Kind::Void`] frames are numbered, kept until acknowledged, and sent
/// again over the next connection; the others are about one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A request of this class.
    Request(Class),
    /// The reply to a request.
    Reply,
    /// The reply to this request is no longer needed.
    Cancel,
    /// In place of a request of this class whose deadline passed before it could be sent again.
    Void(Class),
    /// Carries the acknowledgement in its header.
    Acknowledge,
    /// How many requests of each class may have been sent in all: four `u64`.
    Credit,
    /// Is anybody there?
    Probe,
    /// Yes.
    Alive,
}

impl Kind {
    const ALL: [(u8, Kind); 14] = [
        (1, Kind::Request(Class::Client)),
        (2, Kind::Request(Class::Shard)),
        (3, Kind::Request(Class::Holder)),
        (4, Kind::Request(Class::Leaf)),
        (5, Kind::Reply),
        (6, Kind::Cancel),
        (7, Kind::Void(Class::Client)),
        (8, Kind::Void(Class::Shard)),
        (9, Kind::Void(Class::Holder)),
        (10, Kind::Void(Class::Leaf)),
        (11, Kind::Acknowledge),
        (12, Kind::Credit),
        (13, Kind::Probe),
        (14, Kind::Alive),
    ];

    fn raw(self) -> u8 {
        let found = Kind::ALL.iter().find(|(_, kind)| *kind == self);
        found.map_or(0, |(raw, _)| *raw)
    }

    fn from_raw(raw: u8) -> Option<Kind> {
        Kind::ALL.iter().find(|(known, _)| *known == raw).map(|(_, kind)| *kind)
    }

    /// True for frames that have a sequence number.
    #[must_use]
    pub fn is_numbered(self) -> bool {
        matches!(self, Kind::Request(_) | Kind::Reply | Kind::Cancel | Kind::Void(_))
    }

    /// Longest body, bytes.
    fn body_bytes_max(self, lane: Lane) -> usize {
        match self {
            Kind::Request(_) | Kind::Reply => lane.bytes_max(),
            Kind::Credit => CREDIT_BYTES,
            Kind::Cancel | Kind::Void(_) | Kind::Acknowledge | Kind::Probe | Kind::Alive => 0,
        }
    }
}

/// Length of the body of a [`Kind::Credit`], bytes.
pub(crate) const CREDIT_BYTES: usize = 8 * crate::class::CLASSES;

/// Header of a frame.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | magic `MT` |
/// | 2 | 1 | kind |
/// | 3 | 1 | zero |
/// | 4 | 4 | length of the body |
/// | 8 | 8 | sequence number; 0 for frames that have none |
/// | 16 | 8 | acknowledgement: every number up to this one was received |
/// | 24 | 8 | request id |
/// | 32 | 4 | time left of a request, ms |
/// | 36 | 4 | checksum of the body ([`body_checksum`]); 0 when encrypted |
/// | 40 | 8 | checksum of bytes 0 to 39 |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame is.
    pub kind: Kind,
    /// Length of the body.
    pub body_bytes: u32,
    /// Number in the session of the lane, from 1.
    pub sequence: u64,
    /// Highest number received without a gap.
    pub acknowledged: u64,
    /// The request that this is, answers or cancels.
    pub request_id: u64,
    /// What is left of a request's time, milliseconds.
    pub left_ms: u32,
    /// [`body_checksum`], or 0 when encrypted.
    pub body_checksum: u32,
}

const _: () = assert!(2 + 1 + 1 + 4 + 8 + 8 + 8 + 4 + 4 == COVERED);
const _: () = assert!(COVERED + 8 == FRAME_HEADER_BYTES && COVERED.is_multiple_of(8));
const _: () = assert!(limits::BULK_BYTES_MAX <= u32::MAX as usize);

impl FrameHeader {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        self.put(&mut Writer::new(&mut bytes)).expect("the fields have the header's length");
        let (covered, sum) = bytes.split_first_chunk_mut().expect("the header is longer");
        sum.copy_from_slice(&checksum(covered).to_le_bytes());
        bytes
    }

    fn put(&self, to: &mut Writer<'_>) -> Result<(), mayfly_wire::Full> {
        MAGIC.encode(to)?;
        self.kind.raw().encode(to)?;
        0_u8.encode(to)?;
        self.body_bytes.encode(to)?;
        self.sequence.encode(to)?;
        self.acknowledged.encode(to)?;
        self.request_id.encode(to)?;
        self.left_ms.encode(to)?;
        self.body_checksum.encode(to)
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`Malformed`] for another magic or kind, a wrong checksum, a body that is too long for its
    /// kind and lane, or a number where none belongs (or none where one does).
    pub fn decode(bytes: &[u8; FRAME_HEADER_BYTES], lane: Lane) -> Result<FrameHeader, Malformed> {
        let mut from = Reader::new(bytes);
        if u16::decode(&mut from)? != MAGIC {
            return Err(Malformed);
        }
        let kind = Kind::from_raw(u8::decode(&mut from)?).ok_or(Malformed)?;
        if u8::decode(&mut from)? != 0 {
            return Err(Malformed);
        }
        let header = FrameHeader {
            kind,
            body_bytes: u32::decode(&mut from)?,
            sequence: u64::decode(&mut from)?,
            acknowledged: u64::decode(&mut from)?,
            request_id: u64::decode(&mut from)?,
            left_ms: u32::decode(&mut from)?,
            body_checksum: u32::decode(&mut from)?,
        };
        let sum = u64::decode(&mut from)?;
        let fits = header.body_bytes as usize <= kind.body_bytes_max(lane);
        let numbered = (header.sequence != 0) == kind.is_numbered();
        let (covered, _) = bytes.split_first_chunk().ok_or(Malformed)?;
        let whole = sum == checksum(covered);
        if whole && fits && numbered { Ok(header) } else { Err(Malformed) }
    }
}

/// Checksum of a body: never 0, which means that there is none.
#[must_use]
pub fn body_checksum(body: &[u8]) -> u32 {
    body_checksum_of(&[body])
}

/// Checksum of a body in pieces.
pub(crate) fn body_checksum_of(pieces: &[&[u8]]) -> u32 {
    let mut sum = Sum::default();
    pieces.iter().for_each(|piece| sum.add(piece));
    sum.end()
}

/// That of a body: the CRC-32 of zip and of Ethernet, since processors multiply polynomials. Where
/// they do it by 64 bytes, it takes a third of the time of a copy; what it is given in pieces has
/// the sum of the whole.
#[derive(Debug, Default)]
struct Sum(crc32fast::Hasher);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn end(&self) -> u32 {
        self.0.clone().finalize().max(1)
    }
}

/// Checksum of a header: a multiply-and-fold mixer, as in wyhash, over its words.
fn checksum(bytes: &[u8; COVERED]) -> u64 {
    let (words, _) = bytes.as_chunks();
    words.iter().fold(COVERED as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)))
}

#[inline]
fn mix(sum: u64, word: u64) -> u64 {
    let product = u128::from(sum ^ word) * 0xd6e8_feb8_6659_fd93;
    (product as u64) ^ (product >> 64) as u64 ^ 0xa076_1d64_78bd_642f
}

/// A frame that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its header.
    pub header: FrameHeader,
    /// Its body.
    pub body: Vec<u8>,
}

/// Puts frames together from whatever pieces arrive.
///
/// Memory: one header and the body of the frame that is under way, no longer than its lane allows.
#[derive(Debug)]
pub struct Decoder {
    lane: Lane,
    sums: Sums,
    head: [u8; FRAME_HEADER_BYTES],
    head_used: usize,
    body: Option<Partial>,
}

#[derive(Debug)]
struct Partial {
    header: FrameHeader,
    /// As much as has come. There is room for the rest, which nobody has filled with zeros.
    body: Vec<u8>,
    /// Of as much of it, where bodies have checksums: what has just come is still in the cache.
    sum: Sum,
    summed_bytes: usize,
}

impl Partial {
    fn new(header: FrameHeader) -> Partial {
        let body = Vec::with_capacity(header.body_bytes as usize);
        Partial { header, body, sum: Sum::default(), summed_bytes: 0 }
    }

    fn missing(&self) -> usize {
        (self.header.body_bytes as usize).saturating_sub(self.body.len())
    }

    /// Takes in what has come since the last time.
    fn add_to_sum(&mut self) {
        self.sum.add(&self.body[self.summed_bytes..]);
        self.summed_bytes = self.body.len();
    }

    /// Whether the body, which is complete, is what was sent.
    fn is_sound(&self, sums: Sums) -> bool {
        let expected = match sums {
            Sums::Checked => self.sum.end(),
            Sums::Absent => 0,
        };
        self.header.body_checksum == expected
    }
}

/// Whether bodies have checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sums {
    /// Every body has one.
    Checked,
    /// The connection authenticates what it carries.
    Absent,
}

impl Decoder {
    /// At the start of a frame.
    #[must_use]
    pub fn new(lane: Lane, sums: Sums) -> Decoder {
        Decoder { lane, sums, head: [0; FRAME_HEADER_BYTES], head_used: 0, body: None }
    }

    /// True inside a frame.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.head_used > 0
    }

    /// The body that is under way and how many bytes of it are missing, for who can put them behind
    /// it without a copy; to be told with [`Decoder::filled`].
    pub fn hole(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        self.body.as_mut().map(|partial| {
            let missing = partial.missing();
            (&mut partial.body, missing)
        })
    }

    /// Bytes were put where [`Decoder::hole`] says, no more than were missing.
    ///
    /// # Errors
    /// [`Malformed`] when the frame that this ends has another checksum.
    pub fn filled(&mut self) -> Result<Option<Frame>, Malformed> {
        let Some(partial) = &mut self.body else { return Ok(None) };
        if self.sums == Sums::Checked {
            partial.add_to_sum();
        }
        let Some(partial) = self.body.take_if(|partial| partial.missing() == 0) else {
            return Ok(None);
        };
        self.head_used = 0;
        if !partial.is_sound(self.sums) {
            return Err(Malformed);
        }
        let Partial { header, body, .. } = partial;
        Ok(Some(Frame { header, body }))
    }

    /// Takes bytes from the front of `input` up to the end of a frame, or all of them.
    ///
    /// # Errors
    /// [`Malformed`]; the connection cannot be understood any further.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, Malformed> {
        if self.body.is_none() {
            let count = input.len().min(FRAME_HEADER_BYTES - self.head_used);
            self.head[self.head_used..self.head_used + count].copy_from_slice(&input[..count]);
            self.head_used += count;
            *input = &input[count..];
            if self.head_used < FRAME_HEADER_BYTES {
                return Ok(None);
            }
            let header = FrameHeader::decode(&self.head, self.lane)?;
            self.body = Some(Partial::new(header));
        }
        let (body, missing) = self.hole().expect("a body is under way");
        let (now, later) = input.split_at(input.len().min(missing));
        body.extend_from_slice(now);
        *input = later;
        self.filled()
    }
}

#[cfg(test)]
mod tests;

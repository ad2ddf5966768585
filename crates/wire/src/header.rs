//! The header that precedes every message.

use crate::{Full, Malformed, Op, Reader, Wire, Writer};

/// Version of the protocol; a peer of another version is refused.
pub const VERSION: u8 = 1;
/// Length of an encoded header, bytes.
pub const HEADER_BYTES: usize = 48;

const MAGIC: u16 = 0x464d; // "MF"

/// Header of a request or a reply.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | magic `MF` |
/// | 2 | 1 | version |
/// | 3 | 1 | kind: 0 request, 1 reply |
/// | 4 | 2 | operation |
/// | 6 | 2 | reserved, zero |
/// | 8 | 8 | request id |
/// | 16 | 8 | when a request was made, by the processors' cycle counter; 0: not told |
/// | 24 | 4 | version of the slot table |
/// | 28 | 4 | length of the body, bytes |
/// | 32 | 4 | status: 0, or an error number (replies) |
/// | 36 | 4 | checksum of the body; 0 over shared memory, where none is kept |
/// | 40 | 8 | checksum of bytes 0..40 |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// True for a reply.
    pub reply: bool,
    /// The operation; a reply names that of its request.
    pub op: Op,
    /// Chosen by the requester, repeated in the reply and when the request is sent again.
    pub request_id: u64,
    /// When the request was made, by the processors' cycle counter; 0: not told (replies).
    pub submitted_cycles: u64,
    /// Version of the slot table that the sender used.
    pub slot_table_version: u32,
    /// Length of the body, bytes.
    pub body_bytes: u32,
    /// 0, or an error number. An error reply means that nothing happened, unless it is EIO.
    pub status: u32,
    /// Checksum of the body, or 0.
    pub body_checksum: u32,
}

impl Header {
    /// The bytes.
    ///
    /// # Errors
    /// [`Full`] when `buffer` is shorter than [`HEADER_BYTES`].
    pub fn encode(&self, buffer: &mut [u8]) -> Result<(), Full> {
        let buffer = buffer.get_mut(..HEADER_BYTES).ok_or(Full)?;
        let mut to = Writer::new(buffer);
        MAGIC.encode(&mut to)?;
        VERSION.encode(&mut to)?;
        self.reply.encode(&mut to)?;
        (self.op as u16).encode(&mut to)?;
        0_u16.encode(&mut to)?;
        self.request_id.encode(&mut to)?;
        self.submitted_cycles.encode(&mut to)?;
        self.slot_table_version.encode(&mut to)?;
        self.body_bytes.encode(&mut to)?;
        self.status.encode(&mut to)?;
        self.body_checksum.encode(&mut to)?;
        let (covered, sum) = buffer.split_at_mut(40);
        sum.copy_from_slice(&checksum(covered).to_le_bytes());
        Ok(())
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`Malformed`] for another magic, version or operation, a wrong checksum, or too few bytes.
    pub fn decode(bytes: &[u8]) -> Result<Header, Malformed> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(Malformed)?;
        let mut from = Reader::new(bytes);
        if u16::decode(&mut from)? != MAGIC || u8::decode(&mut from)? != VERSION {
            return Err(Malformed);
        }
        let reply = bool::decode(&mut from)?;
        let op = Op::from_raw(u16::decode(&mut from)?).ok_or(Malformed)?;
        if u16::decode(&mut from)? != 0 {
            return Err(Malformed);
        }
        let header = Header {
            reply,
            op,
            request_id: u64::decode(&mut from)?,
            submitted_cycles: u64::decode(&mut from)?,
            slot_table_version: u32::decode(&mut from)?,
            body_bytes: u32::decode(&mut from)?,
            status: u32::decode(&mut from)?,
            body_checksum: u32::decode(&mut from)?,
        };
        if u64::decode(&mut from)? != checksum(&bytes[..40]) {
            return Err(Malformed);
        }
        Ok(header)
    }
}

/// Eight bytes at a time through a multiply-and-fold mixer: it finds torn and stray headers, it is
/// no protection against an adversary (the network transport authenticates its frames).
fn checksum(bytes: &[u8]) -> u64 {
    let mut sum: u64 = 0x9e37_79b9_7f4a_7c15;
    for word in bytes.chunks(8) {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        let product = u128::from(sum ^ u64::from_le_bytes(padded)) * 0xd6e8_feb8_6659_fd93;
        sum = (product as u64) ^ (product >> 64) as u64 ^ 0xa076_1d64_78bd_642f;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            reply: true,
            op: Op::Stat,
            request_id: 0x0102_0304_0506_0708,
            submitted_cycles: 9,
            slot_table_version: 3,
            body_bytes: 17,
            status: 2,
            body_checksum: 0,
        }
    }

    #[test]
    fn a_header_comes_back_as_it_was() {
        let mut bytes = [0; HEADER_BYTES];
        sample().encode(&mut bytes).expect("the buffer has the header's length");
        assert_eq!(Header::decode(&bytes), Ok(sample()));
    }

    #[test]
    fn the_bytes_of_a_header_do_not_change() {
        let mut bytes = [0; HEADER_BYTES];
        sample().encode(&mut bytes).expect("the buffer has the header's length");
        assert_eq!(
            bytes[..40],
            [
                0x4d, 0x46, 1, 1, 2, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 3, 0,
                0, 0, 17, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0
            ]
        );
        assert_eq!(bytes[40..], 0xc317_4ddc_352c_b7af_u64.to_le_bytes());
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let mut bytes = [0; HEADER_BYTES];
        sample().encode(&mut bytes).expect("the buffer has the header's length");
        for bit in 0..HEADER_BYTES * 8 {
            let mut torn = bytes;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&torn), Err(Malformed), "bit {bit}");
        }
    }
}

//! How frames lie in the byte stream of a connection.
//!
//! In the clear they follow each other. Sealed they are cut into records: two bytes of length, and
//! a message of the Noise protocol of at most 65,535 bytes, each with the next nonce; so a record
//! that is changed, left out, repeated or moved ends the connection.

use mayfly_wire::Malformed;

use crate::{
    handshake::Sealed,
    limits::{RECORD_BYTES_MAX, TAG_BYTES},
};

/// Length that precedes a record, bytes.
const LENGTH_BYTES: usize = 2;
/// Longest content of a record, bytes.
const CONTENT_BYTES_MAX: usize = RECORD_BYTES_MAX - TAG_BYTES;

const _: () = assert!(RECORD_BYTES_MAX <= u16::MAX as usize);

/// Seals `plain` into records behind `out`.
pub(crate) fn seal(sealed: &mut Sealed, plain: &[u8], out: &mut Vec<u8>) {
    for content in plain.chunks(CONTENT_BYTES_MAX) {
        let record_bytes = content.len() + TAG_BYTES;
        out.extend((record_bytes as u16).to_le_bytes());
        let start = out.len();
        out.resize(start + record_bytes, 0);
        sealed.seal(content, &mut out[start..]);
    }
}

/// Puts records together from whatever pieces arrive. Memory: one record.
#[derive(Debug, Default)]
pub(crate) struct Opener {
    partial: Vec<u8>,
}

impl Opener {
    /// True inside a record.
    pub(crate) fn is_inside(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Takes bytes from the front of `input` up to the end of a record, or all of them. Puts what
    /// was in the record into `plain`; true when there was one.
    pub(crate) fn next(
        &mut self,
        sealed: &mut Sealed,
        input: &mut &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool, Malformed> {
        self.fill(LENGTH_BYTES, input);
        let Some(length) = self.partial.first_chunk() else { return Ok(false) };
        let record_bytes = usize::from(u16::from_le_bytes(*length));
        if record_bytes <= TAG_BYTES {
            return Err(Malformed);
        }
        self.fill(LENGTH_BYTES + record_bytes, input);
        if self.partial.len() < LENGTH_BYTES + record_bytes {
            return Ok(false);
        }
        plain.resize(record_bytes, 0);
        let length = sealed.open(&self.partial[LENGTH_BYTES..], plain)?;
        plain.truncate(length);
        self.partial.clear();
        Ok(true)
    }

    fn fill(&mut self, target: usize, input: &mut &[u8]) {
        let count = input.len().min(target.saturating_sub(self.partial.len()));
        self.partial.extend(&input[..count]);
        *input = &input[count..];
    }
}

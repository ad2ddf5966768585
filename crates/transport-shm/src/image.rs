//! Asking the supervisor for the image of a library.
//!
//! A process that finds no image of its C library names the library by where its code is mapped in
//! the asking process, and by its key: its build id, or a sum of its code. The supervisor has the
//! file found and disassembled
//! elsewhere, and answers when the image is in the cache, or cannot be made. The connection serves
//! for this one question.
//!
//! | offset | bytes | request |
//! |---|---|---|
//! | 0 | 16 | hello of kind [`hello::KIND_IMAGE`] |
//! | 16 | 8 | address of the code in the process |
//! | 24 | 8 | address of the code in the library's numbering |
//! | 32 | 8 | bytes of code, whole pages |
//! | 40 | 4 | bytes of the key |
//! | 44 | 4 | 0 |
//! | 48 | 32 | the key, zero-padded |
//!
//! The answer is a [`hello::Answer`], with a descriptor of the image when there is one: the asking
//! process may not see the cache.

use mayfly_types::{Errno, limits::IMAGE_WAIT_MS};

use crate::{hello, raw};

/// Length of a request, bytes.
pub const REQUEST_BYTES: usize = 80;
/// Longest key, bytes.
pub const KEY_BYTES_MAX: usize = 32;

/// Which library an image is wanted of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageRequest {
    /// Address of the code in the process that asks.
    pub address: u64,
    /// Its address in the library's own numbering.
    pub text_vaddr: u64,
    /// Bytes of it, whole pages.
    pub text_bytes: u64,
    /// Bytes of the key.
    pub key_bytes: u32,
    /// The key, zero-padded.
    pub key: [u8; KEY_BYTES_MAX],
}

impl ImageRequest {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..16].copy_from_slice(&hello::hello(hello::KIND_IMAGE));
        bytes[16..24].copy_from_slice(&self.address.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.text_vaddr.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.text_bytes.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.key_bytes.to_le_bytes());
        bytes[48..].copy_from_slice(&self.key);
        bytes
    }

    /// From bytes; `None` for a stranger, another version, or a key that is too long.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<ImageRequest> {
        let bytes: &[u8; REQUEST_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let request = ImageRequest {
            address: word(16)?,
            text_vaddr: word(24)?,
            text_bytes: word(32)?,
            key_bytes: u32::from_le_bytes(bytes[40..44].try_into().ok()?),
            key: bytes[48..].try_into().ok()?,
        };
        let sized = (1..=KEY_BYTES_MAX).contains(&(request.key_bytes as usize));
        (hello::kind_of(&bytes[..16]) == Some(hello::KIND_IMAGE) && sized).then_some(request)
    }

    /// The key without its padding.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.key.get(..self.key_bytes as usize).unwrap_or(&[])
    }
}

/// Asks the supervisor at `socket_path` for an image, and waits for it; gives a descriptor of it.
///
/// # Errors
/// ETIMEDOUT after [`IMAGE_WAIT_MS`]; ENOEXEC when the library cannot be patched; ENOENT,
/// ECONNREFUSED and the like when there is no supervisor.
pub fn request_image(socket_path: &[u8], request: &ImageRequest) -> Result<i32, Errno> {
    let connection = raw::connect(socket_path, IMAGE_WAIT_MS)?;
    let answered = ask(connection, request);
    raw::close(connection);
    // A socket's time-out is told as if it did not block.
    answered.map_err(|errno| if errno == Errno::EAGAIN { Errno::ETIMEDOUT } else { errno })
}

fn ask(connection: i32, request: &ImageRequest) -> Result<i32, Errno> {
    raw::send(connection, &request.encode())?;
    let mut bytes = [0; hello::ANSWER_BYTES];
    let (count, fds) = raw::receive(connection, &mut bytes)?;
    let answer = bytes.get(..count).and_then(hello::Answer::decode).ok_or(Errno::EPROTO);
    let refused = answer.map(|answer| Errno::from_raw(answer.status as i32));
    match (refused, fds) {
        (Ok(None), [image, -1]) if image >= 0 => Ok(image),
        (refused, fds) => {
            fds.into_iter().filter(|fd| *fd >= 0).for_each(raw::close);
            Err(refused?.unwrap_or(Errno::EPROTO))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back_as_it_was_and_a_bad_one_does_not() {
        let request = ImageRequest {
            address: 0x7f00_1234_5000,
            text_vaddr: 0x2_6000,
            text_bytes: 0x15_5000,
            key_bytes: 20,
            key: core::array::from_fn(|at| if at < 20 { at as u8 + 1 } else { 0 }),
        };
        let bytes = request.encode();
        assert_eq!(ImageRequest::decode(&bytes), Some(request));
        assert_eq!(request.key().len(), 20);
        assert_eq!(ImageRequest::decode(&bytes[..79]), None);
        for (at, value) in [(0, 0), (8, 9), (40, 0), (40, 33)] {
            let mut bad = bytes;
            bad[at] = value;
            assert_eq!(ImageRequest::decode(&bad), None, "byte {at} is {value}");
        }
    }
}

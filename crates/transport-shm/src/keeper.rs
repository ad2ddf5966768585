//! Descriptors of the mount that stand for open file descriptions, and who keeps them.
//!
//! A description whose descriptors had to become the kernel's (`docs/design/fuse.md`) has one open
//! file of the kernel's mount, whose offset is the only one from then on. Every process that shares
//! the description has to come to the same open file, whichever of them lives longer; so a process
//! of the instance keeps a descriptor of it, as long as somebody holds the description's slot file.
//!
//! Messages on a `SOCK_SEQPACKET` socket: a request of 16 bytes (words: [`MAGIC`], what is asked
//! for, index and generation of the description), with a descriptor where one is to be kept; an
//! answer of 4 bytes, an errno or 0, with the descriptor that was asked for. One request for each
//! connection.

use mayfly_types::{Errno, OpenRef};

use crate::raw;

/// Name of the socket in the instance's directory.
pub const SOCKET_NAME: &str = "kept";
/// Begins a name in the mount's root that opens the file of a description: index and generation
/// follow as decimals, each after a hyphen.
pub const NAME_PREFIX: &str = ".mayfly-ofd";
/// The ioctl by which a file that was opened so gets the lock of the description, whose index and
/// generation (in the upper half) are its argument.
pub const TAKE_LOCK: u32 = (b'M' as u32) << 8 | 1;
/// Bytes of a request.
pub const REQUEST_BYTES: usize = 16;
/// First word of a request.
pub const MAGIC: u32 = 0x6b65_6570;
/// How long a process waits for an answer; the other side has nothing else to do.
const TIMEOUT_MS: u32 = 5000;

/// What is asked of the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Keep the descriptor that comes with it.
    Keep,
    /// Hand out a duplicate.
    Take,
}

/// The bytes of a request.
#[must_use]
pub fn encode(wish: Wish, open: OpenRef) -> [u8; REQUEST_BYTES] {
    let words = [MAGIC, u32::from(wish == Wish::Take), open.index, open.generation];
    let mut bytes = [0; REQUEST_BYTES];
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// A request from its bytes; `None` for anything else.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<(Wish, OpenRef)> {
    let mut words = [0; 4];
    let bytes: &[u8; REQUEST_BYTES] = bytes.try_into().ok()?;
    for (word, place) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes(place.try_into().ok()?);
    }
    let [MAGIC, wish @ 0..=1, index, generation] = words else { return None };
    let wish = if wish == 0 { Wish::Keep } else { Wish::Take };
    Some((wish, OpenRef { index, generation }))
}

/// A connection to the keeper at `socket_path`.
///
/// # Errors
/// ENOENT, ECONNREFUSED: there is none, since the instance is not mounted.
pub fn connect(socket_path: &[u8]) -> Result<i32, Errno> {
    raw::connect(socket_path, TIMEOUT_MS)
}

/// Has `descriptor` kept for `open`, over a connection, which is closed.
///
/// # Errors
/// What the keeper or the kernel said.
pub fn keep(connection: i32, open: OpenRef, descriptor: i32) -> Result<(), Errno> {
    let sent = raw::send_with(connection, &encode(Wish::Keep, open), descriptor);
    let kept =
        sent.and_then(|()| answer(connection)).map(|got| got.into_iter().for_each(raw::close));
    raw::close(connection);
    kept
}

/// A descriptor of the file that is kept for `open`, over a connection, which is closed. It is
/// closed at exec.
///
/// # Errors
/// ENOENT: nothing is kept. Otherwise what the keeper or the kernel said.
pub fn take(connection: i32, open: OpenRef) -> Result<i32, Errno> {
    let sent = raw::send(connection, &encode(Wish::Take, open));
    let taken = sent.and_then(|()| answer(connection)).and_then(|got| got.ok_or(Errno::EIO));
    raw::close(connection);
    taken
}

fn answer(connection: i32) -> Result<Option<i32>, Errno> {
    let mut status = [0; 4];
    let (count, [first, second]) = raw::receive(connection, &mut status)?;
    if second >= 0 {
        raw::close(second);
    }
    let errno = match count {
        4 => Errno::from_raw(i32::from_le_bytes(status)),
        _ => Some(Errno::EIO),
    };
    match errno {
        None => Ok((first >= 0).then_some(first)),
        Some(errno) => {
            if first >= 0 {
                raw::close(first);
            }
            Err(errno)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written_and_nothing_else_is() {
        let open = OpenRef { index: 7, generation: 9 };
        for wish in [Wish::Keep, Wish::Take] {
            assert_eq!(decode(&encode(wish, open)), Some((wish, open)));
        }
        let mut bytes = encode(Wish::Keep, open);
        assert_eq!(decode(&bytes[..15]), None);
        bytes[4] = 2;
        assert_eq!(decode(&bytes), None);
        bytes[0] ^= 1;
        assert_eq!(decode(&bytes), None);
    }
}

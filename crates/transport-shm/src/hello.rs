//! The two messages of the handshake, sent over a `SOCK_SEQPACKET` unix socket.
//!
//! | offset | bytes | hello | answer |
//! |---|---|---|---|
//! | 0 | 4 | magic | magic |
//! | 4 | 4 | layout version | layout version |
//! | 8 | 4 | kind of connection | session |
//! | 12 | 4 | 0 | 0, or an error number |
//! | 16 | 8 | | identity of the instance |
//!
//! The answer to [`KIND_ATTACH`] carries two descriptors, the node region and the session region.
//! The connection then stays open: its end is evidence that the process image is gone.

use crate::layout::{LAYOUT_VERSION, MAGIC};

/// Length of a hello, bytes.
pub const HELLO_BYTES: usize = 16;
/// Length of an answer, bytes.
pub const ANSWER_BYTES: usize = 24;
/// Kind of connection: a process that attaches.
pub const KIND_ATTACH: u32 = 1;
/// Kind of connection: a process that attaches once more, beside what it has attached already.
pub const KIND_ATTACH_BESIDE: u32 = 6;
/// Kind of connection: a command for the supervisor follows.
pub const KIND_CONTROL: u32 = 2;

/// Kind of connection: somebody asks the supervisor how things stand.
pub const KIND_LOOK: u32 = 3;
/// Kind of connection: the instance is to be mounted at a further place, whose path follows.
pub const KIND_MOUNT: u32 = 5;
/// Kind of connection: a process wants the image of a library ([`crate::image`]).
pub const KIND_IMAGE: u32 = 4;

/// What the supervisor answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The session, when `status` is 0.
    pub session: u32,
    /// 0, or an error number.
    pub status: u32,
    /// Identity of the instance.
    pub instance: u64,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn is_ours(bytes: &[u8]) -> bool {
    word(bytes, 0) == Some(MAGIC) && word(bytes, 4) == Some(LAYOUT_VERSION)
}

/// The bytes of a hello.
#[must_use]
pub fn hello(kind: u32) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..8].copy_from_slice(&LAYOUT_VERSION.to_le_bytes());
    bytes[8..12].copy_from_slice(&kind.to_le_bytes());
    bytes
}

/// The kind of connection that a hello asks for; `None` for a stranger or another version.
#[must_use]
pub fn kind_of(bytes: &[u8]) -> Option<u32> {
    if bytes.len() == HELLO_BYTES && is_ours(bytes) { word(bytes, 8) } else { None }
}

/// The path that follows a hello of [`KIND_MOUNT`]; `None` when these bytes are none.
#[must_use]
pub fn mount_path(bytes: &[u8]) -> Option<&[u8]> {
    let (hello, path) = bytes.split_at_checked(HELLO_BYTES)?;
    (kind_of(hello) == Some(KIND_MOUNT) && !path.is_empty()).then_some(path)
}

impl Answer {
    /// The bytes.
    #[must_use]
    pub fn encode(self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&LAYOUT_VERSION.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.session.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.status.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.instance.to_le_bytes());
        bytes
    }

    /// From bytes; `None` for a stranger or another version.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        if bytes.len() != ANSWER_BYTES || !is_ours(bytes) {
            return None;
        }
        Some(Answer {
            session: word(bytes, 8)?,
            status: word(bytes, 12)?,
            instance: u64::from_le_bytes(bytes[16..24].try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_messages_come_back_as_they_were() {
        assert_eq!(kind_of(&hello(KIND_ATTACH)), Some(KIND_ATTACH));
        let answer = Answer { session: 7, status: 0, instance: 0x1122_3344_5566_7788 };
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }

    #[test]
    fn another_version_is_refused() {
        let mut bytes = hello(KIND_ATTACH);
        bytes[4] ^= 0x80;
        assert_eq!(kind_of(&bytes), None);
        assert_eq!(kind_of(&bytes[..15]), None);
        assert_eq!(Answer::decode(&[0; ANSWER_BYTES]), None);
    }
}

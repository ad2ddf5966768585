//! The messages between supervisor and daemon, over the socket pair that the daemon inherits.
//!
//! A message is a `SOCK_SEQPACKET` packet of at least 16 bytes, kind (u32), two numbers (u32, u64),
//! little-endian, then text; descriptors travel beside it. The supervisor begins, after each start
//! of the daemon, with the node region, the inotify descriptor, every session it knows, and
//! [`Message::Start`].

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use mayfly_types::SessionId;
use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags,
    },
};

/// A message, without its descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// To the daemon, with the node region.
    Node,
    /// To the daemon, with the inotify descriptor that watches the slot files.
    Releases,
    /// To the daemon, with session region and pidfd: a process attached.
    Session {
        /// The session.
        session: SessionId,
        /// The process.
        pid: u32,
    },
    /// To the daemon of an instance of several nodes, with the socket on which it is to listen for
    /// the others: the instance's secret, as hexadecimal digits. Before [`Message::Start`].
    Net(String),
    /// To the daemon: the process image of a session is gone.
    End(SessionId),
    /// To the daemon: that was everything, serve.
    Start,
    /// To the daemon: finish, close the store, exit.
    Stop,
    /// From the daemon: requests are answered from now on.
    Ready,
    /// From the daemon: nothing of this session is left, its number may be used again.
    Ended(SessionId),
    /// From the daemon: it cannot serve, and why.
    Failed(String),
}

const TEXT_MAX: usize = 4096;
const HEAD_BYTES: usize = 16;

impl Message {
    fn parts(&self) -> (u32, u32, u64, &str) {
        match self {
            Message::Node => (1, 0, 0, ""),
            Message::Releases => (2, 0, 0, ""),
            Message::Session { session, pid } => (3, session.0, u64::from(*pid), ""),
            Message::End(session) => (4, session.0, 0, ""),
            Message::Start => (5, 0, 0, ""),
            Message::Stop => (6, 0, 0, ""),
            Message::Ready => (7, 0, 0, ""),
            Message::Ended(session) => (8, session.0, 0, ""),
            Message::Failed(why) => (9, 0, 0, why),
            Message::Net(secret) => (10, 0, 0, secret),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let (kind, first, second, text) = self.parts();
        let mut bytes = Vec::with_capacity(HEAD_BYTES + text.len());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(first.to_le_bytes());
        bytes.extend(second.to_le_bytes());
        bytes.extend(text.bytes().take(TEXT_MAX));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Message> {
        let (head, text) = bytes.split_at_checked(HEAD_BYTES)?;
        let kind = u32::from_le_bytes(head[0..4].try_into().ok()?);
        let first = u32::from_le_bytes(head[4..8].try_into().ok()?);
        let second = u64::from_le_bytes(head[8..16].try_into().ok()?);
        Some(match kind {
            1 => Message::Node,
            2 => Message::Releases,
            3 => Message::Session { session: SessionId(first), pid: u32::try_from(second).ok()? },
            4 => Message::End(SessionId(first)),
            5 => Message::Start,
            6 => Message::Stop,
            7 => Message::Ready,
            8 => Message::Ended(SessionId(first)),
            9 => Message::Failed(String::from_utf8_lossy(text).into_owned()),
            10 => Message::Net(String::from_utf8_lossy(text).into_owned()),
            _ => return None,
        })
    }
}

/// Sends a message and up to two descriptors.
///
/// # Errors
/// EPIPE when the other side is gone, EAGAIN on a non-blocking socket that is full.
pub fn send(to: impl AsFd, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let bytes = message.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let parts = [IoSlice::new(&bytes)];
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&to, &parts, &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Receives a message; `None` when the other side is gone.
///
/// # Errors
/// EPROTO for a message that is none, EAGAIN on a non-blocking socket without one.
pub fn receive(from: impl AsFd) -> Result<Option<(Message, Vec<OwnedFd>)>, Errno> {
    let mut bytes = [0; HEAD_BYTES + TEXT_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(&from, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let message = Message::decode(&bytes[..received.bytes]).ok_or(Errno::PROTO)?;
    Ok(Some((message, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        for message in [
            Message::Session { session: SessionId(7), pid: 4242 },
            Message::Start,
            Message::Failed("the disk is full".to_owned()),
        ] {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
        assert_eq!(Message::decode(&[0; 15]), None);
        assert_eq!(Message::decode(&[0xff; 64]), None);
    }
}

//! What a starting daemon receives from the supervisor.

use std::{
    os::fd::OwnedFd,
    sync::atomic::Ordering::{Relaxed, SeqCst},
};

use mayfly_transport_shm::{
    layout::{DAEMON_ABSENT, NodeRegion},
    region,
};
use mayfly_transport_tcp::Secret;
use mayfly_types::SessionId;
use rustix::io::Errno;

use crate::serve::{
    Waker,
    sessions::channel::{self, Message},
};

/// A session that exists already.
#[derive(Debug)]
pub struct Known {
    /// The session.
    pub session: SessionId,
    /// Its process.
    pub pid: u32,
    /// The memory of the session.
    pub region: OwnedFd,
    /// Evidence of the process.
    pub process: OwnedFd,
}

/// Everything that outlives a daemon.
#[derive(Debug)]
pub(in crate::serve) struct Handover {
    pub(in crate::serve) channel: OwnedFd,
    pub(in crate::serve) node: &'static NodeRegion,
    pub(in crate::serve) releases: OwnedFd,
    pub(in crate::serve) sessions: Vec<Known>,
    /// Where to listen for other nodes, and the instance's secret.
    pub(in crate::serve) net: Option<(OwnedFd, Secret)>,
    waker: Waker,
}

impl Handover {
    /// Receives it all from the supervisor at the other end of `channel`.
    ///
    /// # Errors
    /// EPIPE when the supervisor is gone, EPROTO when it does not keep to the protocol, ENOMEM.
    pub(in crate::serve) fn receive(channel: OwnedFd) -> Result<Handover, Errno> {
        let (mut node, mut releases, mut sessions, mut net) = (None, None, Vec::new(), None);
        loop {
            let (message, fds) = channel::receive(&channel)?.ok_or(Errno::PIPE)?;
            let mut fds = fds.into_iter();
            match message {
                Message::Node => node = fds.next(),
                Message::Releases => releases = fds.next(),
                Message::Session { session, pid } => {
                    let region = fds.next().ok_or(Errno::PROTO)?;
                    let process = fds.next().ok_or(Errno::PROTO)?;
                    sessions.push(Known { session, pid, region, process });
                }
                Message::Net(digits) => {
                    let secret = secret(&digits).ok_or(Errno::PROTO)?;
                    net = Some((fds.next().ok_or(Errno::PROTO)?, secret));
                }
                Message::Start => break,
                _ => return Err(Errno::PROTO),
            }
        }
        let node = region::map_node(node.ok_or(Errno::PROTO)?)
            .map_err(|errno| Errno::from_raw_os_error(errno.raw()))?;
        node.head.daemon_state.store(DAEMON_ABSENT, SeqCst);
        let releases = releases.ok_or(Errno::PROTO)?;
        Ok(Handover { channel, node, releases, sessions, net, waker: Waker::new(node) })
    }

    /// Starts of the daemon of this instance, this one included.
    pub(in crate::serve) fn starts(&self) -> u32 {
        self.node.head.daemon_starts.load(Relaxed)
    }

    /// Wakes the serving thread.
    pub(in crate::serve) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Tells the supervisor that this daemon cannot serve, and why.
    pub(in crate::serve) fn refuse(&self, why: &str) {
        // The supervisor notices a daemon that just ends, too.
        let _sent = channel::send(&self.channel, &Message::Failed(why.to_owned()), &[]);
    }
}

/// The secret from its hexadecimal digits.
fn secret(digits: &str) -> Option<Secret> {
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() || !digits.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    Some(Secret(bytes))
}

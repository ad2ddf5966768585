//! Connections to the supervisor's socket, until they have said what they want.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::PathBuf,
};

use anyhow::Result;
use mayfly_transport_shm::{
    Earlier, hello,
    image::{self, ImageRequest},
};
use mayfly_types::limits::PATH_BYTES_MAX;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send, sockopt};

use super::{Source, Watch};
use crate::{instance::places, log};

/// Connections that have not said anything yet; more are closed at once.
const WAITING_MAX: usize = 256;

/// Longest first message, bytes: a hello with a path.
const SAID_BYTES_MAX: usize = hello::HELLO_BYTES + PATH_BYTES_MAX;
const _: () = assert!(image::REQUEST_BYTES <= SAID_BYTES_MAX);

/// A wish that came over a connection.
pub(super) enum Heard {
    /// A process attaches.
    Attach {
        /// Its connection.
        connection: OwnedFd,
        /// Its number, by the kernel's word.
        pid: u32,
        /// Whether an earlier session of it ends.
        earlier: Earlier,
    },
    /// A process wants the image of a library.
    Image {
        /// Its connection.
        connection: OwnedFd,
        /// Its number, by the kernel's word.
        pid: u32,
        /// The library.
        request: ImageRequest,
    },
    /// The instance is to be mounted at a further place.
    Mount {
        /// Who asks.
        connection: OwnedFd,
        /// Where.
        point: PathBuf,
    },
    /// Somebody asks how things stand.
    Look(OwnedFd),
    /// The instance is to end.
    Stop,
}

#[derive(Default)]
pub(super) struct Connections {
    waiting: BTreeMap<u32, (OwnedFd, u32)>,
    last: u32,
    stops: Vec<OwnedFd>,
}

impl Connections {
    /// Takes what waits at the listener. Somebody else's process gets no byte.
    pub(super) fn accept(&mut self, listener: &OwnedFd, watch: &Watch) -> Result<()> {
        loop {
            let connection =
                match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                    Ok(connection) => connection,
                    Err(rustix::io::Errno::AGAIN) => return Ok(()),
                    Err(error) => return Err(error.into()),
                };
            let peer = sockopt::socket_peercred(&connection)?;
            if peer.uid.as_raw() != places::uid() {
                log::warn(format_args!("a process of user {} is refused", peer.uid.as_raw()));
                continue;
            }
            if self.waiting.len() >= WAITING_MAX {
                log::warn(format_args!(
                    "{WAITING_MAX} connections say nothing; another is refused"
                ));
                continue;
            }
            self.last = self.last.wrapping_add(1);
            watch.add(&connection, Source::Connection(self.last))?;
            let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0);
            self.waiting.insert(self.last, (connection, pid));
        }
    }

    /// Reads what a connection says; `None` when that is nothing of ours.
    pub(super) fn hear(&mut self, number: u32, watch: &Watch) -> Result<Option<Heard>> {
        let Some((connection, pid)) = self.waiting.remove(&number) else { return Ok(None) };
        watch.remove(&connection);
        let mut bytes = [0; SAID_BYTES_MAX];
        let count = match recv(&connection, &mut bytes, RecvFlags::empty()) {
            Ok((count, _)) => count,
            Err(_) => return Ok(None),
        };
        let said = &bytes[..count.min(SAID_BYTES_MAX)];
        if let Some(request) = ImageRequest::decode(said) {
            return Ok(Some(Heard::Image { connection, pid, request }));
        }
        if let Some(path) = hello::mount_path(said) {
            let point = PathBuf::from(OsStr::from_bytes(path));
            return Ok(Some(Heard::Mount { connection, point }));
        }
        match hello::kind_of(said) {
            Some(hello::KIND_ATTACH) => {
                Ok(Some(Heard::Attach { connection, pid, earlier: Earlier::Ends }))
            }
            Some(hello::KIND_ATTACH_BESIDE) => {
                Ok(Some(Heard::Attach { connection, pid, earlier: Earlier::Stays }))
            }
            Some(hello::KIND_LOOK) => Ok(Some(Heard::Look(connection))),
            Some(hello::KIND_CONTROL) => {
                self.stops.push(connection);
                Ok(Some(Heard::Stop))
            }
            _ => Ok(None),
        }
    }

    /// Answers those who asked for the end.
    pub(super) fn answer_stops(&mut self, word: &str) {
        for connection in self.stops.drain(..) {
            let _ = send(&connection, word.as_bytes(), SendFlags::NOSIGNAL);
        }
    }
}

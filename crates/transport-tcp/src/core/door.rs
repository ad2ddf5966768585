//! The socket on which other nodes call, and the callers that have proved nothing so far.

use std::{
    collections::VecDeque,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
};

use rustix::event::epoll;

use super::LISTENER;
use crate::peer::Token;

#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    /// Accepting failed; it is tried again then.
    again_ns: Option<u64>,
    /// Connections of others that have proved nothing, oldest first; some are gone.
    strangers: VecDeque<Token>,
}

impl Door {
    pub(super) fn new(listener: TcpListener) -> std::io::Result<Door> {
        listener.set_nonblocking(true)?;
        Ok(Door { listener, again_ns: None, strangers: VecDeque::new() })
    }

    pub(super) fn accept(&self) -> std::io::Result<(TcpStream, SocketAddr)> {
        self.listener.accept()
    }

    /// Epoll tells of callers from now on.
    pub(super) fn watch(&self, epoll: &OwnedFd) -> std::io::Result<()> {
        let data = epoll::EventData::new_u64(LISTENER);
        Ok(epoll::add(epoll, &self.listener, data, epoll::EventFlags::IN)?)
    }

    /// Epoll tells of no caller before `at_ns`.
    pub(super) fn shut(&mut self, epoll: &OwnedFd, at_ns: u64) {
        let _ = epoll::delete(epoll, &self.listener);
        self.again_ns = Some(at_ns);
    }

    /// When it has to be watched again, if it is shut.
    pub(super) fn again_ns(&self) -> Option<u64> {
        self.again_ns
    }

    pub(super) fn opened(&mut self) {
        self.again_ns = None;
    }

    pub(super) fn add_stranger(&mut self, token: Token) {
        self.strangers.push_back(token);
    }

    /// The oldest stranger, when there are more than `most`. `is_stranger` says of which this is
    /// still so.
    pub(super) fn stranger_too_many(
        &mut self,
        most: usize,
        is_stranger: impl Fn(&Token) -> bool,
    ) -> Option<Token> {
        if self.strangers.len() > most {
            self.strangers.retain(is_stranger);
        }
        (self.strangers.len() > most).then(|| self.strangers.pop_front()).flatten()
    }
}

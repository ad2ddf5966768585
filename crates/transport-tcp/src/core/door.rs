//! The socket on which other nodes call, and the callers that have proved nothing so far.

use std::{
    collections::VecDeque,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
};

use rustix::event::epoll;

use super::LISTENER;
use crate::{connection::Connection, peer::Token};

#[derive(Debug)]
pub(super) struct Door {
    /// Of which network thread this is.
    thread: usize,
    /// Another thread has it, where there is none.
    listener: Option<TcpListener>,
    /// Accepting failed; it is tried again then.
    again_ns: Option<u64>,
    /// Connections of others that have proved nothing, oldest first; some are gone.
    strangers: VecDeque<Token>,
    /// Connections of callers who belong to other threads.
    moved: Vec<(usize, Box<Connection>)>,
}

impl Door {
    pub(super) fn new(thread: usize, listener: Option<TcpListener>) -> std::io::Result<Door> {
        if let Some(listener) = &listener {
            listener.set_nonblocking(true)?;
        }
        let (strangers, moved) = (VecDeque::new(), Vec::new());
        Ok(Door { thread, listener, again_ns: None, strangers, moved })
    }

    pub(super) fn thread(&self) -> usize {
        self.thread
    }

    pub(super) fn move_to(&mut self, thread: usize, connection: Box<Connection>) {
        self.moved.push((thread, connection));
    }

    pub(super) fn moved(&mut self) -> std::vec::Drain<'_, (usize, Box<Connection>)> {
        self.moved.drain(..)
    }

    pub(super) fn accept(&self) -> std::io::Result<(TcpStream, SocketAddr)> {
        match &self.listener {
            Some(listener) => listener.accept(),
            None => Err(std::io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Epoll tells of callers from now on.
    pub(super) fn watch(&self, epoll: &OwnedFd) -> std::io::Result<()> {
        let data = epoll::EventData::new_u64(LISTENER);
        let Some(listener) = &self.listener else { return Ok(()) };
        Ok(epoll::add(epoll, listener, data, epoll::EventFlags::IN)?)
    }

    /// Epoll tells of no caller before `at_ns`.
    pub(super) fn shut(&mut self, epoll: &OwnedFd, at_ns: u64) {
        let _ = self.listener.as_ref().map(|listener| epoll::delete(epoll, listener));
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

//! The processes that a relay has started, and its lines to them.

use std::{
    collections::BTreeSet,
    io::{ErrorKind, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, ChildStderr, Command, Stdio},
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Pid,
};

use crate::{instance::Shared, supervisor::process_end};

use super::words::{Lines, NODE, NodeMessage, Order, Place, RELAY, Up, line};

/// Last bytes that are kept of what is complained of on the way to another host.
const COMPLAINT_BYTES: usize = 2048;
/// How long a process that has closed its line may live on before its end is not waited for.
const LINGER: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// Variables of an instance in which we are run; and of another host's way to us.
const FOREIGN: [&str; 4] = ["LD_PRELOAD", "LD_AUDIT", "MAYFLY_RUN", "SSH_CONNECTION"];

/// One process below, or the threads of this one.
pub(super) struct Below {
    /// Nodes from which nothing final was heard.
    nodes: BTreeSet<u32>,
    line: Option<UnixStream>,
    /// Bytes for it that it has not taken yet.
    owed: Vec<u8>,
    cut: bool,
    heard: Lines,
    complaints: Option<ChildStderr>,
    complaint: Vec<u8>,
    child: Option<Child>,
    /// Through what it is reached.
    way: String,
    is_node: bool,
}

/// The result of listening.
pub(super) struct Heard {
    /// Whole lines, to be passed on.
    pub(super) lines: Vec<Vec<u8>>,
    /// Nothing more is to come.
    pub(super) ended: bool,
}

impl Below {
    /// A node on this host.
    pub(super) fn node(order: &Order, place: Place, shared: Option<Shared>) -> Result<Below> {
        let program = std::env::current_exe().context("cannot find the mayfly program itself")?;
        let mut command = Command::new(program);
        command.arg(NODE).stdout(Stdio::null());
        let here = if super::is_this_machine(&place.host) { &FOREIGN[..] } else { &FOREIGN[..3] };
        for name in here {
            command.env_remove(name);
        }
        let order = Order { places: vec![place], shared, ..order.clone_without_places() };
        let (line, theirs) = UnixStream::pair()?;
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command.spawn().context("cannot start a node")?;
        let mut below = Below::new(&order.places, line)?;
        below.child = Some(child);
        below.is_node = true;
        below.owe(&self::line(&order)?);
        Ok(below)
    }

    /// A relay on the host of the first of these places.
    pub(super) fn relay(order: &Order, places: Vec<Place>) -> Result<Below> {
        let host = places.first().context("a part has a place")?.host.clone();
        let order = Order { here: Some(host), places, ..order.clone_without_places() };
        let host = order.here.as_deref().unwrap_or_default();
        let mut command = order.launcher.command(host, &order.remote_path, RELAY);
        for name in &FOREIGN[..3] {
            command.env_remove(name);
        }
        let way = command.get_program().to_string_lossy().into_owned();
        let (line, theirs) = UnixStream::pair()?;
        let child = command
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.with_context(|| format!("cannot run {way}"))?;
        let mut below = Below::new(&order.places, line)?;
        below.complaints = child.stderr.take();
        if let Some(complaints) = &below.complaints {
            rustix::io::ioctl_fionbio(complaints, true)?;
        }
        (below.child, below.way) = (Some(child), way);
        below.owe(&self::line(&order)?);
        Ok(below)
    }

    /// The process at the other end of `line`.
    pub(super) fn new(places: &[Place], line: UnixStream) -> Result<Below> {
        line.set_nonblocking(true)?;
        Ok(Below {
            nodes: places.iter().map(|place| place.node).collect(),
            line: Some(line),
            owed: Vec::new(),
            cut: false,
            heard: Lines::default(),
            complaints: None,
            complaint: Vec::new(),
            child: None,
            way: String::new(),
            is_node: false,
        })
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        let line = self.line.iter().map(|line| (0, line.as_fd()));
        line.chain(self.complaints.iter().map(|pipe| (1, pipe.as_fd())))
    }

    pub(super) fn is_done(&self) -> bool {
        self.line.is_none()
    }

    /// The process of a node.
    pub(super) fn node_process(&mut self) -> Option<&mut Child> {
        self.child.as_mut().filter(|_| self.is_node)
    }

    /// It is to be told this.
    pub(super) fn owe(&mut self, line: &[u8]) {
        self.owed.extend_from_slice(line);
        self.pay();
    }

    /// It is to be told nothing more.
    pub(super) fn cut(&mut self) {
        self.cut = true;
        self.pay();
    }

    fn pay(&mut self) {
        let Some(line) = &mut self.line else { return };
        while !self.owed.is_empty() {
            match line.write(&self.owed) {
                Ok(count) => {
                    self.owed.drain(..count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It is asked again when there is room.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Listening shows what is the matter.
                Err(_) => self.owed.clear(),
            }
        }
        if self.cut {
            let _ = line.shutdown(Shutdown::Write);
        }
    }

    /// Takes what it says. It is asked when there is something, or room for what it is owed.
    pub(super) fn hear(&mut self) -> Heard {
        self.pay();
        let (mut lines, mut ended) = (Vec::new(), false);
        let mut bytes = [0; 65536];
        while let Some(line) = &mut self.line {
            match line.read(&mut bytes) {
                Ok(0) => ended = true,
                Ok(count) => match self.heard.add(&bytes[..count]) {
                    Ok(more) => lines.extend(more),
                    Err(_) => ended = true,
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => ended = true,
            }
            if ended {
                break;
            }
        }
        lines.retain(|line| self.note(line));
        ended |= self.nodes.is_empty() && self.line.is_some();
        Heard { lines, ended }
    }

    /// Is this line one of its nodes?
    fn note(&mut self, line: &[u8]) -> bool {
        let Ok(Up { node, said }) = serde_json::from_slice::<Up>(line) else {
            // Greetings of another host's shell, say.
            self.complain(line);
            return false;
        };
        if said.is_last() { self.nodes.remove(&node) } else { self.nodes.contains(&node) }
    }

    fn complain(&mut self, bytes: &[u8]) {
        self.complaint.extend_from_slice(bytes);
        let too_many = self.complaint.len().saturating_sub(COMPLAINT_BYTES);
        self.complaint.drain(..too_many);
    }

    pub(super) fn hear_complaint(&mut self) -> Heard {
        let mut bytes = [0; 4096];
        while let Some(pipe) = &mut self.complaints {
            match pipe.read(&mut bytes) {
                Ok(count) if count > 0 => self.complain(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                _ => self.complaints = None,
            }
        }
        Heard { lines: Vec::new(), ended: false }
    }

    /// Lets it go; says of the nodes from which nothing final came that they are gone.
    pub(super) fn finish(&mut self, above: &mut impl Write) {
        if self.line.take().is_none() || self.nodes.is_empty() {
            return;
        }
        let how = self.child.as_mut().map(end_of).unwrap_or_default();
        self.hear_complaint();
        let why = if self.is_node {
            format!("its supervisor ended without a word ({how})")
        } else {
            format!("{} ended ({how})", self.way)
        };
        let log = String::from_utf8_lossy(&self.complaint).into_owned();
        for node in std::mem::take(&mut self.nodes) {
            let said = NodeMessage::Failed { why: why.clone(), log: log.clone() };
            super::agent::say(above, node, said);
        }
    }
}

fn end_of(child: &mut Child) -> String {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let exit = pid.and_then(|pid| process_end::of(pid).ok());
    let ended = exit
        .is_some_and(|exit| poll(&mut [PollFd::new(&exit, PollFlags::IN)], Some(&LINGER)) == Ok(1));
    match child.try_wait() {
        Ok(Some(status)) if ended => status.to_string(),
        _ => "it lives on, and does not speak".to_owned(),
    }
}

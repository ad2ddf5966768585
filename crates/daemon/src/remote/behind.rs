//! Writing behind: what processes write to other nodes' files in small pieces.
//!
//! Each small write of another node's file would be a request to there. Under session consistency
//! the process's own node takes the bytes, answers, and sends them on in transfers, several of
//! which are under way at a time.
//!
//! Invariants:
//! - Whoever of this node looks at a file, or changes it otherwise, waits until all of it that was
//!   written before is at its home. A request by path waits where it leaves for another node: what
//!   goes to files of that node is there first ([`super::own_requests`]).
//! - fsync, and the close of any descriptor, return when all of the file is at its home. Each
//!   description learns once, at its next write, fsync or close, that something is lost.
//! - Writes to the same bytes are executed in the order in which they were acknowledged.
//! - A description ends at its home behind what was written through it, whoever is killed here.
//! - A daemon that is killed loses what is behind. Its successor tells who wrote. Through
//!   descriptions of before its start it sends on at once: a write that comes again may be made.
//! - The host process keeps nothing.

#[cfg(test)]
mod alone;

use std::sync::atomic::Ordering::Relaxed;

use mayfly_sys::file::{O_DIRECT, O_DSYNC};
use mayfly_transport_shm::layout::{FILE_LOCKED, FILE_MAPPED, FILE_STRIPED, OPEN_PRIVATE};
use mayfly_transport_tcp::Body;
use mayfly_types::{
    Errno, FileId, FileKind, OpenRef,
    limits::{FILE_BYTES_MAX, SESSION_CALL_BYTES_MAX},
};
use mayfly_wire::{Op, Request, Wire, Write, WriteHead, Writer, Written as Reply};

use crate::{
    fault::{Fault, Outcome},
    files::{
        descriptions::{Elsewhere, Open, OpenTable},
        state::background::encoded,
    },
    log,
    remote::state::{
        behind::{Left, Room},
        own_requests::Own,
    },
    shard::Shard,
    shards::planted::{Planted, is_planted},
};

impl OpenTable {
    /// Whether bytes of the file may be read and written at other times than a process asks for:
    /// it has the description alone, and did not ask for anything else.
    pub(super) fn may_be_deferred(&self, open: OpenRef, found: &Open) -> bool {
        let entry = self.entry_of(open);
        let file = self.entry(found.id).map_or(u32::MAX, |file| file.flags.load(Relaxed));
        entry.state.load(Relaxed) == OPEN_PRIVATE
            && entry.kind.load(Relaxed) == FileKind::Regular as u32
            && entry.flags.load(Relaxed) & (O_DSYNC | O_DIRECT) == 0
            && file & (FILE_LOCKED | FILE_MAPPED | FILE_STRIPED) == 0
    }
}

impl Shard {
    /// What session consistency does with a request about another node's file. True when it is
    /// answered.
    pub(super) fn serve_in_session(
        &mut self,
        request: &Request<'_>,
        (file, remote): (FileId, Elsewhere),
        to: &mut Writer<'_>,
    ) -> Outcome<bool> {
        if let Some(open) = request.open().filter(|_| !self.remote.behind.is_empty()) {
            let left = self.remote.behind.goes_on(open);
            self.take_left(open, left);
        }
        match request {
            Request::Write(write) if self.write_behind(write, (file, remote), to)? => {
                return Ok(true);
            }
            Request::Read(read) => {
                self.all_sent(|other, _| other == file)?;
                return self.read_ahead(read, (file, remote), to);
            }
            // There is no object here.
            Request::Grant(_) => return Ok(false),
            Request::Close(_) if is_planted(Planted::CloseDoesNotWait) => return Ok(false),
            Request::Flush(_) if is_planted(Planted::CloseDoesNotWait) => return Ok(true),
            _ => {}
        }
        self.all_sent(|other, _| other == file)?;
        match request {
            Request::Flush(flush) => {
                self.tell_failure(flush.open).map(|()| !self.goes_back_at_close())
            }
            Request::Sync(_) => self.tell_failure_of(request).map(|()| false),
            _ => Ok(false),
        }
    }

    fn tell_failure_of(&mut self, request: &Request<'_>) -> Outcome<()> {
        request.open().map_or(Ok(()), |open| self.tell_failure(open))
    }

    /// Fails once when something is lost that was written through the description.
    pub(super) fn tell_failure(&mut self, open: OpenRef) -> Outcome<()> {
        self.remote.behind.take_failure(open).map_or(Ok(()), |errno| Err(errno.into()))
    }

    /// Takes a write, if it is one that may be sent on later.
    fn write_behind(
        &mut self,
        write: &Write<'_>,
        (file, remote): (FileId, Elsewhere),
        to: &mut Writer<'_>,
    ) -> Outcome<bool> {
        let Write { open, offset, append, bytes } = *write;
        let found = self.files.opens.get(open)?;
        self.tell_failure(open)?;
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let (false, Some(end), 1..=SESSION_CALL_BYTES_MAX) = (append, end, bytes.len()) else {
            return Ok(false);
        };
        let node = self.place.numbering.node_of(remote.shard);
        // One of before this daemon may have been sent by another one, whose answer is kept there.
        if !found.may_write()
            || found.taken_up
            || !self.files.opens.may_be_deferred(open, &found)
            || self.remote.unreached.contains(&node)
        {
            return Ok(false);
        }
        if self.remote.behind.others_touch(open, file, offset, bytes.len()) {
            self.all_sent(|other, _| other == file)?;
        }
        match self.remote.behind.room(open, bytes.len()) {
            Room::Yes => {}
            Room::No => return Ok(false),
            Room::Later => {
                self.send_behind();
                self.remote.behind.awaited = true;
                return Err(Fault::Busy);
            }
        }
        // The reply fits, or nothing is taken.
        Reply { object: true, count: bytes.len() as u32, end }.encode(to)?;
        self.remote.behind.add(open, (file, remote), offset, bytes);
        self.remote.ahead.drop_of(|other, _| other == file);
        self.files.opens.mark_behind(open, true);
        self.send_behind();
        Ok(true)
    }

    /// Sends what can be.
    pub(super) fn send_behind(&mut self) {
        if self.remote.behind.is_empty() {
            return;
        }
        for (open, remote) in self.remote.behind.to_send() {
            while self.send_piece(open, remote).is_some() {}
        }
    }

    fn send_piece(&mut self, open: OpenRef, remote: Elsewhere) -> Option<()> {
        if !self.remote.behind.may_send(open) {
            return None;
        }
        let node = self.place.numbering.node_of(remote.shard);
        let caller = self.remote.own.begin(node, Own::Behind(open))?;
        let sent = self.remote.behind.send(open, caller.request_id)?;
        let count = sent.bytes.len() as u32;
        let head = WriteHead { open: remote.open, offset: sent.offset, append: false, count };
        let head = encoded(0, &head).unwrap_or_default();
        self.send_own(caller, remote, Op::Write, Body::new(head, sent.bytes));
        Some(())
    }

    /// What became of a description.
    pub(super) fn take_left(&mut self, open: OpenRef, left: Left) {
        match left {
            Left::Something => {}
            Left::Nothing => self.files.opens.mark_behind(open, false),
            Left::Ended(remote, file, failed) => {
                if let Some(errno) = failed {
                    let what = "what was written is lost, and nobody is there to be told";
                    log::info(
                        format_args!("file {:016x}", file.0),
                        format_args!("{what}: {errno}"),
                    );
                }
                self.drop_elsewhere(Some(remote));
            }
        }
    }

    /// A description of another node's file has ended here. Its home is told when all is there.
    pub(crate) fn end_remote(&mut self, open: OpenRef, remote: Elsewhere) {
        self.remote.ahead.end(open);
        match self.remote.behind.end(open) {
            Some(left) => {
                self.take_left(open, left);
                self.send_behind();
            }
            None => self.drop_elsewhere(Some(remote)),
        }
    }

    /// An earlier daemon had acknowledged a write through this description, and not sent it on.
    pub(crate) fn is_lost(&mut self, open: OpenRef, file: FileId, remote: Option<Elsewhere>) {
        if let Some(remote) = remote {
            self.remote.behind.lost(open, file, remote);
        }
    }

    /// The failure that a close tells.
    pub(super) fn failure_of_close(&mut self, open: OpenRef) -> Option<Errno> {
        self.tell_failure(open).err().map(|fault| fault.errno())
    }
}

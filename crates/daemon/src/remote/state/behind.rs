//! What [`crate::remote::behind`] keeps and works with.

use std::collections::VecDeque;

use mayfly_transport_tcp::Bytes;
use mayfly_types::{
    Errno, FileId, OpenRef,
    limits::{
        BEHIND_BYTES_MAX, BEHIND_NODE_BYTES_MAX, BEHIND_WRITE_BYTES_MIN, SESSION_TRANSFERS_MAX,
        TRANSFER_BYTES_MAX,
    },
};

use crate::{files::descriptions::Elsewhere, maps::HashMap};

/// Bytes that are next to each other.
#[derive(Debug)]
struct Piece {
    offset: u64,
    bytes: Vec<u8>,
    /// Number of the first write that is in it.
    first: u64,
}

impl Piece {
    /// Takes in what touches it, as far as that makes one transfer.
    fn take_in(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some(at) = offset.checked_sub(self.offset).map(|at| at as usize) else { return false };
        if at > self.bytes.len() || at + bytes.len() > TRANSFER_BYTES_MAX {
            return false;
        }
        let inside = bytes.len().min(self.bytes.len() - at);
        // Who goes on once goes on for long.
        self.bytes.reserve_exact(TRANSFER_BYTES_MAX - self.bytes.len());
        self.bytes[at..at + inside].copy_from_slice(&bytes[..inside]);
        self.bytes.extend_from_slice(&bytes[inside..]);
        true
    }
}

/// A piece on its way.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) request_id: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
    first: u64,
}

fn overlap(one: u64, one_bytes: usize, other: u64, other_bytes: usize) -> bool {
    one < other + other_bytes as u64 && other < one + one_bytes as u64
}

/// What a piece counts.
fn cost(bytes: usize) -> usize {
    bytes.max(BEHIND_WRITE_BYTES_MIN)
}

/// What was written through one description.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) file: FileId,
    pub(crate) remote: Elsewhere,
    /// The piece that grows.
    filling: Option<Piece>,
    /// Those that are whole, oldest first.
    whole: VecDeque<Piece>,
    sent: Vec<Sent>,
    /// All of them together.
    bytes: usize,
    /// Why some of it is lost. Nobody was told yet.
    failed: Option<Errno>,
    /// Somebody was told so by the last request: it is known until the next one, which shows that
    /// the answer has arrived.
    told: bool,
    /// The description is gone. Its end is told to the home behind what was written.
    pub(crate) ended: bool,
}

impl Written {
    fn new(file: FileId, remote: Elsewhere) -> Written {
        Written {
            file,
            remote,
            filling: None,
            whole: VecDeque::new(),
            sent: Vec::new(),
            bytes: 0,
            failed: None,
            told: false,
            ended: false,
        }
    }

    fn is_behind(&self) -> bool {
        self.bytes > 0
    }

    /// The oldest write that is not at the home.
    fn oldest(&self) -> Option<u64> {
        let sent = self.sent.iter().map(|sent| sent.first);
        sent.chain(self.whole.iter().chain(&self.filling).map(|piece| piece.first)).min()
    }

    /// Whether some of it is in this range.
    fn touches(&self, offset: u64, bytes: usize) -> bool {
        let waiting = self.whole.iter().chain(&self.filling);
        waiting
            .map(|piece| (piece.offset, piece.bytes.len()))
            .chain(self.sent.iter().map(|sent| (sent.offset, sent.bytes.len())))
            .any(|(other, other_bytes)| overlap(offset, bytes, other, other_bytes))
    }

    /// Takes a write in.
    fn add(&mut self, offset: u64, bytes: &[u8], number: u64) {
        if !self.filling.as_mut().is_some_and(|piece| piece.take_in(offset, bytes)) {
            self.close_piece();
            let mut room = Vec::with_capacity(bytes.len().max(BEHIND_WRITE_BYTES_MIN));
            room.extend_from_slice(bytes);
            self.filling = Some(Piece { offset, bytes: room, first: number });
        }
        if self.filling.as_ref().is_some_and(|piece| piece.bytes.len() >= TRANSFER_BYTES_MAX) {
            self.close_piece();
        }
        self.bytes = self.counted();
    }

    fn close_piece(&mut self) {
        self.whole.extend(self.filling.take());
    }

    fn counted(&self) -> usize {
        let waiting = self.whole.iter().chain(&self.filling).map(|piece| cost(piece.bytes.len()));
        waiting.chain(self.sent.iter().map(|sent| cost(sent.bytes.len()))).sum()
    }

    /// The next piece that may be sent: not while an older one is under way of which it changes
    /// bytes.
    fn may_send(&self) -> bool {
        let Some(next) = self.whole.front() else { return false };
        let older =
            |sent: &Sent| overlap(next.offset, next.bytes.len(), sent.offset, sent.bytes.len());
        self.sent.len() < SESSION_TRANSFERS_MAX && !self.sent.iter().any(older)
    }
}

/// What was written through all descriptions of the node.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    descriptions: HashMap<OpenRef, Written>,
    /// What all have together.
    bytes: usize,
    /// Number of the last write.
    pub(crate) writes: u64,
    /// Requests wait until something is at its home.
    pub(crate) awaited: bool,
}

/// Whether one more write is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Yes,
    /// When some of what the description has is at its home.
    Later,
    /// The node has taken enough of others.
    No,
}

/// What becomes of a description when a piece is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Something,
    /// Nothing is behind, and nothing is to be told.
    Nothing,
    /// The same of one that is gone: its home may hear of that.
    Ended(Elsewhere, FileId, Option<Errno>),
}

impl Behind {
    /// Nothing is behind, and nobody has to be told anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.descriptions.is_empty()
    }

    /// Whether there is room for a write of so many bytes.
    pub(crate) fn room(&self, open: OpenRef, bytes: usize) -> Room {
        let own = self.descriptions.get(&open).map_or(0, |written| written.bytes);
        let more = cost(bytes);
        if own + more > BEHIND_BYTES_MAX {
            Room::Later
        } else if self.bytes + more > BEHIND_NODE_BYTES_MAX {
            Room::No
        } else {
            Room::Yes
        }
    }

    /// Takes a write in; there is room.
    pub(crate) fn add(
        &mut self,
        open: OpenRef,
        (file, remote): (FileId, Elsewhere),
        offset: u64,
        bytes: &[u8],
    ) {
        self.writes += 1;
        let written = self.descriptions.entry(open).or_insert_with(|| Written::new(file, remote));
        let before = written.bytes;
        written.add(offset, bytes, self.writes);
        self.bytes = self.bytes + written.bytes - before;
    }

    /// Whether other descriptions have written there.
    pub(crate) fn others_touch(
        &self,
        open: OpenRef,
        file: FileId,
        offset: u64,
        bytes: usize,
    ) -> bool {
        let others = self.descriptions.iter().filter(|(other, _)| **other != open);
        let mut of_file = others.filter(|(_, written)| written.file == file);
        of_file.any(|(_, written)| written.touches(offset, bytes))
    }

    /// What was written so far is not added to any more. True when there is any of it, up to this
    /// write, that is not at its home.
    pub(crate) fn close_pieces(&mut self, upto: u64, is_it: impl Fn(&Written) -> bool) -> bool {
        let mut behind = false;
        for written in self.descriptions.values_mut().filter(|written| is_it(written)) {
            written.close_piece();
            behind |= written.oldest().is_some_and(|oldest| oldest <= upto);
        }
        self.awaited |= behind;
        behind
    }

    /// Whether anything is behind that goes there.
    pub(crate) fn is_any(&self, is_it: impl Fn(&Written) -> bool) -> bool {
        self.descriptions.values().any(|written| written.is_behind() && is_it(written))
    }

    /// Whether a piece of this one can be sent.
    pub(crate) fn may_send(&self, open: OpenRef) -> bool {
        self.descriptions.get(&open).is_some_and(Written::may_send)
    }

    /// Descriptions of which a piece can be sent.
    pub(crate) fn to_send(&self) -> Vec<(OpenRef, Elsewhere)> {
        let ready = self.descriptions.iter().filter(|(_, written)| written.may_send());
        ready.map(|(open, written)| (*open, written.remote)).collect()
    }

    /// The next piece of a description, under way from now on; nothing while it may not be sent.
    pub(crate) fn send(&mut self, open: OpenRef, request_id: u64) -> Option<Sent> {
        let written = self.descriptions.get_mut(&open).filter(|written| written.may_send())?;
        let Piece { offset, bytes, first } = written.whole.pop_front()?;
        let sent = Sent { request_id, offset, bytes: bytes.into(), first };
        written.sent.push(sent.clone());
        Some(sent)
    }

    /// A piece was answered: so many bytes of it were written, or none.
    pub(crate) fn answered(
        &mut self,
        open: OpenRef,
        request_id: u64,
        done: Result<usize, Errno>,
    ) -> Left {
        let Some(written) = self.descriptions.get_mut(&open) else { return Left::Something };
        let Some(at) = written.sent.iter().position(|sent| sent.request_id == request_id) else {
            return Left::Something;
        };
        let Sent { offset, bytes, first, .. } = written.sent.swap_remove(at);
        match done {
            Ok(count) if count >= bytes.len() => {}
            Ok(count) if count > 0 => {
                let rest = bytes[count..].to_vec();
                let rest = Piece { offset: offset + count as u64, bytes: rest, first };
                written.whole.push_front(rest);
            }
            // What follows is lost, too: it may rest on this.
            failed => {
                written.failed.get_or_insert(failed.err().unwrap_or(Errno::EIO));
                written.whole.clear();
                written.filling = None;
            }
        }
        let before = written.bytes;
        written.bytes = written.counted();
        self.bytes = self.bytes + written.bytes - before;
        self.left(open)
    }

    /// Removes a description of which nothing is behind or to be told.
    fn left(&mut self, open: OpenRef) -> Left {
        let Some(written) = self.descriptions.get(&open) else { return Left::Nothing };
        let untold = written.failed.is_some() || written.told;
        if written.is_behind() || (untold && !written.ended) {
            return Left::Something;
        }
        let left = match written.ended {
            true => Left::Ended(written.remote, written.file, written.failed),
            false => Left::Nothing,
        };
        self.descriptions.remove(&open);
        left
    }

    /// Why some of what was written is lost; told once.
    pub(crate) fn take_failure(&mut self, open: OpenRef) -> Option<Errno> {
        let written = self.descriptions.get_mut(&open)?;
        let errno = written.failed.take()?;
        written.told = true;
        Some(errno)
    }

    /// Another request of a description is executed: what the last one was told has arrived.
    pub(crate) fn goes_on(&mut self, open: OpenRef) -> Left {
        match self.descriptions.get_mut(&open) {
            Some(written) if written.told => written.told = false,
            _ => return Left::Something,
        }
        self.left(open)
    }

    /// An earlier daemon has acknowledged something that is lost with it.
    pub(crate) fn lost(&mut self, open: OpenRef, file: FileId, remote: Elsewhere) {
        let failed = Some(Errno::EIO);
        self.descriptions.insert(open, Written { failed, ..Written::new(file, remote) });
    }

    /// A description ends. What is left of it, once all is at its home.
    pub(crate) fn end(&mut self, open: OpenRef) -> Option<Left> {
        let written = self.descriptions.get_mut(&open)?;
        written.ended = true;
        written.close_piece();
        Some(self.left(open))
    }

    /// Descriptions at another node's shard of which the ones here are gone, though not all that
    /// was written through them is there.
    pub(crate) fn ended_at(&self) -> impl Iterator<Item = Elsewhere> {
        self.descriptions.values().filter(|written| written.ended).map(|written| written.remote)
    }
}

#[cfg(test)]
mod tests;

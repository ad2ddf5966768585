//! What [`crate::remote::ahead`] keeps and works with.

use std::collections::VecDeque;

use mayfly_transport_tcp::Body;
use mayfly_types::{
    FileId, OpenRef, Timestamp,
    limits::{AHEAD_MS, AHEAD_NODE_BYTES_MAX, SESSION_TRANSFERS_MAX, TRANSFER_BYTES_MAX},
};
use mayfly_wire::{Data, Reader, Wire};

use crate::{files::descriptions::Elsewhere, maps::HashMap};

/// The first bytes that are read ahead of somebody who begins to read on; each time it is twice as
/// many.
const FIRST_BYTES: usize = TRANSFER_BYTES_MAX / 4;

/// So many descriptions are known of which it is looked whether they read on. Beyond, all are
/// forgotten.
const READERS_MAX: usize = 4096;

/// Bytes that were asked for.
#[derive(Debug)]
struct Chunk {
    request_id: u64,
    offset: u64,
    bytes: usize,
    asked: Timestamp,
    /// The reply, once it is here.
    reply: Option<Body>,
}

impl Chunk {
    /// Its bytes, and whether the file has an object.
    fn data(&self) -> Option<Data<'_>> {
        let reply = self.reply.as_ref()?.whole()?;
        Data::decode(&mut Reader::new(reply)).ok()
    }

    fn is_old(&self, now: Timestamp) -> bool {
        let ms = |time: Timestamp| time.seconds * 1000 + i64::from(time.nanoseconds / 1_000_000);
        ms(now) - ms(self.asked) >= AHEAD_MS
    }
}

/// Who reads.
#[derive(Debug)]
struct Window {
    file: FileId,
    remote: Elsewhere,
    /// Where the last read ended.
    next: u64,
    /// The last two reads were in a row.
    goes_on: bool,
    /// How much is asked for next, bytes.
    step: usize,
    /// In a row, the oldest first.
    chunks: VecDeque<Chunk>,
}

impl Window {
    fn end(&self) -> u64 {
        self.chunks.back().map_or(self.next, |chunk| chunk.offset + chunk.bytes as u64)
    }
}

/// What a read gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// So many bytes are in the buffer, and whether the file has an object.
    Here(usize, bool),
    /// They are on their way.
    Soon,
    /// It is asked for by itself.
    No,
}

/// What to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) remote: Elsewhere,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

/// What was read ahead for the descriptions of the node.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    windows: HashMap<OpenRef, Window>,
    /// All chunks together.
    bytes: usize,
}

impl Ahead {
    /// Looks for what somebody reads. `waited`: he has waited for it, so that also less than he
    /// asked for is what the file has.
    pub(crate) fn find(
        &mut self,
        open: OpenRef,
        (offset, count): (u64, usize),
        (now, waited): (Timestamp, bool),
        buffer: &mut Vec<u8>,
    ) -> Found {
        let Some(window) = self.windows.get_mut(&open) else { return Found::No };
        if window.chunks.is_empty() || offset != window.next && !waited {
            return Found::No;
        }
        buffer.clear();
        let mut object = false;
        let mut whole = false;
        for chunk in &window.chunks {
            let at = offset + buffer.len() as u64;
            if chunk.offset > at || at >= chunk.offset + chunk.bytes as u64 {
                continue;
            }
            if chunk.reply.is_none() {
                return Found::Soon;
            }
            let Some(data) = chunk.data().filter(|_| !chunk.is_old(now)) else { break };
            let inside = (at - chunk.offset) as usize;
            let bytes = data.bytes.get(inside..).unwrap_or_default();
            let bytes = &bytes[..bytes.len().min(count - buffer.len())];
            buffer.extend_from_slice(bytes);
            object = data.object;
            whole = buffer.len() == count;
            // The file ended there. It may be longer by now.
            if whole || data.bytes.len() < chunk.bytes {
                whole |= waited;
                break;
            }
        }
        if !whole {
            self.drop_chunks(open);
            return Found::No;
        }
        self.read_on(open, offset + buffer.len() as u64);
        Found::Here(buffer.len(), object)
    }

    /// Somebody has read up to there.
    fn read_on(&mut self, open: OpenRef, next: u64) {
        let Some(window) = self.windows.get_mut(&open) else { return };
        window.next = next;
        let is_over = |chunk: &Chunk| chunk.offset + chunk.bytes as u64 <= next;
        while window.chunks.front().is_some_and(|chunk| is_over(chunk) && chunk.reply.is_some()) {
            self.bytes -= window.chunks.pop_front().map_or(0, |chunk| chunk.bytes);
        }
    }

    /// A read that is asked for by itself. True when it goes on where others ended, so that it is
    /// worth to read ahead from here on.
    pub(crate) fn note(
        &mut self,
        open: OpenRef,
        (file, remote): (FileId, Elsewhere),
        offset: u64,
        count: usize,
    ) -> bool {
        if self.windows.len() >= READERS_MAX && !self.windows.contains_key(&open) {
            self.windows.clear();
            self.bytes = 0;
        }
        self.drop_chunks(open);
        let chunks = VecDeque::new();
        let fresh = Window { file, remote, next: 0, goes_on: false, step: FIRST_BYTES, chunks };
        let window = self.windows.entry(open).or_insert(fresh);
        let in_a_row = offset != 0 && offset == window.next;
        if !in_a_row {
            window.step = FIRST_BYTES;
        }
        window.goes_on = in_a_row;
        window.next = if in_a_row { offset } else { offset + count as u64 };
        in_a_row
    }

    /// What is to be asked for, so that who reads on finds it.
    pub(crate) fn wanted(&self, open: OpenRef) -> Option<Wanted> {
        let window = self.windows.get(&open).filter(|window| window.goes_on)?;
        let ends = |chunk: &Chunk| chunk.data().is_some_and(|data| data.bytes.len() < chunk.bytes);
        let offset = window.end();
        let ahead = offset.saturating_sub(window.next) as usize;
        let enough = ahead >= window.step;
        let room = window.chunks.len() < SESSION_TRANSFERS_MAX
            && self.bytes + window.step <= AHEAD_NODE_BYTES_MAX;
        let wanted = Wanted { remote: window.remote, offset, bytes: window.step };
        (room && !enough && !window.chunks.iter().any(ends)).then_some(wanted)
    }

    /// That is asked for now.
    pub(crate) fn asked(&mut self, open: OpenRef, request_id: u64, wanted: Wanted, now: Timestamp) {
        let Some(window) = self.windows.get_mut(&open) else { return };
        let Wanted { offset, bytes, .. } = wanted;
        window.chunks.push_back(Chunk { request_id, offset, bytes, asked: now, reply: None });
        window.step = (2 * window.step).min(TRANSFER_BYTES_MAX);
        self.bytes += bytes;
    }

    /// It is here, or has failed.
    pub(crate) fn answered(&mut self, open: OpenRef, request_id: u64, reply: Option<Body>) {
        let Some(window) = self.windows.get_mut(&open) else { return };
        let of_it = |chunk: &&mut Chunk| chunk.request_id == request_id;
        let Some(chunk) = window.chunks.iter_mut().find(of_it) else { return };
        chunk.reply = reply.map(|reply| match reply.whole() {
            Some(_) => reply,
            None => Body::new(Vec::new(), reply.to_vec().into()),
        });
        let sound = chunk.data().is_some_and(|data| data.bytes.len() <= chunk.bytes);
        if !sound {
            // Who reads asks for it himself, and hears why it fails.
            window.goes_on = false;
            self.drop_chunks(open);
        }
    }

    fn drop_chunks(&mut self, open: OpenRef) {
        let Some(window) = self.windows.get_mut(&open) else { return };
        self.bytes -= window.chunks.drain(..).map(|chunk| chunk.bytes).sum::<usize>();
    }

    /// This node's processes change these files, or are to see what others have changed.
    pub(crate) fn drop_of(&mut self, is_it: impl Fn(FileId, Elsewhere) -> bool) {
        let of_it = |(_, window): &(&OpenRef, &Window)| is_it(window.file, window.remote);
        let opens: Vec<OpenRef> =
            self.windows.iter().filter(of_it).map(|(open, _)| *open).collect();
        for open in opens {
            self.drop_chunks(open);
        }
    }

    /// Nothing was read ahead.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// A description has ended.
    pub(crate) fn end(&mut self, open: OpenRef) {
        self.drop_chunks(open);
        self.windows.remove(&open);
    }
}

#[cfg(test)]
mod tests;

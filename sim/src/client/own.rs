//! What a process reads and writes by itself, in an object that it has leave to use.
//!
//! The same steps as in `mayfly-client` (`objects.rs`, `parts.rs`, `append.rs`): leave is kept with
//! the generation that it came with, and asked for when that or the allowance is another; the
//! transfer is made; then the generation is looked at again, and when it has changed the transfer
//! is made once more. Between any two of these the process may stand still, for seconds too. One
//! that is killed has made the transfer or has not when its session ends.

use std::{collections::BTreeMap, num::NonZeroU16, sync::atomic::Ordering::Relaxed};

use mayfly_object::{ObjectId, ObjectStore};
use mayfly_transport_shm::layout::{
    FILE_APPEND_BY_REQUEST, FILE_BY_REQUEST, FILE_OBJECT, FILE_STRIPED, FileEntry,
};
use mayfly_types::{Chunks, Errno, FileId, OpenRef, Tail, limits::INLINE_BYTES_MAX};
use mayfly_wire::{
    GRANT_OBJECT, GRANT_PART, GRANT_READ, GRANT_WRITE, Grant, Granted, OwnPart, Request,
};

use super::{Client, Common, What, decode, heard::heard_length};
use crate::{
    bytes::{BLOCK_BYTES, block, bytes_of, read_block},
    dice::Dice,
    history::{BytesOp, Heard, Op},
    network::{MS, SECOND, US},
    node::Node,
};

/// After so many grants that had ended again the daemon does it.
const TRIES: u32 = 8;

/// What kind of file it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// One whose content is judged.
    File,
    /// One whose is not.
    Scrap,
}

/// Something that is done to the bytes of an open file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) of: Of,
    pub(super) open: OpenRef,
    pub(super) op: BytesOp,
    /// Its place in the history.
    pub(super) event: Option<usize>,
    pub(super) tries: u32,
}

/// What is kept of a file.
#[derive(Debug, Clone, Copy)]
struct Leave {
    generation: u32,
    object: ObjectId,
    own: OwnPart,
    writable: bool,
}

/// A transfer that is being made.
#[derive(Debug)]
struct Transfer {
    work: Work,
    leave: Leave,
    offset: u64,
    /// What came of it, once it is made; nothing where only a request can tell.
    made: Option<Option<Heard>>,
}

/// What a process heeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heed {
    /// All that it should.
    All,
    /// Not whether its leave has ended.
    NoEnd,
    /// Not whether it may append.
    NoAppend,
}

/// All of that.
#[derive(Debug)]
pub(super) struct Own {
    leaves: BTreeMap<u64, Leave>,
    transfer: Option<Transfer>,
    dice: Dice,
    stall_ns: u64,
    heed: Heed,
}

/// Where in an object it is to be done, or why not.
enum Way {
    Request,
    /// Leave is needed, for this and up to here.
    Ask(u32, u64),
    Object(Leave, u64),
}

impl Own {
    pub(super) fn new(dice: Dice, heed: Heed) -> Own {
        Own { leaves: BTreeMap::new(), transfer: None, dice, stall_ns: 0, heed }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.transfer.is_some()
    }

    /// How long the process stands still before the next step, nanoseconds.
    pub(super) fn stall_ns(&self) -> u64 {
        self.stall_ns
    }

    fn stall(&mut self) {
        let most = match self.dice.below(16) {
            0 => 3 * SECOND,
            1..=3 => 20 * MS,
            _ => 20 * US,
        };
        self.stall_ns = self.dice.below(most);
    }
}

/// The entry of the file that is open.
fn entry_of(node: &Node, open: OpenRef) -> Option<(FileId, &'static FileEntry)> {
    let region = node.region();
    let open = region.opens.get(open.index as usize)?;
    let entry = region.files.get(open.file.load(Relaxed) as usize)?;
    let id = entry.id.load(Relaxed);
    (id == open.id.load(Relaxed)).then_some((FileId(id), entry))
}

fn chunks_of(own: OwnPart) -> Option<Chunks> {
    let OwnPart { width, chunk_log2, hashed, .. } = own;
    Some(Chunks { width: NonZeroU16::new(width)?, chunk_log2, hashed, tail: Tail::default() })
}

impl Own {
    fn way(&self, node: &Node, work: &Work) -> Way {
        let Some((id, entry)) = entry_of(node, work.open) else { return Way::Request };
        let flags = entry.flags.load(Relaxed);
        let generation = entry.grant_generation.load(Relaxed);
        let kept = self.leaves.get(&id.0);
        let leave =
            kept.filter(|of| of.generation == generation || self.heed == Heed::NoEnd).copied();
        if flags & FILE_STRIPED != 0 {
            return way_to_part(id, entry, work.op, leave);
        }
        let appends = matches!(work.op, BytesOp::Append(_));
        let asks = flags & FILE_APPEND_BY_REQUEST != 0 && self.heed != Heed::NoAppend;
        if flags & FILE_BY_REQUEST != 0 || appends && asks {
            return Way::Request;
        }
        let has_object = flags & FILE_OBJECT != 0;
        let leave = leave.filter(|leave| leave.own.width == 0);
        let (offset, end) = match work.op {
            BytesOp::Write(at, _) => (bytes_of(at), Some(bytes_of(at) + BLOCK_BYTES as u64)),
            BytesOp::Read(at) => (bytes_of(at), None),
            BytesOp::Length => (0, None),
            BytesOp::Truncate(_) => return Way::Request,
            BytesOp::Append(_) if !has_object => return Way::Request,
            BytesOp::Append(_) => {
                let Some(leave) = leave else { return Way::Ask(GRANT_READ, 0) };
                let length = node.disk.attr_of_process(leave.object).unwrap_or(0);
                (0, Some(length + BLOCK_BYTES as u64))
            }
        };
        let Some(end) = end else {
            return match leave {
                Some(leave) => Way::Object(leave, offset),
                None if has_object => Way::Ask(GRANT_READ, 0),
                None => Way::Request,
            };
        };
        let spills = !appends && end > INLINE_BYTES_MAX as u64;
        if !has_object && !spills {
            return Way::Request;
        }
        let covered = end <= entry.allowance_end.load(Relaxed);
        match leave.filter(|leave| leave.writable && covered) {
            Some(leave) => Way::Object(leave, offset),
            None => Way::Ask(GRANT_WRITE | if spills { GRANT_OBJECT } else { 0 }, end),
        }
    }
}

fn way_to_part(id: FileId, entry: &FileEntry, op: BytesOp, leave: Option<Leave>) -> Way {
    let (at, want) = match op {
        BytesOp::Write(at, _) => (at, GRANT_WRITE),
        BytesOp::Read(at) => (at, GRANT_READ),
        _ => return Way::Request,
    };
    let (offset, end) = (bytes_of(at), bytes_of(at) + BLOCK_BYTES as u64);
    let Some((leave, chunks)) = leave.and_then(|of| Some((of, chunks_of(of.own)?))) else {
        return Way::Ask(GRANT_PART | want, end);
    };
    if chunks.part_of(id, offset) != leave.own.index {
        return Way::Request;
    }
    let write = want == GRANT_WRITE;
    if write && chunks.hashed {
        return Way::Request;
    }
    let end_in_part = chunks.in_part(end - 1) + 1;
    let covered = !write || leave.writable && end_in_part <= entry.allowance_end.load(Relaxed);
    if covered && leave.object.generation != 0 {
        return Way::Object(leave, chunks.in_part(offset));
    }
    Way::Ask(GRANT_PART | want, end)
}

impl Client {
    /// Does it by itself, if there is leave, or has to ask for leave; else by a request.
    pub(super) fn work(&mut self, node: &Node, work: Work) {
        let way = match &self.own {
            Some(own) if work.tries < TRIES => own.way(node, &work),
            _ => Way::Request,
        };
        match way {
            Way::Request => self.work_by_request(node, work),
            Way::Ask(want, end) => {
                let before = entry_of(node, work.open)
                    .map_or(0, |(_, entry)| entry.grant_generation.load(Relaxed));
                let ask = Request::Grant(Grant { open: work.open, want, end });
                let work = Work { tries: work.tries + 1, ..work };
                let writable = want & GRANT_WRITE != 0;
                self.ask(node, &ask, What::Leave { work, writable, before }, work.event);
            }
            Way::Object(leave, offset) => {
                let Some(own) = &mut self.own else { return };
                own.transfer = Some(Transfer { work, leave, offset, made: None });
                own.stall();
            }
        }
    }

    /// Leave was given, or refused.
    pub(super) fn take_leave(
        &mut self,
        node: &Node,
        (work, writable, before): (Work, bool, u32),
        body: &[u8],
    ) {
        let granted: Granted<'_> = decode(body);
        let path = String::from_utf8_lossy(granted.object_path);
        let object = ObjectId::of_path(&path);
        let striped = granted.own.width != 0;
        if object.is_none() && !striped {
            return self.work_by_request(node, work);
        }
        let found = entry_of(node, work.open);
        let (Some((id, _)), Some(own)) = (found, &mut self.own) else {
            return self.work_by_request(node, work);
        };
        // Of a part that there is no leave for its place is kept, as long as nothing changes.
        let generation = if object.is_some() { granted.generation } else { before };
        let nothing = ObjectId { file: id, generation: 0 };
        let (object, refused) = (object.unwrap_or(nothing), object.is_none());
        let leave = Leave { generation, object, own: granted.own, writable };
        own.leaves.insert(id.0, leave);
        if refused { self.work_by_request(node, work) } else { self.work(node, work) }
    }

    /// The next step of a transfer.
    pub(super) fn go_on_by_itself(&mut self, node: &Node, common: &mut Common) {
        let Some(own) = &mut self.own else { return };
        let Some(mut transfer) = own.transfer.take() else { return };
        let Some(made) = transfer.made.take() else {
            transfer.made = Some(make(&transfer, node));
            own.transfer = Some(transfer);
            return own.stall();
        };
        let Transfer { work, leave, .. } = transfer;
        let revoked = own.heed != Heed::NoEnd
            && entry_of(node, work.open)
                .is_some_and(|(_, entry)| entry.grant_generation.load(Relaxed) != leave.generation);
        match made {
            _ if revoked => {
                let event = self.note_again(common, work);
                self.work(node, Work { tries: work.tries + 1, event, ..work });
            }
            None => self.work_by_request(node, work),
            Some(heard) => self.worked(node, common, work, heard),
        }
    }

    /// A write that is made once more counts as two: who has written the same bytes in between is
    /// overwritten (`docs/PLAN.md`).
    fn note_again(&mut self, common: &mut Common, work: Work) -> Option<usize> {
        let event = work.event?;
        match common.history[event].op {
            Op::Bytes(file, op @ BytesOp::Write(..)) => self.note(common, Op::Bytes(file, op)),
            _ => Some(event),
        }
    }

    fn worked(&mut self, node: &Node, common: &mut Common, work: Work, heard: Heard) {
        if let Some(event) = work.event {
            common.hear(event, heard);
        }
        if work.of == Of::File {
            self.close_brief(node);
        }
    }

    /// The process is killed: what it was about to do is done now, or not any more.
    pub(super) fn die_by_itself(&mut self, node: &Node) {
        let Some(own) = &mut self.own else { return };
        if let Some(transfer) = own.transfer.take()
            && transfer.made.is_none()
            && own.dice.once_in(2)
        {
            make(&transfer, node);
        }
        own.leaves.clear();
    }
}

/// Makes the transfer, as the kernel does. Nothing where only a request can tell: behind the end of
/// a part.
fn make(transfer: &Transfer, node: &Node) -> Option<Heard> {
    let Transfer { work, leave, offset, .. } = transfer;
    let striped = leave.own.width != 0;
    let done = match work.op {
        BytesOp::Write(_, of) => {
            node.disk.write(leave.object, *offset, &block(of)).map(|()| Heard::Done)
        }
        BytesOp::Append(of) => node.disk.append(leave.object, &block(of)).map(heard_length),
        BytesOp::Length => node.disk.attr_of_process(leave.object).map(heard_length),
        BytesOp::Read(_) => {
            let mut bytes = vec![0; BLOCK_BYTES];
            let read = node.disk.read(leave.object, *offset, &mut bytes);
            match read {
                Ok(count) if striped && count < BLOCK_BYTES => return None,
                read => read.map(|count| read_block(&bytes[..count])),
            }
        }
        BytesOp::Truncate(_) => return None,
    };
    match done {
        Ok(heard) => Some(heard),
        Err(Errno::ENOENT) => Some(Heard::Torn("an object that is gone, and leave for it".into())),
        Err(Errno::EIO) => Some(Heard::Unknown),
        Err(errno) => Some(Heard::Failed(errno)),
    }
}

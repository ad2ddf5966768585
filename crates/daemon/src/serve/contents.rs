//! The content of a small file goes with the answer to its open.
//!
//! Most programs that open a file for reading read it, so the bytes of one without an object are
//! put behind the answer, together with the version to which they belong
//! ([`mayfly_wire::Content`]); the client looks at the version again before it uses them. Not where
//! reading has to be noted in the access time: nobody may ever read.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use mayfly_transport_shm::layout::{FILE_OBJECT, FileEntry, NodeRegion};
use mayfly_types::{FileKind, Times, limits::INLINE_BYTES_MAX};
use mayfly_wire::{Open, Opened, Read, Reader, Request, Wire, Writer};

use super::{Caller, Progress, Service};

const O_ACCMODE: u32 = 3;
const O_DIRECTORY: u32 = 0o200_000;
const O_PATH: u32 = 0o10_000_000;
/// Opens with one of these are followed by something else than reading.
const OTHERWISE: u32 = O_ACCMODE | O_DIRECTORY | O_PATH;

/// Appends the content to the answer to an open, of `used` bytes in `reply`; the bytes appended.
pub(super) fn append(
    service: &mut impl Service,
    node: &NodeRegion,
    caller: Caller,
    open: &Open<'_>,
    reply: &mut [u8],
    used: usize,
) -> usize {
    let all = Times::All as u32;
    if open.flags & OTHERWISE != 0 || node.head.times.load(Relaxed) == all {
        return 0;
    }
    let Some((opened, version)) = small(node, reply.get(..used).unwrap_or(&[])) else { return 0 };
    let Some(room) = reply.get_mut(used..) else { return 0 };
    let mut to = Writer::new(room);
    if version.encode(&mut to).is_err() {
        return 0;
    }
    let ahead = to.used();
    let read = Read { open: opened.open, offset: 0, count: INLINE_BYTES_MAX as u32 };
    match service.handle(caller, Request::Read(read), &mut room[ahead..]) {
        Progress::Replied(0, bytes) => ahead + bytes,
        // Whoever reads will be told why not.
        Progress::Replied(..) | Progress::Pending => 0,
    }
}

/// What was opened, and the version of its content, if it is a file without an object.
fn small(node: &NodeRegion, answer: &[u8]) -> Option<(Opened, u32)> {
    let opened = Opened::decode(&mut Reader::new(answer)).ok()?;
    let small =
        opened.attr.kind == FileKind::Regular && opened.attr.size_bytes <= INLINE_BYTES_MAX as u64;
    let entry = node.opens.get(opened.open.index as usize).filter(|_| small)?;
    let file: &FileEntry = node.files.get(entry.file.load(Acquire) as usize)?;
    let without_object =
        file.id.load(Acquire) == opened.attr.id.0 && file.flags.load(Acquire) & FILE_OBJECT == 0;
    without_object.then(|| (opened, file.content_version.load(Acquire)))
}

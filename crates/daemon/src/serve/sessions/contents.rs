//! The content of a small file goes with the answer to its open.
//!
//! Most programs that open a file for reading read it. So the bytes of a file without an object are
//! put behind the answer, together with their version ([`mayfly_wire::Content`]). The client looks
//! at the version again before it uses them. Not where reading has to be noted in the access time:
//! nobody may ever read.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use mayfly_transport_shm::layout::{FILE_OBJECT, FileEntry, NodeRegion};
use mayfly_types::{FileKind, Times, limits::INLINE_BYTES_MAX};
use mayfly_wire::{Content, Data, Open, Opened, Reader, Wire, Writer};

use crate::serve::Service;

const O_ACCMODE: u32 = 3;
const O_DIRECTORY: u32 = 0o200_000;
const O_PATH: u32 = 0o10_000_000;
/// Opens with one of these are followed by something else than reading.
const OTHERWISE: u32 = O_ACCMODE | O_DIRECTORY | O_PATH;

/// Appends the content to the answer to an open, of `used` bytes in `reply`; the bytes appended.
pub(in crate::serve) fn append(
    service: &mut impl Service,
    node: &NodeRegion,
    open: &Open<'_>,
    reply: &mut [u8],
    used: usize,
) -> usize {
    let all = Times::All as u32;
    if open.flags & OTHERWISE != 0 || node.head.times.load(Relaxed) == all {
        return 0;
    }
    let Some(version) = small(node, reply.get(..used).unwrap_or(&[])) else { return 0 };
    let Some(room) = reply.get_mut(used..) else { return 0 };
    let Some(bytes) = service.opened_content() else { return 0 };
    let mut to = Writer::new(room);
    let content = Content { version, data: Data { object: false, bytes: &bytes } };
    if content.encode(&mut to).is_ok() { to.used() } else { 0 }
}

/// The version of the content of what was opened, if that is a file without an object.
fn small(node: &NodeRegion, answer: &[u8]) -> Option<u32> {
    let opened = Opened::decode(&mut Reader::new(answer)).ok()?;
    let small =
        opened.attr.kind == FileKind::Regular && opened.attr.size_bytes <= INLINE_BYTES_MAX as u64;
    let entry = node.opens.get(opened.open.index as usize).filter(|_| small)?;
    let file: &FileEntry = node.files.get(entry.file.load(Acquire) as usize)?;
    let without_object =
        file.id.load(Acquire) == opened.attr.id.0 && file.flags.load(Acquire) & FILE_OBJECT == 0;
    without_object.then(|| file.content_version.load(Acquire))
}

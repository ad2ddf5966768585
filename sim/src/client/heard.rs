//! What replies say, as the history has it.

use mayfly_types::{Attr, FileKind};
use mayfly_wire::Written;

use super::decode;
use crate::{
    bytes::{BLOCK_BYTES, BLOCKS_MAX, read_block},
    history::{BytesOp, Heard},
};

pub(super) fn heard_attr(attr: &Attr) -> Heard {
    Heard::File { id: attr.id.0, kind: attr.kind, links: attr.links }
}

pub(super) fn heard_length(bytes: u64) -> Heard {
    if bytes.is_multiple_of(BLOCK_BYTES as u64) {
        Heard::Length(bytes / BLOCK_BYTES as u64)
    } else {
        Heard::Torn(format!("a length of {bytes} bytes"))
    }
}

pub(super) fn heard_bytes(op: BytesOp, body: &[u8]) -> Heard {
    match op {
        BytesOp::Write(..) | BytesOp::Append(_) => {
            let written: Written = decode(body);
            match op {
                _ if written.count as usize != BLOCK_BYTES => {
                    Heard::Torn(format!("{} bytes were written", written.count))
                }
                BytesOp::Append(_) => heard_length(written.end),
                _ => Heard::Done,
            }
        }
        BytesOp::Read(_) => read_block(decode::<mayfly_wire::Data<'_>>(body).bytes),
        BytesOp::Truncate(_) => Heard::Done,
        BytesOp::Length => {
            let attr: Attr = decode(body);
            debug_assert!(attr.kind == FileKind::Regular);
            heard_length(attr.size_bytes.min((BLOCKS_MAX * BLOCK_BYTES) as u64 * 1000))
        }
    }
}

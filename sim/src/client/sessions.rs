//! Files that are open for one thing, and what session consistency says of them.
//!
//! What is written counts when it was sent on. What is read may have been asked for since the file
//! was opened. So it is right if one order explains all that was heard, with a write from its
//! beginning to the end of the flush, and a read from the open to its own end.

use mayfly_daemon::Consistency;
use mayfly_types::OpenRef;
use mayfly_wire::{Flush, Read, Request};

use super::{Client, Common, What, heard::heard_bytes};
use crate::{
    bytes::{BLOCK_BYTES, bytes_of},
    history::{BytesOp, Heard, Op},
    node::Node,
};

/// How long a client has a file open whose content is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Opening {
    /// From its first use on.
    #[default]
    Kept,
    /// For a write or a read; it is cut, and its length looked at, by its name.
    Brief,
    /// The same under session consistency, with several reads in a row. What is written is sent on
    /// before it is closed.
    Session,
}

impl Opening {
    pub(crate) fn consistency(self) -> Consistency {
        match self {
            Opening::Kept | Opening::Brief => Consistency::Strict,
            Opening::Session => Consistency::Session,
        }
    }
}

/// Reads of one block after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    file: usize,
    open: OpenRef,
    at: u8,
    upto: u8,
    /// When the file was opened, nanoseconds: what is read may have been asked for since then.
    since_ns: u64,
}

/// Blocks before the one that is to be read from which a row begins.
const ROW: u8 = 2;

impl Client {
    /// A file is open for this.
    pub(super) fn take_file(
        &mut self,
        node: &Node,
        common: &mut Common,
        (file, open): (usize, OpenRef),
        then: BytesOp,
        since_ns: u64,
    ) {
        self.files.insert(file, open);
        match then {
            BytesOp::Read(upto) if self.opening == Opening::Session => {
                let at = upto.saturating_sub(ROW);
                self.row(node, common, Row { file, open, at, upto, since_ns });
            }
            op => self.bytes(node, common, file, open, op),
        }
    }

    /// What a request about the bytes of a file is answered.
    pub(super) fn take_bytes(
        &mut self,
        node: &Node,
        op: BytesOp,
        event: Option<usize>,
        body: &[u8],
    ) -> Option<Heard> {
        if self.opening == Opening::Session && matches!(op, BytesOp::Write(..)) {
            self.flush(node, event);
            return Some(heard_bytes(op, body)).filter(|heard| *heard != Heard::Done);
        }
        self.close_brief(node);
        Some(heard_bytes(op, body))
    }

    /// A block of a row was read.
    pub(super) fn take_row(
        &mut self,
        node: &Node,
        common: &mut Common,
        row: Row,
        body: &[u8],
    ) -> Heard {
        match row.at < row.upto {
            true => self.row(node, common, Row { at: row.at + 1, ..row }),
            false => self.close_brief(node),
        }
        heard_bytes(BytesOp::Read(row.at), body)
    }

    /// Reads the next block of a row.
    fn row(&mut self, node: &Node, common: &mut Common, row: Row) {
        let Row { file, open, at, since_ns, .. } = row;
        let event = self.note(common, Op::Bytes(file, BytesOp::Read(at)));
        if let Some(event) = event {
            common.history[event].from_ns = since_ns;
        }
        let read = Read { open, offset: bytes_of(at), count: BLOCK_BYTES as u32 };
        self.ask(node, &Request::Read(read), What::Row(row), event);
    }

    /// What was written counts when it is at the file's home.
    fn flush(&mut self, node: &Node, event: Option<usize>) {
        if let Some((_, open)) = self.files.first_key_value() {
            let flush = Request::Flush(Flush { open: *open });
            self.ask(node, &flush, What::Flush, event);
        }
    }
}

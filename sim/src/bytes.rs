//! The reference model of a file's content, in blocks that are written and read as a whole.

use crate::{
    history::{BytesOp, Heard},
    linear::Model,
};
use mayfly_types::Errno;

/// Length of a block, bytes. A few make a file that does not fit its record any more.
pub const BLOCK_BYTES: usize = 1024;
/// Length of a chunk where files are striped: whole blocks, of which several make a file.
pub const CHUNK_BYTES: usize = 4 * BLOCK_BYTES;
/// Blocks at which clients read and write.
pub const BLOCKS: u64 = 8;
/// A file that appends have made so long is cut soon, or not appended to any more.
pub const BLOCKS_MAX: usize = 64;

/// A file.
#[derive(Debug, Clone, Copy)]
pub struct Content;

/// Where a block is, or how long so many are, bytes.
#[must_use]
pub fn bytes_of(blocks: u8) -> u64 {
    u64::from(blocks) * BLOCK_BYTES as u64
}

/// A block full of one number.
#[must_use]
pub fn block(of: u32) -> Vec<u8> {
    of.to_le_bytes().repeat(BLOCK_BYTES / 4)
}

/// What a block says.
#[must_use]
pub fn read_block(bytes: &[u8]) -> Heard {
    let mut words = bytes.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_le_bytes));
    match (bytes.len(), words.next()) {
        (0, _) => Heard::Block(None),
        (BLOCK_BYTES, Some(first)) if words.all(|word| word == first) => Heard::Block(Some(first)),
        (length, _) => Heard::Torn(format!("{length} bytes that are not of one write")),
    }
}

impl Model for Content {
    type State = Vec<u32>;
    type Op = (BytesOp, Heard);

    fn apply(&self, state: &Vec<u32>, (op, heard): &(BytesOp, Heard)) -> Option<Vec<u32>> {
        let mut next = state.clone();
        let right = carry_out(&mut next, *op);
        match heard {
            Heard::Unknown => (next != *state).then_some(next),
            Heard::Failed(Errno::ENOSPC) => Some(state.clone()),
            heard => (*heard == right).then_some(next),
        }
    }
}

fn carry_out(state: &mut Vec<u32>, op: BytesOp) -> Heard {
    match op {
        BytesOp::Write(at, of) => {
            let at = usize::from(at);
            if state.len() <= at {
                state.resize(at + 1, 0);
            }
            state[at] = of;
            Heard::Done
        }
        BytesOp::Read(at) => Heard::Block(state.get(usize::from(at)).copied()),
        BytesOp::Append(of) => {
            state.push(of);
            Heard::Length(state.len() as u64)
        }
        BytesOp::Truncate(blocks) => {
            state.resize(usize::from(blocks), 0);
            Heard::Done
        }
        BytesOp::Length => Heard::Length(state.len() as u64),
    }
}

//! How the chunks of a file are dealt out to its parts.
//!
//! A *part* is what one node has of a file, in an object of its own. Under `stripe` a part's chunks
//! lie side by side in its object; under `hash` every byte is at the offset that it has in the
//! file. Clients reckon with this as the daemons do, to find the bytes of their own node's part.

use core::num::{NonZeroU16, NonZeroU64};

use crate::{FileId, limits::FILE_BYTES_MAX};

/// What a file has on other nodes than its home, which it has outgrown.
///
/// Its first bytes are part 0, as one extent. The chunks behind them are dealt out in rows: a row
/// names the part of each of its chunks, so that a part has as many of them as its node has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tail {
    /// Bytes before it, all of them in part 0.
    pub start_bytes: u64,
    /// The row: four bits for each of its chunks, the lowest first, up to the first zero. Without
    /// any there is no tail.
    pub row: u64,
    /// Logarithm to base 2 of the size of its chunks in bytes.
    pub chunk_log2: u8,
}

impl Tail {
    /// Most chunks in a row.
    pub const ROW_MAX: usize = 16;
    /// Highest number of a part.
    pub const PART_MAX: u16 = 15;

    /// A row of these parts; `None` if there can be no such row.
    #[must_use]
    pub fn row_of(parts: &[u16]) -> Option<u64> {
        let possible = |part: &u16| (1..=Tail::PART_MAX).contains(part);
        if parts.is_empty() || parts.len() > Tail::ROW_MAX || !parts.iter().all(possible) {
            return None;
        }
        Some(parts.iter().rev().fold(0, |row, part| row << 4 | u64::from(*part)))
    }

    /// Whether the file has one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.row & 0xf != 0
    }

    /// Whether a file of so many parts can have it, or has none.
    #[must_use]
    pub fn is_possible(&self, width: u16) -> bool {
        if !self.is_there() {
            return *self == Tail::default();
        }
        let used = self.length() * 4;
        self.row.checked_shr(used).unwrap_or(0) == 0
            && (0..self.length()).all(|at| self.part_at(at) < width)
            && self.start_bytes <= FILE_BYTES_MAX
            && self.start_bytes.is_multiple_of(1 << 12)
            && (12..=40).contains(&self.chunk_log2)
    }

    /// Chunks in a row.
    fn length(&self) -> u32 {
        (0..Tail::ROW_MAX as u32).find(|at| self.part_at(*at) == 0).unwrap_or(Tail::ROW_MAX as u32)
    }

    /// The part that has this chunk of a row; 0 behind its end.
    fn part_at(&self, at: u32) -> u16 {
        (self.row.wrapping_shr(4 * at) & 0xf) as u16
    }

    /// How many of the first `chunks` of a row are this part's.
    fn count(&self, part: u16, chunks: u32) -> u64 {
        (0..chunks).filter(|at| self.part_at(*at) == part).count() as u64
    }

    fn place(&self, offset: u64) -> (u64, u32) {
        let chunk = (offset - self.start_bytes).wrapping_shr(self.chunk_log2.into());
        let length = NonZeroU64::new(self.length().into()).unwrap_or(NonZeroU64::MIN);
        (chunk / length, (chunk % length) as u32)
    }

    fn part_of(&self, offset: u64) -> u16 {
        if offset < self.start_bytes { 0 } else { self.part_at(self.place(offset).1) }
    }

    fn left(&self, offset: u64) -> u64 {
        if offset < self.start_bytes {
            return self.start_bytes - offset;
        }
        let chunk = 1_u64.wrapping_shl(self.chunk_log2.into());
        chunk - ((offset - self.start_bytes) & (chunk - 1))
    }

    fn in_part(&self, offset: u64) -> u64 {
        self.length_of_part(self.part_of(offset), offset)
    }

    /// How long the object of a part can be in a file of `size_bytes`.
    #[must_use]
    pub fn length_of_part(&self, part: u16, size_bytes: u64) -> u64 {
        if part == 0 || size_bytes <= self.start_bytes {
            return if part == 0 { size_bytes.min(self.start_bytes) } else { 0 };
        }
        let (row, at) = self.place(size_bytes);
        let whole = row * self.count(part, self.length()) + self.count(part, at);
        let chunk = 1_u64.wrapping_shl(self.chunk_log2.into());
        let rest = if self.part_at(at) == part { chunk - self.left(size_bytes) } else { 0 };
        whole.wrapping_shl(self.chunk_log2.into()).wrapping_add(rest)
    }

    /// Up to where in the file a part has bytes whose object is `length` bytes long.
    #[must_use]
    pub fn end_of_part(&self, part: u16, length: u64) -> u64 {
        let Some(last) = length.checked_sub(1) else { return 0 };
        let each = self.count(part, self.length());
        let Some(each) = NonZeroU64::new(each).filter(|_| part != 0) else {
            return if part == 0 { length.min(self.start_bytes) } else { 0 };
        };
        let number = last.wrapping_shr(self.chunk_log2.into());
        let mut own = (0..self.length()).filter(|at| self.part_at(*at) == part);
        let at = own.nth((number % each) as usize).unwrap_or(0);
        let chunk = (number / each).saturating_mul(self.length().into()).saturating_add(at.into());
        let bytes = 1_u64.wrapping_shl(self.chunk_log2.into());
        let before = chunk.saturating_mul(bytes).saturating_add(self.start_bytes);
        before.saturating_add((last & (bytes - 1)) + 1)
    }
}

/// The parts of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    /// How many there are.
    pub width: NonZeroU16,
    /// Logarithm to base 2 of the chunk size in bytes.
    pub chunk_log2: u8,
    /// Each chunk's part, but the first one's, is drawn by a hash; otherwise they go round.
    pub hashed: bool,
    /// What is behind the bytes that are all at home, where there is that.
    pub tail: Tail,
}

impl Chunks {
    /// Bytes in a chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        1_u64.wrapping_shl(self.chunk_log2.into())
    }

    fn chunk_of(&self, offset: u64) -> u64 {
        offset.wrapping_shr(self.chunk_log2.into())
    }

    fn in_chunk(&self, offset: u64) -> u64 {
        offset & self.chunk_bytes().wrapping_sub(1)
    }

    /// The part that has the byte at `offset`.
    #[must_use]
    pub fn part_of(&self, file: FileId, offset: u64) -> u16 {
        if self.tail.is_there() {
            return self.tail.part_of(offset);
        }
        let chunk = self.chunk_of(offset);
        let number = if self.hashed && chunk > 0 { mix(file, chunk) } else { chunk };
        (number % NonZeroU64::from(self.width)) as u16
    }

    /// Where that byte is in the object of its part.
    #[must_use]
    pub fn in_part(&self, offset: u64) -> u64 {
        if self.tail.is_there() {
            return self.tail.in_part(offset);
        }
        if self.hashed {
            return offset;
        }
        let row = self.chunk_of(offset) / NonZeroU64::from(self.width);
        row.wrapping_shl(self.chunk_log2.into()) + self.in_chunk(offset)
    }

    /// Bytes from `offset` to the end of its chunk.
    #[must_use]
    pub fn left_in_chunk(&self, offset: u64) -> u64 {
        if self.tail.is_there() {
            return self.tail.left(offset);
        }
        self.chunk_bytes() - self.in_chunk(offset)
    }

    /// Bytes from `offset` to the end of its run: of the chunks one behind the other that are all
    /// this part's, or all others'; and whether they are this part's. At most `bytes`.
    #[must_use]
    pub fn run(&self, file: FileId, part: u16, offset: u64, bytes: u64) -> (u64, bool) {
        if part >= self.width.get() {
            return (bytes, false);
        }
        let own = self.part_of(file, offset) == part;
        let mut run = self.left_in_chunk(offset);
        while run < bytes && (self.part_of(file, offset + run) == part) == own {
            run += self.left_in_chunk(offset + run);
        }
        (run.min(bytes), own)
    }
}

/// SplitMix64's finisher (Steele et al. 2014) over both numbers.
fn mix(file: FileId, chunk: u64) -> u64 {
    let mut value = file.0 ^ chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(0x1234_0000_0000_0007);

    #[test]
    fn runs_are_of_one_kind_and_cover_everything() {
        for (width, hashed) in [(1, false), (2, true), (3, false), (5, true)] {
            let some = NonZeroU16::new(width).expect("not zero");
            let chunks = Chunks { width: some, chunk_log2: 16, hashed, tail: Tail::default() };
            for part in 0..width + 1 {
                let (mut at, end) = (777, 40 << 16);
                while at < end {
                    let (run, own) = chunks.run(FILE, part, at, end - at);
                    assert!(run > 0 && at + run <= end);
                    for byte in [at, at + run / 2, at + run - 1] {
                        assert_eq!(chunks.part_of(FILE, byte) == part, own);
                    }
                    at += run;
                    assert!(at == end || (chunks.part_of(FILE, at) == part) != own, "longest");
                }
            }
        }
    }
}

//! How the chunks of a file are dealt out to its parts.
//!
//! A *part* is what one node has of a file, in an object of its own. Under `stripe` a part's chunks
//! lie side by side in its object; under `hash` every byte is at the offset that it has in the
//! file. Clients reckon with this as the daemons do, to find the bytes of their own node's part.

use core::num::{NonZeroU16, NonZeroU64};

use crate::FileId;

/// The parts of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    /// How many there are.
    pub width: NonZeroU16,
    /// Logarithm to base 2 of the chunk size in bytes.
    pub chunk_log2: u8,
    /// Each chunk's part, but the first one's, is drawn by a hash; otherwise they go round.
    pub hashed: bool,
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
        let chunk = self.chunk_of(offset);
        let number = if self.hashed && chunk > 0 { mix(file, chunk) } else { chunk };
        (number % NonZeroU64::from(self.width)) as u16
    }

    /// Where that byte is in the object of its part.
    #[must_use]
    pub fn in_part(&self, offset: u64) -> u64 {
        if self.hashed {
            return offset;
        }
        let row = self.chunk_of(offset) / NonZeroU64::from(self.width);
        row.wrapping_shl(self.chunk_log2.into()) + self.in_chunk(offset)
    }

    /// Bytes from `offset` to the end of its chunk.
    #[must_use]
    pub fn left_in_chunk(&self, offset: u64) -> u64 {
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
            run += self.chunk_bytes();
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
            let chunks = Chunks { width: some, chunk_log2: 16, hashed };
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

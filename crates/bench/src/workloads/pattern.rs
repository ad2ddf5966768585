//! The bytes of files: derived from writer and offset, so that a misplaced or flipped byte shows.
//!
//! A file's contents are cut into cells of 512 bytes, counted from the file's start. A cell begins
//! with its own number, mixed with its writer; the rest is the writer's base pattern. Making it is
//! a stamp for each cell, and comparing it is one comparison of memory: neither costs more than a
//! fraction of the call that is measured, and both happen outside of the clock.

/// Bytes of a cell.
const CELL_BYTES: usize = 512;
/// Bytes of a stamp.
const STAMP_BYTES: usize = 8;

/// A buffer that holds, or should hold, one transfer of a writer.
pub(crate) struct Pattern {
    writer: u64,
    /// Zero, or the distance of a transfer's start from that of its first cell.
    lead: usize,
    bytes: Vec<u8>,
    length: usize,
}

/// A byte that is not what was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Where in the file.
    pub(crate) offset: u64,
    /// What was written.
    pub(crate) expected: u8,
    /// What was read.
    pub(crate) found: u8,
}

/// An odd constant whose multiples spread over all bits (Knuth, TAOCP 3, 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(value: u64) -> u64 {
    let mixed = value.wrapping_add(1).wrapping_mul(SPREAD);
    (mixed ^ (mixed >> 29)).wrapping_mul(SPREAD)
}

impl Pattern {
    /// Room for transfers of `length` bytes.
    pub(crate) fn new(writer: u64, length: usize) -> Pattern {
        // One cell more: a transfer that does not start with a cell has parts of two at its ends.
        let cells = length.div_ceil(CELL_BYTES) + 1;
        let mut base = [0_u8; CELL_BYTES];
        for (index, word) in base.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&mix(writer ^ (index as u64) << 32).to_le_bytes());
        }
        Pattern { writer, lead: 0, bytes: base.repeat(cells), length }
    }

    /// The bytes of the transfer at `offset`.
    pub(crate) fn at(&mut self, offset: u64) -> &[u8] {
        self.lead = (offset % CELL_BYTES as u64) as usize;
        let first = offset / CELL_BYTES as u64;
        let used = (self.lead + self.length).div_ceil(CELL_BYTES);
        for (index, cell) in self.bytes.chunks_exact_mut(CELL_BYTES).take(used).enumerate() {
            let stamp = mix(self.writer.rotate_left(32) ^ (first + index as u64));
            cell[..STAMP_BYTES].copy_from_slice(&stamp.to_le_bytes());
        }
        &self.bytes[self.lead..self.lead + self.length]
    }

    /// Compares what was read at `offset` with what was written there.
    pub(crate) fn check(&mut self, offset: u64, found: &[u8]) -> Result<(), Wrong> {
        let expected = &self.at(offset)[..found.len()];
        if expected == found {
            return Ok(());
        }
        let differs = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or_default();
        Err(Wrong {
            offset: offset + differs as u64,
            expected: expected[differs],
            found: found[differs],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_byte_is_found_wherever_it_is() {
        for at in [0, 7, 8, 511, 512, 46_999, 47_007] {
            let mut read = Pattern::new(3, 47_008).at(47_008 * 5).to_vec();
            read[at] ^= 0x10;
            let wrong = Pattern::new(3, 47_008).check(47_008 * 5, &read).expect_err("flipped");
            assert_eq!(wrong.offset, 47_008 * 5 + at as u64);
            assert_eq!(wrong.expected ^ wrong.found, 0x10);
        }
    }

    #[test]
    fn data_of_another_writer_or_another_place_are_wrong() {
        let mut pattern = Pattern::new(1, 4096);
        let here = pattern.at(8192).to_vec();
        assert!(Pattern::new(2, 4096).check(8192, &here).is_err());
        assert!(pattern.check(4096, &here).is_err());
        assert_eq!(pattern.check(8192, &here), Ok(()));
        assert!(pattern.check(8192, &[0; 4096]).is_err(), "a hole is not what was written");
    }

    #[test]
    fn transfers_that_do_not_meet_make_up_the_same_file() {
        let whole = Pattern::new(9, 10_000).at(0).to_vec();
        let mut part = Pattern::new(9, 1000);
        for start in (0..10_000).step_by(1000) {
            assert_eq!(part.at(start as u64), &whole[start..start + 1000]);
        }
    }
}

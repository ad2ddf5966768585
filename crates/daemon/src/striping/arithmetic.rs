//! Where the bytes of a striped file are.
//!
//! A file is cut into chunks, which are dealt out to *parts*: part 0 is at the file's home and has
//! the first chunk, each of the others is on another node. Under `stripe` a part's chunks lie side
//! by side in its object; under `hash` every byte is at the offset that it has in the file. Either
//! way the length of its object says up to where in the file a part has bytes, and the greatest of
//! these ends is the length of the file.

use std::{num::NonZeroU16, ops::Range};

use mayfly_meta::record::{Layout, Policy};
use mayfly_types::{Chunks, FileId};

/// Ranges of an object at most that one call changes. Only under `hash` there is more than one.
pub(super) const RUNS_MAX: usize = 1 << 18;

/// Ranges of an object, as offset and length.
pub(super) type Ranges = Vec<(u64, u64)>;

/// Parts of a file, from what its layout says.
pub(crate) trait Stripes {
    /// The same for whoever only has to find bytes.
    fn chunks(&self) -> Chunks;
    /// The part that has the byte at `offset`.
    fn part_of(&self, file: FileId, offset: u64) -> u16;
    /// Where that byte is in the object of its part.
    fn in_part(&self, offset: u64) -> u64;
    /// Bytes from `offset` to the end of its chunk.
    fn left_in_chunk(&self, offset: u64) -> u64;
    /// Up to where in the file a part has bytes whose object is `length` bytes long.
    fn end_of_part(&self, part: u16, length: u64) -> u64;
    /// How long the object of a part can be in a file of `size_bytes`, and whether it is exactly
    /// that long because it has the file's last byte.
    fn length_of_part(&self, file: FileId, part: u16, size_bytes: u64) -> (u64, bool);
    /// Where the bytes of a range of the file that are a part's are in its object, as offset and
    /// length; `None` when they are in too many places.
    fn ranges_of_part(&self, file: FileId, part: u16, range: Range<u64>) -> Option<Ranges>;
    /// Bytes in a chunk.
    fn chunk_bytes(&self) -> u64;
}

impl Stripes for Layout {
    fn chunks(&self) -> Chunks {
        let hashed = self.policy == Policy::Hash;
        // No layout has no part.
        let width = NonZeroU16::new(self.width).unwrap_or(NonZeroU16::MIN);
        Chunks { width, chunk_log2: self.chunk_log2, hashed, tail: self.tail }
    }

    fn part_of(&self, file: FileId, offset: u64) -> u16 {
        self.chunks().part_of(file, offset)
    }

    fn in_part(&self, offset: u64) -> u64 {
        self.chunks().in_part(offset)
    }

    fn left_in_chunk(&self, offset: u64) -> u64 {
        self.chunks().left_in_chunk(offset)
    }

    fn end_of_part(&self, part: u16, length: u64) -> u64 {
        if self.tail.is_there() {
            return self.tail.end_of_part(part, length);
        }
        let Some(last) = length.checked_sub(1).filter(|_| self.policy != Policy::Hash) else {
            return length;
        };
        let row = last >> self.chunk_log2;
        let chunk = row.saturating_mul(self.width.into()).saturating_add(part.into());
        chunk.saturating_mul(self.chunk_bytes()).saturating_add(last % self.chunk_bytes() + 1)
    }

    fn length_of_part(&self, file: FileId, part: u16, size_bytes: u64) -> (u64, bool) {
        let Some(last) = size_bytes.checked_sub(1) else { return (0, true) };
        let has_last = self.part_of(file, last) == part;
        if self.tail.is_there() {
            return (self.tail.length_of_part(part, size_bytes), has_last);
        }
        if self.policy == Policy::Hash {
            return (size_bytes, has_last);
        }
        let chunk = self.chunk_bytes();
        let row_bytes = chunk.saturating_mul(self.width.into());
        let in_row = (size_bytes % row_bytes).saturating_sub(chunk * u64::from(part)).min(chunk);
        (size_bytes / row_bytes * chunk + in_row, has_last)
    }

    fn ranges_of_part(&self, file: FileId, part: u16, range: Range<u64>) -> Option<Ranges> {
        if self.policy != Policy::Hash {
            let length = |end| self.length_of_part(file, part, end).0;
            let (start, end) = (length(range.start), length(range.end));
            return Some(if start < end { vec![(start, end - start)] } else { Vec::new() });
        }
        let (mut ranges, mut at) = (Vec::new(), range.start);
        for _ in 0..RUNS_MAX {
            if at >= range.end {
                return Some(ranges);
            }
            let (bytes, own) = self.chunks().run(file, part, at, range.end - at);
            if own {
                ranges.push((at, bytes));
            }
            at += bytes;
        }
        None
    }

    fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_log2
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use mayfly_types::Tail;
    use proptest::prelude::*;

    use super::*;

    const FILE: FileId = FileId(0x1234_0000_0000_0007);

    fn layout(width: u16, hashed: bool) -> Layout {
        let policy = if hashed { Policy::Hash } else { Policy::Stripe };
        Layout { width, policy, chunk_log2: 16, striped: true, ..Layout::default() }
    }

    #[test]
    fn the_first_chunk_is_at_home_and_the_next_ones_go_round() {
        let layout = layout(3, false);
        let parts: Vec<u16> = (0..7).map(|chunk| layout.part_of(FILE, chunk << 16)).collect();
        assert_eq!(parts, [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(layout.in_part((3 << 16) + 5), (1 << 16) + 5);
        assert_eq!(layout.end_of_part(0, (1 << 16) + 6), (3 << 16) + 6);
    }

    #[test]
    fn hashed_chunks_are_dealt_out_evenly() {
        let layout = layout(8, true);
        assert_eq!(layout.part_of(FILE, 77), 0);
        let mut counts = [0; 8];
        for chunk in 0..8000 {
            counts[usize::from(layout.part_of(FILE, chunk << 16))] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    /// Files that go on at other parts behind so many chunks, in rows of these parts.
    fn tails() -> impl Strategy<Value = Layout> {
        (0_u64..20, prop::collection::vec(1_u16..9, 1..17)).prop_map(|(chunks, parts)| {
            let row = Tail::row_of(&parts).expect("a row");
            let tail = Tail { start_bytes: chunks << 16, row, chunk_log2: 16 };
            Layout { width: 9, tail, ..layout(9, false) }
        })
    }

    fn layouts() -> impl Strategy<Value = Layout> {
        prop_oneof![
            (1_u16..9, any::<bool>()).prop_map(|(width, hashed)| layout(width, hashed)),
            tails(),
        ]
    }

    #[test]
    fn what_is_before_a_tail_is_at_home_and_the_rest_nowhere_there() {
        let row = Tail::row_of(&[2, 1, 2]).expect("a row");
        let tail = Tail { start_bytes: 3 << 16, row, chunk_log2: 16 };
        let layout = Layout { tail, ..layout(3, false) };
        assert!(layout.is_possible());
        let parts: Vec<u16> = (0..9).map(|chunk| layout.part_of(FILE, chunk << 16)).collect();
        assert_eq!(parts, [0, 0, 0, 2, 1, 2, 2, 1, 2]);
        assert_eq!(layout.in_part((8 << 16) + 5), (3 << 16) + 5);
        assert_eq!(layout.end_of_part(2, (3 << 16) + 6), (8 << 16) + 6);
        assert_eq!(layout.end_of_part(0, 9 << 16), 3 << 16, "what is behind it counts for nothing");
    }

    proptest! {
        #[test]
        fn ranges_of_the_parts_are_the_whole_range(
            layout in tails(),
            start in 0_u64..40 << 16,
            bytes in 0_u64..20 << 16,
        ) {
            let of_part = |part| layout.ranges_of_part(FILE, part, start..start + bytes);
            let all = (0..layout.width).flat_map(|part| of_part(part).expect("few"));
            prop_assert_eq!(all.map(|range| range.1).sum::<u64>(), bytes);
        }

        #[test]
        fn every_byte_has_one_place_and_the_parts_say_how_long_the_file_is(
            layout in layouts(),
            offsets in prop::collection::vec(0_u64..40 << 16, 1..40),
        ) {
            let mut lengths: HashMap<u16, u64> = HashMap::new();
            let mut places = HashMap::new();
            for offset in &offsets {
                let place = (layout.part_of(FILE, *offset), layout.in_part(*offset));
                let other = places.insert(place, *offset);
                prop_assert!(other.is_none_or(|other| other == *offset));
                let length = lengths.entry(place.0).or_default();
                *length = (*length).max(place.1 + 1);
                prop_assert!(layout.end_of_part(place.0, place.1 + 1) == offset + 1);
            }
            let ends = lengths.iter().map(|(part, length)| layout.end_of_part(*part, *length));
            prop_assert_eq!(ends.max(), offsets.iter().max().map(|last| last + 1));
        }

        #[test]
        fn parts_that_are_cut_make_a_file_of_that_length(
            layout in layouts(),
            size_bytes in 0_u64..40 << 16,
            offset in 0_u64..40 << 16,
        ) {
            let ends = (0..layout.width).map(|part| {
                let (length, exact) = layout.length_of_part(FILE, part, size_bytes);
                layout.end_of_part(part, if exact { length } else { 0 })
            });
            prop_assert_eq!(ends.max(), Some(size_bytes));
            // A byte survives exactly if it is below the cut.
            let part = layout.part_of(FILE, offset);
            let (length, _) = layout.length_of_part(FILE, part, size_bytes);
            prop_assert_eq!(layout.in_part(offset) < length, offset < size_bytes);
        }
    }
}

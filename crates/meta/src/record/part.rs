//! Records of files whose chunks are on several servers.

use super::{
    Layout,
    inode::{decode_layout, put_layout},
    small::form,
};
use crate::{
    StoreError,
    bytes::{Put, Take},
};

const PART_V1: u8 = 0xc1;
const UNLINKED_V1: u8 = 0xd1;

/// A cut of a part's object that was decided and may not have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingCut {
    /// First it is cut to this length if it is longer, bytes.
    pub at_most: u64,
    /// Then it is extended to this length if it is shorter, bytes.
    pub at_least: u64,
}

/// What a server keeps of its part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Generation of the file's objects.
    pub generation: u32,
    /// Where the chunks of the file are.
    pub layout: Layout,
    /// Which part it is, counted from the first server's.
    pub index: u16,
    /// Its object may have been changed since the file's home took over length, space and times.
    pub dirty: bool,
    /// Space that the object took when it was settled, in units of 512 bytes.
    pub blocks: u64,
    /// How often the file was cut, as far as this part has heard.
    pub cuts: u32,
    /// To be made before anybody else uses the object.
    pub cut: Option<PendingCut>,
}

impl Part {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![PART_V1];
        record.put_u32(self.generation);
        put_layout(&mut record, &self.layout);
        record.put_u16(self.index);
        record.push(u8::from(self.dirty) + 2 * u8::from(self.cut.is_some()));
        record.put_u64(self.blocks);
        record.put_u32(self.cuts);
        record.put_u64(self.cut.map_or(0, |cut| cut.at_most));
        record.put_u64(self.cut.map_or(0, |cut| cut.at_least));
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Part, StoreError> {
        let mut from = form(record, PART_V1)?;
        let generation = from.u32()?;
        let layout = Layout { striped: true, ..decode_layout(&mut from)? };
        let index = from.u16()?;
        let flags = from.u8()?;
        if generation == 0 || index >= layout.width || flags > 3 {
            return Err(StoreError::Corrupt("an impossible part of a file"));
        }
        let (blocks, cuts) = (from.u64()?, from.u32()?);
        let cut = PendingCut { at_most: from.u64()?, at_least: from.u64()? };
        from.finish()?;
        let cut = Some(cut).filter(|_| flags & 2 != 0);
        Ok(Part { generation, layout, index, dirty: flags & 1 != 0, blocks, cuts, cut })
    }
}

/// Parts of a file that their servers still have to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unlinked {
    /// Where they are.
    pub layout: Layout,
    /// How many there may be: those with lower numbers.
    pub parts: u16,
}

impl Unlinked {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![UNLINKED_V1];
        put_layout(&mut record, &self.layout);
        record.put_u16(self.parts);
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Unlinked, StoreError> {
        let mut from: Take<'_> = form(record, UNLINKED_V1)?;
        let layout = Layout { striped: true, ..decode_layout(&mut from)? };
        let parts = from.u16()?;
        from.finish()?;
        if !(1..=layout.width).contains(&parts) {
            return Err(StoreError::Corrupt("impossible parts of a file that is gone"));
        }
        Ok(Unlinked { layout, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> Part {
        let layout = Layout {
            first_server: 3,
            width: 4,
            striped: true,
            chunk_log2: 16,
            ..Layout::default()
        };
        let cut = Some(PendingCut { at_most: 0x0102, at_least: 3 });
        Part { generation: 2, layout, index: 1, dirty: true, blocks: 8, cuts: 5, cut }
    }

    #[test]
    fn the_bytes_of_a_part_do_not_change() {
        let layout = [3, 0, 0, 0, 4, 0, 0, 16];
        let long = |low| [low, 0, 0, 0, 0, 0, 0, 0];
        let mut wanted = [&[0xc1, 2, 0, 0, 0], layout.as_slice(), &[1, 0, 3], &long(8)].concat();
        wanted.extend_from_slice(&[5, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        wanted.extend_from_slice(&long(3));
        assert_eq!(part().encode(), wanted);
        assert_eq!(Part::decode(&part().encode()).ok(), Some(part()));
        let gone = Unlinked { layout: part().layout, parts: 2 };
        assert_eq!(gone.encode(), [&[0xd1], layout.as_slice(), &[2, 0]].concat());
        assert_eq!(Unlinked::decode(&gone.encode()).ok(), Some(gone));
    }

    #[test]
    fn a_part_that_cannot_be_is_corrupt() {
        let good = part().encode();
        for (at, value) in [(1, 0), (9, 0), (12, 50), (13, 4), (15, 4)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(Part::decode(&bad).is_err(), "byte {at} is {value}");
        }
        for length in 0..good.len() {
            assert!(Part::decode(&good[..length]).is_err(), "{length} bytes");
        }
        for parts in [0, 5] {
            let gone = Unlinked { layout: part().layout, parts };
            assert!(Unlinked::decode(&gone.encode()).is_err(), "{parts} of 4");
        }
    }
}

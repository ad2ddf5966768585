//! Which chunks of a master copy are here, while not all are.
//!
//! They are in an object that becomes the file's when it has all of them, or when the file is
//! written to. Until all are here this record names it. The record goes with the object when the
//! master copy changes. Of a file that was cut only what is before the cut is still wanted.

use mayfly_types::{
    Timestamp,
    limits::{TIER_CHUNK_BYTES_MIN, TIER_CHUNKS_MAX},
};

use super::small::form;
use crate::{StoreError, bytes::Put};

const CHUNKS_V1: u8 = 0x94;
const CHUNK_LOG2_MAX: u8 = 62;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    /// Number of the origin.
    pub source: u32,
    /// Length of a chunk, as a power of two.
    pub chunk_log2: u8,
    /// Length of the master copy, or as much of it as is still wanted, bytes.
    pub size_bytes: u64,
    /// Its modification time.
    pub mtime: Timestamp,
    /// Its last change of any kind.
    pub ctime: Timestamp,
    /// A bit for each chunk that is here.
    here: Vec<u8>,
}

impl Chunks {
    /// None is here of a file of this length.
    #[must_use]
    pub fn none(source: u32, size_bytes: u64, (mtime, ctime): (Timestamp, Timestamp)) -> Chunks {
        let mut chunk_log2 = TIER_CHUNK_BYTES_MIN.trailing_zeros() as u8;
        while size_bytes.div_ceil(1 << chunk_log2) > TIER_CHUNKS_MAX && chunk_log2 < CHUNK_LOG2_MAX
        {
            chunk_log2 += 1;
        }
        let mut chunks = Chunks { source, chunk_log2, size_bytes, mtime, ctime, here: Vec::new() };
        chunks.here = vec![0; (chunks.count() as usize).div_ceil(8)];
        chunks
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.size_bytes.div_ceil(self.chunk_bytes())
    }

    /// Length of each but the last one, bytes.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_log2
    }

    /// Whether that one is here. None is behind the end.
    #[must_use]
    pub fn has(&self, chunk: u64) -> bool {
        let byte = self.here.get((chunk / 8) as usize);
        byte.is_some_and(|byte| byte >> (chunk % 8) & 1 != 0)
    }

    /// This one is here; false when it was already, or there is none.
    pub fn add(&mut self, chunk: u64) -> bool {
        if chunk >= self.count() || self.has(chunk) {
            return false;
        }
        match self.here.get_mut((chunk / 8) as usize) {
            Some(byte) => *byte |= 1 << (chunk % 8),
            None => return false,
        }
        true
    }

    /// A bit for each that is here.
    #[must_use]
    pub fn bits(&self) -> &[u8] {
        &self.here
    }

    /// Whether these bytes are here, as far as they are bytes of chunks.
    #[must_use]
    pub fn has_range(&self, start: u64, end: u64) -> bool {
        let end = end.min(self.size_bytes);
        start >= end
            || (start / self.chunk_bytes()..end.div_ceil(self.chunk_bytes())).all(|of| self.has(of))
    }

    /// Whether all are here.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        (0..self.count()).all(|chunk| self.has(chunk))
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.here.iter().all(|byte| *byte == 0)
    }

    /// Nothing behind this is wanted any more. Chunks keep their length.
    pub fn cut(&mut self, size_bytes: u64) {
        if size_bytes >= self.size_bytes {
            return;
        }
        self.size_bytes = size_bytes;
        let count = self.count();
        self.here.truncate((count as usize).div_ceil(8));
        if let Some(last) = self.here.last_mut().filter(|_| !count.is_multiple_of(8)) {
            *last &= (1 << (count % 8)) - 1;
        }
    }

    /// Length of a chunk, bytes.
    #[must_use]
    pub fn bytes_of(&self, chunk: u64) -> u64 {
        let start = chunk.saturating_mul(self.chunk_bytes());
        self.size_bytes.saturating_sub(start).min(self.chunk_bytes())
    }

    /// Bytes that are here.
    #[must_use]
    pub fn bytes_here(&self) -> u64 {
        let here = (0..self.count()).filter(|chunk| self.has(*chunk));
        here.map(|chunk| self.bytes_of(chunk)).sum()
    }

    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![CHUNKS_V1];
        record.put_u32(self.source);
        record.push(self.chunk_log2);
        record.put_u64(self.size_bytes);
        record.put_time(self.mtime);
        record.put_time(self.ctime);
        record.extend_from_slice(&self.here);
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Chunks, StoreError> {
        let mut from = form(record, CHUNKS_V1)?;
        let (source, chunk_log2) = (from.u32()?, from.u8()?);
        let size_bytes = from.u64()?;
        let times = (from.time()?, from.time()?);
        let mut chunks = Chunks::none(source, size_bytes, times);
        // One that was cut has longer ones.
        if !(chunks.chunk_log2..=CHUNK_LOG2_MAX).contains(&chunk_log2) {
            return Err(StoreError::Corrupt("chunks of an impossible length"));
        }
        chunks.chunk_log2 = chunk_log2;
        let count = (chunks.count() as usize).div_ceil(8);
        chunks.here = from.bytes(count)?.to_vec();
        from.finish()?;
        Ok(chunks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(size_bytes: u64) -> Chunks {
        let time = |seconds| Timestamp { seconds, nanoseconds: 7 };
        Chunks::none(3, size_bytes, (time(1), time(2)))
    }

    #[test]
    fn a_file_is_whole_when_each_chunk_was_added_once() {
        let size_bytes = 9 * TIER_CHUNK_BYTES_MIN + 5;
        let mut some = chunks(size_bytes);
        assert_eq!(some.count(), 10);
        assert!(some.is_empty() && !some.is_whole() && !some.add(10));
        for chunk in [9, 0, 3, 4, 5, 6, 7, 8, 1, 2] {
            assert!(!some.is_whole() && !some.has(chunk));
            assert!(some.add(chunk) && !some.add(chunk) && some.has(chunk));
        }
        assert!(some.is_whole());
        assert_eq!((some.bytes_here(), some.bytes_of(9)), (size_bytes, 5));
    }

    #[test]
    fn the_number_of_chunks_is_bounded_by_their_length() {
        for size_bytes in [1, 1 << 30, 1 << 43, u64::MAX / 2] {
            let some = chunks(size_bytes);
            assert!(some.count() <= TIER_CHUNKS_MAX);
            assert_eq!(Chunks::decode(&some.encode()).unwrap(), some);
        }
        assert_eq!(chunks(1 << 30).chunk_bytes(), TIER_CHUNK_BYTES_MIN);
    }

    #[test]
    fn what_is_behind_a_cut_is_not_wanted_any_more() {
        let mut some = chunks(20 * TIER_CHUNK_BYTES_MIN);
        assert!(some.add(3) && some.add(10) && some.add(17));
        some.cut(30 * TIER_CHUNK_BYTES_MIN);
        assert_eq!((some.count(), some.bytes_here()), (20, 3 * TIER_CHUNK_BYTES_MIN));
        some.cut(10 * TIER_CHUNK_BYTES_MIN + 1);
        assert_eq!((some.count(), some.bytes_here()), (11, TIER_CHUNK_BYTES_MIN + 1));
        assert!(some.has(10) && !some.has(17) && !some.add(17));
        assert_eq!(Chunks::decode(&some.encode()).unwrap(), some);
        some.cut(3 * TIER_CHUNK_BYTES_MIN);
        assert!(some.is_empty() && !some.is_whole());
        let mut long = chunks(1 << 40);
        let chunk_bytes = long.chunk_bytes();
        assert!(long.add(1) && chunk_bytes > TIER_CHUNK_BYTES_MIN);
        long.cut(2 * chunk_bytes - 7);
        assert_eq!((long.chunk_bytes(), long.bytes_of(1)), (chunk_bytes, chunk_bytes - 7));
        assert_eq!(Chunks::decode(&long.encode()).unwrap(), long);
    }

    #[test]
    fn it_comes_back_as_it_was_and_other_bytes_are_refused() {
        let mut some = chunks(20 * TIER_CHUNK_BYTES_MIN);
        some.add(17);
        let record = some.encode();
        assert_eq!(record.len(), 1 + 4 + 1 + 8 + 12 + 12 + 3);
        assert_eq!(Chunks::decode(&record).unwrap(), some);
        let mut other = record.clone();
        other[5] -= 1;
        for bad in [&record[..record.len() - 1], &[], &[&record[..], &[0]].concat(), &other] {
            assert!(Chunks::decode(bad).is_err());
        }
    }
}

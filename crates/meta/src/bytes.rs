//! Little-endian values in records: a cursor that runs out instead of panicking.

use mayfly_types::Timestamp;

use crate::StoreError;

pub(crate) struct Take<'a>(pub(crate) &'a [u8]);

/// A record ends too early.
pub(crate) const SHORT: StoreError = StoreError::Corrupt("a record is too short");

impl<'a> Take<'a> {
    #[inline]
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], StoreError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, StoreError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, StoreError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, StoreError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, StoreError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    #[inline]
    pub(crate) fn time(&mut self) -> Result<Timestamp, StoreError> {
        let seconds = i64::from_le_bytes(self.array()?);
        time(seconds, self.u32()?)
    }

    #[inline]
    pub(crate) fn finish(self) -> Result<(), StoreError> {
        if self.0.is_empty() { Ok(()) } else { Err(StoreError::Corrupt("a record is too long")) }
    }
}

/// A time of a record.
#[inline]
pub(crate) fn time(seconds: i64, nanoseconds: u32) -> Result<Timestamp, StoreError> {
    if nanoseconds >= 1_000_000_000 {
        return Err(StoreError::Corrupt("a time has too many nanoseconds"));
    }
    Ok(Timestamp { seconds, nanoseconds })
}

pub(crate) trait Put {
    fn put_time(&mut self, time: Timestamp);
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
}

impl Put for Vec<u8> {
    fn put_time(&mut self, time: Timestamp) {
        self.extend_from_slice(&time.seconds.to_le_bytes());
        self.extend_from_slice(&time.nanoseconds.to_le_bytes());
    }

    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
}

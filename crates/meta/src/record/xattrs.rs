//! The extended attributes of a file: all of them in one record, since there are few.

use mayfly_types::limits::{XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX};

use super::small::form;
use crate::{StoreError, bytes::Put};

const XATTRS_V1: u8 = 0xb1;

/// Names and values, in the order in which the names were first set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Xattrs {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Xattrs {
    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_slice())
    }

    /// Gives `name` this value; the one that it had.
    pub fn replace(&mut self, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        match self.pairs.iter_mut().find(|pair| pair.0 == name) {
            Some(pair) => Some(std::mem::replace(&mut pair.1, value.to_vec())),
            None => {
                self.pairs.push((name.to_vec(), value.to_vec()));
                None
            }
        }
    }

    /// Takes `name` away; the value that it had.
    pub fn remove(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        let at = self.pairs.iter().position(|pair| pair.0 == name)?;
        Some(self.pairs.remove(at).1)
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.pairs.iter().map(|pair| pair.0.as_slice())
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// What counts against [`XATTRS_BYTES_MAX`], bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pairs.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = Vec::with_capacity(3 + 5 * self.pairs.len() + self.bytes());
        record.push(XATTRS_V1);
        record.put_u16(self.pairs.len() as u16);
        for (name, value) in &self.pairs {
            record.push(name.len() as u8);
            record.extend_from_slice(name);
            record.put_u32(value.len() as u32);
            record.extend_from_slice(value);
        }
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Xattrs, StoreError> {
        const IMPOSSIBLE: StoreError = StoreError::Corrupt("impossible extended attributes");
        let mut from = form(record, XATTRS_V1)?;
        let count = from.u16()?;
        let mut xattrs = Xattrs::default();
        for _ in 0..count {
            let name_bytes = usize::from(from.u8()?);
            let name = from.bytes(name_bytes)?;
            let value_bytes = from.u32()? as usize;
            if value_bytes > XATTR_VALUE_BYTES_MAX {
                return Err(IMPOSSIBLE);
            }
            let value = from.bytes(value_bytes)?;
            if name.is_empty() || name.contains(&0) || xattrs.replace(name, value).is_some() {
                return Err(IMPOSSIBLE);
            }
            if xattrs.bytes() > XATTRS_BYTES_MAX {
                return Err(IMPOSSIBLE);
            }
        }
        from.finish()?;
        Ok(xattrs)
    }
}

const _: () = assert!(XATTR_NAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(XATTRS_BYTES_MAX <= u16::MAX as usize);

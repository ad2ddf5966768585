//! What an inode of a caching tier knows of its master copy besides its [`super::Origin`].
//!
//! It stands in the place of the residency map. A file is here as a whole or not at all so far, as
//! the origin's bit says.

use mayfly_types::{FileId, Timestamp, limits::NAME_BYTES_MAX};

use super::small::form;
use crate::{StoreError, bytes::Put};

const MASTER_V1: u8 = 0x91;
const BEGUN_V1: u8 = 0x92;
const MASTER_UNSURE: u8 = 0x93;

/// Where the master copy is, and what was last seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Master {
    /// Its last change of any kind, as its file system says.
    pub ctime: Timestamp,
    /// The directory that has its name. Of a directory: none, since that knows its own.
    pub parent: FileId,
    /// Its name there.
    pub name: Vec<u8>,
    /// Its name or its attributes may have been changed for an operation that was not ended here:
    /// it may have another ctime, and be there no more.
    pub unsure: bool,
}

impl Master {
    /// The same, that was seen with this ctime.
    #[must_use]
    pub fn seen(self, ctime: Timestamp) -> Master {
        Master { ctime, unsure: false, ..self }
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![if self.unsure { MASTER_UNSURE } else { MASTER_V1 }];
        record.put_time(self.ctime);
        record.put_u64(self.parent.0);
        record.push(self.name.len() as u8);
        record.extend_from_slice(&self.name);
        record
    }

    /// From the bytes.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Master, StoreError> {
        let unsure = record.first() == Some(&MASTER_UNSURE);
        let mut from = form(record, if unsure { MASTER_UNSURE } else { MASTER_V1 })?;
        let ctime = from.time()?;
        let parent = FileId(from.u64()?);
        let name_bytes = usize::from(from.u8()?);
        debug_assert!(name_bytes <= NAME_BYTES_MAX);
        let name = from.bytes(name_bytes)?.to_vec();
        from.finish()?;
        Ok(Master { ctime, parent, name, unsure })
    }
}

/// A request that changes names outside. It may have done so, and comes again if it is not
/// answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Begun {
    /// Number of the request.
    pub request_id: u64,
    /// The names that it changes.
    pub names: Vec<(FileId, Vec<u8>)>,
}

impl Begun {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![BEGUN_V1];
        record.put_u64(self.request_id);
        record.push(self.names.len() as u8);
        for (directory, name) in &self.names {
            record.put_u64(directory.0);
            record.push(name.len() as u8);
            record.extend_from_slice(name);
        }
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Begun, StoreError> {
        let mut from = form(record, BEGUN_V1)?;
        let request_id = from.u64()?;
        let count = from.u8()?;
        let mut names = Vec::new();
        for _ in 0..count {
            let directory = FileId(from.u64()?);
            let name_bytes = usize::from(from.u8()?);
            names.push((directory, from.bytes(name_bytes)?.to_vec()));
        }
        from.finish()?;
        Ok(Begun { request_id, names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_comes_back_as_it_was_and_other_bytes_are_refused() {
        let names = vec![(FileId(4), b"from".to_vec()), (FileId(5), b"to".to_vec())];
        let begun = Begun { request_id: 1 << 40, names };
        let record = begun.encode();
        assert_eq!(Begun::decode(&record).unwrap(), begun);
        assert!(Begun::decode(&record[..record.len() - 1]).is_err());
        assert!(Begun::decode(&[&record[..], &[0]].concat()).is_err());
    }

    #[test]
    fn it_comes_back_as_it_was_and_other_bytes_are_refused() {
        let ctime = Timestamp { seconds: 3, nanoseconds: 4 };
        for unsure in [false, true] {
            let master = Master { ctime, parent: FileId(9), name: b"name".to_vec(), unsure };
            let record = master.encode();
            assert_eq!(Master::decode(&record).unwrap(), master);
            let longer = [&record[..], &[0]].concat();
            for bad in [&record[..record.len() - 1], &[], &[0x93, 0], &[0x94, 0], &longer] {
                assert!(Master::decode(bad).is_err());
            }
        }
    }
}

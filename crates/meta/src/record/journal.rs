//! A change of names or attributes that was made here, and is to be made at the origin.

use mayfly_types::{
    Errno, FileId, FileKind, Timestamp,
    limits::{SYMLINK_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX},
};

use super::small::form;
use crate::{
    StoreError,
    bytes::{Put, Take},
};

const ENTRY_V1: u8 = 0x95;

/// A directory that has an origin, and a name in it.
pub type At = (FileId, Vec<u8>);

/// A change of names or attributes at an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the calls")]
pub enum Change {
    /// A new file.
    Create { mode: u32 },
    /// A new directory.
    MakeDirectory { mode: u32 },
    /// A new symbolic link.
    Symlink { target: Vec<u8> },
    /// A name goes that is no directory's.
    Remove,
    /// An empty directory goes.
    RemoveDirectory,
    /// A name is moved.
    Rename { to: At, flags: u32 },
    /// Attributes are set.
    SetAttr { which: u32, mode: u32, uid: u32, gid: u32, atime: Timestamp, mtime: Timestamp },
    /// An extended attribute is set.
    SetXattr { name: Vec<u8>, value: Vec<u8>, flags: u32 },
    /// One is taken away.
    RemoveXattr { name: Vec<u8> },
}

/// What the journal says of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The keeper may have made it.
    pub begun: bool,
    /// Why it could not be made, if that was tried.
    pub failed: Option<Errno>,
    /// Number of the origin.
    pub source: u32,
    /// What the name stands for.
    pub file: FileId,
    /// Of which kind that is.
    pub kind: FileKind,
    /// The directory that is replaced by a rename; [`FileId::NONE`]: none.
    pub replaced: FileId,
    /// The directories in which the names are, and those above them, when the change was made here.
    pub above: Vec<FileId>,
    /// The name.
    pub at: At,
    /// What is done of it.
    pub change: Change,
}

const CREATE: u8 = 1;
const MAKE_DIRECTORY: u8 = 2;
const SYMLINK: u8 = 3;
const REMOVE: u8 = 4;
const REMOVE_DIRECTORY: u8 = 5;
const RENAME: u8 = 6;
const SET_ATTR: u8 = 7;
const SET_XATTR: u8 = 8;
const REMOVE_XATTR: u8 = 9;

fn put_short(record: &mut Vec<u8>, name: &[u8]) {
    record.push(name.len() as u8);
    record.extend_from_slice(name);
}

fn take_short(from: &mut Take<'_>) -> Result<Vec<u8>, StoreError> {
    let bytes = usize::from(from.u8()?);
    Ok(from.bytes(bytes)?.to_vec())
}

fn put_at(record: &mut Vec<u8>, (directory, name): &At) {
    record.put_u64(directory.0);
    put_short(record, name);
}

fn take_at(from: &mut Take<'_>) -> Result<At, StoreError> {
    Ok((FileId(from.u64()?), take_short(from)?))
}

impl Change {
    fn put(&self, record: &mut Vec<u8>) {
        match self {
            Change::Create { mode } => {
                record.push(CREATE);
                record.put_u32(*mode);
            }
            Change::MakeDirectory { mode } => {
                record.push(MAKE_DIRECTORY);
                record.put_u32(*mode);
            }
            Change::Symlink { target } => {
                record.push(SYMLINK);
                record.put_u16(target.len() as u16);
                record.extend_from_slice(target);
            }
            Change::Remove => record.push(REMOVE),
            Change::RemoveDirectory => record.push(REMOVE_DIRECTORY),
            Change::Rename { to, flags } => {
                record.push(RENAME);
                put_at(record, to);
                record.put_u32(*flags);
            }
            Change::SetAttr { which, mode, uid, gid, atime, mtime } => {
                record.push(SET_ATTR);
                for word in [which, mode, uid, gid] {
                    record.put_u32(*word);
                }
                record.put_time(*atime);
                record.put_time(*mtime);
            }
            Change::SetXattr { name, value, flags } => {
                record.push(SET_XATTR);
                put_short(record, name);
                record.put_u16(value.len() as u16);
                record.extend_from_slice(value);
                record.put_u32(*flags);
            }
            Change::RemoveXattr { name } => {
                record.push(REMOVE_XATTR);
                put_short(record, name);
            }
        }
    }

    fn take(from: &mut Take<'_>) -> Result<Change, StoreError> {
        Ok(match from.u8()? {
            CREATE => Change::Create { mode: from.u32()? },
            MAKE_DIRECTORY => Change::MakeDirectory { mode: from.u32()? },
            SYMLINK => {
                let bytes = usize::from(from.u16()?);
                if !(1..=SYMLINK_BYTES_MAX).contains(&bytes) {
                    return Err(StoreError::Corrupt("a link leads nowhere"));
                }
                Change::Symlink { target: from.bytes(bytes)?.to_vec() }
            }
            REMOVE => Change::Remove,
            REMOVE_DIRECTORY => Change::RemoveDirectory,
            RENAME => Change::Rename { to: take_at(from)?, flags: from.u32()? },
            SET_ATTR => Change::SetAttr {
                which: from.u32()?,
                mode: from.u32()?,
                uid: from.u32()?,
                gid: from.u32()?,
                atime: from.time()?,
                mtime: from.time()?,
            },
            SET_XATTR => {
                let name = take_short(from)?;
                let bytes = usize::from(from.u16()?);
                if bytes > XATTR_VALUE_BYTES_MAX {
                    return Err(StoreError::Corrupt("an extended attribute is too long"));
                }
                let value = from.bytes(bytes)?.to_vec();
                Change::SetXattr { name, value, flags: from.u32()? }
            }
            REMOVE_XATTR => Change::RemoveXattr { name: take_short(from)? },
            _ => return Err(StoreError::Corrupt("a journal has an unknown change")),
        })
    }
}

impl Entry {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![ENTRY_V1, u8::from(self.begun)];
        record.put_u32(self.failed.map_or(0, |errno| errno.raw() as u32));
        record.put_u32(self.source);
        record.put_u64(self.file.0);
        record.push(self.kind as u8);
        record.put_u64(self.replaced.0);
        record.put_u16(self.above.len() as u16);
        for directory in &self.above {
            record.put_u64(directory.0);
        }
        put_at(&mut record, &self.at);
        self.change.put(&mut record);
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Entry, StoreError> {
        let mut from = form(record, ENTRY_V1)?;
        let begun = match from.u8()? {
            0 => false,
            1 => true,
            _ => return Err(StoreError::Corrupt("an entry is neither begun nor not")),
        };
        let failed = match from.u32()? {
            0 => None,
            raw => {
                let errno = i32::try_from(raw).ok().and_then(Errno::from_raw);
                Some(errno.ok_or(StoreError::Corrupt("an entry failed for no reason"))?)
            }
        };
        let (source, file) = (from.u32()?, FileId(from.u64()?));
        let kind = FileKind::from_raw(from.u8()?);
        let kind = kind.ok_or(StoreError::Corrupt("an entry is of an unknown kind"))?;
        let replaced = FileId(from.u64()?);
        let count = from.u16()?;
        let above = (0..count).map(|_| from.u64().map(FileId)).collect::<Result<_, _>>()?;
        let (at, change) = (take_at(&mut from)?, Change::take(&mut from)?);
        from.finish()?;
        Ok(Entry { begun, failed, source, file, kind, replaced, above, at, change })
    }
}

const _: () = assert!(XATTR_NAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(XATTR_VALUE_BYTES_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_as_it_was_and_other_bytes_are_refused() {
        let at = (FileId(4), b"from".to_vec());
        let time = Timestamp { seconds: 7, nanoseconds: 8 };
        let changes = [
            Change::Create { mode: 0o644 },
            Change::MakeDirectory { mode: 0o700 },
            Change::Symlink { target: b"there".to_vec() },
            Change::Remove,
            Change::RemoveDirectory,
            Change::Rename { to: (FileId(5), b"to".to_vec()), flags: 1 },
            Change::SetAttr { which: 3, mode: 1, uid: 2, gid: 3, atime: time, mtime: time },
            Change::SetXattr { name: b"user.a".to_vec(), value: b"value".to_vec(), flags: 1 },
            Change::RemoveXattr { name: b"user.a".to_vec() },
        ];
        for (change, failed) in
            changes.into_iter().zip([None, Some(Errno::EDQUOT)].into_iter().cycle())
        {
            let entry = Entry {
                begun: true,
                failed,
                source: 1,
                file: FileId(9),
                kind: FileKind::Directory,
                replaced: FileId::NONE,
                above: vec![FileId(4), FileId(1)],
                at: at.clone(),
                change,
            };
            let record = entry.encode();
            assert_eq!(Entry::decode(&record).unwrap(), entry);
            for end in 0..record.len() {
                assert!(Entry::decode(&record[..end]).is_err());
            }
            assert!(Entry::decode(&[&record[..], &[0]].concat()).is_err());
        }
    }
}

//! Records of transactions over several shards, and of directories whose entries are spread.

use mayfly_types::{FileId, Timestamp};

use super::{
    Layout, Step,
    inode::{decode_layout, put_layout},
    small::form,
};
use crate::{StoreError, bytes::Put};

const INTENT_V2: u8 = 0x92;
const MEMBER_V2: u8 = 0xa2;
const SPREAD_V1: u8 = 0xf1;
/// Steps of one operation at most: a rename over a directory of as many members.
const STEPS_MAX: usize = 70_000;

/// How far a directory is spread: names with smaller cookies belong to the owners of their hashes,
/// the others are at its seat. It only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread(pub u64);

impl Spread {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![SPREAD_V1];
        record.put_u64(self.0);
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Spread, StoreError> {
        let mut from = form(record, SPREAD_V1)?;
        let spread = Spread(from.u64()?);
        from.finish()?;
        Ok(spread)
    }
}

/// An operation over several shards that was decided. It is finished whatever happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Session of the request.
    pub session: u32,
    /// Lane of the request.
    pub lane: u32,
    /// Id of the request.
    pub request_id: u64,
    /// The file that it cuts.
    pub cut: Option<FileId>,
    /// What each shard does.
    pub parts: Vec<(u32, Vec<Step>)>,
}

impl Intent {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![INTENT_V2];
        record.put_u32(self.session);
        record.put_u32(self.lane);
        record.put_u64(self.request_id);
        record.put_u64(self.cut.unwrap_or(FileId::NONE).0);
        record.put_u32(self.parts.len() as u32);
        for (shard, steps) in &self.parts {
            record.put_u32(*shard);
            record.put_u32(steps.len() as u32);
            steps.iter().for_each(|step| step.encode(&mut record));
        }
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Intent, StoreError> {
        let mut from = form(record, INTENT_V2)?;
        let (session, lane, request_id) = (from.u32()?, from.u32()?, from.u64()?);
        let cut = Some(FileId(from.u64()?)).filter(|file| *file != FileId::NONE);
        let mut parts = Vec::new();
        let mut left = STEPS_MAX;
        for _ in 0..from.u32()? {
            let shard = from.u32()?;
            let count = from.u32()? as usize;
            left = left.checked_sub(count.max(1)).ok_or(StoreError::Corrupt("too many steps"))?;
            let steps = (0..count).map(|_| Step::decode(&mut from)).collect::<Result<_, _>>()?;
            parts.push((shard, steps));
        }
        from.finish()?;
        Ok(Intent { session, lane, request_id, cut, parts })
    }
}

/// What a shard that is not the home of a directory keeps of it while it may have entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Member {
    /// Entries here.
    pub entries: u64,
    /// Directories among them.
    pub subdirectories: u32,
    /// Permission bits of the directory, for what is made in it.
    pub mode: u16,
    /// Group of the directory, for the same reason.
    pub gid: u32,
    /// When a name was last added or removed here; 0 when that does not count.
    pub mtime: Timestamp,
    /// Layout of the directory, for what is made in it.
    pub layout: Layout,
}

impl Member {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![MEMBER_V2];
        record.put_u64(self.entries);
        record.put_u32(self.subdirectories);
        record.put_u16(self.mode);
        record.put_u32(self.gid);
        record.put_time(self.mtime);
        put_layout(&mut record, &self.layout);
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Member, StoreError> {
        let mut from = form(record, MEMBER_V2)?;
        let member = Member {
            entries: from.u64()?,
            subdirectories: from.u32()?,
            mode: from.u16()?,
            gid: from.u32()?,
            mtime: from.time()?,
            layout: decode_layout(&mut from)?,
        };
        from.finish()?;
        Ok(member)
    }
}

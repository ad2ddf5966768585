//! The slot table: which shard owns which slot.
//!
//! Names and files hash to 65,536 slots. The table says who owns each, and has a version that
//! travels in every request: a shard that gets a request made with another version can tell that
//! the sender asked the wrong one. With one shard everything is its own.

use mayfly_meta::record::SlotRanges;
use mayfly_types::{FileId, limits::SLOTS, slot};

/// Number of a shard in the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u32);

/// A version of the slot table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotTable {
    version: u32,
    owners: Vec<ShardId>,
}

impl SlotTable {
    /// Slots dealt out evenly to `shards` shards in runs; at least one.
    #[must_use]
    pub fn even(version: u32, shards: u32) -> Self {
        let shards = shards.max(1) as usize;
        let owners = (0..SLOTS).map(|slot| ShardId((slot * shards / SLOTS) as u32)).collect();
        SlotTable { version, owners }
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Owner of the dentry `name` in `directory`.
    #[must_use]
    pub fn dentry_owner(&self, directory: FileId, name: &[u8]) -> ShardId {
        self.owners[usize::from(slot::of_dentry(directory, name))]
    }

    /// Home of the inode `file`.
    #[must_use]
    pub fn home(&self, file: FileId) -> ShardId {
        self.owners[usize::from(file.slot())]
    }

    /// As a record.
    #[must_use]
    pub fn to_record(&self) -> SlotRanges {
        let mut runs: Vec<(u16, u32)> = Vec::new();
        for (slot, owner) in self.owners.iter().enumerate() {
            if runs.last().is_none_or(|run| run.1 != owner.0) {
                runs.push((slot as u16, owner.0));
            }
        }
        SlotRanges { version: self.version, runs }
    }

    /// From a record.
    #[must_use]
    pub fn from_record(record: &SlotRanges) -> Self {
        let mut owners = Vec::with_capacity(SLOTS);
        let mut runs = record.runs.iter().peekable();
        let mut owner = ShardId(0);
        for slot in 0..SLOTS {
            if let Some(run) = runs.next_if(|run| usize::from(run.0) == slot) {
                owner = ShardId(run.1);
            }
            owners.push(owner);
        }
        SlotTable { version: record.version, owners }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_comes_back_from_its_record() {
        let table = SlotTable::even(7, 5);
        let record = SlotRanges::decode(&table.to_record().encode()).unwrap();
        assert_eq!(SlotTable::from_record(&record), table);
        assert_eq!(record.runs.len(), 5);
    }

    #[test]
    fn a_new_file_is_at_home_with_the_owner_of_its_name() {
        let table = SlotTable::even(1, 8);
        let slot = slot::of_dentry(FileId::ROOT, b"name");
        let id = FileId::new(slot, 99).unwrap();
        assert_eq!(table.home(id), table.dentry_owner(FileId::ROOT, b"name"));
    }
}

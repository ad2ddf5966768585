//! The slot table: which shard owns which slot.
//!
//! Names and files hash to 65,536 slots. The table says who owns each, and has a version that
//! travels in every request: a shard that gets a request made with another version can tell that
//! the sender asked the wrong one. With one shard everything is its own.

use mayfly_meta::record::SlotRanges;
use mayfly_types::{FileId, limits::SLOTS, slot};

/// Where the slot begins in a cookie ([`mayfly_meta::key::cookie`]).
const COOKIE_SLOT_SHIFT: u32 = 47;

/// The slot of a dentry that has this cookie.
pub(crate) fn slot_of_cookie(cookie: u64) -> u16 {
    (cookie >> COOKIE_SLOT_SHIFT) as u16
}

/// Where the shard stands in the number of a transaction that is unique over shards.
pub(crate) const TRANSACTION_SHARD_SHIFT: u32 = 48;

/// Number of a shard in the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u32);

/// A version of the slot table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotTable {
    version: u32,
    /// First slot and owner of each run, ascending from slot 0.
    runs: Vec<(u16, ShardId)>,
    owners: Vec<ShardId>,
}

impl SlotTable {
    /// Slots dealt out evenly to `shards` shards in runs; at least one.
    #[must_use]
    pub fn even(version: u32, shards: u32) -> Self {
        let all: Vec<ShardId> = (0..shards.max(1)).map(ShardId).collect();
        SlotTable::of(version, &all)
    }

    /// Slots dealt out evenly to these shards in runs; at least one.
    #[must_use]
    pub fn of(version: u32, shards: &[ShardId]) -> Self {
        let first = |index: usize| (index * SLOTS).div_ceil(shards.len()) as u16;
        let runs = shards.iter().enumerate().map(|(index, shard)| (first(index), *shard));
        SlotTable::new(version, runs.collect())
    }

    fn new(version: u32, runs: Vec<(u16, ShardId)>) -> Self {
        let ends = runs.iter().skip(1).map(|run| usize::from(run.0)).chain([SLOTS]);
        let mut owners = Vec::with_capacity(SLOTS);
        for ((_, owner), end) in runs.iter().zip(ends) {
            owners.resize(end, *owner);
        }
        SlotTable { version, runs, owners }
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Number of shards that own slots.
    #[must_use]
    pub fn shards(&self) -> u32 {
        let mut owners: Vec<ShardId> = self.runs.iter().map(|run| run.1).collect();
        owners.sort_unstable();
        owners.dedup();
        owners.len() as u32
    }

    /// Owner of a slot.
    #[must_use]
    pub fn owner(&self, slot: u16) -> ShardId {
        self.owners[usize::from(slot)]
    }

    /// Owner of the dentry `name` in `directory`, if that is spread.
    #[must_use]
    pub fn dentry_owner(&self, directory: FileId, name: &[u8]) -> ShardId {
        self.owners[usize::from(slot::of_dentry(directory, name))]
    }

    /// One of the slots of a shard, as `hash` says; `None` when it has none.
    #[must_use]
    pub fn slot_of(&self, owner: ShardId, hash: u16) -> Option<u16> {
        // The runs of all tables ascend with their owners.
        let first = self.owners.partition_point(|other| *other < owner);
        let count = self.owners[first..].partition_point(|other| *other == owner);
        let slot = first + usize::from(hash).checked_rem(count)?;
        u16::try_from(slot).ok()
    }

    /// Home of the inode `file`.
    #[must_use]
    pub fn home(&self, file: FileId) -> ShardId {
        self.owners[usize::from(file.slot())]
    }

    /// The owner of the dentries at `cookie` of any directory, and the first cookie after it that
    /// is not certain to have the same owner. Cookies begin with the slot.
    #[must_use]
    pub fn run_at(&self, cookie: u64) -> (ShardId, u64) {
        let slot = ((cookie >> COOKIE_SLOT_SHIFT) as usize).min(SLOTS - 1);
        let next = self.runs.partition_point(|run| usize::from(run.0) <= slot);
        let end = self.runs.get(next).map_or(SLOTS, |run| usize::from(run.0));
        (self.owners[slot], (end as u64) << COOKIE_SLOT_SHIFT)
    }

    /// As a record.
    #[must_use]
    pub fn to_record(&self) -> SlotRanges {
        let runs = self.runs.iter().map(|(first, owner)| (*first, owner.0)).collect();
        SlotRanges { version: self.version, runs }
    }

    /// From a record.
    #[must_use]
    pub fn from_record(record: &SlotRanges) -> Self {
        let runs = record.runs.iter().map(|(first, owner)| (*first, ShardId(*owner))).collect();
        SlotTable::new(record.version, runs)
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
    fn only_the_chosen_shards_own_slots_and_as_many_each() {
        let chosen = [1, 4, 5].map(ShardId);
        let table = SlotTable::of(1, &chosen);
        let counts =
            chosen.map(|shard| table.owners.iter().filter(|owner| **owner == shard).count());
        assert_eq!(counts.iter().sum::<usize>(), SLOTS);
        assert!(counts.iter().all(|count| count.abs_diff(SLOTS / 3) <= 1), "{counts:?}");
        assert_eq!(table.shards(), 3);
        let record = SlotRanges::decode(&table.to_record().encode()).unwrap();
        assert_eq!(SlotTable::from_record(&record), table);
    }

    #[test]
    fn a_listing_asks_the_owner_of_each_position() {
        let table = SlotTable::even(1, 3);
        for name in ["a", "b", "c", "d", "e", "f"] {
            let cookie = mayfly_meta::key::cookie(FileId::ROOT, name.as_bytes());
            let (owner, until) = table.run_at(cookie);
            assert_eq!(owner, table.dentry_owner(FileId::ROOT, name.as_bytes()));
            assert!(cookie < until);
        }
        assert_eq!(table.run_at(u64::MAX >> 1), (ShardId(2), 1 << 63));
    }

    #[test]
    fn a_slot_of_a_shard_is_its_own() {
        let table = SlotTable::even(1, 7);
        for owner in (0..7).map(ShardId) {
            for hash in [0, 1, 9_362, 9_363, 65_535] {
                let slot = table.slot_of(owner, hash).expect("it has some");
                let id = FileId::new(slot, 5).expect("a number");
                assert_eq!(table.home(id), owner);
            }
        }
        assert_eq!(table.slot_of(ShardId(7), 3), None);
    }

    #[test]
    fn a_new_file_is_at_home_with_the_owner_of_its_name() {
        let table = SlotTable::even(1, 8);
        let slot = slot::of_dentry(FileId::ROOT, b"name");
        let id = FileId::new(slot, 99).unwrap();
        assert_eq!(table.home(id), table.dentry_owner(FileId::ROOT, b"name"));
    }
}

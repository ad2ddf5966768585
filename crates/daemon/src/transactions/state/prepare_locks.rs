//! What [`crate::transactions::prepare_locks`] keeps and works with.

use mayfly_meta::record::Step;
use mayfly_types::FileId;

use crate::{maps::HashMap, message::TransactionId};

/// Something that can be claimed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PrepareLock {
    /// A dentry.
    Name(FileId, Vec<u8>),
    /// An inode's names and existence.
    File(FileId),
    /// How many names a file has.
    Links(FileId),
    /// A directory, as far as it may have entries here. Shared by those who make and remove
    /// entries.
    Place(FileId),
    /// The bytes of a striped file, as far as they are here.
    Bytes(FileId),
    /// The right to move directories.
    Election,
}

/// A claim and whether it may not be shared.
pub(crate) type Wanted = (PrepareLock, bool);

#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) exclusive: Option<TransactionId>,
    pub(crate) shared: Vec<TransactionId>,
}

/// The claims at one shard.
#[derive(Debug, Default)]
pub(crate) struct PrepareLocks {
    pub(crate) held: HashMap<PrepareLock, Held>,
    pub(crate) of: HashMap<TransactionId, Vec<PrepareLock>>,
}

impl PrepareLocks {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The oldest of the other transactions in the way.
    pub(crate) fn in_the_way(
        &self,
        wanted: &[Wanted],
        by: Option<TransactionId>,
    ) -> Option<TransactionId> {
        let other = |held: &TransactionId| Some(*held) != by;
        let holders = wanted.iter().flat_map(|(claim, exclusive)| {
            let held = self.held.get(claim);
            let shared = held.filter(|_| *exclusive).map(|held| held.shared.as_slice());
            let exclusive = held.and_then(|held| held.exclusive);
            exclusive.into_iter().chain(shared.unwrap_or_default().iter().copied())
        });
        holders.filter(other).min()
    }

    /// Transactions that have claims.
    pub(crate) fn holders(&self) -> impl Iterator<Item = TransactionId> {
        self.of.keys().copied()
    }

    /// Takes what is not in anybody's way.
    pub(crate) fn take(&mut self, transaction: TransactionId, wanted: Vec<Wanted>) {
        let locks = self.of.entry(transaction).or_default();
        for (claim, exclusive) in wanted {
            let held = self.held.entry(claim.clone()).or_default();
            if exclusive {
                held.exclusive = Some(transaction);
            } else if !held.shared.contains(&transaction) {
                held.shared.push(transaction);
            }
            locks.push(claim);
        }
    }

    /// Gives back everything that the transaction has; false when it has nothing.
    pub(crate) fn release(&mut self, transaction: TransactionId) -> bool {
        let Some(locks) = self.of.remove(&transaction) else { return false };
        for claim in locks {
            let Some(held) = self.held.get_mut(&claim) else { continue };
            held.exclusive = held.exclusive.filter(|holder| *holder != transaction);
            held.shared.retain(|holder| *holder != transaction);
            if held.exclusive.is_none() && held.shared.is_empty() {
                self.held.remove(&claim);
            }
        }
        true
    }
}

/// What a step needs.
pub(crate) fn prepare_locks_of(step: &Step) -> Vec<Wanted> {
    match step {
        Step::MakeFile { id, .. } | Step::MakeDirectory { id, .. } | Step::Moved { id, .. } => {
            vec![(PrepareLock::File(*id), true)]
        }
        Step::TakeNames { directory, names } => names
            .iter()
            .map(|moved| (PrepareLock::Name(*directory, moved.name.clone()), true))
            .chain([(PrepareLock::Place(*directory), false)])
            .collect(),
        // Nothing is made in it meanwhile, and what moves stands for the same.
        Step::GiveNames { directory, names, .. } => names
            .iter()
            .map(|moved| (PrepareLock::File(moved.id), true))
            .chain([(PrepareLock::Place(*directory), true)])
            .collect(),
        Step::AddLink { id, .. } | Step::DropLink { id, .. } => {
            vec![(PrepareLock::File(*id), true), (PrepareLock::Links(*id), true)]
        }
        Step::SetName { directory, name, .. } | Step::RemoveName { directory, name, .. } => {
            vec![
                (PrepareLock::Name(*directory, name.clone()), true),
                (PrepareLock::Place(*directory), false),
            ]
        }
        Step::RemoveDirectory { id, .. } => {
            vec![(PrepareLock::File(*id), true), (PrepareLock::Place(*id), true)]
        }
        Step::DropMember { id } => vec![(PrepareLock::Place(*id), true)],
        Step::UpdateMember { id, .. } => vec![(PrepareLock::Place(*id), false)],
        Step::SetLayout { id, .. } | Step::SetMemberLayout { id, .. } => {
            vec![(PrepareLock::Place(*id), true)]
        }
        Step::CutPart { id, .. } => vec![(PrepareLock::Bytes(*id), true)],
        Step::Elect => vec![(PrepareLock::Election, true)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_claims_stand_side_by_side_and_exclude_an_exclusive_one() {
        let mut locks = PrepareLocks::default();
        let place = PrepareLock::Place(FileId(7));
        let [old, young, third] = [1, 2, 3].map(|age| TransactionId::new(age, 0));
        locks.take(young, vec![(place.clone(), false)]);
        assert_eq!(locks.in_the_way(&[(place.clone(), false)], Some(old)), None);
        locks.take(old, vec![(place.clone(), false)]);
        let wanted = [(place, true)];
        assert_eq!(locks.in_the_way(&wanted, Some(third)), Some(old), "the oldest is named");
        assert_eq!(locks.in_the_way(&wanted, Some(old)), Some(young), "one is not in its own way");
        assert!(locks.release(old) && locks.release(young) && !locks.release(young));
        assert!(locks.is_empty());
    }
}

//! What operations over several shards have set aside until they are finished.
//!
//! An operation claims at every shard that takes part what it is going to change there, and changes
//! nothing before it has all its claims. Whoever finds a claim in the way waits: an operation of
//! this shard alone, which claims nothing, until the claim is gone; another operation over several
//! shards only if it is the older one. The younger one gives back what it has and begins again when
//! the way is free (*wait-die*, Rosenkrantz, Stearns and Lewis 1978), so nobody waits in a circle,
//! and since an operation keeps its age, each is the oldest one day.
//!
//! Reading needs no claim: until the operation is acknowledged, what was before it is a right
//! answer. Only how many names a file has is told together with the names: a link is counted at one
//! shard and its name made at another, not at one moment, and who saw the one must not look for the
//! other in vain. So who wants to tell that number waits for the operation that changes it
//! ([`Shard::links_at_rest`]). He holds no claim, and an operation that has its claims waits for
//! nobody who looks, so this makes no circle either. Where there is one shard there are no claims:
//! both are changed by one run and committed with it, and who reads the records sees both or none.

use mayfly_meta::record::Step;
use mayfly_types::FileId;

use crate::{
    maps::HashMap,
    message::OperationId,
    shard::{Fault, Outcome, Shard},
};

/// Something that can be claimed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Claim {
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
pub(crate) type Wanted = (Claim, bool);

#[derive(Debug, Default)]
struct Held {
    exclusive: Option<OperationId>,
    shared: Vec<OperationId>,
}

/// The claims at one shard.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: HashMap<Claim, Held>,
    of: HashMap<OperationId, Vec<Claim>>,
}

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The oldest of the other operations in the way.
    pub(crate) fn in_the_way(
        &self,
        wanted: &[Wanted],
        by: Option<OperationId>,
    ) -> Option<OperationId> {
        let other = |held: &OperationId| Some(*held) != by;
        let holders = wanted.iter().flat_map(|(claim, exclusive)| {
            let held = self.held.get(claim);
            let shared = held.filter(|_| *exclusive).map(|held| held.shared.as_slice());
            let exclusive = held.and_then(|held| held.exclusive);
            exclusive.into_iter().chain(shared.unwrap_or_default().iter().copied())
        });
        holders.filter(other).min()
    }

    /// Operations that have claims.
    pub(crate) fn holders(&self) -> impl Iterator<Item = OperationId> {
        self.of.keys().copied()
    }

    /// Takes what is not in anybody's way.
    pub(crate) fn take(&mut self, operation: OperationId, wanted: Vec<Wanted>) {
        let claims = self.of.entry(operation).or_default();
        for (claim, exclusive) in wanted {
            let held = self.held.entry(claim.clone()).or_default();
            if exclusive {
                held.exclusive = Some(operation);
            } else if !held.shared.contains(&operation) {
                held.shared.push(operation);
            }
            claims.push(claim);
        }
    }

    /// Gives back everything that the operation has; false when it has nothing.
    pub(crate) fn release(&mut self, operation: OperationId) -> bool {
        let Some(claims) = self.of.remove(&operation) else { return false };
        for claim in claims {
            let Some(held) = self.held.get_mut(&claim) else { continue };
            held.exclusive = held.exclusive.filter(|holder| *holder != operation);
            held.shared.retain(|holder| *holder != operation);
            if held.exclusive.is_none() && held.shared.is_empty() {
                self.held.remove(&claim);
            }
        }
        true
    }
}

impl Shard {
    /// Waits while an operation over several shards changes how many names the file has. What is
    /// only being prepared by this shard has changed nothing anywhere; of another shard's operation
    /// nobody here knows how far it is.
    pub(crate) fn links_at_rest(&self, file: FileId) -> Outcome<()> {
        if self.transactions.claims.is_empty() {
            return Ok(());
        }
        let holder = self.transactions.claims.in_the_way(&[(Claim::Links(file), false)], None);
        match holder.map(|holder| self.transactions.running.get(&holder)) {
            None => Ok(()),
            Some(Some(operation)) if !operation.is_decided() => Ok(()),
            Some(_) => Err(Fault::Busy),
        }
    }
}

/// What a step needs.
pub(super) fn claims_of(step: &Step) -> Vec<Wanted> {
    match step {
        Step::MakeFile { id, .. } | Step::Moved { id, .. } => vec![(Claim::File(*id), true)],
        Step::AddLink { id, .. } | Step::DropLink { id, .. } => {
            vec![(Claim::File(*id), true), (Claim::Links(*id), true)]
        }
        Step::SetName { directory, name, .. } | Step::RemoveName { directory, name, .. } => {
            vec![(Claim::Name(*directory, name.clone()), true), (Claim::Place(*directory), false)]
        }
        Step::RemoveDirectory { id, .. } => {
            vec![(Claim::File(*id), true), (Claim::Place(*id), true)]
        }
        Step::DropMember { id } => vec![(Claim::Place(*id), true)],
        Step::UpdateMember { id, .. } => vec![(Claim::Place(*id), false)],
        Step::SetLayout { id, .. } | Step::SetMemberLayout { id, .. } => {
            vec![(Claim::Place(*id), true)]
        }
        Step::CutPart { id, .. } => vec![(Claim::Bytes(*id), true)],
        Step::Elect => vec![(Claim::Election, true)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_claims_stand_side_by_side_and_exclude_an_exclusive_one() {
        let mut claims = Claims::default();
        let place = Claim::Place(FileId(7));
        let [old, young, third] = [1, 2, 3].map(|age| OperationId::new(age, 0));
        claims.take(young, vec![(place.clone(), false)]);
        assert_eq!(claims.in_the_way(&[(place.clone(), false)], Some(old)), None);
        claims.take(old, vec![(place.clone(), false)]);
        let wanted = [(place, true)];
        assert_eq!(claims.in_the_way(&wanted, Some(third)), Some(old), "the oldest is named");
        assert_eq!(claims.in_the_way(&wanted, Some(old)), Some(young), "one is not in its own way");
        assert!(claims.release(old) && claims.release(young) && !claims.release(young));
        assert!(claims.is_empty());
    }
}

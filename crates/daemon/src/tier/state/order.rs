//! In which order the entries of a journal are done.
//!
//! An entry has some things for itself: its names, and the directory that it makes, moves, removes
//! or changes. It shares others: the directories in which its names are, and all above those. An
//! entry waits for each earlier one that has for itself what it needs, or that shares what it has
//! for itself. So what is done so far has every entry's earlier ones of the same names, of the
//! directories above and, of a directory, of all that is below: programs that did only this, in
//! this order, would have got as far. What has nothing in common is done at the same time.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_types::FileId;

use super::wanted::At;
use crate::maps::HashMap;

/// What entries have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Thing {
    Name(At),
    Directory(FileId),
}

/// What an entry needs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(crate) alone: Vec<Thing>,
    pub(crate) shared: Vec<Thing>,
}

/// The entries that are not done and need one thing.
#[derive(Debug, Default)]
struct Chain {
    /// The last one that has it for itself.
    alone: Option<u64>,
    /// Those behind it that share it.
    shared: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// So many earlier ones are not done.
    before: usize,
    /// These wait for it.
    behind: Vec<u64>,
    needs: Needs,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Order {
    chains: HashMap<Thing, Chain>,
    entries: BTreeMap<u64, Waiting>,
}

impl Order {
    /// Takes in an entry that comes behind all others; for which it waits.
    pub(crate) fn add(&mut self, number: u64, needs: Needs) -> BTreeSet<u64> {
        let mut before = BTreeSet::new();
        for thing in &needs.shared {
            let chain = self.chains.entry(thing.clone()).or_default();
            before.extend(chain.alone);
            chain.shared.insert(number);
        }
        for thing in &needs.alone {
            let chain = self.chains.entry(thing.clone()).or_default();
            before.extend(chain.alone);
            before.append(&mut chain.shared);
            chain.alone = Some(number);
        }
        before.remove(&number);
        for earlier in &before {
            if let Some(earlier) = self.entries.get_mut(earlier) {
                earlier.behind.push(number);
            }
        }
        let waiting = Waiting { before: before.len(), behind: Vec::new(), needs };
        self.entries.insert(number, waiting);
        before
    }

    /// An entry is done: those that wait for nothing any more.
    pub(crate) fn done(&mut self, number: u64) -> Vec<u64> {
        let Some(Waiting { behind, needs, .. }) = self.entries.remove(&number) else {
            return Vec::new();
        };
        for thing in needs.alone.iter().chain(&needs.shared) {
            let Some(chain) = self.chains.get_mut(thing) else { continue };
            chain.shared.remove(&number);
            if chain.alone == Some(number) {
                chain.alone = None;
            }
            if chain.alone.is_none() && chain.shared.is_empty() {
                self.chains.remove(thing);
            }
        }
        let mut free = Vec::new();
        for later in behind {
            let Some(waiting) = self.entries.get_mut(&later) else { continue };
            waiting.before -= 1;
            if waiting.before == 0 {
                free.push(later);
            }
        }
        free
    }

    /// Whether it waits for nothing.
    pub(crate) fn is_free(&self, number: u64) -> bool {
        self.entries.get(&number).is_some_and(|waiting| waiting.before == 0)
    }

    /// All that wait for it, and for those.
    pub(crate) fn all_behind(&self, number: u64) -> BTreeSet<u64> {
        let (mut all, mut todo) = (BTreeSet::new(), vec![number]);
        while let Some(number) = todo.pop() {
            let behind = self.entries.get(&number).map_or(&[][..], |of| &of.behind);
            todo.extend(behind.iter().filter(|later| all.insert(**later)));
        }
        all
    }

    /// The last entry that needs this.
    pub(crate) fn last(&self, thing: &Thing) -> Option<u64> {
        let chain = self.chains.get(thing)?;
        chain.shared.last().copied().max(chain.alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(directory: u64, name: &str) -> Thing {
        Thing::Name((FileId(directory), name.as_bytes().to_vec()))
    }

    fn directory(id: u64) -> Thing {
        Thing::Directory(FileId(id))
    }

    #[test]
    fn a_directory_waits_for_what_is_below_and_what_is_below_for_it() {
        let mut order = Order::default();
        let make = Needs { alone: vec![name(1, "d"), directory(2)], shared: vec![directory(1)] };
        assert!(order.add(1, make).is_empty());
        for (number, of) in [(2, "a"), (3, "b")] {
            let shared = vec![directory(2), directory(1)];
            let needs = Needs { alone: vec![name(2, of)], shared };
            assert_eq!(order.add(number, needs), BTreeSet::from([1]));
        }
        let other = Needs { alone: vec![name(1, "e")], shared: vec![directory(1)] };
        assert!(order.add(4, other).is_empty());
        let moved = vec![name(1, "d"), name(1, "f"), directory(2)];
        let moved = Needs { alone: moved, shared: vec![directory(1)] };
        assert_eq!(order.add(5, moved), BTreeSet::from([1, 2, 3]));
        assert_eq!(order.all_behind(1), BTreeSet::from([2, 3, 5]));
        assert_eq!(order.last(&directory(1)), Some(5));
        assert_eq!(order.done(1), [2, 3]);
        assert!(order.done(3).is_empty());
        assert!(!order.is_free(5));
        assert_eq!(order.done(2), [5]);
        assert!(order.is_free(5) && order.is_free(4));
        order.done(4);
        order.done(5);
        assert!(order.chains.is_empty() && order.entries.is_empty());
    }
}

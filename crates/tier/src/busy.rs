//! Names of which something is being done.
//!
//! A daemon has one thing at a time done of a name. When it dies, what it has given goes on, and
//! the next daemon may give the same: that waits here.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use mayfly_wire::{TierItem, tier::TIER_RENAME};

/// An origin, and a path there.
type Name = (u32, Vec<u8>);

#[derive(Default)]
pub(crate) struct BusyNames {
    names: Mutex<Vec<Name>>,
    freed: Condvar,
}

/// The names are busy until this is dropped.
pub(crate) struct Busy<'a> {
    all: &'a BusyNames,
    names: Vec<Name>,
}

impl BusyNames {
    fn lock(&self) -> MutexGuard<'_, Vec<Name>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing is done of the names that the item is about.
    pub(crate) fn take(&self, item: &TierItem<'_>) -> Busy<'_> {
        let mut wanted = vec![(item.source, item.path.to_vec())];
        if item.what == TIER_RENAME {
            wanted.push((item.source, item.other.to_vec()));
        }
        let mut busy = self.lock();
        while wanted.iter().any(|name| busy.contains(name)) {
            busy = self.freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        busy.extend(wanted.iter().cloned());
        Busy { all: self, names: wanted }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.all.lock().retain(|name| !self.names.contains(name));
        self.all.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_types::FileId;
    use mayfly_wire::tier::{NO_ATTR, TIER_FLUSH};
    use std::{sync::mpsc, thread, time::Duration};

    fn item<'a>(what: u32, path: &'a [u8], other: &'a [u8]) -> TierItem<'a> {
        TierItem {
            number: 1,
            source: 0,
            what,
            again: false,
            file: FileId(1),
            path,
            other,
            bytes: b"",
            which: 0,
            known: NO_ATTR,
            attr: NO_ATTR,
        }
    }

    /// Two flushes of one file, given by two daemons, wrote to the same file beside it: one put it
    /// in place while the other one had just emptied it.
    #[test]
    fn what_two_daemons_have_given_of_one_name_is_done_one_after_the_other() {
        let names = BusyNames::default();
        let first = names.take(&item(TIER_RENAME, b"from", b"to"));
        let (done, told) = mpsc::channel();
        thread::scope(|scope| {
            let names = &names;
            scope.spawn(move || {
                drop(names.take(&item(TIER_FLUSH, b"to", b"")));
                done.send(()).unwrap();
            });
            drop(names.take(&item(TIER_FLUSH, b"another", b"")));
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "it did not wait");
            drop(first);
            told.recv_timeout(Duration::from_secs(10)).unwrap();
        });
    }
}

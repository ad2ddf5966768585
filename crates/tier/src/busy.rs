//! Names of which something is being done.
//!
//! A daemon has one thing at a time done of a name. When it dies, what it has given goes on, and
//! the next daemon may give the same: that waits here. Of a file it has several parts fetched at a
//! time. Those of one object wait for all that earlier daemons gave of it; the upper half of an
//! item's number says which daemon gave it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use mayfly_wire::{
    TierItem,
    tier::{TIER_CHUNKS, TIER_RENAME},
};

/// An origin, and a path there; or an object, and the daemon that had it filled.
#[derive(Clone, PartialEq, Eq)]
enum Name {
    Outside(u32, Vec<u8>),
    Object(u32, Vec<u8>),
}

impl Name {
    /// Whether this waits for the end of what is done of the other one.
    fn waits_for(&self, other: &Name) -> bool {
        match (self, other) {
            (Name::Object(daemon, object), Name::Object(earlier, same)) => {
                object == same && earlier < daemon
            }
            _ => self == other,
        }
    }
}

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
        let wanted = match item.what {
            TIER_CHUNKS => vec![Name::Object((item.number >> 32) as u32, item.other.to_vec())],
            TIER_RENAME => [item.path, item.other]
                .map(|path| Name::Outside(item.source, path.to_vec()))
                .to_vec(),
            _ => vec![Name::Outside(item.source, item.path.to_vec())],
        };
        let mut busy = self.lock();
        let is_busy = |busy: &[Name]| {
            wanted.iter().any(|name| busy.iter().any(|other| name.waits_for(other)))
        };
        while is_busy(&busy) {
            busy = self.freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        busy.extend(wanted.iter().cloned());
        Busy { all: self, names: wanted }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut busy = self.all.lock();
        for name in &self.names {
            // Others of this daemon may have the same object.
            if let Some(at) = busy.iter().position(|other| other == name) {
                busy.swap_remove(at);
            }
        }
        drop(busy);
        self.all.freed.notify_all();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use mayfly_types::FileId;
    use mayfly_wire::tier::{NO_ATTR, TIER_FLUSH};
    use std::{sync::mpsc, thread, time::Duration};

    /// Something to do about a file, of which nothing is known.
    pub(crate) fn item<'a>(what: u32, path: &'a [u8], other: &'a [u8]) -> TierItem<'a> {
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
            start: 0,
            end: 0,
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
    #[test]
    fn parts_of_an_object_wait_for_what_earlier_daemons_gave_of_it_and_for_nothing_else() {
        let names = BusyNames::default();
        let part = |daemon: u64, object| TierItem {
            number: daemon << 32 | 1,
            ..item(TIER_CHUNKS, b"path", object)
        };
        let (first, second) = (names.take(&part(1, b"a")), names.take(&part(1, b"a")));
        drop(names.take(&part(2, b"b")));
        drop(names.take(&item(TIER_FLUSH, b"path", b"")));
        let (done, told) = mpsc::channel();
        thread::scope(|scope| {
            let (names, part) = (&names, &part);
            scope.spawn(move || {
                drop(names.take(&part(2, b"a")));
                done.send(()).unwrap();
            });
            drop(first);
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "it did not wait");
            drop(second);
            told.recv_timeout(Duration::from_secs(10)).unwrap();
        });
    }
}

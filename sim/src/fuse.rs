//! Deaths in the middle of a turn.
//!
//! A turn of a daemon commits and sends more than once. With a fuse that was lit it ends at the
//! so-manieth place of a kind that matters. What was committed, stored in the lanes or sent until
//! then was; nothing else is.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Once,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use mayfly_meta::{Scan, Store, StoreError};

/// What the turn unwinds with.
struct Died;

/// Where a daemon dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Replies are stored, and nothing of the transaction is kept.
    BeforeCommit,
    /// Everything is kept, and nobody has been told.
    BehindCommit,
    /// A message to another node is due; those before it are on their way.
    BeforeMessage,
}

/// A node's fuse.
#[derive(Debug, Clone, Default)]
pub struct Fuse(Arc<[AtomicU64; 3]>);

impl Fuse {
    /// The node's daemon dies at the so-manieth such place from now on.
    pub fn light(&self, place: Place, count: u64) {
        self.0[place as usize].store(count, Relaxed);
    }

    /// It does not.
    pub fn put_out(&self) {
        self.0.iter().for_each(|left| left.store(0, Relaxed));
    }

    /// It is at such a place.
    pub fn burn(&self, place: Place) {
        let left = self.0[place as usize].load(Relaxed);
        self.light(place, left.saturating_sub(1));
        if left == 1 {
            panic::panic_any(Died);
        }
    }
}

/// Lets a daemon do something; `None` when it died meanwhile.
pub fn until_death<T>(act: impl FnOnce() -> T) -> Option<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !panic.payload().is::<Died>() {
                loud(panic);
            }
        }));
    });
    // Whoever died is dropped, whatever state it is in; what outlives it is always whole.
    match panic::catch_unwind(AssertUnwindSafe(act)) {
        Ok(done) => Some(done),
        Err(why) if why.is::<Died>() => None,
        Err(why) => panic::resume_unwind(why),
    }
}

/// A store whose daemon may die at its commits.
#[derive(Debug)]
pub struct Fused<S> {
    store: S,
    fuse: Fuse,
}

impl<S> Fused<S> {
    /// With its node's fuse.
    pub fn new(store: S, fuse: Fuse) -> Fused<S> {
        Fused { store, fuse }
    }
}

impl<S: Store> Store for Fused<S> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        self.store.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.store.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        self.store.delete(key)
    }

    fn scan(
        &mut self,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Scan,
    ) -> Result<(), StoreError> {
        self.store.scan(prefix, from, visit)
    }

    fn announce(&mut self) -> Result<(), StoreError> {
        self.store.announce()
    }

    fn move_directory(&mut self) -> Result<(), StoreError> {
        self.store.move_directory()
    }

    fn commit(&mut self) -> Result<u64, StoreError> {
        self.fuse.burn(Place::BeforeCommit);
        let committed = self.store.commit();
        self.fuse.burn(Place::BehindCommit);
        committed
    }

    fn may_move(&self) -> bool {
        self.store.may_move()
    }

    fn pending_transaction(&self) -> u64 {
        self.store.pending_transaction()
    }

    fn committed_transaction(&self) -> u64 {
        self.store.committed_transaction()
    }

    fn used_bytes(&self) -> u64 {
        self.store.used_bytes()
    }

    fn has_room(&mut self) -> bool {
        self.store.has_room()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.store.sync()
    }
}

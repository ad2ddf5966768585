//! The way from a thread to the loop of another one.

use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
};

use crate::serve::Waker;

/// Takes turns in that thread's place.
pub(in crate::serve) trait StandIn: Send + Sync {
    fn stand_in(&self);
}

/// Where the loop is found, once there is one.
#[derive(Clone, Default)]
pub(in crate::serve) struct Door(pub(in crate::serve) Arc<OnceLock<Weak<dyn StandIn>>>);

impl Door {
    /// There is something to do for the loop. To be called by a thread that holds nothing which the
    /// loop might want.
    pub(in crate::serve) fn knock(&self, waker: &Waker) {
        match self.0.get().and_then(Weak::upgrade) {
            Some(rounds) => rounds.stand_in(),
            None => waker.wake(),
        }
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}

//! The way from the network thread to the serving loop.

use std::sync::{Arc, OnceLock, Weak};

use crate::serve::Waker;

/// Takes turns in the serving thread's place.
pub(in crate::serve) trait StandIn: Send + Sync {
    fn stand_in(&self);
}

/// Where the network thread finds the loop, once there is one.
#[derive(Clone, Default)]
pub(in crate::serve) struct Door(pub(in crate::serve) Arc<OnceLock<Weak<dyn StandIn>>>);

impl Door {
    /// Something has come from another node. To be called by the network thread, which holds
    /// nothing that the loop might want.
    pub(in crate::serve) fn knock(&self, waker: &Waker) {
        match self.0.get().and_then(Weak::upgrade) {
            Some(rounds) => rounds.stand_in(),
            None => waker.wake(),
        }
    }
}

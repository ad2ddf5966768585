//! Who runs the rounds: the serving thread, or the network thread in its place.
//!
//! What comes from another node wakes the network thread. To wake the serving thread then would be
//! a second switch of threads for each message, on either side: with it a request to another node
//! costs six of them, without it four, as through any relay. So while the serving thread sleeps,
//! the network thread takes its place for a few turns. It leaves again when there is nothing more
//! to do, and wakes the serving thread when there is: nobody else looks after the sockets.
//!
//! The loop is behind a lock, which is never waited for by the network thread: who holds it looks
//! at everything once more before it lets go.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak,
    atomic::{Ordering::SeqCst, fence},
};

use crate::serve::{
    Ending, HostEnvironment, Service, Waker,
    network::door::{Door, StandIn},
    threads::rounds::{Serving, Turn},
};

/// Turns that the network thread takes in a row at most: one to act on what has come, one for work
/// that can wait, and the same once more.
const TURNS_MAX: u32 = 4;

/// The serving loop, for whoever runs it.
struct Rounds<S, O> {
    /// `None` when it is over.
    serving: Mutex<Option<Serving<S, O>>>,
    waker: Waker,
}

/// Serves until told to stop. The network thread takes turns through `door`.
pub(in crate::serve) fn run<S, O>(serving: Serving<S, O>, door: &Door) -> Ending
where
    S: Service + Send + 'static,
    O: HostEnvironment + Send + 'static,
{
    let waker = serving.shard.peers.waker().clone();
    let rounds = Arc::new(Rounds { serving: Mutex::new(None), waker });
    if serving.shard.service.may_move() {
        let stand_in: Weak<Rounds<S, O>> = Arc::downgrade(&rounds);
        // A daemon has one loop.
        let _first = door.0.set(stand_in);
    }
    rounds.run(serving)
}

impl<S: Service, O: HostEnvironment> Rounds<S, O> {
    fn lock(&self) -> MutexGuard<'_, Option<Serving<S, O>>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The serving thread's life. It has the lock whenever it does not sleep.
    fn run(&self, mut serving: Serving<S, O>) -> Ending {
        serving.begin();
        let mut place = self.lock();
        let mut serving = place.insert(serving);
        let ending = loop {
            match serving.turn() {
                Turn::Done => {}
                Turn::Over(ending) => break ending,
                Turn::Idle(what) => {
                    let Some(wakes) = serving.lie_down(what) else { continue };
                    drop(place);
                    self.waker.sleep(wakes);
                    place = self.lock();
                    let Some(back) = place.as_mut() else { unreachable!("nobody else takes it") };
                    serving = back;
                    serving.idle.rise();
                    serving.shard.slow.awake();
                }
            }
        };
        serving.close_the_doors();
        // Every shard is closed when the serving thread returns.
        *place = None;
        ending
    }
}

impl<S: Service + Send, O: HostEnvironment + Send> StandIn for Rounds<S, O> {
    fn stand_in(&self) {
        self.waker.poke();
        fence(SeqCst);
        let mut place = match self.serving.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Either it has not looked yet for the last time, or it can be woken.
            Err(TryLockError::WouldBlock) => return self.waker.wake(),
        };
        let Some(serving) = place.as_mut() else { return };
        if !serving.is_open() || !stand_in(serving) {
            drop(place);
            self.waker.wake();
        }
    }
}

/// Takes a few turns; false when somebody has to go on.
fn stand_in<S: Service, O: HostEnvironment>(serving: &mut Serving<S, O>) -> bool {
    serving.idle.rise();
    serving.shard.slow.awake();
    for _ in 0..TURNS_MAX {
        match serving.turn() {
            Turn::Done => {}
            Turn::Idle(what) => {
                if serving.idle.is_over(what) {
                    return true;
                }
            }
            // The serving thread finds the same.
            Turn::Over(ending) => {
                serving.end(ending);
                break;
            }
        }
    }
    serving.idle.give_up_place();
    false
}

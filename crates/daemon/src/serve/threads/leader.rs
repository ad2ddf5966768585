//! Who runs the rounds: the serving thread, or the network thread in its place.
//!
//! What comes from another node wakes the network thread. To wake the serving thread then would be
//! a second switch of threads for each message, on either side: with it a request to another node
//! costs six of them, without it four, as through any relay. So while the serving thread sleeps,
//! the network thread takes its place for a few turns. It leaves again when there is nothing more
//! to do, and wakes the serving thread when there is: nobody else looks after the sockets.

use std::sync::{Arc, Weak};

use crate::serve::{
    Ending, HostEnvironment, Service,
    network::door::{Door, StandIn},
    threads::{
        place::{Place, TURNS_MAX},
        rounds::{Serving, Turn},
    },
};

/// Serves until told to stop. The network thread takes turns through `door`.
pub(in crate::serve) fn run<S, O>(serving: Serving<S, O>, door: &Door) -> Ending
where
    S: Service + Send + 'static,
    O: HostEnvironment + Send + 'static,
{
    let place = Arc::new(Place::new(serving.shard.peers.waker().clone()));
    if serving.shard.service.may_move() {
        let stand_in: Weak<Place<Serving<S, O>>> = Arc::downgrade(&place);
        // A daemon has one loop.
        let _first = door.0.set(stand_in);
    }
    live(&place, serving)
}

/// The serving thread's life. It has the lock whenever it does not sleep.
fn live<S: Service, O: HostEnvironment>(
    place: &Place<Serving<S, O>>,
    mut serving: Serving<S, O>,
) -> Ending {
    serving.begin();
    let mut held = place.lock();
    let mut serving = held.insert(serving);
    let ending = loop {
        match serving.turn() {
            Turn::Done => {}
            Turn::Over(ending) => break ending,
            Turn::Idle(what) => {
                let Some(wakes) = serving.lie_down(what) else { continue };
                let at_most = serving.shard.service.due();
                held = place.sleep(held, (wakes, at_most));
                let Some(back) = held.as_mut() else { unreachable!("nobody else takes it") };
                serving = back;
                serving.idle.rise();
                serving.shard.slow.awake();
            }
        }
    };
    serving.close_the_doors();
    // Every shard is closed when the serving thread returns.
    *held = None;
    ending
}

impl<S: Service + Send, O: HostEnvironment + Send> StandIn for Place<Serving<S, O>> {
    fn stand_in(&self) {
        Place::stand_in(self, |serving| {
            serving.is_open() && stand_in(serving) && !self.oversleeps(serving.shard.service.due())
        });
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

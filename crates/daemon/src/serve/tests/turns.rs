//! The network thread in the serving thread's place.

use std::{
    sync::atomic::Ordering::{Relaxed, SeqCst},
    thread,
    time::Duration,
};

use mayfly_transport_shm::layout::DAEMON_ASLEEP;

use crate::serve::tests::nodes::{Instance, Served};

const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const NAMES: u64 = 200;

fn name(number: u64) -> String {
    format!("name-{number}")
}

/// Waits of a node's serving thread so far.
fn waits(served: &Served) -> u64 {
    let waiting = &served.host.node.head.waiting;
    waiting.sleeps.load(Relaxed) + waiting.polls.load(Relaxed) + waiting.polls_in_vain.load(Relaxed)
}

fn wait_until_asleep(served: &Served) {
    while served.host.node.head.daemon_state.load(SeqCst) != DAEMON_ASLEEP {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Asks one node for what the other one keeps; how often the latter's serving thread waited.
fn asked(instance: &Instance) -> u64 {
    wait_until_asleep(&instance.served[1]);
    let before = waits(&instance.served[1]);
    for number in 0..NAMES {
        instance.stat(0, &name(number)).expect("there");
    }
    waits(&instance.served[1]) - before
}

/// Half of the names are at home on the other node. Its serving thread used to be woken for each.
#[test]
fn what_another_node_asks_does_not_wake_the_serving_thread() {
    let instance = Instance::new("turns", 2, 1);
    for number in 0..NAMES {
        let open = instance.open(0, &name(number), O_RDWR | O_CREAT).expect("made");
        instance.close(0, open).expect("closed");
    }
    let waited = asked(&instance);
    assert!(waited < NAMES / 8, "{waited} waits");
}

/// What one node's clients ask while others ask it too is served by whoever is there.
#[test]
fn clients_of_the_node_and_other_nodes_are_served_beside_each_other() {
    let instance = Instance::new("beside", 2, 1);
    thread::scope(|scope| {
        for worker in 0..4 {
            let instance = &instance;
            scope.spawn(move || {
                for number in 0..NAMES {
                    let path = format!("{worker}-{number}");
                    let node = worker % 2;
                    let open = instance.open(node, &path, O_RDWR | O_CREAT).expect("made");
                    instance.write(node, open, 0, path.as_bytes()).expect("written");
                    instance.close(node, open).expect("closed");
                    let size = instance.stat(1 - node, &path).expect("there").size_bytes;
                    assert_eq!(size, path.len() as u64);
                }
            });
        }
    });
    // And the two that every directory has.
    assert_eq!(instance.names(0, "").len() as u64, 4 * NAMES + 2);
}

//! How fast a bare request is. Run in release with `--ignored --nocapture`; nothing is asserted.

use std::{
    thread,
    time::{Duration, Instant},
};

use mayfly_transport::{Patience, Transport};
use mayfly_wire::Ping;

use crate::serve::tests::host::Host;

const REQUESTS: u32 = 200_000;

#[test]
#[ignore = "a measurement"]
fn round_trips() {
    let host = Host::new("pace", 20_000);
    let mut daemon = host.start_daemon();
    host.wait_until_ready();
    let attachment = host.attach();
    let ping = || attachment.transport.exchange(&Ping {}, Patience::Deadline, |_| ());
    for threads in [1, 2, 4] {
        let begun = Instant::now();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..REQUESTS / threads).for_each(|_| ping()));
            }
        });
        println!("{threads} threads: {:?} a request", begun.elapsed() / REQUESTS);
    }
    let mut asleep = Duration::ZERO;
    for _ in 0..1000 {
        thread::sleep(Duration::from_millis(1));
        let begun = Instant::now();
        ping();
        asleep += begun.elapsed();
    }
    println!("waking the daemon: {:?} a request", asleep / 1000);
    host.stop();
    daemon.wait().expect("it ends");
}

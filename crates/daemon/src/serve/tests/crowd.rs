//! Many processes to each processor, all of which wait.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::serve::tests::{
    calm::{ask, serve},
    host::Host,
    roles::make,
};

const SESSIONS: usize = 24;
const ROUNDS: u32 = 1000;
const REQUESTS: u32 = 4;
/// A client that nobody wakes looks up after 100 ms.
const FORGOTTEN: Duration = Duration::from_millis(95);

/// Whom it pays to wake later is woken, also when nobody asks any more, as at the end of a round:
/// whoever was forgotten would have waited until he looked up. A busy machine may keep some as
/// long.
#[test]
fn in_a_crowd_nobody_is_forgotten() {
    let host = Host::new("crowd", 20_000);
    let serving = serve(&host, host.ledgers());
    let (forgotten, round) = (AtomicU32::new(0), Barrier::new(SESSIONS));
    let attachments: Vec<_> = (0..SESSIONS).map(|_| host.attach()).collect();
    thread::scope(|scope| {
        for attachment in &attachments {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    round.wait();
                    let asked = (0..REQUESTS).filter(|_| {
                        let began = Instant::now();
                        assert_eq!(ask(attachment, &make("d")), Ok(()));
                        began.elapsed() > FORGOTTEN
                    });
                    forgotten.fetch_add(asked.count() as u32, Relaxed);
                }
            });
        }
    });
    host.stop();
    serving.join().expect("it ends");
    let forgotten = forgotten.into_inner();
    assert!(forgotten < ROUNDS / 10, "{forgotten} waited until they looked up");
}

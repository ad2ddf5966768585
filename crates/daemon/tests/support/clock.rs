//! The clock of a core that is tested.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use mayfly_daemon::Clock;
use mayfly_types::Timestamp;

/// Time that moves a millisecond with each look.
#[derive(Debug, Clone, Default)]
pub struct TestClock(pub Arc<AtomicU64>);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let now = self.0.fetch_add(1, Relaxed) + 1;
        Timestamp { seconds: (now / 1000) as i64, nanoseconds: (now % 1000 * 1_000_000) as u32 }
    }

    fn elapsed(&self) -> Timestamp {
        let now = self.0.load(Relaxed);
        Timestamp { seconds: (now / 1000) as i64, nanoseconds: (now % 1000 * 1_000_000) as u32 }
    }
}

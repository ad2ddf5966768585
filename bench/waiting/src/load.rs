//! Threads that burn processor time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// One thread for each processor; they end when this is dropped.
pub(crate) struct Load {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start() -> Load {
        let over = Arc::new(AtomicBool::new(false));
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let burn = |over: Arc<AtomicBool>| {
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let start = |_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || burn(over))
        };
        Load { threads: (0..count).map(start).collect(), over }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has nothing that could fail.
            let _ = thread.join();
        }
    }
}

//! What threads have looked up last.
//!
//! A stat is two requests, a look at the name and one at the attributes of what it stands for, and
//! others may put another file there in between. The kernel begins anew once when it is told, which
//! is not enough where a name is replaced all the time: the stat would fail although the name never
//! was without a file. So the attributes that the first request found answer the second one of the
//! same thread, if it comes soon and the file is not to be found any more.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use mayfly_types::Attr;

/// Threads that are remembered; two that meet in one place forget each other.
const THREADS: usize = 64;
/// Between the two requests of a stat.
const SOON: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
struct Found {
    thread: u32,
    attr: Attr,
    at: Instant,
}

#[derive(Debug)]
pub(crate) struct Recent([Mutex<Option<Found>>; THREADS]);

impl Default for Recent {
    fn default() -> Self {
        Recent([const { Mutex::new(None) }; THREADS])
    }
}

impl Recent {
    fn place(&self, thread: u32) -> MutexGuard<'_, Option<Found>> {
        self.0[thread as usize % THREADS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread is being told of a file.
    pub(crate) fn looked_up(&self, thread: u32, attr: &Attr) {
        *self.place(thread) = Some(Found { thread, attr: *attr, at: Instant::now() });
    }

    /// What it was told of the node a moment ago.
    pub(crate) fn found(&self, thread: u32, node: u64) -> Option<Attr> {
        let found = (*self.place(thread))?;
        let same = found.thread == thread && found.attr.id.0 == node && found.at.elapsed() < SOON;
        same.then_some(found.attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_types::{FileId, FileKind, Timestamp};

    #[test]
    fn a_thread_finds_what_it_looked_up_last_and_nobody_else_does() {
        let time = Timestamp::default();
        let attr = Attr {
            id: FileId(7),
            kind: FileKind::Regular,
            mode: 0,
            links: 1,
            uid: 0,
            gid: 0,
            size_bytes: 5,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        };
        let recent = Recent::default();
        recent.looked_up(3, &attr);
        assert_eq!(recent.found(3, 7).map(|attr| attr.size_bytes), Some(5));
        assert!(recent.found(3, 8).is_none() && recent.found(3 + THREADS as u32, 7).is_none());
        recent.looked_up(3, &Attr { id: FileId(8), ..attr });
        assert!(recent.found(3, 7).is_none());
    }
}

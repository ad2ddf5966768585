//! The shared file offset and the lock on it.
//!
//! Threads and processes that share an open file description share its offset, so read, write and
//! lseek hold `offset_lock` while they move it. The lock holds the thread id of its owner. An owner
//! cannot die in between without its process dying, but with the description shared over processes
//! that is enough: a waiter that has waited for a while looks whether the owner lives, and takes
//! the lock over. While the description belongs to one process, nobody outlives an owner, and a
//! constant stands in for the thread id, which would cost a system call.

use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_sys::{arch, clock, futex, process};

use mayfly_types::Errno;

use crate::OpenFile;

const FREE: u32 = 0;
/// Or-ed to the owner: somebody sleeps on the word.
const SLEEPERS: u32 = 1 << 30;
/// Owner of a private description; above every thread id.
const SAME_PROCESS: u32 = 1 << 29;
const SPINS: u32 = 200;
const PATIENCE_NS: u64 = 10_000_000;

/// The offset may be moved until this is dropped.
pub(crate) struct OffsetHeld {
    open: OpenFile,
}

impl OffsetHeld {
    pub(crate) fn get(&self) -> u64 {
        self.open.entry.offset.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, offset: u64) {
        self.open.entry.offset.store(offset, Ordering::Relaxed);
    }
}

impl Drop for OffsetHeld {
    fn drop(&mut self) {
        let word = &self.open.entry.offset_lock;
        if word.swap(FREE, Ordering::Release) & SLEEPERS != 0 {
            futex::wake(word, 1);
        }
    }
}

/// The offset that is so far from another one.
///
/// # Errors
/// EINVAL when it is before the beginning, or beyond what an offset can be.
pub(crate) fn sum(from: u64, distance: i64) -> Result<u64, Errno> {
    let to = i64::try_from(from).ok().and_then(|from| from.checked_add(distance));
    to.and_then(|to| u64::try_from(to).ok()).ok_or(Errno::EINVAL)
}

/// Waits for the right to move the offset.
///
/// # Errors
/// ESTALE when the offset is that of a file of the kernel's mount; nothing has happened then, and
/// the call is the kernel's.
pub(crate) fn hold(open: OpenFile) -> Result<OffsetHeld, Errno> {
    let held = hold_whatever(open);
    if open.is_moved() { Err(Errno::ESTALE) } else { Ok(held) }
}

/// The same, whoever's the offset is.
pub(crate) fn hold_whatever(open: OpenFile) -> OffsetHeld {
    let word = &open.entry.offset_lock;
    let me = if open.is_private() { SAME_PROCESS } else { process::thread_id() };
    for _ in 0..SPINS {
        if word.compare_exchange(FREE, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return held_by(open, me);
        }
        arch::pause();
    }
    wait(word, me);
    held_by(open, me)
}

/// The description may have become shared between the look at it and the lock; others need to know
/// then whose death to look for.
fn held_by(open: OpenFile, me: u32) -> OffsetHeld {
    if me == SAME_PROCESS && !open.is_private() {
        open.entry.offset_lock.store(process::thread_id() | SLEEPERS, Ordering::Relaxed);
    }
    OffsetHeld { open }
}

fn wait(word: &AtomicU32, me: u32) {
    loop {
        let seen = word.load(Ordering::Relaxed);
        // A thread that comes out of a sleep cannot know whether others still sleep. So it says
        // that they do.
        let (wanted, may_take) = match seen {
            FREE => (me | SLEEPERS, true),
            _ => (seen | SLEEPERS, false),
        };
        if word.compare_exchange(seen, wanted, Ordering::Acquire, Ordering::Relaxed).is_err() {
            continue;
        }
        if may_take {
            return;
        }
        let deadline = clock::monotonic_ns() + PATIENCE_NS;
        let waited = futex::wait(word, wanted, Some(deadline));
        let owner = seen & !SLEEPERS;
        if waited == Err(Errno::ETIMEDOUT)
            && owner != SAME_PROCESS
            && !process::thread_lives(owner)
            && word
                .compare_exchange(wanted, me | SLEEPERS, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Reply, client, open_entry};
    use mayfly_transport_shm::layout::OPEN_SHARED;

    #[test]
    fn a_dead_owner_hangs_nobody() {
        let client = client(-1, |_| Reply::Failed(Errno::EIO));
        let open = client.open_file(open_entry(&client, 9, 0)).expect("open");
        open.entry.state.store(OPEN_SHARED, Ordering::Relaxed);
        let dead = std::thread::spawn(process::thread_id).join().expect("no panic");
        open.entry.offset_lock.store(dead, Ordering::Relaxed);
        let held = hold(open).expect("not moved");
        held.set(5);
        drop(held);
        assert_eq!(open.entry.offset_lock.load(Ordering::Relaxed), 0);
    }

    /// A thread gave descriptions their identities before a fork, while another one closed one of
    /// them and opened the next file, which got the same entry: its first write began at the old
    /// offset.
    #[test]
    fn an_offset_that_stays_is_not_written() {
        let client = client(-1, |_| Reply::Failed(Errno::EIO));
        let open = client.open_file(open_entry(&client, 9, 0)).expect("open");
        open.entry.offset.store(64, Ordering::Relaxed);
        let next = |position| {
            open.entry.offset.store(0, Ordering::Relaxed);
            Ok(((), position))
        };
        client.with_position(open, next).expect("held");
        assert_eq!(open.entry.offset.load(Ordering::Relaxed), 0);
        client.with_position(open, |position| Ok(((), position + 5))).expect("held");
        assert_eq!(open.entry.offset.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn threads_take_turns() {
        let client = client(-1, |_| Reply::Failed(Errno::EIO));
        let open = client.open_file(open_entry(&client, 9, 0)).expect("open");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let held = hold(open).expect("not moved");
                        held.set(held.get() + 1);
                    }
                });
            }
        });
        assert_eq!(open.entry.offset.load(Ordering::Relaxed), 40_000);
    }
}

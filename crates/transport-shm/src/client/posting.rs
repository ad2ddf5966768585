//! Posting in the session's ring ([`crate::posts`]).

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use mayfly_sys::file::{
    O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_LARGEFILE, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK,
    O_RDWR, O_TRUNC, O_WRONLY,
};
use mayfly_types::{Errno, OpenRef};
use mayfly_wire::{MakeDirectory, Open, Unlink, Walk};

use super::ShmTransport;
use crate::layout::DAEMON_AWAKE;
use crate::posts::{Create, Posts, RECORDS, Removal, ring_of};

/// Flags that say nothing more about a file that is new and empty than a description knows.
const PLAIN: u32 = O_ACCMODE
    | O_CREAT
    | O_EXCL
    | O_TRUNC
    | O_APPEND
    | O_NONBLOCK
    | O_LARGEFILE
    | O_NOCTTY
    | O_NOFOLLOW
    | O_CLOEXEC;
/// When so many records wait, a daemon that sleeps is woken. It is not woken for fewer: whoever
/// wants to know of them asks it.
const WAKE_AT: u32 = RECORDS as u32 / 2;

/// Sets a ring's bit in one of the head's words.
fn show(word: &AtomicU64, bit: u64) {
    if word.load(SeqCst) & bit == 0 {
        word.fetch_or(bit, SeqCst);
    }
}

/// So often something is posted that was not since the delegation got another number meanwhile.
const POST_TRIES: u32 = 2;

impl ShmTransport {
    fn ring(&self) -> (usize, &'static Posts) {
        let ring = ring_of(self.id);
        (ring, &self.node.posts[ring])
    }

    pub(super) fn post_in_ring(&self, open: &Open<'_>) -> Option<OpenRef> {
        if open.flags & !PLAIN != 0 || open.flags & O_CREAT == 0 {
            return None;
        }
        self.post(&open.walk, |posts, delegation, path| {
            let moment = self.moments.now();
            let Open { flags, mode, uid, gid, .. } = *open;
            let create = Create { path, flags, mode, uid, gid, moment };
            posts.post_create(&self.node.names, delegation, &create)
        })
    }

    pub(super) fn post_removal_in_ring(&self, unlink: &Unlink<'_>) -> bool {
        let posted = self.post(&unlink.walk, |posts, delegation, path| {
            let moment = self.moments.now();
            let removal = Removal { path, directory: unlink.directory, moment };
            posts.post_removal(&self.node.names, delegation, &removal).then_some(())
        });
        self.is_whole(posted)
    }

    pub(super) fn post_directory_in_ring(&self, make: &MakeDirectory<'_>) -> bool {
        let posted = self.post(&make.walk, |posts, delegation, path| {
            let moment = self.moments.now();
            let MakeDirectory { mode, uid, gid, .. } = *make;
            let create = Create { path, flags: 0, mode, uid, gid, moment };
            posts.post_directory(&self.node.names, delegation, &create).then_some(())
        });
        self.is_whole(posted)
    }

    /// Whether something was posted to which nothing will be added: it may be executed.
    fn is_whole(&self, posted: Option<()>) -> bool {
        if posted.is_some() {
            show(&self.node.head.ripe, 1 << ring_of(self.id));
        }
        posted.is_some()
    }

    /// Has `step` post something about what the path names, under the delegation that the session
    /// has for its directory or one above it, if it has one.
    fn post<R>(
        &self,
        walk: &Walk<'_>,
        step: impl Fn(&Posts, u32, &[u8]) -> Option<R>,
    ) -> Option<R> {
        let (ring, posts) = self.ring();
        if self.node.is_lost() || posts.delegation.load(Relaxed) == 0 {
            return None;
        }
        for _ in 0..POST_TRIES {
            let (delegation, path) = posts.delegation_for(self.id, walk.start.0, walk.path)?;
            if posts.is_full() && !self.awaits_room(posts) {
                return None;
            }
            if let Some(posted) = self.alone(|| step(posts, delegation, path)) {
                self.show_posted(ring, posts);
                return Some(posted);
            }
            if posts.delegation.load(Relaxed) == delegation {
                return None;
            }
        }
        None
    }

    /// Waits for a place in a full ring that the daemon is emptying on another processor. To ask
    /// would be to wait for all that is posted; and whoever sleeps may be woken on the daemon's
    /// processor, where one of the two waits for the other from then on. False when there is none.
    #[cold]
    fn awaits_room(&self, posts: &Posts) -> bool {
        let is_awake = || self.node.head.daemon_state.load(Relaxed) == DAEMON_AWAKE;
        let done = || !posts.is_full() || !is_awake();
        self.spins_until(&self.spin_for_place, self.moments.now(), done) && !posts.is_full()
    }

    /// Does `step` if no other thread is at the ring.
    fn alone<R>(&self, step: impl FnOnce() -> Option<R>) -> Option<R> {
        if self.posting.swap(true, Acquire) {
            return None;
        }
        let done = step();
        self.posting.store(false, Release);
        done
    }

    /// Whoever looks finds that there is something, and the daemon does in time.
    fn show_posted(&self, ring: usize, posts: &Posts) {
        let bit = 1 << ring;
        show(&self.node.head.posted, bit);
        if posts.waiting() == WAKE_AT {
            show(&self.node.head.ripe, bit);
            self.node.wake_daemon();
        }
    }

    pub(super) fn withdraw_from_ring(&self, open: OpenRef) -> bool {
        let (ring, posts) = self.ring();
        let withdrawn = posts.session.load(Relaxed) == self.id && posts.withdraw(open);
        if withdrawn {
            show(&self.node.head.ripe, 1 << ring);
        }
        withdrawn
    }

    pub(super) fn add_in_ring(
        &self,
        open: OpenRef,
        at: u64,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> Option<Result<u64, Errno>> {
        let (_, posts) = self.ring();
        if self.node.is_lost() || posts.session.load(Relaxed) != self.id {
            return None;
        }
        self.alone(|| {
            let addition = posts.addition(open)?;
            let flags = addition.flags();
            let writes = flags & O_ACCMODE == O_WRONLY || flags & O_ACCMODE == O_RDWR;
            let start = addition.start() as u64;
            if !writes || flags & O_APPEND == 0 && at != start {
                return None;
            }
            let room = addition.room(bytes)?;
            // SAFETY: the place's room, of so many bytes. Nobody else writes there as long as this
            // thread is alone at the ring, since only a process posts in its ring; the daemon reads
            // what was added before.
            let room = unsafe { core::slice::from_raw_parts_mut(room, bytes) };
            let count = match fill(room) {
                Ok(count) => count.min(bytes),
                Err(errno) => return Some(Err(errno)),
            };
            let added = addition.add(count, self.moments.now().cycles);
            added.then_some(Ok(start + count as u64))
        })
    }
}

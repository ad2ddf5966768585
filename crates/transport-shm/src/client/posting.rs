//! Posting creates in the session's ring ([`crate::posts`]).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use mayfly_sys::file::{
    O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_LARGEFILE, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK,
    O_TRUNC,
};
use mayfly_types::{OpenRef, limits::NAME_BYTES_MAX};
use mayfly_wire::Open;

use super::ShmTransport;
use crate::posts::{Create, PREFIX_BYTES_MAX, Posts, RECORDS, ring_of, split};

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

impl ShmTransport {
    fn ring(&self) -> (usize, &'static Posts) {
        let ring = ring_of(self.id);
        (ring, &self.node.posts[ring])
    }

    pub(super) fn post_in_ring(&self, open: &Open<'_>) -> Option<OpenRef> {
        let (ring, posts) = self.ring();
        if self.node.is_lost()
            || posts.delegation.load(Relaxed) == 0
            || open.flags & !PLAIN != 0
            || open.flags & O_CREAT == 0
        {
            return None;
        }
        let (prefix, name) = split(open.walk.path);
        if prefix.len() >= PREFIX_BYTES_MAX
            || name.len() > NAME_BYTES_MAX
            || matches!(name, b"" | b"." | b"..")
        {
            return None;
        }
        let delegation = posts.delegation_for(self.id, open.walk.start.0, prefix)?;
        let create = Create {
            name,
            flags: open.flags,
            mode: open.mode,
            uid: open.uid,
            gid: open.gid,
            moment: self.moments.now(),
        };
        if self.posting.swap(true, Acquire) {
            return None;
        }
        let promise = posts.post(delegation, &create);
        self.posting.store(false, Release);
        if promise.is_some() {
            self.show_posted(ring, posts);
        }
        promise
    }

    /// Whoever looks finds that there is something, and the daemon does in time.
    fn show_posted(&self, ring: usize, posts: &Posts) {
        let bit = 1 << ring;
        if self.node.head.posted.load(SeqCst) & bit == 0 {
            self.node.head.posted.fetch_or(bit, SeqCst);
        }
        if posts.waiting() == WAKE_AT {
            self.node.wake_daemon();
        }
    }

    pub(super) fn withdraw_from_ring(&self, open: OpenRef) -> bool {
        let (_, posts) = self.ring();
        posts.session.load(Relaxed) == self.id && posts.withdraw(open)
    }
}

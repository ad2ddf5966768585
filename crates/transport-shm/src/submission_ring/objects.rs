//! Objects that processes make for files that they have submitted.
//!
//! A file that gets more content than its record has room for needs an object. Its process makes
//! that itself, under the name that follows from the file's promised identity, writes the content
//! there and says so in the record, all without asking. The daemon then makes the file with that
//! object, and leave to write it.
//!
//! The record says first that an object may be *begun*. So the daemon knows of each that there may
//! be. It counts as the file's from the compare-and-swap that says that the content is there. A
//! record that the daemon takes before that makes the file without it, and with another object if
//! it needs one: what a process writes late is then nobody's, and whoever made it removes it.
//!
//! How far such objects may reach the ring says: so much space is kept free for them.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use mayfly_sys::file::{O_ACCMODE, O_APPEND, O_RDWR, O_WRONLY};
use mayfly_types::OpenRef;

use super::{SubmissionRing, state::State};

/// So often a process says that an object is there while another thread closes the file.
const FINISH_TRIES: u32 = 3;

/// An object that a process is about to make.
#[derive(Debug, Clone, Copy)]
pub struct NewObject {
    place: usize,
    open: OpenRef,
    content_bytes: usize,
}

impl SubmissionRing {
    /// An object may be made for the file that was promised with a description, for a write of the
    /// bytes from `at` to `end`: behind the content that it has. `None` when it is to be asked for.
    /// One thread at a time.
    #[must_use]
    pub fn begin_object(&self, open: OpenRef, (at, end): (u64, u64)) -> Option<NewObject> {
        let (place, state) = self.submitted_lately(open)?;
        let record = &self.records[place];
        let flags = record.flags.load(Relaxed);
        let may_write = matches!(flags & O_ACCMODE, O_WRONLY | O_RDWR) && flags & O_APPEND == 0;
        let room = self.object_bytes.load(Relaxed);
        let content_bytes = state.content();
        let may = may_write
            && self.may_be_written(place, state)
            && !state.is_started()
            && !state.replaces()
            && at == content_bytes as u64;
        if !may || end > u64::from(room) {
            return None;
        }
        record.object_bytes.store(room, Relaxed);
        let started = record.change(state, state.and_started());
        started.then_some(NewObject { place, open, content_bytes })
    }

    /// The content that the file has in its record, which comes first in the object.
    #[must_use]
    pub fn content_before(&self, new: NewObject) -> &[u8] {
        let content = self.contents[new.place].as_ptr().cast::<u8>();
        // SAFETY: the place has room for so much content. It was written by this process, which
        // does so alone, and writes no more of it once an object is begun.
        unsafe { core::slice::from_raw_parts(content, new.content_bytes) }
    }

    /// All of the content is in the object; false when the file was made without it. Then it is to
    /// be removed. One thread at a time.
    #[must_use]
    pub fn finish_object(&self, new: NewObject) -> bool {
        let record = &self.records[new.place];
        for _ in 0..FINISH_TRIES {
            let state = State(record.state.load(SeqCst));
            if state.is_taken() || !state.is_started() || record.promise() != new.open {
                return false;
            }
            if record.change(state, state.and_in_object()) {
                return true;
            }
        }
        false
    }

    /// How far the object may be written that was made for the file of a description; `None` when
    /// the file is made, so that its own entry tells. What was written before a look that says so
    /// is in the file, whoever looks at that later.
    #[must_use]
    pub fn object_end(&self, open: OpenRef) -> Option<u64> {
        let (place, state) = self.submitted_lately(open)?;
        let record = &self.records[place];
        let may = state.is_in_object() && self.may_be_written(place, state) && !state.is_taken();
        let end = record.object_bytes.load(Acquire);
        may.then_some(u64::from(end))
    }
}

#[cfg(all(test, feature = "server"))]
mod tests;

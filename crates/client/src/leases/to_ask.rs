//! Opens for reading and writing that are asked for, although they could be done by what is leased.
//!
//! Whoever writes to a file that he has opened so is likely to do so to the next one. To have the
//! description made costs a request, as to ask for the open does; and by that the daemon learns in
//! which directories files are written to, which it then delegates.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// So many opens are asked for after one that a description was made for.
const ASKED: u32 = 2;

/// How many of the next opens are asked for.
#[derive(Default)]
pub(super) struct ToAsk(AtomicU32);

impl ToAsk {
    /// A description was made for who may write, and is likely to do so.
    pub(super) fn written(&self) {
        self.0.store(ASKED, Relaxed);
    }

    /// Whether an open is asked for; it is counted then.
    pub(super) fn is_due(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

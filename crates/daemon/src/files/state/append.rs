//! What [`crate::files::append`] keeps and works with.

use mayfly_meta::record::Append;

/// The latest append to a file by one lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted {
    pub(crate) append: Append,
    pub(crate) lane: u32,
    /// It may be that it was done but not answered; its bytes are below this offset then.
    pub(crate) doubtful_end: Option<u64>,
}

impl Noted {
    pub(crate) fn is_of(&self, session: u32, lane: u32) -> bool {
        self.append.session == session && self.lane == lane
    }
}

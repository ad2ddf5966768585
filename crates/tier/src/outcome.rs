//! What came of an item, before the daemon is told.

use mayfly_types::Attr;
use mayfly_wire::tier::NO_ATTR;

/// What came of an item.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// 0, or `TIER_CONFLICT`.
    pub(crate) status: u32,
    pub(crate) same: bool,
    pub(crate) attr: Attr,
    pub(crate) bytes: Vec<u8>,
}

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome { status: 0, same: false, attr: NO_ATTR, bytes: Vec::new() }
    }
}

impl Outcome {
    pub(crate) fn of(attr: Attr) -> Outcome {
        Outcome { attr, ..Outcome::default() }
    }
}

//! What a process knows of an entry that it has changed without asking.

use mayfly_types::Attr;

use super::Common;

/// What a look at an entry has to tell.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    /// Where it is.
    pub(super) path: String,
    /// Its permission bits, if they were changed.
    pub(super) mode: Option<u32>,
    /// Its length, if it was written.
    pub(super) length: Option<u64>,
}

impl Expected {
    /// Whether it is so.
    pub(super) fn check(&self, common: &mut Common, attr: &Attr) {
        let Expected { path, mode, length } = self;
        let is = attr.mode & 0o7777;
        if let Some(mode) = mode.filter(|mode| *mode != is) {
            common.wrong.push(format!("mode of {path}: {is:o}, {mode:o} was submitted"));
        }
        let is = attr.size_bytes;
        if let Some(length) = length.filter(|length| *length != is) {
            common.wrong.push(format!("length of {path}: {is}, {length} bytes were submitted"));
        }
    }
}

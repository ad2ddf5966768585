//! Extended attributes that were seen outside.

use mayfly_meta::record::Xattrs;
use mayfly_types::{FileId, Timestamp, limits::TIER_XATTRS_KNOWN_MAX};

use crate::maps::HashMap;

/// What the keeper has said of files' extended attributes. It holds as long as the time of change
/// that is known of the master copy is the one that was known then.
#[derive(Debug, Default)]
pub(crate) struct KnownXattrs {
    files: HashMap<FileId, (Timestamp, Xattrs)>,
}

impl KnownXattrs {
    pub(crate) fn get(&self, file: FileId, ctime: Timestamp) -> Option<&Xattrs> {
        self.files.get(&file).filter(|(of, _)| *of == ctime).map(|(_, xattrs)| xattrs)
    }

    /// What was said last, whatever has changed since.
    pub(crate) fn latest(&self, file: FileId) -> Option<&Xattrs> {
        self.files.get(&file).map(|(_, xattrs)| xattrs)
    }

    pub(crate) fn know(&mut self, file: FileId, ctime: Timestamp, xattrs: Xattrs) {
        if self.files.len() >= TIER_XATTRS_KNOWN_MAX {
            self.files.clear();
        }
        self.files.insert(file, (ctime, xattrs));
    }

    pub(crate) fn forget(&mut self, file: FileId) {
        self.files.remove(&file);
    }
}

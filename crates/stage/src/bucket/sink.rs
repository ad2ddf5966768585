//! A bucket that files are copied into.

use std::ffi::CStr;

use crate::{
    Bucket,
    bucket::{Listed, Listing},
    copy::settle::Stat,
    walk::tree::{Dir, os},
};

/// Where files go instead of a directory.
#[derive(Debug)]
pub(crate) struct Sink<'a> {
    pub(crate) bucket: &'a Bucket,
    /// What is there, if that matters.
    pub(crate) listing: Option<Listing>,
}

impl Sink<'_> {
    /// What the bucket had of this file; it is no stray from here on.
    pub(crate) fn listed(&self, dir: &Dir, name: &CStr) -> Option<Listed> {
        let key = self.bucket.key(&dir.target_path(os(name))).ok()?;
        self.listing.as_ref()?.take(&key)
    }

    /// Is it what the file is, as far as its length tells, and when it was put there?
    pub(crate) fn is_same(listed: Listed, stat: &Stat) -> bool {
        listed.bytes == stat.bytes && listed.put >= stat.modified
    }
}

//! The records of a tree, as another process reads them while its daemon writes them.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "records/apart.rs"]
mod apart;
#[path = "records/listing.rs"]
mod listing;
#[path = "records/origins.rs"]
mod origins;
#[path = "records/part.rs"]
mod part;
#[path = "records/readers.rs"]
mod readers;
#[path = "records/small.rs"]
mod small;
#[path = "records/ways.rs"]
mod ways;

use std::path::Path;

use mayfly_meta::{TreeOptions, TreeStore};
use mayfly_records::Source;

/// The records, as they were at one moment.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Source for Bytes {
    fn word(&self, at: usize) -> Option<u64> {
        assert!(at.is_multiple_of(8));
        self.0.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn chunk(&self, at: usize) -> Option<[u8; 8]> {
        self.0.get(at..)?.first_chunk().copied()
    }
}

pub(crate) fn open(directory: &Path) -> TreeStore {
    let options = TreeOptions {
        directory: directory.to_owned(),
        limit_bytes: 1 << 30,
        boot_id: b"boot".to_vec(),
    };
    TreeStore::open(&options).unwrap()
}

pub(crate) fn read(directory: &Path) -> Bytes {
    Bytes(std::fs::read(directory.join("records")).unwrap())
}

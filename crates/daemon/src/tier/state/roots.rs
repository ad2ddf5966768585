//! Directories from which the paths outside are counted.
//!
//! One shows an origin, or a directory below one whose seat is not that of the directory above it.
//! Neither is ever moved, nor is what leads to it. So its path outside is known for good, and that
//! of what is below is found without asking another shard.

use std::collections::BTreeMap;

use mayfly_types::FileId;

use crate::maps::{HashMap, HashSet};

/// Where a directory is outside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Root {
    /// Number of the origin.
    pub(crate) source: u32,
    /// The path from there; empty: the origin itself.
    pub(crate) path: Vec<u8>,
}

impl Root {
    /// As a record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.source.to_le_bytes(), self.path.as_slice()].concat()
    }

    /// From a record.
    pub(crate) fn decode(record: &[u8]) -> Option<Root> {
        let (source, path) = record.split_first_chunk()?;
        Some(Root { source: u32::from_le_bytes(*source), path: path.to_vec() })
    }

    /// How many directories are above it, up to the origin.
    pub(crate) fn depth(&self) -> usize {
        self.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count()
    }
}

/// Those of a shard.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    by_id: HashMap<FileId, Root>,
    by_path: BTreeMap<Root, FileId>,
    /// Directories that lead to one that shows a whole origin.
    above: HashSet<FileId>,
}

impl Roots {
    pub(crate) fn insert(&mut self, id: FileId, root: Root) {
        self.by_path.insert(root.clone(), id);
        self.by_id.insert(id, root);
    }

    pub(crate) fn remove(&mut self, id: FileId) -> Option<Root> {
        let root = self.by_id.remove(&id)?;
        if self.by_path.get(&root) == Some(&id) {
            self.by_path.remove(&root);
        }
        Some(root)
    }

    pub(crate) fn get(&self, id: FileId) -> Option<&Root> {
        self.by_id.get(&id)
    }

    /// The directory that shows this.
    pub(crate) fn find(&self, root: &Root) -> Option<FileId> {
        self.by_path.get(root).copied()
    }

    /// The directories that show something of an origin.
    pub(crate) fn of(&self, source: u32) -> Vec<FileId> {
        let ids = self.by_id.iter().filter(|(_, root)| root.source == source);
        ids.map(|(id, _)| *id).collect()
    }

    pub(crate) fn note_above(&mut self, id: FileId) {
        self.above.insert(id);
    }

    /// Whether the directory shows a whole origin, or leads to one that does.
    pub(crate) fn is_linked(&self, id: FileId) -> bool {
        self.above.contains(&id) || self.by_id.get(&id).is_some_and(|root| root.path.is_empty())
    }
}

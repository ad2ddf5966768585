//! Names of the files that the kernel knows by number.
//!
//! A node's number is the file's id. The kernel is told of a node several times, and says later how
//! many of these it has forgotten. The node is kept in between. Directories are not kept at all:
//! their id says everything. The kernel looks a name up each time it uses it. So the name here is
//! the one under which the node was used last. By now the name may stand for another file. Then the
//! node is only found while it is open.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use mayfly_types::{Attr, FileId, FileKind};

/// A directory and a name in it; an empty one is that of a file made without a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) directory: FileId,
    pub(crate) name: Box<[u8]>,
}

#[derive(Debug)]
struct Node {
    name: Name,
    lookups: u64,
}

/// Whether the kernel knows a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Still,
    NoMore,
}

/// What the kernel knows. Its own bound on the nodes that it remembers is the bound here.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<HashMap<u64, Node>>);

impl Nodes {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Node>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is about to be told of a file that was found under this name.
    pub(crate) fn count_lookup(&self, attr: &Attr, directory: FileId, name: &[u8]) {
        if attr.kind == FileKind::Directory {
            return;
        }
        let mut all = self.all();
        match all.get_mut(&attr.id.0) {
            Some(node) => {
                node.lookups += 1;
                let same = node.name.directory == directory && *node.name.name == *name;
                if !same && !name.is_empty() {
                    node.name = Name { directory, name: name.into() };
                }
            }
            None => {
                let name = Name { directory, name: name.into() };
                all.insert(attr.id.0, Node { name, lookups: 1 });
            }
        }
    }

    /// The file has moved to another name, if the kernel knows it.
    pub(crate) fn moved(&self, id: FileId, directory: FileId, name: &[u8]) {
        if let Some(node) = self.all().get_mut(&id.0) {
            node.name = Name { directory, name: name.into() };
        }
    }

    /// The kernel has forgotten a node that it was told of so many times.
    pub(crate) fn forgotten(&self, node: u64, times: u64) -> Known {
        let mut all = self.all();
        let Some(known) = all.get_mut(&node) else { return Known::NoMore };
        known.lookups = known.lookups.saturating_sub(times);
        if known.lookups > 0 {
            return Known::Still;
        }
        all.remove(&node);
        Known::NoMore
    }

    /// The last name of a node; `None` for a directory.
    pub(crate) fn name(&self, node: u64) -> Option<Name> {
        self.all().get(&node).map(|node| node.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_types::Timestamp;

    fn attr(id: u64, kind: FileKind) -> Attr {
        let time = Timestamp::default();
        Attr {
            id: FileId(id),
            kind,
            mode: 0,
            links: 1,
            uid: 0,
            gid: 0,
            size_bytes: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        }
    }

    #[test]
    fn a_node_is_kept_as_long_as_the_kernel_was_told_of_it_more_often_than_it_forgot() {
        let nodes = Nodes::default();
        let file = attr(5, FileKind::Regular);
        nodes.count_lookup(&file, FileId::ROOT, b"a");
        nodes.count_lookup(&file, FileId(3), b"b");
        assert_eq!(nodes.name(5), Some(Name { directory: FileId(3), name: (*b"b").into() }));
        nodes.forgotten(5, 1);
        assert!(nodes.name(5).is_some());
        nodes.forgotten(5, 1);
        assert_eq!(nodes.name(5), None);
    }

    #[test]
    fn directories_take_no_memory() {
        let nodes = Nodes::default();
        nodes.count_lookup(&attr(5, FileKind::Directory), FileId::ROOT, b"a");
        assert_eq!(nodes.all().len(), 0);
    }
}

//! Where the bytes of new files go, directory by directory.
//!
//! A directory has a layout, which what is made in it inherits: a directory as it is, a file with
//! as many nodes as there are. Members of the directory have it in their records, so a create asks
//! nobody. To change it is an operation over home and members that claims the directory at all of
//! them: nothing is made in it meanwhile, and what is made afterwards has the new layout. A file
//! keeps the layout with which it was made.
//!
//! Programs see layouts as extended attributes that no listing has.

use std::fmt::Write;

use mayfly_meta::record::{Content, Inode, Layout, Policy, Step};
use mayfly_types::{Durability, Errno, FileKind};
use mayfly_wire::{SetXattr, XATTR_CREATE};

use super::{
    Core, Outcome, Served,
    data::{BLOCK_BYTES, object_of},
    home::Located,
    operation::{Parts, add_step},
};
use crate::{
    layouts::{LAYOUT_XATTR, LayoutWords, NODES_XATTR},
    message::{Answer, Question},
    slots::ShardId,
};

impl Core {
    /// The layout of the root directory, until somebody sets another one.
    pub(super) fn usual_layout(&self) -> Layout {
        Layout {
            first_server: 0,
            width: self.config.width.max(1),
            policy: self.config.policy,
            chunk_log2: self.config.chunk_bytes.trailing_zeros() as u8,
            striped: false,
        }
    }

    /// The layout of a new file in a directory with this one.
    pub(super) fn file_layout(&self, inherited: &Layout) -> Layout {
        let numbering = &self.numbering;
        // What is synced is synced by the file's home.
        let whole = self.config.durability == Durability::Sync;
        let nodes = u16::try_from(numbering.nodes).unwrap_or(u16::MAX).max(1);
        let width = if whole { 1 } else { inherited.width.clamp(1, nodes) };
        Layout {
            first_server: numbering.node,
            width,
            policy: if width == 1 { Policy::Stripe } else { inherited.policy },
            chunk_log2: inherited.chunk_log2,
            striped: false,
        }
    }

    pub(super) fn own_xattr(&mut self, inode: &Inode, name: &[u8]) -> Outcome<String> {
        if name == LAYOUT_XATTR.as_bytes() {
            return Ok(LayoutWords::of(&inode.layout).to_string());
        }
        if name == NODES_XATTR.as_bytes() && inode.kind() == FileKind::Regular {
            return self.bytes_of_nodes(inode);
        }
        Err(Errno::ENODATA.into())
    }

    /// A line for each node that has bytes of the file.
    fn bytes_of_nodes(&mut self, inode: &Inode) -> Outcome<String> {
        let mut text = String::new();
        let mut say = |node: u32, blocks: u64| {
            if blocks > 0 {
                // A string takes whatever is written.
                let _ = writeln!(text, "{node} {}", blocks * BLOCK_BYTES);
            }
        };
        let Some(object) = object_of(inode).filter(|_| inode.layout.striped) else {
            let blocks = self.attr_of(inode)?.blocks;
            say(self.numbering.node, blocks);
            return Ok(text);
        };
        let shards: Vec<u32> = (0..inode.layout.width)
            .map(|index| self.part_shard(object.file, &inode.layout, index).0)
            .collect();
        let question =
            Question::Part { file: object.file, generation: object.generation, round: 0 };
        for (shard, answer) in shards.iter().zip(self.facts(&shards, &question)?) {
            match answer {
                Answer::Part(facts) => say(self.numbering.node_of(ShardId(*shard)), facts.blocks),
                Answer::Failed(errno) => return Err(errno.into()),
                _ => return Err(Errno::EIO.into()),
            }
        }
        Ok(text)
    }

    pub(super) fn set_own_xattr(
        &mut self,
        located: Located,
        set: &SetXattr<'_>,
    ) -> Outcome<Served> {
        if set.name != LAYOUT_XATTR.as_bytes() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if set.flags & XATTR_CREATE != 0 {
            return Err(Errno::EEXIST.into());
        }
        let text = std::str::from_utf8(set.value).map_err(|_| Errno::EINVAL)?;
        let words: LayoutWords = text.parse().map_err(|_| Errno::EINVAL)?;
        let before = located.inode.layout;
        let chunk_log2 =
            words.chunk_bytes.map_or(before.chunk_log2, |bytes| bytes.trailing_zeros() as u8);
        let LayoutWords { policy, width, .. } = words;
        self.set_layout(&located, Layout { width, policy, chunk_log2, ..before })
    }

    /// The directory has the instance's layout again.
    pub(super) fn remove_own_xattr(&mut self, located: Located, name: &[u8]) -> Outcome<Served> {
        if name != LAYOUT_XATTR.as_bytes() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.set_layout(&located, self.usual_layout())
    }

    fn set_layout(&mut self, located: &Located, layout: Layout) -> Outcome<Served> {
        let inode = &located.inode;
        let Content::Directory(node) = &inode.content else {
            return Err(Errno::EOPNOTSUPP.into());
        };
        let (id, members) = (inode.id, node.members.clone());
        if inode.links == 0 || self.is_only_remembered(id) {
            return Err(Errno::ENOENT.into());
        }
        let mut parts = Parts::new();
        for member in &members {
            add_step(&mut parts, ShardId(*member), Step::SetMemberLayout { id, layout });
        }
        add_step(&mut parts, self.shard, Step::SetLayout { id, layout, members });
        self.operate(parts)?;
        Ok(Served::Replied)
    }
}

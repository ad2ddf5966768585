//! Where the bytes of new files go, directory by directory.
//!
//! A directory has a layout, which what is made in it inherits: a directory as it is, a file with
//! as many nodes as there are. Members of the directory have it in their records, so a create asks
//! nobody. To change it is an operation over home and members that claims the directory at all of
//! them: nothing is made in it meanwhile, and what is made afterwards has the new layout. A file
//! keeps the layout with which it was made.
//!
//! Under the policy `local` a file is at home on the node whose process makes it, under `pool` on
//! a node of the pool. When its name is another node's, the name's shard has it made there, by an
//! operation that sets the name afterwards, and sends the request on to be opened there
//! (`pending_create.rs`).
//!
//! Programs see layouts as extended attributes that no listing has.

use std::fmt::Write;

use mayfly_meta::{
    key,
    record::{Content, Inode, Layout, Policy, Step},
};
use mayfly_object::ObjectId;
use mayfly_types::{Errno, FileId, FileKind, Tail};
use mayfly_wire::{SetXattr, WRITERS_XATTR, XATTR_CREATE};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::{data::BLOCK_BYTES, state::data::object_of},
    message::{Answer, Question},
    namespace::state::{
        inode::{Located, Ownership},
        member::unexpected,
        walk::Place,
    },
    shard::Shard,
    shards::slots::{ShardId, slot_of_cookie},
    striping::layouts::{LAYOUT_XATTR, LayoutWords, NODES_XATTR, Pool},
    transactions::state::transaction::{Steps, add_step},
};

/// Numbers of files that a shard asks another one for at a time.
const NUMBERS_AT_ONCE: u64 = 64;

impl Shard {
    /// The layout of the root directory, until somebody sets another one.
    pub(crate) fn usual_layout(&self) -> Layout {
        Layout {
            first_server: self.config.pool,
            width: self.config.width.max(1),
            policy: self.config.policy,
            chunk_log2: self.config.chunk_bytes.trailing_zeros() as u8,
            striped: false,
            tail: Tail::default(),
        }
    }

    /// The layout of a new file in a directory with this one.
    pub(super) fn file_layout(&self, inherited: &Layout) -> Layout {
        let numbering = &self.place.numbering;
        let servers = self.config.roles.server_count(*numbering) as usize;
        let pool = self.pool_of(inherited);
        let nodes = pool.map_or(servers, |pool| pool.nodes.len());
        let nodes = u16::try_from(nodes).unwrap_or(u16::MAX).max(1);
        let width = inherited.width.clamp(1, nodes);
        let policy = match inherited.policy {
            Policy::Stripe | Policy::Hash if width == 1 => Policy::Stripe,
            policy => policy,
        };
        Layout {
            first_server: if pool.is_some() { inherited.first_server } else { numbering.node },
            width,
            policy,
            chunk_log2: inherited.chunk_log2,
            striped: false,
            tail: Tail::default(),
        }
    }

    /// The pool of a layout.
    pub(crate) fn pool_of(&self, layout: &Layout) -> Option<&Pool> {
        let number = Some(layout.first_server).filter(|_| layout.policy == Policy::Pool);
        let pool = self.config.pools.get(number? as usize);
        pool.filter(|pool| !pool.nodes.is_empty())
    }

    /// The node that has a part of a file. The first one is its home's.
    pub(crate) fn node_of_part(&self, file: FileId, layout: &Layout, index: u16) -> u32 {
        let numbering = &self.place.numbering;
        let Some(Pool { nodes, .. }) = self.pool_of(layout) else {
            let roles = &self.config.roles;
            return roles.server_after(*numbering, layout.first_server, index.into());
        };
        let home = numbering.node_of(self.place.slots.home(file));
        // Where no node of the pool owns anything, a file of it is at home elsewhere.
        let first = nodes.iter().position(|node| *node == home).unwrap_or(file.0 as usize);
        nodes[first.wrapping_add(index.into()) % nodes.len()]
    }

    /// The shard at which a new file is to be made, when that is on another node than its name.
    pub(super) fn chosen_home(
        &mut self,
        layout: &Layout,
        caller: Caller,
        place: &Place,
    ) -> Outcome<Option<ShardId>> {
        if self.own_source(place.directory)?.is_some() {
            return Ok(None);
        }
        match layout.policy {
            Policy::Local | Policy::Pool => Ok(self.home_by_policy(layout, caller, place)),
            Policy::Stripe | Policy::Hash if layout.width > 1 => Ok(None),
            Policy::Stripe | Policy::Hash => self.roomier_shard(place),
        }
    }

    fn home_by_policy(&self, layout: &Layout, caller: Caller, place: &Place) -> Option<ShardId> {
        let numbering = &self.place.numbering;
        let hash = u32::from(slot_of_cookie(place.cookie));
        let node = match layout.policy {
            Policy::Local => self.maker(caller).node,
            Policy::Pool => {
                let nodes = &self.pool_of(layout)?.nodes;
                let outside = !nodes.contains(&numbering.node);
                *nodes.get((hash / numbering.shards) as usize % nodes.len()).filter(|_| outside)?
            }
            Policy::Stripe | Policy::Hash => return None,
        };
        if node == numbering.node || node >= numbering.nodes {
            return None;
        }
        let own = hash % numbering.shards;
        let shard = ShardId(numbering.front_of(node).0 + own);
        // A node that owns nothing has no files.
        self.place.slots.slot_of(shard, 0).map(|_| shard)
    }

    /// The steps for a file whose home is another shard than its name's.
    pub(super) fn create_at(
        &mut self,
        home: ShardId,
        caller: Caller,
        place: &Place,
        of: (Ownership, Layout),
    ) -> Fault {
        self.plan_create(home, caller, place, of).map_or_else(|fault| fault, Fault::Operate)
    }

    fn plan_create(
        &mut self,
        home: ShardId,
        caller: Caller,
        place: &Place,
        (owner, layout): (Ownership, Layout),
    ) -> Outcome<Steps> {
        let id = self.new_id_at(home, place)?;
        let (mode, maker) = ((owner.mode & 0o7777) as u16, self.maker(caller));
        let mut parts = Steps::new();
        let (uid, gid) = (owner.uid, owner.gid);
        add_step(&mut parts, home, Step::MakeFile { id, mode, uid, gid, layout, maker });
        let (directory, name, kind) = (place.directory, place.name.clone(), FileKind::Regular);
        let step = Step::SetName { directory, name, id, kind, expected: None };
        add_step(&mut parts, self.place.shard, step);
        Ok(parts)
    }

    /// The id of what is to be made at another shard than its name's, which is ready for the name.
    pub(super) fn new_id_at(&mut self, home: ShardId, place: &Place) -> Outcome<FileId> {
        if self.run.transaction.is_done {
            // It has cut a file that is gone by now: this is another operation.
            return Err(Fault::Again);
        }
        let number = self.number_at(home)?;
        let slot = slot_of_cookie(place.cookie);
        let slot = self.place.slots.slot_of(home, slot).ok_or(Errno::EIO)?;
        let id = FileId::new(slot, number).ok_or(Errno::ENOSPC)?;
        self.host_here(place.directory)?;
        Ok(id)
    }

    /// A number that no file of another shard has or will have.
    fn number_at(&mut self, home: ShardId) -> Outcome<u64> {
        if let Some(number) = self.namespace.numbers.get_mut(&home).and_then(Iterator::next) {
            return Ok(number);
        }
        let first = match self.fact(home, Question::Numbers)? {
            Answer::Numbers(first) => first,
            answer => return Err(unexpected(&answer)),
        };
        let end = first.checked_add(NUMBERS_AT_ONCE).ok_or(Errno::EIO)?;
        let given = self.namespace.numbers.entry(home).or_default();
        if first < given.end {
            // They were used meanwhile.
            return Err(Fault::Again);
        }
        *given = first + 1..end;
        Ok(first)
    }

    /// Gives numbers away.
    pub(crate) fn give_numbers(&mut self) -> Outcome<u64> {
        let first = self.counters.next_file;
        self.counters.next_file += NUMBERS_AT_ONCE;
        // With the answer, even if nothing else is written.
        self.store.put(key::COUNTERS, &self.counters.encode())?;
        Ok(first)
    }

    pub(super) fn own_xattr(&mut self, inode: &Inode, name: &[u8]) -> Outcome<String> {
        if name == LAYOUT_XATTR.as_bytes() {
            return Ok(LayoutWords::of(&inode.layout, &self.config.pools).to_string());
        }
        if name == NODES_XATTR.as_bytes() && inode.kind() == FileKind::Regular {
            return self.bytes_of_nodes(inode);
        }
        if name == WRITERS_XATTR.as_bytes() && inode.kind() == FileKind::Regular {
            let writers = self.files.opens.file(inode.id).map_or(0, |file| file.writers);
            return Ok(writers.to_string());
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
            say(self.place.numbering.node, blocks);
            return Ok(text);
        };
        let shards = self.shards_with_parts(inode);
        let ObjectId { file, generation } = object;
        let question = Question::Part { file, generation, round: 0, parts: inode.parts };
        for (shard, answer) in shards.iter().zip(self.facts(&shards, &question)?) {
            match answer {
                Answer::Part(facts) => {
                    say(self.place.numbering.node_of(ShardId(*shard)), facts.blocks)
                }
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
        let first_server = words.number_of_pool(&self.config.pools).ok_or(Errno::EINVAL)?;
        let LayoutWords { policy, width, .. } = words;
        self.set_layout(&located, Layout { first_server, width, policy, chunk_log2, ..before })
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
        let mut parts = Steps::new();
        for member in &members {
            add_step(&mut parts, ShardId(*member), Step::SetMemberLayout { id, layout });
        }
        add_step(&mut parts, self.place.shard, Step::SetLayout { id, layout, members });
        self.operate(parts)?;
        Ok(Served::Replied)
    }
}

//! Open files and open file descriptions: the daemon's own tables and their image in shared memory.
//!
//! The node region survives the daemon, and every process of the node can write to it. So the
//! daemon keeps its own copy of the facts that it relies on: which file, which generation, may it
//! write. It takes from the region only the words that belong to the processes: whether an entry is
//! shared, and after a restart everything, checked.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::atomic::Ordering::{Acquire, Relaxed, Release},
};

use mayfly_meta::record::BirthKey;
use mayfly_transport_shm::layout::{
    FILE_APPEND_BY_REQUEST, FILE_BY_REQUEST, FILE_OBJECT, FILE_STRIPED, FILE_UNLINKED, FileEntry,
    NodeRegion, OPEN_BEHIND, OPEN_FREE, OPEN_PRIVATE, OPEN_SHARED, OpenEntry,
};
use mayfly_types::{
    Errno, FileId, FileKind, OpenRef, SessionId,
    limits::{FILES_OPEN_MAX, LANES, OPEN_FILES_MAX},
};

use crate::{
    api::Caller,
    maps::by_number::ByNumber,
    shards::{
        numbering::{node_of_owner, origin, session_of_node},
        slots::ShardId,
    },
};

mod leased;
mod promised;
mod survey;

const O_ACCMODE: u32 = 3;
/// An entry has its lane and, above it, the shard of another node that has its file.
const SHARD_SHIFT: u32 = 8;
const LANE_MASK: u32 = (1 << SHARD_SHIFT) - 1;
const _: () = assert!(LANES <= LANE_MASK as usize);
const O_PATH: u32 = 0o10_000_000;

/// An open file description.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(super) generation: u32,
    pub(crate) session: SessionId,
    pub(crate) id: FileId,
    pub(crate) flags: u32,
    /// Where it really is, when the file is at home on another node.
    pub(crate) remote: Option<Elsewhere>,
    /// It was there before this daemon.
    pub(crate) taken_up: bool,
}

/// A description at another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    pub(crate) shard: ShardId,
    pub(crate) open: OpenRef,
}

impl Open {
    pub(crate) fn may_read(&self) -> bool {
        self.flags & O_PATH == 0 && matches!(self.flags & O_ACCMODE, 0 | 2)
    }

    pub(crate) fn may_write(&self) -> bool {
        self.flags & O_PATH == 0 && matches!(self.flags & O_ACCMODE, 1 | 2)
    }
}

/// A file that is open.
#[derive(Debug, Clone)]
pub(crate) struct OpenFile {
    pub(crate) index: u32,
    pub(crate) birth: BirthKey,
    /// A name of it, when its record is not fused into that any more.
    pub(crate) name: Option<Box<BirthKey>>,
    pub(crate) opens: u32,
    pub(crate) writers: u32,
    pub(crate) unlinked: bool,
    /// It has an object.
    pub(crate) object: bool,
    /// Local writes may reach up to here.
    pub(crate) allowance_end: u64,
    /// Processes may have leave to write its object that has not ended.
    pub(crate) leave_to_write: bool,
    /// Space set aside while its size is not settled, bytes.
    pub(crate) charged_bytes: u64,
    /// Of it, what allocations that are under way may take, bytes.
    pub(super) promised_bytes: u64,
    /// Nothing is set aside beyond what its object had when that was last looked at.
    pub(super) trimmed: bool,
    /// It is at home on another node.
    pub(crate) elsewhere: bool,
    /// Nodes whose mounts may keep pages of it; an earlier daemon may have known of others.
    pub(crate) mapped_at: Vec<u32>,
}

/// What a region's entry says after a restart.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) index: u32,
    pub(crate) open: Open,
    pub(crate) shared: bool,
    /// Something is lost that was written through it.
    pub(crate) behind: bool,
    pub(crate) kind: FileKind,
    pub(crate) file: u32,
    pub(crate) birth: BirthKey,
    pub(crate) allowance_end: u64,
    pub(crate) made_by: Caller,
}

/// The entries of the node's tables that are one shard's: every `shards`-th one. So an entry's
/// number says whose it is.
#[derive(Debug, Clone, Copy)]
struct Share {
    shard: u32,
    shards: u32,
    /// How many descriptions may be open.
    opens_max: u32,
    /// How many files may be.
    files_max: u32,
}

impl Share {
    fn new(shard: u32, shards: u32) -> Share {
        let (opens_max, files_max) = (OPEN_FILES_MAX / shards, FILES_OPEN_MAX / shards);
        Share { shard, shards, opens_max, files_max }
    }

    /// Number in the shard's own tables.
    fn own(self, index: u32) -> Option<usize> {
        // A division takes long.
        if self.shards == 1 {
            return Some(index as usize);
        }
        (index % self.shards == self.shard).then_some((index / self.shards) as usize)
    }

    /// Number in the node's tables.
    fn nodes(self, own: usize) -> u32 {
        own as u32 * self.shards + self.shard
    }
}

pub(crate) struct OpenTable {
    node: &'static NodeRegion,
    share: Share,
    opens: Vec<Option<Open>>,
    free_opens: Vec<u32>,
    files: HashMap<FileId, OpenFile, ByNumber>,
    entries: FileEntries,
    count: u32,
    /// Descriptions that are set aside.
    promised: u32,
    /// Entries that an earlier daemon had set aside.
    reserved: Vec<u32>,
}

/// Which of the node's entries for files are in use, of those that are the shard's.
struct FileEntries {
    node: &'static NodeRegion,
    share: Share,
    used: Vec<bool>,
    free: Vec<u32>,
}

impl FileEntries {
    /// A file that is opened, with an entry.
    fn take(&mut self, id: FileId, birth: BirthKey) -> OpenFile {
        let index = self.free.pop().unwrap_or_else(|| {
            self.used.push(false);
            self.share.nodes(self.used.len() - 1)
        });
        self.mark(index, true);
        self.write_key(index, &birth);
        let entry = &self.node.files[index as usize];
        entry.flags.store(0, Relaxed);
        entry.allowance_end.store(0, Relaxed);
        entry.opens.store(0, Relaxed);
        entry.id.store(id.0, Release);
        new_file(index, birth)
    }

    fn mark(&mut self, index: u32, used: bool) {
        let own = self.share.own(index).expect("only the shard's own entries are used");
        self.used[own] = used;
    }

    fn write_key(&self, index: u32, birth: &BirthKey) {
        let key = &self.node.keys[index as usize];
        key.directory.store(birth.directory.0, Relaxed);
        key.name_bytes.store(birth.name.len() as u32, Relaxed);
        let (words, rest) = birth.name.as_chunks();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        for (word, bytes) in key.name.iter().zip(words.iter().chain([&last])) {
            word.store(u32::from_le_bytes(*bytes), Relaxed);
        }
    }

    /// The file's last description is gone.
    fn give_back(&mut self, file: &OpenFile) {
        let entry = &self.node.files[file.index as usize];
        // Whoever kept a descriptor of the object must ask again before using it.
        entry.grant_generation.fetch_add(1, Release);
        entry.allowance_end.store(0, Relaxed);
        entry.flags.store(0, Relaxed);
        entry.id.store(0, Release);
        self.mark(file.index, false);
        self.free.push(file.index);
    }
}

impl OpenTable {
    pub(crate) fn new(node: &'static NodeRegion, shard: u32, shards: u32) -> Self {
        let share = Share::new(shard, shards);
        OpenTable {
            node,
            share,
            opens: Vec::new(),
            free_opens: Vec::new(),
            files: HashMap::default(),
            entries: FileEntries { node, share, used: Vec::new(), free: Vec::new() },
            count: 0,
            promised: 0,
            reserved: Vec::new(),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn get(&self, open: OpenRef) -> Result<Open, Errno> {
        let own = self.share.own(open.index).ok_or(Errno::EBADF)?;
        let found = self.opens.get(own).copied().flatten();
        found.filter(|found| found.generation == open.generation).ok_or(Errno::EBADF)
    }

    pub(crate) fn at(&self, index: u32) -> Option<(OpenRef, Open)> {
        let open = self.opens.get(self.share.own(index)?).copied().flatten()?;
        Some((OpenRef { index, generation: open.generation }, open))
    }

    /// All of them, by number.
    pub(crate) fn all(&self) -> impl Iterator<Item = (OpenRef, Open)> {
        let number = |(own, open): (usize, &Option<Open>)| {
            let open = (*open)?;
            let index = self.share.nodes(own);
            Some((OpenRef { index, generation: open.generation }, open))
        };
        self.opens.iter().enumerate().filter_map(number)
    }

    /// True when the kernel keeps the entry alive, not the session.
    pub(crate) fn is_shared(&self, index: u32) -> bool {
        self.node.opens[index as usize].state.load(Acquire) == OPEN_SHARED
    }

    pub(crate) fn of_session(&self, session: SessionId) -> Vec<OpenRef> {
        let of = |(index, open): (usize, &Option<Open>)| {
            let open = open.as_ref().filter(|open| open.session == session)?;
            Some(OpenRef { index: self.share.nodes(index), generation: open.generation })
        };
        self.opens.iter().enumerate().filter_map(of).collect()
    }

    /// The other nodes that have a file open.
    pub(crate) fn nodes_with(&self, id: FileId) -> Vec<u32> {
        let theirs = self.opens.iter().flatten().filter(|open| open.id == id);
        let mut nodes: Vec<u32> = theirs.filter_map(|open| node_of_owner(open.session)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The descriptions at another node's shard that ones here stand for.
    pub(crate) fn proxied_at(&self, shard: ShardId) -> impl Iterator<Item = OpenRef> {
        let remotes = self.opens.iter().flatten().filter_map(|open| open.remote);
        remotes.filter(move |remote| remote.shard == shard).map(|remote| remote.open)
    }

    pub(crate) fn file(&self, id: FileId) -> Option<&OpenFile> {
        self.files.get(&id)
    }

    /// The file, if it is open, has this name, which its record is not fused into.
    pub(crate) fn note_name(&mut self, id: FileId, name: BirthKey) {
        if let Some(file) = self.files.get_mut(&id) {
            file.name = Some(Box::new(name));
        }
    }

    /// The file has this name no more.
    pub(crate) fn forget_name(&mut self, id: FileId, name: &BirthKey) {
        if let Some(file) = self.files.get_mut(&id) {
            file.name.take_if(|noted| **noted == *name);
        }
    }

    pub(crate) fn file_mut(&mut self, id: FileId) -> Option<&mut OpenFile> {
        self.files.get_mut(&id)
    }

    /// The open files that are at home here.
    pub(crate) fn files(&self) -> impl Iterator<Item = (FileId, &OpenFile)> {
        self.files.iter().filter(|(_, file)| !file.elsewhere).map(|(id, file)| (*id, file))
    }

    pub(crate) fn entry(&self, id: FileId) -> Option<&'static FileEntry> {
        let node = self.node;
        self.files.get(&id).map(|file| &node.files[file.index as usize])
    }

    /// Bytes or length of a file change that has no object. A holder must not use its copy of them
    /// from now on. This happens before the request that changes them is answered.
    pub(crate) fn content_changes(&self, id: FileId) {
        if let Some(entry) = self.entry(id) {
            entry.content_version.fetch_add(1, Release);
        }
    }

    /// Whether another description, and if need be another file, can be open. Checked before
    /// anything is changed for an open.
    pub(crate) fn has_room(&self) -> bool {
        self.count + self.promised < self.share.opens_max
            && self.files.len() < self.share.files_max as usize
    }

    /// Makes an open file description. One that a process of another node asks for belongs to that
    /// node: what becomes of the process is known there.
    pub(crate) fn insert(
        &mut self,
        caller: Caller,
        (id, kind): (FileId, FileKind),
        birth: BirthKey,
        flags: u32,
        remote: Option<Elsewhere>,
    ) -> Result<OpenRef, Errno> {
        if !self.has_room() {
            return Err(Errno::ENFILE);
        }
        let index = self.take_open_index();
        let entry = &self.node.opens[index as usize];
        let generation = entry.generation.load(Relaxed);
        let origin = origin(caller.session);
        let session = origin.map_or(caller.session, |(node, _)| session_of_node(node));
        let open = Open { generation, session, id, flags, remote, taken_up: false };
        let file = self.admit(index, open, |files| files.take(id, birth));
        entry.flags.store(flags, Relaxed);
        entry.file.store(file, Relaxed);
        entry.session.store(session.0, Relaxed);
        entry.offset_lock.store(0, Relaxed);
        entry.offset.store(0, Relaxed);
        entry.id.store(id.0, Relaxed);
        entry.kind.store(kind as u32, Relaxed);
        note_maker(entry, caller, remote);
        entry.state.store(OPEN_PRIVATE, Release);
        Ok(OpenRef { index, generation })
    }

    /// Takes a description in, with its file if that was not open; the file's entry.
    fn admit(
        &mut self,
        index: u32,
        open: Open,
        file: impl FnOnce(&mut FileEntries) -> OpenFile,
    ) -> u32 {
        let file = self.files.entry(open.id).or_insert_with(|| file(&mut self.entries));
        file.opens += 1;
        let writer = u32::from(open.may_write());
        file.writers += writer;
        self.node.head.writers.fetch_add(writer, Release);
        file.elsewhere |= open.remote.is_some();
        self.node.files[file.index as usize].opens.store(file.opens, Relaxed);
        let own = self.share.own(index).expect("only the shard's own entries are used");
        self.opens[own] = Some(open);
        self.count += 1;
        file.index
    }

    /// Frees an open file description; the file, when it was the last one.
    pub(crate) fn remove(&mut self, open: OpenRef) -> Option<(Open, Option<OpenFile>)> {
        let slot = self.opens.get_mut(self.share.own(open.index)?)?;
        let found = slot.take_if(|found| found.generation == open.generation)?;
        self.count -= 1;
        self.clear_entry(open.index);
        self.free_opens.push(open.index);
        let Entry::Occupied(mut held) = self.files.entry(found.id) else {
            unreachable!("an open file description has its file")
        };
        let file = held.get_mut();
        file.opens -= 1;
        let writer = u32::from(found.may_write());
        file.writers -= writer;
        self.node.head.writers.fetch_sub(writer, Release);
        self.node.files[file.index as usize].opens.store(file.opens, Relaxed);
        if file.opens == 0 {
            let file = held.remove();
            self.entries.give_back(&file);
            return Some((found, Some(file)));
        }
        if !file.mapped_at.is_empty()
            && let Some(node) = node_of_owner(found.session)
        {
            let with = self.nodes_with(found.id);
            if let Some(file) = self.files.get_mut(&found.id) {
                file.mapped_at.retain(|other| *other != node || with.contains(other));
            }
        }
        Some((found, None))
    }

    fn clear_entry(&self, index: u32) {
        let entry = &self.node.opens[index as usize];
        entry.state.store(OPEN_FREE, Release);
        entry.generation.fetch_add(1, Release);
    }

    fn take_open_index(&mut self) -> u32 {
        self.free_opens.pop().unwrap_or_else(|| {
            self.opens.push(None);
            self.share.nodes(self.opens.len() - 1)
        })
    }

    pub(crate) fn set_flag(&self, id: FileId, flag: u32) {
        if let Some(entry) = self.entry(id) {
            entry.flags.fetch_or(flag, Release);
        }
    }

    /// Something that was written through the description is not at the file's home, or lost.
    pub(crate) fn mark_behind(&self, open: OpenRef, behind: bool) {
        let Ok(_) = self.get(open) else { return };
        let flags = &self.node.opens[open.index as usize].flags;
        let is_marked = flags.load(Relaxed) & OPEN_BEHIND != 0;
        if behind && !is_marked {
            flags.fetch_or(OPEN_BEHIND, Release);
        } else if !behind && is_marked {
            flags.fetch_and(!OPEN_BEHIND, Release);
        }
    }

    /// The entry of a description of this shard.
    pub(crate) fn entry_of(&self, open: OpenRef) -> &'static OpenEntry {
        &self.node.opens[open.index as usize]
    }

    pub(crate) fn has_flag(&self, id: FileId, flag: u32) -> bool {
        self.entry(id).is_some_and(|entry| entry.flags.load(Relaxed) & flag != 0)
    }

    pub(crate) fn mark_unlinked(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.unlinked = true;
        }
        self.set_flag(id, FILE_UNLINKED);
    }

    pub(crate) fn mark_linked(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.unlinked = false;
        }
        if let Some(entry) = self.entry(id) {
            entry.flags.fetch_and(!FILE_UNLINKED, Release);
        }
    }

    pub(crate) fn mark_object(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.object = true;
        }
        self.set_flag(id, FILE_OBJECT);
    }

    /// Bytes of the file are not all in the object any more: whoever may use it has to ask.
    pub(crate) fn mark_striped(&mut self, id: FileId) {
        self.set_flag(id, FILE_BY_REQUEST | FILE_APPEND_BY_REQUEST | FILE_STRIPED);
        if let Some(entry) = self.entry(id) {
            entry.grant_generation.fetch_add(1, Release);
        }
        self.set_allowance(id, 0);
    }

    pub(crate) fn gave_leave_to_write(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.leave_to_write = true;
        }
    }

    /// Whoever may write the object of the file by himself has to ask again.
    pub(crate) fn end_leave_to_write(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id).filter(|file| file.leave_to_write) else { return };
        file.leave_to_write = false;
        if let Some(entry) = self.entry(id) {
            entry.grant_generation.fetch_add(1, Release);
        }
        self.set_allowance(id, 0);
    }

    pub(crate) fn set_allowance(&mut self, id: FileId, end: u64) {
        if let Some(file) = self.files.get_mut(&id) {
            file.allowance_end = end;
            self.node.files[file.index as usize].allowance_end.store(end, Release);
        }
    }
}

/// Notes by whose request the description was made, and where it really is. An entry that stands
/// for one elsewhere has that in the place of the session.
fn note_maker(entry: &OpenEntry, maker: Caller, remote: Option<Elsewhere>) {
    let (shard, there) = match remote {
        Some(remote) => (remote.shard.0 + 1, remote.open),
        None => (0, OpenRef { index: maker.session.0, generation: 0 }),
    };
    let request = [maker.request_id as u32, (maker.request_id >> 32) as u32];
    let words = [request[0], request[1], maker.lane | shard << SHARD_SHIFT];
    let words = words.into_iter().chain([there.index, there.generation]);
    for (to, word) in entry.reserved.iter().zip(words) {
        to.store(word, Relaxed);
    }
}

fn new_file(index: u32, birth: BirthKey) -> OpenFile {
    OpenFile {
        index,
        birth,
        name: None,
        opens: 0,
        writers: 0,
        unlinked: false,
        object: false,
        allowance_end: 0,
        leave_to_write: false,
        charged_bytes: 0,
        promised_bytes: 0,
        trimmed: false,
        elsewhere: false,
        mapped_at: Vec::new(),
    }
}

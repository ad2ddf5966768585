//! Files that were submitted ([`mayfly_transport_shm::submission_ring`]): with what their processes
//! have written to them, in the record or in an object that they have made.
//!
//! An object of a file that is promised may be there before any record names it. So the files that
//! are promised with the places of a ring are noted, before their process learns of them and until
//! a record names their objects. What such a note leads to when a daemon begins, and what is no
//! promise any more, goes.
//!
//! A process that has begun an object and not said that the content is there may be about to make
//! it, for as long as it lives. So the mark that removes such an object is used when its process is
//! gone, or has begun another one: it makes one at a time.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_meta::{
    Scan, StoreError, key,
    record::{BirthKey, Content, Inode},
};
use mayfly_object::{ObjectAttr, ObjectId};
use mayfly_transport_shm::submission_ring::{Made, RECORDS, RINGS, Record, SubmissionRing};
use mayfly_types::{
    Errno, FIRST_OBJECT, FileId, Timestamp,
    limits::{CHUNK_BYTES_MIN, INLINE_BYTES_MAX, SYMLINK_BYTES_MAX},
};

use mayfly_wire::{SET_MTIME, SET_MTIME_NOW};

use crate::{
    fault::{Outcome, store_failed},
    leases::state::{cycles::Present, submissions::Ring},
    log,
    maps::HashMap,
    namespace::{
        open::ONCE,
        state::{
            inode::{Located, Ownership},
            member::Parent,
            walk::Place,
        },
    },
    shard::Shard,
    shards::planted::{Planted, is_planted},
};

/// An object may reach so far at most without asking, bytes.
const OBJECT_BYTES_MAX: u64 = 1 << 20;
/// With less to offer to each there is nothing, bytes.
const OBJECT_BYTES_MIN: u64 = 4 * INLINE_BYTES_MAX as u64;
/// Of the free space so much at most is offered to all rings: a half.
const OFFERED_SHARE: u64 = 2;

/// The files that are promised with the places of rings, by ring.
pub(super) type Noted = HashMap<usize, Vec<FileId>>;

/// A file that a record makes.
pub(super) struct NewFile<'a> {
    pub(super) record: &'a Record,
    /// Whether the promised description is to be made.
    pub(super) open: bool,
    /// How much content the record has, bytes.
    pub(super) bytes: usize,
    /// Which attributes are changed after that.
    pub(super) which: u32,
    /// Its process has looked at it.
    pub(super) seen: bool,
    /// What its process has made of an object for it.
    pub(super) object: Made,
}

/// The object that a process has made for a file, and its length, space and times where nobody has
/// to wait for them.
#[derive(Debug, Clone, Copy)]
struct Filled {
    object: ObjectId,
    attr: Option<ObjectAttr>,
    end: u64,
}

impl Shard {
    /// Makes a file that was submitted, at a place that has none.
    pub(super) fn execute_file_record(
        &mut self,
        new: NewFile<'_>,
        place: Place,
        (submissions, at): (&SubmissionRing, usize),
        ring: &mut Ring,
        present: Present,
    ) -> Outcome<()> {
        let (promised, object) = (ring.ids[at], new.object);
        let mut content = std::mem::take(&mut self.leases.delegations.content);
        submissions.read_content(at, new.bytes, &mut content);
        let made = self.make_submitted((new, &content), place, (ring, at), present);
        self.leases.delegations.content = content;
        if made.is_err() && object != Made::Nothing && promised != FileId::NONE {
            let object = ObjectId { file: promised, generation: FIRST_OBJECT };
            self.remove_object(object)?;
        }
        made
    }

    fn make_submitted(
        &mut self,
        (new, content): (NewFile<'_>, &[u8]),
        place: Place,
        (ring, at): (&mut Ring, usize),
        present: Present,
    ) -> Outcome<()> {
        // Only a process that does not keep to its delegation can have submitted what is there.
        if place.found.is_some() {
            return Err(Errno::EEXIST.into());
        }
        let id = match ring.ids[at] {
            FileId::NONE => self.new_id(&place)?,
            id => id,
        };
        let parent = self.load_parent(place.directory)?;
        let mut inode = self.inode_of_submitted((&new, id), (content, &parent), present);
        let opened = ring.promises[at].filter(|_| new.open);
        let filled = self.filled_object(&new, id);
        let birth = || BirthKey { directory: place.directory, name: place.name.clone() };
        match filled {
            Some(filled) => self.fill_submitted(&mut inode, filled, opened.is_some(), &birth())?,
            None if new.object != Made::Nothing => {
                inode.generation = FIRST_OBJECT;
                self.note_started(ring, ObjectId { file: id, generation: FIRST_OBJECT })?;
            }
            None => {}
        }
        // The object tells when it was modified.
        let told = if filled.is_some() { SET_MTIME | SET_MTIME_NOW } else { 0 };
        let which = new.which & !told;
        if which != 0 && !is_planted(Planted::SubmittedChangeLost) {
            self.apply_with_content(&mut inode, &new.record.read_changes(which), present);
        }
        match filled {
            Some(_) => self.add_fused(&place, parent, &inode)?,
            None => self.add_fused_with(&place, parent, &inode, content)?,
        }
        if let Some(promise) = opened {
            let flags = new.record.flags.load(Relaxed) & !ONCE;
            self.files.opens.keep_promise(promise, ring.session, id, birth(), flags);
            self.mark_layout(&inode);
            ring.opened |= 1 << at;
        }
        let Some(filled) = filled else { return Ok(()) };
        if opened.is_some() {
            self.files.opens.mark_object(id);
            self.allow(id, filled.end);
            return Ok(());
        }
        self.settle_soon(&mut Located { inode: Box::new(inode), fused: Some(birth()) })
    }

    /// Makes a symbolic link that was submitted, at a place that has nothing. Its identity is not
    /// the promised one: nobody was told that.
    pub(super) fn make_submitted_symlink(
        &mut self,
        record: &Record,
        place: &Place,
        target: Vec<u8>,
    ) -> Outcome<()> {
        if place.found.is_some() {
            return Err(Errno::EEXIST.into());
        }
        // What its process writes may be anything.
        if target.is_empty() || target.len() > SYMLINK_BYTES_MAX || target.contains(&0) {
            return Err(Errno::EPROTO.into());
        }
        let (id, parent) = (self.new_id(place)?, self.load_parent(place.directory)?);
        let Ownership { uid, gid, .. } = owner_in(record);
        let owner = Ownership { mode: 0o777, uid, gid: parent.inherited_group(gid) };
        let inode = self.new_inode(id, owner, Content::Symlink(target), parent.layout());
        self.add_fused(place, parent, &inode)
    }

    /// The inode of such a file, with the content of its record.
    fn inode_of_submitted(
        &mut self,
        (new, id): (&NewFile<'_>, FileId),
        (content, parent): (&[u8], &Parent),
        present: Present,
    ) -> Inode {
        let owner = owner_in(new.record);
        let owner = Ownership { gid: parent.inherited_group(owner.gid), ..owner };
        let look = new.seen.then(|| new.record.read_look());
        let look = look.map(|(time, bytes)| (believed(time, present), bytes));
        self.now = look.map_or(self.now, |(time, _)| time);
        let mut inode = self.new_inode(id, owner, Content::Inline(Vec::new()), parent.layout());
        if !content.is_empty() {
            inode.size_bytes = content.len() as u64;
            let changed = present.time(new.record.changed_cycles.load(Relaxed));
            let changed = match look {
                Some((time, bytes)) if bytes == content.len() => time,
                Some((time, _)) => time.max(changed),
                None => changed,
            };
            self.changed(&mut inode, changed);
        }
        inode
    }

    /// The object that the process of a record has made and filled, if it has.
    fn filled_object(&self, new: &NewFile<'_>, file: FileId) -> Option<Filled> {
        let Made::All { end } = new.object else { return None };
        if is_planted(Planted::SubmittedObjectLost) {
            return None;
        }
        let object = ObjectId { file, generation: FIRST_OBJECT };
        match self.objects.attr_at_hand(object) {
            Ok(attr) => Some(Filled { object, attr, end: end.min(OBJECT_BYTES_MAX) }),
            Err(errno) => {
                let what = format!("a process was to have made it: {errno}");
                log::error(format_args!("object {}", object.path()), what);
                None
            }
        }
    }

    /// The content of a file that is being made is in an object: while it is open the object tells
    /// length, space and times, and until somebody can look at that without waiting.
    fn fill_submitted(
        &mut self,
        inode: &mut Inode,
        Filled { object, attr, .. }: Filled,
        is_open: bool,
        birth: &BirthKey,
    ) -> Outcome<()> {
        inode.generation = object.generation;
        inode.content = Content::Object(object.generation);
        self.counters.objects += 1;
        let Some(attr) = attr.filter(|_| !is_open) else {
            inode.unsettled = true;
            self.store.put(&key::numbered(key::UNSETTLED, object.file), &birth.encode())?;
            return Ok(());
        };
        self.take_from_object(inode, &attr);
        Ok(())
    }

    /// A process has begun an object and may be about to make it. Nothing in it is the file's.
    fn note_started(&mut self, ring: &mut Ring, object: ObjectId) -> Outcome<()> {
        self.store.put(&key::doomed(object.file, object.generation), &[1])?;
        // It makes one at a time.
        self.files.background.doomed.extend(ring.started.replace(object));
        Ok(())
    }

    /// Notes which files are promised with the places of a ring from the next commit on.
    pub(super) fn note_promised(&mut self, at: usize, ring: &Ring) -> Outcome<()> {
        let note: Vec<u8> = ring.ids.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        self.store.put(&key::promised(at), &note)?;
        Ok(())
    }

    /// A ring ends, with all that was submitted in it executed and its process gone.
    pub(super) fn end_promises(&mut self, at: usize, ring: &mut Ring) {
        self.files.background.doomed.extend(ring.started.take());
        self.offer(at, ring, 0);
        if let Err(error) = self.store.delete(&key::promised(at)) {
            store_failed(&error);
        }
    }

    /// The files that an earlier daemon has noted, by ring and place.
    pub(super) fn noted_promises(&mut self) -> Result<Noted, StoreError> {
        let mut noted = Noted::default();
        self.store.scan(&[key::PROMISED], &[key::PROMISED], &mut |key, record| {
            let ring = key::split_numbered(key).and_then(|ring| usize::try_from(ring.0).ok());
            let (ids, _) = record.as_chunks();
            let ids = ids.iter().map(|id| FileId(u64::from_le_bytes(*id)));
            noted.extend(ring.map(|ring| (ring, ids.collect())));
            Scan::More
        })?;
        for ring in noted.keys() {
            self.store.delete(&key::promised(*ring))?;
        }
        Ok(noted)
    }

    /// Those that are no promise any more, and were not made: if there are objects these go.
    pub(super) fn end_noted(&mut self, noted: Noted, taken_up: &[FileId]) -> Outcome<()> {
        let is_over = |id: &FileId| *id != FileId::NONE && !taken_up.contains(id);
        for file in noted.into_values().flatten().filter(is_over) {
            let object = ObjectId { file, generation: FIRST_OBJECT };
            // Nobody waits for anything but the start itself.
            if self.is_home(file) && self.objects.attr(object).is_ok() {
                self.remove_object(object)?;
            }
        }
        Ok(())
    }

    /// How far each object may reach that a process makes, bytes, where that much is free for all
    /// of them.
    pub(super) fn offered_object_bytes(&self) -> u32 {
        let rings = self.leases.delegations.rings.iter().flatten().count().max(1) as u64;
        let free = self.free_bytes().saturating_sub(self.kept_for_names());
        // Of what has its chunks on several nodes the first one is here.
        let alone = self.place.numbering.nodes == 1;
        let most = if alone { OBJECT_BYTES_MAX } else { CHUNK_BYTES_MIN };
        let most = most.min(self.config.home_bytes_max);
        let each = (free / OFFERED_SHARE / (rings * RECORDS as u64)).min(most);
        let whole = each - each % INLINE_BYTES_MAX as u64;
        if whole < OBJECT_BYTES_MIN { 0 } else { whole as u32 }
    }

    /// A process may make such objects from now on.
    pub(super) fn offer(&mut self, at: usize, ring: &mut Ring, bytes: u32) {
        let all = |bytes: u32| u64::from(bytes) * RECORDS as u64;
        let offered = &mut self.leases.delegations.offered_bytes;
        *offered = (*offered + all(bytes)).saturating_sub(all(ring.object_bytes));
        ring.object_bytes = bytes;
        self.submissions(at).object_bytes.store(bytes, Relaxed);
    }

    /// No process makes objects without asking until its ring is executed again, if less than
    /// `bytes` are free beside what they may take.
    pub(crate) fn keep_free(&mut self, bytes: u64) {
        let offered = self.leases.delegations.offered_bytes;
        if offered == 0 || self.free_bytes() >= bytes.saturating_add(offered) {
            return;
        }
        for at in 0..RINGS {
            if let Some(mut ring) = self.leases.delegations.rings[at].take() {
                self.offer(at, &mut ring, 0);
                self.leases.delegations.rings[at] = Some(ring);
            }
        }
    }
}

/// When a process says that it has looked at a file, which was not before the node began, nor is to
/// come: a thread that is about to look at the clock may be kept from it for a while.
pub(super) fn believed(time: Timestamp, present: Present) -> Timestamp {
    let latest = Timestamp { seconds: present.now.seconds + 1, ..present.now };
    let time = Timestamp { nanoseconds: time.nanoseconds.min(999_999_999), ..time };
    time.clamp(present.time(0), latest)
}

/// Owner and permission bits in a record, as its process says them.
pub(super) fn owner_in(record: &Record) -> Ownership {
    let mode = record.mode.load(Relaxed) & 0o7777;
    Ownership { mode, uid: record.uid.load(Relaxed), gid: record.gid.load(Relaxed) }
}

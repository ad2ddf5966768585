//! Which shard has the names of a directory.
//!
//! A directory is *whole* at first: all its names are at its *seat*, the shard that is its home. A
//! process that works in a directory of its own node so has everything at one shard: the one that
//! takes its requests, whose records it reads and which executes what it submits. When processes
//! of several nodes make names in it, it becomes *spread*: each name belongs to the owner of its
//! hash, and there are as many shards for it as there are. Names move in the order of their
//! cookies, which begin with the hash, some with each name that is made meanwhile. How far that
//! has come stands in a record of the seat.
//!
//! Invariants:
//! - A directory never becomes whole again, and its names never move back. So a shard may act on
//!   whatever it has once heard: who believes that a name is at the seat, and is too late, is sent
//!   on from there.
//! - Names move in a transaction over the seat and one other shard. It locks the directory at its
//!   seat, so none is made in the range that moves, and what others remember of these names is
//!   forgotten before.
//! - Inodes stay where they are: a file whose inode was in its dentry gets a record for it.

use mayfly_meta::{
    Scan, StoreError, key,
    record::{Content, Dentry, DirectoryNode, Layout, NamedFile, Spread, Step},
};
use mayfly_types::{Errno, FileId, FileKind, limits::NAMES_MOVED_MAX};

use crate::{
    api::Caller,
    fault::{Fault, Outcome},
    message::{Answer, Question},
    namespace::state::{
        inode::{Located, Ownership},
        member::unexpected,
        seats::{ALL, Batch},
        walk::Place,
    },
    shard::Shard,
    shards::{
        planted::{Planted, is_planted},
        slots::{ShardId, slot_of_cookie},
    },
    transactions::state::{
        prepare_locks::PrepareLock,
        transaction::{Steps, add_step},
    },
};

/// Entries that are looked at for one batch, at most. Most of them are others' where there are many
/// shards.
const LOOKED_AT_MAX: usize = 4096;

impl Shard {
    /// Whether directories have seats, and there is more than one shard for them.
    pub(crate) fn has_seats(&self) -> bool {
        !self.place.alone && !self.namespace.seats.are_all_spread()
    }

    /// The slot that a name belongs to.
    pub(crate) fn name_slot(&self, directory: FileId, cookie: u64) -> u16 {
        let upto = self.namespace.seats.spread(directory);
        if cookie < upto { slot_of_cookie(cookie) } else { directory.slot() }
    }

    /// The shard that has a name, as far as this one knows.
    pub(crate) fn name_owner(&self, directory: FileId, name: &[u8]) -> ShardId {
        self.owner_at(directory, key::cookie(directory, name))
    }

    /// The same for the name with this cookie.
    pub(crate) fn owner_at(&self, directory: FileId, cookie: u64) -> ShardId {
        self.place.slots.owner(self.name_slot(directory, cookie))
    }

    /// The owner of the names of a directory at `cookie`, and the first cookie after it that is not
    /// certain to have the same owner.
    pub(super) fn names_at(&self, directory: FileId, cookie: u64) -> (ShardId, u64) {
        let upto = self.namespace.seats.spread(directory);
        if cookie >= upto {
            return (self.place.slots.home(directory), u64::MAX);
        }
        let (owner, until) = self.place.slots.run_at(cookie);
        (owner, until.min(upto))
    }

    /// What the asker of a question about a name has to know, when the name is not here any more.
    pub(crate) fn name_is_elsewhere(&self, directory: FileId, cookie: u64) -> Option<Answer> {
        let upto = self.namespace.seats.spread(directory);
        let is_seat = !self.place.alone && self.is_home(directory);
        let is_elsewhere = is_seat && self.owner_at(directory, cookie) != self.place.shard;
        is_elsewhere.then_some(Answer::Spread(directory, upto))
    }

    /// The slot of a new directory with this name that has its seat here.
    pub(super) fn seat_slot(&self, place: &Place) -> u16 {
        let hash = slot_of_cookie(place.cookie);
        if !self.has_seats() {
            return hash;
        }
        self.place.slots.slot_of(self.place.shard, hash).unwrap_or(hash)
    }

    /// The shard at which a new directory has its seat: the one that its maker's requests come to
    /// first, if that node has room.
    pub(super) fn chosen_seat(&mut self, caller: Caller, place: &Place) -> Outcome<ShardId> {
        if self.own_source(place.directory)?.is_some() {
            return Ok(self.place.shard);
        }
        if let Some(shard) = self.roomier_shard(place)? {
            return Ok(shard);
        }
        Ok(self.seat_by_maker(caller, place))
    }

    fn seat_by_maker(&self, caller: Caller, place: &Place) -> ShardId {
        let numbering = &self.place.numbering;
        let node = self.maker(caller).node;
        let hash = slot_of_cookie(place.cookie);
        if !self.has_seats() {
            return self.place.shard;
        }
        if self.namespace.seats.are_restless() {
            return self.place.slots.owner(hash);
        }
        if node >= numbering.nodes {
            return self.place.shard;
        }
        let shard = numbering.front_of(node);
        // A node that owns nothing has no directories either: its own are dealt out.
        match self.place.slots.slot_of(shard, hash) {
            Some(_) => shard,
            None => self.place.slots.owner(hash),
        }
    }

    /// What is to be done for a directory that has its seat at another shard than its name.
    pub(super) fn make_directory_at(
        &mut self,
        seat: ShardId,
        place: &Place,
        (owner, layout): (Ownership, Layout),
    ) -> Outcome<()> {
        let id = self.new_id_at(seat, place)?;
        let Ownership { mode, uid, gid } = owner;
        let (mode, kind) = ((mode & 0o7777) as u16, FileKind::Directory);
        let (parent, name) = (place.directory, place.name.clone());
        let mut parts = Steps::new();
        let make = Step::MakeDirectory { id, mode, uid, gid, layout, parent, name: name.clone() };
        add_step(&mut parts, seat, make);
        let set = Step::SetName { directory: parent, name, id, kind, expected: None };
        add_step(&mut parts, self.place.shard, set);
        self.operate(parts)
    }

    /// Before a name is made in a directory that has its seat here: when processes of several nodes
    /// make names in it, some of those that are there move to other shards. The request is run
    /// again then, since its own name may be another shard's.
    pub(super) fn spread_if_shared(&mut self, caller: Caller, place: &Place) -> Outcome<()> {
        if !self.has_seats() {
            return Ok(());
        }
        // Not twice for the same request: it waits already.
        let was_done = self.run.place.restarts > 0;
        let directory = place.directory;
        let from = self.namespace.seats.spread(directory);
        let stays = was_done || !self.is_home(directory) || place.cookie < from;
        if stays || self.own_source(directory)?.is_some() {
            return Ok(());
        }
        let node = self.maker(caller).node;
        if !self.namespace.seats.is_shared(directory, node) {
            return Ok(());
        }
        if !is_planted(Planted::NotRecalledBeforeSpread) && self.recall(directory) {
            // What was found out before may not be so any more.
            return Err(Fault::Again);
        }
        let Batch { to, names, upto } = self.next_batch(directory, from)?;
        let Some(to) = to else {
            self.unclaimed(|| vec![(PrepareLock::Place(directory), true)])?;
            self.save_spread(directory, upto)?;
            return Err(Fault::Again);
        };
        let cookie = key::cookie(directory, &names[0].name);
        match self.fact(to, Question::Host { directory, cookie })? {
            Answer::Done => {}
            answer => return Err(unexpected(&answer)),
        }
        let mut parts = Steps::new();
        add_step(&mut parts, to, Step::TakeNames { directory, names: names.clone() });
        let own = self.place.shard;
        add_step(&mut parts, own, Step::GiveNames { directory, from, upto, names });
        Err(Fault::Operate(parts))
    }

    /// The next names that are another shard's by their hashes, all of one shard's.
    pub(crate) fn next_batch(&mut self, directory: FileId, from: u64) -> Outcome<Batch> {
        let (own, slots) = (self.place.shard, &self.place.slots);
        let mut batch = Batch { upto: ALL, ..Batch::default() };
        let (mut last, mut seen, mut corrupt) = (from, 0, false);
        let prefix = key::directory(directory);
        self.store.scan(&prefix, &key::directory_from(directory, from), &mut |key, record| {
            let (Some((_, cookie, name)), Ok((id, kind))) =
                (key::split_dentry(key), Dentry::peek(record))
            else {
                corrupt = true;
                return Scan::Enough;
            };
            let owner = slots.owner(slot_of_cookie(cookie));
            let is_full = batch.names.len() >= NAMES_MOVED_MAX || seen >= LOOKED_AT_MAX;
            let is_others = owner != own && batch.to.is_some_and(|to| to != owner);
            // Names with one cookie move together.
            if cookie != last && (is_full || is_others) {
                batch.upto = cookie;
                return Scan::Enough;
            }
            (last, seen) = (cookie, seen + 1);
            if owner != own {
                batch.to = Some(owner);
                batch.names.push(NamedFile { name: name.to_vec(), id, kind });
            }
            Scan::More
        })?;
        if corrupt { Err(Errno::EIO.into()) } else { Ok(batch) }
    }

    /// Notes durably how far a directory is spread.
    fn save_spread(&mut self, directory: FileId, upto: u64) -> Outcome<()> {
        if !is_planted(Planted::WatermarkGoesBack) {
            self.store.put(&key::numbered(key::SPREAD, directory), &Spread(upto).encode())?;
        }
        self.namespace.seats.note(directory, upto);
        Ok(())
    }

    /// A directory that had its seat here is gone.
    pub(super) fn forget_seat(&mut self, directory: FileId) -> Outcome<()> {
        if self.namespace.seats.spread(directory) != 0 && !self.namespace.seats.are_all_spread() {
            self.store.delete(&key::numbered(key::SPREAD, directory))?;
        }
        self.namespace.seats.forget(directory);
        Ok(())
    }

    /// How far directories were spread when the daemon died.
    pub(crate) fn take_up_seats(&mut self) -> Result<(), StoreError> {
        for (directory, record) in self.marks(key::SPREAD)? {
            self.namespace.seats.note(directory, Spread::decode(&record)?.0);
        }
        Ok(())
    }

    /// Whether the seat can give these names away: they are what it has there.
    pub(crate) fn check_give(
        &mut self,
        directory: FileId,
        (from, upto): (u64, u64),
        names: &[NamedFile],
    ) -> Outcome<bool> {
        if !self.is_home(directory) || self.namespace.seats.spread(directory) != from {
            return Ok(false);
        }
        let batch = self.next_batch(directory, from)?;
        Ok(batch.upto == upto && batch.names == names)
    }

    /// The seat of a directory gives names away.
    pub(crate) fn give_names(
        &mut self,
        directory: FileId,
        upto: u64,
        names: &[NamedFile],
    ) -> Outcome<()> {
        let mut directories = 0;
        for NamedFile { name, id, kind } in names {
            directories += i32::from(*kind == FileKind::Directory);
            let located = self.load_at(*id, directory, name).ok();
            if let Some(located) = located.filter(|located| located.fused.is_some()) {
                self.separate(located)?;
            }
            self.namespace.remembered.remove(directory, name);
            if !is_planted(Planted::NamesAtBothOwners) {
                self.delete_dentry(directory, name)?;
            }
        }
        if directories > 0 {
            self.store.move_directory()?;
        }
        let parent = self.load_holder(directory)?;
        self.touch_directory(parent, -(names.len() as i64), -directories)?;
        self.save_spread(directory, upto)
    }

    /// A member takes names that the seat of their directory gives away.
    pub(crate) fn take_names(&mut self, directory: FileId, names: &[NamedFile]) -> Outcome<()> {
        let mut directories = 0;
        for NamedFile { name, id, kind } in names {
            directories += i32::from(*kind == FileKind::Directory);
            self.namespace.remembered.remove(directory, name);
            let dentry = Dentry::Plain { id: *id, kind: *kind };
            self.put_dentry(directory, name, &dentry.encode())?;
        }
        let parent = self.load_holder(directory)?;
        self.touch_directory(parent, names.len() as i64, directories)
    }

    /// A step of a transaction: there is a new directory, which will get its name.
    pub(crate) fn make_seat(
        &mut self,
        id: FileId,
        owner: Ownership,
        layout: &Layout,
        (parent, name): (FileId, &[u8]),
    ) -> Outcome<()> {
        let located = self.new_directory(id, owner, layout, (parent, name));
        self.save(&located)?;
        self.counters.directories += 1;
        Ok(())
    }

    /// A directory's inode.
    pub(super) fn new_directory(
        &self,
        id: FileId,
        owner: Ownership,
        layout: &Layout,
        (parent, name): (FileId, &[u8]),
    ) -> Located {
        let node = DirectoryNode { parent, name: name.to_vec(), ..DirectoryNode::default() };
        let content = Content::Directory(node);
        Located { inode: Box::new(self.new_inode(id, owner, content, layout)), fused: None }
    }
}

//! Which node has what of an origin.
//!
//! A directory that has an origin is whole, and its files are at its seat. There the operations
//! wait that lack something outside, and the keeper of that node does the work. The directory that
//! shows the origin has its seat where the root of the instance has. Directories that are found
//! below it, some levels deep, have their seats dealt out to all nodes by hashes of their paths;
//! what is below those stays with them. So different nodes fetch different trees, and each fetches
//! what it will have. What programs make has its seat where the directory is in which they make it.
//!
//! A look at a directory that has found such directories ends when their seats are there. A seat is
//! known by its path, so who asks again, since somebody has died, is told of the same one. The name
//! is made after the seat, and goes before it: a name always leads to a directory.
//!
//! The questions go down the tree only. So nobody waits in a circle.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_meta::{
    key,
    record::{Master, Origin},
};
use mayfly_types::{Attr, Errno, FileId, FileKind, limits::TIER_SEATS_AT_ONCE};
use mayfly_wire::tier::{TierEntry, unpacked};

use crate::{
    fault::Outcome,
    message::{Answer, NewSeat, Question, Seats},
    namespace::state::{inode::Ownership, member::unexpected},
    shard::{Shard, state::task::Purpose},
    shards::slots::{ShardId, slot_of_cookie},
    tier::{
        items::Ending,
        state::{
            item::{Found, Work},
            roots::Root,
            wanted::Wanted,
        },
    },
};

/// So many levels below an origin the seats are dealt out.
const LEVELS: usize = 2;

fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

impl Shard {
    /// Notes that the directory shows this.
    pub(crate) fn show_root(&mut self, id: FileId, root: Root) -> Outcome<()> {
        self.store.put(&key::numbered(key::SHOWN, id), &root.encode())?;
        self.tier.roots.insert(id, root);
        Ok(())
    }

    /// The directory is gone.
    pub(crate) fn forget_root(&mut self, id: FileId) -> Outcome<()> {
        if self.tier.roots.remove(id).is_some() {
            self.store.delete(&key::numbered(key::SHOWN, id))?;
        }
        Ok(())
    }

    /// What was shown when the daemon died.
    pub(crate) fn take_up_roots(&mut self) -> Outcome<()> {
        for (id, record) in self.marks(key::SHOWN)? {
            self.tier.roots.insert(id, Root::decode(&record).ok_or(Errno::EIO)?);
        }
        Ok(())
    }

    /// The directory, if the seats of what is found in it are dealt out.
    fn root_that_deals(&self, directory: FileId) -> Option<Root> {
        let deals = self.place.numbering.nodes > 1 || self.namespace.seats.are_restless();
        self.tier.roots.get(directory).filter(|root| deals && root.depth() < LEVELS).cloned()
    }

    /// Whether the seats of what is found in the directory are dealt out.
    pub(crate) fn deals_seats(&self, directory: FileId) -> bool {
        self.root_that_deals(directory).is_some()
    }

    /// Where a directory with this path outside has its seat.
    fn seat_of_path(&self, root: &Root) -> ShardId {
        let slot = slot_of_cookie(key::cookie(FileId(u64::from(root.source)), &root.path));
        let numbering = &self.place.numbering;
        let owner = self.place.slots.owner(slot);
        if self.namespace.seats.are_restless() {
            return owner;
        }
        let front = numbering.front_of(numbering.node_of(owner));
        match self.place.slots.slot_of(front, slot) {
            Some(_) => front,
            None => self.place.shard,
        }
    }

    /// Asks other nodes for what a look has found that is theirs; false when it is nothing.
    pub(crate) fn ask_for_seats(&mut self, number: u64, told: &Ending) -> Outcome<bool> {
        let Some(item) = self.tier.items.get(&number) else { return Ok(false) };
        let (Work::Wanted(Wanted::Look(directory)), Ending::Done { seen, bytes }) =
            (&item.work, told)
        else {
            return Ok(false);
        };
        let (directory, same) = (*directory, seen.same);
        let Some(root) = self.root_that_deals(directory).filter(|_| !same) else {
            return Ok(false);
        };
        let entries = unpacked::<TierEntry<'_>>(bytes).ok_or(Errno::EPROTO)?;
        let directories = entries.filter(|entry| entry.attr.kind == FileKind::Directory);
        let mut found: BTreeMap<&[u8], TierEntry<'_>> =
            directories.map(|entry| (entry.name, entry)).collect();
        let mut questions = Vec::new();
        let mut gone: BTreeMap<ShardId, Vec<FileId>> = BTreeMap::new();
        // An earlier daemon may have died between a directory's end at its seat and that of its
        // name.
        let is_first = !self.tier.directories.contains_key(&directory);
        let mut known: BTreeMap<ShardId, Vec<FileId>> = BTreeMap::new();
        for (name, id, kind) in self.names_here(directory)? {
            let is_there = found.remove(name.as_slice()).is_some();
            if self.has_changed_since(number, directory, &name) {
                continue;
            }
            if kind == FileKind::Directory && !self.is_home(id) && (is_first || !is_there) {
                let of = if is_there { &mut known } else { &mut gone };
                of.entry(self.place.slots.home(id)).or_default().push(id);
            }
        }
        // One that is being removed, and is not here any more, is not found.
        found.retain(|name, _| !self.has_changed_since(number, directory, name));
        for (shard, directories) in gone {
            let some = directories.chunks(TIER_SEATS_AT_ONCE);
            questions.extend(some.map(|ids| (shard, Question::Unseat(ids.to_vec()))));
        }
        for (shard, directories) in known {
            let some = directories.chunks(TIER_SEATS_AT_ONCE);
            questions.extend(some.map(|ids| (shard, Question::Seated(ids.to_vec()))));
        }
        let found = found.into_values().map(|entry| (entry.name, entry.attr)).collect();
        questions.extend(self.questions_for_seats((directory, &root), found)?);
        let Some(item) = self.tier.items.get_mut(&number).filter(|_| !questions.is_empty()) else {
            return Ok(false);
        };
        item.found = Some(Found { missing: questions.len(), ..Found::default() });
        self.ask_all_seats(number, questions);
        Ok(true)
    }

    fn ask_all_seats(&mut self, number: u64, questions: Vec<(ShardId, Question)>) {
        for (shard, question) in questions {
            self.ask(shard, question, Purpose::Seats(number));
        }
    }

    /// What is asked for directories that are found below one.
    fn questions_for_seats(
        &mut self,
        (directory, root): (FileId, &Root),
        found: Vec<(&[u8], Attr)>,
    ) -> Outcome<Vec<(ShardId, Question)>> {
        let layout = self.load_own(directory)?.inode.layout;
        let mut new: BTreeMap<ShardId, Vec<NewSeat>> = BTreeMap::new();
        for (name, Attr { mode, uid, gid, .. }) in found {
            let below = Root { path: joined(&root.path, name), ..*root };
            let seat = self.seat_of_path(&below);
            if seat != self.place.shard {
                let directory = NewSeat { name: name.to_vec(), mode, uid, gid };
                new.entry(seat).or_default().push(directory);
            }
        }
        let mut questions = Vec::new();
        for (shard, directories) in new {
            for some in directories.chunks(TIER_SEATS_AT_ONCE) {
                let Root { source, path } = root.clone();
                let directories = some.to_vec();
                let seats = Seats { source, path, parent: directory, layout, directories };
                questions.push((shard, Question::Seats(seats)));
            }
        }
        Ok(questions)
    }

    /// Asks for seats of directories that are outside and have lost theirs; false when there is
    /// none.
    fn ask_for_lost_seats(&mut self, number: u64) -> Outcome<bool> {
        let Some(item) = self.tier.items.get(&number) else { return Ok(false) };
        let (Work::Wanted(Wanted::Look(directory)), Some(Ending::Done { bytes, .. })) =
            (&item.work, &item.told)
        else {
            return Ok(false);
        };
        let Some(found) = item.found.as_ref().filter(|found| !found.gone.is_empty()) else {
            return Ok(false);
        };
        let (directory, gone, bytes) = (*directory, found.gone.clone(), bytes.clone());
        let named = found.seats.clone();
        let Some(root) = self.root_that_deals(directory) else { return Ok(false) };
        let entries = unpacked::<TierEntry<'_>>(&bytes).ok_or(Errno::EPROTO)?;
        let directories = entries.filter(|entry| entry.attr.kind == FileKind::Directory);
        let there: BTreeMap<&[u8], Attr> =
            directories.map(|entry| (entry.name, entry.attr)).collect();
        let here = self.names_here(directory)?;
        let lost =
            here.iter().filter(|(name, id, _)| gone.contains(id) && !named.contains_key(name));
        let lost = lost.filter_map(|(name, ..)| there.get_key_value(name.as_slice()));
        let lost = lost.map(|(name, attr)| (*name, *attr)).collect();
        let questions = self.questions_for_seats((directory, &root), lost)?;
        let Some(item) = self.tier.items.get_mut(&number).filter(|_| !questions.is_empty()) else {
            return Ok(false);
        };
        if let Some(found) = &mut item.found {
            found.missing = questions.len();
        }
        self.ask_all_seats(number, questions);
        Ok(true)
    }

    /// Another node has answered about what a look has found.
    pub(crate) fn seats_answered(&mut self, number: u64, question: &Question, answer: Answer) {
        let Some(item) = self.tier.items.get_mut(&number) else { return };
        let Some(found) = &mut item.found else { return };
        found.missing = found.missing.saturating_sub(1);
        match (question, answer) {
            (Question::Seats(seats), Answer::Seats(ids))
                if ids.len() == seats.directories.len() =>
            {
                let names = seats.directories.iter().map(|directory| directory.name.clone());
                found.seats.extend(names.zip(ids));
            }
            (Question::Unseat(asked) | Question::Seated(asked), Answer::Seats(stay)) => {
                found.gone.extend(asked.iter().filter(|id| !stay.contains(id)));
            }
            (_, Answer::Failed(errno)) => found.failed = Some(errno),
            _ => found.failed = Some(Errno::EIO),
        }
        if found.missing > 0 {
            return;
        }
        if found.failed.is_none() {
            match self.ask_for_lost_seats(number) {
                Ok(true) => return,
                Ok(false) => {}
                Err(fault) => return self.end_item(number, Ending::Failed(fault.errno())),
            }
        }
        let Some(item) = self.tier.items.get_mut(&number) else { return };
        let failed = item.found.as_ref().and_then(|found| found.failed);
        match (failed, item.told.take()) {
            (None, Some(told)) => self.end_item(number, told),
            (errno, _) => self.end_item(number, Ending::Failed(errno.unwrap_or(Errno::EIO))),
        }
    }

    /// Has seats for directories of an origin.
    pub(crate) fn give_seats(&mut self, seats: &Seats) -> Outcome<Answer> {
        if self.tier.sources.get(seats.source as usize).is_none()
            || !seats.layout.is_possible()
            || seats.directories.len() > TIER_SEATS_AT_ONCE
        {
            return Ok(Answer::Failed(Errno::EPROTO));
        }
        self.check_room()?;
        let mut ids = Vec::with_capacity(seats.directories.len());
        for NewSeat { name, mode, uid, gid } in &seats.directories {
            let root = Root { source: seats.source, path: joined(&seats.path, name) };
            let owner = Ownership { mode: *mode, uid: *uid, gid: *gid };
            ids.push(match self.tier.roots.find(&root) {
                Some(id) => self.seat_again(id, seats.parent)?,
                None => self.new_seat(root, seats, (name, owner))?,
            });
        }
        Ok(Answer::Seats(ids))
    }

    /// Those of the directories that are here.
    pub(crate) fn seats_there(&mut self, directories: &[FileId]) -> Answer {
        let is_there =
            |id: &&FileId| self.load_own(**id).is_ok_and(|located| located.inode.links > 0);
        Answer::Seats(directories.iter().filter(is_there).copied().collect())
    }

    /// The directory above is another one now, if that was gone meanwhile.
    fn seat_again(&mut self, id: FileId, parent: FileId) -> Outcome<FileId> {
        let mut located = self.load_own(id)?;
        if located.directory()?.parent != parent {
            located.directory_mut()?.parent = parent;
            self.save(&located)?;
        }
        Ok(id)
    }

    fn new_seat(
        &mut self,
        root: Root,
        seats: &Seats,
        (name, owner): (&[u8], Ownership),
    ) -> Outcome<FileId> {
        let hash = slot_of_cookie(key::cookie(seats.parent, name));
        let slot = self.place.slots.slot_of(self.place.shard, hash).ok_or(Errno::EIO)?;
        let id = self.new_id_in(slot)?;
        self.make_seat(id, owner, &seats.layout, (seats.parent, name))?;
        let mut located = self.load_own(id)?;
        let origin = Origin { source: root.source, ..Origin::default() };
        self.set_origin(&mut located.inode, Some(origin));
        located.inode.residency = Master::default().encode();
        located.inode.unlisted = true;
        self.save(&located)?;
        self.show_root(id, root)?;
        Ok(id)
    }

    /// Directories are gone outside: those that cannot go here.
    pub(crate) fn take_seats_back(&mut self, directories: &[FileId]) -> Outcome<Answer> {
        let here = directories.iter().filter(|id| self.tier.roots.get(**id).is_some());
        let here: Vec<FileId> = here.copied().collect();
        let mut below: BTreeMap<ShardId, Vec<FileId>> = BTreeMap::new();
        for id in &here {
            for (_, inner, kind) in self.names_here(*id)? {
                if kind == FileKind::Directory && !self.is_home(inner) {
                    below.entry(self.place.slots.home(inner)).or_default().push(inner);
                }
            }
        }
        let mut stay = BTreeSet::new();
        for (shard, directories) in below {
            match self.fact(shard, Question::Unseat(directories))? {
                Answer::Seats(ids) => stay.extend(ids),
                answer => return Err(unexpected(&answer)),
            }
        }
        let mut kept = Vec::new();
        for id in here {
            for (name, inner, kind) in self.names_here(id)? {
                if !self.is_home(inner) && !stay.contains(&inner) {
                    self.forget_removed(&(id, name), (inner, kind))?;
                }
            }
            if self.has_dirty_below(id)? || self.keeps_names(id, &stay)? {
                kept.push(id);
                continue;
            }
            self.forget_names_of(id)?;
            let located = self.load_own(id)?;
            self.drop_link(located)?;
        }
        Ok(Answer::Seats(kept))
    }

    fn keeps_names(&mut self, directory: FileId, stay: &BTreeSet<FileId>) -> Outcome<bool> {
        Ok(self.names_here(directory)?.iter().any(|(_, id, _)| stay.contains(id)))
    }
}

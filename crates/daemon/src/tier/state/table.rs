//! Everything that the tier keeps in mind.

use std::collections::{BTreeMap, VecDeque};

use mayfly_meta::record::BirthKey;
use mayfly_object::ObjectId;
use mayfly_types::{
    FileId, SessionId,
    limits::{TIER_KNOWN_MAX, TIER_NOTES_MAX},
};

use super::{
    item::{Item, Work, is_of_lane},
    journal::Journal,
    roots::Roots,
    source::{Note, Source, WriteBack},
    wanted::{At, Wanted},
    xattrs::KnownXattrs,
};
use crate::{
    api::Caller,
    maps::{HashMap, HashSet},
    shard::state::{run::Run, task::Task},
    shards::planted::{Planted, is_planted},
};

/// What is known of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It has no origin.
    Plain,
    /// Its entries were as they are here at that moment, milliseconds.
    At(u64),
}

/// A request that waits until files are flushed.
#[derive(Debug, Default)]
pub(crate) struct Flush {
    /// None: space is short, or a file was closed.
    pub(crate) caller: Option<Caller>,
    pub(crate) last: bool,
    pub(crate) todo: VecDeque<FileId>,
    /// Entries of the journal up to this one are done first.
    pub(crate) upto: Option<u64>,
    /// The items that are being done for it.
    pub(crate) items: Vec<u64>,
    /// Files that have changed outside before all of them was fetched.
    pub(crate) incomplete: Vec<FileId>,
    pub(crate) flushed: u64,
    pub(crate) failed: u64,
    pub(crate) conflicts: u64,
    pub(crate) left: u64,
    /// Who asked is told whether all was flushed, and nothing else.
    pub(crate) is_sync: bool,
}

/// How a file is read that is fetched by chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    /// Where the last read has ended, bytes.
    pub(crate) next: u64,
    /// How many chunks are fetched ahead.
    pub(crate) window: u64,
}

/// Chunks that a change covers as a whole: nobody needs what is outside, and it is not fetched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cover {
    /// Whose change that is.
    pub(crate) caller: Caller,
    pub(crate) first: u64,
    /// Not this one any more.
    pub(crate) end: u64,
}

/// Files of which chunks are here.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    pub(crate) streams: HashMap<FileId, Stream>,
    /// Changes that are under way. What they cover is here when they are done.
    pub(crate) covers: HashMap<FileId, Vec<Cover>>,
    /// Objects that the keeper may be writing chunks to for an earlier daemon. It does what this
    /// one gives of such an object after that.
    pub(crate) earlier: HashSet<ObjectId>,
    /// Reads that are under way, one of a lane at most, and their files. An object is opened by its
    /// name, so it stays until then.
    pub(crate) reads: Vec<(Caller, FileId)>,
    /// What could have gone when space was short was being read or fetched.
    pub(crate) held_up: bool,
    /// Somebody waits until that is done.
    pub(crate) is_awaited: bool,
}

impl Filling {
    pub(crate) fn is_being_read(&self, file: FileId) -> bool {
        self.reads.iter().any(|(_, other)| *other == file)
    }

    /// Whether the chunk is being covered.
    pub(crate) fn covers(&self, file: FileId, chunk: u64) -> bool {
        let covers = self.covers.get(&file).into_iter().flatten();
        covers.into_iter().any(|cover| (cover.first..cover.end).contains(&chunk))
    }
}

/// Which files stay here and which go back, as people have chosen, and what is known for that.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// When dirty files were changed last by a request, milliseconds.
    pub(crate) changed_ms: HashMap<FileId, u64>,
    pub(crate) write_back: WriteBack,
    /// Where the next look for what is due begins.
    pub(crate) due_from: FileId,
    /// Files that stay here, and what finds them.
    pub(crate) pinned: BTreeMap<FileId, BirthKey>,
    /// When files were last read by a request, milliseconds.
    pub(crate) used: HashMap<FileId, u64>,
    /// Until then nothing can go to make room, milliseconds.
    pub(crate) evict_again_ms: u64,
    /// Until then nothing is flushed to make room: it was in vain, milliseconds.
    pub(crate) flush_again_ms: u64,
}

/// What people are told.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) latest: VecDeque<Note>,
    /// Number of the last conflict.
    pub(crate) last_conflict: u64,
}

/// The process that works outside.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    /// Who wants one name of a directory that it looks at for longer than this, milliseconds, does
    /// not wait for the others.
    pub(crate) patience_ms: u64,
    /// Nobody waits for that long already, until then, milliseconds.
    pub(crate) impatient_ms: u64,
    /// Its requests that wait for something to do.
    pub(crate) idle: VecDeque<Caller>,
    /// Sessions that are older than this daemon: one of them may be an earlier keeper.
    pub(crate) earlier: HashSet<SessionId>,
    /// Requests that have waited for what it does, and are not answered yet.
    pub(crate) waited: HashSet<(SessionId, u32)>,
    /// What is not to be handed out yet, since a directory is moved above it or something is done
    /// below one that it moves.
    pub(crate) held: Vec<u64>,
    /// Objects that it may be about to make, since an earlier daemon had it do so. They go when
    /// another keeper is there.
    pub(crate) may_make: HashSet<ObjectId>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) sources: Vec<Source>,
    pub(crate) roots: Roots,
    /// How long what was seen is believed, milliseconds; `None`: for ever.
    pub(crate) valid_ms: Option<u64>,
    /// By number.
    pub(crate) items: BTreeMap<u64, Item>,
    pub(crate) queue: VecDeque<u64>,
    /// What nobody waits for: it is begun when there is nothing else.
    pub(crate) later: VecDeque<u64>,
    pub(crate) keeper: Keeper,
    /// Names of which something is being done.
    pub(crate) busy: HashMap<At, u64>,
    /// Directories that are being looked at.
    pub(crate) looks: HashMap<FileId, u64>,
    /// Items that fetch chunks, by file.
    pub(crate) chunk_items: HashMap<FileId, Vec<u64>>,
    pub(crate) filling: Filling,
    pub(crate) directories: HashMap<FileId, Known>,
    /// When files were last seen, milliseconds.
    pub(crate) files: HashMap<FileId, u64>,
    pub(crate) journal: Journal,
    /// Files that are not written back, and what finds them.
    pub(crate) dirty: BTreeMap<FileId, BirthKey>,
    pub(crate) flushes: Vec<Flush>,
    pub(crate) policy: Policy,
    pub(crate) notes: Notes,
    /// Number of the last item.
    pub(crate) last: u64,
    pub(crate) xattrs: KnownXattrs,
}

impl Table {
    /// Takes in an item; its number.
    pub(crate) fn begin(&mut self, item: Item) -> u64 {
        self.last += 1;
        let number = self.last;
        for at in item.names() {
            self.touch_by(&at, item.changes());
            self.busy.insert(at, number);
        }
        if let Work::Wanted(Wanted::Look(directory)) = item.work {
            self.looks.insert(directory, number);
        }
        if let Work::Wanted(Wanted::Chunks(file, ..)) = item.work {
            self.chunk_items.entry(file).or_default().push(number);
        }
        self.items.insert(number, item);
        self.queue.push_back(number);
        number
    }

    /// Nobody waits for the item so far.
    pub(crate) fn put_off(&mut self, number: u64) {
        self.queue.retain(|other| *other != number);
        self.later.push_back(number);
    }

    /// Somebody does.
    pub(crate) fn hurry(&mut self, number: u64) {
        if let Some(at) = self.later.iter().position(|other| *other == number) {
            self.later.remove(at);
            self.queue.push_back(number);
        }
    }

    /// What is to be begun next.
    pub(crate) fn next(&mut self) -> Option<u64> {
        self.queue.pop_front().or_else(|| self.later.pop_front())
    }

    /// Takes an item out.
    pub(crate) fn end(&mut self, number: u64) -> Option<Item> {
        let item = self.items.remove(&number)?;
        self.queue.retain(|other| *other != number);
        self.later.retain(|other| *other != number);
        self.keeper.held.retain(|other| *other != number);
        self.look_at_held();
        for at in item.names() {
            self.touch_by(&at, item.changes());
            self.busy.remove(&at);
        }
        if let Work::Wanted(Wanted::Look(directory)) = item.work {
            self.looks.remove(&directory);
        }
        if let Work::Wanted(Wanted::Chunks(file, ..)) = item.work
            && let Some(items) = self.chunk_items.get_mut(&file)
        {
            items.retain(|other| *other != number);
            if items.is_empty() {
                self.chunk_items.remove(&file);
            }
        }
        Some(item)
    }

    /// What was not to be handed out may be now.
    pub(crate) fn look_at_held(&mut self) {
        for number in self.keeper.held.drain(..).rev() {
            self.queue.push_front(number);
        }
    }

    /// In which order a move of a directory and what is below it are handed out. What may have been
    /// done before is first: nothing else was handed out since that it has to wait for.
    fn turn(&self, number: u64) -> (bool, bool, u64) {
        let item = self.items.get(&number);
        let is_out = item.is_some_and(|item| item.holder.is_some());
        (!is_out, !item.is_some_and(|item| item.again), number)
    }

    /// What is handed out before this item where one of them moves a directory above the other.
    pub(crate) fn earlier_than(&self, number: u64) -> Vec<u64> {
        let turn = self.turn(number);
        self.items.keys().copied().filter(|other| self.turn(*other) < turn).collect()
    }

    /// Whether a directory of this name is moved before the item is handed out. That is so until
    /// it is known here, too, or whoever may have begun it for an earlier daemon has come again.
    pub(crate) fn is_moved_before(&mut self, at: &At, number: u64) -> bool {
        let Some(item) = self.items.get(&number) else { return false };
        let other = self.busy.get(at).copied().filter(|other| *other != number);
        let other = other.and_then(|other| Some((other, self.items.get(&other)?)));
        let is_before = other.is_some_and(|(other, of)| {
            of.moves() && self.turn(other) < self.turn(number) && !self.passes(item, of)
        });
        if let Some((other, _)) = other.filter(|_| is_before) {
            self.puts_behind(number, other);
            return true;
        }
        let mut lanes = self.journal.lanes_that_change(at);
        lanes.any(|lane| !item.is_of(lane) && !other.is_some_and(|of| of.1.is_of(lane)))
    }

    /// Whether the name was changed for another request than this one, which is not known here yet.
    pub(crate) fn is_changed_by_others(&self, at: &At, task: &Task) -> bool {
        self.journal.lanes_that_change(at).any(|lane| !is_of_lane(task, lane))
    }

    /// Whether an item that changes nothing is handed out before a move that waits for a flush:
    /// that may take long, and nobody has to wait for it who only reads.
    fn passes(&self, item: &Item, moves: &Item) -> bool {
        let behind = moves.behind.and_then(|number| self.items.get(&number));
        let waits = behind.is_some_and(|behind| matches!(behind.work, Work::Flush { .. }));
        let reads = match &item.work {
            Work::Wanted(Wanted::Change(..)) | Work::Flush { .. } => false,
            Work::Wanted(_) => true,
        };
        reads && waits && moves.holder.is_none()
    }

    /// The one is handed out when the other has ended.
    pub(crate) fn puts_behind(&mut self, number: u64, other: u64) {
        if let Some(item) = self.items.get_mut(&number) {
            item.behind = Some(other);
        }
    }

    /// A name changes: a look that is under way does not tell of it.
    pub(crate) fn touch(&mut self, at: &At) {
        self.touch_by(at, true);
    }

    /// The same, or it is looked at itself.
    fn touch_by(&mut self, (directory, name): &At, changes: bool) {
        let look = self.looks.get(directory).and_then(|look| self.items.get_mut(look));
        if let Some(look) = look {
            *look.touched.entry(name.clone()).or_default() |= changes;
        }
    }

    /// A look has found the name. Who looks at it alone, and finds nothing, was there earlier.
    pub(crate) fn is_listed(&mut self, at: &At) {
        let item = self.busy.get(at).and_then(|number| self.items.get_mut(number));
        if let Some(item) = item.filter(|item| !item.changes()) {
            item.rewritten = true;
        }
    }

    /// Whether an item has to be done once more, which has found nothing.
    pub(crate) fn was_listed(&mut self, number: u64) -> bool {
        let item = self.items.get_mut(&number).filter(|item| !item.changes());
        item.is_some_and(|item| std::mem::take(&mut item.rewritten))
    }

    /// What is in the way of this: an item about one of its names.
    pub(crate) fn in_the_way(&self, names: &[At]) -> Option<u64> {
        names.iter().find_map(|at| self.busy.get(at).copied())
    }

    /// Whether something is or will be done about the name outside, or was begun by a request that
    /// comes again. What is seen there meanwhile is not taken over.
    pub(crate) fn is_busy(&self, at: &At) -> bool {
        self.busy.contains_key(at) || self.is_changing(at)
    }

    /// The same, but that it is looked at.
    pub(crate) fn is_changing(&self, at: &At) -> bool {
        let journal = &self.journal;
        let item = self.busy.get(at).and_then(|number| self.items.get(number));
        item.is_some_and(Item::changes)
            || journal.last_of(at).is_some()
            || journal.lanes_that_change(at).next().is_some()
    }

    pub(crate) fn know_directory(&mut self, directory: FileId, known: Known) {
        // What is forgotten is looked at again.
        if self.directories.len() >= TIER_KNOWN_MAX {
            self.directories.clear();
        }
        self.directories.insert(directory, known);
    }

    pub(crate) fn know_file(&mut self, file: FileId, at_ms: u64) {
        if self.files.len() >= TIER_KNOWN_MAX {
            self.files.clear();
        }
        self.files.insert(file, at_ms);
    }

    pub(crate) fn use_file(&mut self, file: FileId, at_ms: u64) {
        if self.policy.used.len() >= TIER_KNOWN_MAX {
            self.policy.used.clear();
        }
        self.policy.used.insert(file, at_ms);
    }

    /// Whether who finds no room has to wait: something may go when it is flushed, or when what is
    /// being done with it is done.
    pub(crate) fn may_have_room_later(&mut self) -> bool {
        self.filling.is_awaited |= self.filling.held_up;
        self.filling.held_up || self.is_making_room()
    }

    /// Whether something is on its way back that may go then.
    pub(crate) fn is_making_room(&self) -> bool {
        self.flushes.iter().any(|flush| flush.caller.is_none())
    }

    /// Whether what was seen then is still believed.
    pub(crate) fn is_valid(&self, seen_ms: u64, now_ms: u64) -> bool {
        if is_planted(Planted::NeverLooksAgain) {
            return true;
        }
        self.valid_ms.is_none_or(|valid_ms| now_ms.saturating_sub(seen_ms) < valid_ms)
    }

    /// Something for people to know.
    pub(crate) fn note(&mut self, note: Note) {
        if let Some(source) = self.sources.get_mut(note.source as usize) {
            match note.errno {
                0 => source.conflicts += 1,
                _ => source.errors += 1,
            }
        }
        if self.notes.latest.len() >= TIER_NOTES_MAX {
            self.notes.latest.pop_front();
        }
        self.notes.latest.push_back(note);
    }

    /// The operations that wait, with what is known of them.
    pub(crate) fn tasks(&mut self) -> impl Iterator<Item = (&Task, &mut Run)> {
        let items = self.items.values_mut();
        let items =
            items.flat_map(|item| item.waiting.iter_mut().map(|(task, run, _)| (&*task, run)));
        items.chain(self.journal.tasks())
    }

    /// An operation is taken out that waits.
    pub(crate) fn take_waiting(&mut self, is_it: impl Fn(&Task, &Run) -> bool) -> Option<Run> {
        let found = self.items.values_mut().find_map(|item| {
            let at = item.waiting.iter().position(|(task, run, _)| is_it(task, run))?;
            Some(item.waiting.remove(at).1)
        });
        found.or_else(|| self.journal.take_waiting(is_it))
    }

    /// A session of the keeper's is gone: what it had is to be done by another.
    pub(crate) fn keeper_ended(&mut self, session: SessionId) {
        self.keeper.idle.retain(|caller| caller.session != session);
        self.keeper.earlier.remove(&session);
        self.keeper.waited.retain(|(of, _)| *of != session);
        for (number, item) in &mut self.items {
            if item.holder == Some(session) && item.told.is_none() {
                (item.holder, item.again) = (None, true);
                item.pieces.clear();
                self.queue.push_back(*number);
            }
        }
    }
}

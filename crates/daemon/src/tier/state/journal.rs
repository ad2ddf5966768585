//! Changes of names that were made here and are not yet made outside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mayfly_meta::record::journal::{Change, Entry};
use mayfly_types::{Errno, FileId, FileKind, SessionId};

use super::{
    order::{Needs, Order, Thing},
    wanted::{At, Wanted},
};
use crate::{
    maps::HashMap,
    shard::state::{run::Run, task::Task},
};

/// The names that a request changes outside.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) request_id: u64,
    pub(crate) names: Vec<At>,
    /// An earlier daemon had that done, perhaps.
    pub(crate) earlier: bool,
}

/// An operation that waits.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) task: Task,
    pub(crate) run: Run,
    pub(crate) wanted: Wanted,
    /// Milliseconds.
    pub(crate) since_ms: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// By number, in the order in which they were made here.
    pub(crate) entries: BTreeMap<u64, Entry>,
    order: Order,
    /// Those that may be begun.
    ready: BTreeSet<u64>,
    /// So many are being done.
    pub(crate) given: usize,
    /// Directories that are moved or removed by entries: where they are before each.
    places: HashMap<FileId, VecDeque<(u64, At)>>,
    /// Files and directories that are not there outside yet, and which entries make them.
    made: HashMap<FileId, u64>,
    /// Operations that wait for the end of an entry.
    parked: BTreeMap<u64, Vec<Parked>>,
    /// Those that wait until there is room for one more.
    pub(crate) no_room: VecDeque<Parked>,
    /// What has failed, and was not told to anybody who used the name.
    untold: HashMap<At, Errno>,
    pub(crate) failed: BTreeSet<u64>,
    /// Number of the last entry.
    pub(crate) last: u64,
    /// Changes that are made outside first for requests, or were by an earlier daemon for requests
    /// that come again, by session and lane. Until they are made here, too, what is seen outside of
    /// these names is not taken over.
    pub(crate) begun: HashMap<(SessionId, u32), Changes>,
}

/// The names that an entry is about.
pub(crate) fn names_of(entry: &Entry) -> Vec<At> {
    match &entry.change {
        Change::Rename { to, .. } => vec![entry.at.clone(), to.clone()],
        _ => vec![entry.at.clone()],
    }
}

fn makes(change: &Change) -> bool {
    matches!(change, Change::Create { .. } | Change::MakeDirectory { .. } | Change::Symlink { .. })
}

/// Whether the keeper has certainly not done it: it was not asked to, or has said why it could not.
fn was_not_done(entry: &Entry) -> bool {
    !entry.begun
        || !matches!(entry.failed, None | Some(Errno::EIO | Errno::ETIMEDOUT | Errno::ESTALE))
}

fn needs_of(entry: &Entry) -> Needs {
    let mut alone: Vec<Thing> = names_of(entry).into_iter().map(Thing::Name).collect();
    if entry.kind == FileKind::Directory {
        alone.push(Thing::Directory(entry.file));
    }
    if entry.replaced != FileId::NONE {
        alone.push(Thing::Directory(entry.replaced));
    }
    let mut shared: Vec<Thing> = entry.above.iter().copied().map(Thing::Directory).collect();
    // Attributes of the directory that shows the origin.
    shared.retain(|thing| !alone.contains(thing));
    Needs { alone, shared }
}

impl Journal {
    /// Takes in an entry. If one for which it waits has failed: why.
    pub(crate) fn add(&mut self, number: u64, entry: Entry) -> Option<Errno> {
        let before = self.order.add(number, needs_of(&entry));
        let failed = before.iter().find_map(|earlier| self.entries.get(earlier)?.failed);
        if before.is_empty() {
            self.ready.insert(number);
        }
        let at = entry.at.clone();
        if entry.kind == FileKind::Directory {
            match &entry.change {
                Change::Rename { .. } | Change::RemoveDirectory => {
                    self.places.entry(entry.file).or_default().push_back((number, at));
                }
                _ => {}
            }
        }
        if makes(&entry.change) {
            self.made.insert(entry.file, number);
        }
        if let (true, Change::Rename { to, .. }) = (entry.replaced != FileId::NONE, &entry.change) {
            self.places.entry(entry.replaced).or_default().push_back((number, to.clone()));
        }
        if let Some(errno) = entry.failed {
            self.ready.remove(&number);
            self.failed.insert(number);
            self.untold.extend(names_of(&entry).pop().map(|at| (at, errno)));
        }
        self.entries.insert(number, entry);
        self.last = self.last.max(number);
        failed
    }

    /// An entry is done, or is not to be done: it goes, and who waits for it goes on.
    pub(crate) fn end(&mut self, number: u64) -> Vec<Parked> {
        let Some(entry) = self.entries.remove(&number) else { return Vec::new() };
        self.ready.remove(&number);
        self.failed.remove(&number);
        for id in [entry.file, entry.replaced] {
            if let Some(places) = self.places.get_mut(&id) {
                places.retain(|(of, _)| *of != number);
                if places.is_empty() {
                    self.places.remove(&id);
                }
            }
            if self.made.get(&id) == Some(&number) {
                self.made.remove(&id);
            }
        }
        for later in self.order.done(number) {
            if self.entries.get(&later).is_some_and(|entry| entry.failed.is_none()) {
                self.ready.insert(later);
            }
        }
        let mut waiting = self.take_parked(number);
        waiting.extend(self.no_room.pop_front());
        waiting
    }

    fn take_parked(&mut self, number: u64) -> Vec<Parked> {
        self.parked.remove(&number).unwrap_or_default()
    }

    /// An entry cannot be done: it, and all that wait for it, with who waits for them.
    pub(crate) fn fail(&mut self, number: u64, errno: Errno) -> (Vec<u64>, Vec<Parked>) {
        let mut all = self.order.all_behind(number);
        all.insert(number);
        let mut waiting = Vec::new();
        let mut failed = Vec::new();
        for number in all {
            self.ready.remove(&number);
            waiting.append(&mut self.take_parked(number));
            let Some(entry) = self.entries.get_mut(&number) else { continue };
            if entry.failed.is_none() {
                entry.failed = Some(errno);
                self.failed.insert(number);
                failed.push(number);
                let told = names_of(entry).pop();
                self.untold.extend(told.map(|at| (at, errno)));
            }
        }
        // They find out whether there will be room.
        waiting.extend(self.no_room.drain(..));
        (failed, waiting)
    }

    /// What has failed is tried again; which entries.
    pub(crate) fn retry(&mut self) -> BTreeSet<u64> {
        let all = std::mem::take(&mut self.failed);
        self.untold.clear();
        for number in &all {
            let Some(entry) = self.entries.get_mut(number) else { continue };
            entry.failed = None;
            if self.order.is_free(*number) {
                self.ready.insert(*number);
            }
        }
        all
    }

    /// The next one that may be begun behind this one.
    pub(crate) fn next_ready(&self, behind: u64) -> Option<u64> {
        self.ready.range(behind + 1..).next().copied()
    }

    /// It is begun.
    pub(crate) fn take_ready(&mut self, number: u64) {
        self.ready.remove(&number);
        self.given += 1;
    }

    /// The last entry about a name.
    pub(crate) fn last_of(&self, at: &At) -> Option<u64> {
        if self.entries.is_empty() {
            return None;
        }
        self.order.last(&Thing::Name(at.clone()))
    }

    /// The last entry about a directory, or about something below it.
    pub(crate) fn last_below(&self, directory: FileId) -> Option<u64> {
        self.order.last(&Thing::Directory(directory))
    }

    /// The entry that makes a file or directory, if it is not there yet.
    pub(crate) fn makes(&self, id: FileId) -> Option<u64> {
        self.made.get(&id).copied()
    }

    /// What need not be done outside, with this entry, since it removes what was made here and
    /// never there: the entry that makes it, and those that change its attributes.
    pub(crate) fn in_vain(&self, entry: &Entry) -> Option<Vec<u64>> {
        if !matches!(entry.change, Change::Remove | Change::RemoveDirectory) {
            return None;
        }
        let number = self.makes(entry.file)?;
        let made = self.entries.get(&number)?;
        if made.at != entry.at || !was_not_done(made) {
            return None;
        }
        let mut all = vec![number];
        for later in self.order.all_behind(number) {
            let of = self.entries.get(&later)?;
            if of.file == entry.file {
                let sets = matches!(of.change, Change::SetAttr { .. });
                if !sets || !was_not_done(of) {
                    return None;
                }
                all.push(later);
            } else if of.above.contains(&entry.file) || names_of(of).contains(&entry.at) {
                return None;
            }
        }
        Some(all)
    }

    /// Under which name a directory is outside, if that is another one than here.
    pub(crate) fn place_of(&self, directory: FileId) -> Option<&At> {
        self.places.get(&directory)?.front().map(|(_, at)| at)
    }

    /// Whose requests have begun to change the name outside.
    pub(crate) fn lanes_that_change(&self, at: &At) -> impl Iterator<Item = (SessionId, u32)> {
        let begun = self.begun.iter().filter(move |(_, begun)| begun.names.contains(at));
        begun.map(|(lane, _)| *lane)
    }

    pub(crate) fn errno_of(&self, number: u64) -> Option<Errno> {
        self.entries.get(&number)?.failed
    }

    /// The operation goes on when the entry ends.
    pub(crate) fn park(&mut self, number: u64, waits: Parked) {
        self.parked.entry(number).or_default().push(waits);
    }

    /// Why the last change of the name failed, unless somebody was told.
    pub(crate) fn take_untold(&mut self, directory: FileId, name: &[u8]) -> Option<Errno> {
        if self.untold.is_empty() {
            return None;
        }
        self.untold.remove(&(directory, name.to_vec()))
    }

    /// The first entry that may still be done.
    pub(crate) fn first_to_do(&self) -> Option<u64> {
        if self.entries.len() == self.failed.len() {
            return None;
        }
        self.entries.keys().copied().find(|number| !self.failed.contains(number))
    }

    /// The operations that wait.
    pub(crate) fn tasks(&mut self) -> impl Iterator<Item = (&Task, &mut Run)> {
        let parked = self.parked.values_mut().flatten().chain(&mut self.no_room);
        parked.map(|of| (&of.task, &mut of.run))
    }

    /// Those that have waited since then or before.
    pub(crate) fn take_late(&mut self, since_ms: u64) -> Vec<Parked> {
        let is_late = |of: &mut Parked| of.since_ms <= since_ms;
        let parked = self.parked.values_mut();
        let mut late: Vec<Parked> = parked.flat_map(|of| of.extract_if(.., is_late)).collect();
        while self.no_room.front_mut().is_some_and(is_late) {
            late.extend(self.no_room.pop_front());
        }
        late
    }

    /// An operation is taken out that waits.
    pub(crate) fn take_waiting(&mut self, is_it: impl Fn(&Task, &Run) -> bool) -> Option<Run> {
        let found = |waits: &Parked| is_it(&waits.task, &waits.run);
        if let Some(at) = self.no_room.iter().position(found) {
            return self.no_room.remove(at).map(|of| of.run);
        }
        self.parked.values_mut().find_map(|waiting| {
            let at = waiting.iter().position(found)?;
            Some(waiting.swap_remove(at).run)
        })
    }
}

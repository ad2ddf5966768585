//! Changes of names that are made outside later, in order: the *journal*.
//!
//! With `names_async` an operation does not wait for the keeper. It changes the records here, and
//! the same transaction writes an entry of the journal that says what is to be done outside. The
//! keeper is given entries in an order of which each part is what programs could have done
//! ([`crate::tier::state::order`]); those that have nothing in common are done at the same time.
//!
//! - A name with an entry is not asked for outside, and what is seen there is not news. A directory
//!   that an entry makes has no names that are not here.
//! - Where a directory is outside follows from the entries that move it ([`Journal::place_of`]).
//!   Nothing below it is under way while it moves.
//! - Bytes of a file are fetched and written back when the entries of its name are done.
//! - Before the keeper hears of an entry, that is noted. After a death the entry is given again as
//!   one that may have been done.
//! - What was made here and is removed before the keeper has heard of it is never done.
//! - What fails stays, with all that waits for it: here nothing is taken back. The next call on the
//!   name is told why, once, and the next flush tries again.
//! - What takes several shards, or is too deep, is made outside first, as without the journal.
//!
//! [`Journal::place_of`]: crate::tier::state::journal::Journal::place_of

use mayfly_meta::{
    key,
    record::{
        Origin,
        journal::{Change, Entry},
    },
};
use mayfly_types::{
    Errno, FileId, FileKind, Timestamp,
    limits::{
        TIER_ITEM_SECONDS, TIER_ITEMS_MAX, TIER_JOURNAL_AT_ONCE, TIER_JOURNAL_DEPTH_MAX,
        TIER_JOURNAL_MAX, TIER_NOTES_MAX,
    },
};
use mayfly_wire::{SET_ATIME, SET_ATIME_NOW, SET_MTIME, SET_MTIME_NOW, tier::NO_ATTR};

use crate::{
    fault::{Fault, Outcome},
    log,
    namespace::state::inode::Located,
    shard::{
        OpenError, Shard,
        state::{run::Run, task::Task},
    },
    tier::{
        gates::master_of,
        items::Ending,
        state::{
            item::{Item, Work},
            journal::{Parked, names_of},
            source::Note,
            wanted::{At, Journaled, Seen, Wanted},
        },
    },
};

/// What a name stands for.
type Found = (FileId, FileKind);

/// The present instead of "now".
fn with_times(change: &Change, now: Timestamp) -> Change {
    let mut change = change.clone();
    if let Change::SetAttr { which, atime, mtime, .. } = &mut change {
        for (set, to_now, time) in
            [(SET_ATIME, SET_ATIME_NOW, atime), (SET_MTIME, SET_MTIME_NOW, mtime)]
        {
            if *which & to_now != 0 {
                *which = *which & !to_now | set;
                *time = now;
            }
        }
    }
    change
}

fn key_of(number: u64) -> [u8; 9] {
    key::numbered(key::JOURNAL, FileId(number))
}

impl Shard {
    /// Whether the change is made outside later. The operation changes the records then, and its
    /// end notes the entry: [`Shard::journal_change`].
    pub(crate) fn change_later(
        &mut self,
        source: u32,
        (at, file): (&At, Option<Found>),
        change: &Change,
    ) -> Outcome<Option<Seen>> {
        let of = self.tier.sources.get(source as usize);
        if !of.is_some_and(|of| of.names_async) || self.run.outside.through {
            return Ok(None);
        }
        if self.tier.journal.entries.len() >= TIER_JOURNAL_MAX {
            let wanted = Wanted::Journal(Journaled::Room);
            return match self.was_done(&wanted) {
                Some(Err(errno)) => Err(errno.into()),
                _ => Err(Fault::Outside(Box::new(wanted))),
            };
        }
        let (file, kind) = match (change, file) {
            (_, Some(found)) => found,
            (Change::Create { .. }, _) => (FileId::NONE, FileKind::Regular),
            (Change::MakeDirectory { .. }, _) => (FileId::NONE, FileKind::Directory),
            (Change::Symlink { .. }, _) => (FileId::NONE, FileKind::Symlink),
            _ => self.lookup_here(at)?.ok_or(Errno::ENOENT)?,
        };
        let mut replaced = FileId::NONE;
        if let Change::Rename { to, .. } = change
            && let Some((id, FileKind::Directory)) = self.lookup_here(to)?
        {
            if !self.is_empty(id)? {
                return Err(Errno::ENOTEMPTY.into());
            }
            replaced = id;
        }
        let mut above = self.directories_above(at.0)?;
        if let Change::Rename { to, .. } = change {
            above.extend(self.directories_above(to.0)?);
            above.sort_unstable();
            above.dedup();
        }
        if above.len() > TIER_JOURNAL_DEPTH_MAX {
            return Ok(None);
        }
        let (at, change) = (at.clone(), with_times(change, self.clock.now()));
        let (begun, failed) = (false, None);
        let entry = Entry { begun, failed, source, file, kind, replaced, above, at, change };
        self.run.outside.entry = Some(Box::new(entry));
        Ok(Some(Seen { attr: NO_ATTR, same: false, at_ms: self.elapsed_ms() }))
    }

    /// A directory of an origin, and those above it up to one whose path outside is known for good.
    fn directories_above(&mut self, mut directory: FileId) -> Outcome<Vec<FileId>> {
        let mut above = vec![directory];
        while self.tier.roots.get(directory).is_none()
            && directory != FileId::ROOT
            && above.len() <= TIER_JOURNAL_DEPTH_MAX
        {
            directory = self.load_own(directory)?.directory()?.parent;
            above.push(directory);
        }
        Ok(above)
    }

    /// An operation has changed the records: what is to be done outside is noted with that.
    pub(crate) fn journal_change(&mut self) {
        let Some(entry) = self.run.outside.entry.take() else { return };
        if let Err(fault) = self.add_entry(*entry) {
            // A store that has failed fails the commit, with all that it was to keep.
            log::error("tier", format_args!("a change of names is not noted: {}", fault.errno()));
        }
        self.hand_out_items();
    }

    fn add_entry(&mut self, mut entry: Entry) -> Outcome<()> {
        if entry.file == FileId::NONE {
            entry.file = self.lookup_here(&entry.at)?.ok_or(Errno::EIO)?.0;
        }
        if let Some(in_vain) = self.tier.journal.in_vain(&entry) {
            for at in names_of(&entry) {
                self.tier.touch(&at);
            }
            return in_vain.into_iter().try_for_each(|number| self.drop_entry(number));
        }
        let number = self.tier.journal.last + 1;
        self.store.put(&key_of(number), &entry.encode())?;
        for at in names_of(&entry) {
            self.tier.touch(&at);
        }
        if let Some(errno) = self.tier.journal.add(number, entry) {
            self.fail_entry(number, errno)?;
            self.note_entry(number, errno);
        }
        self.show_dirty();
        Ok(())
    }

    /// What was not made outside when the last daemon died.
    pub(crate) fn take_up_journal(&mut self) -> Result<(), OpenError> {
        for (number, record) in self.marks(key::JOURNAL)? {
            let entry = Entry::decode(&record)?;
            let failed = entry.failed;
            self.tier.journal.add(number.0, entry);
            if let Some(errno) = failed {
                self.note_entry(number.0, errno);
            }
        }
        self.show_dirty();
        Ok(())
    }

    /// Gives entries to the keeper, as many as may be done now.
    pub(crate) fn begin_entries(&mut self) {
        let mut behind = 0;
        while self.tier.journal.given < TIER_JOURNAL_AT_ONCE
            && self.tier.items.len() < TIER_ITEMS_MAX
            && let Some(number) = self.tier.journal.next_ready(behind)
        {
            behind = number;
            let Some(entry) = self.tier.journal.entries.get_mut(&number) else { continue };
            let names = names_of(entry);
            let is_busy = names.iter().any(|at| self.tier.busy.contains_key(at));
            if is_busy {
                continue;
            }
            // Others may make a directory meanwhile: what is in both is in one.
            let again = entry.begun || matches!(entry.change, Change::MakeDirectory { .. });
            let was_begun = std::mem::replace(&mut entry.begun, true);
            let wanted = Wanted::Change(entry.at.clone(), entry.change.clone());
            let record = entry.encode();
            if !was_begun && let Err(error) = self.store.put(&key_of(number), &record) {
                crate::fault::store_failed(&error);
                return;
            }
            let mut item = Item::new(Work::Wanted(wanted), self.elapsed_ms());
            (item.entry, item.again) = (Some(number), again);
            self.tier.journal.take_ready(number);
            self.tier.begin(item);
        }
    }

    /// The keeper has made a change, or could not.
    pub(crate) fn end_entry(&mut self, number: u64, item: Item, told: Ending) {
        self.tier.journal.given = self.tier.journal.given.saturating_sub(1);
        for (task, run, _) in item.waiting {
            self.run_later(task, run);
        }
        let removes = matches!(
            item.work,
            Work::Wanted(Wanted::Change(_, Change::Remove | Change::RemoveDirectory))
        );
        let ended = match told {
            Ending::Done { seen, .. } => self.entry_done(number, Some(seen)),
            // Others have removed it.
            Ending::Failed(Errno::ENOENT) if removes => self.entry_done(number, None),
            Ending::Failed(errno) => self.entry_failed(number, errno),
            Ending::Conflict { .. } => self.entry_failed(number, Errno::EPROTO),
        };
        if let Err(fault) = ended {
            log::error("tier", format_args!("the end of a change is lost: {}", fault.errno()));
        }
        self.go_on_flushing();
        self.hand_out_items();
    }

    fn entry_done(&mut self, number: u64, seen: Option<Seen>) -> Outcome<()> {
        if let Some(entry) = self.tier.journal.entries.get(&number).cloned()
            && let Some(seen) = seen
        {
            self.know_entry(&entry, seen)?;
        }
        self.drop_entry(number)
    }

    /// An entry is over.
    fn drop_entry(&mut self, number: u64) -> Outcome<()> {
        self.store.delete(&key_of(number))?;
        let waiting = self.tier.journal.end(number);
        self.go_on_with(waiting);
        self.show_dirty();
        Ok(())
    }

    fn go_on_with(&mut self, waiting: Vec<Parked>) {
        for Parked { task, run, .. } in waiting {
            self.run_later(task, run);
        }
    }

    /// What the keeper has made is known as it is outside now.
    fn know_entry(&mut self, entry: &Entry, seen: Seen) -> Outcome<()> {
        let at = match &entry.change {
            Change::Rename { to, .. } => to,
            _ => &entry.at,
        };
        // It may be gone here.
        let Ok(mut located) = self.load_cached(entry.file, at) else { return Ok(()) };
        if located.inode.links == 0 || located.inode.origin.is_none() {
            return Ok(());
        }
        match entry.change {
            Change::Create { .. } | Change::Symlink { .. } => {
                self.know_made(&mut located, seen)?;
            }
            Change::MakeDirectory { .. } => {
                // Its names are those that were made here. Others may have made some meanwhile,
                // which are seen when this is over.
                let at_ms = self.elapsed_ms();
                self.saw(&mut located.inode, at_ms);
                self.saw_names(&mut located.inode, at_ms);
            }
            Change::Rename { .. }
            | Change::SetAttr { .. }
            | Change::SetXattr { .. }
            | Change::RemoveXattr { .. } => {
                self.know_stamp(&mut located, seen)?;
            }
            Change::Remove | Change::RemoveDirectory => return Ok(()),
        }
        self.save(&located)
    }

    fn know_made(&mut self, located: &mut Located, seen: Seen) -> Outcome<()> {
        let inode = &mut located.inode;
        let Some(origin) = inode.origin else { return Ok(()) };
        let (mtime, size_bytes) = (seen.attr.mtime, seen.attr.size_bytes);
        let master = master_of(inode)?;
        self.set_origin(inode, Some(Origin { mtime, size_bytes, ..origin }));
        inode.residency = master.seen(seen.attr.ctime).encode();
        self.saw(inode, seen.at_ms);
        Ok(())
    }

    /// The keeper could not make a change.
    fn entry_failed(&mut self, number: u64, errno: Errno) -> Outcome<()> {
        let count = self.fail_entry(number, errno)?;
        let path = self.note_entry(number, errno);
        log::warn(
            "tier",
            format_args!(
                "{} cannot be changed at its origin: {errno}; with it {count} changes wait for \
                 `mayfly tier flush`",
                String::from_utf8_lossy(&path),
            ),
        );
        Ok(())
    }

    /// An entry cannot be done, nor what waits for it; how many that are.
    fn fail_entry(&mut self, number: u64, errno: Errno) -> Outcome<usize> {
        let (failed, waiting) = self.tier.journal.fail(number, errno);
        self.go_on_with(waiting);
        for other in failed.iter().copied().filter(|other| *other != number).take(TIER_NOTES_MAX) {
            self.note_entry(other, errno);
        }
        for number in &failed {
            let Some(entry) = self.tier.journal.entries.get(number) else { continue };
            let (record, at) = (entry.encode(), names_of(entry).pop());
            self.store.put(&key_of(*number), &record)?;
            if let Some(at) = at {
                self.distrust(&at)?;
            }
        }
        Ok(failed.len())
    }

    /// For people; the path outside.
    fn note_entry(&mut self, number: u64, errno: Errno) -> Vec<u8> {
        let Some(entry) = self.tier.journal.entries.get(&number) else { return Vec::new() };
        let (source, at) = (entry.source, entry.at.clone());
        let path = self.path_at_origin(&at).map_or_else(|_| at.1, |(_, path)| path);
        let errno = errno.raw() as u32;
        self.tier.note(Note { source, errno, path: path.clone(), copy: Vec::new() });
        path
    }

    /// Whoever uses the name asks: there is something to be told.
    fn distrust(&mut self, at: &At) -> Outcome<()> {
        if let Some((id, _)) = self.lookup_here(at)?
            && let Ok(mut located) = self.load_cached(id, at)
            && let Some(origin) = &mut located.inode.origin
        {
            origin.seen.until = 0;
            self.save(&located)?;
        }
        if self.load_own(at.0).is_ok() { self.distrust_names(at.0) } else { Ok(()) }
    }

    /// All is done outside that is to be done in the directory, and below it.
    pub(crate) fn names_are_written(&mut self, directory: FileId) -> Outcome<()> {
        if self.tier.journal.last_below(directory).is_none() {
            return Ok(());
        }
        let wanted = Wanted::Journal(Journaled::Below(directory));
        match self.was_done(&wanted) {
            Some(Err(errno)) => Err(errno.into()),
            _ => Err(Fault::Outside(Box::new(wanted))),
        }
    }

    /// Who has waited for too long is told so.
    pub(crate) fn end_late_parked(&mut self) {
        let limit_ms = TIER_ITEM_SECONDS * 1000;
        let Some(since_ms) = self.elapsed_ms().checked_sub(limit_ms) else { return };
        for Parked { task, mut run, wanted, .. } in self.tier.journal.take_late(since_ms) {
            run.outside.done.push((wanted, Err(Errno::ETIMEDOUT)));
            self.run_later(task, run);
        }
    }

    /// The last change of the name could not be made outside, and nobody was told.
    pub(crate) fn tell_of_failure(&mut self, directory: FileId, name: &[u8]) -> Outcome<()> {
        match self.tier.journal.take_untold(directory, name) {
            Some(errno) => Err(errno.into()),
            None => Ok(()),
        }
    }

    /// What has failed is tried again.
    pub(crate) fn retry_entries(&mut self) -> Outcome<()> {
        for number in self.tier.journal.retry() {
            if let Some(entry) = self.tier.journal.entries.get(&number) {
                let record = entry.encode();
                self.store.put(&key_of(number), &record)?;
            }
        }
        Ok(())
    }

    /// An operation wants something that the journal has in its way: it waits, unless that has
    /// failed. What is not in the way comes back.
    pub(crate) fn wait_for_journal(
        &mut self,
        (task, run): (Task, Run),
        wanted: &Wanted,
    ) -> Result<Option<(Task, Run)>, Errno> {
        let (journal, since_ms) = (&self.tier.journal, self.elapsed_ms());
        let parked = |task, run| Parked { task, run, wanted: wanted.clone(), since_ms };
        let entry = match wanted {
            Wanted::Look(directory) => journal.makes(*directory),
            Wanted::Journal(Journaled::Below(directory)) => journal.last_below(*directory),
            Wanted::Journal(Journaled::Room) if journal.entries.len() < TIER_JOURNAL_MAX => None,
            Wanted::Journal(Journaled::Room) => {
                if journal.first_to_do().is_none() {
                    let first = journal.failed.first();
                    let why = first.and_then(|number| journal.errno_of(*number));
                    return Err(why.unwrap_or(Errno::EAGAIN));
                }
                self.tier.journal.no_room.push_back(parked(task, run));
                return Ok(None);
            }
            Wanted::Change(at, Change::Rename { to, .. }) => {
                journal.last_of(at).max(journal.last_of(to))
            }
            other => other.at().and_then(|at| journal.last_of(at)),
        };
        match entry {
            Some(entry) => {
                if let Some(errno) = journal.errno_of(entry) {
                    return Err(errno);
                }
                self.tier.journal.park(entry, parked(task, run));
                self.hand_out_items();
                Ok(None)
            }
            None if matches!(wanted, Wanted::Journal(_)) => {
                self.run_later(task, run);
                Ok(None)
            }
            None => Ok(Some((task, run))),
        }
    }
}

//! One name that is looked at by itself.
//!
//! All names of a directory are looked at when the first of them is wanted. In a large one that
//! takes long, and who wants one name need not wait for the others: once a look has taken a while,
//! each name that is wanted is looked at alone until it has ended. Such a name is here from then on
//! like one that was listed, and the directory's names are still not known. Where seats are dealt
//! out, a directory gets its own with the others of a listing, and waits for that.

use mayfly_types::{Errno, FileId, FileKind};
use mayfly_wire::tier::{NO_ATTR, TierEntry};

use crate::{
    fault::{Fault, Outcome},
    shard::{
        Shard,
        state::{run::Run, task::Task},
    },
    tier::{
        items::{End, Ending},
        seen::{Entry, dress, is_shown},
        state::{
            item::Item,
            wanted::{At, Seen, Wanted},
        },
    },
};

impl Shard {
    /// Who wants one name of a directory that the keeper looks at for longer than this does not
    /// wait for the others. Otherwise it is [`mayfly_types::limits::TIER_LONG_LOOK_MS`].
    pub fn look_alone_after(&mut self, patience_ms: u64) {
        self.tier.keeper.patience_ms = patience_ms;
    }

    /// The name of the directory is what it was outside lately, if it was there at all.
    pub(crate) fn name_at_hand(&mut self, directory: FileId, name: &[u8]) -> Outcome<()> {
        let Err(fault) = self.names_at_hand(directory) else { return Ok(()) };
        let is_look = |wanted: &Wanted| *wanted == Wanted::Look(directory);
        if !matches!(&fault, Fault::Outside(wanted) if is_look(wanted)) {
            return Err(fault);
        }
        let at = (directory, name.to_vec());
        if self.tier.journal.last_of(&at).is_some() {
            return Ok(());
        }
        let found = self.lookup_here(&at)?;
        let wanted = Wanted::Name(at);
        match self.was_done(&wanted) {
            None if !self.is_alone_in(directory) => {
                self.run.outside.one_of = Some(directory);
                Err(fault)
            }
            None if found.is_some_and(|(id, _)| self.was_seen_lately(id)) => Ok(()),
            None => Err(Fault::Outside(Box::new(wanted))),
            Some(Ok(seen)) if found.is_none() && seen.attr.kind == FileKind::Directory => {
                Err(fault)
            }
            // What is being done about it by others is not known here yet.
            Some(Ok(_) | Err(Errno::ENOENT)) => Ok(()),
            Some(Err(errno)) => Err(errno.into()),
        }
    }

    /// Whether the keeper looks at the directory for a while already, or this has waited for that.
    fn is_alone_in(&self, directory: FileId) -> bool {
        let look = self.tier.looks.get(&directory).and_then(|look| self.tier.items.get(look));
        let takes_long = look.is_some_and(|look| self.is_long(look));
        takes_long || self.run.outside.alone_in == Some(directory)
    }

    fn is_long(&self, look: &Item) -> bool {
        let since_ms = self.elapsed_ms().saturating_sub(look.since_ms);
        look.holder.is_some() && since_ms >= self.tier.keeper.patience_ms
    }

    /// Waits for the keeper that are too long end in time.
    pub(crate) fn end_long_waits(&mut self) {
        if !self.tier.items.is_empty() {
            self.end_late_items();
            self.look_at_names_alone();
        }
    }

    /// Who has waited for a look for long, and wants one name, has it looked at alone.
    fn look_at_names_alone(&mut self) {
        let (now_ms, keeper) = (self.elapsed_ms(), &mut self.tier.keeper);
        if now_ms < keeper.impatient_ms {
            return;
        }
        keeper.impatient_ms = now_ms + keeper.patience_ms / 4;
        let looks: Vec<(FileId, u64)> =
            self.tier.looks.iter().map(|(directory, number)| (*directory, *number)).collect();
        for (directory, number) in looks {
            if !self.tier.items.get(&number).is_some_and(|look| self.is_long(look)) {
                continue;
            }
            let Some(look) = self.tier.items.get_mut(&number) else { continue };
            let wants_one = |run: &Run| run.outside.one_of == Some(directory);
            let waiting = std::mem::take(&mut look.waiting).into_iter();
            let (alone, others) = waiting.partition(|(_, run, _)| wants_one(run));
            look.waiting = others;
            let alone: Vec<(Task, Run, bool)> = alone;
            for (task, mut run, _) in alone {
                run.outside.alone_in = Some(directory);
                self.run_later(task, run);
            }
        }
    }

    /// A name was looked at that may not be here.
    pub(crate) fn named(&mut self, at: &At, item: &Item, told: Ending) -> Outcome<End> {
        let unchanged = Ok(End::Seen(Seen { attr: NO_ATTR, same: true, at_ms: item.since_ms }));
        let (seen, bytes) = match told {
            Ending::Conflict { .. } => return Err(Errno::EPROTO.into()),
            Ending::Done { seen, bytes } => (Some(seen), bytes),
            Ending::Failed(Errno::ENOENT | Errno::ENOTDIR) => (None, Vec::new()),
            Ending::Failed(errno) => return Err(errno.into()),
        };
        // Something else is being done about it.
        if self.is_changing(at.0, &at.1) {
            return unchanged;
        }
        let entry = seen.map(|seen| TierEntry { name: &at.1, attr: seen.attr, target: &bytes });
        let seen = seen.filter(|_| entry.is_some_and(|entry| is_shown(&entry)));
        let found = self.lookup_here(at)?;
        let Some(seen) = seen else {
            // Where a directory is gone, others may have a part of it: a listing has them asked.
            if let Some(found) = found.filter(|found| found.1 != FileKind::Directory) {
                self.with_its_times(at.0, |shard| shard.forget_removed(at, found))?;
                self.tier.touch(at);
            }
            return match self.lookup_here(at)? {
                // What is dirty is here until it is flushed.
                Some(_) => unchanged,
                None => Err(Errno::ENOENT.into()),
            };
        };
        let entry = Entry { attr: &seen.attr, target: &bytes, at_ms: seen.at_ms };
        match found {
            Some((id, FileKind::Directory))
                if !self.is_home(id) || seen.attr.kind != FileKind::Directory => {}
            Some(found) => self.with_its_times(at.0, |shard| shard.seen_again(at, found, entry))?,
            None if seen.attr.kind == FileKind::Directory && self.deals_seats(at.0) => {}
            None => {
                let source = self.load_own(at.0)?.inode.origin.ok_or(Errno::EIO)?.source;
                self.with_its_times(at.0, |shard| shard.take_over_one(at, source, entry))?;
                self.tier.touch(at);
            }
        }
        Ok(End::Seen(seen))
    }

    /// Names of the directory change as they have outside: its times stay those that it has there.
    fn with_its_times(
        &mut self,
        directory: FileId,
        change: impl FnOnce(&mut Shard) -> Outcome<()>,
    ) -> Outcome<()> {
        let before = self.load_own(directory)?.inode;
        change(self)?;
        let mut located = self.load_own(directory)?;
        (located.inode.mtime, located.inode.ctime) = (before.mtime, before.ctime);
        self.save(&located)
    }

    /// The attributes of one name were looked at.
    pub(crate) fn checked(
        &mut self,
        file: FileId,
        at: &At,
        item: &Item,
        told: Ending,
    ) -> Outcome<End> {
        let root = at.1.is_empty();
        let found = if root || self.tier.is_busy(at) { None } else { self.lookup_here(at)? };
        match told {
            Ending::Conflict { .. } => Err(Errno::EPROTO.into()),
            Ending::Failed(Errno::ENOENT | Errno::ENOTDIR) if !root => {
                if let Some(found) = found.filter(|found| found.0 == file) {
                    self.forget_removed(at, found)?;
                    self.tier.touch(at);
                }
                // There may be more that is gone.
                self.distrust_names(at.0)?;
                match self.lookup_here(at)? {
                    // It is dirty, or is being changed: it is here until that is over.
                    Some(_) => {
                        Ok(End::Seen(Seen { attr: NO_ATTR, same: false, at_ms: item.since_ms }))
                    }
                    None => Err(Errno::ENOENT.into()),
                }
            }
            Ending::Failed(errno) => Err(errno.into()),
            Ending::Done { seen, bytes } => {
                if root {
                    let mut located = self.load_own(file)?;
                    dress(&mut located.inode, &seen.attr);
                    self.saw(&mut located.inode, seen.at_ms);
                    self.save(&located)?;
                } else if let Some(found) = found.filter(|found| found.0 == file) {
                    let (attr, target) = (&seen.attr, &bytes[..]);
                    self.seen_again(at, found, Entry { attr, target, at_ms: seen.at_ms })?;
                } else if let Some((id, _)) = self.lookup_here(at)? {
                    // Something else is being done about it, or it was replaced meanwhile.
                    self.tier.know_file(id, seen.at_ms);
                }
                Ok(End::Seen(seen))
            }
        }
    }
}

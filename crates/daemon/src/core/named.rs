//! The names of delegated directories, as those who have them delegated see them
//! ([`mayfly_transport_shm::posts::names`]).
//!
//! Every change of a name comes by here ([`Core::name_changed`], [`Core::posted_name`]), and counts
//! for those who post from its commit on. Until then the name is claimed by who has posted it, or
//! one that is to be asked for: what is not committed may have to be executed again, after what
//! somebody has posted who saw its outcome.

use mayfly_meta::{Scan, key, record::Dentry};
use mayfly_transport_shm::posts::names::{Names, Print, Reserved, Standing, Tally};
use mayfly_types::{FileId, FileKind};

use super::{Core, Outcome, delegation::Executing, posted::members};

/// The table of the names of a delegated directory.
#[derive(Debug)]
pub(super) struct Table {
    directory: FileId,
    /// The rings that have it delegated, a bit each.
    pub(super) holders: u64,
    tally: Tally,
}

/// How a name stands when the batch is committed; none: it is gone.
#[derive(Debug)]
pub(super) struct Settled {
    table: usize,
    directory: FileId,
    print: Print,
    standing: Option<Standing>,
}

/// The same for a name about which the record of a place was.
#[derive(Debug)]
pub(super) struct Released {
    of: Settled,
    place: usize,
}

/// How a name stands that is there.
pub(super) fn standing_of(kind: FileKind) -> Standing {
    if kind == FileKind::Directory { Standing::Asked } else { Standing::Plain }
}

impl Core {
    fn names(&self, table: usize) -> &'static Names {
        let node = self.node;
        &node.names[table]
    }

    /// The table with this number, if it is still the directory's.
    fn table(&mut self, at: usize, directory: FileId) -> Option<(&'static Names, &mut Table)> {
        let names = self.names(at);
        let table = self.delegations.tables[at].as_mut()?;
        (table.directory == directory).then_some((names, table))
    }

    /// Whoever has the directory delegated asks for this name from here on. True when something was
    /// executed, so that what was found out before may not be so any more.
    pub(super) fn reserve_name(&mut self, directory: FileId, name: &[u8]) -> bool {
        let Some(&at) = self.delegations.by_directory.get(&directory) else { return false };
        let print = Print::of(name);
        if !self.is_claimed(at, directory, print) {
            return false;
        }
        let holders = self.take_back_table(at);
        let executed = self.execute_all(holders);
        self.put_asked(at, directory, print);
        executed
    }

    /// Whether somebody has posted something about the name, or is about to; otherwise nobody does
    /// from here on.
    fn is_claimed(&mut self, at: usize, directory: FileId, print: Print) -> bool {
        let Some((names, table)) = self.table(at, directory) else { return false };
        let reserved = names.reserve(&mut table.tally, print);
        if reserved == Reserved::Full {
            self.take_back_table(at);
            self.put_asked(at, directory, print);
        }
        reserved == Reserved::Claimed
    }

    /// A name stands so now; none: it is gone.
    pub(super) fn name_changed(
        &mut self,
        directory: FileId,
        name: &[u8],
        standing: Option<Standing>,
    ) {
        // What is posted is noted with its record.
        if self.delegations.is_executing(directory) {
            return;
        }
        let Some(&at) = self.delegations.by_directory.get(&directory) else { return };
        let print = Print::of(name);
        if self.is_claimed(at, directory, print) {
            // What adds a name reserves it. This one was there, and its record is written anew, for
            // a second link: what was posted about it holds.
            if standing == Some(Standing::Plain) {
                return;
            }
            self.take_back_table(at);
            self.put_asked(at, directory, print);
        }
        self.delegations.settled.push(Settled { table: at, directory, print, standing });
    }

    /// The record of a place was executed, which was about a name that stands so now.
    pub(super) fn posted_name(&mut self, print: Print, place: usize, standing: Option<Standing>) {
        let executing = self.delegations.executing.as_ref();
        if let Some(&Executing { directory, table: Some(table), .. }) = executing {
            let of = Settled { table, directory, print, standing };
            self.delegations.released.push(Released { of, place });
        }
    }

    /// What was posted is committed: others may post about its names.
    pub(super) fn release_names(&mut self) {
        let mut released = std::mem::take(&mut self.delegations.released);
        let mut crowded = 0;
        for Released { of, place } in released.drain(..) {
            if let Some((names, table)) = self.table(of.table, of.directory) {
                names.release(&mut table.tally, of.print, place, of.standing);
                crowded |= u64::from(names.is_crowded(&table.tally)) << of.table;
            }
        }
        self.delegations.released = released;
        members(crowded).for_each(|at| self.lay_out_again(at));
    }

    /// The batch is committed: what was asked for in it is as it is, and who was given a directory
    /// may post.
    pub(super) fn settle_names(&mut self) {
        for settled in std::mem::take(&mut self.delegations.settled) {
            let Settled { table: at, directory, print, standing } = settled;
            let Some((names, table)) = self.table(at, directory) else { continue };
            match standing {
                None => names.remove(print),
                // It has a slot, since it was one to be asked for.
                Some(standing) => drop(names.put(&mut table.tally, print, standing)),
            }
        }
        self.begin_delegations();
    }

    /// Nothing is posted in these rings any more.
    pub(super) fn take_back(&self, rings: u64) {
        members(rings).for_each(|ring| self.posts(ring).take_back());
    }

    /// Nothing is posted any more in the rings that have the table's directory; which ones these
    /// are.
    fn take_back_table(&self, at: usize) -> u64 {
        let holders = self.delegations.tables[at].as_ref().map_or(0, |table| table.holders);
        self.take_back(holders);
        holders
    }

    /// Executes what was posted in these rings; whether there was anything.
    pub(super) fn execute_all(&mut self, rings: u64) -> bool {
        members(rings).fold(false, |executed, ring| self.execute_ring(ring) | executed)
    }

    /// While nobody may post, marks a name as one that is to be asked for, and lets those who have
    /// the directory delegated post again. A directory of too many names is not delegated any more;
    /// what was posted in it is executed in its turn.
    fn put_asked(&mut self, at: usize, directory: FileId, print: Print) {
        // What was executed meanwhile may have ended it.
        let Some((names, table)) = self.table(at, directory) else { return };
        let tally = &mut table.tally;
        if names.put(tally, print, Standing::Asked)
            || names.grow(tally) && names.put(tally, print, Standing::Asked)
        {
            self.give(at);
        } else {
            self.forget_table(at);
        }
    }

    /// Lays a table out anew that has more slots for what is gone than for what is there, or too
    /// few.
    fn lay_out_again(&mut self, at: usize) {
        self.take_back_table(at);
        let names = self.names(at);
        let table = self.delegations.tables[at].as_mut();
        if table.is_some_and(|table| names.grow(&mut table.tally)) {
            self.give(at);
        } else {
            self.forget_table(at);
        }
    }

    fn forget_table(&mut self, at: usize) {
        if let Some(table) = self.delegations.tables[at].take() {
            self.delegations.by_directory.remove(&table.directory);
        }
    }

    /// Lets those post who have a directory delegated, unless they have to wait for the commit.
    fn give(&self, at: usize) {
        let Some(table) = &self.delegations.tables[at] else { return };
        let waits = |ring| self.delegations.fresh.iter().any(|fresh| fresh.ring == ring);
        members(table.holders)
            .filter(|ring| !waits(*ring))
            .for_each(|ring| self.posts(ring).give());
    }

    /// Fills a table with the names of a directory; none when there are more than it takes.
    pub(super) fn fill_table(&mut self, at: usize, directory: FileId) -> Outcome<Option<Table>> {
        let count = self.load_parent(directory)?.entries();
        let (names, mut tally) = (self.names(at), Tally::default());
        let mut fits = names.lay_out(&mut tally, usize::try_from(count).unwrap_or(usize::MAX));
        let prefix = key::directory(directory);
        self.store.scan(&prefix, &prefix, &mut |key, record| {
            let name = key.get(key::PLACE_BYTES..).unwrap_or_default();
            let standing =
                Dentry::peek(record).map_or(Standing::Asked, |(_, kind)| standing_of(kind));
            fits = fits && names.put(&mut tally, Print::of(name), standing);
            if fits { Scan::More } else { Scan::Enough }
        })?;
        Ok(fits.then_some(Table { directory, holders: 0, tally }))
    }
}

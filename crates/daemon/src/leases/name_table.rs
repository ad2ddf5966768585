//! The names of delegated directories, as those who have them delegated see them
//! ([`mayfly_transport_shm::submission_ring::name_table`]).
//!
//! Every change of a name comes by here ([`Shard::name_changed`], [`Shard::submitted_name`]), and
//! counts for those who submit from its commit on. Until then the name is claimed by who has
//! submitted it, or one that is to be asked for: what is not committed may have to be executed
//! again, after what somebody has submitted who saw its outcome.

use mayfly_meta::{Scan, key};
use mayfly_transport_shm::submission_ring::name_table::{
    NameState, NameTable, Print, Reserved, Spare, Tally,
};
use mayfly_types::FileId;

use crate::{
    fault::Outcome,
    leases::state::{
        delegation::Executing,
        name_table::{Left, Released, Settled, Table, found_in},
        submissions::{Ring, members},
    },
    shard::Shard,
};

/// So many segments of a table are laid out anew after a commit: each takes some 200 µs, in which
/// nobody submits in the directory.
const SEGMENTS_AT_ONCE: usize = 2;
/// So many give their memory back in a turn in which nobody asks for anything.
const GIVEN_BACK_AT_ONCE: usize = 4;

impl Shard {
    fn names(&self, table: usize) -> NameTable<'static> {
        let node = self.node;
        node.name_tables.names(table)
    }

    /// The table with this number, if it is still the directory's, and what it grows by.
    pub(crate) fn table(
        &mut self,
        at: usize,
        directory: FileId,
    ) -> Option<(NameTable<'static>, &mut Table, &mut Spare)> {
        let names = self.names(at);
        let table = self.leases.delegations.tables[at].as_mut()?;
        (table.directory == directory).then_some((names, table, &mut self.leases.delegations.spare))
    }

    /// Whoever submits in the directory asks for this name from here on, and for the directory's
    /// own one. True when something was executed, so that what was found out before may not be so
    /// any more.
    pub(crate) fn reserve_name(&mut self, directory: FileId, name: &[u8]) -> bool {
        let (within, executed) = self.enter(directory);
        let reserved = within
            .is_some_and(|within| self.reserve(within.table, within.root, within.print_of(name)));
        executed | reserved
    }

    /// Has what was submitted about a name, or in the directory of that name, executed, and the
    /// name be one that is to be asked for; whether there was anything.
    pub(super) fn reserve(&mut self, at: usize, root: FileId, print: Print) -> bool {
        if !self.is_claimed(at, root, print) {
            return false;
        }
        let holders = self.take_back_table(at);
        let executed = self.execute_all(holders);
        self.put_asked(at, root, print);
        executed
    }

    /// Whether somebody has submitted something about the name, or is about to; otherwise nobody
    /// does from here on.
    fn is_claimed(&mut self, at: usize, root: FileId, print: Print) -> bool {
        let Some((names, table, _)) = self.table(at, root) else { return false };
        match names.reserve(&mut table.tally, print) {
            Reserved::Done => false,
            Reserved::Claimed => true,
            Reserved::Full => {
                self.take_back_table(at);
                self.put_asked(at, root, print);
                false
            }
        }
    }

    /// A name stands so now; none: it is gone.
    pub(crate) fn name_changed(
        &mut self,
        directory: FileId,
        name: &[u8],
        name_state: Option<NameState>,
    ) {
        // What is submitted is noted with its record.
        if self.leases.delegations.is_executing(directory) {
            return;
        }
        let Some(within) = self.covering(directory) else { return };
        let (at, root, print) = (within.table, within.root, within.print_of(name));
        if self.is_claimed(at, root, print) {
            // What adds a name reserves it. This one was there, and its record is written anew, for
            // a second link: what was submitted about it holds.
            if name_state == Some(NameState::Plain) {
                return;
            }
            self.take_back_table(at);
            self.put_asked(at, root, print);
        }
        self.leases.delegations.settled.push(Settled { table: at, root, print, name_state });
    }

    /// The record of a place was executed, which was about a name that stands so now.
    pub(super) fn submitted_name(
        &mut self,
        print: Print,
        place: usize,
        name_state: Option<NameState>,
    ) {
        let executing = self.leases.delegations.executing.as_ref();
        if let Some(&Executing { root, table: Some(table), .. }) = executing {
            let of = Settled { table, root, print, name_state };
            self.leases.delegations.released.push(Released { of, place });
        }
    }

    /// What was submitted is committed: others may submit about its names.
    pub(super) fn release_names(&mut self) {
        let mut released = std::mem::take(&mut self.leases.delegations.released);
        let mut crowded = 0;
        for Released { of, place } in released.drain(..) {
            if let Some((names, table, _)) = self.table(of.table, of.root) {
                names.release(&mut table.tally, of.print, place, of.name_state);
                crowded |= u64::from(table.tally.is_crowded()) << of.table;
            }
        }
        self.leases.delegations.released = released;
        members(crowded).for_each(|at| self.relieve(at));
    }

    /// The batch is committed: what was asked for in it is as it is, and who was given a directory
    /// may submit.
    pub(crate) fn settle_names(&mut self) {
        for settled in std::mem::take(&mut self.leases.delegations.settled) {
            let Settled { table: at, root, print, name_state } = settled;
            let Some((names, table, _)) = self.table(at, root) else { continue };
            match name_state {
                None => names.remove(&table.tally, print),
                // It has a slot, since it was one to be asked for.
                Some(name_state) => drop(names.put(&mut table.tally, print, name_state)),
            }
        }
        for Left { table: at, root, print } in std::mem::take(&mut self.leases.delegations.left) {
            if let Some((names, table, _)) = self.table(at, root) {
                // What it has was noted all the time; it may be gone, or another one.
                names.cover(&table.tally, print, NameState::Covered);
            }
        }
        if !self.leases.delegations.emptied.is_empty() {
            self.note_emptied();
        }
        if !self.leases.delegations.candidates.is_empty() {
            self.cover_candidates();
        }
        self.begin_delegations();
    }

    /// Whether a directory that is to be asked for is covered again from the commit on.
    pub(super) fn is_left(&self, at: usize, directory: Print) -> bool {
        self.leases.delegations.left.iter().any(|left| left.table == at && left.print == directory)
    }

    /// Nothing is submitted in these rings any more.
    pub(super) fn take_back(&self, rings: u64) {
        members(rings).for_each(|ring| self.submissions(ring).take_back());
    }

    /// Nothing is submitted any more in the rings that have the table's directory; which ones these
    /// are.
    pub(super) fn take_back_table(&self, at: usize) -> u64 {
        let holders = self.holders(at);
        self.take_back(holders);
        holders
    }

    /// The rings that have the table's directory.
    pub(crate) fn holders(&self, at: usize) -> u64 {
        self.leases.delegations.tables[at].as_ref().map_or(0, |table| table.holders)
    }

    /// Executes what was submitted in these rings; whether there was anything.
    pub(super) fn execute_all(&mut self, rings: u64) -> bool {
        members(rings).fold(false, |executed, ring| self.execute_ring(ring) | executed)
    }

    /// While nobody may submit, marks a name as one that is to be asked for, and lets those who
    /// have the directory delegated submit again. A directory of too many names is not delegated
    /// any more; what was submitted in it is executed in its turn.
    fn put_asked(&mut self, at: usize, directory: FileId, print: Print) {
        // What was executed meanwhile may have ended it.
        let Some((names, table, spare)) = self.table(at, directory) else { return };
        let is_left = names.covers(&table.tally, print);
        if names.add(&mut table.tally, spare, (print, NameState::AskDaemon)) {
            if is_left {
                self.leases.delegations.left.push(Left { table: at, root: directory, print });
            }
            self.give(at);
        } else {
            self.forget_table(at);
        }
    }

    /// Lays a table out anew where it has more slots for what is gone than for what is there, or
    /// too few. The rest waits for the next commit of operations that are submitted there: a
    /// segment that is full meanwhile has names asked for.
    fn relieve(&mut self, at: usize) {
        self.take_back_table(at);
        let names = self.names(at);
        let (table, spare) =
            (self.leases.delegations.tables[at].as_mut(), &mut self.leases.delegations.spare);
        if table.is_some_and(|table| names.relieve(&mut table.tally, spare, SEGMENTS_AT_ONCE)) {
            self.give(at);
        } else {
            self.forget_table(at);
        }
    }

    /// The table is nobody's any more; who had it delegated.
    pub(super) fn forget_table(&mut self, at: usize) -> u64 {
        let Some(table) = self.leases.delegations.tables[at].take() else { return 0 };
        self.leases.delegations.by_directory.remove(&table.directory);
        self.leases.delegations.covers &= !self.leases.delegations.by_directory.is_empty();
        // The directory may have another table before the commit, in which this would be wrong.
        self.leases.delegations.settled.retain(|settled| settled.table != at);
        self.leases.delegations.left.retain(|left| left.table != at);
        self.leases.delegations.spare.take_in(table.tally);
        table.holders
    }

    /// Gives memory of tables back that are gone; whether there is more to give.
    pub(crate) fn give_names_back(&mut self) -> bool {
        let (node, spare) = (self.node, &mut self.leases.delegations.spare);
        spare.give_back(&node.name_tables, GIVEN_BACK_AT_ONCE);
        spare.has_too_many()
    }

    /// Lets those submit who have a directory delegated, unless they have to wait for the commit.
    pub(super) fn give(&self, at: usize) {
        let may_submit = self.holders(at) & !self.leases.delegations.fresh;
        members(may_submit).for_each(|ring| self.submissions(ring).give());
    }

    /// A table without names for a directory whose names are read from now on
    /// ([`Shard::read_names`]); none when there is no memory for it. Meanwhile changes in the
    /// directory are noted in it. Operations that its holder has submitted there are executed.
    pub(super) fn begin_table(
        &mut self,
        directory: FileId,
        wanted_by: usize,
    ) -> Outcome<Option<usize>> {
        let of_it = |(_, ring): &(usize, &Option<Ring>)| {
            ring.as_ref().is_some_and(|ring| ring.directory == Some(directory))
        };
        let rings = self.leases.delegations.rings.iter().enumerate().filter(of_it);
        let rings = rings.fold(0, |rings, (ring, _)| rings | 1 << ring);
        self.execute_all(rings);
        let names = usize::try_from(self.load_parent(directory)?.entries()).unwrap_or(usize::MAX);
        let free = self.leases.delegations.tables.iter().position(Option::is_none);
        // There is one for each ring.
        let Some(at) = free else { return Ok(None) };
        let mut tally = Tally::default();
        if !self.names(at).lay_out(&mut tally, &mut self.leases.delegations.spare, names) {
            return Ok(None);
        }
        let unread = Some(key::directory(directory));
        let table = Table { directory, holders: 0, tally, wanted_by, unread };
        self.leases.delegations.tables[at] = Some(table);
        self.leases.delegations.by_directory.insert(directory, at);
        Ok(Some(at))
    }

    /// Reads so many more names of a directory into its table, which nobody has delegated before
    /// the next commit: what is not committed yet is read as what it is going to be. There is none
    /// any more when it does not take them.
    pub(super) fn read_names(&mut self, at: usize, directory: FileId, count: usize) -> Outcome<()> {
        let names = self.names(at);
        let Some(table) = self.leases.delegations.tables[at].as_mut() else { return Ok(()) };
        let Some(from) = table.unread.take() else { return Ok(()) };
        let (tally, spare) = (&mut table.tally, &mut self.leases.delegations.spare);
        let (mut read, mut fits, mut unread, mut inside) = (0, true, None, Vec::new());
        let place = &self.place;
        let scanned = self.store.scan(&key::directory(directory), &from, &mut |key, record| {
            if read == count {
                unread = Some(key.to_vec());
                return Scan::Enough;
            }
            read += 1;
            let name = key.get(key::PLACE_BYTES..).unwrap_or_default();
            let (name_state, directory) = found_in(record, place);
            inside.extend(directory);
            fits = names.add(tally, spare, (Print::of(name), name_state));
            if fits { Scan::More } else { Scan::Enough }
        });
        table.unread = unread;
        if scanned.is_err() || !fits {
            self.forget_table(at);
        }
        inside.into_iter().for_each(|id| self.propose_covering(directory, id));
        Ok(scanned?)
    }
}

//! Who may make names in a directory without asking: its *delegation*, as NFS calls it.
//!
//! A process that makes or removes files or directories in one directory in a row is given it,
//! beside others who have it. From then on whatever else changes a name there reserves it first
//! ([`Shard::reserve_name`]): nobody submits anything about it from then on, and what was submitted
//! is executed. A directory that is removed, and the path to any directory that is moved, ends
//! delegations. What is in directories inside may be in it, too
//! ([`crate::leases::covered_directories`]).
//!
//! Only of directories that are whole and have their seat at the shard that their node's processes
//! ask first; and where what a process was told survives the daemon. Transactions over several
//! shards know nothing of what is submitted: nothing is delegated while one has prepare locks here.
//!
//! The path to such a directory may lead by names of other nodes that this one remembers. The
//! owner of such a name has this shard forget it before the name changes, and that ends the
//! delegation ([`Shard::recall_paths_elsewhere`]). A daemon that stands still cannot be told, so a
//! process submits only as long as the name may be remembered.

use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use mayfly_sys::arch::cycles;
use mayfly_transport_shm::submission_ring::{
    PREFIX_BYTES_MAX, RECORDS, name_table::SLOTS_MAX, ring_of, split,
};
use mayfly_types::{Durability, FileId, FileKind, SessionId};
use mayfly_wire::Walk;

use crate::{
    api::Caller,
    fault::Outcome,
    leases::state::{
        covered_directories::{NAMES_AT_ONCE, Within},
        delegation::Streak,
        submissions::{Belief, Ring, members},
    },
    log,
    namespace::dentry_cache::FOR_EVER,
    shard::Shard,
    shards::{
        numbering::origin,
        planted::{Planted, is_planted},
    },
};

/// So many files in a row a process makes in a directory before it need not ask.
const IN_A_ROW: u32 = 8;
/// The same, if it made that many in the directory before. One is enough if it is no directory: in
/// a new directory it may make files next. To delegate one costs what four files cost, so it is not
/// done for those who make a few in each.
const IN_A_ROW_AGAIN: u32 = 2;
/// For each of them so many names of the directory are read then, and after [`IN_A_ROW`] files
/// more, until all are in a table: it takes as long as these requests, and nobody waits for more.
const NAMES_FOR_EACH: u32 = 32;
/// A directory with more names is not delegated. One that is may come to have half as many again.
const NAMES_MAX: u64 = SLOTS_MAX as u64 / 2;
/// With less free space nothing is promised, bytes.
const FREE_BYTES_MIN: u64 = 8 << 20;
/// Nor with less for each ring in use: all that it may hold takes less.
const FREE_BYTES_FOR_EACH: u64 = RECORDS as u64 * 8192;

impl Shard {
    /// The directory is not delegated any more. True when something was executed, so that what was
    /// found out before may not be so any more.
    pub(crate) fn recall(&mut self, directory: FileId) -> bool {
        let Some(&table) = self.leases.delegations.by_directory.get(&directory) else {
            return false;
        };
        let holders = self.forget_table(table);
        self.take_back(holders);
        self.execute_all(holders)
    }

    /// Nothing is delegated by the ring any more.
    fn release(&mut self, ring: usize) {
        self.submissions(ring).take_back();
        let held = self.leases.delegations.rings[ring].as_ref();
        let directory = held.and_then(|held| held.directory);
        self.undelegate(directory, ring);
        self.execute_ring(ring);
    }

    pub(super) fn is_delegated(&self, directory: FileId, ring: usize) -> bool {
        let table = self.leases.delegations.by_directory.get(&directory);
        let table = table.and_then(|table| self.leases.delegations.tables[*table].as_ref());
        table.is_some_and(|table| table.holders & 1 << ring != 0)
    }

    /// Notes that the directory is not delegated by the ring, or any more.
    pub(super) fn undelegate(&mut self, directory: Option<FileId>, ring: usize) {
        let Some(directory) = directory else { return };
        let Some(&at) = self.leases.delegations.by_directory.get(&directory) else { return };
        let Some(table) = &mut self.leases.delegations.tables[at] else { return };
        table.holders &= !(1 << ring);
        if table.holders == 0 {
            self.forget_table(at);
        }
    }

    /// Nothing is delegated any more. True as above.
    pub fn recall_all(&mut self) -> bool {
        let all: Vec<FileId> = self.leases.delegations.by_directory.keys().copied().collect();
        all.into_iter().fold(false, |executed, directory| self.recall(directory) | executed)
    }

    /// Of what a name of another node stands for nothing is known any more: nothing is delegated by
    /// a path that leads by one.
    pub(crate) fn recall_paths_elsewhere(&mut self) {
        let rings = self.leases.delegations.rings.iter().flatten();
        let ends = |ring: &Ring| ring.directory.filter(|_| ring.belief.by_others);
        let directories: Vec<FileId> = rings.filter_map(ends).collect();
        for directory in directories {
            self.recall(directory);
        }
    }

    pub(super) fn has_room_for_submissions(&mut self) -> bool {
        // What is made goes to others then.
        if self.is_left_for_room() {
            return false;
        }
        let rings = self.leases.delegations.rings.iter().flatten().count() as u64 + 1;
        self.store.has_room()
            && self.free_bytes() >= FREE_BYTES_MIN.max(rings * FREE_BYTES_FOR_EACH)
    }

    /// A process has made or removed a file of this kind by asking; a directory may be the one
    /// that it has made.
    pub(crate) fn consider_delegating(
        &mut self,
        caller: Caller,
        (directory, kind): (FileId, FileKind),
        walk: &Walk<'_>,
        made: Option<FileId>,
    ) -> Outcome<()> {
        if self.source_of(directory)?.is_some() {
            // Names are changed outside.
            return Ok(());
        }
        if self.config.durability != Durability::Process || !self.may_delegate(caller, directory) {
            return Ok(());
        }
        let streak = self.count_asked(caller.session, (directory, kind), made);
        let ring = ring_of(caller.session.0);
        if let Some(within) = self.noted_within(ring, directory, walk) {
            if self.is_noted(&within) {
                self.believe_longer(ring, within.root)?;
                // Its names may be noted, too.
                made.into_iter().for_each(|made| self.propose_covering(within.root, made));
                // It may have asked because the ring was full, and there was no room. What is
                // executed and not committed keeps its places: it may have to be executed again.
                if self.leases.delegations.touched & 1 << ring == 0 {
                    self.free_places(ring);
                }
                return Ok(());
            }
            if streak.files == 1 && self.load_parent(directory)?.entries() <= NAMES_AT_ONCE {
                self.propose_covering(within.root, directory);
                return Ok(());
            }
        }
        let (prefix, _) = split(walk.path);
        if self.is_due(streak) && self.has_room_for_submissions() {
            return self.delegate(streak, (walk.start, prefix));
        }
        if streak.files == 1 && streak.new && self.has_room_for_submissions() {
            return self.delegate_above(streak, (walk.start, prefix));
        }
        Ok(())
    }

    /// Whether this shard has the rings of its node's processes: the one that they ask first.
    pub(crate) fn has_rings(&self) -> bool {
        self.place.alone || self.own() == 0
    }

    /// Whether all names of a directory are here.
    pub(super) fn is_whole_here(&self, directory: FileId) -> bool {
        let is_spread = || {
            self.namespace.seats.spread(directory) != 0
                && !is_planted(Planted::DelegatedThoughSpread)
        };
        let is_whole = || self.is_home(directory) && !is_spread();
        self.place.alone || is_whole()
    }

    fn may_delegate(&self, caller: Caller, directory: FileId) -> bool {
        let is_ours = || self.has_rings() && origin(caller.session).is_none();
        let is_quiet = || {
            self.transactions.prepare_locks.is_empty()
                || is_planted(Planted::DelegatedBesidePrepareLocks)
        };
        let may = || is_ours() && is_quiet();
        self.place.alone || (may() && self.is_whole_here(directory))
    }

    /// Whether other shards may remember names of the directory, or mounts: then its names are not
    /// changed without them.
    pub(super) fn has_remembered_names(&self, directory: FileId) -> bool {
        self.namespace.remembered.has(directory, self.leases.now)
            || self.leases.mount_names.has(directory, None, self.leases.now)
    }

    /// Where names of the directory are noted, or would be, if that is delegated by the ring and
    /// such a path leads through it.
    fn noted_within(&mut self, ring: usize, directory: FileId, walk: &Walk<'_>) -> Option<Within> {
        let within = self.above(directory)?;
        let held = self.leases.delegations.rings[ring].as_ref()?;
        let submissions = self.is_delegated(within.root, ring)
            && held.start == walk.start
            && within.is_spelled(split(walk.path).0, &held.prefix);
        submissions.then_some(within)
    }

    /// What the session has made or removed in the directory by asking, in a row.
    fn count_asked(
        &mut self,
        session: SessionId,
        (directory, kind): (FileId, FileKind),
        made: Option<FileId>,
    ) -> Streak {
        let ring = ring_of(session.0);
        let streak = self.leases.delegations.streaks[ring];
        if (streak.session, streak.directory) != (session, directory) {
            let same = streak.session == session;
            let (again, new) =
                (same && self.makes_many(ring, streak), same && streak.last_made == directory);
            self.end_streak(ring);
            let made = if same { streak.last_made } else { FileId::NONE };
            self.leases.delegations.streaks[ring] = Streak {
                session,
                directory,
                files: 0,
                is_directory: false,
                again,
                new,
                last_made: made,
            };
        }
        let streak = &mut self.leases.delegations.streaks[ring];
        streak.is_directory = kind == FileKind::Directory;
        streak.files = streak.files.saturating_add(1);
        streak.last_made = made.unwrap_or(streak.last_made);
        *streak
    }

    /// Whether a process that goes on to another directory is expected to make many files there:
    /// as many as here, but for a single directory, which may be that one itself.
    fn makes_many(&self, ring: usize, streak: Streak) -> bool {
        let ring = self.leases.delegations.rings[ring].as_ref();
        let here = ring.filter(|ring| ring.directory == Some(streak.directory));
        let submitted = here.map_or(0, |ring| ring.executed.wrapping_sub(ring.since));
        match streak.files.saturating_add(submitted) {
            0 | 1 => streak.again && streak.is_directory,
            files => files >= IN_A_ROW,
        }
    }

    /// A process does something else, or is gone. What it wanted delegated, and nobody has, nobody
    /// wants any more.
    fn end_streak(&mut self, ring: usize) {
        let directory = std::mem::take(&mut self.leases.delegations.streaks[ring]).directory;
        let Some(&at) = self.leases.delegations.by_directory.get(&directory) else { return };
        let table = self.leases.delegations.tables[at].as_ref();
        if table.is_some_and(|table| table.holders == 0 && table.wanted_by == ring) {
            self.forget_table(at);
        }
    }

    /// Whether it is time to read names of the directory, now that a process has made or removed so
    /// many files in a row. One that cannot be delegated is looked at again after twice as many.
    fn is_due(&self, streak: Streak) -> bool {
        let Streak { directory, files, is_directory, again, new, .. } = streak;
        if files.is_multiple_of(IN_A_ROW) {
            return files.is_power_of_two()
                || self.leases.delegations.by_directory.contains_key(&directory);
        }
        let soon = again && files == 1 && !is_directory;
        soon || (again || new) && files == IN_A_ROW_AGAIN
    }

    /// The session makes something in a directory that it has just made. It may make more such
    /// directories beside it, so the one above is delegated, with all that is inside, where it has
    /// few names, and unless the session moves on without having made much.
    fn delegate_above(&mut self, streak: Streak, (start, prefix): (FileId, &[u8])) -> Outcome<()> {
        let ring = self.leases.delegations.rings[ring_of(streak.session.0)].as_ref();
        let held = ring.filter(|ring| ring.directory.is_some());
        let (above, name) = split(prefix.strip_suffix(b"/").unwrap_or_default());
        if held.is_some_and(|held| held.executed.wrapping_sub(held.since) < IN_A_ROW)
            || matches!(name, b"" | b"." | b"..")
        {
            return Ok(());
        }
        let parent = self.load_own(streak.directory)?.directory()?.parent;
        if !self.is_whole_here(parent) || self.source_of(parent)?.is_some() {
            return Ok(());
        }
        if self.load_parent(parent)?.entries() > NAMES_AT_ONCE {
            return Ok(());
        }
        let files = IN_A_ROW_AGAIN;
        self.delegate(Streak { directory: parent, files, ..streak }, (start, above))
    }

    fn delegate(&mut self, streak: Streak, (start, prefix): (FileId, &[u8])) -> Outcome<()> {
        let Streak { session, files, .. } = streak;
        let ring = ring_of(session.0);
        let held = self.leases.delegations.rings[ring].as_ref();
        if held.is_some_and(|held| held.session != session) || prefix.len() >= PREFIX_BYTES_MAX {
            return Ok(());
        }
        let (directory, prefix) = self.with_table(streak.directory, prefix);
        if self.namespace.remembered.has(directory, self.leases.now)
            || self.leases.mount_names.has(directory, Some(session), self.leases.now)
        {
            return Ok(());
        }
        let Some(belief) = self.leads_plainly(start, prefix, directory)? else { return Ok(()) };
        if !self.has_whole_table(directory, ring, files.min(IN_A_ROW))? {
            return Ok(());
        }
        // By another path than before.
        if self.is_delegated(directory, ring) {
            self.submissions(ring).take_back();
        } else if !self.take_ring(session) {
            return Ok(());
        }
        let Some(&table) = self.leases.delegations.by_directory.get(&directory) else {
            return Ok(());
        };
        if let Some(table) = &mut self.leases.delegations.tables[table] {
            table.holders |= 1 << ring;
        }
        if let Some(ring) = &mut self.leases.delegations.rings[ring] {
            ring.directory = Some(directory);
            (ring.start, ring.prefix, ring.belief) = (start, prefix.to_vec(), belief);
            ring.since = ring.executed;
        }
        // The table has what is not committed, too.
        self.leases.delegations.fresh |= 1 << ring;
        Ok(())
    }

    /// The table for a directory that is to be delegated, and the way there: that one, or the one
    /// above in whose table its names are. Where the path does not lead by that one this ends,
    /// since a name is in one table.
    fn with_table<'p>(&mut self, directory: FileId, prefix: &'p [u8]) -> (FileId, &'p [u8]) {
        let Some(within) = self.covering(directory).filter(|within| !within.path.is_empty()) else {
            return (directory, prefix);
        };
        let above = prefix.strip_suffix(b"/").and_then(|path| path.strip_suffix(&within.path[..]));
        match above.filter(|above| above.is_empty() || above.ends_with(b"/")) {
            Some(above) => (within.root, above),
            None => {
                self.recall(within.root);
                (directory, prefix)
            }
        }
    }

    /// Whether the directory has a table with all of its names, after some more of them were read.
    fn has_whole_table(&mut self, directory: FileId, ring: usize, files: u32) -> Outcome<bool> {
        let at = match self.leases.delegations.by_directory.get(&directory).copied() {
            None if self.load_parent(directory)?.entries() > NAMES_MAX => None,
            None => self.begin_table(directory, ring)?,
            at => at,
        };
        let Some(at) = at else { return Ok(false) };
        self.read_names(at, directory, (NAMES_FOR_EACH * files) as usize)?;
        let Some(table) = &mut self.leases.delegations.tables[at] else { return Ok(false) };
        table.wanted_by = ring;
        Ok(table.is_whole())
    }

    /// Whether the prefix leads to the directory by names of directories alone, which do not change
    /// unless one of them is moved: how long that is known.
    fn leads_plainly(
        &mut self,
        start: FileId,
        prefix: &[u8],
        to: FileId,
    ) -> Outcome<Option<Belief>> {
        let mut at = if prefix.starts_with(b"/") { FileId::ROOT } else { start };
        let mut belief = Belief::OWN;
        for name in prefix.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => return Ok(None),
                name if self.owns(at, name) => match self.lookup(at, name)? {
                    Some((id, FileKind::Directory)) => at = id,
                    _ => return Ok(None),
                },
                // What is not remembered nobody here hears of when it changes.
                name => match self.namespace.cache.directory(at, name, self.leases.now) {
                    Some((id, until)) => (at, belief) = (id, belief.and_until(until)),
                    None => return Ok(None),
                },
            }
        }
        Ok((at == to).then_some(belief))
    }

    /// A process has asked for what it may submit, perhaps since the time had passed for which a
    /// name on its path was known. That was looked up anew.
    fn believe_longer(&mut self, ring: usize, root: FileId) -> Outcome<()> {
        let Some(held) = self.leases.delegations.rings[ring].as_ref() else { return Ok(()) };
        let until = held.belief.until;
        if until == FOR_EVER || until.saturating_sub(self.leases.now) > 1 {
            return Ok(());
        }
        let (start, prefix) = (held.start, held.prefix.clone());
        match self.leads_plainly(start, &prefix, root)? {
            Some(belief) => self.show_belief(ring, belief),
            None => {
                self.recall(root);
            }
        }
        Ok(())
    }

    /// The path of the ring leads where it does for so long.
    fn show_belief(&mut self, ring: usize, belief: Belief) {
        if let Some(held) = &mut self.leases.delegations.rings[ring] {
            held.belief = belief;
        }
        self.submissions(ring).believed_until.store(self.cycles_at(belief.until), Release);
    }

    /// What the processors' counter will say at that second, at least. Zero while nobody knows how
    /// fast it runs.
    pub(crate) fn cycles_at(&self, second: i64) -> u64 {
        if second == FOR_EVER {
            return u64::MAX;
        }
        self.cycles_at_ns(i128::from(second) * 1_000_000_000)
    }

    /// The same of a moment in nanoseconds.
    pub(crate) fn cycles_at_ns(&self, moment_ns: i128) -> u64 {
        // In this order: a thread that is kept from its processor in between errs to the safe side.
        let (before, now) = (cycles(), self.clock.elapsed());
        let now_ns = i128::from(now.seconds) * 1_000_000_000 + i128::from(now.nanoseconds);
        let left_ns = moment_ns - now_ns;
        let rate = self.node.head.cycles_ns.load(Relaxed);
        let left = u128::try_from(left_ns).unwrap_or_default() << 32;
        let left = left.checked_div(u128::from(rate)).unwrap_or_default();
        if left == 0 { 0 } else { before.saturating_add(left as u64) }
    }

    /// The session's ring is its own, and nothing is delegated by it.
    fn take_ring(&mut self, session: SessionId) -> bool {
        let ring = ring_of(session.0);
        match &self.leases.delegations.rings[ring] {
            Some(held) if held.session != session => false,
            Some(_) => {
                self.release(ring);
                true
            }
            // What the last one submitted may come to nothing yet.
            None if self.leases.delegations.touched & 1 << ring != 0 => false,
            None => self.make_ring(session),
        }
    }

    /// The batch is committed: those who were given a directory in it may submit.
    pub(super) fn begin_delegations(&mut self) {
        for ring in members(std::mem::take(&mut self.leases.delegations.ended)) {
            if self.leases.delegations.rings[ring].is_none() {
                self.submissions(ring).session.store(0, Relaxed);
            }
        }
        for ring in members(std::mem::take(&mut self.leases.delegations.fresh)) {
            self.dedicate(ring);
        }
    }

    fn dedicate(&self, ring: usize) {
        let Some(held) = &self.leases.delegations.rings[ring] else { return };
        let directory = held.directory.filter(|directory| self.is_delegated(*directory, ring));
        let Some(directory) = directory else { return };
        let Some(&table) = self.leases.delegations.by_directory.get(&directory) else { return };
        let submissions = self.submissions(ring);
        submissions.dedicate(held.session.0, (held.start.0, &held.prefix), (directory.0, table));
        submissions.believed_until.store(self.cycles_at(held.belief.until), Relaxed);
        submissions.give();
    }

    fn make_ring(&mut self, session: SessionId) -> bool {
        let ring = ring_of(session.0);
        let submissions = self.submissions(ring);
        let first = submissions.published.load(SeqCst) as u32;
        let ids: Vec<_> = (0..RECORDS).map(|_| self.promised_id()).collect();
        let promised = ids.iter().map_while(|id| self.files.opens.promise(session, *id));
        let promises: Vec<_> = promised.collect();
        if promises.len() < RECORDS {
            promises.into_iter().for_each(|promise| self.files.opens.break_promise(promise));
            return false;
        }
        for (record, promise) in submissions.records.iter().zip(&promises) {
            record.set_promise(*promise);
        }
        let promises = promises.into_iter().map(Some).collect();
        submissions.executed.store(first, Relaxed);
        submissions.stored.store(first, Relaxed);
        submissions.promised.store(first.wrapping_add(RECORDS as u32), Release);
        let mut held = Ring::new(session, first, promises, ids);
        if let Err(fault) = self.note_promised(ring, &held) {
            log::error("posted", format_args!("what is promised was not noted: {fault:?}"));
        }
        let object_bytes = self.offered_object_bytes();
        self.offer(ring, &mut held, object_bytes);
        self.leases.delegations.rings[ring] = Some(held);
        true
    }

    /// The session is over: what it had submitted is executed, and its ring is free.
    pub(crate) fn end_delegation(&mut self, session: SessionId) {
        let at = ring_of(session.0);
        if self.leases.delegations.streaks[at].session == session {
            self.end_streak(at);
        }
        let Some(ring) = &self.leases.delegations.rings[at] else { return };
        if ring.session != session {
            return;
        }
        self.release(at);
        let Some(mut ring) = self.leases.delegations.rings[at].take() else { return };
        self.end_promises(at, &mut ring);
        self.leases.delegations.ended |= 1 << at;
        for (at, promise) in ring.promises.into_iter().enumerate() {
            if let Some(unused) = promise.filter(|_| ring.opened & 1 << at == 0) {
                self.files.opens.break_promise(unused);
            }
        }
    }
}

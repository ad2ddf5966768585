//! Directories inside a delegated one whose names are in its table, too: they are *covered*.
//!
//! One that is made by submitting is covered from then on, since it has no names. So is one that
//! the daemon has looked into when all of its names are read at once. A covered directory is known
//! by the slot of its own path in the table; every change of its names is noted there, as those of
//! the delegated directory are ([`crate::leases::name_table`]), each by its path from that
//! directory. It ends when somebody asks for the directory's removal, or with the delegation. When
//! a commit leaves it without names, and nothing waits that was submitted in it, it is as if it
//! were new: its removal may be submitted.

use mayfly_meta::{Scan, key, record::DirectoryNode};
use mayfly_transport_shm::submission_ring::{
    RECORDS,
    name_table::{Entered, NameState, Print},
    split,
};
use mayfly_types::{Errno, FileId, limits::NAME_BYTES_MAX};

use crate::{
    fault::Outcome,
    leases::state::{
        covered_directories::{NAMES_AT_ONCE, Within, joined},
        delegation::{Candidate, Delegations},
        name_table::found_in,
        submissions::{members, place_of},
    },
    shard::Shard,
};

/// So many directories above one are looked at for one that is delegated: no path that a record has
/// leads through more.
const DEPTH_MAX: usize = NAME_BYTES_MAX / 2 + 1;

/// Of so many directories at most that a batch has left without names this is noted.
const EMPTIED_AT_ONCE: usize = 256;

/// A directory that has no names any more, and is asked for meanwhile.
#[derive(Debug)]
struct Emptied {
    table: usize,
    root: FileId,
    print: Print,
    /// Something waits that was submitted in it.
    used: bool,
}

impl Delegations {
    /// A directory has no names any more.
    pub(crate) fn emptied(&mut self, directory: FileId) {
        if self.covers && self.emptied.len() < EMPTIED_AT_ONCE {
            self.emptied.push(directory);
        }
    }
}

impl Shard {
    /// The nearest directory that is delegated: this one, or one above it.
    pub(super) fn above(&mut self, directory: FileId) -> Option<Within> {
        let (mut at, mut path) = (directory, Vec::new());
        for _ in 0..DEPTH_MAX {
            if let Some(&table) = self.leases.delegations.by_directory.get(&at) {
                return Some(Within { table, root: at, path });
            }
            // Without any that are covered only the directory itself counts.
            if !self.leases.delegations.covers || self.leases.delegations.by_directory.is_empty() {
                return None;
            }
            let located = self.load_own(at).ok()?;
            let DirectoryNode { parent, name, .. } = located.directory().ok()?;
            if *parent == at || name.is_empty() || path.len() > NAME_BYTES_MAX {
                return None;
            }
            path = if path.is_empty() { name.clone() } else { joined(name, &path) };
            at = *parent;
        }
        None
    }

    /// Where the names of a directory are noted; none when they are not.
    pub(crate) fn covering(&mut self, directory: FileId) -> Option<Within> {
        let within = self.above(directory)?;
        self.is_noted(&within).then_some(within)
    }

    /// Whether names are noted there.
    pub(crate) fn is_noted(&mut self, Within { table, root, path }: &Within) -> bool {
        let print = Print::of(path);
        path.is_empty() || self.is_left(*table, print) || self.is_covered((*table, *root), print)
    }

    /// A name of the directory is going to change, so that it is not one in which nothing was made:
    /// where the names are noted, if they are, and whether something was executed.
    pub(super) fn enter(&mut self, directory: FileId) -> (Option<Within>, bool) {
        let Some(within) = self.above(directory) else { return (None, false) };
        if within.path.is_empty() {
            return (Some(within), false);
        }
        let print = Print::of(&within.path);
        let (at, root) = (within.table, within.root);
        let Some((names, table, _)) = self.table(at, root) else { return (None, false) };
        match names.enter(&table.tally, print) {
            Entered::Covered => (Some(within), false),
            Entered::Uncovered => (Some(within).filter(|_| self.is_left(at, print)), false),
            Entered::Claimed => {
                // Its making was submitted, or its removal.
                let holders = self.take_back_table(at);
                let executed = self.execute_all(holders);
                let table = self.table(at, root);
                let entered =
                    table.is_some_and(|(names, table, _)| names.enter_claimed(&table.tally, print));
                self.give(at);
                (entered.then_some(within), executed)
            }
        }
    }

    /// The directory has few names, and may be covered after the commit.
    pub(super) fn propose_covering(&mut self, root: FileId, directory: FileId) {
        if self.leases.delegations.candidates.len() < NAMES_AT_ONCE as usize {
            self.leases.delegations.candidates.push(Candidate { root, directory });
            self.leases.delegations.covers = true;
        }
    }

    /// Everything is committed: looks into directories that are going to be covered.
    pub(super) fn cover_candidates(&mut self) {
        let mut budget = NAMES_AT_ONCE;
        let mut candidates = std::mem::take(&mut self.leases.delegations.candidates);
        while !candidates.is_empty() && budget != 0 {
            for Candidate { root, directory } in candidates {
                let Some(&at) = self.leases.delegations.by_directory.get(&root) else { continue };
                self.take_back_table(at);
                match self.cover((at, root), directory, budget) {
                    Ok(read) => {
                        budget = budget.saturating_sub(read.max(1));
                        self.give(at);
                    }
                    // What was noted of its names would not be kept up.
                    Err(_) => drop(self.forget_table(at)),
                }
            }
            candidates = std::mem::take(&mut self.leases.delegations.candidates);
        }
    }

    /// Covers a directory with no more names than `budget`, while nobody may submit; how many were
    /// read. An error when there is no room for them.
    fn cover(
        &mut self,
        (at, root): (usize, FileId),
        directory: FileId,
        budget: u64,
    ) -> Outcome<u64> {
        if self.leases.delegations.by_directory.contains_key(&directory)
            || !self.is_whole_here(directory)
            || self.has_remembered_names(directory)
            || self.source_of(directory)?.is_some()
        {
            return Ok(0);
        }
        let Some(within) = self.above(directory).filter(|within| within.root == root) else {
            return Ok(0);
        };
        let Ok(parent) = self.load_parent(directory) else { return Ok(0) };
        let (entries, print) = (parent.entries(), Print::of(&within.path));
        let leads_there = within.path.len() < NAME_BYTES_MAX && {
            let above = split(&within.path).0;
            above.is_empty() || self.is_covered((at, root), Print::of(&above[..above.len() - 1]))
        };
        if !leads_there || entries > budget {
            return Ok(0);
        }
        let Some((names, table, _)) = self.table(at, root) else { return Ok(0) };
        if !names.is_asked(&table.tally, print) {
            return Ok(0);
        }
        if entries != 0 {
            self.read_inside((at, root), directory, &within)?;
        }
        let name_state = if entries == 0 { NameState::NewDirectory } else { NameState::Covered };
        let Some((names, table, _)) = self.table(at, root) else { return Ok(0) };
        if names.cover(&table.tally, print, name_state) {
            return Ok(entries);
        }
        // Nobody submits, so nobody has claimed it.
        Err(Errno::EAGAIN.into())
    }

    fn is_covered(&mut self, (at, root): (usize, FileId), print: Print) -> bool {
        let table = self.table(at, root);
        table.is_some_and(|(names, table, _)| names.covers(&table.tally, print))
    }

    /// Reads the names of a directory into the table of one above it. Directories among them may be
    /// covered in their turn.
    fn read_inside(
        &mut self,
        (at, root): (usize, FileId),
        directory: FileId,
        within: &Within,
    ) -> Outcome<()> {
        let (mut found, from) = (Vec::new(), key::directory(directory));
        self.store.scan(&from, &from, &mut |key, record| {
            let name = key.get(key::PLACE_BYTES..).unwrap_or_default();
            found.push((within.print_of(name), found_in(record, &self.place)));
            Scan::More
        })?;
        for (print, (name_state, directory)) in found {
            let Some((names, table, spare)) = self.table(at, root) else { return Ok(()) };
            if !names.add(&mut table.tally, spare, (print, name_state)) {
                return Err(Errno::ENOMEM.into());
            }
            directory.into_iter().for_each(|id| self.propose_covering(root, id));
        }
        Ok(())
    }

    /// Everything is committed: notes of covered directories without names that nothing is in them,
    /// so that their removal may be submitted.
    pub(super) fn note_emptied(&mut self) {
        let emptied = std::mem::take(&mut self.leases.delegations.emptied);
        let mut left: Vec<Emptied> = Vec::new();
        for directory in emptied {
            left.extend(self.leave_emptied(directory));
        }
        // Who has seen that one is covered has published what he submits in it, or does not.
        for at in members(left.iter().fold(0, |tables, of| tables | 1 << of.table)) {
            self.find_used(at, &mut left);
        }
        for Emptied { table: at, root, print, used } in left {
            let name_state = if used { NameState::Covered } else { NameState::NewDirectory };
            if let Some((names, table, _)) = self.table(at, root) {
                names.cover(&table.tally, print, name_state);
            }
        }
    }

    /// From here on nobody submits in the directory who has not seen before that it is covered;
    /// none when that is not so, or it has names.
    fn leave_emptied(&mut self, directory: FileId) -> Option<Emptied> {
        let within = self.above(directory).filter(|within| !within.path.is_empty())?;
        let is_empty = self.load_parent(directory).is_ok_and(|parent| parent.entries() == 0);
        let (at, root, print) = (within.table, within.root, Print::of(&within.path));
        let (names, table, _) = self.table(at, root)?;
        let left = is_empty && names.leave(&table.tally, print);
        left.then_some(Emptied { table: at, root, print, used: false })
    }

    /// Looks for what was submitted in such directories of a table and waits. What is about to be
    /// is not submitted any more.
    fn find_used(&self, at: usize, left: &mut [Emptied]) {
        for ring in members(self.holders(at)) {
            let Some(held) = &self.leases.delegations.rings[ring] else { continue };
            let submissions = self.submissions(ring);
            let is_fresh = self.leases.delegations.fresh & 1 << ring != 0;
            let published = if is_fresh { submissions.count() } else { submissions.renew() };
            let waiting = published.wrapping_sub(held.executed).min(RECORDS as u32);
            for record in (0..waiting).map(|record| held.executed.wrapping_add(record)) {
                let path = submissions.records[place_of(record)].read_path();
                let Some(inside) = split(&path).0.strip_suffix(b"/") else { continue };
                let print = Print::of(inside);
                let of_it = left.iter_mut().filter(|of| of.table == at && of.print == print);
                of_it.for_each(|of| of.used = true);
            }
        }
    }
}

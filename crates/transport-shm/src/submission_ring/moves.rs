//! Moves of names: two records, since each name that a process submits about is claimed for one.
//!
//! The first one has the name that goes, the second one the name that comes, and they are published
//! together. The daemon does all of it with the first one.

use core::sync::atomic::Ordering::Relaxed;

use mayfly_sys::arch::Moment;
use mayfly_types::FileId;

use super::{
    RECORD_MOVE_TARGET, RECORD_MOVES, RECORDS, Record, SubmissionRing,
    name_table::{Claim, NameState, NameTables, Print, Seen},
    split,
    state::State,
};

/// A move of a name within a directory, as a process submits it.
#[derive(Debug, Clone, Copy)]
pub struct Move<'a> {
    /// From where, from the directory that is delegated.
    pub from: &'a [u8],
    /// To where: another name of the same directory.
    pub to: &'a [u8],
    /// Only to a name that is not there.
    pub new: bool,
    /// When and where.
    pub moment: Moment,
}

impl Record {
    fn write_move(&self, kind: u32, path: &[u8], moment: Moment) {
        self.write_path(path, moment);
        self.state.store(State::of(kind).0, Relaxed);
    }
}

impl SubmissionRing {
    /// Submits that a name of something that is no directory moves within its directory, in place
    /// of what has the other name; false when that is to be asked for. `is_certain` says, of a name
    /// about which nothing waits, that it is a regular file's which has no other name: otherwise
    /// both names might be the same file's, and stay. One thread at a time.
    #[must_use]
    pub fn submit_move(
        &self,
        (tables, delegation): (&NameTables, u32),
        moved: &Move<'_>,
        is_certain: impl FnOnce(FileId, &[u8]) -> bool,
    ) -> bool {
        let Move { from, to, new, moment } = *moved;
        if from == to || split(from).0 != split(to).0 {
            return false;
        }
        let Some((seen, first)) = self.next_of(delegation, 2) else { return false };
        let (count, second) = (seen as u32, (first + 1) % RECORDS);
        let names = self.names(tables);
        if !self.leads_inside(names, from, count) {
            return false;
        }
        let (print, target) = (Print::of(from), Print::of(to));
        let change = (Some(NameState::Plain), None);
        let Some(source) = self.claim(names, (count, first), print, change) else { return false };
        let may = |seen: Seen| {
            let is_there = self.name_state(target, seen, count);
            is_there == Some(None) || !new && is_there == Some(Some(NameState::Plain))
        };
        let Some(claim) = names.claim(target, second, may) else {
            source.give_up();
            return false;
        };
        let replaces = self.name_state(target, claim.before(), count) != Some(None);
        if replaces && !self.is_alone((print, from), source.before(), count, is_certain) {
            give_up([source, claim]);
            return false;
        }
        self.latest[second].store(target.with(Some(NameState::Plain)), Relaxed);
        self.records[first].write_move(RECORD_MOVES, from, moment);
        self.records[second].write_move(RECORD_MOVE_TARGET, to, moment);
        let published = self.publish_records(seen, 2);
        if !published {
            give_up([source, claim]);
        }
        published
    }

    /// Whether a name that is claimed is a regular file's that has no other.
    fn is_alone(
        &self,
        (print, path): (Print, &[u8]),
        before: Seen,
        count: u32,
        is_certain: impl FnOnce(FileId, &[u8]) -> bool,
    ) -> bool {
        match before {
            // Its own claim stands there now, so what waits is told by the records.
            Seen::Claimed(place) => self.is_file_of_own(print, place, None, count),
            _ => is_certain(FileId(self.directory.load(Relaxed)), path),
        }
    }

    /// The place of the record that has the name to which the one of this place moves another; none
    /// when it has none.
    #[cfg(feature = "server")]
    #[must_use]
    pub fn target_of(&self, place: usize) -> Option<usize> {
        let second = (place + 1) % RECORDS;
        let kind = State(self.records[second].state.load(Relaxed)).kind();
        (kind == RECORD_MOVE_TARGET).then_some(second)
    }
}

fn give_up(claims: [Claim<'_>; 2]) {
    claims.into_iter().for_each(Claim::give_up);
}

#[cfg(all(test, feature = "server"))]
mod tests;

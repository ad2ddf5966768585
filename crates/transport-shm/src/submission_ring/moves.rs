//! Moves of names, and second names of files: two records, since each name that a process submits
//! about is claimed for one.
//!
//! The first one has the name that is there, the second one the name that comes, and they are
//! published together. The daemon does all of it with the first one.

use core::sync::atomic::Ordering::Relaxed;

use mayfly_sys::arch::Moment;
use mayfly_types::FileId;

use super::{
    RECORD_LINKS, RECORD_MOVE_TARGET, RECORD_MOVES, RECORDS, Record, SubmissionRing,
    name_table::{Claim, NameState, NameTables, Print, Seen},
    state::State,
};

/// A move of a name, or a second name of a file, as a process submits it.
#[derive(Debug, Clone, Copy)]
pub struct Move<'a> {
    /// The name that is there, from the directory that is delegated.
    pub from: &'a [u8],
    /// The name that comes, from the same one: both may be in directories inside.
    pub to: &'a [u8],
    /// What becomes of the two.
    pub how: MoveKind,
    /// When and where.
    pub moment: Moment,
}

/// What becomes of two names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveKind {
    /// The first one becomes the second one, also in place of a file that has that.
    Replace,
    /// The same, only to a name that is not there.
    New,
    /// The file has both: the second one was not there.
    Link,
}

impl Record {
    fn write_move(&self, kind: u32, path: &[u8], moment: Moment) {
        self.write_path(path, moment);
        self.state.store(State::of(kind).0, Relaxed);
    }
}

impl SubmissionRing {
    /// Submits that a name of something that is no directory moves, also in place of what has the
    /// other name, or that a file gets that name, too; false when it is to be asked for.
    /// `is_certain` says, of a name about which nothing waits, that it is a regular file's which
    /// has no other name. Where something is replaced both names might be the same file's, and
    /// stay; of a file with several names nothing is certain that was submitted by one of them.
    /// One thread at a time.
    #[must_use]
    pub fn submit_move(
        &self,
        (tables, delegation): (&NameTables, u32),
        moved: &Move<'_>,
        is_certain: impl FnOnce(FileId, &[u8]) -> bool,
    ) -> bool {
        let Move { from, to, how, moment } = *moved;
        let Some((seen, first)) = self.next_of(delegation, 2).filter(|_| from != to) else {
            return false;
        };
        let (count, second) = (seen as u32, (first + 1) % RECORDS);
        let names = self.names(tables);
        if !self.leads_inside(names, from, count) || !self.leads_inside(names, to, count) {
            return false;
        }
        let (print, target) = (Print::of(from), Print::of(to));
        let stays = (how == MoveKind::Link).then_some(NameState::Plain);
        let change = (Some(NameState::Plain), stays);
        let Some(source) = self.claim(names, (count, first), print, change) else { return false };
        let may = |seen: Seen| {
            let is_there = self.name_state(target, seen, count);
            is_there == Some(None)
                || how == MoveKind::Replace && is_there == Some(Some(NameState::Plain))
        };
        let Some(claim) = names.claim(target, second, may) else {
            source.give_up();
            return false;
        };
        let replaces = self.name_state(target, claim.before(), count) != Some(None);
        if (replaces || how == MoveKind::Link)
            && !self.is_alone((print, from), source.before(), count, is_certain)
        {
            give_up([source, claim]);
            return false;
        }
        self.latest[second].store(target.with(Some(NameState::Plain)), Relaxed);
        let kind = if how == MoveKind::Link { RECORD_LINKS } else { RECORD_MOVES };
        self.records[first].write_move(kind, from, moment);
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

    /// The place of the record that has the second name of the one of this place; none when it has
    /// none.
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

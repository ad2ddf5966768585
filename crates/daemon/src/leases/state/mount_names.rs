//! What [`crate::leases::mount_names`] keeps: the names that kernels of mounts were told.

use mayfly_types::{FileId, SessionId, limits::MOUNT_NAMES_MAX};

use crate::maps::HashMap;

/// For so long a name that was recalled is not told again, seconds: it may change again soon.
const PAUSE_SECONDS: i64 = 2;

/// Who was told.
#[derive(Debug, Clone, Copy)]
struct Holder {
    mount: SessionId,
    /// It was asked to give the name up.
    asked: bool,
}

/// A name, and the file that it stands for.
#[derive(Debug)]
struct Told {
    id: FileId,
    /// Nobody believes it from this second on.
    until: i64,
    /// Nobody is told of it before this second.
    pause: i64,
    holders: Vec<Holder>,
}

/// The names, by directory.
#[derive(Debug, Default)]
pub(crate) struct MountNames {
    /// The mount whose request is executed now: it knows what it changes itself.
    pub(crate) acting: Option<SessionId>,
    /// An earlier daemon may have told names that are not here, until that second.
    pub(crate) unknown_until: i64,
    names: HashMap<FileId, HashMap<Vec<u8>, Told>>,
    by_id: HashMap<FileId, (FileId, Vec<u8>)>,
    count: usize,
    /// Somebody waits for a mount, until that second at most.
    waited_for: Option<i64>,
    /// The second in which it was looked last which names are over: all are looked at.
    looked_at: i64,
}

impl MountNames {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn get(&self, directory: FileId, name: &[u8]) -> Option<&Told> {
        self.names.get(&directory)?.get(name)
    }

    fn get_mut(&mut self, directory: FileId, name: &[u8]) -> Option<&mut Told> {
        self.names.get_mut(&directory)?.get_mut(name)
    }

    /// Whether there is a reason not to tell anybody of the name now.
    pub(crate) fn is_paused(&self, directory: FileId, name: &[u8], now: i64) -> bool {
        let asked = |told: &Told| now < told.until && told.holders.iter().any(|of| of.asked);
        self.get(directory, name).is_some_and(|told| now < told.pause || asked(told))
    }

    /// A mount is told of the name, and perhaps of the attributes of its file, until then. False
    /// when there is no room.
    pub(crate) fn note(
        &mut self,
        (directory, name): (FileId, &[u8]),
        (id, attributes): (FileId, bool),
        mount: SessionId,
        (now, until): (i64, i64),
    ) -> bool {
        if self.count >= MOUNT_NAMES_MAX && self.get(directory, name).is_none() {
            self.drop_over(now);
            if self.count >= MOUNT_NAMES_MAX {
                return false;
            }
        }
        let names = self.names.entry(directory).or_default();
        let before = names.len();
        let fresh = || Told { id, until, pause: 0, holders: Vec::new() };
        let told = names.entry(name.to_vec()).or_insert_with(fresh);
        if now >= told.until {
            told.holders.clear();
        }
        (told.id, told.until) = (id, told.until.max(until));
        if !told.holders.iter().any(|of| of.mount == mount) {
            told.holders.push(Holder { mount, asked: false });
        }
        self.count += names.len() - before;
        if attributes {
            self.by_id.insert(id, (directory, name.to_vec()));
        }
        true
    }

    /// The name under which the attributes of the file were told.
    pub(crate) fn name_of(&self, id: FileId) -> Option<(FileId, &[u8])> {
        self.by_id.get(&id).map(|(directory, name)| (*directory, name.as_slice()))
    }

    /// Whether a mount may believe a name of the directory, other than this one.
    pub(crate) fn has(&self, directory: FileId, but: Option<SessionId>, now: i64) -> bool {
        let other = |of: &Holder| Some(of.mount) != but;
        self.names.get(&directory).is_some_and(|names| {
            names.values().any(|told| now < told.until && told.holders.iter().any(other))
        })
    }

    /// Whether a mount may believe the name, other than the one whose request is executed.
    pub(crate) fn is_held(&self, directory: FileId, name: &[u8], now: i64) -> bool {
        let told = self.get(directory, name).filter(|told| now < told.until);
        told.is_some_and(|told| told.holders.iter().any(|of| Some(of.mount) != self.acting))
    }

    /// The mounts that are to be asked to give the name up, each once, and what it stands for.
    /// Whoever is `spared` changes it.
    pub(crate) fn recall(
        &mut self,
        (directory, name): (FileId, &[u8]),
        spared: Option<SessionId>,
        now: i64,
    ) -> (FileId, Vec<SessionId>) {
        let Some(told) = self.get_mut(directory, name).filter(|told| now < told.until) else {
            return (FileId::NONE, Vec::new());
        };
        told.pause = now + PAUSE_SECONDS;
        let asked = told.holders.iter_mut().filter(|of| Some(of.mount) != spared && !of.asked);
        let asked = asked.map(|of| {
            of.asked = true;
            of.mount
        });
        (told.id, asked.collect())
    }

    /// Whether somebody who was asked to give the name up has not.
    pub(crate) fn waits(&mut self, directory: FileId, name: &[u8], now: i64) -> bool {
        let told = self.get(directory, name).filter(|told| now < told.until);
        let Some(told) = told.filter(|told| told.holders.iter().any(|of| of.asked)) else {
            return false;
        };
        let until = told.until;
        self.waited_for = Some(self.waited_for.map_or(until, |earlier| earlier.min(until)));
        true
    }

    /// A mount believes the name no more.
    pub(crate) fn let_go(&mut self, directory: FileId, name: &[u8], mount: SessionId) {
        if let Some(told) = self.get_mut(directory, name) {
            told.holders.retain(|of| of.mount != mount);
        }
    }

    /// The kernel of a mount has moved a name by itself, with what it believes of it.
    pub(crate) fn moved(
        &mut self,
        (directory, name): (FileId, &[u8]),
        to: (FileId, &[u8]),
        mount: SessionId,
        now: i64,
    ) {
        let told = self.get(directory, name).filter(|told| now < told.until);
        let told = told.filter(|told| told.holders.iter().any(|of| of.mount == mount));
        if let Some(&Told { id, until, .. }) = told
            && !self.note(to, (id, self.by_id.contains_key(&id)), mount, (now, until))
        {
            // There is room for one more, since a name that has gone needs none.
            self.let_go(directory, name, mount);
        }
    }

    /// A mount is gone.
    pub(crate) fn ended(&mut self, mount: SessionId) {
        for told in self.names.values_mut().flat_map(HashMap::values_mut) {
            told.holders.retain(|of| of.mount != mount);
        }
    }

    fn drop_over(&mut self, now: i64) {
        if self.looked_at == now {
            return;
        }
        self.looked_at = now;
        self.names.retain(|_, names| {
            names.retain(|_, told| now < told.until.max(told.pause));
            !names.is_empty()
        });
        self.count = self.names.values().map(HashMap::len).sum();
        let names = &self.names;
        self.by_id.retain(|_, (directory, name)| {
            names.get(directory).is_some_and(|names| names.contains_key(name))
        });
    }

    /// Somebody waits for time to pass.
    pub(crate) fn is_due(&self) -> bool {
        self.waited_for.is_some() || self.unknown_until > 0
    }

    /// Whether so much time has passed that whoever waits is to look again.
    pub(crate) fn is_over(&mut self, now: i64) -> bool {
        let over = self.waited_for.is_some_and(|until| now >= until);
        if over {
            self.waited_for = None;
        }
        let known = self.unknown_until > 0 && now >= self.unknown_until;
        if known {
            self.unknown_until = 0;
        }
        over || known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (FileId, &[u8]) = (FileId(1), b"a");
    const FILE: FileId = FileId(9);
    const MOUNTS: [SessionId; 2] = [SessionId(3), SessionId(4)];

    fn told() -> MountNames {
        let mut names = MountNames::default();
        for mount in MOUNTS {
            assert!(names.note(ONE, (FILE, true), mount, (5, 10)));
        }
        names
    }

    #[test]
    fn a_name_is_recalled_from_all_but_the_mount_that_changes_it() {
        let mut names = told();
        names.acting = Some(MOUNTS[0]);
        assert!(names.is_held(ONE.0, ONE.1, 6));
        assert_eq!(names.recall(ONE, names.acting, 6), (FILE, vec![MOUNTS[1]]));
        assert_eq!(names.recall(ONE, names.acting, 6).1, [], "it is asked once");
        assert!(names.waits(ONE.0, ONE.1, 6) && names.is_paused(ONE.0, ONE.1, 6));
        names.let_go(ONE.0, ONE.1, MOUNTS[1]);
        assert!(!names.waits(ONE.0, ONE.1, 6) && !names.is_held(ONE.0, ONE.1, 6));
        names.acting = None;
        assert!(names.is_held(ONE.0, ONE.1, 6), "the one that changed it believes it still");
        assert!(names.is_paused(ONE.0, ONE.1, 7) && !names.is_paused(ONE.0, ONE.1, 8));
    }

    #[test]
    fn a_mount_that_does_not_answer_is_waited_for_until_it_believes_nothing_any_more() {
        let mut names = told();
        assert_eq!(names.recall(ONE, None, 6).1, MOUNTS);
        assert!(names.waits(ONE.0, ONE.1, 9) && names.is_due() && !names.is_over(9));
        assert!(!names.waits(ONE.0, ONE.1, 10) && names.is_over(10) && !names.is_due());
        assert!(names.has(ONE.0, None, 9) && !names.has(ONE.0, None, 10));
    }

    #[test]
    fn a_name_that_a_mount_moves_is_found_at_both_places() {
        let mut names = told();
        let to: (FileId, &[u8]) = (FileId(2), b"b");
        names.moved(ONE, to, MOUNTS[0], 6);
        assert!(names.is_held(to.0, to.1, 6) && names.is_held(ONE.0, ONE.1, 6));
        assert_eq!(names.name_of(FILE), Some((FileId(2), &b"b"[..])));
        names.ended(MOUNTS[0]);
        assert!(!names.is_held(to.0, to.1, 6) && names.is_held(ONE.0, ONE.1, 6));
        names.moved((FileId(7), b"unknown"), to, MOUNTS[0], 6);
        assert!(!names.is_held(to.0, to.1, 6));
    }

    #[test]
    fn the_table_is_bounded_and_has_room_again_when_time_has_passed() {
        let mut names = MountNames::default();
        let text = |number: usize| number.to_string().into_bytes();
        for number in 0..MOUNT_NAMES_MAX {
            assert!(names.note((FileId(1), &text(number)), (FILE, false), MOUNTS[0], (5, 10)));
        }
        assert!(!names.note((FileId(2), b"more"), (FILE, false), MOUNTS[0], (9, 14)));
        assert!(
            names.note((FileId(1), &text(0)), (FILE, false), MOUNTS[1], (9, 14)),
            "it is there"
        );
        assert!(names.note((FileId(2), b"more"), (FILE, false), MOUNTS[0], (10, 15)));
        assert_eq!(names.count, 2);
    }
}

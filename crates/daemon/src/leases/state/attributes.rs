//! Files of this shard whose attributes others may know.

use mayfly_types::FileId;

use crate::maps::HashMap;

/// The one name of a file that was told with its attributes. Who remembers the name may know these
/// ([`crate::namespace::state::remembered`]).
#[derive(Debug)]
struct Told {
    directory: FileId,
    name: Vec<u8>,
    /// The file is about to change: until this second nobody is told anew.
    changes_until: i64,
}

/// The files, by identity.
#[derive(Debug, Default)]
pub(crate) struct LeasedAttributes {
    files: HashMap<FileId, Told>,
}

impl LeasedAttributes {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The file is told under this name. False when it is about to change, or there is no room;
    /// `is_over` says of what was told whether nobody knows it any more.
    pub(crate) fn note(
        &mut self,
        id: FileId,
        (directory, name): (FileId, &[u8]),
        (now, files_max): (i64, usize),
        is_over: impl Fn(FileId, &[u8]) -> bool,
    ) -> bool {
        if self.files.get(&id).is_some_and(|told| now < told.changes_until) {
            return false;
        }
        if self.files.len() >= files_max && !self.files.contains_key(&id) {
            self.files
                .retain(|_, told| now < told.changes_until || !is_over(told.directory, &told.name));
            if self.files.len() >= files_max {
                return false;
            }
        }
        self.files.insert(id, Told { directory, name: name.to_vec(), changes_until: 0 });
        true
    }

    /// The name by which the file was told.
    pub(crate) fn name(&self, id: FileId) -> Option<(FileId, &[u8])> {
        self.files.get(&id).map(|told| (told.directory, told.name.as_slice()))
    }

    /// The file is about to change; it takes no longer than until this second.
    pub(crate) fn is_to_change(&mut self, id: FileId, until: i64) {
        if let Some(told) = self.files.get_mut(&id) {
            told.changes_until = until;
        }
    }

    /// Nobody knows the file.
    pub(crate) fn remove(&mut self, id: FileId) {
        self.files.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 2;

    #[test]
    fn a_file_that_is_about_to_change_is_not_told() {
        let mut told = LeasedAttributes::default();
        let name = (FileId(1), &b"a"[..]);
        assert!(told.note(FileId(7), name, (5, ROOM), |_, _| false));
        told.is_to_change(FileId(7), 9);
        assert!(!told.note(FileId(7), name, (8, ROOM), |_, _| false));
        assert!(told.note(FileId(7), name, (9, ROOM), |_, _| false));
        told.remove(FileId(7));
        assert!(told.is_empty() && told.name(FileId(7)).is_none());
    }

    #[test]
    fn what_nobody_knows_any_more_makes_room() {
        let mut told = LeasedAttributes::default();
        let name = |name: &'static [u8]| (FileId(1), name);
        assert!(told.note(FileId(7), name(b"a"), (5, ROOM), |_, _| false));
        assert!(told.note(FileId(8), name(b"b"), (5, ROOM), |_, _| false));
        assert!(!told.note(FileId(9), name(b"c"), (5, ROOM), |_, _| false), "there is no room");
        assert!(told.note(FileId(8), name(b"b"), (5, ROOM), |_, _| false), "it is there already");
        assert!(told.note(FileId(9), name(b"c"), (5, ROOM), |_, name| name == b"a"));
        assert_eq!(told.name(FileId(9)), Some(name(b"c")));
        assert!(told.name(FileId(7)).is_none());
    }
}

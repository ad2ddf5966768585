//! Names of this shard that others may remember.

use mayfly_types::FileId;

use crate::maps::HashMap;

/// Who may remember a name, and until which second.
#[derive(Debug, Default)]
struct Remembered {
    shards: Vec<u32>,
    until: i64,
}

/// How much of other shards' names is shown to processes (`leases/shown_names.rs`).
#[derive(Debug, Default)]
pub(crate) struct ShownNames {
    pub(crate) count: usize,
    /// What their records take.
    pub(crate) bytes: usize,
}

/// The names, by directory.
#[derive(Debug, Default)]
pub(crate) struct RememberedNames {
    names: HashMap<FileId, HashMap<Vec<u8>, Remembered>>,
    count: usize,
}

impl RememberedNames {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The shard may remember the name until then. False when there is no room for that.
    pub(crate) fn note(
        &mut self,
        (directory, name): (FileId, &[u8]),
        (shard, until): (u32, i64),
        (now, names_max): (i64, usize),
    ) -> bool {
        if self.count >= names_max {
            self.drop_over(now);
            if self.count >= names_max {
                return false;
            }
        }
        let names = self.names.entry(directory).or_default();
        let before = names.len();
        let of = names.entry(name.to_vec()).or_default();
        if !of.shards.contains(&shard) {
            of.shards.push(shard);
        }
        of.until = of.until.max(until);
        self.count += names.len() - before;
        true
    }

    /// Who may remember the name at this second.
    pub(crate) fn of(&self, directory: FileId, name: &[u8], now: i64) -> &[u32] {
        let of = self.names.get(&directory).and_then(|names| names.get(name));
        of.filter(|of| now < of.until).map(|of| of.shards.as_slice()).unwrap_or_default()
    }

    /// Whether somebody may remember a name of the directory.
    pub(crate) fn has(&self, directory: FileId, now: i64) -> bool {
        let names = self.names.get(&directory);
        names.is_some_and(|names| names.values().any(|of| now < of.until))
    }

    /// Nobody remembers the name.
    pub(crate) fn remove(&mut self, directory: FileId, name: &[u8]) {
        let Some(names) = self.names.get_mut(&directory) else { return };
        self.count -= usize::from(names.remove(name).is_some());
        if names.is_empty() {
            self.names.remove(&directory);
        }
    }

    fn drop_over(&mut self, now: i64) {
        self.names.retain(|_, names| {
            names.retain(|_, of| now < of.until);
            !names.is_empty()
        });
        self.count = self.names.values().map(HashMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: FileId = FileId(1);

    #[test]
    fn a_name_is_remembered_until_the_last_of_all_times() {
        let mut names = RememberedNames::default();
        assert!(names.note((ONE, b"a"), (3, 10), (5, 2)));
        assert!(names.note((ONE, b"a"), (4, 8), (6, 2)));
        assert_eq!(names.of(ONE, b"a", 9), [3, 4]);
        assert!(names.has(ONE, 9) && !names.has(FileId(2), 9));
        assert!(names.of(ONE, b"a", 10).is_empty() && !names.has(ONE, 10));
        assert!(names.of(ONE, b"b", 9).is_empty());
    }

    #[test]
    fn there_is_room_again_when_names_are_removed_or_their_time_is_over() {
        let mut names = RememberedNames::default();
        for (name, until) in [(b"a", 10), (b"b", 20)] {
            assert!(names.note((ONE, name), (3, until), (5, 2)));
        }
        assert!(!names.note((ONE, b"c"), (3, 30), (9, 2)), "both may be remembered still");
        assert!(names.note((ONE, b"c"), (3, 30), (10, 2)));
        assert!(!names.note((ONE, b"d"), (3, 30), (10, 2)));
        names.remove(ONE, b"b");
        names.remove(ONE, b"b");
        assert!(names.note((ONE, b"d"), (3, 30), (10, 2)));
        names.remove(ONE, b"c");
        names.remove(ONE, b"d");
        assert!(names.is_empty());
    }
}

//! The names of delegated directories, as those who have them delegated see them
//! ([`mayfly_transport_shm::posts::names`]).
//!
//! Every change of a name comes by here ([`Core::name_changed`]). Before somebody else than its
//! holder changes one, the name is reserved ([`Core::reserve_name`]): the holder asks for it then.

use mayfly_meta::{Scan, key, record::Dentry};
use mayfly_transport_shm::posts::names::{Print, Standing};
use mayfly_types::{FileId, FileKind};

use super::{Core, Outcome};

/// How a name stands that is there.
pub(super) fn standing_of(kind: FileKind) -> Standing {
    if kind == FileKind::Directory { Standing::Asked } else { Standing::Plain }
}

impl Core {
    /// Whoever has the directory delegated asks for this name from here on. True when something was
    /// executed, so that what was found out before may not be so any more.
    pub(super) fn reserve_name(&mut self, directory: FileId, name: &[u8]) -> bool {
        let Some(&ring) = self.delegations.by_directory.get(&directory) else { return false };
        let posts = self.posts(ring);
        posts.take_back();
        let executed = self.execute_ring(ring);
        self.stand(ring, directory, name, Some(Standing::Asked));
        executed
    }

    /// A name stands so now; none: it is gone.
    pub(super) fn name_changed(
        &mut self,
        directory: FileId,
        name: &[u8],
        standing: Option<Standing>,
    ) {
        let Some(&ring) = self.delegations.by_directory.get(&directory) else { return };
        if self.delegations.executing != Some(ring) {
            self.posts(ring).take_back();
            self.stand(ring, directory, name, standing);
        } else if !self.note(ring, name, standing) {
            // What was posted with a look at the old table does not count.
            self.posts(ring).take_back();
            self.grow(ring, directory, name, standing);
        }
    }

    /// Notes how a name stands while nobody may post, and lets its holder post again.
    fn stand(&mut self, ring: usize, directory: FileId, name: &[u8], standing: Option<Standing>) {
        // What was executed meanwhile may have ended it.
        if self.delegations.by_directory.get(&directory) != Some(&ring) {
            return;
        }
        if self.note(ring, name, standing) {
            self.posts(ring).give();
        } else {
            self.grow(ring, directory, name, standing);
        }
    }

    fn note(&mut self, ring: usize, name: &[u8], standing: Option<Standing>) -> bool {
        let (names, print) = (&self.posts(ring).names, Print::of(name));
        let tally = &mut self.delegations.tallies[ring];
        match standing {
            Some(standing) => names.put(tally, print, standing),
            None => {
                names.remove(tally, print);
                true
            }
        }
    }

    /// Makes room for one more name, while nobody may post. A directory of too many names is not
    /// delegated any more; what was posted in it is executed in its turn.
    fn grow(&mut self, ring: usize, directory: FileId, name: &[u8], standing: Option<Standing>) {
        let posts = self.posts(ring);
        let grown = posts.names.grow(&mut self.delegations.tallies[ring]);
        if grown && self.note(ring, name, standing) {
            posts.give();
        } else {
            self.delegations.by_directory.remove(&directory);
        }
    }

    /// Fills the table with the names of a directory; false when there are more than it takes.
    pub(super) fn fill_table(&mut self, ring: usize, directory: FileId) -> Outcome<bool> {
        let names = self.load_parent(directory)?.entries();
        let (posts, tally) = (self.posts(ring), &mut self.delegations.tallies[ring]);
        let mut fits = posts.names.lay_out(tally, usize::try_from(names).unwrap_or(usize::MAX));
        let prefix = key::directory(directory);
        self.store.scan(&prefix, &prefix, &mut |key, record| {
            let name = key.get(key::PLACE_BYTES..).unwrap_or_default();
            let standing =
                Dentry::peek(record).map_or(Standing::Asked, |(_, kind)| standing_of(kind));
            fits = fits && posts.names.put(tally, Print::of(name), standing);
            if fits { Scan::More } else { Scan::Enough }
        })?;
        Ok(fits)
    }
}

//! The names of delegated directories, as those who have them delegated see them
//! ([`mayfly_transport_shm::posts::names`]).
//!
//! Every change of a name comes by here ([`Core::name_changed`]). What the holder itself has posted
//! stands in the table at once: a daemon that takes over executes it again, in its order. What was
//! asked for counts from its commit on: until then the name is one that is to be asked for, since
//! the request may come again after what a holder has posted who saw its outcome.

use mayfly_meta::{Scan, key, record::Dentry};
use mayfly_transport_shm::posts::names::{Print, Standing};
use mayfly_types::{FileId, FileKind};

use super::{Core, Outcome};

/// How a name stands when the batch is committed; none: it is gone.
#[derive(Debug)]
pub(super) struct Settled {
    ring: usize,
    directory: FileId,
    print: Print,
    standing: Option<Standing>,
}

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
        self.mark_asked(ring, directory, name);
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
        let (posts, print) = (self.posts(ring), Print::of(name));
        if self.delegations.executing == Some(ring) {
            return self.set(ring, directory, print, standing);
        }
        if posts.names.find(print) != Some(Standing::Asked) {
            posts.take_back();
            self.mark_asked(ring, directory, name);
        }
        self.delegations.settled.push(Settled { ring, directory, print, standing });
    }

    /// The batch is committed: what was asked for in it is as it is, and who was given a directory
    /// may post.
    pub(super) fn settle_names(&mut self) {
        for settled in std::mem::take(&mut self.delegations.settled) {
            let Settled { ring, directory, print, standing } = settled;
            if self.is_delegated(directory, ring) {
                self.set(ring, directory, print, standing);
            }
        }
        self.begin_delegations();
    }

    /// While nobody may post, marks a name as one that is to be asked for, and lets the holder post
    /// again.
    fn mark_asked(&mut self, ring: usize, directory: FileId, name: &[u8]) {
        let (print, asked) = (Print::of(name), Some(Standing::Asked));
        // What was executed meanwhile may have ended it.
        if !self.is_delegated(directory, ring) {
            return;
        }
        if self.note(ring, print, asked) {
            self.give(ring);
        } else {
            self.grow(ring, directory, print, asked);
        }
    }

    /// Lets the holder post, unless it has to wait for the commit.
    fn give(&mut self, ring: usize) {
        if self.delegations.fresh.iter().all(|fresh| fresh.ring != ring) {
            self.posts(ring).give();
        }
    }

    /// Notes how a name stands, beside a holder that may post.
    fn set(&mut self, ring: usize, directory: FileId, print: Print, standing: Option<Standing>) {
        if !self.note(ring, print, standing) {
            // What was posted with a look at the old table does not count.
            self.posts(ring).take_back();
            self.grow(ring, directory, print, standing);
        }
    }

    fn note(&mut self, ring: usize, print: Print, standing: Option<Standing>) -> bool {
        let names = &self.posts(ring).names;
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
    fn grow(&mut self, ring: usize, directory: FileId, print: Print, standing: Option<Standing>) {
        let grown = self.posts(ring).names.grow(&mut self.delegations.tallies[ring]);
        if grown && self.note(ring, print, standing) {
            self.give(ring);
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

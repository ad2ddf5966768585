//! From what a walk found to the file itself.
//!
//! A file that is at home at another shard takes its request there: what arrives has the file's
//! number, and whether it was found under a name.

use mayfly_types::{Errno, FileId, FileKind};
use mayfly_wire::Walk;

use crate::{
    fault::{Fault, Outcome},
    message::At,
    namespace::state::{
        inode::Located,
        walk::{Last, Place, Rule},
    },
    shard::Shard,
};

impl Shard {
    /// What a path names, for operations that need it to exist.
    pub(crate) fn find(&mut self, walk: &Walk<'_>) -> Outcome<Located> {
        if let At::File { id, slash, by_name } = self.run.place.at {
            let located = self.load_arrived(id, by_name)?;
            if slash && located.inode.kind() != FileKind::Directory {
                return Err(Errno::ENOTDIR.into());
            }
            return Ok(located);
        }
        let place = self.walk(walk, Rule::Target)?;
        if place.last != Last::Name {
            return self.load_start(place.directory, !walk.path.is_empty());
        }
        let (id, kind) = place.found.ok_or(Errno::ENOENT)?;
        if place.slash && kind != FileKind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        self.load_by_name(id, place)
    }

    /// The file that a walk found under a name. A request whose file is at home elsewhere goes
    /// there.
    pub(super) fn load_by_name(&mut self, id: FileId, place: Place) -> Outcome<Located> {
        if !self.is_home(id) {
            return Err(self.elsewhere(id, place.slash, true));
        }
        match self.load_placed(id, place) {
            Err(Fault::Errno(Errno::ENOENT)) if !self.place.alone => Err(Fault::Again),
            other => other,
        }
    }

    /// The file that a walk found under a name, from its record.
    pub(super) fn load_placed(&mut self, id: FileId, place: Place) -> Outcome<Located> {
        self.load_under(id, place.directory, place.cookie, place.name)
    }

    /// The file that a request of another shard is about.
    pub(super) fn load_arrived(&mut self, id: FileId, by_name: bool) -> Outcome<Located> {
        let found = match self.files.opens.file(id) {
            Some(_) => self.load_open(id),
            None => self.load_directory(id),
        };
        match found {
            // Found under a name, it may have been removed, and the name set anew.
            Ok(located) if by_name && located.inode.links == 0 => Err(Fault::Again),
            Err(Fault::Errno(Errno::ENOENT)) if by_name => Err(Fault::Again),
            other => other,
        }
    }
}

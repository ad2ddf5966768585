//! What was submitted about files that are there ([`mayfly_transport_shm::submission_ring`]).
//!
//! A file gets another name, or moves, also to another directory of what is delegated. Attributes
//! are changed of a file that has one name, which the process has claimed, and whose
//! attributes all stand in its record: nobody else changes them meanwhile without having this
//! executed first.

use mayfly_meta::{key, record::Inode};
use mayfly_transport_shm::submission_ring::{Changes, split};
use mayfly_types::{Errno, FileKind, Timestamp};
use mayfly_wire::{SET_ATIME, SET_ATIME_NOW, SET_MTIME, SET_MTIME_NOW, SetAttr, Target};

use crate::{
    fault::Outcome,
    leases::state::cycles::Present,
    namespace::state::{
        attr::apply,
        dentry::Wanted,
        walk::{Last, Place},
    },
    shard::Shard,
    shards::planted::{Planted, is_planted},
};

impl Shard {
    /// Changes attributes of what is found at a place.
    pub(super) fn change_submitted(
        &mut self,
        place: Place,
        changes: &Changes,
        present: Present,
    ) -> Outcome<()> {
        let (id, kind) = place.found.ok_or(Errno::ENOENT)?;
        if kind != FileKind::Regular {
            return Err(Errno::EPROTO.into());
        }
        let mut located = self.load_under(id, place.directory, place.cookie, place.name)?;
        self.apply_submitted(&mut located.inode, changes, present);
        self.save(&located)
    }

    /// Moves what is found at a place to the name that a path from the delegated directory ends
    /// with.
    pub(super) fn move_submitted(&mut self, from: Place, to: &[u8]) -> Outcome<()> {
        let (id, kind) = from.found.ok_or(Errno::ENOENT)?;
        let to = self.second_place(&from, to)?;
        let is_wrong = |(there, kind)| there == id || kind == FileKind::Directory;
        if kind == FileKind::Directory || to.found.is_some_and(is_wrong) {
            return Err(Errno::EPROTO.into());
        }
        if is_planted(Planted::MovedNameStays) {
            return Ok(());
        }
        self.mount_moves(&from, &to, false);
        self.move_name(&from, &to)
    }

    /// Gives the file at a place such a name, too.
    pub(super) fn link_submitted(&mut self, from: Place, to: &[u8]) -> Outcome<()> {
        let (id, kind) = from.found.ok_or(Errno::ENOENT)?;
        let to = self.second_place(&from, to)?;
        if kind != FileKind::Regular || to.found.is_some() {
            return Err(Errno::EPROTO.into());
        }
        if is_planted(Planted::SubmittedLinkLost) {
            return Ok(());
        }
        let located = self.load_under(id, from.directory, from.cookie, from.name)?;
        self.add_link(&located, to)
    }

    /// The place of the second name of a record. Only a process that does not keep to its
    /// delegation can have submitted what does not fit there.
    fn second_place(&mut self, first: &Place, path: &[u8]) -> Outcome<Place> {
        let (inside, name) = split(path);
        let executing = self.leases.delegations.executing.as_ref().ok_or(Errno::EPROTO)?;
        let (root, is_here) = (executing.root, executing.path == inside);
        let directory = if is_here { first.directory } else { self.resolve(root, inside)? };
        let (cookie, name) = (key::cookie(directory, name), name.to_vec());
        self.namespace.found_file = None;
        let found = self.lookup_at((directory, cookie, &name), Wanted::Name)?;
        self.namespace.found_file = None;
        Ok(Place { directory, name, cookie, last: Last::Name, slash: false, found })
    }

    /// Changes attributes of a file with whose content they were submitted: what was written may be
    /// the later one.
    pub(super) fn apply_with_content(
        &self,
        inode: &mut Inode,
        changes: &Changes,
        present: Present,
    ) {
        let written = inode.ctime;
        self.apply_submitted(inode, changes, present);
        inode.ctime = inode.ctime.max(written);
    }

    /// Changes attributes of a file as they were submitted.
    pub(super) fn apply_submitted(&self, inode: &mut Inode, changes: &Changes, present: Present) {
        let Changes { which, mode, uid, gid, atime, mtime, moment } = *changes;
        let time = |now: u32, time: Timestamp| {
            if which & now == 0 { valid(time) } else { present.time(time.seconds as u64) }
        };
        let (atime, mtime) = (time(SET_ATIME_NOW, atime), time(SET_MTIME_NOW, mtime));
        // The times are told.
        let told = [(SET_ATIME_NOW, SET_ATIME), (SET_MTIME_NOW, SET_MTIME)];
        let which =
            told.iter().fold(
                which,
                |which, (now, set)| {
                    if which & now == 0 { which } else { which & !now | set }
                },
            );
        let target = Target::Directory(inode.id);
        let set = SetAttr { target, which, mode, uid, gid, size_bytes: 0, atime, mtime };
        apply(inode, &set);
        self.apply_times(inode, &set);
        self.attribute_changed_at(inode, present.time(moment.cycles));
    }
}

/// The time in a record, which may be anything.
fn valid(time: Timestamp) -> Timestamp {
    Timestamp { nanoseconds: time.nanoseconds.min(999_999_999), ..time }
}

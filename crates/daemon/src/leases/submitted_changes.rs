//! What was submitted about files that are there ([`mayfly_transport_shm::submission_ring`]).
//!
//! Attributes are changed of a file that has one name, which the process has claimed, and whose
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
    /// with, which leads to the same directory.
    pub(super) fn move_submitted(&mut self, from: Place, to: &[u8]) -> Outcome<()> {
        let (id, kind) = from.found.ok_or(Errno::ENOENT)?;
        let (inside, name) = split(to);
        let executing = self.leases.delegations.executing.as_ref();
        let is_here = executing.is_some_and(|executing| executing.path == inside);
        if kind == FileKind::Directory || !is_here {
            return Err(Errno::EPROTO.into());
        }
        let (directory, name) = (from.directory, name.to_vec());
        let cookie = key::cookie(directory, &name);
        self.namespace.found_file = None;
        let found = self.lookup_at((directory, cookie, &name), Wanted::Name)?;
        self.namespace.found_file = None;
        // Only a process that does not keep to its delegation can have submitted that.
        if found.is_some_and(|(there, kind)| there == id || kind == FileKind::Directory) {
            return Err(Errno::EPROTO.into());
        }
        let to = Place { directory, name, cookie, last: Last::Name, slash: false, found };
        if is_planted(Planted::MovedNameStays) {
            return Ok(());
        }
        self.mount_moves(&from, &to, false);
        self.move_name(&from, &to)
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

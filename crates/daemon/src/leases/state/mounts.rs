//! What [`crate::leases::mounts`] keeps and works with.

use std::collections::VecDeque;

use mayfly_types::{
    FileId, SessionId, Timestamp,
    limits::{LEASED_NAMES_MAX, NOTICE_MS, NOTICES_MAX},
};
use mayfly_wire::notices::Notice;

use crate::{api::Caller, maps::HashMap, message::Change};

/// A change, by who told of it in which request.
pub(crate) type Key = (SessionId, u64);

pub(crate) fn is_late(since: Timestamp, now: Timestamp) -> bool {
    let ms = |time: Timestamp| time.seconds * 1000 + i64::from(time.nanoseconds / 1_000_000);
    ms(now) - ms(since) >= i64::from(NOTICE_MS)
}

/// A mount of this node.
#[derive(Debug, Default)]
pub(crate) struct Mount {
    /// Its request that waits for changes.
    pub(crate) waits: Option<Caller>,
    pub(crate) changes: Vec<Notice>,
    /// What `changes` are of.
    pub(crate) queued: Vec<Key>,
    /// What it was told and has not dealt with.
    pub(crate) unanswered: Vec<Key>,
    /// Since when something is queued or told.
    pub(crate) since: Option<Timestamp>,
    /// There was more than it was told.
    pub(crate) missed: bool,
    /// Too slow to be waited for.
    pub(crate) silent: bool,
    /// Names that it is to forget: the directory, the file, the name.
    pub(crate) names: VecDeque<(FileId, FileId, Vec<u8>)>,
    /// Those that it was told to forget.
    pub(crate) names_asked: Vec<(FileId, Vec<u8>)>,
    /// It was told that anything may have changed, and has not come for more.
    pub(crate) told_all: bool,
    /// It has forgotten since what earlier daemons may have told it.
    pub(crate) clean: bool,
}

/// What a mount is told.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) all: bool,
    pub(crate) changes: Vec<Notice>,
    pub(crate) names: Vec<(FileId, FileId, Vec<u8>)>,
}

impl Mount {
    /// Takes what is to be told.
    pub(crate) fn take(&mut self) -> News {
        self.unanswered.append(&mut self.queued);
        let names = self.names.drain(..self.names.len().min(LEASED_NAMES_MAX)).collect::<Vec<_>>();
        self.names_asked
            .extend(names.iter().map(|(directory, _, name)| (*directory, name.clone())));
        self.told_all |= self.missed;
        let all = std::mem::take(&mut self.missed);
        News { all, changes: std::mem::take(&mut self.changes), names }
    }

    pub(crate) fn has_news(&self) -> bool {
        self.missed || !self.queued.is_empty() || !self.names.is_empty()
    }

    pub(crate) fn is_late(&self, now: Timestamp) -> bool {
        self.since.is_some_and(|since| is_late(since, now))
    }

    pub(crate) fn add(&mut self, change: &Change, now: Timestamp) {
        let Change { by, request_id, file, start, end } = *change;
        self.queued.push((by, request_id));
        self.since.get_or_insert(now);
        if self.changes.len() < NOTICES_MAX && file != FileId::NONE {
            self.changes.push(Notice { file, start, end });
        } else {
            self.missed = true;
        }
    }
}

/// Another node that was told of something and has not answered.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) since: Timestamp,
    /// It was not told of what came later.
    pub(crate) missed: bool,
}

/// The mounts of a node, and of which changes they are being told.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    pub(crate) all: HashMap<SessionId, Mount>,
    /// How many mounts have not dealt with a change.
    pub(crate) missing: HashMap<Key, u32>,
    pub(crate) asked: HashMap<u32, Asked>,
    /// Number of the last change that this shard told of by itself.
    pub(crate) own_changes: u64,
    /// Files that others have mapped and that may be being opened for somebody here.
    pub(crate) mapped: VecDeque<FileId>,
}

impl Mounts {
    /// Whether a file that is open elsewhere, and now here, was mapped meanwhile.
    pub(crate) fn was_mapped(&mut self, file: FileId) -> bool {
        let at = self.mapped.iter().position(|mapped| *mapped == file);
        at.is_some_and(|at| self.mapped.remove(at).is_some())
    }

    /// Whether the mount may be leased names: it has forgotten what it was told earlier.
    pub(crate) fn is_clean(&self, session: SessionId) -> bool {
        self.all.get(&session).is_some_and(|mount| mount.clean && !mount.silent)
    }

    /// How many such mounts there are.
    pub(crate) fn clean(&self) -> u32 {
        self.all.values().filter(|mount| mount.clean).count() as u32
    }

    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.all.contains_key(&session)
    }

    /// A mount has dealt with these.
    pub(crate) fn dealt_with(&mut self, keys: &[Key]) {
        for key in keys {
            if let Some(missing) = self.missing.get_mut(key) {
                *missing = missing.saturating_sub(1);
            }
        }
    }

    /// Nobody waits for a mount any more; what it was not told it has missed.
    pub(crate) fn give_up(&mut self, session: SessionId) {
        let Some(mount) = self.all.get_mut(&session) else { return };
        let keys: Vec<Key> = mount.queued.drain(..).chain(mount.unanswered.drain(..)).collect();
        mount.changes.clear();
        (mount.since, mount.missed, mount.silent) = (None, true, true);
        self.dealt_with(&keys);
    }
}

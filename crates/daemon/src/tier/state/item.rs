//! Work for the tier's keeper.

use std::collections::BTreeMap;

use mayfly_object::ObjectId;
use mayfly_types::{Attr, Errno, FileId, SessionId};
use mayfly_wire::tier;

use crate::{
    api::Caller,
    maps::{HashMap, HashSet},
    shard::state::{run::Run, task::Task},
    tier::state::wanted::{At, Change, Seen, Wanted},
};

/// What the keeper has said of an item.
#[derive(Debug)]
pub(crate) enum Ending {
    Done { seen: Seen, bytes: Vec<u8> },
    Conflict { attr: Attr, copy: Vec<u8> },
    Failed(Errno),
}

/// What other nodes say of directories that a look has found, or not found any more.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// So many questions are not answered.
    pub(crate) missing: usize,
    /// New directories whose seats are there, by name.
    pub(crate) seats: BTreeMap<Vec<u8>, FileId>,
    /// Those that are gone there, too.
    pub(crate) gone: HashSet<FileId>,
    pub(crate) failed: Option<Errno>,
}

/// The work itself.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Wanted(Wanted),
    /// The bytes of the file go back.
    Flush {
        file: FileId,
        at: At,
        last: bool,
        /// What was not fetched of it is nowhere any more.
        incomplete: bool,
    },
}

/// Whether an operation is the request of this lane.
pub(crate) fn is_of_lane(task: &Task, lane: (SessionId, u32)) -> bool {
    matches!(task, Task::Request { caller, .. } if (caller.session, caller.lane) == lane)
}

/// Something that the keeper does.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) work: Work,
    /// Which session of the keeper's has it.
    pub(crate) holder: Option<SessionId>,
    /// Whom its result belongs to: of a change.
    pub(crate) owner: Option<Caller>,
    /// The entry of the journal that is done by it.
    pub(crate) entry: Option<u64>,
    /// It may have been done before.
    pub(crate) again: bool,
    /// It is handed out when this one has ended.
    pub(crate) behind: Option<u64>,
    /// Who waits for it, and whether for its result or only for its end.
    pub(crate) waiting: Vec<(Task, Run, bool)>,
    /// When it was begun, milliseconds.
    pub(crate) since_ms: u64,
    /// The object that is being filled.
    pub(crate) object: Option<ObjectId>,
    /// The keeper makes that object. It is the only item of its file then.
    pub(crate) makes_object: bool,
    /// The path that the keeper was told.
    pub(crate) path: Vec<u8>,
    /// Answers that came in pieces.
    pub(crate) pieces: Vec<u8>,
    /// Of a look: names that were changed here since it was begun, and those that were looked at
    /// themselves, of which it knows no attributes.
    pub(crate) touched: HashMap<Vec<u8>, bool>,
    /// Of a flush: the file was changed since it was begun. Of attributes: a look that was not
    /// before has found the name.
    pub(crate) rewritten: bool,
    /// Of a look: what it has found that is other nodes', and what the keeper has said, while they
    /// are asked.
    pub(crate) found: Option<Found>,
    pub(crate) told: Option<Ending>,
}

impl Item {
    pub(crate) fn new(work: Work, since_ms: u64) -> Item {
        Item {
            work,
            holder: None,
            owner: None,
            entry: None,
            again: false,
            behind: None,
            waiting: Vec::new(),
            since_ms,
            object: None,
            makes_object: false,
            path: Vec::new(),
            pieces: Vec::new(),
            touched: HashMap::default(),
            rewritten: false,
            found: None,
            told: None,
        }
    }

    /// Whether it is done for the request of this lane.
    pub(crate) fn is_of(&self, lane: (SessionId, u32)) -> bool {
        let is_owner = self.owner.is_some_and(|owner| (owner.session, owner.lane) == lane);
        is_owner || self.waiting.iter().any(|of| is_of_lane(&of.0, lane))
    }

    /// Whether a name is moved, perhaps that of a directory.
    pub(crate) fn moves(&self) -> bool {
        matches!(self.work, Work::Wanted(Wanted::Change(_, Change::Rename { .. })))
    }

    /// Whether more than attributes may be other ones when it has ended.
    pub(crate) fn changes(&self) -> bool {
        !matches!(self.work, Work::Wanted(Wanted::Check(..) | Wanted::Name(_)))
    }

    /// Of a look: whether the name was changed here since it was begun, or looked at itself.
    pub(crate) fn is_touched(&self, name: &[u8]) -> bool {
        self.touched.contains_key(name)
    }

    /// Of a look: whether the name was changed here since it was begun.
    pub(crate) fn is_changed(&self, name: &[u8]) -> bool {
        self.touched.get(name) == Some(&true)
    }

    /// Of a look: the seat of a new directory, if that is at another shard.
    pub(crate) fn seat(&self, name: &[u8]) -> Option<FileId> {
        self.found.as_ref()?.seats.get(name).copied()
    }

    /// Of a look: whether a directory is gone at the shard of its seat.
    pub(crate) fn has_unseated(&self, directory: FileId) -> bool {
        self.found.as_ref().is_some_and(|found| found.gone.contains(&directory))
    }

    /// The names that it is about.
    pub(crate) fn names(&self) -> Vec<At> {
        match &self.work {
            Work::Wanted(wanted) => wanted.names(),
            Work::Flush { at, .. } => vec![at.clone()],
        }
    }

    /// `TIER_*`.
    pub(crate) fn what(&self) -> u32 {
        match &self.work {
            Work::Wanted(Wanted::Look(_)) => tier::TIER_LOOK,
            Work::Wanted(Wanted::Check(..) | Wanted::Name(_)) => tier::TIER_CHECK,
            Work::Wanted(Wanted::Fetch(..)) => tier::TIER_FETCH,
            Work::Wanted(Wanted::Chunks(..)) => tier::TIER_CHUNKS,
            Work::Wanted(Wanted::Xattrs(..)) => tier::TIER_XATTRS,
            Work::Wanted(Wanted::Change(_, change)) => match change {
                Change::Create { .. } => tier::TIER_CREATE,
                Change::MakeDirectory { .. } => tier::TIER_MAKE_DIRECTORY,
                Change::Symlink { .. } => tier::TIER_SYMLINK,
                Change::Remove => tier::TIER_REMOVE,
                Change::RemoveDirectory => tier::TIER_REMOVE_DIRECTORY,
                Change::Rename { .. } => tier::TIER_RENAME,
                Change::SetAttr { .. } => tier::TIER_SET_ATTR,
                Change::SetXattr { .. } => tier::TIER_SET_XATTR,
                Change::RemoveXattr { .. } => tier::TIER_REMOVE_XATTR,
            },
            Work::Wanted(Wanted::Back(..)) | Work::Flush { .. } => tier::TIER_FLUSH,
            // Those are no items.
            Work::Wanted(Wanted::Journal(_)) => 0,
        }
    }
}

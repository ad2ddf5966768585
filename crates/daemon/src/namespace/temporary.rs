//! Files that are made without a name: `O_TMPFILE`.
//!
//! Such a file is an orphan from its beginning, at home where its directory is: it ends with its
//! last description, or with whoever finds its mark after a crash. Until then one link may give it
//! a name, unless `O_EXCL` says that none may; a bit in its inode remembers that. An orphan that
//! ends while an operation over several shards has claimed it is spared until that is finished,
//! since the operation may be the one that names it. After a crash there is no such doubt: a link
//! is coordinated by the file's home, so the intent and the first link are of one transaction.

use mayfly_meta::{
    key,
    record::{BirthKey, Content},
};
use mayfly_types::{Errno, FileId, FileKind};
use mayfly_wire::{Open, Opened, WALK_FOLLOW, Wire, Writer};

use crate::{
    api::Caller,
    fault::{Outcome, Served},
    namespace::state::inode::{Located, Ownership},
    shard::Shard,
    transactions::state::prepare_locks::PrepareLock,
};

const O_ACCMODE: u32 = 0o3;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_DIRECTORY: u32 = 0o200_000;
const O_NOFOLLOW: u32 = 0o400_000;

/// The check that the kernel's `build_open_flags` does for `flags` with `O_TMPFILE`.
pub(super) fn check_flags(flags: u32) -> Outcome<()> {
    let whole = flags & O_DIRECTORY != 0 && flags & O_CREAT == 0;
    if whole && flags & O_ACCMODE != 0 { Ok(()) } else { Err(Errno::EINVAL.into()) }
}

impl Shard {
    /// Opens a new file in the directory that the path leads to. `kept` are the flags that are
    /// properties of the description.
    pub(super) fn open_temporary(
        &mut self,
        caller: Caller,
        open: &Open<'_>,
        kept: u32,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let mut walk = open.walk;
        walk.flags |= WALK_FOLLOW;
        if open.flags & O_NOFOLLOW != 0 {
            walk.flags &= !WALK_FOLLOW;
        }
        let directory = self.find(&walk)?.inode;
        if directory.kind() != FileKind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        self.check_writable(&directory)?;
        if !self.files.opens.has_room() {
            return Err(Errno::ENFILE.into());
        }
        self.check_room()?;
        let id = self.new_id_in(directory.id.slot())?;
        let gid = if directory.mode & 0o2000 == 0 { open.gid } else { directory.gid };
        let owner = Ownership { mode: open.mode, uid: open.uid, gid };
        let content = Content::Inline(Vec::new());
        let mut inode = self.new_inode(id, owner, content, &directory.layout);
        inode.links = 0;
        inode.linkable = open.flags & O_EXCL == 0;
        let attr = self.attr_of(&inode)?;
        let birth = BirthKey::default();
        self.store.put(&key::numbered(key::ORPHAN, id), &birth.encode())?;
        self.save(&Located { inode: Box::new(inode), fused: None })?;
        self.counters.files += 1;
        self.counters.orphans += 1;
        let made = self.files.opens.insert(caller, (id, FileKind::Regular), birth, kept, None)?;
        self.files.opens.mark_unlinked(id);
        Opened { open: made, attr, created: true, mapped: false }.encode(to)?;
        Ok(Served::Replied)
    }

    /// An orphan's last description is gone.
    pub(crate) fn end_orphan(&mut self, id: FileId) -> Outcome<()> {
        let claim = || [(PrepareLock::File(id), true)];
        if !self.transactions.prepare_locks.is_empty()
            && self.transactions.prepare_locks.in_the_way(&claim(), None).is_some()
        {
            if !self.namespace.spared_orphans.contains(&id) {
                self.namespace.spared_orphans.push(id);
            }
            return Ok(());
        }
        if self.is_awaited(id)? {
            return Ok(());
        }
        self.drop_orphan(id)
    }

    /// Claims were given back: what was spared for them and got no name goes.
    pub(crate) fn drop_spared_orphans(&mut self) {
        for id in std::mem::take(&mut self.namespace.spared_orphans) {
            let ended = match self.store.get(&key::numbered(key::ORPHAN, id)) {
                Ok(Some(_)) if self.files.opens.file(id).is_none() => self.end_orphan(id),
                Ok(_) => self.settle_linked(id),
                Err(error) => Err(error.into()),
            };
            if let Err(fault) = ended {
                crate::log::error(format_args!("file {:016x}", id.0), fault.errno());
            }
        }
    }

    /// It has a name now, and nobody has settled its size.
    fn settle_linked(&mut self, id: FileId) -> Outcome<()> {
        if self.files.opens.file(id).is_some() || self.files.background.is_in_flight(id) {
            return Ok(());
        }
        let mut located = self.load_own(id)?;
        self.settle_soon(&mut located)
    }
}

//! Rename: moves a dentry, never data.
//!
//! The checks stand in the order of the kernel's `do_renameat2` and `vfs_rename`, because which of
//! several errors a caller gets depends on it. Where all of it is one shard's it is one
//! transaction; otherwise the target name is set before the other one goes
//! (`transactions/transaction.rs`). So the target name never disappears, and neither name is ever
//! missing.

use mayfly_meta::record::Step;
use mayfly_types::{Errno, FileId, FileKind};
use mayfly_wire::Rename;

use crate::{
    fault::{Outcome, Served},
    message::Question,
    namespace::state::{
        member::unexpected,
        walk::{Last, Place, Rule},
    },
    shard::Shard,
    shards::slots::ShardId,
    transactions::state::transaction::{Steps, add_step},
};

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

impl Shard {
    /// The shard that says who may move a directory to another parent.
    pub(crate) fn elector(&self) -> ShardId {
        self.place.slots.home(FileId::ROOT)
    }

    pub(crate) fn rename(&mut self, rename: &Rename<'_>) -> Outcome<Served> {
        let flags = rename.flags;
        let both = RENAME_NOREPLACE | RENAME_EXCHANGE;
        if flags & !both != 0 || flags & both == both {
            return Err(Errno::EINVAL.into());
        }
        let mut from = self.walk(&rename.from, Rule::Name)?;
        let mut to = self.walk_second(&rename.to, Rule::Name)?;
        if self.reserve_renamed(&from, &to) {
            from = self.walk(&rename.from, Rule::Name)?;
            to = self.walk_second(&rename.to, Rule::Name)?;
        }
        if from.last != Last::Name {
            return Err(Errno::EBUSY.into());
        }
        if to.last != Last::Name {
            let errno = if flags & RENAME_NOREPLACE != 0 { Errno::EEXIST } else { Errno::EBUSY };
            return Err(errno.into());
        }
        let exchange = flags & RENAME_EXCHANGE != 0;
        let source = from.lookup()?.ok_or(Errno::ENOENT)?;
        to.lookup()?;
        if flags & RENAME_NOREPLACE != 0 && to.found.is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.check_slashes(&from, &to, exchange)?;
        if from.directory != to.directory
            && (from.is_directory() || to.is_directory())
            // Within a tree of an origin directories are moved by one shard.
            && self.own_source(from.directory)?.is_none()
        {
            self.elect()?;
        }
        self.check_circle(&from, &to, exchange)?;
        if to.found.is_some_and(|target| target.0 == source.0) {
            self.keep_both(&from, &to, source)?;
            return Ok(Served::Replied);
        }
        self.check_target(&from, &to, exchange)?;
        let outside = self.rename_at_origin(&from, &to, flags)?;
        self.mount_moves(&from, &to, exchange);
        if exchange {
            self.exchange_names(&from, &to)?;
        } else {
            self.move_name(&from, &to)?;
        }
        if let Some(seen) = outside {
            self.know_again(source.0, &(to.directory, to.name), seen)?;
        }
        Ok(Served::Replied)
    }

    /// Nobody submits a name that comes or goes; where a directory is moved, or replaced, nobody
    /// submits anything. True when what was found may not be so any more.
    fn reserve_renamed(&mut self, from: &Place, to: &Place) -> bool {
        if from.is_directory() || to.is_directory() {
            return self.recall_all();
        }
        let target = self.reserve_name(to.directory, &to.name);
        from.found.is_some() && self.reserve_name(from.directory, &from.name) || target
    }

    /// Two names of one file stay as they are. But a file that is being moved has two for a moment:
    /// each is set to what it is, which waits for the move and finds out that one has gone.
    fn keep_both(&mut self, from: &Place, to: &Place, of: (FileId, FileKind)) -> Outcome<()> {
        if self.place.alone || from.directory == to.directory && from.name == to.name {
            return Ok(());
        }
        let mut parts = Steps::new();
        self.add_set(&mut parts, from, of);
        self.add_set(&mut parts, to, of);
        self.operate(parts)
    }

    fn check_slashes(&mut self, from: &Place, to: &Place, exchange: bool) -> Outcome<()> {
        if exchange {
            if to.found.is_none() {
                return Err(Errno::ENOENT.into());
            }
            if !to.is_directory() && to.slash {
                return Err(Errno::ENOTDIR.into());
            }
        }
        if !from.is_directory() && (from.slash || (!exchange && to.slash)) {
            return Err(Errno::ENOTDIR.into());
        }
        Ok(())
    }

    /// A directory must not move into itself, nor replace one that it is in.
    fn check_circle(&mut self, from: &Place, to: &Place, exchange: bool) -> Outcome<()> {
        if let Some((id, FileKind::Directory)) = from.found
            && self.is_within(to.directory, id)?
        {
            return Err(Errno::EINVAL.into());
        }
        if let Some((id, FileKind::Directory)) = to.found
            && self.is_within(from.directory, id)?
        {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
        }
        Ok(())
    }

    /// Whether `directory` is `ancestor` or lies below it.
    pub(crate) fn is_within(&mut self, mut directory: FileId, ancestor: FileId) -> Outcome<bool> {
        while directory != ancestor {
            if directory == FileId::ROOT {
                return Ok(false);
            }
            directory = self.parent_of(directory)?;
        }
        Ok(true)
    }

    fn check_target(&mut self, from: &Place, to: &Place, exchange: bool) -> Outcome<()> {
        self.host(to.directory, &to.name)?;
        match to.found {
            Some((_, kind)) if !exchange => {
                match (from.is_directory(), kind == FileKind::Directory) {
                    (true, false) => Err(Errno::ENOTDIR.into()),
                    (false, true) => Err(Errno::EISDIR.into()),
                    _ => Ok(()),
                }
            }
            Some(_) => Ok(()),
            None => {
                if from.is_directory()
                    && from.directory != to.directory
                    && self.is_home(to.directory)
                {
                    let parent = self.load_parent(to.directory)?;
                    if parent.is_full() {
                        return Err(Errno::EMLINK.into());
                    }
                }
                self.check_room()
            }
        }
    }

    fn add_set(&self, parts: &mut Steps, at: &Place, (id, kind): (FileId, FileKind)) {
        let (directory, name, expected) = (at.directory, at.name.clone(), at.found);
        let owner = self.owner_at(directory, at.cookie);
        add_step(parts, owner, Step::SetName { directory, name, id, kind, expected });
    }

    fn add_move(&self, parts: &mut Steps, id: FileId, from: &Place, to: &Place) {
        let birth = from.birth();
        let (parent, name) = (to.directory, to.name.clone());
        add_step(parts, self.place.slots.home(id), Step::Moved { id, birth, parent, name });
    }

    pub(crate) fn move_name(&mut self, from: &Place, to: &Place) -> Outcome<()> {
        let (id, kind) = from.found.ok_or(Errno::ENOENT)?;
        let mut parts = Steps::new();
        self.add_move(&mut parts, id, from, to);
        match to.found {
            Some((target, FileKind::Directory)) => {
                // Of a directory that is all here nothing else will ask.
                if self.is_home(target) && !self.is_empty(target)? {
                    return Err(Errno::ENOTEMPTY.into());
                }
                self.add_removal(&mut parts, target)?;
            }
            Some((target, _)) => {
                let birth = to.birth();
                let home = self.place.slots.home(target);
                add_step(&mut parts, home, Step::DropLink { id: target, birth });
            }
            None => {}
        }
        self.add_set(&mut parts, to, (id, kind));
        let (directory, name) = (from.directory, from.name.clone());
        add_step(&mut parts, self.place.shard, Step::RemoveName { directory, name, id, kind });
        self.operate(parts)
    }

    fn exchange_names(&mut self, one: &Place, other: &Place) -> Outcome<()> {
        let one_found = one.found.ok_or(Errno::ENOENT)?;
        let other_found = other.found.ok_or(Errno::ENOENT)?;
        let mut parts = Steps::new();
        self.add_move(&mut parts, one_found.0, one, other);
        self.add_move(&mut parts, other_found.0, other, one);
        self.add_set(&mut parts, one, other_found);
        self.add_set(&mut parts, other, one_found);
        self.operate(parts)
    }

    /// Waits for the right to move directories to another parent, so that no two such moves make a
    /// circle. What other shards said before it counts no more.
    fn elect(&mut self) -> Outcome<()> {
        if self.place.alone || self.run.transaction.elected {
            return Ok(());
        }
        self.forget_facts();
        let question =
            Question::Prepare { transaction: self.operation_id(), steps: vec![Step::Elect] };
        match self.fact(self.elector(), question) {
            Ok(answer) => Err(unexpected(&answer)),
            Err(fault) => Err(fault),
        }
    }
}

//! An origin that is not shown any more.
//!
//! What is here of it goes, and nothing outside changes. A mark is made before anything goes, so
//! that a daemon which begins finds out that the rest has to go: what it would otherwise take for
//! names that are gone outside would be removed in the same way, but looked for again.

use mayfly_meta::key;
use mayfly_types::{Errno, FileId, FileKind};

use crate::{
    fault::Outcome,
    shard::Shard,
    tier::state::{
        table::{Flush, Known},
        wanted::At,
    },
};

fn mark(source: usize) -> [u8; 9] {
    key::numbered(key::ORIGIN_UNLINKED, FileId(source as u64 + 1))
}

impl Shard {
    /// The directory at this path shows its origin no more, unless something is in the way: so many
    /// things that are left, and files that are open. What this shard has of it goes; each shard is
    /// asked by itself. Without `goes` it is only told what is in the way.
    pub(crate) fn unlink_origin(&mut self, path: &[u8], goes: bool) -> Outcome<Flush> {
        let source = self.tier.sources.iter().position(|source| source.inside == path);
        let source = source.ok_or(Errno::EINVAL)?;
        let left = self.unfinished_of_origin(source);
        let failed = self.open_of(source)?;
        let mut told = Flush { left, failed, ..Flush::default() };
        if !goes || told.left + told.failed > 0 {
            return Ok(told);
        }
        self.store.put(&mark(source), &[1])?;
        self.end_source(source)?;
        told.flushed = 1;
        Ok(told)
    }

    /// What is dirty of an origin, or is being done there.
    fn unfinished_of_origin(&mut self, source: usize) -> u64 {
        let mut left = 0;
        for (id, birth) in self.tier.dirty.clone() {
            let origin = self.load_birth(id, &birth).ok().and_then(|of| of.inode.origin);
            // Of one that cannot be found nobody knows.
            left += u64::from(origin.is_none_or(|origin| origin.source as usize == source));
        }
        let entries = self.tier.journal.entries.values();
        left += entries.filter(|entry| entry.source as usize == source).count() as u64;
        let busy = self.tier.items.keys().copied().collect::<Vec<_>>();
        let busy = busy.into_iter().filter_map(|number| self.place_of_item(number).ok());
        let busy = busy.collect::<Vec<At>>();
        let begun = self.tier.journal.begun.values().flat_map(|begun| begun.names.iter().cloned());
        let places: Vec<At> = begun.chain(busy).collect();
        for at in places {
            let of = self.path_at_origin(&at);
            left += u64::from(of.is_ok_and(|(other, _)| other as usize == source));
        }
        left
    }

    fn open_of(&mut self, source: usize) -> Outcome<u64> {
        let open: Vec<FileId> = self.files.opens.files().map(|(id, _)| id).collect();
        let mut count = 0;
        for id in open {
            let inode = self.load_open(id)?.inode;
            let is_its = inode.origin.is_some_and(|origin| origin.source as usize == source);
            count += u64::from(is_its && inode.links > 0);
        }
        Ok(count)
    }

    /// What is here of an origin goes.
    pub(crate) fn end_source(&mut self, source: usize) -> Outcome<()> {
        for id in self.tier.roots.of(source as u32) {
            self.forget_below(id)?;
            match self.tier.roots.get(id).is_some_and(|root| root.path.is_empty()) {
                true => self.show_nothing(id)?,
                false => {
                    let located = self.load_own(id)?;
                    self.drop_link(located)?;
                }
            }
        }
        if let Some(source) = self.tier.sources.get_mut(source) {
            source.is_gone = true;
        }
        Ok(())
    }

    /// A directory that has shown an origin is one of the instance.
    fn show_nothing(&mut self, id: FileId) -> Outcome<()> {
        let mut located = self.load_own(id)?;
        self.set_origin(&mut located.inode, None);
        located.inode.residency = Vec::new();
        located.inode.unlisted = false;
        self.save(&located)?;
        self.forget_root(id)?;
        self.tier.files.remove(&id);
        self.tier.xattrs.forget(id);
        self.tier.know_directory(id, Known::Plain);
        Ok(())
    }

    /// Everything below a directory goes, from below.
    fn forget_below(&mut self, directory: FileId) -> Outcome<()> {
        for (name, id, kind) in self.names_here(directory)? {
            // What another shard has goes there.
            if kind == FileKind::Directory && self.is_home(id) {
                self.forget_below(id)?;
            }
            self.forget_removed(&(directory, name), (id, kind))?;
            self.commit_now_and_then()?;
        }
        Ok(())
    }

    /// Whether an earlier daemon has begun to end this origin.
    pub(crate) fn is_ended(&mut self, source: usize) -> Outcome<bool> {
        Ok(self.store.get(&mark(source))?.is_some())
    }
}

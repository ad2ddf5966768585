//! What an operation passes before it relies on what is here, and work before it is the keeper's.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_meta::{
    key,
    record::{Content, Inode, Master, Origin},
};
use mayfly_types::{Errno, FileId, FileKind, limits::TIER_WHOLE_BYTES_MAX};
use mayfly_wire::tier::TierCounts;

use crate::{
    fault::{Fault, Outcome},
    maps::HashMap,
    namespace::state::inode::Located,
    shard::{Shard, state::task::Task},
    tier::state::{
        item::{Item, Work},
        table::Known,
        wanted::{At, Seen, Wanted},
    },
};

const O_ACCMODE: u32 = 0o3;
const O_TRUNC: u32 = 0o1000;
const O_PATH: u32 = 0o10_000_000;

/// What is kept of the master copy besides the [`Origin`].
pub(crate) fn master_of(inode: &Inode) -> Outcome<Master> {
    Ok(Master::decode(&inode.residency)?)
}

/// How many bytes of a master copy are here.
pub(crate) fn bytes_here(kind: FileKind, origin: &Origin) -> u64 {
    if kind == FileKind::Regular && origin.resident { origin.size_bytes } else { 0 }
}

/// Whether the inode stands for bytes that are not here.
pub(crate) fn is_absent(inode: &Inode) -> bool {
    inode.kind() == FileKind::Regular && inode.origin.is_some_and(|origin| !origin.resident)
}

/// Whether a file is fetched by chunks.
pub(crate) fn is_by_chunks(inode: &Inode) -> bool {
    is_absent(inode) && (inode.size_bytes > TIER_WHOLE_BYTES_MAX || is_partly_here(inode))
}

/// Whether a file was written to of which not all is here. Its length is then its own.
pub(crate) fn is_partly_here(inode: &Inode) -> bool {
    is_absent(inode) && matches!(inode.content, Content::Object(_))
}

impl Shard {
    /// Whether the instance has origins.
    pub(crate) fn has_tier(&self) -> bool {
        !self.tier.sources.is_empty()
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        let now = self.clock.elapsed();
        now.seconds.unsigned_abs() * 1000 + u64::from(now.nanoseconds / 1_000_000)
    }

    /// The entries of the directory are what they were outside lately.
    pub(crate) fn names_at_hand(&mut self, directory: FileId) -> Outcome<()> {
        if !self.has_tier() || !self.is_home(directory) {
            return Ok(());
        }
        if self.tier.journal.makes(directory).is_some() {
            return Ok(());
        }
        // What others do after a change was made outside for it comes after this operation.
        if self.run.outside.has_changed() {
            return Ok(());
        }
        let now_ms = self.elapsed_ms();
        match self.tier.directories.get(&directory) {
            Some(Known::Plain) => return Ok(()),
            Some(Known::At(seen_ms)) if self.tier.is_valid(*seen_ms, now_ms) => return Ok(()),
            _ => {}
        }
        let wanted = Wanted::Look(directory);
        if let Some(done) = self.was_done(&wanted) {
            return Ok(done.map(drop)?);
        }
        // What is not there, or no directory, is for others to say.
        let Ok(Located { inode, .. }) = self.load_own(directory) else { return Ok(()) };
        if inode.links == 0 || !matches!(inode.content, Content::Directory(_)) {
            return Ok(());
        }
        if inode.origin.is_none() {
            self.tier.know_directory(directory, Known::Plain);
            return Ok(());
        }
        if !inode.unlisted && self.tier.valid_ms.is_none() {
            self.tier.know_directory(directory, Known::At(now_ms));
            return Ok(());
        }
        self.run.outside.one_of = None;
        Err(Fault::Outside(Box::new(wanted)))
    }

    /// Whether names of the directory, through which a walk came, need not be looked at again. In
    /// a directory without an origin there is none with one above.
    pub(crate) fn stays_listed(&self, directory: FileId) -> bool {
        !self.has_tier()
            || self.tier.valid_ms.is_none()
            || self.tier.directories.get(&directory) == Some(&Known::Plain)
    }

    /// The attributes of the file are what they were outside lately.
    pub(crate) fn file_at_hand(&mut self, inode: &Inode) -> Outcome<()> {
        if inode.origin.is_none() || inode.links == 0 {
            return Ok(());
        }
        if self.tier.valid_ms.is_none() || self.was_seen_lately(inode.id) {
            return Ok(());
        }
        let at = self.place_at_origin(inode)?;
        if self.tier.journal.last_of(&at).is_some() {
            // Who has found it by itself was not told.
            return self.tell_of_failure(at.0, &at.1);
        }
        let wanted = Wanted::Check(inode.id, at);
        match self.was_done(&wanted) {
            Some(done) => Ok(done.map(drop)?),
            None => Err(Fault::Outside(Box::new(wanted))),
        }
    }

    /// Whether the attributes of the file, under its name, were seen outside lately.
    pub(crate) fn was_seen_lately(&self, file: FileId) -> bool {
        let (now_ms, seen_ms) = (self.elapsed_ms(), self.tier.files.get(&file));
        seen_ms.is_some_and(|seen_ms| self.tier.is_valid(*seen_ms, now_ms))
    }

    /// All bytes of the file are here.
    pub(crate) fn bytes_at_hand(&mut self, inode: &Inode) -> Outcome<()> {
        if !is_absent(inode) {
            return Ok(());
        }
        if inode.links == 0 {
            // It was removed outside before anybody had read it.
            return Err(Errno::ESTALE.into());
        }
        if is_by_chunks(inode) {
            return self.all_chunks_at_hand(inode);
        }
        let wanted = Wanted::Fetch(inode.id, self.place_at_origin(inode)?);
        match self.was_done(&wanted) {
            Some(Err(errno)) => Err(errno.into()),
            // It has changed once more since.
            Some(Ok(_)) if self.run.outside.begun_anew => Err(Errno::EIO.into()),
            Some(Ok(_)) => {
                self.run.outside.done.retain(|(done, _)| *done != wanted);
                self.run.outside.begun_anew = true;
                Err(Fault::Outside(Box::new(wanted)))
            }
            None => Err(Fault::Outside(Box::new(wanted))),
        }
    }

    /// The origin lets its files be changed.
    pub(crate) fn check_writable(&self, inode: &Inode) -> Outcome<()> {
        let source = inode.origin.and_then(|origin| self.tier.sources.get(origin.source as usize));
        match source {
            Some(source) if source.read_only => Err(Errno::EROFS.into()),
            _ => Ok(()),
        }
    }

    /// The same for an open with these flags.
    pub(crate) fn check_writable_by(&self, inode: &Inode, flags: u32) -> Outcome<()> {
        let writes = flags & O_ACCMODE != 0 || flags & O_TRUNC != 0;
        let kind = inode.kind();
        if flags & O_PATH != 0 || !writes || kind != FileKind::Regular {
            return Ok(());
        }
        self.check_writable(inode)
    }

    /// The bytes of the file are about to change. Everything was checked.
    pub(crate) fn note_dirty(&mut self, located: &mut Located) -> Outcome<()> {
        let Some(origin) = located.inode.origin.filter(|_| located.inode.links > 0) else {
            return Ok(());
        };
        self.check_writable(&located.inode)?;
        let at = self.place_at_origin(&located.inode)?;
        let flush = self.tier.busy.get(&at).and_then(|flush| self.tier.items.get_mut(flush));
        flush.into_iter().for_each(|item| item.rewritten = true);
        let now_ms = self.elapsed_ms();
        self.tier.policy.changed_ms.insert(located.inode.id, now_ms);
        if origin.dirty {
            return Ok(());
        }
        let id = located.inode.id;
        let birth = located.birth();
        self.store.put(&key::numbered(key::DIRTY, id), &birth.encode())?;
        self.tier.dirty.insert(id, birth);
        self.show_dirty();
        self.set_origin(&mut located.inode, Some(Origin { dirty: true, ..origin }));
        self.save(located)
    }

    /// All bytes of the file are about to go, whether they are here or not.
    pub(crate) fn note_dirty_whole(&mut self, located: &mut Located) -> Outcome<()> {
        self.drop_chunks(&located.inode)?;
        let inode = &mut located.inode;
        let is_dirty_already = is_partly_here(inode);
        if let Some(origin) = inode.origin.filter(|_| is_absent(inode)) {
            if !is_dirty_already {
                inode.size_bytes = 0;
            }
            self.set_origin(&mut located.inode, Some(Origin { resident: true, ..origin }));
        }
        self.note_dirty(located)?;
        if is_dirty_already { self.save(located) } else { Ok(()) }
    }

    /// The file is clean, or gone.
    pub(crate) fn forget_dirty(&mut self, id: FileId) -> Outcome<()> {
        self.tier.policy.changed_ms.remove(&id);
        if self.tier.dirty.remove(&id).is_some() {
            self.store.delete(&key::numbered(key::DIRTY, id))?;
            self.show_dirty();
        }
        Ok(())
    }

    pub(crate) fn show_dirty(&self) {
        let count = self.tier.dirty.len() + self.tier.journal.entries.len();
        self.node.head.tier.dirty.store(count as u32, Relaxed);
    }

    /// What was done for this run of what it wants.
    pub(crate) fn was_done(&self, wanted: &Wanted) -> Option<Result<Seen, Errno>> {
        let found = self.run.outside.done.iter().find(|(done, _)| done == wanted);
        found.map(|(_, result)| *result)
    }

    /// Under which name the file is outside.
    pub(crate) fn place_at_origin(&self, inode: &Inode) -> Outcome<At> {
        if let Content::Directory(node) = &inode.content {
            return Ok(match self.tier.roots.get(inode.id) {
                Some(_) => (inode.id, Vec::new()),
                None => (node.parent, node.name.clone()),
            });
        }
        let master = master_of(inode)?;
        Ok((master.parent, master.name))
    }

    /// The origin of a directory that has its seat here.
    pub(crate) fn own_source(&mut self, directory: FileId) -> Outcome<Option<u32>> {
        let is_plain = || self.tier.directories.get(&directory) == Some(&Known::Plain);
        if !self.has_tier() || !self.is_home(directory) || is_plain() {
            return Ok(None);
        }
        Ok(self.load_own(directory)?.inode.origin.map(|origin| origin.source))
    }

    /// Whether others may remember where names of the directory lead. What was seen outside is
    /// believed for a shorter time than that.
    pub(crate) fn may_be_kept(&mut self, directory: FileId) -> Outcome<bool> {
        Ok(self.tier.valid_ms.is_none() || self.own_source(directory)?.is_none())
    }

    /// The origin of a directory, wherever it is.
    pub(crate) fn source_of(&mut self, directory: FileId) -> Outcome<Option<u32>> {
        if !self.has_tier() || self.is_home(directory) {
            return self.own_source(directory);
        }
        Ok(self.directory_facts(directory)?.source)
    }

    /// Whether the directory shows a whole origin, or leads to one that does: it stays where it is.
    pub(crate) fn is_linked(&mut self, (id, kind): (FileId, FileKind)) -> Outcome<bool> {
        if !self.has_tier() || kind != FileKind::Directory {
            return Ok(false);
        }
        if self.is_home(id) {
            return Ok(self.tier.roots.is_linked(id));
        }
        Ok(self.directory_facts(id)?.linked)
    }

    /// The path of a place from its origin, and which that is.
    pub(crate) fn path_at_origin(&mut self, at: &At) -> Outcome<(u32, Vec<u8>)> {
        let (mut directory, mut names) = (at.0, vec![at.1.clone()]);
        loop {
            if let Some(root) = self.tier.roots.get(directory) {
                names.push(root.path.clone());
                names.retain(|name| !name.is_empty());
                names.reverse();
                return Ok((root.source, names.join(&b'/')));
            }
            let (above, name) = self.name_at_origin(directory)?;
            names.push(name);
            directory = above;
        }
    }

    /// The name of a directory that is not the root of an origin.
    fn name_at_origin(&mut self, directory: FileId) -> Outcome<At> {
        if let Some(at) = self.tier.journal.place_of(directory) {
            return Ok(at.clone());
        }
        let located = self.load_own(directory)?;
        if located.inode.links == 0 || directory == FileId::ROOT {
            return Err(Errno::ENOENT.into());
        }
        let node = located.directory()?;
        Ok((node.parent, node.name.clone()))
    }

    /// Whether the keeper gets the item later. Where a directory is moved, the path of what is
    /// below is another one from then on, and the old one may be that of something else. So the
    /// keeper has a move, or what is below, and not both; what was begun first is first.
    pub(crate) fn is_to_wait(&mut self, number: u64) -> bool {
        let Some(item) = self.tier.items.get(&number) else { return false };
        if item.behind.is_some_and(|other| self.tier.items.contains_key(&other)) {
            return true;
        }
        // What is gone has no path: who encodes the item says so.
        let waits = self.is_below_a_move(number).unwrap_or(false);
        waits || self.moves_what_is_in_use(number).unwrap_or(false)
    }

    /// The item that has to end before this is wanted again, or for whose result it waits. Busy: a
    /// change of names that is not known here.
    pub(crate) fn in_the_way_of(&mut self, task: &Task, wanted: &Wanted) -> Outcome<Option<u64>> {
        match wanted {
            Wanted::Look(directory) => Ok(self.tier.looks.get(directory).copied()),
            Wanted::Change(..) => self.before_a_change(task, &wanted.names()),
            other => Ok(other.at().and_then(|at| self.tier.busy.get(at).copied())),
        }
    }

    /// Where a directory above is moved, the request is run again after that: its path may lead
    /// elsewhere then.
    fn before_a_change(&mut self, task: &Task, names: &[At]) -> Outcome<Option<u64>> {
        if let Some(number) = self.tier.in_the_way(names) {
            return Ok(Some(number));
        }
        for (mut directory, _) in names.iter().cloned() {
            while self.tier.roots.get(directory).is_none() {
                // What is gone is for the request to find out.
                let Ok(at) = self.name_at_origin(directory) else { break };
                let number = self.tier.busy.get(&at).copied();
                let item = number.and_then(|number| self.tier.items.get(&number));
                if item.is_some_and(Item::moves) {
                    return Ok(number);
                }
                if self.tier.is_changed_by_others(&at, task) {
                    return Err(Fault::Busy);
                }
                directory = at.0;
            }
        }
        Ok(None)
    }

    /// The directories in which the item's names are.
    fn directories_of_item(&self, number: u64) -> Vec<FileId> {
        let Some(item) = self.tier.items.get(&number) else { return Vec::new() };
        match &item.work {
            Work::Wanted(Wanted::Look(directory)) => vec![*directory],
            Work::Wanted(Wanted::Chunks(_, at, _)) => vec![at.0],
            _ => item.names().into_iter().map(|at| at.0).collect(),
        }
    }

    fn is_below_a_move(&mut self, number: u64) -> Outcome<bool> {
        for mut directory in self.directories_of_item(number) {
            while self.tier.roots.get(directory).is_none() {
                let at = self.name_at_origin(directory)?;
                if self.tier.is_moved_before(&at, number) {
                    return Ok(true);
                }
                directory = at.0;
            }
        }
        Ok(false)
    }

    /// Whether the item moves a directory, and another one below has to be done before.
    fn moves_what_is_in_use(&mut self, number: u64) -> Outcome<bool> {
        let item = self.tier.items.get(&number).filter(|item| item.moves());
        let Some(item) = item else { return Ok(false) };
        let names = item.names();
        let Some(from) = names.first() else { return Ok(false) };
        let kind = match item.entry.and_then(|entry| self.tier.journal.entries.get(&entry)) {
            Some(entry) => Some(entry.kind),
            None => self.lookup_here(from)?.map(|(_, kind)| kind),
        };
        if kind != Some(FileKind::Directory) {
            return Ok(false);
        }
        let mut known = HashMap::default();
        for other in self.tier.earlier_than(number) {
            for directory in self.directories_of_item(other) {
                if self.is_below(directory, &names, &mut known) {
                    self.tier.puts_behind(number, other);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether a directory has one of the names, or is below one that has.
    fn is_below(
        &mut self,
        mut directory: FileId,
        names: &[At],
        known: &mut HashMap<FileId, bool>,
    ) -> bool {
        let mut passed = Vec::new();
        let found = loop {
            if let Some(found) = known.get(&directory) {
                break *found;
            }
            passed.push(directory);
            if self.tier.roots.get(directory).is_some() {
                break false;
            }
            let Ok(at) = self.name_at_origin(directory) else { break false };
            if names.contains(&at) {
                break true;
            }
            directory = at.0;
        };
        known.extend(passed.into_iter().map(|directory| (directory, found)));
        found
    }

    /// Something was done of an origin.
    pub(crate) fn count(&mut self, source: u32, add: impl FnOnce(&mut TierCounts)) {
        if let Some(source) = self.tier.sources.get_mut(source as usize) {
            add(&mut source.counts);
        }
    }

    /// So many bytes of a file are read from there, if it has them.
    pub(crate) fn note_read_at(&mut self, inode: &Inode, offset: u64, bytes: u64) {
        self.note_read(inode, inode.size_bytes.saturating_sub(offset).min(bytes));
    }

    /// So many bytes of a file are read now.
    pub(crate) fn note_read(&mut self, inode: &Inode, bytes: u64) {
        let Some(origin) = inode.origin else { return };
        let waited = self.run.outside.has_fetched();
        self.count(origin.source, |counts| {
            if waited {
                counts.reads_outside += 1;
                counts.read_outside_bytes += bytes;
            } else {
                counts.reads_here += 1;
                counts.read_here_bytes += bytes;
            }
        });
        let now_ms = self.elapsed_ms();
        self.tier.use_file(inode.id, now_ms);
    }

    /// Changes what an inode says of its master copy, with what is counted of it.
    pub(crate) fn set_origin(&mut self, inode: &mut Inode, origin: Option<Origin>) {
        let had = std::mem::replace(&mut inode.origin, origin);
        for (origin, is_more) in [(had, false), (origin, true)] {
            let Some(origin) = origin else { continue };
            let Some(source) = self.tier.sources.get_mut(origin.source as usize) else { continue };
            let bytes = bytes_here(inode.kind(), &origin);
            if is_more {
                (source.files, source.cached_bytes) =
                    (source.files + 1, source.cached_bytes + bytes);
            } else {
                source.files = source.files.saturating_sub(1);
                source.cached_bytes = source.cached_bytes.saturating_sub(bytes);
            }
        }
    }

    /// The last name of the file is gone, outside too. One of which bytes are here is like any
    /// other from now on. One of which none are never gets them.
    pub(crate) fn leave_tier(&mut self, inode: &mut Inode) -> Outcome<()> {
        let Some(origin) = inode.origin else { return Ok(()) };
        self.forget_dirty(inode.id)?;
        self.forget_pin(inode.id)?;
        self.tier.policy.used.remove(&inode.id);
        self.tier.files.remove(&inode.id);
        self.tier.xattrs.forget(inode.id);
        self.tier.directories.remove(&inode.id);
        self.forget_root(inode.id)?;
        let absent = is_absent(inode);
        self.drop_chunks(inode)?;
        self.set_origin(inode, None);
        if absent {
            inode.origin = Some(origin);
        } else {
            inode.residency = Vec::new();
            inode.unlisted = false;
        }
        Ok(())
    }
}

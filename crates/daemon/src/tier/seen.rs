//! What was seen outside becomes so here.
//!
//! The entries of a directory are taken over as places without bytes. What has changed outside and
//! is clean here is a place again. What is gone goes here, too. What is dirty stays, and that it
//! fits no more is found out when it is flushed. A file that somebody has open keeps what it had:
//! its name stands for another file from then on.

use std::collections::BTreeMap;

use mayfly_meta::{
    Scan, key,
    record::{BirthKey, Content, Dentry, Inode, Layout, Master, Origin, Policy},
};
use mayfly_types::{
    Attr, Errno, FileId, FileKind,
    limits::{
        NAME_BYTES_MAX, SYMLINK_BYTES_MAX, TIER_LISTING_KEPT, TIER_NAME_LISTED_MS,
        TIER_SHORT_LISTING,
    },
};
use mayfly_wire::tier::{NO_ATTR, TierEntry, unpacked};

use crate::{
    fault::{Fault, Outcome},
    files::state::data::object_of,
    namespace::state::{
        inode::{Located, Ownership},
        walk::Place,
    },
    shard::Shard,
    tier::{
        gates::{is_absent, is_partly_here, master_of},
        link::new_place,
        state::{
            item::Item,
            table::Known,
            wanted::{At, Seen},
        },
    },
    transactions::state::prepare_locks::PrepareLock,
};

/// A name that was seen outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) attr: &'a Attr,
    /// Where a symbolic link leads.
    pub(crate) target: &'a [u8],
    /// Not before this, milliseconds.
    pub(crate) at_ms: u64,
}

/// A name that is here.
type Here = (Vec<u8>, FileId, FileKind);

/// Whether an entry can be one, and can be shown.
pub(crate) fn is_shown(entry: &TierEntry<'_>) -> bool {
    let name = entry.name;
    let possible = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.contains(&b'/')
        && name != b"."
        && name != b"..";
    possible
        && match entry.attr.kind {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => (1..=SYMLINK_BYTES_MAX).contains(&entry.target.len()),
            FileKind::Fifo | FileKind::Socket => false,
        }
}

/// Attributes as they are outside.
pub(crate) fn dress(inode: &mut Inode, attr: &Attr) {
    inode.mode = (attr.mode & 0o7777) as u16;
    (inode.uid, inode.gid) = (attr.uid, attr.gid);
    (inode.atime, inode.mtime, inode.ctime) = (attr.atime, attr.mtime, attr.ctime);
    if let Content::Inline(_) | Content::Object(_) = inode.content {
        inode.size_bytes = attr.size_bytes;
    }
}

/// Whether the master copy is as it was when it was last seen.
pub(crate) fn is_as_known(inode: &Inode, master: &Master, attr: &Attr) -> bool {
    inode.origin.is_some_and(|origin| {
        let sized = inode.kind() != FileKind::Regular || origin.size_bytes == attr.size_bytes;
        sized && origin.mtime == attr.mtime && master.ctime == attr.ctime
    })
}

impl Shard {
    /// The names of a directory that are here.
    pub(crate) fn names_here(&mut self, directory: FileId) -> Outcome<Vec<Here>> {
        let (mut here, mut corrupt) = (Vec::new(), false);
        let prefix = key::directory(directory);
        self.store.scan(&prefix, &prefix, &mut |key, record| {
            match (key::split_dentry(key), Dentry::peek(record)) {
                (Some((_, _, name)), Ok((id, kind))) => here.push((name.to_vec(), id, kind)),
                _ => corrupt = true,
            }
            Scan::More
        })?;
        if corrupt { Err(Errno::EIO.into()) } else { Ok(here) }
    }

    /// What a name stands for here, whatever is outside.
    pub(crate) fn lookup_here(&mut self, at: &At) -> Outcome<Option<(FileId, FileKind)>> {
        let record = self.store.get(&key::dentry(at.0, &at.1))?;
        Ok(record.map(Dentry::peek).transpose()?)
    }

    /// A directory was looked at.
    pub(crate) fn take_listing(
        &mut self,
        directory: FileId,
        item: &Item,
        seen: Seen,
        packed: &[u8],
    ) -> Outcome<()> {
        if self.load_own(directory)?.inode.links == 0 {
            return Err(Errno::ENOENT.into());
        }
        let mut names = 0;
        if !seen.same {
            if seen.attr.kind != FileKind::Directory {
                return Err(Errno::ENOTDIR.into());
            }
            let entries = unpacked::<TierEntry<'_>>(packed).ok_or(Errno::EPROTO)?;
            let shown: BTreeMap<&[u8], TierEntry<'_>> =
                entries.filter(is_shown).map(|entry| (entry.name, entry)).collect();
            names = shown.len();
            // Who reads a directory that nobody else has changed does not see its times change.
            let was = self.load_own(directory)?.inode;
            let times = (was.mtime, was.ctime);
            let is_ours = was.origin.is_some_and(|origin| origin.mtime != was.mtime)
                && self.is_as_listed(directory, item, &shown)?;
            self.take_over(directory, item, &shown)?;
            // What is being removed just now may be another one than the one that was listed.
            let is_changing = shown.keys().any(|name| self.is_changing(directory, name));
            let all_taken = self.is_as_listed(directory, item, &shown)? && !is_changing;
            let mut located = self.load_own(directory)?;
            let Some(origin) = located.inode.origin else { return Ok(()) };
            let (mtime, ctime) = (seen.attr.mtime, seen.attr.ctime);
            dress(&mut located.inode, &seen.attr);
            if is_ours {
                (located.inode.mtime, located.inode.ctime) = times;
            }
            located.inode.origin = Some(Origin { mtime, ..origin });
            located.inode.residency = Master { ctime, ..Master::default() }.encode();
            // Names that were left out are not known by the directory's time: it is listed anew.
            located.inode.unlisted = !all_taken;
            self.save(&located)?;
        }
        let mut located = self.load_own(directory)?;
        self.saw(&mut located.inode, seen.at_ms);
        if !located.inode.unlisted || self.tier.valid_ms.is_some() {
            let longer_ms = if seen.same { 0 } else { self.believed_longer_ms(item, names) };
            self.saw_names(&mut located.inode, seen.at_ms + longer_ms);
        }
        self.save(&located)
    }

    /// For how much longer than other things a listing of so many names is believed. Each change
    /// of our own changes the directory's time, so a job that makes many files would have it listed
    /// anew all the time.
    fn believed_longer_ms(&self, item: &Item, names: usize) -> u64 {
        let Some(valid_ms) = self.tier.valid_ms.filter(|_| names > TIER_SHORT_LISTING) else {
            return 0;
        };
        // It may have waited for its turn, or for an origin that stood still.
        let took_ms = self.elapsed_ms().saturating_sub(item.since_ms);
        let took_ms = took_ms.min(names as u64 * TIER_NAME_LISTED_MS);
        (took_ms * TIER_LISTING_KEPT).saturating_sub(valid_ms)
    }

    /// Whether the names of a directory are those of a listing. What is believed for ever differs
    /// only in what is being done just now.
    fn is_as_listed(
        &mut self,
        directory: FileId,
        item: &Item,
        entries: &BTreeMap<&[u8], TierEntry<'_>>,
    ) -> Outcome<bool> {
        let here = self.names_here(directory)?;
        let here: BTreeMap<&[u8], FileKind> =
            here.iter().map(|(name, _, kind)| (name.as_slice(), *kind)).collect();
        let listed = |name: &[u8]| entries.get(name).map(|entry| entry.attr.kind);
        let lacking = entries.keys().filter(|name| !here.contains_key(*name));
        let other = here.iter().filter(|(name, kind)| listed(name) != Some(**kind));
        let mut differ = lacking.chain(other.map(|(name, _)| name));
        Ok(!differ.any(|name| {
            self.tier.valid_ms.is_some() || item.is_touched(name) || self.is_busy(directory, name)
        }))
    }

    /// The attributes were seen outside. The caller saves the inode.
    pub(crate) fn saw(&mut self, inode: &mut Inode, at_ms: u64) {
        let until = self.seen_until(at_ms);
        if let Some(origin) = &mut inode.origin {
            origin.seen.until = until;
            self.tier.know_file(inode.id, at_ms);
        }
    }

    /// The same of the names of a directory.
    pub(crate) fn saw_names(&mut self, inode: &mut Inode, at_ms: u64) {
        let names_until = self.seen_until(at_ms);
        if let Some(origin) = &mut inode.origin {
            origin.seen.names_until = names_until;
            self.tier.know_directory(inode.id, Known::At(at_ms));
        }
    }

    /// The names of the directory are looked at before they are believed once more.
    pub(crate) fn distrust_names(&mut self, directory: FileId) -> Outcome<()> {
        self.tier.directories.remove(&directory);
        let mut located = self.load_own(directory)?;
        let Some(origin) = &mut located.inode.origin else { return Ok(()) };
        origin.seen.names_until = 0;
        self.save(&located)
    }

    /// Until when those who ask nobody believe what was seen then. What is believed for ever needs
    /// no time.
    fn seen_until(&self, at_ms: u64) -> u64 {
        match self.tier.valid_ms {
            None | Some(0) => 0,
            Some(valid_ms) => {
                self.cycles_at_ns(i128::from(at_ms.saturating_add(valid_ms)) * 1_000_000)
            }
        }
    }

    fn take_over(
        &mut self,
        directory: FileId,
        item: &Item,
        entries: &BTreeMap<&[u8], TierEntry<'_>>,
    ) -> Outcome<()> {
        let source = self.load_own(directory)?.inode.origin.ok_or(Errno::EIO)?.source;
        let mut here: BTreeMap<Vec<u8>, (FileId, FileKind)> = BTreeMap::new();
        for (name, id, kind) in self.names_here(directory)? {
            here.insert(name.clone(), (id, kind));
            let is_over = !entries.contains_key(name.as_slice())
                && (kind != FileKind::Directory || self.is_home(id) || item.has_unseated(id));
            // Who waits for its attributes is told that it is gone.
            if is_over && !item.is_changed(&name) && !self.is_changing(directory, &name) {
                self.forget_removed(&(directory, name), (id, kind))?;
                self.commit_now_and_then()?;
            }
        }
        for (name, entry) in entries {
            let at = (directory, name.to_vec());
            if item.is_touched(name) || self.is_busy(directory, name) {
                self.tier.is_listed(&at);
                let is_changed = item.is_changed(name) || self.is_changing(directory, name);
                let is_known = here.get(*name).is_some_and(|found| !item.has_unseated(found.0));
                // Who looks at it alone may know nothing of it yet.
                if is_changed || is_known {
                    continue;
                }
            }
            let entry = Entry { attr: &entry.attr, target: entry.target, at_ms: item.since_ms };
            match here.get(*name) {
                // Its own shard looks at it.
                Some((id, FileKind::Directory))
                    if !self.is_home(*id) && !item.has_unseated(*id) => {}
                Some((id, FileKind::Directory)) if !self.is_home(*id) => {
                    self.forget_removed(&at, (*id, FileKind::Directory))?;
                    match item.seat(name) {
                        Some(id) => self.name_seat(&at, id)?,
                        None => self.take_over_one(&at, source, entry)?,
                    }
                }
                Some(found) => self.seen_again(&at, *found, entry)?,
                None => match item.seat(name) {
                    Some(id) => self.name_seat(&at, id)?,
                    None => self.take_over_one(&at, source, entry)?,
                },
            }
            self.commit_now_and_then()?;
        }
        Ok(())
    }

    /// Whether something is being done about the name. What was seen outside meanwhile may be over.
    fn is_busy(&self, directory: FileId, name: &[u8]) -> bool {
        self.tier.is_busy(&(directory, name.to_vec())) || self.is_changing(directory, name)
    }

    /// The same, but that it is looked at.
    pub(crate) fn is_changing(&self, directory: FileId, name: &[u8]) -> bool {
        let at = (directory, name.to_vec());
        if self.tier.is_changing(&at) {
            return true;
        }
        let prepared = [(PrepareLock::Name(at.0, at.1), true)];
        let locks = &self.transactions.prepare_locks;
        !locks.is_empty() && locks.in_the_way(&prepared, None).is_some()
    }

    /// The same, or it was done since a look was begun.
    pub(crate) fn has_changed_since(&self, look: u64, directory: FileId, name: &[u8]) -> bool {
        let item = self.tier.items.get(&look);
        item.is_some_and(|item| item.is_changed(name)) || self.is_changing(directory, name)
    }

    /// A name that is new here, of a directory whose seat is at another shard.
    fn name_seat(&mut self, at: &At, id: FileId) -> Outcome<()> {
        let parent = self.load_parent(at.0)?;
        self.check_room()?;
        let dentry = Dentry::Plain { id, kind: FileKind::Directory };
        self.put_dentry(at.0, &at.1, &dentry.encode())?;
        self.touch_directory(parent, 1, 1)
    }

    /// A name that is new here.
    pub(crate) fn take_over_one(&mut self, at: &At, source: u32, entry: Entry<'_>) -> Outcome<()> {
        let Entry { attr, target, at_ms } = entry;
        let seen = Seen { attr: *attr, same: true, at_ms };
        let place = new_place(at.0, &at.1);
        let parent = self.load_parent(at.0)?;
        self.check_room()?;
        let owner = Ownership { mode: attr.mode, uid: attr.uid, gid: attr.gid };
        let content = match attr.kind {
            FileKind::Directory => {
                let id = self.add_directory(&place, parent, owner)?;
                return self.adopt_directory(id, source, seen, true);
            }
            FileKind::Symlink => Content::Symlink(target.to_vec()),
            FileKind::Regular => Content::Inline(Vec::new()),
            FileKind::Fifo | FileKind::Socket => return Ok(()),
        };
        let id = self.new_id(&place)?;
        let mut inode = self.new_inode(id, owner, content, parent.layout());
        let resident = attr.kind == FileKind::Symlink;
        self.adopt(&mut inode, source, &place, (seen, resident));
        self.add_fused(&place, parent, &inode)
    }

    /// The inode, which is about to be saved, stands for this master copy from now on.
    pub(crate) fn adopt(
        &mut self,
        inode: &mut Inode,
        source: u32,
        place: &Place,
        (seen, resident): (Seen, bool),
    ) {
        let attr = seen.attr;
        // Of what is made outside later nothing is known yet.
        if attr.kind != NO_ATTR.kind {
            dress(inode, &attr);
        }
        // Its bytes are fetched and written back by one node.
        inode.layout = Layout { policy: Policy::Stripe, width: 1, ..inode.layout };
        let (mtime, size_bytes) = (attr.mtime, attr.size_bytes);
        let origin = Origin { source, mtime, size_bytes, resident, ..Origin::default() };
        self.set_origin(inode, Some(origin));
        self.saw(inode, seen.at_ms);
        let (parent, name) = (place.directory, place.name.clone());
        inode.residency = Master { ctime: attr.ctime, parent, name, unsure: false }.encode();
    }

    /// The same of a directory. One that was made now has no names that are not here.
    pub(crate) fn adopt_directory(
        &mut self,
        id: FileId,
        source: u32,
        seen: Seen,
        unlisted: bool,
    ) -> Outcome<()> {
        let attr = seen.attr;
        let mut located = self.load_own(id)?;
        if attr.kind != NO_ATTR.kind {
            dress(&mut located.inode, &attr);
        }
        let origin = Origin { source, mtime: attr.mtime, ..Origin::default() };
        self.set_origin(&mut located.inode, Some(origin));
        self.saw(&mut located.inode, seen.at_ms);
        if !unlisted {
            self.saw_names(&mut located.inode, seen.at_ms);
        }
        located.inode.residency = Master { ctime: attr.ctime, ..Master::default() }.encode();
        located.inode.unlisted = unlisted;
        self.save(&located)
    }

    /// A name that is here was seen outside, like this.
    pub(crate) fn seen_again(
        &mut self,
        at: &At,
        (id, kind): (FileId, FileKind),
        entry: Entry<'_>,
    ) -> Outcome<()> {
        let attr = entry.attr;
        let mut located = self.load_cached(id, at)?;
        self.saw(&mut located.inode, entry.at_ms);
        let Some(origin) = located.inode.origin.filter(|origin| !origin.dirty) else {
            return self.save(&located);
        };
        if kind != attr.kind {
            self.forget_removed(at, (id, kind))?;
            return match self.lookup_here(at)? {
                None => self.take_over_one(at, origin.source, entry),
                // Something in it is dirty.
                Some(_) => Ok(()),
            };
        }
        if kind == FileKind::Directory {
            // Whether its names are as they are here is for a look to find out.
            dress(&mut located.inode, attr);
            return self.save(&located);
        }
        let master = master_of(&located.inode)?;
        if is_as_known(&located.inode, &master, attr) {
            return self.save(&located);
        }
        // Nobody gets some bytes of one and some of another one.
        let has_bytes = !is_absent(&located.inode)
            || is_partly_here(&located.inode)
            || self.has_chunks(&located.inode)?;
        if kind == FileKind::Symlink || has_bytes && self.is_in_use(&located.inode)? {
            self.forget_removed(at, (id, kind))?;
            return self.take_over_one(at, origin.source, entry);
        }
        self.drop_chunks(&located.inode)?;
        self.doom_object(&located.inode)?;
        located.inode.content = Content::Inline(Vec::new());
        located.inode.blocks = 0;
        dress(&mut located.inode, attr);
        let (mtime, size_bytes) = (attr.mtime, attr.size_bytes);
        let origin = Origin { mtime, size_bytes, resident: false, ..origin };
        self.set_origin(&mut located.inode, Some(origin));
        located.inode.residency = master.seen(attr.ctime).encode();
        self.save(&located)
    }

    /// Whether somebody may be using the bytes of the file.
    pub(crate) fn is_in_use(&mut self, inode: &Inode) -> Outcome<bool> {
        let mapped = || object_of(inode).is_some_and(|object| !self.is_unmapped(object));
        if self.files.opens.file(inode.id).is_some() || inode.unsettled || mapped() {
            return Ok(true);
        }
        self.is_leased(inode.id)
    }

    fn is_unmapped(&self, object: mayfly_object::ObjectId) -> bool {
        let attr = match self.look(object) {
            // It is not open: so is one that was fetched and not read since, and was taken for one
            // that is mapped, and never went. Its file is the node's own, and opened at once.
            Err(Fault::Prepare(_)) => self.objects.attr(object).map_err(Fault::Errno),
            looked => looked,
        };
        attr.is_ok_and(|attr| !attr.mapped)
    }

    /// A name is gone outside.
    pub(crate) fn forget_removed(
        &mut self,
        at: &At,
        (id, kind): (FileId, FileKind),
    ) -> Outcome<()> {
        if kind == FileKind::Directory && !self.is_home(id) {
            // It is gone there already.
            let parent = self.load_holder(at.0)?;
            self.delete_dentry(at.0, &at.1)?;
            self.store.move_directory()?;
            return self.touch_directory(parent, -1, -1);
        }
        let located = self.load_cached(id, at)?;
        let parent = if kind == FileKind::Directory {
            if self.has_dirty_below(id)? {
                return Ok(());
            }
            self.forget_names_of(id)?;
            let parent = self.load_holder(at.0)?;
            self.delete_dentry(at.0, &at.1)?;
            self.store.move_directory()?;
            let located = self.load_own(id)?;
            self.drop_link(located)?;
            return self.touch_directory(parent, -1, -1);
        } else {
            if located.inode.origin.is_some_and(|origin| origin.dirty) {
                return Ok(());
            }
            self.load_holder(at.0)?
        };
        self.delete_dentry(at.0, &at.1)?;
        let birth = BirthKey { directory: at.0, name: at.1.clone() };
        self.files.opens.forget_name(id, &birth);
        self.drop_link(located)?;
        self.touch_directory(parent, -1, 0)
    }

    /// All names of a directory are gone outside.
    pub(crate) fn forget_names_of(&mut self, directory: FileId) -> Outcome<()> {
        for (name, id, kind) in self.names_here(directory)? {
            self.forget_removed(&(directory, name), (id, kind))?;
        }
        Ok(())
    }

    /// Whether a file in the directory, or below it, is dirty, or something is being done about it.
    pub(crate) fn has_dirty_below(&mut self, directory: FileId) -> Outcome<bool> {
        if self.tier.journal.last_below(directory).is_some() {
            return Ok(true);
        }
        let dirty: Vec<(FileId, BirthKey)> =
            self.tier.dirty.iter().map(|(id, birth)| (*id, birth.clone())).collect();
        let mut within: Vec<FileId> = self.tier.busy.keys().map(|at| at.0).collect();
        for (id, birth) in dirty {
            if let Ok(located) = self.load_birth(id, &birth) {
                within.push(master_of(&located.inode)?.parent);
            }
        }
        within.sort_unstable();
        within.dedup();
        for inner in within {
            if self.is_within(inner, directory).unwrap_or(false) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A file that was known otherwise is as it is outside from now on, whatever it had.
    pub(crate) fn give_up_copy(
        &mut self,
        mut located: Located,
        at: &At,
        (attr, at_ms): (&Attr, u64),
    ) -> Outcome<()> {
        let (id, kind) = (located.inode.id, located.inode.kind());
        self.forget_dirty(id)?;
        if let Some(origin) = located.inode.origin {
            // No master copy has this time, so it is taken for another one.
            let mtime = mayfly_types::Timestamp::default();
            let origin = Origin { dirty: false, mtime, ..origin };
            self.set_origin(&mut located.inode, Some(origin));
        }
        self.save(&located)?;
        if attr.kind == FileKind::Fifo {
            return self.forget_removed(at, (id, kind));
        }
        self.seen_again(at, (id, kind), Entry { attr, target: b"", at_ms })
    }
}

//! Open: finds or creates a file and makes an open file description in the node's table.

use mayfly_meta::record::{BirthKey, Content, Inode};
use mayfly_object::ObjectId;
use mayfly_transport_shm::layout::FILE_MAPPED;
use mayfly_types::{Errno, FileId, FileKind};
use mayfly_wire::{Open, Opened, WALK_FOLLOW, Walk, Wire, Writer};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::state::background::{Change, Length, Reply},
    message::{At, MemberFacts},
    namespace::state::{
        inode::{Located, Ownership},
        open::{O_CLOEXEC, O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_PATH, O_TMPFILE, effective},
        walk::{Last, Place, Rule},
    },
    shard::Shard,
    tier::gates::is_absent,
};

pub(crate) const O_ACCMODE: u32 = 0o3;
const O_RDONLY: u32 = 0;
const O_RDWR: u32 = 2;

const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;

const O_NOCTTY: u32 = 0o400;
/// Flags that say how to open, and are no property of the description.
pub(crate) const ONCE: u32 = O_CREAT | O_EXCL | O_TRUNC | O_NOCTTY | O_CLOEXEC;

/// Whether nothing of a file that is there changes by such an open, or by the description.
pub(crate) fn opens_to_read(flags: u32) -> bool {
    flags & O_PATH != 0 || flags & (O_ACCMODE | O_TRUNC) == O_RDONLY
}

/// Whether the file is opened to be read, as one that is there already.
pub(crate) fn reads_alone(flags: u32) -> bool {
    flags & (O_ACCMODE | O_TRUNC | O_CREAT | O_PATH | O_DIRECTORY | O_TMPFILE) == O_RDONLY
}

impl Shard {
    pub(crate) fn open_file(
        &mut self,
        caller: Caller,
        open: &Open<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let flags = effective(open.flags)?;
        if flags & O_TMPFILE != 0 {
            return self.open_temporary(caller, open, flags & !ONCE, to);
        }
        let create = flags & O_CREAT != 0;
        let exclusive = create && flags & O_EXCL != 0;
        let walk = walk_to_open(open.walk, !exclusive && flags & O_NOFOLLOW == 0);
        let (mut located, slash) = match self.run.place.at {
            At::File { id, slash, by_name } => {
                let others = by_name && !(create && self.is_pending_create_of(id, caller)?);
                (self.load_arrived(id, others)?, slash)
            }
            At::Part(_) => return Err(Errno::EPROTO.into()),
            At::Start | At::Path(..) => {
                let walked = self.walk(&walk, if create { Rule::Create } else { Rule::Target });
                if let Err(Fault::Elsewhere(owner, place)) = &walked {
                    self.ask_for_contents(caller, flags, (*owner, place))?;
                }
                let place = walked?;
                if create && place.found.is_none() && place.last == Last::Name {
                    return self.create(caller, place, open, to);
                }
                let slash = place.slash;
                (self.locate_at_hand(place, open, flags)?, slash)
            }
        };
        let placed = create && self.may_be_placed(&located.inode);
        let created = placed && self.is_pending_create_of(located.inode.id, caller)?;
        if created {
            self.links_at_rest(located.inode.id)?;
        } else {
            check_existing(&located.inode, flags, exclusive, slash)?;
        }
        if !self.files.opens.has_room() {
            return Err(Errno::ENFILE.into());
        }
        if !opens_to_read(flags) && self.is_changed_before(&located)? {
            return self.open_file(caller, open, to);
        }
        let before = if created { None } else { Some(self.attr_at_open(&located.inode)?) };
        if flags & O_TRUNC != 0 && located.inode.layout.striped {
            self.cut_at_open(&mut located)?;
        }
        self.revive(&located)?;
        let truncate = !created && flags & O_TRUNC != 0 && !self.was_cut_before(located.inode.id);
        let changed_in = changed_in(&located, flags);
        let cut = if truncate { self.empty_at_open(&mut located)? } else { None };
        let birth = located.fused.take().unwrap_or_default();
        let inode = &located.inode;
        let attr = match before {
            Some(attr) if !truncate || cut.is_some() => attr,
            _ => self.attr_at_open(inode)?,
        };
        let (id, kind) = (inode.id, inode.kind());
        let made = self.files.opens.insert(caller, (id, kind), birth, flags & !ONCE, None)?;
        self.mark_opened(inode);
        if created {
            self.forget_maker(inode)?;
        }
        if let Some((object, birth)) = cut {
            self.note_cut(caller, inode, 0)?;
            let change = Change { caller: Some(caller), object, birth, reply: Reply::Opened(made) };
            return Ok(self.start_emptying(change));
        }
        let mapped = self.files.opens.has_flag(attr.id, FILE_MAPPED);
        Opened { open: made, attr, created, mapped }.encode(to)?;
        if !created {
            self.opened_existing(caller, open, (kind, flags, truncate, changed_in), &mut located)?;
        }
        Ok(Served::Replied)
    }

    /// A file was opened that was there.
    fn opened_existing(
        &mut self,
        caller: Caller,
        open: &Open<'_>,
        (kind, flags, truncate, changed_in): (FileKind, u32, bool, Option<FileId>),
        located: &mut Located,
    ) -> Outcome<()> {
        if let Some(directory) = changed_in {
            self.consider_delegating(caller, (directory, FileKind::Regular), &open.walk, None)?;
        }
        if !truncate && is_read_next(kind, flags) {
            self.opened_to_read(caller, &mut located.inode);
        }
        Ok(())
    }

    /// Nobody changes a file without asking until the commit that is opened to be changed; whether
    /// it may have got other content just now.
    fn is_changed_before(&mut self, located: &Located) -> Outcome<bool> {
        let is_changed = self.reserve_content(located);
        if !is_changed {
            self.have_file_forgotten(located.inode.id)?;
        }
        Ok(is_changed)
    }

    /// Takes the content of a file away; the object that is to be cut, and where its file is found.
    fn empty_at_open(&mut self, located: &mut Located) -> Outcome<Option<(ObjectId, BirthKey)>> {
        let cut = self.truncate_at_open(located)?;
        Ok(cut.map(|object| (object, located.birth())))
    }

    /// Cuts all off an object that others have open, and answers that.
    fn start_emptying(&mut self, change: Change) -> Served {
        let object = change.object;
        self.start_change(Length::Any, change, move |objects| {
            objects.set_size(object, 0).map(|()| 0)
        })
    }

    /// The file is likely to be read, now, and others like it.
    fn opened_to_read(&mut self, caller: Caller, inode: &mut Inode) {
        if is_absent(inode) {
            return;
        }
        match &mut inode.content {
            Content::Inline(bytes) => {
                self.files.opened_content = Some(std::mem::take(bytes));
                self.consider_leasing(caller);
            }
            Content::Object(_) if !inode.layout.striped => self.consider_leasing(caller),
            Content::Directory(_) => self.consider_leasing(caller),
            _ => {}
        }
    }

    /// The facts about an open file that the node's processes have to know.
    pub(crate) fn mark_opened(&mut self, inode: &Inode) {
        if matches!(inode.content, Content::Object(_)) && !is_absent(inode) {
            self.files.opens.mark_object(inode.id);
        }
        self.mark_layout(inode);
        if inode.links == 0 {
            self.files.opens.mark_unlinked(inode.id);
        }
    }

    /// The file that the walk led to, once it is as it is outside, if it is of an origin.
    fn locate_at_hand(&mut self, place: Place, open: &Open<'_>, flags: u32) -> Outcome<Located> {
        let located = self.locate(place, open)?;
        self.file_at_hand(&located.inode)?;
        self.check_writable_by(&located.inode, flags)?;
        Ok(located)
    }

    /// The file that the walk led to.
    fn locate(&mut self, place: Place, open: &Open<'_>) -> Outcome<Located> {
        match place.found {
            None if place.last != Last::Name => {
                self.load_start(place.directory, !open.walk.path.is_empty())
            }
            None => Err(Errno::ENOENT.into()),
            Some((id, _)) => self.load_by_name(id, place),
        }
    }

    /// Makes the file and opens it. Nothing that can be true of a file that was there before is
    /// asked about it.
    fn create(
        &mut self,
        caller: Caller,
        place: Place,
        open: &Open<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        if !self.files.opens.has_room() {
            return Err(Errno::ENFILE.into());
        }
        if self.reserve_name(place.directory, &place.name)
            && self.lookup(place.directory, &place.name)?.is_some()
        {
            // Nobody submits it once more.
            return self.open_file(caller, open, to);
        }
        self.unclaimed(|| place.prepare_locks())?;
        let parent = self.load_parent(place.directory)?;
        self.check_room()?;
        self.spread_if_shared(caller, &place)?;
        let gid = parent.inherited_group(open.gid);
        let owner = Ownership { mode: open.mode, uid: open.uid, gid };
        if let Some(home) = self.chosen_home(parent.layout(), caller, &place)? {
            return Err(self.create_at(home, caller, &place, (owner, *parent.layout())));
        }
        let outside = self.create_at_origin(&place, (open.mode, open.flags))?;
        let id = self.new_id(&place)?;
        let mut inode = self.new_inode(id, owner, Content::Inline(Vec::new()), parent.layout());
        if let Some((source, seen)) = outside {
            self.adopt(&mut inode, source, &place, (seen, true));
        }
        self.add_fused(&place, parent, &inode)?;
        let attr = self.attr_from(&inode, None, &MemberFacts::default())?;
        let Place { directory, name, .. } = place;
        let (of, birth) = ((inode.id, FileKind::Regular), BirthKey { directory, name });
        let made = self.files.opens.insert(caller, of, birth, open.flags & !ONCE, None)?;
        self.mark_layout(&inode);
        self.consider_delegating(caller, (directory, FileKind::Regular), &open.walk, None)?;
        Opened { open: made, attr, created: true, mapped: false }.encode(to)?;
        if open.flags & (O_ACCMODE | O_PATH) == 0 {
            self.files.opened_content = Some(Vec::new());
        }
        Ok(Served::Replied)
    }

    /// Frees the description that a request of this caller made before the daemon was restarted:
    /// the request was not acknowledged, so it comes again, or its process has given up.
    pub(crate) fn drop_unclaimed(&mut self, caller: Caller) {
        if let Some(index) = self.files.unclaimed_opens.get(&caller).copied() {
            let found = self.files.opens.at(index);
            // Where another node has the answer it will give it again: `adopt_open`.
            if found.is_none_or(|(_, found)| found.remote.is_none()) {
                self.files.unclaimed_opens.remove(&caller);
                found.into_iter().for_each(|(open, _)| self.end_open(open));
            }
        }
        self.forget_unclaimed(|made| caller.is_behind(*made));
    }

    /// These requests do not come again.
    pub(crate) fn forget_unclaimed(&mut self, is_over: impl Fn(&Caller) -> bool) {
        if self.files.unclaimed_opens.is_empty() {
            return;
        }
        let over: Vec<Caller> =
            self.files.unclaimed_opens.keys().copied().filter(|made| is_over(made)).collect();
        self.ask_for_proxies(&over);
        self.files.unclaimed_opens.retain(|made, _| !over.contains(made));
    }
}

/// The directory in which a file's content can be changed without asking that is opened so, if it
/// can.
fn changed_in(located: &Located, flags: u32) -> Option<FileId> {
    let is_small = matches!(located.inode.content, Content::Inline(_)) && !opens_to_read(flags);
    located.fused.as_ref().filter(|_| is_small).map(|birth| birth.directory)
}

/// The path, of which a symbolic link at the end is followed or not.
fn walk_to_open(walk: Walk<'_>, follow: bool) -> Walk<'_> {
    let flags = if follow { walk.flags | WALK_FOLLOW } else { walk.flags & !WALK_FOLLOW };
    Walk { flags, ..walk }
}

/// Whether what was opened with these flags is likely to be read. A file that may be written as
/// well mostly is, unless it is empty now.
fn is_read_next(kind: FileKind, flags: u32) -> bool {
    kind == FileKind::Directory || matches!(flags & (O_ACCMODE | O_PATH), O_RDONLY | O_RDWR)
}

/// The checks of the kernel's `do_open` and `may_open`, in their order.
fn check_existing(inode: &Inode, flags: u32, exclusive: bool, slash: bool) -> Outcome<()> {
    let kind = inode.kind();
    if exclusive {
        return Err(Errno::EEXIST.into());
    }
    if flags & O_CREAT != 0 && kind == FileKind::Directory {
        return Err(Errno::EISDIR.into());
    }
    if (flags & O_DIRECTORY != 0 || slash) && kind != FileKind::Directory {
        return Err(Errno::ENOTDIR.into());
    }
    if flags & O_PATH != 0 {
        return Ok(());
    }
    match kind {
        FileKind::Symlink => Err(Errno::ELOOP.into()),
        FileKind::Directory if flags & O_ACCMODE != 0 || flags & O_TRUNC != 0 => {
            Err(Errno::EISDIR.into())
        }
        // The kernel's own pipe is opened by whoever gets this answer.
        FileKind::Fifo | FileKind::Socket => Err(Errno::ENXIO.into()),
        FileKind::Directory | FileKind::Regular => Ok(()),
    }
}

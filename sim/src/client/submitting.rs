//! Names that are made and removed without asking, as `mayfly-transport-shm` has processes do it.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use mayfly_sys::arch::Moment;
use mayfly_transport_shm::layout::NodeRegion;
use mayfly_transport_shm::submission_ring::{
    Certain, Changed, Changes, Create, Files, Move, MoveKind, Removal, SubmissionRing, ring_of,
};
use mayfly_types::{Attr, FileId, OpenRef, Timestamp};
use mayfly_wire::{Request, SET_MODE, Stat, Target};

use super::{
    Client, Common, Expected, O_APPEND, O_CREAT, O_EXCL, O_RDWR, O_TRUNC, What, open, unlink, walk,
};
use crate::{
    history::{EntryOp, Heard, NameOp, Op},
    node::Node,
};

/// The daemon is woken when so many records wait, or twice as many, and so on. Otherwise it learns
/// of them when it is asked for something.
const WAKE_AT: u32 = 4;
/// To an entry with more bytes nothing is added.
const GROWS_TO: u64 = 600;

impl Client {
    /// Submits an operation on a name, if it submits, and the directory is delegated to it; false
    /// when it has to ask.
    pub(super) fn submit_name(
        &mut self,
        node: &Node,
        op: NameOp,
        (path, second): (&str, &str),
    ) -> bool {
        let Some((ring, delegation, path)) = self.delegated(node, path) else { return false };
        let region = node.region();
        let (tables, moment) = (&region.name_tables, Moment::default());
        let create = |flags, mode| Create { path, flags, mode, uid: 1, gid: 1, moment };
        let removal = |directory| Removal { path, directory, moment };
        let is_submitted = match op {
            NameOp::Create(_) => {
                let create = create(O_RDWR | O_CREAT | O_EXCL, 0o644);
                let opened = ring.submit_create(tables, delegation, &create);
                self.made.extend(opened);
                opened.is_some()
            }
            NameOp::MakeDirectory(_) => {
                ring.submit_directory(tables, delegation, &create(0, 0o755))
            }
            NameOp::Unlink(_) => ring.submit_removal(tables, delegation, &removal(false)),
            NameOp::RemoveDirectory(_) => ring.submit_removal(tables, delegation, &removal(true)),
            NameOp::Rename(..) | NameOp::Link(..) => {
                let is_link = matches!(op, NameOp::Link(..));
                let how = if is_link { MoveKind::Link } else { MoveKind::Replace };
                self.delegated(node, second).is_some_and(|(_, given, to)| {
                    let moved = Move { from: path, to, how, moment };
                    // It knows no records.
                    given == delegation && ring.submit_move((tables, given), &moved, |_, _| false)
                })
            }
            NameOp::Stat(_) => false,
        };
        if is_submitted {
            show(node, ring);
        }
        is_submitted
    }

    /// The process's ring, if something may be submitted in it about what a path leads to.
    fn delegated<'a>(
        &self,
        node: &Node,
        path: &'a str,
    ) -> Option<(&'static SubmissionRing, u32, &'a [u8])> {
        let may = self.submits && self.making.is_none();
        let (session, _) = self.session.as_ref().filter(|_| may)?;
        let ring = &node.region().submission_rings[ring_of(*session)];
        // The processors' counter knows nothing of the time here.
        let is_believed = ring.is_believed(|| u64::MAX);
        let given = ring.delegation_for(*session, FileId::ROOT.0, path.as_bytes());
        given.filter(|_| is_believed).map(|(delegation, path)| (ring, delegation, path))
    }

    pub(super) fn add(&mut self, node: &Node, common: &mut Common, directory: usize) {
        self.last_entry += 1;
        let name = format!("{}-{}", self.number, self.last_entry);
        let path = format!("l{directory}/{name}");
        let event = self.note(common, Op::Entry(directory, EntryOp::Add(name.clone())));
        if self.submit_name(node, NameOp::Create(0), (&path, "")) {
            self.hear_at_once(common, event);
            // As `rsync` has it, which writes then.
            if self.last_entry.is_multiple_of(4) {
                self.change_mode(node, common, (directory, &name));
            }
            self.outgrow(node, &name);
            self.look_at_waiting(node, (directory, &name));
            let name = self.change_entry(node, common, (directory, name));
            return self.entries.push((directory, name));
        }
        let what = What::Add { directory, name };
        self.ask(node, &open(&path, O_RDWR | O_CREAT | O_EXCL), what, event);
    }

    pub(super) fn remove(&mut self, node: &Node, common: &mut Common, directory: usize) {
        let Some(at) = self.entries.iter().position(|entry| entry.0 == directory) else { return };
        let name = self.entries[at].1.clone();
        if self.look_at_entry(node, (directory, &name)) {
            return;
        }
        self.entries.swap_remove(at);
        let path = format!("l{directory}/{name}");
        let event = self.note(common, Op::Entry(directory, EntryOp::Remove(name)));
        if self.submit_name(node, NameOp::Unlink(0), (&path, "")) {
            return self.hear_at_once(common, event);
        }
        self.ask(node, &unlink(&path, false), What::Plain, event);
    }

    /// Goes on with an entry that was submitted: some are moved, as temporary files are, and of
    /// some the mode is changed; both only without asking.
    pub(super) fn change_entry(
        &mut self,
        node: &Node,
        common: &mut Common,
        (directory, name): (usize, String),
    ) -> String {
        let path = format!("l{directory}/{name}");
        if self.last_entry % 4 == 2 {
            self.change_mode(node, common, (directory, &name));
        }
        let to = format!("{name}-moved");
        let second = format!("l{directory}/{to}");
        let moved = match self.last_entry % 6 {
            0 | 3 => self.submit_name(node, NameOp::Rename(0, 0), (&path, &second)),
            // As `git` gives an object its name.
            1 => {
                self.submit_name(node, NameOp::Link(0, 0), (&path, &second))
                    && self.unlink_first(node, common, (directory, &to), &path)
            }
            _ => false,
        };
        if !moved {
            return name;
        }
        for op in [EntryOp::Remove(name.clone()), EntryOp::Add(to.clone())] {
            let event = self.note(common, Op::Entry(directory, op));
            self.hear_at_once(common, event);
        }
        if let Some(mode) = self.modes.remove(&name) {
            self.modes.insert(to.clone(), mode);
        }
        if let Some(length) = self.lengths.remove(&name) {
            self.lengths.insert(to.clone(), length);
        }
        to
    }

    fn change_mode(&mut self, node: &Node, common: &mut Common, (directory, name): (usize, &str)) {
        let path = format!("l{directory}/{name}");
        let Some((ring, delegation, path)) = self.delegated(node, &path) else { return };
        let mode = 0o600 | self.last_entry & 0o77;
        let changes = Changes { which: SET_MODE, mode, ..Changes::default() };
        let given = (&node.region().name_tables, delegation);
        if ring
            .submit_changes(given, Changed::Name(path), &changes, |_, _| Certain::Nothing)
            .is_some()
        {
            common.submitted += 1;
            self.modes.insert(name.to_owned(), mode);
            show(node, ring);
        }
    }

    /// Some are looked at by their name, while they wait.
    fn look_at_waiting(&self, node: &Node, (directory, name): (usize, &str)) {
        let path = format!("l{directory}/{name}");
        let look = self.last_entry % 3 != 1;
        let Some((ring, delegation, path)) = self.delegated(node, &path).filter(|_| look) else {
            return;
        };
        let region = node.region();
        let file_of =
            |open: OpenRef| Some(FileId(region.opens[open.index as usize].id.load(Relaxed)));
        let (given, how) = ((&region.name_tables, delegation), (file_of, |_, _: &[u8]| true));
        let told = ring.look_at_name(given, path, |_| Some(Timestamp::default()), how);
        if let (Some((.., told)), Some(mode)) = (told, self.modes.get(name)) {
            assert_eq!(told.mode, *mode, "what waits has the mode that was set");
        }
    }

    /// The first name of an entry that has a second one goes; false when that one goes on as an
    /// entry of its own.
    fn unlink_first(
        &mut self,
        node: &Node,
        common: &mut Common,
        (directory, second): (usize, &str),
        path: &str,
    ) -> bool {
        let removed = self.submit_name(node, NameOp::Unlink(0), (path, ""));
        if !removed {
            let event = self.note(common, Op::Entry(directory, EntryOp::Add(second.to_owned())));
            self.hear_at_once(common, event);
            self.entries.push((directory, second.to_owned()));
        }
        removed
    }

    /// Looks at an entry that it has changed, once; whether there is something to look at.
    pub(super) fn look_at_entry(&mut self, node: &Node, (directory, name): (usize, &str)) -> bool {
        let (mode, length) = (self.modes.remove(name), self.lengths.remove(name));
        if (mode, length) == (None, None) {
            return false;
        }
        let path = format!("l{directory}/{name}");
        let request = Request::Stat(Stat { target: Target::Path(walk(&path)) });
        let expected = Expected { path: path.clone(), mode, length };
        self.ask(node, &request, What::Looked(expected), None);
        true
    }

    /// Writes to an entry that is there and has no bytes or few, without asking. It has one name,
    /// under which it was made, and is this process's alone.
    pub(super) fn write_entry(
        &mut self,
        node: &Node,
        common: &mut Common,
        (path, attr): (&str, &Attr),
    ) {
        let (name, region) = (path.rsplit('/').next().unwrap_or_default(), node.region());
        let is_it =
            |open: &OpenRef| region.opens[open.index as usize].id.load(Relaxed) == attr.id.0;
        // A file that was moved has a record of its own.
        let is_small = attr.size_bytes <= GROWS_TO;
        let may = is_small && attr.links == 1 && !name.ends_with("-moved");
        if !may || self.made.iter().any(is_it) {
            return;
        }
        let Some((ring, delegation, path)) = self.delegated(node, path) else { return };
        let given = (&region.name_tables, delegation);
        let mut length = attr.size_bytes as usize;
        // A second record follows the first one while that waits.
        for turn in 0..=self.last_entry % 2 {
            let how = if length == 0 && turn == 0 { O_TRUNC } else { O_APPEND };
            let (flags, moment) = (O_RDWR | how, Moment::default());
            let create = Create { path, flags, mode: 0, uid: 0, gid: 0, moment };
            let files = &mut Known { region, file: attr.id, bytes: attr.size_bytes as usize };
            let Some((open, file)) = ring.submit_replacement(given, &create, files) else { break };
            region.opens[open.index as usize].id.store(file.0, Relaxed);
            let bytes = 1 + self.last_entry as usize % 200;
            // The bytes do not matter.
            let is_added = ring
                .addition(open)
                .filter(|addition| addition.room(bytes).is_some())
                .is_some_and(|addition| addition.add(bytes, 0));
            if is_added {
                length += bytes;
                self.lengths.insert(name.to_owned(), length as u64);
            }
            common.submitted += 1;
            region.head.rings.replacing.fetch_or(1 << ring_of(ring.session.load(Relaxed)), SeqCst);
            show(node, ring);
            if self.last_entry.is_multiple_of(3) || !ring.withdraw(open) {
                self.made.push_back(open);
                break;
            }
        }
    }

    /// What is submitted is done.
    pub(super) fn hear_at_once(&self, common: &mut Common, event: Option<usize>) {
        common.submitted += 1;
        if let Some(event) = event {
            common.hear(event, Heard::Done);
        }
    }
}

/// What a process knows of an entry that it has looked at.
struct Known<'a> {
    region: &'a NodeRegion,
    file: FileId,
    bytes: usize,
}

impl Files for Known<'_> {
    fn copy(&mut self, _: FileId, _: &[u8], _: &mut [u8]) -> Option<(FileId, usize)> {
        Some((self.file, self.bytes))
    }

    fn promised(&self, open: OpenRef) -> Option<FileId> {
        Some(FileId(self.region.opens[open.index as usize].id.load(Relaxed)))
    }
}

/// Has the daemon find what is submitted, and wakes it now and then.
pub(super) fn show(node: &Node, ring: &SubmissionRing) {
    let region = node.region();
    let bit = 1 << ring_of(ring.session.load(Relaxed));
    region.head.submitted.fetch_or(bit, SeqCst);
    if ring.waiting().is_multiple_of(WAKE_AT) {
        region.head.rings.ripe.fetch_or(bit, SeqCst);
        region.wake_daemon();
    }
}

//! Submitting as a process does it.

use std::{
    path::PathBuf,
    sync::atomic::Ordering::{Relaxed, SeqCst},
    time::{Duration, SystemTime},
};

use mayfly_daemon::{Config, Directories};
use mayfly_records::{Bytes, Found};
use mayfly_sys::arch::Moment;
use mayfly_transport_shm::{
    layout::{NodeRegion, OPEN_FREE, OPEN_PROMISED},
    submission_ring::{
        Certain, Changed, Changes, Create, Files, Move, MoveKind, RINGS, Removal, Submission,
        SubmissionRing, Submitting, name_table::NameTables, ring_of,
    },
};
use mayfly_types::{FIRST_OBJECT, FileId, ObjectPath, OpenRef, SessionId, Timestamp};
use mayfly_wire::{Close, MakeDirectory, Open, OpenReply, SET_MTIME};

use super::{Answer, Node, O_CREAT, O_RDWR, PID, SESSION, config, records, walk};

/// Another process than [`SESSION`]'s.
pub const OTHER: SessionId = SessionId(2);
/// A third one's.
pub const THIRD: SessionId = SessionId(3);
/// Of open: the name must be new.
pub const O_EXCL: u32 = 0o200;
/// Of open: what is written goes to the end.
pub const O_APPEND: u32 = 0o2000;
/// Of open: the file has nothing then.
pub const O_TRUNC: u32 = 0o1000;

/// The ring of a process.
pub fn ring_at(node: &Node, session: SessionId) -> &'static SubmissionRing {
    let region = node.region;
    &region.submission_rings[ring_of(session.0)]
}

/// As a process does it: the promised description, or nothing when it has to ask.
pub fn submit_create_as(node: &Node, session: SessionId, path: &str) -> Option<OpenRef> {
    let submissions = ring_at(node, session);
    let start = walk(path, 0).start.0;
    let (delegation, path) = submissions.delegation_for(session.0, start, path.as_bytes())?;
    let flags = O_CREAT | O_RDWR;
    let moment = Moment::default();
    let create = Create { path, flags, mode: 0o640, uid: 3, gid: 4, moment };
    let region = node.region;
    let promised = submissions.submit_create(&region.name_tables, delegation, &create)?;
    region.head.submitted.fetch_or(1 << ring_of(session.0), SeqCst);
    Some(promised)
}

/// Opens a file that is there for writing and takes its content away, without asking; nothing when
/// it has to be asked for.
pub fn replace_as(node: &Node, session: SessionId, path: &str) -> Option<OpenRef> {
    open_to_write_as(node, session, path, O_RDWR | O_TRUNC)
}

/// Opens a file that is there for writing, without asking; nothing when it has to be asked for.
pub fn open_to_write_as(
    node: &Node,
    session: SessionId,
    path: &str,
    flags: u32,
) -> Option<OpenRef> {
    let copy = &mut |name: (FileId, &[u8]), to: &mut [u8]| copy_small(node, name, to);
    open_if(node.region, session, (path, flags), copy)
}

/// The same, with something that others do when the process has looked whether it may.
pub fn open_to_write_after(
    node: &mut Node,
    (path, flags): (&str, u32),
    others: impl Fn(&mut Node),
) -> Option<OpenRef> {
    open_if(node.region, SESSION, (path, flags), &mut |name, to| {
        let found = copy_small(node, name, to)?;
        others(node);
        Some(found)
    })
}

/// Sets the length of a file that is there, without asking; false when it has to be asked for.
pub fn cut_as(node: &Node, session: SessionId, path: &str, bytes: usize) -> bool {
    let (region, ring) = (node.region, ring_at(node, session));
    let start = walk(path, 0).start.0;
    let given = ring.delegation_for(session.0, start, path.as_bytes());
    let Some((delegation, path)) = given else { return false };
    let create = content_of(path, O_RDWR);
    let copy = &mut |name: (FileId, &[u8]), to: &mut [u8]| copy_small(node, name, to);
    let files = &mut There { region, copy };
    let submitted = ring.submit_length((&region.name_tables, delegation), &create, bytes, files);
    if submitted {
        show_content(region, session);
    }
    submitted
}

fn copy_small(node: &Node, name: (FileId, &[u8]), to: &mut [u8]) -> Option<(FileId, usize)> {
    let is_mapped = node.region.head.mounts.mapped.load(SeqCst) != 0;
    let (file, bytes) = records::small(&node.kept, name).filter(|_| !is_mapped)?;
    if to.is_empty() {
        return Some((file, 0));
    }
    to[..bytes.len()].copy_from_slice(&bytes);
    Some((file, bytes.len()))
}

type Copy<'a> = dyn FnMut((FileId, &[u8]), &mut [u8]) -> Option<(FileId, usize)> + 'a;

/// What a process knows of files that are there.
struct There<'a> {
    region: &'a NodeRegion,
    copy: &'a mut Copy<'a>,
}

impl Files for There<'_> {
    fn copy(&mut self, directory: FileId, path: &[u8], to: &mut [u8]) -> Option<(FileId, usize)> {
        (self.copy)((directory, path), to)
    }

    fn promised(&self, open: OpenRef) -> Option<FileId> {
        let entry = &self.region.opens[open.index as usize];
        let is_it = entry.generation.load(SeqCst) == open.generation
            && entry.state.load(SeqCst) == OPEN_PROMISED;
        is_it.then(|| FileId(entry.id.load(SeqCst)))
    }
}

fn content_of(path: &[u8], flags: u32) -> Create<'_> {
    Create { path, flags, mode: 0, uid: 0, gid: 0, moment: Moment::default() }
}

fn show_content(region: &NodeRegion, session: SessionId) {
    region.head.rings.replacing.fetch_or(1 << ring_of(session.0), SeqCst);
    region.head.submitted.fetch_or(1 << ring_of(session.0), SeqCst);
}

fn open_if<'a>(
    region: &'a NodeRegion,
    session: SessionId,
    (path, flags): (&str, u32),
    copy: &'a mut Copy<'a>,
) -> Option<OpenRef> {
    let submissions = &region.submission_rings[ring_of(session.0)];
    let start = walk(path, 0).start.0;
    let (delegation, path) = submissions.delegation_for(session.0, start, path.as_bytes())?;
    let (given, files) = ((&region.name_tables, delegation), &mut There { region, copy });
    let submitted = submissions.submit_replacement(given, &content_of(path, flags), files);
    let (open, file) = submitted?;
    show_content(region, session);
    region.opens[open.index as usize].id.store(file.0, Relaxed);
    Some(open)
}

/// Writes to what was submitted, at an offset, as a process does; false when it has to ask.
pub fn put_as(node: &Node, session: SessionId, open: OpenRef, at: usize, bytes: &[u8]) -> bool {
    let addition = ring_at(node, session).addition(open);
    addition.is_some_and(|addition| addition.put(at, bytes, 0))
}

/// Sets the length of what was submitted; false when that has to be asked for.
pub fn cut_open_as(node: &Node, session: SessionId, open: OpenRef, bytes: usize) -> bool {
    let addition = ring_at(node, session).addition(open);
    addition.is_some_and(|addition| addition.cut(bytes, 0))
}

/// What a process reads of what it has submitted; none when it has to ask.
pub fn read_own_as(node: &Node, session: SessionId, open: OpenRef) -> Option<Vec<u8>> {
    ring_at(node, session).read_submitted(open, |_, content: &[u8]| content.to_vec())
}

/// What a process reads of a small file by itself, whatever waits; none where it has to ask.
pub fn bytes_beside(node: &Node, path: &str, file: FileId) -> Option<Vec<u8>> {
    if is_replaced(node, file) { None } else { records::bytes(&node.kept, path) }
}

/// Whether who reads a file by himself has to ask, since something may wait that replaces it.
pub fn is_replaced(node: &Node, file: FileId) -> bool {
    let rings = node.region.head.rings.replacing.load(SeqCst);
    let of_set = |ring: &usize| rings & 1 << ring != 0;
    (0..RINGS).filter(of_set).any(|ring| node.region.submission_rings[ring].replaces(file))
}

/// Adds content to what was submitted, as a process does.
pub fn add_as(node: &Node, session: SessionId, open: OpenRef, bytes: &[u8]) -> bool {
    let Some(addition) = ring_at(node, session).addition(open) else { return false };
    let Some(room) = addition.room(bytes.len()) else { return false };
    // SAFETY: room for so many bytes, where nobody else writes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room, bytes.len()) };
    addition.add(bytes.len(), 0)
}

/// The same for the first process.
pub fn add(node: &Node, open: OpenRef, bytes: &[u8]) -> bool {
    add_as(node, SESSION, open, bytes)
}

/// Makes a directory without asking; false when it has to be asked for.
pub fn submit_directory_as(node: &Node, session: SessionId, path: &str) -> bool {
    let submissions = ring_at(node, session);
    let (start, region) = (walk(path, 0).start.0, node.region);
    let given = submissions.delegation_for(session.0, start, path.as_bytes());
    let submitted = given.is_some_and(|(given, path)| {
        let moment = Moment::default();
        let create = Create { path, flags: 0, mode: 0o1750, uid: 3, gid: 4, moment };
        submissions.submit_directory(&region.name_tables, given, &create)
    });
    if submitted {
        region.head.submitted.fetch_or(1 << ring_of(session.0), SeqCst);
    }
    submitted
}

/// Makes a symbolic link without asking; false when it has to be asked for.
pub fn symlink_as(node: &Node, session: SessionId, path: &str, target: &str) -> bool {
    let submissions = ring_at(node, session);
    let (start, region) = (walk(path, 0).start.0, node.region);
    let given = submissions.delegation_for(session.0, start, path.as_bytes());
    let submitted = given.is_some_and(|(given, path)| {
        let moment = Moment::default();
        let create = Create { path, flags: 0, mode: 0o777, uid: 3, gid: 4, moment };
        submissions.submit_symlink(&region.name_tables, given, &create, target.as_bytes())
    });
    if submitted {
        region.head.submitted.fetch_or(1 << ring_of(session.0), SeqCst);
    }
    submitted
}

/// Removes the name of a file without asking; false when it has to be asked for.
pub fn remove_as(node: &Node, session: SessionId, path: &str) -> bool {
    submit_removal_as(node, session, path, false)
}

/// The same of a directory.
pub fn remove_directory_as(node: &Node, session: SessionId, path: &str) -> bool {
    submit_removal_as(node, session, path, true)
}

fn submit_removal_as(node: &Node, session: SessionId, path: &str, directory: bool) -> bool {
    let submissions = ring_at(node, session);
    let (start, region) = (walk(path, 0).start.0, node.region);
    let given = submissions.delegation_for(session.0, start, path.as_bytes());
    let submitted = given.is_some_and(|(given, path)| {
        let removal = Removal { path, directory, moment: Moment::default() };
        submissions.submit_removal(&region.name_tables, given, &removal)
    });
    if submitted {
        region.head.submitted.fetch_or(1 << ring_of(session.0), SeqCst);
    }
    submitted
}

/// Changes attributes of a file by its path without asking; none when it has to be asked for.
pub fn change_as(
    node: &Node,
    session: SessionId,
    path: &str,
    changes: &Changes,
) -> Option<Submission> {
    let start = walk(path, 0).start.0;
    let given = ring_at(node, session).delegation_for(session.0, start, path.as_bytes());
    let (given, name) = given?;
    submit_changes_as(node, session, given, (Changed::Name(name), None), changes)
}

/// The same by a description.
pub fn change_open_as(
    node: &Node,
    session: SessionId,
    open: OpenRef,
    changes: &Changes,
) -> Option<Submission> {
    let given = ring_at(node, session).delegation.load(Relaxed);
    let entry = &node.region.opens[open.index as usize];
    let made = entry.state.load(Relaxed) != OPEN_PROMISED;
    let of = made.then(|| FileId(entry.id.load(Relaxed)));
    submit_changes_as(node, session, given, (Changed::Open(open), of), changes)
}

fn submit_changes_as(
    node: &Node,
    session: SessionId,
    given: u32,
    (changed, of): (Changed<'_>, Option<FileId>),
    changes: &Changes,
) -> Option<Submission> {
    let (ring, region) = (ring_at(node, session), node.region);
    let tables: &NameTables = &region.name_tables;
    let certain = |directory: FileId, path: &[u8]| {
        let found = records::alone(&node.kept, (directory, path))
            .filter(|found| of.is_none_or(|of| of == found.attr.id));
        match found.map(|found| found.bytes) {
            None => Certain::Nothing,
            Some(Bytes::Object { settled: false, .. }) => Certain::AllButTimes,
            Some(_) => Certain::All,
        }
    };
    let time_object = &mut |promised| time_object(node, promised, changes).is_ok();
    let certain = (certain, time_object as &mut dyn FnMut(OpenRef) -> bool);
    let submitted = ring.submit_changes_with((tables, given), changed, changes, certain);
    if submitted == Some(Submission::Record) {
        region.head.submitted.fetch_or(1 << ring_of(session.0), SeqCst);
    }
    submitted
}

/// Looks at a file that waits, by its name: which one it is, its times, and the rest.
pub fn look_at_name_as(
    node: &Node,
    session: SessionId,
    path: &str,
    now: Timestamp,
) -> Option<(FileId, Timestamp, Submitting)> {
    let start = walk(path, 0).start.0;
    let (given, name) = ring_at(node, session).delegation_for(session.0, start, path.as_bytes())?;
    let file_of = |open: OpenRef| {
        let entry = &node.region.opens[open.index as usize];
        let is_it = entry.generation.load(SeqCst) == open.generation
            && entry.state.load(SeqCst) == OPEN_PROMISED;
        is_it.then(|| FileId(entry.id.load(SeqCst)))
    };
    let given = (&node.region.name_tables, given);
    ring_at(node, session).look_at_name(given, name, |_| Some(now), (file_of, |_, _: &[u8]| true))
}

/// Where the object lies that a process makes for the file of a promised description.
pub fn object_of_promised(node: &Node, open: OpenRef) -> PathBuf {
    let id = FileId(node.region.opens[open.index as usize].id.load(Relaxed));
    let path = ObjectPath::of(id, FIRST_OBJECT);
    node.objects.join(std::str::from_utf8(path.as_bytes()).unwrap())
}

/// Sets its modification time, which is all that tests change.
fn time_object(node: &Node, promised: OpenRef, changes: &Changes) -> std::io::Result<()> {
    let object = std::fs::File::open(object_of_promised(node, promised))?;
    if changes.which & SET_MTIME == 0 {
        return Ok(());
    }
    let since = Duration::new(changes.mtime.seconds as u64, changes.mtime.nanoseconds);
    object.set_modified(SystemTime::UNIX_EPOCH + since)
}

/// Moves a name without asking, only to one that is not there if `new`; false when that has to be
/// asked for.
pub fn move_as(node: &Node, session: SessionId, names: (&str, &str), new: bool) -> bool {
    let how = if new { MoveKind::New } else { MoveKind::Replace };
    two_names_as(node, session, names, how)
}

/// Gives a file another name without asking; false when it has to be asked for.
pub fn link_as(node: &Node, session: SessionId, names: (&str, &str)) -> bool {
    two_names_as(node, session, names, MoveKind::Link)
}

fn two_names_as(node: &Node, session: SessionId, (from, to): (&str, &str), how: MoveKind) -> bool {
    let (ring, region) = (ring_at(node, session), node.region);
    let start = walk(from, 0).start.0;
    let given = |path: &str| {
        let given = ring.delegation_for(session.0, start, path.as_bytes())?;
        Some((given.0, given.1.to_vec()))
    };
    let Some(((given, from), (_, to))) = given(from).zip(given(to)) else { return false };
    let moved = Move { from: &from, to: &to, how, moment: Moment::default() };
    let tables: &NameTables = &region.name_tables;
    let submitted = ring.submit_move((tables, given), &moved, |directory, path| {
        records::alone(&node.kept, (directory, path)).is_some()
    });
    if submitted {
        region.head.submitted.fetch_or(1 << ring_of(session.0), SeqCst);
    }
    submitted
}

/// What a process that asks nobody finds at a path, whatever waits in the rings; none where it has
/// to ask.
pub fn found_beside(node: &Node, path: &str) -> Option<Found> {
    let region = node.region;
    let waiting = (0..RINGS).filter(|ring| region.submission_rings[*ring].waiting() > 0);
    let waiting: Vec<usize> = waiting.collect();
    records::beside(&node.kept, path, &mut |directory, path| {
        let rings = waiting.iter().map(|ring| &region.submission_rings[*ring]);
        let mut of_it = rings.filter(|ring| ring.directory.load(Relaxed) == directory.0);
        of_it.any(|ring| !path.is_some_and(|path| ring.leaves_alone(&region.name_tables, path)))
    })
}

/// The same for the first process.
pub fn remove(node: &Node, path: &str) -> bool {
    remove_as(node, SESSION, path)
}

/// The same for the first process.
pub fn submit_create(node: &Node, path: &str) -> Option<OpenRef> {
    submit_create_as(node, SESSION, path)
}

/// Makes and opens a file by asking; whether it is new.
pub fn make_as(node: &mut Node, session: SessionId, path: &str) -> Answer<(OpenRef, bool)> {
    let flags = O_CREAT | O_RDWR;
    let request = Open { walk: walk(path, 0), flags, mode: 0o644, uid: 0, gid: 0 };
    node.ask_as(session, &request, |reply: OpenReply<'_>| (reply.opened.open, reply.opened.created))
}

/// Makes a file and closes it; whether it is new.
pub fn make_file_as(node: &mut Node, session: SessionId, path: &str) -> bool {
    let (open, created) = make_as(node, session, path).unwrap();
    node.ask_as(session, &Close { open }, |()| ()).unwrap();
    created
}

/// Makes a directory by asking.
pub fn mkdir_as(node: &mut Node, session: SessionId, path: &str) {
    let request = MakeDirectory { walk: walk(path, 0), mode: 0o755, uid: 0, gid: 0 };
    node.ask_as(session, &request, |()| ()).unwrap();
}

/// Makes eight files, so that the directory is delegated.
pub fn warm(node: &mut Node, directory: &str) {
    warm_as(node, SESSION, directory);
}

/// The same for another process.
pub fn warm_as(node: &mut Node, session: SessionId, directory: &str) {
    let (mut made, mut number) = (0, node.core().counters().files);
    while made < 8 {
        let path = format!("{directory}/warm{number}");
        let created = make_file_as(node, session, &path);
        (made, number) = (made + u32::from(created), number + 1);
    }
}

/// A node with three processes.
pub fn node_of_three() -> Node {
    with_three(Node::memory(config()))
}

/// The same with two more processes than it has.
pub fn with_three(mut node: Node) -> Node {
    for (session, pid) in [(OTHER, PID + 1), (THIRD, PID + 2)] {
        node.cores.iter_mut().for_each(|core| core.session_opened(session, pid));
        node.sessions.push((session, pid));
    }
    node
}

/// A node of several shards and three processes, whose directories are whole.
pub fn node_of_several(shards: u32, seed: u64, directories: Directories) -> Node {
    with_three(Node::several(Config { directories, ..config() }, shards, seed, false))
}

/// The same with a directory `d` of the third one's that is delegated to the first.
pub fn node() -> Node {
    let mut node = node_of_three();
    mkdir_as(&mut node, THIRD, "d");
    warm(&mut node, "d");
    node
}

/// The same with its records in a file, where processes look into them.
pub fn node_on_disk() -> Node {
    let mut node = with_three(Node::on_disk(config()));
    mkdir_as(&mut node, THIRD, "d");
    warm(&mut node, "d");
    node
}

/// What became of a description.
pub fn state(node: &Node, open: OpenRef) -> u32 {
    let entry = &node.region.opens[open.index as usize];
    if entry.generation.load(Relaxed) == open.generation {
        entry.state.load(Relaxed)
    } else {
        OPEN_FREE
    }
}

/// A file with this text, which is closed.
pub fn made(node: &Node, path: &str, text: &[u8]) {
    let open = submit_create(node, path).unwrap();
    assert!(text.is_empty() || add(node, open, text));
    assert!(ring_at(node, SESSION).withdraw(open));
}

/// What is in a file, up to 100 bytes.
pub fn text(node: &mut Node, path: &str) -> Vec<u8> {
    let (open, _) = node.open(path, 0).unwrap();
    let read = node.read(open, 0, 100).unwrap();
    node.close(open);
    read
}

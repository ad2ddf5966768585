//! The same operations on a core and on the file system of this machine: same results, same errors.
//!
//! Random sequences over a small set of names, so that they meet. The caller behaves as the client
//! in a process: small writes through the daemon, large ones directly to the object. Now and then
//! the daemon dies between two batches; nobody may notice.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "model/plan.rs"]
mod plan;
mod support;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use mayfly_daemon::Config;
use mayfly_meta::{MemoryStore, Scan, Store, key};
use mayfly_types::{Attr, Errno, FileKind, OpenRef};
use mayfly_wire::{Allocate, Link, RemoveXattr, SET_MODE, SET_SIZE, SetAttr, Target, WALK_FOLLOW};
use plan::{HANDLES, O_TMPFILE, Op, op};
use proptest::prelude::*;
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use support::{Failed, Kept, Node, config, config_of, set, walk};

/// What an operation shows, in a form that both sides can produce.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Nothing,
    Attr { kind: FileKind, mode: u32, links: u32, size: Option<u64> },
    Bytes(Vec<u8>),
    Names(Vec<(Vec<u8>, FileKind)>),
    Failed(Errno),
}

fn seen_attr(attr: &Attr) -> Seen {
    let size = (attr.kind != FileKind::Directory).then_some(attr.size_bytes);
    Seen::Attr { kind: attr.kind, mode: attr.mode, links: attr.links, size }
}

fn seen_stat(stat: &fs::Stat) -> Seen {
    let kind = match stat.st_mode & 0o170_000 {
        0o040_000 => FileKind::Directory,
        0o120_000 => FileKind::Symlink,
        _ => FileKind::Regular,
    };
    let size = (kind != FileKind::Directory).then_some(stat.st_size as u64);
    Seen::Attr { kind, mode: stat.st_mode & 0o7777, links: stat.st_nlink as u32, size }
}

fn xattr(name: u8) -> String {
    format!("user.{}", char::from(name))
}

struct Local {
    root: OwnedFd,
    handles: [Option<OwnedFd>; HANDLES],
    _directory: tempfile::TempDir,
}

fn kernel<T>(result: rustix::io::Result<T>, seen: impl FnOnce(T) -> Seen) -> Seen {
    match result {
        Ok(value) => seen(value),
        Err(error) => Seen::Failed(Errno::from_raw(error.raw_os_error()).unwrap()),
    }
}

impl Local {
    fn new() -> Local {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("root")).unwrap();
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        fs::chmod(directory.path().join("root"), Mode::from_raw_mode(0o755)).unwrap();
        let root = fs::open(directory.path().join("root"), flags, Mode::empty()).unwrap();
        Local { root, handles: [const { None }; HANDLES], _directory: directory }
    }

    fn run(&mut self, op: &Op) -> Seen {
        let root = self.root.as_fd();
        let nothing = |()| Seen::Nothing;
        match op {
            Op::Mkdir(path) => kernel(fs::mkdirat(root, path, Mode::from_raw_mode(0o755)), nothing),
            Op::Open(handle, path, flags) => {
                let mode = Mode::from_raw_mode(0o644);
                let opened = fs::openat(root, path, OFlags::from_bits_retain(*flags), mode);
                kernel(opened, |opened| {
                    self.handles[*handle] = Some(opened);
                    Seen::Nothing
                })
            }
            Op::Close(handle) => {
                self.handles[*handle] = None;
                Seen::Nothing
            }
            Op::Unlink(path, directory) => {
                let flags = if *directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                kernel(fs::unlinkat(root, path, flags), nothing)
            }
            Op::Rename(from, to, flags) => {
                let flags = RenameFlags::from_bits_retain(*flags);
                kernel(fs::renameat_with(root, from, root, to, flags), nothing)
            }
            Op::Link(from, to) => {
                kernel(fs::linkat(root, from, root, to, AtFlags::empty()), nothing)
            }
            Op::Symlink(target, at) => kernel(fs::symlinkat(target, root, at), nothing),
            Op::ReadLink(path) => kernel(fs::readlinkat(root, path, Vec::new()), |target| {
                Seen::Bytes(target.into_bytes())
            }),
            Op::Stat(path, follow) => {
                let flags = if *follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                kernel(fs::statat(root, path, flags), |stat| seen_stat(&stat))
            }
            Op::Chmod(path, mode) => {
                let mode = Mode::from_raw_mode(*mode);
                kernel(fs::chmodat(root, path, mode, AtFlags::empty()), nothing)
            }
            Op::Truncate(path, size) => kernel(self.truncate(path, *size), nothing),
            Op::LinkOpen(handle, to) => {
                let Some(file) = &self.handles[*handle] else { return Seen::Nothing };
                let from = format!("/proc/self/fd/{}", file.as_raw_fd());
                let follow = AtFlags::SYMLINK_FOLLOW;
                kernel(fs::linkat(fs::CWD, from, root, to, follow), nothing)
            }
            Op::SetXattr(..) | Op::GetXattr(..) | Op::RemoveXattr(..) => self.run_xattr(op),
            Op::Restart => Seen::Nothing,
            Op::Write(..)
            | Op::Append(..)
            | Op::Read(..)
            | Op::Resize(..)
            | Op::Allocate(..)
            | Op::Fstat(_)
            | Op::List(_) => self.run_handle(op),
        }
    }

    /// For calls that start from no directory.
    fn full(&self, path: &str) -> rustix::io::Result<String> {
        if path.is_empty() {
            return Err(rustix::io::Errno::NOENT);
        }
        Ok(format!("/proc/self/fd/{}/{path}", self.root.as_raw_fd()))
    }

    /// Whether there is everything here that an [`Op::is_rare`] needs.
    fn has_all(&self) -> bool {
        let flags = OFlags::from_bits_retain(O_TMPFILE | 2);
        let Ok(file) = fs::openat(&self.root, ".", flags, Mode::empty()) else { return false };
        let attribute = fs::fsetxattr(&file, "user.a", b"v", fs::XattrFlags::empty());
        let zero = fs::fallocate(&file, fs::FallocateFlags::ZERO_RANGE, 0, 1);
        attribute.is_ok() && zero.is_ok()
    }

    fn truncate(&self, path: &str, size: u64) -> rustix::io::Result<()> {
        let full = std::ffi::CString::new(self.full(path)?).unwrap();
        // SAFETY: a system call on a string that outlives it.
        let result = unsafe { libc_truncate(full.as_ptr(), size as i64) };
        if result == 0 {
            return Ok(());
        }
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap();
        Err(rustix::io::Errno::from_raw_os_error(errno))
    }

    fn run_xattr(&self, op: &Op) -> Seen {
        let nothing = |()| Seen::Nothing;
        match op {
            Op::SetXattr(path, name, count, flags) => {
                let (flags, value) = (fs::XattrFlags::from_bits_retain(*flags), vec![7; *count]);
                let set = |full: String| fs::setxattr(full, xattr(*name), &value, flags);
                kernel(self.full(path).and_then(set), nothing)
            }
            Op::GetXattr(path, name) => {
                let mut value = vec![0; 1000];
                let get = |full: String| fs::getxattr(full, xattr(*name), &mut value);
                let count = self.full(path).and_then(get);
                kernel(count, |count| Seen::Bytes(value[..count].to_vec()))
            }
            Op::RemoveXattr(path, name) => {
                let remove = |full: String| fs::removexattr(full, xattr(*name));
                kernel(self.full(path).and_then(remove), nothing)
            }
            _ => unreachable!("only these are about attributes"),
        }
    }

    fn run_handle(&mut self, op: &Op) -> Seen {
        let (Op::Write(handle, ..)
        | Op::Append(handle, ..)
        | Op::Read(handle, ..)
        | Op::Resize(handle, _)
        | Op::Allocate(handle, ..)
        | Op::Fstat(handle)
        | Op::List(handle)) = op
        else {
            unreachable!("only these use a handle")
        };
        let Some(file) = &self.handles[*handle] else { return Seen::Nothing };
        match op {
            Op::Write(_, offset, count, byte) => {
                kernel(rustix::io::pwrite(file, &vec![*byte; *count], *offset), |_| Seen::Nothing)
            }
            Op::Append(_, count, byte) => match fs::fstat(file) {
                Ok(stat) if *count > 0 => kernel(
                    rustix::io::pwrite(file, &vec![*byte; *count], stat.st_size as u64),
                    |_| Seen::Nothing,
                ),
                _ => Seen::Nothing,
            },
            Op::Read(_, offset, count) => {
                let mut bytes = vec![0; *count as usize];
                kernel(rustix::io::pread(file, &mut bytes, *offset), |count| {
                    Seen::Bytes(bytes[..count].to_vec())
                })
            }
            Op::Resize(_, size) => kernel(fs::ftruncate(file, *size), |()| Seen::Nothing),
            Op::Allocate(_, mode, offset, bytes) => {
                let mode = fs::FallocateFlags::from_bits_retain(*mode);
                kernel(fs::fallocate(file, mode, *offset, *bytes), |()| Seen::Nothing)
            }
            Op::Fstat(_) => kernel(fs::fstat(file), |stat| seen_stat(&stat)),
            _ => {
                let mut names = Vec::new();
                let mut buffer = Vec::with_capacity(8192);
                // A descriptor that cannot be listed shows that in the listing too.
                let _ = fs::seek(file, fs::SeekFrom::Start(0));
                let mut listing = fs::RawDir::new(file, buffer.spare_capacity_mut());
                while let Some(entry) = listing.next() {
                    let entry = match entry {
                        Ok(entry) => entry,
                        // A removed directory; readdir makes an empty one of it.
                        Err(rustix::io::Errno::NOENT) => break,
                        Err(_) => return Seen::Failed(Errno::ENOTDIR),
                    };
                    let kind = match entry.file_type() {
                        fs::FileType::Directory => FileKind::Directory,
                        fs::FileType::Symlink => FileKind::Symlink,
                        _ => FileKind::Regular,
                    };
                    names.push((entry.file_name().to_bytes().to_vec(), kind));
                }
                names.sort_by(|a, b| a.0.cmp(&b.0));
                Seen::Names(names)
            }
        }
    }
}

unsafe extern "C" {
    #[link_name = "truncate64"]
    fn libc_truncate(path: *const core::ffi::c_char, size: i64) -> i32;
}

struct Ours {
    node: Node,
    handles: [Option<OpenRef>; HANDLES],
}

fn ours<T>(answer: Result<T, Failed>, seen: impl FnOnce(T) -> Seen) -> Option<Seen> {
    match answer {
        Ok(value) => Some(seen(value)),
        Err(Failed::Errno(errno)) => Some(Seen::Failed(errno)),
        Err(Failed::Escaped(_)) => None,
    }
}

impl Ours {
    /// `None` when the walk left the instance: there is nothing to compare.
    fn run(&mut self, op: &Op) -> Option<Seen> {
        let node = &mut self.node;
        let nothing = |()| Seen::Nothing;
        match op {
            Op::Mkdir(path) => ours(node.mkdir(path), nothing),
            Op::Open(handle, path, flags) => {
                let opened = node.open(path, *flags);
                let (handles, slot) = (&mut self.handles, *handle);
                let mut old = None;
                let seen = ours(opened, |opened| {
                    old = handles[slot].replace(opened.0);
                    Seen::Nothing
                });
                if let Some(old) = old {
                    self.node.close(old);
                }
                seen
            }
            Op::Close(handle) => {
                if let Some(open) = self.handles[*handle].take() {
                    node.close(open);
                }
                Some(Seen::Nothing)
            }
            Op::Unlink(path, directory) => ours(node.unlink(path, *directory), nothing),
            Op::Rename(from, to, flags) => ours(node.rename(from, to, *flags), nothing),
            Op::Link(from, to) => ours(node.link(from, to), nothing),
            Op::Symlink(target, at) => ours(node.symlink(target, at), nothing),
            Op::ReadLink(path) => ours(node.read_link(path), Seen::Bytes),
            Op::Stat(path, follow) => ours(node.stat(path, *follow), |attr| seen_attr(&attr)),
            Op::Chmod(path, mode) => {
                let change = SetAttr { mode: *mode, ..set() };
                let target = Target::Path(walk(path, WALK_FOLLOW));
                ours(node.set_attr(target, SET_MODE, change), |_| Seen::Nothing)
            }
            Op::LinkOpen(handle, to) => {
                let Some(open) = self.handles[*handle] else { return Some(Seen::Nothing) };
                let link = Link { from: Target::Open(open), to: walk(to, 0) };
                ours(node.ask(&link, |()| ()), nothing)
            }
            Op::SetXattr(..) | Op::GetXattr(..) | Op::RemoveXattr(..) => self.run_xattr(op),
            Op::Truncate(path, size) => {
                let change = SetAttr { size_bytes: *size, ..set() };
                let target = Target::Path(walk(path, WALK_FOLLOW));
                ours(node.set_attr(target, SET_SIZE, change), |_| Seen::Nothing)
            }
            Op::Restart => {
                node.restart();
                Some(Seen::Nothing)
            }
            Op::Write(..)
            | Op::Append(..)
            | Op::Read(..)
            | Op::Resize(..)
            | Op::Allocate(..)
            | Op::Fstat(_)
            | Op::List(_) => self.run_handle(op),
        }
    }

    fn run_xattr(&mut self, op: &Op) -> Option<Seen> {
        let (node, nothing) = (&mut self.node, |()| Seen::Nothing);
        match op {
            Op::SetXattr(path, name, count, flags) => {
                let target = Target::Path(walk(path, WALK_FOLLOW));
                let (name, value) = (xattr(*name), vec![7; *count]);
                ours(node.set_xattr(target, &name, &value, *flags), nothing)
            }
            Op::GetXattr(path, name) => {
                let target = Target::Path(walk(path, WALK_FOLLOW));
                ours(node.get_xattr(target, &xattr(*name)), Seen::Bytes)
            }
            Op::RemoveXattr(path, name) => {
                let target = Target::Path(walk(path, WALK_FOLLOW));
                let name = xattr(*name);
                let remove = RemoveXattr { target, name: name.as_bytes() };
                ours(node.ask(&remove, |()| ()), nothing)
            }
            _ => unreachable!("only these are about attributes"),
        }
    }

    fn run_handle(&mut self, op: &Op) -> Option<Seen> {
        let (Op::Write(handle, ..)
        | Op::Append(handle, ..)
        | Op::Read(handle, ..)
        | Op::Resize(handle, _)
        | Op::Allocate(handle, ..)
        | Op::Fstat(handle)
        | Op::List(handle)) = op
        else {
            unreachable!("only these use a handle")
        };
        let Some(open) = self.handles[*handle] else { return Some(Seen::Nothing) };
        let node = &mut self.node;
        match op {
            Op::Write(_, offset, count, byte) => {
                ours(node.write(open, *offset, &vec![*byte; *count]), |_| Seen::Nothing)
            }
            Op::Append(_, 0, _) => Some(Seen::Nothing),
            Op::Append(_, count, byte) => {
                ours(node.append(open, &vec![*byte; *count]), |_| Seen::Nothing)
            }
            Op::Read(_, offset, count) => {
                let direct = node.read_direct(open, *offset, *count);
                let through = node.read(open, *offset, *count);
                assert_eq!(direct, through, "both ways of reading agree");
                ours(through, Seen::Bytes)
            }
            Op::Resize(_, size) => {
                let change = SetAttr { size_bytes: *size, ..set() };
                ours(node.set_attr(Target::Open(open), SET_SIZE, change), |_| Seen::Nothing)
            }
            Op::Allocate(_, mode, offset, bytes) => {
                let request = Allocate { open, mode: *mode, offset: *offset, bytes: *bytes };
                ours(node.ask(&request, |()| ()), |()| Seen::Nothing)
            }
            Op::Fstat(_) => ours(node.fstat(open), |attr| seen_attr(&attr)),
            _ => match node.list(open, 600) {
                Ok(mut names) => {
                    names.sort_by(|a, b| a.0.cmp(&b.0));
                    Some(Seen::Names(names))
                }
                // What the kernel calls it depends on the call; the client knows the type itself.
                Err(_) => Some(Seen::Failed(Errno::ENOTDIR)),
            },
        }
    }
}

fn compare(ops: &[Op], on_disk: bool) {
    let pooled = Config { io_threads: 2, ..config() };
    compare_with(ops, if on_disk { Node::on_disk(pooled) } else { Node::memory(config()) });
}

fn compare_with(ops: &[Op], node: Node) {
    fs_umask();
    let mut local = Local::new();
    let mut ours = Ours { node, handles: [None; HANDLES] };
    let has_all = local.has_all();
    for (number, op) in ops.iter().enumerate().filter(|(_, op)| has_all || !op.is_rare()) {
        let Some(seen) = ours.run(op) else { continue };
        let wanted = local.run(op);
        assert_eq!(seen, wanted, "operation {number}: {op:?}");
    }
    for handle in 0..HANDLES {
        ours.run(&Op::Close(handle));
        local.run(&Op::Close(handle));
    }
    compare_trees(&mut ours, &mut local, "");
    ours.node.settle_down();
    check_leaks(&mut ours.node);
}

/// Every file's attributes and content.
fn compare_trees(ours: &mut Ours, local: &mut Local, at: &str) {
    let path = if at.is_empty() { ".".to_owned() } else { at.to_owned() };
    for op in [Op::Open(0, path, 0), Op::List(0), Op::Fstat(0)] {
        assert_eq!(ours.run(&op), Some(local.run(&op)), "{at}: {op:?}");
    }
    let Some(Seen::Names(names)) = ours.run(&Op::List(0)) else { panic!("a directory lists") };
    for (name, kind) in names {
        let name = String::from_utf8(name).unwrap();
        if name == "." || name == ".." {
            continue;
        }
        let path = if at.is_empty() { name } else { format!("{at}/{name}") };
        let stat = Op::Stat(path.clone(), false);
        assert_eq!(ours.run(&stat), Some(local.run(&stat)), "{path}");
        match kind {
            FileKind::Directory => compare_trees(ours, local, &path),
            FileKind::Regular => {
                for op in [Op::Open(0, path.clone(), 0), Op::Read(0, 0, 131_072)] {
                    assert_eq!(ours.run(&op), Some(local.run(&op)), "{path}: {op:?}");
                }
            }
            FileKind::Symlink => {
                let op = Op::ReadLink(path);
                assert_eq!(ours.run(&op), Some(local.run(&op)));
            }
            // No operation of the model makes them.
            FileKind::Fifo | FileKind::Socket => panic!("{path} is neither file nor link"),
        }
    }
    ours.run(&Op::Close(0));
    local.run(&Op::Close(0));
}

/// What the first shard's records have of other shards' names, which it remembers until it is
/// restarted.
fn shown_bytes(node: &Node) -> u64 {
    let Kept::Memory(disk) = &node.kept else { return 0 };
    let mut store = MemoryStore::open(disk, u64::MAX);
    let mut shown = Vec::new();
    let mut each = |key: &[u8], _: &[u8]| {
        shown.push(key.to_vec());
        Scan::More
    };
    store.scan(&[key::REMEMBERED], &[key::REMEMBERED], &mut each).unwrap();
    let with_them = store.used_bytes();
    for key in &shown {
        store.delete(key).unwrap();
    }
    with_them - store.used_bytes()
}

/// Of the store on disk.
const STORE_PAGE_BYTES: u64 = 4096;

/// With nothing open there are no orphans, no allowances, and as many objects as the counters say.
fn check_leaks(node: &mut Node) {
    let counters = node.core().counters();
    assert_eq!((counters.open_files, counters.orphans, counters.locks), (0, 0, 0));
    let mut objects = 0;
    let mut bytes = 0;
    for directory in std::fs::read_dir(&node.objects).unwrap() {
        for object in std::fs::read_dir(directory.unwrap().path()).unwrap() {
            use std::os::unix::fs::MetadataExt;
            objects += 1;
            bytes += object.unwrap().metadata().unwrap().blocks() * 512;
        }
    }
    assert_eq!(counters.objects, objects);
    let shown_bytes = shown_bytes(node);
    node.restart();
    let again = node.core().counters();
    // Pages on disk are merged by the next changes, some of which a restart makes.
    let merged_bytes = if matches!(node.kept, Kept::Disk(_)) { 2 * STORE_PAGE_BYTES } else { 0 };
    let used_bytes = again.used_bytes + shown_bytes;
    let range = used_bytes..=used_bytes + merged_bytes;
    assert!(range.contains(&counters.used_bytes), "{range:?}: {}", counters.used_bytes);
    assert!(counters.used_bytes >= bytes, "{} >= {bytes}", counters.used_bytes);
    assert_eq!((again.files, again.directories), (counters.files, counters.directories));
}

fn fs_umask() {
    rustix::process::umask(Mode::empty());
}

/// The store's pages were merged by what the restart wrote, and the test took that for a leak.
#[test]
fn the_store_on_disk_may_take_less_after_a_restart() {
    let (one, two) = (|| "a".to_owned(), || "c".to_owned());
    let mut ops = vec![Op::Mkdir(two()), Op::Mkdir(one()), Op::Symlink(one(), "a/a".to_owned())];
    ops.push(Op::Symlink(one(), "b".to_owned()));
    ops.extend([Op::Open(1, "c/a".to_owned(), 65), Op::SetXattr(one(), 97, 112, 0)]);
    ops.extend([Op::Append(1, 1821, 0), Op::Write(1, 0, 4097, 0)]);
    compare(&ops, true);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_core_answers_as_the_local_file_system_does(ops in prop::collection::vec(op(), 1..80)) {
        compare(&ops, false);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_core_on_disk_answers_as_the_local_file_system_does(
        ops in prop::collection::vec(op(), 1..80)
    ) {
        compare(&ops, true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn several_shards_answer_as_the_local_file_system_does(
        ops in prop::collection::vec(op(), 1..60),
        shards in prop_oneof![Just(2_u32), Just(5)],
        seed in any::<u64>(),
    ) {
        compare_with(&ops, Node::several(config_of(seed), shards, seed, false));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn several_shards_that_die_between_messages_answer_as_if_nothing_happened(
        ops in prop::collection::vec(op(), 1..40),
        shards in prop_oneof![Just(2_u32), Just(5)],
        seed in any::<u64>(),
    ) {
        let mut node = Node::several(config_of(seed), shards, seed, false);
        node.several.deaths = 12;
        compare_with(&ops, node);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_core_whose_disk_is_waited_for_answers_as_the_local_file_system_does(
        ops in prop::collection::vec(op(), 1..80),
        shards in prop_oneof![Just(1_u32), Just(3)],
        deaths in prop_oneof![Just(0_usize), Just(20)],
        seed in any::<u64>(),
    ) {
        let mut node = Node::several(config_of(seed), shards, seed, false).slowed();
        node.several.deaths = deaths;
        compare_with(&ops, node);
    }
}

//! The directory, as the kernel asks for it.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, symlink},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, CWD, Gid, RenameFlags as Rename, Timespec, Timestamps, Uid};

use crate::{
    calls::Call,
    files::{COUNTS, Files, ROOT},
    pace::Pace,
};

/// The client of a parallel file system keeps names for so long.
const NAME_KEPT: Duration = Duration::from_secs(10);
/// And the attributes of a file: for as long as who was told of them with the name may need them.
const KEPT: Duration = Duration::from_secs(1);
/// And those of a directory.
const DIRECTORY_KEPT: Duration = Duration::from_secs(1);
const NAME: &[u8] = b".outside";

#[derive(Debug)]
pub(crate) struct Tree {
    directory: PathBuf,
    root: u64,
    pace: Arc<Pace>,
    files: Mutex<Files>,
}

fn kept(attr: &FileAttr) -> Duration {
    if attr.kind == FileType::Directory { DIRECTORY_KEPT } else { KEPT }
}

fn kind_of(of: fs::FileType) -> FileType {
    match of {
        of if of.is_dir() => FileType::Directory,
        of if of.is_symlink() => FileType::Symlink,
        of if of.is_fifo() => FileType::NamedPipe,
        of if of.is_socket() => FileType::Socket,
        of if of.is_block_device() => FileType::BlockDevice,
        of if of.is_char_device() => FileType::CharDevice,
        _ => FileType::RegularFile,
    }
}

/// What is older than the epoch is of the epoch here.
fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    SystemTime::UNIX_EPOCH + seconds + Duration::from_nanos(nanoseconds.unsigned_abs())
}

impl Tree {
    pub(crate) fn new(directory: PathBuf, pace: Arc<Pace>) -> Result<Tree> {
        let root = fs::metadata(&directory);
        let root = root.with_context(|| format!("cannot show {}", directory.display()))?.ino();
        Ok(Tree { directory, root, pace, files: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, number: INodeNo) -> io::Result<PathBuf> {
        self.lock().path(number.0).ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }

    fn below(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.path(parent)?.join(name))
    }

    fn place(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    fn number(&self, inode: u64) -> u64 {
        if inode == self.root { ROOT } else { inode }
    }

    fn attr_of(&self, of: &Metadata) -> FileAttr {
        FileAttr {
            ino: INodeNo(self.number(of.ino())),
            size: of.size(),
            blocks: of.blocks(),
            atime: time(of.atime(), of.atime_nsec()),
            mtime: time(of.mtime(), of.mtime_nsec()),
            ctime: time(of.ctime(), of.ctime_nsec()),
            crtime: SystemTime::UNIX_EPOCH,
            kind: kind_of(of.file_type()),
            perm: (of.mode() & 0o7777) as u16,
            nlink: of.nlink() as u32,
            uid: of.uid(),
            gid: of.gid(),
            rdev: of.rdev() as u32,
            blksize: of.blksize() as u32,
            flags: 0,
        }
    }

    fn attr(&self, path: &Path) -> io::Result<FileAttr> {
        let attr = self.attr_of(&fs::symlink_metadata(self.place(path))?);
        self.lock().met(attr.ino.0, path);
        Ok(attr)
    }

    fn counts(&self) -> FileAttr {
        let now = SystemTime::now();
        let of = fs::symlink_metadata(&self.directory).map(|of| (of.uid(), of.gid()));
        let (uid, gid) = of.unwrap_or_default();
        FileAttr {
            ino: INodeNo(COUNTS),
            size: self.counts_text().len() as u64,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn counts_text(&self) -> String {
        format!("{}\n", self.pace.calls().as_json())
    }

    /// A call that makes a name: what has it then.
    fn make(
        &self,
        (call, parent, name): (Call, INodeNo, &OsStr),
        work: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<FileAttr> {
        let path = self.below(parent, name)?;
        self.pace.enter(call, &path, 0)?;
        work(&self.place(&path))?;
        self.attr(&path)
    }

    /// What the asking process makes is its own; only root is asked by others.
    fn give(&self, request: &Request, place: &Path) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(request.uid()), Gid::from_raw(request.gid()));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::chownat(CWD, place, Some(uid), Some(gid), flags)?)
    }

    fn open_at(&self, path: &Path, flags: i32, mode: u32) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let access = flags & libc::O_ACCMODE;
        options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY);
        // The kernel says where, and has looked where links lead.
        let flags = flags & (libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) | libc::O_NOFOLLOW;
        options.custom_flags(flags & !libc::O_CREAT).mode(mode);
        if flags & libc::O_EXCL != 0 {
            options.create_new(true);
        } else if flags & libc::O_CREAT != 0 {
            options.create(true).truncate(flags & libc::O_TRUNC != 0);
        }
        options.open(self.place(path))
    }

    fn change(&self, path: &Path, change: &Change) -> io::Result<()> {
        let place = self.place(path);
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(CWD, &place, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if let Some(mode) = change.mode {
            let mode = rustix::fs::Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::chmodat(CWD, &place, mode, AtFlags::empty())?;
        }
        if let Some(size) = change.size {
            OpenOptions::new().write(true).open(&place)?.set_len(size)?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let times = Timestamps {
                last_access: stamp(change.atime),
                last_modification: stamp(change.mtime),
            };
            rustix::fs::utimensat(CWD, &place, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn list(&self, number: INodeNo, offset: u64, reply: &mut ReplyDirectory) -> io::Result<()> {
        let path = self.path(number)?;
        let mut entries: Vec<(u64, FileType, OsString)> =
            [".", ".."].map(|name| (number.0, FileType::Directory, name.into())).to_vec();
        for entry in fs::read_dir(self.place(&path))? {
            let entry = entry?;
            entries.push((
                self.number(entry.ino()),
                kind_of(entry.file_type()?),
                entry.file_name(),
            ));
        }
        for (at, (inode, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(inode), at as u64 + 1, kind, name) {
                break;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Change {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    atime: Option<TimeOrNow>,
    mtime: Option<TimeOrNow>,
}

fn stamp(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => special(rustix::fs::UTIME_OMIT),
        Some(TimeOrNow::Now) => special(rustix::fs::UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Timespec {
                tv_sec: after.as_secs() as i64,
                tv_nsec: i64::from(after.subsec_nanos()),
            },
            // What is older than the epoch is of the epoch here.
            Err(_) => special(0),
        },
    }
}

fn entry(reply: ReplyEntry, made: io::Result<FileAttr>) {
    match made {
        Ok(attr) => reply.entry_with_ttls(&kept(&attr), &NAME_KEPT, &attr, Generation(0)),
        Err(error) => reply.error(error.into()),
    }
}

fn attributes(reply: ReplyAttr, found: io::Result<FileAttr>) {
    match found {
        Ok(attr) => reply.attr(&kept(&attr), &attr),
        Err(error) => reply.error(error.into()),
    }
}

fn empty(reply: ReplyEmpty, done: io::Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

impl Filesystem for Tree {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent.0 == ROOT && name.as_bytes() == NAME {
            return reply.entry(&Duration::ZERO, &self.counts(), Generation(0));
        }
        let found = self.below(parent, name).and_then(|path| {
            self.pace.enter(Call::Lookup, &path, 0)?;
            self.attr(&path)
        });
        entry(reply, found);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino.0 == COUNTS {
            return reply.attr(&Duration::ZERO, &self.counts());
        }
        let found = self.path(ino).and_then(|path| {
            self.pace.enter(Call::Stat, &path, 0)?;
            self.attr(&path)
        });
        attributes(reply, found);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if ino.0 == COUNTS {
            return reply.attr(&Duration::ZERO, &self.counts());
        }
        let change = Change { mode, uid, gid, size, atime, mtime };
        let changed = self.path(ino).and_then(|path| {
            self.pace.enter(Call::SetAttr, &path, 0)?;
            self.change(&path, &change)?;
            self.attr(&path)
        });
        attributes(reply, changed);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.path(ino).and_then(|path| {
            self.pace.enter(Call::ReadLink, &path, 0)?;
            fs::read_link(self.place(&path))
        });
        match target {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make((Call::MakeDirectory, parent, name), |place| {
            let mode = rustix::fs::Mode::from_raw_mode(mode & !umask);
            rustix::fs::mkdir(place, mode)?;
            self.give(request, place)
        });
        entry(reply, made);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.below(parent, name).and_then(|path| {
            self.pace.enter(Call::Unlink, &path, 0)?;
            fs::remove_file(self.place(&path))
        });
        empty(reply, done);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.below(parent, name).and_then(|path| {
            self.pace.enter(Call::RemoveDirectory, &path, 0)?;
            fs::remove_dir(self.place(&path))
        });
        empty(reply, done);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.make((Call::Symlink, parent, name), |place| {
            symlink(target, place)?;
            self.give(request, place)
        });
        entry(reply, made);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let move_name = || -> io::Result<()> {
            let (from, to) = (self.below(parent, name)?, self.below(to_parent, to_name)?);
            self.pace.enter(Call::Rename, &from, 0)?;
            let flags = Rename::from_bits_retain(flags.bits());
            rustix::fs::renameat_with(CWD, self.place(&from), CWD, self.place(&to), flags)?;
            self.lock().moved(&from, &to);
            Ok(())
        };
        empty(reply, move_name());
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        to_parent: INodeNo,
        to_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = self.make((Call::Link, to_parent, to_name), |place| {
            fs::hard_link(self.place(&self.path(ino)?), place)
        });
        entry(reply, made);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino.0 == COUNTS {
            return reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        }
        let opened = self.path(ino).and_then(|path| {
            self.pace.enter(Call::Open, &path, 0)?;
            self.open_at(&path, flags.0, 0)
        });
        match opened {
            Ok(file) => {
                reply.opened(FileHandle(self.lock().opened(file)), FopenFlags::empty());
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.below(parent, name).and_then(|path| {
            self.pace.enter(Call::Create, &path, 0)?;
            let file = self.open_at(&path, flags | libc::O_CREAT, mode & !umask)?;
            self.give(request, &self.place(&path))?;
            Ok((file, self.attr(&path)?))
        });
        match made {
            Ok((file, attr)) => {
                let handle = FileHandle(self.lock().opened(file));
                reply.created(&kept(&attr), &attr, Generation(0), handle, FopenFlags::empty());
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino.0 == COUNTS {
            let text = self.counts_text();
            let from = text.len().min(offset as usize);
            return reply.data(&text.as_bytes()[from..]);
        }
        let read = || -> io::Result<Vec<u8>> {
            let path = self.path(ino)?;
            let file = self.lock().file(handle.0);
            let file = file.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
            let mut bytes = vec![0; size as usize];
            let mut count = 0;
            while count < bytes.len() {
                match file.read_at(&mut bytes[count..], offset + count as u64)? {
                    0 => break,
                    more => count += more,
                }
            }
            bytes.truncate(count);
            self.pace.enter(Call::Read, &path, count as u64)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let write = || -> io::Result<()> {
            if ino.0 == COUNTS {
                return String::from_utf8_lossy(data)
                    .lines()
                    .try_for_each(|of| self.pace.order(of));
            }
            let path = self.path(ino)?;
            let file = self.lock().file(handle.0);
            let file = file.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
            self.pace.enter(Call::Write, &path, data.len() as u64)?;
            file.write_all_at(data, offset)
        };
        match write() {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    /// Costs nothing outside: what was written is there.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.lock().closed(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let sync = || -> io::Result<()> {
            self.pace.enter(Call::Sync, &self.path(ino)?, 0)?;
            self.lock().file(handle.0).map_or(Ok(()), |file| file.sync_all())
        };
        empty(reply, sync());
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let entered = self.path(ino).and_then(|path| self.pace.enter(Call::List, &path, 0));
        match entered {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.list(ino, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let space = self.path(ino).and_then(|path| {
            self.pace.enter(Call::Space, &path, 0)?;
            Ok(rustix::fs::statvfs(&self.directory)?)
        });
        match space {
            Ok(of) => reply.statfs(
                of.f_blocks,
                of.f_bfree,
                of.f_bavail,
                of.f_files,
                of.f_ffree,
                of.f_bsize as u32,
                of.f_namemax as u32,
                of.f_frsize as u32,
            ),
            Err(error) => reply.error(Errno::from(error)),
        }
    }
}

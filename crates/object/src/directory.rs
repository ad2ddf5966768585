//! Objects as sparse files in a directory of the node-local file system.
//!
//! Descriptors are kept open in a bounded cache, least recently used first out: opening and closing
//! for each operation would cost more than the operation. A descriptor in use is shared by
//! reference count, so evicting it never pulls it from under a thread. What only looks at an object
//! opens it for reading: the kernel does not execute a file that anybody may write. Nothing is
//! opened or closed under the cache's lock, so whoever only asks the cache waits for no disk.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use mayfly_types::{
    Errno, OBJECT_MAPPED, Timestamp,
    special::{BOUND_SUFFIX, parse_place},
};
use rustix::buffer::spare_capacity;
use rustix::fs::{self, AtFlags, FallocateFlags, FileType, Mode, OFlags};

use crate::{
    Allocation, Listed, ObjectAttr, ObjectId, ObjectStore, Space,
    listing::{self, errno},
    spread::file_systems,
};

/// Descriptors kept open unless told otherwise.
const DESCRIPTORS_MAX: usize = 512;
/// Owner only: the directory is private and the files may be executed (a program in the mount).
const OBJECT_MODE: Mode = Mode::RWXU;

/// File systems that are in memory (`f_type` of `statfs`): tmpfs, ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// What a descriptor is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Look,
    Change,
}

impl Access {
    fn flags(self) -> OFlags {
        match self {
            Access::Look => OFlags::RDONLY,
            Access::Change => OFlags::RDWR,
        }
    }
}

struct Cached {
    descriptor: Arc<OwnedFd>,
    access: Access,
    used_at: u64,
}

#[derive(Default)]
struct Cache {
    entries: HashMap<ObjectId, Cached>,
    ticks: u64,
}

impl Cache {
    /// Takes out the eighth that was not used for longest, so that the search is paid for by many
    /// openings.
    fn evict(&mut self) -> Vec<Cached> {
        let mut ages: Vec<u64> = self.entries.values().map(|entry| entry.used_at).collect();
        ages.sort_unstable();
        let bound = ages[ages.len() / 8];
        self.entries.extract_if(|_, entry| entry.used_at <= bound).map(|(_, old)| old).collect()
    }
}

/// Objects in a directory.
pub struct DirectoryStore {
    root: OwnedFd,
    /// A directory on each file system that has objects.
    below: Vec<OwnedFd>,
    cache: Mutex<Cache>,
    descriptors_max: usize,
    may_wait: bool,
}

impl std::fmt::Debug for DirectoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectoryStore").field("root", &self.root).finish_non_exhaustive()
    }
}

impl DirectoryStore {
    /// Opens the object directory `path`, making it when absent.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(path: &Path) -> Result<DirectoryStore, Errno> {
        DirectoryStore::open_with(path, DESCRIPTORS_MAX)
    }

    /// As [`DirectoryStore::open`], keeping at most `descriptors_max` descriptors open.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open_with(path: &Path, descriptors_max: usize) -> Result<DirectoryStore, Errno> {
        make_directory(fs::mkdir(path, Mode::RWXU))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty()).map_err(errno)?;
        let below = file_systems(root.try_clone().map_err(|_| Errno::EMFILE)?).map_err(errno)?;
        let mut may_wait = false;
        for directory in &below {
            let kind = fs::fstatfs(directory).map_err(errno)?.f_type;
            may_wait |= !IN_MEMORY.contains(&u64::try_from(kind).unwrap_or(0));
        }
        Ok(DirectoryStore { root, below, cache: Mutex::default(), descriptors_max, may_wait })
    }

    fn cached(&self, id: ObjectId, access: Access) -> Option<Arc<OwnedFd>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.ticks += 1;
        let now = cache.ticks;
        let serves = |cached: &&mut Cached| access == Access::Look || cached.access == access;
        let cached = cache.entries.get_mut(&id).filter(serves)?;
        cached.used_at = now;
        Some(Arc::clone(&cached.descriptor))
    }

    fn keep(&self, id: ObjectId, descriptor: &Arc<OwnedFd>, access: Access) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let evicted =
            if cache.entries.len() >= self.descriptors_max { cache.evict() } else { Vec::new() };
        cache.ticks += 1;
        let used_at = cache.ticks;
        let descriptor = Arc::clone(descriptor);
        let replaced = cache.entries.insert(id, Cached { descriptor, access, used_at });
        drop(cache);
        drop((evicted, replaced));
    }

    fn forget(&self, id: ObjectId) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = cache.entries.remove(&id);
        drop(cache);
        drop(forgotten);
    }

    fn with<T>(
        &self,
        id: ObjectId,
        access: Access,
        work: impl FnOnce(BorrowedFd<'_>) -> Result<T, rustix::io::Errno>,
    ) -> Result<T, Errno> {
        let descriptor = match self.cached(id, access) {
            Some(descriptor) => descriptor,
            None => self.open_object(id, access, OFlags::empty())?,
        };
        work(descriptor.as_fd()).map_err(errno)
    }

    fn open_object(
        &self,
        id: ObjectId,
        access: Access,
        extra: OFlags,
    ) -> Result<Arc<OwnedFd>, Errno> {
        let descriptor = Arc::new(self.open_once(id, access, extra)?);
        self.keep(id, &descriptor, access);
        Ok(descriptor)
    }

    fn open_once(&self, id: ObjectId, access: Access, extra: OFlags) -> Result<OwnedFd, Errno> {
        let flags = access.flags() | OFlags::CLOEXEC | OFlags::NOFOLLOW | extra;
        fs::openat(&self.root, id.path(), flags, OBJECT_MODE).map_err(errno)
    }

    /// Makes an object without opening it: whoever wants it empty goes on to write it by a
    /// descriptor of his own. False when there is something, or it has to be made in another way.
    fn make_empty(&self, id: ObjectId) -> bool {
        let kind = FileType::RegularFile;
        let make = || fs::mknodat(&self.root, id.path(), kind, OBJECT_MODE, 0).map_err(errno);
        self.in_its_directory(id, make).is_ok()
    }

    /// Makes something, with the directory that it lies in if that is missing.
    fn in_its_directory<T>(
        &self,
        id: ObjectId,
        make: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match make() {
            Err(Errno::ENOENT) => {
                let path = id.path();
                let parent = path.split('/').next().expect("an object's path has two parts");
                make_directory(fs::mkdirat(&self.root, parent, Mode::RWXU))?;
                make()
            }
            made => made,
        }
    }
}

fn make_directory(made: Result<(), rustix::io::Errno>) -> Result<(), Errno> {
    match made {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(errno(error)),
    }
}

fn write_all(
    descriptor: BorrowedFd<'_>,
    mut offset: u64,
    mut bytes: &[u8],
) -> Result<(), rustix::io::Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(descriptor, bytes, offset) {
            Ok(0) => return Err(rustix::io::Errno::IO),
            Ok(count) => {
                offset += count as u64;
                bytes = &bytes[count..];
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn allocate(
    descriptor: BorrowedFd<'_>,
    flags: FallocateFlags,
    (offset, bytes): (u64, u64),
) -> Result<(), rustix::io::Errno> {
    loop {
        match fs::fallocate(descriptor, flags, offset, bytes) {
            Err(rustix::io::Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Not every file system that takes and punches can do this at once; tmpfs cannot.
fn zero(
    descriptor: BorrowedFd<'_>,
    length: FallocateFlags,
    range: (u64, u64),
) -> Result<(), rustix::io::Errno> {
    match allocate(descriptor, FallocateFlags::ZERO_RANGE | length, range) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            allocate(descriptor, punch, range)?;
            allocate(descriptor, length, range)
        }
        done => done,
    }
}

fn timestamp(seconds: i64, nanoseconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) }
}

fn attr_of(descriptor: BorrowedFd<'_>) -> Result<ObjectAttr, Errno> {
    fs::fstat(descriptor).map(|stat| attr_from(&stat)).map_err(errno)
}

fn attr_from(stat: &fs::Stat) -> ObjectAttr {
    ObjectAttr {
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        atime: timestamp(stat.st_atime, stat.st_atime_nsec as i64),
        mtime: timestamp(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: timestamp(stat.st_ctime, stat.st_ctime_nsec as i64),
        mapped: stat.st_mode & OBJECT_MAPPED != 0,
    }
}

impl ObjectStore for DirectoryStore {
    fn create(&self, id: ObjectId, bytes: &[u8]) -> Result<(), Errno> {
        self.forget(id);
        if bytes.is_empty() && !self.may_wait && self.make_empty(id) {
            return Ok(());
        }
        let flags = OFlags::CREATE | OFlags::TRUNC;
        let open = || self.open_object(id, Access::Change, flags);
        let descriptor = self.in_its_directory(id, open)?;
        write_all(descriptor.as_fd(), 0, bytes).map_err(errno)
    }

    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.with(id, Access::Look, |descriptor| {
            let mut done = 0;
            while done < buffer.len() {
                let rest = &mut buffer[done..];
                match rustix::io::pread(descriptor, rest, offset + done as u64) {
                    Ok(0) => break,
                    Ok(count) => done += count,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(done)
        })
    }

    fn read_up_to(&self, id: ObjectId, offset: u64, count: usize) -> Result<Vec<u8>, Errno> {
        self.with(id, Access::Look, |descriptor| {
            let mut bytes = Vec::with_capacity(count);
            while bytes.len() < count {
                let at = offset + bytes.len() as u64;
                match rustix::io::pread(descriptor, spare_capacity(&mut bytes), at) {
                    Ok(0) => break,
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            // There may have been more room than was asked for.
            bytes.truncate(count);
            Ok(bytes)
        })
    }

    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.with(id, Access::Change, |descriptor| write_all(descriptor, offset, bytes))
    }

    fn append(&self, id: ObjectId, bytes: &[u8]) -> Result<u64, Errno> {
        // The kernel takes the end under its own lock, so that writers with the object open cannot
        // slip in between; a descriptor of its own, since O_APPEND would spoil the cached one.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let descriptor = fs::openat(&self.root, id.path(), flags, OBJECT_MODE).map_err(errno)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(&descriptor, rest) {
                Ok(0) => return Err(Errno::EIO),
                Ok(count) => rest = &rest[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(errno(error)),
            }
        }
        fs::seek(&descriptor, fs::SeekFrom::Current(0)).map_err(errno)
    }

    fn set_size(&self, id: ObjectId, size_bytes: u64) -> Result<(), Errno> {
        self.with(id, Access::Change, |descriptor| fs::ftruncate(descriptor, size_bytes))
    }

    fn allocate(
        &self,
        id: ObjectId,
        what: Allocation,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Errno> {
        let (keep, extend) = (FallocateFlags::KEEP_SIZE, FallocateFlags::empty());
        let range = (offset, bytes);
        self.with(id, Access::Change, |descriptor| match what {
            Allocation::Extend => allocate(descriptor, extend, range),
            Allocation::Reserve => allocate(descriptor, keep, range),
            Allocation::Punch => allocate(descriptor, FallocateFlags::PUNCH_HOLE | keep, range),
            Allocation::ZeroExtend => zero(descriptor, extend, range),
            Allocation::Zero => zero(descriptor, keep, range),
        })
    }

    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>, Errno> {
        let to = if hole {
            rustix::fs::SeekFrom::Hole(offset)
        } else {
            rustix::fs::SeekFrom::Data(offset)
        };
        self.with(id, Access::Look, |descriptor| match rustix::fs::seek(descriptor, to) {
            Ok(found) => Ok(Some(found)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(error) => Err(error),
        })
    }

    fn attr(&self, id: ObjectId) -> Result<ObjectAttr, Errno> {
        match self.cached(id, Access::Look) {
            Some(descriptor) => attr_of(descriptor.as_fd()),
            // Where nobody waits for a disk it need not be at hand the next time.
            None if !self.may_wait => fs::statat(&self.root, id.path(), AtFlags::SYMLINK_NOFOLLOW)
                .map(|stat| attr_from(&stat))
                .map_err(errno),
            None => attr_of(self.open_object(id, Access::Look, OFlags::empty())?.as_fd()),
        }
    }

    fn set_times(
        &self,
        id: ObjectId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<(), Errno> {
        let spec = |time: Option<Timestamp>| match time {
            Some(time) => {
                fs::Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) as _ }
            }
            None => fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT as _ },
        };
        let times = fs::Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
        if !self.may_wait && self.cached(id, Access::Look).is_none() {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            return fs::utimensat(&self.root, id.path(), &times, flags).map_err(errno);
        }
        self.with(id, Access::Look, |descriptor| fs::futimens(descriptor, &times))
    }

    fn sync(&self, id: ObjectId) -> Result<(), Errno> {
        self.with(id, Access::Look, |descriptor| fs::fsync(descriptor))
    }

    fn sync_all(&self) -> Result<(), Errno> {
        self.below.iter().try_for_each(|directory| fs::syncfs(directory).map_err(errno))
    }

    fn remove(&self, id: ObjectId) -> Result<(), Errno> {
        let opened = match self.cached(id, Access::Change) {
            Some(descriptor) => Ok(descriptor),
            // Nobody needs it once more.
            None => self.open_once(id, Access::Change, OFlags::empty()).map(Arc::new),
        };
        let cut = opened.and_then(|descriptor| {
            // Whoever touched a page that was cut off would be killed.
            let mapped = attr_of(descriptor.as_fd())?.mapped;
            if mapped { Ok(()) } else { fs::ftruncate(&descriptor, 0).map_err(errno) }
        });
        match cut {
            // A program that runs from it keeps its bytes until it ends.
            Ok(()) | Err(Errno::ENOENT | Errno::ETXTBSY) => {}
            Err(error) => return Err(error),
        }
        self.forget(id);
        match fs::unlinkat(&self.root, id.path(), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(errno(error)),
        }
    }

    fn abandon(&self, place: &[u8]) {
        let Ok(found) = fs::lstat(place) else { return };
        let kind = FileType::from_raw_mode(found.st_mode);
        if parse_place(place).is_some() && matches!(kind, FileType::Fifo | FileType::Socket) {
            // Whoever has it open keeps it. What stays goes with the instance.
            let _ = fs::unlink(place);
            let _ = fs::unlink([place, BOUND_SUFFIX.as_bytes()].concat());
        }
    }

    fn list(&self, after: Option<ObjectId>, count_max: usize) -> Result<Vec<Listed>, Errno> {
        listing::list(&self.root, after, count_max).map_err(errno)
    }

    fn let_run(&self, id: ObjectId) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let writable = |entry: &Cached| entry.access == Access::Change;
        let given_up = if cache.entries.get(&id).is_some_and(writable) {
            cache.entries.remove(&id)
        } else {
            None
        };
        drop(cache);
        drop(given_up);
    }

    fn may_wait(&self) -> bool {
        self.may_wait
    }

    fn attr_at_hand(&self, id: ObjectId) -> Result<Option<ObjectAttr>, Errno> {
        if !self.may_wait {
            return self.attr(id).map(Some);
        }
        self.cached(id, Access::Look).map(|descriptor| attr_of(descriptor.as_fd())).transpose()
    }

    fn space(&self) -> Result<Space, Errno> {
        let mut all = Space { total_bytes: 0, free_bytes: 0 };
        for directory in &self.below {
            let space = fs::fstatvfs(directory).map_err(errno)?;
            all.total_bytes += space.f_blocks.saturating_mul(space.f_frsize);
            all.free_bytes += space.f_bavail.saturating_mul(space.f_frsize);
        }
        Ok(all)
    }
}

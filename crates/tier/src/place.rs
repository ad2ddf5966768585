//! Where a name is outside, and what is there.

use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use mayfly_types::{Attr, Errno, FileId, FileKind, Timestamp, limits::NAME_BYTES_MAX};
use mayfly_wire::tier::NO_ATTR;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags, StatxTimestamp, fstat,
    openat, openat2, readlinkat, statat, statx,
};

/// Names of the keeper's own beside the files that it writes begin so. They are not shown.
pub(crate) const OWN_PREFIX: &[u8] = b".mayfly-tier-";
/// What has changed so lately may change again without that being seen: file systems count time in
/// steps.
const TICK: Duration = Duration::from_millis(20);
/// How often a change that goes on is waited for.
const TRIES: u32 = 5;

/// A name in a directory that is open.
pub(crate) struct Place {
    pub(crate) directory: OwnedFd,
    /// `.` for the origin's own directory.
    pub(crate) name: Vec<u8>,
}

pub(crate) fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error()).unwrap_or(Errno::EIO)
}

pub(crate) fn io_errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().and_then(Errno::from_raw).unwrap_or(Errno::EIO)
}

/// Opens the directory of an origin.
pub(crate) fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(errno)
}

/// A directory below, whose path has no symbolic links.
fn open_below(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let path = if path.is_empty() { b"." } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(root.as_fd(), path, flags, Mode::empty(), resolve) {
        // Linux has it since 5.6, and sandboxes may refuse it.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            openat(root.as_fd(), path, flags, Mode::empty()).map_err(errno)
        }
        opened => opened.map_err(errno),
    }
}

impl Place {
    /// What a path from the origin's own directory names.
    pub(crate) fn find(root: impl AsFd, path: &[u8]) -> Result<Place, Errno> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        if !is_plain(path) || name.len() > NAME_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let directory = open_below(root, parent, OFlags::PATH)?;
        let name = if name.is_empty() { b".".to_vec() } else { name.to_vec() };
        Ok(Place { directory, name })
    }

    /// What is there; nothing when there is no such name.
    pub(crate) fn stat(&self) -> Result<Option<Stat>, Errno> {
        match statat(&self.directory, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
            Err(error) => Err(errno(error)),
        }
    }

    /// What is there.
    pub(crate) fn attr(&self) -> Result<Attr, Errno> {
        self.stat()?.map(|stat| attr_of(&stat)).ok_or(Errno::ENOENT)
    }

    /// What is there, to be read; a link is not followed, and no pipe is waited for.
    pub(crate) fn open(&self) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(&self.directory, &*self.name, flags, Mode::empty()).map(File::from).map_err(errno)
    }

    /// Where the symbolic link leads.
    pub(crate) fn target(&self) -> Result<Vec<u8>, Errno> {
        let target = readlinkat(&self.directory, &*self.name, Vec::new());
        target.map(|target| target.into_bytes()).map_err(errno)
    }

    /// The directory, opened to be read.
    pub(crate) fn open_directory(&self) -> Result<OwnedFd, Errno> {
        open_below(&self.directory, &self.name, OFlags::RDONLY)
    }
}

/// A path of names, with nothing at either end.
pub(crate) fn is_plain(path: &[u8]) -> bool {
    let fine =
        |name: &[u8]| !name.is_empty() && name != b"." && name != b".." && !name.contains(&0);
    path.is_empty() || path.split(|byte| *byte == b'/').all(fine)
}

fn stamp(seconds: i64, nanoseconds: impl TryInto<u32>) -> Timestamp {
    Timestamp { seconds, nanoseconds: nanoseconds.try_into().unwrap_or(0) }
}

/// As the daemon is told of it. What an instance cannot show is a pipe.
pub(crate) fn attr_of(stat: &Stat) -> Attr {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => return NO_ATTR,
    };
    let ctime = stamp(stat.st_ctime, stat.st_ctime_nsec);
    Attr {
        id: FileId(stat.st_ino),
        kind,
        mode: stat.st_mode & 0o7777,
        links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        atime: stamp(stat.st_atime, stat.st_atime_nsec),
        mtime: stamp(stat.st_mtime, stat.st_mtime_nsec),
        ctime,
        btime: ctime,
    }
}

/// The attributes of what is open, but that its time of access may be an earlier one: a read makes
/// that stale, and a network file system would be asked about it after each.
pub(crate) fn attr_of_open(file: impl AsFd) -> Result<Attr, Errno> {
    let mask = StatxFlags::BASIC_STATS.difference(StatxFlags::ATIME);
    let stat = match statx(&file, "", AtFlags::EMPTY_PATH, mask) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOSYS) => return Ok(attr_of(&fstat(&file).map_err(errno)?)),
        Err(error) => return Err(errno(error)),
    };
    let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        _ => return Ok(NO_ATTR),
    };
    let time = |of: StatxTimestamp| Timestamp { seconds: of.tv_sec, nanoseconds: of.tv_nsec };
    let ctime = time(stat.stx_ctime);
    Ok(Attr {
        id: FileId(stat.stx_ino),
        kind,
        mode: u32::from(stat.stx_mode) & 0o7777,
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size_bytes: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime,
        btime: ctime,
    })
}

/// Whether nothing has changed from one look to the other, as far as that can be seen.
pub(crate) fn is_same(known: &Attr, now: &Attr) -> bool {
    let sized = now.kind != FileKind::Regular || known.size_bytes == now.size_bytes;
    known.kind == now.kind && sized && known.mtime == now.mtime && known.ctime == now.ctime
}

/// The attributes of what is open, when its last change is so long ago that another one would show.
pub(crate) fn attr_at_rest(file: impl AsFd) -> Result<Attr, Errno> {
    let mut attr = attr_of_open(&file)?;
    for _ in 0..TRIES {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::new(attr.ctime.seconds.unsigned_abs(), attr.ctime.nanoseconds);
        let age = now.saturating_sub(changed);
        if age >= TICK || changed > now {
            break;
        }
        std::thread::sleep(TICK.saturating_sub(age));
        attr = attr_of_open(&file)?;
    }
    Ok(attr)
}

/// The names of a directory, without the keeper's own.
pub(crate) fn names_in(directory: OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::new(directory).map_err(errno)? {
        let entry = entry.map_err(errno)?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && !name.starts_with(OWN_PREFIX) {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join("a")).unwrap();
        std::os::unix::fs::symlink("/etc", scratch.path().join("link")).unwrap();
        let root = open_root(scratch.path()).unwrap();
        assert!(Place::find(&root, b"a/x").is_ok());
        for bad in [&b"../x"[..], b"a/../x", b"/etc", b"a//x", b"a/./x", b"a/"] {
            assert_eq!(Place::find(&root, bad).err(), Some(Errno::EINVAL), "{bad:?}");
        }
        let refused = Place::find(&root, b"link/passwd").err();
        assert!(matches!(refused, Some(Errno::ELOOP | Errno::ENOTDIR)), "{refused:?}");
    }
}

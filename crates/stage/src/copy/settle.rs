//! Attributes of files, and how a copy gets them.

use std::{
    fs,
    os::fd::AsFd,
    time::{Duration, SystemTime},
};

use nix::{
    NixPath,
    errno::Errno,
    fcntl::AtFlags,
    sys::{
        stat::{
            FileStat, Mode, SFlag, UtimensatFlags, fchmod, fstat, fstatat, futimens, utimensat,
        },
        time::TimeSpec,
    },
    unistd::geteuid,
};
use serde::{Deserialize, Serialize};

/// Seconds and nanoseconds since 1970, by the clock of whoever keeps a file.
pub type Moment = (i64, i64);

/// What is copied of a file's attributes, and what tells whether it has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: SFlag,
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
    pub(crate) allocated: u64,
    pub(crate) accessed: Moment,
    pub(crate) modified: Moment,
    pub(crate) changed: Moment,
    /// Device and inode.
    pub(crate) identity: (u64, u64),
    pub(crate) links: u64,
    pub(crate) uid: u32,
}

/// What tells a file's content from another one, on whatever node it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Still {
    pub(crate) inode: u64,
    pub(crate) bytes: u64,
    pub(crate) modified: Moment,
    pub(crate) changed: Moment,
}

impl Stat {
    pub(crate) fn of(file: impl AsFd) -> Result<Stat, Errno> {
        fstat(file).map(Stat::from)
    }

    /// Of a directory of which somebody else knows what it is like: who makes a copy may use it.
    pub(crate) fn unseen() -> Stat {
        let never = (0, 0);
        Stat {
            kind: SFlag::S_IFDIR,
            mode: 0o700,
            bytes: 0,
            allocated: 0,
            accessed: never,
            modified: never,
            changed: never,
            identity: (0, 0),
            links: 1,
            uid: geteuid().as_raw(),
        }
    }

    /// Of a name in a directory; a link itself unless it is to be followed.
    pub(crate) fn at<P: ?Sized + NixPath>(
        directory: impl AsFd,
        name: &P,
        follow: bool,
    ) -> Result<Stat, Errno> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
        fstatat(directory, name, flags).map(Stat::from)
    }

    pub(crate) fn is(&self, kind: SFlag) -> bool {
        self.kind == kind
    }

    /// What tells the content, on whatever node.
    pub(crate) fn still(&self) -> Still {
        let Stat { bytes, modified, changed, .. } = *self;
        Still { inode: self.identity.1, bytes, modified, changed }
    }

    /// Was the file changed after that moment?
    pub(crate) fn changed_after(&self, moment: SystemTime) -> bool {
        is_after(self.modified, moment)
    }

    /// Is a copy with these attributes one of this file, as far as they tell?
    pub(super) fn is_same_as(&self, copy: &Stat) -> bool {
        self.kind == copy.kind && self.bytes == copy.bytes && self.modified == copy.modified
    }

    /// Did the content stay what it was between two looks?
    pub(crate) fn is_still(&self, later: &Stat) -> bool {
        (self.identity, self.bytes, self.modified, self.changed)
            == (later.identity, later.bytes, later.modified, later.changed)
    }

    /// Permission bits for the copy. Whoever copies owns it: bits by which a program would run as
    /// another user would mean this one now.
    pub(crate) fn permissions(&self) -> u32 {
        let mine = self.uid == geteuid().as_raw();
        self.mode & if mine { 0o7777 } else { 0o1777 }
    }
}

impl From<FileStat> for Stat {
    fn from(stat: FileStat) -> Stat {
        Stat {
            kind: SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT,
            mode: stat.st_mode & 0o7777,
            bytes: stat.st_size as u64,
            allocated: stat.st_blocks as u64 * 512,
            accessed: (stat.st_atime, stat.st_atime_nsec),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
            identity: (stat.st_dev, stat.st_ino),
            links: stat.st_nlink,
            uid: stat.st_uid,
        }
    }
}

/// Is it later than that?
pub(crate) fn is_after(time: Moment, moment: SystemTime) -> bool {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    time > (since.as_secs() as i64, i64::from(since.subsec_nanos()))
}

fn time((seconds, nanoseconds): Moment) -> TimeSpec {
    TimeSpec::new(seconds, nanoseconds)
}

/// Gives an open copy its times.
pub(crate) fn set_times(copy: impl AsFd, stat: &Stat) -> Result<(), Errno> {
    futimens(copy, &time(stat.accessed), &time(stat.modified))
}

/// Bits that a new file of this process does not get; all of them where the kernel does not tell.
pub(crate) fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok()).unwrap_or(0o777)
}

/// Gives what a name stands for its times; a link itself.
pub(super) fn set_times_at<P: ?Sized + NixPath>(
    directory: impl AsFd,
    name: &P,
    stat: &Stat,
) -> Result<(), Errno> {
    let itself = UtimensatFlags::NoFollowSymlink;
    utimensat(directory, name, &time(stat.accessed), &time(stat.modified), itself)
}

/// Gives an open copy its permission bits.
pub(crate) fn set_permissions(copy: impl AsFd, bits: u32) -> Result<(), Errno> {
    fchmod(copy, Mode::from_bits_truncate(bits))
}

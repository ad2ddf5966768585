//! How much the kernel may remember.
//!
//! **Strict**: nothing. A call that has returned on one side is seen by the next one on the other.
//!
//! **Session**: from close to open. Names and attributes are believed for [`VALID_S`]. The absence
//! of a name is never believed. Descriptors that can only read use the page cache. All others go
//! past it, as in strict. So nothing that was written waits for a close here, and only readers can
//! see old content. At each open the attributes that the kernel was told are compared with those of
//! the file. Where they differ, the kernel is told to forget them before the open is answered. The
//! page cache is kept only if the file is provably what it was when that cache began.
//!
//! **Provably** means two things. Length and times of the file are the same. And the times were old
//! enough when the cache began, so that a later change would have shown in them. An instance that
//! keeps no times (`--times none`) never keeps pages from one open to the next.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mayfly_types::{Attr, Timestamp};

/// What a program may rely on across the mount and the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// A call sees everything that earlier calls have done.
    Strict,
    /// An open sees everything that was closed before it.
    Session,
}

/// How long names and attributes are believed in a session, seconds.
const VALID_S: u64 = 1;

/// A change that is older than this has another time than any later one. It is twice the coarsest
/// tick of the kernel's clock of files.
const TICKS: Duration = Duration::from_millis(20);

impl Consistency {
    pub(crate) fn valid_s(self) -> u64 {
        match self {
            Consistency::Strict => 0,
            Consistency::Session => VALID_S,
        }
    }
}

/// By this an unchanged file is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    size_bytes: u64,
    mtime: Timestamp,
    ctime: Timestamp,
}

impl Version {
    pub(crate) fn of(attr: &Attr) -> Version {
        Version { size_bytes: attr.size_bytes, mtime: attr.mtime, ctime: attr.ctime }
    }

    /// The version of a file with these attributes now, if no later one can look the same.
    pub(super) fn proven(attr: &Attr, now: SystemTime) -> Option<Version> {
        let now = now.duration_since(UNIX_EPOCH).ok()?;
        let at = |time: Timestamp| {
            let seconds = u64::try_from(time.seconds).ok()?;
            Some(Duration::new(seconds, time.nanoseconds))
        };
        // Each change of content sets both, and nobody can set this one back. Where no times are
        // kept, it is the time of birth.
        let changed = at(attr.ctime)?;
        let told = attr.ctime != attr.btime && at(attr.mtime)? <= changed;
        (told && changed + TICKS < now).then(|| Version::of(attr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_types::{FileId, FileKind};

    fn attr(changed: Timestamp) -> Attr {
        Attr {
            id: FileId(5),
            kind: FileKind::Regular,
            mode: 0,
            links: 1,
            uid: 0,
            gid: 0,
            size_bytes: 7,
            blocks: 8,
            atime: changed,
            mtime: changed,
            ctime: changed,
            btime: Timestamp { seconds: 1, nanoseconds: 0 },
        }
    }

    #[test]
    fn a_version_is_proven_when_its_last_change_is_older_than_any_tick() {
        let file = attr(Timestamp { seconds: 100, nanoseconds: 0 });
        let at = |milliseconds| UNIX_EPOCH + Duration::from_millis(milliseconds);
        assert_eq!(Version::proven(&file, at(100_010)), None);
        assert_eq!(Version::proven(&file, at(99_000)), None, "it is of the future");
        assert_eq!(Version::proven(&file, at(100_021)), Some(Version::of(&file)));
    }

    #[test]
    fn without_times_nothing_is_proven() {
        let file = attr(Timestamp { seconds: 1, nanoseconds: 0 });
        assert_eq!(Version::proven(&file, UNIX_EPOCH + Duration::from_secs(100)), None);
    }
}

//! The table of patterns: what programs do to one file, as sequences of calls.
//!
//! The metadata workload opens, writes and closes in one way; programs have others, and what a file
//! system is quick at must not hang on the flags of an open. Each row is done to one fresh file
//! after the other, of each process in its own directory. Rows of the C library's streams make the
//! calls that its streams make: `fstat` before the first transfer. A file is mapped by an
//! instruction of the program's own, since no safe call of the C library does that.

use Act::*;
use Given::{File, Linked, Nothing};
use Name::{Other, Own};
use Opening as O;

/// Bytes of the small files: those of mdtest-hard.
const SMALL: u32 = 3901;
/// Bytes of the files that are no longer small.
const LARGE: u32 = 64 << 10;
/// Bytes of a line in a log.
const LINE: u32 = 80;

/// What is there of a file before the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    Nothing,
    /// So many bytes.
    File(u32),
    /// So many bytes, and a symbolic link to them under the second name.
    Linked(u32),
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    Read,
    Write,
    Both,
    Append,
    Cut,
    New,
    NewBoth,
    NewAppend,
    NewCut,
    NewExclusive,
}

/// A file has two names in a row: its own, and another beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Own,
    Other,
}

/// One call. Those without a name are made on the descriptor of the last open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Open(Name, Opening),
    Close,
    /// All of so many bytes, from the start of the contents.
    Write(u32),
    /// So many bytes, which must come.
    Read(u32),
    /// So many bytes, by a mapping that goes again; their number is looked at first.
    Map(u32),
    /// A read that finds the end.
    ReadEnd,
    /// To the start.
    Seek,
    Fstat,
    Fsync,
    Futimens,
    Fchmod,
    Stat(Name),
    /// Follows a symbolic link.
    StatFollowing(Name),
    /// ENOENT is the right answer.
    StatMissing(Name),
    Access(Name),
    Utimens(Name),
    Chmod(Name),
    Truncate(Name),
    /// The first of the two becomes the second.
    Rename(Name, Name),
    /// The second name is made for the file.
    Link,
    Symlink,
    Readlink,
    Unlink(Name),
    Mkdir(Name),
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(super) name: &'static str,
    pub(crate) given: Given,
    pub(crate) acts: &'static [Act],
}

impl Row {
    /// The most bytes that one file of it has.
    pub(crate) fn bytes(&self) -> u32 {
        let given = match self.given {
            Given::Nothing => 0,
            Given::File(bytes) | Given::Linked(bytes) => bytes,
        };
        let written =
            self.acts.iter().map(|act| if let Act::Write(bytes) = act { *bytes } else { 0 });
        given + written.sum::<u32>()
    }

    /// Has bytes to compare.
    pub(crate) fn reads_data(&self) -> bool {
        self.acts.iter().any(|act| matches!(act, Act::Read(_) | Act::Map(_)))
    }

    /// Only looks.
    pub(super) fn reads(&self) -> bool {
        self.acts.iter().any(|act| matches!(act, Act::Read(_) | Act::Map(_) | Act::Stat(_)))
            && !self.acts.iter().any(|act| matches!(act, Act::Write(_)))
    }
}

const fn row(name: &'static str, given: Given, acts: &'static [Act]) -> Row {
    Row { name, given, acts }
}

/// All of them.
pub(crate) const ROWS: &[Row] = &[
    row("touch", Nothing, &[Open(Own, O::New), Close]),
    row("touch-rdwr", Nothing, &[Open(Own, O::NewBoth), Close]),
    row("open-rdonly", File(0), &[Open(Own, O::Read), Close]),
    row("open-wronly", File(0), &[Open(Own, O::Write), Close]),
    row("open-rdwr", File(0), &[Open(Own, O::Both), Close]),
    row("write", Nothing, &[Open(Own, O::New), Write(SMALL), Close]),
    row("write-rdwr", Nothing, &[Open(Own, O::NewBoth), Write(SMALL), Close]),
    row("write-rdwr-seek", Nothing, &[Open(Own, O::NewBoth), Seek, Write(SMALL), Close]),
    row("write-stdio", Nothing, &[Open(Own, O::NewCut), Fstat, Write(SMALL), Close]),
    row("write-lines", Nothing, &[Open(Own, O::New), Write(LINE), Write(LINE), Write(LINE), Close]),
    row("write-fsync", Nothing, &[Open(Own, O::New), Write(SMALL), Fsync, Close]),
    row("write-64K", Nothing, &[Open(Own, O::New), Write(LARGE), Close]),
    row("read", File(SMALL), &[Open(Own, O::Read), Read(SMALL), Close]),
    row("read-rdwr", File(SMALL), &[Open(Own, O::Both), Read(SMALL), Close]),
    row("read-rdwr-seek", File(SMALL), &[Open(Own, O::Both), Seek, Read(SMALL), Close]),
    row("read-stdio", File(SMALL), &[Open(Own, O::Read), Fstat, Read(SMALL), ReadEnd, Close]),
    row("read-64K", File(LARGE), &[Open(Own, O::Read), Read(LARGE), ReadEnd, Close]),
    row("read-mmap", File(SMALL), &[Open(Own, O::Read), Map(SMALL), Close]),
    row("overwrite", File(SMALL), &[Open(Own, O::Write), Write(SMALL), Close]),
    row("update", File(SMALL), &[Open(Own, O::Both), Read(LINE), Seek, Write(LINE), Close]),
    row("truncate-write", File(SMALL), &[Open(Own, O::Cut), Write(SMALL), Close]),
    row("append", File(SMALL), &[Open(Own, O::Append), Write(LINE), Close]),
    row("append-new", Nothing, &[Open(Own, O::NewAppend), Write(LINE), Close]),
    row("extract", Nothing, &[Open(Own, O::NewExclusive), Write(SMALL), Futimens, Fchmod, Close]),
    row("replace", File(SMALL), &[Open(Other, O::New), Write(SMALL), Close, Rename(Other, Own)]),
    row(
        "replace-fsync",
        File(SMALL),
        &[Open(Other, O::New), Write(SMALL), Fsync, Close, Rename(Other, Own)],
    ),
    row("stat", File(SMALL), &[Stat(Own)]),
    row("stat-symlink", Linked(SMALL), &[StatFollowing(Other)]),
    row("stat-missing", Nothing, &[StatMissing(Own)]),
    row("access", File(SMALL), &[Access(Own)]),
    row("utimens", File(SMALL), &[Utimens(Own)]),
    row("chmod", File(SMALL), &[Chmod(Own)]),
    row("truncate", File(SMALL), &[Truncate(Own)]),
    row("rename", File(SMALL), &[Rename(Own, Other)]),
    row("link", File(SMALL), &[Link]),
    row("symlink", Nothing, &[Symlink]),
    row("readlink", Linked(SMALL), &[Readlink]),
    row("unlink", File(SMALL), &[Unlink(Own)]),
    row("mkdir", Nothing, &[Mkdir(Own)]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_row_has_a_name_of_its_own_and_ends_without_a_descriptor() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        for row in ROWS {
            let mut open = false;
            for act in row.acts {
                match act {
                    Open(..) => assert!(!std::mem::replace(&mut open, true), "{}", row.name),
                    Close => assert!(std::mem::replace(&mut open, false), "{}", row.name),
                    Write(bytes) | Read(bytes) | Map(bytes) => {
                        assert!(open && *bytes <= row.bytes())
                    }
                    ReadEnd | Seek | Fstat | Fsync | Futimens | Fchmod => {
                        assert!(open, "{}", row.name);
                    }
                    _ => {}
                }
            }
            assert!(!open, "{}: a descriptor is left", row.name);
        }
    }
}

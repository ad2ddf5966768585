//! Ways that were gone before.
//!
//! A program names the files of a directory by one path after the other, and all of them begin
//! alike. What they begin with leads to the same directory until a name of some directory comes to
//! lead elsewhere: that is seldom, and whoever writes the records counts it
//! ([`crate::page::MOVES_AT`], before the transaction in which it happens is over). So where a way
//! led is remembered with the count, and holds as long as that is the same.
//!
//! Only ways of directories are remembered: whatever leads through a link, or nowhere, is walked.

use mayfly_types::FileId;

/// What a path begins with, up to its last slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way<'a> {
    /// So often names of directories had come to lead elsewhere.
    pub moves: u64,
    /// Where a relative path begins.
    pub start: FileId,
    /// The path to the directory, with the slash.
    pub path: &'a [u8],
}

impl<'a> Way<'a> {
    /// The way to the last name of `path`, and that name, if there are directories on it.
    pub(crate) fn of(
        start: FileId,
        path: &'a [u8],
        moves: impl FnOnce() -> Option<u64>,
    ) -> Option<(Way<'a>, &'a [u8])> {
        let slash = path.iter().rposition(|byte| *byte == b'/')?;
        let (way, name) = path.split_at(slash + 1);
        let is_name = !matches!(name, b"" | b"." | b"..");
        let has_directories = way.iter().any(|byte| *byte != b'/');
        if !is_name || !has_directories {
            return None;
        }
        // A relative path's beginning counts only there.
        let start = if way[0] == b'/' { FileId::ROOT } else { start };
        Some((Way { moves: moves()?, start, path: way }, name))
    }
}

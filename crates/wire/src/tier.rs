//! Work for a *tier keeper*: what the daemon has done in the directory that an origin is.
//!
//! A daemon touches nothing outside its instance. A keeper asks it for work ([`TierWork`]), does
//! it, and says what came of it ([`TierDone`]). Names outside are paths from the origin's own
//! directory, without a slash at either end; the directory itself is the empty path.
#![allow(missing_docs, reason = "the fields are the words of the protocol")]

use mayfly_types::{Attr, Errno, FileId, FileKind, Timestamp};

use crate::{Reader, Wire, Writer, wire_struct};

/// Entries of a directory; nothing but [`TierDone::same`] when it is as it is known.
pub const TIER_LOOK: u32 = 1;
/// Attributes of a name.
pub const TIER_CHECK: u32 = 2;
/// Bytes of a file: to the object `other`, or in the answer when `other` is empty.
pub const TIER_FETCH: u32 = 3;
/// Bytes of a file go back: from the object `other`, or `bytes` when that is empty. `which` are
/// [`TIER_UNSETTLED`], [`TIER_UNSURE`], [`TIER_INCOMPLETE`] and [`TIER_PARTLY`].
pub const TIER_FLUSH: u32 = 4;
/// A regular file that is new.
pub const TIER_CREATE: u32 = 5;
/// A new directory.
pub const TIER_MAKE_DIRECTORY: u32 = 6;
/// A new symbolic link to `other`.
pub const TIER_SYMLINK: u32 = 7;
/// Removes a name that is no directory.
pub const TIER_REMOVE: u32 = 8;
/// Removes a directory.
pub const TIER_REMOVE_DIRECTORY: u32 = 9;
/// Moves a name to `other`; `which` are the kernel's `RENAME_*`.
pub const TIER_RENAME: u32 = 10;
/// Changes attributes; `which` are `SET_*`.
pub const TIER_SET_ATTR: u32 = 11;
/// Of a flush: the object knows length and time.
pub const TIER_UNSETTLED: u32 = 1;
/// Of a flush: the instance itself may have changed the attributes of the master copy, or taken it
/// away. So it is the known one with another ctime, too, and if it is not there.
pub const TIER_UNSURE: u32 = 2;
/// Of a flush: not all bytes of the object are the file's, and the others are nowhere any more. It
/// goes beside the master copy, or nowhere when that is the known one all the same (ESTALE).
pub const TIER_INCOMPLETE: u32 = 4;
/// Of a flush: the object has only a part of the file ([`TierParts`]), and the master copy has the
/// rest. If that is another one than is known: ESTALE.
pub const TIER_PARTLY: u32 = 8;

/// Bytes of a file from `start` to `end`, to the object `other`, which is made with `which` 1. If
/// the master copy is another one than is known, nothing is written.
pub const TIER_CHUNKS: u32 = 12;

/// All extended attributes of a file or a directory that programs may set: [`TierXattr`]s.
pub const TIER_XATTRS: u32 = 13;
/// Gives the extended attribute `other` the value `bytes`; `which` are `XATTR_*`.
pub const TIER_SET_XATTR: u32 = 14;
/// Takes the extended attribute `other` away.
pub const TIER_REMOVE_XATTR: u32 = 15;

wire_struct! {
    /// See [`crate::Op::TierWork`]. Such a request has no deadline.
    TierWork {}
}
wire_struct! {
    /// Something to do.
    TierItem<'a> {
        /// Which it is, for [`TierDone`].
        number: u64,
        /// Number of the origin.
        source: u32,
        /// `TIER_*`.
        what: u32,
        /// It may have been done before: what it makes may be there, what it removes may be gone.
        again: bool,
        /// The file that it is about, for names of its own.
        file: FileId,
        path: &'a [u8],
        other: &'a [u8],
        bytes: &'a [u8],
        which: u32,
        start: u64,
        end: u64,
        /// What is known of the master copy; of kind [`FileKind::Fifo`] when nothing is.
        known: Attr,
        /// What it is to have.
        attr: Attr,
    }
}

/// What an object has of a file that is flushed with [`TIER_PARTLY`]: of the chunks of `start`
/// bytes each that begin before `end`, those whose bits are set in `bytes`, and all that is behind
/// `end`.
#[derive(Debug, Clone, Copy)]
pub struct TierParts<'a> {
    chunk_bytes: u64,
    end: u64,
    here: &'a [u8],
}

impl<'a> TierParts<'a> {
    /// Those of an item; none if the object has all of the file.
    ///
    /// # Errors
    /// EINVAL if there is not a bit for each chunk.
    pub fn of(item: &TierItem<'a>) -> Result<Option<TierParts<'a>>, Errno> {
        if item.which & TIER_PARTLY == 0 {
            return Ok(None);
        }
        TierParts::new((item.start, item.end), item.bytes).map(Some)
    }

    /// The same by its parts.
    ///
    /// # Errors
    /// EINVAL if there is not a bit for each chunk.
    pub fn new((chunk_bytes, end): (u64, u64), here: &'a [u8]) -> Result<TierParts<'a>, Errno> {
        if chunk_bytes == 0 || end.div_ceil(chunk_bytes) > here.len() as u64 * 8 {
            return Err(Errno::EINVAL);
        }
        Ok(TierParts { chunk_bytes, end, here })
    }

    fn has(&self, chunk: u64) -> bool {
        let byte = self.here.get((chunk / 8) as usize);
        byte.is_some_and(|byte| byte >> (chunk % 8) & 1 != 0)
    }

    /// Whether the object has the byte at this offset, and where that ends to be so.
    #[must_use]
    pub fn run_at(&self, offset: u64) -> (bool, u64) {
        if offset >= self.end {
            return (true, u64::MAX);
        }
        let first = offset / self.chunk_bytes;
        let is_here = self.has(first);
        let chunks = self.end.div_ceil(self.chunk_bytes);
        match (first..chunks).find(|chunk| self.has(*chunk) != is_here) {
            Some(other) => (is_here, other * self.chunk_bytes),
            None if is_here => (true, u64::MAX),
            None => (false, self.end),
        }
    }
}

wire_struct! {
    /// See [`crate::Op::TierDone`]. What does not fit goes before it, in pieces with `more`.
    TierDone<'a> {
        number: u64,
        /// 0, or the errno. [`TIER_CONFLICT`] of a flush: the origin had changed, and `bytes` is
        /// the name under which the copy is beside it.
        status: u32,
        more: bool,
        /// What was known of the master copy was so; of a flush: the object may be mapped; of a
        /// directory to be made: it was there already.
        same: bool,
        /// The master copy as it is now; of kind [`FileKind::Fifo`] when there is none.
        attr: Attr,
        bytes: &'a [u8],
    }
}
/// See [`TierDone::status`].
pub const TIER_CONFLICT: u32 = 0x1_0000;

wire_struct! {
    /// A name of a directory that was looked at.
    TierEntry<'a> { name: &'a [u8], attr: Attr, target: &'a [u8], }
}

wire_struct! {
    /// An extended attribute.
    TierXattr<'a> { name: &'a [u8], value: &'a [u8], }
}

/// How things are.
pub const TIER_STATUS: u32 = 0;
/// What is dirty goes back.
pub const TIER_FLUSH_NOW: u32 = 1;
/// The same, before the end: nobody uses the files any more.
pub const TIER_FLUSH_LAST: u32 = 2;
/// Bytes go that can be fetched again; [`TierTold::flushed`] says of how many files.
pub const TIER_EVICT: u32 = 3;
/// The bytes of the file, or the names of the directory, are to be here. When nobody reads them,
/// other work goes first.
pub const TIER_PREFETCH: u32 = 4;
/// The same, and they stay.
pub const TIER_PIN: u32 = 5;
/// What is at or below the path may go again; [`TierTold::flushed`] says of how many files.
pub const TIER_UNPIN: u32 = 6;
/// The directory shows its origin no more. Not done when [`TierTold::left`] things of it are under
/// way or dirty, or [`TierTold::failed`] of its files are open.
pub const TIER_UNLINK: u32 = 7;
/// Whether that could be done.
pub const TIER_MAY_UNLINK: u32 = 9;
/// What was not changed for the time that was chosen goes back. Answered when it has.
pub const TIER_FLUSH_DUE: u32 = 8;

wire_struct! {
    /// See [`crate::Op::TierAsk`]. `shard`: which of all, as in [`crate::Inspect`]; the first one
    /// of a node has all that the node has. `path` from the root of the instance; empty:
    /// everything.
    TierAsk<'a> { what: u32, shard: u32, path: &'a [u8], }
}
wire_struct! {
    /// What was done, and how things are, at one shard.
    TierTold<'a> {
        flushed: u64,
        failed: u64,
        conflicts: u64,
        /// To be asked for again: it is dirty and could not be flushed just now. Of a prefetch: 1
        /// for what has no bytes outside.
        left: u64,
        /// Of a prefetch: how long the file is. [`TierTold::flushed`] is 1 if it was fetched now.
        bytes: u64,
        /// Of a prefetch: it is a directory.
        is_directory: bool,
        /// [`TierSource`]s, packed.
        sources: &'a [u8],
        /// [`TierNote`]s, packed, the latest ones.
        notes: &'a [u8],
    }
}
wire_struct! {
    /// An origin.
    TierSource {
        source: u32,
        files: u64,
        cached_bytes: u64,
        dirty_files: u64,
        dirty_bytes: u64,
        fetching: u64,
        conflicts: u64,
        errors: u64,
        /// Changes of names that are made here and not there yet.
        names_waiting: u64,
        /// Those of which one could not be made, or waits for one that could not.
        names_failed: u64,
        pinned_files: u64,
        pinned_bytes: u64,
        counts: TierCounts,
    }
}
wire_struct! {
    /// What was done of an origin since the daemon began.
    TierCounts {
        /// Reads that the daemon was asked for, of what was here.
        reads_here: u64,
        read_here_bytes: u64,
        /// Those that had to wait for the origin.
        reads_outside: u64,
        read_outside_bytes: u64,
        fetches: u64,
        fetched_bytes: u64,
        flushes: u64,
        flushed_bytes: u64,
        evictions: u64,
        evicted_bytes: u64,
    }
}
wire_struct! {
    /// A conflict, with the name of the copy, or an error.
    TierNote<'a> { source: u32, errno: u32, path: &'a [u8], copy: &'a [u8], }
}

impl TierCounts {
    /// Nothing was done.
    pub const NONE: TierCounts = TierCounts {
        reads_here: 0,
        read_here_bytes: 0,
        reads_outside: 0,
        read_outside_bytes: 0,
        fetches: 0,
        fetched_bytes: 0,
        flushes: 0,
        flushed_bytes: 0,
        evictions: 0,
        evicted_bytes: 0,
    };
}

/// Attributes of nothing.
pub const NO_ATTR: Attr = Attr {
    id: FileId(0),
    kind: FileKind::Fifo,
    mode: 0,
    links: 0,
    uid: 0,
    gid: 0,
    size_bytes: 0,
    blocks: 0,
    atime: Timestamp { seconds: 0, nanoseconds: 0 },
    mtime: Timestamp { seconds: 0, nanoseconds: 0 },
    ctime: Timestamp { seconds: 0, nanoseconds: 0 },
    btime: Timestamp { seconds: 0, nanoseconds: 0 },
};

/// Values that are packed one behind the other; `None` for what makes no sense.
#[must_use]
pub fn unpacked<'a, T: Wire<'a>>(packed: &'a [u8]) -> Option<UnpackedIter<'a, T>> {
    let mut from = Reader::new(packed);
    while !from.is_empty() {
        T::decode(&mut from).ok()?;
    }
    Some(UnpackedIter { from: Reader::new(packed), of: core::marker::PhantomData })
}

/// See [`unpacked`].
#[derive(Debug)]
pub struct UnpackedIter<'a, T> {
    from: Reader<'a>,
    of: core::marker::PhantomData<T>,
}

impl<'a, T: Wire<'a>> Iterator for UnpackedIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.from.is_empty() { None } else { T::decode(&mut self.from).ok() }
    }
}

/// Whether an errno of a [`TierDone`] is one.
#[must_use]
pub fn errno_of(status: u32) -> Errno {
    i32::try_from(status).ok().and_then(Errno::from_raw).unwrap_or(Errno::EIO)
}

/// Writes the value at the end of `buffer`'s used part; how much is used then, or nothing when it
/// does not fit.
pub fn pack<'a, T: Wire<'a>>(value: &T, buffer: &mut [u8], used: usize) -> Option<usize> {
    let mut to = Writer::new(buffer.get_mut(used..)?);
    value.encode(&mut to).ok()?;
    Some(used + to.used())
}

//! The bytes of the FUSE protocol (`linux/fuse.h`), as far as they are spoken here.
//!
//! All numbers are in the machine's byte order. A request is a header, a structure that depends on
//! its operation, and names that end in zeros or data; the answer is a header and a structure.

use mayfly_types::{Attr, Errno, Timestamp};

/// Data in one write request, bytes.
pub(crate) const WRITE_BYTES_MAX: usize = 1 << 20;
/// Data in one answer to a read, bytes: what fits into a pipe ([`super::spliced`]).
pub(crate) const READ_BYTES_MAX: usize = 1 << 19;
/// Major version of the protocol; there has been no other for twenty years.
pub(crate) const MAJOR: u32 = 7;
/// Newest minor version of which everything that is sent unasked is understood.
pub(crate) const MINOR: u32 = 40;
/// Oldest minor version that is spoken: Linux 5.1.
pub(crate) const MINOR_MIN: u32 = 30;
/// Length of a request's header.
pub(crate) const IN_HEADER_BYTES: usize = 40;
/// Length of an answer's header.
pub(crate) const OUT_HEADER_BYTES: usize = 16;
/// Unit in which sizes of files are reported as preferred for transfers.
const BLOCK_BYTES: u32 = 65_536;

macro_rules! opcodes {
    ($($name:ident = $number:literal,)*) => {
        /// Operations that are served. Any other is answered with ENOSYS, after which the kernel
        /// does without it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Opcode { $($name,)* }

        impl Opcode {
            pub(crate) fn of(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    Lookup = 1, Forget = 2, GetAttr = 3, SetAttr = 4, ReadLink = 5, Symlink = 6, MakeNode = 8,
    MakeDirectory = 9, Unlink = 10, RemoveDirectory = 11, Rename = 12, Link = 13, Open = 14,
    Read = 15, Write = 16, StatFs = 17, Release = 18, Sync = 20, SetXattr = 21, GetXattr = 22,
    ListXattr = 23, RemoveXattr = 24, Flush = 25, Init = 26,
    OpenDirectory = 27, ReadDirectory = 28, ReleaseDirectory = 29, SyncDirectory = 30,
    TestLock = 31, Lock = 32, LockWaiting = 33, Access = 34, Create = 35, Interrupt = 36,
    Destroy = 38, Control = 39, BatchForget = 42, Allocate = 43, ReadDirectoryPlus = 44,
    Rename2 = 45, Seek = 46, CopyRange = 47,
    Temporary = 51, StatX = 52,
}

/// Flags of the first request: the kernel offers them, and some are taken.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// Bits of the field `valid` of a change of attributes.
pub(crate) mod valid {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const HANDLE: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SET_ID: u32 = 1 << 11;
}

/// The fields that `statx` fills in here.
const STATX_BASIC_AND_BIRTH: u32 = 0xfff;

/// A file's data go past the page cache.
pub(crate) const OPEN_DIRECT: u32 = 1;
/// The pages that the page cache has of a file are still right.
pub(crate) const OPEN_KEEP_CACHE: u32 = 1 << 1;
/// Writes within a file's length need not queue.
pub(crate) const OPEN_PARALLEL_WRITES: u32 = 1 << 6;
/// A notice: the kernel has to forget what it knows of a node.
pub(super) const NOTIFY_INVALID_NODE: i32 = 2;
/// A notice: the kernel has to forget a name.
pub(super) const NOTIFY_INVALID_ENTRY: i32 = 3;
/// In such a notice: it has to ask again. What is mounted below stays, and who works there.
pub(super) const EXPIRE_ONLY: u32 = 1;
/// Oldest minor version whose kernel understands that: Linux 6.2.
pub(crate) const MINOR_EXPIRES: u32 = 38;
/// A notice: bytes for the page cache.
pub(super) const NOTIFY_STORE: i32 = 4;
/// A read names who reads: it is a call's. One without is for the page cache.
pub(crate) const READ_HAS_OWNER: u32 = 1 << 1;
/// A write is of pages of a mapping.
pub(crate) const WRITE_OF_PAGES: u32 = 1;
/// A lock is flock's.
pub(crate) const LOCK_IS_FLOCK: u32 = 1;

/// Who asks for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) thread: u32,
}

impl Header {
    /// The header of a request, and what follows it.
    pub(crate) fn split(request: &[u8]) -> Result<(Header, Fields<'_>), Errno> {
        let mut from = Fields(request);
        let _bytes = from.u32()?;
        let header = Header {
            opcode: from.u32()?,
            unique: from.u64()?,
            node: from.u64()?,
            uid: from.u32()?,
            gid: from.u32()?,
            thread: from.u32()?,
        };
        from.skip(4)?;
        Ok((header, from))
    }
}

/// The fields of a request, from front to back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Errno> {
        let (now, later) = self.0.split_at_checked(bytes).ok_or(Errno::EINVAL)?;
        self.0 = later;
        Ok(now)
    }

    pub(crate) fn skip(&mut self, bytes: usize) -> Result<(), Errno> {
        self.take(bytes).map(drop)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Errno> {
        let bytes = self.take(4)?.try_into().map_err(|_| Errno::EINVAL)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Errno> {
        let bytes = self.take(8)?.try_into().map_err(|_| Errno::EINVAL)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// A string up to its zero.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
        let name = self.take(end)?;
        self.skip(1)?;
        Ok(name)
    }

    /// That many bytes of data.
    pub(crate) fn data(&mut self, bytes: u32) -> Result<&'a [u8], Errno> {
        self.take(bytes as usize)
    }
}

/// The structure that an answer consists of.
#[derive(Debug, Default)]
pub(crate) struct Body {
    bytes: Vec<u8>,
    /// How long the kernel may believe names and attributes, seconds.
    valid_s: u64,
}

impl Body {
    /// An empty one, whose names and attributes will be valid for so many seconds.
    pub(crate) fn valid_for(valid_s: u64) -> Body {
        Body { bytes: Vec::new(), valid_s }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_ne_bytes())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn zeros(&mut self, count: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    /// `struct fuse_attr`.
    fn attr(&mut self, attr: &Attr) -> &mut Self {
        // The kernel takes seconds as a signed number.
        let seconds = |time: Timestamp| time.seconds as u64;
        self.u64(attr.id.0).u64(attr.size_bytes).u64(attr.blocks);
        self.u64(seconds(attr.atime)).u64(seconds(attr.mtime)).u64(seconds(attr.ctime));
        self.u32(attr.atime.nanoseconds).u32(attr.mtime.nanoseconds).u32(attr.ctime.nanoseconds);
        self.u32(attr.kind.mode_bits() | attr.mode & 0o7777).u32(attr.links);
        self.u32(attr.uid).u32(attr.gid).u32(0).u32(BLOCK_BYTES).u32(0)
    }

    /// `struct fuse_attr_out`.
    pub(crate) fn attributes(&mut self, attr: &Attr) -> &mut Self {
        self.u64(self.valid_s).zeros(8).attr(attr)
    }

    /// `struct fuse_statx_out`: the same with the time of birth. The kernel puts the device in.
    pub(crate) fn extended_attributes(&mut self, attr: &Attr) -> &mut Self {
        let mode = attr.kind.mode_bits() | attr.mode & 0o7777;
        self.u64(self.valid_s).zeros(24).u32(STATX_BASIC_AND_BIRTH).u32(BLOCK_BYTES).zeros(8);
        // The type and the mode have 16 bits here.
        self.u32(attr.links).u32(attr.uid).u32(attr.gid).u32(mode);
        self.u64(attr.id.0).u64(attr.size_bytes).u64(attr.blocks).zeros(8);
        for time in [attr.atime, attr.btime, attr.ctime, attr.mtime] {
            self.u64(time.seconds as u64).u32(time.nanoseconds).u32(0);
        }
        self.zeros(16 + 14 * 8)
    }

    /// `struct fuse_entry_out`.
    pub(crate) fn entry(&mut self, attr: &Attr) -> &mut Self {
        let valid_s = self.valid_s;
        self.u64(attr.id.0).zeros(8).u64(valid_s).u64(valid_s).zeros(8).attr(attr)
    }

    /// The same of a node whose name and attributes are valid for no time.
    pub(crate) fn passing_entry(&mut self, attr: &Attr) -> &mut Self {
        self.u64(attr.id.0).zeros(32).attr(attr)
    }

    /// `struct fuse_open_out`.
    pub(crate) fn opened(&mut self, handle: u64, flags: u32) -> &mut Self {
        self.u64(handle).u32(flags).u32(0)
    }

    /// `struct fuse_dirent`, if it fits into `room` bytes of the whole body.
    pub(crate) fn dirent(&mut self, room: usize, entry: &mayfly_wire::listing::Entry<'_>) -> bool {
        let bytes = dirent_bytes(entry.name);
        if self.bytes.len() + bytes > room {
            return false;
        }
        self.u64(entry.id.0).u64(entry.next_cookie);
        self.u32(entry.name.len() as u32).u32(u32::from(entry.kind.dirent_type()));
        self.raw(entry.name).zeros(bytes - 24 - entry.name.len());
        true
    }

    /// Would `struct fuse_direntplus` fit into `room` bytes of the whole body?
    pub(crate) fn has_room_for(&self, room: usize, name: &[u8]) -> bool {
        self.bytes.len() + ENTRY_BYTES + dirent_bytes(name) <= room
    }

    /// The first part of `struct fuse_direntplus`, for a name that comes without attributes.
    pub(crate) fn no_entry(&mut self) -> &mut Self {
        self.zeros(ENTRY_BYTES)
    }
}

/// Length of `struct fuse_entry_out`.
const ENTRY_BYTES: usize = 128;

fn dirent_bytes(name: &[u8]) -> usize {
    (24 + name.len()).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_types::{FileId, FileKind};

    #[test]
    fn structures_are_as_long_as_the_kernels() {
        let attr = Attr {
            id: FileId(7),
            kind: FileKind::Regular,
            mode: 0o640,
            links: 1,
            uid: 1,
            gid: 2,
            size_bytes: 3,
            blocks: 8,
            atime: Timestamp::default(),
            mtime: Timestamp { seconds: -1, nanoseconds: 5 },
            ctime: Timestamp::default(),
            btime: Timestamp::default(),
        };
        let length = |fill: &dyn Fn(&mut Body)| {
            let mut body = Body::default();
            fill(&mut body);
            body.bytes().len()
        };
        assert_eq!(
            length(&|body| {
                body.attributes(&attr);
            }),
            104
        );
        assert_eq!(
            length(&|body| {
                body.extended_attributes(&attr);
            }),
            288
        );
        assert_eq!(
            length(&|body| {
                body.entry(&attr);
            }),
            ENTRY_BYTES
        );
        assert_eq!(
            length(&|body| {
                body.opened(1, 0);
            }),
            16
        );
    }

    #[test]
    fn a_request_that_ends_too_soon_is_invalid() {
        assert!(Header::split(&[0; IN_HEADER_BYTES - 1]).is_err());
        let (_, mut rest) = Header::split(&[0; IN_HEADER_BYTES + 5]).expect("a header");
        assert_eq!(rest.u32(), Ok(0));
        assert_eq!(rest.u32(), Err(Errno::EINVAL));
        assert_eq!(Fields(b"name").name(), Err(Errno::EINVAL));
        let mut two = Fields(b"from\0to\0");
        assert_eq!((two.name(), two.name()), (Ok(&b"from"[..]), Ok(&b"to"[..])));
    }

    #[test]
    fn a_name_goes_into_a_listing_whole_or_not_at_all() {
        let entry = mayfly_wire::listing::Entry {
            id: FileId(9),
            kind: FileKind::Directory,
            next_cookie: 5,
            name: b"new\nline\xff",
        };
        let mut body = Body::default();
        assert!(body.dirent(64, &entry));
        assert_eq!(body.bytes().len(), 40);
        assert_eq!(&body.bytes()[24..33], entry.name);
        assert!(!body.dirent(64, &entry));
        assert_eq!(body.bytes().len(), 40);
    }
}

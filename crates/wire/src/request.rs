//! Bodies of requests and replies.
//!
//! [`Operation`] ties a request to its reply, so that a caller cannot decode the wrong one.
#![allow(missing_docs, reason = "the fields are the words of the protocol")]

use mayfly_types::{Attr, FileId, OpenRef, Timestamp};

pub use crate::inspection::{INSPECT_OBJECTS, INSPECT_OPENS, INSPECT_RECORDS};
pub use crate::inspection::{Inspect, Inspected, RemoveStray};
pub use crate::notices::{Lease, Leased, Map, Notices, Tell, Watch};
pub use crate::tier::{TierAsk, TierDone, TierItem, TierTold, TierWork};
use crate::{Full, Malformed, Op, Reader, Wire, Writer, wire_struct};

/// Status of a reply that is no error: the walk left the instance, the body is an [`Escaped`].
pub const STATUS_ESCAPED: u32 = 0x1_0000;

/// A request and the reply that belongs to it.
pub trait Operation<'a>: Wire<'a> {
    /// Its number.
    const OP: Op;
    /// Body of a reply with status 0.
    type Reply<'r>: Wire<'r>;
}

macro_rules! operations {
    ($($request:ident $(<$life:lifetime>)? => $reply:ty, $op:ident;)*) => {
        $(operations!(@one $request $(<$life>)? => $reply, $op);)*
    };
    (@one $request:ident <$life:lifetime> => $reply:ty, $op:ident) => {
        impl<$life> Operation<$life> for $request<$life> {
            const OP: Op = Op::$op;
            type Reply<'r> = $reply;
        }
    };
    (@one $request:ident => $reply:ty, $op:ident) => {
        impl<'a> Operation<'a> for $request {
            const OP: Op = Op::$op;
            type Reply<'r> = $reply;
        }
    };
}

/// Follow a symbolic link in the last component.
pub const WALK_FOLLOW: u32 = 1;
/// The path names the directory `start` itself when it is empty.
pub const WALK_EMPTY: u32 = 2;

wire_struct! {
    /// A path and where it starts. Leading slashes mean the root of the *instance*: the caller has
    /// cut off the mount point. A walk that leaves the instance (an absolute symlink target outside
    /// the mount point, `..` at the root) is answered with [`STATUS_ESCAPED`].
    Walk<'a> {
        /// Directory that a relative path starts from.
        start: FileId,
        /// `WALK_*`.
        flags: u32,
        /// The path, without a terminating zero; trailing slashes count.
        path: &'a [u8],
    }
}

/// What an operation is about: a path, or an open file description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// By path.
    Path(Walk<'a>),
    /// By open file description.
    Open(OpenRef),
    /// By identity: a directory, such as the working directory.
    Directory(FileId),
}

impl<'a> Wire<'a> for Target<'a> {
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
        match self {
            Target::Path(walk) => {
                0_u8.encode(to)?;
                walk.encode(to)
            }
            Target::Open(open) => {
                1_u8.encode(to)?;
                open.encode(to)
            }
            Target::Directory(id) => {
                2_u8.encode(to)?;
                id.encode(to)
            }
        }
    }

    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        match u8::decode(from)? {
            0 => Walk::decode(from).map(Target::Path),
            1 => OpenRef::decode(from).map(Target::Open),
            2 => FileId::decode(from).map(Target::Directory),
            _ => Err(Malformed),
        }
    }
}

wire_struct! {
    /// Where a walk went that left the instance: an absolute path of the host, links resolved so
    /// far.
    Escaped<'a> { path: &'a [u8], }
}

wire_struct! { /// See [`Op::Ping`].
Ping {} }
wire_struct! { /// See [`Op::Stat`].
Stat<'a> { target: Target<'a>, } }
wire_struct! {
    /// See [`Op::Open`]. `flags` are the kernel's `O_*`; `mode` has the umask taken off already.
    Open<'a> { walk: Walk<'a>, flags: u32, mode: u32, uid: u32, gid: u32, }
}
wire_struct! {
    /// An open file description was made; its entry in the node's table is filled in.
    Opened {
        open: OpenRef,
        /// Of a directory without what its entries at other shards add to links and times.
        attr: Attr,
        /// True when this call created the file.
        created: bool,
        /// Mounts may keep pages of it ([`Op::Map`]).
        mapped: bool,
    }
}
wire_struct! {
    /// What a small file held when it was opened.
    Content<'a> {
        /// Value of the entry's content version to which it belongs.
        version: u32,
        data: Data<'a>,
    }
}

/// The reply to an [`Open`]: [`Opened`], and behind it a [`Content`] where the daemon thinks that
/// it will be asked for and it is at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenReply<'a> {
    /// What was made.
    pub opened: Opened,
    /// The whole content.
    pub content: Option<Content<'a>>,
}

impl<'a> Wire<'a> for OpenReply<'a> {
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
        self.opened.encode(to)?;
        self.content.map_or(Ok(()), |content| content.encode(to))
    }

    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let opened = Opened::decode(from)?;
        let content = if from.is_empty() { None } else { Some(Content::decode(from)?) };
        Ok(OpenReply { opened, content })
    }
}

wire_struct! { /// See [`Op::Close`].
Close { open: OpenRef, } }
wire_struct! { /// See [`Op::Flush`]. Fails with what a write failed with after its answer.
Flush { open: OpenRef, } }
wire_struct! { /// See [`Op::MakeDirectory`].
MakeDirectory<'a> { walk: Walk<'a>, mode: u32, uid: u32, gid: u32, } }
wire_struct! {
    /// See [`Op::Unlink`]; with `directory`, as rmdir.
    Unlink<'a> { walk: Walk<'a>, directory: bool, }
}
wire_struct! {
    /// See [`Op::Rename`]. `flags` are the kernel's `RENAME_*`.
    Rename<'a> { from: Walk<'a>, to: Walk<'a>, flags: u32, }
}
wire_struct! { /// See [`Op::Link`].
Link<'a> { from: Target<'a>, to: Walk<'a>, } }
wire_struct! { /// See [`Op::Symlink`].
Symlink<'a> { target: &'a [u8], at: Walk<'a>, uid: u32, gid: u32, } }
wire_struct! { /// See [`Op::ReadLink`].
ReadLink<'a> { target: Target<'a>, } }
wire_struct! { /// A byte string: the target of a link, a path, an extended attribute.
Text<'a> { bytes: &'a [u8], } }

/// Change the permission bits.
pub const SET_MODE: u32 = 1;
/// Change the owner.
pub const SET_UID: u32 = 2;
/// Change the group.
pub const SET_GID: u32 = 4;
/// Change the length.
pub const SET_SIZE: u32 = 8;
/// Change the access time.
pub const SET_ATIME: u32 = 16;
/// Change the modification time.
pub const SET_MTIME: u32 = 32;
/// The access time is the present, by the daemon's clock.
pub const SET_ATIME_NOW: u32 = 64;
/// The modification time is the present, by the daemon's clock.
pub const SET_MTIME_NOW: u32 = 128;

wire_struct! {
    /// See [`Op::SetAttr`]. `which` says which of the values count (`SET_*`).
    SetAttr<'a> {
        target: Target<'a>,
        which: u32,
        mode: u32,
        uid: u32,
        gid: u32,
        size_bytes: u64,
        atime: Timestamp,
        mtime: Timestamp,
    }
}
wire_struct! { /// See [`Op::Read`].
Read { open: OpenRef, offset: u64, count: u32, } }
wire_struct! {
    /// Bytes read: fewer than asked for only at the end of the file or at the transfer limit.
    Data<'a> {
        /// True when the file has an object that a [`Grant`] would hand out.
        object: bool,
        bytes: &'a [u8],
    }
}
wire_struct! {
    /// What stands in front of the bytes of a [`Data`], of which there are `count`.
    DataHead { object: bool, count: u32, }
}
wire_struct! {
    /// See [`Op::Write`]. With `append`, `offset` is ignored and the bytes go to the end.
    Write<'a> { open: OpenRef, offset: u64, append: bool, bytes: &'a [u8], }
}
wire_struct! {
    /// What stands in front of the bytes of a [`Write`], of which there are `count`.
    WriteHead { open: OpenRef, offset: u64, append: bool, count: u32, }
}
wire_struct! {
    /// Bytes written and where they end.
    Written {
        /// True when the file has an object that a [`Grant`] would hand out.
        object: bool,
        count: u32,
        end: u64,
    }
}

/// Leave to read the object.
pub const GRANT_READ: u32 = 1;
/// Leave to write within the allowance; the daemon raises the allowance to cover `end`.
pub const GRANT_WRITE: u32 = 2;
/// The caller needs an object even when the file would fit its record (mmap, exec).
pub const GRANT_OBJECT: u32 = 4;
/// The caller finds the chunks by itself that its node's part of a striped file has, and wants
/// leave for that part.
pub const GRANT_PART: u32 = 8;

wire_struct! {
    /// See [`Op::Grant`]. `end` is the offset after the last byte that the caller wants to write.
    Grant { open: OpenRef, want: u32, end: u64, }
}
wire_struct! {
    /// Leave was given. The object's path is relative to the object directory of the node
    /// (`docs/design/on-disk.md`); the allowance and the grant generation stand in the file's entry
    /// of the node's table (`docs/design/shm.md`). An empty path: no object yet, read and write
    /// through the daemon.
    Granted<'a> {
        object_path: &'a [u8],
        /// Value of the entry's grant generation to which this leave belongs.
        generation: u32,
        /// What the object is a part of.
        own: OwnPart,
    }
}
wire_struct! {
    /// A node's part of a striped file.
    OwnPart {
        /// Parts that there are; 0: the object is not a part, it has the whole file.
        width: u16,
        /// Which one is the node's own; one that is not below `width` when it has none.
        index: u16,
        /// Logarithm to base 2 of the chunk size in bytes.
        chunk_log2: u8,
        /// The chunks are dealt out by a hash.
        hashed: bool,
    }
}

impl OwnPart {
    /// Of what is not striped.
    pub const WHOLE: OwnPart = OwnPart { width: 0, index: 0, chunk_log2: 0, hashed: false };
}

wire_struct! {
    /// See [`Op::List`]. Cookie 0 starts from the beginning.
    List { open: OpenRef, cookie: u64, bytes_max: u32, }
}
wire_struct! {
    /// Entries ([`crate::listing::entries`]), none when the end was reached. `.` and `..` are
    /// included.
    Listing<'a> { entries: &'a [u8], }
}
wire_struct! {
    /// See [`Op::PathOf`]. ENOENT when it was removed, ENOTDIR for a file whose name is not known.
    PathOf { file: FileId, }
}
wire_struct! { /// See [`Op::StatFs`].
StatFs {} }
wire_struct! {
    /// Capacity and use.
    FsUse {
        capacity_bytes: u64,
        used_bytes: u64,
        /// Of the rest, what no bytes of files get.
        kept_bytes: u64,
        files: u64,
        files_max: u64,
        block_bytes: u32,
        /// Identity of the instance, for `f_fsid`.
        fsid: u64,
    }
}
wire_struct! {
    /// See [`Op::Sync`].
    Sync<'a> {
        /// What to sync; everything when `all`.
        target: Target<'a>,
        all: bool,
    }
}

/// Lock types, as `l_type` of `struct flock`.
pub const LOCK_READ: u32 = 0;
/// Exclusive.
pub const LOCK_WRITE: u32 = 1;
/// Give up.
pub const LOCK_UNLOCK: u32 = 2;

/// The lock belongs to the open file description and covers the file (flock).
pub const LOCK_FLOCK: u32 = 0;
/// The lock belongs to the process (fcntl F_SETLK).
pub const LOCK_POSIX: u32 = 1;
/// The lock belongs to the open file description and covers a range (fcntl F_OFD_SETLK).
pub const LOCK_OFD: u32 = 2;

wire_struct! {
    /// A byte range for a lock.
    LockRange {
        /// `LOCK_FLOCK`, `LOCK_POSIX` or `LOCK_OFD`.
        owner: u32,
        /// `LOCK_READ`, `LOCK_WRITE` or `LOCK_UNLOCK`.
        kind: u32,
        /// First byte.
        start: u64,
        /// Offset after the last byte; `u64::MAX` for "to the end, wherever that is".
        end: u64,
    }
}
wire_struct! {
    /// See [`Op::Lock`]. Without `wait` a conflict is EAGAIN. With it the reply comes when the lock
    /// is held, or with EINTR after a [`Cancel`], or with EDEADLK; such a request has no deadline.
    Lock { open: OpenRef, range: LockRange, wait: bool, }
}
wire_struct! { /// See [`Op::TestLock`].
TestLock { open: OpenRef, range: LockRange, } }
wire_struct! { /// See [`Op::MoveLock`]. EBUSY while there is another lock.
MoveLock { open: OpenRef, to: OpenRef, } }
wire_struct! {
    /// The lock that stands in the way, or `kind` = `LOCK_UNLOCK`.
    Conflict {
        range: LockRange,
        /// Process that holds it; -1 for an OFD lock.
        pid: i32,
    }
}
wire_struct! {
    /// See [`Op::Cancel`]: the request of this session that still waits is answered with EINTR.
    Cancel { request_id: u64, }
}
wire_struct! { /// See [`Op::Status`].
Status {} }
wire_struct! {
    /// Counters of the daemon.
    Counters {
        daemon_pid: u32,
        sessions: u32,
        open_files: u32,
        locks: u32,
        files: u64,
        directories: u64,
        orphans: u64,
        objects: u64,
        used_bytes: u64,
        capacity_bytes: u64,
        free_bytes: u64,
        requests: u64,
        transactions: u64,
        restarts: u32,
    }
}

/// The extended attribute must not be there yet.
pub const XATTR_CREATE: u32 = 1;
/// The extended attribute must be there.
pub const XATTR_REPLACE: u32 = 2;
/// How many open file descriptions may write to a regular file, in decimal digits, as an extended
/// attribute that can only be read.
pub const WRITERS_XATTR: &str = "user.mayfly.writers";

wire_struct! {
    /// See [`Op::SetXattr`]. `flags` are `XATTR_*`.
    SetXattr<'a> { target: Target<'a>, name: &'a [u8], value: &'a [u8], flags: u32, }
}
wire_struct! { /// See [`Op::GetXattr`].
GetXattr<'a> { target: Target<'a>, name: &'a [u8], } }
wire_struct! { /// See [`Op::ListXattr`]: the names, each with a zero behind it.
ListXattr<'a> { target: Target<'a>, } }
wire_struct! { /// See [`Op::RemoveXattr`].
RemoveXattr<'a> { target: Target<'a>, name: &'a [u8], } }

/// The length stays.
pub const ALLOCATE_KEEP_SIZE: u32 = 1;
/// The range becomes a hole; only with [`ALLOCATE_KEEP_SIZE`].
pub const ALLOCATE_PUNCH_HOLE: u32 = 2;
/// The range becomes zeros.
pub const ALLOCATE_ZERO_RANGE: u32 = 16;

wire_struct! {
    /// See [`Op::Allocate`]. `mode` is that of the kernel's fallocate (`ALLOCATE_*`).
    Allocate { open: OpenRef, mode: u32, offset: u64, bytes: u64, }
}

/// A pipe ([`MakeSpecial`], [`Reached`]).
pub const SPECIAL_FIFO: u32 = 1;
/// A socket.
pub const SPECIAL_SOCKET: u32 = 2;

wire_struct! {
    /// See [`Op::MakeSpecial`]. `place` is the path of the kernel's own pipe or socket, which the
    /// caller makes; empty when it is what the kernel keeps for the name in a mount.
    MakeSpecial<'a> { walk: Walk<'a>, what: u32, mode: u32, uid: u32, gid: u32, place: &'a [u8], }
}
wire_struct! { /// See [`Op::Reach`]. EINVAL for any other type of file.
Reach<'a> { target: Target<'a>, } }
wire_struct! { /// See [`Op::Seek`]. ENXIO when there is none from `offset` on.
Seek { open: OpenRef, offset: u64, hole: bool, } }
wire_struct! { /// See [`Op::Seek`].
Sought { offset: u64, } }
wire_struct! { /// `SPECIAL_*`, and the place that was said when it was made.
Reached<'a> { what: u32, place: &'a [u8], } }

operations! {
    Ping => (), Ping;
    Stat<'a> => Attr, Stat;
    Open<'a> => OpenReply<'r>, Open;
    Close => (), Close;
    MakeDirectory<'a> => (), MakeDirectory;
    Unlink<'a> => (), Unlink;
    Rename<'a> => (), Rename;
    Link<'a> => (), Link;
    Symlink<'a> => (), Symlink;
    ReadLink<'a> => Text<'r>, ReadLink;
    SetAttr<'a> => Attr, SetAttr;
    Read => Data<'r>, Read;
    Write<'a> => Written, Write;
    Grant => Granted<'r>, Grant;
    List => Listing<'r>, List;
    PathOf => Text<'r>, PathOf;
    StatFs => FsUse, StatFs;
    Sync<'a> => (), Sync;
    Lock => (), Lock;
    TestLock => Conflict, TestLock;
    Cancel => (), Cancel;
    MoveLock => (), MoveLock;
    Status => Counters, Status;
    SetXattr<'a> => (), SetXattr;
    GetXattr<'a> => Text<'r>, GetXattr;
    ListXattr<'a> => Text<'r>, ListXattr;
    RemoveXattr<'a> => (), RemoveXattr;
    Allocate => (), Allocate;
    MakeSpecial<'a> => (), MakeSpecial;
    Reach<'a> => Reached<'r>, Reach;
    Map => (), Map;
    Tell => (), Tell;
    Watch => Notices<'r>, Watch;
    Inspect<'a> => Inspected<'r>, Inspect;
    RemoveStray => (), RemoveStray;
    Seek => Sought, Seek;
    Flush => (), Flush;
    TierWork => TierItem<'r>, TierWork;
    TierDone<'a> => (), TierDone;
    TierAsk<'a> => TierTold<'r>, TierAsk;
    Lease<'a> => Leased<'r>, Lease;
}

macro_rules! any_request {
    ($($op:ident $(<$life:lifetime>)?,)*) => {
        /// Any request, decoded by the operation in its header.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Request<'a> {
            $(#[doc = concat!("See [`Op::", stringify!($op), "`].")] $op($op $(<$life>)?),)*
        }

        impl<'a> Request<'a> {
            /// Decodes a body, which must be used up.
            ///
            /// # Errors
            /// [`Malformed`].
            pub fn decode(op: Op, body: &'a [u8]) -> Result<Self, Malformed> {
                let mut from = Reader::new(body);
                let request = match op { $(Op::$op => Request::$op(<$op>::decode(&mut from)?),)* };
                from.finish()?;
                Ok(request)
            }

            /// Its number.
            #[must_use]
            pub fn op(&self) -> Op {
                match self { $(Request::$op(_) => Op::$op,)* }
            }

            /// Writes the body.
            ///
            /// # Errors
            /// [`Full`].
            pub fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
                match self { $(Request::$op(request) => request.encode(to),)* }
            }
        }
    };
}

/// What a request is about, where that is no name.
enum About<'r, 'a> {
    Open(&'r mut OpenRef),
    Target(&'r mut Target<'a>),
    Else,
}

impl<'a> Request<'a> {
    fn about(&mut self) -> About<'_, 'a> {
        match self {
            Request::Close(Close { open })
            | Request::Flush(Flush { open })
            | Request::Read(Read { open, .. })
            | Request::Write(Write { open, .. })
            | Request::Allocate(Allocate { open, .. })
            | Request::Seek(Seek { open, .. })
            | Request::Grant(Grant { open, .. })
            | Request::List(List { open, .. })
            | Request::Lock(Lock { open, .. })
            | Request::TestLock(TestLock { open, .. })
            | Request::MoveLock(MoveLock { open, .. })
            | Request::Map(Map { open })
            | Request::Tell(Tell { open, .. }) => About::Open(open),
            Request::Stat(Stat { target })
            | Request::ReadLink(ReadLink { target })
            | Request::Reach(Reach { target })
            | Request::SetAttr(SetAttr { target, .. })
            | Request::SetXattr(SetXattr { target, .. })
            | Request::GetXattr(GetXattr { target, .. })
            | Request::ListXattr(ListXattr { target })
            | Request::RemoveXattr(RemoveXattr { target, .. })
            | Request::Sync(Sync { target, all: false })
            | Request::Link(Link { from: target, .. }) => About::Target(target),
            _ => About::Else,
        }
    }

    /// The open file description that the request is about.
    #[must_use]
    pub fn open(mut self) -> Option<OpenRef> {
        match self.about() {
            About::Open(open) | About::Target(Target::Open(open)) => Some(*open),
            About::Target(_) | About::Else => None,
        }
    }

    /// What the request is about, where that can be a path or something else.
    #[must_use]
    pub fn target(mut self) -> Option<Target<'a>> {
        match self.about() {
            About::Target(target) => Some(*target),
            About::Open(_) | About::Else => None,
        }
    }

    /// The same request about another open file description, if it is about one.
    #[must_use]
    pub fn with_open(mut self, other: OpenRef) -> Self {
        if let About::Open(open) | About::Target(Target::Open(open)) = self.about() {
            *open = other;
        }
        self
    }
}

any_request! {
    Ping, Stat<'a>, Open<'a>, Close, MakeDirectory<'a>, Unlink<'a>, Rename<'a>, Link<'a>,
    Symlink<'a>, ReadLink<'a>, SetAttr<'a>, Read, Write<'a>, Grant, List, PathOf, StatFs, Sync<'a>,
    Lock, TestLock, Cancel, Status, SetXattr<'a>, GetXattr<'a>, ListXattr<'a>, RemoveXattr<'a>,
    Allocate, MakeSpecial<'a>, Reach<'a>, MoveLock, Map, Tell, Watch, Inspect<'a>, RemoveStray,
    Seek, Flush, TierWork, TierDone<'a>, TierAsk<'a>, Lease<'a>,
}

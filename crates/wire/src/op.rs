//! The operations.

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $raw:literal,)*) => {
        /// An operation, as it stands in a header.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Op { $($(#[$doc])* $name = $raw,)* }

        impl Op {
            /// From its number; `None` for an unknown one.
            #[must_use]
            pub const fn from_raw(raw: u16) -> Option<Op> {
                match raw { $($raw => Some(Op::$name),)* _ => None }
            }

            /// Every operation.
            pub const ALL: &'static [Op] = &[$(Op::$name),*];
        }
    };
}

ops! {
    /// Is anybody there?
    Ping = 1,
    /// Attributes of a file.
    Stat = 2,
    /// Opens a file, creating it when asked to.
    Open = 3,
    /// Gives up an open file description.
    Close = 4,
    /// Makes a directory.
    MakeDirectory = 5,
    /// Removes a name.
    Unlink = 6,
    /// Moves a name.
    Rename = 7,
    /// Adds a name.
    Link = 8,
    /// Makes a symbolic link.
    Symlink = 9,
    /// Target of a symbolic link.
    ReadLink = 10,
    /// Changes attributes, length included.
    SetAttr = 11,
    /// Reads through the daemon.
    Read = 12,
    /// Writes through the daemon.
    Write = 13,
    /// Asks for leave to use the local object.
    Grant = 14,
    /// Entries of a directory.
    List = 15,
    /// Path of a directory, or of an open file with one name, from the root of the instance.
    PathOf = 16,
    /// Capacity and use of the file system.
    StatFs = 17,
    /// Makes durable what was acknowledged.
    Sync = 18,
    /// Takes, changes or gives up a lock.
    Lock = 19,
    /// Who stands in the way of a lock.
    TestLock = 20,
    /// Stops waiting for a request.
    Cancel = 21,
    /// The daemon's counters.
    Status = 22,
    /// Sets an extended attribute.
    SetXattr = 23,
    /// Value of an extended attribute.
    GetXattr = 24,
    /// Names of the extended attributes.
    ListXattr = 25,
    /// Removes an extended attribute.
    RemoveXattr = 26,
    /// Takes or gives back the space of a range.
    Allocate = 27,
    /// Makes a pipe or a socket with a name.
    MakeSpecial = 28,
    /// Where the kernel's own pipe or socket is that a name stands for.
    Reach = 29,
    /// A mount's kernel keeps pages of the file from now on.
    Map = 30,
    /// Bytes of a file were changed of which mounts may keep pages.
    Tell = 31,
    /// Waits for changes of files of which the caller's mount may keep pages.
    Watch = 32,
    /// A page of what a shard keeps, or of its node's objects.
    Inspect = 33,
    /// Removes an object that no file has.
    RemoveStray = 34,
    /// Gives a lock of flock to another description of the file.
    MoveLock = 35,
    /// Where the next data or the next hole of a file is.
    Seek = 36,
    /// Waits until what was written through a description is at the file's home.
    Flush = 37,
    /// Waits for something to do in the directory that an origin is.
    TierWork = 38,
    /// What came of it.
    TierDone = 39,
    /// How the caching tier is, and its flush.
    TierAsk = 40,
    /// The kernel of the caller's mount wants to believe names for a while.
    Lease = 41,
}

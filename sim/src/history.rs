//! What clients asked for and heard.

use mayfly_types::{Errno, FileKind};

/// What an operation on names does. Numbers are places of a group ([`crate::names::Group`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameOp {
    /// With O_CREAT and O_EXCL.
    Create(u8),
    /// mkdir.
    MakeDirectory(u8),
    /// unlink.
    Unlink(u8),
    /// rmdir.
    RemoveDirectory(u8),
    /// rename.
    Rename(u8, u8),
    /// link.
    Link(u8, u8),
    /// lstat.
    Stat(u8),
}

/// What an operation on the content of a file does, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BytesOp {
    /// Block, content.
    Write(u8, u32),
    /// Block.
    Read(u8),
    /// Content.
    Append(u32),
    /// Length.
    Truncate(u8),
    /// The length.
    Length,
}

/// What an operation on the entry of a directory that is listed does; each name is used once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryOp {
    /// It is made.
    Add(String),
    /// It is removed.
    Remove(String),
    /// All are listed.
    List,
}

/// An operation, and what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// On names of a group.
    Name(usize, NameOp),
    /// On a file.
    Bytes(usize, BytesOp),
    /// On a directory.
    Entry(usize, EntryOp),
}

/// What was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Nothing to tell.
    Done,
    /// A file.
    File {
        /// Its identity.
        id: u64,
        /// Its type.
        kind: FileKind,
        /// Its links.
        links: u32,
    },
    /// Content of a block, `None` behind the end.
    Block(Option<u32>),
    /// A length in blocks.
    Length(u64),
    /// Names.
    Names(Vec<String>),
    /// Bytes that nobody wrote so.
    Torn(String),
    /// It failed.
    Failed(Errno),
    /// Nobody knows whether it happened, or will.
    Unknown,
}

/// An operation that somebody began.
#[derive(Debug, Clone)]
pub struct Event {
    /// Who.
    pub client: usize,
    /// What.
    pub op: Op,
    /// When it began, nanoseconds.
    pub from_ns: u64,
    /// When its answer came. `None`: never, or that told nothing.
    pub to_ns: Option<u64>,
    /// What was heard.
    pub heard: Heard,
}

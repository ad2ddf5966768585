//! What a shard keeps, told to whoever checks whether it fits together with what others keep.
//!
//! A page is a packed sequence of facts inside one byte string. A fact is a record without what
//! nobody compares: no content, no times.
#![allow(missing_docs, reason = "the fields are the words of the protocol")]

use mayfly_types::{FileId, FileKind, OpenRef};

use crate::{Full, Malformed, Reader, Wire, Writer, wire_struct};

/// The records of a shard ([`Inspect`]); `after` is a key.
pub const INSPECT_RECORDS: u8 = 1;
/// The objects of the shard's node; `after` is a file id and a generation, big-endian.
pub const INSPECT_OBJECTS: u8 = 2;
/// The open file descriptions of a shard; `after` is a number, big-endian.
pub const INSPECT_OPENS: u8 = 3;

wire_struct! {
    /// See [`crate::Op::Inspect`]. `what` is one of `INSPECT_*`; `after` is what an earlier page
    /// said, or empty for the first one.
    Inspect<'a> { shard: u32, what: u8, after: &'a [u8], }
}
wire_struct! {
    /// A page of facts ([`facts`]).
    Inspected<'a> {
        /// Nodes of the instance.
        nodes: u32,
        /// Shards of each node.
        shards: u32,
        /// Where the next page begins; empty when there is none.
        next: &'a [u8],
        facts: &'a [u8],
    }
}
wire_struct! {
    /// See [`crate::Op::RemoveStray`]. EBUSY when something at that shard stands for the object.
    RemoveStray { shard: u32, file: FileId, generation: u32, }
}

wire_struct! {
    /// A name.
    Name<'a> { directory: FileId, file: FileId, kind: FileKind, name: &'a [u8], }
}
wire_struct! {
    /// Where the chunks of a file are.
    Spread {
        width: u16,
        hashed: bool,
        chunk_log2: u8,
        striped: bool,
        /// As in `mayfly_types::Tail`.
        tail_start_bytes: u64,
        tail_row: u64,
        tail_chunk_log2: u8,
    }
}
wire_struct! {
    /// An inode.
    File {
        id: FileId,
        kind: FileKind,
        links: u32,
        unsettled: bool,
        extended: bool,
        /// Generation of its object or its parts; 0 when it has none.
        generation: u32,
        size_bytes: u64,
        spread: Spread,
        /// How many of its parts there may be: those with lower numbers.
        parts: u16,
    }
}
wire_struct! {
    /// What an inode of a directory has besides.
    Directory<'a> {
        id: FileId,
        parent: FileId,
        name: &'a [u8],
        /// Entries at home.
        entries: u64,
        /// The other shards that may have entries: one bit each, the lowest of the first byte is
        /// that of shard 0.
        members: &'a [u8],
    }
}
wire_struct! {
    /// What a member keeps of a directory.
    Member { directory: FileId, entries: u64, subdirectories: u32, }
}
wire_struct! {
    /// A record that says one thing of a file; `what` is the first byte of its key.
    Mark { what: u8, file: FileId, generation: u32, }
}
wire_struct! {
    /// A part of a striped file.
    Part { file: FileId, generation: u32, index: u16, spread: Spread, cut: bool, }
}
wire_struct! {
    /// An operation over several shards that is decided and not finished, at its coordinator, and
    /// one of the files that it is about; or, without a file, that steps of it were done here.
    Operation { id: u64, file: FileId, }
}
wire_struct! {
    /// An object.
    Object { file: FileId, generation: u32, size_bytes: u64, }
}
wire_struct! {
    /// An open file description.
    Open {
        open: OpenRef,
        file: FileId,
        /// The node that it belongs to, if that is another one, plus one.
        of_node: u32,
        /// Where it really is, if that is at another node: the shard plus one, and its number.
        at_shard: u32,
        there: OpenRef,
        /// A process is known that may use it, or might yet hear of it.
        held: bool,
    }
}
wire_struct! {
    /// A record that nobody can read.
    Unreadable<'a> { key: &'a [u8], }
}

macro_rules! facts {
    ($($number:literal $name:ident $(<$life:lifetime>)?,)*) => {
        /// One thing that a shard keeps.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fact<'a> {
            $(
                #[doc = concat!("See [`struct@", stringify!($name), "`].")]
                $name($name $(<$life>)?),
            )*
        }

        impl<'a> Wire<'a> for Fact<'a> {
            fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
                match self {
                    $(Fact::$name(fact) => {
                        ($number as u8).encode(to)?;
                        fact.encode(to)
                    })*
                }
            }

            fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
                match u8::decode(from)? {
                    $($number => $name::decode(from).map(Fact::$name),)*
                    _ => Err(Malformed),
                }
            }
        }
    };
}

facts! {
    1 Name<'a>,
    2 File,
    3 Directory<'a>,
    4 Member,
    5 Mark,
    6 Part,
    7 Operation,
    8 Object,
    9 Open,
    10 Unreadable<'a>,
}

/// Walks the packed facts; ends at the first malformed one.
pub fn facts(packed: &[u8]) -> impl Iterator<Item = Result<Fact<'_>, Malformed>> {
    let mut from = Reader::new(packed);
    let mut broken = false;
    core::iter::from_fn(move || {
        if broken || from.is_empty() {
            return None;
        }
        let fact = Fact::decode(&mut from);
        broken = fact.is_err();
        Some(fact)
    })
}

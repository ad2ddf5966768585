//! The inode: everything about a file but its names.

use mayfly_types::{
    FileId, FileKind, Tail, Timestamp,
    limits::{
        CHUNK_BYTES_DEFAULT, INLINE_BYTES_MAX, NAME_BYTES_MAX, PLACE_BYTES_MAX, SYMLINK_BYTES_MAX,
    },
};

use serde::{Deserialize, Serialize};

use super::kind;
use crate::{
    StoreError,
    bytes::{Put, SHORT, Take},
};

/// What a record takes besides names and content, bytes.
const FIXED_BYTES: usize = 192;
/// What every inode has, before its origin, bytes: the form of the record, then the rest.
const HEAD_BYTES: usize = 1 + BODY_HEAD_BYTES;
const BODY_HEAD_BYTES: usize = 8 + 1 + 1 + 2 + 4 * 4 + 2 * 8 + 4 * 12 + 8 + 1;
/// Places in a record: type and flags.
const KIND_AT: usize = 1 + 8;
/// Of what changes in a directory with each name.
const LINKS_AT: usize = KIND_AT + 1 + 1 + 2;
const MTIME_AT: usize = LINKS_AT + 4 * 4 + 2 * 8 + TIME_BYTES;
const CTIME_AT: usize = MTIME_AT + TIME_BYTES;
const TIME_BYTES: usize = 12;
/// Of the layout's policy.
const POLICY_AT: usize = HEAD_BYTES - 1 - 1 - 1;

/// In the byte of a layout's policy: a tail follows.
const WITH_TAIL: u8 = 0x80;
/// The byte before what is known of an origin; its flags are added.
const ORIGIN: u8 = 2;
const TAIL_BYTES: usize = 8 + 8 + 1;

const FLAG_UNSETTLED: u8 = 1;
const FLAG_UNLISTED: u8 = 2;
const FLAG_EXTENDED: u8 = 4;
const FLAG_LINKABLE: u8 = 8;
const FLAG_STRIPED: u8 = 16;
const FLAGS_KNOWN: u8 =
    FLAG_UNSETTLED | FLAG_UNLISTED | FLAG_EXTENDED | FLAG_LINKABLE | FLAG_STRIPED;

/// Which server has which chunk of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Policy {
    /// Chunk *i* at server `first + i mod width`.
    Stripe = 0,
    /// From a hash of file and chunk number.
    Hash = 1,
    /// Everything at the node that created the file.
    Local = 2,
    /// Striped over a named subset.
    Pool = 3,
}

/// Where the chunks of a file are; of a directory, of the files that are made in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// Server of chunk 0; means nothing in a directory. Under [`Policy::Pool`] it is the number of
    /// the pool, in both.
    pub first_server: u32,
    /// Number of servers. In a directory there may be less of them.
    pub width: u16,
    /// How chunks are dealt out.
    pub policy: Policy,
    /// Logarithm to base 2 of the chunk size in bytes.
    pub chunk_log2: u8,
    /// Chunks have been dealt out: each server may have a part. Before that there is the first
    /// chunk at most, or everything is in one object.
    pub striped: bool,
    /// Of a file that has outgrown its home.
    pub tail: Tail,
}

impl Layout {
    /// Whether there can be such a layout.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.width != 0 && (12..=40).contains(&self.chunk_log2) && self.tail.is_possible(self.width)
    }
}

impl Default for Layout {
    fn default() -> Self {
        Layout {
            first_server: 0,
            width: 1,
            policy: Policy::Stripe,
            chunk_log2: CHUNK_BYTES_DEFAULT.trailing_zeros() as u8,
            striped: false,
            tail: Tail::default(),
        }
    }
}

/// The master copy that a cached file stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// Which external source.
    pub source: u32,
    /// Modification time of the master copy when it was last seen.
    pub mtime: Timestamp,
    /// Its length, bytes: authoritative also while no byte of it is here.
    pub size_bytes: u64,
    /// All bytes are here.
    pub resident: bool,
    /// Changed here and not yet written back.
    pub dirty: bool,
    /// Until when processes believe what was seen of it.
    pub seen: Seen,
}

/// Until when what was seen outside is believed by those who ask nobody, by the processors'
/// counter. 0: it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// The attributes.
    pub until: u64,
    /// The names of a directory.
    pub names_until: u64,
}

/// What a directory's inode has besides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirectoryNode {
    /// The directory that holds it; itself for the root.
    pub parent: FileId,
    /// Its name there; empty for the root.
    pub name: Vec<u8>,
    /// Number of entries, `.` and `..` not counted.
    pub entries: u64,
    /// Shards that may hold entries besides the home.
    pub members: Vec<u32>,
}

/// What a file consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A small file's bytes, as many as the file is long.
    Inline(Vec<u8>),
    /// The bytes are in objects of this generation, which is not 0.
    Object(u32),
    /// Target of a symbolic link.
    Symlink(Vec<u8>),
    /// A directory.
    Directory(DirectoryNode),
    /// A pipe, and the path of the kernel's own one that stands for it; empty when it is whatever
    /// the kernel keeps for the name in a mount.
    Fifo(Vec<u8>),
    /// A socket, and the same.
    Socket(Vec<u8>),
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// The file.
    pub id: FileId,
    /// Permission bits, 0o7777.
    pub mode: u16,
    /// Number of names (for a directory, as `st_nlink`).
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length, bytes; not final while unsettled.
    pub size_bytes: u64,
    /// Space that the objects took when the size was settled, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// The length, space and times are to be asked of the objects.
    pub unsettled: bool,
    /// A directory of a caching tier whose entries were not fetched yet.
    pub unlisted: bool,
    /// It has extended attributes, in a record of their own.
    pub extended: bool,
    /// It was made without a name and may get one.
    pub linkable: bool,
    /// Last object generation that was used; the next spill takes the next one.
    pub generation: u32,
    /// Where the chunks are.
    pub layout: Layout,
    /// Of a striped file: parts with numbers from this one on have never had bytes. Of others 0.
    pub parts: u16,
    /// Which replica of the objects this is about.
    pub replica: u8,
    /// The master copy, in a caching tier.
    pub origin: Option<Origin>,
    /// Which ranges of the objects are present, in a form that the caching tier defines.
    pub residency: Vec<u8>,
    /// What it consists of.
    pub content: Content,
}

impl Inode {
    /// The type of the file.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        match self.content {
            Content::Inline(_) | Content::Object(_) => FileKind::Regular,
            Content::Symlink(_) => FileKind::Symlink,
            Content::Directory(_) => FileKind::Directory,
            Content::Fifo(_) => FileKind::Fifo,
            Content::Socket(_) => FileKind::Socket,
        }
    }

    /// Puts the record of this form in the place of what is in `record`.
    pub(super) fn encode(&self, form: u8, record: &mut Vec<u8>) {
        self.encode_with(form, None, record);
    }

    /// The same of a small file that has these bytes in the place of its own.
    pub(super) fn encode_with(&self, form: u8, bytes: Option<&[u8]>, record: &mut Vec<u8>) {
        record.clear();
        record.reserve(FIXED_BYTES + bytes.map_or_else(|| self.content_bytes(), <[u8]>::len));
        record.extend_from_slice(&self.head(form));
        self.encode_origin(record);
        let map = if self.origin.is_some() { &[] } else { &self.residency[..] };
        record.push(u8::from(!map.is_empty()));
        if !map.is_empty() {
            put_long(record, map);
        }
        match bytes {
            Some(bytes) => encode_inline(bytes, record),
            None => self.encode_content(record),
        }
        self.encode_master(record);
    }

    /// As [`Inode::touch_own`], whatever form the record has.
    pub(super) fn touch(&self, record: &mut [u8]) -> bool {
        let Content::Directory(node) = &self.content else { return false };
        let entries_at = HEAD_BYTES + 2 + 8 + 1 + node.name.len();
        let short = record.len() != entries_at + 8 + 2 + 4 * node.members.len();
        if short || self.origin.is_some() || !self.residency.is_empty() {
            return false;
        }
        let mut set = |at: usize, bytes: &[u8]| {
            record[at..at + bytes.len()].copy_from_slice(bytes);
        };
        set(LINKS_AT, &self.links.to_le_bytes());
        for (at, time) in [(MTIME_AT, self.mtime), (CTIME_AT, self.ctime)] {
            set(at, &time.seconds.to_le_bytes());
            set(at + 8, &time.nanoseconds.to_le_bytes());
        }
        set(entries_at, &node.entries.to_le_bytes());
        true
    }

    fn head(&self, form: u8) -> [u8; HEAD_BYTES] {
        let flags = u8::from(self.unsettled) * FLAG_UNSETTLED
            + u8::from(self.unlisted) * FLAG_UNLISTED
            + u8::from(self.extended) * FLAG_EXTENDED
            + u8::from(self.linkable) * FLAG_LINKABLE
            + u8::from(self.layout.striped) * FLAG_STRIPED;
        let mut head = Head { bytes: [0; HEAD_BYTES], used: 0 };
        head.put([form]);
        head.put(self.id.0.to_le_bytes());
        head.put([self.kind() as u8, flags]);
        head.put(self.mode.to_le_bytes());
        for value in [self.links, self.uid, self.gid, self.generation] {
            head.put(value.to_le_bytes());
        }
        head.put(self.size_bytes.to_le_bytes());
        head.put(self.blocks.to_le_bytes());
        for time in [self.atime, self.mtime, self.ctime, self.btime] {
            head.put(time.seconds.to_le_bytes());
            head.put(time.nanoseconds.to_le_bytes());
        }
        let Layout { first_server, width, policy, chunk_log2, striped: _, tail: _ } = self.layout;
        head.put(first_server.to_le_bytes());
        head.put(width.to_le_bytes());
        head.put([policy as u8, chunk_log2, self.replica]);
        debug_assert_eq!(head.used, HEAD_BYTES);
        head.bytes
    }

    fn content_bytes(&self) -> usize {
        match &self.content {
            Content::Inline(bytes)
            | Content::Symlink(bytes)
            | Content::Fifo(bytes)
            | Content::Socket(bytes) => bytes.len(),
            Content::Object(_) => (2 + TAIL_BYTES) * usize::from(self.layout.striped),
            Content::Directory(node) => node.name.len(),
        }
    }

    fn encode_origin(&self, record: &mut Vec<u8>) {
        let Some(origin) = &self.origin else {
            record.push(0);
            return;
        };
        record.push(ORIGIN + u8::from(origin.resident) + 2 * u8::from(origin.dirty));
        record.put_u64(origin.seen.until);
        record.put_u64(origin.seen.names_until);
    }

    /// What processes need not know of an origin comes last.
    fn encode_master(&self, record: &mut Vec<u8>) {
        let Some(origin) = &self.origin else { return };
        debug_assert!(!self.layout.striped, "a striped file has no origin");
        record.put_u32(origin.source);
        record.put_time(origin.mtime);
        record.put_u64(origin.size_bytes);
        put_long(record, &self.residency);
    }

    fn encode_content(&self, record: &mut Vec<u8>) {
        match &self.content {
            Content::Object(generation) => {
                debug_assert_eq!(*generation, self.generation);
                record.push(1);
                if self.layout.striped {
                    record.put_u16(self.parts);
                    if self.layout.tail.is_there() {
                        put_tail(record, &self.layout.tail);
                    }
                }
            }
            Content::Inline(bytes) => encode_inline(bytes, record),
            Content::Symlink(bytes) | Content::Fifo(bytes) | Content::Socket(bytes) => {
                put_long(record, bytes);
            }
            Content::Directory(node) => {
                record.put_u64(node.parent.0);
                record.push(node.name.len() as u8);
                record.extend_from_slice(&node.name);
                record.put_u64(node.entries);
                record.put_u16(node.members.len() as u16);
                for member in &node.members {
                    record.put_u32(*member);
                }
            }
        }
    }

    pub(super) fn decode_body(body: &[u8]) -> Result<Inode, StoreError> {
        // Of so many bytes none is looked for twice.
        let (head, rest) = body.split_first_chunk::<BODY_HEAD_BYTES>().ok_or(SHORT)?;
        let mut head = Fields { bytes: head, used: 0 };
        let id = FileId(u64::from_le_bytes(head.take()));
        let [kind, flags] = head.take();
        let kind = super::kind(kind)?;
        if flags & !FLAGS_KNOWN != 0 {
            return Err(StoreError::Corrupt("an inode has unknown flags"));
        }
        let mode = u16::from_le_bytes(head.take());
        let [links, uid, gid, generation] = [(); 4].map(|()| u32::from_le_bytes(head.take()));
        let [size_bytes, blocks] = [(); 2].map(|()| u64::from_le_bytes(head.take()));
        let (atime, mtime) = (head.time()?, head.time()?);
        let (ctime, btime) = (head.time()?, head.time()?);
        let striped = flags & FLAG_STRIPED != 0;
        let mut layout = Layout { striped, ..decode_layout(&mut Take(&head.take::<8>()))? };
        let [replica] = head.take();
        debug_assert_eq!(head.used, BODY_HEAD_BYTES);
        let mut from = Take(rest);
        let mut origin = decode_origin(&mut from)?;
        if origin.is_some() && striped {
            return Err(StoreError::Corrupt("a striped file has an origin"));
        }
        let mut residency = match from.u8()? {
            0 => Vec::new(),
            1 => take_long(&mut from, u32::MAX as usize)?.to_vec(),
            _ => return Err(StoreError::Corrupt("a residency map of unknown form")),
        };
        let content = decode_content(&mut from, kind, generation)?;
        let parts = if striped { decode_parts(&mut from, &content, &layout)? } else { 0 };
        if striped && !from.0.is_empty() {
            layout.tail = decode_tail(&mut from, layout.width)?;
        }
        if let Some(origin) = &mut origin {
            origin.source = from.u32()?;
            origin.mtime = from.time()?;
            origin.size_bytes = from.u64()?;
            residency = take_long(&mut from, u32::MAX as usize)?.to_vec();
        }
        from.finish()?;
        Ok(Inode {
            id,
            mode,
            links,
            uid,
            gid,
            size_bytes,
            blocks,
            atime,
            mtime,
            ctime,
            btime,
            unsettled: flags & FLAG_UNSETTLED != 0,
            unlisted: flags & FLAG_UNLISTED != 0,
            extended: flags & FLAG_EXTENDED != 0,
            linkable: flags & FLAG_LINKABLE != 0,
            generation,
            layout,
            parts,
            replica,
            origin,
            residency,
            content,
        })
    }
}

/// The beginning of a record that is being made.
struct Head {
    bytes: [u8; HEAD_BYTES],
    used: usize,
}

impl Head {
    #[inline(always)]
    fn put<const N: usize>(&mut self, value: [u8; N]) {
        if let Some(to) = self.bytes.get_mut(self.used..).and_then(|to| to.first_chunk_mut()) {
            *to = value;
        }
        self.used += N;
    }
}

/// The beginning of a record that is read: all of it is there, so that nothing can be missing.
struct Fields<'a> {
    bytes: &'a [u8; BODY_HEAD_BYTES],
    used: usize,
}

impl Fields<'_> {
    #[inline(always)]
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let field = self.bytes.get(self.used..).and_then(|rest| rest.first_chunk());
        self.used += N;
        field.copied().unwrap_or([0; N])
    }

    #[inline(always)]
    fn time(&mut self) -> Result<Timestamp, StoreError> {
        let (seconds, nanoseconds) = (self.take(), self.take());
        crate::bytes::time(i64::from_le_bytes(seconds), u32::from_le_bytes(nanoseconds))
    }
}

pub(super) fn peek(body: &[u8]) -> Result<(FileId, FileKind), StoreError> {
    let mut from = Take(body);
    let id = FileId(from.u64()?);
    Ok((id, kind(from.u8()?)?))
}

fn encode_inline(bytes: &[u8], record: &mut Vec<u8>) {
    record.push(0);
    put_long(record, bytes);
}

/// As [`super::Dentry::is_light`].
pub(super) fn is_light(body: &[u8]) -> bool {
    let Some((head, rest)) = body.split_first_chunk::<BODY_HEAD_BYTES>() else { return false };
    // Neither an origin nor a residency map, and its bytes follow.
    let inline = rest.starts_with(&[0, 0, 0]);
    let policy = head[POLICY_AT - 1];
    let one = 1_u32.to_le_bytes();
    inline
        && head[KIND_AT - 1..LINKS_AT - 1 - 2] == [FileKind::Regular as u8, 0]
        && head[LINKS_AT - 1..LINKS_AT - 1 + one.len()] == one
        && (policy == Policy::Stripe as u8 || policy == Policy::Hash as u8)
}

fn put_long(record: &mut Vec<u8>, bytes: &[u8]) {
    record.put_u32(bytes.len() as u32);
    record.extend_from_slice(bytes);
}

#[inline]
fn take_long<'a>(from: &mut Take<'a>, bytes_max: usize) -> Result<&'a [u8], StoreError> {
    let count = from.u32()? as usize;
    if count > bytes_max {
        return Err(StoreError::Corrupt("a byte string in an inode is too long"));
    }
    from.bytes(count)
}

pub(super) fn put_layout(record: &mut Vec<u8>, layout: &Layout) {
    record.put_u32(layout.first_server);
    record.put_u16(layout.width);
    let tail = if layout.tail.is_there() { WITH_TAIL } else { 0 };
    record.push(layout.policy as u8 | tail);
    record.push(layout.chunk_log2);
    if layout.tail.is_there() {
        put_tail(record, &layout.tail);
    }
}

fn put_tail(record: &mut Vec<u8>, tail: &Tail) {
    record.put_u64(tail.start_bytes);
    record.put_u64(tail.row);
    record.push(tail.chunk_log2);
}

fn decode_tail(from: &mut Take<'_>, width: u16) -> Result<Tail, StoreError> {
    let tail = Tail { start_bytes: from.u64()?, row: from.u64()?, chunk_log2: from.u8()? };
    let possible = tail.is_there() && tail.is_possible(width);
    if possible { Ok(tail) } else { Err(StoreError::Corrupt("an impossible tail of a file")) }
}

#[inline]
pub(super) fn decode_layout(from: &mut Take<'_>) -> Result<Layout, StoreError> {
    let (first_server, width) = (from.u32()?, from.u16()?);
    let form = from.u8()?;
    let policy = match form & !WITH_TAIL {
        0 => Policy::Stripe,
        1 => Policy::Hash,
        2 => Policy::Local,
        3 => Policy::Pool,
        _ => return Err(StoreError::Corrupt("an unknown placement policy")),
    };
    let chunk_log2 = from.u8()?;
    let has_tail = form & WITH_TAIL != 0;
    let tail = if has_tail { decode_tail(from, width)? } else { Tail::default() };
    let layout = Layout { first_server, width, policy, chunk_log2, tail, ..Layout::default() };
    if layout.is_possible() { Ok(layout) } else { Err(StoreError::Corrupt("an impossible layout")) }
}

fn decode_origin(from: &mut Take<'_>) -> Result<Option<Origin>, StoreError> {
    let flags = match from.u8()? {
        0 => return Ok(None),
        form @ ORIGIN..=5 => form - ORIGIN,
        _ => return Err(StoreError::Corrupt("an origin of unknown form")),
    };
    let (resident, dirty) = (flags & 1 != 0, flags & 2 != 0);
    let seen = Seen { until: from.u64()?, names_until: from.u64()? };
    Ok(Some(Origin { resident, dirty, seen, ..Origin::default() }))
}

fn decode_parts(
    from: &mut Take<'_>,
    content: &Content,
    layout: &Layout,
) -> Result<u16, StoreError> {
    let parts = from.u16()?;
    if !matches!(content, Content::Object(_)) || !(1..=layout.width).contains(&parts) {
        return Err(StoreError::Corrupt("a striped file has impossible parts"));
    }
    Ok(parts)
}

#[inline]
fn decode_content(
    from: &mut Take<'_>,
    kind: FileKind,
    generation: u32,
) -> Result<Content, StoreError> {
    match kind {
        FileKind::Symlink => Ok(Content::Symlink(take_long(from, SYMLINK_BYTES_MAX)?.to_vec())),
        FileKind::Fifo => Ok(Content::Fifo(take_long(from, PLACE_BYTES_MAX)?.to_vec())),
        FileKind::Socket => Ok(Content::Socket(take_long(from, PLACE_BYTES_MAX)?.to_vec())),
        FileKind::Regular => match from.u8()? {
            0 => Ok(Content::Inline(take_long(from, INLINE_BYTES_MAX)?.to_vec())),
            1 if generation != 0 => Ok(Content::Object(generation)),
            _ => Err(StoreError::Corrupt("a file's content has an unknown form")),
        },
        FileKind::Directory => {
            let parent = FileId(from.u64()?);
            let name_bytes = usize::from(from.u8()?);
            debug_assert!(name_bytes <= NAME_BYTES_MAX);
            let name = from.bytes(name_bytes)?.to_vec();
            let entries = from.u64()?;
            let count = from.u16()?;
            let members = (0..count).map(|_| from.u32()).collect::<Result<_, _>>()?;
            Ok(Content::Directory(DirectoryNode { parent, name, entries, members }))
        }
    }
}

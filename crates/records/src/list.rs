//! The entries of a directory, from a position on.

use mayfly_types::{Attr, FileId, FileKind};

use crate::{
    Unsure,
    attributes::{RECORD_CHUNKS, of_directory, peek},
    key::{self, PLACE_BYTES},
    page::{CELL_HEAD_BYTES, DEPTH_MAX, PLACES_AT},
    search::{KEY_BYTES_MAX, Key, Node, Slot, Source, get},
    walk::{is_whole, settled},
};

/// Pages that one listing looks at, at most: each has some thirty entries or more.
const LEAVES_MAX: usize = 64;
/// What the keys of a directory's entries begin with.
const PREFIX_BYTES: usize = 9;
const KEY_CHUNKS: usize = KEY_BYTES_MAX / 8;

/// An entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The file.
    pub id: FileId,
    /// Its type.
    pub kind: FileKind,
    /// Its position, where a listing goes on after it.
    pub cookie: u64,
    /// Its name.
    pub name: &'a [u8],
}

/// Hands the entries of `directory` behind the position `cookie` to `take`, in their order, until
/// it says that this is enough. All of them were there at one moment; until this has returned
/// without an error they may be anything. False: there may be more.
///
/// # Errors
/// [`Unsure`]: to be asked for.
pub fn list<S: Source>(
    source: &S,
    directory: FileId,
    cookie: u64,
    mut take: impl FnMut(&Entry<'_>) -> bool,
) -> Result<bool, Unsure> {
    settled(source, |_| {
        Ok(dots(source, directory, cookie, &mut take)?
            && names(source, directory, cookie.max(key::COOKIE_MIN - 1), &mut take)?)
    })
}

/// Attributes of a directory by its identity. One that was removed is the daemon's affair.
///
/// # Errors
/// [`Unsure`]: to be asked for.
pub fn directory<S: Source>(source: &S, id: FileId) -> Result<Attr, Unsure> {
    settled(source, |_| itself(source, id).map(|(attr, _)| attr))
}

/// A directory that has names, and its parent.
fn itself<S: Source>(source: &S, directory: FileId) -> Result<(Attr, FileId), Unsure> {
    let mut record = [[0; 8]; RECORD_CHUNKS];
    let count = get(source, &key::numbered(key::INODE, directory), &mut record)?.ok_or(Unsure)?;
    let (attr, parent) = of_directory(&record.as_flattened()[..count])?;
    let there = attr.links > 0 && attr.id == directory && is_whole(source, directory)?;
    if there { Ok((attr, parent)) } else { Err(Unsure) }
}

/// The directory and its parent.
fn dots<S: Source>(
    source: &S,
    directory: FileId,
    cookie: u64,
    take: &mut impl FnMut(&Entry<'_>) -> bool,
) -> Result<bool, Unsure> {
    let (_, parent) = itself(source, directory)?;
    let both = [(directory, 1, b".".as_slice()), (parent, 2, b"..")];
    Ok(both
        .into_iter()
        .filter(|(_, own, _)| cookie < *own)
        .all(|(id, cookie, name)| take(&Entry { id, kind: FileKind::Directory, cookie, name })))
}

/// A key that is being read, or where the next page begins.
struct Buffer {
    chunks: [[u8; 8]; KEY_CHUNKS],
    count: usize,
}

impl Buffer {
    /// The key of an entry of a node. Eight bytes at a time, the last ones together with some that
    /// were read before.
    fn of<S: Source>(node: &Node<'_, S>, slot: Slot) -> Result<Buffer, Unsure> {
        let (count, start) = (slot.key_bytes(), slot.cell() + CELL_HEAD_BYTES);
        if !(8..=KEY_BYTES_MAX).contains(&count) {
            return Err(Unsure);
        }
        let mut chunks = [[0; 8]; KEY_CHUNKS];
        for (at, to) in chunks.iter_mut().enumerate().take(count / 8) {
            *to = node.chunk(start + 8 * at)?;
        }
        if !count.is_multiple_of(8) {
            let last = node.chunk(start + count - 8)?;
            let rest = last.get(8 - count % 8..).ok_or(Unsure)?;
            let to = chunks.get_mut(count / 8).and_then(|chunk| chunk.get_mut(..rest.len()));
            to.ok_or(Unsure)?.copy_from_slice(rest);
        }
        Ok(Buffer { chunks, count })
    }

    fn bytes(&self) -> &[u8] {
        self.chunks.as_flattened().get(..self.count).unwrap_or_default()
    }
}

fn names<S: Source>(
    source: &S,
    directory: FileId,
    cookie: u64,
    take: &mut impl FnMut(&Entry<'_>) -> bool,
) -> Result<bool, Unsure> {
    let first = key::place(directory, cookie.checked_add(1).ok_or(Unsure)?);
    let prefix = first.first_chunk::<PREFIX_BYTES>().ok_or(Unsure)?;
    let mut from = Buffer { chunks: [[0; 8]; KEY_CHUNKS], count: first.len() };
    from.chunks.as_flattened_mut()[..first.len()].copy_from_slice(&first);
    for _ in 0..LEAVES_MAX {
        let (leaf, end, next) = descend(source, &from)?;
        let key = Key::of(from.bytes());
        let (Ok(start) | Err(start)) = leaf.search(&key, 0)?;
        for index in start..leaf.count {
            let slot = leaf.slot(index)?;
            // Keys of other kinds may be shorter.
            if slot.key_bytes() <= PLACE_BYTES {
                return Ok(true);
            }
            if !begins_with(&leaf, slot, prefix)? {
                return Ok(true);
            }
            let key = Buffer::of(&leaf, slot)?;
            if !show(&leaf, (index, end), key.bytes(), take)? {
                return Ok(false);
            }
        }
        // What separates pages is as much of a key as tells it from the one before: longer than the
        // prefix when both are of this directory.
        match next {
            Some((branch, slot)) if begins_with(&branch, slot, prefix)? => {
                from = Buffer::of(&branch, slot)?;
            }
            _ => return Ok(true),
        }
    }
    Ok(false)
}

/// Keys of other directories may be longer than any that is read.
fn begins_with<S: Source>(
    node: &Node<'_, S>,
    slot: Slot,
    prefix: &[u8; PREFIX_BYTES],
) -> Result<bool, Unsure> {
    if slot.key_bytes() < PREFIX_BYTES {
        return Ok(false);
    }
    let start = slot.cell() + CELL_HEAD_BYTES;
    let (first, last) = (node.chunk(start)?, node.chunk(start + PREFIX_BYTES - 8)?);
    Ok(prefix.starts_with(&first) && prefix.ends_with(&last))
}

/// A leaf, the end of the file, and the entry of a branch that says where the next leaf begins.
type Place<'a, S> = (Node<'a, S>, u32, Option<(Node<'a, S>, Slot)>);

/// To the leaf where `key` would be.
fn descend<'a, S: Source>(source: &'a S, key: &Buffer) -> Result<Place<'a, S>, Unsure> {
    let key = Key::of(key.bytes());
    let places = source.word(PLACES_AT).ok_or(Unsure)?;
    let (root, end) = (places as u32, (places >> 32) as u32);
    let mut node = Node::of(source, root, end)?;
    let mut next = None;
    for _ in 0..DEPTH_MAX {
        if node.level == 0 {
            return Ok((node, end, next));
        }
        let index = node.child_index(&key)?;
        let below = Node::of(source, node.child_at(index)?, end)?;
        if u16::from(below.level) + 1 != u16::from(node.level) {
            return Err(Unsure);
        }
        if index + 1 < node.count {
            let slot = node.slot(index + 1)?;
            next = Some((node, slot));
        }
        node = below;
    }
    Err(Unsure)
}

fn show<S: Source>(
    leaf: &Node<'_, S>,
    (index, end): (usize, u32),
    key: &[u8],
    take: &mut impl FnMut(&Entry<'_>) -> bool,
) -> Result<bool, Unsure> {
    let (place, name) = key.split_at_checked(PLACE_BYTES).ok_or(Unsure)?;
    let cookie = place.last_chunk().copied().map(u64::from_be_bytes).ok_or(Unsure)?;
    let mut record = [[0; 8]; 2];
    let count = leaf.value(index, end, &mut record)?;
    let (id, kind) = peek(record.as_flattened().get(..count).ok_or(Unsure)?)?;
    Ok(take(&Entry { id, kind, cookie, name }))
}

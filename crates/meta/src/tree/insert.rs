//! Setting a value: in its place, into the gap of its leaf, into a leaf put in order, or into one
//! of the two that a full leaf becomes.

use core::ops::Range;

use super::{
    Tree, long,
    page::{
        Builder, CELL_BYTES_MAX, CELL_HEAD_BYTES, COUNTS_BYTES, HEAD_BYTES, LONG_MARK, Node,
        ROOM_BYTES, SLOT_BYTES, hint, shared, slot,
    },
    pages::Pages,
    space::Space,
    walk::{LeafEntry, Way},
};
use crate::StoreError;

/// After so many insertions each behind the one before, the page is split behind the last one: who
/// inserts in order leaves full pages.
const RUN: u32 = 4;

/// Slots up to there are noted together with the head of their page, bytes.
const NEAR_BYTES: usize = 256;

/// Where insertions went last.
#[derive(Debug, Default)]
pub(super) struct Run {
    page: u32,
    index: usize,
    count: u32,
}

impl Run {
    /// An insertion into a leaf; true when it continues a run.
    #[inline]
    fn goes_on(&mut self, page: u32, index: usize) -> bool {
        let behind = self.page == page && index == self.index + 1;
        self.count = if behind { self.count.saturating_add(1) } else { 0 };
        (self.page, self.index) = (page, index);
        self.count >= RUN
    }
}

/// An entry that is to be put into a node.
#[derive(Debug, Clone, Copy)]
struct Entry<'a> {
    key: &'a [u8],
    cell: &'a [u8],
}

impl<S: Space> Tree<S> {
    /// As [`crate::Store::put`].
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        if let Some((leaf_entry, _)) = self.often.find(&self.pages, key)
            && self.replace(leaf_entry, key, value)?
        {
            return Ok(());
        }
        let found = self.find(key)?;
        if let Ok(index) = found.index {
            self.often.note(key, found.leaf, index);
            let leaf_entry =
                self.pages.node(found.leaf)?.cell(index)?.leaf_entry(found.leaf, index);
            if self.replace(leaf_entry, key, value)? {
                return Ok(());
            }
            self.take_out(found.leaf, index)?;
        }
        self.last.forget();
        let (Ok(index) | Err(index)) = found.index;
        let in_order = found.index.is_err() && self.run.goes_on(found.leaf, index);
        if insert_plain(&mut self.pages, (found.leaf, index), key, value)? {
            self.often.note(key, found.leaf, index);
            return Ok(());
        }
        let mut cell = std::mem::take(&mut self.cell);
        let made = make_cell(&mut self.pages, key, value, &mut cell);
        let mut way = self.last.way();
        let entry = Entry { key, cell: &cell };
        let done = made.and_then(|()| self.insert_at(&mut way, found.leaf, index, entry, in_order));
        self.cell = cell;
        done
    }

    /// Puts a value in the place of another one; false when its cell is longer. So a file that was
    /// just made and then written takes no room twice, and its page is not put in order again and
    /// again.
    #[inline(always)]
    fn replace(
        &mut self,
        leaf_entry: LeafEntry,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let LeafEntry { leaf, at, stored, long, .. } = leaf_entry;
        if !long && stored == value.len() {
            let at = at + CELL_HEAD_BYTES + key.len();
            self.pages.note(leaf, at, value.len())?;
            self.pages.write(leaf, at, value)?;
            return Ok(true);
        }
        if cell_bytes(key, value) > leaf_entry.bytes {
            return Ok(false);
        }
        self.shrink(leaf_entry, key, value).map(|()| true)
    }

    /// Puts a value in the place of another one whose cell is at least as long.
    #[inline(never)]
    fn shrink(
        &mut self,
        leaf_entry: LeafEntry,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        let mut cell = std::mem::take(&mut self.cell);
        let made = make_cell(&mut self.pages, key, value, &mut cell);
        let done = made.and_then(|()| self.put_cell(leaf_entry, key, &cell));
        self.cell = cell;
        done
    }

    /// Writes a cell over one that is at least as long.
    fn put_cell(
        &mut self,
        leaf_entry: LeafEntry,
        key: &[u8],
        cell: &[u8],
    ) -> Result<(), StoreError> {
        let LeafEntry { leaf: page, index, at, bytes: taken, long, .. } = leaf_entry;
        let node = self.pages.node(page)?;
        if long {
            self.value.clear();
            self.value.extend_from_slice(node.cell(index)?.stored);
        }
        // Of the lowest cell the gap gets what is left over.
        let lowest = at == node.low();
        let to = if lowest { at + taken.saturating_sub(cell.len()) } else { at };
        let low = if lowest { to } else { node.low() };
        let live = node.live().saturating_sub(taken) + cell.len();
        let (counts, prefix) = (counts(node.count, low, live), node.prefix().len());
        let slot_at = HEAD_BYTES + index * SLOT_BYTES;
        self.pages.note(page, at, taken)?;
        note_slots(&mut self.pages, page, slot_at, SLOT_BYTES)?;
        self.pages.write(page, to, cell)?;
        self.pages.write(page, slot_at, &slot(hint(key, prefix), to, key.len()))?;
        self.pages.write(page, 2, &counts)?;
        if long { long::give_up(&mut self.pages, &self.value) } else { Ok(()) }
    }

    /// Puts an entry into a node that `way` leads to.
    fn insert_at(
        &mut self,
        way: &mut Way,
        page: u32,
        index: usize,
        entry: Entry<'_>,
        in_order: bool,
    ) -> Result<(), StoreError> {
        let node = self.pages.node(page)?;
        let takes = SLOT_BYTES + entry.cell.len();
        if node.low() - node.slots_end() >= takes && node.begins(entry.key) {
            return insert_into_gap(&mut self.pages, page, index, entry);
        }
        if node.used() + takes <= ROOM_BYTES {
            self.builder.clear(node.level());
            fill_with(&mut self.builder, &node, (index, entry), 0..node.count + 1)?;
            return self.pages.replace(page, self.builder.finish()?);
        }
        self.split(way, page, index, entry, in_order)
    }

    /// Puts an entry into a full node, which becomes two.
    fn split(
        &mut self,
        way: &mut Way,
        page: u32,
        index: usize,
        entry: Entry<'_>,
        in_order: bool,
    ) -> Result<(), StoreError> {
        let old = self.pages.node(page)?;
        let level = old.level();
        let at = split_point(&old, index, entry, in_order)?;
        self.builder.clear(level);
        fill_with(&mut self.builder, &old, (index, entry), 0..at)?;
        self.other.clear(level);
        fill_with(&mut self.other, &old, (index, entry), at..old.count + 1)?;
        let left = key_of(&old, (index, entry), at - 1)?;
        let right = key_of(&old, (index, entry), at)?;
        // What separates two leaves need only be larger than the left one's keys.
        let length = if level == 0 { shared(left, right) + 1 } else { right.len() };
        let separator = right[..length.min(right.len())].to_vec();
        let new = self.pages.allocate()?;
        self.pages.write(new, 0, self.other.finish()?)?;
        self.pages.replace(page, self.builder.finish()?)?;
        if level == 0 && in_order && index >= at {
            self.run = Run { page: new, index: index - at, count: RUN };
        }
        let cell = child_cell(&separator, new);
        let entry = Entry { key: &separator, cell: &cell };
        if let Some(above) = way.pop() {
            return self.insert_at(way, above.page, usize::from(above.index) + 1, entry, in_order);
        }
        let root = self.pages.allocate()?;
        self.builder.clear(level.checked_add(1).ok_or(StoreError::Full)?);
        self.builder.push_child(&[], &page.to_le_bytes())?;
        self.builder.push(separator.len(), &cell)?;
        self.pages.write(root, 0, self.builder.finish()?)?;
        self.pages.set_root(root)
    }

    /// Removes an entry's slot; its cell is not in use any more.
    pub(super) fn take_out(&mut self, page: u32, index: usize) -> Result<(), StoreError> {
        self.last.forget();
        let node = self.pages.node(page)?;
        let cell = node.cell(index)?;
        if cell.long {
            self.value.clear();
            self.value.extend_from_slice(cell.stored);
        }
        let (long, taken, at) = (cell.long, cell.bytes.len(), cell.at);
        let (count, live) = (node.count - 1, node.live().saturating_sub(taken));
        // The lowest cell becomes part of the gap, and may be written over.
        let lowest = at == node.low();
        let low = if lowest { at + taken } else { node.low() };
        let from = HEAD_BYTES + index * SLOT_BYTES;
        let behind = node.slots_end() - from;
        if lowest {
            self.pages.note(page, at, taken)?;
        }
        note_slots(&mut self.pages, page, from, behind)?;
        self.pages.shift(page, from + SLOT_BYTES, behind - SLOT_BYTES, from)?;
        self.pages.write(page, 2, &counts(count, low, live))?;
        if long { long::give_up(&mut self.pages, &self.value) } else { Ok(()) }
    }
}

/// The counts in a node's head.
#[inline]
fn counts(count: usize, low: usize, live: usize) -> [u8; 6] {
    let mut bytes = [0; 6];
    for (to, number) in bytes.chunks_exact_mut(2).zip([count, low, live]) {
        to.copy_from_slice(&(number as u16).to_le_bytes());
    }
    bytes
}

/// Puts an entry into the gap of a leaf without its cell being made elsewhere first; false when it
/// does not go there, or its value not into a cell.
#[inline]
fn insert_plain<S: Space>(
    pages: &mut Pages<S>,
    (page, index): (u32, usize),
    key: &[u8],
    value: &[u8],
) -> Result<bool, StoreError> {
    let node = pages.node(page)?;
    let takes = CELL_HEAD_BYTES + key.len() + value.len();
    let fits = takes <= CELL_BYTES_MAX
        && node.low() - node.slots_end() >= SLOT_BYTES + takes
        && node.begins(key);
    if fits {
        let gap = Gap::note(pages, page, (index, takes))?;
        pages.write(page, gap.low, &(value.len() as u16).to_le_bytes())?;
        pages.write(page, gap.low + CELL_HEAD_BYTES, key)?;
        pages.write(page, gap.low + CELL_HEAD_BYTES + key.len(), value)?;
        gap.take(pages, page, key)?;
    }
    Ok(fits)
}

/// The cell goes where nothing stood; what is changed besides is noted.
fn insert_into_gap<S: Space>(
    pages: &mut Pages<S>,
    page: u32,
    index: usize,
    entry: Entry<'_>,
) -> Result<(), StoreError> {
    let gap = Gap::note(pages, page, (index, entry.cell.len()))?;
    pages.write(page, gap.low, entry.cell)?;
    gap.take(pages, page, entry.key)
}

/// Notes the counts of a node and the slots of `bytes` bytes from `at` on.
#[inline]
fn note_slots<S: Space>(
    pages: &mut Pages<S>,
    page: u32,
    at: usize,
    bytes: usize,
) -> Result<(), StoreError> {
    // A note costs more than a few more bytes in it.
    if at < NEAR_BYTES {
        return pages.note(page, 0, at + bytes);
    }
    pages.note(page, 0, COUNTS_BYTES)?;
    pages.note(page, at, bytes)
}

/// Where an entry goes into the gap of a node.
struct Gap {
    /// Where its cell begins.
    low: usize,
    /// Where its slot is.
    at: usize,
    /// Bytes of the slots behind it.
    behind: usize,
    counts: [u8; 6],
    prefix: usize,
}

impl Gap {
    /// A cell of `takes` bytes becomes entry `index`. Notes what that changes.
    #[inline]
    fn note<S: Space>(
        pages: &mut Pages<S>,
        page: u32,
        (index, takes): (usize, usize),
    ) -> Result<Gap, StoreError> {
        let node = pages.node(page)?;
        let at = HEAD_BYTES + index * SLOT_BYTES;
        let low = node.low() - takes;
        let gap = Gap {
            low,
            at,
            behind: node.slots_end().saturating_sub(at),
            counts: counts(node.count + 1, low, node.live() + takes),
            prefix: node.prefix().len(),
        };
        note_slots(pages, page, at, gap.behind)?;
        Ok(gap)
    }

    /// The cell is there: it becomes the entry.
    #[inline]
    fn take<S: Space>(self, pages: &mut Pages<S>, page: u32, key: &[u8]) -> Result<(), StoreError> {
        let Gap { low, at, behind, counts, prefix } = self;
        pages.shift(page, at, behind, at + SLOT_BYTES)?;
        pages.write(page, at, &slot(hint(key, prefix), low, key.len()))?;
        pages.write(page, 2, &counts)
    }
}

/// Whether the cell of an entry of a leaf has its whole value.
fn is_inline(key: &[u8], value: &[u8]) -> bool {
    CELL_HEAD_BYTES + key.len() + value.len() <= CELL_BYTES_MAX
}

/// How long such a cell is.
fn cell_bytes(key: &[u8], value: &[u8]) -> usize {
    let stored = if is_inline(key, value) { value.len() } else { long::stored_bytes(value.len()) };
    CELL_HEAD_BYTES + key.len() + stored
}

fn make_cell<S: Space>(
    pages: &mut Pages<S>,
    key: &[u8],
    value: &[u8],
    cell: &mut Vec<u8>,
) -> Result<(), StoreError> {
    cell.clear();
    let inline = is_inline(key, value);
    let mark = if inline { value.len() as u16 } else { LONG_MARK };
    cell.extend_from_slice(&mark.to_le_bytes());
    cell.extend_from_slice(key);
    if inline {
        cell.extend_from_slice(value);
        return Ok(());
    }
    long::store(pages, value, cell)?;
    let stored = (cell.len() - CELL_HEAD_BYTES - key.len()) as u16;
    cell[..CELL_HEAD_BYTES].copy_from_slice(&(LONG_MARK | stored).to_le_bytes());
    Ok(())
}

/// The cell of a branch's entry.
fn child_cell(key: &[u8], child: u32) -> Vec<u8> {
    [&4_u16.to_le_bytes()[..], key, &child.to_le_bytes()].concat()
}

/// Copies entries of a node.
pub(super) fn fill(
    builder: &mut Builder,
    node: &Node<'_>,
    from: usize,
    to: usize,
) -> Result<(), StoreError> {
    for index in from..to {
        let (key, cell) = node.whole(index)?;
        builder.push(key, cell)?;
    }
    Ok(())
}

/// Copies entries `range` of a node into which `entry` was put at `index`.
fn fill_with(
    builder: &mut Builder,
    node: &Node<'_>,
    (index, entry): (usize, Entry<'_>),
    range: Range<usize>,
) -> Result<(), StoreError> {
    // An entry behind the new one is the one before it in the node.
    let behind = |at: usize| at.saturating_sub(1).max(index);
    fill(builder, node, range.start.min(index), range.end.min(index))?;
    if range.contains(&index) {
        builder.push(entry.key.len(), entry.cell)?;
    }
    fill(builder, node, behind(range.start), behind(range.end))
}

/// Where entry `at` of such a node stands without the new one; `None` for that.
fn place_without(index: usize, at: usize) -> Option<usize> {
    (at != index).then(|| at - usize::from(at > index))
}

/// The key of entry `at` of such a node.
fn key_of<'a>(
    node: &Node<'a>,
    (index, entry): (usize, Entry<'a>),
    at: usize,
) -> Result<&'a [u8], StoreError> {
    place_without(index, at).map_or(Ok(entry.key), |at| node.key(at))
}

/// How many entries stay in the left page. Both pages get at least one and have room for what they
/// get; they are about even, or the left one ends with an insertion in order.
fn split_point(
    node: &Node<'_>,
    index: usize,
    entry: Entry<'_>,
    in_order: bool,
) -> Result<usize, StoreError> {
    let takes = |at: usize| {
        let cell = place_without(index, at).map_or(Ok(entry.cell), |at| Ok(node.whole(at)?.1));
        cell.map(|cell: &[u8]| cell.len() + SLOT_BYTES)
    };
    let whole: usize = node.used() + SLOT_BYTES + entry.cell.len();
    let wanted = if in_order { index + usize::from(index < node.count) } else { 0 };
    let (mut left, mut best) = (0, None);
    for at in 1..=node.count {
        left += takes(at - 1)?;
        if left > ROOM_BYTES {
            break;
        }
        let right = whole.saturating_sub(left);
        if right > ROOM_BYTES {
            continue;
        }
        let uneven = if at == wanted { 0 } else { 1 + left.abs_diff(right) };
        if best.is_none_or(|(least, _)| uneven < least) {
            best = Some((uneven, at));
        }
        if at >= wanted && left >= right {
            // It only becomes more uneven.
            break;
        }
    }
    best.map(|(_, at)| at).ok_or(StoreError::Corrupt("a full page that cannot be split"))
}

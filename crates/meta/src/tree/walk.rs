//! From the root to a leaf, and from leaf to leaf.

use mayfly_records::page::DEPTH_MAX;

use super::{
    Tree, long,
    page::{Cell, Node},
    pages::Pages,
    space::Space,
};
use crate::{Scan, StoreError};

const BAD_LEVEL: StoreError = StoreError::Corrupt("a page on another level than its parent says");
const BAD_ORDER: StoreError = StoreError::Corrupt("a leaf that does not follow the one before it");

/// A page on the way, and which of its entries the way goes through.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Step {
    pub(super) page: u32,
    pub(super) index: u16,
}

/// The way from the root to a page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Way {
    steps: [Step; DEPTH_MAX],
    length: usize,
}

impl Way {
    /// Goes one page down.
    ///
    /// # Errors
    /// [`StoreError::Full`]: so deep a tree is none of ours.
    #[inline]
    pub(super) fn push(&mut self, page: u32, index: usize) -> Result<(), StoreError> {
        let index = index as u16;
        *self.steps.get_mut(self.length).ok_or(StoreError::Full)? = Step { page, index };
        self.length += 1;
        Ok(())
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Step> {
        self.length = self.length.checked_sub(1)?;
        self.steps.get(self.length).copied()
    }

    /// The lowest page of the way.
    #[inline]
    pub(super) fn last(&self) -> Option<Step> {
        self.length.checked_sub(1).and_then(|last| self.steps.get(last)).copied()
    }
}

/// Where a key is. It holds until an entry is put into a node or taken out of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) leaf: u32,
    /// The entry with the key, or where it would stand.
    pub(super) index: Result<usize, usize>,
}

/// The last key that was looked up: it is often the next one that is written.
#[derive(Debug, Default)]
pub(super) struct Last {
    key: Vec<u8>,
    found: Option<Found>,
    /// The branches above the leaf; it stays here, since it is long and seldom asked for.
    way: Way,
}

impl Last {
    /// Entries are about to move.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.found = None;
    }

    /// The way to what was found last. Before anything is done that changes branches it is taken
    /// from here.
    pub(super) fn way(&self) -> Way {
        self.way
    }

    #[inline]
    fn find<S: Space>(&mut self, pages: &Pages<S>, key: &[u8]) -> Result<Found, StoreError> {
        if let Some(found) = self.found.filter(|_| self.key == key) {
            return Ok(found);
        }
        self.found = None;
        let found = find(pages, key, &mut self.way)?;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.found = Some(found);
        Ok(found)
    }
}

/// How many places [`Often`] knows.
const OFTEN: usize = 64;

/// Where entries stand that were looked up, made or written lately: a directory in which names are
/// made, the counters, a file that was made and is written. They are not searched again.
///
/// A place is believed if its page still has the key there. So whatever moves entries within a page
/// or to a new one only costs a search, as do two keys that want one place. A page that is given up
/// keeps its bytes for a while, so whoever does that says so.
#[derive(Debug)]
pub(super) struct Often {
    /// The mark of a key, and where that is. Page 0 is none that has a key.
    places: [(u64, Step); OFTEN],
}

impl Default for Often {
    fn default() -> Often {
        Often { places: [(0, Step::default()); OFTEN] }
    }
}

/// What tells a key from most others: its end, with its beginning and its length.
#[inline]
fn mark(key: &[u8]) -> u64 {
    let begin = key.first().copied().map_or(0, u64::from);
    let end = key.last_chunk().map_or(0, |end| u64::from_be_bytes(*end));
    end ^ begin << 56 ^ (key.len() as u64) << 48
}

/// Which of the places is for keys with this mark.
#[inline]
fn place_of(mark: u64) -> usize {
    (mark.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % OFTEN
}

/// An entry of a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafEntry {
    pub(super) leaf: u32,
    pub(super) index: usize,
    /// Where its cell begins.
    pub(super) at: usize,
    /// Length of the cell.
    pub(super) bytes: usize,
    /// Length of what stands in it for the value.
    pub(super) stored: usize,
    pub(super) long: bool,
}

impl Often {
    /// A page is given up.
    #[inline]
    pub(super) fn forget(&mut self) {
        *self = Often::default();
    }

    /// An entry is there.
    #[inline]
    pub(super) fn note(&mut self, key: &[u8], leaf: u32, index: usize) {
        let mark = mark(key);
        if let Some(place) = self.places.get_mut(place_of(mark)) {
            *place = (mark, Step { page: leaf, index: index as u16 });
        }
    }

    /// The entry with `key`, if its place is known.
    #[inline(always)]
    pub(super) fn find<'a, S: Space>(
        &self,
        pages: &'a Pages<S>,
        key: &[u8],
    ) -> Option<(LeafEntry, Cell<'a>)> {
        let mark = mark(key);
        let (known, Step { page, index }) = *self.places.get(place_of(mark))?;
        if known != mark {
            return None;
        }
        let node = pages.node(page).ok()?;
        let (leaf, index) = (page, usize::from(index));
        let cell = node.cell(index).ok()?;
        let there = cell.key == key && node.level() == 0;
        there.then(|| (cell.leaf_entry(leaf, index), cell))
    }
}

impl Cell<'_> {
    #[inline(always)]
    pub(super) fn leaf_entry(&self, leaf: u32, index: usize) -> LeafEntry {
        let (bytes, stored) = (self.bytes.len(), self.stored.len());
        LeafEntry { leaf, index, at: self.at, bytes, stored, long: self.long }
    }
}

/// The page below an entry of a branch.
#[inline]
fn below<'a, S: Space>(
    pages: &'a Pages<S>,
    node: &Node<'a>,
    index: usize,
) -> Result<(u32, Node<'a>), StoreError> {
    let child = node.child(index)?;
    pages.prefetch(child);
    let lower = pages.node(child)?;
    if u16::from(lower.level()) + 1 == u16::from(node.level()) {
        Ok((child, lower))
    } else {
        Err(BAD_LEVEL)
    }
}

/// Looks for `key`; `way` becomes the way there.
///
/// # Errors
/// [`StoreError::Corrupt`].
fn find<S: Space>(pages: &Pages<S>, key: &[u8], way: &mut Way) -> Result<Found, StoreError> {
    way.length = 0;
    let mut page = pages.root();
    let mut node = pages.node(page)?;
    while node.level() > 0 {
        let index = node.find_child(key)?;
        way.push(page, index)?;
        (page, node) = below(pages, &node, index)?;
    }
    Ok(Found { leaf: page, index: node.find(key)? })
}

/// Goes from the end of a leaf to the next one. False when there is none.
fn next_leaf<S: Space>(
    pages: &Pages<S>,
    way: &mut Way,
    leaf: &mut u32,
) -> Result<bool, StoreError> {
    while let Some(step) = way.pop() {
        let mut node = pages.node(step.page)?;
        let mut index = usize::from(step.index) + 1;
        if index >= node.count {
            continue;
        }
        let mut page = step.page;
        while node.level() > 0 {
            way.push(page, index)?;
            (page, node) = below(pages, &node, index)?;
            index = 0;
        }
        *leaf = page;
        return Ok(true);
    }
    Ok(false)
}

impl<S: Space> Tree<S> {
    /// As [`crate::Store::get`].
    #[inline]
    pub(super) fn look_up(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        let cell = match self.often.find(&self.pages, key) {
            Some((_, cell)) => cell,
            None => {
                let found = self.last.find(&self.pages, key)?;
                let Ok(index) = found.index else { return Ok(None) };
                self.often.note(key, found.leaf, index);
                self.pages.node(found.leaf)?.cell(index)?
            }
        };
        value_of(&self.pages, &cell, &mut self.value).map(Some)
    }

    /// Looks for a key.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    #[inline]
    pub(super) fn find(&mut self, key: &[u8]) -> Result<Found, StoreError> {
        self.last.find(&self.pages, key)
    }

    /// As [`crate::Store::scan`].
    pub(super) fn show(
        &mut self,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Scan,
    ) -> Result<(), StoreError> {
        let Tree { pages, value, .. } = self;
        let mut way = Way::default();
        let mut found = find(pages, from, &mut way)?;
        let (Ok(mut index) | Err(mut index)) = found.index;
        loop {
            let node = pages.node(found.leaf)?;
            while index < node.count {
                let cell = node.cell(index)?;
                if !cell.key.starts_with(prefix) || visit_cell(pages, &cell, value, visit)? {
                    return Ok(());
                }
                index += 1;
            }
            // Keys rise, or the pages lead in a circle.
            let last = node.count.checked_sub(1).map(|last| node.key(last)).transpose()?;
            if !next_leaf(pages, &mut way, &mut found.leaf)? {
                return Ok(());
            }
            let next = pages.node(found.leaf)?.key(0)?;
            if last.is_none_or(|last| last >= next) {
                return Err(BAD_ORDER);
            }
            index = 0;
        }
    }
}

/// The value of an entry of a leaf, put together in `value` where it has to be.
#[inline]
fn value_of<'a, S: Space>(
    pages: &'a Pages<S>,
    cell: &Cell<'a>,
    value: &'a mut Vec<u8>,
) -> Result<&'a [u8], StoreError> {
    if cell.long { long::load(pages, cell.stored, value) } else { Ok(cell.stored) }
}

/// True when the visitor has had enough.
fn visit_cell<S: Space>(
    pages: &Pages<S>,
    cell: &Cell<'_>,
    value: &mut Vec<u8>,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Scan,
) -> Result<bool, StoreError> {
    Ok(visit(cell.key, value_of(pages, cell, value)?) == Scan::Enough)
}

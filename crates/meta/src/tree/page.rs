//! The bytes of a page, read with suspicion.
//!
//! A *node* (leaf or branch) has a head, slots in key order that grow upwards, and cells that grow
//! downwards from the page's end. A slot has the place of its cell, the length of its key and the
//! key's *hint*: the four bytes after the prefix that all keys of the page share. So a search reads
//! the head, a few slots that lie side by side, and mostly one cell.
//!
//! | offset | bytes | of a node |
//! |---|---|---|
//! | 0 | 1 | 1: a node |
//! | 1 | 1 | level: 0 a leaf |
//! | 2 | 2 | number of entries |
//! | 4 | 2 | where the lowest cell begins |
//! | 6 | 2 | bytes of the cells that are in use |
//! | 8 | 1 | length of the shared prefix, at most 16 |
//! | 16 | 16 | the prefix, then zeros |
//! | 32 | 8 each | slots: length of the key (2), place of the cell (2), hint (4) |
//!
//! All numbers are little-endian; a hint is the number that its bytes make read big-endian, so that
//! numbers are in the order of keys. A cell is the length of its value (2), the key, the value. In
//! a branch the value is a page (4), and the first key counts as smaller than all others, whatever
//! it is. A level is one less than its parent's, so no page can lead back up.

use core::cmp::Ordering;

use mayfly_records::page::PREFIX_AT;
pub(super) use mayfly_records::page::{
    CELL_HEAD_BYTES, HEAD_BYTES, LONG, LONG_MARK, NODE, PAGE_BYTES, PREFIX_BYTES_MAX, SLOT_BYTES,
    hint,
};

use crate::StoreError;

/// What entries have between them.
pub(super) const ROOM_BYTES: usize = PAGE_BYTES - HEAD_BYTES;
/// Longest cell: any two and a half fill a page, so that a page which is full can be split.
pub(super) const CELL_BYTES_MAX: usize = ROOM_BYTES / 2 - SLOT_BYTES;
/// The number of a page, which is what an entry of a branch has.
const CHILD_BYTES: usize = 4;
/// The part of a node's head that an insertion changes.
pub(super) const COUNTS_BYTES: usize = 8;

/// What a page is: free.
pub(super) const FREE: u8 = 3;

const BAD_NODE: StoreError = StoreError::Corrupt("a page is not the node that it should be");
const BAD_CELL: StoreError = StoreError::Corrupt("a cell is not within its page");

/// The first so many bytes of a number that was read little-endian.
const PREFIX_MASKS: [u128; PREFIX_BYTES_MAX + 1] = {
    let mut masks = [u128::MAX; PREFIX_BYTES_MAX + 1];
    let mut length = 0;
    while length < PREFIX_BYTES_MAX {
        masks[length] = (1 << (8 * length)) - 1;
        length += 1;
    }
    masks
};

/// The bytes of a page.
pub(super) type Bytes = [u8; PAGE_BYTES];

/// A node whose head has been looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    bytes: &'a Bytes,
    slots: &'a [[u8; SLOT_BYTES]],
    pub(super) count: usize,
}

/// An entry's place and what is there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell<'a> {
    /// The whole cell, from the length of its value on.
    pub(super) bytes: &'a [u8],
    pub(super) key: &'a [u8],
    /// As it stands in the cell.
    pub(super) stored: &'a [u8],
    /// [`LONG_MARK`].
    pub(super) long: bool,
    /// Where the cell begins in its page.
    pub(super) at: usize,
}

#[inline]
fn u16_at(bytes: &Bytes, at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The bytes of a slot.
#[inline]
pub(super) fn slot(hint: u32, cell: usize, key: usize) -> [u8; SLOT_BYTES] {
    (u64::from(hint) << 32 | (cell as u64) << 16 | key as u64).to_le_bytes()
}

/// The hint in a slot.
#[inline]
fn hint_of(slot: [u8; SLOT_BYTES]) -> u32 {
    (u64::from_le_bytes(slot) >> 32) as u32
}

impl<'a> Node<'a> {
    /// Looks at the head.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    #[inline]
    pub(super) fn of(bytes: &'a Bytes) -> Result<Node<'a>, StoreError> {
        let count = usize::from(u16_at(bytes, 2));
        let slots = bytes.get(HEAD_BYTES..HEAD_BYTES + count * SLOT_BYTES).ok_or(BAD_NODE)?;
        let node = Node { bytes, slots: slots.as_chunks().0, count };
        let fits = node.slots_end() <= node.low()
            && node.low() <= PAGE_BYTES
            && node.prefix_length() <= PREFIX_BYTES_MAX
            && node.live() <= ROOM_BYTES;
        if bytes[0] == NODE && fits { Ok(node) } else { Err(BAD_NODE) }
    }

    #[inline]
    pub(super) fn level(&self) -> u8 {
        self.bytes[1]
    }

    #[inline]
    pub(super) fn low(&self) -> usize {
        usize::from(u16_at(self.bytes, 4))
    }

    /// Bytes of the cells in use.
    #[inline]
    pub(super) fn live(&self) -> usize {
        usize::from(u16_at(self.bytes, 6))
    }

    /// Bytes that the entries take.
    #[inline]
    pub(super) fn used(&self) -> usize {
        self.live() + self.count * SLOT_BYTES
    }

    #[inline]
    pub(super) fn slots_end(&self) -> usize {
        HEAD_BYTES + self.count * SLOT_BYTES
    }

    #[inline]
    fn prefix_length(&self) -> usize {
        usize::from(self.bytes[8])
    }

    /// What the keys of the page have in common.
    #[inline]
    pub(super) fn prefix(&self) -> &'a [u8] {
        &self.bytes[PREFIX_AT..PREFIX_AT + self.prefix_length().min(PREFIX_BYTES_MAX)]
    }

    #[inline]
    fn slot(&self, index: usize) -> Result<u64, StoreError> {
        self.slots.get(index).map(|slot| u64::from_le_bytes(*slot)).ok_or(BAD_CELL)
    }

    #[inline]
    fn key_of(&self, slot: u64) -> Result<&'a [u8], StoreError> {
        let (at, length) = (usize::from((slot >> 16) as u16), usize::from(slot as u16));
        self.bytes.get(at + CELL_HEAD_BYTES..at + CELL_HEAD_BYTES + length).ok_or(BAD_CELL)
    }

    #[inline]
    pub(super) fn key(&self, index: usize) -> Result<&'a [u8], StoreError> {
        self.key_of(self.slot(index)?)
    }

    /// Where the cell of entry `index` is, and the length of its key.
    #[inline]
    fn place(&self, index: usize) -> Result<(usize, usize), StoreError> {
        let slot = self.slot(index)?;
        let (at, key) = (usize::from((slot >> 16) as u16), usize::from(slot as u16));
        if at < self.slots_end() { Err(BAD_CELL) } else { Ok((at, key)) }
    }

    /// The cell of entry `index`, and the length of its key.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when there is none, or it is not within the page.
    #[inline]
    pub(super) fn whole(&self, index: usize) -> Result<(usize, &'a [u8]), StoreError> {
        let (at, key) = self.place(index)?;
        let rest = self.bytes.get(at..).ok_or(BAD_CELL)?;
        let mark = u16::from_le_bytes(*rest.first_chunk().ok_or(BAD_CELL)?);
        let bytes = CELL_HEAD_BYTES + key + usize::from(mark & !LONG_MARK);
        Ok((key, rest.get(..bytes).ok_or(BAD_CELL)?))
    }

    /// Entry `index`.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when there is none, or it is not within the page.
    #[inline]
    pub(super) fn cell(&self, index: usize) -> Result<Cell<'a>, StoreError> {
        let (key, bytes) = self.whole(index)?;
        let (mark, rest) = bytes.split_first_chunk().ok_or(BAD_CELL)?;
        let (key, stored) = rest.split_at_checked(key).ok_or(BAD_CELL)?;
        let long = u16::from_le_bytes(*mark) & LONG_MARK != 0;
        Ok(Cell { bytes, key, stored, long, at: self.place(index)?.0 })
    }

    /// The page below entry `index` of a branch.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    #[inline]
    pub(super) fn child(&self, index: usize) -> Result<u32, StoreError> {
        let (at, key) = self.place(index)?;
        let cell = self.bytes.get(at..at + CELL_HEAD_BYTES + key + CHILD_BYTES).ok_or(BAD_CELL)?;
        let (Some(mark), Some(child)) = (cell.first_chunk(), cell.last_chunk()) else {
            return Err(BAD_CELL);
        };
        if usize::from(u16::from_le_bytes(*mark) & !LONG_MARK) != CHILD_BYTES {
            return Err(BAD_CELL);
        }
        Ok(u32::from_le_bytes(*child))
    }

    /// Whether `key` begins with what the keys of the page have in common.
    #[inline]
    pub(super) fn begins(&self, key: &[u8]) -> bool {
        self.compare_prefix(key) == Ordering::Equal
    }

    /// How `key` begins, compared with what the keys of the page have in common.
    #[inline]
    fn compare_prefix(&self, key: &[u8]) -> Ordering {
        let prefix = self.prefix();
        // Most keys are so long, and begin like the page's.
        if let Some(start) = key.first_chunk()
            && let Some(there) = self.bytes[PREFIX_AT..].first_chunk()
            && let Some(mask) = PREFIX_MASKS.get(prefix.len())
            && (u128::from_le_bytes(*start) ^ u128::from_le_bytes(*there)) & mask == 0
        {
            return Ordering::Equal;
        }
        key[..key.len().min(prefix.len())].cmp(prefix)
    }

    /// The entry with `key`, or where it would stand, from entry `first` on.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    #[inline(always)]
    fn search(&self, key: &[u8], first: usize) -> Result<Result<usize, usize>, StoreError> {
        match self.compare_prefix(key) {
            Ordering::Less => return Ok(Err(first)),
            Ordering::Greater => return Ok(Err(self.count.max(first))),
            Ordering::Equal => {}
        }
        let wanted = hint(key, self.prefix_length());
        let behind = self.slots.get(first..).unwrap_or_default();
        let low = first + behind.partition_point(|slot| hint_of(*slot) < wanted);
        match self.slots.get(low) {
            Some(slot) if hint_of(*slot) == wanted => self.search_hinted(key, wanted, low),
            _ => Ok(Err(low)),
        }
    }

    /// The same among the entries from `low` on, the first one with this hint. Mostly it is the
    /// only one, but there may be any number.
    fn search_hinted(
        &self,
        key: &[u8],
        wanted: u32,
        mut low: usize,
    ) -> Result<Result<usize, usize>, StoreError> {
        let (mut high, mut middle) = (self.count, low);
        while low < high {
            let slot = *self.slots.get(middle).ok_or(BAD_CELL)?;
            if hint_of(slot) != wanted {
                high = middle;
            } else {
                match self.key_of(u64::from_le_bytes(slot))?.cmp(key) {
                    Ordering::Less => low = middle + 1,
                    Ordering::Greater => high = middle,
                    Ordering::Equal => return Ok(Ok(middle)),
                }
            }
            middle = low.midpoint(high);
        }
        Ok(Err(low))
    }

    /// The entry of a leaf with `key`, or where it would stand.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Result<Result<usize, usize>, StoreError> {
        self.search(key, 0)
    }

    /// The entry of a branch below which `key` would be.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    #[inline]
    pub(super) fn find_child(&self, key: &[u8]) -> Result<usize, StoreError> {
        if self.count == 0 {
            return Err(BAD_NODE);
        }
        Ok(match self.search(key, 1)? {
            Ok(index) => index,
            Err(index) => index - 1,
        })
    }
}

/// Makes a node from entries in key order.
#[derive(Debug)]
pub(super) struct Builder {
    bytes: Box<Bytes>,
    count: usize,
    low: usize,
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder { bytes: Box::new([0; PAGE_BYTES]), count: 0, low: PAGE_BYTES }
    }

    /// Begins anew.
    pub(super) fn clear(&mut self, level: u8) {
        self.bytes[..HEAD_BYTES].fill(0);
        (self.bytes[0], self.bytes[1]) = (NODE, level);
        (self.count, self.low) = (0, PAGE_BYTES);
    }

    #[inline]
    fn room(&mut self, bytes: usize) -> Result<usize, StoreError> {
        let end = HEAD_BYTES + (self.count + 1) * SLOT_BYTES;
        // The bytes of the pages that it came from do not add up.
        let low = self.low.checked_sub(bytes).filter(|low| end <= *low).ok_or(BAD_NODE)?;
        Ok(low)
    }

    /// The next entry, as a whole cell with a key of `key` bytes.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it does not fit.
    #[inline]
    pub(super) fn push(&mut self, key: usize, cell: &[u8]) -> Result<(), StoreError> {
        let low = self.room(cell.len())?;
        self.bytes[low..self.low].copy_from_slice(cell);
        self.put_slot(low, key);
        Ok(())
    }

    /// The next entry of a branch.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it does not fit.
    pub(super) fn push_child(&mut self, key: &[u8], child: &[u8]) -> Result<(), StoreError> {
        let low = self.room(CELL_HEAD_BYTES + key.len() + child.len())?;
        let cell = &mut self.bytes[low..self.low];
        cell[..CELL_HEAD_BYTES].copy_from_slice(&(child.len() as u16).to_le_bytes());
        cell[CELL_HEAD_BYTES..CELL_HEAD_BYTES + key.len()].copy_from_slice(key);
        cell[CELL_HEAD_BYTES + key.len()..].copy_from_slice(child);
        self.put_slot(low, key.len());
        Ok(())
    }

    #[inline]
    fn put_slot(&mut self, low: usize, key: usize) {
        let at = HEAD_BYTES + self.count * SLOT_BYTES;
        self.bytes[at..at + SLOT_BYTES].copy_from_slice(&slot(0, low, key));
        self.low = low;
        self.count += 1;
    }

    /// The node; now that all keys are known, so is what they have in common.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the keys are not what was pushed.
    pub(super) fn finish(&mut self) -> Result<&Bytes, StoreError> {
        let low = self.low as u16;
        self.bytes[2..4].copy_from_slice(&(self.count as u16).to_le_bytes());
        self.bytes[4..6].copy_from_slice(&low.to_le_bytes());
        self.bytes[6..8].copy_from_slice(&(PAGE_BYTES as u16 - low).to_le_bytes());
        let node = Node::of(&self.bytes)?;
        let first = usize::from(node.level() > 0);
        let mut prefix = [0; PREFIX_BYTES_MAX];
        let mut length = 0;
        if first < self.count {
            let (one, other) = (node.key(first)?, node.key(self.count - 1)?);
            length = shared(one, other).min(PREFIX_BYTES_MAX);
            // A single entry shares its whole key with itself, and nothing with the next one.
            length = if first + 1 == self.count { 0 } else { length };
            prefix[..length].copy_from_slice(&one[..length]);
        }
        let (slots, cells) = self.bytes.split_at_mut(HEAD_BYTES + self.count * SLOT_BYTES);
        let slots_end = slots.len();
        for slot in slots[HEAD_BYTES..].as_chunks_mut::<SLOT_BYTES>().0.iter_mut().skip(first) {
            let (key, at) = (u16::from_le_bytes([slot[0], slot[1]]), [slot[2], slot[3]]);
            let from = usize::from(u16::from_le_bytes(at)) + CELL_HEAD_BYTES - slots_end;
            let key = cells.get(from..from + usize::from(key)).ok_or(BAD_CELL)?;
            slot[4..].copy_from_slice(&hint(key, length).to_le_bytes());
        }
        self.bytes[8] = length as u8;
        self.bytes[PREFIX_AT..HEAD_BYTES].copy_from_slice(&prefix);
        Ok(&self.bytes)
    }
}

/// How many bytes two keys have in common.
pub(super) fn shared(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

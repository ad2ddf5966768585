//! From a key to its value, in pages that somebody else may be changing.

use core::{cmp::Ordering, hint::select_unpredictable};

use mayfly_types::FileId;

use crate::{
    Unsure,
    page::{
        CACHE_LINE_BYTES, CELL_HEAD_BYTES, DEPTH_MAX, ENTRIES_MAX, HEAD_BYTES, LONG,
        LONG_HEAD_BYTES, LONG_MARK, LONG_PLACE_BYTES, NODE, PAGE_BYTES, PLACES_AT, PREFIX_AT,
        PREFIX_BYTES_MAX, SEARCHED_LINES, SLOT_BYTES, hint,
    },
    way::Way,
};

/// Longest key that is looked for, bytes.
pub const KEY_BYTES_MAX: usize = 96;

/// The bytes of the file, as they are at each look.
pub trait Source {
    /// The eight bytes at a multiple of eight, in one look; `None` where there are none.
    fn word(&self, at: usize) -> Option<u64>;

    /// The eight bytes at any place; `None` where there are not so many.
    fn chunk(&self, at: usize) -> Option<[u8; 8]>;

    /// `at` will be looked at.
    fn prefetch(&self, _at: usize) {}

    /// Whether the records have everything. Otherwise they have what is at home at one shard of
    /// several.
    fn has_all(&self) -> bool {
        true
    }

    /// Whether directories may have an origin, where names may be that no record has.
    fn origins(&self) -> Origins {
        Origins::None
    }

    /// What the processors' counter says.
    fn now(&self) -> u64 {
        u64::MAX
    }

    /// Where a way was seen to lead, if that is remembered ([`crate::way`]).
    fn recall(&self, _way: Way<'_>) -> Option<FileId> {
        None
    }

    /// Remembers that a way leads to `directory` until the counter says so.
    fn remember(&self, _way: Way<'_>, _directory: FileId, _until: u64) {}

    /// Whether all names of `directory` were in the records of this version, and are believed.
    fn recall_whole(&self, _directory: FileId, _version: u64) -> bool {
        false
    }

    /// Remembers that they are, and are believed until the counter says so.
    fn remember_whole(&self, _directory: FileId, _version: u64, _until: u64) {}
}

/// How long what was seen of an origin is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origins {
    /// There are none.
    None,
    /// As long as the records say.
    Until,
    /// Once it was seen, for ever.
    ForEver,
    /// Not at all: what has an origin is left to the daemon.
    Never,
}

/// A key and its beginning as a number.
pub(crate) struct Key<'a> {
    bytes: &'a [u8],
    first: u128,
}

impl<'a> Key<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Key<'a> {
        let mut first = [0; PREFIX_BYTES_MAX];
        let count = bytes.len().min(PREFIX_BYTES_MAX);
        first[..count].copy_from_slice(&bytes[..count]);
        Key { bytes, first: u128::from_be_bytes(first) }
    }
}

/// A node, as its head was when it was looked at.
pub(crate) struct Node<'a, S> {
    source: &'a S,
    start: usize,
    pub(crate) level: u8,
    pub(crate) count: usize,
    prefix: usize,
}

/// An entry's key and cell.
#[derive(Clone, Copy)]
pub(crate) struct Slot(u64);

impl Slot {
    fn hint(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn key_bytes(self) -> usize {
        usize::from(self.0 as u16)
    }

    /// Where the cell begins in its page.
    pub(crate) fn cell(self) -> usize {
        usize::from((self.0 >> 16) as u16)
    }

    fn value_at(self) -> usize {
        self.cell() + CELL_HEAD_BYTES + self.key_bytes()
    }
}

impl<'a, S: Source> Node<'a, S> {
    pub(crate) fn of(source: &'a S, page: u32, end: u32) -> Result<Node<'a, S>, Unsure> {
        if !(1..end).contains(&page) {
            return Err(Unsure);
        }
        let start = page as usize * PAGE_BYTES;
        for line in 1..SEARCHED_LINES {
            source.prefetch(start + line * CACHE_LINE_BYTES);
        }
        let head = source.word(start).ok_or(Unsure)?.to_le_bytes();
        let prefix = source.word(start + 8).ok_or(Unsure)?.to_le_bytes()[0];
        let [kind, level, low, high, ..] = head;
        let count = usize::from(u16::from_le_bytes([low, high]));
        let fits = count <= ENTRIES_MAX && usize::from(prefix) <= PREFIX_BYTES_MAX;
        if kind != NODE || !fits {
            return Err(Unsure);
        }
        Ok(Node { source, start, level, count, prefix: usize::from(prefix) })
    }

    pub(crate) fn slot(&self, index: usize) -> Result<Slot, Unsure> {
        if index >= self.count {
            return Err(Unsure);
        }
        self.source.word(self.start + HEAD_BYTES + index * SLOT_BYTES).map(Slot).ok_or(Unsure)
    }

    /// Eight bytes of the page.
    pub(crate) fn chunk(&self, at: usize) -> Result<[u8; 8], Unsure> {
        if at + 8 > PAGE_BYTES {
            return Err(Unsure);
        }
        self.source.chunk(self.start + at).ok_or(Unsure)
    }

    /// The `N` bytes at `at`, of which at least eight lie before it in the page.
    fn short<const N: usize>(&self, at: usize) -> Result<[u8; N], Unsure> {
        const { assert!(N <= 8) };
        let chunk = self.chunk((at + N).checked_sub(8).ok_or(Unsure)?)?;
        chunk.last_chunk().copied().ok_or(Unsure)
    }

    /// Compares an entry's key, whose first `known` bytes are those of `key`.
    fn order(&self, slot: Slot, key: &[u8], known: usize) -> Result<Ordering, Unsure> {
        let (length, start) = (slot.key_bytes(), slot.cell() + CELL_HEAD_BYTES);
        let common = length.min(key.len());
        let mut at = known;
        while at < common {
            // The last ones are read together with some that were read before.
            let from = if common - at >= 8 { at } else { common.saturating_sub(8) };
            // Of a key of less than eight bytes what is before it is read with it.
            let beyond = 8 * 8_usize.saturating_sub(common);
            let chunk = self.chunk((start + common.min(from + 8)).checked_sub(8).ok_or(Unsure)?)?;
            let there = u64::from_be_bytes(chunk) & u64::MAX >> beyond;
            let mine = key.get(from..).and_then(|rest| rest.first_chunk()).ok_or(Unsure)?;
            let order = there.cmp(&(u64::from_be_bytes(*mine) >> beyond));
            if order != Ordering::Equal {
                return Ok(order);
            }
            at = from + 8;
        }
        Ok(length.cmp(&key.len()))
    }

    /// The entry with `key`, or where it would stand, from entry `first` on.
    pub(crate) fn search(
        &self,
        key: &Key<'_>,
        first: usize,
    ) -> Result<Result<usize, usize>, Unsure> {
        if self.prefix > 0 {
            let word = |at| self.source.word(self.start + PREFIX_AT + at).map(u64::swap_bytes);
            let (high, low) = (word(0).ok_or(Unsure)?, word(8).ok_or(Unsure)?);
            let beyond = 8 * (PREFIX_BYTES_MAX - self.prefix);
            let prefix = (u128::from(high) << 64 | u128::from(low)) >> beyond;
            match (key.first >> beyond).cmp(&prefix) {
                Ordering::Less => return Ok(Err(first)),
                Ordering::Greater => return Ok(Err(self.count.max(first))),
                Ordering::Equal if key.bytes.len() < self.prefix => return Ok(Err(first)),
                Ordering::Equal => {}
            }
        }
        let wanted = hint(key.bytes, self.prefix);
        let low = self.first_hinted(wanted, first)?;
        if low >= self.count {
            return Ok(Err(low));
        }
        let slot = self.slot(low)?;
        if slot.hint() != wanted {
            return Ok(Err(low));
        }
        match self.order(slot, key.bytes, self.prefix)? {
            Ordering::Less => self.search_hinted(key, wanted, low + 1),
            Ordering::Greater => Ok(Err(low)),
            Ordering::Equal => Ok(Ok(low)),
        }
    }

    /// The first entry from `first` on whose hint is not below `wanted`. Hints are as good as
    /// random, so no branch depends on them.
    fn first_hinted(&self, wanted: u32, first: usize) -> Result<usize, Unsure> {
        let (mut low, mut left) = (first, self.count.saturating_sub(first));
        while left > 0 {
            let half = left.div_ceil(2);
            let below = self.slot(low + half - 1)?.hint() < wanted;
            low = select_unpredictable(below, low + half, low);
            left -= half;
        }
        Ok(low)
    }

    /// The entry with `key` among those from `low` on with the same hint. Mostly there is none
    /// left, but there may be any number.
    fn search_hinted(
        &self,
        key: &Key<'_>,
        wanted: u32,
        mut low: usize,
    ) -> Result<Result<usize, usize>, Unsure> {
        let (mut high, mut middle) = (self.count, low);
        while low < high {
            let slot = self.slot(middle)?;
            let order = match slot.hint().cmp(&wanted) {
                Ordering::Equal => self.order(slot, key.bytes, self.prefix)?,
                order => order,
            };
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(Ok(middle)),
            }
            middle = low.midpoint(high);
        }
        Ok(Err(low))
    }

    /// The entry below which `key` would be.
    pub(crate) fn child_index(&self, key: &Key<'_>) -> Result<usize, Unsure> {
        match self.search(key, 1)? {
            Ok(index) => Ok(index),
            Err(index) => index.checked_sub(1).ok_or(Unsure),
        }
    }

    /// The page of entry `index`.
    pub(crate) fn child_at(&self, index: usize) -> Result<u32, Unsure> {
        self.short(self.slot(index)?.value_at()).map(u32::from_le_bytes)
    }

    /// Copies the beginning of the value of entry `index`; the number of bytes.
    pub(crate) fn value<const N: usize>(
        &self,
        index: usize,
        end: u32,
        to: &mut [[u8; 8]; N],
    ) -> Result<usize, Unsure> {
        let slot = self.slot(index)?;
        let mark = u16::from_le_bytes(self.short(slot.cell())?);
        if mark & LONG_MARK != 0 {
            let page = u32::from_le_bytes(self.short(slot.value_at())?);
            return self.long_value(page, end, to);
        }
        let count = usize::from(mark).min(8 * N);
        let (start, whole) = (slot.value_at(), count / 8);
        for (at, to) in to.iter_mut().enumerate().take(whole) {
            *to = self.chunk(start + 8 * at)?;
        }
        if count % 8 > 0 {
            let last = self.chunk((start + count).checked_sub(8).ok_or(Unsure)?)?;
            let rest = &last[8 - count % 8..];
            to[whole][..rest.len()].copy_from_slice(rest);
        }
        Ok(count)
    }

    /// Where the value of entry `index` lies.
    fn runs(&self, index: usize, end: u32) -> Result<Runs, Unsure> {
        let slot = self.slot(index)?;
        let mark = u16::from_le_bytes(self.short(slot.cell())?);
        let (start, mut runs) = (slot.value_at(), Runs::default());
        let count = usize::from(mark & !LONG_MARK);
        if start + count > PAGE_BYTES {
            return Err(Unsure);
        }
        if mark & LONG_MARK == 0 {
            runs.push(self.start + start, count)?;
            return Ok(runs);
        }
        let mut page = u32::from_le_bytes(self.short(start)?);
        let length = u32::from_le_bytes(self.short(start + 4)?) as usize;
        let rest = count.checked_sub(LONG_PLACE_BYTES).ok_or(Unsure)?;
        let mut left = length.checked_sub(rest).ok_or(Unsure)?;
        while left > 0 {
            if !(1..end).contains(&page) {
                return Err(Unsure);
            }
            let at = page as usize * PAGE_BYTES;
            let head = self.source.word(at).ok_or(Unsure)?;
            if head.to_le_bytes()[0] != LONG {
                return Err(Unsure);
            }
            let bytes = left.min(PAGE_BYTES - LONG_HEAD_BYTES);
            runs.push(at + LONG_HEAD_BYTES, bytes)?;
            left -= bytes;
            page = (head >> 32) as u32;
        }
        if rest > 0 {
            runs.push(self.start + start + LONG_PLACE_BYTES, rest)?;
        }
        Ok(runs)
    }

    /// The beginning is in the first page of the chain.
    fn long_value<const N: usize>(
        &self,
        page: u32,
        end: u32,
        to: &mut [[u8; 8]; N],
    ) -> Result<usize, Unsure> {
        const { assert!(8 * N <= PAGE_BYTES - LONG_HEAD_BYTES) };
        if !(1..end).contains(&page) {
            return Err(Unsure);
        }
        let start = page as usize * PAGE_BYTES;
        if self.source.word(start).ok_or(Unsure)?.to_le_bytes()[0] != LONG {
            return Err(Unsure);
        }
        for (at, to) in to.iter_mut().enumerate() {
            let word = self.source.word(start + LONG_HEAD_BYTES + 8 * at).ok_or(Unsure)?;
            *to = word.to_le_bytes();
        }
        Ok(8 * N)
    }
}

/// Runs that a value has at most, of those that are asked for.
const RUNS_MAX: usize = 3;

/// Where the bytes of a value lie in the file: one run behind the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Runs([(u32, u32); RUNS_MAX]);

impl Runs {
    /// Words that tell of them all.
    pub const WORDS: usize = RUNS_MAX;

    /// Those words.
    #[must_use]
    pub fn words(&self) -> [u64; Runs::WORDS] {
        self.0.map(|(at, bytes)| u64::from(at) << 32 | u64::from(bytes))
    }

    /// What such words tell of.
    #[must_use]
    pub fn of(words: [u64; Runs::WORDS]) -> Runs {
        Runs(words.map(|word| ((word >> 32) as u32, word as u32)))
    }

    /// Puts a run of `bytes` bytes at `at` behind the others.
    fn push(&mut self, at: usize, bytes: usize) -> Result<(), Unsure> {
        let free = self.0.iter_mut().find(|(_, bytes)| *bytes == 0).ok_or(Unsure)?;
        *free = (u32::try_from(at).map_err(|_| Unsure)?, bytes as u32);
        Ok(())
    }

    /// Bytes in all.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(_, bytes)| *bytes as usize).sum()
    }

    /// Places and lengths, from byte `first` of the value on.
    pub fn from(&self, first: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        self.0.into_iter().scan(first, |skip, (at, bytes)| {
            let skipped = (*skip).min(bytes as usize);
            *skip -= skipped;
            Some((at as usize + skipped, bytes as usize - skipped))
        })
    }

    /// The first `count` bytes, or as many as there are.
    pub(crate) fn up_to(mut self, count: u64) -> Runs {
        let mut left = u32::try_from(count).unwrap_or(u32::MAX);
        for (_, bytes) in &mut self.0 {
            *bytes = (*bytes).min(left);
            left -= *bytes;
        }
        self
    }

    /// The same without the first `count` bytes.
    pub(crate) fn behind(&self, count: usize) -> Runs {
        let mut left = Runs::default();
        for (to, (at, bytes)) in left.0.iter_mut().zip(self.from(count)) {
            *to = (at as u32, bytes as u32);
        }
        left
    }
}

/// An entry of a leaf, and the end of the file.
pub(crate) struct Place<'a, S> {
    leaf: Node<'a, S>,
    index: usize,
    end: u32,
}

impl<S: Source> Place<'_, S> {
    /// As [`get`].
    #[inline]
    pub(crate) fn value<const N: usize>(&self, to: &mut [[u8; 8]; N]) -> Result<usize, Unsure> {
        self.leaf.value(self.index, self.end, to)
    }

    /// Where the whole value lies.
    pub(crate) fn runs(&self) -> Result<Runs, Unsure> {
        self.leaf.runs(self.index, self.end)
    }
}

/// Copies the beginning of the value of `key` to `to`; the number of bytes, or `None` when there is
/// no such key. A long value is taken to be longer than `to`.
///
/// # Errors
/// [`Unsure`]: what is there makes no sense, because it is being changed; or the key is longer than
/// [`KEY_BYTES_MAX`], or shorter than 9 bytes.
pub fn get<S: Source, const N: usize>(
    source: &S,
    key: &[u8],
    to: &mut [[u8; 8]; N],
) -> Result<Option<usize>, Unsure> {
    find(source, key)?.map(|place| place.value(to)).transpose()
}

/// The entry of `key`, if there is one.
///
/// # Errors
/// As [`get`].
#[inline]
pub(crate) fn find<'a, S: Source>(
    source: &'a S,
    key: &[u8],
) -> Result<Option<Place<'a, S>>, Unsure> {
    if !(9..=KEY_BYTES_MAX).contains(&key.len()) {
        return Err(Unsure);
    }
    let key = Key::of(key);
    let places = source.word(PLACES_AT).ok_or(Unsure)?;
    let (root, end) = (places as u32, (places >> 32) as u32);
    let mut node = Node::of(source, root, end)?;
    for _ in 0..DEPTH_MAX {
        if node.level == 0 {
            let Ok(index) = node.search(&key, 0)? else { return Ok(None) };
            return Ok(Some(Place { leaf: node, index, end }));
        }
        let below = Node::of(source, node.child_at(node.child_index(&key)?)?, end)?;
        if u16::from(below.level) + 1 != u16::from(node.level) {
            return Err(Unsure);
        }
        node = below;
    }
    Err(Unsure)
}

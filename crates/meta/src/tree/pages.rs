//! The file of pages: its header, which pages are free, and how bytes are changed so that a
//! transaction is whole or nothing.
//!
//! Page 0 is the header:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | `MAYFLYP1` |
//! | 8 | 4 | bytes in a page |
//! | 12 | 4 | length of the boot id |
//! | 16 | 8 | last committed transaction |
//! | 24 | 4 | root |
//! | 28 | 4 | end: pages from there on were never used |
//! | 32 | 4 | first free page, 0 for none |
//! | 36 | 4 | number of free pages |
//! | 40 | 64 | boot id |
//! | 104 | 8 | version: twice the last committed transaction, plus 1 during the next one |
//! | 112 | 8 | moves: how often names of directories have come to lead elsewhere |
//!
//! Version and moves are for others who read the file (`mayfly_records`).
//!
//! A free page has the next one's number at offset 4.
//!
//! **The rule** behind every write here: a byte that meant something when the transaction began is
//! noted in the journal before it is changed for the first time. What meant nothing (free pages
//! but for their link, the gap between the slots and the cells of a node, pages beyond the end) is
//! written without. So that this stays true, a page that the transaction has freed joins the free
//! pages only when it commits, and cells that it has given up are not written over, except where
//! they were noted.

use mayfly_records::page::{MOVES_AT, PLACES_AT, SEARCHED_LINES, VERSION_AT};

use super::{
    journal::{Journal, range},
    page::{Bytes, FREE, Node, PAGE_BYTES},
    space::{OUTSIDE, Space, u32_at, u64_at},
};
use crate::StoreError;

const MAGIC: u64 = u64::from_le_bytes(*b"MAYFLYP1");
const MAGIC_AT: usize = 0;
const PAGE_BYTES_AT: usize = 8;
const BOOT_LENGTH_AT: usize = 12;
const COMMITTED_AT: usize = 16;
const PLACES_BYTES: usize = 16;
const BOOT_AT: usize = 40;
const BOOT_BYTES_MAX: usize = 64;

/// Allocated ahead of use at least, bytes. Half of it must do for one transaction in which only
/// removals succeed: 128 requests that need 2 new pages each.
const AHEAD_BYTES_MIN: usize = 2 << 20;
/// Part of the file that is allocated ahead, so that a large one seldom grows.
const AHEAD_PART: usize = 8;
/// Allocated ahead at most, bytes: whoever waits for it waits some ten milliseconds.
const AHEAD_BYTES_MAX: usize = 32 << 20;
/// Where transactions may go beyond the limit, bytes, at least.
const RESERVE_BYTES_MIN: u64 = 64 << 20;
/// The same as a part of the limit.
const RESERVE_PART: u64 = 4;

/// What a header that is all zeros or of another boot means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Boot {
    /// The kernel that runs.
    Same,
    /// Another one: what is here may be torn.
    Other,
}

/// The pages and their journal.
#[derive(Debug)]
pub(super) struct Pages<S> {
    space: S,
    journal: Journal<S>,
    committed: u64,
    /// The transaction under way has written something.
    changed: bool,
    root: u32,
    end: u32,
    free_head: u32,
    free_count: u32,
    /// Given up by the transaction under way.
    given_up: Vec<u32>,
    pages_max: u32,
    limit_bytes: u64,
    /// The file could not be allocated ahead.
    disk_full: bool,
}

fn pages_max(limit_bytes: u64) -> u32 {
    let reserve = RESERVE_BYTES_MIN.max(limit_bytes / RESERVE_PART);
    let pages = limit_bytes.saturating_add(reserve) / PAGE_BYTES as u64;
    u32::try_from(pages).unwrap_or(u32::MAX)
}

impl<S: Space> Pages<S> {
    /// Writes an empty tree into a space of zeros: one leaf.
    ///
    /// # Errors
    /// As [`Space::grow`].
    pub(super) fn create(space: &mut S, boot_id: &[u8], leaf: &Bytes) -> Result<(), StoreError> {
        space.grow(AHEAD_BYTES_MIN)?;
        let boot_id = &boot_id[..boot_id.len().min(BOOT_BYTES_MAX)];
        space.write(PAGE_BYTES_AT, &(PAGE_BYTES as u32).to_le_bytes())?;
        space.write(BOOT_LENGTH_AT, &(boot_id.len() as u32).to_le_bytes())?;
        space.write(BOOT_AT, boot_id)?;
        space.write(PLACES_AT, &places(1, 2, 0, 0))?;
        space.write(PAGE_BYTES, leaf)?;
        space.publish(MAGIC_AT, MAGIC)
    }

    /// Whether the running kernel wrote what is in `space`. Nothing else of it is looked at.
    pub(super) fn boot(space: &S, boot_id: &[u8]) -> Boot {
        let boot_id = &boot_id[..boot_id.len().min(BOOT_BYTES_MAX)];
        let recorded = space.bytes().get(BOOT_AT..BOOT_AT + boot_id.len());
        let length = u32_at(space.bytes(), BOOT_LENGTH_AT).unwrap_or_default();
        let same = recorded == Some(boot_id) && length as usize == boot_id.len();
        if same { Boot::Same } else { Boot::Other }
    }

    /// Opens what a process left.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub(super) fn open(mut space: S, journal: S, limit_bytes: u64) -> Result<Self, StoreError> {
        let bytes = space.bytes();
        if u64_at(bytes, MAGIC_AT)? != MAGIC || u32_at(bytes, PAGE_BYTES_AT)? as usize != PAGE_BYTES
        {
            return Err(StoreError::Corrupt("the file of pages has another format"));
        }
        let committed = u64_at(bytes, COMMITTED_AT)?;
        let journal = Journal::open(journal, committed, &mut space)?;
        // What a dead process had under way is undone.
        space.publish(VERSION_AT, version(committed))?;
        let bytes = space.bytes();
        let pages = Pages {
            committed,
            changed: false,
            root: u32_at(bytes, PLACES_AT)?,
            end: u32_at(bytes, PLACES_AT + 4)?,
            free_head: u32_at(bytes, PLACES_AT + 8)?,
            free_count: u32_at(bytes, PLACES_AT + 12)?,
            given_up: Vec::new(),
            pages_max: pages_max(limit_bytes),
            limit_bytes,
            disk_full: false,
            space,
            journal,
        };
        let whole = pages.end as usize <= pages.allocated()
            && pages.is_page(pages.root)
            && (pages.free_head == 0 || pages.is_page(pages.free_head))
            && pages.free_count < pages.end;
        if whole { Ok(pages) } else { Err(StoreError::Corrupt("a header that makes no sense")) }
    }

    fn allocated(&self) -> usize {
        self.space.bytes().len() / PAGE_BYTES
    }

    fn is_page(&self, number: u32) -> bool {
        (1..self.end).contains(&number)
    }

    #[inline]
    pub(super) fn root(&self) -> u32 {
        self.root
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Bytes of pages in use, the header aside.
    pub(super) fn used_bytes(&self) -> u64 {
        let free = u64::from(self.free_count) + self.given_up.len() as u64;
        u64::from(self.end).saturating_sub(1 + free) * PAGE_BYTES as u64
    }

    /// As [`crate::Store::has_room`].
    pub(super) fn has_room(&mut self) -> bool {
        if self.disk_full && !self.changed {
            // It may have been somebody else's bytes.
            self.allocate_ahead();
        }
        !self.disk_full && self.used_bytes() < self.limit_bytes
    }

    /// The bytes of a page.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when there is no such page.
    #[inline]
    pub(super) fn page(&self, number: u32) -> Result<&Bytes, StoreError> {
        if !self.is_page(number) {
            return Err(StoreError::Corrupt("a page beyond the end"));
        }
        let rest = self.space.bytes().get(place(number)..).ok_or(OUTSIDE)?;
        rest.first_chunk().ok_or(OUTSIDE)
    }

    /// A node is about to be searched: its head and slots lie in these cache lines, which would
    /// otherwise be waited for one after the other.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        self.space.prefetch::<SEARCHED_LINES>(place(number));
    }

    /// A page that must be a node.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    #[inline]
    pub(super) fn node(&self, number: u32) -> Result<Node<'_>, StoreError> {
        Node::of(self.page(number)?)
    }

    /// Begins the transaction, if none is under way.
    ///
    /// # Errors
    /// As [`Pages::note`].
    #[inline]
    pub(super) fn begin(&mut self) -> Result<(), StoreError> {
        if !self.changed {
            self.journal.begin(self.committed.wrapping_add(1))?;
            self.space.publish(VERSION_AT, version(self.committed) | 1)?;
            self.changed = true;
        }
        Ok(())
    }

    /// Lets others know that the transaction moves or removes a directory. That is not noted: when
    /// the transaction is undone, it was counted once too often.
    ///
    /// # Errors
    /// As [`Pages::begin`].
    pub(super) fn count_move(&mut self) -> Result<(), StoreError> {
        self.begin()?;
        let moves = u64_at(self.space.bytes(), MOVES_AT)?;
        self.space.publish(MOVES_AT, moves.wrapping_add(1))
    }

    /// Notes what stands in a page, which is about to be changed there.
    ///
    /// # Errors
    /// As [`Space::grow`] of the journal.
    #[inline]
    pub(super) fn note(&mut self, page: u32, at: usize, bytes: usize) -> Result<(), StoreError> {
        self.note_at(place(page) + at, bytes)
    }

    #[inline]
    fn note_at(&mut self, at: usize, bytes: usize) -> Result<(), StoreError> {
        self.begin()?;
        self.journal.note(at, range(self.space.bytes(), at, bytes)?)
    }

    /// Writes into a page, what was noted or what meant nothing.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    #[inline]
    pub(super) fn write(&mut self, page: u32, at: usize, from: &[u8]) -> Result<(), StoreError> {
        self.journal.publish()?;
        self.space.write(place(page) + at, from)
    }

    /// Moves bytes within a page, as [`Pages::write`].
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    #[inline]
    pub(super) fn shift(
        &mut self,
        page: u32,
        from: usize,
        bytes: usize,
        to: usize,
    ) -> Result<(), StoreError> {
        self.journal.publish()?;
        self.space.shift(place(page) + from, bytes, place(page) + to)
    }

    /// Replaces a page that means something.
    ///
    /// # Errors
    /// As [`Pages::note`].
    pub(super) fn replace(&mut self, page: u32, bytes: &Bytes) -> Result<(), StoreError> {
        self.note(page, 0, PAGE_BYTES)?;
        self.write(page, 0, bytes)
    }

    fn write_places(&mut self) -> Result<(), StoreError> {
        self.note_at(PLACES_AT, PLACES_BYTES)?;
        self.journal.publish()?;
        let places = places(self.root, self.end, self.free_head, self.free_count);
        self.space.write(PLACES_AT, &places)
    }

    /// Lets the tree begin at another page.
    ///
    /// # Errors
    /// As [`Pages::note`].
    pub(super) fn set_root(&mut self, root: u32) -> Result<(), StoreError> {
        self.root = root;
        self.write_places()
    }

    /// Whether so many pages can be had at all.
    pub(super) fn could_allocate(&self, pages: u64) -> bool {
        u64::from(self.free_count) + u64::from(self.pages_max.saturating_sub(self.end)) >= pages
    }

    /// A page whose content means nothing.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::Corrupt`].
    pub(super) fn allocate(&mut self) -> Result<u32, StoreError> {
        let page = self.free_head;
        if page != 0 {
            let bytes = self.page(page)?;
            let next = u32_at(bytes, 4)?;
            if bytes[0] != FREE || next != 0 && !self.is_page(next) {
                return Err(StoreError::Corrupt("a free page is none"));
            }
            self.note(page, 0, 8)?;
            self.free_head = next;
            self.free_count = self.free_count.saturating_sub(1);
            self.write_places()?;
            return Ok(page);
        }
        if self.end as usize >= self.allocated() {
            self.grow()?;
        }
        let page = self.end;
        self.end = self.end.saturating_add(1);
        self.write_places()?;
        Ok(page)
    }

    /// Gives a page up, when the transaction commits.
    pub(super) fn give_up(&mut self, page: u32) {
        self.given_up.push(page);
    }

    fn grow(&mut self) -> Result<(), StoreError> {
        let end = self.end as usize;
        let ahead = ahead_pages(end);
        let most = self.pages_max as usize;
        if end >= most {
            return Err(StoreError::Full);
        }
        let wanted = (end + ahead).min(most);
        self.space.grow(wanted * PAGE_BYTES).or_else(|error| match error {
            StoreError::Full => self.space.grow((end + 16).min(most) * PAGE_BYTES),
            other => Err(other),
        })
    }

    /// Keeps pages allocated ahead of their use.
    fn allocate_ahead(&mut self) {
        let end = self.end as usize;
        let ahead = ahead_pages(end);
        let free = self.allocated() - end + self.free_count as usize;
        if free >= ahead / 2 && (free >= ahead || !self.disk_full) {
            self.disk_full = false;
            return;
        }
        let wanted = (end + ahead).min(self.pages_max as usize).max(end);
        self.disk_full = self.space.grow(wanted * PAGE_BYTES).is_err();
    }

    /// Ends the transaction: what it wrote stays. Its number, or the last one's.
    ///
    /// # Errors
    /// As [`Pages::note`].
    pub(super) fn commit(&mut self) -> Result<u64, StoreError> {
        if !self.changed {
            return Ok(self.committed);
        }
        if !self.given_up.is_empty() {
            self.link_given_up()?;
        }
        // All of it in one store: the number rises, and the notes are those of no transaction
        // under way any more.
        self.space.publish(COMMITTED_AT, self.committed.wrapping_add(1))?;
        self.committed = self.committed.wrapping_add(1);
        self.space.publish(VERSION_AT, version(self.committed))?;
        self.changed = false;
        self.allocate_ahead();
        Ok(self.committed)
    }

    fn link_given_up(&mut self) -> Result<(), StoreError> {
        while let Some(page) = self.given_up.pop() {
            self.note(page, 0, 8)?;
            let mut head = [FREE, 0, 0, 0, 0, 0, 0, 0];
            head[4..].copy_from_slice(&self.free_head.to_le_bytes());
            self.write(page, 0, &head)?;
            self.free_head = page;
            self.free_count = self.free_count.saturating_add(1);
        }
        self.write_places()
    }

    /// Makes what was committed survive a power loss. What is under way survives it as well, and
    /// is undone.
    ///
    /// # Errors
    /// What the disk says.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.journal.sync()?;
        self.space.sync()
    }

    #[cfg(test)]
    pub(super) fn into_spaces(self) -> (S, S) {
        (self.space, self.journal.into_space())
    }

    /// Pages from there on were never used.
    pub(super) fn end(&self) -> u32 {
        self.end
    }
}

/// What a reader sees after this transaction.
fn version(committed: u64) -> u64 {
    committed.wrapping_mul(2)
}

#[inline]
fn place(page: u32) -> usize {
    page as usize * PAGE_BYTES
}

fn ahead_pages(end: usize) -> usize {
    let bytes = (end * PAGE_BYTES / AHEAD_PART).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
    bytes / PAGE_BYTES
}

fn places(root: u32, end: u32, free_head: u32, free_count: u32) -> [u8; PLACES_BYTES] {
    let mut bytes = [0; PLACES_BYTES];
    for (to, number) in bytes.chunks_exact_mut(4).zip([root, end, free_head, free_count]) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

//! Where things are in the file of pages.
//!
//! `meta::tree::pages` describes the header (page 0), `meta::tree::page` the nodes, and
//! `meta::tree::long` the values that do not fit a node.

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;

/// In the header: root and end (4 each), in one word.
pub const PLACES_AT: usize = 24;
/// In the header: the version, odd while a transaction is under way.
pub const VERSION_AT: usize = 104;
/// In the header: how often names of directories have come to lead elsewhere.
pub const MOVES_AT: usize = 112;

/// Head of a node.
pub const HEAD_BYTES: usize = 32;
/// One slot.
pub const SLOT_BYTES: usize = 8;
/// Length of the value before a cell's key.
pub const CELL_HEAD_BYTES: usize = 2;
/// Where a node's prefix is.
pub const PREFIX_AT: usize = 16;
/// Longest prefix that is taken note of.
pub const PREFIX_BYTES_MAX: usize = 16;
/// Entries of a node at most.
pub const ENTRIES_MAX: usize = (PAGE_BYTES - HEAD_BYTES) / SLOT_BYTES;
/// Levels of a tree at most. A branch that was split has at least three children, whatever the
/// keys, and usually over a hundred.
pub const DEPTH_MAX: usize = 24;

/// A search of a node begins with its head and the slots of some 35 entries: these cache lines.
pub const SEARCHED_LINES: usize = 5;
/// A cache line.
pub const CACHE_LINE_BYTES: usize = 64;

/// What a page is: a node.
pub const NODE: u8 = 1;
/// What a page is: part of a long value.
pub const LONG: u8 = 2;

/// In a cell's length: the value is long, and what stands here says where it is.
pub const LONG_MARK: u16 = 1 << 15;
/// What a cell has of a long value before its end: first page and length.
pub const LONG_PLACE_BYTES: usize = 8;
/// Where the bytes of a long value begin in a page.
pub const LONG_HEAD_BYTES: usize = 16;

/// The four bytes of a key after its first `prefix`; zeros where there are none.
#[inline]
#[must_use]
pub fn hint(key: &[u8], prefix: usize) -> u32 {
    let rest = key.get(prefix..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk() {
        return u32::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 4];
    bytes[..rest.len()].copy_from_slice(rest);
    u32::from_be_bytes(bytes)
}

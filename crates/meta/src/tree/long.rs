//! Values that do not fit a leaf.
//!
//! Such a value lies in a chain of pages, each with the next one's number at offset 4 and bytes of
//! the value from offset 16 on. Its cell has the chain's first page (4), the length of the whole
//! value (4), and the value's end if that is short: a file of 4096 bytes with its inode takes one
//! page and a little in the leaf, not two.

use mayfly_records::page::{LONG_HEAD_BYTES as HEAD_BYTES, LONG_PLACE_BYTES as PLACE_BYTES};

use super::{
    page::{LONG, PAGE_BYTES},
    pages::Pages,
    space::{Space, u32_at},
};
use crate::StoreError;

const DATA_BYTES: usize = PAGE_BYTES - HEAD_BYTES;
/// A value's end up to this length stays in the leaf, bytes.
const REST_BYTES_MAX: usize = 512;

const BAD_CHAIN: StoreError = StoreError::Corrupt("a long value's pages do not fit its length");

/// How many pages a value takes, and how many of its bytes stay in the leaf.
fn shape(length: usize) -> (usize, usize) {
    match length % DATA_BYTES {
        rest if rest <= REST_BYTES_MAX => (length / DATA_BYTES, rest),
        _ => (length / DATA_BYTES + 1, 0),
    }
}

/// Bytes that the cell of a value of this length has besides its key.
pub(super) fn stored_bytes(length: usize) -> usize {
    PLACE_BYTES + shape(length).1
}

/// Puts `value` into pages, and what its cell is to hold behind `stored`.
///
/// # Errors
/// [`StoreError::Full`], [`StoreError::Corrupt`].
pub(super) fn store<S: Space>(
    pages: &mut Pages<S>,
    value: &[u8],
    stored: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let length = u32::try_from(value.len()).map_err(|_| StoreError::Full)?;
    let (count, rest) = shape(value.len());
    if !pages.could_allocate(count as u64) {
        return Err(StoreError::Full);
    }
    let (long, rest) = value.split_at(value.len() - rest);
    // From the last one, so that each is written once.
    let mut next = 0_u32;
    for data in long.chunks(DATA_BYTES).rev() {
        let page = pages.allocate()?;
        let mut head = [0; HEAD_BYTES];
        head[0] = LONG;
        head[4..8].copy_from_slice(&next.to_le_bytes());
        pages.write(page, 0, &head)?;
        pages.write(page, HEAD_BYTES, data)?;
        next = page;
    }
    stored.extend_from_slice(&next.to_le_bytes());
    stored.extend_from_slice(&length.to_le_bytes());
    stored.extend_from_slice(rest);
    Ok(())
}

/// The chain that a cell tells of: first page, pages, bytes in them, and the value's end.
fn place(stored: &[u8]) -> Result<(u32, usize, usize, &[u8]), StoreError> {
    let (first, length) = (u32_at(stored, 0)?, u32_at(stored, 4)? as usize);
    let rest = stored.get(PLACE_BYTES..).ok_or(BAD_CHAIN)?;
    let (count, rest_bytes) = shape(length);
    if rest.len() != rest_bytes {
        return Err(BAD_CHAIN);
    }
    Ok((first, count, length - rest_bytes, rest))
}

fn follow<S: Space>(
    pages: &Pages<S>,
    stored: &[u8],
    mut each: impl FnMut(u32, &[u8]),
) -> Result<(), StoreError> {
    let (mut page, count, mut bytes, _) = place(stored)?;
    // A chain that leads into itself would otherwise be as long as the cell claims.
    if count as u64 > u64::from(pages.end()) {
        return Err(BAD_CHAIN);
    }
    for _ in 0..count {
        let content = pages.page(page)?;
        if content[0] != LONG {
            return Err(BAD_CHAIN);
        }
        let here = bytes.min(DATA_BYTES);
        each(page, &content[HEAD_BYTES..HEAD_BYTES + here]);
        bytes -= here;
        page = u32_at(content, 4)?;
    }
    if page == 0 { Ok(()) } else { Err(BAD_CHAIN) }
}

/// The value of such a cell, put together in `value` unless it lies in one page.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub(super) fn load<'a, S: Space>(
    pages: &'a Pages<S>,
    stored: &[u8],
    value: &'a mut Vec<u8>,
) -> Result<&'a [u8], StoreError> {
    if let Some(whole) = whole(pages, stored)? {
        return Ok(whole);
    }
    value.clear();
    follow(pages, stored, |_, data| value.extend_from_slice(data))?;
    value.extend_from_slice(place(stored)?.3);
    Ok(value)
}

/// The value of such a cell, if it lies in one page, as that of a file of 3,901 bytes does.
fn whole<'a, S: Space>(pages: &'a Pages<S>, stored: &[u8]) -> Result<Option<&'a [u8]>, StoreError> {
    let (page, count, bytes, rest) = place(stored)?;
    if count != 1 || !rest.is_empty() {
        return Ok(None);
    }
    let content = pages.page(page)?;
    if content[0] != LONG || u32_at(content, 4)? != 0 {
        return Err(BAD_CHAIN);
    }
    Ok(content.get(HEAD_BYTES..HEAD_BYTES + bytes))
}

/// Gives up the pages of such a cell.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub(super) fn give_up<S: Space>(pages: &mut Pages<S>, stored: &[u8]) -> Result<(), StoreError> {
    let mut chain = Vec::new();
    follow(pages, stored, |page, _| chain.push(page))?;
    for page in chain {
        pages.give_up(page);
    }
    Ok(())
}

//! The layout of a prepared image, and the reader that believes nothing.
//!
//! ```text
//! file offset 0        header, one page
//! text_offset          the library's executable segment, whole pages, jumps patched in
//! area_offset          the area: page 0 is zero (data page of the process), then
//!                        trampolines, the shared filter ("common"), points, relocations
//! ```
//!
//! At run time the text is mapped over the library's own and the area at `text + delta`. All
//! numbers are little endian. Offsets named `area_*` count from the beginning of the area, those
//! named `text_*` in points and relocations from the beginning of the text.
//!
//! A *point* says which address of the unpatched library an instruction in the area stands for; a
//! *relocation* names a 32-bit displacement that changes when the area is mapped at another delta.

/// Version of the layout and of the code in it; part of the file name, so that versions coexist.
pub const VERSION: u32 = 4;
/// First bytes of every image.
pub const MAGIC: [u8; 8] = *b"MAYFLYIM";
/// Bytes of a page, and of the header.
pub const PAGE_BYTES: usize = 4096;
/// Longest key: GNU ld writes build ids of 20 bytes, [`sum_of_code`] gives 32.
pub const KEY_BYTES_MAX: usize = 32;
/// Where the area is mapped relative to the text, unless something is there already.
pub const DELTA: i64 = -(1 << 30);
/// Call numbers that the filter looks up; larger ones pass.
pub const CALLS_MAX: usize = 512;
/// Descriptor numbers that the filter looks up; larger ones pass.
pub const DESCRIPTORS_MAX: usize = 1 << 20;
/// Area offset of the pointer to the hook's entry.
pub const SLOT_ENTRY: usize = 0;
/// Area offset of the pointer to the class table.
pub const SLOT_CLASSES: usize = 8;
/// Area offset of the pointer to the descriptor table.
pub const SLOT_DESCRIPTORS: usize = 16;
/// Area offset of the pointer to the word that, when it is not zero, has calls of the watched
/// classes looked at.
pub const SLOT_WATCHED: usize = 24;
/// Bytes from the first instruction of a site's filter to its `syscall`: going back this far runs
/// the call again, filter included.
pub const FILTER_BYTES: usize = 26;
/// Bytes of the `syscall` instruction.
pub const SYSCALL_BYTES: usize = 2;
/// Bytes of one point: area offset, text offset.
pub const POINT_BYTES: usize = 8;
/// Bytes of one relocation: an offset.
pub const RELOCATION_BYTES: usize = 4;
/// Executable segments larger than this are refused.
pub const TEXT_BYTES_MAX: u64 = 512 << 20;
/// Areas larger than this are refused.
pub const AREA_BYTES_MAX: u64 = 64 << 20;

const CHECKSUM_OFFSET: usize = PAGE_BYTES - 8;

/// Why bytes are not an image that may be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// Shorter than a header, or than the header says.
    Short,
    /// Not an image.
    Magic,
    /// An image of another version.
    Version,
    /// The header's checksum does not match.
    Checksum,
    /// An offset or size is out of its range or not aligned.
    Range,
}

/// A table of fixed-size records inside the area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Table {
    /// Area offset of the first record.
    pub offset: u32,
    /// Number of records.
    pub count: u32,
}

/// What the first page of an image says, every field checked against the others and the file's
/// size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// What the library is known by, zero-padded: its build id, or the sum of its code.
    pub key: [u8; KEY_BYTES_MAX],
    /// How many bytes of `key` count.
    pub key_bytes: u32,
    /// Address of the executable segment in the library's own numbering, page-aligned.
    pub text_vaddr: u64,
    /// Bytes of text, whole pages.
    pub text_bytes: u64,
    /// File offset of the text.
    pub text_offset: u64,
    /// File offset of the area.
    pub area_offset: u64,
    /// Bytes of the area, whole pages, data page included.
    pub area_bytes: u64,
    /// Address of the area minus address of the text.
    pub delta: i64,
    /// Area offset behind the last instruction.
    pub code_end: u32,
    /// Area offsets of the shared filter.
    pub common_start: u32,
    /// End of the shared filter.
    pub common_end: u32,
    /// Points, ascending by area offset.
    pub points: Table,
    /// Displacements in the text that grow with the delta.
    pub text_relocations: Table,
    /// Displacements in the area that shrink with the delta.
    pub area_relocations: Table,
    /// Redirected instructions.
    pub sites: u32,
    /// `syscall` instructions left alone.
    pub unpatched: u32,
}

/// Reads fields one after the other.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        if let Some(source) = self.bytes.get(self.at..self.at + N) {
            field.copy_from_slice(source);
        }
        self.at += N;
        field
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn table(&mut self) -> Table {
        Table { offset: self.u32(), count: self.u32() }
    }
}

/// Writes fields one after the other.
struct Writer<'a> {
    page: &'a mut [u8; PAGE_BYTES],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.page[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn table(&mut self, table: Table) {
        self.put(&table.offset.to_le_bytes());
        self.put(&table.count.to_le_bytes());
    }
}

impl Header {
    /// Reads the first page of an image of `file_bytes` bytes.
    ///
    /// # Errors
    /// Says why the image must not be mapped.
    pub fn parse(page: &[u8], file_bytes: u64) -> Result<Header, Invalid> {
        let page = page.get(..PAGE_BYTES).ok_or(Invalid::Short)?;
        let mut fields = Fields { bytes: page, at: 0 };
        if fields.take::<8>() != MAGIC {
            return Err(Invalid::Magic);
        }
        if fields.u32() != VERSION {
            return Err(Invalid::Version);
        }
        let mut stored = [0; 8];
        stored.copy_from_slice(&page[CHECKSUM_OFFSET..]);
        if checksum(&page[..CHECKSUM_OFFSET]) != u64::from_le_bytes(stored) {
            return Err(Invalid::Checksum);
        }
        let header = Header {
            key_bytes: fields.u32(),
            key: fields.take(),
            text_vaddr: fields.u64(),
            text_bytes: fields.u64(),
            text_offset: fields.u64(),
            area_offset: fields.u64(),
            area_bytes: fields.u64(),
            delta: fields.u64().cast_signed(),
            code_end: fields.u32(),
            common_start: fields.u32(),
            common_end: fields.u32(),
            points: fields.table(),
            text_relocations: fields.table(),
            area_relocations: fields.table(),
            sites: fields.u32(),
            unpatched: fields.u32(),
        };
        header.check(file_bytes)?;
        Ok(header)
    }

    /// The first page of an image with this header.
    #[must_use]
    pub fn encode(&self) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        let mut writer = Writer { page: &mut page, at: 0 };
        writer.put(&MAGIC);
        writer.put(&VERSION.to_le_bytes());
        writer.put(&self.key_bytes.to_le_bytes());
        writer.put(&self.key);
        for field in [self.text_vaddr, self.text_bytes, self.text_offset] {
            writer.put(&field.to_le_bytes());
        }
        for field in [self.area_offset, self.area_bytes, self.delta.cast_unsigned()] {
            writer.put(&field.to_le_bytes());
        }
        for field in [self.code_end, self.common_start, self.common_end] {
            writer.put(&field.to_le_bytes());
        }
        for table in [self.points, self.text_relocations, self.area_relocations] {
            writer.table(table);
        }
        writer.put(&self.sites.to_le_bytes());
        writer.put(&self.unpatched.to_le_bytes());
        let sum = checksum(&page[..CHECKSUM_OFFSET]);
        page[CHECKSUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
        page
    }

    /// The key without its padding.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key[..(self.key_bytes as usize).min(KEY_BYTES_MAX)]
    }

    fn check(&self, file_bytes: u64) -> Result<(), Invalid> {
        let page = PAGE_BYTES as u64;
        let aligned = [self.text_vaddr, self.text_bytes, self.text_offset, self.area_offset]
            .iter()
            .chain([self.area_bytes, self.delta.unsigned_abs()].iter())
            .all(|field| field % page == 0);
        let sized = (1..=KEY_BYTES_MAX as u32).contains(&self.key_bytes)
            && (page..=TEXT_BYTES_MAX).contains(&self.text_bytes)
            && (2 * page..=AREA_BYTES_MAX).contains(&self.area_bytes)
            && (TEXT_BYTES_MAX..=(1 << 30)).contains(&self.delta.unsigned_abs());
        if !aligned || !sized || self.text_vaddr >= 1 << 47 || self.text_offset < page {
            return Err(Invalid::Range);
        }
        let text_end = self.text_offset.checked_add(self.text_bytes).ok_or(Invalid::Range)?;
        let area_end = self.area_offset.checked_add(self.area_bytes).ok_or(Invalid::Range)?;
        if self.area_offset < text_end {
            return Err(Invalid::Range);
        }
        if area_end > file_bytes {
            return Err(Invalid::Short);
        }
        self.check_area()
    }

    fn check_area(&self) -> Result<(), Invalid> {
        let code = PAGE_BYTES as u32;
        let ordered = code <= self.common_start
            && self.common_start < self.common_end
            && self.common_end <= self.code_end
            && u64::from(self.code_end) <= self.area_bytes;
        let tables = [
            (self.points, POINT_BYTES),
            (self.text_relocations, RELOCATION_BYTES),
            (self.area_relocations, RELOCATION_BYTES),
        ];
        let inside = tables.iter().all(|(table, record_bytes)| {
            let end = u64::from(table.offset) + u64::from(table.count) * *record_bytes as u64;
            table.offset >= self.code_end && table.offset % 4 == 0 && end <= self.area_bytes
        });
        if ordered && inside { Ok(()) } else { Err(Invalid::Range) }
    }
}

/// FNV-1a over `bytes`, eight at a time: an accident detector, not a defence (owner and mode of the
/// file are that).
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    sum
}

/// The key of a library without a build id: a sum over its code as it is in memory, whole pages.
/// Four lanes take every fourth word each, so that it is as fast as memory. Every step can be
/// undone, so two texts that differ in one word never agree; it tells builds apart and is no
/// defence.
#[must_use]
pub fn sum_of_code(text: &[u8]) -> [u8; KEY_BYTES_MAX] {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut lanes = [1_u64, 2, 3, 4].map(|lane| (text.len() as u64).wrapping_add(lane << 56));
    for block in text.as_chunks::<KEY_BYTES_MAX>().0 {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(ODD).rotate_left(29);
        }
    }
    let mut key = [0; KEY_BYTES_MAX];
    for (place, lane) in key.as_chunks_mut::<8>().0.iter_mut().zip(lanes) {
        *place = lane.to_le_bytes();
    }
    key
}

/// The library address, as an offset into the text, that the instruction at `area_offset` stands
/// for. `points` is the area's points table. `None` when no instruction begins there.
#[must_use]
pub fn original(points: &[u8], area_offset: u32) -> Option<u32> {
    let (records, _) = points.as_chunks::<POINT_BYTES>();
    let key = |record: &[u8; POINT_BYTES]| word(record, 0);
    let index = records.binary_search_by_key(&area_offset, key).ok()?;
    records.get(index).map(|record| word(record, 4))
}

fn word(record: &[u8; POINT_BYTES], at: usize) -> u32 {
    let mut bytes = [0; 4];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = record[(at + index) % POINT_BYTES];
    }
    u32::from_le_bytes(bytes)
}

/// Writes the name of the image of a library, `<key in hex>.<version>.img`, and returns its
/// bytes used; `None` when `name` is too small.
#[must_use]
pub fn file_name(key: &[u8], name: &mut [u8]) -> Option<usize> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut at = 0;
    let mut put = |byte: u8| -> Option<()> {
        *name.get_mut(at)? = byte;
        at += 1;
        Some(())
    };
    for byte in key {
        put(HEX[usize::from(byte >> 4)])?;
        put(HEX[usize::from(byte & 15)])?;
    }
    put(b'.')?;
    put(b'0' + (VERSION % 10) as u8)?;
    b".img".iter().try_for_each(|byte| put(*byte))?;
    Some(at)
}

const _: () = assert!(VERSION < 10, "file_name writes one digit");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_code_tells_every_change_of_a_byte() {
        let mut text = [0x90; 2 * PAGE_BYTES];
        let sum = sum_of_code(&text);
        for at in (0..text.len()).step_by(13) {
            text[at] ^= 1;
            assert_ne!(sum_of_code(&text), sum, "byte {at}");
            text[at] ^= 1;
        }
        assert_eq!(sum_of_code(&text), sum);
        assert_ne!(sum_of_code(&text[..PAGE_BYTES]), sum);
    }
}

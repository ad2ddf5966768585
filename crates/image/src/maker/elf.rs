//! What the maker needs to know of an ELF file: its code, where functions begin, what points into
//! it.

use std::collections::BTreeSet;
use std::ops::Range;

use object::elf::{DF_TEXTREL, DT_FLAGS, DT_TEXTREL, PF_X, PT_LOAD, SHF_EXECINSTR};
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind};

use crate::format::{KEY_BYTES_MAX, PAGE_BYTES, TEXT_BYTES_MAX, sum_of_code};

/// Records of the table in `.eh_frame_hdr` are sorted pairs of 32-bit offsets; this is how the
/// header says so (pointer encodings: count udata4, table datarel | sdata4).
const EH_TABLE_ENCODING: [u8; 2] = [0x03, 0x3b];

/// A shared library, as far as patching it goes. Addresses are the library's own ("vaddr").
pub(super) struct Library<'a> {
    /// Key without padding.
    pub(super) key: Vec<u8>,
    /// A program that is always at the addresses that it is linked to.
    pub(super) has_its_place: bool,
    /// Page-aligned address of the executable segment.
    pub(super) text_vaddr: u64,
    /// The executable segment's pages as they are in memory.
    pub(super) text: Vec<u8>,
    /// Ranges of `text` that hold instructions.
    pub(super) code: Vec<Range<u64>>,
    /// Where functions are known to begin.
    pub(super) starts: BTreeSet<u64>,
    /// Segments without code: address and bytes.
    pub(super) data: Vec<(u64, &'a [u8])>,
}

/// The key of the ELF file with these contents: what a process finds in its memory, which are the
/// notes that are mapped, or else the code.
pub(super) fn key_of(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let file = open(bytes)?;
    match build_id(&file, bytes) {
        Some(build_id) => Ok(build_id.to_vec()),
        None => Ok(sum_of_code(&executable_segment(&file, bytes)?.1).to_vec()),
    }
}

/// Must the code of the ELF file with these contents stay as it is? Go's stacks are too small for a
/// hook, and the run-time libraries of sanitizers watch the process from below.
pub(super) fn is_left_alone(bytes: &[u8]) -> Result<bool, String> {
    const GO: [&str; 3] = [".note.go.buildid", ".go.buildinfo", ".gopclntab"];
    let file = open(bytes)?;
    let is_go = GO.iter().any(|name| file.section_by_name(name).is_some());
    let mut symbols = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let sanitizes = symbols
        .any(|symbol| symbol.name_bytes().is_ok_and(|name| name.starts_with(b"__sanitizer_")));
    Ok(is_go || sanitizes)
}

fn build_id<'a>(file: &ElfFile64<'_, Endianness>, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let endian = file.endian();
    let mut notes = file.elf_program_headers().iter().filter_map(|header| {
        // Damaged notes are none.
        header.notes(endian, bytes).ok().flatten()
    });
    notes.find_map(|mut notes| {
        while let Ok(Some(note)) = notes.next() {
            let sized = (1..=KEY_BYTES_MAX).contains(&note.desc().len());
            if note.name() == object::elf::ELF_NOTE_GNU
                && note.n_type(endian) == object::elf::NT_GNU_BUILD_ID
                && sized
            {
                return Some(note.desc());
            }
        }
        None
    })
}

fn open(bytes: &[u8]) -> Result<ElfFile64<'_, Endianness>, String> {
    let file = ElfFile64::<Endianness>::parse(bytes).map_err(|error| error.to_string())?;
    let header = file.elf_header();
    if header.e_machine(file.endian()) != object::elf::EM_X86_64 {
        return Err("is not for x86-64".into());
    }
    Ok(file)
}

impl<'a> Library<'a> {
    /// Reads the ELF file with these contents.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Library<'a>, String> {
        let file = open(bytes)?;
        let (text_vaddr, text) = executable_segment(&file, bytes)?;
        let text_range = text_vaddr..text_vaddr + text.len() as u64;
        let code = code_ranges(&file, &text_range);
        let starts = function_starts(&file, &code);
        let data = data_segments(&file, bytes);
        if has_text_relocations(&file, bytes) {
            return Err("has code that the loader changes".into());
        }
        let key = build_id(&file, bytes).map_or_else(|| sum_of_code(&text).into(), Vec::from);
        let has_its_place = file.elf_header().e_type(file.endian()) == object::elf::ET_EXEC;
        Ok(Library { key, has_its_place, text_vaddr, text, code, starts, data })
    }

    /// Whether `vaddr` lies in the executable segment.
    pub(super) fn in_text(&self, vaddr: u64) -> bool {
        vaddr >= self.text_vaddr && vaddr < self.text_vaddr + self.text.len() as u64
    }

    /// The bytes of the code from `range.start` to `range.end`.
    pub(super) fn code_bytes(&self, range: &Range<u64>) -> &[u8] {
        let offset = |vaddr: u64| (vaddr - self.text_vaddr) as usize;
        self.text.get(offset(range.start)..offset(range.end)).unwrap_or(&[])
    }
}

fn executable_segment(
    file: &ElfFile64<'_, Endianness>,
    bytes: &[u8],
) -> Result<(u64, Vec<u8>), String> {
    let endian = file.endian();
    let mut executable = file
        .elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == PT_LOAD && header.p_flags(endian) & PF_X != 0);
    let header = executable.next().ok_or("has no executable segment")?;
    if executable.next().is_some() {
        return Err("has more than one executable segment".into());
    }
    if header.p_flags(endian) & object::elf::PF_W != 0 {
        return Err("has a writable executable segment".into());
    }
    let page = PAGE_BYTES as u64;
    let (offset, vaddr) = (header.p_offset(endian), header.p_vaddr(endian));
    let file_bytes = header.p_filesz(endian);
    let skew = vaddr % page;
    if offset % page != skew || header.p_memsz(endian) != file_bytes || file_bytes > TEXT_BYTES_MAX
    {
        return Err("has an executable segment of unusual shape".into());
    }
    let pages = (skew + file_bytes).next_multiple_of(page);
    let mut text = vec![0; pages as usize];
    let from = (offset - skew) as usize;
    // The kernel maps whole pages: what follows the segment in the file is in memory too.
    let available = bytes.len().saturating_sub(from).min(text.len());
    let source = bytes.get(from..from + available).ok_or("is cut short")?;
    text[..available].copy_from_slice(source);
    Ok((vaddr - skew, text))
}

fn has_text_relocations(file: &ElfFile64<'_, Endianness>, bytes: &[u8]) -> bool {
    let endian = file.endian();
    let headers = file.elf_program_headers().iter();
    let mut entries = headers.filter_map(|header| header.dynamic(endian, bytes).ok().flatten());
    entries.any(|entries| {
        entries.iter().any(|entry| {
            let (tag, value) = (entry.d_tag(endian), entry.d_val(endian));
            tag == u64::from(DT_TEXTREL)
                || tag == u64::from(DT_FLAGS) && value & u64::from(DF_TEXTREL) != 0
        })
    })
}

fn code_ranges(file: &ElfFile64<'_, Endianness>, text: &Range<u64>) -> Vec<Range<u64>> {
    let is_code = |flags| match flags {
        SectionFlags::Elf { sh_flags } => sh_flags & u64::from(SHF_EXECINSTR) != 0,
        _ => false,
    };
    let mut ranges: Vec<Range<u64>> = file
        .sections()
        .filter(|section| is_code(section.flags()))
        .map(|section| section.address()..section.address() + section.size())
        .filter(|range| text.contains(&range.start) && range.end <= text.end)
        .collect();
    if ranges.is_empty() {
        ranges.push(text.clone());
    }
    ranges.sort_by_key(|range| range.start);
    ranges
}

fn function_starts(file: &ElfFile64<'_, Endianness>, code: &[Range<u64>]) -> BTreeSet<u64> {
    let in_code = |vaddr: u64| code.iter().any(|range| range.contains(&vaddr));
    let symbols = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.is_definition())
        .filter(|symbol| {
            matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Label | SymbolKind::Unknown)
        })
        .map(|symbol| symbol.address());
    let unwound = unwind_starts(file).unwrap_or_default();
    symbols
        .chain(unwound)
        .chain(code.iter().map(|range| range.start))
        .chain([file.entry()])
        .filter(|vaddr| in_code(*vaddr))
        .collect()
}

/// First addresses of the functions listed in the search table of `.eh_frame_hdr`.
fn unwind_starts(file: &ElfFile64<'_, Endianness>) -> Option<Vec<u64>> {
    let section = file.section_by_name(".eh_frame_hdr")?;
    let (bytes, base) = (section.data().ok()?, section.address());
    if bytes.get(2..4)? != EH_TABLE_ENCODING {
        return None;
    }
    let frames = file.section_by_name(".eh_frame")?;
    let (frames, frames_vaddr) = (frames.data().ok()?, frames.address());
    let relative = |at: usize| Some(base.wrapping_add_signed(i64::from(field(bytes, at)?)));
    let start = |index: usize| {
        let start = relative(12 + 8 * index)?;
        let description = relative(16 + 8 * index)?.wrapping_sub(frames_vaddr) as usize;
        // Unwinders look up the byte before a return address, so the entry of a signal-return stub
        // begins one byte before its code.
        let early = is_signal_frame(frames, description).unwrap_or(false);
        Some(start + u64::from(early))
    };
    let count = field(bytes, 8)?.cast_unsigned() as usize;
    (0..count.min(bytes.len() / 8)).map(start).collect()
}

fn field(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Whether the frame description at `at` is of a signal-return stub: its common part's augmentation
/// string contains an S.
fn is_signal_frame(frames: &[u8], at: usize) -> Option<bool> {
    let back = field(frames, at + 4)?.cast_unsigned() as usize;
    let common = (at + 4).checked_sub(back)?;
    let augmentation = frames.get(common + 9..)?.iter().take_while(|byte| **byte != 0);
    Some(augmentation.take(8).any(|byte| *byte == b'S'))
}

fn data_segments<'a>(file: &ElfFile64<'_, Endianness>, bytes: &'a [u8]) -> Vec<(u64, &'a [u8])> {
    let endian = file.endian();
    let slice = |offset: u64, len: u64| bytes.get(offset as usize..(offset + len) as usize);
    file.elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == PT_LOAD && header.p_flags(endian) & PF_X == 0)
        .filter_map(|header| {
            let contents = slice(header.p_offset(endian), header.p_filesz(endian))?;
            Some((header.p_vaddr(endian), contents))
        })
        .collect()
}

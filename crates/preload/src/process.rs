//! Which libraries this process has, read from memory without a system call: auxiliary vector →
//! program headers → dynamic section → the loader's list (`r_debug`), the way a debugger does it.

use core::ffi::CStr;
use core::ops::Range;

use mayfly_image::format::{KEY_BYTES_MAX, PAGE_BYTES, sum_of_code};

use crate::kernel;

/// File names of the libraries that issue system calls for everybody; the last ones make
/// asynchronous requests with instructions of their own.
const NAMES: [&[u8]; 8] = [
    b"libc.so.6",
    b"ld-linux-x86-64.so.2",
    b"libpthread.so.0",
    b"ld-musl-x86_64.so.1",
    b"libc.musl-x86_64.so.1",
    b"libc.so",
    b"libaio.so.1",
    b"liburing.so.2",
];
/// What the program is called where it has no name.
pub(crate) const PROGRAM: &[u8] = b"the program";
/// The loader's list is cut off here: it is data of the host.
const LIBRARIES_MAX: usize = 4096;

pub(crate) const AT_PHDR: usize = 3;
pub(crate) const AT_PHNUM: usize = 5;
const AT_SYSINFO_EHDR: usize = 33;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;
const PF_X: u32 = 1;
const MACHINE_X86_64: u32 = 62;
const DT_DEBUG: usize = 21;
const NT_GNU_BUILD_ID: u32 = 3;

/// An ELF64 program header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: usize,
    vaddr: usize,
    paddr: usize,
    file_bytes: usize,
    memory_bytes: usize,
    align: usize,
}

/// The beginning of an ELF64 file header.
#[repr(C)]
struct FileHeader {
    ident: [u8; 16],
    kind_machine_version: [u32; 2],
    entry: usize,
    program_headers: usize,
    sections: usize,
    flags: u32,
    sizes: [u16; 2],
    program_header_count: u16,
}

/// The loader's record of one library; the order of the fields is an interface for debuggers.
#[repr(C)]
pub(crate) struct LinkMap {
    bias: usize,
    name: *const u8,
    dynamic: *const [usize; 2],
    next: *const LinkMap,
}

/// A loaded library that may have an image.
pub(crate) struct Library<'h> {
    bias: usize,
    headers: &'h [ProgramHeader],
}

/// What a file's header says of a program.
pub(crate) struct Shape {
    /// It is always where it is linked to.
    pub(crate) has_its_place: bool,
    /// Where it begins, in its own numbering.
    pub(crate) entry: usize,
    /// Where its program headers are in the file.
    pub(crate) headers: usize,
}

/// What of a program is in memory: whole pages, in its own numbering.
pub(crate) struct Segment {
    pub(crate) memory: Range<usize>,
    /// Where that begins in the file.
    pub(crate) offset: usize,
    /// Bytes from there that are the file's.
    pub(crate) file_bytes: usize,
    /// There is more in memory than in the file.
    pub(crate) has_more: bool,
    /// PF_ bits.
    pub(crate) flags: u32,
}

impl Segment {
    /// `None` for one that cannot be mapped.
    fn of(header: &ProgramHeader) -> Option<Segment> {
        let skew = header.vaddr % PAGE_BYTES;
        let end = header.vaddr.checked_add(header.memory_bytes)?;
        let fits = header.offset % PAGE_BYTES == skew && header.file_bytes <= header.memory_bytes;
        fits.then_some(Segment {
            memory: header.vaddr - skew..end.checked_next_multiple_of(PAGE_BYTES)?,
            offset: header.offset - skew,
            file_bytes: header.file_bytes + skew,
            has_more: header.file_bytes < header.memory_bytes,
            flags: header.flags,
        })
    }

    /// The address of what stands at `offset` in the file.
    pub(crate) fn address_of(&self, offset: usize) -> Option<usize> {
        let within = offset.checked_sub(self.offset)?;
        (within < self.file_bytes).then(|| self.memory.start + within)
    }
}

/// A part of a file in memory.
pub(crate) struct Mapped {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    /// Where it begins in the file.
    pub(crate) offset: usize,
}

/// Words at the beginning of a file that have room for its header and 17 program headers.
pub(crate) const HEAD_WORDS: usize = 128;

/// What a library's image is found by: its build id, or else a sum of its code.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    count: usize,
}

impl Key {
    /// The build id that is among `notes`.
    pub(crate) fn among(notes: &[u8]) -> Option<Key> {
        let build_id = build_id_in(notes)?;
        let mut key = Key { bytes: [0; KEY_BYTES_MAX], count: build_id.len() };
        key.bytes.get_mut(..build_id.len())?.copy_from_slice(build_id);
        Some(key)
    }

    /// The sum of the code.
    ///
    /// # Safety
    /// The text is mapped, and still what its file has.
    pub(crate) unsafe fn of_code(text: &Text) -> Key {
        // SAFETY: the caller's promise.
        Key { bytes: sum_of_code(unsafe { text.bytes() }), count: KEY_BYTES_MAX }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.count).unwrap_or(&[])
    }
}

/// What the executable segment is called in its own numbering and where it is.
pub(crate) struct Text {
    /// Page-aligned address in the library's numbering.
    pub(crate) vaddr: usize,
    /// Whole pages in memory.
    pub(crate) range: Range<usize>,
}

impl Text {
    /// # Safety
    /// The text is mapped for as long as the result is used.
    unsafe fn bytes(&self) -> &[u8] {
        let first = core::ptr::with_exposed_provenance(self.range.start);
        // SAFETY: the caller's promise.
        unsafe { core::slice::from_raw_parts(first, self.range.len()) }
    }

    /// Do the bytes of a `syscall` occur, as an instruction or within one?
    ///
    /// # Safety
    /// The text is mapped.
    pub(crate) unsafe fn has_syscall(&self) -> bool {
        /// Looked at without a branch, so that the compiler compares many bytes at once.
        const BLOCK_BYTES: usize = 512;
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.bytes() };
        let second = bytes.get(1..).unwrap_or(&[]).chunks(BLOCK_BYTES);
        bytes.chunks(BLOCK_BYTES).zip(second).any(|(first, second)| {
            let pairs = first.iter().zip(second);
            pairs.fold(0, |found, (a, b)| found | u8::from(*a == 0x0f) & u8::from(*b == 0x05)) != 0
        })
    }
}

/// Calls `visit` for each loaded library that issues system calls for others, with its file name.
///
/// # Safety
/// `auxiliary` is this process's auxiliary vector, and no other thread loads or unloads libraries.
pub(crate) unsafe fn for_each_library(
    auxiliary: *const [usize; 2],
    mut visit: impl FnMut(&Library<'_>, &[u8]),
) {
    // SAFETY: the caller's promise; the loader keeps the list and the names valid.
    unsafe {
        for_each_record(auxiliary, |map| {
            if let Some((library, name)) = wanted(map) {
                visit(&library, name);
            }
        });
    }
}

/// Calls `visit` for the program and each loaded library but those of [`for_each_library`], the
/// one at `own`, and the kernel's, with its file name.
///
/// # Safety
/// As for [`for_each_library`].
pub(crate) unsafe fn for_each_other(
    auxiliary: *const [usize; 2],
    own: usize,
    mut visit: impl FnMut(&Library<'_>, &[u8]),
) {
    // SAFETY: as there.
    unsafe {
        if let Some(program) = program(auxiliary) {
            visit(&program, PROGRAM);
        }
        let kernels = auxiliary_value(auxiliary, AT_SYSINFO_EHDR);
        for_each_record(auxiliary, |map| {
            let bias = (*map).bias;
            if bias != own
                && Some(bias) != kernels
                && let Some((library, name)) = other(map)
            {
                visit(&library, name);
            }
        });
    }
}

/// # Safety
/// As for [`for_each_library`].
unsafe fn for_each_record(auxiliary: *const [usize; 2], mut visit: impl FnMut(*const LinkMap)) {
    // SAFETY: the caller's promise.
    let Some(mut map) = (unsafe { first_library(auxiliary) }) else { return };
    for _ in 0..LIBRARIES_MAX {
        if map.is_null() {
            return;
        }
        visit(map);
        // SAFETY: the loader keeps the list valid.
        map = unsafe { (*map).next };
    }
}

/// The program itself.
///
/// # Safety
/// `auxiliary` is this process's auxiliary vector.
pub(crate) unsafe fn program(auxiliary: *const [usize; 2]) -> Option<Library<'static>> {
    // SAFETY: passed on to the caller.
    let (bias, headers) = unsafe { program_headers(auxiliary)? };
    Some(Library { bias, headers })
}

/// A library that the loader's record describes and that issues no calls for others, and its file
/// name. The program has none there.
///
/// # Safety
/// The record is valid.
unsafe fn other(map: *const LinkMap) -> Option<(Library<'static>, &'static [u8])> {
    // SAFETY: the caller's promise.
    let (bias, name) = unsafe { ((*map).bias, file_name(map)?) };
    let is_other = !name.is_empty() && !NAMES.contains(&name) && kernel::is_mapped(bias);
    // SAFETY: there is a page, and what does not look like a file's header is none.
    let library = is_other.then(|| unsafe { Library::at(bias) })?;
    // SAFETY: the caller's promise.
    let dynamic = unsafe { (*map).dynamic } as usize;
    let has_it = |header: &ProgramHeader| {
        header.kind == PT_DYNAMIC && bias.wrapping_add(header.vaddr) == dynamic
    };
    library.headers.iter().any(has_it).then_some((library, name))
}

/// Does the loader's record describe the program?
///
/// # Safety
/// The record is valid.
pub(crate) unsafe fn is_program(map: *const LinkMap) -> bool {
    // SAFETY: the caller's promise.
    unsafe { file_name(map) }.is_some_and(<[u8]>::is_empty)
}

/// # Safety
/// The record is valid; the loader keeps names as long as it keeps the library.
unsafe fn file_name(map: *const LinkMap) -> Option<&'static [u8]> {
    // SAFETY: the caller's promise.
    let name = unsafe { (*map).name };
    if name.is_null() {
        return None;
    }
    // SAFETY: as above.
    let path = unsafe { CStr::from_ptr(name.cast()) }.to_bytes();
    path.rsplit(|byte| *byte == b'/').next()
}

/// The library that the loader's record describes and its file name, when it issues system calls
/// for others.
///
/// # Safety
/// The record is valid, and the library's first page is mapped.
pub(crate) unsafe fn wanted(map: *const LinkMap) -> Option<(Library<'static>, &'static [u8])> {
    // SAFETY: the caller's promise.
    let (bias, name) = unsafe { ((*map).bias, file_name(map)?) };
    // SAFETY: a shared library's first page, with the headers, is mapped at its bias.
    NAMES.contains(&name).then(|| (unsafe { Library::at(bias) }, name))
}

/// Whether the loader has published its list: it does so before it runs the constructors of the
/// program's libraries, and after it has loaded audit libraries.
///
/// # Safety
/// As for [`for_each_library`].
pub(crate) unsafe fn list_is_published(auxiliary: *const [usize; 2]) -> bool {
    // SAFETY: the caller's promise.
    unsafe { first_library(auxiliary) }.is_some_and(|map| !map.is_null())
}

/// The value of an entry of the auxiliary vector.
unsafe fn auxiliary_value(auxiliary: *const [usize; 2], key: usize) -> Option<usize> {
    let mut at = auxiliary;
    loop {
        // SAFETY: the vector ends with a zero key, which the caller's promise includes.
        match unsafe { *at } {
            [0, _] => return None,
            [found, value] if found == key => return Some(value),
            // SAFETY: not the last entry.
            _ => at = unsafe { at.add(1) },
        }
    }
}

/// Where the program was put, and its headers.
///
/// # Safety
/// `auxiliary` is this process's auxiliary vector.
unsafe fn program_headers(
    auxiliary: *const [usize; 2],
) -> Option<(usize, &'static [ProgramHeader])> {
    // SAFETY: the caller's promise.
    let (address, count) =
        unsafe { (auxiliary_value(auxiliary, AT_PHDR)?, auxiliary_value(auxiliary, AT_PHNUM)?) };
    let first = core::ptr::with_exposed_provenance::<ProgramHeader>(address);
    // SAFETY: the kernel says that the executable's program headers are there.
    let headers = unsafe { core::slice::from_raw_parts(first, count) };
    let own = headers.iter().find(|header| header.kind == PT_PHDR)?;
    Some((address.wrapping_sub(own.vaddr), headers))
}

unsafe fn first_library(auxiliary: *const [usize; 2]) -> Option<*const LinkMap> {
    // SAFETY: the caller's promise.
    let (bias, headers) = unsafe { program_headers(auxiliary)? };
    let dynamic = headers.iter().find(|header| header.kind == PT_DYNAMIC)?;
    let entries = core::ptr::with_exposed_provenance(bias.wrapping_add(dynamic.vaddr));
    // SAFETY: a dynamic section is a list of pairs that ends with a zero key, like the vector.
    let debug = unsafe { auxiliary_value(entries, DT_DEBUG)? };
    if debug == 0 {
        return None;
    }
    // `struct r_debug`: an int, padding, the list.
    // SAFETY: the loader put the address there.
    Some(unsafe { *core::ptr::with_exposed_provenance::<*const LinkMap>(debug).add(1) })
}

impl<'h> Library<'h> {
    /// # Safety
    /// A library's file header is mapped at `bias`, for as long as the result lives.
    pub(crate) unsafe fn at(bias: usize) -> Library<'h> {
        let header = core::ptr::with_exposed_provenance::<FileHeader>(bias);
        // SAFETY: the caller's promise.
        let (ident, offset, count) =
            unsafe { ((*header).ident, (*header).program_headers, (*header).program_header_count) };
        let end = offset.saturating_add(usize::from(count) * size_of::<ProgramHeader>());
        let is_whole = end <= PAGE_BYTES && offset.is_multiple_of(align_of::<ProgramHeader>());
        if !ident.starts_with(b"\x7fELF\x02") || !is_whole {
            return Library { bias, headers: &[] };
        }
        let first = core::ptr::with_exposed_provenance::<ProgramHeader>(bias + offset);
        // SAFETY: the program headers are in the page of the file header.
        let headers = unsafe { core::slice::from_raw_parts(first, usize::from(count)) };
        Library { bias, headers }
    }

    /// The library whose file begins with `head`, of which `used` bytes were read; it is nowhere
    /// yet.
    pub(crate) fn in_file(head: &'h [u64; HEAD_WORDS], used: usize) -> Option<Library<'h>> {
        // SAFETY: the words are as many bytes as the header has, and aligned.
        let header = unsafe { &*head.as_ptr().cast::<FileHeader>() };
        let (offset, count) = (header.program_headers, usize::from(header.program_header_count));
        let end = offset.checked_add(count * size_of::<ProgramHeader>())?;
        let is_wanted = header.ident.starts_with(b"\x7fELF\x02\x01")
            && header.kind_machine_version[0] >> 16 == MACHINE_X86_64
            && offset.is_multiple_of(align_of::<ProgramHeader>())
            && end <= used.min(size_of_val(head));
        let first = head.as_ptr().wrapping_byte_add(offset).cast::<ProgramHeader>();
        // SAFETY: inside of the words, and aligned.
        let headers = || unsafe { core::slice::from_raw_parts(first, count) };
        is_wanted.then(|| Library { bias: 0, headers: headers() })
    }

    /// The same library where its code is mapped; `None` when the mapping has not all of it.
    pub(crate) fn placed(self, mapped: &Mapped) -> Option<Library<'h>> {
        let header = self.code()?;
        let skew = header.vaddr % PAGE_BYTES;
        let whole = header.offset % PAGE_BYTES == skew && header.file_bytes == header.memory_bytes;
        let within = header.offset.checked_sub(skew)?.checked_sub(mapped.offset)?;
        let end = within.checked_add(skew)?.checked_add(header.file_bytes)?;
        let address = mapped.address.checked_add(within)?;
        let bias = address.wrapping_sub(header.vaddr - skew);
        let fits = whole && end <= mapped.bytes.checked_next_multiple_of(PAGE_BYTES)?;
        fits.then_some(Library { bias, ..self })
    }

    /// A program that was loaded.
    pub(crate) fn placed_at(bias: usize, headers: &'h [ProgramHeader]) -> Library<'h> {
        Library { bias, headers }
    }

    /// What the file's header, at the beginning of `head`, says of it; `None` unless it is a static
    /// program.
    pub(crate) fn shape(&self, head: &[u64; HEAD_WORDS]) -> Option<Shape> {
        const FIXED: u32 = 2;
        const ANYWHERE: u32 = 3;
        // SAFETY: the words are as many bytes as the header has, and aligned.
        let header = unsafe { &*head.as_ptr().cast::<FileHeader>() };
        let kind = header.kind_machine_version[0] & 0xffff;
        let has_loader = self.headers.iter().any(|header| header.kind == PT_INTERP);
        let is_static = matches!(kind, FIXED | ANYWHERE) && !has_loader;
        is_static.then_some(Shape {
            has_its_place: kind == FIXED,
            entry: header.entry,
            headers: header.program_headers,
        })
    }

    /// What is to be in memory; nothing in place of a segment that cannot be.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Option<Segment>> + use<'h> {
        let loaded = self.headers.iter().filter(|header| header.kind == PT_LOAD);
        loaded.filter(|header| header.memory_bytes > 0).map(Segment::of)
    }

    pub(crate) fn header_count(&self) -> usize {
        self.headers.len()
    }

    /// The table of relocations: place, kind, addend.
    ///
    /// # Safety
    /// The library is mapped.
    pub(crate) unsafe fn relocations(&self) -> Option<&'static [[usize; 3]]> {
        const DT_RELA: usize = 7;
        const DT_RELASZ: usize = 8;
        let dynamic = self.headers.iter().find(|header| header.kind == PT_DYNAMIC)?;
        let entries = core::ptr::with_exposed_provenance(self.bias.wrapping_add(dynamic.vaddr));
        // SAFETY: a dynamic section is a list of pairs that ends with a zero key.
        let (table, bytes) =
            unsafe { (auxiliary_value(entries, DT_RELA)?, auxiliary_value(entries, DT_RELASZ)?) };
        let first = core::ptr::with_exposed_provenance(self.bias.wrapping_add(table));
        // SAFETY: the linker put it there.
        Some(unsafe { core::slice::from_raw_parts(first, bytes / size_of::<[usize; 3]>()) })
    }

    /// The only executable segment.
    fn code(&self) -> Option<&'h ProgramHeader> {
        let mut executable =
            self.headers.iter().filter(|header| header.kind == PT_LOAD && header.flags & PF_X != 0);
        let header = executable.next()?;
        if executable.next().is_some() { None } else { Some(header) }
    }

    /// Where the code ends in the file.
    pub(crate) fn code_end(&self) -> Option<usize> {
        let header = self.code()?;
        header.offset.checked_add(header.file_bytes)
    }

    /// Where notes are in the file.
    pub(crate) fn notes(&self) -> impl Iterator<Item = usize> + use<'h> {
        let notes = self.headers.iter().filter(|header| header.kind == PT_NOTE);
        notes.map(|header| header.offset)
    }

    /// The code, wherever it is.
    pub(crate) fn text(&self) -> Option<Text> {
        let header = self.code()?;
        let vaddr = header.vaddr & !(PAGE_BYTES - 1);
        let end = (header.vaddr + header.memory_bytes).next_multiple_of(PAGE_BYTES);
        Some(Text { vaddr, range: self.bias + vaddr..self.bias + end })
    }

    /// What the image of this library, whose code is `text`, is found by.
    ///
    /// # Safety
    /// The code has not been replaced.
    pub(crate) unsafe fn key(&self, text: &Text) -> Key {
        // SAFETY: the caller's promise; the library's code is mapped.
        self.build_id().unwrap_or_else(|| unsafe { Key::of_code(text) })
    }

    /// The build id, from the notes in memory.
    pub(crate) fn build_id(&self) -> Option<Key> {
        let is_loaded = |note: &ProgramHeader| {
            self.headers.iter().any(|header| {
                let end = header.vaddr.saturating_add(header.file_bytes);
                let note_end = note.vaddr.saturating_add(note.memory_bytes);
                header.kind == PT_LOAD && header.vaddr <= note.vaddr && note_end <= end
            })
        };
        let mut notes = self.headers.iter().filter(|header| header.kind == PT_NOTE);
        notes.find_map(|header| {
            if !is_loaded(header) {
                return None;
            }
            let first = core::ptr::with_exposed_provenance(self.bias + header.vaddr);
            // SAFETY: note segments are mapped; the loader relies on it.
            Key::among(unsafe { core::slice::from_raw_parts(first, header.memory_bytes) })
        })
    }
}

fn build_id_in(mut notes: &[u8]) -> Option<&[u8]> {
    let word = |bytes: &[u8], at: usize| -> Option<usize> {
        let bytes = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    loop {
        let (name_bytes, value_bytes) = (word(notes, 0)?, word(notes, 4)?);
        let kind = word(notes, 8)?;
        let value_at = 12 + name_bytes.next_multiple_of(4);
        let value = notes.get(value_at..value_at.checked_add(value_bytes)?)?;
        let named = notes.get(12..12 + name_bytes)? == b"GNU\0";
        let sized = (1..=KEY_BYTES_MAX).contains(&value_bytes);
        if named && kind == NT_GNU_BUILD_ID as usize && sized {
            return Some(value);
        }
        notes = notes.get(value_at + value_bytes.next_multiple_of(4)..)?;
    }
}

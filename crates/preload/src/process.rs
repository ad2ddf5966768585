//! Which libraries this process has, read from memory without a system call: auxiliary vector →
//! program headers → dynamic section → the loader's list (`r_debug`), the way a debugger does it.

use core::ffi::CStr;
use core::ops::Range;

use mayfly_image::format::{BUILD_ID_BYTES_MAX, PAGE_BYTES};

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
/// The loader's list is cut off here: it is data of the host.
const LIBRARIES_MAX: usize = 4096;

const AT_PHDR: usize = 3;
const AT_PHNUM: usize = 5;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;
const PF_X: u32 = 1;
const DT_DEBUG: usize = 21;
const NT_GNU_BUILD_ID: u32 = 3;

/// An ELF64 program header.
#[derive(Clone, Copy)]
#[repr(C)]
struct ProgramHeader {
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
pub(crate) struct Library {
    bias: usize,
    headers: &'static [ProgramHeader],
}

/// What the executable segment is called in its own numbering and where it is.
pub(crate) struct Text {
    /// Page-aligned address in the library's numbering.
    pub(crate) vaddr: usize,
    /// Whole pages in memory.
    pub(crate) range: Range<usize>,
}

/// Calls `visit` for each loaded library that issues system calls for others, with its file name.
///
/// # Safety
/// `auxiliary` is this process's auxiliary vector, and no other thread loads or unloads libraries.
pub(crate) unsafe fn for_each_library(
    auxiliary: *const [usize; 2],
    mut visit: impl FnMut(&Library, &[u8]),
) {
    // SAFETY: the caller's promise.
    let Some(mut map) = (unsafe { first_library(auxiliary) }) else { return };
    for _ in 0..LIBRARIES_MAX {
        if map.is_null() {
            return;
        }
        // SAFETY: the loader keeps the list and the names valid.
        unsafe {
            if let Some((library, name)) = wanted(map) {
                visit(&library, name);
            }
            map = (*map).next;
        }
    }
}

/// The library that the loader's record describes and its file name, when it issues system calls
/// for others.
///
/// # Safety
/// The record is valid, and the library's first page is mapped.
pub(crate) unsafe fn wanted(map: *const LinkMap) -> Option<(Library, &'static [u8])> {
    // SAFETY: the caller's promise; the loader keeps names as long as it keeps the library.
    let (bias, name) = unsafe { ((*map).bias, (*map).name) };
    if name.is_null() {
        return None;
    }
    // SAFETY: as above.
    let path = unsafe { CStr::from_ptr(name.cast()) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
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

unsafe fn first_library(auxiliary: *const [usize; 2]) -> Option<*const LinkMap> {
    // SAFETY: the caller's promise.
    let (address, count) =
        unsafe { (auxiliary_value(auxiliary, AT_PHDR)?, auxiliary_value(auxiliary, AT_PHNUM)?) };
    let first = core::ptr::with_exposed_provenance::<ProgramHeader>(address);
    // SAFETY: the kernel says that the executable's program headers are there.
    let headers = unsafe { core::slice::from_raw_parts(first, count) };
    let own = headers.iter().find(|header| header.kind == PT_PHDR)?;
    let bias = address.wrapping_sub(own.vaddr);
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

impl Library {
    /// # Safety
    /// A library's file header is mapped at `bias`, for as long as the result lives.
    pub(crate) unsafe fn at(bias: usize) -> Library {
        let header = core::ptr::with_exposed_provenance::<FileHeader>(bias);
        // SAFETY: the caller's promise.
        let (ident, offset, count) =
            unsafe { ((*header).ident, (*header).program_headers, (*header).program_header_count) };
        if !ident.starts_with(b"\x7fELF\x02") || offset > PAGE_BYTES {
            return Library { bias, headers: &[] };
        }
        let first = core::ptr::with_exposed_provenance::<ProgramHeader>(bias + offset);
        // SAFETY: program headers follow the file header in the first mapped pages.
        let headers = unsafe { core::slice::from_raw_parts(first, usize::from(count)) };
        Library { bias, headers }
    }

    /// The only executable segment.
    pub(crate) fn text(&self) -> Option<Text> {
        let mut executable =
            self.headers.iter().filter(|header| header.kind == PT_LOAD && header.flags & PF_X != 0);
        let header = executable.next()?;
        if executable.next().is_some() {
            return None;
        }
        let vaddr = header.vaddr & !(PAGE_BYTES - 1);
        let end = (header.vaddr + header.memory_bytes).next_multiple_of(PAGE_BYTES);
        Some(Text { vaddr, range: self.bias + vaddr..self.bias + end })
    }

    /// The build id, from the notes in memory.
    pub(crate) fn build_id(&self) -> Option<&'static [u8]> {
        let notes = self.headers.iter().filter(|header| header.kind == PT_NOTE);
        notes
            .filter_map(|header| {
                let first = core::ptr::with_exposed_provenance(self.bias + header.vaddr);
                // SAFETY: note segments are mapped; the loader relies on it.
                build_id_in(unsafe { core::slice::from_raw_parts(first, header.memory_bytes) })
            })
            .next()
    }
}

fn build_id_in(mut notes: &'static [u8]) -> Option<&'static [u8]> {
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
        if named && kind == NT_GNU_BUILD_ID as usize && value_bytes <= BUILD_ID_BYTES_MAX {
            return Some(value);
        }
        notes = notes.get(value_at + value_bytes.next_multiple_of(4)..)?;
    }
}

//! The way in for static programs, which no dynamic loader brings us into: the kernel runs this
//! library in place of the program (`interpose` asks it to, at exec), and it loads the program as
//! the kernel would, sets itself up, and goes to the program's beginning with the stack as the
//! kernel left it. The auxiliary vector tells of the program.
//!
//! What stays different is in `docs/design/interposition.md`.

use core::ffi::CStr;
use core::ops::Range;

use mayfly_image::format::PAGE_BYTES;
use mayfly_interpose::STATIC_PROGRAM;
use mayfly_sys::Errno;
use mayfly_sys::arch::syscall3;
use mayfly_sys::number;

use crate::given::{self, Given};
use crate::kernel::{
    self, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, Mapping, PROT_EXEC, PROT_READ, PROT_WRITE,
};
use crate::late;
use crate::process::{AT_PHDR, AT_PHNUM, HEAD_WORDS, Library, ProgramHeader, Segment};
use crate::start;

/// Most that a program takes from its first to its last byte.
const SPAN_MAX: usize = 4 << 30;
/// User space ends there.
const ADDRESS_MAX: usize = 1 << 47;

const AT_PHENT: usize = 4;
const AT_BASE: usize = 7;
const AT_ENTRY: usize = 9;
const AT_EXECFN: usize = 31;

core::arch::global_asm!(
    ".hidden mayfly_begin",
    ".globl mayfly_begin",
    "mayfly_begin:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "xor ebp, ebp",
    "lea rdi, [rip + __ehdr_start]",
    "call {relocate}",
    "mov rdi, rsp",
    "call {load}",
    "xor edx, edx",
    "jmp rax",
    ".cfi_endproc",
    relocate = sym relocate,
    load = sym load,
);

/// What the dynamic loader does for libraries: adds where this one lies to its pointers. Everything
/// that this uses is on the stack or in the file's first page.
///
/// # Safety
/// The library's file header is at `base`, and nobody has done this.
unsafe extern "C" fn relocate(base: usize) {
    const RELATIVE: usize = 8;
    // SAFETY: the caller's promise; the sections are where the linker says.
    unsafe {
        let Some(table) = Library::at(base).relocations() else { return };
        for [place, kind, addend] in table {
            if *kind == RELATIVE {
                let place = core::ptr::with_exposed_provenance_mut::<usize>(base + place);
                place.write(base.wrapping_add(*addend));
            }
        }
    }
}

/// Loads the program that the environment names; where it begins.
///
/// # Safety
/// `stack` is as the kernel left it for a new program.
unsafe extern "C" fn load(stack: *const usize) -> usize {
    // SAFETY: the caller's promise: a count, so many arguments, a null pointer, the environment.
    unsafe {
        let environment = stack.add(1 + *stack + 1);
        let given = given::on_stack(environment);
        let Some(path) = given::variable(&given, STATIC_PROGRAM) else {
            end(b"mayfly: this is the library that mayfly preloads; it is no program\n")
        };
        let path = CStr::from_ptr(path.as_ptr().cast());
        match Program::load(path) {
            Ok(program) => {
                program.tell(&given, path);
                start::begin(&given, &program.library());
                program.entry
            }
            Err(_) => end(b"mayfly: a static program could not be loaded\n"),
        }
    }
}

fn end(why: &[u8]) -> ! {
    kernel::write_to_stderr(why);
    loop {
        // SAFETY: ends the process, which has one thread.
        unsafe { syscall3(number::EXIT_GROUP, 127, 0, 0) };
    }
}

/// A loaded program.
struct Program {
    entry: usize,
    bias: usize,
    /// Its headers in memory.
    headers: &'static [ProgramHeader],
}

impl Program {
    fn load(path: &CStr) -> Result<Program, Errno> {
        // SAFETY: a terminated path.
        let fd = mayfly_sys::result(unsafe { kernel::open(path.as_ptr().cast()) })?;
        let loaded = Program::load_from(fd);
        kernel::close(fd);
        loaded
    }

    fn load_from(fd: usize) -> Result<Program, Errno> {
        let mut head = [0_u64; HEAD_WORDS];
        let used = kernel::read_at_start(fd, late::as_bytes(&mut head));
        let file = Library::in_file(&head, used).ok_or(Errno::ENOEXEC)?;
        let shape = file.shape(&head).ok_or(Errno::ENOEXEC)?;
        let span = file.segments().try_fold(None, |span: Option<Range<usize>>, segment| {
            let Segment { memory, .. } = segment?;
            let start = span.as_ref().map_or(memory.start, |span| span.start);
            // They are in order, and do not overlap.
            let follows = span.is_none_or(|span| span.end <= memory.start);
            follows.then_some(Some(start..memory.end))
        });
        let span = span.flatten().ok_or(Errno::ENOEXEC)?;
        if span.len() > SPAN_MAX || span.end > ADDRESS_MAX {
            return Err(Errno::ENOEXEC);
        }
        let start = reserve(&span, shape.has_its_place).ok_or(Errno::ENOMEM)?;
        let bias = start.wrapping_sub(span.start);
        for segment in file.segments().flatten() {
            segment.map(fd, bias).ok_or(Errno::ENOMEM)?;
        }
        let at = file
            .segments()
            .flatten()
            .find_map(|segment| segment.address_of(shape.headers))
            .ok_or(Errno::ENOEXEC)?;
        let first = core::ptr::with_exposed_provenance(bias.wrapping_add(at));
        // SAFETY: a segment that was mapped has the file's bytes from there on.
        let headers = unsafe { core::slice::from_raw_parts(first, file.header_count()) };
        Ok(Program { entry: bias.wrapping_add(shape.entry), bias, headers })
    }

    fn library(&self) -> Library<'static> {
        Library::placed_at(self.bias, self.headers)
    }

    /// Lets the auxiliary vector tell of the program.
    ///
    /// # Safety
    /// `given` is this process's, whose C library has not begun.
    unsafe fn tell(&self, given: &Given, path: &CStr) {
        let mut at = given.auxiliary;
        // SAFETY: the vector ends with a zero key, and is the process's own to write.
        unsafe {
            while (*at)[0] != 0 {
                match (*at)[0] {
                    AT_PHDR => (*at)[1] = self.headers.as_ptr() as usize,
                    AT_PHENT => (*at)[1] = size_of::<ProgramHeader>(),
                    AT_PHNUM => (*at)[1] = self.headers.len(),
                    // There is no loader.
                    AT_BASE => (*at)[1] = 0,
                    AT_ENTRY => (*at)[1] = self.entry,
                    AT_EXECFN => (*at)[1] = path.as_ptr() as usize,
                    _ => {}
                }
                at = at.add(1);
            }
        }
    }
}

/// Room for a program: where it is linked to, or anywhere.
fn reserve(span: &Range<usize>, has_its_place: bool) -> Option<usize> {
    let (address, flags) = match has_its_place {
        true => (span.start, MAP_PRIVATE | MAP_FIXED_NOREPLACE),
        false => (0, MAP_PRIVATE),
    };
    // SAFETY: nothing is replaced.
    let at = unsafe {
        kernel::map(&Mapping { address, bytes: span.len(), protection: 0, flags, file: None })
    }?;
    (!has_its_place || at == span.start).then_some(at)
}

impl Segment {
    /// Maps the segment into room that was reserved for it.
    fn map(&self, fd: usize, bias: usize) -> Option<()> {
        let address = bias.wrapping_add(self.memory.start);
        let flags = MAP_PRIVATE | MAP_FIXED;
        let file_pages = self.file_bytes.next_multiple_of(PAGE_BYTES);
        let protection = self.protection();
        if self.file_bytes > 0 {
            let file = Some((fd, self.offset));
            let part = Mapping { address, bytes: file_pages, protection, flags, file };
            // SAFETY: the room is the program's.
            unsafe { kernel::map(&part) }?;
        }
        if self.memory.len() > file_pages {
            let address = address.wrapping_add(file_pages);
            let bytes = self.memory.len() - file_pages;
            // SAFETY: as above.
            unsafe { kernel::map(&Mapping { address, bytes, protection, flags, file: None }) }?;
        }
        // Behind the file's bytes there are zeros.
        let tail = file_pages.min(self.memory.len()) - self.file_bytes;
        if tail > 0 && protection & PROT_WRITE != 0 && self.has_more {
            let place = address.wrapping_add(self.file_bytes);
            let place = core::ptr::with_exposed_provenance_mut::<u8>(place);
            // SAFETY: in the page that was just mapped to be written.
            unsafe { place.write_bytes(0, tail) };
        }
        Some(())
    }

    fn protection(&self) -> usize {
        let of = |flag: u32, protection| if self.flags & flag != 0 { protection } else { 0 };
        of(4, PROT_READ) | of(2, PROT_WRITE) | of(1, PROT_EXEC)
    }
}

//! Code that comes later: libraries that a program loads by dlopen.
//!
//! Most call the C library, whose code is replaced already. Some make system calls by instructions
//! of their own (libaio, liburing, what is linked with a C library of its own). The loader maps the
//! code of either kind through us, before anybody can run it, so this is where an image is laid
//! over it. A library is known by what its file says at its beginning; whether it needs an image,
//! by the two bytes of the instruction: where they do not occur, nothing is opened and nobody is
//! asked.
//!
//! What fails leaves the library as it is: the program gets its mapping.

use mayfly_image::format::DESCRIPTORS_MAX;
use mayfly_interpose::class::ALWAYS;
use mayfly_interpose::{Call, Outcome};
use mayfly_sys::arch::syscall6;
use mayfly_sys::number;

use crate::backend;
use crate::kernel::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_EXEC, PROT_WRITE};
use crate::patch::{self, Other};
use crate::plain::Plain;
use crate::prepared::{self, Prepared};
use crate::process::{HEAD_WORDS, Key, Library, Mapped};

/// Bytes of one note segment that are looked at for the build id.
const NOTE_BYTES: usize = 256;
/// Bytes of a library's name that are kept for a report.
const NAME_BYTES: usize = 256;

/// mmap: as without us, and then what was mapped is looked at when it is code.
///
/// # Safety
/// As for `interpose::dispatch`.
#[inline(never)]
pub(crate) unsafe fn map(call: &mut Call) -> Outcome {
    const MAP_TYPE: usize = 15;
    let [_, _, protection, flags, _, _] = call.args;
    // SAFETY: the caller's promise.
    let outcome = unsafe { dispatch(call) };
    let is_code = protection & (PROT_EXEC | PROT_WRITE) == PROT_EXEC
        && flags & (MAP_ANONYMOUS | MAP_TYPE) == MAP_PRIVATE;
    let (true, Some(prepared)) = (is_code, prepared::prepared()) else { return outcome };
    let raw = match outcome {
        Outcome::Done(raw) => raw,
        // SAFETY: the host's own call.
        Outcome::Pass => unsafe { issue(call) },
    };
    if let Ok(address) = usize::try_from(raw) {
        let [_, bytes, _, _, _, offset] = call.args;
        look(call.args[4], &Mapped { address, bytes, offset }, prepared);
    }
    Outcome::Done(raw)
}

/// What the filter decides for other calls on a descriptor: those on a descriptor of ours are
/// looked at, or all.
///
/// # Safety
/// As for `interpose::dispatch`.
unsafe fn dispatch(call: &mut Call) -> Outcome {
    let place = match call.number {
        number::MMAP => call.args[4],
        _ => call.args[0],
    } as u32 as usize;
    let table = backend::descriptor_table();
    // SAFETY: the table has so many words.
    let ours = place < DESCRIPTORS_MAX && unsafe { table.wrapping_add(place).read_volatile() } != 0;
    if ours || backend::classes()[call.number] == ALWAYS {
        // SAFETY: the caller's promise.
        return unsafe { backend::dispatch(call) };
    }
    Outcome::Pass
}

/// # Safety
/// As for `interpose::dispatch`.
unsafe fn issue(call: &Call) -> isize {
    let [a, b, c, d, e, f] = call.args;
    // SAFETY: the caller's promise.
    unsafe { syscall6(call.number, a, b, c, d, e, f) }
}

/// Lays an image over mapped code if it needs one.
fn look(fd: usize, mapped: &Mapped, prepared: Prepared) -> Option<()> {
    patch::forget(mapped.address, mapped.bytes);
    let mut head = [0; HEAD_WORDS];
    let used = read(fd, 0, as_bytes(&mut head));
    let library = Library::in_file(&head, used)?.placed(mapped)?;
    let text = library.text()?;
    if library.code_end()? > file_bytes(fd)? {
        return None;
    }
    let mut note = [0; NOTE_BYTES / 8];
    let build_id = library.notes().find_map(|offset| {
        let note = as_bytes(&mut note);
        let used = read(fd, offset, note);
        Key::among(note.get(..used)?)
    });
    let other = Other { text, build_id, stays: false };
    // SAFETY: the range was just mapped from a file that is as long.
    if let Err(why) = unsafe { patch::patch_other(&other, prepared, &mut Plain::new()) } {
        let mut name = [0; NAME_BYTES / 8];
        backend::note_unserved(name_of(fd, as_bytes(&mut name)), why);
    }
    Some(())
}

pub(crate) fn as_bytes(words: &mut [u64]) -> &mut [u8] {
    let bytes = size_of_val(words);
    // SAFETY: the same memory, with less alignment; every value of either is valid.
    unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), bytes) }
}

/// Bytes read of a file, whosever it is.
fn read(fd: usize, offset: usize, to: &mut [u8]) -> usize {
    let args = [fd, to.as_mut_ptr() as usize, to.len(), offset, 0, 0];
    // SAFETY: the buffer is ours to write.
    unsafe { result(Call { number: number::PREAD64, args }) }.unwrap_or(0)
}

fn file_bytes(fd: usize) -> Option<usize> {
    // `struct stat`: size at 48, 144 bytes in all.
    let mut stat = [0_u64; 18];
    let args = [fd, stat.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the buffer has the structure's size.
    unsafe { result(Call { number: number::FSTAT, args }) }.map(|_| stat[6] as usize)
}

/// # Safety
/// As for `interpose::dispatch`.
unsafe fn result(mut call: Call) -> Option<usize> {
    // SAFETY: the caller's promise.
    let raw = match unsafe { dispatch(&mut call) } {
        Outcome::Done(raw) => raw,
        // SAFETY: as above.
        Outcome::Pass => unsafe { issue(&call) },
    };
    usize::try_from(raw).ok()
}

/// Last component of the name that the kernel knows an open file by.
fn name_of(fd: usize, to: &mut [u8]) -> &[u8] {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0";
    let digits = (0..7).rev().map(|power| fd / 10_usize.pow(power) % 10);
    let leading = |digit: &usize| *digit == 0;
    for (place, digit) in link[14..21].iter_mut().zip(digits.skip_while(leading)) {
        *place = b'0' + digit as u8;
    }
    let (link, room) = (link.as_ptr() as usize, to.as_mut_ptr() as usize);
    // SAFETY: the path is terminated, and the buffer ours to write.
    let used = unsafe { syscall6(number::READLINK, link, room, to.len(), 0, 0, 0) };
    let name = usize::try_from(used).ok().and_then(|used| to.get(..used)).unwrap_or(b"a library");
    name.rsplit(|byte| *byte == b'/').next().unwrap_or(name)
}

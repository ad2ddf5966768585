//! May a program need libraries of the mount?
//!
//! A preloaded library is too late to serve the loader while it looks for what a program needs; an
//! audit library is early enough, but takes static thread-local storage from the program
//! (`docs/decisions/2026-11-21-loaded-as-an-audit-library.md`). So exec names us as one only where
//! it matters: when a library that the program needs lies in a directory of `LD_LIBRARY_PATH` in
//! the mount (build tools set that variable for everything they start, and most of it needs
//! nothing from there), when the program's own `DT_RUNPATH`, `DT_RPATH` or a `DT_NEEDED` with a
//! slash leads into the mount, or when a library that `LD_PRELOAD` names lies there. What the
//! libraries need themselves, and symbolic links that lead into the mount, are not seen.
//!
//! A program that needs the run-time library of AddressSanitizer gets us as an audit library too:
//! it ends at its start when another library was loaded before that one.

use mayfly_sys::{
    file::{self, AT_EMPTY_PATH, AT_FDCWD, O_CLOEXEC, O_RDONLY},
    text::{PathText, Room},
};

use super::session;
use crate::paths::{
    locate::{Place, locate},
    text,
};

/// Program headers looked at; programs have about 13.
const HEADERS_MAX: usize = 32;
/// Entries of the dynamic section read at a time, and in all.
const ENTRIES: usize = 64;
const ENTRIES_MAX: usize = 1024;
/// A library that ends its program unless it was loaded before all others.
const MUST_BE_FIRST: &[u8] = b"libasan.so";

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const ENTRY_BYTES: usize = 16;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// Bytes of a note segment that are looked at.
const NOTE_BYTES: usize = 256;
const MACHINE_X86_64: u16 = 62;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_1_PIE: u64 = 0x0800_0000;

/// Where search paths may lead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places<'a> {
    pub(crate) mount: &'a [u8],
    /// The working directory is in the mount, so relative paths are.
    pub(super) works_there: bool,
    /// The program is, so `$ORIGIN` is.
    pub(super) lies_there: bool,
    /// `LD_LIBRARY_PATH`.
    pub(super) library_path: &'a [u8],
    /// `LD_PRELOAD`.
    pub(super) preload: &'a [u8],
}

impl Places<'_> {
    /// Does an element of a search path lead into the mount? An empty one is the working directory.
    fn hold(self, element: &[u8]) -> bool {
        if element.starts_with(b"$ORIGIN") || element.starts_with(b"${ORIGIN}") {
            return self.lies_there;
        }
        match element {
            [b'/', ..] => text::below(self.mount, element).is_some(),
            _ => self.works_there,
        }
    }

    /// Is the library `name` in a directory of `LD_LIBRARY_PATH` in the mount?
    fn provide(self, name: &[u8], is_there: &mut impl FnMut(&PathText) -> bool) -> bool {
        let list = self.library_path;
        !list.is_empty()
            && list.split(|byte| matches!(byte, b':' | b';')).any(|directory| {
                let directory = if directory.is_empty() { b"." } else { directory };
                self.hold(directory)
                    && PathText::from_bytes(directory)
                        .and_then(|mut path| path.push_component(name).map(|()| is_there(&path)))
                        .unwrap_or(false)
            })
    }

    /// Does the mount have a library that is to be preloaded?
    fn preload(self, is_there: &mut impl FnMut(&PathText) -> bool) -> bool {
        let names = self.preload.split(|byte| matches!(byte, b':' | b' '));
        let mut names = names.filter(|name| !name.is_empty());
        names.any(|name| match name.contains(&b'/') {
            true => self.hold(name),
            false => self.provide(name, is_there),
        })
    }

    /// Does a list of directories, as `DT_RUNPATH` has them, lead into the mount?
    fn hold_any(self, list: &[u8]) -> bool {
        !list.is_empty()
            && list.split(|byte| matches!(byte, b':' | b';')).any(|element| self.hold(element))
    }
}

/// Does the program of the kernel's at `path` look for libraries in the mount? False when it
/// cannot be read; the kernel will say why.
#[inline(never)]
pub(super) fn kernel_program_looks(
    directory: i32,
    path: &PathText,
    flags: usize,
    places: Places<'_>,
) -> bool {
    if flags & AT_EMPTY_PATH != 0 && path.as_bytes().is_empty() {
        return looks(|offset, to| read_kernel(directory, offset, to), is_there, places);
    }
    let look = |program| looks(|offset, to| read_kernel(program, offset, to), is_there, places);
    with_kernels(directory, path, look).unwrap_or(false)
}

/// Calls `look` with a descriptor of the kernel's file at `path`, if it can be read.
pub(super) fn with_kernels<T>(
    directory: i32,
    path: &PathText,
    look: impl FnOnce(i32) -> T,
) -> Option<T> {
    let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    let program = file::open_at(directory, path, flags, 0).ok()?;
    let found = look(program);
    file::close(program);
    Some(found)
}

/// Is there a file of the instance at `path`?
pub(super) fn is_there(path: &PathText) -> bool {
    let mut room = PathText::new();
    let Ok(place @ Place::Tree { .. }) = locate(AT_FDCWD, path.as_bytes(), &mut room) else {
        return false;
    };
    let mut escape = PathText::new();
    let found = |target| session::get().is_ok_and(|got| got.stat(target, &mut escape).is_ok());
    place.target(true).is_ok_and(found)
}

/// The path may be that of a FIFO.
const O_NONBLOCK: u32 = 0o4000;

pub(super) fn read_kernel(descriptor: i32, offset: u64, to: &mut [u8]) -> usize {
    // SAFETY: the buffer is the caller's to write.
    unsafe { file::read_at(descriptor, to.as_mut_ptr(), to.len(), offset) }.unwrap_or(0)
}

/// The beginning of an ELF file of 64 bits, little endian.
struct Head<'r> {
    kind: u16,
    machine: u16,
    /// The program headers.
    headers: &'r [u8],
    /// Room for something else.
    rest: &'r mut [u8],
}

impl<'r> Head<'r> {
    /// Reads it into `room`; `None` for anything else.
    fn read(
        read: &mut impl FnMut(u64, &mut [u8]) -> usize,
        room: &'r mut Room,
    ) -> Option<Head<'r>> {
        let (header, room) = room.as_mut_slice().split_at_mut_checked(HEADER_BYTES)?;
        if read(0, header) < HEADER_BYTES || !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (offset, count) = (word64(header, 32), usize::from(word16(header, 56)));
        let bytes = count.min(HEADERS_MAX) * PROGRAM_HEADER_BYTES;
        let (table, rest) = room.split_at_mut_checked(bytes)?;
        let used = read(offset, table);
        let (kind, machine) = (word16(header, 16), word16(header, 18));
        Some(Head { kind, machine, headers: table.get(..used)?, rest })
    }

    fn has(&self, kind: u32) -> bool {
        let mut headers = self.headers.chunks_exact(PROGRAM_HEADER_BYTES);
        headers.any(|header| word32(header, 0) == kind)
    }
}

/// Does the program that `read` reads (offset, buffer, bytes read) look for libraries in the mount?
/// `is_there` knows whether a file of the mount exists.
#[inline(never)]
pub(super) fn looks(
    mut read: impl FnMut(u64, &mut [u8]) -> usize,
    mut is_there: impl FnMut(&PathText) -> bool,
    places: Places<'_>,
) -> bool {
    let (Ok(mut room), Ok(mut list)) = (Room::take(), Room::take()) else { return false };
    let Some(head) = Head::read(&mut read, &mut room) else { return false };
    let Some(dynamic) = find_dynamic(head.headers) else { return false };
    let mut strings = None;
    for_each_entry(dynamic, &mut read, head.rest, |_, kind, value| {
        strings = strings.or((kind == DT_STRTAB).then_some(value));
        strings.is_some()
    });
    let Some(strings) = strings.and_then(|strings| file_offset(head.headers, strings)) else {
        return false;
    };
    if places.preload(&mut is_there) {
        return true;
    }
    for_each_entry(dynamic, &mut read, head.rest, |read, kind, name| {
        if !matches!(kind, DT_NEEDED | DT_RPATH | DT_RUNPATH) {
            return false;
        }
        let text = list.as_mut_slice();
        let used = read(strings.wrapping_add(name), text);
        let text = text.get(..used).unwrap_or(&[]);
        let text = text.split(|byte| *byte == 0).next().unwrap_or(&[]);
        match kind {
            DT_NEEDED if text.contains(&b'/') => places.hold(text),
            DT_NEEDED if text.starts_with(MUST_BE_FIRST) => true,
            DT_NEEDED => places.provide(text, &mut is_there),
            _ => places.hold_any(text),
        }
    })
}

/// Is what `read` reads a program of this architecture that a dynamic linker starts, which is what
/// a preloaded library needs? True for what is no program at all: that runs nothing.
#[inline(never)]
pub(super) fn is_dynamic(mut read: impl FnMut(u64, &mut [u8]) -> usize) -> bool {
    let mut start = [0; 4];
    if read(0, &mut start) < start.len() || start != *b"\x7fELF" {
        return true;
    }
    let Ok(mut room) = Room::take() else { return true };
    Head::read(&mut read, &mut room)
        .is_some_and(|head| head.machine == MACHINE_X86_64 && head.has(PT_INTERP))
}

/// Is what `read` reads a static program of this architecture, but Go's? One that may be anywhere
/// says that it is a program; a library does not.
#[inline(never)]
pub(super) fn is_loadable(mut read: impl FnMut(u64, &mut [u8]) -> usize) -> bool {
    const FIXED: u16 = 2;
    const ANYWHERE: u16 = 3;
    let Ok(mut room) = Room::take() else { return false };
    let Some(head) = Head::read(&mut read, &mut room) else { return false };
    if head.machine != MACHINE_X86_64 || head.has(PT_INTERP) {
        return false;
    }
    let is_program = match head.kind {
        FIXED => true,
        ANYWHERE => find_dynamic(head.headers).is_some_and(|dynamic| {
            for_each_entry(dynamic, &mut read, head.rest, |_, kind, value| {
                kind == DT_FLAGS_1 && value & DF_1_PIE != 0
            })
        }),
        _ => false,
    };
    is_program && !is_gos(head.headers, &mut read, head.rest)
}

/// Is there a note of Go's linker?
fn is_gos(headers: &[u8], read: &mut impl FnMut(u64, &mut [u8]) -> usize, room: &mut [u8]) -> bool {
    headers.chunks_exact(PROGRAM_HEADER_BYTES).any(|header| {
        let bytes = NOTE_BYTES.min(word64(header, 32) as usize);
        let is_note = word32(header, 0) == PT_NOTE;
        let Some(note) = room.get_mut(..bytes).filter(|_| is_note) else { return false };
        let used = read(word64(header, 8), note);
        note.get(..used).unwrap_or(&[]).windows(4).any(|part| part == b"Go\0\0")
    })
}

/// File offset of the dynamic section, and its bytes.
fn find_dynamic(headers: &[u8]) -> Option<(u64, u64)> {
    let mut headers = headers.chunks_exact(PROGRAM_HEADER_BYTES);
    let found = headers.find(|header| word32(header, 0) == PT_DYNAMIC)?;
    Some((word64(found, 8), word64(found, 32)))
}

/// Hands the entries of the dynamic section to `is_it`, kind and value, until that says so, or the
/// section ends.
fn for_each_entry<R: FnMut(u64, &mut [u8]) -> usize>(
    (offset, bytes): (u64, u64),
    read: &mut R,
    room: &mut [u8],
    mut is_it: impl FnMut(&mut R, u64, u64) -> bool,
) -> bool {
    let end = bytes.min((ENTRIES_MAX * ENTRY_BYTES) as u64);
    let Some(chunk) = room.get_mut(..ENTRIES * ENTRY_BYTES) else { return false };
    let mut at = 0;
    while at < end {
        let used = read(offset.wrapping_add(at), chunk);
        for entry in chunk.get(..used).unwrap_or(&[]).chunks_exact(ENTRY_BYTES) {
            match word64(entry, 0) {
                DT_NULL => return false,
                kind if is_it(read, kind, word64(entry, 8)) => return true,
                _ => {}
            }
        }
        if used < chunk.len() {
            return false;
        }
        at += chunk.len() as u64;
    }
    false
}

/// Where in the file an address is.
fn file_offset(headers: &[u8], address: u64) -> Option<u64> {
    headers.chunks_exact(PROGRAM_HEADER_BYTES).find_map(|header| {
        let (offset, start, bytes) = (word64(header, 8), word64(header, 16), word64(header, 32));
        let within = address.checked_sub(start).filter(|within| *within < bytes)?;
        (word32(header, 0) == PT_LOAD).then(|| offset.wrapping_add(within))
    })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let field = bytes.get(at..at + N).and_then(|field| field.try_into().ok());
    field.unwrap_or([0; N])
}

fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places<'static> {
        Places {
            mount: b"/m/n",
            works_there: false,
            lies_there: false,
            library_path: b"/m/n",
            preload: b"",
        }
    }

    #[test]
    fn search_paths_into_the_mount_are_recognised() {
        assert!(places().hold_any(b"/lib:/m/n/lib"));
        assert!(places().hold_any(b"/m/n"));
        assert!(places().hold_any(b"/m/x/../n/lib"));
        assert!(!places().hold_any(b"/lib:/m/nn:/m:lib:$ORIGIN/../lib:"));
        assert!(!places().hold_any(b""));
        assert!(Places { works_there: true, ..places() }.hold_any(b"/lib:lib"));
        assert!(Places { works_there: true, ..places() }.hold_any(b"/lib:"));
        assert!(Places { lies_there: true, ..places() }.hold_any(b"${ORIGIN}/../lib"));
    }

    #[test]
    fn a_needed_library_counts_only_where_it_lies_in_the_mount() {
        let list = Places { library_path: b"/lib:/m/n/lib:/m/other", ..places() };
        let lies_in = |there: &'static [u8]| move |path: &PathText| path.as_bytes() == there;
        assert!(list.provide(b"libx.so", &mut lies_in(b"/m/n/lib/libx.so")));
        assert!(!list.provide(b"libx.so", &mut lies_in(b"/lib/libx.so")));
        assert!(!list.provide(b"liby.so", &mut lies_in(b"/m/n/lib/libx.so")));
        assert!(!Places { library_path: b"", ..list }.provide(b"libx.so", &mut |_| true));
    }

    #[test]
    fn a_preloaded_library_counts_where_it_lies_in_the_mount() {
        let named = |preload: &'static [u8]| Places { preload, ..places() };
        assert!(named(b"/lib/a.so:/m/n/b.so").preload(&mut |_| false));
        assert!(named(b"/lib/a.so b.so").preload(&mut |path| path.as_bytes() == b"/m/n/b.so"));
        assert!(!named(b"/lib/a.so: :b.so,lib/c.so").preload(&mut |_| false));
        assert!(!named(b"").preload(&mut |_| true));
        let there = Places { works_there: true, ..named(b"lib/c.so") };
        assert!(there.preload(&mut |_| false));
    }

    #[test]
    fn a_program_without_a_dynamic_linker_is_known() {
        let mut program = std::fs::read("/proc/self/exe").expect("a test has a program");
        let is = |program: &[u8]| {
            is_dynamic(|offset, to| {
                let rest = program.get(offset as usize..).unwrap_or(&[]);
                let count = rest.len().min(to.len());
                to[..count].copy_from_slice(&rest[..count]);
                count
            })
        };
        assert!(is(&program) && is(b"#!/bin/sh\n"));
        let start = word64(&program, 32) as usize;
        for at in (0..13).map(|header| start + header * PROGRAM_HEADER_BYTES) {
            if word32(&program, at) == PT_INTERP {
                program[at] = 0;
            }
        }
        assert!(!is(&program));
        program[18] = 3;
        assert!(!is(&program));
    }

    #[test]
    fn what_is_no_program_looks_for_nothing() {
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x02\x01"] {
            let read = |offset: u64, to: &mut [u8]| {
                let rest = bytes.get(offset as usize..).unwrap_or(&[]);
                let count = rest.len().min(to.len());
                to[..count].copy_from_slice(&rest[..count]);
                count
            };
            assert!(!looks(
                read,
                |_| true,
                Places { works_there: true, lies_there: true, ..places() }
            ));
        }
    }

    #[test]
    fn a_damaged_program_is_read_without_harm() {
        let own = std::fs::read("/proc/self/exe").expect("a test has a program");
        let head: std::vec::Vec<u8> = own.into_iter().take(1 << 16).collect();
        for at in 0..HEADER_BYTES + 13 * PROGRAM_HEADER_BYTES {
            let mut bytes = head.clone();
            bytes[at] ^= 0xff;
            let _ = looks(
                |offset, to| {
                    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                    let count = (bytes.len() - start).min(to.len());
                    to[..count].copy_from_slice(&bytes[start..start + count]);
                    count
                },
                |_| true,
                places(),
            );
        }
    }
}

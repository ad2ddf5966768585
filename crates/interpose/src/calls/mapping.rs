//! mmap of a file of ours.
//!
//! The kernel maps the object, on a descriptor opened for this one purpose with the access the
//! mapping may use, so that mprotect later allows no more than the application's own descriptor
//! would. Code gets an object, so that it can be found by what the kernel says is mapped. Another
//! private mapping of a file without an object, or of one whose file system forbids what is asked
//! for, is memory filled once; of a file that is leased that is done without a request, where it is
//! small or little of it is mapped. A shared mapping of a file whose bytes are on another node is
//! the mount's, where the instance is mounted, and so is one that only reads of a file that is not
//! all here yet: only what is touched is fetched. Elsewhere all is fetched before it is mapped. Of
//! a file on another node a mapping that only reads shows the file as it was then, and can never be
//! written to, and one that writes is ENODEV: it cannot be imitated.

use mayfly_client::OpenFile;
use mayfly_sys::{
    Errno,
    file::{self, AT_FDCWD, IoVec, O_CLOEXEC, O_RDONLY, O_RDWR},
    memory::{
        self, MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, PAGE_BYTES,
        PROT_EXEC, PROT_READ, PROT_WRITE,
    },
    text::PathText,
};
use mayfly_types::{FileKind, limits::INLINE_BYTES_MAX};

use super::serve::{argument, done};
use crate::{
    Call, Outcome,
    descriptors::{handover, leased},
    process::session,
};

/// What `/proc/PID/maps` shows of a copy.
const COPY_NAME: &[u8] = b"mayfly-mapped";
const MAP_TYPE: usize = 15;
const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
const MAP_POPULATE: usize = 0x8000;
/// What loaders of libraries say, and the kernel ignores.
const MAP_DENYWRITE: usize = 0x800;
/// Memory that is filled at once is made so; of a larger mapping much may lie behind the file.
const POPULATED_BYTES_MAX: usize = 64 << 10;

/// mmap with a descriptor of ours, or an anonymous one with a number that happens to be ours.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn map(call: &Call) -> Outcome {
    let flags = argument(call, 3);
    if flags & MAP_ANONYMOUS != 0 {
        return Outcome::Pass;
    }
    if is_absent(call, flags) && give(call) {
        return Outcome::Pass;
    }
    // SAFETY: passed on to the caller.
    let mut mapped = unsafe { try_map(call, flags) };
    if mapped == Err(Errno::ENODEV) && flags & MAP_TYPE != MAP_PRIVATE {
        if give(call) {
            return Outcome::Pass;
        }
        if argument(call, 2) & PROT_WRITE == 0 {
            // SAFETY: passed on to the caller.
            mapped = unsafe { map_copy(call, flags) };
        }
    }
    done(mapped.map(|address| address as isize))
}

/// A private mapping of a file that is leased and has no object, or a short one of any that is
/// leased; `None` for any other. Whether a private mapping shows what the file gets later POSIX
/// leaves open; and to copy so much takes less time than to ask for the object, which has to stay
/// for as long as it is mapped.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn map_leased(call: &Call) -> Option<Outcome> {
    let (bytes, protection, flags) = (argument(call, 1), argument(call, 2), argument(call, 3));
    let ordinary = flags & (MAP_TYPE | MAP_ANONYMOUS) == MAP_PRIVATE && protection & PROT_EXEC == 0;
    if !ordinary || bytes == 0 || !argument(call, 5).is_multiple_of(PAGE_BYTES) {
        return None;
    }
    // The parts of a library are found by what the kernel says is mapped.
    let is_data = flags & (MAP_DENYWRITE | MAP_FIXED) == 0;
    let is_short = bytes <= POPULATED_BYTES_MAX && is_data && leased::is_read_so(argument(call, 4));
    if !is_short && !leased::has_no_object(argument(call, 4)) {
        return None;
    }
    // SAFETY: passed on to the caller.
    let mapped = unsafe { fill(call, flags) };
    Some(done(mapped.map(|address| address as isize)))
}

/// A shared mapping of a file whose bytes are not all here, that only reads: one that is too long
/// for a record has an object otherwise. Code is mapped from an object, so that it can be found.
/// Who writes to a mapping is seen by others that map the object, and not by the mount.
fn is_absent(call: &Call, flags: usize) -> bool {
    if !matches!(flags & MAP_TYPE, MAP_SHARED | MAP_SHARED_VALIDATE)
        || argument(call, 2) & PROT_EXEC != 0
        || !handover::is_possible()
    {
        return false;
    }
    session::require_open(argument(call, 4) as i32).is_ok_and(|(session, open)| {
        session.has_origins()
            && open.kind() == FileKind::Regular
            && open.readable()
            && !open.writable()
            && !session.has_object(open)
            && session.size(open).is_ok_and(|bytes| bytes > INLINE_BYTES_MAX as u64)
    })
}

/// A file whose bytes are not all in one object here is mapped through the mount, if there is one:
/// from now on it is the mount's.
fn give(call: &Call) -> bool {
    let open = session::require_open(argument(call, 4) as i32).map(|(_, open)| open);
    let is_file = |open: &OpenFile| open.kind() == FileKind::Regular;
    let open = open.ok().filter(is_file).filter(|_| handover::is_possible());
    open.is_some_and(|open| handover::give(open).is_ok())
}

/// # Safety
/// As [`crate::dispatch`].
unsafe fn try_map(call: &Call, flags: usize) -> Result<usize, Errno> {
    let (session, open) = session::require_open(argument(call, 4) as i32)?;
    let (bytes, protection, offset) = (argument(call, 1), argument(call, 2), argument(call, 5));
    if open.is_path() {
        return Err(Errno::EBADF);
    }
    if open.kind() != FileKind::Regular {
        return Err(Errno::ENODEV);
    }
    let shared = match flags & MAP_TYPE {
        MAP_PRIVATE => false,
        MAP_SHARED | MAP_SHARED_VALIDATE => true,
        _ => return Err(Errno::EINVAL),
    };
    if bytes == 0 || !offset.is_multiple_of(PAGE_BYTES) {
        return Err(Errno::EINVAL);
    }
    if !open.readable() || shared && protection & PROT_WRITE != 0 && !open.writable() {
        return Err(Errno::EACCES);
    }
    let (code, had_object) = (protection & PROT_EXEC != 0, session.has_object(open));
    if shared || code || had_object {
        let access = if shared && open.writable() { O_RDWR } else { O_RDONLY };
        let mut path = PathText::new();
        let mapped = session.own_object(open, access, &mut path).and_then(|object| {
            // SAFETY: the host's own request, with the object in place of its file.
            unsafe {
                memory::map(
                    argument(call, 0),
                    bytes,
                    protection,
                    flags,
                    object.descriptor as usize,
                    offset,
                )
            }
        });
        match mapped {
            Err(Errno::EPERM | Errno::EACCES | Errno::EIO | Errno::ENODEV) if !shared => {}
            // It was for the name in `/proc/PID/maps` only.
            Err(_) if !shared && !had_object => {}
            Err(Errno::EIO) => return Err(Errno::ENODEV),
            mapped => return mapped,
        }
    }
    // SAFETY: passed on to the caller.
    unsafe { fill(call, flags) }
}

/// A shared mapping of a copy, on a descriptor that cannot write, so that mprotect never allows it.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn map_copy(call: &Call, flags: usize) -> Result<usize, Errno> {
    let (session, open) = session::require_open(argument(call, 4) as i32)?;
    if open.kind() != FileKind::Regular {
        return Err(Errno::ENODEV);
    }
    let (bytes, offset) = (argument(call, 1), argument(call, 5));
    let there = session.size(open)?.saturating_sub(offset as u64);
    let copy = file::memory_file(&PathText::from_bytes(COPY_NAME)?)?;
    let mapped = copy_part(argument(call, 4), offset, bytes.min(there as usize), copy)
        .and_then(|()| read_only(copy))
        .and_then(|copy| {
            let (address, protection) = (argument(call, 0), argument(call, 2));
            // SAFETY: the host's own request, with the copy in place of its file.
            let mapped =
                unsafe { memory::map(address, bytes, protection, flags, copy as usize, 0) };
            file::close(copy);
            mapped
        });
    file::close(copy);
    mapped
}

/// Another descriptor of the copy, which can only read.
fn read_only(copy: i32) -> Result<i32, Errno> {
    file::open_at(AT_FDCWD, &file::descriptor_path(copy)?, O_RDONLY | O_CLOEXEC, 0)
}

/// So many bytes of the file from there on, as the copy's content.
fn copy_part(descriptor: usize, from: usize, bytes: usize, copy: i32) -> Result<(), Errno> {
    file::set_length(copy, bytes as u64)?;
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: a new mapping, where the kernel finds room.
    let address =
        unsafe { memory::map(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, copy as usize, 0) }?;
    // SAFETY: the memory was just mapped and nobody else knows of it.
    let read = unsafe { read_all(descriptor, from, address, bytes) };
    if let Some(start) = core::ptr::NonNull::new(address as *mut u8) {
        // SAFETY: as above.
        unsafe { memory::unmap(start, bytes) };
    }
    read
}

/// Reads from there on until the memory is full or the file ends.
///
/// # Safety
/// The memory is the caller's to write.
unsafe fn read_all(
    descriptor: usize,
    from: usize,
    address: usize,
    bytes: usize,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes {
        let room = [IoVec { base: (address + done) as *mut u8, bytes: bytes - done }];
        let offset = (from + done) as i64;
        // SAFETY: promised by the caller.
        let read = match unsafe { leased::read(descriptor, Some(offset), &room) } {
            Some(read) => read,
            None => {
                let (session, open) = session::require_open(descriptor as i32)?;
                // SAFETY: as above.
                unsafe { session.read_at(open, offset, &room) }
            }
        };
        match read? {
            0 => break,
            count => done += count,
        }
    }
    Ok(())
}

/// A private mapping that is filled once.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn fill(call: &Call, flags: usize) -> Result<usize, Errno> {
    let (bytes, protection, offset) = (argument(call, 1), argument(call, 2), argument(call, 5));
    let kept = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE | 0x40);
    // A page that is about to be written need not fault.
    let populate = if bytes <= POPULATED_BYTES_MAX { MAP_POPULATE } else { 0 };
    let flags = kept | populate | MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: the host asked for a mapping at this place, which it may replace.
    let address = unsafe {
        memory::map(argument(call, 0), bytes, PROT_READ | PROT_WRITE, flags, usize::MAX, 0)
    }?;
    // SAFETY: the memory was just mapped and nobody else knows of it yet.
    if let Err(errno) = unsafe { read_all(argument(call, 4), offset, address, bytes) } {
        if let Some(start) = core::ptr::NonNull::new(address as *mut u8) {
            // SAFETY: as above.
            unsafe { memory::unmap(start, bytes) };
        }
        return Err(errno);
    }
    // SAFETY: as above.
    unsafe { memory::protect(address, bytes, protection) }?;
    Ok(address)
}

//! Calls on descriptors and names of the kernel.

use crate::{
    Errno,
    arch::{syscall3, syscall6},
    number, result,
    text::PathText,
};

/// Relative to the working directory.
pub const AT_FDCWD: i32 = -100;
/// Do not follow a symbolic link at the end.
pub const AT_SYMLINK_NOFOLLOW: usize = 0x100;
/// Remove a directory.
pub const AT_REMOVEDIR: usize = 0x200;
/// Follow a symbolic link at the end (linkat).
pub const AT_SYMLINK_FOLLOW: usize = 0x400;
/// Ask what the effective user may (faccessat2).
pub const AT_EACCESS: usize = 0x200;
/// The path may be empty and then means the descriptor.
pub const AT_EMPTY_PATH: usize = 0x1000;

/// Mask of the access mode.
pub const O_ACCMODE: u32 = 3;
/// Read only.
pub const O_RDONLY: u32 = 0;
/// Write only.
pub const O_WRONLY: u32 = 1;
/// Read and write.
pub const O_RDWR: u32 = 2;
/// Neither read nor write: the undocumented fourth access mode.
pub const O_NEITHER: u32 = 3;
/// Create.
pub const O_CREAT: u32 = 0o100;
/// It must not exist.
pub const O_EXCL: u32 = 0o200;
/// Do not become the controlling terminal.
pub const O_NOCTTY: u32 = 0o400;
/// Cut to length zero.
pub const O_TRUNC: u32 = 0o1000;
/// Every write goes to the end.
pub const O_APPEND: u32 = 0o2000;
/// Do not wait.
pub const O_NONBLOCK: u32 = 0o4000;
/// Data reaches the device before a write returns.
pub const O_DSYNC: u32 = 0o10000;
/// Signal-driven.
pub const O_ASYNC: u32 = 0o20000;
/// Past the page cache.
pub const O_DIRECT: u32 = 0o40000;
/// Offsets beyond 2^31; always set on 64-bit machines.
pub const O_LARGEFILE: u32 = 0o100_000;
/// It must be a directory.
pub const O_DIRECTORY: u32 = 0o200_000;
/// It must not be a symbolic link.
pub const O_NOFOLLOW: u32 = 0o400_000;
/// Reading does not change the access time.
pub const O_NOATIME: u32 = 0o1_000_000;
/// Closed by exec.
pub const O_CLOEXEC: u32 = 0o2_000_000;
/// A name, not an open file.
pub const O_PATH: u32 = 0o10_000_000;
/// A file without a name (with O_DIRECTORY).
pub const O_TMPFILE: u32 = 0o20_000_000;

/// Duplicate at or above.
pub const F_DUPFD: usize = 0;
/// Flags of the descriptor.
pub const F_GETFD: usize = 1;
/// Set them.
pub const F_SETFD: usize = 2;
/// Duplicate at or above, closed by exec.
pub const F_DUPFD_CLOEXEC: usize = 1030;
/// Closed by exec.
pub const FD_CLOEXEC: usize = 1;

/// A piece of the host's memory (`struct iovec`).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct IoVec {
    /// First byte.
    pub base: *mut u8,
    /// Length.
    pub bytes: usize,
}

/// Exchange the two names (renameat2).
pub const RENAME_EXCHANGE: usize = 2;

/// Each write goes to the end (pwritev2).
pub const RWF_APPEND: usize = 0x10;

/// openat.
///
/// # Errors
/// The kernel's.
pub fn open_at(directory: i32, path: &PathText, flags: u32, mode: u32) -> Result<i32, Errno> {
    // SAFETY: the path is a terminated string that outlives the call.
    let raw = unsafe {
        syscall6(
            number::OPENAT,
            directory as usize,
            path.as_ptr() as usize,
            flags as usize,
            mode as usize,
            0,
            0,
        )
    };
    result(raw).map(|descriptor| descriptor as i32)
}

/// close. The descriptor is gone whatever the kernel says.
pub fn close(descriptor: i32) {
    // SAFETY: closing does not touch memory.
    unsafe { syscall3(number::CLOSE, descriptor as usize, 0, 0) };
}

/// fcntl with an integer argument.
///
/// # Errors
/// The kernel's.
pub fn control(descriptor: i32, command: usize, argument: usize) -> Result<usize, Errno> {
    // SAFETY: the commands used here take an integer and touch no memory.
    result(unsafe { syscall3(number::FCNTL, descriptor as usize, command, argument) })
}

/// Duplicates a descriptor to the lowest free number.
///
/// # Errors
/// EMFILE, EBADF.
pub fn duplicate(descriptor: i32) -> Result<i32, Errno> {
    // SAFETY: touches no memory.
    let raw = unsafe { syscall3(number::DUP, descriptor as usize, 0, 0) };
    result(raw).map(|descriptor| descriptor as i32)
}

/// An ioctl whose argument is a number.
///
/// # Errors
/// The kernel's.
pub fn command(descriptor: i32, command: u32, argument: u64) -> Result<usize, Errno> {
    let (command, argument) = (command as usize, argument as usize);
    // SAFETY: the commands used here take an integer and touch no memory.
    result(unsafe { syscall3(number::IOCTL, descriptor as usize, command, argument) })
}

/// dup3.
///
/// # Errors
/// The kernel's.
pub fn duplicate_onto(from: i32, onto: i32, flags: u32) -> Result<i32, Errno> {
    // SAFETY: touches no memory.
    let raw = unsafe { syscall3(number::DUP3, from as usize, onto as usize, flags as usize) };
    result(raw).map(|descriptor| descriptor as i32)
}

/// pread.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// `to` is memory into which the host wants `bytes` bytes; the kernel checks it.
pub unsafe fn read_at(
    descriptor: i32,
    to: *mut u8,
    bytes: usize,
    offset: u64,
) -> Result<usize, Errno> {
    // SAFETY: passed on to the caller.
    result(unsafe {
        syscall6(number::PREAD64, descriptor as usize, to as usize, bytes, offset as usize, 0, 0)
    })
}

/// pwrite.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// `from` is memory of which the host wants `bytes` bytes written; the kernel checks it.
pub unsafe fn write_at(
    descriptor: i32,
    from: *const u8,
    bytes: usize,
    offset: u64,
) -> Result<usize, Errno> {
    // SAFETY: passed on to the caller.
    result(unsafe {
        syscall6(number::PWRITE64, descriptor as usize, from as usize, bytes, offset as usize, 0, 0)
    })
}

/// preadv.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As [`read_at`] for every piece.
pub unsafe fn read_pieces(descriptor: i32, pieces: &[IoVec], offset: u64) -> Result<usize, Errno> {
    // SAFETY: passed on to the caller.
    result(unsafe {
        syscall6(
            number::PREADV,
            descriptor as usize,
            pieces.as_ptr() as usize,
            pieces.len(),
            offset as usize,
            0,
            0,
        )
    })
}

/// pwritev2. `offset` `u64::MAX` with [`RWF_APPEND`] uses and moves the descriptor's own offset.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As [`write_at`] for every piece.
pub unsafe fn write_pieces(
    descriptor: i32,
    pieces: &[IoVec],
    offset: u64,
    flags: usize,
) -> Result<usize, Errno> {
    // SAFETY: passed on to the caller.
    result(unsafe {
        syscall6(
            number::PWRITEV2,
            descriptor as usize,
            pieces.as_ptr() as usize,
            pieces.len(),
            offset as usize,
            0,
            flags,
        )
    })
}

/// splice from `offset` of a file into a pipe: the pipe gets the file's pages, not a copy of them.
///
/// # Errors
/// The kernel's.
pub fn splice_from(descriptor: i32, offset: u64, pipe: i32, bytes: usize) -> Result<usize, Errno> {
    let mut offset = offset as i64;
    // SAFETY: the kernel reads and writes the offset, which lives until it returns.
    result(unsafe {
        syscall6(
            number::SPLICE,
            descriptor as usize,
            &raw mut offset as usize,
            pipe as usize,
            0,
            bytes,
            0,
        )
    })
}

/// lseek.
///
/// # Errors
/// The kernel's.
pub fn seek(descriptor: i32, offset: i64, whence: usize) -> Result<u64, Errno> {
    // SAFETY: touches no memory.
    let raw = unsafe { syscall3(number::LSEEK, descriptor as usize, offset as usize, whence) };
    result(raw).map(|position| position as u64)
}

/// Length of the file.
///
/// # Errors
/// The kernel's.
pub fn length(descriptor: i32) -> Result<u64, Errno> {
    const SIZE_WORD: usize = 6;
    attributes(descriptor)?.get(SIZE_WORD).copied().ok_or(Errno::EIO)
}

/// Type and permission bits of what is open.
///
/// # Errors
/// The kernel's.
pub fn mode(descriptor: i32) -> Result<u32, Errno> {
    const MODE_WORD: usize = 3;
    attributes(descriptor)?.get(MODE_WORD).map(|word| *word as u32).ok_or(Errno::EIO)
}

/// Number of an open file in its file system.
///
/// # Errors
/// The kernel's.
pub fn inode(descriptor: i32) -> Result<u64, Errno> {
    let [_, inode, ..] = attributes(descriptor)?;
    Ok(inode)
}

/// What the kernel knows of a file without asking a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its inode number.
    pub inode: u64,
    /// Its file system, as the kernel's number of the device.
    pub device: u64,
}

/// Number of the file at `path`, from the working directory, in its file system, as far as it is
/// known without asking a server.
///
/// # Errors
/// The kernel's.
pub fn known_inode(path: &PathText) -> Result<Known, Errno> {
    const AT_STATX_DONT_SYNC: usize = 0x4000;
    const STATX_INO: usize = 0x100;
    /// `stx_ino`, and `stx_dev_major` with `stx_dev_minor`, in words of the structure.
    const INODE_AT: usize = 4;
    const DEVICE_AT: usize = 17;
    let mut attributes = [0_u64; 32];
    // SAFETY: the path is terminated, and the array has the size of the kernel's `struct statx`.
    let raw = unsafe {
        syscall6(
            number::STATX,
            AT_FDCWD as usize,
            path.as_ptr() as usize,
            AT_STATX_DONT_SYNC,
            STATX_INO,
            attributes.as_mut_ptr() as usize,
            0,
        )
    };
    result(raw).map(|_| Known { inode: attributes[INODE_AT], device: attributes[DEVICE_AT] })
}

/// Type and mode, user and group of an open file.
///
/// # Errors
/// The kernel's.
pub fn mode_and_owner(descriptor: i32) -> Result<(u32, u32, u32), Errno> {
    let [_, _, _, mode_and_user, group, ..] = attributes(descriptor)?;
    Ok((mode_and_user as u32, (mode_and_user >> 32) as u32, group as u32))
}

/// fstat: `struct stat` in words.
fn attributes(descriptor: i32) -> Result<[u64; 18], Errno> {
    let mut attributes = [0_u64; 18];
    // SAFETY: the array has the size of the kernel's `struct stat` and outlives the call.
    let raw = unsafe {
        syscall3(number::FSTAT, descriptor as usize, attributes.as_mut_ptr() as usize, 0)
    };
    result(raw).map(|_| attributes)
}

/// readlinkat.
///
/// # Errors
/// The kernel's; ENAMETOOLONG when the target does not fit.
pub fn read_link(directory: i32, path: &PathText, to: &mut PathText) -> Result<(), Errno> {
    to.fill_with(|buffer, bytes| {
        // SAFETY: the path is terminated; the buffer has room for `bytes`.
        result(unsafe {
            syscall6(
                number::READLINKAT,
                directory as usize,
                path.as_ptr() as usize,
                buffer as usize,
                bytes,
                0,
                0,
            )
        })
    })
}

/// `/proc/self/fd/N`, by which a descriptor's file can be opened anew.
///
/// # Errors
/// EBADF for a negative one.
pub fn descriptor_path(descriptor: i32) -> Result<PathText, Errno> {
    let mut path = PathText::from_bytes(b"/proc/self/fd/")?;
    path.push_decimal(u64::try_from(descriptor).map_err(|_| Errno::EBADF)?)?;
    Ok(path)
}

/// What that points to.
///
/// # Errors
/// The kernel's.
pub fn descriptor_link(descriptor: i32, to: &mut PathText) -> Result<(), Errno> {
    read_link(AT_FDCWD, &descriptor_path(descriptor)?, to)
}

/// getcwd, without the terminating zero.
///
/// # Errors
/// The kernel's; ENOENT when the directory was removed.
pub fn working_directory(to: &mut PathText) -> Result<(), Errno> {
    to.fill_with(|buffer, bytes| {
        // SAFETY: the buffer has room for `bytes`.
        let raw = unsafe { syscall3(number::GETCWD, buffer as usize, bytes, 0) };
        result(raw).map(|count| count.saturating_sub(1))
    })
}

/// mkdirat.
///
/// # Errors
/// The kernel's.
pub fn make_directory(directory: i32, path: &PathText, mode: u32) -> Result<(), Errno> {
    let (directory, mode) = (directory as usize, mode as usize);
    // SAFETY: the path is a terminated string that outlives the call.
    let raw = unsafe { syscall3(number::MKDIRAT, directory, path.as_ptr() as usize, mode) };
    result(raw).map(|_| ())
}

/// unlinkat, of a directory.
///
/// # Errors
/// The kernel's.
pub fn remove_directory(directory: i32, path: &PathText) -> Result<(), Errno> {
    let directory = directory as usize;
    // SAFETY: the path is a terminated string that outlives the call.
    let raw =
        unsafe { syscall3(number::UNLINKAT, directory, path.as_ptr() as usize, AT_REMOVEDIR) };
    result(raw).map(|_| ())
}

/// mknodat, of an empty regular file.
///
/// # Errors
/// The kernel's.
pub fn make_node(directory: i32, path: &PathText, mode: u32) -> Result<(), Errno> {
    const REGULAR: u32 = 0o100_000;
    let (directory, mode) = (directory as usize, (REGULAR | mode) as usize);
    // SAFETY: the path is a terminated string that outlives the call.
    let raw =
        unsafe { syscall6(number::MKNODAT, directory, path.as_ptr() as usize, mode, 0, 0, 0) };
    result(raw).map(|_| ())
}

/// unlinkat, of what is no directory.
///
/// # Errors
/// The kernel's.
pub fn remove(directory: i32, path: &PathText) -> Result<(), Errno> {
    let directory = directory as usize;
    // SAFETY: the path is a terminated string that outlives the call.
    let raw = unsafe { syscall3(number::UNLINKAT, directory, path.as_ptr() as usize, 0) };
    result(raw).map(|_| ())
}

/// symlinkat: a link that says `target`.
///
/// # Errors
/// The kernel's.
pub fn make_link(target: &PathText, directory: i32, path: &PathText) -> Result<(), Errno> {
    let (target, directory) = (target.as_ptr() as usize, directory as usize);
    // SAFETY: both are terminated strings that outlive the call.
    let raw = unsafe { syscall3(number::SYMLINKAT, target, directory, path.as_ptr() as usize) };
    result(raw).map(|_| ())
}

/// renameat2, of two paths from one directory.
///
/// # Errors
/// The kernel's.
pub fn rename(directory: i32, from: &PathText, to: &PathText, flags: usize) -> Result<(), Errno> {
    let (from, to) = (from.as_ptr() as usize, to.as_ptr() as usize);
    let directory = directory as usize;
    // SAFETY: both are terminated strings that outlive the call.
    let raw = unsafe { syscall6(number::RENAMEAT2, directory, from, directory, to, flags, 0) };
    result(raw).map(|_| ())
}

/// fchmodat, which follows links.
///
/// # Errors
/// The kernel's.
pub fn change_mode_at(directory: i32, path: &PathText, mode: u32) -> Result<(), Errno> {
    let (directory, mode) = (directory as usize, mode as usize);
    // SAFETY: the path is a terminated string that outlives the call.
    let raw = unsafe { syscall3(number::FCHMODAT, directory, path.as_ptr() as usize, mode) };
    result(raw).map(|_| ())
}

/// futimens: the time of the last change of content is this one, that of the last access stays.
///
/// # Errors
/// The kernel's.
pub fn set_modified(descriptor: i32, seconds: i64, nanoseconds: u32) -> Result<(), Errno> {
    /// `UTIME_OMIT`.
    const OMIT: i64 = (1 << 30) - 2;
    let times = [0, OMIT, seconds, i64::from(nanoseconds)];
    // SAFETY: without a path the call is about the descriptor; the times outlive the call.
    let raw = unsafe {
        syscall6(number::UTIMENSAT, descriptor as usize, 0, times.as_ptr() as usize, 0, 0, 0)
    };
    result(raw).map(|_| ())
}

/// What becomes of a time of a file.
#[derive(Debug, Clone, Copy)]
pub enum SetTime {
    /// It stays.
    Stays,
    /// It is now.
    Now,
    /// It is this: seconds and nanoseconds.
    To(i64, u32),
}

/// utimensat: the times of the last access and of the last change of content.
///
/// # Errors
/// The kernel's.
pub fn set_times(
    directory: i32,
    path: &PathText,
    access: SetTime,
    change: SetTime,
) -> Result<(), Errno> {
    /// `UTIME_OMIT` and `UTIME_NOW`.
    const OMIT: i64 = (1 << 30) - 2;
    const NOW: i64 = (1 << 30) - 1;
    let spec = |time: SetTime| match time {
        SetTime::Stays => [0, OMIT],
        SetTime::Now => [0, NOW],
        SetTime::To(seconds, nanoseconds) => [seconds, i64::from(nanoseconds)],
    };
    let times = [spec(access), spec(change)];
    let (directory, times) = (directory as usize, times.as_ptr() as usize);
    // SAFETY: the path is a terminated string that outlives the call, and so do the times.
    let raw =
        unsafe { syscall6(number::UTIMENSAT, directory, path.as_ptr() as usize, times, 0, 0, 0) };
    result(raw).map(|_| ())
}

/// chdir.
///
/// # Errors
/// The kernel's.
pub fn change_directory(path: &PathText) -> Result<(), Errno> {
    // SAFETY: the path is a terminated string that outlives the call.
    result(unsafe { syscall3(number::CHDIR, path.as_ptr() as usize, 0, 0) }).map(|_| ())
}

/// fchdir.
///
/// # Errors
/// The kernel's.
pub fn enter(descriptor: i32) -> Result<(), Errno> {
    // SAFETY: touches no memory.
    result(unsafe { syscall3(number::FCHDIR, descriptor as usize, 0, 0) }).map(|_| ())
}

/// faccessat: may the file be found and, with `mode`, used?
///
/// # Errors
/// The kernel's.
pub fn check_access(directory: i32, path: &PathText, mode: usize) -> Result<(), Errno> {
    let directory = directory as usize;
    // SAFETY: the path is a terminated string that outlives the call.
    let raw = unsafe { syscall3(number::FACCESSAT, directory, path.as_ptr() as usize, mode) };
    result(raw).map(|_| ())
}

/// fchmod.
///
/// # Errors
/// The kernel's.
pub fn change_mode(descriptor: i32, mode: u32) -> Result<(), Errno> {
    // SAFETY: touches no memory.
    let raw = unsafe { syscall3(number::FCHMOD, descriptor as usize, mode as usize, 0) };
    result(raw).map(|_| ())
}

/// ftruncate.
///
/// # Errors
/// The kernel's.
pub fn set_length(descriptor: i32, bytes: u64) -> Result<(), Errno> {
    // SAFETY: plain arguments.
    let raw = unsafe { syscall3(number::FTRUNCATE, descriptor as usize, bytes as usize, 0) };
    result(raw).map(|_| ())
}

/// A file in memory without a name, closed by exec, that can be sealed.
///
/// # Errors
/// The kernel's.
pub fn memory_file(name: &PathText) -> Result<i32, Errno> {
    const CLOEXEC_AND_SEALS: usize = 3;
    // SAFETY: the name is a terminated string that outlives the call.
    let raw =
        unsafe { syscall3(number::MEMFD_CREATE, name.as_ptr() as usize, CLOEXEC_AND_SEALS, 0) };
    result(raw).map(|descriptor| descriptor as i32)
}

//! sendfile, copy_file_range, splice with a descriptor of ours: through a buffer.
//!
//! Offsets move by what was really written. The kernel moves bytes between the pipe of a splice and
//! a file in memory, so that it waits, and does not, as for a file of its own. tee is for two
//! pipes, of which ours is none.

use mayfly_client::OpenFile;
use mayfly_sys::{
    Errno,
    arch::{syscall3, syscall6},
    file::{self, IoVec},
    number, result,
    scratch::Scratch,
    text::PathText,
    user,
};
use mayfly_types::FileKind;

use super::{
    data,
    serve::{argument, done},
};
use crate::{Call, Outcome, descriptors::leased, process::session};

const MAX: usize = mayfly_client::TRANSFER_MAX;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Out of the file.
    Out,
    /// Into the file.
    In,
}

/// May bytes be moved out of (or into) this description?
///
/// # Errors
/// EBADF.
fn check_transfer(open: OpenFile, direction: Direction) -> Result<(), Errno> {
    let allowed = match direction {
        Direction::Out => open.readable(),
        Direction::In => open.writable(),
    };
    if allowed { Ok(()) } else { Err(Errno::EBADF) }
}

/// One side of a copy.
struct End {
    descriptor: i32,
    open: Option<OpenFile>,
    /// Address of the host's offset, which is used and moved instead of the file's; or 0.
    offset_at: usize,
    /// Offset to go on at; `None`: wherever the kernel's descriptor stands.
    at: Option<i64>,
}

impl End {
    /// # Safety
    /// `offset_at` is 0 or the address of an offset of the host.
    unsafe fn new(descriptor: i32, offset_at: usize, direction: Direction) -> Result<End, Errno> {
        let open = session::open_file(descriptor)?;
        if open.is_none() {
            check_kernels(descriptor, direction)?;
        }
        if let Some(open) = open {
            check_transfer(open, direction)?;
            match open.kind() {
                FileKind::Directory => return Err(Errno::EISDIR),
                FileKind::Regular => {}
                FileKind::Symlink | FileKind::Fifo | FileKind::Socket => {
                    return Err(Errno::EBADF);
                }
            }
        }
        let at = match (offset_at, open) {
            (0, None) => None,
            (0, Some(open)) if direction == Direction::In && open.appends() => None,
            (0, Some(open)) => Some(session::get()?.position(open) as i64),
            // SAFETY: passed on to the caller.
            (address, _) => Some(unsafe { user::read(address as *const i64) }?),
        };
        if at.is_some_and(|at| at < 0) {
            return Err(Errno::EINVAL);
        }
        Ok(End { descriptor, open, offset_at, at })
    }

    fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let (to, bytes) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the buffer is ours.
        unsafe {
            match (self.open, self.at) {
                (Some(open), at) => {
                    session::get()?.read_at(open, at.unwrap_or(0), &[IoVec { base: to, bytes }])
                }
                (None, Some(at)) => file::read_at(self.descriptor, to, bytes, at as u64),
                (None, None) => {
                    result(syscall3(number::READ, self.descriptor as usize, to as usize, bytes))
                }
            }
        }
    }

    fn write(&self, buffer: &[u8]) -> Result<usize, Errno> {
        self.write_from(0, buffer)
    }

    /// So many bytes behind where it is.
    fn write_from(&self, behind: usize, buffer: &[u8]) -> Result<usize, Errno> {
        let (from, bytes) = (buffer.as_ptr(), buffer.len());
        let piece = [IoVec { base: from.cast_mut(), bytes }];
        let at = self.at.map(|at| at.saturating_add(behind as i64));
        // SAFETY: the buffer is ours and only read.
        unsafe {
            match (self.open, at) {
                (Some(open), Some(at)) => session::get()?.write_at(open, at, &piece),
                (Some(open), None) => session::get()?.write(open, &piece),
                (None, Some(at)) => file::write_at(self.descriptor, from, bytes, at as u64),
                (None, None) => {
                    result(syscall3(number::WRITE, self.descriptor as usize, from as usize, bytes))
                }
            }
        }
    }

    fn advance(&mut self, count: usize) {
        self.at = self.at.map(|at| at.saturating_add(count as i64));
    }

    /// `count` bytes that were read did not find a place.
    fn put_back(&self, count: usize) {
        if self.at.is_none() && self.open.is_none() && count > 0 {
            // A pipe cannot take them back; the kernel's own copy would have lost them too.
            let _ = file::seek(self.descriptor, -(count as i64), 1);
        }
    }

    /// Stores the offset where the host looks for it.
    fn finish(&self) -> Result<(), Errno> {
        let Some(at) = self.at else { return Ok(()) };
        match (self.offset_at, self.open) {
            (0, Some(open)) => session::get()?.seek(open, at, 0).map(|_| ()),
            (0, None) => Ok(()),
            // SAFETY: the host's own offset, which was read before.
            (address, _) => unsafe { user::write(&at, address as *mut i64) },
        }
    }
}

/// Nothing may be copied, so that no transfer would show that the other descriptor is bad.
fn check_kernels(descriptor: i32, direction: Direction) -> Result<(), Errno> {
    const F_GETFL: usize = 3;
    // SAFETY: touches no memory.
    let flags = result(unsafe { syscall3(number::FCNTL, descriptor as usize, F_GETFL, 0) })? as u32;
    let wrong = match direction {
        Direction::Out => file::O_WRONLY,
        Direction::In => file::O_RDONLY,
    };
    let usable = flags & file::O_PATH == 0 && flags & file::O_ACCMODE != wrong;
    if usable { Ok(()) } else { Err(Errno::EBADF) }
}

fn copy(from: &mut End, to: &mut End, count: usize) -> Result<isize, Errno> {
    let mut scratch = Scratch::take(1)?;
    let mut copied = 0_usize;
    let mut failure = None;
    while copied < count {
        let buffer = scratch.as_mut_slice();
        let wanted = (count - copied).min(buffer.len());
        let step = from.read(buffer.get_mut(..wanted).unwrap_or(&mut [])).and_then(|got| {
            let bytes = scratch.as_slice().get(..got).unwrap_or(&[]);
            let written = if got == 0 { Ok(0) } else { to.write(bytes) };
            from.put_back(got - *written.as_ref().unwrap_or(&0).min(&got));
            written.map(|written| (got, written))
        });
        match step {
            Ok((got, written)) => {
                copied += written;
                from.advance(written);
                to.advance(written);
                if got < wanted || written < got {
                    break;
                }
            }
            Err(errno) => {
                failure = Some(errno);
                break;
            }
        }
    }
    if let (0, Some(errno)) = (copied, failure) {
        return Err(errno);
    }
    from.finish()?;
    to.finish()?;
    Ok(copied as isize)
}

fn none_ours(one: i32, other: i32) -> bool {
    matches!((session::open_file(one), session::open_file(other)), (Ok(None), Ok(None)))
}

/// sendfile.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn send_file(call: &Call) -> Outcome {
    let (to, from) = (argument(call, 0) as i32, argument(call, 1) as i32);
    if none_ours(to, from) {
        return Outcome::Pass;
    }
    // SAFETY: passed on to the caller.
    let ends = unsafe {
        End::new(from, argument(call, 2), Direction::Out)
            .and_then(|from| Ok((from, End::new(to, 0, Direction::In)?)))
    };
    done(ends.and_then(|(mut from, mut to)| {
        if to.open.is_some_and(|open| open.appends()) {
            return Err(Errno::EINVAL);
        }
        copy(&mut from, &mut to, argument(call, 3).min(MAX))
    }))
}

/// copy_file_range from a file that this process reads without asking, from offset to offset, into
/// another file of the instance; `None`: to be done in another way, and nothing has happened.
fn copy_leased(call: &Call) -> Option<Result<isize, Errno>> {
    let plain = call.number == number::COPY_FILE_RANGE
        && [1, 3, 5].iter().all(|at| argument(call, *at) == 0);
    let (from, to) = (argument(call, 0), argument(call, 2) as i32);
    let flags = leased::flags(call).filter(|_| plain)?;
    if flags & (file::O_ACCMODE | file::O_PATH) == file::O_WRONLY {
        return None;
    }
    let is_ours = session::promised(to).is_some() || session::require_open(to).is_ok();
    let mut scratch = is_ours.then(|| Scratch::take(1))?.ok()?;
    let (mut copied, count) = (0, argument(call, 4).min(MAX));
    while copied < count {
        let wanted = (count - copied).min(scratch.as_slice().len());
        let piece = [IoVec { base: scratch.as_mut_slice().as_mut_ptr(), bytes: wanted }];
        // SAFETY: the memory is ours.
        let got = match unsafe { leased::read(from, None, &piece) } {
            // Whether anything may be written there has not been found out.
            Some(Ok(0)) if copied == 0 => return None,
            Some(Ok(got)) => got,
            Some(Err(errno)) if copied == 0 => return Some(Err(errno)),
            None if copied == 0 => return None,
            Some(Err(_)) | None => break,
        };
        let written = if got == 0 { Some(Ok(0)) } else { write_new(to, from, &scratch, got) };
        let done = written.map_or(0, |written| written.unwrap_or(0));
        if done < got {
            let back = done as i64 - got as i64;
            let (session, open) = session::require_open(from as i32).ok()?;
            session.seek(open, back, 1).ok()?;
        }
        copied += done;
        match written {
            None if copied == 0 => return None,
            Some(Err(errno)) if copied == 0 => return Some(Err(errno)),
            Some(Ok(done)) if done == wanted => {}
            _ => break,
        }
    }
    Some(Ok(copied as isize))
}

/// Writes so many bytes at the file offset of another file than `from`'s; `None` when that is to be
/// done in another way.
fn write_new(
    to: i32,
    from: usize,
    scratch: &Scratch,
    count: usize,
) -> Option<Result<usize, Errno>> {
    let piece = [IoVec { base: scratch.as_slice().as_ptr().cast_mut(), bytes: count }];
    let is_same = |open: OpenFile| leased::file(from).is_some_and(|file| file == open.id());
    if let Some((session, open)) = session::promised(to)
        && !is_same(open)
        && session.promised_flags(open).is_none_or(|flags| flags & file::O_APPEND == 0)
    {
        // SAFETY: the memory is ours, and only read.
        if let Some(written) = unsafe { data::submit_pieces(session, open, &piece) } {
            return Some(written);
        }
    }
    let (session, open) = session::require_open(to).ok()?;
    if !open.writable() || open.appends() || open.kind() != FileKind::Regular || is_same(open) {
        return None;
    }
    // SAFETY: as above.
    Some(unsafe { session.write(open, &piece) })
}

/// copy_file_range, splice, tee, vmsplice.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn between(call: &Call) -> Outcome {
    let (one, other) = match call.number {
        number::COPY_FILE_RANGE | number::SPLICE => {
            (argument(call, 0) as i32, argument(call, 2) as i32)
        }
        number::TEE => (argument(call, 0) as i32, argument(call, 1) as i32),
        _ => (argument(call, 0) as i32, argument(call, 0) as i32),
    };
    if let Some(copied) = copy_leased(call) {
        return done(copied);
    }
    if none_ours(one, other) {
        return Outcome::Pass;
    }
    if call.number == number::SPLICE {
        // SAFETY: passed on to the caller.
        return done(unsafe { splice(call) });
    }
    if call.number != number::COPY_FILE_RANGE {
        let errno = if call.number == number::VMSPLICE { Errno::EBADF } else { Errno::EINVAL };
        return Outcome::Done(errno.as_result());
    }
    if argument(call, 5) != 0 {
        return Outcome::Done(Errno::EINVAL.as_result());
    }
    // SAFETY: passed on to the caller.
    let ends = unsafe {
        End::new(one, argument(call, 1), Direction::Out)
            .and_then(|from| Ok((from, End::new(other, argument(call, 3), Direction::In)?)))
    };
    done(ends.and_then(|(mut from, mut to)| {
        if to.open.is_some_and(|open| open.appends()) {
            return Err(Errno::EBADF);
        }
        let same = match (&from.open, &to.open) {
            (Some(from), Some(to)) => from.id() == to.id(),
            _ => false,
        };
        let count = argument(call, 4).min(MAX);
        if same && overlap(from.at, to.at, count) {
            return Err(Errno::EINVAL);
        }
        copy(&mut from, &mut to, count)
    }))
}

/// splice between a file of ours and a pipe.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn splice(call: &Call) -> Result<isize, Errno> {
    const FLAGS_KNOWN: usize = 15;
    let (from, to) = (argument(call, 0) as i32, argument(call, 2) as i32);
    let (from_at, to_at) = (argument(call, 1), argument(call, 3));
    let (count, flags) = (argument(call, 4), argument(call, 5));
    if flags & !FLAGS_KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if count == 0 {
        return Ok(0);
    }
    let is_out = session::open_file(from)?.is_some();
    if is_out && session::open_file(to)?.is_some() {
        return Err(Errno::EINVAL);
    }
    let (pipe, pipe_at, file, file_at) =
        if is_out { (to, to_at, from, from_at) } else { (from, from_at, to, to_at) };
    let (of_file, of_pipe) =
        if is_out { (Direction::Out, Direction::In) } else { (Direction::In, Direction::Out) };
    check_kernels(pipe, of_pipe)?;
    if pipe_at != 0 {
        return Err(Errno::ESPIPE);
    }
    // SAFETY: passed on to the caller.
    let mut end = unsafe { End::new(file, file_at, of_file) }?;
    if end.at.is_none() {
        // It appends.
        return Err(Errno::EINVAL);
    }
    let mut scratch = Scratch::take(1)?;
    let count = count.min(scratch.as_slice().len());
    let memory = file::memory_file(&PathText::from_bytes(b"mayfly-splice")?)?;
    let moved = if is_out {
        out_of(&end, scratch.as_mut_slice(), count, Memory { memory, pipe, flags })
    } else {
        into(&end, scratch.as_mut_slice(), count, Memory { memory, pipe, flags })
    };
    file::close(memory);
    end.advance(moved?);
    end.finish()?;
    Ok(moved? as isize)
}

/// A file in memory at the other end of a pipe.
struct Memory {
    memory: i32,
    pipe: i32,
    flags: usize,
}

impl Memory {
    fn splice(&self, is_out: bool, count: usize) -> Result<usize, Errno> {
        let mut at = 0_u64;
        let at = &raw mut at as usize;
        let (memory, pipe) = (self.memory as usize, self.pipe as usize);
        // SAFETY: the offset outlives the call.
        result(unsafe {
            if is_out {
                syscall6(number::SPLICE, memory, at, pipe, 0, count, self.flags)
            } else {
                syscall6(number::SPLICE, pipe, 0, memory, at, count, self.flags)
            }
        })
    }
}

fn out_of(end: &End, buffer: &mut [u8], count: usize, memory: Memory) -> Result<usize, Errno> {
    let buffer = buffer.get_mut(..count).unwrap_or(&mut []);
    let got = end.read(buffer)?;
    // SAFETY: the buffer is ours.
    let kept = unsafe { file::write_at(memory.memory, buffer.as_ptr(), got, 0) }?;
    // Without a byte it says whether the other side is a pipe.
    memory.splice(true, kept.max(1)).map(|moved| moved.min(kept))
}

fn into(end: &End, buffer: &mut [u8], count: usize, memory: Memory) -> Result<usize, Errno> {
    let got = memory.splice(false, count)?;
    // SAFETY: the buffer is ours, and at least so long.
    let read = unsafe { file::read_at(memory.memory, buffer.as_mut_ptr(), got, 0) }?;
    let mut done = 0;
    while done < read {
        let piece = buffer.get(done..read).unwrap_or(&[]);
        match end.write_from(done, piece) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn overlap(from: Option<i64>, to: Option<i64>, count: usize) -> bool {
    match (from, to) {
        (Some(from), Some(to)) => from.abs_diff(to) < count as u64,
        _ => false,
    }
}

//! Long reads without a copy in this process.
//!
//! The pages of a local object are put into a pipe and from there into the device, where the kernel
//! copies them to the caller: once instead of twice. So what the caller gets is what the object
//! holds at some moment of the call, as with any read.
//!
//! An answer begins with its length, so that of the object is asked for first. Where it has become
//! shorter meanwhile, or was taken back, the pipe is thrown away and the read done by a copy.

use std::os::fd::{AsRawFd, OwnedFd};

use mayfly_sys::file;
use mayfly_types::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::abi::READ_BYTES_MAX;

/// Shorter reads cost less by a copy, bytes.
pub(crate) const SPLICE_BYTES_MIN: usize = 65_536;
/// The most that a user's pipe may hold, unless somebody has set another bound, bytes.
pub(crate) const PIPE_BYTES: usize = 1 << 20;
/// Each piece of an answer takes a page of the pipe, however short it is.
pub(crate) const PAGE_BYTES: usize = 4096;

// The header, and a page more than the data fill where they do not begin with one.
const _: () = assert!(READ_BYTES_MAX + 2 * PAGE_BYTES <= PIPE_BYTES);

/// A thread's pipe to the device.
#[derive(Debug, Default)]
pub(crate) enum Pipe {
    /// Made when it is used first.
    #[default]
    NotYet,
    /// Empty between two answers.
    Open { out: OwnedFd, into: OwnedFd },
    /// Not to be had: the user's pipes hold as much as they may.
    Refused,
}

impl Pipe {
    pub(crate) fn ends(&mut self) -> Option<(&OwnedFd, &OwnedFd)> {
        if matches!(self, Pipe::NotYet) {
            *self = Pipe::made().unwrap_or(Pipe::Refused);
        }
        match self {
            Pipe::Open { out, into } => Some((out, into)),
            Pipe::NotYet | Pipe::Refused => None,
        }
    }

    pub(crate) fn made() -> Option<Pipe> {
        // Nobody waits for room in it.
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        let bytes = fcntl_setpipe_size(&into, PIPE_BYTES).ok()?;
        (bytes >= PIPE_BYTES).then_some(Pipe::Open { out, into })
    }
}

/// Puts an answer to request `unique` into the pipe; how many bytes of data it has. `None` when
/// they are too few, and nothing was put there.
///
/// # Errors
/// Somebody shortened the object, or the kernel does not splice from it.
pub(crate) fn fill(
    into: &OwnedFd,
    unique: u64,
    object: i32,
    offset: u64,
    bytes: usize,
) -> Result<Option<usize>, Errno> {
    let left = file::length(object)?.saturating_sub(offset);
    let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(bytes);
    if bytes < SPLICE_BYTES_MIN {
        return Ok(None);
    }
    // An empty pipe takes a header whole.
    let header = crate::kernel::device::header(unique, 0, bytes);
    rustix::io::write(into, &header).map_err(|_| Errno::EAGAIN)?;
    let mut done = 0;
    while done < bytes {
        let at = offset + done as u64;
        match file::splice_from(object, at, into.as_raw_fd(), bytes - done)? {
            0 => return Err(Errno::EAGAIN),
            count => done += count,
        }
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::kernel::abi::OUT_HEADER_BYTES;

    fn ends() -> (std::fs::File, OwnedFd) {
        match Pipe::made().expect("a pipe") {
            Pipe::Open { out, into } => (out.into(), into),
            other => panic!("no pipe: {other:?}"),
        }
    }

    #[test]
    fn an_answer_in_a_pipe_is_a_header_and_the_bytes_of_the_object() {
        let mut object = tempfile::tempfile().expect("a file");
        let bytes: Vec<u8> = (0..READ_BYTES_MAX + 5000).map(|at| (at / 7) as u8).collect();
        object.write_all(&bytes).expect("room");
        let (mut out, into) = ends();
        // Not at the beginning of a page, so that there is one more of them.
        let filled = fill(&into, 9, object.as_raw_fd(), 4999, READ_BYTES_MAX);
        assert_eq!(filled, Ok(Some(READ_BYTES_MAX)));
        let mut answer = vec![0; OUT_HEADER_BYTES + READ_BYTES_MAX];
        out.read_exact(&mut answer).expect("a whole answer");
        assert_eq!(
            &answer[..OUT_HEADER_BYTES],
            &crate::kernel::device::header(9, 0, READ_BYTES_MAX)
        );
        assert!(answer[OUT_HEADER_BYTES..] == bytes[4999..4999 + READ_BYTES_MAX]);
    }

    #[test]
    fn an_answer_ends_where_the_object_ends_and_a_short_rest_is_copied() {
        let mut object = tempfile::tempfile().expect("a file");
        object.write_all(&vec![1; SPLICE_BYTES_MIN + 10]).expect("room");
        let (_out, into) = ends();
        let file = object.as_raw_fd();
        assert_eq!(fill(&into, 9, file, 11, READ_BYTES_MAX), Ok(None));
        let whole = Ok(Some(SPLICE_BYTES_MIN + 10));
        assert_eq!(fill(&into, 9, file, 0, READ_BYTES_MAX), whole);
    }
}

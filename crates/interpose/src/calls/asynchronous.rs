//! io_submit: requests on files of the instance among a program's asynchronous ones.
//!
//! The context is the kernel's, and so are its events: how a program waits for them (io_getevents,
//! io_pgetevents, an eventfd, or a look at the ring in its memory) is not seen here. A request on a
//! file of ours is carried out at once, in the order of the array. Its event has to come from the
//! kernel with the program's own request and the number of bytes that were moved; a write of that
//! many bytes to `/dev/null` gives just that, since it looks at no byte. So the request, which the
//! program has given away for that time, stands for such a write while the kernel takes it, and
//! then is what it was.
//!
//! A request that fails is told by io_submit, where the kernel tells of a wrong descriptor, and not
//! by an event. io_uring has no such way, so there is none to be had ([`crate::calls::refused`]).

use mayfly_sys::{
    Errno,
    file::{self, AT_FDCWD, IoVec, O_CLOEXEC, O_WRONLY},
    number,
    text::PathText,
    user,
};

use super::{
    data,
    serve::{argument, issue},
};
use crate::{
    Call, Outcome,
    descriptors::{hidden, table},
    process::{flight, session},
};

/// A request as the kernel's interface has it (`struct iocb`).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

const _: () = assert!(size_of::<Request>() == 64, "the kernel's size");

const READ: u16 = 0;
const WRITE: u16 = 1;
const SYNC: u16 = 2;
const SYNC_DATA: u16 = 3;
const POLL: u16 = 5;
const READ_PIECES: u16 = 7;
const WRITE_PIECES: u16 = 8;
/// An event is also counted by an eventfd.
const FLAG_EVENT_DESCRIPTOR: u32 = 1;

/// A file can always be read and written (POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM).
const READY: u64 = 0x145;

/// Requests looked at in one call, which the kernel bounds by its context's size.
const REQUESTS_MAX: usize = 65_536;

/// io_submit.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn submit(call: &Call) -> Outcome {
    let count = argument(call, 1);
    let none_here = table::is_empty() && flight::child().is_none();
    if none_here || count > REQUESTS_MAX {
        return Outcome::Pass;
    }
    // SAFETY: passed on to the caller.
    unsafe {
        if (0..count).all(|at| request_on_ours(call, at).is_none()) {
            return Outcome::Pass;
        }
        // A context that is none is told before anything is done.
        let known = part(call, 0, 0);
        if known < 0 { Outcome::Done(known) } else { Outcome::Done(submit_all(call, count)) }
    }
}

/// As many requests as the kernel and we accept, or why not even the first one is.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn submit_all(call: &Call, count: usize) -> isize {
    let mut accepted = 0;
    while accepted < count {
        // SAFETY: passed on to the caller.
        let (wanted, result) = unsafe {
            match request_on_ours(call, accepted) {
                Some((place, request)) => (1, submit_ours(call, accepted, place, request)),
                None => {
                    let others = (accepted..count)
                        .take_while(|at| request_on_ours(call, *at).is_none())
                        .count();
                    (others, part(call, accepted, others))
                }
            }
        };
        if result < 0 {
            return if accepted > 0 { accepted as isize } else { result };
        }
        accepted += result as usize;
        if (result as usize) < wanted {
            break;
        }
    }
    accepted as isize
}

/// The request at this place of the array, when it is on a file of ours.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn request_on_ours(call: &Call, at: usize) -> Option<(*mut Request, Request)> {
    let list = argument(call, 2) as *const *mut Request;
    // SAFETY: the host passes an array of pointers to requests; all bit patterns are valid.
    let (place, request) = unsafe {
        let place = user::read(list.wrapping_add(at)).ok()?;
        (place, user::read(place.cast_const()).ok()?)
    };
    match session::open_file(request.descriptor as i32) {
        Ok(None) => None,
        _ => Some((place, request)),
    }
}

/// Hands `count` requests from this place on to the kernel.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn part(call: &Call, from: usize, count: usize) -> isize {
    let list = argument(call, 2).wrapping_add(from * size_of::<usize>());
    let some = Call { number: call.number, args: [argument(call, 0), count, list, 0, 0, 0] };
    // SAFETY: part of the host's own call.
    unsafe { issue(&some) }
}

/// Carries out one request and has the kernel make its event.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn submit_ours(call: &Call, at: usize, place: *mut Request, request: Request) -> isize {
    // SAFETY: passed on to the caller.
    let moved = match unsafe { perform(&request) } {
        Ok(moved) => moved,
        Err(errno) => return errno.as_result(),
    };
    let null = match open_null() {
        Ok(null) => null,
        Err(errno) => return errno.as_result(),
    };
    let instead = Request {
        opcode: WRITE,
        descriptor: null as u32,
        buffer: 0,
        bytes: moved as u64,
        offset: 0,
        rw_flags: 0,
        flags: request.flags & FLAG_EVENT_DESCRIPTOR,
        ..request
    };
    // SAFETY: the program gave its request away for the time of the call.
    let result = unsafe {
        match user::write(&instead, place) {
            Err(errno) => errno.as_result(),
            Ok(()) => {
                let result = part(call, at, 1);
                // It was written to a moment ago; the key is what the kernel leaves there.
                let _ = user::write(&Request { key: 0, ..request }, place);
                result
            }
        }
    };
    hidden::release(null);
    result
}

fn open_null() -> Result<i32, Errno> {
    let path = PathText::from_bytes(b"/dev/null")?;
    hidden::conceal(file::open_at(AT_FDCWD, &path, O_WRONLY | O_CLOEXEC, 0)?)
}

/// What the request asks for; the number of bytes.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn perform(request: &Request) -> Result<usize, Errno> {
    if request.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    let (session, open) = session::require_open(request.descriptor as i32)?;
    let one = [IoVec { base: request.buffer as *mut u8, bytes: request.bytes as usize }];
    let (pieces, count) = match request.opcode {
        READ | WRITE => (one.as_ptr() as usize, 1),
        READ_PIECES | WRITE_PIECES => (request.buffer as usize, request.bytes as usize),
        SYNC | SYNC_DATA if open.is_path() => return Err(Errno::EBADF),
        SYNC | SYNC_DATA if (request.buffer, request.bytes, request.offset) == (0, 0, 0) => {
            return session.sync(open.reference).map(|()| 0);
        }
        POLL => return ready(request),
        _ => return Err(Errno::EINVAL),
    };
    if request.offset < 0 {
        return Err(Errno::EINVAL);
    }
    let number = match request.opcode {
        READ | READ_PIECES => number::PREADV2,
        _ => number::PWRITEV2,
    };
    let (descriptor, flags) = (request.descriptor as usize, request.rw_flags as usize);
    let transfer =
        Call { number, args: [descriptor, pieces, count, request.offset as usize, 0, flags] };
    // SAFETY: the request's memory is the program's, as that of a call would be.
    unsafe { data::try_transfer(&transfer) }
}

/// A wait for a file is over at once; one for what never comes to a file is refused.
fn ready(request: &Request) -> Result<usize, Errno> {
    let plain = (request.bytes, request.offset, request.rw_flags) == (0, 0, 0);
    let found = request.buffer & READY;
    if !plain || request.buffer > u64::from(u16::MAX) || found == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(found as usize)
}

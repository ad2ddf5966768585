//! Descriptors in messages (SCM_RIGHTS).
//!
//! A descriptor that is sent gets its identity first. Who will receive it cannot be known, so where
//! the instance is mounted it becomes one of the mount, which anybody can use. One that arrives is
//! recognised by its link in procfs. A receiving call can only be looked at behind, so it is issued
//! here when it has room for control data; the wait for the message is a poll, which a signal
//! always ends, so that a handler runs when it should.

use mayfly_sys::{
    Errno,
    arch::{syscall3, syscall6},
    number,
    text::PathText,
    user,
};

use super::{
    serve::{argument, done, issue},
    sockets,
};
use crate::{
    Call, Outcome,
    descriptors::{handover, identity, table},
    process::{flight, inherit, session},
};

const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const MSG_DONTWAIT: usize = 0x40;
const MSG_WAITALL: usize = 0x100;
const MSG_ERRQUEUE: usize = 0x2000;
const POLLIN: u64 = 1;
const MESSAGES_MAX: usize = 1024;

/// `struct msghdr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Message {
    name: usize,
    name_bytes: u32,
    padding: u32,
    pieces: usize,
    pieces_count: usize,
    control: usize,
    control_bytes: usize,
    flags: i32,
    padding_after: i32,
}

/// `struct mmsghdr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Counted {
    message: Message,
    bytes: u32,
    padding: u32,
}

/// `struct cmsghdr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ControlHead {
    bytes: usize,
    level: i32,
    kind: i32,
}

const _: () = assert!(size_of::<Message>() == 56);
const _: () = assert!(size_of::<ControlHead>() == 16);

/// Calls `each` for every descriptor in a message's control data.
///
/// # Safety
/// The control data are the host's and readable.
unsafe fn for_each_descriptor(
    message: &Message,
    mut each: impl FnMut(i32) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut at = 0_usize;
    while message.control != 0
        && message.control_bytes.saturating_sub(at) >= size_of::<ControlHead>()
    {
        // SAFETY: the head lies within the host's control data.
        let head = unsafe { user::read((message.control + at) as *const ControlHead) }?;
        if head.bytes < size_of::<ControlHead>() || head.bytes > message.control_bytes - at {
            break;
        }
        if (head.level, head.kind) == (SOL_SOCKET, SCM_RIGHTS) {
            let count = (head.bytes - size_of::<ControlHead>()) / size_of::<i32>();
            for index in 0..count {
                let place =
                    message.control + at + size_of::<ControlHead>() + index * size_of::<i32>();
                // SAFETY: as above.
                each(unsafe { user::read(place as *const i32) }?)?;
            }
        }
        at += head.bytes.next_multiple_of(size_of::<usize>());
    }
    Ok(())
}

/// What cannot be given to the mount is sent all the same: a preloaded program can use it.
fn share(descriptor: i32) -> Result<(), Errno> {
    let Some(open) = session::open_file(descriptor)? else { return Ok(()) };
    identity::share(open)?;
    if handover::is_possible() {
        let _ = handover::give(open);
    }
    Ok(())
}

/// sendmsg.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn send(call: &Call) -> Outcome {
    // SAFETY: passed on to the caller.
    let message = unsafe { user::read(argument(call, 1) as *const Message) };
    // SAFETY: passed on to the caller.
    match message.and_then(|message| unsafe {
        sockets::destination(message.name, message.name_bytes as usize)
    }) {
        Ok(Some(real)) => {
            // SAFETY: passed on to the caller.
            return unsafe { send_there(call, &real) };
        }
        Ok(None) | Err(Errno::EFAULT) => {}
        Err(errno) => return Outcome::Done(errno.as_result()),
    }
    if table::is_empty() || flight::child().is_some() {
        return Outcome::Pass;
    }
    // SAFETY: passed on to the caller.
    let shared = unsafe {
        user::read(argument(call, 1) as *const Message)
            .and_then(|message| for_each_descriptor(&message, share))
    };
    match shared {
        Err(Errno::EFAULT) | Ok(()) => Outcome::Pass,
        Err(errno) => Outcome::Done(errno.as_result()),
    }
}

/// sendmsg to a socket with a name of ours.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn send_there(call: &Call, real: &PathText) -> Outcome {
    // SAFETY: passed on to the caller.
    let sent = unsafe {
        user::read(argument(call, 1) as *const Message).and_then(|message| {
            if flight::child().is_none() {
                for_each_descriptor(&message, share)?;
            }
            sockets::send_there(real, |name, bytes| {
                let there = Message { name, name_bytes: bytes as u32, ..message };
                let message = core::ptr::from_ref(&there) as usize;
                syscall3(number::SENDMSG, argument(call, 0), message, argument(call, 2))
            })
        })
    };
    done(sent)
}

/// sendmmsg.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn send_many(call: &Call) -> Outcome {
    if table::is_empty() || flight::child().is_some() {
        return Outcome::Pass;
    }
    let count = argument(call, 2).min(MESSAGES_MAX);
    for index in 0..count {
        let place = argument(call, 1) + index * size_of::<Counted>();
        // SAFETY: passed on to the caller.
        let shared = unsafe {
            user::read(place as *const Counted)
                .and_then(|counted| for_each_descriptor(&counted.message, share))
        };
        match shared {
            Ok(()) => {}
            Err(Errno::EFAULT) => return Outcome::Pass,
            Err(errno) => return Outcome::Done(errno.as_result()),
        }
    }
    Outcome::Pass
}

fn recognise(descriptor: i32) -> Result<(), Errno> {
    if table::get(descriptor) == table::Meaning::Foreign {
        inherit::recognise(descriptor);
    }
    Ok(())
}

/// recvmsg.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn receive(call: &Call) -> Outcome {
    // SAFETY: passed on to the caller.
    let has_room = unsafe { user::read(argument(call, 1) as *const Message) }
        .is_ok_and(|message| message.control != 0 && message.control_bytes != 0);
    if !has_room {
        return Outcome::Pass;
    }
    if flight::child().is_some() {
        flight::note_descriptor();
        return Outcome::Pass;
    }
    // SAFETY: passed on to the caller.
    let raw = unsafe { issue_waiting(call, 2) };
    if raw >= 0 {
        // SAFETY: the kernel has just filled it in.
        let _ = unsafe {
            user::read(argument(call, 1) as *const Message)
                .and_then(|message| for_each_descriptor(&message, recognise))
        };
    }
    Outcome::Done(raw)
}

/// recvmmsg.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn receive_many(call: &Call) -> Outcome {
    let count = argument(call, 2).min(MESSAGES_MAX);
    let place = |index: usize| argument(call, 1) + index * size_of::<Counted>();
    let has_room = (0..count).any(|index| {
        // SAFETY: passed on to the caller.
        unsafe { user::read(place(index) as *const Counted) }
            .is_ok_and(|counted| counted.message.control != 0)
    });
    if !has_room {
        return Outcome::Pass;
    }
    if flight::child().is_some() {
        flight::note_descriptor();
        return Outcome::Pass;
    }
    // SAFETY: passed on to the caller. Its timeout makes it wait here, which only delays handlers.
    let raw = unsafe { issue(call) };
    for index in 0..usize::try_from(raw).unwrap_or(0).min(count) {
        // SAFETY: the kernel has just filled it in.
        let _ = unsafe {
            user::read(place(index) as *const Counted)
                .and_then(|counted| for_each_descriptor(&counted.message, recognise))
        };
    }
    Outcome::Done(raw)
}

/// Issues a receiving call, waiting for it in a poll.
///
/// # Safety
/// As [`crate::dispatch`]; the flags are at `flags_index`.
unsafe fn issue_waiting(call: &Call, flags_index: usize) -> isize {
    let flags = argument(call, flags_index);
    let socket = argument(call, 0);
    if flags & (MSG_DONTWAIT | MSG_WAITALL | MSG_ERRQUEUE) != 0 || is_nonblocking(socket) {
        // SAFETY: passed on to the caller.
        return unsafe { issue(call) };
    }
    let mut quick = Call { number: call.number, args: call.args };
    if let Some(argument) = quick.args.get_mut(flags_index) {
        *argument |= MSG_DONTWAIT;
    }
    loop {
        // SAFETY: passed on to the caller.
        let raw = unsafe { issue(&quick) };
        if raw != Errno::EAGAIN.as_result() {
            return raw;
        }
        match wait(socket) {
            0 => return Errno::EAGAIN.as_result(),
            raw if raw < 0 => return raw,
            _ => {}
        }
    }
}

fn is_nonblocking(socket: usize) -> bool {
    const F_GETFL: usize = 3;
    mayfly_sys::file::control(socket as i32, F_GETFL, 0)
        .is_ok_and(|flags| flags as u32 & mayfly_sys::file::O_NONBLOCK != 0)
}

/// Waits until the socket has something, for as long as its receive timeout says.
fn wait(socket: usize) -> isize {
    const SO_RCVTIMEO: usize = 20;
    let mut timeout = [0_i64; 2];
    let mut bytes = size_of_val(&timeout) as u32;
    // SAFETY: the arrays outlive the call and have the stated lengths.
    let got = unsafe {
        syscall6(
            number::GETSOCKOPT,
            socket,
            SOL_SOCKET as usize,
            SO_RCVTIMEO,
            timeout.as_mut_ptr() as usize,
            core::ptr::from_mut(&mut bytes) as usize,
            0,
        )
    };
    let [seconds, microseconds] = timeout;
    let limit = if got == 0 && (seconds, microseconds) != (0, 0) {
        seconds
            .saturating_mul(1000)
            .saturating_add(microseconds / 1000)
            .clamp(1, i64::from(i32::MAX))
    } else {
        -1
    };
    let mut entry = socket as u32 as u64 | POLLIN << 32;
    // SAFETY: the entry has the form of a `struct pollfd` and outlives the call.
    unsafe { syscall3(number::POLL, core::ptr::from_mut(&mut entry) as usize, 1, limit as usize) }
}

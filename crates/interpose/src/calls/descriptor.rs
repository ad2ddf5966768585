//! close, dup, fcntl, ioctl, close_range on descriptors of ours.

use mayfly_client::OpenFile;
use mayfly_sys::{
    Errno,
    arch::syscall3,
    file::{self, O_APPEND, O_ASYNC, O_CLOEXEC, O_DIRECT, O_DIRECTORY, O_NOATIME, O_NONBLOCK},
    number, process, result, user,
};
use mayfly_types::OpenRef;

use super::{
    locks,
    serve::{argument, done, issue},
};
use crate::{
    Call, Outcome,
    descriptors::{
        closed_number, identity, leased,
        table::{self, Meaning},
    },
    process::{
        flight,
        session::{self, Session},
    },
};

/// Status flags that F_SETFL changes.
const CHANGEABLE: u32 = O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME;

/// close.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn close(call: &Call) -> Outcome {
    let descriptor = argument(call, 0) as i32;
    if flight::child().is_some() {
        return match table::get(descriptor) {
            Meaning::Hidden => Outcome::Done(Errno::EBADF.as_result()),
            // The kernel's descriptor is all that a child of vfork has.
            _ => Outcome::Pass,
        };
    }
    match table::get(descriptor) {
        Meaning::Foreign => Outcome::Pass,
        Meaning::Hidden => Outcome::Done(Errno::EBADF.as_result()),
        Meaning::Open(reference) => done(close_ours(descriptor, reference).map(|()| 0)),
    }
}

/// Closes a descriptor of ours. The kernel's close cannot fail.
///
/// # Errors
/// What a write failed with that was acknowledged. It is closed all the same.
fn close_ours(descriptor: i32, reference: OpenRef) -> Result<(), Errno> {
    let (closing, written) = before_close(reference);
    let last = {
        let _held = identity::hold_numbers();
        let released = table::release(descriptor);
        if released.is_some() && !closed_number::keep(descriptor) {
            file::close(descriptor);
        }
        released.is_some_and(|(_, last)| last)
    };
    if last {
        closing.end();
    }
    written
}

/// The process ends, and its descriptors with it: who waits for it finds on every node what it has
/// written. There is nobody to be told of a failure.
pub(super) fn before_exit() -> Outcome {
    if flight::child().is_none()
        && let Some(session) = session::existing()
    {
        for (_, reference) in table::each_open() {
            if session.is_behind(reference)
                && let Ok(open) = session.open_file(reference)
            {
                let _ = session.flush(open);
            }
        }
    }
    Outcome::Pass
}

/// What a descriptor that is closed refers to.
enum Closing {
    /// Nothing that could end.
    Nothing,
    Open(OpenFile),
    /// A description that the daemon has not made: it was promised, or is leased.
    Unmade(&'static Session, OpenRef),
}

impl Closing {
    /// It was the last descriptor.
    fn end(self) {
        match self {
            Closing::Nothing => {}
            Closing::Open(open) => identity::end(open),
            Closing::Unmade(session, reference) => identity::end_unmade(session, reference),
        }
    }
}

/// Gives up the locks that go with any close of the file. Without a session there are none, and no
/// private description either: a child of fork that only closes what it inherited need not attach.
/// What was written through it is at the file's home then, or has failed.
fn before_close(reference: OpenRef) -> (Closing, Result<(), Errno>) {
    let Some(session) = session::existing() else { return (Closing::Nothing, Ok(())) };
    if session.is_promised(reference) || leased::is(session, reference) {
        return (Closing::Unmade(session, reference), Ok(()));
    }
    let Ok(open) = session.open_file(reference) else { return (Closing::Nothing, Ok(())) };
    let written = session.flush(open);
    locks::released(session, open);
    (Closing::Open(open), written)
}

/// Duplicates a descriptor of ours to the lowest number from `lowest` on.
///
/// # Errors
/// EMFILE, EINVAL as fcntl.
pub(super) fn duplicate(descriptor: i32, lowest: usize, cloexec: bool) -> Result<isize, Errno> {
    let how = if cloexec { file::F_DUPFD_CLOEXEC } else { file::F_DUPFD };
    if flight::child().is_some() {
        return file::control(descriptor, how, lowest).map(|new| new as isize);
    }
    closed_number::give_up();
    let _held = identity::hold_numbers();
    let new = file::control(descriptor, how, lowest)? as i32;
    if let Meaning::Open(open) = table::get(descriptor) {
        table::adopt(new, open).inspect_err(|_| file::close(new))?;
    }
    Ok(new as isize)
}

/// dup.
pub(super) fn dup(call: &Call) -> Outcome {
    let descriptor = argument(call, 0) as i32;
    match table::get(descriptor) {
        _ if flight::child().is_some() => Outcome::Pass,
        Meaning::Foreign => Outcome::Pass,
        Meaning::Hidden => Outcome::Done(Errno::EBADF.as_result()),
        Meaning::Open(_) => done(duplicate(descriptor, 0, false)),
    }
}

/// dup2, dup3: either descriptor may be ours.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn dup_onto(call: &Call) -> Outcome {
    let (old, new) = (argument(call, 0) as i32, argument(call, 1) as i32);
    let (from, onto) = (table::get(old), table::get(new));
    if from == Meaning::Hidden || onto == Meaning::Hidden {
        return Outcome::Done(Errno::EBADF.as_result());
    }
    if flight::child().is_some() || (from, onto) == (Meaning::Foreign, Meaning::Foreign) {
        return Outcome::Pass;
    }
    let replaced = match onto {
        // As on Linux, nobody is told by this.
        Meaning::Open(reference) if old != new => before_close(reference).0,
        _ => Closing::Nothing,
    };
    let (raw, last) = {
        let _held = identity::hold_numbers();
        // SAFETY: passed on to the caller.
        unsafe { put_onto(call, old, new) }
    };
    if last {
        replaced.end();
    }
    Outcome::Done(raw)
}

/// The result of the call, and whether it took the last descriptor of an open file. At every moment
/// a thread that uses the number meets what stood there before or what stands there then, never a
/// placeholder that the table does not know.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn put_onto(call: &Call, old: i32, new: i32) -> (isize, bool) {
    let moved = match table::get(old) {
        Meaning::Open(open) if old != new => Some(open),
        _ => None,
    };
    // Onto an open file of the kernel's, which cannot fail then: before the kernel's own step.
    let early = moved.filter(|_| table::get(new) == Meaning::Foreign && replaces(call));
    if let Some(open) = early {
        // The number is in the table's range, or the kernel's limit is beyond it.
        let _ = table::replace(new, open);
    }
    // SAFETY: passed on to the caller; the kernel replaces the descriptor in one step.
    let raw = unsafe { issue(call) };
    let dropped = match moved {
        _ if raw < 0 && early.is_some() => table::release(new),
        _ if raw < 0 || old == new || early.is_some() => None,
        Some(open) => table::replace(new, open).unwrap_or_default(),
        None => table::release(new),
    };
    (raw, dropped.is_some_and(|(_, last)| last))
}

/// Does this dup2 or dup3 put something in the place of an open descriptor?
fn replaces(call: &Call) -> bool {
    let flags = if call.number == number::DUP3 { argument(call, 2) as u32 } else { 0 };
    flags & !O_CLOEXEC == 0 && is_open(argument(call, 1)).is_ok()
}

/// fcntl.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn fcntl(call: &Call) -> Outcome {
    const F_GETFL: usize = 3;
    const F_SETFL: usize = 4;
    const F_SETOWN: usize = 8;
    const F_GETOWN: usize = 9;
    const F_GETOWN_EX: usize = 16;
    const F_OWNER_PID: i32 = 1;
    const F_GETPIPE_SZ: usize = 1032;
    let descriptor = argument(call, 0) as i32;
    let (command, value) = (argument(call, 1) as u32 as usize, argument(call, 2));
    match leased::flags(call) {
        Some(flags) if command == F_GETFL => return Outcome::Done(flags as isize),
        Some(_) if matches!(command, file::F_GETFD | file::F_SETFD) => return Outcome::Pass,
        Some(_) if command == file::F_DUPFD => return done(duplicate(descriptor, value, false)),
        Some(_) if command == file::F_DUPFD_CLOEXEC => {
            return done(duplicate(descriptor, value, true));
        }
        _ => {}
    }
    let (session, open) = match session::require_open(descriptor) {
        Ok(found) => found,
        Err(errno) => return Outcome::Done(errno.as_result()),
    };
    match command {
        file::F_DUPFD if flight::child().is_none() => done(duplicate(descriptor, value, false)),
        file::F_DUPFD_CLOEXEC if flight::child().is_none() => {
            done(duplicate(descriptor, value, true))
        }
        // Placeholders are the kernel's descriptors: it keeps these flags.
        file::F_DUPFD | file::F_DUPFD_CLOEXEC | file::F_GETFD | file::F_SETFD => Outcome::Pass,
        F_GETFL => Outcome::Done((open.flags() & !O_CLOEXEC) as isize),
        _ if open.is_path() => Outcome::Done(Errno::EBADF.as_result()),
        F_SETFL => {
            open.set_flags(CHANGEABLE, value as u32);
            Outcome::Done(0)
        }
        // SAFETY: passed on to the caller.
        5..=7 | 36..=38 => unsafe { locks::range(session, open, command, value) },
        F_SETOWN => Outcome::Done(0),
        F_GETOWN => Outcome::Done(0),
        // What the C library makes of F_GETOWN: nobody, by process.
        F_GETOWN_EX => {
            // SAFETY: the host wants a `struct f_owner_ex` written there.
            done(unsafe { user::write(&[F_OWNER_PID, 0], value as *mut [i32; 2]) }.map(|()| 0))
        }
        F_GETPIPE_SZ | 1031 => Outcome::Done(Errno::EBADF.as_result()),
        _ => Outcome::Done(Errno::EINVAL.as_result()),
    }
}

/// ioctl.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn ioctl(call: &Call) -> Outcome {
    const FIOCLEX: usize = 0x5451;
    const FIONCLEX: usize = 0x5450;
    const FIONBIO: usize = 0x5421;
    const FIOASYNC: usize = 0x5452;
    const FIONREAD: usize = 0x541b;
    const TCGETS: usize = 0x5401;
    const FICLONE: usize = 0x4004_9409;
    const FICLONERANGE: usize = 0x4020_940d;
    let descriptor = argument(call, 0) as i32;
    let request = argument(call, 1) as u32 as usize;
    let value = argument(call, 2);
    // What a regular file answers, made or not, and open for more than its name.
    let is_plain = || session::promised(descriptor).is_some() || leased::flags(call).is_some();
    if request == TCGETS && is_plain() {
        return Outcome::Done(Errno::ENOTTY.as_result());
    }
    let is_clone = matches!(request, FICLONE | FICLONERANGE);
    if is_clone && is_plain() {
        return Outcome::Done(Errno::EOPNOTSUPP.as_result());
    }
    done(session::require_open(descriptor).and_then(|(session, open)| {
        if open.is_path() {
            return Err(Errno::EBADF);
        }
        match request {
            FIOCLEX | FIONCLEX => {
                let flags = if request == FIOCLEX { file::FD_CLOEXEC } else { 0 };
                closed_number::give_up();
                file::control(descriptor, file::F_SETFD, flags).map(|_| 0)
            }
            FIONBIO | FIOASYNC => {
                // SAFETY: the host passes an int there.
                let on = unsafe { user::read(value as *const i32) }? != 0;
                let bit = if request == FIONBIO { O_NONBLOCK } else { O_ASYNC };
                open.set_flags(bit, if on { bit } else { 0 });
                Ok(0)
            }
            FIONREAD if open.flags() & O_DIRECTORY == 0 => {
                let left = session.size(open)?.saturating_sub(session.position(open));
                let left = i32::try_from(left).unwrap_or(i32::MAX);
                // SAFETY: the host wants an int written there.
                unsafe { user::write(&left, value as *mut i32) }?;
                Ok(0)
            }
            FICLONE | FICLONERANGE => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::ENOTTY),
        }
    }))
}

/// close_range: closes ours properly and leaves hidden ones alone.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn close_range(call: &Call) -> Outcome {
    const UNSHARE: usize = 2;
    const CLOEXEC: usize = 4;
    let (first, last) = (argument(call, 0) as u32, argument(call, 1) as u32);
    let flags = argument(call, 2);
    if first > last || flags & !(UNSHARE | CLOEXEC) != 0 || flags & CLOEXEC != 0 {
        // Hidden descriptors are closed by exec anyway.
        return Outcome::Pass;
    }
    // A kernel before 5.9 knows the call not, and the host closes them one by one: none is closed
    // here first. Behind the last number there is nothing to close.
    if table::each(first, last).next().is_none() || close_numbers(u32::MAX, u32::MAX, 0).is_err() {
        return Outcome::Pass;
    }
    let mut from = first;
    for (descriptor, meaning) in table::each(first, last) {
        match meaning {
            Meaning::Hidden => {
                let hidden = descriptor as u32;
                if hidden > from
                    && let Err(errno) = close_numbers(from, hidden - 1, flags)
                {
                    return Outcome::Done(errno.as_result());
                }
                from = hidden + 1;
            }
            Meaning::Open(open) if flight::child().is_none() => {
                // As on Linux, nobody is told by this.
                let _ = close_ours(descriptor, open);
            }
            _ => {}
        }
    }
    if from <= last && from != 0 || from == first {
        return done(close_numbers(from, last, flags).map(|()| 0));
    }
    Outcome::Done(0)
}

fn close_numbers(first: u32, last: u32, flags: usize) -> Result<(), Errno> {
    // SAFETY: the host asked for these to be closed; hidden ones are not among them.
    let raw = unsafe { syscall3(number::CLOSE_RANGE, first as usize, last as usize, flags) };
    result(raw).map(|_| ())
}

/// kcmp of two descriptors of this process: the kernel would take all of ours for one open file.
pub(super) fn compare(call: &Call) -> Outcome {
    const FILES: usize = 0;
    /// Not equal, and in no order.
    const DIFFER: isize = 3;
    let own = process::process_id() as usize;
    let of_own = [0, 1].iter().all(|at| argument(call, *at) as u32 as usize == own);
    if !of_own || argument(call, 2) as u32 as usize != FILES {
        return Outcome::Pass;
    }
    let file = |at| session::open_file(argument(call, at) as i32);
    done(match (file(3), file(4)) {
        (Ok(None), Ok(None)) => return Outcome::Pass,
        (Err(errno), _) | (_, Err(errno)) => Err(errno),
        (Ok(Some(one)), Ok(Some(two))) if one.reference == two.reference => Ok(0),
        (Ok(Some(one)), Ok(Some(two))) => {
            Ok(if one.reference.index < two.reference.index { 1 } else { 2 })
        }
        (Ok(Some(_)), Ok(None)) => is_open(argument(call, 4)).map(|()| DIFFER),
        (Ok(None), Ok(Some(_))) => is_open(argument(call, 3)).map(|()| DIFFER),
    })
}

fn is_open(descriptor: usize) -> Result<(), Errno> {
    file::control(descriptor as i32, file::F_GETFD, 0).map(|_| ())
}

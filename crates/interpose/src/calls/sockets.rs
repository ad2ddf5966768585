//! Sockets with a name in the instance.
//!
//! A socket that is bound to a name of ours is bound to a place of the node
//! ([`crate::calls::special`]); whoever connects is told the place by the daemon. Where the
//! instance is mounted, the kernel binds and finds the name there. A socket's address is reported
//! as it was bound: beside the place stands a link that says so.
//!
//! The name comes first and the kernel's socket second, since a socket cannot be unbound when the
//! name turns out to be taken. In between a connection is refused, as it is before listen.

use mayfly_client::Stop;
use mayfly_sys::{
    Errno,
    arch::{syscall3, syscall6},
    file::{self, AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_PATH},
    number, result,
    text::PathText,
    user,
};
use mayfly_types::special::{BOUND_SUFFIX, PLACE_DIGITS, SPECIAL_DIRECTORY};
use mayfly_wire::SPECIAL_SOCKET;

use super::{
    names,
    serve::{argument, done},
    special,
};
use crate::{
    Call, Outcome,
    descriptors::handover,
    paths::{
        locate::{Place, locate},
        text,
    },
    process::{session, settings},
};

const AF_UNIX: u16 = 1;
const SOL_SOCKET: usize = 1;
const SO_DOMAIN: usize = 39;
const PATH_MAX: usize = 108;
/// Bytes of the family, which stands before the path.
const FAMILY_BYTES: usize = 2;
/// So many links of the instance lead out of it and back.
const ROUNDS_MAX: usize = 8;

/// `struct sockaddr_un`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Address {
    family: u16,
    path: [u8; PATH_MAX],
}

impl Address {
    const fn new() -> Self {
        Address { family: AF_UNIX, path: [0; PATH_MAX] }
    }

    /// The path, if the first `bytes` bytes have one that is a name of a file.
    fn text(&self, bytes: usize) -> Option<&[u8]> {
        let path = self.path.get(..bytes.checked_sub(FAMILY_BYTES)?.min(PATH_MAX))?;
        let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
        path.get(..end).filter(|text| self.family == AF_UNIX && !text.is_empty())
    }

    /// An address with this path, and how many of its bytes count.
    fn of(text: &[u8]) -> Option<(Self, usize)> {
        let mut address = Address::new();
        // With a zero behind it.
        let room = address.path.get_mut(..PATH_MAX - 1)?.get_mut(..text.len())?;
        room.copy_from_slice(text);
        Some((address, FAMILY_BYTES + text.len() + 1))
    }
}

/// An address of the host's.
///
/// # Safety
/// The host passes `bytes` bytes at `from` to the kernel.
unsafe fn read_address(from: usize, bytes: usize) -> Option<Address> {
    if from == 0 || bytes <= FAMILY_BYTES || bytes > size_of::<Address>() {
        return None;
    }
    let mut raw = [0_u8; size_of::<Address>()];
    // SAFETY: passed on to the caller.
    unsafe { user::copy_in(from as *const u8, raw.get_mut(..bytes)?) }.ok()?;
    let (family, path) = raw.split_first_chunk()?;
    let path = path.try_into().ok()?;
    Some(Address { family: u16::from_ne_bytes(*family), path })
}

/// Calls `issue` with an address of `path`, which may be longer than an address.
fn with_address(
    path: &PathText,
    issue: impl FnOnce(usize, usize) -> isize,
) -> Result<isize, Errno> {
    let mut directory = None;
    let address = Address::of(path.as_bytes()).map_or_else(
        || {
            let (parent, name) = text::split_last(path.as_bytes());
            let parent = PathText::from_bytes(parent)?;
            let opened = file::open_at(AT_FDCWD, &parent, O_PATH | O_DIRECTORY | O_CLOEXEC, 0)?;
            directory = Some(opened);
            let mut short = file::descriptor_path(opened)?;
            short.push_component(name)?;
            Address::of(short.as_bytes()).ok_or(Errno::ENAMETOOLONG)
        },
        Ok,
    );
    let raw = address.map(|(address, bytes)| issue(core::ptr::from_ref(&address) as usize, bytes));
    special::close_directory(directory);
    raw
}

/// Where the kernel's socket is that a path of the host stands for; `None` when the path is the
/// kernel's.
fn find(path: &[u8]) -> Result<Option<PathText>, Errno> {
    let (mut joined, mut escape) = (PathText::new(), PathText::new());
    let mut at = PathText::from_bytes(path)?;
    for round in 0..ROUNDS_MAX {
        let place = locate(AT_FDCWD, at.as_bytes(), &mut joined)?;
        if place == Place::Kernel {
            return Ok((round > 0).then_some(at));
        }
        if handover::is_possible() {
            return special::in_mount(place).map(Some);
        }
        match reach(place, &mut escape) {
            Ok(real) => return Ok(Some(real)),
            Err(Stop::Failed(errno)) => return Err(errno),
            Err(Stop::Escaped) => core::mem::swap(&mut at, &mut escape),
        }
    }
    Err(Errno::ELOOP)
}

fn reach(place: Place<'_>, escape: &mut PathText) -> Result<PathText, Stop> {
    let mut real = PathText::new();
    let found = session::get()?.reach(place.target(true)?, escape, |what, place| {
        if what == SPECIAL_SOCKET && special::is_here(place) { real.push(place) } else { Ok(()) }
    });
    match found {
        Ok(()) if !real.as_bytes().is_empty() => Ok(real),
        // Nobody is there: another type of file, or a socket of another node.
        Ok(()) | Err(Stop::Failed(Errno::EINVAL)) => Err(Stop::Failed(Errno::ECONNREFUSED)),
        Err(stop) => Err(stop),
    }
}

/// Issues a call with the address of the kernel's socket in place of one of ours.
///
/// # Safety
/// As [`crate::dispatch`]; address and length are the arguments `at` and the one behind it.
unsafe fn redirect(call: &Call, at: usize) -> Outcome {
    // SAFETY: passed on to the caller.
    let Some(address) = (unsafe { read_address(argument(call, at), argument(call, at + 1)) })
    else {
        return Outcome::Pass;
    };
    let Some(path) = address.text(argument(call, at + 1)) else { return Outcome::Pass };
    let real = match find(path) {
        Ok(Some(real)) => real,
        Ok(None) => return Outcome::Pass,
        Err(errno) => return Outcome::Done(errno.as_result()),
    };
    let issued = with_address(&real, |address, bytes| {
        let mut args = call.args;
        for (to, value) in args.iter_mut().skip(at).zip([address, bytes]) {
            *to = value;
        }
        let [a, b, c, d, e, f] = args;
        // SAFETY: the host's call with another address, which outlives it.
        unsafe { syscall6(call.number, a, b, c, d, e, f) }
    });
    match issued {
        // The socket has gone, or is another node's of the same name.
        Ok(raw) if raw == Errno::ENOENT.as_result() && special::is_here(real.as_bytes()) => {
            Outcome::Done(Errno::ECONNREFUSED.as_result())
        }
        issued => done(issued),
    }
}

/// connect.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn connect(call: &Call) -> Outcome {
    // SAFETY: passed on to the caller.
    unsafe { redirect(call, 1) }
}

/// sendto.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn send_to(call: &Call) -> Outcome {
    // SAFETY: passed on to the caller.
    unsafe { redirect(call, 4) }
}

/// The place that a message is to be sent to, if its address is one of ours.
///
/// # Safety
/// The host passes `bytes` bytes at `from` to the kernel.
pub(super) unsafe fn destination(from: usize, bytes: usize) -> Result<Option<PathText>, Errno> {
    // SAFETY: passed on to the caller.
    match unsafe { read_address(from, bytes) } {
        Some(address) => address.text(bytes).map_or(Ok(None), find),
        None => Ok(None),
    }
}

/// Issues a sending call with this destination.
pub(super) fn send_there(
    real: &PathText,
    issue: impl FnOnce(usize, usize) -> isize,
) -> Result<isize, Errno> {
    let raw = with_address(real, issue)?;
    let gone = raw == Errno::ENOENT.as_result() && special::is_here(real.as_bytes());
    Ok(if gone { Errno::ECONNREFUSED.as_result() } else { raw })
}

fn is_local(socket: usize) -> bool {
    let (mut domain, mut bytes) = (0_u32, size_of::<u32>() as u32);
    // SAFETY: both are as long as said and outlive the call.
    let raw = unsafe {
        let (domain, bytes) = (core::ptr::from_mut(&mut domain), core::ptr::from_mut(&mut bytes));
        let (domain, bytes) = (domain as usize, bytes as usize);
        syscall6(number::GETSOCKOPT, socket, SOL_SOCKET, SO_DOMAIN, domain, bytes, 0)
    };
    raw == 0 && domain == u32::from(AF_UNIX)
}

/// bind.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn bind(call: &Call) -> Outcome {
    // SAFETY: passed on to the caller.
    let Some(address) = (unsafe { read_address(argument(call, 1), argument(call, 2)) }) else {
        return Outcome::Pass;
    };
    let Some(path) = address.text(argument(call, 2)) else { return Outcome::Pass };
    let (mut joined, mut escape) = (PathText::new(), PathText::new());
    let place = match locate(AT_FDCWD, path, &mut joined) {
        Ok(Place::Kernel) => return Outcome::Pass,
        Ok(place) => place,
        Err(errno) => return Outcome::Done(errno.as_result()),
    };
    if !is_local(argument(call, 0)) {
        return Outcome::Pass;
    }
    let bound = match bind_at(call, place, path, &mut escape) {
        // A link led out: only its directory can be elsewhere.
        Err(Stop::Escaped) => bind_to(call, &escape),
        Err(Stop::Failed(errno)) => Err(errno),
        Ok(raw) => Ok(raw),
    };
    done(match bound {
        Err(Errno::EEXIST) => Err(Errno::EADDRINUSE),
        bound => bound,
    })
}

fn bind_to(call: &Call, path: &PathText) -> Result<isize, Errno> {
    with_address(path, |address, bytes| {
        // SAFETY: the host's call with another address, which outlives it.
        unsafe { syscall3(number::BIND, argument(call, 0), address, bytes) }
    })
}

fn bind_at(call: &Call, at: Place<'_>, said: &[u8], escape: &mut PathText) -> Result<isize, Stop> {
    if handover::is_possible() {
        return Ok(bind_to(call, &special::in_mount(at)?)?);
    }
    let (session, place) = (session::get()?, special::draw_place()?);
    let (walk, new) = (at.walk(false)?, names::new_owner(0o777));
    session.make_special(walk, SPECIAL_SOCKET, new, place.as_bytes(), escape)?;
    match bind_to(call, &place).and_then(result) {
        Ok(_) => {
            // Without the link the socket's name is reported as its place, which works too.
            let _ = note_name(&place, said);
            Ok(0)
        }
        Err(errno) => {
            // Nobody was bound to it.
            let _ = session.unlink(walk, escape);
            Err(Stop::Failed(errno))
        }
    }
}

fn note_name(place: &PathText, said: &[u8]) -> Result<(), Errno> {
    let said = PathText::from_bytes(said)?;
    let link = name_link(place.as_bytes())?;
    // SAFETY: both are terminated strings that outlive the call.
    result(unsafe { syscall3(number::SYMLINK, said.as_ptr() as usize, link.as_ptr() as usize, 0) })
        .map(|_| ())
}

fn name_link(place: &[u8]) -> Result<PathText, Errno> {
    let mut link = PathText::from_bytes(place)?;
    link.push(BOUND_SUFFIX.as_bytes())?;
    Ok(link)
}

/// As what a socket was bound whose address the kernel reports so.
fn bound_as(reported: &[u8]) -> Option<PathText> {
    let ours = special::is_here(reported) || reported.starts_with(b"/proc/self/fd/");
    let number = reported.len().checked_sub(PLACE_DIGITS).filter(|_| ours)?;
    let mut place = PathText::from_bytes(settings::get()?.host_run.as_bytes()).ok()?;
    place.push_component(SPECIAL_DIRECTORY.as_bytes()).ok()?;
    place.push_component(reported.get(number..)?).ok()?;
    let link = name_link(place.as_bytes()).ok().filter(|_| special::is_here(place.as_bytes()))?;
    let mut said = PathText::new();
    file::read_link(AT_FDCWD, &link, &mut said).ok()?;
    Some(said)
}

/// getsockname, getpeername.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn name(call: &Call) -> Outcome {
    let (to, length) = (argument(call, 1), argument(call, 2) as *mut u32);
    let (mut address, mut bytes) = (Address::new(), size_of::<Address>() as u32);
    // SAFETY: both are as long as said and outlive the call.
    let raw = unsafe {
        let (address, bytes) = (core::ptr::from_mut(&mut address), core::ptr::from_mut(&mut bytes));
        syscall3(call.number, argument(call, 0), address as usize, bytes as usize)
    };
    let Some(said) = address.text(bytes as usize).filter(|_| raw == 0).and_then(bound_as) else {
        return Outcome::Pass;
    };
    let Some((address, bytes)) = Address::of(said.as_bytes()) else { return Outcome::Pass };
    // SAFETY: the host asked for so many bytes of the address to be written there.
    done(unsafe {
        user::read(length).and_then(|room| {
            let [low, high] = address.family.to_ne_bytes();
            let mut raw = [0_u8; size_of::<Address>()];
            raw.iter_mut()
                .zip([low, high].iter().chain(&address.path))
                .for_each(|(to, from)| *to = *from);
            let count = bytes.min(room as usize);
            user::copy_out(raw.get(..count).unwrap_or(&[]), to as *mut u8)?;
            user::write(&(bytes as u32), length)?;
            Ok(0)
        })
    })
}

//! Lines to other processes that this one was started with.

use std::{
    io,
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::socket::{AddressFamily, SockaddrLike, UnixAddr, getsockname},
};

/// Takes the descriptor of a socket for this process's own. Whoever has started it has named the
/// descriptor for that, and it is taken once.
///
/// # Errors
/// It is none that is open, or no such socket.
pub fn inherited(descriptor: RawFd) -> io::Result<UnixStream> {
    let address: UnixAddr = getsockname(descriptor)?;
    if descriptor <= 2 || address.family() != Some(AddressFamily::Unix) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is open, as was seen just now, and beyond those of the standard library. Nothing
    // else in this process knows of it: it was there when the process began, and only its name on
    // the way here tells of it.
    let line = unsafe { OwnedFd::from_raw_fd(descriptor) };
    fcntl(&line, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(UnixStream::from(line))
}

/// Has the next program that this process becomes, or starts, inherit a line.
///
/// # Errors
/// As of fcntl.
pub fn hand_on(line: &UnixStream) -> io::Result<()> {
    fcntl(line, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}

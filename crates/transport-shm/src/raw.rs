//! The system calls of attaching and waiting, issued directly.

use mayfly_sys::{
    Errno,
    arch::{syscall3, syscall6},
    number, result,
};

const AF_UNIX: usize = 1;
const SOCK_SEQPACKET: usize = 5;
const SOCK_CLOEXEC: usize = 0o2_000_000;
const SOL_SOCKET: usize = 1;
const SO_RCVTIMEO: usize = 20;
const SO_SNDTIMEO: usize = 21;
const SCM_RIGHTS: i32 = 1;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
const F_DUPFD_CLOEXEC: usize = 1030;
const PROT_READ_WRITE: usize = 3;
const MAP_SHARED: usize = 1;
const MADV_DONTFORK: usize = 10;
#[cfg(feature = "server")]
const MADV_REMOVE: usize = 9;

/// Longest path in a `sockaddr_un`, without a terminating zero.
pub(crate) const SOCKET_PATH_MAX: usize = 107;

/// Tries again after a signal: attaching is short and bounded by the socket's time-outs.
fn again(mut call: impl FnMut() -> isize) -> Result<usize, Errno> {
    loop {
        match result(call()) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

pub(crate) fn close(fd: i32) {
    // SAFETY: closing a descriptor that this module made; no memory is touched.
    unsafe { syscall3(number::CLOSE, fd as usize, 0, 0) };
}

/// A connected socket whose calls give up after `timeout_ms`.
pub(crate) fn connect(path: &[u8], timeout_ms: u32) -> Result<i32, Errno> {
    if path.len() > SOCKET_PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    // SAFETY: no pointers.
    let fd =
        result(unsafe { syscall3(number::SOCKET, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) })?;
    let time = [i64::from(timeout_ms / 1000), i64::from(timeout_ms % 1000) * 1000];
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
        // SAFETY: `time` has the form of a timeval and outlives the call.
        unsafe {
            syscall6(
                number::SETSOCKOPT,
                fd,
                SOL_SOCKET,
                option,
                time.as_ptr() as usize,
                size_of_val(&time),
                0,
            )
        };
    }
    let mut address = [0_u8; SOCKET_PATH_MAX + 3];
    address[..2].copy_from_slice(&(AF_UNIX as u16).to_ne_bytes());
    address[2..2 + path.len()].copy_from_slice(path);
    // SAFETY: the address outlives the call and has the length given.
    let connected = again(|| unsafe {
        syscall3(number::CONNECT, fd, address.as_ptr() as usize, path.len() + 3)
    });
    match connected {
        Ok(_) => Ok(fd as i32),
        Err(errno) => {
            close(fd as i32);
            Err(errno)
        }
    }
}

pub(crate) fn send(fd: i32, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the bytes outlive the call.
    let sent = again(|| unsafe {
        syscall6(
            number::SENDTO,
            fd as usize,
            bytes.as_ptr() as usize,
            bytes.len(),
            MSG_NOSIGNAL,
            0,
            0,
        )
    })?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::EIO) }
}

/// Head of a control message with room for two descriptors (`struct cmsghdr`).
#[repr(C, align(8))]
struct Control {
    length: usize,
    level: i32,
    kind: i32,
    fds: [i32; 2],
}

/// Sends a message and one descriptor with it.
pub(crate) fn send_with(fd: i32, bytes: &[u8], passed: i32) -> Result<(), Errno> {
    let mut vector = [bytes.as_ptr() as usize, bytes.len()];
    // A head of 16 bytes and one number.
    let mut control =
        Control { length: 20, level: SOL_SOCKET as i32, kind: SCM_RIGHTS, fds: [passed, -1] };
    let message = Message::of(&mut vector, &mut control);
    let at = (&raw const message) as usize;
    // SAFETY: the message, its vector and its control data outlive the call.
    let sent = again(|| unsafe { syscall3(number::SENDMSG, fd as usize, at, MSG_NOSIGNAL) })?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::EIO) }
}

/// `struct msghdr` of 64-bit Linux.
#[repr(C)]
struct Message {
    name: usize,
    name_length: usize,
    vector: usize,
    vector_length: usize,
    control: usize,
    control_length: usize,
    flags: usize,
}

impl Message {
    /// One piece of memory (its address and length) with descriptors beside it. Both have to
    /// outlive the call that gets the message.
    fn of(vector: &mut [usize; 2], control: &mut Control) -> Message {
        Message {
            name: 0,
            name_length: 0,
            vector: vector.as_mut_ptr() as usize,
            vector_length: 1,
            control: core::ptr::from_mut(control) as usize,
            control_length: size_of::<Control>(),
            flags: 0,
        }
    }
}

/// One message and up to two descriptors; -1 stands for one that did not come.
pub(crate) fn receive(fd: i32, bytes: &mut [u8]) -> Result<(usize, [i32; 2]), Errno> {
    let mut vector = [bytes.as_mut_ptr() as usize, bytes.len()];
    let mut control = Control { length: 0, level: 0, kind: 0, fds: [-1; 2] };
    let mut message = Message::of(&mut vector, &mut control);
    let at = (&raw mut message) as usize;
    // SAFETY: the message, its vector and its control buffer outlive the call and have these
    // lengths.
    let count = again(|| unsafe { syscall3(number::RECVMSG, fd as usize, at, MSG_CMSG_CLOEXEC) })?;
    // SAFETY: reads a local that the kernel wrote to behind the compiler's back.
    let control = unsafe { (&raw const control).read_volatile() };
    let rights = control.level == SOL_SOCKET as i32 && control.kind == SCM_RIGHTS;
    let passed = if rights { (control.length.saturating_sub(16) / 4).min(2) } else { 0 };
    let mut fds = [-1; 2];
    fds[..passed].copy_from_slice(&control.fds[..passed]);
    Ok((count, fds))
}

/// Moves a descriptor to a number of at least `fd_min`; it is closed at exec. On failure it stays.
pub(crate) fn move_up(fd: i32, fd_min: i32) -> i32 {
    if fd >= fd_min {
        return fd;
    }
    // SAFETY: no pointers.
    match result(unsafe { syscall3(number::FCNTL, fd as usize, F_DUPFD_CLOEXEC, fd_min as usize) })
    {
        Ok(moved) => {
            close(fd);
            moved as i32
        }
        Err(_) => fd,
    }
}

/// Maps the first `length` bytes of `fd` for good, and keeps them out of core dumps: they are of
/// others, too, and larger than most programs.
pub(crate) fn map_shared(fd: i32, length: usize) -> Result<*mut u8, Errno> {
    const MADV_DONTDUMP: usize = 16;
    // SAFETY: a fresh mapping at an address of the kernel's choice disturbs nothing.
    let address = result(unsafe {
        syscall6(number::MMAP, 0, length, PROT_READ_WRITE, MAP_SHARED, fd as usize, 0)
    })?;
    // SAFETY: the advice changes nothing for who uses the mapping.
    unsafe { syscall3(number::MADVISE, address, length, MADV_DONTDUMP) };
    Ok(address as *mut u8)
}

/// Undoes [`map_shared`].
///
/// # Safety
/// Nobody uses the mapping any more.
pub(crate) unsafe fn unmap(address: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall3(number::MUNMAP, address as usize, length, 0) };
}

/// Keeps a mapping out of the children of fork.
pub(crate) fn keep_from_children(address: *mut u8, length: usize) {
    // SAFETY: the advice changes nothing in this process.
    unsafe { syscall3(number::MADVISE, address as usize, length, MADV_DONTFORK) };
}

/// Gives the memory of whole pages of a shared mapping back, which read as zeros then in every
/// mapping, where the kernel can do that.
///
/// # Safety
/// Zeros are a value of what is there, and the range is mapped.
#[cfg(feature = "server")]
pub(crate) unsafe fn give_back(address: *const u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall3(number::MADVISE, address as usize, length, MADV_REMOVE) };
}

/// Length of a file, bytes.
pub(crate) fn length_of(fd: i32) -> Result<usize, Errno> {
    const SEEK_END: usize = 2;
    // SAFETY: no pointers.
    result(unsafe { syscall3(number::LSEEK, fd as usize, 0, SEEK_END) })
}

/// True when the peer of a socket has closed it.
pub(crate) fn hung_up(fd: i32) -> bool {
    const POLLHUP: u16 = 0x10;
    const POLLRDHUP: u16 = 0x2000;
    /// `struct pollfd`.
    #[repr(C)]
    struct Poll {
        fd: i32,
        events: u16,
        revents: u16,
    }
    let mut poll = Poll { fd, events: POLLRDHUP, revents: 0 };
    let at = (&raw mut poll) as usize;
    // SAFETY: the structure outlives the call; the time-out is zero.
    let ready = result(unsafe { syscall3(number::POLL, at, 1, 0) });
    // SAFETY: reads a local that the kernel wrote to behind the compiler's back.
    let revents = unsafe { (&raw const poll.revents).read_volatile() };
    ready == Ok(1) && revents & (POLLHUP | POLLRDHUP) != 0
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall3(number::GETTID, 0, 0, 0) as u32 }
}

/// Name of the calling thread.
pub(crate) fn name() -> [u8; 16] {
    const PR_GET_NAME: usize = 16;
    let mut name = [0; 16];
    // SAFETY: the kernel writes 16 bytes.
    unsafe { syscall3(number::PRCTL, PR_GET_NAME, name.as_mut_ptr() as usize, 0) };
    name
}

pub(crate) fn yield_now() {
    // SAFETY: no arguments.
    unsafe { syscall3(number::SCHED_YIELD, 0, 0, 0) };
}

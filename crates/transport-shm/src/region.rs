//! Making and mapping regions: the supervisor makes them, the daemon maps them.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

use mayfly_sys::arch::Moments;
pub use mayfly_sys::arch::cycles;
use mayfly_types::{Errno, SessionId};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::{
    ShmTransport,
    layout::{
        DAEMON_ABSENT, LAYOUT_VERSION, MAGIC, NodeRegion, PROCESSORS_READABLE, SessionHead,
        SessionRegion,
    },
    raw,
};

/// What a node region says from the start.
#[derive(Debug, Clone, Copy)]
pub struct NodeSettings {
    /// Identity of the instance.
    pub instance: u64,
    /// `Times` of the instance.
    pub times: u32,
    /// 1 when locks are served.
    pub locks: u32,
    /// Deadline of a request, milliseconds.
    pub deadline_ms: u32,
}

/// A mapping that stays until the process ends.
fn map_for_good<T>(fd: impl AsFd) -> Result<&'static T, Errno> {
    let address = map(fd, size_of::<T>())?;
    // SAFETY: called for `NodeRegion` only, which consists of atomics; the mapping has its size,
    // cannot shrink (sealed) and is never undone.
    Ok(unsafe { &*address.cast::<T>() })
}

fn map(fd: impl AsFd, length: usize) -> Result<*mut u8, Errno> {
    use std::os::fd::AsRawFd;
    let fd = fd.as_fd();
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(errno)?;
    if !seals.contains(SealFlags::SHRINK) || raw::length_of(fd.as_raw_fd())? < length {
        return Err(Errno::EPROTO);
    }
    raw::map_shared(fd.as_raw_fd(), length)
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error()).unwrap_or(Errno::EIO)
}

/// A memory file that can neither grow nor shrink. It is sparse: what nobody touches costs nothing.
fn sealed(name: &str, length: usize) -> Result<OwnedFd, Errno> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(errno)?;
    rustix::fs::ftruncate(&fd, length as u64).map_err(errno)?;
    let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals).map_err(errno)?;
    Ok(fd)
}

/// Makes a node region and maps it.
///
/// # Errors
/// ENOMEM, EMFILE and whatever else the kernel says.
pub fn make_node(settings: &NodeSettings) -> Result<(OwnedFd, &'static NodeRegion), Errno> {
    let fd = sealed("mayfly-node", size_of::<NodeRegion>())?;
    let node: &'static NodeRegion = map_for_good(&fd)?;
    let head = &node.head;
    head.version.store(LAYOUT_VERSION, Relaxed);
    head.instance.store(settings.instance, Relaxed);
    head.times.store(settings.times, Relaxed);
    head.locks.store(settings.locks, Relaxed);
    head.deadline_ms.store(settings.deadline_ms, Relaxed);
    head.daemon_state.store(DAEMON_ABSENT, Relaxed);
    if Moments::find().has_processor() {
        head.processors_readable.store(PROCESSORS_READABLE, Relaxed);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    head.began.cycles.store(cycles(), Relaxed);
    head.began.ns.store(now.as_nanos() as u64, Relaxed);
    head.magic.store(MAGIC, Relaxed);
    Ok((fd, node))
}

/// The processors' counter is watched for so long before it is told how fast it runs, nanoseconds.
const RATE_NS_MIN: u64 = 1_000_000;

/// Tells how fast the processors' counter runs, once, when the node is old enough to know it.
pub fn know_rate(node: &NodeRegion) {
    let head = &node.head;
    if head.cycles_ns.load(Relaxed) != 0 {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ns = (now.as_nanos() as u64).saturating_sub(head.began.ns.load(Relaxed));
    let ran = cycles().saturating_sub(head.began.cycles.load(Relaxed));
    // A clock that was set meanwhile is no measure.
    let rate = (u128::from(ns) << 32).checked_div(u128::from(ran)).unwrap_or(0);
    let is_likely = (1 << 28..1 << 34).contains(&rate);
    if ns >= RATE_NS_MIN && is_likely {
        head.cycles_ns.store(rate as u64, Relaxed);
    }
}

/// Maps a node region for the rest of the process's life.
///
/// # Errors
/// EPROTO when it is not one.
pub fn map_node(fd: impl AsFd) -> Result<&'static NodeRegion, Errno> {
    let node: &'static NodeRegion = map_for_good(fd)?;
    let head = &node.head;
    if head.magic.load(Relaxed) != MAGIC || head.version.load(Relaxed) != LAYOUT_VERSION {
        return Err(Errno::EPROTO);
    }
    Ok(node)
}

/// Sessions made so far by this process.
static SESSIONS_MADE: AtomicU64 = AtomicU64::new(0);
/// Request ids of a session: 200 days at a million requests a second.
const REQUESTS_LOG2: u32 = 44;

/// Makes a session region. Its head is written through the file: mapping it would cost the
/// supervisor two system calls and a page fault more. Sessions in succession number their requests
/// differently, so that what was meant for one fits no request of a later one of the same number.
///
/// # Errors
/// ENOMEM, EMFILE and whatever else the kernel says.
pub fn make_session(session: SessionId, pid: u32) -> Result<OwnedFd, Errno> {
    let fd = sealed("mayfly-session", size_of::<SessionRegion>())?;
    let last_request_id = SESSIONS_MADE.fetch_add(1, Relaxed) << REQUESTS_LOG2;
    let mut head = [0_u8; 24];
    head[0..4].copy_from_slice(&MAGIC.to_ne_bytes());
    head[4..8].copy_from_slice(&LAYOUT_VERSION.to_ne_bytes());
    head[8..12].copy_from_slice(&session.0.to_ne_bytes());
    head[12..16].copy_from_slice(&pid.to_ne_bytes());
    head[16..24].copy_from_slice(&last_request_id.to_ne_bytes());
    rustix::io::pwrite(&fd, &head, 0).map_err(errno)?;
    Ok(fd)
}

/// The client's side of a session without the handshake: for measurements and tests, whose client
/// and daemon are threads of one process. Its mapping stays until the process ends.
///
/// # Errors
/// EPROTO when it is no session region, ENOMEM.
pub fn connect(node: &'static NodeRegion, session: impl AsFd) -> Result<ShmTransport, Errno> {
    let address = map(session, size_of::<SessionRegion>())?;
    Ok(ShmTransport::new(node, address.cast(), -1))
}

/// The daemon's mapping of a session region, undone when dropped.
#[derive(Debug)]
pub struct SessionMapping {
    address: *mut SessionRegion,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for SessionMapping {}
// SAFETY: what a shared reference gives away is atomics, and a raw pointer whose users argue for
// themselves.
unsafe impl Sync for SessionMapping {}

impl SessionMapping {
    /// Maps a session region; the descriptor is not needed any more afterwards.
    ///
    /// # Errors
    /// EPROTO when it is not one, ENOMEM.
    pub fn map(fd: impl AsFd) -> Result<SessionMapping, Errno> {
        let address = map(fd, size_of::<SessionRegion>())?.cast();
        Ok(SessionMapping { address })
    }

    pub(crate) fn head(&self) -> &SessionHead {
        // SAFETY: mapped as long as `self` lives, and made of atomics.
        unsafe { &(*self.address).head }
    }

    pub(crate) fn region(&self) -> *mut SessionRegion {
        self.address
    }
}

impl Drop for SessionMapping {
    fn drop(&mut self) {
        // SAFETY: references into the mapping borrow from `self`.
        unsafe { raw::unmap(self.address.cast(), size_of::<SessionRegion>()) };
    }
}

const _: () = assert!(core::mem::offset_of!(SessionHead, magic) == 0);
const _: () = assert!(core::mem::offset_of!(SessionHead, version) == 4);
const _: () = assert!(core::mem::offset_of!(SessionHead, session) == 8);
const _: () = assert!(core::mem::offset_of!(SessionHead, pid) == 12);
const _: () = assert!(core::mem::offset_of!(SessionHead, last_request_id) == 16);
// As docs/design/shm.md says it.
const _: () = assert!(core::mem::offset_of!(NodeRegion, done) == 137_797_632);
const _: () = assert!(size_of::<crate::layout::Done>() == 35_456);
const _: () = assert!(core::mem::offset_of!(NodeRegion, traffic) == 138_364_928);
const _: () = assert!(core::mem::offset_of!(NodeRegion, timeline) == 138_430_464);
const _: () = assert!(core::mem::offset_of!(NodeRegion, past) == 138_596_352);
const _: () = assert!(core::mem::offset_of!(NodeRegion, tallies) == 138_629_120);
const _: () = assert!(size_of::<crate::tally::Tally>() == 32_768);

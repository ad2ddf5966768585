//! How this process comes to its session, at the first call that needs it.
//!
//! A child of fork has none at first, whatever it finds here, and attaches anew
//! ([`crate::process::fork`]). A child of vfork uses its parent's; when the parent has none, the
//! child attaches for itself, for the short time until it becomes another program
//! ([`crate::process::flight`]).

use core::{
    mem::MaybeUninit,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use mayfly_client::{Client, Counts, Node, ObjectDirectory};
use mayfly_sys::{
    Errno, file,
    lock::{Held, Lock},
    memory,
};
use mayfly_transport_shm::{AttachOptions, Earlier, ShmTransport, attach, layout::NodeRegion};

use crate::{
    descriptors::hidden,
    process::{
        flight,
        lanes::{Hidden, Lanes, Session, discard},
        run_directory,
    },
};

static SESSION: AtomicPtr<Session> = AtomicPtr::new(core::ptr::null_mut());
static TRANSPORT: AtomicPtr<ShmTransport> = AtomicPtr::new(core::ptr::null_mut());
static NODE: AtomicPtr<NodeRegion> = AtomicPtr::new(core::ptr::null_mut());
static ATTACHING: Lock = Lock::new();
/// Identity of the instance, folded to what `st_dev` holds.
static DEVICE: AtomicU32 = AtomicU32::new(0);

/// The session, attached when there is none yet.
///
/// # Errors
/// EACCES for another user's process, EIO when the instance cannot be reached.
pub(crate) fn get() -> Result<&'static Session, Errno> {
    if let Some(child) = flight::child() {
        return child.session(make);
    }
    if let Some(session) = existing() {
        return Ok(session);
    }
    let _held = ATTACHING.hold();
    if let Some(session) = existing() {
        return Ok(session);
    }
    let session = make()?;
    SESSION.store(core::ptr::from_ref(session).cast_mut(), Ordering::Release);
    Ok(session)
}

/// Lets nobody attach until dropped: what shows the daemon that this process lives is not where
/// the child of a fork would find and close it, before it has been attached.
pub(crate) fn hold_attaching() -> Held<'static> {
    ATTACHING.hold()
}

/// The session, if there is one.
pub(crate) fn existing() -> Option<&'static Session> {
    // SAFETY: the pointer is null or leads to a mapping that is only given up by `forget`, in a
    // child of fork before anything else happens there.
    unsafe { SESSION.load(Ordering::Acquire).as_ref() }
}

/// Device number that stat reports: of the anonymous kind (major 0), differing between instances.
pub(crate) fn device_minor() -> u32 {
    DEVICE.load(Ordering::Relaxed)
}

/// Gives up a session that belongs to the parent of this process.
pub(crate) fn forget() {
    ATTACHING.reset();
    TRANSPORT.store(core::ptr::null_mut(), Ordering::Release);
    discard(SESSION.swap(core::ptr::null_mut(), Ordering::AcqRel));
}

fn make() -> Result<&'static Session, Errno> {
    // SAFETY: null, or a transport that lives as long as the process.
    let transport = match unsafe { TRANSPORT.load(Ordering::Acquire).as_ref() } {
        Some(transport) => transport,
        None => attach_process()?,
    };
    // SAFETY: a node region stays mapped, and attaching noted it.
    let node = unsafe { NODE.load(Ordering::Acquire).as_ref() }.ok_or(Errno::EIO)?;
    let flags = file::O_PATH | file::O_DIRECTORY | file::O_CLOEXEC;
    let objects = ObjectDirectory(hidden::conceal(run_directory::objects(flags)?)?);
    let tables = Node { head: &node.head, opens: &node.opens, files: &node.files };
    let place = memory::map_anonymous(size_of::<Session>())?.cast::<MaybeUninit<Session>>();
    // SAFETY: the mapping is fresh, large enough, page-aligned, and lives until `discard`.
    let place = unsafe { &mut *place.as_ptr() };
    let session = Client::new_in(place, Lanes(transport), tables, objects, Hidden)?;
    if let Some(leases) = transport.file_leases() {
        session.use_leases(leases);
    }
    if let Some(tally) = transport.tally() {
        session.count_in(Counts::of(node, tally));
    }
    read_records(session)?;
    Ok(session)
}

/// Lets the client look into the daemon's records, if they are where others may read them.
fn read_records(session: &mut Session) -> Result<(), Errno> {
    let (directory, path) = run_directory::entry(b"records")?;
    if let Ok(records) = file::open_at(directory, &path, file::O_RDONLY | file::O_CLOEXEC, 0) {
        session.read_records(records);
        file::close(records);
    }
    Ok(())
}

/// Attaches the calling process. A child of vfork, whose parent has not attached, does so for
/// itself: its session ends with its exec, so the transport is not noted for the parent.
fn attach_process() -> Result<&'static ShmTransport, Errno> {
    // SAFETY: null or a node region, which stays mapped.
    let node = unsafe { NODE.load(Ordering::Acquire).as_ref() };
    let fd_min = hidden::base();
    let earlier = Earlier::Ends;
    let by_socket =
        |socket_path: &[u8]| attach(&AttachOptions { socket_path, fd_min, node, earlier });
    let attachment = run_directory::connected(b"sock", by_socket).map_err(|errno| match errno {
        // A process of another user.
        Errno::EACCES => errno,
        _ => Errno::EIO,
    })?;
    hidden::conceal(attachment.evidence_fd)?;
    NODE.store(core::ptr::from_ref(attachment.node).cast_mut(), Ordering::Release);
    let instance = attachment.node.head.instance.load(Ordering::Relaxed);
    // Minor numbers have 20 bits; the low half is left to real anonymous devices.
    let folded = (instance ^ (instance >> 20) ^ (instance >> 40)) as u32;
    DEVICE.store((folded & 0xf_ffff) | 0x8_0000, Ordering::Relaxed);
    let place = memory::map_anonymous(size_of::<ShmTransport>())?.cast::<ShmTransport>();
    // SAFETY: the mapping is fresh, large enough, page-aligned, and never given back.
    let transport = unsafe {
        place.write(attachment.transport);
        &*place.as_ptr()
    };
    if flight::child().is_none() {
        TRANSPORT.store(place.as_ptr(), Ordering::Release);
    }
    Ok(transport)
}

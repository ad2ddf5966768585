//! The sessions of this process: one for each instance that it uses, made at the first call.
//!
//! A session is never given back before the process ends, since its shared memory may be in use by
//! other threads. The child of a fork leaves its parent's where it is, untouched, and attaches
//! anew; what it keeps is the mapping of the node's tables.

use std::{
    os::{
        fd::{AsRawFd, IntoRawFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use mayfly_client::{Client, Counts, NewOwner, Node, ObjectDirectory};
use mayfly_sys::{Errno, lock::Lock, process};
use mayfly_transport_shm::{AttachOptions, Earlier, ShmTransport, attach, layout::NodeRegion};
use rustix::fs::{Mode, OFlags};

use crate::{
    descriptors::{self, PythonDescriptors},
    fork,
};

/// What is taken off the mode of new files where the kernel does not tell (Linux before 4.7).
const UMASK_USUAL: u32 = 0o022;

/// This process's access to an instance.
pub(crate) struct Attached {
    pub(crate) client: Client<ShmTransport, PythonDescriptors>,
    umask: u32,
}

impl Attached {
    /// Who owns what the calling thread makes, with these permission bits.
    pub(crate) fn owner(&self, mode: u32) -> NewOwner {
        let (uid, gid) = process::owner();
        NewOwner { mode: mode & 0o7777 & !self.umask, uid, gid }
    }
}

/// An instance that this process has named. There is one for each, and it stays.
pub(crate) struct Place {
    run_dir: PathBuf,
    objects: PathBuf,
    instance: u64,
    session: AtomicPtr<Attached>,
    node: AtomicPtr<NodeRegion>,
    next: AtomicPtr<Place>,
}

static FIRST: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
/// Held to add a place, and to attach.
static ATTACHING: Lock = Lock::new();

fn places() -> impl Iterator<Item = &'static Place> {
    let of = |place: &AtomicPtr<Place>| {
        // SAFETY: null, or a place that was leaked when it was made.
        unsafe { place.load(Acquire).as_ref() }
    };
    std::iter::successors(of(&FIRST), move |place: &&'static Place| of(&place.next))
}

/// For the child of a fork, before anything else happens there.
pub(crate) fn forget_all() {
    ATTACHING.reset();
    for place in places() {
        place.session.store(ptr::null_mut(), Release);
    }
}

impl Place {
    /// The place of the instance with this identity, and this run directory.
    pub(crate) fn of(run_dir: PathBuf, objects: PathBuf, instance: u64) -> &'static Place {
        fork::notice();
        let _held = ATTACHING.hold();
        let same = |place: &&Place| place.instance == instance && place.run_dir == run_dir;
        if let Some(place) = places().find(same) {
            return place;
        }
        let place = Box::leak(Box::new(Place {
            run_dir,
            objects,
            instance,
            session: AtomicPtr::new(ptr::null_mut()),
            node: AtomicPtr::new(ptr::null_mut()),
            next: AtomicPtr::new(FIRST.load(Acquire)),
        }));
        FIRST.store(place, Release);
        place
    }

    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    pub(crate) fn instance(&self) -> u64 {
        self.instance
    }

    fn existing(&self) -> Option<&'static Attached> {
        // SAFETY: null, or a session that was leaked when it was made.
        unsafe { self.session.load(Acquire).as_ref() }
    }

    /// The session, attached when there is none yet, and the epoch to which it belongs.
    ///
    /// # Errors
    /// ENOENT, ECONNREFUSED: the instance has ended. ESTALE: another one has taken its name.
    /// EPROTO: it is of another version. Otherwise what the supervisor or the kernel says.
    pub(crate) fn session(&self) -> Result<(&'static Attached, u32), Errno> {
        let epoch = fork::notice();
        if let Some(session) = self.existing() {
            return Ok((session, epoch));
        }
        let _held = ATTACHING.hold();
        if let Some(session) = self.existing() {
            return Ok((session, epoch));
        }
        let session = Box::leak(Box::new(self.attach()?));
        self.session.store(session, Release);
        Ok((session, epoch))
    }

    fn attach(&self) -> Result<Attached, Errno> {
        let socket = self.run_dir.join("sock");
        let attachment = attach(&AttachOptions {
            socket_path: socket.as_os_str().as_bytes(),
            fd_min: 3,
            // SAFETY: null, or a node's tables, which stay mapped.
            node: unsafe { self.node.load(Acquire).as_ref() },
            earlier: Earlier::Stays,
        })?;
        descriptors::note(attachment.evidence_fd);
        let node = attachment.node;
        if node.head.instance.load(Relaxed) != self.instance {
            return Err(Errno::ESTALE);
        }
        let shown = ptr::from_ref(node).cast_mut();
        let _ = self.node.compare_exchange(ptr::null_mut(), shown, AcqRel, Acquire);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let objects = rustix::fs::open(&self.objects, flags, Mode::empty())
            .map_err(|error| Errno::from_raw(error.raw_os_error()).unwrap_or(Errno::EIO))?
            .into_raw_fd();
        descriptors::note(objects);
        let kept = PythonDescriptors { run_dir: self.run_dir.clone() };
        let directory = ObjectDirectory(objects);
        let mut client = Client::new(attachment.transport, Node::of(node), directory, kept)?;
        if let Some(leases) = client.transport().file_leases() {
            client.use_leases(leases);
        }
        if let Some(tally) = client.transport().tally() {
            client.count_in(Counts::of(node, tally));
        }
        if let Ok(records) = std::fs::File::open(self.run_dir.join("records")) {
            client.read_records(records.as_raw_fd());
        }
        Ok(Attached { client, umask: umask() })
    }
}

/// The process's umask. It can only be asked for by reading: another way would change it for a
/// moment, for all threads.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let said = line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    said.unwrap_or(UMASK_USUAL)
}

//! The process that serves one mount: its session, its threads, its end.
//!
//! [`placement`] says on which processor requests are served. [`crate::operations`] performs them.

mod placement;

use std::{
    os::{
        fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    sync::Arc,
    thread,
};

use anyhow::{Context, Result, anyhow};
use mayfly_client::{Client, Counts, Descriptors, Mirror, Node, ObjectDirectory};
use mayfly_sys::{file, text::PathText};
use mayfly_transport_shm::{AttachOptions, Earlier, ShmTransport, attach};
use mayfly_types::{Attr, Errno, OpenRef, mirror};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags},
    pipe::{PipeFlags, pipe_with},
};

use placement::Placement;

use crate::{
    kernel::{
        abi::{Body, Header, IN_HEADER_BYTES, READ_BYTES_MAX, WRITE_BYTES_MAX},
        device::{Device, Received},
        mount::{self, Way},
        spliced::Pipe,
    },
    memory::{
        believed::{Believed, Promise},
        consistency::Consistency,
        held::Held,
        locks::Locks,
        mapped::{Changed, Mapped, Telling},
        nodes::Nodes,
        recent::Recent,
        seen::Seen,
        submitted::Submitted,
    },
    reply::Reply,
};

/// Threads that perform requests. As many of a session's lanes stay free for the queue of locks.
const THREADS: usize = 8;
/// A write request as a whole: header, `struct fuse_write_in`, data.
const REQUEST_BYTES_MAX: usize = IN_HEADER_BYTES + 40 + WRITE_BYTES_MAX;

const _: () = assert!(THREADS < mayfly_types::limits::LANES);

/// What is served, and where.
#[derive(Debug, Clone)]
pub struct Place {
    /// The supervisor's socket.
    pub socket: PathBuf,
    /// The node's object directory.
    pub objects: PathBuf,
    /// The instance's name: the mount's source in `/proc/mounts`.
    pub name: String,
    /// The directory to mount at.
    pub point: PathBuf,
    /// How to mount.
    pub way: Way,
    /// What programs may rely on.
    pub consistency: Consistency,
}

/// The session's descriptors stay where they are: this process has no application to hide them
/// from.
pub(crate) struct InPlace {
    run_dir: PathBuf,
}

impl Descriptors for InPlace {
    fn conceal(&self, descriptor: i32) -> Result<i32, Errno> {
        Ok(descriptor)
    }

    fn release(&self, descriptor: i32) {
        file::close(descriptor);
    }

    fn mirror(&self) -> Result<Mirror, Errno> {
        let mut path = PathText::from_bytes(self.run_dir.as_os_str().as_bytes())?;
        path.push_component(mirror::DIRECTORY.as_bytes())?;
        Ok(Mirror { start: file::AT_FDCWD, path })
    }
}

/// The state that all threads share.
pub(crate) struct Server {
    pub(crate) client: Client<ShmTransport, InPlace>,
    pub(crate) device: Device,
    pub(crate) nodes: Nodes,
    pub(crate) recent: Recent<Attr>,
    pub(crate) locks: Locks,
    pub(crate) consistency: Consistency,
    pub(crate) seen: Seen,
    pub(crate) held: Held,
    pub(crate) mapped: Mapped,
    pub(crate) telling: Telling,
    pub(crate) believed: Believed,
    pub(crate) submitted: Submitted,
    placement: Placement,
    /// Opens that were answered with a wish to look the name up again.
    pub(crate) refreshed: Recent<()>,
}

/// Memory of one thread, used again for each request.
pub(crate) struct Work {
    pub(crate) body: Body,
    pub(crate) data: Vec<u8>,
    pub(crate) pipe: Pipe,
    /// Of which other mounts are to be told before the answer.
    pub(crate) changed: Option<Changed>,
    /// To be closed after that.
    pub(crate) closes: Option<OpenRef>,
    /// What the kernel may believe by the answer.
    pub(crate) promise: Option<Promise>,
}

/// Mounts the instance, says so with `ready`, and serves it until `stop` hangs up or the mount is
/// gone. It is not mounted any more then.
///
/// # Errors
/// Says why it cannot be served there.
pub fn serve(place: &Place, stop: impl AsFd, ready: impl FnOnce()) -> Result<()> {
    let client = open_client(place)?;
    let device = mount::mount(&place.point, &place.name, place.way)?;
    let server = Server {
        client,
        device: Device::new(device),
        nodes: Nodes::default(),
        recent: Recent::default(),
        locks: Locks::default(),
        consistency: place.consistency,
        seen: Seen::default(),
        held: Held::default(),
        mapped: Mapped::default(),
        telling: Telling::default(),
        believed: Believed::default(),
        submitted: Submitted::default(),
        placement: Placement::start()?,
        refreshed: Recent::default(),
    };
    let server = Arc::new(server);
    let (served, serving) = pipe_with(PipeFlags::CLOEXEC)?;
    let serving = Arc::new(serving);
    for number in 0..THREADS {
        let (server, serving) = (Arc::clone(&server), Arc::clone(&serving));
        let work = move || {
            server.work();
            // One byte says it; nobody reads it.
            let _ = rustix::io::write(&serving, &[0]);
        };
        thread::Builder::new().name(format!("fuse-{number}")).spawn(work)?;
    }
    let waiter = Arc::clone(&server);
    thread::Builder::new().name("fuse-locks".to_owned()).spawn(move || waiter.serve_waiting())?;
    for (name, work) in
        [("fuse-watch", Server::watch as fn(&Server)), ("fuse-tell", Server::tell_others)]
    {
        let server = Arc::clone(&server);
        thread::Builder::new().name(name.to_owned()).spawn(move || work(&server))?;
    }
    ready();
    wait_for_end(stop, &served)?;
    mount::unmount(&place.point);
    Ok(())
}

/// Returns when there is nobody to serve for, or nothing to be served: a thread that serves has
/// ended, and has said so to `served`.
///
/// The device itself is not waited for. A thread that polls it is woken by each request, whatever
/// it has asked for. That cost more than the request.
fn wait_for_end(stop: impl AsFd, served: &OwnedFd) -> Result<()> {
    loop {
        let mut ends = [PollFd::new(&stop, PollFlags::IN), PollFd::new(served, PollFlags::IN)];
        match poll(&mut ends, None) {
            Ok(_) if ends.iter().any(|end| !end.revents().is_empty()) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn open_client(place: &Place) -> Result<Client<ShmTransport, InPlace>> {
    let socket_path = place.socket.as_os_str().as_bytes();
    let options = AttachOptions { socket_path, fd_min: 3, node: None, earlier: Earlier::Ends };
    let attached = attach(&options)
        .map_err(|errno| anyhow!("cannot attach at {}: {errno}", place.socket.display()))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let objects = rustix::fs::open(&place.objects, flags, Mode::empty())
        .with_context(|| format!("cannot open {}", place.objects.display()))?;
    let node = Node::of(attached.node);
    let directory = ObjectDirectory(objects.into_raw_fd());
    let run_dir = place.socket.parent().context("a directory with the socket")?.to_owned();
    let tally = attached.transport.tally();
    let mut client = Client::new(attached.transport, node, directory, InPlace { run_dir })
        .map_err(|errno| anyhow!("the session's memory: {errno}"))?;
    client.leave_telling();
    if let Some(tally) = tally {
        client.count_in(Counts::of(attached.node, tally));
    }
    if let Ok(records) = std::fs::File::open(place.socket.with_file_name("records")) {
        client.read_records(records.as_raw_fd());
    }
    Ok(client)
}

impl Server {
    fn work(&self) {
        let mut request = vec![0; REQUEST_BYTES_MAX];
        let mut work = Work {
            body: Body::valid_for(self.consistency.valid_s()),
            data: vec![0; READ_BYTES_MAX],
            pipe: Pipe::default(),
            changed: None,
            closes: None,
            promise: None,
        };
        let mut here = placement::Place::here();
        loop {
            here.follow(&self.placement);
            match self.device.receive(&mut request) {
                Ok(Received::Request(bytes)) => {
                    self.attend(request.get(..bytes).unwrap_or(&[]), &mut work);
                }
                Ok(Received::Unmounted) => return,
                Err(error) => {
                    crate::say(format_args!("cannot read requests: {error}"));
                    return;
                }
            }
        }
    }

    fn attend(&self, request: &[u8], work: &mut Work) {
        // Without a header there is nobody to answer.
        let Ok((header, fields)) = Header::split(request) else { return };
        let _under_way = self.placement.attend(&header);
        work.body.clear();
        (work.changed, work.closes, work.promise) = (None, None, None);
        let performed = self.perform(&header, fields, work);
        // Before the answer, after which the thread may ask for the next thing.
        self.performed(&header, performed.err());
        match performed {
            Ok(Reply::Body) => match (work.changed.take(), work.promise.take()) {
                (Some(changed), _) => self.answer_when_told(header.unique, changed, work),
                (None, Some(promise)) => {
                    let give = |body: &[u8]| self.device.answer(header.unique, body);
                    self.believed.answer(&promise, work.body.bytes_mut(), give);
                }
                (None, None) => self.device.answer(header.unique, work.body.bytes()),
            },
            Ok(Reply::Data(count)) => {
                self.device.answer(header.unique, work.data.get(..count).unwrap_or(&[]));
            }
            Ok(Reply::Later) => {}
            Err(errno) => self.device.refuse(header.unique, errno),
        }
    }
}

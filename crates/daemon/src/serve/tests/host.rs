//! The supervisor's part, as small as it can be: a thread for each connection.

use std::{
    mem::MaybeUninit,
    net::TcpListener,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

use mayfly_transport_shm::{
    AttachOptions, Attachment, Earlier, attach, hello,
    layout::{DAEMON_ABSENT, NodeRegion},
    region,
};
use mayfly_types::{Errno, SessionId};
use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{AddressFamily, SocketFlags, SocketType},
    process::{PidfdFlags, pidfd_open},
};

use crate::serve::{
    sessions::channel::{self, Message},
    tests::ledger::Ledgers,
};

/// How long what must come may take while other programs use the processors.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for something that must come.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not so after {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

struct Known {
    session: SessionId,
    pid: u32,
    region: OwnedFd,
    process: OwnedFd,
}

struct Inner {
    node_fd: OwnedFd,
    /// Channel to the daemon, and the sessions it must hear of; one lock, so that it hears of each
    /// once.
    told: Mutex<(Option<OwnedFd>, Vec<Known>)>,
    last_session: AtomicU32,
}

/// A node: regions, socket, sessions. Its files are removed with it.
pub(super) struct Host {
    inner: Arc<Inner>,
    pub(super) node: &'static NodeRegion,
    pub(super) directory: PathBuf,
    pub(super) shards: u32,
    /// Where its daemons listen for those of other nodes.
    pub(super) listener: Option<TcpListener>,
    releases: OwnedFd,
    /// Where it hears of processes.
    door: Arc<OwnedFd>,
}

impl Host {
    pub(super) fn new(name: &str, deadline_ms: u32) -> Host {
        Host::of_shards(name, deadline_ms, 1)
    }

    /// Its daemons have so many shards.
    pub(super) fn of_shards(name: &str, deadline_ms: u32, shards: u32) -> Host {
        let directory =
            std::env::temp_dir().join(format!("mayfly-serve-{name}-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("ofd")).expect("a directory");
        let settings = region::NodeSettings { instance: 77, times: 1, locks: 1, deadline_ms };
        let (node_fd, node) = region::make_node(&settings).expect("a node region");
        let flags =
            rustix::fs::inotify::CreateFlags::NONBLOCK | rustix::fs::inotify::CreateFlags::CLOEXEC;
        let releases = rustix::fs::inotify::init(flags).expect("inotify");
        let watched = rustix::fs::inotify::WatchFlags::CLOSE;
        rustix::fs::inotify::add_watch(&releases, directory.join("ofd"), watched).expect("a watch");
        let told = Mutex::new((None, Vec::new()));
        let inner = Arc::new(Inner { node_fd, told, last_session: AtomicU32::new(0) });
        let door = Arc::new(listen(&directory.join("sock")));
        attend_all(&door, &inner);
        Host { inner, node, directory, shards, listener: None, releases, door }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join("sock")
    }

    pub(super) fn ledgers(&self) -> Ledgers {
        Ledgers::new(&self.directory, self.shards)
    }

    /// What the daemons of this node did.
    pub(super) fn done(&self) -> Vec<String> {
        self.ledgers().read().into_iter().flatten().collect()
    }

    /// The requests of client processes that were answered.
    pub(super) fn acknowledged(&self) -> Vec<String> {
        let file = self.directory.join("acknowledged");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until a client process was answered: so the daemon has heard of its session.
    pub(super) fn until_answered(&self, client: u32) {
        let of_client = format!("{client}-");
        let is_its = |name: &String| name.starts_with(&of_client);
        until("a client is answered", || self.acknowledged().iter().any(is_its));
    }

    /// What the daemon says next to its supervisor.
    pub(super) fn hear(&self) -> Message {
        let channel = {
            let told = self.inner.told.lock().expect("no thread panics");
            told.0.as_ref().expect("a daemon").try_clone().expect("a descriptor")
        };
        channel::receive(&channel).expect("the daemon speaks").expect("it lives").0
    }

    /// Hands everything to a daemon at the other end of the socket that is returned.
    pub(super) fn begin(&self) -> OwnedFd {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a socket pair");
        self.node.head.daemon_state.store(DAEMON_ABSENT, SeqCst);
        self.node.head.daemon_starts.fetch_add(1, Relaxed);
        self.node.head.writers.store(0, Relaxed);
        let mut told = self.inner.told.lock().expect("no thread panics");
        let node = [self.inner.node_fd.as_fd()];
        channel::send(&ours, &Message::Node, &node).expect("send");
        let releases = [self.releases.as_fd()];
        channel::send(&ours, &Message::Releases, &releases).expect("send");
        for known in &told.1 {
            known.tell(&ours);
        }
        if let Some(listener) = &self.listener {
            let message = Message::Net("5a".repeat(32));
            channel::send(&ours, &message, &[listener.as_fd()]).expect("send");
        }
        channel::send(&ours, &Message::Start, &[]).expect("send");
        told.0 = Some(ours);
        theirs
    }

    /// Waits until the daemon answers.
    pub(super) fn wait_until_ready(&self) {
        while self.node.head.daemon_state.load(SeqCst) == DAEMON_ABSENT {
            thread::yield_now();
        }
    }

    /// Starts a daemon as a process.
    pub(super) fn start_daemon(&self) -> Child {
        let theirs = self.begin();
        spawn("daemon", &self.directory, self.shards)
            .stdin(Stdio::from(theirs))
            .spawn()
            .expect("a daemon")
    }

    pub(super) fn stop(&self) {
        if let Some(channel) = &self.inner.told.lock().expect("no thread panics").0 {
            // A daemon that is gone has stopped.
            let _sent = channel::send(channel, &Message::Stop, &[]);
        }
    }

    /// The memory of the first session.
    pub(super) fn region(&self) -> OwnedFd {
        let told = self.inner.told.lock().expect("no thread panics");
        told.1[0].region.try_clone().expect("a descriptor")
    }

    pub(super) fn sessions(&self) -> usize {
        self.inner.told.lock().expect("no thread panics").1.len()
    }

    /// Tells the daemon that the process of the last session is gone.
    pub(super) fn end_last_session(&self) {
        let mut told = self.inner.told.lock().expect("no thread panics");
        let known = told.1.pop().expect("a session");
        let channel = told.0.as_ref().expect("a daemon");
        channel::send(channel, &Message::End(known.session), &[]).expect("send");
    }

    pub(super) fn attach(&self) -> Attachment {
        attach_to(&self.socket()).expect("attached")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
        // Daemons would keep the inotify queue, of which a user has 128, until all tests end.
        self.inner.told.lock().expect("no thread panics").0 = None;
        let _shut = rustix::net::shutdown(&*self.door, rustix::net::Shutdown::Both);
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

fn listen(socket: &Path) -> OwnedFd {
    let listener = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .expect("a socket");
    let address = rustix::net::SocketAddrUnix::new(socket).expect("a short path");
    rustix::net::bind(&listener, &address).expect("bind");
    rustix::net::listen(&listener, 64).expect("listen");
    listener
}

/// Until the door is shut.
fn attend_all(door: &Arc<OwnedFd>, inner: &Arc<Inner>) {
    let (door, inner) = (Arc::clone(door), Arc::clone(inner));
    thread::spawn(move || {
        while let Ok(connection) = rustix::net::accept_with(&*door, SocketFlags::CLOEXEC) {
            let inner = Arc::clone(&inner);
            thread::spawn(move || inner.attend(&connection));
        }
    });
}

pub(super) fn attach_to(socket: &Path) -> Result<Attachment, Errno> {
    let socket_path = socket.as_os_str().as_encoded_bytes();
    attach(&AttachOptions { socket_path, fd_min: 200, node: None, earlier: Earlier::Ends })
}

/// This program again, in another role.
pub(super) fn spawn(role: &str, directory: &Path, number: u32) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "--ignored", "--nocapture", &format!("serve::tests::roles::{role}")])
        .env("SERVE_TEST_DIRECTORY", directory)
        .env("SERVE_TEST_NUMBER", number.to_string())
        .stdout(Stdio::null());
    command
}

impl Known {
    fn tell(&self, channel: &OwnedFd) {
        let message = Message::Session { session: self.session, pid: self.pid };
        let fds = [self.region.as_fd(), self.process.as_fd()];
        // A daemon that is gone hears it when it starts again.
        let _sent = channel::send(channel, &message, &fds);
    }
}

impl Inner {
    fn attend(&self, connection: &OwnedFd) {
        let mut bytes = [0; hello::HELLO_BYTES];
        let flags = rustix::net::RecvFlags::empty();
        let Ok((count, _)) = rustix::net::recv(connection, &mut bytes, flags) else { return };
        if hello::kind_of(&bytes[..count]) != Some(hello::KIND_ATTACH) {
            return;
        }
        let peer = rustix::net::sockopt::socket_peercred(connection).expect("credentials");
        let process = pidfd_open(peer.pid, PidfdFlags::empty()).expect("a pidfd");
        let session = SessionId(self.last_session.fetch_add(1, Relaxed) + 1);
        let pid = peer.pid.as_raw_nonzero().get() as u32;
        let region = region::make_session(session, pid).expect("a session region");
        let evidence = process.try_clone().expect("a descriptor");
        let theirs = region.try_clone().expect("a descriptor");
        {
            let known = Known { session, pid, region, process };
            let mut told = self.told.lock().expect("no thread panics");
            if let Some(channel) = &told.0 {
                known.tell(channel);
            }
            told.1.push(known);
        }
        answer(connection, session, [self.node_fd.as_fd(), theirs.as_fd()]);
        let mut ends =
            [PollFd::new(connection, PollFlags::RDHUP), PollFd::new(&evidence, PollFlags::IN)];
        while !matches!(poll(&mut ends, None), Ok(1..)) {}
        let mut told = self.told.lock().expect("no thread panics");
        told.1.retain(|known| known.session != session);
        if let Some(channel) = &told.0 {
            // As above.
            let _sent = channel::send(channel, &Message::End(session), &[]);
        }
    }
}

fn answer(connection: &OwnedFd, session: SessionId, fds: [std::os::fd::BorrowedFd<'_>; 2]) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let bytes = hello::Answer { session: session.0, status: 0, instance: 77 }.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "there is room for two");
    let parts = [std::io::IoSlice::new(&bytes)];
    // A client that was killed does not wait for it.
    let _sent = sendmsg(connection, &parts, &mut control, SendFlags::NOSIGNAL);
}

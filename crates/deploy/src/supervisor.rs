//! The supervisor: what an instance's life hangs on.
//!
//! It owns the socket, makes every region of shared memory, keeps the evidence that processes live,
//! and starts the daemon, again and again if need be. It knows no file system. One thread, one
//! epoll; asleep unless something happens. It never waits for the daemon ([`outbox`]), which may be
//! stopped. It ends when it is told to, when the lifeline to whoever started it is cut before it
//! was detached, or when the daemon dies again and again without having served.
//!
//! [`launch`] starts a supervisor and holds on to it, [`control`] sends it commands, and
//! [`process_end`] is how the end of a process reaches an epoll.

mod children;
mod connections;
pub mod control;
mod ears;
mod images;
pub(crate) mod launch;
mod lifeline;
mod line;
pub(crate) mod mounts;
mod outbox;
pub(crate) mod process_end;
pub(crate) mod sessions;
mod tier;
mod watch;
mod watched;

use std::{
    fs::OpenOptions,
    io::Read,
    os::{
        fd::OwnedFd,
        unix::{fs::OpenOptionsExt, net::UnixStream},
    },
    path::Path,
    sync::atomic::Ordering::Relaxed,
};

use anyhow::{Context, Result, anyhow, bail};
use mayfly_daemon::serve::channel::{self, Message};
use mayfly_image::plain;
use mayfly_transport_shm::{
    layout::NodeRegion,
    region::{NodeSettings, make_node},
};
use mayfly_types::{Durability, Errno, SessionId};
use rustix::{
    event::epoll,
    fs::inotify,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

use crate::{
    Config,
    instance::{self, Keep, Locked, SOCKET_NAME, mount_point},
    log,
    nodes::Net,
    signals,
};
use children::{Daemon, Restarts};
use connections::Connections;
use control::{LOST, View};
use ears::{Around, Ears};
use images::Images;
use lifeline::{Lifeline, Word};
use line::{Handed, Line};
use mounts::{MountEvent, Mounts};
use sessions::Sessions;
use tier::TierKeeper;
pub(crate) use watch::{Source, Watch};
use watched::Watched;

/// Connections that the kernel queues while the supervisor is busy.
const BACKLOG: i32 = 512;
/// Events taken from the kernel at a time.
const EVENTS: usize = 64;
/// When to try again to tell the daemon something for which the kernel was short of resources.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

struct Supervisor {
    config: Config,
    keep: bool,
    _lock: Locked,
    watch: Watch,
    listener: OwnedFd,
    lifeline: Lifeline,
    end_requests: UnixStream,
    handed: Handed,
    region: &'static NodeRegion,
    sessions: Sessions,
    connections: Connections,
    images: Images,
    mounts: Mounts,
    tier: TierKeeper,
    watched: Watched,
    ears: Ears,
    line: Line,
    restarts: Restarts,
    /// How the daemon ended with which everything is gone.
    lost: Option<String>,
    /// Why the loop ends.
    end: Option<Result<()>>,
}

/// Runs the supervisor of the instance in `run_dir` until its end. Standard input is the lifeline.
///
/// # Errors
/// When the instance cannot serve; it has been cleaned up then.
pub fn run(run_dir: &Path) -> Result<()> {
    // Out of the terminal's reach: an interrupt there is for the command, not for its file system.
    let _ = rustix::process::setsid();
    raise_descriptor_limit();
    let config = Config::load(run_dir)?;
    let mut lifeline = Lifeline::from_stdin()?;
    let Some(lock) = instance::lock(&config.run_dir)? else {
        let why = format!("another supervisor holds {}", config.run_dir.display());
        lifeline.say(&why);
        bail!(why);
    };
    life(config, lock, lifeline, None)
}

/// The same for one node of several, whose directories are made and locked. `line` leads to its
/// relay.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_node(config: Config, lock: Locked, line: UnixStream, net: Net) -> Result<()> {
    raise_descriptor_limit();
    let lifeline = Lifeline::new(line, Some(net.node))?;
    life(config, lock, lifeline, Some(net))
}

fn life(config: Config, lock: Locked, mut lifeline: Lifeline, net: Option<Net>) -> Result<()> {
    match Supervisor::begin(config.clone(), lock, lifeline.try_clone()?, net) {
        Ok(mut supervisor) => {
            supervisor.serve();
            supervisor.finish()
        }
        Err(error) => {
            let log = instance::log_tail(&config.run_dir);
            instance::remove(&config, if config.keep { Keep::Data } else { Keep::Nothing });
            lifeline.say_failed(&format!("{error:#}"), log);
            Err(error)
        }
    }
}

impl Supervisor {
    fn begin(
        config: Config,
        lock: Locked,
        lifeline: Lifeline,
        net: Option<Net>,
    ) -> Result<Supervisor> {
        log::begin(&config.run_dir, config.node.unwrap_or(0))?;
        let watch = Watch(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let listener = listen_at(&config.run_dir.join(SOCKET_NAME))?;
        let settings = NodeSettings {
            instance: config.instance,
            times: config.options.times()? as u32,
            locks: u32::from(config.options.locks),
            deadline_ms: config.options.deadline_ms() as u32,
        };
        make_plain(&config.run_dir)?;
        let (node, region) = make_node(&settings).map_err(|errno| anyhow!("{errno}"))?;
        region.head.tier.origins.store(config.options.origins.len() as u32, Relaxed);
        let write_back = &config.options.write_back;
        region.head.tier.at_close.store(u32::from(write_back.when()?.at_close), Relaxed);
        region.head.tier.at_write.store(u32::from(write_back.at_write), Relaxed);
        let releases = watch_slot_files(&config.run_dir.join("ofd"))?;
        watch.add(&listener, Source::Listener)?;
        watch.add(&lifeline, Source::Lifeline)?;
        let ears = Ears::new(&watch)?;
        signals::outlive()?;
        let end_requests = signals::end_requests()?;
        watch.add(&end_requests, Source::EndRequested)?;
        let mut supervisor = Supervisor {
            keep: config.keep,
            sessions: Sessions::new(config.instance, region),
            connections: Connections::default(),
            images: Images::default(),
            mounts: Mounts::default(),
            tier: TierKeeper::default(),
            watched: Watched::default(),
            ears,
            restarts: Restarts::new(region),
            region,
            line: Line::new(),
            lost: None,
            end: None,
            _lock: lock,
            config,
            watch,
            listener,
            lifeline,
            end_requests,
            handed: Handed { node, releases, net },
        };
        supervisor.start_daemon()?;
        Ok(supervisor)
    }

    fn serve(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while self.end.is_none() {
            self.line.flush(&self.handed, &self.sessions, &self.watch);
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            let retry = self.line.is_short().then_some(RETRY);
            let wait = retry.or_else(|| self.watched.wait());
            match epoll::wait(&self.watch.0, room, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => self.end = Some(Err(error.into())),
            }
            for event in &events {
                if let Some(source) = Source::of(event.data.u64()) {
                    self.attend(source);
                }
            }
            self.watched.look(&self.config.run_dir, &self.region.head.watched);
        }
    }

    fn attend(&mut self, source: Source) {
        let done = match source {
            Source::Listener => self.connections.accept(&self.listener, &self.watch),
            Source::Lifeline => {
                self.hear();
                Ok(())
            }
            Source::Channel => self.hear_daemon(),
            Source::DaemonExit => self.daemon_died(),
            Source::Connection(number) => self.hear_connection(number),
            Source::Evidence(session) | Source::Process(session) => {
                self.end_session(session);
                Ok(())
            }
            Source::Maker(number) => {
                let around =
                    Around { config: &self.config, watch: &self.watch, ear: &self.ears.image };
                self.images.made(number, &around);
                Ok(())
            }
            Source::Mount(number) => {
                self.hear_mount(number);
                Ok(())
            }
            Source::Tier => {
                let around =
                    Around { config: &self.config, watch: &self.watch, ear: &self.ears.tier };
                self.tier.hear(&around)
            }
            Source::EndRequested => self.end_requested(),
            Source::Ear(number) => {
                self.ears.hear(number);
                Ok(())
            }
        };
        if let Err(error) = done {
            log::warn(format_args!("{error:#}"));
        }
    }

    fn hear(&mut self) {
        for word in self.lifeline.hear() {
            match word {
                Word::Keep => self.keep = true,
                Word::Discard => self.keep = self.config.keep,
                Word::Stop => self.end = Some(Ok(())),
                Word::Detach => {
                    self.watch.remove(&self.lifeline);
                    self.lifeline.say("detached");
                    self.lifeline.close();
                }
                Word::Cut => {
                    log::warn("whoever started the instance is gone; it ends");
                    self.end = Some(Ok(()));
                }
            }
        }
    }

    /// The process that started the instance has got the signal too, and decides when the instance
    /// ends.
    fn end_requested(&mut self) -> Result<()> {
        let _ = (&self.end_requests).read(&mut [0; 64])?;
        if self.lifeline.is_closed() {
            log::warn("the instance ends, since somebody sent SIGTERM");
            self.end = Some(Ok(()));
        }
        Ok(())
    }

    fn hear_connection(&mut self, number: u32) -> Result<()> {
        let Some(heard) = self.connections.hear(number, &self.watch)? else { return Ok(()) };
        match heard {
            connections::Heard::Attach { connection, pid, earlier } => {
                for session in self.sessions.succeeded_by(pid, earlier) {
                    self.end_session(session);
                }
                if self.lost.is_some() {
                    self.sessions.refuse(&connection, Errno::EIO);
                    return Ok(());
                }
                let made = self.sessions.open(connection, (pid, earlier), &self.watch)?;
                self.line.begin_session(made);
                self.sessions.welcome(made, &self.handed.node);
            }
            connections::Heard::Image { connection, pid, request } => {
                let around =
                    Around { config: &self.config, watch: &self.watch, ear: &self.ears.image };
                self.images.ask(connection, pid, &request, &around);
            }
            connections::Heard::Mount { connection, point } => {
                let around =
                    Around { config: &self.config, watch: &self.watch, ear: &self.ears.mount };
                self.mounts.add(&point, Some(connection), &around);
            }
            connections::Heard::Look(connection) => self.view().tell(&connection),
            connections::Heard::Stop => self.end = Some(Ok(())),
        }
        Ok(())
    }

    fn view(&self) -> View {
        View {
            supervisor_pid: std::process::id().cast_signed(),
            daemon_pid: self.line.daemon().map(Daemon::pid),
            starts: self.region.head.daemon_starts.load(Relaxed),
            sessions: self.sessions.attached(),
            owed: self.line.owed(),
            mounts: self.mounts.points(),
            server: self.mounts.server(),
            lost: self.lost.clone(),
        }
    }

    fn end_session(&mut self, session: SessionId) {
        if !self.sessions.end(session, &self.watch) {
            return;
        }
        self.watched.may_have_ended(&self.region.head.watched);
        if !self.line.end_session(session) {
            self.sessions.forget(session);
        }
    }

    fn hear_daemon(&mut self) -> Result<()> {
        let Some(daemon) = self.line.daemon() else { return Ok(()) };
        match channel::receive(&daemon.channel) {
            Ok(Some((Message::Ready, _))) => {
                log::info(format_args!("the daemon serves (process {})", daemon.pid()));
                if self.restarts.served() {
                    self.first_served()?;
                }
            }
            Ok(Some((Message::Ended(session), _))) => self.sessions.forget(session),
            Ok(Some((Message::Failed(why), _))) => self.restarts.failed(why),
            Ok(Some((other, _))) => bail!("the daemon sends {other:?}"),
            Ok(None) => self.watch.remove(&daemon.channel),
            Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => bail!("the channel to the daemon: {error}"),
        }
        Ok(())
    }

    /// The daemon serves: the instance does so too when it is mounted, if it is to be.
    fn first_served(&mut self) -> Result<()> {
        if !self.config.options.origins.is_empty() {
            let around = Around { config: &self.config, watch: &self.watch, ear: &self.ears.tier };
            self.tier.start(&around)?;
        }
        if self.config.way()?.is_some() {
            let around = Around { config: &self.config, watch: &self.watch, ear: &self.ears.mount };
            self.mounts.add(&self.config.mount, None, &around);
        } else {
            self.lifeline.say("ready");
        }
        Ok(())
    }

    fn hear_mount(&mut self, number: u32) {
        match self.mounts.hear(number, &self.watch) {
            MountEvent::Mounted { main: true } => self.lifeline.say("ready"),
            MountEvent::Failed { main: true, why } if self.config.options.access == "auto" => {
                log::info(format_args!("{why}; only the preload library leads to the instance"));
                mount_point::close(&self.config);
                self.lifeline.say("ready");
            }
            MountEvent::Failed { main: true, why } => self.end = Some(Err(anyhow!("{why}"))),
            MountEvent::Ended { main: true } => {
                log::warn(format_args!("{} is not mounted any more", self.config.mount.display()));
                mount_point::close(&self.config);
            }
            MountEvent::Nothing
            | MountEvent::Mounted { .. }
            | MountEvent::Failed { .. }
            | MountEvent::Ended { .. } => {}
        }
    }

    fn daemon_died(&mut self) -> Result<()> {
        let Some(daemon) = self.line.end() else { return Ok(()) };
        self.watch.remove(&daemon.channel);
        self.watch.remove(&daemon.exit);
        let how = daemon.reap();
        // Its last words come before what is said of its end.
        self.ears.daemon.hear_the_rest();
        self.sessions.forget_ended();
        if self.restarts.has_served() && self.config.options.durability()? == Durability::None {
            log::error(format_args!(
                "the daemon ended ({how}), and the instance's content with it"
            ));
            self.region.lose();
            self.lost = Some(how);
            return Ok(());
        }
        log::warn(format_args!("the daemon ended ({how}); starting another"));
        let started = match self.restarts.again() {
            Ok(()) => self.start_daemon(),
            Err(why) => Err(anyhow!("the daemon does not serve: {why} ({how})")),
        };
        if let Err(why) = started {
            self.end = Some(Err(why));
        }
        Ok(())
    }

    fn start_daemon(&mut self) -> Result<()> {
        let daemon = Daemon::start(&self.config.run_dir, self.ears.daemon.for_child()?)?;
        self.watch.add(&daemon.channel, Source::Channel)?;
        self.watch.add(&daemon.exit, Source::DaemonExit)?;
        self.restarts.starting();
        self.line.begin(daemon, &self.handed, self.sessions.alive());
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        let ended = self.end.take().unwrap_or(Ok(()));
        match &ended {
            Ok(()) => log::info("the instance ends"),
            Err(error) => log::error(format_args!("the instance ends: {error:#}")),
        }
        // While there is a daemon that takes what mapped pages still hold.
        self.mounts.end();
        self.tier.stop();
        if let Some(daemon) = self.line.end() {
            daemon.stop();
        }
        self.images.end();
        self.ears.hear_the_rest();
        let dirty = self.region.head.tier.dirty.load(Relaxed);
        if dirty > 0 && self.lost.is_none() {
            log::error(format_args!(
                "{dirty} files or changes of names are not written back to their origins, and \
                 the data are kept in {}",
                self.config.data_dir.display()
            ));
            self.keep = true;
        }
        let keep = if self.keep { Keep::Data } else { Keep::Nothing };
        let log = ended.is_err().then(|| instance::log_tail(&self.config.run_dir));
        let left = instance::remove(&self.config, keep);
        let word = match (&ended, left.is_empty()) {
            (Ok(()), true) if self.lost.is_some() => {
                format!("{LOST}{}", self.lost.unwrap_or_default())
            }
            (Err(error), _) => format!("{error:#}").replace('\n', " "),
            (Ok(()), true) => "stopped".to_owned(),
            (Ok(()), false) => format!("could not be removed: {}", left.join(", ")),
        };
        match log {
            Some(log) => self.lifeline.say_failed(&word, log),
            None => self.lifeline.say(&word),
        }
        self.connections.answer_stops(&word);
        ended
    }
}

/// Each session takes three descriptors here, and descriptors under way in the channel count too.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Without it, fewer processes can attach.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The table of code without system calls, in which nothing is known yet.
fn make_plain(run_dir: &Path) -> Result<()> {
    let path = run_dir.join(plain::NAME);
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    let sized = file.and_then(|file| file.set_len(plain::BYTES as u64));
    sized.with_context(|| format!("cannot make {}", path.display()))
}

/// What tells of the end of shared open file descriptions: an inotify queue, or where this user has
/// no more of them, a timer that says when to look
/// ([`mayfly_daemon::serve::releases`]).
fn watch_slot_files(directory: &Path) -> Result<OwnedFd> {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let releases = match inotify::init(flags) {
        Err(rustix::io::Errno::MFILE) => {
            log::info(
                "this user has as many inotify instances as the kernel allows \
                 (fs.inotify.max_user_instances): closed files are looked for once a second",
            );
            return Ok(every_second()?);
        }
        releases => releases?,
    };
    inotify::add_watch(&releases, directory, inotify::WatchFlags::CLOSE)?;
    Ok(releases)
}

fn every_second() -> rustix::io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let every = Itimerspec { it_interval: second, it_value: second };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    Ok(timer)
}

fn listen_at(path: &Path) -> Result<OwnedFd> {
    let _ = std::fs::remove_file(path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&listener, &SocketAddrUnix::new(path)?)
        .with_context(|| format!("cannot listen at {}", path.display()))?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

//! From the handover to threads that serve: one for each shard.
//!
//! It takes two steps, each of which all shards finish before the next. First every shard opens
//! what it keeps and says how far that is committed. By this the replies in the lanes are judged
//! which the last daemon stored and did not show: before anything new is committed, since a new
//! transaction may have the number of one that was lost. Then every shard takes up its records. A
//! shard's thread is the one that opened it, from the first step to the last.

use std::{
    fmt::Display,
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc},
    thread::{self, Scope},
    time::Duration,
};

use mayfly_transport_shm::{
    layout::NodeRegion,
    region::SessionMapping,
    server::{LaneRef, Server},
};
use mayfly_types::{SessionId, limits::SHARDS_MAX};

use crate::{
    Numbering,
    serve::{
        Ending, Nodes, Service, Waker,
        network::{door::Door, net::Net},
        sessions::{
            control::Control,
            handover::{Handover, Known},
            host_environment::Host,
            processes::Processes,
        },
        threads::{
            driver::Driver,
            leader,
            peers::{Peers, StopOthers},
            rounds::{Mapped, Serving},
            worker::Worker,
        },
    },
    shards::slots::TRANSACTION_SHARD_SHIFT,
};

/// Where a shard is opened, and what is there already.
#[derive(Debug, Clone)]
pub struct Place {
    shard: u32,
    numbering: Numbering,
    node: &'static NodeRegion,
    sessions: Arc<[(SessionId, u32)]>,
    waker: Waker,
}

impl Place {
    /// Which shard of the daemon.
    #[must_use]
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// All shards.
    #[must_use]
    pub fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// The node region, mapped for good.
    #[must_use]
    pub fn node(&self) -> &'static NodeRegion {
        self.node
    }

    /// The sessions that exist, with their processes.
    #[must_use]
    pub fn sessions(&self) -> &[(SessionId, u32)] {
        &self.sessions
    }

    /// Wakes the shard's thread, from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

/// Opens the shards of a file system, each in the thread that will serve it. All do so at the same
/// time.
pub trait Opener: Sync {
    /// What a shard keeps.
    type Store;
    /// The shard.
    type Service: Service + Send + 'static;
    /// Why it cannot be opened, for people.
    type Error: Display;

    /// Opens what the shard keeps and changes nothing. With it the number of its last transaction,
    /// as the store counts them.
    ///
    /// # Errors
    /// Ends the daemon; the supervisor is told.
    fn store(&self, place: &Place) -> Result<(Self::Store, u64), Self::Error>;

    /// Opens the shard on it.
    ///
    /// # Errors
    /// Ends the daemon; the supervisor is told.
    fn service(&self, place: &Place, store: Self::Store) -> Result<Self::Service, Self::Error>;

    /// Requests that take longer are told in the log.
    fn slow_after(&self) -> Option<Duration> {
        None
    }
}

pub(in crate::serve) fn say(error: impl Display) -> String {
    format!("{error:#}")
}

/// A daemon's life: takes up what the supervisor at the other end of `channel` hands over, opens
/// `shards` shards (at least one, at most [`SHARDS_MAX`]), serves until told to stop. `slot_files`
/// is the directory of the slot files, in the run directory; `nodes` are those of an instance of
/// several, whose supervisor has handed over a socket and a secret. When it returns, every shard is
/// closed.
///
/// # Errors
/// When the supervisor does not keep to the protocol, or a shard cannot be opened, which the
/// supervisor is told.
pub fn run<O: Opener>(
    channel: OwnedFd,
    slot_files: &Path,
    shards: u32,
    nodes: Option<Nodes>,
    opener: &O,
) -> io::Result<Ending> {
    let mut handover = Handover::receive(channel)?;
    if nodes.is_some() != handover.net.is_some() {
        handover.refuse("the list of nodes and the socket to listen on go together");
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let shards = shards.clamp(1, SHARDS_MAX);
    let numbering = nodes.as_ref().map_or(Numbering::of_one_node(shards), |nodes| Numbering {
        node: nodes.me,
        nodes: nodes.addresses.len() as u32,
        shards,
    });
    let (mut peers, door) = (Peers::new(handover.waker(), numbering), Door::default());
    handover.node.head.nodes.store(numbering.nodes, Relaxed);
    handover.node.head.shards.store(numbering.shards, Relaxed);
    if let Some(run_dir) = slot_files.parent() {
        peers.watched_at(run_dir);
    }
    if let (Some(nodes), Some(net)) = (&nodes, handover.net.take()) {
        let (node, waker) = (handover.node, handover.waker());
        peers.connect(Net::start(nodes, numbering, node, net, waker, &door)?);
    }
    thread::scope(|scope| {
        let _stop = StopOthers(peers.clone());
        let place = place(handover.node, &handover.sessions, &peers);
        let mut server = Server::new(handover.node);
        let (lanes, sessions) = map_sessions(std::mem::take(&mut handover.sessions), &mut server);
        let judge = |committed: &[u64]| {
            for at in &lanes {
                server.judge(*at, |transaction| is_committed(committed, transaction));
            }
        };
        let service = match open(scope, &place, &peers, opener, judge) {
            Ok(service) => service,
            Err(why) => {
                handover.refuse(&why);
                return Err(io::Error::other(why));
            }
        };
        let (restarted, waker) = (handover.starts() > 1, handover.waker());
        let Handover { channel, releases, .. } = handover;
        let control = Control::start(channel, releases, waker)?;
        let (processes, slot_files) = (Processes::new()?, slot_files.to_owned());
        let host = Host { control, processes, slot_files };
        let mut shard = Driver::new(service, server, peers);
        shard.report_slow(opener.slow_after());
        let mut serving = Serving::new(shard, host, lanes);
        serving.take_up(sessions, restarted);
        Ok(leader::run(serving, &door))
    })
}

pub(in crate::serve) fn place(
    node: &'static NodeRegion,
    sessions: &[Known],
    peers: &Peers,
) -> Place {
    let (shard, numbering) = (peers.me(), peers.numbering());
    let sessions = sessions.iter().map(|known| (known.session, known.pid)).collect();
    Place { shard, numbering, node, sessions, waker: peers.waker().clone() }
}

impl Place {
    /// The same for another shard of the daemon.
    pub(in crate::serve) fn of(&self, peers: &Peers) -> Place {
        Place { shard: peers.me(), waker: peers.waker().clone(), ..self.clone() }
    }
}

pub(in crate::serve) fn map_sessions(
    known: Vec<Known>,
    server: &mut Server,
) -> (Vec<LaneRef>, Vec<Mapped>) {
    let (mut lanes, mut sessions) = (Vec::new(), Vec::new());
    for Known { session, pid, region, process } in known {
        // A region that cannot be mapped is a client that waits in vain, until its deadline.
        let Ok(mapping) = SessionMapping::map(&region) else { continue };
        let added = server.add_session(session, mapping, &mut lanes);
        sessions.extend(added.map(|shared| Mapped { shared, pid, process }));
    }
    (lanes, sessions)
}

/// Whether a transaction is among those that the stores had committed, shard by shard.
pub(in crate::serve) fn is_committed(committed: &[u64], transaction: u64) -> bool {
    let number = transaction & ((1 << TRANSACTION_SHARD_SHIFT) - 1);
    let last = committed.get((transaction >> TRANSACTION_SHARD_SHIFT) as usize);
    last.is_some_and(|last| number <= *last)
}

/// Opens all shards, this thread's here and the others in threads that go on to serve them. `judge`
/// is told how far the stores are committed, shard by shard.
fn open<'scope, O: Opener>(
    scope: &'scope Scope<'scope, '_>,
    place: &Place,
    peers: &Peers,
    opener: &'scope O,
    mut judge: impl FnMut(&[u64]),
) -> Result<O::Service, String> {
    let (results, heard) = mpsc::channel();
    let mut others = Vec::new();
    for peers in peers.others() {
        let place = place.of(&peers);
        let (go, gone) = mpsc::channel();
        let started = Started { place, peers, results: results.clone(), go: gone };
        let name = format!("shard-{}", started.place.shard);
        thread::Builder::new()
            .name(name)
            .spawn_scoped(scope, move || started.live(opener))
            .map_err(say)?;
        others.push(go);
    }
    drop(results);
    let (store, last) = opener.store(place).map_err(say)?;
    let mut committed = vec![last; others.len() + 1];
    for _ in &others {
        let (shard, last) = heard.recv().map_err(say)??;
        committed[shard as usize] = last;
    }
    judge(&committed);
    for go in &others {
        go.send(()).map_err(say)?;
    }
    let service = opener.service(place, store).map_err(say)?;
    for _ in &others {
        heard.recv().map_err(say)??;
    }
    Ok(service)
}

/// What the thread of another shard has to begin with.
struct Started {
    place: Place,
    peers: Peers,
    /// How far the store is committed, and then that the shard is open.
    results: mpsc::Sender<Result<(u32, u64), String>>,
    /// The second step may begin; closed when it never will.
    go: mpsc::Receiver<()>,
}

impl Started {
    fn live<O: Opener>(self, opener: &O) {
        match self.open(opener) {
            Ok(Some(service)) => {
                let server = Server::new(self.place.node);
                let mut shard = Driver::new(service, server, self.peers);
                shard.report_slow(opener.slow_after());
                Worker::new(shard).run();
            }
            Ok(None) => {}
            // Whoever does not listen any more has heard of another shard's failure.
            Err(why) => drop(self.results.send(Err(why))),
        }
    }

    fn open<O: Opener>(&self, opener: &O) -> Result<Option<O::Service>, String> {
        let (store, last) = opener.store(&self.place).map_err(say)?;
        // As above.
        let _sent = self.results.send(Ok((self.place.shard, last)));
        if self.go.recv().is_err() {
            return Ok(None);
        }
        let service = opener.service(&self.place, store).map_err(say)?;
        let _sent = self.results.send(Ok((self.place.shard, last)));
        Ok(Some(service))
    }
}

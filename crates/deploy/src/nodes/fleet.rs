//! An instance of several nodes, seen from the command line: what is asked of the first relay, and
//! what comes of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::{BufReader, Write},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Serialize;

use super::words::CLEARED;
use super::{
    Launcher, Member, Members, NODES_MAX, Network, RoleLists, Roles, elsewhere,
    words::{Job, NodeMessage, Order, Place, RELAY, Settings, Up, read_line, write_line},
};
use crate::{DataDir, Depth, Instance, instance, supervisor::control::LOST};

/// How long nodes may take to end, or to say how they do.
const ANSWER_MAX: Duration = Duration::from_secs(40);
/// Nodes that are named when many fail.
const NAMED_MAX: usize = 8;
/// Lines of a node's log that are shown.
const LOG_LINES_MAX: usize = 6;

/// All that is needed to start an instance of several nodes.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The same for each node.
    pub instance: Instance,
    /// Of each node; several nodes may be on one.
    pub hosts: Vec<String>,
    /// How many nodes in a row are the daemons of one host, from which its programs choose by their
    /// local ranks. 1: each node is for itself.
    pub daemons: u32,
    /// The role of each of them.
    pub roles: RoleLists,
    /// How other hosts are reached.
    pub launcher: Launcher,
    /// Where the program is there; `None`: where it is here.
    pub remote_path: Option<PathBuf>,
    /// The network between the nodes.
    pub network: Network,
    /// Whether daemons seal what they say to each other.
    pub encrypt: bool,
    /// How long the start may take.
    pub patience: Duration,
}

/// How far a start is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Nodes that listen.
    pub listening: usize,
    /// Nodes that serve.
    pub ready: usize,
    /// Nodes.
    pub count: usize,
}

/// A node with which something is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Its number.
    pub node: u32,
    /// Its host.
    pub host: String,
    /// What.
    pub why: String,
    /// The end of its log, or of what its launcher complained of.
    pub log: String,
}

/// How a node does.
#[derive(Debug, Clone, Serialize)]
pub struct NodeReport {
    /// Its number.
    pub node: u32,
    /// Its host.
    pub host: String,
    /// Where its daemon listens for others.
    pub address: SocketAddr,
    /// What it does.
    pub roles: Roles,
    /// What it says of itself, or why it says nothing.
    #[serde(flatten)]
    pub state: NodeState,
}

/// Whether a node answers.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum NodeState {
    /// As `mayfly status --json` prints it for an instance of one node.
    Answers(Box<serde_json::Value>),
    /// Its supervisor cannot be reached.
    Unreachable {
        /// The word `unreachable`.
        state: &'static str,
        /// Why not.
        why: String,
    },
}

/// The caller's hold on an instance: when it is dropped, or the caller dies, the instance ends.
#[derive(Debug)]
pub struct Fleet {
    root: Root,
    places: Vec<Place>,
    /// All its nodes.
    pub members: Members,
}

/// The first relay.
#[derive(Debug)]
pub(super) struct Root {
    relay: Child,
    down: Option<ChildStdin>,
    up: Receiver<Up>,
}

impl Root {
    pub(super) fn begin(order: &Order) -> Result<Root> {
        let program = std::env::current_exe().context("cannot find the mayfly program itself")?;
        let mut relay = Command::new(program)
            .arg(RELAY)
            .env_remove("LD_PRELOAD")
            .env_remove("LD_AUDIT")
            .env_remove("MAYFLY_RUN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the relay")?;
        let mut down = relay.stdin.take().context("it has a pipe")?;
        let mut lines = BufReader::new(relay.stdout.take().context("it has a pipe")?);
        let (said, up) = mpsc::channel();
        thread::spawn(move || {
            // The end, or what makes no sense: nothing more is heard.
            while let Ok(Some(line)) = read_line::<Up>(&mut lines) {
                if said.send(line).is_err() {
                    break;
                }
            }
        });
        write_line(&mut down, order)?;
        Ok(Root { relay, down: Some(down), up })
    }

    pub(super) fn say(&mut self, bytes: &[u8]) -> Result<()> {
        let down = self.down.as_mut().context("the relay has been let go")?;
        down.write_all(bytes).context("the relay is gone")
    }

    /// Hears of `nodes` until `take` has had enough of each of them (it says so by true), or the
    /// time is over, or nothing more comes; whatever is left in `nodes` then was silent.
    fn hear(
        &self,
        nodes: &mut BTreeSet<u32>,
        until: Instant,
        mut take: impl FnMut(u32, NodeMessage) -> bool,
    ) {
        while !nodes.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(Up { node, said }) = self.up.recv_timeout(left) else { return };
            if nodes.contains(&node) && take(node, said) {
                nodes.remove(&node);
            }
        }
    }

    /// The next message until then. An error when there was none, or no more can come.
    pub(super) fn next(&self, until: Instant) -> Result<Up, RecvTimeoutError> {
        self.up.recv_timeout(until.saturating_duration_since(Instant::now()))
    }

    /// Cuts the line, and waits until the relay has seen the end of what is below it.
    pub(super) fn finish(mut self) {
        self.down = None;
        let _ = self.relay.wait();
    }
}

fn numbers(places: &[Place]) -> BTreeSet<u32> {
    places.iter().map(|place| place.node).collect()
}

impl Launch {
    /// Starts every node and waits until all serve.
    ///
    /// # Errors
    /// Names the nodes that do not serve, and says why; nothing is left of any node then.
    pub fn start(&self, progress: &mut dyn FnMut(Progress)) -> Result<Fleet> {
        let order = self.order()?;
        let (count, places) = (order.places.len(), order.places.clone());
        let until = Instant::now() + self.patience;
        let mut root = Root::begin(&order)?;
        let mut addresses = BTreeMap::new();
        let mut now = Progress { listening: 0, ready: 0, count };
        progress(now);
        let troubles = self.all_say(&root, &places, until, |node, said| match said {
            NodeMessage::At(address) => {
                addresses.insert(node, address);
                now.listening += 1;
                progress(now);
                Ok(())
            }
            other => Err(other),
        });
        if !troubles.is_empty() {
            return Err(give_up(root, order, troubles));
        }
        let members = self.members(&order, &addresses)?;
        root.say(&super::words::line(&members)?)?;
        let troubles = self.all_say(&root, &places, until, |_, said| match said {
            NodeMessage::Word(word) if word == "ready" => {
                now.ready += 1;
                progress(now);
                Ok(())
            }
            other => Err(other),
        });
        if !troubles.is_empty() {
            return Err(give_up(root, order, troubles));
        }
        elsewhere::forget(&members.name)?;
        Ok(Fleet { root, places, members })
    }

    /// Waits until each node has said something. `take` gives a message back when it is not the
    /// expected one. Returns the trouble of such nodes, and of silent ones.
    fn all_say(
        &self,
        root: &Root,
        places: &[Place],
        until: Instant,
        mut take: impl FnMut(u32, NodeMessage) -> Result<(), NodeMessage>,
    ) -> Vec<Trouble> {
        let (mut silent, mut troubles) = (numbers(places), Vec::new());
        root.hear(&mut silent, until, |node, said| {
            troubles.extend(take(node, said).err().map(|other| trouble(places, node, other)));
            true
        });
        let why = format!("it has not answered within {} s", self.patience.as_secs_f64());
        let said = NodeMessage::Failed { why, log: String::new() };
        troubles.extend(silent.into_iter().map(|node| trouble(places, node, said.clone())));
        troubles
    }

    fn order(&self) -> Result<Order> {
        ensure!(self.hosts.len() <= NODES_MAX, "an instance has at most {NODES_MAX} nodes");
        let name = self.instance.name.clone();
        let name = name.unwrap_or_else(|| format!("run-{}", std::process::id()));
        elsewhere::expect_free(&name)?;
        let instance = instance::fresh_identity()?;
        let settings = Settings {
            secret: fresh_secret()?,
            encrypt: self.encrypt,
            daemons: self.daemons,
            mount: self.instance.mount.as_deref().map(std::path::absolute).transpose()?,
            data_dirs: self.data_dirs()?,
            meta_dir: self.instance.meta_dir.as_deref().map(std::path::absolute).transpose()?,
            options: self.instance.options.clone(),
            net: self.network.clone(),
        };
        let remote_path = match &self.remote_path {
            Some(path) => path.clone(),
            None => std::env::current_exe().context("cannot find the mayfly program itself")?,
        };
        Ok(Order {
            job: Job::Start(Box::new(settings)),
            ..order(&self.launcher, remote_path, &name, instance, self.places()?)
        })
    }

    /// The nodes, by their numbers.
    ///
    /// # Errors
    /// As [`RoleLists::resolve`].
    pub fn roles(&self) -> Result<Vec<Roles>> {
        self.roles.resolve(&self.hosts, &self.instance.options)
    }

    fn places(&self) -> Result<Vec<Place>> {
        let mut places = places(&self.hosts);
        for (place, roles) in places.iter_mut().zip(self.roles()?) {
            place.roles = roles;
        }
        Ok(places)
    }

    /// As the hosts will find them: what of a path exists may be otherwise there.
    fn data_dirs(&self) -> Result<Vec<DataDir>> {
        let place = |dir: &DataDir| {
            Ok(DataDir { class: dir.class.clone(), path: std::path::absolute(&dir.path)? })
        };
        self.instance.data_dirs.iter().map(place).collect()
    }

    fn members(&self, order: &Order, addresses: &BTreeMap<u32, SocketAddr>) -> Result<Members> {
        let member = |place: &Place| {
            let address = addresses.get(&place.node).copied();
            let address = address.context("every node has said where it listens")?;
            let Place { shares, roles, .. } = *place;
            Ok(Member { host: place.host.clone(), shares, address, roles })
        };
        Ok(Members {
            name: order.name.clone(),
            instance: order.instance,
            launcher: order.launcher.clone(),
            remote_path: order.remote_path.clone(),
            encrypt: self.encrypt,
            daemons: self.daemons,
            nodes: order.places.iter().map(member).collect::<Result<_>>()?,
        })
    }
}

fn order(
    launcher: &Launcher,
    remote_path: PathBuf,
    name: &str,
    instance: u64,
    places: Vec<Place>,
) -> Order {
    let here = places.iter().find(|place| super::is_this_machine(&place.host));
    Order {
        program: env!("CARGO_PKG_VERSION").to_owned(),
        job: Job::Status(Depth::Sums),
        launcher: launcher.clone(),
        remote_path,
        name: name.to_owned(),
        instance,
        here: here.map(|place| place.host.clone()),
        shared: None,
        places,
    }
}

fn places(hosts: &[String]) -> Vec<Place> {
    let mut known = BTreeSet::new();
    let place = |(host, node): (&String, u32)| Place {
        node,
        host: host.clone(),
        shares: !known.insert(host.clone()),
        roles: Roles::ALL,
    };
    hosts.iter().zip(0..).map(place).collect()
}

fn fresh_secret() -> Result<String> {
    let mut bytes = [0; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let mut digits = String::new();
    for byte in bytes {
        write!(digits, "{byte:02x}")?;
    }
    Ok(digits)
}

pub(super) fn trouble(places: &[Place], node: u32, said: NodeMessage) -> Trouble {
    let (why, log) = match said {
        NodeMessage::Failed { why, log } => (why, log),
        NodeMessage::Word(word) => (word, String::new()),
        NodeMessage::At(_) | NodeMessage::Report(_) | NodeMessage::Lines(_) => {
            ("it answers another question".to_owned(), String::new())
        }
    };
    let host = places.get(node as usize).map(|place| place.host.clone()).unwrap_or_default();
    Trouble { node, host, why, log }
}

/// Ends what was started, and says why.
fn give_up(root: Root, order: Order, troubles: Vec<Trouble>) -> anyhow::Error {
    root.finish();
    let failed: BTreeSet<u32> = troubles.iter().map(|trouble| trouble.node).collect();
    let count = order.places.len();
    let mut places = order.places.clone();
    places.retain(|place| failed.contains(&place.node));
    // A killed process has not cleaned up after itself. On a host that does not answer nothing can
    // be removed.
    let _ = ask_all(Order { job: Job::Clear, places, ..order });
    let text = format!("{} of {count} nodes did not start", troubles.len());
    anyhow!("{text}{}", list(&troubles))
}

/// One line for each, with the end of its log.
fn list(troubles: &[Trouble]) -> String {
    let mut text = String::new();
    for Trouble { node, host, why, log } in troubles.iter().take(NAMED_MAX) {
        let _ = write!(text, "\n  node {node} on {host}: {why}");
        let lines: Vec<&str> = log.lines().collect();
        for line in &lines[lines.len().saturating_sub(LOG_LINES_MAX)..] {
            let _ = write!(text, "\n    | {line}");
        }
    }
    if let Some(more) = troubles.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        let _ = write!(text, "\n  and {more} more");
    }
    text
}

impl Fleet {
    /// Leaves the instance to itself: it lives until somebody stops it. Once this has begun it does
    /// not matter what becomes of the caller.
    ///
    /// # Errors
    /// Names nodes that have died meanwhile.
    pub fn detach(mut self) -> Result<()> {
        if elsewhere::is_elsewhere(self.places.iter().map(|place| place.host.as_str())) {
            elsewhere::remember(&self.members)?;
        }
        self.root.say(b"detach\n")?;
        let troubles = self.ended("detached");
        ensure!(troubles.is_empty(), "{} nodes are gone{}", troubles.len(), list(&troubles));
        Ok(())
    }

    /// Ends the instance. How daemons died when their content was lost with them.
    ///
    /// # Errors
    /// Names nodes that had died, or could not remove everything.
    pub fn stop(mut self) -> Result<Vec<Trouble>> {
        self.root.say(b"stop\n")?;
        let troubles = self.ended("stopped");
        let order = order_of(&self.members);
        let places = self.places;
        self.root.finish();
        judge(order, &places, troubles)
    }

    fn ended(&self, wanted: &str) -> Vec<Trouble> {
        let (mut silent, mut troubles) = (numbers(&self.places), Vec::new());
        self.root.hear(&mut silent, Instant::now() + ANSWER_MAX, |node, said| {
            match said {
                NodeMessage::Word(word) if word == wanted => {}
                other => troubles.push(trouble(&self.places, node, other)),
            }
            true
        });
        let said = NodeMessage::Word("it does not answer".to_owned());
        troubles.extend(silent.into_iter().map(|node| trouble(&self.places, node, said.clone())));
        troubles
    }
}

/// Tells what was lost from what went wrong.
fn judge(order: Order, places: &[Place], troubles: Vec<Trouble>) -> Result<Vec<Trouble>> {
    let (lost, mut wrong): (Vec<Trouble>, Vec<Trouble>) =
        troubles.into_iter().partition(|trouble| trouble.why.starts_with(LOST));
    if wrong.is_empty() {
        return Ok(lost);
    }
    let failed: BTreeSet<u32> = wrong.iter().map(|trouble| trouble.node).collect();
    let mut places = places.to_vec();
    places.retain(|place| failed.contains(&place.node));
    // The directories of a node that was killed.
    let mut cleared = ask_all(Order { job: Job::Clear, places, ..order }).unwrap_or_default();
    for trouble in &mut wrong {
        match cleared.remove(&trouble.node) {
            Some(NodeMessage::Word(word)) if word == CLEARED => {
                trouble.why.push_str("; what it left is removed");
            }
            Some(NodeMessage::Failed { why, .. }) if why != trouble.why => {
                trouble.why.push_str(&format!("; what it left is not removed: {why}"));
            }
            _ => {}
        }
    }
    bail!("{} nodes could not be ended as they should{}", wrong.len(), list(&wrong))
}

pub(super) fn order_of(members: &Members) -> Order {
    let (launcher, remote_path) = (&members.launcher, members.remote_path.clone());
    order(launcher, remote_path, &members.name, members.instance, members.places())
}

/// Has the job done everywhere; what each node said, and nothing for the silent ones.
fn ask_all(order: Order) -> Result<BTreeMap<u32, NodeMessage>> {
    let (mut silent, mut answers) = (numbers(&order.places), BTreeMap::new());
    if silent.is_empty() {
        return Ok(answers);
    }
    let root = Root::begin(&order)?;
    root.hear(&mut silent, Instant::now() + ANSWER_MAX, |node, said| {
        answers.insert(node, said);
        true
    });
    root.finish();
    Ok(answers)
}

fn no_answer() -> NodeMessage {
    NodeMessage::Word(format!("it has not answered within {} s", ANSWER_MAX.as_secs()))
}

/// Asks every node how it does.
///
/// # Errors
/// When this host cannot even begin; a node that does not answer is none.
pub fn report_all(members: &Members, depth: Depth) -> Result<Vec<NodeReport>> {
    let order = order_of(members);
    let places = order.places.clone();
    let mut answers = ask_all(Order { job: Job::Status(depth), ..order })?;
    let report = |(member, place): (&Member, &Place)| NodeReport {
        node: place.node,
        host: member.host.clone(),
        address: member.address,
        roles: member.roles,
        state: match answers.remove(&place.node).unwrap_or_else(no_answer) {
            NodeMessage::Report(report) => NodeState::Answers(report),
            other => {
                let why = trouble(&places, place.node, other).why;
                NodeState::Unreachable { state: "unreachable", why }
            }
        },
    };
    Ok(members.nodes.iter().zip(&places).map(report).collect())
}

/// Ends every node, all at the same time. How daemons died when their content was lost with them.
///
/// # Errors
/// Names the nodes that could not be reached, or could not remove everything; the others have
/// ended.
pub fn stop_all(members: &Members) -> Result<Vec<Trouble>> {
    let order = order_of(members);
    let places = order.places.clone();
    let mut answers = ask_all(Order { job: Job::Stop, ..order.clone() })?;
    let mut troubles = Vec::new();
    for place in &places {
        match answers.remove(&place.node).unwrap_or_else(no_answer) {
            NodeMessage::Word(word) if word == "stopped" => {}
            other => troubles.push(trouble(&places, place.node, other)),
        }
    }
    let lost = judge(order, &places, troubles)?;
    elsewhere::forget(&members.name)?;
    Ok(lost)
}

//! Logs of nodes, gathered: each host tells those of its own, and whoever asked puts all in order.
//!
//! A host's [`Teller`] sends a page of each node's log, and the next page of one when it is asked
//! for it (a [`More`] goes down to all). So whoever gathers holds a page of each node, however long
//! the logs are, and has them in order of time with one line of each at hand. When new lines are
//! waited for, a node that has told all it has says so, and tells what is added as it comes.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{ErrorKind, Read},
    os::{fd::AsFd, unix::net::UnixStream},
    path::PathBuf,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, poll},
    time::Timespec,
};
use serde::{Deserialize, Serialize};

use super::{
    Members, Trouble,
    agent::say,
    fleet::{Root, order_of, trouble},
    words::{self, Job, Lines, Next, NodeMessage, Order, Page, Place, Up, Wanted, read_line},
};
use crate::{
    Config, default_run_root,
    log::{Line, LogRead, Reader},
};

/// Lines of one page, bytes together.
const PAGE_BYTES: usize = 64 << 10;
/// How often the files are looked at when new lines are waited for.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// How long a node may take to tell a page.
const PAGE_MAX: Duration = Duration::from_secs(40);
/// New lines of several nodes are put in order when none has come for so long, or the first of them
/// has waited for twice as long.
const GATHER: Duration = Duration::from_millis(250);

/// The next page of this node is wanted.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct More {
    node: u32,
}

/// The log of a node of this host.
#[derive(Debug)]
struct Source {
    node: u32,
    reader: Reader,
    next: Next,
}

impl Source {
    fn page(&mut self, wanted: &Wanted) -> Page {
        let mut lines = Vec::new();
        let mut bytes = 0;
        self.next = loop {
            if bytes >= PAGE_BYTES {
                break Next::Page;
            }
            match self.reader.take(PAGE_BYTES) {
                LogRead::Some(more) => {
                    let wanted = more.into_iter().filter(|line| wanted.is(line));
                    lines.extend(wanted.inspect(|line| bytes += line.text.len()));
                }
                LogRead::End if wanted.follow => break Next::New,
                LogRead::End | LogRead::Gone => break Next::Nothing,
            }
        };
        Page { lines, next: self.next }
    }
}

/// Tells the logs of nodes of this host, on a line to whoever asked.
#[derive(Debug)]
pub(super) struct Teller {
    sources: Vec<Source>,
    /// Nodes of which there is no log, and why.
    missing: Vec<(u32, String)>,
    wanted: Wanted,
    line: UnixStream,
}

impl Teller {
    pub(super) fn new(
        name: &str,
        instance: u64,
        places: &[Place],
        wanted: &Wanted,
        line: UnixStream,
    ) -> Teller {
        let mut teller = Teller { sources: Vec::new(), missing: Vec::new(), wanted: *wanted, line };
        for place in places {
            match run_dir(&place.base(name), instance) {
                Ok(run_dir) => {
                    let reader = Reader::new(&run_dir);
                    teller.sources.push(Source { node: place.node, reader, next: Next::Page });
                }
                Err(error) => teller.missing.push((place.node, format!("{error:#}"))),
            }
        }
        teller
    }

    /// Until all is told, or nobody listens.
    pub(super) fn tell(mut self) {
        for (node, why) in std::mem::take(&mut self.missing) {
            say(&mut self.line, node, NodeMessage::Failed { why, log: String::new() });
        }
        for at in 0..self.sources.len() {
            self.send(at);
        }
        let mut words = Lines::default();
        while self.sources.iter().any(|source| source.next != Next::Nothing) {
            let follows = self.sources.iter().any(|source| source.next == Next::New);
            let mut ready = [PollFd::from_borrowed_fd(self.line.as_fd(), PollFlags::IN)];
            let told = matches!(poll(&mut ready, follows.then_some(&LOOK)), Ok(1));
            if told && !self.hear(&mut words) {
                return;
            }
            for at in 0..self.sources.len() {
                if self.sources[at].next == Next::New {
                    self.send_new(at);
                }
            }
        }
    }

    fn send(&mut self, at: usize) {
        let source = &mut self.sources[at];
        let page = source.page(&self.wanted);
        say(&mut self.line, source.node, NodeMessage::Lines(page));
    }

    /// The same, where there is anything.
    fn send_new(&mut self, at: usize) {
        let source = &mut self.sources[at];
        let page = source.page(&self.wanted);
        if !page.lines.is_empty() || page.next != Next::New {
            say(&mut self.line, source.node, NodeMessage::Lines(page));
        }
    }

    /// Answers what is asked for; false when nobody is there any more.
    fn hear(&mut self, words: &mut Lines) -> bool {
        let mut bytes = [0; 4096];
        let count = match self.line.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => return error.kind() == ErrorKind::Interrupted,
        };
        for line in words.add(&bytes[..count]).unwrap_or_default() {
            let Ok(Some(More { node })) = read_line::<More>(&mut &line[..]) else { continue };
            let asked = |source: &Source| source.node == node && source.next == Next::Page;
            if let Some(at) = self.sources.iter().position(asked) {
                self.send(at);
            }
        }
        true
    }
}

/// Where the log is of what is called so on this host, whether it runs or not.
fn run_dir(base: &str, instance: u64) -> Result<PathBuf> {
    crate::instance::config::check_node_name(base)?;
    let run_dir = default_run_root().join(base);
    let config = run_dir.is_dir().then(|| Config::load(&run_dir)).transpose()?;
    config
        .filter(|config| config.instance == instance)
        .context("it does not run, and its log ended with it")?;
    Ok(run_dir)
}

/// The lines that were heard of one node.
#[derive(Debug)]
struct Heard {
    lines: VecDeque<Line>,
    next: Next,
}

/// From where the pages come.
#[derive(Debug)]
enum From {
    Relay(Root),
    /// A thread of this process, for an instance of one node.
    Here(UnixStream, Lines, VecDeque<Up>),
}

/// The logs of an instance's nodes, in order of time.
#[derive(Debug)]
pub struct Logs {
    from: From,
    nodes: BTreeMap<u32, Heard>,
    places: Vec<Place>,
    troubles: Vec<Trouble>,
    /// New lines have come and are not in order yet, since then.
    gathering: Option<Instant>,
}

impl Logs {
    /// Of an instance of several nodes; of `node` only, if it is named.
    ///
    /// # Errors
    /// When this host cannot even begin. [`Logs::troubles`] tells of trouble with a node.
    pub fn of_nodes(members: &Members, node: Option<u32>, wanted: Wanted) -> Result<Logs> {
        let order = order_of(members);
        let places = order.places.clone();
        let mut asked = order.places;
        asked.retain(|place| node.is_none_or(|node| place.node == node));
        let order = Order { job: Job::Logs(wanted), places: asked.clone(), ..order };
        Ok(Logs::new(From::Relay(Root::begin(&order)?), &asked, places))
    }

    /// Of an instance of one node, that of `config`.
    ///
    /// # Errors
    /// When this host cannot even begin.
    pub fn of_one(config: &Config, wanted: Wanted) -> Result<Logs> {
        let (host, roles) = (super::this_host(), super::Roles::ALL);
        let place = Place { node: config.node.unwrap_or(0), host, shares: false, roles };
        let (ours, theirs) = UnixStream::pair()?;
        let places = [place.clone()];
        let teller = Teller::new(&config.name, config.instance, &places, &wanted, theirs);
        std::thread::Builder::new().spawn(move || teller.tell())?;
        let from = From::Here(ours, Lines::default(), VecDeque::new());
        Ok(Logs::new(from, &places, vec![place]))
    }

    fn new(from: From, asked: &[Place], places: Vec<Place>) -> Logs {
        // A page of each comes without being asked for.
        let heard =
            |place: &Place| (place.node, Heard { lines: VecDeque::new(), next: Next::Page });
        let nodes = asked.iter().map(heard).collect();
        Logs { from, nodes, places, troubles: Vec::new(), gathering: None }
    }

    /// Trouble since the last call: nodes whose logs cannot be had.
    pub fn troubles(&mut self) -> Vec<Trouble> {
        std::mem::take(&mut self.troubles)
    }

    /// The next line; `None` when that was all. Waits for new ones if they are wanted.
    ///
    /// # Errors
    /// When nothing more can be heard.
    pub fn next_line(&mut self) -> Result<Option<Line>> {
        loop {
            if self.lacks_a_page() {
                self.hear(Instant::now() + PAGE_MAX)?;
                continue;
            }
            let Some(first) = self.first() else {
                if self.nodes.is_empty() {
                    return Ok(None);
                }
                self.gathering = None;
                self.hear_new(None)?;
                continue;
            };
            if self.gathers() {
                let begun = *self.gathering.get_or_insert_with(Instant::now);
                let until = (Instant::now() + GATHER).min(begun + 2 * GATHER);
                if Instant::now() < until && self.hear_new(Some(until))? {
                    continue;
                }
                // The lines that are here go out.
                self.gathering = Some(begun - 2 * GATHER);
            }
            return self.take(first);
        }
    }

    /// Does a line of some node have to be waited for, before the first one of all is known?
    fn lacks_a_page(&self) -> bool {
        self.nodes.values().any(|heard| heard.lines.is_empty() && heard.next == Next::Page)
    }

    /// Is it possible that another node has an earlier line under way?
    fn gathers(&self) -> bool {
        self.nodes.len() > 1 && self.nodes.values().any(|heard| heard.next == Next::New)
    }

    /// The node with the first line.
    fn first(&self) -> Option<u32> {
        let lines = self
            .nodes
            .iter()
            .filter_map(|(node, heard)| Some((heard.lines.front()?.time_ms, *node)));
        lines.min().map(|(_, node)| node)
    }

    fn take(&mut self, node: u32) -> Result<Option<Line>> {
        let Some(heard) = self.nodes.get_mut(&node) else { return Ok(None) };
        let line = heard.lines.pop_front();
        let next = heard.next;
        if heard.lines.is_empty() {
            match next {
                Next::Page => self.ask(More { node })?,
                Next::Nothing => drop(self.nodes.remove(&node)),
                Next::New => {}
            }
        }
        Ok(line)
    }

    fn ask(&mut self, more: More) -> Result<()> {
        let bytes = words::line(&more)?;
        match &mut self.from {
            From::Relay(root) => root.say(&bytes),
            From::Here(line, ..) => Ok(std::io::Write::write_all(line, &bytes)?),
        }
    }

    /// Waits for a page. Those that have not told one by then are in trouble.
    fn hear(&mut self, until: Instant) -> Result<()> {
        match self.receive(Some(until))? {
            Some(up) => self.heard(up),
            None => {
                let silent = self
                    .nodes
                    .iter()
                    .filter(|(_, heard)| heard.lines.is_empty() && heard.next == Next::Page);
                let silent: Vec<u32> = silent.map(|(node, _)| *node).collect();
                for node in silent {
                    let why = format!("it has not answered within {} s", PAGE_MAX.as_secs());
                    self.heard(Up { node, said: NodeMessage::Word(why) });
                }
            }
        }
        Ok(())
    }

    /// Waits for new lines; false when none came.
    fn hear_new(&mut self, until: Option<Instant>) -> Result<bool> {
        let up = self.receive(until)?;
        let came = up.is_some();
        up.into_iter().for_each(|up| self.heard(up));
        Ok(came)
    }

    fn heard(&mut self, Up { node, said }: Up) {
        let Some(heard) = self.nodes.get_mut(&node) else { return };
        match said {
            NodeMessage::Lines(page) => {
                heard.lines.extend(page.lines);
                heard.next = page.next;
                if heard.lines.is_empty() {
                    match page.next {
                        // All of a page were lines that are not wanted.
                        Next::Page => drop(self.ask(More { node })),
                        Next::Nothing => drop(self.nodes.remove(&node)),
                        Next::New => {}
                    }
                }
            }
            other => {
                self.troubles.push(trouble(&self.places, node, other));
                self.nodes.remove(&node);
            }
        }
    }

    fn receive(&mut self, until: Option<Instant>) -> Result<Option<Up>> {
        let far = || Instant::now() + Duration::from_secs(3600);
        match &mut self.from {
            From::Relay(root) => match root.next(until.unwrap_or_else(far)) {
                Ok(up) => Ok(Some(up)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    anyhow::bail!("the relay that reaches the nodes has ended")
                }
            },
            From::Here(line, lines, ready) => {
                let until = until.unwrap_or_else(far);
                while ready.is_empty() {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    line.set_read_timeout(Some(left))?;
                    let mut bytes = [0; 65536];
                    let count = match line.read(&mut bytes) {
                        Ok(0) => anyhow::bail!("nothing more is told of the log"),
                        Ok(count) => count,
                        Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                        Err(error) => return Err(error.into()),
                    };
                    for line in lines.add(&bytes[..count])? {
                        ready.extend(read_line::<Up>(&mut &line[..])?);
                    }
                }
                Ok(ready.pop_front())
            }
        }
    }

    /// Lets go of whoever tells.
    pub fn finish(self) {
        if let From::Relay(root) = self.from {
            root.finish();
        }
    }
}

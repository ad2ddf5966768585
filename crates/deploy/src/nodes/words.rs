//! The messages between the process that starts an instance and its nodes, through relays: JSON, a
//! line each.
//!
//! Down: an [`Order`], the list of all nodes ([`Members`]), then words (`detach`, `stop`). Up: what
//! each node [`NodeMessage`]. A relay passes on every line but the order as it is.

use std::{
    io::{BufRead, Read, Write},
    net::SocketAddr,
    path::PathBuf,
};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Roles, launcher::Launcher, net::Net};
use crate::{
    Depth, Options,
    instance::{Shared, data_dirs::DataDir},
    log::{Level, Line},
};

/// The word for a node whose left-over files were removed.
pub(super) const CLEARED: &str = "cleared";

/// Longest line that is read, bytes: the list of the largest instance fits.
pub(super) const LINE_BYTES_MAX: u64 = 16 << 20;
/// The hidden subcommand that starts the nodes of a part of the hosts: see [`super::relay`].
pub const RELAY: &str = "__relay";
/// The hidden subcommand that is one node: see [`super::agent`].
pub const NODE: &str = "__node";

/// An order for some of the nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    /// The version of the program that gives it; another one does not understand it.
    pub(super) program: String,
    pub(super) job: Job,
    pub(super) launcher: Launcher,
    /// Where the program is on other hosts.
    pub(super) remote_path: PathBuf,
    /// Name of the instance.
    pub(super) name: String,
    /// The instance.
    pub(super) instance: u64,
    /// The name of the host that gets the order: it serves the places there itself.
    pub(super) here: Option<String>,
    /// To a node: what it need not make itself.
    pub(super) shared: Option<Shared>,
    pub(super) places: Vec<Place>,
}

impl Order {
    /// The same, for places that are yet to be named.
    pub(super) fn clone_without_places(&self) -> Order {
        Order {
            program: self.program.clone(),
            job: self.job.clone(),
            launcher: self.launcher.clone(),
            remote_path: self.remote_path.clone(),
            name: self.name.clone(),
            instance: self.instance,
            here: self.here.clone(),
            shared: None,
            places: Vec::new(),
        }
    }
}

/// The task for each node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Job {
    /// It is to be started.
    Start(Box<Settings>),
    /// How does it do?
    Status(Depth),
    /// Its log is read, a page at a time, for as long as the line is there.
    Logs(Wanted),
    /// It is to end.
    Stop,
    /// The files that it has left are to be removed, if it does not run.
    Clear,
}

/// How a node is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Settings {
    /// 64 hexadecimal digits.
    pub(super) secret: String,
    pub(super) encrypt: bool,
    /// Of each host; they stand one after the other in the list of nodes.
    pub(super) daemons: u32,
    pub(super) mount: Option<PathBuf>,
    pub(super) data_dirs: Vec<DataDir>,
    pub(super) meta_dir: Option<PathBuf>,
    pub(super) options: Options,
    pub(super) net: Net,
}

/// Where a node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Its number.
    pub(super) node: u32,
    pub(super) host: String,
    /// Another node of the instance, with a lower number, is on the same host: this one's
    /// directories have `@` and its number at their ends.
    pub(super) shares: bool,
    #[serde(default = "Roles::all", skip_serializing_if = "Roles::is_all")]
    pub(super) roles: Roles,
}

impl Place {
    /// The name under which the node is found on its host.
    pub(super) fn base(&self, name: &str) -> String {
        if self.shares { format!("{name}@{}", self.node) } else { name.to_owned() }
    }
}

/// One line upwards.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Up {
    pub(super) node: u32,
    pub(super) said: NodeMessage,
}

/// The words of a node, or of its relay when the node says nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NodeMessage {
    /// It listens there.
    At(SocketAddr),
    /// A word of its supervisor: `ready`, `detached`, `stopped`, or what is wrong.
    Word(String),
    /// It does not do what it was told, or is gone.
    Failed { why: String, log: String },
    /// Its state.
    Report(Box<serde_json::Value>),
    /// Lines of its log.
    Lines(Page),
}

impl NodeMessage {
    /// Is nothing more to be heard of the node?
    pub(super) fn is_last(&self) -> bool {
        match self {
            NodeMessage::At(_) => false,
            NodeMessage::Word(word) => word != "ready",
            NodeMessage::Lines(page) => page.next == Next::Nothing,
            NodeMessage::Failed { .. } | NodeMessage::Report(_) => true,
        }
    }
}

/// Writes one line.
pub(super) fn write_line(to: &mut impl Write, what: &impl Serialize) -> Result<()> {
    to.write_all(&line(what)?).context("nobody listens")?;
    Ok(to.flush()?)
}

pub(super) fn line(what: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads one line; `None` at the end.
pub(super) fn read_line<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>> {
    let mut line = Vec::new();
    from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    ensure!(line.ends_with(b"\n"), "a line that does not end");
    serde_json::from_slice(&line).context("a line that makes no sense").map(Some)
}

/// Bytes of which whole lines are taken.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Takes bytes; the whole lines that there are now, each with its end.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let searched = self.0.len();
        self.0.extend_from_slice(bytes);
        let Some(last) = self.0[searched..].iter().rposition(|byte| *byte == b'\n') else {
            ensure!(self.0.len() as u64 <= LINE_BYTES_MAX, "a line is too long");
            return Ok(Vec::new());
        };
        let rest = self.0.split_off(searched + last + 1);
        let whole = std::mem::replace(&mut self.0, rest);
        Ok(whole.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
    }
}

/// Which lines of the logs are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Lines from then on, milliseconds since the epoch.
    pub since_ms: u64,
    /// Lines that are as bad as this.
    pub level: Level,
    /// And those that will be written.
    pub follow: bool,
}

impl Wanted {
    pub(super) fn is(&self, line: &Line) -> bool {
        line.time_ms >= self.since_ms && line.level >= self.level
    }
}

/// A part of a node's log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Page {
    pub(super) lines: Vec<Line>,
    pub(super) next: Next,
}

/// What comes after a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Next {
    /// Another one, when it is asked for.
    Page,
    /// Lines that are yet to be written, as they come.
    New,
    /// That was all.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_however_they_come_in() {
        let mut lines = Lines::default();
        assert!(lines.add(b"on").expect("short").is_empty());
        let whole = lines.add(b"e\ntwo\nth").expect("short");
        assert_eq!(whole, [b"one\n".to_vec(), b"two\n".to_vec()]);
        assert_eq!(lines.add(b"ree\n").expect("short"), [b"three\n".to_vec()]);
    }

    #[test]
    fn a_line_without_end_is_an_error() {
        assert!(read_line::<u32>(&mut &b"12"[..]).is_err());
        assert_eq!(read_line::<u32>(&mut &b"12\n"[..]).expect("a number"), Some(12));
        assert_eq!(read_line::<u32>(&mut &b""[..]).expect("the end"), None);
    }

    #[test]
    fn only_nodes_that_share_a_host_have_their_number_in_their_names() {
        let place = |shares| Place { node: 3, host: "n".to_owned(), shares, roles: Roles::ALL };
        assert_eq!(place(true).base("job"), "job@3");
        assert_eq!(place(false).base("job"), "job");
    }
}

//! The list of an instance's nodes, in the run directory of each.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{Roles, is_this_machine, launcher::Launcher, words::Place};

/// File name in the run directory.
const FILE: &str = "nodes.json";

/// All nodes of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// Name of the instance.
    pub name: String,
    /// Its identity.
    pub instance: u64,
    /// How other hosts are reached.
    pub launcher: Launcher,
    /// Where the program is there.
    pub remote_path: PathBuf,
    /// Whether daemons seal what they say to each other.
    pub encrypt: bool,
    /// Daemons of each host, from which its programs choose by their local ranks.
    #[serde(default = "one")]
    pub daemons: u32,
    /// The nodes, by their numbers.
    pub nodes: Vec<Member>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its host.
    pub host: String,
    /// Whether a node with a lower number is on the same host.
    pub shares: bool,
    /// Where its daemon listens for others.
    pub address: SocketAddr,
    /// What it does.
    #[serde(default = "Roles::all", skip_serializing_if = "Roles::is_all")]
    pub roles: Roles,
}

fn one() -> u32 {
    1
}

impl Members {
    /// Those of the instance in `run_dir`; `None` when it has one node.
    ///
    /// # Errors
    /// Names the file that cannot be read or understood.
    pub fn load(run_dir: &Path) -> Result<Option<Members>> {
        let path = run_dir.join(FILE);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let members: Members = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no list of nodes", path.display()))?;
        ensure!(!members.nodes.is_empty(), "{} names no node", path.display());
        Ok(Some(members))
    }

    /// A command that runs `mayfly SUBCOMMAND` on the host of node `node`, from that of node `own`;
    /// not served by an instance in which this process is.
    ///
    /// # Errors
    /// There is no such node, or this program cannot find itself.
    pub fn command_on(&self, node: u32, own: u32, subcommand: &str) -> Result<Command> {
        let host = |node: u32| self.nodes.get(node as usize).map(|member| member.host.as_str());
        let there = host(node).with_context(|| format!("there is no node {node}"))?;
        let is_here = host(own) == Some(there) || is_this_machine(there);
        let mut command = match is_here {
            true => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg(subcommand);
                command
            }
            false => self.launcher.command(there, &self.remote_path, subcommand),
        };
        for name in ["LD_PRELOAD", "LD_AUDIT", "MAYFLY_RUN"] {
            command.env_remove(name);
        }
        Ok(command)
    }

    /// Before anybody is told of the directory.
    pub(super) fn store(&self, run_dir: &Path) -> Result<()> {
        let path = run_dir.join(FILE);
        let fresh = run_dir.join("nodes.json.new");
        std::fs::write(&fresh, serde_json::to_vec(self)?)
            .and_then(|()| std::fs::rename(&fresh, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    pub(super) fn places(&self) -> Vec<Place> {
        let place = |(node, member): (usize, &Member)| Place {
            node: u32::try_from(node).unwrap_or(u32::MAX),
            host: member.host.clone(),
            shares: member.shares,
            roles: member.roles,
        };
        self.nodes.iter().enumerate().map(place).collect()
    }
}

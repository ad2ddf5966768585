//! Processes on the other nodes of an instance that take part in a stage.
//!
//! The command starts them before it becomes the process that copies, and hands the lines to them
//! on: on this machine as children, elsewhere by the launcher of the instance.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use mayfly_deploy::{Config, Members, command_inside, environment, keep_to_processors};
use mayfly_stage::{Worker, hand_on, inherited};

use super::known;
use crate::{
    arguments::{HANDS, HELPER},
    instances,
};

/// Where the process that copies learns of them.
const VARIABLE: &str = "MAYFLY_STAGE_WORKERS";
/// So many nodes take part unless the user asks for another number: each is reached by a process
/// of the launcher's here.
const NODES_USUAL: usize = 32;
/// A longer name of an instance is none.
const LINE_BYTES_MAX: usize = 4096;

/// Those that were started, while their lines are handed on.
#[derive(Debug, Default)]
pub(super) struct Started {
    lines: Vec<(UnixStream, String)>,
    children: Vec<Child>,
}

impl Started {
    /// On as many other nodes as are to take part besides this one. Who cannot be reached is told
    /// of.
    pub(super) fn new(
        config: &Config,
        nodes_used: Option<u16>,
        cpus: Option<&str>,
    ) -> Result<Started> {
        let mut started = Started::default();
        let Some(members) = Members::load(&config.run_dir)? else { return Ok(started) };
        let own = config.node.unwrap_or(0);
        let most = nodes_used.map_or(NODES_USUAL, usize::from).saturating_sub(1);
        let others = members.nodes.iter().zip(0..).filter(|(member, node)| {
            let serves_programs = member.roles.client;
            *node != own && serves_programs
        });
        for (member, node) in others.take(most) {
            let name = format!("node {node} on {}", member.host);
            if let Err(error) = started.start(&members, (node, own), cpus, &name) {
                eprintln!("mayfly: {name} takes no part: {error:#}");
            }
        }
        for (line, _) in &started.lines {
            hand_on(line)?;
        }
        Ok(started)
    }

    fn start(
        &mut self,
        members: &Members,
        (node, own): (u32, u32),
        cpus: Option<&str>,
        name: &str,
    ) -> Result<()> {
        let (mut line, theirs) = UnixStream::pair()?;
        let mut command = members.command_on(node, own, HELPER)?;
        let child = command
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            // What ends the command from the terminal is told by the line.
            .process_group(0)
            .spawn();
        self.children.push(child.context("cannot be reached")?);
        // The order: the name of the instance, the number of the node in it, and processors.
        writeln!(line, "{}", serde_json::to_string(&(&members.name, node, cpus))?)?;
        self.lines.push((line, name.to_owned()));
        Ok(())
    }

    /// Tells the process that the command starts, or becomes.
    pub(super) fn tell(&self, command: &mut Command) -> Result<()> {
        let lines: Vec<(RawFd, &str)> =
            self.lines.iter().map(|(line, name)| (line.as_raw_fd(), name.as_str())).collect();
        command.env(VARIABLE, serde_json::to_string(&lines)?);
        Ok(())
    }

    /// The copy is over.
    pub(super) fn end(self) {
        drop(self.lines);
        for mut child in self.children {
            let _ = child.wait();
        }
    }
}

/// Those that whoever started this process has started for it.
pub(super) fn handed_on() -> Result<Vec<Worker>> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(Vec::new()) };
    let lines: Vec<(RawFd, String)> = serde_json::from_str(&text).context(VARIABLE)?;
    let worker = |(line, name)| Worker::new(name, inherited(line)?);
    Ok(lines.into_iter().map(worker).collect::<io::Result<_>>()?)
}

/// On another node: becomes the process that copies there.
pub(crate) fn help() -> Result<()> {
    // Not through a buffer: what would be in it has gone with this program.
    let mut stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let line = first_line(&mut stdin)?;
    drop(stdin);
    let (name, node, cpus): (String, u32, Option<String>) =
        serde_json::from_slice(&line).context("this is no order")?;
    if let Some(cpus) = &cpus {
        keep_to_processors(cpus)?;
    }
    let config = instances::of_node(&name, node)?;
    let program = std::env::current_exe()?;
    let mut command = command_inside(&config, program.as_os_str())?;
    command.arg(HANDS).envs(environment::variables(&config));
    command.env(known::STAGES, known::directory(&config));
    bail!("cannot enter the instance {:?}: {}", config.name, command.exec())
}

/// Byte by byte: what follows is for who comes after this process.
fn first_line(from: &mut impl Read) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        from.read_exact(&mut byte).context("nothing is ordered")?;
        match byte {
            [b'\n'] => return Ok(line),
            [byte] if line.len() < LINE_BYTES_MAX => line.push(byte),
            _ => bail!("too long an order"),
        }
    }
}

/// Copies what it is told to.
pub(crate) fn serve() -> Result<()> {
    let place = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (root, locks) = (place("MAYFLY_MOUNT"), place(known::STAGES));
    Ok(mayfly_stage::work(io::stdin(), io::stdout(), root, locks.as_deref())?)
}

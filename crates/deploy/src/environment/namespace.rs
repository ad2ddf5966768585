//! The command of an instance whose mount is in a user namespace of its own.
//!
//! Where an ordinary user cannot mount otherwise, the process that serves the mount puts itself
//! into a user and a mount namespace, and mounts there. The command joins it, through a process of
//! ours that becomes the command.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    os::{fd::AsFd, unix::process::CommandExt},
    path::Path,
    process::Command,
};

use anyhow::{Context, Result};
use mayfly_fuse::Way;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::cannot_run::CannotRun;
use crate::{Config, supervisor::control};

/// The hidden subcommand that joins the namespace of a mount: `__inside RUN_DIR -- COMMAND...`.
pub const INSIDE: &str = "__inside";

/// A command that sees the instance's mount; the caller adds its arguments.
///
/// # Errors
/// When this program cannot find itself.
pub fn command(config: &Config, program: &OsStr) -> Result<Command> {
    if config.way()? != Some(Way::Namespace) {
        return Ok(Command::new(program));
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(INSIDE).arg(&config.run_dir).arg("--").arg(program);
    Ok(command)
}

/// Becomes `command` where the mount of the instance in `run_dir` is seen, or right here if it
/// could not be mounted.
///
/// # Errors
/// Says why it did not.
pub fn run_inside(run_dir: &Path, command: &[OsString]) -> Result<()> {
    let (program, arguments) = command.split_first().context("no command")?;
    if let Some(server) = control::look(&Config::load(run_dir)?)?.server {
        join(server).context("cannot join the namespace of the mount")?;
    }
    Err(CannotRun::new(program, Command::new(program).args(arguments).exec()).into())
}

fn join(server: u32) -> Result<()> {
    let here = std::env::current_dir();
    let open = |kind: &str| File::open(format!("/proc/{server}/ns/{kind}"));
    let (user, mounts) = (open("user")?, open("mnt")?);
    move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
    // Joining leads to the root directory.
    std::env::set_current_dir(here?)?;
    Ok(())
}

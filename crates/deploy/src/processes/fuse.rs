//! A process that serves a mount, from the configuration to the serving threads.

use std::{
    io::{Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};
use mayfly_fuse::{Audience, Place};

use crate::{
    Config,
    instance::{SOCKET_NAME, mount_point::Beneath},
    log::{self, Level},
    signals,
};

/// The hidden subcommand that serves a mount: `__fuse RUN_DIR POINT`. Its standard input is the
/// line to the supervisor: it says `mounted` there, or why not, and ends when the line is cut.
pub const FUSE: &str = "__fuse";

/// The hidden subcommand that keeps files of the main mount for descriptions of preloaded programs:
/// `__keep RUN_DIR`. It says a line when it can be asked, and ends with its standard input.
const KEEP: &str = "__keep";

/// What a line says when all is well.
pub(crate) const MOUNTED: &str = "mounted";

/// Serves the instance in `run_dir` at `point` until the supervisor ends it.
///
/// # Errors
/// Says why it cannot be served there; the supervisor has been told then.
pub fn run_fuse(run_dir: &Path, point: &Path) -> Result<()> {
    signals::outlive()?;
    let mut line = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut said = line.try_clone()?;
    let config = Config::load(run_dir);
    let mut keeper = match &config {
        Ok(config) if config.mount == point => start_keeper(run_dir),
        _ => None,
    };
    let told = keeper.as_mut().and_then(|keeper| keeper.stdout.take());
    let beneath = config.as_ref().ok().filter(|config| config.mount == point);
    let beneath = beneath.and_then(Beneath::open);
    let place = config.and_then(|config| {
        let way = match config.mount == point {
            true => config.way()?.context("it is not to be mounted")?,
            false => mayfly_fuse::way(Audience::Everybody, config.mount_by.as_deref())?,
        };
        Ok(Place {
            way,
            consistency: config.options.consistency()?,
            socket: run_dir.join(SOCKET_NAME),
            objects: config.object_dir,
            name: config.name,
            point: point.to_owned(),
        })
    });
    let ready = || {
        if let Some(Err(error)) = beneath.map(|beneath| beneath.seal()) {
            let what = format_args!("what lies beneath the mount can be written to: {error}");
            log::tell(Level::Warn, what);
        }
        // Programs see by the keeper whether the instance is mounted, and would take their sockets
        // and pipes for the library's until it is there. One that dies says nothing.
        let _ = told.map(|mut told| told.read(&mut [0; 1]));
        say(&mut said, MOUNTED);
    };
    let served = place.and_then(|place| mayfly_fuse::serve(&place, &line.try_clone()?, ready));
    if let Err(error) = &served {
        say(&mut line, &format!("{error:#}"));
    }
    if let Some(mut keeper) = keeper {
        drop(keeper.stdin.take());
        // It has nothing to wait for: the mount is gone.
        let _ = keeper.wait();
    }
    served
}

/// Without it, preloaded programs keep their descriptors to themselves.
fn start_keeper(run_dir: &Path) -> Option<Child> {
    let program = std::env::current_exe().ok()?;
    let mut command = Command::new(program);
    command.arg(KEEP).arg(run_dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    let started = command.spawn();
    let tell =
        |error: &_| log::tell(Level::Warn, format_args!("no process that keeps files: {error}"));
    started.inspect_err(tell).ok()
}

/// Keeps files until the process of the mount ends.
///
/// # Errors
/// Says why it cannot.
pub fn run_keeper(run_dir: &Path) -> Result<()> {
    signals::outlive()?;
    // Who does not listen has gone, and standard input with it.
    let ready = || drop(std::io::stdout().write_all(b"\n"));
    mayfly_fuse::keep(run_dir, std::io::stdin(), ready)
}

/// In one piece, since the other side reads no further than that.
fn say(line: &mut UnixStream, words: &str) {
    // Who does not listen has gone, and the line with it.
    let _ = line.write_all(words.replace('\n', " ").as_bytes());
}

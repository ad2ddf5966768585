//! A process that serves a mount, from the configuration to the serving threads.

use std::{
    io::Write,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
};

use anyhow::Result;
use mayfly_fuse::Place;

use crate::{Config, instance::SOCKET_NAME};

/// The hidden subcommand that serves a mount: `__fuse RUN_DIR POINT`. Its standard input is the
/// line to the supervisor: it says `mounted` there, or why not, and ends when the line is cut.
pub const FUSE: &str = "__fuse";

/// What a line says when all is well.
pub(crate) const MOUNTED: &str = "mounted";

/// Serves the instance in `run_dir` at `point` until the supervisor ends it.
///
/// # Errors
/// Says why it cannot be served there; the supervisor has been told then.
pub fn run_fuse(run_dir: &Path, point: &Path) -> Result<()> {
    let mut line = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut said = line.try_clone()?;
    let place = Config::load(run_dir).map(|config| Place {
        socket: run_dir.join(SOCKET_NAME),
        objects: config.object_dir,
        name: config.name,
        point: point.to_owned(),
    });
    let ready = || say(&mut said, MOUNTED);
    let served = place.and_then(|place| mayfly_fuse::serve(&place, &line.try_clone()?, ready));
    if let Err(error) = &served {
        say(&mut line, &format!("{error:#}"));
    }
    served
}

/// In one piece, since the other side reads no further than that.
fn say(line: &mut UnixStream, words: &str) {
    // Who does not listen has gone, and the line with it.
    let _ = line.write_all(words.replace('\n', " ").as_bytes());
}

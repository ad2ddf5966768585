//! Commands to a running instance's supervisor.

use std::{
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_transport_shm::hello;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
    sockopt::{Timeout, set_socket_timeout},
};
use serde::{Deserialize, Serialize};

use crate::{
    Config,
    instance::{SOCKET_NAME, mount_point},
};

/// Longest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 4096;
/// A supervisor that has not looked at a question by then is stuck or stopped.
const LOOK_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// Begins the supervisor's last word when the content was lost; how the daemon ended follows.
pub(crate) const LOST: &str = "lost: ";

/// How things stand, as the supervisor knows without asking its daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct View {
    /// Process id of the supervisor itself.
    pub(crate) supervisor_pid: i32,
    /// Process id of the daemon.
    pub(crate) daemon_pid: Option<u32>,
    /// Starts of the daemon so far.
    pub(crate) starts: u32,
    /// Attached processes.
    pub(crate) sessions: u32,
    /// Messages that the daemon has yet to take.
    pub(super) owed: usize,
    /// Where the instance is mounted, its mount point first if it is mounted there.
    pub(crate) mounts: Vec<PathBuf>,
    /// The process that serves the instance's own mount point.
    pub(crate) server: Option<u32>,
    /// How the daemon ended with which everything is gone.
    pub(crate) lost: Option<String>,
}

impl View {
    /// Answers who asked.
    pub(super) fn tell(&self, connection: &OwnedFd) {
        let text = serde_json::to_vec(self).unwrap_or_default();
        // The caller may have gone meanwhile.
        let _ = send(connection, &text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// How the daemon ended, when everything is gone with it.
///
/// # Errors
/// As asking for the status of an instance.
pub fn lost(config: &Config) -> Result<Option<String>> {
    Ok(look(config)?.lost)
}

/// Asks the supervisor how things stand.
///
/// # Errors
/// When it cannot be reached or does not answer in time.
pub(crate) fn look(config: &Config) -> Result<View> {
    let socket = socket()?;
    // The first bounds connecting too.
    set_socket_timeout(&socket, Timeout::Send, Some(LOOK_MAX))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(LOOK_MAX))?;
    let answer = ask(config, &socket, &hello::hello(hello::KIND_LOOK))
        .with_context(|| format!("the supervisor of {:?} does not answer", config.name))?;
    serde_json::from_slice(&answer)
        .with_context(|| format!("the supervisor of {:?} answers gibberish", config.name))
}

/// Ends an instance and waits until it is gone. How its daemon died when its content was lost with
/// it.
///
/// # Errors
/// When the supervisor cannot be reached, or could not remove everything.
pub fn stop(config: &Config) -> Result<Option<String>> {
    let answer = ask(config, &socket()?, &hello::hello(hello::KIND_CONTROL))?;
    match std::str::from_utf8(&answer) {
        Ok("stopped") => Ok(None),
        Ok(word) if word.starts_with(LOST) => Ok(Some(word[LOST.len()..].to_owned())),
        Ok("") => bail!("the supervisor of {:?} died while it stopped", config.name),
        Ok(why) => bail!("{:?}: {why}", config.name),
        Err(_) => bail!("the supervisor of {:?} answers gibberish", config.name),
    }
}

/// Has the instance mounted at `point` as well, until it ends or somebody unmounts it.
///
/// # Errors
/// Says why it cannot be.
pub fn mount(config: &Config, point: &Path) -> Result<()> {
    let point = mount_point::choose_further(config, point)?;
    let mut words = hello::hello(hello::KIND_MOUNT).to_vec();
    words.extend_from_slice(point.as_os_str().as_bytes());
    let answer = ask(config, &socket()?, &words)?;
    match std::str::from_utf8(&answer) {
        Ok("mounted") => Ok(()),
        Ok("") => bail!("the supervisor of {:?} is gone", config.name),
        Ok(why) => bail!("{why}"),
        Err(_) => bail!("the supervisor of {:?} answers gibberish", config.name),
    }
}

fn socket() -> Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

fn ask(config: &Config, socket: &OwnedFd, words: &[u8]) -> Result<Vec<u8>> {
    let path = config.run_dir.join(SOCKET_NAME);
    connect(socket, &SocketAddrUnix::new(&path)?)
        .with_context(|| format!("no supervisor answers at {}", path.display()))?;
    send(socket, words, SendFlags::NOSIGNAL)?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let (count, _) = recv(socket, answer.as_mut_slice(), RecvFlags::empty())?;
    ensure!(count <= ANSWER_BYTES_MAX, "{} gives too long an answer", path.display());
    answer.truncate(count);
    Ok(answer)
}

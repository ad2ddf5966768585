//! Commands to a running instance's supervisor.

use anyhow::{Context, Result, bail};
use mayfly_transport_shm::hello;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

use crate::{Config, instance::SOCKET_NAME};

/// Longest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 4096;

/// Ends an instance and waits until it is gone.
///
/// # Errors
/// When the supervisor cannot be reached, or could not remove everything.
pub fn stop(config: &Config) -> Result<()> {
    let path = config.run_dir.join(SOCKET_NAME);
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(&path)?)
        .with_context(|| format!("no supervisor answers at {}", path.display()))?;
    send(&socket, &hello::hello(hello::KIND_CONTROL), SendFlags::NOSIGNAL)?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let (count, _) = recv(&socket, answer.as_mut_slice(), RecvFlags::empty())?;
    match std::str::from_utf8(&answer[..count.min(ANSWER_BYTES_MAX)]) {
        Ok("stopped") => Ok(()),
        Ok("") => bail!("the supervisor of {:?} died while it stopped", config.name),
        Ok(why) => bail!("{:?}: {why}", config.name),
        Err(_) => bail!("the supervisor of {:?} answers gibberish", config.name),
    }
}

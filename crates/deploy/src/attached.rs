//! A process that asks an instance something, as any attached one does.

use std::os::unix::ffi::OsStrExt;

use anyhow::{Result, anyhow};
use mayfly_transport_shm::{AttachOptions, Attachment, Earlier, attach};

use crate::{Config, instance::SOCKET_NAME};

/// This process, attached to an instance as any other.
pub(crate) fn attached(config: &Config) -> Result<Attachment> {
    let socket = config.run_dir.join(SOCKET_NAME);
    let socket_path = socket.as_os_str().as_bytes();
    let options = AttachOptions { socket_path, fd_min: 3, node: None, earlier: Earlier::Ends };
    attach(&options).map_err(|errno| {
        anyhow!("cannot attach to {:?} at {}: {errno}", config.name, socket.display())
    })
}

//! Attaching a process to the instance of its node.

use mayfly_types::{Errno, SessionId, limits::DEADLINE_MS_DEFAULT};

use crate::{
    ShmTransport, hello,
    layout::{LAYOUT_VERSION, MAGIC, NodeRegion, SessionRegion},
    raw,
};

/// What becomes of an earlier session of the same process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    /// It ends: it is one from before an exec.
    Ends,
    /// It stays. For what a program has loaded, whose calls the preload library may serve as well,
    /// by a session of its own.
    Stays,
}

/// How to attach.
#[derive(Debug, Clone, Copy)]
pub struct AttachOptions<'a> {
    /// Path of the supervisor's socket; anything from a terminating zero on is ignored.
    pub socket_path: &'a [u8],
    /// Descriptors that stay open get numbers of at least this, when the limit allows.
    pub fd_min: i32,
    /// The node region, when this process (or its parent before fork) has mapped it already. It is
    /// used again if it belongs to the same instance, so that references into it stay good.
    pub node: Option<&'static NodeRegion>,
    /// What becomes of an earlier session.
    pub earlier: Earlier,
}

/// A process's side of a session.
#[derive(Debug)]
pub struct Attachment {
    /// Carries this session's requests.
    pub transport: ShmTransport,
    /// The node's tables.
    pub node: &'static NodeRegion,
    /// The session.
    pub session: SessionId,
    /// The connection to the supervisor. It must stay open while the session is used and be closed
    /// by exec (it is close-on-exec): its end ends the session. A child of fork closes its copy.
    pub evidence_fd: i32,
}

/// Attaches this process.
///
/// # Errors
/// ENOENT, ECONNREFUSED: the instance is gone. EPROTO: something else, or another version,
/// answered. ENOTCONN: the supervisor closed the connection (a process of another user). Otherwise
/// what the supervisor or the kernel said.
pub fn attach(options: &AttachOptions<'_>) -> Result<Attachment, Errno> {
    let path = options.socket_path;
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    let evidence_fd = raw::connect(&path[..end], DEADLINE_MS_DEFAULT as u32)?;
    let evidence_fd = raw::move_up(evidence_fd, options.fd_min);
    shake_hands(evidence_fd, options).inspect_err(|_| raw::close(evidence_fd))
}

fn shake_hands(evidence_fd: i32, options: &AttachOptions<'_>) -> Result<Attachment, Errno> {
    // A supervisor that refuses this user may have closed the connection before we have said a
    // word.
    let refused = |errno| if errno == Errno::EPIPE { Errno::ENOTCONN } else { errno };
    let kind = match options.earlier {
        Earlier::Ends => hello::KIND_ATTACH,
        Earlier::Stays => hello::KIND_ATTACH_BESIDE,
    };
    raw::send(evidence_fd, &hello::hello(kind)).map_err(refused)?;
    let mut bytes = [0; hello::ANSWER_BYTES];
    let (count, fds) = raw::receive(evidence_fd, &mut bytes)?;
    let attached = answered(&bytes[..count], fds, evidence_fd, options);
    for fd in fds.into_iter().filter(|fd| *fd >= 0) {
        raw::close(fd);
    }
    attached
}

fn answered(
    bytes: &[u8],
    [node_fd, session_fd]: [i32; 2],
    evidence_fd: i32,
    options: &AttachOptions<'_>,
) -> Result<Attachment, Errno> {
    if bytes.is_empty() {
        return Err(Errno::ENOTCONN);
    }
    let answer = hello::Answer::decode(bytes).ok_or(Errno::EPROTO)?;
    if let Some(errno) = Errno::from_raw(answer.status as i32) {
        return Err(errno);
    }
    if node_fd < 0 || session_fd < 0 {
        return Err(Errno::EPROTO);
    }
    let node = match options.node.filter(|node| is_of(node, answer.instance)) {
        Some(node) => node,
        None => map_node(node_fd, answer.instance)?,
    };
    let session = map_session(session_fd)?;
    if let Some(tally) = node.tallies.get(answer.session as usize) {
        tally.start(&raw::name());
    }
    Ok(Attachment {
        transport: ShmTransport::new(node, session, evidence_fd),
        node,
        session: SessionId(answer.session),
        evidence_fd,
    })
}

fn is_of(node: &NodeRegion, instance: u64) -> bool {
    use core::sync::atomic::Ordering::Relaxed;
    node.head.magic.load(Relaxed) == MAGIC
        && node.head.version.load(Relaxed) == LAYOUT_VERSION
        && node.head.instance.load(Relaxed) == instance
}

fn map_node(fd: i32, instance: u64) -> Result<&'static NodeRegion, Errno> {
    let address = map_whole(fd, size_of::<NodeRegion>())?;
    // SAFETY: the mapping is long enough (its file is sealed against shrinking), page-aligned, and
    // never unmapped once it is returned; every field is an atomic, for which any bytes are valid.
    let node = unsafe { &*address.cast::<NodeRegion>() };
    if is_of(node, instance) {
        return Ok(node);
    }
    // SAFETY: the only reference is the local one above, not used again.
    unsafe { raw::unmap(address, size_of::<NodeRegion>()) };
    Err(Errno::EPROTO)
}

fn map_session(fd: i32) -> Result<*mut SessionRegion, Errno> {
    let address = map_whole(fd, size_of::<SessionRegion>())?;
    raw::keep_from_children(address, size_of::<SessionRegion>());
    Ok(address.cast())
}

fn map_whole(fd: i32, length: usize) -> Result<*mut u8, Errno> {
    if raw::length_of(fd)? < length {
        return Err(Errno::EPROTO);
    }
    raw::map_shared(fd, length)
}

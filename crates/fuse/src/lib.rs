//! The instance as a mount of the kernel's: a skin over `client` that speaks the FUSE protocol.
//!
//! It is for whatever the preload library cannot enter: static programs, Go, io_uring, programs
//! that somebody started elsewhere, the kernel's own reads at exec and mmap. The process that
//! serves a mount is a session of the instance like any other.
//!
//! **Coherence.** In an instance with strict consistency nothing is cached in the kernel: names and
//! attributes are valid for no time at all, and reads and writes of files go past the page cache.
//! So what returned on one side is seen by the next call on the other. Mappings are the exception
//! (`docs/design/fuse.md`). With session consistency readers have caches ([`memory::consistency`]).
//!
//! **Identity.** The kernel's node numbers are file ids. A directory is addressed by its id alone;
//! the daemon finds another file by its id only while somebody has it open, so the name under which
//! the kernel looked it up last is remembered with it ([`memory::nodes`]). File handles are
//! references to open file descriptions of the node's table.
//!
//! **Threads.** Each of a fixed number reads a request, performs it and answers. None waits for a
//! lock: blocked locks stand in a queue of their own ([`operations::locks`]), so they do not keep
//! others from being served and can be interrupted.
//!
//! The protocol is spoken here and not by a crate, because it takes both of what published ones
//! drop: whether a lock is of flock or of fcntl, and the interrupt of a request that waits.
#![forbid(unsafe_code)]

mod keeper;
mod kernel;
mod memory;
mod moved;
mod operations;
mod reply;
mod server;

use std::{fmt::Display, io::Write};

pub use keeper::keep;
pub use kernel::mount::{Audience, Mounted, Way, choice, mounted, unmount, way};
pub use memory::consistency::Consistency;
pub use server::{Place, serve};

/// A word to the supervisor's log. Nobody may listen.
pub(crate) fn say(what: impl Display) {
    let _ = std::io::stderr().write_all(format!("WARN {what}\n").as_bytes());
}

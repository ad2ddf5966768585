//! The semantics of the file system, for whoever adapts them: the hooks, a FUSE mount, a tool.
//!
//! [`Client`] turns calls into requests and data transfers. It knows paths relative to the
//! instance, open file descriptions and directories by identity; it knows neither descriptor
//! numbers of the application nor working directories, and it has no thread. Metadata always travel
//! through the [`Transport`]. If a file has an object, the calling thread reads and writes the
//! object itself ([`objects`]), under a grant. It looks at the grant again after the transfer. All
//! other data travel through the daemon ([`data`]). The content of a small file comes with the
//! answer to its open ([`leases`]). Where the daemon's records can be read, paths are looked up
//! there ([`path`]), and small files are opened and read there ([`leases`]). Mounts that may keep
//! pages of a file are told of its changes. So are programs that watch it with inotify
//! ([`changes`]).
//!
//! The file offset and the status flags of an open file description stand in the node's shared
//! table, so that all processes that inherited it see one offset ([`open::offset`]).
//!
//! No function here allocates, panics or unwinds; all may be called in a signal handler that does
//! not interrupt another call of the same thread.
#![no_std]

#[cfg(test)]
extern crate std;

mod changes;
mod counted;
mod data;
mod leases;
mod objects;
mod open;
mod path;
#[cfg(test)]
mod testing;

use core::mem::MaybeUninit;

use mayfly_sys::{Errno, lock::Lock, text::PathText};
use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::{
    file_leases::SessionLeases,
    layout::{FileEntry, NodeHead, NodeRegion, OpenEntry},
};
use mayfly_wire::Operation;

pub use changes::mirror::Mirror;
pub use changes::watched::WATCHED_NAMES_MAX;
pub use counted::Counts;
pub use data::pieces::TRANSFER_MAX;
pub use objects::{Descriptors, ObjectDirectory, ObjectFile};
pub use open::OpenFile;
pub use path::{
    names::{Attributes, NewOwner},
    xattrs,
};

/// The tables of the node that all its processes share (`docs/design/shm.md`).
#[derive(Clone, Copy)]
pub struct Node {
    /// Words that the node has once.
    pub head: &'static NodeHead,
    /// Open file descriptions.
    pub opens: &'static [OpenEntry],
    /// Open files.
    pub files: &'static [FileEntry],
}

impl Node {
    /// Those of a region.
    #[must_use]
    pub fn of(region: &'static NodeRegion) -> Node {
        Node { head: &region.head, opens: &region.opens, files: &region.files }
    }
}

/// Why an operation was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It failed.
    Failed(Errno),
    /// The path leads out of the instance; where to stands in the caller's buffer.
    Escaped,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Failed(errno)
    }
}

/// One process's access to an instance.
pub struct Client<T, D> {
    transport: T,
    node: Node,
    objects: objects::Objects<D>,
    contents: leases::contents::Contents,
    records: path::records::Records,
    leased_files: leases::LeasedFiles,
    append: Lock,
    counting: counted::Counting,
    /// It says by itself what it has changed.
    notifies: bool,
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// A client that speaks through `transport`, with the objects of the node in `directory`.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(
        transport: T,
        node: Node,
        directory: ObjectDirectory,
        descriptors: D,
    ) -> Result<Self, Errno> {
        let objects = objects::Objects::new(node.files.len(), directory, descriptors)?;
        Ok(Client::with(transport, node, objects))
    }

    /// The same in a place of the caller's, so that it is never on the stack.
    ///
    /// # Errors
    /// ENOMEM.
    #[inline(never)]
    pub fn new_in(
        place: &mut MaybeUninit<Self>,
        transport: T,
        node: Node,
        directory: ObjectDirectory,
        descriptors: D,
    ) -> Result<&mut Self, Errno> {
        let objects = objects::Objects::new(node.files.len(), directory, descriptors)?;
        Ok(place.write(Client::with(transport, node, objects)))
    }

    #[inline(always)]
    fn with(transport: T, node: Node, objects: objects::Objects<D>) -> Self {
        Client {
            transport,
            node,
            objects,
            contents: leases::contents::Contents::new(),
            records: path::records::Records::default(),
            leased_files: leases::LeasedFiles::none(),
            append: Lock::new(),
            counting: counted::Counting::none(),
            notifies: true,
        }
    }

    /// Lets the client look into the daemon's records, in the file behind `descriptor`. It is not
    /// needed any more afterwards. Where there are no such records the daemon is asked.
    pub fn read_records(&mut self, descriptor: i32) {
        self.records = path::records::Records::of(descriptor);
    }

    /// Lets the client open small files by what the daemon leases its session in `leases`.
    pub fn use_leases(&mut self, leases: &'static SessionLeases) {
        self.leased_files = leases::LeasedFiles::of(leases);
    }

    /// The transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Sends a request whose path may lead out of the instance.
    fn walk<'a, O: Operation<'a>, R>(
        &self,
        request: &O,
        escape: &mut PathText,
        take: impl for<'r> FnOnce(O::Reply<'r>) -> Result<R, Errno>,
    ) -> Result<R, Stop> {
        self.transport.exchange(request, Patience::Deadline, |answer| match answer {
            Answer::Done(reply) => take(reply).map_err(Stop::Failed),
            Answer::Failed(errno) => Err(Stop::Failed(errno)),
            Answer::Escaped(path) => {
                escape.clear();
                escape.push(path)?;
                Err(Stop::Escaped)
            }
        })
    }

    /// Sends a request without a path.
    fn ask<'a, O: Operation<'a>, R>(
        &self,
        request: &O,
        take: impl for<'r> FnOnce(O::Reply<'r>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.transport.exchange(request, Patience::Deadline, |answer| match answer {
            Answer::Done(reply) => take(reply),
            Answer::Failed(errno) => Err(errno),
            Answer::Escaped(_) => Err(Errno::EIO),
        })
    }
}

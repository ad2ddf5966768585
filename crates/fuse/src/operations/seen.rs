//! What a look and an open say to the kernel about its cache ([`crate::memory::seen`]).

use std::time::SystemTime;

use mayfly_sys::file::{O_ACCMODE, O_RDONLY};
use mayfly_types::{Attr, Errno, FileKind};
use mayfly_wire::Opened;

use crate::{
    kernel::abi::{Header, OPEN_DIRECT, OPEN_KEEP_CACHE, OPEN_PARALLEL_WRITES},
    memory::consistency::Consistency,
    operations::attributes::{identified, lost},
    server::Server,
};

impl Server {
    /// The kernel is being told of these attributes.
    pub(crate) fn show(&self, attr: &Attr) {
        if self.consistency == Consistency::Session && attr.kind == FileKind::Regular {
            self.seen.note_shown(attr);
        }
    }

    /// How an open is answered.
    pub(crate) fn open_in_session(&self, attr: &Attr, handle: u64, flags: u32) -> u32 {
        let now = SystemTime::now();
        let remembered = self.seen.open(attr, now);
        if !remembered.attributes_hold {
            self.device.forget_attributes(attr.id.0);
        }
        if flags & O_ACCMODE != O_RDONLY {
            return OPEN_DIRECT | OPEN_PARALLEL_WRITES;
        }
        if remembered.pages_hold {
            return OPEN_KEEP_CACHE;
        }
        self.seen.begins(attr, handle, now);
        0
    }

    /// Opens what the kernel may have looked up a while ago. Where the name is another file's by
    /// now it is asked to look again, once: an open by a descriptor has no name to look at.
    pub(crate) fn open_looked_up(&self, header: &Header, flags: u32) -> Result<Opened, Errno> {
        if let Some(opened) = self.open_named_node(header.node, flags)? {
            return Ok(opened);
        }
        if self.refreshed.found(header.thread, header.node).is_none()
            && self.nodes.name(header.node).is_some_and(|name| !name.name.is_empty())
        {
            self.refreshed.remember(header.thread, header.node, ());
            return Err(Errno::ESTALE);
        }
        self.open_walk(identified(header.node), flags).map_err(lost)
    }
}

//! What the kernel has seen of files, where it may remember ([`crate::memory::consistency`]).
//!
//! For each node that it knows: the version of which it was told the attributes last, and the one
//! with which its pages began. Pages begin with an open after which none are left of before. That
//! it has come to that is known when a descriptor of that open is closed: the kernel gives pages up
//! when it has read the answer, which nobody tells.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use mayfly_sys::file::{O_ACCMODE, O_RDONLY};
use mayfly_types::{Attr, Errno, FileKind};
use mayfly_wire::Opened;

use super::consistency::{Consistency, Version};
use crate::{
    kernel::abi::{Header, OPEN_DIRECT, OPEN_KEEP_CACHE, OPEN_PARALLEL_WRITES},
    operations::attributes::{identified, lost},
    server::Server,
};

/// Opens of one file at a time whose pages are followed; the pages of others are not kept.
const BEGUN_MAX: usize = 4;

#[derive(Debug)]
struct Node {
    told: Version,
    /// Every page is of this version or a later one.
    pages: Option<Version>,
    /// Handles of opens that began with no pages, at these versions.
    begun: Vec<(u64, Version)>,
}

/// Versions by node. As many as the kernel knows nodes, none in a strict instance.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashMap<u64, Node>>);

/// How an open finds what the kernel remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Remembered {
    attributes_hold: bool,
    pages_hold: bool,
}

impl Seen {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Node>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self, attr: &Attr) {
        let told = Version::of(attr);
        let fresh = || Node { told, pages: None, begun: Vec::new() };
        self.all().entry(attr.id.0).or_insert_with(fresh).told = told;
    }

    /// A file with these attributes is being opened.
    fn open(&self, attr: &Attr, now: SystemTime) -> Remembered {
        let version = Version::of(attr);
        let mut all = self.all();
        let Some(node) = all.get_mut(&attr.id.0) else {
            return Remembered { attributes_hold: false, pages_hold: false };
        };
        let attributes_hold = node.told == version;
        node.told = version;
        let proven = Version::proven(attr, now);
        Remembered { attributes_hold, pages_hold: proven.is_some() && node.pages == proven }
    }

    /// The answer to an open says that there are no pages.
    fn begins(&self, attr: &Attr, handle: u64, now: SystemTime) {
        let Some(version) = Version::proven(attr, now) else { return };
        if let Some(node) = self.all().get_mut(&attr.id.0)
            && node.begun.len() < BEGUN_MAX
        {
            node.begun.push((handle, version));
        }
    }

    /// A descriptor was closed.
    pub(crate) fn closed(&self, node: u64, handle: u64) {
        if let Some(node) = self.all().get_mut(&node)
            && let Some(place) = node.begun.iter().position(|(begun, _)| *begun == handle)
        {
            node.pages = Some(node.begun.swap_remove(place).1);
        }
    }

    pub(crate) fn forgotten(&self, node: u64) {
        self.all().remove(&node);
    }
}

impl Server {
    /// The kernel is being told of these attributes.
    pub(crate) fn show(&self, attr: &Attr) {
        if self.consistency == Consistency::Session && attr.kind == FileKind::Regular {
            self.seen.told(attr);
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

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

use mayfly_types::Attr;

use super::consistency::Version;

/// Opens of one file at a time whose pages are followed; the pages of others are not kept.
pub(crate) const FOLLOWED_OPENS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) shown: Version,
    /// Every page is of this version or a later one.
    pub(crate) pages: Option<Version>,
    /// Handles of opens that began with no pages, at these versions.
    pub(crate) followed_opens: Vec<(u64, Version)>,
}

/// Versions by node. As many as the kernel knows nodes, none in a strict instance.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashMap<u64, Node>>);

/// How an open finds what the kernel remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) attributes_hold: bool,
    pub(crate) pages_hold: bool,
}

impl Seen {
    pub(crate) fn all(&self) -> MutexGuard<'_, HashMap<u64, Node>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_shown(&self, attr: &Attr) {
        let shown = Version::of(attr);
        let fresh = || Node { shown, pages: None, followed_opens: Vec::new() };
        self.all().entry(attr.id.0).or_insert_with(fresh).shown = shown;
    }

    /// A file with these attributes is being opened.
    pub(crate) fn open(&self, attr: &Attr, now: SystemTime) -> Remembered {
        let version = Version::of(attr);
        let mut all = self.all();
        let Some(node) = all.get_mut(&attr.id.0) else {
            return Remembered { attributes_hold: false, pages_hold: false };
        };
        let attributes_hold = node.shown == version;
        node.shown = version;
        let proven = Version::proven(attr, now);
        Remembered { attributes_hold, pages_hold: proven.is_some() && node.pages == proven }
    }

    /// The answer to an open says that there are no pages.
    pub(crate) fn begins(&self, attr: &Attr, handle: u64, now: SystemTime) {
        let Some(version) = Version::proven(attr, now) else { return };
        if let Some(node) = self.all().get_mut(&attr.id.0)
            && node.followed_opens.len() < FOLLOWED_OPENS_MAX
        {
            node.followed_opens.push((handle, version));
        }
    }

    /// A descriptor was closed.
    pub(crate) fn closed(&self, node: u64, handle: u64) {
        if let Some(node) = self.all().get_mut(&node)
            && let Some(place) = node.followed_opens.iter().position(|(of, _)| *of == handle)
        {
            node.pages = Some(node.followed_opens.swap_remove(place).1);
        }
    }

    pub(crate) fn forgotten(&self, node: u64) {
        self.all().remove(&node);
    }
}

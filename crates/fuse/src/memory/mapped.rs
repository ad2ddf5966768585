//! Pages that the kernel keeps for mappings, in a strict instance.
//!
//! Nothing tells of a mapping. But a read for the page cache names no owner, and with strict
//! consistency only mappings have pages there. From the first such read on the file counts as
//! mapped as long as it is open through this mount: the daemon marks it, and whoever changes it
//! elsewhere has this process told before the call returns. Then the kernel gives the pages up, and
//! reads them anew when they are used.
//!
//! **Who waits for whom.** Giving up a page waits until it is read, and until what was changed in
//! it is written back: both are requests to this process. So it is done by a thread that serves
//! none ([`Server::watch`]). The requests do not wait for it, nor for other mounts: what they
//! changed is told of by another thread, which answers them then ([`Server::tell_others`]). Pages
//! that are written back are answered before, since a mount elsewhere may be waited for that waits
//! for just that.
//!
//! **Length.** The kernel believes the length that it was told last, and refuses what lies behind
//! it in a mapping. It learns of a shorter one when a read ends early. That a file became longer
//! only bytes tell that are put into the page cache; they are given up at once.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use mayfly_types::OpenRef;

/// A change that other mounts are to be told of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changed {
    pub(crate) open: OpenRef,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Its open handles.
    pub(crate) handles: Vec<u64>,
    pub(crate) mapped: bool,
    /// The length that the kernel was told here, at least.
    pub(crate) length: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) nodes: HashMap<u64, Node>,
    /// The daemon knows that this is a mount.
    pub(crate) watching: bool,
}

/// Files that are open through the mount, and which of them have pages.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    pub(crate) state: Mutex<State>,
    pub(crate) begun: Condvar,
}

impl Mapped {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A description of a file was given to the kernel.
    pub(crate) fn opened(&self, node: u64, handle: u64) {
        self.state().nodes.entry(node).or_default().handles.push(handle);
    }

    /// The kernel has closed it.
    pub(crate) fn closed(&self, node: u64, handle: u64) {
        let mut state = self.state();
        let Some(known) = state.nodes.get_mut(&node) else { return };
        known.handles.retain(|other| *other != handle);
        if known.handles.is_empty() {
            state.nodes.remove(&node);
        }
    }

    pub(crate) fn is_mapped(&self, node: u64) -> bool {
        self.state().nodes.get(&node).is_some_and(|node| node.mapped)
    }

    pub(crate) fn set_mapped(&self, node: u64) {
        if let Some(node) = self.state().nodes.get_mut(&node) {
            node.mapped = true;
        }
    }

    /// Descriptions of a node that has pages, and the length that the kernel knows.
    pub(crate) fn pages_of(&self, node: u64) -> Option<(Vec<u64>, u64)> {
        let state = self.state();
        let node = state.nodes.get(&node).filter(|node| node.mapped)?;
        Some((node.handles.clone(), node.length))
    }

    pub(crate) fn set_length(&self, node: u64, length: u64) {
        if let Some(node) = self.state().nodes.get_mut(&node) {
            node.length = length;
        }
    }

    pub(crate) fn all(&self) -> Vec<u64> {
        let state = self.state();
        let mapped = state.nodes.iter().filter(|(_, node)| node.mapped);
        mapped.map(|(node, _)| *node).collect()
    }
}

/// Something that waits for other mounts.
#[derive(Debug)]
pub(crate) enum Item {
    /// Of this they are to be told, before the request is answered.
    Change { changed: Changed, answer: Option<(u64, Vec<u8>)>, closes: Option<OpenRef> },
    /// The last close of this handle.
    Close(u64),
}

/// The changes that other mounts have to hear of, in order.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    pub(crate) queue: Mutex<(VecDeque<Item>, bool)>,
    pub(crate) more: Condvar,
}

impl Telling {
    pub(crate) fn push(&self, item: Item) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.0.push_back(item);
        self.more.notify_one();
    }

    /// Pages were written back. Changes by one description that wait are told together. So no more
    /// changes wait than descriptions are open.
    pub(crate) fn push_pages(&self, changed: Changed) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = queue.0.iter_mut().find_map(|item| match item {
            Item::Change { changed: waiting, answer: None, closes: None }
                if waiting.open == changed.open =>
            {
                Some(waiting)
            }
            _ => None,
        });
        match waiting {
            Some(waiting) => {
                waiting.start = waiting.start.min(changed.start);
                waiting.end = waiting.end.max(changed.end);
            }
            None => queue.0.push_back(Item::Change { changed, answer: None, closes: None }),
        }
        self.more.notify_one();
    }

    /// Leaves a close until everything before it was told; false when that is so.
    pub(crate) fn close_later(&self, handle: u64) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (items, busy) = &mut *queue;
        if items.is_empty() && !*busy {
            return false;
        }
        items.push_back(Item::Close(handle));
        self.more.notify_one();
        true
    }

    pub(crate) fn next(&self) -> Item {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            queue.1 = false;
            if let Some(item) = queue.0.pop_front() {
                queue.1 = true;
                return item;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_as_mapped_while_any_descriptor_of_the_mount_is_open() {
        let mapped = Mapped::default();
        mapped.opened(5, 1);
        mapped.opened(5, 2);
        assert!(!mapped.is_mapped(5) && mapped.all().is_empty());
        mapped.set_mapped(5);
        mapped.closed(5, 1);
        assert_eq!(mapped.pages_of(5), Some((vec![2], 0)));
        mapped.closed(5, 2);
        assert!(!mapped.is_mapped(5));
        mapped.opened(5, 3);
        assert_eq!(mapped.pages_of(5), None, "the kernel reads its pages anew");
    }

    #[test]
    fn what_waits_of_one_description_is_told_of_together() {
        let telling = Telling::default();
        let open = OpenRef { index: 1, generation: 1 };
        let other = OpenRef { index: 2, generation: 1 };
        for (open, start, end) in [(open, 8, 9), (other, 1, 2), (open, 4, 5)] {
            telling.push_pages(Changed { open, start, end });
        }
        let told = |item| match item {
            Item::Change { changed, .. } => (changed.open, changed.start, changed.end),
            Item::Close(_) => panic!("nothing was closed"),
        };
        assert_eq!(told(telling.next()), (open, 4, 9));
        assert_eq!(told(telling.next()), (other, 1, 2));
        assert_eq!(telling.queue.lock().unwrap().0.len(), 0);
    }

    #[test]
    fn a_close_comes_after_what_was_written_through_it() {
        let telling = Telling::default();
        assert!(!telling.close_later(1), "there is nothing to wait for");
        let changed = Changed { open: OpenRef { index: 1, generation: 1 }, start: 0, end: 1 };
        telling.push(Item::Change { changed, answer: None, closes: None });
        assert!(telling.close_later(1));
        assert!(matches!(telling.next(), Item::Change { .. }));
        assert!(telling.close_later(2), "it is being told");
        assert!(matches!(telling.next(), Item::Close(1)));
        assert!(matches!(telling.next(), Item::Close(2)));
    }
}

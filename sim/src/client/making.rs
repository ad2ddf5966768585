//! Objects that a process makes for entries that it has submitted, as `mayfly-client` makes them.
//!
//! Between any two steps the process may stand still, or be killed. As long as it is at it nothing
//! else is submitted: what it does meanwhile it asks for, which has its record executed.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_object::ObjectId;
use mayfly_transport_shm::submission_ring::{NewObject, SubmissionRing, ring_of};
use mayfly_types::{FIRST_OBJECT, FileId, OpenRef};

use super::{Client, submitting::show};
use crate::node::Node;

/// An object that is being made.
#[derive(Debug)]
pub(super) struct Making {
    ring: &'static SubmissionRing,
    new: NewObject,
    object: ObjectId,
    name: String,
    bytes: Vec<u8>,
    /// Whether it is there, filled or not.
    made: Option<bool>,
}

impl Client {
    /// Writes more to the entry that was submitted last than its record takes: some at once, and of
    /// some only the beginning.
    pub(super) fn outgrow(&mut self, node: &Node, name: &str) {
        let number = self.last_entry;
        let Some((&open, (session, _))) = self.made.back().zip(self.session.as_ref()) else {
            return;
        };
        if !matches!(number % 4, 1 | 2) {
            // Of those that stay empty some get content later.
            return self.close_some(node, open);
        }
        let ring = &node.region().submission_rings[ring_of(*session)];
        let bytes = vec![number as u8; 5000 + number as usize % 7000];
        let file = FileId(node.region().opens[open.index as usize].id.load(Relaxed));
        if file == FileId::NONE {
            return;
        }
        let Some(new) = ring.begin_object(open, (0, bytes.len() as u64)) else { return };
        let object = ObjectId { file, generation: FIRST_OBJECT };
        self.making = Some(Making { ring, new, object, name: name.to_owned(), bytes, made: None });
        if number % 4 == 1 {
            self.go_on_making(node);
            self.go_on_making(node);
            self.close_some(node, open);
        }
    }

    /// Takes the next step.
    pub(super) fn go_on_making(&mut self, node: &Node) {
        let Some(mut making) = self.making.take() else { return };
        let Some(made) = making.made else {
            making.made = Some(node.disk.make_of_process(making.object, &making.bytes).is_ok());
            self.making = Some(making);
            return;
        };
        if made && making.ring.finish_object(making.new) {
            self.lengths.insert(making.name, making.bytes.len() as u64);
        } else if made {
            node.disk.remove_of_process(making.object);
        }
        show(node, making.ring);
    }

    /// Some are closed before they are executed.
    fn close_some(&mut self, node: &Node, open: OpenRef) {
        let Some((session, _)) = &self.session else { return };
        let ring = &node.region().submission_rings[ring_of(*session)];
        if matches!(self.last_entry % 8, 0 | 1 | 4) && ring.withdraw(open) {
            self.made.retain(|made| *made != open);
        }
    }
}

//! Names that are made and removed without asking, as `mayfly-transport-shm` has processes do it.

use std::sync::atomic::Ordering::SeqCst;

use mayfly_sys::arch::Moment;
use mayfly_transport_shm::submission_ring::{Create, Removal, ring_of};
use mayfly_types::FileId;

use super::{Client, Common, O_CREAT, O_EXCL, O_RDWR};
use crate::{
    history::{Heard, NameOp},
    node::Node,
};

/// The daemon is woken when so many records wait, or twice as many, and so on. Otherwise it learns
/// of them when it is asked for something.
const WAKE_AT: u32 = 4;

impl Client {
    /// Submits an operation on a name, if it submits, and the directory is delegated to it; false
    /// when it has to ask.
    pub(super) fn submit_name(&mut self, node: &Node, op: NameOp, path: &str) -> bool {
        let Some((session, _)) = self.session.as_ref().filter(|_| self.submits) else {
            return false;
        };
        let (region, session) = (node.region(), *session);
        let ring = &region.submission_rings[ring_of(session)];
        let given = ring.delegation_for(session, FileId::ROOT.0, path.as_bytes());
        // The processors' counter knows nothing of the time here.
        let given = given.filter(|_| ring.is_believed(|| u64::MAX));
        let Some((delegation, path)) = given else { return false };
        let (tables, moment) = (&region.name_tables, Moment::default());
        let create = |flags, mode| Create { path, flags, mode, uid: 1, gid: 1, moment };
        let removal = |directory| Removal { path, directory, moment };
        let is_submitted = match op {
            NameOp::Create(_) => {
                let create = create(O_RDWR | O_CREAT | O_EXCL, 0o644);
                let opened = ring.submit_create(tables, delegation, &create);
                self.made.extend(opened);
                opened.is_some()
            }
            NameOp::MakeDirectory(_) => {
                ring.submit_directory(tables, delegation, &create(0, 0o755))
            }
            NameOp::Unlink(_) => ring.submit_removal(tables, delegation, &removal(false)),
            NameOp::RemoveDirectory(_) => ring.submit_removal(tables, delegation, &removal(true)),
            NameOp::Rename(..) | NameOp::Link(..) | NameOp::Stat(_) => false,
        };
        if is_submitted {
            region.head.submitted.fetch_or(1 << ring_of(session), SeqCst);
            if ring.waiting().is_multiple_of(WAKE_AT) {
                region.head.ripe.fetch_or(1 << ring_of(session), SeqCst);
                region.wake_daemon();
            }
        }
        is_submitted
    }

    /// What is submitted is done.
    pub(super) fn hear_at_once(&self, common: &mut Common, event: Option<usize>) {
        common.submitted += 1;
        if let Some(event) = event {
            common.hear(event, Heard::Done);
        }
    }
}

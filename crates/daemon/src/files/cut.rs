//! Cuts of objects at home, once each.
//!
//! An object is cut in the I/O pool, and the daemon may die before the request is answered. When
//! that comes again others may have written behind the cut. So it is noted first, as a decided
//! operation of this shard alone; the next daemon makes the cut before it does anything else with
//! the object, and the request goes on behind it. While a cut is under way nobody else changes the
//! object by a request; who writes to it by leave may do so before or after it.

use mayfly_meta::{
    key,
    record::{Inode, Intent, Layout, PartOf, Step},
};
use mayfly_object::ObjectId;
use mayfly_types::{Errno, FileId, SessionId};

use crate::{
    api::Caller, fault::Outcome, files::state::data::object_of, log, shard::Shard,
    transactions::state::completed::Completed,
};

/// The object that a noted cut is about, and the length that it gets. It is noted as that of the
/// one part of a file; a striped file has several.
fn cut_of(intent: &Intent) -> Option<(ObjectId, u64)> {
    let [(_, steps)] = intent.parts.as_slice() else { return None };
    let [Step::CutPart { id, part, size_bytes }] = steps.as_slice() else { return None };
    let object = ObjectId { file: *id, generation: part.generation };
    (part.layout.width == 1).then_some((object, *size_bytes))
}

impl Shard {
    /// The object of this file is about to be cut for a request.
    pub(crate) fn note_cut(
        &mut self,
        caller: Caller,
        inode: &Inode,
        size_bytes: u64,
    ) -> Outcome<()> {
        let ObjectId { file, generation } = object_of(inode).ok_or(Errno::EIO)?;
        self.expect_cut(file, size_bytes)?;
        let Caller { session, lane, request_id } = caller;
        let layout = Layout { width: 1, ..inode.layout };
        let part = PartOf { generation, layout, index: 0 };
        let steps = vec![Step::CutPart { id: file, part, size_bytes }];
        let (cut, parts) = (Some(file), vec![(self.place.shard.0, steps)]);
        let intent = Intent { session: session.0, lane, request_id, cut, parts };
        let id = self.operation_id();
        self.store.put(&key::intent(id.0), &intent.encode())?;
        // The same request has cut another file if its name has changed hands while the daemon was
        // away.
        Ok(self.note_finished((session, request_id), Completed { id, cut })?)
    }

    /// Whether an earlier daemon has cut the file for the request that runs.
    pub(crate) fn was_cut_before(&self, file: FileId) -> bool {
        self.run.striped.cut_before == Some(file)
    }

    /// Whether the request that runs has cut another file than this one, that its name led to
    /// then. It cuts one: what came in its place may be complete. Only who opens what the name
    /// leads to now, and is told that it is empty, cuts that as well.
    pub(crate) fn has_cut_another(&self, file: FileId) -> bool {
        let run = &self.run;
        let cut = run.striped.cut.filter(|_| run.transaction.is_done);
        cut.or(run.striped.cut_before).is_some_and(|cut| cut != file)
    }

    /// Makes the cuts that were under way.
    pub(crate) fn take_up_cuts(&mut self) -> Outcome<()> {
        for (id, record) in self.marks(key::INTENT)? {
            let intent = Intent::decode(&record)?;
            let Some((object, size_bytes)) = cut_of(&intent) else { continue };
            let key = key::intent(id.0);
            if !self.is_known(SessionId(intent.session)) {
                self.store.delete(&key)?;
            } else if let Err(errno) = self.objects.set_size(object, size_bytes) {
                // Its request makes it, if there is still something to cut.
                log::error(format_args!("object {}", object.path()), format_args!("cut: {errno}"));
                self.store.delete(&key)?;
            } else {
                self.store.put(&key, &Intent { parts: Vec::new(), ..intent }.encode())?;
            }
        }
        Ok(())
    }
}

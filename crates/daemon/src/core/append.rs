//! Appends to objects through the daemon, once each.
//!
//! Where an append lands is known only when it is done, because processes with leave to use the
//! object append to it at the same time. So a repeated one must be recognised. What it is about to
//! do is committed first: who asks, and from where on its bytes can be. A daemon that died between
//! the write and the reply left that note; when the request comes again, its successor looks for
//! the bytes, and adds what is missing.
//!
//! An object that was settled at the last commit needs no note: taking it up again cuts off what
//! nobody acknowledged.

use mayfly_meta::{key, record::Append};
use mayfly_object::ObjectId;
use mayfly_types::{Errno, FileId, SessionId};

use super::{Core, Fault, Outcome, data::BLOCK_BYTES};
use crate::api::Caller;

/// The latest append to a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Noted {
    append: Append,
    /// It may be that it was done but not answered.
    doubtful: bool,
}

impl Noted {
    /// From a predecessor's note.
    pub(super) fn doubtful(append: Append) -> Noted {
        Noted { append, doubtful: true }
    }
}

impl Core {
    /// Appends; the offset after the bytes. `settled` says that the object was settled at the last
    /// commit.
    pub(super) fn append(
        &mut self,
        caller: Caller,
        object: ObjectId,
        bytes: &[u8],
        settled: bool,
    ) -> Outcome<u64> {
        let end = if settled {
            self.objects.append(object, bytes)?
        } else if let Some(start) = self.doubtful_start(caller, object.file, bytes.len()) {
            self.append_again(object, start, bytes)?
        } else {
            let start = self.objects.attr(object)?.size_bytes;
            self.note_append(caller, object.file, start, bytes.len())?;
            self.objects.append(object, bytes)?
        };
        let after = self.objects.attr(object)?;
        self.charge(object.file, after.blocks * BLOCK_BYTES);
        Ok(end)
    }

    fn doubtful_start(&mut self, caller: Caller, file: FileId, count: usize) -> Option<u64> {
        let noted = self.appends.get(&file).filter(|noted| noted.doubtful)?;
        let Append { session, request_id, start, bytes } = noted.append;
        let same = session == caller.session.0
            && request_id == caller.request_id
            && bytes as usize == count;
        same.then_some(start)
    }

    fn note_append(
        &mut self,
        caller: Caller,
        file: FileId,
        start: u64,
        count: usize,
    ) -> Outcome<()> {
        let Caller { session: SessionId(session), request_id, .. } = caller;
        let append = Append { session, request_id, start, bytes: count as u32 };
        self.store.put(&key::numbered(key::APPEND, file), &append.encode())?;
        self.appends.insert(file, Noted { append, doubtful: false });
        // The batch goes on in another transaction.
        self.commit().map_err(Fault::Errno)?;
        Ok(())
    }

    fn append_again(&mut self, object: ObjectId, start: u64, bytes: &[u8]) -> Outcome<u64> {
        let size = self.objects.attr(object)?.size_bytes;
        let mut since = vec![0; usize::try_from(size.saturating_sub(start)).unwrap_or(0)];
        let count = self.objects.read(object, start, &mut since)?;
        since.truncate(count);
        if let Some(at) = since.windows(bytes.len()).position(|found| found == bytes) {
            return Ok(start + (at + bytes.len()) as u64);
        }
        // Killed in the middle of the write, or before it.
        let begun = (0..since.len().min(bytes.len()))
            .rev()
            .map(|less| less + 1)
            .find(|count| since.ends_with(&bytes[..*count]))
            .unwrap_or(0);
        Ok(self.objects.append(object, &bytes[begun..])?)
    }

    /// The size is settled, or the object goes: nothing is in doubt any more.
    pub(super) fn forget_append(&mut self, file: FileId) -> Outcome<()> {
        if self.appends.remove(&file).is_some() {
            self.store.delete(&key::numbered(key::APPEND, file))?;
        }
        Ok(())
    }

    /// Nobody repeats a request of this session any more.
    pub(super) fn forget_doubts(&mut self, session: SessionId) {
        let theirs = self.appends.values_mut().filter(|noted| noted.append.session == session.0);
        theirs.for_each(|noted| noted.doubtful = false);
    }

    /// Takes up what the predecessor left in doubt.
    pub(super) fn take_up_appends(&mut self) -> Result<(), Errno> {
        let failed = |error| super::store_failed(&error);
        for (file, record) in self.marks(key::APPEND).map_err(failed)? {
            let append = Append::decode(&record).map_err(failed)?;
            self.appends.insert(file, Noted::doubtful(append));
        }
        Ok(())
    }
}

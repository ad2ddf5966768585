//! Appends to objects through the daemon, once each.
//!
//! Where an append lands is known only when it is done, because processes with leave to use the
//! object append to it at the same time. So a repeated one must be recognised. What it is about to
//! do is committed first: who asks, and from where on its bytes can be, whatever is cut meanwhile.
//! A daemon that died between the write and the reply has left that note. When the request comes
//! again, the new daemon looks for its bytes among those that were there when it started. It adds
//! the bytes that are missing. Each lane has a note of its own, since the requests of several may
//! be in doubt at once.

use mayfly_meta::{Scan, key, record::Append};
use mayfly_object::{ObjectId, ObjectStore};
use mayfly_transport_shm::layout::WRITE_STARTED;
use mayfly_types::{Errno, FileId, SessionId};
use mayfly_wire::{Wire, Writer, Written};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::{
        data::BLOCK_BYTES,
        state::{
            append::Noted,
            background::{Change, Length, Reply},
        },
    },
    shard::Shard,
};

impl Shard {
    /// Appends to the object of an unsettled inode, which ended at `size_bytes` a moment ago.
    pub(super) fn append(
        &mut self,
        change: Change,
        bytes: &[u8],
        size_bytes: u64,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let object = change.object;
        let Some(caller) = change.caller else { return Err(Errno::EINVAL.into()) };
        let doubtful = self.doubtful(caller, object.file, bytes.len());
        if doubtful.is_none() {
            let from = self.files.background.least_end(object.file, size_bytes);
            self.note_append(caller, object.file, from, bytes.len())?;
        }
        let append = move |objects: &dyn ObjectStore, bytes: &[u8]| match doubtful {
            Some(range) => append_again(objects, object, range, bytes),
            None => objects.append(object, bytes),
        };
        if self.objects.may_wait() {
            let Reply::Written(written, growth, _) = change.reply else {
                return Err(Errno::EINVAL.into());
            };
            let place = self.begin_write(caller, object.file, WRITE_STARTED);
            let change = Change { reply: Reply::Written(written, growth, place), ..change };
            let bytes = self.keep(bytes);
            return Ok(
                self.start_change(Length::Any, change, move |objects| append(objects, &bytes))
            );
        }
        // The batch goes on in another transaction.
        self.commit().map_err(Fault::Errno)?;
        let end = append(&*self.objects, bytes)?;
        let after = self.objects.attr(object)?;
        self.charge(object.file, after.blocks * BLOCK_BYTES);
        if let Reply::Written(written, ..) = change.reply {
            Written { end, ..written }.encode(to)?;
        }
        Ok(Served::Replied)
    }

    /// Between which offsets the bytes of this request are, if it was executed.
    fn doubtful(&self, caller: Caller, file: FileId, count: usize) -> Option<(u64, u64)> {
        let notes = self.files.appends.get(&file)?;
        let noted = notes.iter().find(|noted| noted.is_of(caller.session.0, caller.lane))?;
        let Append { request_id, start, bytes, .. } = noted.append;
        let same = request_id == caller.request_id && bytes as usize == count;
        noted.doubtful_end.filter(|_| same).map(|end| (start, end))
    }

    /// Where the bytes of this request go, or went, in a striped file.
    pub(crate) fn noted_start(&self, caller: Caller, file: FileId, count: usize) -> Option<u64> {
        let notes = self.files.appends.get(&file)?;
        let noted = notes.iter().find(|noted| noted.is_of(caller.session.0, caller.lane))?;
        let Append { request_id, start, bytes, .. } = noted.append;
        (request_id == caller.request_id && bytes as usize == count).then_some(start)
    }

    /// Whether this request has a place for what it appends to a striped file.
    pub(super) fn is_noted_append(&self, caller: Caller, file: FileId) -> bool {
        let Caller { session, lane, request_id } = caller;
        let mut notes = self.files.appends.get(&file).into_iter().flatten();
        notes.any(|noted| noted.is_of(session.0, lane) && noted.append.request_id == request_id)
    }

    /// Up to where bytes of a striped file are written, or will be by a request that comes again.
    pub(crate) fn noted_end(&self, file: FileId) -> u64 {
        let notes = self.files.appends.get(&file).into_iter().flatten();
        let known = notes.filter(|noted| self.is_known(SessionId(noted.append.session)));
        let ends = known.map(|noted| noted.append.start + u64::from(noted.append.bytes));
        ends.max().unwrap_or(0)
    }

    /// Nothing was written where a note says.
    pub(crate) fn forget_noted(&mut self, caller: Caller, file: FileId) -> Outcome<()> {
        let Caller { session: SessionId(session), lane, .. } = caller;
        if let Some(notes) = self.files.appends.get_mut(&file) {
            notes.retain(|noted| !noted.is_of(session, lane));
        }
        Ok(self.store.delete(&key::append(file, session, lane)).map(drop)?)
    }

    /// Nothing is written of an append whose place begins where the file ends. Its daemon or that
    /// of its process was killed first; should it come again, it gets a place behind others.
    pub(crate) fn forget_unwritten(&mut self, file: FileId, size_bytes: u64) -> Outcome<()> {
        let Some(notes) = self.files.appends.get_mut(&file) else { return Ok(()) };
        for noted in notes.extract_if(.., |noted| noted.append.start >= size_bytes) {
            self.store.delete(&key::append(file, noted.append.session, noted.lane))?;
        }
        Ok(())
    }

    pub(crate) fn note_append(
        &mut self,
        caller: Caller,
        file: FileId,
        start: u64,
        count: usize,
    ) -> Outcome<()> {
        let Caller { session: SessionId(session), request_id, lane } = caller;
        let append = Append { session, request_id, start, bytes: count as u32 };
        self.store.put(&key::append(file, session, lane), &append.encode())?;
        let notes = self.files.appends.entry(file).or_default();
        notes.retain(|noted| !noted.is_of(session, lane));
        notes.push(Noted { append, lane, doubtful_end: None });
        Ok(())
    }

    /// The object is about to be cut: what was noted and is not done may land at its new end.
    pub(super) fn expect_cut(&mut self, file: FileId, size_bytes: u64) -> Outcome<()> {
        self.files.background.cut(file, size_bytes);
        let notes = self.files.appends.get_mut(&file).into_iter().flatten();
        for noted in notes.filter(|noted| noted.append.start > size_bytes) {
            noted.append.start = size_bytes;
            let key = key::append(file, noted.append.session, noted.lane);
            self.store.put(&key, &noted.append.encode())?;
        }
        Ok(())
    }

    /// The size is settled, or the object goes: nothing is in doubt any more.
    pub(crate) fn forget_append(&mut self, file: FileId) -> Outcome<()> {
        for noted in self.files.appends.remove(&file).unwrap_or_default() {
            self.store.delete(&key::append(file, noted.append.session, noted.lane))?;
        }
        Ok(())
    }

    /// Nobody repeats a request of this session any more.
    pub(crate) fn forget_appends_in_doubt(&mut self, session: SessionId) {
        let notes = self.files.appends.values_mut().flatten();
        for noted in notes.filter(|noted| noted.append.session == session.0) {
            noted.doubtful_end = None;
        }
    }

    /// Takes up what the predecessor left in doubt.
    pub(crate) fn take_up_appends(&mut self) -> Result<(), Errno> {
        let failed = |error| crate::fault::store_failed(&error);
        let mut found = Vec::new();
        let visit = &mut |key: &[u8], record: &[u8]| {
            found.extend(key::split_append(key).map(|at| (at, record.to_vec())));
            Scan::More
        };
        self.store.scan(&[key::APPEND], &[key::APPEND], visit).map_err(failed)?;
        for ((file, _, lane), record) in found {
            let append = Append::decode(&record).map_err(failed)?;
            let notes = self.files.appends.entry(file).or_default();
            // Where the object ends is filled in when the file is taken up.
            notes.push(Noted { append, lane, doubtful_end: None });
        }
        Ok(())
    }

    /// An object that is open ends at `size_bytes` now: what is in doubt lies below.
    pub(crate) fn bound_appends_in_doubt(&mut self, file: FileId, size_bytes: u64) {
        for noted in self.files.appends.get_mut(&file).into_iter().flatten() {
            noted.doubtful_end = Some(size_bytes);
        }
    }
}

fn append_again(
    objects: &dyn ObjectStore,
    object: ObjectId,
    (start, end): (u64, u64),
    bytes: &[u8],
) -> Result<u64, Errno> {
    let mut since = vec![0; usize::try_from(end.saturating_sub(start)).unwrap_or(0)];
    let count = objects.read(object, start, &mut since)?;
    since.truncate(count);
    if let Some(at) = since.windows(bytes.len()).position(|found| found == bytes) {
        return Ok(start + (at + bytes.len()) as u64);
    }
    if objects.attr(object)?.size_bytes > end {
        // Others have appended since: a part of it that was written, if any, stands alone.
        return objects.append(object, bytes);
    }
    // Killed in the middle of the write, or before it. A few bytes at the end that are as ours
    // begin may be anybody's: a beginning of ours is what is there since and nothing else.
    let begun = if bytes.starts_with(&since) { since.len() } else { 0 };
    objects.append(object, &bytes[begun..])
}

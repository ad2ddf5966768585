//! Appends to objects through the daemon, once each.
//!
//! Where nobody appends by himself an append has its place before it begins (`alone.rs`), and one
//! that is repeated is written there again.
//!
//! Elsewhere it is known only when it is done where one lands, because processes with leave to use
//! the object append to it at the same time. So a repeated one must be recognised.
//!
//! What an append is about to do is committed first: who asks, and where its bytes go, or from
//! where on they can be, whatever is cut meanwhile. A daemon that died between the write and the
//! reply has left that note. When the request comes again without a place, the new daemon looks
//! for its bytes among those that were there when it started. It adds the bytes that are missing.
//! Each lane has a note of its own, since the requests of several may be in doubt at once.

use mayfly_meta::{
    Scan, key,
    record::{Append, Inode},
};
use mayfly_object::{ObjectId, ObjectStore};
use mayfly_transport_shm::layout::WRITE_STARTED;
use mayfly_types::{Errno, FileId, SessionId};
use mayfly_wire::{Wire, Writer, Written};

use crate::{
    api::Caller,
    fault::{Outcome, Served},
    files::{
        data::BLOCK_BYTES,
        state::{
            append::Noted,
            background::{Change, Length, Reply},
            in_doubt::write_again,
        },
    },
    shard::Shard,
};

impl Shard {
    /// Where the bytes of an append go, or went before this daemon: to where the file ends.
    pub(super) fn start_of_append(
        &mut self,
        caller: Caller,
        inode: &Inode,
        count: usize,
    ) -> Outcome<u64> {
        if count > 0 {
            self.check_at_rest(inode.id)?;
            self.be_alone(inode)?;
        }
        match self.place_of_repeated(caller, inode, count) {
            Some(start) => Ok(start),
            None => self.size_of(inode),
        }
    }

    /// The place of an append that an earlier daemon had begun, if it has one. Others have waited
    /// for it since.
    fn place_of_repeated(&self, caller: Caller, inode: &Inode, count: usize) -> Option<u64> {
        let has_place = self.is_appended_by_request(inode) && self.is_in_doubt(caller);
        self.doubtful(caller, inode.id, count).filter(|_| has_place).map(|(start, _)| start)
    }

    /// Appends to the object of an unsettled inode, which ended at `start` a moment ago.
    pub(super) fn append(
        &mut self,
        change: Change,
        inode: &Inode,
        (start, bytes): (u64, &[u8]),
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let object = change.object;
        let (Some(caller), Reply::Written(written, growth, _)) = (change.caller, &change.reply)
        else {
            return Err(Errno::EINVAL.into());
        };
        let (written, growth) = (*written, *growth);
        let way = match self.doubtful(caller, object.file, bytes.len()) {
            Some(_) if self.place_of_repeated(caller, inode, bytes.len()).is_some() => {
                Way::AtOnceMore(start)
            }
            Some(range) => Way::Again(range),
            None => {
                let from = self.files.background.least_end(object.file, start);
                self.note_append(caller, object.file, from, bytes.len())?;
                if self.is_appended_by_request(inode) { Way::At(start) } else { Way::AtEnd }
            }
        };
        let place = self.begin_write(caller, object.file, WRITE_STARTED);
        if self.objects.may_wait() {
            if self.is_appended_by_request(inode) {
                self.striping.files.appending.insert(object.file, Some(caller));
            }
            let change = Change { reply: Reply::Written(written, growth, place), ..change };
            let bytes = self.keep(bytes);
            return Ok(self.start_change(Length::Any, change, move |objects| {
                way.append(objects, object, &bytes)
            }));
        }
        // The batch goes on in another transaction.
        let appended = self.commit().and_then(|_| way.append(&*self.objects, object, bytes));
        self.forget_started(place);
        let end = appended?;
        let after = self.objects.attr(object)?;
        self.charge(object.file, after.blocks * BLOCK_BYTES);
        Written { end, ..written }.encode(to)?;
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
    pub(crate) fn is_noted_append(&self, caller: Caller, file: FileId) -> bool {
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

/// How an append is made.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Its bytes have this place, which is at the end but for what others write again.
    At(u64),
    /// They may be there already.
    AtOnceMore(u64),
    AtEnd,
    /// Once more, unless its bytes are found between these offsets.
    Again((u64, u64)),
}

impl Way {
    /// Where the bytes end.
    fn append(
        self,
        objects: &dyn ObjectStore,
        object: ObjectId,
        bytes: &[u8],
    ) -> Result<u64, Errno> {
        match self {
            Way::At(start) => {
                let written = objects.write(object, start, bytes);
                whole(objects, object, start, written)?;
                Ok(start + bytes.len() as u64)
            }
            Way::AtOnceMore(start) => {
                let written = write_again(objects, object, start, bytes);
                whole(objects, object, start, written)?;
                Ok(start + bytes.len() as u64)
            }
            Way::AtEnd => objects.append(object, bytes),
            Way::Again(range) => append_again(objects, object, range, bytes),
        }
    }
}

/// All of it or nothing: what was appended from `start` on before it failed does not stay.
fn whole(
    objects: &dyn ObjectStore,
    object: ObjectId,
    start: u64,
    written: Result<(), Errno>,
) -> Result<(), Errno> {
    if written.is_err() && objects.attr(object).is_ok_and(|attr| attr.size_bytes > start) {
        // If that fails, too, the file is longer than anybody was told.
        let _cut = objects.set_size(object, start);
    }
    written
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

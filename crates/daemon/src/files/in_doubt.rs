//! Writes to objects at an offset that a daemon had begun when it died.
//!
//! Such a write is noted nowhere but in the memory of the node, before its first byte is written
//! until it is answered. The daemon that dies in between may have made it, and nobody was told; its
//! request comes again, from a lane of this node or from another one, and is executed. A request
//! that was served before that would see the bytes, or the longer file. It could change the file,
//! and the same bytes would then be written once more. So the next daemon takes such writes first:
//! until one has come again, and is done, everybody else who asks for bytes or length of its file
//! waits.
//!
//! A change for a process of another node stays noted, with its answer, until the lane of that
//! process goes on: the answer may be lost with the daemon, long after others have seen the bytes.
//!
//! The wait is over as well when the request cannot come any more: its session has ended, its lane
//! has gone on to another request, or its deadline has passed. A second execution that finds the
//! bytes written needs no space for them.
//!
//! A process that was granted an object reads and writes it by itself, and waits for nobody.
//!
//! Of a striped file a part has such writes, and the home such appends. Requests that use a part,
//! and cuts, wait for the writes in doubt there. So does an append, as it has to know where the
//! part ends. The home's cuts and appends wait for its appends in doubt, and so do requests for the
//! part that it has itself. Those for other parts do not, unless their daemons died as well: a part
//! knows what it has had of an append, and does not write it again, whatever was written over it
//! (`striping/object_append.rs`).
//!
//! Bytes that a home appends to another shard's part are in doubt there when that shard's daemon
//! dies. Requests that use the part wait for them. The home asks again, or says that nobody does.
//! It waits for nothing there but writes in doubt. It knows best, so such a doubt does not end with
//! the session or the lane of the request.
//!
//! Nobody waits in a circle. A write in doubt waits for nothing that is in doubt, and an append
//! only for such writes. What a write needs besides is the home's admission, which waits for
//! nobody, and that the part is neither claimed nor held: a cut claims a part, and an append holds
//! it, only when no write is in doubt there. An append needs its turn at home, and whoever waits
//! for it there has not taken that, nor planned a cut.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mayfly_transport_shm::layout::{
    APPENDED, StartedWrite as Entry, WRITE_STARTED, WRITE_STARTED_APPEND, WRITE_STARTED_AT_HOME,
    WRITE_STARTED_PART,
};
use mayfly_types::{Errno, FileId, SessionId, limits::STARTED_WRITES_MAX};
use mayfly_wire::Written;

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::state::{
        background::{Change, Length, Reply, encoded},
        in_doubt::{InDoubtWrite, Kind, write_again},
    },
    shard::Shard,
};

impl Shard {
    fn started_row(&self) -> &'static [Entry] {
        let row = self.node.started_writes.get(self.own() as usize);
        row.map_or(&[], |row| row.as_slice())
    }

    /// Writes to an object in the pool, at this offset and for a request, and answers that.
    pub(super) fn start_write(&mut self, change: Change, offset: u64, bytes: &[u8]) -> Served {
        let (Reply::Written(written, growth, _), Some(caller)) = (&change.reply, change.caller)
        else {
            return Served::Pending;
        };
        let (written, growth, object) = (*written, *growth, change.object);
        let again = self.is_in_doubt(caller);
        let place = self.begin_write(caller, object.file, WRITE_STARTED);
        self.files.background.growing_bytes += growth;
        let change = Change { reply: Reply::Written(written, growth, place), ..change };
        let (bytes, length) = (self.keep(bytes), bytes.len());
        self.start_change(Length::Bytes(length), change, move |objects| {
            match again {
                true => write_again(objects, object, offset, &bytes)?,
                false => objects.write(object, offset, &bytes)?,
            }
            Ok(written.end)
        })
    }

    /// A write for this request is about to begin: its place in the row, if there is one left.
    pub(crate) fn begin_write(
        &mut self,
        caller: Caller,
        file: FileId,
        under_way: u32,
    ) -> Option<usize> {
        let write = self.files.in_doubt.writes.iter_mut().find(|write| write.caller == caller);
        if let Some(write) = write {
            write.again = true;
            return Some(write.place);
        }
        let place = self.files.in_doubt.free.pop()?;
        let entry = self.started_row().get(place)?;
        entry.request_id.store(caller.request_id, Relaxed);
        entry.session.store(caller.session.0, Relaxed);
        entry.lane.store(caller.lane, Relaxed);
        entry.count.store(0, Relaxed);
        entry.end.store(0, Relaxed);
        entry.done.store(under_way, Relaxed);
        entry.file.store(file.0, Release);
        Some(place)
    }

    /// It is done, and answered with the batch that is open, if one is. The answer to a process of
    /// another node may be lost with this daemon, so its successor has to know it.
    pub(crate) fn end_write(&mut self, caller: Caller, place: usize, done: Result<Written, Errno>) {
        if self.remote.keep_place(caller, place) {
            self.note_done(place, done);
        } else {
            self.files.in_doubt.closing.push(place);
        }
        if self.store.pending_transaction() == 0 {
            self.close_started();
        }
        self.end_in_doubt_where(|write| write.place == place);
    }

    /// The same for a change of an object that may be a write.
    pub(super) fn end_change(&mut self, change: &Change, result: Result<u64, Errno>) {
        if let (Reply::Written(written, _, Some(place)), Some(caller)) =
            (&change.reply, change.caller)
        {
            self.end_write(caller, *place, result.map(|end| Written { end, ..*written }));
        }
    }

    fn note_done(&self, place: usize, done: Result<Written, Errno>) {
        let Some(entry) = self.started_row().get(place) else { return };
        if let Ok(written) = &done {
            entry.count.store(written.count, Relaxed);
            entry.end.store(written.end, Relaxed);
        }
        let done = done.map_or_else(|errno| 1 + errno.raw() as u32, |_| 1);
        entry.done.store(done, Release);
    }

    /// Answers again what an earlier daemon had answered to a process of another node.
    fn take_up_done(&mut self, place: usize, caller: Caller, entry: &Entry) {
        let (count, end) = (entry.count.load(Relaxed), entry.end.load(Relaxed));
        let status = entry.done.load(Acquire).saturating_sub(1);
        let written = encoded(0, &Written { object: true, count, end });
        let body = written.ok().filter(|_| status == 0).unwrap_or_default();
        if !self.remote.take_up_written(caller, (status, body.into()), place) {
            self.free_started(place);
        }
    }

    /// It is over, and was answered with the batch that is open, or nobody is told what came of it.
    pub(crate) fn forget_started(&mut self, place: Option<usize>) {
        self.files.in_doubt.closing.extend(place);
        self.end_in_doubt_where(|write| Some(write.place) == place);
    }

    /// What was answered is committed.
    pub(crate) fn close_started(&mut self) {
        while let Some(place) = self.files.in_doubt.closing.pop() {
            self.free_started(place);
        }
    }

    pub(crate) fn free_started(&mut self, place: usize) {
        if let Some(entry) = self.started_row().get(place) {
            entry.file.store(0, Release);
            self.files.in_doubt.free.push(place);
        }
    }

    pub(crate) fn started_entry(&self, place: usize) -> Option<&'static Entry> {
        self.started_row().get(place)
    }

    /// Takes up what an earlier daemon had begun. The memory may say anything: the worst is that a
    /// file has to be waited for, or that a request which it names is taken for done.
    pub(crate) fn take_up_started(&mut self) {
        self.files.in_doubt.since = self.now.seconds;
        for (place, entry) in self.started_row().iter().enumerate().take(STARTED_WRITES_MAX) {
            let file = FileId(entry.file.load(Relaxed));
            let (session, lane) =
                (SessionId(entry.session.load(Relaxed)), entry.lane.load(Relaxed));
            let caller = Caller { session, lane, request_id: entry.request_id.load(Relaxed) };
            let write = |kind| InDoubtWrite { place, caller, file, kind, again: false };
            match entry.done.load(Acquire) {
                _ if file == FileId(0) => self.free_started(place),
                APPENDED => self.take_up_appended(entry, caller, Some(place)),
                WRITE_STARTED_APPEND => {
                    self.take_up_appended(entry, caller, None);
                    self.files.in_doubt.writes.push(write(Kind::Piece));
                }
                WRITE_STARTED_AT_HOME if !self.is_known(session) => {
                    self.end_one_in_doubt(&write(Kind::Part))
                }
                // Its bytes go to parts when the note is durable. Who waited for it as for a write
                // would keep it from its turn.
                WRITE_STARTED_AT_HOME if !self.is_noted_append(caller, file) => {
                    self.free_started(place)
                }
                _ if !self.is_known(session) => self.free_started(place),
                WRITE_STARTED_PART | WRITE_STARTED_AT_HOME => {
                    self.files.in_doubt.writes.push(write(Kind::Part));
                }
                WRITE_STARTED => self.files.in_doubt.writes.push(write(Kind::Whole)),
                _ => self.take_up_done(place, caller, entry),
            }
        }
    }

    /// Whether this request may have been executed before.
    pub(crate) fn is_in_doubt(&self, caller: Caller) -> bool {
        self.files.in_doubt.writes.iter().any(|write| write.caller == caller)
    }

    /// Waits while somebody else's write to the file is in doubt.
    pub(super) fn check_not_in_doubt(&self, file: FileId) -> Outcome<()> {
        if self.files.in_doubt.writes.is_empty() {
            return Ok(());
        }
        let mine = |write: &InDoubtWrite| Some(write.caller) == self.files.in_doubt.runs;
        let whole = |write: &&InDoubtWrite| write.kind == Kind::Whole && write.file == file;
        let mut of_file = self.files.in_doubt.writes.iter().filter(whole).peekable();
        if of_file.peek().is_none() || of_file.any(mine) { Ok(()) } else { Err(Fault::Busy) }
    }

    /// Waits while anything of a striped file is in doubt that is in the way.
    fn check_in_doubt(
        &self,
        file: FileId,
        is_in_the_way: impl Fn(&InDoubtWrite) -> bool,
    ) -> Outcome<()> {
        let of_parts = |write: &&InDoubtWrite| write.kind != Kind::Whole && write.file == file;
        let waits = self.files.in_doubt.writes.iter().filter(of_parts).any(is_in_the_way);
        if waits { Err(Fault::Busy) } else { Ok(()) }
    }

    fn is_append_at_home(&self, write: &InDoubtWrite) -> bool {
        write.kind == Kind::Part && self.is_noted_append(write.caller, write.file)
    }

    /// Waits while a write to the part of a striped file is in doubt.
    pub(crate) fn check_no_write_in_doubt(&self, file: FileId) -> Outcome<()> {
        let write = |of: &InDoubtWrite| of.kind == Kind::Part && !self.is_append_at_home(of);
        self.check_in_doubt(file, write)
    }

    /// The same with an append at its home, for who is about to append.
    pub(crate) fn check_no_append_in_doubt(&self, caller: Caller, file: FileId) -> Outcome<()> {
        self.check_in_doubt(file, |of| self.is_append_at_home(of) && !self.is_in_doubt(caller))
    }

    /// The same with anything, for who cuts the file.
    pub(crate) fn check_nothing_in_doubt(&self, file: FileId) -> Outcome<()> {
        self.check_in_doubt(file, |_| true)
    }

    /// The same for who uses the part that is here.
    pub(crate) fn check_part_not_in_doubt(&self, caller: Caller, file: FileId) -> Outcome<()> {
        self.check_in_doubt(file, |_| !self.is_in_doubt(caller))
    }

    /// Some doubts are over, and who waited goes on.
    fn end_in_doubt_where(&mut self, is_over: impl Fn(&InDoubtWrite) -> bool) {
        if self.files.in_doubt.writes.is_empty() {
            return;
        }
        let over: Vec<InDoubtWrite> =
            self.files.in_doubt.writes.extract_if(.., |write| is_over(write)).collect();
        for write in over.iter().filter(|write| !write.again) {
            self.end_one_in_doubt(write);
        }
        if !over.is_empty() {
            self.wake_blocked();
        }
    }

    /// It is over, and was not written again.
    fn end_one_in_doubt(&mut self, write: &InDoubtWrite) {
        if self.is_append_at_home(write) {
            self.let_pieces_end(write.caller, write.file);
        }
        self.free_started(write.place);
    }

    /// The request was answered.
    pub(crate) fn end_in_doubt_of(&mut self, caller: Caller) {
        self.end_in_doubt_where(|write| write.is_of(caller));
    }

    /// Nobody asks any more for bytes of these appends to the part here.
    pub(crate) fn end_pieces(&mut self, file: FileId, is_over: impl Fn(Caller) -> bool) {
        let piece = |write: &InDoubtWrite| write.kind == Kind::Piece && write.file == file;
        self.end_in_doubt_where(|write| piece(write) && is_over(write.caller));
    }

    /// The request is somebody else's now. One about a part may come back from the file's home.
    pub(crate) fn end_whole_in_doubt_of(&mut self, caller: Caller) {
        self.end_in_doubt_where(|write| write.kind == Kind::Whole && write.caller == caller);
    }

    /// Nobody repeats a request of these sessions any more.
    pub(crate) fn end_in_doubt_of_sessions(&mut self, is_over: impl Fn(SessionId) -> bool) {
        self.end_in_doubt_where(|write| write.kind != Kind::Piece && is_over(write.caller.session));
    }

    /// A lane goes on: its last request does not come again.
    pub(crate) fn end_in_doubt_behind(&mut self, caller: Caller) {
        self.end_in_doubt_where(|write| {
            caller.is_behind(write.caller) && write.kind != Kind::Piece
        });
    }

    /// Nobody waits any more for what was begun so long ago. A clock that was set says nothing.
    pub(crate) fn end_old_in_doubt(&mut self) {
        if self.files.in_doubt.writes.is_empty() {
            return;
        }
        let deadline_ms = self.node.head.deadline_ms.load(Relaxed);
        let now = self.clock.now().seconds;
        let passed = now - self.files.in_doubt.since;
        if !(0..=i64::from(deadline_ms.div_ceil(1000))).contains(&passed) {
            self.end_in_doubt_where(|_| true);
        }
    }
}

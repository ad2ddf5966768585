//! Bytes that a file's home appends to a part, once each.
//!
//! The home says which request the bytes are of. By that the part knows which bytes of the append
//! it has had: those from the first one up to some place, since bytes come in order, and one append
//! to a file after the other. A home that has died asks once more. Then the part does not write
//! again what it has had, whatever others have written over it meanwhile. The part forgets the
//! append when the home says that it is over or asks for another one, and when the file is cut.
//! Nobody asks for those bytes at that place any more.
//!
//! The daemon of the part may die as well. So all this is in the node's memory too, before the
//! first byte is written (`files/in_doubt.rs`), and a home that asks again for bytes that are done
//! hears so. Nobody knows how much is there of an append that was under way. So everybody else who
//! uses the part waits until the home has asked again, and then finds the bytes as if they had been
//! written before. A home may not ask again: its own daemon died, and nobody repeats the request.
//! Then it says so.
//!
//! The part at the home itself needs nothing of this: the append is noted there as a whole.

use std::sync::atomic::Ordering::{Relaxed, Release};

use mayfly_transport_shm::layout::{APPENDED, StartedWrite as Entry, WRITE_STARTED_APPEND};
use mayfly_types::{Errno, FileId};

use crate::{
    api::Caller,
    fault::Outcome,
    message::{Answer, Append, PartPlace},
    shard::Shard,
    shards::slots::ShardId,
    striping::{
        arithmetic::Stripes,
        state::{object_append::Appended, object_change::ObjectChange},
    },
};

/// Bytes of an append that are for a part.
#[derive(Debug, Clone, Copy)]
struct Piece {
    file: FileId,
    by: Caller,
    start: u64,
    end: u64,
}

impl Shard {
    /// Bytes for the end of the file, from its home.
    pub(crate) fn append_part(
        &mut self,
        place: &PartPlace,
        (home, append): (ShardId, Append),
        offset: u64,
        (bytes, behind): (&[u8], bool),
    ) -> Outcome<Answer> {
        let (file, count) = (place.file, bytes.len() as u64);
        let by = self.caller_here(append.by.ok_or(Errno::EPROTO)?);
        let piece = Piece { file, by, start: offset, end: offset.saturating_add(count) };
        if let Some(answer) = self.part_changed() {
            return Ok(self.note_appended(&piece, answer));
        }
        if !self.is_held(file, (home, append)) {
            // The home has given the append up, or has to ask again how far this part reaches.
            return Ok(Answer::Retry);
        }
        if self.was_appended(&piece) {
            return Ok(Answer::Done);
        }
        let object = self.part_at_rest(place)?;
        let at = place.part.layout.in_part(offset);
        if !self.is_in_doubt(by) {
            self.take_room(place, at + count, count)?;
        }
        self.end_leave_to_write(file);
        if home != self.place.shard {
            self.note_piece(&piece);
        }
        let change = ObjectChange::Append { at, bytes: bytes.to_vec(), behind };
        let answer = self.change_part(object, change)?;
        Ok(self.note_appended(&piece, answer))
    }

    fn caller_here(&self, of_all: Caller) -> Caller {
        Caller { session: self.place.numbering.session_here(of_all.session), ..of_all }
    }

    /// Whether these bytes were appended. Other bytes are there only if the file was cut since.
    fn was_appended(&self, piece: &Piece) -> bool {
        let appended =
            self.striping.objects.active.get(&piece.file).and_then(|active| active.appended);
        appended
            .filter(|appended| appended.by == piece.by)
            .is_some_and(|appended| appended.start <= piece.start && piece.end <= appended.end)
    }

    /// Bytes are about to be written.
    fn note_piece(&mut self, piece: &Piece) {
        let Piece { file, by, start, .. } = *piece;
        let active = self.striping.objects.active.get(&file);
        let known = active.and_then(|active| active.appended).filter(|known| known.by == by);
        if known.is_none() {
            self.forget_appended(file);
        }
        let known = known.unwrap_or(Appended { by, start, end: start, place: None });
        let place = known.place.or_else(|| self.begin_write(by, file, WRITE_STARTED_APPEND));
        let noted = Appended { place, ..known };
        self.striping.objects.active.entry(file).or_default().appended = Some(noted);
        self.show_appended(&noted, WRITE_STARTED_APPEND);
    }

    /// Bytes were appended here, or not.
    fn note_appended(&mut self, piece: &Piece, answer: Answer) -> Answer {
        let Piece { file, by, start, end } = *piece;
        let active = self.striping.objects.active.entry(file).or_default();
        let known = active.appended.filter(|known| known.by == by);
        let before = known.unwrap_or(Appended { by, start, end: start, place: None });
        let first = before.start == before.end;
        let appended = match answer {
            Answer::Done if first => Appended { start, end, ..before },
            Answer::Done => Appended { end, ..before },
            _ => before,
        };
        active.appended = Some(appended);
        self.show_appended(&appended, APPENDED);
        self.end_pieces(file, |other| other == by);
        answer
    }

    fn show_appended(&self, appended: &Appended, done: u32) {
        let Appended { start, end, place, .. } = *appended;
        if let Some(entry) = place.and_then(|place| self.started_entry(place)) {
            // A request has no more bytes.
            entry.count.store((end - start) as u32, Relaxed);
            entry.end.store(end, Relaxed);
            entry.done.store(done, Release);
        }
    }

    /// Takes up what an earlier daemon had appended. If it was about to append more, the place is
    /// that of the write in doubt.
    pub(crate) fn take_up_appended(&mut self, entry: &Entry, by: Caller, place: Option<usize>) {
        let (file, end) = (FileId(entry.file.load(Relaxed)), entry.end.load(Relaxed));
        let start = end.saturating_sub(u64::from(entry.count.load(Relaxed)));
        self.forget_appended(file);
        let appended = Appended { by, start, end, place };
        self.striping.objects.active.entry(file).or_default().appended = Some(appended);
    }

    /// The append of this request is over. The request has the number that all nodes know it by.
    pub(super) fn forget_append_of(&mut self, file: FileId, of_all: Caller) {
        let by = self.caller_here(of_all);
        self.end_pieces(file, |other| other == by);
        let active = self.striping.objects.active.get(&file);
        if active.and_then(|active| active.appended).is_some_and(|appended| appended.by == by) {
            self.forget_appended(file);
        }
    }

    /// The file's home is about to append for this request. So all other appends are over.
    pub(super) fn forget_appends_before(&mut self, file: FileId, of_all: Caller) {
        let by = self.caller_here(of_all);
        self.end_pieces(file, |other| other != by);
        let active = self.striping.objects.active.get(&file);
        if active.and_then(|active| active.appended).is_some_and(|appended| appended.by != by) {
            self.forget_appended(file);
        }
    }

    /// Nobody asks any more for what was appended to the file.
    pub(super) fn forget_appends(&mut self, file: FileId) {
        self.end_pieces(file, |_| true);
        self.forget_appended(file);
    }

    fn forget_appended(&mut self, file: FileId) {
        let active = self.striping.objects.active.get_mut(&file);
        if let Some(place) = active.and_then(|of| of.appended.take()).and_then(|of| of.place) {
            self.free_started(place);
        }
    }
}

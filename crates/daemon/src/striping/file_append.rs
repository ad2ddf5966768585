//! Appends to striped files.
//!
//! The file's home does them one after the other. Where one lands is decided and noted, durably,
//! before the first byte goes to a part; so a request that comes again after a crash writes the
//! same bytes to the same place. Meanwhile nothing else makes a part longer (`object_hold.rs`).
//! When the home was restarted in between, others append and cut only behind that request
//! (`files/in_doubt.rs`); but somebody may have written there, and the part refuses unless it has
//! had the bytes, or behind it; then the append is planned anew, unless its bytes are there. What a
//! part has had, or may have had when its daemon died, it notes itself (`object_append.rs`).

use mayfly_meta::record::{Inode, PartOf};
use mayfly_transport_shm::layout::WRITE_STARTED_AT_HOME;
use mayfly_types::{Errno, FileId};
use mayfly_wire::{Wire, Write, Writer, Written};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::state::data::fitting,
    message::{Answer, Append, PartFacts, PartPlace, Question},
    namespace::state::inode::Located,
    shard::{Shard, state::task::Purpose},
    shards::slots::ShardId,
    striping::{
        arithmetic::Stripes,
        state::{
            file::{facts_of, generation_of},
            file_append::Held,
        },
    },
    transactions::state::prepare_locks::PrepareLock,
};

/// Bytes for one part.
type Piece<'a> = (ShardId, PartPlace, u64, &'a [u8]);

impl Shard {
    pub(super) fn append_striped(
        &mut self,
        caller: Caller,
        located: &Located,
        write: &Write<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        self.take_turn(caller, located, 0)?;
        let file = located.inode.id;
        let held = self.held_end(caller, located, write.bytes);
        if let Err(Fault::Errno(_)) = &held {
            self.forget_noted(caller, file)?;
        }
        let (size_bytes, start) = held?;
        if self.noted_start(caller, file, write.bytes.len()).is_none() {
            if write.bytes.is_empty() {
                Written { object: true, count: 0, end: start }.encode(to)?;
                return Ok(Served::Replied);
            }
            self.note_append(caller, file, start, write.bytes.len())?;
        }
        if self.run.striped.in_doubt.is_none() {
            self.run.striped.in_doubt = self.begin_write(caller, file, WRITE_STARTED_AT_HOME);
        }
        let bytes = fitting(start, write.bytes)?;
        let behind = size_bytes > start + bytes.len() as u64;
        let appended = self.append_pieces(located, start, (bytes, behind));
        if let Err(Fault::Errno(_)) = &appended {
            // Nobody repeats it. The next one begins where the parts end: in its place, or behind
            // it when its bytes are there. Should they be written later, which an EIO does not rule
            // out, the part refuses those that come last, unless they go on where the others end.
            self.forget_noted(caller, file)?;
        }
        let Some(count) = appended? else {
            // Somebody else wrote there: from the beginning. Nothing of it was made.
            self.forget_noted(caller, file)?;
            let started_write = self.run.striped.in_doubt.take();
            self.forget_started(started_write);
            self.forget_facts();
            return self.append_striped(caller, located, write, to);
        };
        if count < bytes.len() {
            self.forget_noted(caller, file)?;
        }
        let end = start + count as u64;
        Written { object: true, count: count as u32, end }.encode(to)?;
        Ok(Served::Replied)
    }

    /// Waits until nobody else appends to the file or cuts it, and keeps others from it until the
    /// run is over. There may be so many parts from then on.
    pub(super) fn take_turn(
        &mut self,
        caller: Caller,
        located: &Located,
        parts: u16,
    ) -> Outcome<()> {
        let file = located.inode.id;
        if self.striping.files.appending.get(&file).is_some_and(|other| *other != Some(caller)) {
            return Err(Fault::Busy);
        }
        self.check_no_append_in_doubt(caller, file)?;
        self.unclaimed(|| vec![(PrepareLock::Bytes(file), false)])?;
        self.striping.files.appending.insert(file, Some(caller));
        self.run.striped.appends_to = Some(file);
        self.unsettle_striped(&mut located.clone(), parts)
    }

    /// The length, which nobody changes until the run is over, and where these bytes go. The parts
    /// are held that there may be, and those that they go to: one that is new may get others before
    /// it is held, and then they go behind these.
    fn held_end(&mut self, caller: Caller, located: &Located, bytes: &[u8]) -> Outcome<(u64, u64)> {
        let (by, file) = (Some(self.of_all(caller)), located.inode.id);
        let mut located = located.clone();
        loop {
            let facts = self.hold_parts(&located.inode, (by, false))?;
            let size_bytes = facts.iter().map(|facts| facts.end_bytes).max().unwrap_or(0);
            let start = match self.noted_start(caller, file, bytes.len()) {
                Some(start) => start,
                None => {
                    self.forget_unwritten(file, size_bytes)?;
                    size_bytes.max(self.noted_end(file))
                }
            };
            let pieces = self.pieces_of(&located, start, fitting(start, bytes)?)?;
            let parts = pieces.iter().map(|(_, place, ..)| place.part.index + 1).max();
            if parts.is_none_or(|parts| parts <= located.inode.parts) {
                return Ok((size_bytes, start));
            }
            self.unsettle_striped(&mut located, parts.unwrap_or_default())?;
        }
    }

    /// What the parts say that there may be, of which none becomes longer until the run lets them.
    /// Who has the turn keeps others from being made.
    pub(super) fn hold_parts(
        &mut self,
        inode: &Inode,
        (by, turn): (Option<Caller>, bool),
    ) -> Outcome<Vec<PartFacts>> {
        let (file, generation) = (inode.id, generation_of(inode)?);
        let shards = self.shards_with_parts(inode);
        let append = match &mut self.run.striped.holds {
            Some(held) => {
                held.shards.clone_from(&shards);
                held.append
            }
            None => {
                let append = Append { number: self.striping.files.number_of_append(), by };
                self.run.striped.holds = Some(Held { file, append, shards: shards.clone(), turn });
                append
            }
        };
        facts_of(self.facts(&shards, &Question::HoldEnd { file, generation, append })?)
    }

    /// How many bytes were written; `None` when none were because others are there.
    fn append_pieces(
        &mut self,
        located: &Located,
        start: u64,
        (bytes, behind): (&[u8], bool),
    ) -> Outcome<Option<usize>> {
        let Some(append) = self.run.striped.holds.as_ref().map(|held| held.append) else {
            return Err(Errno::EIO.into());
        };
        let mut done = 0;
        for (shard, place, offset, bytes) in self.pieces_of(located, start, bytes)? {
            let bytes_of = |question: &Question| match question {
                Question::AppendPart { offset: known, .. } => *known == offset,
                _ => false,
            };
            let answer = match self.known_fact(shard, bytes_of) {
                Some(answer) => answer,
                None => {
                    let bytes = bytes.to_vec();
                    let question = Question::AppendPart { place, append, offset, bytes, behind };
                    self.fact(shard, question)?
                }
            };
            match answer {
                Answer::Done => done += bytes.len(),
                Answer::Changed if done == 0 => return Ok(None),
                Answer::Failed(errno) if done == 0 => return Err(errno.into()),
                Answer::Changed | Answer::Failed(_) => break,
                _ => return Err(Errno::EIO.into()),
            }
        }
        Ok(Some(done))
    }

    fn pieces_of<'b>(
        &self,
        located: &Located,
        start: u64,
        bytes: &'b [u8],
    ) -> Outcome<Vec<Piece<'b>>> {
        let inode = &located.inode;
        let generation = generation_of(inode)?;
        let (layout, file) = (inode.layout, inode.id);
        let (mut pieces, mut rest, mut at) = (Vec::new(), bytes, start);
        while !rest.is_empty() {
            let count = layout.left_in_chunk(at).min(rest.len() as u64) as usize;
            let (piece, later) = rest.split_at(count);
            let part = PartOf { generation, layout, index: layout.part_of(file, at) };
            let shard = self.part_shard(file, &layout, part.index);
            pieces.push((shard, PartPlace { file, part }, at, piece));
            (rest, at) = (later, at + count as u64);
        }
        Ok(pieces)
    }

    /// The caller, by its number among all nodes.
    fn of_all(&self, caller: Caller) -> Caller {
        Caller { session: self.place.numbering.session_of_all(caller.session), ..caller }
    }

    /// A request whose append an earlier daemon had begun does not come again: the parts need not
    /// wait for it. When nobody has the file open its size is settled, and they hear of that.
    pub(crate) fn let_pieces_end(&mut self, caller: Caller, file: FileId) {
        let Ok(Located { inode, .. }) = self.load_open(file) else { return };
        if !inode.layout.striped {
            return;
        }
        let append = Append { number: 0, by: Some(self.of_all(caller)) };
        let shards = self.shards_with_parts(&inode).into_iter().map(ShardId);
        for shard in shards.filter(|shard| *shard != self.place.shard).collect::<Vec<_>>() {
            self.ask(shard, Question::LetEnd { file, append }, Purpose::Nothing);
        }
    }

    /// The run is over: the next one may append.
    pub(crate) fn end_append(&mut self) {
        let started_write = self.run.striped.in_doubt.take();
        self.forget_started(started_write);
        self.let_parts();
        self.end_turn();
    }

    /// Parts may become longer again that the run has held. True when it needs its turn no more.
    pub(super) fn let_parts(&mut self) -> bool {
        let Some(Held { file, append, shards, turn }) = self.run.striped.holds.take() else {
            return false;
        };
        for shard in shards {
            self.ask(ShardId(shard), Question::LetEnd { file, append }, Purpose::Nothing);
        }
        turn
    }

    pub(super) fn end_turn(&mut self) {
        if let Some(file) = self.run.striped.appends_to.take() {
            self.striping.files.appending.remove(&file);
            self.wake_blocked();
        }
    }
}

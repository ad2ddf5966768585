//! The size of a striped file while somebody may write, at its home.
//!
//! It is the greatest end of the parts, which are asked one by one; a write, an append and a cut in
//! between may make of their answers a length that the file never had. So they are asked again,
//! until two rounds agree: when no part was cut from one to the other, each of them only became
//! longer, and if the greatest end is the same, it was the length all the time in between. (A cut
//! is an operation of the home's, whose claims a look waits for; so none begins before the first
//! round has ended and is left out by the second.)
//!
//! Where others write and cut all the time no two rounds may agree. After some of them the look
//! takes a turn as an append does, when nobody else appends or cuts, and holds the parts
//! (`object_hold.rs`): what they say was true of all when the last one said it. Nobody's writes
//! come to nothing by that, however many look: while writes wait, rounds agree. What a run has
//! found so it keeps, since it may be run again for something else.

#[cfg(test)]
mod alone;

use mayfly_meta::{
    key,
    record::{BirthKey, Inode},
};
use mayfly_object::{ObjectAttr, ObjectId};
use mayfly_types::{Errno, FileId};

use crate::{
    fault::{Fault, Outcome},
    log,
    message::{Answer, PartFacts, Question},
    shard::Shard,
    striping::state::{
        file::{facts_of, generation_of},
        file_size::sum,
    },
    transactions::state::prepare_locks::PrepareLock,
};

/// How often the parts are asked for their ends before they are held.
const ROUNDS_MAX: u8 = 6;

/// Whether the file had one length between two rounds, which both say.
fn agree(before: &[PartFacts], after: &[PartFacts]) -> bool {
    let cuts = |facts: &PartFacts| facts.cuts;
    let end = |facts: &PartFacts| facts.end_bytes;
    let uncut = before.iter().map(cuts).eq(after.iter().map(cuts));
    uncut && before.iter().map(end).max() == after.iter().map(end).max()
}

impl Shard {
    /// Length, space and times of a striped file.
    pub(crate) fn look_striped(&mut self, inode: &Inode) -> Outcome<ObjectAttr> {
        if !inode.unsettled {
            let Inode { size_bytes, blocks, atime, mtime, ctime, .. } = *inode;
            return Ok(ObjectAttr { size_bytes, blocks, atime, mtime, ctime, mapped: false });
        }
        let (file, generation) = (inode.id, generation_of(inode)?);
        self.unclaimed(|| vec![(PrepareLock::Bytes(file), false)])?;
        // Who gets a part in between is asked, too: from the first round on, as otherwise there
        // would be no moment of which all have said something.
        let (shards, parts) = (self.shards_with_parts(inode), inode.parts);
        let mut before: Option<Vec<PartFacts>> = None;
        for round in 0..ROUNDS_MAX {
            let question = Question::Part { file, generation, round, parts };
            let facts = facts_of(self.facts(&shards, &question)?)?;
            if before.is_some_and(|before| agree(&before, &facts)) {
                return Ok(sum(inode, &facts));
            }
            before = Some(facts);
        }
        Ok(sum(inode, &self.look_held(inode)?))
    }

    /// What the parts say at one moment.
    fn look_held(&mut self, inode: &Inode) -> Outcome<Vec<PartFacts>> {
        let object = ObjectId { file: inode.id, generation: generation_of(inode)? };
        if let Some((of, facts)) = &self.run.striped.facts
            && *of == object
        {
            return Ok(facts.clone());
        }
        let turn = self.run.striped.appends_to != Some(object.file);
        if turn && self.striping.files.appending.contains_key(&object.file) {
            return Err(Fault::Busy);
        }
        self.striping.files.appending.entry(object.file).or_insert(None);
        self.run.striped.appends_to = Some(object.file);
        let facts = self.hold_parts(inode, (None, turn))?;
        // At once, since the same run may be about to cut the file.
        if self.let_parts() {
            self.end_turn();
        }
        self.run.striped.facts = Some((object, facts.clone()));
        Ok(facts)
    }

    /// All parts are cut. What they said for a settled size meanwhile is void; where no request
    /// goes on that would settle it, that is begun here.
    pub(crate) fn cut_is_over(&mut self, file: FileId, goes_on: bool) {
        self.keep_unsettled(file);
        self.drop_after_cut(file);
        if goes_on {
            return;
        }
        if let Err(fault) = self.settle_unless_open(file) {
            let why = format_args!("settling its size: {}", fault.errno());
            log::error(format_args!("file {:016x}", file.0), why);
        }
    }

    fn settle_unless_open(&mut self, file: FileId) -> Outcome<()> {
        let mark = self.store.get(&key::numbered(key::UNSETTLED, file))?;
        let Some(birth) = mark.map(BirthKey::decode).transpose()? else { return Ok(()) };
        let located = self.load_birth(file, &birth)?;
        self.settle_if_closed(&located);
        Ok(())
    }

    /// The length of an open file of this home, for who has a part of it.
    pub(super) fn striped_size(&mut self, file: FileId, generation: u32) -> Outcome<u64> {
        let inode = self.load_open(file)?.inode;
        if generation_of(&inode)? != generation || !inode.layout.striped {
            return Err(Errno::EIO.into());
        }
        Ok(self.look_striped(&inode)?.size_bytes)
    }

    pub(crate) fn tell_size(&mut self, file: FileId, generation: u32) -> Outcome<Answer> {
        Ok(Answer::Size(self.striped_size(file, generation)?))
    }
}

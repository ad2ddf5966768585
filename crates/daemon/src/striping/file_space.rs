//! Space of striped files, and what survives the machine, at their home: all parts are asked.
//!
//! While space is taken or given back nobody appends to the file or cuts it. First all parts look
//! whether there is room, so that a call for which there is none has changed nothing; one that
//! fails all the same may have made the file longer.

use mayfly_meta::record::{Inode, PartOf, Policy};
use mayfly_object::Allocation;
use mayfly_types::{Durability, Errno};
use mayfly_wire::{Seek, Sought, Wire, Writer};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::state::allocate::Wish,
    message::{Answer, PartPlace, Question},
    namespace::state::inode::Located,
    shard::Shard,
    shards::slots::ShardId,
    striping::{
        arithmetic::Stripes,
        state::{
            file::{facts_of_all, generation_of},
            object_change::NOWHERE,
        },
    },
};

impl Shard {
    pub(crate) fn allocate_striped(
        &mut self,
        caller: Caller,
        located: &Located,
        wish: Wish,
    ) -> Outcome<Served> {
        let inode = &located.inode;
        self.take_turn(caller, located, inode.layout.width)?;
        let Some(wish) = self.clip(inode, wish)? else { return Ok(Served::Replied) };
        if wish.what != Allocation::Punch {
            self.allocate_parts(inode, wish, true)?;
        }
        self.allocate_parts(inode, wish, false)?;
        Ok(Served::Replied)
    }

    /// What is to be done below the end of the file, or up to a new end.
    fn clip(&mut self, inode: &Inode, wish: Wish) -> Outcome<Option<Wish>> {
        let what = match wish.what {
            Allocation::Reserve => Allocation::Extend,
            Allocation::Zero => Allocation::ZeroExtend,
            whole => return Ok(Some(Wish { what: whole, ..wish })),
        };
        let end = wish.end.min(self.look_striped(inode)?.size_bytes);
        if wish.start >= end {
            // The answer only promises that there is room just now; with `hash`, here.
            if inode.layout.policy == Policy::Hash {
                self.check_free(wish.end - wish.start)?;
            } else {
                self.allocate_parts(inode, Wish { what, ..wish }, true)?;
            }
            return Ok(None);
        }
        // The parts become longer, and the file does not.
        Ok(Some(Wish { what, end, ..wish }))
    }

    fn allocate_parts(&mut self, inode: &Inode, wish: Wish, look: bool) -> Outcome<()> {
        let (file, layout, generation) = (inode.id, inode.layout, generation_of(inode)?);
        let Wish { what, start, end } = wish;
        let mut questions = Vec::new();
        for index in 0..layout.width {
            if layout.ranges_of_part(file, index, start..end).ok_or(Errno::EOPNOTSUPP)?.is_empty() {
                continue;
            }
            let place = PartPlace { file, part: PartOf { generation, layout, index } };
            let mode = crate::files::allocate::mode_of(what);
            let question = Question::AllocatePart { place, mode, start, end, look };
            questions.push((self.part_shard(file, &layout, index), question));
        }
        facts_of_all(self.ask_parts(questions)?)
    }

    /// The answers to a question of its own for each part, all asked at once.
    fn ask_parts(&mut self, questions: Vec<(ShardId, Question)>) -> Outcome<Vec<Answer>> {
        let (mut answers, mut missing) = (Vec::new(), Vec::new());
        for (shard, question) in questions {
            match self.fact(shard, question) {
                Ok(answer) => answers.push(answer),
                Err(Fault::Ask(questions)) => missing.extend(questions),
                Err(fault) => return Err(fault),
            }
        }
        if missing.is_empty() { Ok(answers) } else { Err(Fault::Ask(missing)) }
    }

    /// fsync of a striped file.
    pub(crate) fn sync_striped(&mut self, inode: &Inode) -> Outcome<Served> {
        if self.config.durability == Durability::Sync {
            let (file, generation) = (inode.id, generation_of(inode)?);
            let shards = self.shards_with_parts(inode);
            let answers = self.facts(&shards, &Question::SyncPart { file, generation })?;
            facts_of_all(answers)?;
        }
        Ok(Served::Replied)
    }

    /// Where the next data or the next hole is. A file that is at home in one object is all data
    /// for a process that has no object.
    pub(crate) fn seek(&mut self, seek: &Seek, to: &mut Writer<'_>) -> Outcome<Served> {
        let open = self.files.opens.get(seek.open)?;
        let inode = self.load_open(open.id)?.inode;
        self.bytes_at_hand(&inode)?;
        let size_bytes = self.size_of(&inode)?;
        if seek.offset >= size_bytes {
            return Err(Errno::ENXIO.into());
        }
        let offset = match (inode.layout.striped, seek.hole) {
            (true, _) => self.seek_parts(&inode, seek)?.min(size_bytes),
            (false, true) => size_bytes,
            (false, false) => seek.offset,
        };
        if !seek.hole && offset >= size_bytes {
            return Err(Errno::ENXIO.into());
        }
        Sought { offset }.encode(to)?;
        Ok(Served::Replied)
    }

    fn seek_parts(&mut self, inode: &Inode, seek: &Seek) -> Outcome<u64> {
        let (file, layout, generation) = (inode.id, inode.layout, generation_of(inode)?);
        let question = |index| {
            let place = PartPlace { file, part: PartOf { generation, layout, index } };
            let question = Question::SeekPart { place, offset: seek.offset, hole: seek.hole };
            (self.part_shard(file, &layout, index), question)
        };
        let questions = (0..layout.width).map(question).collect();
        self.ask_parts(questions)?.into_iter().try_fold(NOWHERE, |first, answer| match answer {
            Answer::Size(found) => Ok(first.min(found)),
            Answer::Failed(errno) => Err(errno.into()),
            _ => Err(Errno::EIO.into()),
        })
    }
}

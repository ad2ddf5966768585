//! Parts of striped files that are gone, at their home.
//!
//! That they are to be removed is noted with the removal of the file, and stays noted until each
//! of their servers has removed its own. While the file is being cut they are not asked to: a
//! server that had nothing of the file so far, or nothing any more, would make a part when it
//! hears of the cut, for a file that nobody knows. So the end of the cut asks.

use mayfly_meta::{
    Scan, StoreError, key,
    record::{Inode, Unlinked},
};
use mayfly_types::FileId;

use crate::{
    fault::{Outcome, store_failed},
    log,
    message::{Answer, Question},
    shard::{Shard, state::task::Purpose},
    shards::slots::ShardId,
    striping::state::file::generation_of,
};

impl Shard {
    /// The inode goes, or becomes a small one; its parts follow.
    pub(crate) fn doom_striped(&mut self, inode: &Inode) -> Outcome<()> {
        let (file, generation) = (inode.id, generation_of(inode)?);
        self.keep_unsettled(file);
        self.forget_append(file)?;
        if inode.unsettled {
            self.store.delete(&key::numbered(key::UNSETTLED, file))?;
        }
        let unlinked = Unlinked { layout: inode.layout, parts: inode.parts };
        self.store.put(&key::unlinked(file, generation), &unlinked.encode())?;
        self.ask_to_drop(file, generation, &unlinked);
        Ok(())
    }

    /// Whether an operation that cuts this striped file is under way.
    fn is_being_cut(&self, file: FileId) -> bool {
        self.transactions.running.values().any(|transaction| transaction.cut() == Some(file))
    }

    fn ask_to_drop(&mut self, file: FileId, generation: u32, unlinked: &Unlinked) {
        let waits = self.is_being_cut(file) || !self.striping.files.knows_cuts;
        if waits || self.striping.files.going.contains_key(&(file, generation)) {
            return;
        }
        let shards = self.first_part_shards(file, &unlinked.layout, unlinked.parts);
        self.striping.files.going.insert((file, generation), shards.len());
        for shard in shards {
            let question = Question::DropPart { file, generation };
            self.ask(ShardId(shard), question, Purpose::DropParts(file, generation));
        }
    }

    /// An operation that cut the file is finished, or was given up.
    pub(crate) fn drop_after_cut(&mut self, file: FileId) {
        if let Err(error) = self.drop_unlinked(&key::numbered(key::UNLINKED, file)) {
            store_failed(&error);
        }
    }

    /// Asks for the removal of the parts of files that are gone, once the operations of an earlier
    /// daemon are taken up.
    pub(crate) fn take_up_unlinked(&mut self) -> Result<(), StoreError> {
        self.striping.files.knows_cuts = true;
        self.drop_unlinked(&[key::UNLINKED])
    }

    fn drop_unlinked(&mut self, prefix: &[u8]) -> Result<(), StoreError> {
        let mut unlinked = Vec::new();
        self.store.scan(prefix, prefix, &mut |key, record| {
            unlinked.extend(key::split_unlinked(key).map(|of| (of, record.to_vec())));
            Scan::More
        })?;
        for ((file, generation), record) in unlinked {
            self.ask_to_drop(file, generation, &Unlinked::decode(&record)?);
        }
        Ok(())
    }

    /// A server has removed its part of a file, or has none.
    pub(crate) fn part_dropped(&mut self, file: FileId, generation: u32, answer: &Answer) {
        if *answer != Answer::Done {
            log::error(format_args!("file {:016x}", file.0), format_args!("parts: {answer:?}"));
            return;
        }
        let Some(missing) = self.striping.files.going.get_mut(&(file, generation)) else { return };
        *missing -= 1;
        if *missing > 0 {
            return;
        }
        self.striping.files.going.remove(&(file, generation));
        if let Err(error) = self.store.delete(&key::unlinked(file, generation)) {
            store_failed(&error);
        }
    }
}

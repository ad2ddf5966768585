//! What [`crate::striping::file`] keeps and works with.

use std::collections::HashMap;

use mayfly_meta::record::{BirthKey, Content, Inode, PartOf};
use mayfly_types::{Errno, FileId};

use crate::{
    api::Caller,
    fault::Outcome,
    message::{Answer, PartFacts},
};

/// What a shard knows of striped files besides their records.
#[derive(Debug, Default)]
pub(crate) struct Striped {
    pub(crate) settling: HashMap<FileId, Settling>,
    pub(crate) attempts: u64,
    pub(crate) appends: u64,
    /// What an earlier daemon left is known: which of the files that go are being cut.
    pub(crate) knows_cuts: bool,
    /// Parts that still have to go.
    pub(crate) going: HashMap<(FileId, u32), usize>,
    /// Where bytes of open files are whose home is elsewhere.
    pub(crate) places: HashMap<FileId, PartOf>,
    /// For files of this home, the request that appends just now; none where a look keeps others
    /// from it.
    pub(crate) appending: HashMap<FileId, Option<Caller>>,
}

/// An attempt to settle a size.
#[derive(Debug)]
pub(crate) struct Settling {
    pub(crate) attempt: u64,
    pub(crate) birth: BirthKey,
    pub(crate) missing: usize,
    pub(crate) facts: Vec<PartFacts>,
}

impl Striped {
    /// Appends have numbers behind this one.
    pub(crate) fn numbered_from(first: u64) -> Striped {
        Striped { appends: first, ..Striped::default() }
    }

    /// A new number.
    pub(crate) fn number_of_append(&mut self) -> u64 {
        self.appends += 1;
        self.appends
    }
}

pub(crate) fn generation_of(inode: &Inode) -> Outcome<u32> {
    match inode.content {
        Content::Object(generation) => Ok(generation),
        _ => Err(Errno::EIO.into()),
    }
}

/// Whether all have done it.
pub(crate) fn facts_of_all(answers: Vec<Answer>) -> Outcome<()> {
    for answer in answers {
        match answer {
            Answer::Done => {}
            Answer::Failed(errno) => return Err(errno.into()),
            _ => return Err(Errno::EIO.into()),
        }
    }
    Ok(())
}

pub(crate) fn facts_of(answers: Vec<Answer>) -> Outcome<Vec<PartFacts>> {
    let facts = answers.into_iter().map(|answer| match answer {
        Answer::Part(facts) => Ok(facts),
        Answer::Failed(errno) => Err(errno.into()),
        _ => Err(Errno::EIO.into()),
    });
    facts.collect()
}

//! Where a file that is leased was found, remembered with the moment.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use mayfly_records::{Bytes, Regular, Runs};

/// Where a file's bytes are, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Runs(Runs),
    /// They are in the object of this generation, which is so long, if that is known.
    Object(u32, Option<u64>),
}

impl Content {
    pub(crate) fn of(regular: &Regular) -> Content {
        match regular.bytes {
            Bytes::Runs(runs) => Content::Runs(runs),
            Bytes::Object { generation, settled } => {
                Content::Object(generation, settled.then_some(regular.attr.size_bytes))
            }
        }
    }

    fn words(&self) -> [u64; Runs::WORDS] {
        match self {
            Content::Runs(runs) => runs.words(),
            Content::Object(generation, size) => {
                [u64::MAX, u64::from(*generation), size.unwrap_or(u64::MAX)]
            }
        }
    }

    fn of_words(words: [u64; Runs::WORDS]) -> Content {
        match words {
            // No run begins and ends there.
            [u64::MAX, generation, size] => {
                Content::Object(generation as u32, (size != u64::MAX).then_some(size))
            }
            words => Content::Runs(Runs::of(words)),
        }
    }
}

/// Where a file was found, of the description of a place.
#[derive(Default)]
pub(super) struct Memo {
    /// 1 while a thread is at it: another one does without.
    busy: AtomicU32,
    generation: AtomicU32,
    /// Starts of the daemon.
    starts: AtomicU32,
    version: AtomicU64,
    /// As [`Regular::until`].
    until: AtomicU64,
    content: [AtomicU64; Runs::WORDS],
}

impl Memo {
    fn hold<R>(&self, work: impl FnOnce(&Memo) -> R) -> Option<R> {
        if self.busy.swap(1, Acquire) != 0 {
            return None;
        }
        let done = work(self);
        self.busy.store(0, Release);
        Some(done)
    }

    pub(crate) fn keep(&self, generation: u32, seen: Seen, regular: &Regular) {
        let content = Content::of(regular);
        self.hold(|memo| {
            memo.generation.store(generation, Relaxed);
            memo.starts.store(seen.starts, Relaxed);
            memo.version.store(seen.version, Relaxed);
            memo.until.store(regular.until, Relaxed);
            for (to, word) in memo.content.iter().zip(content.words()) {
                to.store(word, Relaxed);
            }
        });
    }

    /// Where the bytes are, and until when that is believed.
    pub(super) fn find(&self, generation: u32, seen: Seen) -> Option<(Content, u64)> {
        self.hold(|memo| {
            let same = memo.generation.load(Relaxed) == generation
                && memo.starts.load(Relaxed) == seen.starts
                && memo.version.load(Relaxed) == seen.version;
            let words = || memo.content.each_ref().map(|word| word.load(Relaxed));
            same.then(|| (Content::of_words(words()), memo.until.load(Relaxed)))
        })
        .flatten()
    }
}

/// At which moment the records were looked at. A daemon that is started again takes the version
/// back of what its predecessor had begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) starts: u32,
    pub(super) version: u64,
}

//! What could not be done, and who is told while it happens.
//!
//! [`counts`] says how much has been done so far. Nothing is printed here: a [`Watcher`] is told.

pub(crate) mod counts;

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use nix::errno::Errno;
use serde::Serialize;

use counts::{Counters, Counts, count};

/// So many problems are kept for the end; all of them are told as they happen.
const PROBLEMS_MAX: usize = 1000;

/// So many texts are known by heart; further ones are not told apart.
const TEXTS_MAX: usize = 1000;
const FORGOTTEN: &str = "do what is needed to copy it";

/// A text of those that go with problems, of which there are few.
pub(crate) fn by_heart(text: &str) -> &'static str {
    static TEXTS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let Ok(mut texts) = TEXTS.lock() else { return FORGOTTEN };
    if let Some(known) = texts.iter().find(|known| **known == text) {
        return known;
    }
    if texts.len() >= TEXTS_MAX {
        return FORGOTTEN;
    }
    let kept: &'static str = Box::leak(text.to_owned().into_boxed_str());
    texts.push(kept);
    kept
}

/// Why something was not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A call failed.
    #[error("{doing}: {}", errno.desc())]
    Failed {
        /// What was to be done.
        doing: &'static str,
        /// Why it was not.
        errno: Errno,
    },
    /// Its name at the destination could not be made. What is told names that one.
    #[error("{doing}: {}", errno.desc())]
    NotMade {
        /// What was to be done.
        doing: &'static str,
        /// Why it was not.
        errno: Errno,
    },
    /// It was changed each time while it was copied.
    #[error("it changes while it is copied")]
    Changing,
    /// What was read again is not what was copied.
    #[error("what was written is not what was read: the two sides differ")]
    Differs,
    /// Somebody has it open for writing.
    #[error("it is open for writing; --open wait or --open copy copies it all the same")]
    Open,
    /// A kind of file that has no copy.
    #[error("{0} have no copy")]
    Special(&'static str),
    /// An object store takes text without control characters.
    #[error("an object store takes no such name")]
    NoKey,
    /// An object store refuses.
    #[error("{doing}: {why}")]
    Store {
        /// What was to be done.
        doing: &'static str,
        /// Why it was not.
        why: &'static str,
    },
    /// It leads back to a directory that it is in.
    #[error("the link leads back to a directory above it")]
    Loop,
    /// The stage was ended before.
    #[error("the stage was ended before it was whole")]
    Ended,
}

impl Problem {
    /// Fails with what `doing` met.
    pub(crate) fn of(doing: &'static str) -> impl Fn(Errno) -> Problem {
        move |errno| Problem::Failed { doing, errno }
    }

    /// Fails to make a name at the destination.
    pub(crate) fn not_made(doing: &'static str) -> impl Fn(Errno) -> Problem {
        move |errno| Problem::NotMade { doing, errno }
    }

    /// Its errno, if a call failed.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Problem::Failed { errno, .. } | Problem::NotMade { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Is it only that there is no copy of such a thing?
    pub(crate) fn is_left_out(&self) -> bool {
        matches!(self, Problem::Special(_))
    }
}

/// What is told while it happens.
#[derive(Debug, Clone, Copy)]
pub enum Note<'a> {
    /// This could not be copied.
    Failed(&'a Path, Problem),
    /// This has no copy.
    LeftOut(&'a Path, Problem),
    /// It was copied, but this of it was not kept.
    NotKept(&'a Path, &'a str),
    /// The node of this name takes no part, for this reason.
    Without(&'a str, &'a str),
    /// With `--dry-run`: this would be copied, so many bytes.
    WouldCopy(&'a Path, u64),
    /// With `--dry-run`: this would be removed at the destination.
    WouldDelete(&'a Path),
}

/// Who is told.
pub trait Watcher: Sync {
    /// Of one thing, by any thread.
    fn note(&self, note: Note<'_>);
    /// From time to time: what was done, and what other nodes have done of it.
    fn progress(&self, counts: &Counts, nodes: &[(String, Counts)]);
}

/// Nobody.
impl Watcher for () {
    fn note(&self, _note: Note<'_>) {}
    fn progress(&self, _counts: &Counts, _nodes: &[(String, Counts)]) {}
}

/// How it ended.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// What was done.
    #[serde(flatten)]
    pub counts: Counts,
    /// The first of what could not be done, with why.
    pub problems: Vec<(PathBuf, String)>,
    /// What other nodes have done of it.
    pub nodes: Vec<(String, Counts)>,
    /// It was ended before all was done.
    pub ended: bool,
}

impl Report {
    /// Is all of it there?
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.counts.open == 0 && self.is_whole_but_for_open()
    }

    /// Is all of it there that nobody had open for writing?
    #[must_use]
    pub fn is_whole_but_for_open(&self) -> bool {
        self.counts.failed == 0 && !self.ended
    }
}

/// Where threads note what they meet.
pub(crate) struct Notes<'a> {
    pub(crate) counters: Counters,
    problems: Mutex<Vec<(PathBuf, String)>>,
    watcher: &'a dyn Watcher,
}

impl<'a> Notes<'a> {
    pub(crate) fn new(watcher: &'a dyn Watcher) -> Notes<'a> {
        Notes { counters: Counters::default(), problems: Mutex::default(), watcher }
    }

    pub(crate) fn problem(&self, path: &Path, problem: Problem) {
        if problem.is_left_out() {
            count(&self.counters.left_out);
            return self.watcher.note(Note::LeftOut(path, problem));
        }
        count(if problem == Problem::Open { &self.counters.open } else { &self.counters.failed });
        if let Ok(mut problems) = self.problems.lock()
            && problems.len() < PROBLEMS_MAX
        {
            problems.push((path.to_owned(), problem.to_string()));
        }
        self.watcher.note(Note::Failed(path, problem));
    }

    pub(crate) fn tell(&self, note: Note<'_>) {
        self.watcher.note(note);
    }

    pub(crate) fn progress(&self, nodes: &[(String, Counts)]) {
        self.watcher.progress(&self.counters.now(), nodes);
    }

    pub(crate) fn report(self, ended: bool) -> Report {
        let problems = self.problems.into_inner().unwrap_or_default();
        Report { counts: self.counters.now(), problems, nodes: Vec::new(), ended }
    }
}

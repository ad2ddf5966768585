//! What the threads of a stage share, and what a process needs that copies.

use std::{
    ffi::CStr,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::{
    BadPattern, Cancel, Options, Pair, Selection, Watcher,
    bucket::sink::Sink,
    copy::{
        kind::Kind,
        links::{Links, Name},
        settle::umask,
    },
    journal::done_parts::DoneParts,
    report::Notes,
    walk::{
        pace::Pace,
        queue::{Names, Queue},
    },
    writers::{self, Writers},
};

/// A thread reads and writes in pieces of so many bytes; a file that is shorter is read at once.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// What the threads of a stage share.
pub(crate) struct Stager<'a> {
    pub(crate) options: &'a Options,
    pub(crate) notes: Notes<'a>,
    pub(crate) queue: Queue,
    pub(crate) pace: Pace,
    pub(crate) links: Links,
    pub(crate) writers: Writers,
    /// Files that are to be copied when nobody has them open for writing.
    pub(crate) waiting: Mutex<Vec<Name>>,
    /// They are looked at again.
    pub(crate) second_look: AtomicBool,
    pub(crate) cancel: &'a Cancel,
    /// Tells this stage's temporary names, and those of this node.
    pub(crate) stage: u64,
    pub(crate) node: u32,
    /// Which parts of large files are done.
    pub(crate) parts: Option<Arc<DoneParts>>,
    /// What is left to who deals out, if this is not who does.
    pub(crate) handed_back: Option<Mutex<Names>>,
    /// Bits that a new file of this process does not get.
    pub(crate) umask: u32,
    /// Where files go instead of a directory.
    pub(crate) sink: Option<Sink<'a>>,
}

impl<'a> Stager<'a> {
    pub(crate) fn new(
        options: &'a Options,
        watcher: &'a dyn Watcher,
        cancel: &'a Cancel,
        stage: u64,
    ) -> Stager<'a> {
        Stager {
            options,
            notes: Notes::new(watcher),
            queue: Queue::default(),
            pace: Pace::new(options.bandwidth, options.files_per_second),
            links: Links::default(),
            writers: Writers::default(),
            waiting: Mutex::default(),
            second_look: AtomicBool::new(false),
            cancel,
            stage,
            node: 0,
            parts: None,
            handed_back: None,
            umask: umask(),
            sink: None,
        }
    }

    /// What needs a look at more than one file is somebody else's from here on.
    pub(crate) fn hand_back(&mut self, node: u32) {
        self.node = node;
        self.handed_back = Some(Mutex::default());
    }

    /// Is such an entry somebody else's? It is noted then.
    pub(crate) fn hands_back(&self, kind: Kind, name: &CStr) -> bool {
        let Some(handed_back) = &self.handed_back else { return false };
        if let Ok(mut names) = handed_back.lock() {
            names.push(Some(kind), name);
        }
        true
    }

    pub(crate) fn take_handed_back(&self) -> Vec<u8> {
        let names = self.handed_back.as_ref().and_then(|names| names.lock().ok());
        names.map(|mut names| std::mem::take(&mut *names).to_bytes()).unwrap_or_default()
    }
}

pub(crate) fn selections(pairs: &[Pair], options: &Options) -> Result<Vec<Selection>, BadPattern> {
    pairs.iter().map(|pair| Selection::new(&options.wanted, &pair.patterns)).collect()
}

/// What a process needs that walks: descriptors, and not to be ended by whoever opens a file.
pub(crate) fn prepare_process() {
    // Each directory on the way to where a thread is has two descriptors.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    writers::expect_questions();
}

//! A record of a ring: what is asked for, and what has become of it.

#[cfg(feature = "server")]
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use mayfly_sys::arch::Moment;
use mayfly_types::{OpenRef, limits::NAME_BYTES_MAX};

#[cfg(feature = "server")]
use mayfly_types::limits::INLINE_BYTES_MAX;

use crate::words;

/// Nobody has closed what the record makes, nor has the daemon executed it.
pub const RECORD_SUBMITTED: u32 = 1;
/// It was closed before it was executed.
pub const RECORD_CLOSED: u32 = 2;
/// The daemon has made the description, or is about to.
pub const RECORD_OPENED: u32 = 3;
/// A name is removed.
pub const RECORD_REMOVES: u32 = 4;
/// A directory is made.
pub const RECORD_DIRECTORY: u32 = 5;
/// A directory is removed.
pub const RECORD_REMOVES_DIRECTORY: u32 = 6;
/// In a record's state, above the bits of `RECORD_*`: bytes of content.
const CONTENT_SHIFT: u32 = 8;
/// So often the daemon tries to execute a record whose process changes it meanwhile, which it does
/// once for each write and close.
#[cfg(feature = "server")]
const EXECUTE_TRIES: u32 = 64;

/// A path in a record is no longer than a name can be.
const PATH_WORDS: usize = NAME_BYTES_MAX.div_ceil(8);
/// The making of a file or a directory, as a process submits it.
#[derive(Debug, Clone, Copy)]
pub struct Create<'a> {
    /// Where, from the directory that is delegated.
    pub path: &'a [u8],
    /// Flags of open, of a file.
    pub flags: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When and where.
    pub moment: Moment,
}

/// A removal of a name, as a process submits it.
#[derive(Debug, Clone, Copy)]
pub struct Removal<'a> {
    /// Where, from the directory that is delegated.
    pub path: &'a [u8],
    /// It is a directory's.
    pub directory: bool,
    /// When and where.
    pub moment: Moment,
}

/// What a record asks for.
#[cfg(feature = "server")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// A file.
    File {
        /// Whether the promised description is to be made.
        open: bool,
        /// How much content it has, bytes.
        bytes: usize,
    },
    /// A directory.
    Directory,
    /// That a name goes.
    Removal {
        /// Which is a directory's.
        directory: bool,
    },
}

/// A record of a ring.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Record {
    /// `RECORD_*`, and how much content the file has.
    pub state: AtomicU32,
    /// The promised description: written by the daemon.
    pub open_index: AtomicU32,
    /// Its generation.
    pub open_generation: AtomicU32,
    /// Flags of open.
    pub flags: AtomicU32,
    /// Permission bits.
    pub mode: AtomicU32,
    /// Owner.
    pub uid: AtomicU32,
    /// Group.
    pub gid: AtomicU32,
    /// Length of the path, bytes.
    pub path_bytes: AtomicU32,
    /// When it was submitted, by the processor's counter.
    pub cycles: AtomicU64,
    /// Processor on which that was, its number plus one; 0: not known.
    pub processor: AtomicU32,
    reserved: AtomicU32,
    /// When content was last added, by the processor's counter.
    pub changed_cycles: AtomicU64,
    /// The path from the directory that is delegated, eight bytes to a word, little-endian.
    pub path: [AtomicU64; PATH_WORDS],
}

impl Record {
    pub(super) fn write_create(&self, create: &Create<'_>) {
        self.flags.store(create.flags, Relaxed);
        self.mode.store(create.mode, Relaxed);
        self.uid.store(create.uid, Relaxed);
        self.gid.store(create.gid, Relaxed);
        self.changed_cycles.store(create.moment.cycles, Relaxed);
        self.write_path(create.path, create.moment);
        self.state.store(RECORD_SUBMITTED, Relaxed);
    }

    pub(super) fn write_directory(&self, create: &Create<'_>) {
        self.write_create(create);
        self.state.store(RECORD_DIRECTORY, Relaxed);
    }

    pub(super) fn write_removal(&self, removal: &Removal<'_>) {
        self.write_path(removal.path, removal.moment);
        let state = if removal.directory { RECORD_REMOVES_DIRECTORY } else { RECORD_REMOVES };
        self.state.store(state, Relaxed);
    }

    fn write_path(&self, path: &[u8], moment: Moment) {
        self.path_bytes.store(path.len() as u32, Relaxed);
        self.cycles.store(moment.cycles, Relaxed);
        self.processor.store(moment.processor, Relaxed);
        words::write(&self.path, path);
    }

    /// The description that is promised with this place.
    #[must_use]
    pub fn promise(&self) -> OpenRef {
        let index = self.open_index.load(Relaxed);
        OpenRef { index, generation: self.open_generation.load(Relaxed) }
    }

    /// Promises a description.
    pub fn set_promise(&self, open: OpenRef) {
        self.open_index.store(open.index, Relaxed);
        self.open_generation.store(open.generation, Relaxed);
    }

    /// The path, as long as the record says it is but not longer than a name can be.
    #[cfg(feature = "server")]
    #[must_use]
    pub fn read_path(&self) -> Vec<u8> {
        let bytes = (self.path_bytes.load(Relaxed) as usize).min(NAME_BYTES_MAX);
        let mut path = [[0; 8]; PATH_WORDS];
        for (to, word) in path.iter_mut().zip(&self.path[..bytes.div_ceil(8)]) {
            *to = word.load(Relaxed).to_le_bytes();
        }
        path.as_flattened()[..bytes].to_vec()
    }

    /// The daemon executes the record: what it asks for.
    #[cfg(feature = "server")]
    #[must_use]
    pub fn execute(&self) -> Submitted {
        for _ in 0..EXECUTE_TRIES {
            let state = self.state.load(Acquire);
            let (kind, content) = parts(state);
            let bytes = (content as usize).min(INLINE_BYTES_MAX);
            match kind {
                RECORD_REMOVES => return Submitted::Removal { directory: false },
                RECORD_REMOVES_DIRECTORY => return Submitted::Removal { directory: true },
                RECORD_DIRECTORY => return Submitted::Directory,
                RECORD_SUBMITTED => {
                    if self.change(state, RECORD_OPENED, content) {
                        return Submitted::File { open: true, bytes };
                    }
                }
                kind => return Submitted::File { open: kind == RECORD_OPENED, bytes },
            }
        }
        // Whoever changes it so often does not keep to what it is for.
        Submitted::File { open: false, bytes: 0 }
    }

    pub(super) fn change(&self, from: u32, kind: u32, content: u32) -> bool {
        let to = kind | content << CONTENT_SHIFT;
        self.state.compare_exchange(from, to, SeqCst, Relaxed).is_ok()
    }
}

/// `RECORD_*` and the bytes of content of a record's state.
pub(super) fn parts(state: u32) -> (u32, u32) {
    (state & ((1 << CONTENT_SHIFT) - 1), state >> CONTENT_SHIFT)
}

const _: () = assert!(size_of::<Record>() == 320);
const _: () = assert!(core::mem::offset_of!(Record, path) == 56);

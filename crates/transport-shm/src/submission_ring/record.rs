//! A record of a ring: what is asked for, and what has become of it.

#[cfg(feature = "server")]
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use mayfly_sys::arch::Moment;
#[cfg(feature = "server")]
use mayfly_types::limits::INLINE_BYTES_MAX;
use mayfly_types::{OpenRef, Timestamp, limits::NAME_BYTES_MAX};

use super::{
    changes::{Attributes, Changes},
    state::State,
};
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
/// Attributes of a file are changed.
pub const RECORD_CHANGES: u32 = 7;
/// A name moves to the one that the next record has.
pub const RECORD_MOVES: u32 = 8;
/// The name to which the record before moves another one, or that it gives to a file.
pub const RECORD_MOVE_TARGET: u32 = 9;
/// A symbolic link is made: it says what the content is.
pub const RECORD_SYMLINK: u32 = 10;
/// A file gets the name that the next record has, too.
pub const RECORD_LINKS: u32 = 11;
/// So often the daemon tries to execute a record whose process changes it meanwhile, which it does
/// once for each write and close.
#[cfg(feature = "server")]
const EXECUTE_TRIES: u32 = 64;

/// A path in a record is no longer than a name can be.
pub(super) const PATH_WORDS: usize = NAME_BYTES_MAX.div_ceil(8);
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

/// What a process has made of an object for a file that it has submitted.
#[cfg(feature = "server")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// Nothing.
    Nothing,
    /// It may have begun, or be about to: nothing in such an object is the file's.
    Started,
    /// All of the content, and it may write on, up to here.
    All {
        /// Offset.
        end: u64,
    },
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
        /// Which attributes are changed after that (`mayfly_wire::SET_*`).
        which: u32,
        /// Its process has looked at it ([`Record::read_look`]).
        seen: bool,
        /// What its process has made of an object for it.
        object: Made,
    },
    /// That the content of a file that is there is replaced.
    Replacement {
        /// Whether the promised description is to be made.
        open: bool,
        /// Whether there is new content at all; otherwise the file was only opened.
        written: bool,
        /// How much content it has then, bytes.
        bytes: usize,
        /// Which attributes are changed after that (`mayfly_wire::SET_*`).
        which: u32,
        /// Its process has looked at it ([`Record::read_look`]).
        seen: bool,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// How much it says, bytes.
        bytes: usize,
    },
    /// That a name goes.
    Removal {
        /// Which is a directory's.
        directory: bool,
    },
    /// That a name moves.
    Move,
    /// That a file gets another name.
    Link,
    /// To which name that of the record before moves, or which one its file gets.
    MoveTarget,
    /// That attributes of a file change.
    Changes {
        /// Which ones.
        which: u32,
    },
}

/// A record of a ring.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Record {
    /// `RECORD_*`, how much content the file has, and which attributes are changed ([`State`]).
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
    /// How far the object of the file may reach that its process makes, bytes.
    pub(super) object_bytes: AtomicU32,
    /// When content was last added, by the processor's counter.
    pub changed_cycles: AtomicU64,
    /// The description of the file that is made, or that is changed; the daemon may have promised
    /// another one since. 0: it is known by its name.
    pub(super) of_open: AtomicU64,
    /// The attributes that are changed.
    pub(super) attributes: Attributes,
    /// The path from the directory that is delegated, eight bytes to a word, little-endian.
    pub path: [AtomicU64; PATH_WORDS],
    /// When its process looked at the file, which has its times from then: seconds.
    pub(super) seen_seconds: AtomicU64,
    /// Nanoseconds.
    pub(super) seen_ns: AtomicU32,
    /// The content that it had then, bytes.
    pub(super) seen_bytes: AtomicU32,
}

impl Record {
    pub(super) fn write_create(&self, create: &Create<'_>) {
        self.flags.store(create.flags, Relaxed);
        self.mode.store(create.mode, Relaxed);
        self.uid.store(create.uid, Relaxed);
        self.gid.store(create.gid, Relaxed);
        self.changed_cycles.store(create.moment.cycles, Relaxed);
        self.of_open.store(word_of(self.promise()), Relaxed);
        self.write_path(create.path, create.moment);
        self.state.store(RECORD_SUBMITTED, Relaxed);
    }

    pub(super) fn write_directory(&self, create: &Create<'_>) {
        self.write_create(create);
        self.state.store(RECORD_DIRECTORY, Relaxed);
    }

    pub(super) fn write_symlink(&self, create: &Create<'_>, target_bytes: usize) {
        self.write_create(create);
        self.state.store(State::of(RECORD_SYMLINK).and_content(target_bytes).0, Relaxed);
    }

    pub(super) fn write_removal(&self, removal: &Removal<'_>) {
        self.write_path(removal.path, removal.moment);
        let state = if removal.directory { RECORD_REMOVES_DIRECTORY } else { RECORD_REMOVES };
        self.state.store(state, Relaxed);
    }

    /// `started` says that the file may get an object by a record before.
    pub(super) fn write_changes(
        &self,
        path: &[u8],
        open: Option<OpenRef>,
        changes: &Changes,
        started: bool,
    ) {
        self.of_open.store(open.map_or(0, word_of), Relaxed);
        self.attributes.write(changes);
        self.write_path(path, changes.moment);
        let state = State::of(RECORD_CHANGES).and_changes(changes.which);
        let state = if started { state.and_started() } else { state };
        self.state.store(state.0, Relaxed);
    }

    pub(super) fn write_path(&self, path: &[u8], moment: Moment) {
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

    /// The description that was promised for the file which the record makes; the daemon may have
    /// promised another one with its place since.
    pub(super) fn made_with(&self) -> OpenRef {
        let word = self.of_open.load(Relaxed);
        OpenRef { index: word as u32, generation: (word >> 32) as u32 }
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

    /// The path, written to `to`.
    pub(super) fn path<'a>(&self, to: &'a mut [[u8; 8]; PATH_WORDS]) -> &'a [u8] {
        let bytes = (self.path_bytes.load(Relaxed) as usize).min(NAME_BYTES_MAX);
        for (to, word) in to.iter_mut().zip(&self.path[..bytes.div_ceil(8)]) {
            *to = word.load(Relaxed).to_le_bytes();
        }
        to.as_flattened().get(..bytes).unwrap_or_default()
    }

    /// The daemon executes the record: what it asks for. Nothing is added to it from here on.
    #[cfg(feature = "server")]
    #[must_use]
    pub fn execute(&self) -> Submitted {
        for _ in 0..EXECUTE_TRIES {
            let state = State(self.state.load(Acquire));
            let to = match state.kind() {
                RECORD_REMOVES => return Submitted::Removal { directory: false },
                RECORD_REMOVES_DIRECTORY => return Submitted::Removal { directory: true },
                RECORD_DIRECTORY => return Submitted::Directory,
                RECORD_SYMLINK => {
                    return Submitted::Symlink { bytes: state.content().min(INLINE_BYTES_MAX) };
                }
                RECORD_MOVES => return Submitted::Move,
                RECORD_LINKS => return Submitted::Link,
                RECORD_MOVE_TARGET => return Submitted::MoveTarget,
                RECORD_SUBMITTED => state.and_kind(RECORD_OPENED).and_taken(),
                _ => state.and_taken(),
            };
            if state.is_taken() || self.change(state, to) {
                let (bytes, which) = (state.content().min(INLINE_BYTES_MAX), state.changes());
                return match to.kind() {
                    RECORD_CHANGES => Submitted::Changes { which },
                    kind if state.replaces() => {
                        let (open, seen) = (kind == RECORD_OPENED, state.is_seen());
                        let written = !state.is_unwritten();
                        Submitted::Replacement { open, written, bytes, which, seen }
                    }
                    kind => {
                        let (open, seen) = (kind == RECORD_OPENED, state.is_seen());
                        let object = self.made(state);
                        Submitted::File { open, bytes, which, seen, object }
                    }
                };
            }
        }
        // Whoever changes it so often does not keep to what it is for.
        Submitted::File { open: false, bytes: 0, which: 0, seen: false, object: Made::Started }
    }

    #[cfg(feature = "server")]
    fn made(&self, state: State) -> Made {
        let end = || u64::from(self.object_bytes.load(Relaxed));
        match (state.is_started(), state.is_in_object()) {
            (false, _) => Made::Nothing,
            (true, false) => Made::Started,
            (true, true) => Made::All { end: end() },
        }
    }

    /// The attributes that are changed, of which those count that the state says, and when they
    /// were last changed by the processor's counter.
    #[cfg(feature = "server")]
    #[must_use]
    pub fn read_changes(&self, which: u32) -> Changes {
        self.attributes.read(which)
    }

    /// When the process looked at the file that the record makes, and what content that had, bytes.
    #[must_use]
    pub fn read_look(&self) -> (Timestamp, usize) {
        let seconds = self.seen_seconds.load(Relaxed) as i64;
        let nanoseconds = self.seen_ns.load(Relaxed);
        (Timestamp { seconds, nanoseconds }, self.seen_bytes.load(Relaxed) as usize)
    }

    pub(super) fn change(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from.0, to.0, SeqCst, Relaxed).is_ok()
    }
}

/// A description in one word.
pub(super) fn word_of(OpenRef { index, generation }: OpenRef) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

const _: () = assert!(size_of::<Record>() == 384);
const _: () = assert!(core::mem::offset_of!(Record, of_open) == 56);
const _: () = assert!(core::mem::offset_of!(Record, attributes) == 64);
const _: () = assert!(core::mem::offset_of!(Record, path) == 112);
const _: () = assert!(core::mem::offset_of!(Record, seen_seconds) == 368);

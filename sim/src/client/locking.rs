//! Locks: taken, waited for, given back, and lost with their process.
//!
//! A client knows that it holds a lock from the answer on that says so until it sends what ends
//! it. No two may know so of locks that exclude each other, whatever goes wrong meanwhile.

use mayfly_types::OpenRef;
use mayfly_wire::{
    LOCK_FLOCK, LOCK_OFD, LOCK_POSIX, LOCK_READ, LOCK_UNLOCK, LOCK_WRITE, Lock, LockRange,
    OpenReply, Request,
};

use super::{Client, O_CREAT, O_RDWR, What, close, decode, open};
use crate::{dice::Dice, node::Node};

/// Files that are locked.
pub const LOCKED: usize = 2;
/// A client has so many descriptions at most.
const OPEN_MAX: usize = 3;
/// Byte ranges are of so many bytes.
const RANGE_BYTES: u64 = 4;

/// Whose a lock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// A description's, of the whole file.
    Flock,
    /// The process's.
    Posix,
    /// A description's.
    Ofd,
}

/// What is done with locks. Descriptions are counted from the one that was opened last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockAct {
    /// A file is opened, and made if it is not there.
    Open(u8),
    /// Bytes are locked through a description, for reading or writing; who would wait for ever
    /// does not wait.
    Take {
        /// Which description.
        open: u8,
        /// Whose the lock is.
        family: Family,
        /// Others are kept from reading.
        write: bool,
        /// The first byte, and the one behind the last.
        bytes: (u8, u8),
        /// A lock that is in the way is waited for.
        wait: bool,
    },
    /// Bytes are unlocked.
    Release {
        /// Which description.
        open: u8,
        /// Whose the lock is.
        family: Family,
        /// The first byte, and the one behind the last.
        bytes: (u8, u8),
    },
    /// What was opened first is closed.
    Close,
}

impl LockAct {
    /// One of these.
    pub fn draw(dice: &mut Dice) -> LockAct {
        let family = [Family::Flock, Family::Posix, Family::Ofd][dice.index(3)];
        let first = dice.below(RANGE_BYTES) as u8;
        let bytes = (first, first + dice.between(1, RANGE_BYTES - u64::from(first) + 1) as u8);
        let open = dice.index(OPEN_MAX) as u8;
        match dice.below(12) {
            0 | 1 => LockAct::Open(dice.index(LOCKED) as u8),
            2..=6 => {
                let (write, wait) = (dice.once_in(2), !dice.once_in(3));
                LockAct::Take { open, family, write, bytes, wait }
            }
            7..=10 => LockAct::Release { open, family, bytes },
            _ => LockAct::Close,
        }
    }
}

/// The path of a file.
#[must_use]
pub fn path_of(file: usize) -> String {
    format!("k{file}")
}

/// A lock that a client knows to be its.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    file: u8,
    family: Family,
    /// Through which description it was taken.
    open: OpenRef,
    write: bool,
    bytes: (u8, u8),
}

impl Held {
    /// Whether another client cannot have the other one at the same time.
    #[must_use]
    pub fn excludes(&self, other: &Held) -> bool {
        self.file == other.file
            && (self.family == Family::Flock) == (other.family == Family::Flock)
            && (self.write || other.write)
            && self.overlaps(other.bytes)
    }

    fn overlaps(&self, bytes: (u8, u8)) -> bool {
        self.bytes.0 < bytes.1 && bytes.0 < self.bytes.1
    }

    fn is_of(&self, of: &Held) -> bool {
        self.file == of.file
            && self.family == of.family
            && (self.family == Family::Posix || self.open == of.open)
    }
}

/// What a client has of locks.
#[derive(Debug, Default)]
pub(super) struct Locking {
    /// Its descriptions, the last one last.
    opens: Vec<(u8, OpenRef)>,
    /// What it knows that it holds.
    held: Vec<Held>,
    /// The same before the request that is under way. A refusal leaves byte ranges as they were.
    before: Vec<Held>,
    /// Nobody knows what became of a request on this one.
    uncertain: Option<OpenRef>,
}

impl Locking {
    /// What it had of these bytes is not surely its any more.
    fn drop_bytes(&mut self, of: &Held) {
        let mut rest = Vec::new();
        self.held.retain(|held| {
            if !held.is_of(of) || !held.overlaps(of.bytes) {
                return true;
            }
            let (begin, end) = held.bytes;
            let pieces = [(begin, of.bytes.0), (of.bytes.1, end)];
            let pieces = pieces.into_iter().filter(|piece| piece.0 < piece.1);
            rest.extend(pieces.map(|bytes| Held { bytes, ..*held }));
            false
        });
        self.held.append(&mut rest);
    }

    /// A description is closed: its locks go, and those of the process on its file.
    fn close(&mut self, file: u8, open: OpenRef) {
        self.opens.retain(|known| known.1 != open);
        self.held.retain(|held| match held.family {
            Family::Posix => held.file != file,
            Family::Flock | Family::Ofd => held.open != open,
        });
    }

    /// Whether a wait ends: with others' locks, or because the daemon sees that it would not. Who
    /// has a description's lock for reading and waits for writing keeps it meanwhile.
    fn may_wait(&self, family: Family) -> bool {
        let posix_only = self.held.iter().all(|held| held.family == Family::Posix);
        self.held.is_empty() || family == Family::Posix && posix_only
    }
}

fn range(family: Family, kind: u32, bytes: (u8, u8)) -> LockRange {
    let owner = match family {
        Family::Flock => LOCK_FLOCK,
        Family::Posix => LOCK_POSIX,
        Family::Ofd => LOCK_OFD,
    };
    LockRange { owner, kind, start: u64::from(bytes.0), end: u64::from(bytes.1) }
}

impl Client {
    /// What it knows that it holds.
    #[must_use]
    pub fn holds(&self) -> &[Held] {
        &self.locking.held
    }

    pub(super) fn lock(&mut self, node: &Node, act: LockAct) {
        if let Some(open) = self.locking.uncertain.take() {
            return self.close_locked(node, open);
        }
        match act {
            LockAct::Open(file) if self.locking.opens.len() < OPEN_MAX => {
                let path = path_of(usize::from(file));
                self.ask(node, &open(&path, O_RDWR | O_CREAT), What::OpenLocked { file }, None);
            }
            LockAct::Open(_) => {}
            LockAct::Close => {
                if let Some((_, open)) = self.locking.opens.first().copied() {
                    self.close_locked(node, open);
                }
            }
            LockAct::Take { open, family, write, bytes, wait } => {
                self.ask_lock(node, open, (family, Some(write)), bytes, wait);
            }
            LockAct::Release { open, family, bytes } => {
                self.ask_lock(node, open, (family, None), bytes, false);
            }
        }
    }

    fn close_locked(&mut self, node: &Node, open: OpenRef) {
        let known = self.locking.opens.iter().find(|known| known.1 == open);
        if let Some((file, open)) = known.copied() {
            self.locking.close(file, open);
            self.ask(node, &close(open), What::Unnoted, None);
        }
    }

    fn ask_lock(
        &mut self,
        node: &Node,
        open: u8,
        (family, write): (Family, Option<bool>),
        bytes: (u8, u8),
        wait: bool,
    ) {
        let Some((file, open)) = self.locking.opens.iter().nth_back(usize::from(open)) else {
            return;
        };
        let bytes = if family == Family::Flock { (0, u8::MAX) } else { bytes };
        let (file, open) = (*file, *open);
        let held = Held { file, family, open, write: write == Some(true), bytes };
        let wait = wait && self.locking.may_wait(family);
        self.locking.before = self.locking.held.clone();
        self.locking.drop_bytes(&held);
        if family == Family::Flock {
            self.locking.before = self.locking.held.clone();
        }
        self.locking.uncertain = Some(open);
        let kind = match write {
            None => LOCK_UNLOCK,
            Some(true) => LOCK_WRITE,
            Some(false) => LOCK_READ,
        };
        let request = Request::Lock(Lock { open, range: range(family, kind, bytes), wait });
        let what = What::Lock(write.is_some().then_some(held));
        self.ask(node, &request, what, None);
    }

    pub(super) fn take_locked(&mut self, file: u8, body: &[u8]) {
        let open = decode::<OpenReply<'_>>(body).opened.open;
        self.locking.opens.push((file, open));
    }

    /// The answer to a request for a lock, or to give one back.
    pub(super) fn take_lock(&mut self, held: Option<Held>) {
        self.locking.uncertain = None;
        self.locking.held.extend(held);
    }

    /// It was refused, or nobody knows.
    pub(super) fn take_refusal(&mut self, certain: bool) {
        if certain {
            self.locking.uncertain = None;
            self.locking.held = std::mem::take(&mut self.locking.before);
        }
    }
}

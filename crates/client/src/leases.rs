//! Leases: files that are opened, read and closed without asking the daemon.
//!
//! Beside them [`contents`] keeps what a small file held when it was opened by a request.
//!
//! A process that opens files for reading is leased some descriptions
//! ([`mayfly_transport_shm::file_leases`]). It finds the file in the records. It shows in shared
//! memory which file it reads by which description. Then it looks at the records' version once
//! more. If that is the same, the daemon keeps the file from then on, whatever becomes of its
//! names.
//!
//! **Nothing stale is read.** Each read looks whether something waits that replaces the content of
//! its file; nothing else that is submitted changes a byte of a file that is in the records. So it
//! looks at the version alone then. If it is the one at which the file was found,
//! its bytes are where they were. Otherwise the file is looked for anew. After the copy the version
//! is looked at again. If it is the same, the copied bytes are those that the file held at that
//! moment. Bytes in an object are read from the object, which the process opens by itself. Their
//! copy takes longer, and the records may have changed meanwhile. Then the file is looked for once
//! more. If its bytes are in the same object still, they were there all the time, since no
//! generation of objects comes back.
//!
//! **Directories** are opened, listed and closed so, too ([`directories`]).
//!
//! **Whatever is not done here** goes by a description of the daemon's own:
//! [`Client::open_file`](crate::Client::open_file) has it made, under the same index and
//! generation, so nobody notices.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use mayfly_records::{
    Bytes, Question, Reached, Regular, Runs, Source, find_again, is_still, reach, version,
};
use mayfly_sys::{
    arch,
    file::{IoVec, O_CLOEXEC, O_LARGEFILE, O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDWR},
};
use mayfly_transport::Transport;
use mayfly_transport_shm::{
    file_leases::{FILE_LEASES_MAX, LEASED_NAME_BYTES_MAX, SessionLeases, is_leased},
    layout::{NodeHead, OPEN_LEASED, OPEN_LEASED_BUSY, OPEN_LEASED_USED, OpenEntry},
    tally::{Done, Kind, Subject, Way},
};
use mayfly_types::{Attr, Errno, FileId, FileKind, OpenRef};
use mayfly_wire::{Ping, WALK_FOLLOW, Walk};

use crate::{
    Client, Descriptors, OpenFile,
    counted::Transfer,
    data::{pieces::Pieces, read_pieces},
    open::offset,
    path::records::{View, is_complete, is_served_since, is_submitted, timed},
};

mod beside;
pub(crate) mod contents;
mod directories;
mod entries;
mod memo;
mod objects;
mod to_ask;

use directories::ABOUT_DIRECTORIES;
use memo::{Content, Memo, Seen};
use objects::LeasedObjects;
use to_ask::ToAsk;

/// Flags of an open that can be done here. A description that may write writes by one of the
/// daemon's own.
const PLAIN: u32 =
    O_RDWR | O_CLOEXEC | O_LARGEFILE | O_NOATIME | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
/// Those of them that say how to open, and are no property of the description.
const ONCE: u32 = O_CLOEXEC | O_NOCTTY;
/// A file that is changed so often meanwhile is the daemon's affair.
const TRIES: usize = 3;
/// Another thread takes an entry into use, or out of it, within some hundred instructions.
const SPINS: usize = 1000;

/// The descriptions that are leased to this process, and where it found their files.
#[derive(Default)]
pub(crate) struct LeasedFiles {
    leases: Option<&'static SessionLeases>,
    memos: [Memo; FILE_LEASES_MAX],
    objects: LeasedObjects,
    to_ask: ToAsk,
}

/// The records, at a moment when nothing was submitted that is not in them, but what was not there.
struct Look<'a> {
    view: View<'a>,
    head: &'static NodeHead,
    seen: Seen,
}

impl Look<'_> {
    /// Is this the moment still?
    fn lasts(&self) -> bool {
        is_still(&self.view, self.seen.version)
            && is_served_since(self.head, self.seen.starts)
            && is_complete(self.head)
    }

    /// Is what was told until then told still?
    fn believes(&self, until: u64) -> bool {
        until == u64::MAX || self.view.now() < until
    }
}

/// A description that is leased, in use or not.
#[derive(Clone, Copy)]
struct Leased {
    leases: &'static SessionLeases,
    place: usize,
    index: u32,
    entry: &'static OpenEntry,
}

impl Leased {
    fn change(&self, from: u32, to: u32) -> bool {
        self.entry.state.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// Nobody else takes it into use.
    fn claim(&self) -> bool {
        // Most of those that are in use are found so without a locked instruction.
        if self.entry.state.load(Relaxed) != OPEN_LEASED
            || !self.change(OPEN_LEASED, OPEN_LEASED_BUSY)
        {
            return false;
        }
        // It may have been taken, closed, and leased to somebody else, before it was claimed.
        let ours = self.leases.entry_at(self.place) == Some(self.index);
        if !ours {
            self.change(OPEN_LEASED_BUSY, OPEN_LEASED);
        }
        ours
    }

    /// Shows that `id` is read by it from here on.
    fn take_into_use(
        &self,
        (id, kind): (FileId, FileKind),
        flags: u32,
        (directory, name): (FileId, &[u8]),
    ) {
        if let Some(birth) = self.leases.births.get(self.place) {
            birth.write(directory, name);
        }
        let entry = self.entry;
        entry.flags.store(flags & !ONCE, Relaxed);
        entry.file.store(u32::MAX, Relaxed);
        entry.offset_lock.store(0, Relaxed);
        entry.offset.store(0, Relaxed);
        entry.id.store(id.0, Relaxed);
        entry.kind.store(kind as u32, Relaxed);
        entry.state.store(OPEN_LEASED_USED, Release);
        self.leases.show(self.place, id);
    }

    /// Takes it out of use; false when it is not leased any more. Only whoever has closed the last
    /// descriptor does that, so no other thread has taken it out and into use again meanwhile.
    fn give_up(&self, generation: u32) -> bool {
        if !self.change(OPEN_LEASED_USED, OPEN_LEASED_BUSY) {
            return false;
        }
        self.leases.hide(self.place);
        self.entry.generation.store(generation.wrapping_add(1), Release);
        self.change(OPEN_LEASED_BUSY, OPEN_LEASED);
        true
    }
}

impl LeasedFiles {
    /// Nothing is leased.
    pub(crate) fn none() -> LeasedFiles {
        LeasedFiles::default()
    }

    /// The leases that the daemon shows in `leases`.
    pub(crate) fn of(leases: &'static SessionLeases) -> LeasedFiles {
        LeasedFiles { leases: Some(leases), ..LeasedFiles::none() }
    }
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Opens a file, to read from it at first, or a directory, if that can be done without asking
    /// the daemon, or says that there is none.
    #[must_use]
    pub fn open_leased(&self, walk: &Walk<'_>, flags: u32) -> Option<Result<OpenFile, Errno>> {
        let leases = self.leased_files.leases?;
        if flags & ABOUT_DIRECTORIES != 0 {
            return self.open_directory_leased(leases, walk, flags).map(Ok);
        }
        let may_write = flags & O_RDWR != 0;
        if flags & !PLAIN != 0 || walk.flags & !WALK_FOLLOW != 0 || may_write && self.is_watched() {
            return None;
        }
        if may_write && self.leased_files.to_ask.is_due() {
            return None;
        }
        let began = self.begin(0);
        let Some(found) = self.open_by_lease(leases, walk, flags) else {
            let directory = (!may_write).then(|| self.open_directory_leased(leases, walk, flags));
            return directory.flatten().map(Ok);
        };
        self.end_at(began, (Kind::Open, Way::Itself), walk, found.is_err());
        Some(found)
    }

    #[inline]
    fn open_by_lease(
        &self,
        leases: &'static SessionLeases,
        walk: &Walk<'_>,
        flags: u32,
    ) -> Option<Result<OpenFile, Errno>> {
        let leased = self.claim_leased(leases)?;
        let found = self.reach_regular(walk);
        match found {
            // Who may write to another node's file, that one has to know.
            Some((look, Reached::Regular(regular, directory, name)))
                if name.len() <= LEASED_NAME_BYTES_MAX
                    && (regular.until == u64::MAX || flags & O_RDWR == 0) =>
            {
                let of = (regular.attr.id, FileKind::Regular);
                leased.take_into_use(of, flags, (directory, name));
                let generation = leased.entry.generation.load(Relaxed);
                let reference = OpenRef { index: leased.index, generation };
                let until = regular.until.min(regular.opens_until);
                if !look.lasts() || !look.believes(until) {
                    self.close_leased_or_made(reference);
                    return None;
                }
                if let Some(memo) = self.leased_files.memos.get(leased.place) {
                    memo.keep(generation, look.seen, &regular);
                }
                Some(Ok(OpenFile { reference, entry: leased.entry }))
            }
            Some((look, Reached::Nothing)) => {
                leased.change(OPEN_LEASED_BUSY, OPEN_LEASED);
                look.lasts().then_some(Err(Errno::ENOENT))
            }
            _ => {
                leased.change(OPEN_LEASED_BUSY, OPEN_LEASED);
                None
            }
        }
    }

    fn claim_leased(&self, leases: &'static SessionLeases) -> Option<Leased> {
        (0..FILE_LEASES_MAX).find_map(|place| {
            let index = leases.entry_at(place)?;
            let entry = self.node.opens.get(index as usize)?;
            let leased = Leased { leases, place, index, entry };
            leased.claim().then_some(leased)
        })
    }

    fn reach_regular<'a>(&self, walk: &Walk<'a>) -> Option<(Look<'_>, Reached<'a>)> {
        let waits = is_submitted(self.node.head);
        let changes = waits && !self.transport.submits_additions_alone();
        let look = self.look_at_bytes()?;
        let follow = walk.flags & WALK_FOLLOW != 0;
        let question = Question { start: walk.start, path: walk.path, follow };
        let reached = reach(&look.view, question).ok()?;
        let waits = match reached {
            Reached::Regular(regular, ..) if !is_lendable(&regular, look.seen) => return None,
            Reached::Regular(regular, ..) if changes && regular.attr.links != 1 => return None,
            Reached::Regular(..) => changes,
            Reached::Nothing => waits,
        };
        if waits && !self.is_left_alone(question, &look) {
            return None;
        }
        Some((look, reached))
    }

    fn look_at_records(&self) -> Option<Look<'_>> {
        let waits = is_submitted(self.node.head) && !self.transport.submits_additions_alone();
        if waits { None } else { self.look_at_bytes() }
    }

    /// The same for bytes of a file that is there and whose content nothing that waits replaces.
    fn look_at_bytes(&self) -> Option<Look<'_>> {
        let head = self.node.head;
        let view = self.records.view(head)?;
        let starts = head.daemon_starts.load(Acquire);
        let version = version(&view)?;
        Some(Look { view, head, seen: Seen { starts, version } })
    }

    /// The description that is leased and in use under this reference.
    fn leased(&self, reference: OpenRef) -> Option<Leased> {
        let OpenRef { index, .. } = reference;
        let entry = self.node.opens.get(index as usize)?;
        let leases = self.leased_files.leases.filter(|_| is_used(entry, reference))?;
        let place = leases.place_of(index)?;
        Some(Leased { leases, place, index, entry })
    }

    /// Is the file read by a description that is leased, as far as one look tells?
    #[must_use]
    pub fn is_leased(&self, reference: OpenRef) -> bool {
        self.leased(reference).is_some()
    }

    /// Closes a description that is leased; false when it is not, any more.
    #[must_use]
    pub fn close_leased(&self, reference: OpenRef) -> bool {
        let Some(leased) = self.leased(reference) else { return false };
        let began = self.begin(0);
        let subject = Subject { file: leased.entry.id.load(Relaxed), ..Subject::default() };
        let closed = leased.give_up(reference.generation);
        if closed {
            let (kind, way) = (Kind::Close, Way::Itself);
            self.end(began, || Done { kind, way, failed: false, bytes: 0, subject });
        }
        closed
    }

    #[cold]
    fn close_leased_or_made(&self, reference: OpenRef) {
        if !self.close_leased(reference)
            && let Ok(open) = self.open_file(reference)
        {
            // Nobody has used it.
            let _ = self.close(open);
        }
    }

    /// The file as the records have it, at the moment of the look.
    fn regular(&self, leased: &Leased, look: &Look<'_>) -> Option<Regular> {
        let birth = leased.leases.births.get(leased.place)?;
        let mut name = Default::default();
        let (directory, name) = birth.read(&mut name);
        let id = FileId(leased.entry.id.load(Relaxed));
        find_again(&look.view, id, directory, name)
            .ok()
            .filter(|regular| regular.version == look.seen.version)
    }

    /// Reads by a description that is leased, at the file offset or at `offset`. `None`: to be read
    /// by [`Client::read`] or [`Client::read_at`]; nothing has happened, but that bytes may stand
    /// where these will be.
    ///
    /// # Safety
    /// The host wants its memory at `to` written.
    pub unsafe fn read_leased(
        &self,
        reference: OpenRef,
        offset: Option<u64>,
        to: &[IoVec],
    ) -> Option<Result<usize, Errno>> {
        let leased = self.leased(reference)?;
        let pieces = match Pieces::new(to) {
            Ok(pieces) => pieces,
            Err(errno) => return Some(Err(errno)),
        };
        if let Some(offset) = offset {
            // SAFETY: passed on to the caller.
            return unsafe { self.copy_leased(&leased, reference, offset, pieces) };
        }
        let position = offset::hold(OpenFile { reference, entry: leased.entry }).ok()?;
        // SAFETY: passed on to the caller.
        let done = unsafe { self.copy_leased(&leased, reference, position.get(), pieces) }?;
        if let Ok(count) = done {
            position.set(position.get() + count as u64);
        }
        Some(done)
    }

    /// # Safety
    /// As [`Client::read_leased`].
    unsafe fn copy_leased(
        &self,
        leased: &Leased,
        reference: OpenRef,
        offset: u64,
        pieces: Pieces<'_>,
    ) -> Option<Result<usize, Errno>> {
        if offset.checked_add(pieces.left() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Some(Err(Errno::EINVAL));
        }
        let began = self.begin(pieces.left());
        for _ in 0..TRIES {
            if self.transport.replaces(FileId(leased.entry.id.load(Relaxed))) {
                return None;
            }
            let look = self.look_at_bytes()?;
            let content = self.content(leased, reference, &look)?;
            // SAFETY: passed on to the caller.
            let done = unsafe { self.copy_content(leased, &look, content, offset, pieces) }?;
            // Still in use: the entry told which file it is.
            if (look.lasts() || self.is_same_object(leased, reference, content)?)
                && is_used(leased.entry, reference)
            {
                let (kind, way) = (Kind::Read, Way::Itself);
                self.transferred(Transfer { kind, way, reference, offset, began }, &done);
                return Some(done);
            }
        }
        None
    }

    /// Where the bytes are at the moment of the look.
    fn content(&self, leased: &Leased, reference: OpenRef, look: &Look<'_>) -> Option<Content> {
        let memo = self.leased_files.memos.get(leased.place)?;
        if let Some((content, until)) = memo.find(reference.generation, look.seen) {
            return look.believes(until).then_some(content);
        }
        let regular = self.regular(leased, look)?;
        memo.keep(reference.generation, look.seen, &regular);
        Some(Content::of(&regular))
    }

    /// After the records have changed while bytes were read: were they in the same object all the
    /// time?
    #[cold]
    fn is_same_object(&self, leased: &Leased, reference: OpenRef, was: Content) -> Option<bool> {
        let Content::Object(generation, _) = was else { return Some(false) };
        for _ in 0..SPINS {
            // A transaction may be under way, which is short beside what was read.
            if let Some(look) = self.look_at_bytes() {
                let is = self.content(leased, reference, &look)?;
                let same = matches!(is, Content::Object(now, _) if now == generation);
                return Some(same && look.lasts());
            }
            arch::pause();
        }
        None
    }

    /// # Safety
    /// As [`Client::read_leased`].
    unsafe fn copy_content(
        &self,
        leased: &Leased,
        look: &Look<'_>,
        content: Content,
        offset: u64,
        pieces: Pieces<'_>,
    ) -> Option<Result<usize, Errno>> {
        match content {
            Content::Runs(runs) => {
                let first = usize::try_from(offset).unwrap_or(usize::MAX);
                // SAFETY: passed on to the caller.
                unsafe { copy_runs(&look.view, &runs, first, pieces) }
            }
            // Nothing is behind the end, if this is the moment still.
            Content::Object(_, Some(size)) if offset >= size && look.lasts() => Some(Ok(0)),
            Content::Object(..) if pieces.left() == 0 => Some(Ok(0)),
            Content::Object(generation, _) => {
                let of = (FileId(leased.entry.id.load(Relaxed)), generation);
                let object = self.leased_files.objects.get(leased.place, of, &self.objects)?;
                // SAFETY: passed on to the caller.
                Some(unsafe { read_pieces(object.descriptor, offset, pieces) })
            }
        }
    }

    /// Is the file read by a description that is leased, with its bytes in the records, at this
    /// moment?
    #[must_use]
    pub fn is_leased_in_records(&self, reference: OpenRef) -> bool {
        self.leased(reference).zip(self.look_at_records()).is_some_and(|(leased, look)| {
            matches!(self.content(&leased, reference, &look), Some(Content::Runs(_)))
        })
    }

    /// Attributes of the file, if it is read by a description that is leased.
    #[must_use]
    pub fn stat_leased(&self, reference: OpenRef) -> Option<Attr> {
        let leased = self.leased(reference)?;
        let began = self.begin(0);
        if leased.is_directory() {
            let attr = self.stat_directory_leased(&leased, reference)?;
            self.end_open(began, (Kind::Stat, Way::Itself), reference, false);
            return Some(attr);
        }
        let look = self.look_at_bytes()?;
        let waits = is_submitted(self.node.head) && !self.transport.submits_additions_alone();
        let regular = match waits {
            true => self.regular_beside(&leased, &look)?,
            false => self.regular(&leased, &look)?,
        };
        let is_certain = is_settled(&regular) && look.lasts() && is_used(leased.entry, reference);
        if !is_certain {
            return None;
        }
        self.end_open(began, (Kind::Stat, Way::Itself), reference, false);
        Some(timed(regular.attr, self.node.head))
    }

    /// Is the file, which is read by a description that is leased, open for writing nowhere? False
    /// where only the daemon knows.
    #[must_use]
    pub fn is_leased_and_unwritten(&self, reference: OpenRef) -> bool {
        self.leased(reference).zip(self.look_at_records()).is_some_and(|(leased, look)| {
            // Those of other nodes' processes are counted there.
            self.tells_everything()
                && !leased.is_directory()
                && look.head.writers.load(Acquire) == 0
                && is_served_since(look.head, look.seen.starts)
                && is_used(leased.entry, reference)
        })
    }

    /// Has the daemon make a description of its own of one that is leased.
    ///
    /// # Errors
    /// EBADF when it was closed; EIO.
    #[cold]
    pub(crate) fn settle_leased(&self, reference: OpenRef, entry: &OpenEntry) -> Result<(), Errno> {
        for _ in 0..TRIES {
            for _ in 0..SPINS {
                if entry.state.load(Acquire) != OPEN_LEASED_BUSY {
                    break;
                }
                arch::pause();
            }
            let state = entry.state.load(Acquire);
            if entry.generation.load(Acquire) != reference.generation || state == OPEN_LEASED {
                return Err(Errno::EBADF);
            }
            if !is_leased(state) {
                return Ok(());
            }
            if entry.flags.load(Relaxed) & O_RDWR != 0 {
                self.leased_files.to_ask.written();
            }
            if let Some(leases) = self.leased_files.leases
                && let Some(place) = leases.place_of(reference.index)
            {
                leases.wanted.fetch_or(1 << place, AcqRel);
            }
            self.ask(&Ping {}, |_| Ok(()))?;
        }
        Err(Errno::EBADF)
    }
}

/// Do the records tell everything of the file?
fn is_settled(regular: &Regular) -> bool {
    !matches!(regular.bytes, Bytes::Object { settled: false, .. })
}

/// May the file be opened without asking, as it was found?
fn is_lendable(regular: &Regular, seen: Seen) -> bool {
    regular.version == seen.version && is_settled(regular)
}

/// Is the entry leased, and does a file's open description stand there under this reference?
fn is_used(entry: &OpenEntry, reference: OpenRef) -> bool {
    entry.state.load(Acquire) == OPEN_LEASED_USED
        && entry.generation.load(Acquire) == reference.generation
}

/// Copies what lies there, from byte `first` on.
///
/// # Safety
/// As [`Client::read_leased`].
unsafe fn copy_runs(
    view: &View<'_>,
    runs: &Runs,
    first: usize,
    mut pieces: Pieces<'_>,
) -> Option<Result<usize, Errno>> {
    let mut done = 0;
    for (at, bytes) in runs.from(first).filter(|(_, bytes)| *bytes > 0) {
        let from = view.range(at, bytes)?;
        // SAFETY: so many bytes are there, says the view, and the rest is passed on to the caller.
        match unsafe { pieces.scatter_from(from, bytes) } {
            Ok(count) => done += count,
            Err(errno) => return Some(Err(errno)),
        }
    }
    Some(Ok(done))
}

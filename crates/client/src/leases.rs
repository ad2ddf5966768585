//! Leases: files that are opened, read and closed without asking the daemon.
//!
//! Beside them [`contents`] keeps what a small file held when it was opened by a request.
//!
//! A process that opens files for reading is lent some descriptions
//! ([`mayfly_transport_shm::lent`]). It finds the file in the records. It shows in shared memory
//! which file it reads by which description. Then it looks at the records' version once more. If
//! that is the same, the daemon keeps the file from then on, whatever becomes of its names.
//!
//! **Nothing stale is read.** Each read looks whether anything is posted, and then at the version.
//! If it is the one at which the file was found, its bytes are where they were. Otherwise the file
//! is looked for anew. After the copy the version is looked at again. If it is the same, the copied
//! bytes are those that the file held at that moment. Bytes in an object are read from the object,
//! which the process opens by itself. Their copy takes longer, and the records may have changed
//! meanwhile. Then the file is looked for once more. If its bytes are in the same object still,
//! they were there all the time, since no generation of objects comes back.
//!
//! **Whatever is not done here** goes by a description of the daemon's own:
//! [`Client::open_file`](crate::Client::open_file) has it made, under the same index and
//! generation, so nobody notices.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use mayfly_records::{
    Bytes, Question, Reached, Regular, Runs, find_again, is_still, reach, version,
};
use mayfly_sys::{
    arch,
    file::{IoVec, O_CLOEXEC, O_LARGEFILE, O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDWR},
};
use mayfly_transport::Transport;
use mayfly_transport_shm::{
    layout::{NodeHead, OPEN_LENT, OPEN_LENT_BUSY, OPEN_LENT_USED, OpenEntry},
    lent::{LENT_MAX, LENT_NAME_BYTES_MAX, Lent, is_lent},
    tally::{Done, Kind, Subject, Way},
};
use mayfly_types::{Attr, Errno, FileId, FileKind, OpenRef};
use mayfly_wire::{Ping, WALK_FOLLOW, Walk};

use crate::{
    Client, Descriptors, OpenFile,
    counted::Transfer,
    data::{
        pieces::Pieces,
        read_pieces,
        seeking::{SEEK_CUR, SEEK_END, SEEK_SET},
    },
    open::offset,
    path::records::{View, is_posted, is_served_since, timed},
};

pub(crate) mod contents;
mod memo;
mod objects;

use memo::{Content, Memo, Seen};
use objects::LentObjects;

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

/// The descriptions that are lent to this process, and where it found their files.
pub(crate) struct Lending {
    lent: Option<&'static Lent>,
    memos: [Memo; LENT_MAX],
    objects: LentObjects,
}

/// The records, at a moment when nothing was posted that is not in them.
struct Look<'a> {
    view: View<'a>,
    head: &'static NodeHead,
    seen: Seen,
}

impl Look<'_> {
    /// Is this the moment still?
    fn lasts(&self) -> bool {
        is_still(&self.view, self.seen.version) && is_served_since(self.head, self.seen.starts)
    }
}

/// A description that is lent, in use or not.
#[derive(Clone, Copy)]
struct Borrowed {
    lent: &'static Lent,
    place: usize,
    index: u32,
    entry: &'static OpenEntry,
}

impl Borrowed {
    fn change(&self, from: u32, to: u32) -> bool {
        self.entry.state.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// Nobody else takes it into use.
    fn claim(&self) -> bool {
        // Most of those that are in use are found so without a locked instruction.
        if self.entry.state.load(Relaxed) != OPEN_LENT || !self.change(OPEN_LENT, OPEN_LENT_BUSY) {
            return false;
        }
        // It may have been taken, closed, and lent to somebody else, before it was claimed.
        let ours = self.lent.entry_at(self.place) == Some(self.index);
        if !ours {
            self.change(OPEN_LENT_BUSY, OPEN_LENT);
        }
        ours
    }

    /// Shows that `id` is read by it from here on.
    fn take_into_use(&self, id: FileId, flags: u32, (directory, name): (FileId, &[u8])) {
        if let Some(birth) = self.lent.births.get(self.place) {
            birth.write(directory, name);
        }
        let entry = self.entry;
        entry.flags.store(flags & !ONCE, Relaxed);
        entry.file.store(u32::MAX, Relaxed);
        entry.offset_lock.store(0, Relaxed);
        entry.offset.store(0, Relaxed);
        entry.id.store(id.0, Relaxed);
        entry.kind.store(FileKind::Regular as u32, Relaxed);
        entry.state.store(OPEN_LENT_USED, Release);
        self.lent.show(self.place, id);
    }

    /// Takes it out of use; false when it is not lent any more. Only whoever has closed the last
    /// descriptor does that, so no other thread has taken it out and into use again meanwhile.
    fn give_up(&self, generation: u32) -> bool {
        if !self.change(OPEN_LENT_USED, OPEN_LENT_BUSY) {
            return false;
        }
        self.lent.hide(self.place);
        self.entry.generation.store(generation.wrapping_add(1), Release);
        self.change(OPEN_LENT_BUSY, OPEN_LENT);
        true
    }
}

impl Lending {
    /// Nothing is lent.
    pub(crate) fn none() -> Lending {
        Lending { lent: None, memos: Default::default(), objects: LentObjects::default() }
    }

    /// The leases that the daemon shows in `lent`.
    pub(crate) fn of(lent: &'static Lent) -> Lending {
        Lending { lent: Some(lent), ..Lending::none() }
    }
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Opens a file, to read from it at first, if that can be done without asking the daemon, or
    /// says that there is none.
    #[must_use]
    pub fn open_lent(&self, walk: &Walk<'_>, flags: u32) -> Option<Result<OpenFile, Errno>> {
        let lent = self.lending.lent?;
        let may_write = flags & O_RDWR != 0;
        if flags & !PLAIN != 0 || walk.flags & !WALK_FOLLOW != 0 || may_write && self.is_watched() {
            return None;
        }
        let began = self.begin(0);
        let found = self.open_borrowed(lent, walk, flags)?;
        self.end_at(began, (Kind::Open, Way::Itself), walk, found.is_err());
        Some(found)
    }

    #[inline]
    fn open_borrowed(
        &self,
        lent: &'static Lent,
        walk: &Walk<'_>,
        flags: u32,
    ) -> Option<Result<OpenFile, Errno>> {
        let borrowed = self.claim_lent(lent)?;
        let found = self.reach_regular(walk);
        match found {
            Some((look, Reached::Regular(regular, directory, name)))
                if name.len() <= LENT_NAME_BYTES_MAX =>
            {
                borrowed.take_into_use(regular.attr.id, flags, (directory, name));
                let generation = borrowed.entry.generation.load(Relaxed);
                let reference = OpenRef { index: borrowed.index, generation };
                if !look.lasts() {
                    self.close_lent_or_made(reference);
                    return None;
                }
                if let Some(memo) = self.lending.memos.get(borrowed.place) {
                    memo.keep(generation, look.seen, &Content::of(&regular));
                }
                Some(Ok(OpenFile { reference, entry: borrowed.entry }))
            }
            Some((look, Reached::Nothing)) => {
                borrowed.change(OPEN_LENT_BUSY, OPEN_LENT);
                look.lasts().then_some(Err(Errno::ENOENT))
            }
            _ => {
                borrowed.change(OPEN_LENT_BUSY, OPEN_LENT);
                None
            }
        }
    }

    fn claim_lent(&self, lent: &'static Lent) -> Option<Borrowed> {
        (0..LENT_MAX).find_map(|place| {
            let index = lent.entry_at(place)?;
            let entry = self.node.opens.get(index as usize)?;
            let borrowed = Borrowed { lent, place, index, entry };
            borrowed.claim().then_some(borrowed)
        })
    }

    fn reach_regular<'a>(&self, walk: &Walk<'a>) -> Option<(Look<'_>, Reached<'a>)> {
        let look = self.look_at_records()?;
        let follow = walk.flags & WALK_FOLLOW != 0;
        let question = Question { start: walk.start, path: walk.path, follow };
        let reached = reach(&look.view, question).ok()?;
        match reached {
            Reached::Regular(regular, ..) if !is_lendable(&regular, look.seen) => None,
            reached => Some((look, reached)),
        }
    }

    fn look_at_records(&self) -> Option<Look<'_>> {
        let view = self.records.view()?;
        let head = self.node.head;
        // An operation that was posted before this call is in the records, or shows here.
        if is_posted(head) {
            return None;
        }
        let starts = head.daemon_starts.load(Acquire);
        let version = version(&view)?;
        Some(Look { view, head, seen: Seen { starts, version } })
    }

    /// The description that is lent and in use under this reference.
    fn borrowed(&self, reference: OpenRef) -> Option<Borrowed> {
        let OpenRef { index, .. } = reference;
        let entry = self.node.opens.get(index as usize)?;
        let lent = self.lending.lent.filter(|_| is_used(entry, reference))?;
        let place = lent.place_of(index)?;
        Some(Borrowed { lent, place, index, entry })
    }

    /// Is the file read by a description that is lent, as far as one look tells?
    #[must_use]
    pub fn is_lent(&self, reference: OpenRef) -> bool {
        self.borrowed(reference).is_some()
    }

    /// Closes a description that is lent; false when it is not, any more.
    #[must_use]
    pub fn close_lent(&self, reference: OpenRef) -> bool {
        let Some(borrowed) = self.borrowed(reference) else { return false };
        let began = self.begin(0);
        let subject = Subject { file: borrowed.entry.id.load(Relaxed), ..Subject::default() };
        let closed = borrowed.give_up(reference.generation);
        if closed {
            let (kind, way) = (Kind::Close, Way::Itself);
            self.end(began, || Done { kind, way, failed: false, bytes: 0, subject });
        }
        closed
    }

    #[cold]
    fn close_lent_or_made(&self, reference: OpenRef) {
        if !self.close_lent(reference)
            && let Ok(open) = self.open_file(reference)
        {
            // Nobody has used it.
            let _ = self.close(open);
        }
    }

    /// The file as the records have it, at the moment of the look.
    fn regular(&self, borrowed: &Borrowed, look: &Look<'_>) -> Option<Regular> {
        let birth = borrowed.lent.births.get(borrowed.place)?;
        let mut name = Default::default();
        let (directory, name) = birth.read(&mut name);
        let id = FileId(borrowed.entry.id.load(Relaxed));
        find_again(&look.view, id, directory, name)
            .ok()
            .filter(|regular| regular.version == look.seen.version)
    }

    /// Reads by a description that is lent, at the file offset or at `offset`. `None`: to be read
    /// by [`Client::read`] or [`Client::read_at`]; nothing has happened, but that bytes may stand
    /// where these will be.
    ///
    /// # Safety
    /// The host wants its memory at `to` written.
    pub unsafe fn read_lent(
        &self,
        reference: OpenRef,
        offset: Option<u64>,
        to: &[IoVec],
    ) -> Option<Result<usize, Errno>> {
        let borrowed = self.borrowed(reference)?;
        let pieces = match Pieces::new(to) {
            Ok(pieces) => pieces,
            Err(errno) => return Some(Err(errno)),
        };
        if let Some(offset) = offset {
            // SAFETY: passed on to the caller.
            return unsafe { self.copy_lent(&borrowed, reference, offset, pieces) };
        }
        let position = offset::hold(OpenFile { reference, entry: borrowed.entry }).ok()?;
        // SAFETY: passed on to the caller.
        let done = unsafe { self.copy_lent(&borrowed, reference, position.get(), pieces) }?;
        if let Ok(count) = done {
            position.set(position.get() + count as u64);
        }
        Some(done)
    }

    /// # Safety
    /// As [`Client::read_lent`].
    unsafe fn copy_lent(
        &self,
        borrowed: &Borrowed,
        reference: OpenRef,
        offset: u64,
        pieces: Pieces<'_>,
    ) -> Option<Result<usize, Errno>> {
        if offset.checked_add(pieces.left() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Some(Err(Errno::EINVAL));
        }
        let began = self.begin(pieces.left());
        for _ in 0..TRIES {
            let look = self.look_at_records()?;
            let content = self.content(borrowed, reference, &look)?;
            // SAFETY: passed on to the caller.
            let done = unsafe { self.copy_content(borrowed, &look, content, offset, pieces) }?;
            // Still in use: the entry told which file it is.
            if (look.lasts() || self.is_same_object(borrowed, reference, content)?)
                && is_used(borrowed.entry, reference)
            {
                let (kind, way) = (Kind::Read, Way::Itself);
                self.transferred(Transfer { kind, way, reference, offset, began }, &done);
                return Some(done);
            }
        }
        None
    }

    /// Where the bytes are at the moment of the look.
    fn content(&self, borrowed: &Borrowed, reference: OpenRef, look: &Look<'_>) -> Option<Content> {
        let memo = self.lending.memos.get(borrowed.place)?;
        if let Some(content) = memo.find(reference.generation, look.seen) {
            return Some(content);
        }
        let content = Content::of(&self.regular(borrowed, look)?);
        memo.keep(reference.generation, look.seen, &content);
        Some(content)
    }

    /// After the records have changed while bytes were read: were they in the same object all the
    /// time?
    #[cold]
    fn is_same_object(
        &self,
        borrowed: &Borrowed,
        reference: OpenRef,
        was: Content,
    ) -> Option<bool> {
        let Content::Object(generation, _) = was else { return Some(false) };
        for _ in 0..SPINS {
            // A transaction may be under way, which is short beside what was read.
            if let Some(look) = self.look_at_records() {
                let is = self.content(borrowed, reference, &look)?;
                let same = matches!(is, Content::Object(now, _) if now == generation);
                return Some(same && look.lasts());
            }
            arch::pause();
        }
        None
    }

    /// # Safety
    /// As [`Client::read_lent`].
    unsafe fn copy_content(
        &self,
        borrowed: &Borrowed,
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
                let of = (FileId(borrowed.entry.id.load(Relaxed)), generation);
                let object = self.lending.objects.get(borrowed.place, of, &self.objects)?;
                // SAFETY: passed on to the caller.
                Some(unsafe { read_pieces(object.descriptor, offset, pieces) })
            }
        }
    }

    /// Is the file read by a description that is lent, with its bytes in the records, at this
    /// moment?
    #[must_use]
    pub fn is_lent_in_records(&self, reference: OpenRef) -> bool {
        self.borrowed(reference).zip(self.look_at_records()).is_some_and(|(borrowed, look)| {
            matches!(self.content(&borrowed, reference, &look), Some(Content::Runs(_)))
        })
    }

    /// Attributes of the file, if it is read by a description that is lent.
    #[must_use]
    pub fn stat_lent(&self, reference: OpenRef) -> Option<Attr> {
        let borrowed = self.borrowed(reference)?;
        let began = self.begin(0);
        let look = self.look_at_records()?;
        let regular = self.regular(&borrowed, &look)?;
        let is_certain = is_settled(&regular) && look.lasts() && is_used(borrowed.entry, reference);
        if !is_certain {
            return None;
        }
        self.end_open(began, (Kind::Stat, Way::Itself), reference, false);
        Some(timed(regular.attr, self.node.head))
    }

    /// Where the file of a description that is lent was found: the directory, and how many bytes
    /// the name has that is written to `name`.
    pub(crate) fn lent_name(&self, reference: OpenRef, name: &mut [u8]) -> Option<(u64, usize)> {
        let borrowed = self.borrowed(reference)?;
        let birth = borrowed.lent.births.get(borrowed.place)?;
        let mut found = Default::default();
        let (directory, found) = birth.read(&mut found);
        name.get_mut(..found.len())?.copy_from_slice(found);
        Some((directory.0, found.len()))
    }

    /// Is the file, which is read by a description that is lent, open for writing nowhere? False
    /// where only the daemon knows.
    #[must_use]
    pub fn is_lent_and_unwritten(&self, reference: OpenRef) -> bool {
        self.borrowed(reference).zip(self.look_at_records()).is_some_and(|(borrowed, look)| {
            // Those of other nodes' processes are counted there.
            self.tells_everything()
                && look.head.writers.load(Acquire) == 0
                && is_served_since(look.head, look.seen.starts)
                && is_used(borrowed.entry, reference)
        })
    }

    /// Moves the offset of a description that is lent.
    #[must_use]
    pub fn seek_lent(
        &self,
        reference: OpenRef,
        distance: i64,
        whence: usize,
    ) -> Option<Result<u64, Errno>> {
        let borrowed = self.borrowed(reference)?;
        let position = offset::hold(OpenFile { reference, entry: borrowed.entry }).ok()?;
        let from = match whence {
            SEEK_SET => 0,
            SEEK_CUR => position.get(),
            SEEK_END => self.stat_lent(reference)?.size_bytes,
            _ => return None,
        };
        Some(offset::sum(from, distance).inspect(|to| position.set(*to)))
    }

    /// Status flags of a description that is lent.
    #[must_use]
    pub fn flags_lent(&self, reference: OpenRef) -> Option<u32> {
        self.borrowed(reference).map(|borrowed| borrowed.entry.flags.load(Relaxed))
    }

    /// Has the daemon make a description of its own of one that is lent.
    ///
    /// # Errors
    /// EBADF when it was closed; EIO.
    #[cold]
    pub(crate) fn settle_lent(&self, reference: OpenRef, entry: &OpenEntry) -> Result<(), Errno> {
        for _ in 0..TRIES {
            for _ in 0..SPINS {
                if entry.state.load(Acquire) != OPEN_LENT_BUSY {
                    break;
                }
                arch::pause();
            }
            let state = entry.state.load(Acquire);
            if entry.generation.load(Acquire) != reference.generation || state == OPEN_LENT {
                return Err(Errno::EBADF);
            }
            if !is_lent(state) {
                return Ok(());
            }
            if let Some(lent) = self.lending.lent
                && let Some(place) = lent.place_of(reference.index)
            {
                lent.wanted.fetch_or(1 << place, AcqRel);
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

/// Is the entry lent, and does a file's open description stand there under this reference?
fn is_used(entry: &OpenEntry, reference: OpenRef) -> bool {
    entry.state.load(Acquire) == OPEN_LENT_USED
        && entry.generation.load(Acquire) == reference.generation
}

/// Copies what lies there, from byte `first` on.
///
/// # Safety
/// As [`Client::read_lent`].
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

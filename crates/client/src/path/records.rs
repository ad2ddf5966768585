//! A look into the daemon's records.
//!
//! An instance's metadata may lie in a file that its processes can map. Then paths and directories
//! are looked up there without a request ([`mayfly_records`]). The answer is the committed state of
//! that moment, so it has every change whose call has returned. The daemon is asked for what is not
//! certain.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use mayfly_records::{
    Changed, Found, Linked, Origins, Question, Source, Unsure, apart, directory, is_still, list,
    look,
    page::{PAGE_BYTES, PLACES_AT},
    path_of, read_link, version,
    way::Way,
};
use mayfly_sys::{Errno, arch::cycles, followed::Followed, mapped::Shown};
use mayfly_transport_shm::layout::{DAEMON_ASLEEP, DAEMON_AWAKE, NodeHead};
use mayfly_types::{Attr, FileId, FileKind, Times, limits::NAME_BYTES_MAX};
use mayfly_wire::{WALK_FOLLOW, Walk, Wire, Writer, listing};

use super::{ways::Ways, whole::Whole};

/// So much of the records is mapped at first, bytes: addresses, not memory. A million files take
/// less, unless they have content.
const SPAN_BYTES: usize = 256 << 20;

/// The records, if they can be read.
#[derive(Debug, Default)]
pub(crate) struct Records {
    followed: Option<Followed>,
    ways: Ways,
    whole: Whole,
}

/// As much of the file as is certainly there.
pub(crate) struct View<'a> {
    shown: Shown,
    bytes: usize,
    ways: &'a Ways,
    whole: &'a Whole,
    has_all: bool,
    origins: Origins,
}

impl View<'_> {
    /// Where so many bytes at `at` stand. Somebody may be changing them.
    pub(crate) fn range(&self, at: usize, bytes: usize) -> Option<*const u8> {
        let fits = at <= self.bytes && bytes <= self.bytes - at;
        if fits { self.shown.range(at, bytes) } else { None }
    }
}

impl Source for View<'_> {
    #[inline]
    fn word(&self, at: usize) -> Option<u64> {
        // SAFETY: the file reaches beyond that place.
        if at < self.bytes { unsafe { self.shown.word(at) } } else { None }
    }

    #[inline]
    fn chunk(&self, at: usize) -> Option<[u8; 8]> {
        let fits = at <= self.bytes && 8 <= self.bytes - at;
        // SAFETY: the file reaches to the end of that range.
        if fits { unsafe { self.shown.chunk(at) } } else { None }
    }

    #[inline]
    fn prefetch(&self, at: usize) {
        self.shown.prefetch(at);
    }

    #[inline]
    fn has_all(&self) -> bool {
        self.has_all
    }

    #[inline]
    fn origins(&self) -> Origins {
        self.origins
    }

    fn now(&self) -> u64 {
        cycles()
    }

    #[inline]
    fn recall(&self, way: Way<'_>) -> Option<FileId> {
        self.ways.recall(way, cycles)
    }

    fn remember(&self, way: Way<'_>, directory: FileId, until: u64) {
        self.ways.remember(way, directory, until);
    }

    fn recall_whole(&self, directory: FileId, version: u64) -> bool {
        self.whole.recall(directory, version, cycles)
    }

    fn remember_whole(&self, directory: FileId, version: u64, until: u64) {
        self.whole.remember(directory, version, until);
    }
}

impl Records {
    /// Those in the file behind `descriptor`.
    pub(crate) fn of(descriptor: i32) -> Records {
        Records { followed: Followed::new(descriptor, SPAN_BYTES).ok(), ..Records::default() }
    }

    /// The records, as they are at each look.
    pub(crate) fn view(&self, head: &NodeHead) -> Option<View<'_>> {
        let followed = self.followed.as_ref()?;
        let mut shown = followed.shown();
        // SAFETY: the file has a header from when it gets its name.
        let places = unsafe { shown.word(PLACES_AT) }?;
        // Pages before the end that the header names are allocated, and a file of records does not
        // become shorter.
        let bytes = (places >> 32) as usize * PAGE_BYTES;
        if bytes > shown.span() {
            shown = followed.reach(bytes);
        }
        let has_all = head.nodes.load(Relaxed) == 1 && head.shards.load(Relaxed) == 1;
        let origins = match (head.tier.origins.load(Relaxed), head.tier.for_ever.load(Relaxed)) {
            (0, _) => Origins::None,
            (_, 0) => Origins::Until,
            _ => Origins::ForEver,
        };
        Some(View { shown, bytes, ways: &self.ways, whole: &self.whole, has_all, origins })
    }

    /// The file that a path names, if that is certain. Where only what this process makes is
    /// submitted, as `makes_alone` says, it is certain of what is there, and no directory.
    /// Otherwise it is what `beside` finds ([`look_apart`]).
    pub(super) fn look(
        &self,
        head: &NodeHead,
        walk: &Walk<'_>,
        makes_alone: impl FnOnce() -> bool,
        beside: impl FnOnce(&View<'_>, Question<'_>) -> Result<Found, Unsure>,
    ) -> Option<Result<Attr, Errno>> {
        let follow = walk.flags & WALK_FOLLOW != 0;
        let question = Question { start: walk.start, path: walk.path, follow };
        let found = if !is_submitted(head) {
            self.committed(head, |view| look(view, question))?
        } else if makes_alone() {
            let found = self.committed(head, |view| look(view, question))?;
            match found {
                Found::File(attr) if attr.kind != FileKind::Directory => found,
                _ => self.committed(head, |view| beside(view, question))?,
            }
        } else {
            self.committed(head, |view| beside(view, question))?
        };
        Some(match found {
            Found::File(attr) => Ok(timed(attr, head)),
            Found::Nothing => Err(Errno::ENOENT),
        })
    }

    /// Where the symbolic link leads that a path names, if that is certain.
    pub(super) fn read_link(
        &self,
        head: &NodeHead,
        walk: &Walk<'_>,
        waits: Waits<'_>,
        to: &mut [u8],
    ) -> Option<Linked> {
        let follow = walk.flags & WALK_FOLLOW != 0;
        let question = Question { start: walk.start, path: walk.path, follow };
        if !is_submitted(head) {
            return self.committed(head, |view| read_link(view, question, to));
        }
        self.committed(head, |view| {
            let version = version(view).ok_or(Unsure)?;
            let found = read_link(view, question, to)?;
            apart(view, (Changed::Name(question), version), waits)?;
            if is_still(view, version) { Ok(found) } else { Err(Unsure) }
        })
    }

    /// Attributes of a directory, if they are certain.
    pub(super) fn directory(&self, head: &NodeHead, id: FileId) -> Option<Attr> {
        self.certain(head, |view| directory(view, id)).map(|attr| timed(attr, head))
    }

    /// The path of a directory, if it is certain: [`mayfly_records::path_of`].
    pub(super) fn path_of(
        &self,
        head: &NodeHead,
        directory: FileId,
        to: &mut [u8; NAME_BYTES_MAX],
    ) -> Option<usize> {
        self.committed(head, |view| path_of(view, directory, to))
    }

    /// Whether a path certainly names something that has no origin.
    pub(super) fn is_inside(&self, head: &NodeHead, walk: &Walk<'_>) -> bool {
        let follow = walk.flags & WALK_FOLLOW != 0;
        let question = Question { start: walk.start, path: walk.path, follow };
        let found = self.certain(head, |view| {
            look(&View { shown: view.shown, origins: Origins::Never, ..*view }, question)
        });
        matches!(found, Some(Found::File(_)))
    }

    /// The result of a look, unless something submitted or the end of the daemon makes it
    /// uncertain.
    fn certain<R>(
        &self,
        head: &NodeHead,
        look: impl FnOnce(&View<'_>) -> Result<R, Unsure>,
    ) -> Option<R> {
        if is_submitted(head) { None } else { self.committed(head, look) }
    }

    /// The result of a look at what is committed, unless the end of the daemon makes it uncertain.
    fn committed<R>(
        &self,
        head: &NodeHead,
        look: impl FnOnce(&View<'_>) -> Result<R, Unsure>,
    ) -> Option<R> {
        let view = self.view(head)?;
        let starts = head.daemon_starts.load(Acquire);
        look(&view).ok().filter(|_| is_served_since(head, starts) && is_complete(head))
    }

    /// Packs entries of a directory behind the position `cookie`, as many as fit; how many bytes,
    /// none at the end. `None` when that is not certain.
    pub(super) fn list(
        &self,
        head: &NodeHead,
        directory: FileId,
        cookie: u64,
        packed: &mut [u8],
    ) -> Option<usize> {
        let view = self.view(head)?;
        if is_submitted(head) {
            return None;
        }
        let starts = head.daemon_starts.load(Acquire);
        let mut used = 0;
        let whole = list(&view, directory, cookie, |entry| {
            let mut to = Writer::new(packed.get_mut(used..).unwrap_or_default());
            let entry = listing::Entry {
                id: entry.id,
                kind: entry.kind,
                next_cookie: entry.cookie,
                name: entry.name,
            };
            let fits = entry.encode(&mut to).is_ok();
            used += if fits { to.used() } else { 0 };
            fits
        });
        // Nothing is the end, so there must be something where there may be more.
        let certain = whole.is_ok_and(|whole| whole || used > 0);
        (certain && is_served_since(head, starts) && is_complete(head)).then_some(used)
    }

    /// Gives the mapping back.
    ///
    /// # Safety
    /// Nobody uses the client any more.
    pub(crate) unsafe fn abandon(&self) {
        if let Some(followed) = &self.followed {
            // SAFETY: passed on to the caller.
            unsafe { followed.end() };
        }
    }
}

/// Whether something waits about a path from a directory ([`apart`]).
pub(crate) type Waits<'w> = &'w mut dyn FnMut(FileId, Option<&[u8]>) -> bool;

/// What a path names, if nothing waits about it. What waits about one name of a file may change
/// what is seen by another one.
pub(super) fn look_apart(
    view: &View<'_>,
    question: Question<'_>,
    waits: Waits<'_>,
) -> Result<Found, Unsure> {
    let version = version(view).ok_or(Unsure)?;
    let found = look(view, question)?;
    let subject = match found {
        Found::File(attr) if attr.kind == FileKind::Directory => Changed::Directory(attr.id),
        Found::File(attr) if attr.links != 1 => return Err(Unsure),
        Found::File(_) | Found::Nothing => Changed::Name(question),
    };
    apart(view, (subject, version), waits)?;
    if is_still(view, version) { Ok(found) } else { Err(Unsure) }
}

/// Was anything submitted that is not in the records? If not, everything that was submitted before
/// this look is there.
pub(crate) fn is_submitted(head: &NodeHead) -> bool {
    head.submitted_rings() != 0
}

/// Whether a daemon serves, and no other one since `starts` were counted: it takes the version back
/// of what its predecessor had begun. After the end of an instance its calls fail, whatever was in
/// it.
pub(crate) fn is_served_since(head: &NodeHead, starts: u32) -> bool {
    head.daemon_starts.load(Acquire) == starts
        && matches!(head.daemon_state.load(Acquire), DAEMON_AWAKE | DAEMON_ASLEEP)
}

/// Whether no transaction over several shards is under way here, of which the records may show a
/// part. To be asked after they were read: what was read before may be what one was about to
/// change, and then nothing of it is changed yet, or everything.
pub(crate) fn is_complete(head: &NodeHead) -> bool {
    head.transactions.load(Acquire) == 0
}

/// Without times a file has that of its creation.
pub(crate) fn timed(attr: Attr, head: &NodeHead) -> Attr {
    if head.times.load(Relaxed) == Times::None as u32 {
        Attr { atime: attr.btime, mtime: attr.btime, ctime: attr.btime, ..attr }
    } else {
        attr
    }
}

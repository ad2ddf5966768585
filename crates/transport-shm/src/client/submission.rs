//! Submitting in the session's ring ([`crate::submission_ring`]).

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use mayfly_sys::file::{
    O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_LARGEFILE, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK,
    O_RDWR, O_TRUNC, O_WRONLY,
};
use mayfly_sys::scratch::Scratch;
use mayfly_transport::{Certain, CopyContent, Looked};
use mayfly_types::{Attr, Errno, FileId, OpenRef, Timestamp};
use mayfly_wire::{Link, MakeDirectory, Open, Rename, SetAttr, Symlink, Target, Unlink, Walk};

use super::ShmTransport;
use crate::layout::{DAEMON_AWAKE, OPEN_PROMISED};
use crate::submission_ring::{
    Addition, Changed, Changes, Create, Files, Move, MoveKind, RECORDS, RINGS, Removal, Submission,
    SubmissionRing, Submitting, name_table::NameTables, ring_of,
};

/// Flags that say nothing more about a file that is new and empty than a description knows.
const PLAIN: u32 = O_ACCMODE
    | O_CREAT
    | O_EXCL
    | O_TRUNC
    | O_APPEND
    | O_NONBLOCK
    | O_LARGEFILE
    | O_NOCTTY
    | O_NOFOLLOW
    | O_CLOEXEC;
/// Of renameat2: not in place of something else.
const RENAME_NOREPLACE: u32 = 1;
/// When so many records wait, a daemon that sleeps is woken. It is not woken for fewer: whoever
/// wants to know of them asks it.
const WAKE_AT: u32 = RECORDS as u32 / 2;

/// The name tables, and the number of a delegation.
type Given<'a> = (&'a NameTables, u32);

/// What the records and the node's table tell of files that are there.
struct There<'a, 'c> {
    transport: &'a ShmTransport,
    copy: &'a mut CopyContent<'c>,
}

impl Files for There<'_, '_> {
    fn copy(&mut self, directory: FileId, path: &[u8], to: &mut [u8]) -> Option<(FileId, usize)> {
        (self.copy)(directory, path, to)
    }

    fn promised(&self, open: OpenRef) -> Option<FileId> {
        self.transport.promised_file(open)
    }
}

/// So often a process finds out what waits, while nothing more is submitted: a request takes less
/// than ten of these looks, and nothing waits after it.
const BESIDE_MAX: u32 = 8;

/// The rings that have a bit here.
fn members(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let ring = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (ring < RINGS).then_some(ring)
    })
}

/// Sets a ring's bit in one of the head's words.
fn show(word: &AtomicU64, bit: u64) {
    if word.load(SeqCst) & bit == 0 {
        word.fetch_or(bit, SeqCst);
    }
}

/// What a tick of the kernel's clock takes at most, where times of files are told by that.
const FRESH_NS: u128 = 4_000_000;

/// So often something is submitted that was not since the delegation got another number meanwhile.
const SUBMIT_TRIES: u32 = 2;

impl ShmTransport {
    pub(super) fn ring(&self) -> (usize, &'static SubmissionRing) {
        let ring = ring_of(self.id);
        (ring, &self.node.submission_rings[ring])
    }

    pub(super) fn submit_create_in_ring(&self, open: &Open<'_>) -> Option<OpenRef> {
        if open.flags & !PLAIN != 0 || open.flags & O_CREAT == 0 {
            return None;
        }
        self.submit_record(&open.walk, |submissions, delegation, path| {
            let moment = self.moments.now();
            let Open { flags, mode, uid, gid, .. } = *open;
            let create = Create { path, flags, mode, uid, gid, moment };
            submissions.submit_create(&self.node.name_tables, delegation, &create)
        })
    }

    pub(super) fn submit_replacement_in_ring(
        &self,
        open: &Open<'_>,
        copy: &mut CopyContent<'_>,
    ) -> Option<(OpenRef, FileId)> {
        let is_new = open.flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
        let writes = matches!(open.flags & O_ACCMODE, O_WRONLY | O_RDWR);
        if open.flags & !PLAIN != 0 || is_new || !writes {
            return None;
        }
        self.submit_content_of(&open.walk, open.flags, copy, |submissions, given, create, files| {
            submissions.submit_replacement(given, create, files)
        })
    }

    pub(super) fn submit_length_in_ring(
        &self,
        walk: &Walk<'_>,
        bytes: usize,
        copy: &mut CopyContent<'_>,
    ) -> bool {
        let submitted =
            self.submit_content_of(walk, O_WRONLY, copy, |submissions, given, create, files| {
                submissions.submit_length(given, create, bytes, files).then_some(())
            });
        self.is_whole(submitted)
    }

    /// Has `step` submit something that changes bytes of a file that is there.
    fn submit_content_of<R>(
        &self,
        walk: &Walk<'_>,
        flags: u32,
        copy: &mut CopyContent<'_>,
        step: impl Fn(&SubmissionRing, Given<'_>, &Create<'_>, &mut There<'_, '_>) -> Option<R>,
    ) -> Option<R> {
        self.submit_record(walk, |submissions, delegation, path| {
            let moment = self.moments.now();
            let create = Create { path, flags, mode: 0, uid: 0, gid: 0, moment };
            let given = (&self.node.name_tables, delegation);
            self.note_change(submissions, 1);
            let files = &mut There { transport: self, copy: &mut *copy };
            let submitted = step(submissions, given, &create, files)?;
            // Before the call returns: who reads earlier may read what was there.
            show(&self.node.head.rings.replacing, 1 << ring_of(self.id));
            Some(submitted)
        })
    }

    pub(super) fn cut_in_ring(&self, open: OpenRef, bytes: usize) -> bool {
        let (_, submissions) = self.ring();
        if self.node.is_lost() || submissions.session.load(Relaxed) != self.id {
            return false;
        }
        let cut = || {
            let addition = submissions.addition(open).filter(Addition::may_write)?;
            addition.cut(bytes, self.moments.now().cycles).then_some(())
        };
        self.alone(cut).is_some()
    }

    pub(super) fn read_in_ring(&self, open: OpenRef, take: &mut dyn FnMut(u32, &[u8])) -> bool {
        let (_, submissions) = self.ring();
        if self.node.is_lost() || submissions.session.load(Relaxed) != self.id {
            return false;
        }
        let read =
            || submissions.read_submitted(open, |flags, content: &[u8]| take(flags, content));
        self.alone(read).is_some()
    }

    pub(super) fn replaces_in_rings(&self, file: FileId) -> bool {
        members(self.node.head.replacing_rings())
            .any(|ring| self.node.submission_rings[ring].replaces(file))
    }

    pub(super) fn look_at_replaced_in_ring(
        &self,
        open: OpenRef,
        now: Timestamp,
        attr_of: &mut dyn FnMut(FileId, &[u8]) -> Option<Attr>,
    ) -> Option<(Attr, Option<(usize, Timestamp)>)> {
        let (_, submissions) = self.ring();
        if self.node.is_lost() || submissions.session.load(Relaxed) != self.id {
            return None;
        }
        let look = || submissions.look_at_replaced(open, now, |at, path: &[u8]| attr_of(at, path));
        self.alone(look)
    }

    pub(super) fn submit_removal_in_ring(&self, unlink: &Unlink<'_>) -> bool {
        let submitted = self.submit_record(&unlink.walk, |submissions, delegation, path| {
            let moment = self.moments.now();
            let removal = Removal { path, directory: unlink.directory, moment };
            self.note_change(submissions, 1);
            submissions.submit_removal(&self.node.name_tables, delegation, &removal).then_some(())
        });
        self.is_whole(submitted)
    }

    pub(super) fn submit_directory_in_ring(&self, make: &MakeDirectory<'_>) -> bool {
        let submitted = self.submit_record(&make.walk, |submissions, delegation, path| {
            let moment = self.moments.now();
            let MakeDirectory { mode, uid, gid, .. } = *make;
            let create = Create { path, flags: 0, mode, uid, gid, moment };
            submissions.submit_directory(&self.node.name_tables, delegation, &create).then_some(())
        });
        self.is_whole(submitted)
    }

    pub(super) fn submit_symlink_in_ring(&self, symlink: &Symlink<'_>) -> bool {
        let submitted = self.submit_record(&symlink.at, |submissions, delegation, path| {
            let moment = self.moments.now();
            let Symlink { target, uid, gid, .. } = *symlink;
            let create = Create { path, flags: 0, mode: 0o777, uid, gid, moment };
            let tables = &self.node.name_tables;
            submissions.submit_symlink(tables, delegation, &create, target).then_some(())
        });
        self.is_whole(submitted)
    }

    pub(super) fn submit_changes_in_ring(
        &self,
        set: &SetAttr<'_>,
        known: Option<&Walk<'_>>,
        certain: &mut dyn FnMut(FileId, &[u8]) -> Certain,
        time_object: &mut dyn FnMut(OpenRef) -> bool,
    ) -> bool {
        let SetAttr { which, mode, uid, gid, atime, mtime, .. } = *set;
        let mut step = |submissions: &SubmissionRing, delegation, changed: Changed<'_>| {
            let moment = self.moments.now();
            let changes = Changes { which, mode, uid, gid, atime, mtime, moment };
            let given = (&self.node.name_tables, delegation);
            self.note_change(submissions, 1);
            let certain = |at, path: &[u8]| certain(at, path);
            submissions.submit_changes_with(given, changed, &changes, (certain, &mut *time_object))
        };
        let submitted = match set.target {
            Target::Open(_) if let Some(walk) = known => self
                .submit_record(walk, |submissions, delegation, path| {
                    step(submissions, delegation, Changed::Known(path))
                }),
            Target::Path(walk) => self.submit_record(&walk, |submissions, delegation, path| {
                step(submissions, delegation, Changed::Name(path))
            }),
            Target::Open(open) => self.submit_in_own(|submissions, delegation| {
                step(submissions, delegation, Changed::Open(open))
            }),
            Target::Directory(_) => None,
        };
        match submitted {
            // More may follow, or the close.
            Some(Submission::Joined) => true,
            submitted => self.is_whole(submitted.map(|_| ())),
        }
    }

    pub(super) fn submit_move_in_ring(
        &self,
        rename: &Rename<'_>,
        is_certain: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> bool {
        let Rename { from, to, flags } = *rename;
        if flags & !RENAME_NOREPLACE != 0 {
            return false;
        }
        let new = flags & RENAME_NOREPLACE != 0;
        let how = if new { MoveKind::New } else { MoveKind::Replace };
        self.submit_two_names((from, to), how, is_certain)
    }

    pub(super) fn submit_link_in_ring(
        &self,
        link: &Link<'_>,
        is_certain: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> bool {
        // Of a description the name is not known.
        let Target::Path(from) = link.from else { return false };
        self.submit_two_names((from, link.to), MoveKind::Link, is_certain)
    }

    fn submit_two_names(
        &self,
        (source, target): (Walk<'_>, Walk<'_>),
        how: MoveKind,
        is_certain: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> bool {
        let submitted = self.submit_record(&source, |submissions, delegation, from| {
            let given = submissions.delegation_for(self.id, target.start.0, target.path);
            let (_, to) = given.filter(|(given, _)| *given == delegation)?;
            let moved = Move { from, to, how, moment: self.moments.now() };
            let given = (&self.node.name_tables, delegation);
            self.note_change(submissions, 2);
            submissions
                .submit_move(given, &moved, |at, path: &[u8]| is_certain(at, path))
                .then_some(())
        });
        self.is_whole(submitted)
    }

    /// Has `step` submit something under the delegation that the session has, wherever that is.
    fn submit_in_own<R>(
        &self,
        mut step: impl FnMut(&SubmissionRing, u32) -> Option<R>,
    ) -> Option<R> {
        let (ring, submissions) = self.ring();
        let delegation = submissions.delegation.load(Acquire);
        let is_own = delegation != 0 && submissions.session.load(Relaxed) == self.id;
        if self.node.is_lost() || !is_own {
            return None;
        }
        if submissions.is_full() && !self.awaits_room(submissions) {
            return None;
        }
        let submitted = self.alone(|| step(submissions, delegation))?;
        self.show_submitted(ring, submissions);
        Some(submitted)
    }

    /// Whether something was submitted to which nothing will be added: it may be executed.
    fn is_whole(&self, submitted: Option<()>) -> bool {
        if submitted.is_some() {
            show(&self.node.head.rings.ripe, 1 << ring_of(self.id));
        }
        submitted.is_some()
    }

    /// Has `step` submit something about what the path names, under the delegation that the session
    /// has for its directory or one above it, if it has one.
    fn submit_record<R>(
        &self,
        walk: &Walk<'_>,
        mut step: impl FnMut(&SubmissionRing, u32, &[u8]) -> Option<R>,
    ) -> Option<R> {
        let (ring, submissions) = self.ring();
        if self.node.is_lost() || submissions.delegation.load(Relaxed) == 0 {
            return None;
        }
        for _ in 0..SUBMIT_TRIES {
            let (delegation, path) =
                submissions.delegation_for(self.id, walk.start.0, walk.path)?;
            if !submissions.is_believed(|| self.moments.now().cycles) {
                return None;
            }
            if submissions.is_full() && !self.awaits_room(submissions) {
                return None;
            }
            if let Some(submitted) = self.alone(|| step(submissions, delegation, path)) {
                self.show_submitted(ring, submissions);
                return Some(submitted);
            }
            if submissions.delegation.load(Relaxed) == delegation {
                return None;
            }
        }
        None
    }

    /// Waits for a place in a full ring that the daemon is emptying on another processor. To ask
    /// would be to wait for all that is submitted; and whoever sleeps may be woken on the daemon's
    /// processor, where one of the two waits for the other from then on. False when there is none.
    #[cold]
    fn awaits_room(&self, submissions: &SubmissionRing) -> bool {
        let is_awake = || self.node.head.daemon_state.load(Relaxed) == DAEMON_AWAKE;
        let done = || !submissions.is_full() || !is_awake();
        self.spins_until(&self.spin_for_place, self.moments.now(), done) && !submissions.is_full()
    }

    /// Does `step` if no other thread is at the ring.
    fn alone<R>(&self, step: impl FnOnce() -> Option<R>) -> Option<R> {
        if self.submitting.swap(true, Acquire) {
            return None;
        }
        let done = step();
        self.submitting.store(false, Release);
        done
    }

    /// Whoever looks finds that there is something, and the daemon does in time.
    fn show_submitted(&self, ring: usize, submissions: &SubmissionRing) {
        let bit = 1 << ring;
        show(&self.node.head.submitted, bit);
        if submissions.waiting() == WAKE_AT {
            show(&self.node.head.rings.ripe, bit);
            self.node.wake_daemon();
        }
    }

    pub(super) fn withdraw_from_ring(&self, open: OpenRef) -> bool {
        let (ring, submissions) = self.ring();
        let withdrawn = submissions.session.load(Relaxed) == self.id && submissions.withdraw(open);
        if withdrawn {
            show(&self.node.head.rings.ripe, 1 << ring);
        }
        withdrawn
    }

    /// Whether all that waits in the rings is what this process makes.
    pub(super) fn has_additions_alone(&self) -> bool {
        let (ring, submissions) = self.ring();
        self.node.head.submitted_rings() & !(1 << ring) == 0
            && submissions.session.load(Relaxed) == self.id
            && submissions.has_executed(self.last_change.load(Acquire))
    }

    /// What is there may change by so many records that are about to be published.
    fn note_change(&self, submissions: &SubmissionRing, records: u32) {
        self.last_change.store(submissions.count().wrapping_add(records), Release);
    }

    /// The ring, with the delegation that has this path and what is behind its directory, while
    /// names of others that lead there are believed.
    fn delegated<'w>(&self, walk: &'w Walk<'_>) -> Option<(&SubmissionRing, u32, &'w [u8])> {
        let (_, submissions) = self.ring();
        if self.node.is_lost() || submissions.delegation.load(Relaxed) == 0 {
            return None;
        }
        let (delegation, path) = submissions.delegation_for(self.id, walk.start.0, walk.path)?;
        if !submissions.is_believed(|| self.moments.now().cycles) {
            return None;
        }
        Some((submissions, delegation, path))
    }

    pub(super) fn is_there_in_table(&self, walk: &Walk<'_>) -> Option<bool> {
        let (submissions, delegation, path) = self.delegated(walk)?;
        submissions.is_there((&self.node.name_tables, delegation), path)
    }

    pub(super) fn is_quicker_beside_rings(&self) -> bool {
        let submitted = members(self.node.head.submitted_rings()).fold(0, |sum: u64, ring| {
            sum.wrapping_add(self.node.submission_rings[ring].published.load(Relaxed))
        });
        if self.beside_at.swap(submitted, Relaxed) != submitted {
            self.besides.store(0, Relaxed);
        }
        self.besides.fetch_add(1, Relaxed) < BESIDE_MAX
    }

    pub(super) fn waits_in_rings(&self, directory: FileId, path: Option<&[u8]>) -> bool {
        let leaves_alone = |submissions: &SubmissionRing| {
            path.is_some_and(|path| submissions.leaves_alone(&self.node.name_tables, path))
        };
        members(self.node.head.submitted_rings()).any(|ring| {
            let submissions = &self.node.submission_rings[ring];
            submissions.directory.load(Relaxed) == directory.0 && !leaves_alone(submissions)
        })
    }

    pub(super) fn removes_directories_in_rings(&self) -> bool {
        members(self.node.head.submitted_rings())
            .any(|ring| self.node.submission_rings[ring].removes_directories())
    }

    pub(super) fn look_in_ring(
        &self,
        open: OpenRef,
        now: Timestamp,
        gives_group: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> Option<Looked> {
        let (_, submissions) = self.ring();
        if self.node.is_lost() || submissions.session.load(Relaxed) != self.id {
            return None;
        }
        let look = || submissions.look(open, now, |at, path: &[u8]| gives_group(at, path));
        self.alone(look).map(|Submitting { mode, uid, gid, bytes }| (mode, uid, gid, bytes))
    }

    pub(super) fn look_at_name_in_ring(
        &self,
        walk: &Walk<'_>,
        now: &mut dyn FnMut() -> Timestamp,
        gives_group: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> Option<(FileId, Timestamp, Looked)> {
        let (submissions, delegation, path) = self.delegated(walk)?;
        let file_of = |open| self.promised_file(open);
        let gives_group = |at, path: &[u8]| gives_group(at, path);
        let given = (&self.node.name_tables, delegation);
        let now = |since| self.is_fresh(since).then(now);
        let look = || submissions.look_at_name(given, path, now, (file_of, gives_group));
        let (file, now, Submitting { mode, uid, gid, bytes }) = self.alone(look)?;
        Some((file, now, (mode, uid, gid, bytes)))
    }

    /// Whether it is so short a time since the processor's counter said that, that the kernel's own
    /// clock might not have told the two apart.
    fn is_fresh(&self, since: u64) -> bool {
        let rate = u128::from(self.node.head.cycles_ns.load(Relaxed));
        let cycles = self.moments.now().cycles.saturating_sub(since);
        rate != 0 && (u128::from(cycles) * rate) >> 32 < FRESH_NS
    }

    /// The file that is promised with a description.
    fn promised_file(&self, open: OpenRef) -> Option<FileId> {
        let entry = self.node.opens.get(open.index as usize)?;
        let is_it = entry.state.load(Acquire) == OPEN_PROMISED
            && entry.generation.load(Acquire) == open.generation;
        is_it.then(|| FileId(entry.id.load(Relaxed)))
    }

    pub(super) fn add_in_ring(
        &self,
        open: OpenRef,
        at: u64,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> Option<Result<u64, Errno>> {
        let (_, submissions) = self.ring();
        if self.node.is_lost() || submissions.session.load(Relaxed) != self.id {
            return None;
        }
        self.alone(|| {
            let addition = submissions.addition(open).filter(Addition::may_write)?;
            let start = addition.start() as u64;
            if addition.flags() & O_APPEND == 0 && at != start {
                return self.put_in_ring(addition, at, bytes, fill);
            }
            let room = addition.room(bytes)?;
            // SAFETY: the place's room, of so many bytes. Nobody else writes there as long as this
            // thread is alone at the ring, since only a process submits in its ring; the daemon
            // reads what was added before.
            let room = unsafe { core::slice::from_raw_parts_mut(room, bytes) };
            let count = match fill(room) {
                Ok(count) => count.min(bytes),
                Err(errno) => return Some(Err(errno)),
            };
            let added = addition.add(count, self.moments.now().cycles);
            added.then_some(Ok(start + count as u64))
        })
    }

    /// Writes elsewhere than at the end. The bytes are gathered first: some may not be there, and
    /// what they are written to counts if nothing else does.
    fn put_in_ring(
        &self,
        addition: Addition<'_>,
        at: u64,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> Option<Result<u64, Errno>> {
        let at = usize::try_from(at).ok().filter(|at| addition.may_put(*at, bytes))?;
        let mut scratch = Scratch::take(bytes).ok()?;
        let room = scratch.as_mut_slice().get_mut(..bytes)?;
        let count = match fill(room) {
            Ok(count) => count.min(bytes),
            Err(errno) => return Some(Err(errno)),
        };
        let put = addition.put(at, room.get(..count)?, self.moments.now().cycles);
        put.then_some(Ok((at + count) as u64))
    }

    pub(super) fn make_object_in_ring(
        &self,
        open: OpenRef,
        range: (u64, u64),
        make: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        let (_, submissions) = self.ring();
        if self.node.is_lost() || submissions.session.load(Relaxed) != self.id {
            return false;
        }
        let made = self.alone(|| {
            let new = submissions.begin_object(open, range)?;
            let made = make(submissions.content_before(new));
            (made && submissions.finish_object(new)).then_some(())
        });
        made.is_some()
    }
}

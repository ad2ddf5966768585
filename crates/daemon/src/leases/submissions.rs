//! Asynchronous operations ([`mayfly_transport_shm::submission_ring`]): what becomes of them.
//!
//! The shard executes asynchronous operations before anything else that it does for somebody.
//! Processes that look by themselves see them only after their commit. Who may submit is
//! `delegation.rs`'s subject.

use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use mayfly_meta::key;
use mayfly_sys::arch::cycles;
use mayfly_transport_shm::{
    layout::count,
    submission_ring::{
        RECORDS, Record, SubmissionRing, Submitted,
        name_table::{NameState, Print},
        split,
    },
};
use mayfly_types::{Errno, FileId, FileKind};

use crate::{
    fault::Outcome,
    leases::state::{
        cycles::Present,
        submissions::{Ring, members, place_of},
    },
    leases::{
        submitted_contents::NewContent,
        submitted_files::{NewFile, owner_in},
    },
    log,
    namespace::state::{
        dentry::Wanted,
        walk::{Last, Place},
    },
    shard::Shard,
};

/// To look at the clock takes less, in cycles of the counter: some 50 µs.
const PRESENT_CYCLES: u64 = 100_000;
const PRESENT_TRIES: u32 = 4;
/// Nothing is published after a delegation was taken back, and that happens once while a ring is
/// executed.
const TURNS: u32 = 2;
/// So many records of a ring are executed between two commits while nobody asks for anything: a
/// process that has filled the ring goes on with the first of them.
const RIPE_AT_ONCE: u32 = RECORDS as u32 / 4;

/// How much of a ring is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// All of it.
    Last,
    /// All but a last file that is open, since content may come, and not much at once.
    Open,
}

const _: () = assert!(RECORDS <= u128::BITS as usize);

impl Shard {
    pub(super) fn submissions(&self, ring: usize) -> &'static SubmissionRing {
        let node = self.node;
        &node.submission_rings[ring]
    }

    /// Executes what was submitted. A commit must follow.
    pub(crate) fn execute_submitted(&mut self) {
        if self.has_rings() {
            let rings = self.node.head.submitted.load(SeqCst);
            self.execute_rings(rings, Until::Last);
        }
    }

    /// The same while nobody asks for anything: only what need not be put off.
    pub(crate) fn execute_ripe(&mut self) {
        if self.has_rings() {
            let rings = self.node.head.rings.ripe.load(SeqCst);
            self.execute_rings(rings, Until::Open);
        }
    }

    fn execute_rings(&mut self, rings: u64, until: Until) {
        for ring in members(rings) {
            self.execute_until(ring, until);
            if self.leases.delegations.touched & 1 << ring == 0 {
                // There was nothing; whoever submits meanwhile is not overlooked.
                self.show_executed(ring);
            }
        }
        if self.leases.delegations.touched != 0 && self.store.pending_transaction() == 0 {
            // Nothing came of it, so nothing will be committed.
            self.submissions_committed();
        }
    }

    /// The processor on which the last of what was executed was submitted, as a request says it,
    /// and how much was; none when nothing was since the last call.
    pub fn submitted_on(&mut self) -> Option<(u32, u32)> {
        self.leases.delegations.submitted_on.take()
    }

    /// Executes what was submitted in a ring; whether there was anything.
    pub(super) fn execute_ring(&mut self, ring: usize) -> bool {
        self.execute_until(ring, Until::Last)
    }

    fn execute_until(&mut self, ring: usize, until: Until) -> bool {
        let submissions = self.submissions(ring);
        // Before the look at what there is: whoever sets it later has something that is seen.
        self.node.head.rings.ripe.fetch_and(!(1 << ring), SeqCst);
        let Some(mut held) = self.leases.delegations.rings[ring].take() else { return false };
        let mut any = false;
        for turn in 0..TURNS {
            let published = submissions.published.load(SeqCst) as u32;
            if published.wrapping_sub(held.freed) as usize > RECORDS {
                log::error("posted", format_args!("session {} broke its ring", held.session.0));
                any = true;
                self.give_up_ring(submissions, ring, &mut held);
                break;
            }
            // Of a delegation that was taken back nothing may be left.
            let last = match until {
                Until::Open if turn == 0 => self.ripe_until(ring, &held, published),
                _ => published,
            };
            if last != held.executed {
                any = true;
                self.execute_records(ring, &mut held, last);
            }
            if held.directory.is_some_and(|held| self.is_delegated(held, ring)) {
                break;
            }
        }
        held.directory.take_if(|held| !self.is_delegated(*held, ring));
        self.leases.delegations.touched |= u64::from(any) << ring;
        self.leases.delegations.rings[ring] = Some(held);
        any
    }

    /// Up to which record it is time to execute the ring while nobody asks for anything.
    fn ripe_until(&self, ring: usize, held: &Ring, published: u32) -> u32 {
        let waiting = published.wrapping_sub(held.executed);
        if waiting > RIPE_AT_ONCE {
            self.node.head.rings.ripe.fetch_or(1 << ring, SeqCst);
            return held.executed.wrapping_add(RIPE_AT_ONCE);
        }
        let is_open = waiting > 0 && self.submissions(ring).is_last_open(published);
        published.wrapping_sub(u32::from(is_open))
    }

    fn execute_records(&mut self, at: usize, ring: &mut Ring, published: u32) {
        let submissions = self.submissions(at);
        let present = self.look_at_clock();
        // A mount knows what it has submitted itself.
        let acting = self.leases.mount_names.acting.replace(ring.session);
        while ring.executed != published {
            let place = place_of(ring.executed);
            if let Err(fault) = self.execute_record(submissions, place, ring, present) {
                log::error("posted", format_args!("what was posted was not done: {fault:?}"));
            }
            ring.ids[place] = self.promised_id();
            ring.executed = ring.executed.wrapping_add(1);
        }
        let ended = self.end_executing().and_then(|()| self.note_promised(at, ring));
        if let Err(fault) = ended {
            log::error("posted", format_args!("what goes with it was not changed: {fault:?}"));
        }
        self.leases.mount_names.acting = acting;
        self.now = present.now;
        self.namespace.found_file = None;
        // Which records are executed is as true as that transaction.
        submissions.transaction.store(0, Release);
        submissions.stored.store(ring.executed, Release);
        submissions.transaction.store(self.batch_transaction(), Release);
    }

    /// Looks at the processor's counter and the clock. A thread that is kept from its processor
    /// between the two looks again.
    fn look_at_clock(&self) -> Present {
        let mut before = cycles();
        let mut now = self.clock.now();
        for _ in 0..PRESENT_TRIES {
            let after = cycles();
            if after.wrapping_sub(before) < PRESENT_CYCLES {
                break;
            }
            (before, now) = (after, self.clock.now());
        }
        self.leases.delegations.clock.present(before, now)
    }

    /// What such a ring says means nothing.
    fn give_up_ring(&mut self, submissions: &SubmissionRing, at: usize, ring: &mut Ring) {
        submissions.take_back();
        self.undelegate(ring.directory.take(), at);
        let published = submissions.published.load(SeqCst) as u32;
        (ring.executed, ring.freed) = (published, published);
        submissions.stored.store(published, Release);
    }

    fn execute_record(
        &mut self,
        submissions: &SubmissionRing,
        at: usize,
        ring: &mut Ring,
        present: Present,
    ) -> Outcome<()> {
        let record = &submissions.records[at];
        let mut path = path_in(record)?;
        let print = Print::of(&path);
        self.batch.requests += 1;
        let submitted = self.leases.delegations.submitted_on.map_or(0, |(_, submitted)| submitted);
        self.leases.delegations.submitted_on =
            Some((record.processor.load(Relaxed), submitted + 1));
        let inside_bytes = split(&path).0.len();
        let directory = self.execute_in(ring.directory, &path[..inside_bytes]);
        path.drain(..inside_bytes);
        self.now = present.time(record.cycles.load(Relaxed));
        self.namespace.found_file = None;
        let done = directory.and_then(|directory| {
            self.execute_name_record((directory, path), (submissions, at), ring, present)
        });
        // Of one that was not done nothing is known.
        let name_state = *done.as_ref().unwrap_or(&Some(NameState::AskDaemon));
        self.submitted_name(print, at, name_state);
        done.map(drop)
    }

    /// What is executed next is in the directory at the end of this path from one that was
    /// delegated: which one.
    fn execute_in(&mut self, root: Option<FileId>, inside: &[u8]) -> Outcome<FileId> {
        let root = root.ok_or(Errno::EPROTO)?;
        let executing = self.leases.delegations.executing.as_ref();
        let same = executing.filter(|executing| executing.path == inside);
        if let Some(executing) = same {
            return Ok(executing.directory);
        }
        let directory = self.resolve(root, inside)?;
        self.end_executing()?;
        self.leases.delegations.begin_executing(root, inside, directory);
        Ok(directory)
    }

    /// Where a path of names of directories leads.
    pub(super) fn resolve(&mut self, root: FileId, path: &[u8]) -> Outcome<FileId> {
        path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).try_fold(
            root,
            |at, name| match self.lookup_at((at, key::cookie(at, name), name), Wanted::Name)? {
                Some((id, FileKind::Directory)) => Ok(id),
                Some(_) => Err(Errno::ENOTDIR.into()),
                None => Err(Errno::ENOENT.into()),
            },
        )
    }

    /// Executes a record about a name, which stands so afterwards.
    fn execute_name_record(
        &mut self,
        (directory, name): (FileId, Vec<u8>),
        (submissions, at): (&SubmissionRing, usize),
        ring: &mut Ring,
        present: Present,
    ) -> Outcome<Option<NameState>> {
        let record = &submissions.records[at];
        let cookie = key::cookie(directory, &name);
        let found = self.lookup_at((directory, cookie, &name), Wanted::Name)?;
        let place = Place { directory, name, cookie, last: Last::Name, slash: false, found };
        let asked = record.execute();
        let kind = match asked {
            Submitted::File { .. } | Submitted::Symlink { .. } => 0,
            Submitted::Directory => 1,
            Submitted::Removal { directory } => 2 + usize::from(directory),
            Submitted::Changes { .. } | Submitted::Replacement { .. } => 4,
            Submitted::Move => 5,
            Submitted::Link => 6,
            Submitted::MoveTarget => return Ok(state_of(found)),
        };
        count(&self.node.done[self.own() as usize].records[kind], 1);
        match asked {
            Submitted::Removal { directory: false } => self.remove_file(place).map(|_| None),
            Submitted::Removal { directory: true } => {
                self.remove_new_directory(&place).map(|()| None)
            }
            Submitted::Move => {
                let to = second_path((submissions, at))?;
                self.move_submitted(place, &to).map(|()| None)
            }
            Submitted::Link => {
                let to = second_path((submissions, at))?;
                self.link_submitted(place, &to).map(|()| Some(NameState::Plain))
            }
            // It was done with the record before.
            Submitted::MoveTarget => Err(Errno::EPROTO.into()),
            Submitted::Changes { which } => {
                self.change_submitted(place, &record.read_changes(which), present)?;
                Ok(Some(NameState::Plain))
            }
            Submitted::File { open, bytes, which, seen, object } => {
                let new = NewFile { record, open, bytes, which, seen, object };
                self.execute_file_record(new, place, (submissions, at), ring, present)?;
                Ok(Some(NameState::Plain))
            }
            Submitted::Replacement { open, written, bytes, which, seen } => {
                let new = NewContent { record, open, written, bytes, which, seen };
                self.replace_submitted(&new, place, (submissions, at), ring, present)?;
                Ok(Some(NameState::Plain))
            }
            Submitted::Symlink { bytes } => {
                let mut target = Vec::new();
                submissions.read_content(at, bytes, &mut target);
                self.make_submitted_symlink(record, &place, target)?;
                Ok(Some(NameState::Plain))
            }
            // Only a process that does not keep to its delegation can have submitted what is there.
            Submitted::Directory if found.is_some() => Err(Errno::EEXIST.into()),
            Submitted::Directory => {
                let parent = self.load_parent(place.directory)?;
                self.add_directory(&place, parent, owner_in(record))?;
                self.leases.delegations.covers = true;
                Ok(Some(NameState::NewDirectory))
            }
        }
    }

    /// Slot of the files that are promised.
    fn slot_of_promised(&self) -> Option<u16> {
        self.place.slots.slot_of(self.place.shard, 0)
    }

    /// A file that is going to be made by a record of a ring; none where this shard has none.
    pub(super) fn promised_id(&mut self) -> FileId {
        let id =
            self.slot_of_promised().and_then(|slot| FileId::new(slot, self.counters.next_file));
        self.counters.next_file += u64::from(id.is_some());
        id.unwrap_or(FileId::NONE)
    }

    /// What was executed is committed: everybody sees it, and its places are free again.
    pub(crate) fn submissions_committed(&mut self) {
        let rings = std::mem::take(&mut self.leases.delegations.touched);
        // Before the claims on the names go: a process that finds one knows whether it is its own.
        for ring in members(rings) {
            if let Some(held) = &self.leases.delegations.rings[ring] {
                self.submissions(ring).executed.store(held.executed, Release);
            }
        }
        self.release_names();
        for ring in members(rings) {
            self.free_places(ring);
            self.show_executed(ring);
        }
    }

    /// Says that nothing waits in a ring, unless something does.
    fn show_executed(&mut self, ring: usize) {
        let (head, bit) = (&self.node.head, 1 << ring);
        let published = || self.submissions(ring).published.load(SeqCst) as u32;
        let waits = |executed: u32| executed != published();
        let executed = self.leases.delegations.rings[ring].as_ref().map(|ring| ring.executed);
        if executed.is_some_and(waits) {
            return;
        }
        // Who looks in between takes it for a ring with records.
        head.rings.settling.fetch_or(bit, SeqCst);
        head.rings.replacing.fetch_and(!bit, SeqCst);
        head.submitted.fetch_and(!bit, SeqCst);
        if executed.is_some_and(waits) {
            // By what has come meanwhile content may be replaced.
            head.rings.replacing.fetch_or(bit, SeqCst);
            head.submitted.fetch_or(bit, SeqCst);
        }
        head.rings.settling.fetch_and(!bit, SeqCst);
    }

    /// Promises descriptions with the places whose records are executed.
    pub(super) fn free_places(&mut self, at: usize) {
        let submissions = self.submissions(at);
        let room = self.has_room_for_submissions();
        let object_bytes = if room { self.offered_object_bytes() } else { 0 };
        let Some(mut ring) = self.leases.delegations.rings[at].take() else { return };
        submissions.executed.store(ring.executed, Release);
        while ring.freed != ring.executed && room {
            let place = place_of(ring.freed);
            let id = ring.ids[place];
            let next = match ring.promises[place].filter(|_| ring.opened & 1 << place == 0) {
                Some(unused) => Some(self.files.opens.promise_again(unused, id)),
                None => self.files.opens.promise(ring.session, id),
            };
            // Without it the ring is full until there is room again, and its process asks.
            let Some(next) = next else { break };
            ring.promises[place] = Some(next);
            ring.opened &= !(1 << place);
            submissions.records[place].set_promise(next);
            ring.freed = ring.freed.wrapping_add(1);
        }
        self.offer(at, &mut ring, object_bytes);
        submissions.promised.store(ring.freed.wrapping_add(RECORDS as u32), Release);
        self.leases.delegations.rings[at] = Some(ring);
    }
}

/// How a name stands after what was done before.
fn state_of(found: Option<(FileId, FileKind)>) -> Option<NameState> {
    found.map(|(_, kind)| match kind {
        FileKind::Directory => NameState::AskDaemon,
        _ => NameState::Plain,
    })
}

/// The second name of a record that is about two.
fn second_path((submissions, at): (&SubmissionRing, usize)) -> Outcome<Vec<u8>> {
    let second = submissions.target_of(at).ok_or(Errno::EPROTO)?;
    path_in(&submissions.records[second])
}

/// The path in a record, which may be anything.
fn path_in(record: &Record) -> Outcome<Vec<u8>> {
    let path = record.read_path();
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
    // Looks at all bytes, which the processor does at once.
    let (has_slash, has_zero) = path
        .iter()
        .fold((false, false), |(slash, zero), byte| (slash | (*byte == b'/'), zero | (*byte == 0)));
    let is_path =
        if has_slash { path.split(|byte| *byte == b'/').all(is_name) } else { is_name(&path) };
    if is_path && !has_zero { Ok(path) } else { Err(Errno::EPROTO.into()) }
}

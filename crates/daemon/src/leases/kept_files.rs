//! Files of other nodes that processes of this one read by what they are leased.
//!
//! What a node is told of another one's small files under a lease ([`super::attributes`]) may have
//! their bytes with it. Then its processes open and read such a file by its records, as they read
//! one that is at home ([`super::file_leases`]), and its home does not know that it is open. Before
//! the node lets such a name go it has the home make descriptions for all of its processes that
//! read the file by it ([`Question::Keep`]). So the file stays readable whatever becomes of the
//! name, and what is written to it later is seen.
//!
//! The same happens in good time before the lease is over, when the home was started anew and has
//! forgotten to whom it told what, and when a process wants a description of its own. A process
//! whose node has stood still for longer than its leases, and whose file is gone, gets EIO.

use std::{
    sync::atomic::{Ordering::SeqCst, fence},
    time::Duration,
};

use mayfly_meta::{key, record::BirthKey};
use mayfly_transport_shm::layout::{FILE_BY_REQUEST, FILE_MAPPED};
use mayfly_types::{Errno, FileId, FileKind, SessionId, Times, limits::INLINE_BYTES_MAX};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, store_failed},
    files::descriptions::Elsewhere,
    message::{Answer, At, Kept, Question, Resolved},
    namespace::{
        dentry_cache::Cached,
        open::{O_ACCMODE, reads_alone},
    },
    shard::{Shard, state::task::Purpose},
    shards::{
        numbering::{origin, session_elsewhere},
        slots::ShardId,
    },
};

/// Processes believe what was told with bytes for so much shorter than the node, seconds: in that
/// time descriptions are made of what they still read.
pub(crate) const AHEAD_SECONDS: i64 = 1;
/// While something is told with bytes the shard looks so often at what is read.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// When the shard has to look again.
#[derive(Debug, Default)]
pub(crate) struct KeptFiles {
    /// The second; none while no process can read a file so.
    next: Option<i64>,
    /// Until when something that was told may be believed.
    read_until: i64,
}

impl KeptFiles {
    /// Bytes of files were told, to be believed until then.
    pub(crate) fn may_be_read(&mut self, now: i64, until: i64) {
        self.read_until = self.read_until.max(until);
        self.next.get_or_insert(now + 1);
    }
}

impl Shard {
    /// A process opens a file whose name is another shard's, which may be on another node. When it
    /// opens many to read them, those behind this one are told with their bytes.
    pub(crate) fn ask_for_contents(
        &mut self,
        caller: Caller,
        flags: u32,
        (owner, place): (ShardId, &Resolved),
    ) -> Outcome<()> {
        let At::Path(directory, name, upto) = &place.at else { return Ok(()) };
        let possible = reads_alone(flags)
            && self.run.place.at == At::Start
            && !name.contains(&b'/')
            && self.shows_records()
            && self.config.times != Times::All
            && origin(caller.session).is_none()
            && !self.place.numbering.is_here(owner);
        if !possible {
            return Ok(());
        }
        let is_it = |asked: &Question| {
            matches!(asked, Question::File { directory: at, name: of, contents: true, .. }
                if at == directory && of == name)
        };
        if let Some(answer) = self.known_fact(owner, is_it) {
            if let Answer::File { record, cacheable: false, .. } = answer {
                self.leases.asked_contents.refused(*directory, !record.is_empty());
            }
            return Ok(());
        }
        self.consider_leasing(caller);
        let cookie = key::cookie(*directory, name);
        let known = self.namespace.cache.get(cookie, *directory, name, self.leases.now);
        match known {
            Some(Cached::File(_, true)) => return Ok(()),
            Some(Cached::File(attr, false)) if attr.size_bytes > INLINE_BYTES_MAX as u64 => {
                return Ok(());
            }
            _ => {}
        }
        let Some(more) = self.leases.asked_contents.count((*directory, cookie), self.pays()) else {
            return Ok(());
        };
        let (directory, name, upto) = (*directory, name.clone(), *upto);
        let question = Question::File { directory, name, upto, more, contents: true };
        if more == 0 {
            // It is opened by a request this time.
            self.ask(owner, question, Purpose::Remembered(self.leases.now));
            return Ok(());
        }
        self.fact(owner, question).map(|_| ())
    }

    /// Makes a description for a process of another node that reads the file.
    pub(crate) fn keep_for(&mut self, from: ShardId, kept: &Kept) -> Outcome<Answer> {
        let numbering = self.place.numbering;
        if numbering.is_here(from) {
            return Err(Errno::EPROTO.into());
        }
        let mut located = self.load_birth(kept.file, &kept.birth)?;
        if located.inode.id != kept.file || located.inode.kind() != FileKind::Regular {
            return Err(Errno::ENOENT.into());
        }
        let session = session_elsewhere(numbering.node_of(from), kept.session);
        let caller = Caller { session, lane: 0, request_id: 0 };
        let birth = located.fused.take().unwrap_or_default();
        let of = (kept.file, FileKind::Regular);
        let open = self.files.opens.insert(caller, of, birth, kept.flags & !O_ACCMODE, None)?;
        self.mark_opened(&located.inode);
        Ok(Answer::Kept(open))
    }

    /// What this node's processes read of other nodes' files, of those that `is_it` says: to be
    /// asked for, each of the home of its file, before the node says that it has let go. What
    /// processes find in the records they do not find there any more.
    pub(crate) fn questions_to_keep(
        &mut self,
        is_it: impl Fn(ShardId, &Kept) -> bool,
    ) -> Vec<(ShardId, Question)> {
        if self.place.alone || self.leases.files.shown.is_empty() {
            return Vec::new();
        }
        // A process that shows its file later sees that a transaction is under way, and asks.
        if let Err(error) = self.store.announce() {
            store_failed(&error);
            return Vec::new();
        }
        fence(SeqCst);
        let mut questions = Vec::new();
        for kept in self.read_elsewhere() {
            if is_it(self.place.slots.home(kept.file), &kept) && self.recall_read(&kept) {
                questions.push(self.question_of(kept));
            }
        }
        questions
    }

    /// The same, waited for.
    pub(crate) fn keep_all(&mut self, is_it: impl Fn(ShardId, &Kept) -> bool) -> Outcome<()> {
        let mut missing = Vec::new();
        for (home, question) in self.questions_to_keep(is_it) {
            match self.fact(home, question.clone()) {
                Err(Fault::Ask(questions)) => missing.extend(questions),
                answer => {
                    // It was not to be had, and is asked for again when it is needed.
                    if let Question::Keep(kept) = &question {
                        self.files.opens.leave_leased(kept.at.index);
                    }
                    answer?;
                }
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(Fault::Ask(missing)) }
    }

    /// Makes a description of what a process reads there of another node's file; `None` when it
    /// reads none.
    pub(crate) fn keep_wanted(&mut self, session: SessionId, place: usize) -> Outcome<Option<()>> {
        let mut read = self.read_elsewhere().into_iter();
        let index = self.leases.files.at(session, place);
        let Some(kept) = read.find(|kept| Some(kept.at.index) == index) else { return Ok(None) };
        if !self.recall_read(&kept) {
            return Ok(None);
        }
        let at = kept.at;
        let (home, question) = self.question_of(kept);
        let failed = match self.fact(home, question)? {
            // It was made, but not for this: the process closes it meanwhile.
            Answer::Kept(_) => return Ok(Some(())),
            Answer::Failed(_) => Errno::EIO,
            _ => Errno::EPROTO,
        };
        self.files.opens.leave_leased(at.index);
        Err(failed.into())
    }

    /// Looks in time whether processes still read what will soon not be believed any more.
    pub(crate) fn keep_in_time(&mut self) {
        let now = self.leases.now;
        if self.leases.kept_files.next.is_none_or(|next| now < next) {
            return;
        }
        let mut read_later = false;
        for kept in self.read_elsewhere() {
            let BirthKey { directory, name } = &kept.birth;
            let until = self.namespace.cache.file_until(*directory, name);
            if until.is_some_and(|until| now < until - AHEAD_SECONDS) {
                read_later = true;
            } else if self.files.opens.recall_leased(kept.at.index, kept.file) {
                let (home, question) = self.question_of(kept);
                self.ask(home, question, Purpose::Nothing);
                read_later = true;
            }
        }
        let again = read_later || now < self.leases.kept_files.read_until;
        self.leases.kept_files.next = again.then_some(now + 1);
    }

    /// Whether a process of this node finds the bytes of this file of another node's by itself.
    #[must_use]
    pub fn has_bytes_of(&self, path: &[u8]) -> bool {
        self.way_to(path).is_some_and(|(directory, name)| {
            self.namespace.cache.has_bytes(directory, name, self.leases.now + AHEAD_SECONDS)
        })
    }

    /// Whether a process of this node looks at this file by itself, if it is there: all names of
    /// this shard are in its records, those of other nodes as long as they are kept.
    #[must_use]
    pub fn has_attributes_of(&self, path: &[u8]) -> bool {
        self.way_to(path).is_some_and(|(directory, name)| {
            let until = self.namespace.cache.file_until(directory, name);
            until.is_some_and(|until| self.leases.now + AHEAD_SECONDS < until)
                || self.owns(directory, name)
        })
    }

    /// The directory that a path leads to by directories that are remembered, and its last name.
    fn way_to<'p>(&self, path: &'p [u8]) -> Option<(FileId, &'p [u8])> {
        let mut directory = FileId::ROOT;
        let mut names = path.split(|byte| *byte == b'/');
        let last = names.next_back()?;
        for name in names {
            directory = self.namespace.cache.directory(directory, name, self.leases.now)?.0;
        }
        Some((directory, last))
    }

    /// When the shard has to be called again though nobody asks for anything.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        let due = self.leases.kept_files.next.is_some()
            || self.leases.mount_names.is_due()
            || !self.tier.looks.is_empty();
        due.then_some(LOOK_EVERY)
    }

    /// Another node has made a description, or not.
    pub(crate) fn was_kept(&mut self, home: ShardId, kept: &Kept, answer: &Answer) {
        let Answer::Kept(open) = answer else {
            if self.files.opens.is_recalled(kept.at) {
                self.files.opens.leave_leased(kept.at.index);
            }
            return;
        };
        let numbering = self.place.numbering;
        let first = numbering.front_of(numbering.node_of(home)).0;
        let shard = ShardId(first + open.index % numbering.shards);
        let remote = Elsewhere { shard, open: *open };
        let place = self.leases.files.place_of(kept.session, kept.at.index);
        let Some(place) = place.filter(|_| self.files.opens.is_recalled(kept.at)) else {
            return self.drop_elsewhere(Some(remote));
        };
        let (index, birth) = (kept.at.index, BirthKey::default());
        let of = (kept.file, FileKind::Regular);
        self.files.opens.keep_leased((index, kept.session), of, birth, Some(remote));
        self.files.opens.set_flag(kept.file, FILE_BY_REQUEST);
        if self.leases.mounts.was_mapped(kept.file) {
            self.files.opens.set_flag(kept.file, FILE_MAPPED);
        }
        self.lease_at(kept.session, place);
    }

    fn question_of(&self, kept: Kept) -> (ShardId, Question) {
        (self.place.slots.home(kept.file), Question::Keep(kept))
    }

    /// Takes the description back from the process, if it was not before.
    fn recall_read(&self, kept: &Kept) -> bool {
        self.files.opens.is_recalled(kept.at)
            || self.files.opens.recall_leased(kept.at.index, kept.file)
    }

    /// All that processes of this node show of other nodes' files.
    fn read_elsewhere(&self) -> Vec<Kept> {
        let leased = self.leases.files.all().filter_map(|(session, place, index)| {
            let (file, birth) = self.shown_by(session, place)?;
            if file == FileId::NONE || self.is_home(file) {
                return None;
            }
            let (at, flags) = self.files.opens.leased_at(index);
            Some(Kept { file, birth, session, at, flags })
        });
        leased.collect()
    }
}

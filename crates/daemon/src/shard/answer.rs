//! A shard's answers to others, and the answers of others that it keeps.
//!
//! A dentry's owner notes who may remember a directory or a symbolic link that it was told of;
//! before the name changes, each of them is made to forget it. A name that an operation is about to
//! change is told, but not to be remembered.

use mayfly_meta::{
    key,
    record::{BirthKey, Content},
};
use mayfly_object::ObjectId;
use mayfly_types::{Errno, FileId, FileKind};

use crate::{
    fault::{Fault, Outcome},
    files::state::allocate::what_of,
    message::{Answer, Question},
    namespace::{
        dentry_cache::{Cached, FOR_EVER},
        state::member::Parent,
    },
    shard::Shard,
    shards::slots::ShardId,
    transactions::state::prepare_locks::PrepareLock,
};

impl Shard {
    pub(super) fn answer_question(
        &mut self,
        from: ShardId,
        question: &Question,
    ) -> Outcome<Answer> {
        // Another node's operation may have been decided with claims that died with this shard's
        // predecessor. Until they are known again, who asks for a promise waits.
        if !question.is_of_recovery() && self.is_recovering() {
            return Err(Fault::Busy);
        }
        Ok(match question {
            Question::Lookup { directory, name, upto } => {
                self.namespace.seats.learn(*directory, *upto);
                self.tell_name(from, *directory, name)?
            }
            Question::LinkTarget { id, birth } => self.tell_link(*id, birth)?,
            Question::Directory(id) => Answer::Directory(self.directory_facts(*id)?),
            Question::Join(id) => {
                self.unclaimed(|| vec![(PrepareLock::Place(*id), false)])?;
                Answer::Directory(self.join(*id, from.0)?)
            }
            Question::Host { directory, cookie } => self.host_one(*directory, *cookie)?,
            Question::Member(id) => Answer::Member(self.member_facts(*id)?),
            Question::Entries { directory, from, until, bytes_max } => {
                let (packed, more) = self.entries(*directory, (*from, *until), *bytes_max)?;
                Answer::Entries { packed, more }
            }
            Question::Prepare { transaction, steps } => self.prepare(*transaction, steps)?,
            Question::Apply { transaction, wave, steps, last } => {
                self.apply_wave(*transaction, *wave, steps)?;
                if *last {
                    self.release_prepare_locks(*transaction);
                }
                Answer::Done
            }
            Question::Release(transaction) => {
                self.release_operation(*transaction)?;
                Answer::Done
            }
            Question::Await(_) => {
                self.await_release()?;
                Answer::Done
            }
            Question::IsOver(transaction) => {
                Answer::Over(!self.transactions.running.contains_key(transaction))
            }
            Question::Executed(session, request_id) => {
                self.note_executed((*session, *request_id), from);
                Answer::Done
            }
            Question::WentOn { session, lane, request_id } => {
                self.lane_goes_on_at(from, (*session, *lane, *request_id));
                Answer::Done
            }
            Question::Drop { open, closed_by, last } => {
                self.drop_for(self.place.numbering.node_of(from), *open, *closed_by, *last)?;
                Answer::Done
            }
            Question::Numbers => Answer::Numbers(self.give_numbers()?),
            Question::Space => Answer::Space(self.space()),
            Question::Proxies(opens) => self.answer_unheld(from, opens),
            Question::Reclaim => {
                self.reclaim()?;
                Answer::Done
            }
            Question::Waits { processes } => self.answer_waits(processes),
            Question::StillWaiting { delays } => self.answer_still_waiting(delays),
            Question::Suspect { waiter, wait } => {
                self.suspect(*waiter, *wait);
                Answer::Done
            }
            Question::File { .. }
            | Question::Keep(_)
            | Question::Forget { .. }
            | Question::Returned => self.answer_about_leases(from, question)?,
            about_bytes => self.answer_about_bytes(from, about_bytes)?,
        })
    }

    /// What shards ask each other about what one of them may believe of another one's.
    fn answer_about_leases(&mut self, from: ShardId, question: &Question) -> Outcome<Answer> {
        Ok(match question {
            Question::File { directory, name, upto, more, contents } => {
                self.tell_file(from, (*directory, *upto), name, (*more, *contents))?
            }
            Question::Keep(kept) => self.keep_for(from, kept)?,
            Question::Forget { directory, name } => {
                self.forget_name(*directory, name);
                match from == self.place.shard {
                    // All were asked that are to be.
                    true => self.wait_for_mounts(*directory, name)?,
                    false => self.ask_mounts(*directory, name, None)?,
                }
                self.keep_all(|_, kept| kept.birth.is(*directory, name))?;
                Answer::Done
            }
            Question::Returned => {
                self.forget_what_others_said();
                self.keep_all(|home, _| home == from)?;
                self.welcome_back(from)
            }
            _ => return Err(Errno::EIO.into()),
        })
    }

    fn tell_link(&mut self, id: FileId, birth: &BirthKey) -> Outcome<Answer> {
        Ok(match self.load_birth(id, birth)?.inode.content {
            Content::Symlink(target) => Answer::LinkTarget(target),
            _ => Answer::Failed(Errno::EIO),
        })
    }

    /// What servers ask each other about striped files, and nodes about mapped ones and origins.
    fn answer_about_bytes(&mut self, from: ShardId, question: &Question) -> Outcome<Answer> {
        match question {
            Question::Part { file, generation, .. } => self.tell_part(*file, *generation),
            Question::CleanPart { file, generation } => self.clean_part(*file, *generation),
            Question::SettlePart { file, generation } => self.settle_part(*file, *generation),
            Question::DropPart { file, generation } => {
                self.drop_part(*file, *generation).map(|()| Answer::Done)
            }
            Question::Admit { file, generation, index } => {
                self.admit_change(*file, *generation, *index).map(|()| Answer::Done)
            }
            Question::Size { file, generation } => self.tell_size(*file, *generation),
            Question::HoldEnd { file, generation, append } => {
                let object = ObjectId { file: *file, generation: *generation };
                self.hold_end(from, object, *append)
            }
            Question::LetEnd { file, append } => {
                self.let_end(from, *file, append);
                Ok(Answer::Done)
            }
            Question::AppendPart { place, append, offset, bytes, behind } => {
                self.append_part(place, (from, *append), *offset, (bytes, *behind))
            }
            Question::Mapped(file) => {
                self.mapped_elsewhere(*file);
                Ok(Answer::Done)
            }
            Question::Changed(change) => self.notify_mounts(change).map(|()| Answer::Done),
            Question::AllocatePart { place, mode, start, end, look } => {
                let what = what_of(*mode).ok_or(Errno::EPROTO)?;
                self.allocate_part(place, what, (*start, *end), *look)
            }
            Question::Seats(seats) => self.give_seats(seats),
            Question::Unseat(directories) => self.take_seats_back(directories),
            Question::Seated(directories) => Ok(self.seats_there(directories)),
            Question::Written(directory) => {
                self.names_are_written(*directory).map(|()| Answer::Done)
            }
            Question::SeekPart { place, offset, hole } => self.seek_part(place, *offset, *hole),
            Question::SyncPart { file, generation } => {
                self.sync_part(ObjectId { file: *file, generation: *generation })
            }
            _ => Err(Errno::EIO.into()),
        }
    }

    fn tell_name(&mut self, from: ShardId, directory: FileId, name: &[u8]) -> Outcome<Answer> {
        if let Some(answer) = self.name_is_elsewhere(directory, key::cookie(directory, name)) {
            return Ok(answer);
        }
        let mut file = self.lookup(directory, name)?;
        let lasts = matches!(file, Some((_, FileKind::Directory | FileKind::Symlink)));
        // Names in a table are changed by processes, who tell nobody. Others go by this one.
        if lasts
            && let Some(within) = self.covering(directory)
            && self.recall(within.root)
        {
            file = self.lookup(directory, name)?;
        }
        let lasting = matches!(file, Some((_, FileKind::Directory | FileKind::Symlink)))
            && self.covering(directory).is_none()
            && self.may_be_kept(directory)?;
        let claim = [(PrepareLock::Name(directory, name.to_vec()), true)];
        let changing = self.transactions.prepare_locks.in_the_way(&claim, None).is_some();
        let here = self.place.numbering.is_here(from);
        let until = if here { FOR_EVER } else { self.waited_until() };
        let room = (self.leases.now, self.config.cached_dentries_max);
        let cacheable = lasting
            && !changing
            && self.namespace.remembered.note((directory, name), (from.0, until), room);
        Ok(Answer::Found { file, cacheable })
    }

    /// Gets ready to have one entry of a directory.
    fn host_one(&mut self, directory: FileId, cookie: u64) -> Outcome<Answer> {
        match self.name_is_elsewhere(directory, cookie) {
            Some(elsewhere) => Ok(elsewhere),
            None => self.host_here(directory).map(|()| Answer::Done),
        }
    }

    /// Gets ready to have entries of a directory.
    pub(crate) fn host_here(&mut self, directory: FileId) -> Outcome<()> {
        self.unclaimed(|| vec![(PrepareLock::Place(directory), false)])?;
        match self.load_parent(directory)? {
            Parent::Home(_) => Ok(()),
            Parent::Member(_, member) => self.save_member(directory, &member),
        }
    }

    /// Keeps what may be kept of an answer to a run that first asked then.
    pub(super) fn remember(&mut self, question: &Question, answer: &Answer, asked_at: Option<i64>) {
        if let Question::Lookup { directory, name, .. } = question
            && let Answer::Found { file: Some((id, FileKind::Directory)), cacheable: true } = answer
        {
            let until = self.remembered_until(*directory, name, asked_at);
            self.namespace.cache.insert(*directory, name, Cached::Directory(*id), until);
            self.show_name((*directory, name), (*id, until), &[]);
        }
        if let Question::File { directory, name, contents, .. } = question
            && let Answer::File { record, cacheable: true, more } = answer
        {
            let until = self.believed_until(asked_at);
            let more = more.iter().map(|of| (of.name.as_slice(), of.record.as_slice()));
            let files = [(name.as_slice(), record.as_slice())].into_iter().chain(more);
            self.keep_files((*directory, *contents), files, until);
        }
    }

    /// How long an answer about a name may be believed. Its owner tells whoever has asked before it
    /// changes the name, but a node that cannot be reached would keep it waiting for ever. The time
    /// runs from the question on: a node may stand still before it takes the answer in.
    pub(crate) fn remembered_until(
        &self,
        directory: FileId,
        name: &[u8],
        asked_at: Option<i64>,
    ) -> i64 {
        let owner = self.name_owner(directory, name);
        let here = self.place.numbering.is_here(owner);
        if here { FOR_EVER } else { self.believed_until(asked_at) }
    }

    /// How long what a run was told may be believed that first asked then.
    fn believed_until(&self, asked_at: Option<i64>) -> i64 {
        asked_at.unwrap_or(self.leases.now) + self.config.leases.seconds
    }

    /// How long this shard takes something to be believed that it tells now: who asked did so
    /// before, and counts from then on.
    pub(crate) fn waited_until(&self) -> i64 {
        self.leases.now + self.config.leases.seconds + 1
    }

    pub(crate) fn forget_name(&mut self, directory: FileId, name: &[u8]) {
        let cookie = key::cookie(directory, name);
        let known = self.namespace.cache.get(cookie, directory, name, self.leases.now);
        self.namespace.cache.forget(cookie);
        self.hide_name(directory, name);
        // No path leads through a file.
        if !matches!(known, Some(Cached::File(..))) {
            self.recall_paths_elsewhere();
        }
        let is_it = |question: &Question| match question {
            Question::Lookup { directory: other, name: also, .. } => {
                *other == directory && *also == *name
            }
            // The answer may have this one, too.
            Question::File { directory: other, .. } => *other == directory,
            _ => false,
        };
        self.void(is_it);
    }

    /// Whether another shard may remember the name, or a mount that does not change it itself.
    pub(crate) fn is_remembered(&self, directory: FileId, name: &[u8]) -> bool {
        !self.namespace.remembered.of(directory, name, self.leases.now).is_empty()
            || self.is_believed(directory, name)
    }
}

//! Handing work to the keeper, and taking it back.
//!
//! A keeper's request waits until there is something to do. What it was given is its own until it
//! has said what came of it, or its session ends: then another one gets it, told that it may have
//! been done before. A daemon that dies forgets its items; who waits asks again, and a note says
//! which changes of names may have been made (`key::THROUGH`). Nothing is handed out before the
//! commit of what it rests on.

use mayfly_meta::{key, record::Begun};
use mayfly_object::ObjectId;
use mayfly_transport_tcp::Body;
use mayfly_types::{
    Attr, Errno, FileId, SessionId,
    limits::{LANES, TIER_ITEM_SECONDS, TIER_ITEMS_MAX, TIER_LISTING_BYTES_MAX},
};
use mayfly_wire::{
    Op, TierDone, TierItem,
    tier::{NO_ATTR, TIER_CONFLICT, errno_of},
};

use crate::{
    api::{Caller, Completion},
    fault::{Fault, Outcome, Served},
    files::state::background::encoded,
    log,
    namespace::state::inode::Located,
    shard::{
        Shard,
        state::{run::Run, task::Task},
    },
    tier::{
        gates::master_of,
        state::item::{Item, Work},
        state::journal::Changes,
        state::wanted::{At, Run as Chunks, Seen, Wanted},
    },
};

pub(crate) use super::state::item::Ending;

impl Shard {
    /// Puts a task aside until something was done outside.
    pub(crate) fn wait_for_origin(&mut self, task: Task, wanted: Wanted) -> Result<(), Errno> {
        // It may take long, and what other shards have said may not be so any more.
        self.forget_facts();
        self.note_wait(&task);
        let mut run = std::mem::take(&mut self.run);
        let before = *run.outside.behind.get_or_insert(self.tier.last);
        let is_background = task.op() == Op::TierAsk;
        let Some((task, run)) = self.wait_for_journal((task, run), &wanted)? else {
            return Ok(());
        };
        if let Wanted::Chunks(file, at, chunks) = wanted {
            return self.wait_for_chunks((task, run), file, &at, chunks);
        }
        let Ok(in_the_way) = self.in_the_way_of(&task, &wanted) else {
            self.run = run;
            self.block(task);
            return Ok(());
        };
        let now_ms = self.elapsed_ms();
        if let Some(number) = in_the_way
            && let Some(item) = self.tier.items.get(&number)
        {
            // What the keeper has seen before this was wanted may be too old for it.
            let is_fresh = number > before
                || item.holder.is_none()
                || matches!(wanted, Wanted::Fetch(..))
                || self.tier.is_valid(item.since_ms, now_ms);
            let same = matches!(&item.work, Work::Wanted(other) if *other == wanted);
            let shares = same && wanted.is_shared() && is_fresh;
            if let Some(item) = self.tier.items.get_mut(&number) {
                item.waiting.push((task, run, shares));
            }
            if !is_background {
                self.tier.hurry(number);
            }
            return Ok(());
        }
        if self.tier.items.len() >= TIER_ITEMS_MAX {
            return Err(Errno::EAGAIN);
        }
        if let Wanted::Back(file, _) = wanted {
            return self.wait_for_flush((task, run), file);
        }
        let mut item = Item::new(Work::Wanted(wanted), self.elapsed_ms());
        match self.provide_for(&mut item, &task) {
            Err(Errno::ENOSPC) if self.tier.may_have_room_later() => {
                self.run = run;
                self.block(task);
                return Ok(());
            }
            provided => provided?,
        }
        item.waiting.push((task, run, true));
        let number = self.tier.begin(item);
        if is_background {
            self.tier.put_off(number);
        }
        self.hand_out_items();
        Ok(())
    }

    /// What has to be there before the item is begun.
    fn provide_for(&mut self, item: &mut Item, task: &Task) -> Result<(), Errno> {
        match (&item.work, task) {
            (Work::Wanted(Wanted::Fetch(file, at)), _) => {
                let object = self.object_to_fetch(*file, at).map_err(|fault| fault.errno())?;
                item.object = Some(object);
            }
            (Work::Wanted(Wanted::Change(..)), Task::Request { caller, .. }) => {
                item.owner = Some(*caller);
                item.again = self.note_change(*caller, item.names())?;
            }
            _ => {}
        }
        Ok(())
    }

    fn wait_for_chunks(
        &mut self,
        (task, run): (Task, Run),
        file: FileId,
        at: &At,
        chunks: Chunks,
    ) -> Result<(), Errno> {
        let is_background = task.op() == Op::TierAsk;
        let found = self.fetch_of(file, at, chunks.first);
        let is_new = found.is_none();
        let (number, has_it) = match found {
            Some(found) => found,
            None if self.tier.items.len() >= TIER_ITEMS_MAX => return Err(Errno::EAGAIN),
            None => match self.begin_chunks(file, at, chunks).map_err(|fault| fault.errno()) {
                Ok(Some(number)) => (number, true),
                Ok(None) => {
                    self.run_later(task, run);
                    return Ok(());
                }
                Err(Errno::ENOSPC) if self.tier.may_have_room_later() => {
                    self.run = run;
                    self.block(task);
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            },
        };
        if let Some(item) = self.tier.items.get_mut(&number) {
            item.waiting.push((task, run, has_it));
        }
        if !is_background {
            self.tier.hurry(number);
        } else if is_new {
            self.tier.put_off(number);
        }
        if let Err(fault) = self.fetch_behind(file, at, chunks) {
            // Nobody waits for what comes behind. A store that has failed fails the commit.
            log::warn("tier", format_args!("nothing is read ahead: {}", fault.errno()));
        }
        self.hand_out_items();
        Ok(())
    }

    fn wait_for_flush(&mut self, (task, run): (Task, Run), file: FileId) -> Result<(), Errno> {
        match self.begin_flush(file, false, false) {
            Ok(Some(number)) => {
                if let Some(item) = self.tier.items.get_mut(&number) {
                    item.waiting.push((task, run, true));
                }
                self.hand_out_items();
            }
            Ok(None) => self.run_later(task, run),
            Err(Fault::Busy) => {
                self.run = run;
                self.block(task);
            }
            Err(fault) => return Err(fault.errno()),
        }
        Ok(())
    }

    /// A request changes names outside; whether it may have done so before.
    fn note_change(&mut self, caller: Caller, names: Vec<At>) -> Result<bool, Errno> {
        self.be_unsure(&names).map_err(|fault| fault.errno())?;
        let known = self.tier.journal.begun.remove(&(caller.session, caller.lane));
        let known = known.filter(|known| known.request_id == caller.request_id);
        let again = known.as_ref().is_some_and(|known| known.earlier);
        let before = known.map(|known| known.names).unwrap_or_default();
        let names = names.into_iter().chain(before).collect();
        let begun = Begun { request_id: caller.request_id, names };
        let key = key::numbered(key::THROUGH, lane_of(caller.session, caller.lane));
        let noted = self.store.put(&key, &begun.encode());
        noted.map_err(|error| crate::fault::store_failed(&error))?;
        let Begun { request_id, names } = begun;
        let changes = Changes { request_id, names, earlier: false };
        self.tier.journal.begun.insert((caller.session, caller.lane), changes);
        Ok(again)
    }

    /// A name was not changed outside: it is nobody's own. The note goes when the request ends.
    fn change_failed(&mut self, caller: Caller) {
        if let Some(begun) = self.tier.journal.begun.get_mut(&(caller.session, caller.lane)) {
            begun.names.clear();
            begun.earlier = false;
            self.wake_blocked();
            self.hand_out_held();
        }
    }

    /// The lane has gone on, so an earlier request of it is over.
    pub(crate) fn end_changes_behind(&mut self, caller: Caller) {
        let begun = self.tier.journal.begun.get(&(caller.session, caller.lane));
        if begun.is_some_and(|begun| caller.request_id > begun.request_id) {
            self.change_is_known(caller);
        }
    }

    /// What a request has changed outside is nobody's own any more.
    pub(crate) fn forget_change(&mut self, caller: Caller) {
        if self.tier.journal.begun.remove(&(caller.session, caller.lane)).is_some() {
            self.wake_blocked();
            self.hand_out_held();
        }
    }

    /// A request has ended that may have changed names outside, and they are changed here too.
    pub(crate) fn change_is_known(&mut self, caller: Caller) {
        self.forget_change(caller);
        let key = key::numbered(key::THROUGH, lane_of(caller.session, caller.lane));
        if let Err(error) = self.store.delete(&key) {
            crate::fault::store_failed(&error);
        }
    }

    /// The same, if the request has changed names outside, or may have done so for an earlier
    /// daemon and has not come so far for this one.
    pub(crate) fn end_changes_at_origin(&mut self, caller: Caller) {
        let begun = self.tier.journal.begun.get(&(caller.session, caller.lane));
        let came_again = begun.is_some_and(|begun| begun.request_id == caller.request_id);
        if self.run.outside.has_changed() || came_again {
            self.change_is_known(caller);
        }
    }

    /// A session is over, of a process or of the keeper.
    pub(crate) fn tier_session_ended(&mut self, session: SessionId) {
        if !self.has_tier() {
            return;
        }
        self.tier.keeper_ended(session);
        self.tier.flushes.retain(|flush| flush.caller.is_none_or(|of| of.session != session));
        for lane in 0..LANES as u32 {
            self.change_is_known(Caller { session, lane, request_id: 0 });
        }
        self.hand_out_items();
    }

    /// The keeper wants something to do.
    pub(crate) fn tier_work(&mut self, caller: Caller) -> Outcome<Served> {
        let idle = &mut self.tier.keeper.idle;
        idle.retain(|idle| (idle.session, idle.lane) != (caller.session, caller.lane));
        idle.push_back(caller);
        if !self.tier.keeper.earlier.contains(&caller.session) {
            self.remove_late()?;
        }
        self.hand_out_items();
        Ok(Served::Pending)
    }

    fn note_wait(&mut self, task: &Task) {
        if let Task::Request { caller, .. } = task {
            self.tier.keeper.waited.insert((caller.session, caller.lane));
        }
    }

    /// An answer, with what its request has waited for.
    pub(crate) fn completion(&mut self, caller: Caller, status: u32, body: Body) -> Completion {
        let waited_outside = self.tier.keeper.waited.remove(&(caller.session, caller.lane));
        Completion { caller, status, body, waited_outside }
    }

    /// The keeper that may have made them is gone.
    fn remove_late(&mut self) -> Outcome<()> {
        for object in std::mem::take(&mut self.tier.keeper.may_make) {
            let ObjectId { file, generation } = object;
            self.store.delete(&key::late(file, generation))?;
            self.store.put(&key::doomed(file, generation), &[1])?;
            self.remove_when_committed(object);
        }
        Ok(())
    }

    /// Hands out what there is to do.
    pub(crate) fn hand_out_items(&mut self) {
        self.begin_entries();
        while !self.tier.keeper.idle.is_empty()
            && let Some(number) = self.tier.next()
        {
            if self.is_to_wait(number) {
                self.tier.keeper.held.push(number);
                continue;
            }
            match self.encode_item(number) {
                Ok(body) => {
                    let Some(caller) = self.tier.keeper.idle.pop_front() else { return };
                    if let Some(item) = self.tier.items.get_mut(&number) {
                        item.holder = Some(caller.session);
                    }
                    self.answer_after_commit(caller, 0, body);
                }
                Err(fault) => self.finish_item(number, Ending::Failed(fault.errno())),
            }
        }
    }

    /// A move is known here, or was not made: what is below may be handed out.
    fn hand_out_held(&mut self) {
        if !self.tier.keeper.held.is_empty() {
            self.tier.look_at_held();
            self.hand_out_items();
        }
    }

    /// The place that an item is about.
    pub(crate) fn place_of_item(&mut self, number: u64) -> Outcome<At> {
        let item = self.tier.items.get(&number).ok_or(Errno::ESTALE)?;
        match &item.work {
            Work::Wanted(Wanted::Look(directory)) => {
                if let Some(at) = self.tier.journal.place_of(*directory) {
                    return Ok(at.clone());
                }
                let inode = self.load_own(*directory)?.inode;
                self.place_at_origin(&inode)
            }
            Work::Wanted(wanted) => Ok(wanted.at().cloned().ok_or(Errno::EIO)?),
            Work::Flush { at, .. } => Ok(at.clone()),
        }
    }

    fn encode_item(&mut self, number: u64) -> Outcome<Vec<u8>> {
        let at = self.place_of_item(number)?;
        let (source, path) = self.path_at_origin(&at)?;
        let item = self.tier.items.get_mut(&number).ok_or(Errno::ESTALE)?;
        item.path.clone_from(&path);
        let (what, again, object, work) = (item.what(), item.again, item.object, item.work.clone());
        let (makes_object, item_entry) = (item.makes_object, item.entry);
        let mut told = TierItem {
            number,
            source,
            what,
            again,
            file: FileId::NONE,
            path: &path,
            other: b"",
            bytes: b"",
            which: 0,
            start: 0,
            end: 0,
            known: NO_ATTR,
            attr: NO_ATTR,
        };
        let (mut other, mut bytes) = (Vec::new(), Vec::new());
        match &work {
            Work::Wanted(Wanted::Look(directory)) => {
                let inode = self.load_own(*directory)?.inode;
                if !inode.unlisted {
                    told.known = known_of(&Located { inode, fused: None })?;
                }
            }
            Work::Wanted(
                Wanted::Check(file, at) | Wanted::Xattrs(file, at) | Wanted::Fetch(file, at),
            ) => {
                told.file = *file;
                told.known = known_of(&self.load_cached(*file, at)?)?;
                other = object.map_or_else(Vec::new, |object| object.path().into_bytes());
            }
            Work::Wanted(Wanted::Chunks(file, at, run)) => {
                let located = self.load_cached(*file, at)?;
                told.file = *file;
                told.known = known_of(&located)?;
                (told.start, told.end) = self.bytes_of_run(&located.inode, *run)?;
                told.which = u32::from(makes_object);
                other = object.map_or_else(Vec::new, |object| object.path().into_bytes());
            }
            Work::Flush { file, at, incomplete, .. } => {
                let located = self.load_cached(*file, at)?;
                told.attr = self.attr_from(&settled(&located), None, &Default::default())?;
                (other, bytes) = self.encode_flush(&located, *incomplete, &mut told)?;
            }
            Work::Wanted(Wanted::Change(at, change)) => {
                let entry = item_entry.and_then(|entry| self.tier.journal.entries.get(&entry));
                told.file = entry.map_or(FileId::NONE, |entry| entry.file);
                (other, bytes) = self.encode_change(at, change, &mut told)?;
            }
            Work::Wanted(Wanted::Name(_)) => {}
            // That is an item of another kind.
            Work::Wanted(Wanted::Back(..) | Wanted::Journal(_)) => return Err(Errno::EIO.into()),
        }
        (told.other, told.bytes) = (&other, &bytes);
        Ok(encoded(path.len() + other.len() + bytes.len() + 512, &told)?)
    }

    /// The file that stands under a name of a directory that has an origin.
    pub(crate) fn load_cached(&mut self, id: FileId, at: &At) -> Outcome<Located> {
        self.load_under(id, at.0, key::cookie(at.0, &at.1), at.1.clone())
    }

    /// The keeper says what came of an item.
    pub(crate) fn tier_done(&mut self, caller: Caller, done: &TierDone<'_>) -> Outcome<Served> {
        let item = self.tier.items.get_mut(&done.number).ok_or(Errno::ESTALE)?;
        if item.holder != Some(caller.session) || item.told.is_some() {
            return Err(Errno::ESTALE.into());
        }
        if item.pieces.len() + done.bytes.len() > TIER_LISTING_BYTES_MAX {
            self.finish_item(done.number, Ending::Failed(Errno::EFBIG));
            return Err(Errno::EFBIG.into());
        }
        item.pieces.extend_from_slice(done.bytes);
        if done.more {
            return Ok(Served::Replied);
        }
        let (bytes, at_ms) = (std::mem::take(&mut item.pieces), item.since_ms);
        let told = match done.status {
            0 => Ending::Done { seen: Seen { attr: done.attr, same: done.same, at_ms }, bytes },
            TIER_CONFLICT => Ending::Conflict { attr: done.attr, copy: bytes },
            status => Ending::Failed(errno_of(status)),
        };
        self.finish_item(done.number, told);
        Ok(Served::Replied)
    }

    /// An item ends: what it has brought is taken in, and who waits goes on.
    pub(crate) fn finish_item(&mut self, number: u64, told: Ending) {
        let is_gone = matches!(told, Ending::Failed(Errno::ENOENT | Errno::ENOTDIR));
        if is_gone && self.tier.was_listed(number) {
            if let Some(item) = self.tier.items.get_mut(&number) {
                item.holder = None;
            }
            self.tier.queue.push_back(number);
            self.hand_out_items();
            return;
        }
        match self.ask_for_seats(number, &told) {
            Ok(true) => {
                if let Some(item) = self.tier.items.get_mut(&number) {
                    item.told = Some(told);
                }
            }
            Ok(false) => self.end_item(number, told),
            Err(fault) => self.end_item(number, Ending::Failed(fault.errno())),
        }
    }

    /// The same, when all is known that it takes.
    pub(crate) fn end_item(&mut self, number: u64, told: Ending) {
        let Some(item) = self.tier.end(number) else { return };
        if let Some(entry) = item.entry {
            return self.end_entry(entry, item, told);
        }
        let result = self.take_in(&item, told);
        self.flush_ended(number, &item, &result);
        let Item { work, waiting, owner, .. } = item;
        if let (Some(owner), Err(_)) = (owner, &result) {
            self.change_failed(owner);
        }
        let wanted = match work {
            Work::Wanted(wanted) => wanted,
            Work::Flush { file, at, .. } => Wanted::Back(file, at),
        };
        for (task, mut run, shares) in waiting {
            if shares {
                run.outside.done.push((wanted.clone(), result.map_or_else(Err, |end| end.seen())));
            }
            self.run_later(task, run);
        }
        self.may_have_room();
        self.go_on_flushing();
        self.hand_out_items();
    }

    fn take_in(&mut self, item: &Item, told: Ending) -> Result<End, Errno> {
        let result = match (&item.work, told) {
            (Work::Flush { .. }, told) => self.flushed(item, told),
            (Work::Wanted(Wanted::Look(directory)), Ending::Done { seen, bytes }) => {
                self.take_listing(*directory, item, seen, &bytes).map(|()| End::Seen(seen))
            }
            (Work::Wanted(Wanted::Check(file, at)), told) => self.checked(*file, at, item, told),
            (Work::Wanted(Wanted::Name(at)), told) => self.named(at, item, told),
            (Work::Wanted(Wanted::Xattrs(file, at)), Ending::Done { seen, bytes }) => {
                self.take_xattrs((*file, at), &bytes).map(|()| End::Seen(seen))
            }
            (Work::Wanted(Wanted::Fetch(file, at)), told) => self.fetched(*file, at, item, told),
            (Work::Wanted(Wanted::Chunks(file, at, run)), told) => {
                self.chunks_fetched((*file, at, *run), item, told)
            }
            (Work::Wanted(Wanted::Change(..)), Ending::Done { seen, .. }) => Ok(End::Seen(seen)),
            (Work::Wanted(Wanted::Back(..) | Wanted::Journal(_)), Ending::Done { .. })
            | (Work::Wanted(_), Ending::Conflict { .. }) => Err(Errno::EPROTO.into()),
            (Work::Wanted(_), Ending::Failed(errno)) => Err(errno.into()),
        };
        result.map_err(|fault| {
            let errno = fault.errno();
            self.note_failure(item, errno);
            errno
        })
    }

    /// Who has waited for too long is told so. What the keeper is at stays its own.
    pub(crate) fn end_late_items(&mut self) {
        self.end_late_parked();
        let now_ms = self.elapsed_ms();
        let late = |item: &Item| now_ms.saturating_sub(item.since_ms) > TIER_ITEM_SECONDS * 1000;
        // They are in the order in which they were begun.
        let late: Vec<u64> =
            self.tier.items.iter().take_while(|(_, item)| late(item)).map(|of| *of.0).collect();
        for number in late {
            let Some(item) = self.tier.items.get_mut(&number) else { continue };
            if item.holder.is_none() && item.entry.is_none() {
                self.finish_item(number, Ending::Failed(Errno::ETIMEDOUT));
                continue;
            }
            let (work, waiting) = (&item.work, std::mem::take(&mut item.waiting));
            let wanted = match work {
                Work::Wanted(wanted) => wanted.clone(),
                Work::Flush { file, at, .. } => Wanted::Back(*file, at.clone()),
            };
            for (task, mut run, _) in waiting {
                run.outside.done.push((wanted.clone(), Err(Errno::ETIMEDOUT)));
                self.run_later(task, run);
            }
        }
    }
}

/// A lane as the number of a record.
fn lane_of(session: SessionId, lane: u32) -> FileId {
    FileId(u64::from(session.0) << 32 | u64::from(lane))
}

/// How an item ended that did not fail.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Seen(Seen),
    Flushed,
    Conflict,
}

impl End {
    fn seen(self) -> Result<Seen, Errno> {
        match self {
            End::Seen(seen) => Ok(seen),
            End::Flushed => Ok(Seen { attr: NO_ATTR, same: true, at_ms: 0 }),
            End::Conflict => Err(Errno::ESTALE),
        }
    }
}

/// The inode as if nobody had leave to write its object.
fn settled(located: &Located) -> mayfly_meta::record::Inode {
    mayfly_meta::record::Inode { unsettled: false, ..(*located.inode).clone() }
}

/// What is known of a master copy, as the keeper is told of it.
pub(crate) fn known_of(located: &Located) -> Outcome<Attr> {
    let inode = &located.inode;
    let Some(origin) = inode.origin else { return Ok(NO_ATTR) };
    let ctime = master_of(inode)?.ctime;
    let (kind, mtime, size_bytes) = (inode.kind(), origin.mtime, origin.size_bytes);
    Ok(Attr { kind, mtime, ctime, size_bytes, ..NO_ATTR })
}

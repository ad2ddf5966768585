//! What mounts are told: changes of files of which their kernel keeps pages.
//!
//! The process of a mount says of a file that the kernel has begun to keep pages of it (`Map`), for
//! a mapping; nobody says when a mapping ends. From then on the file is marked in the tables of all
//! nodes that have it open, as long as it is open anywhere. A process that has changed its bytes or
//! its length says so (`Tell`), after the change and before the call returns. The file's home asks
//! the fronts of the nodes with such mounts, and each of them hands the change to the mounts of its
//! node, which wait for that (`Watch`). A mount has dealt with what it was told when it asks for
//! more.
//!
//! So the bytes are the new ones before a page is given up, and a page that the kernel reads
//! meanwhile is read either after the change, or given up after it.
//!
//! **No circle.** A request of a mount never waits for that mount. Pages that its kernel writes
//! back have to be served while the mount gives up others, so its process tells of what it wrote
//! from a thread on which nothing else waits.
//!
//! **Bounds.** Whoever tells waits for [`NOTICE_MS`] at most. A mount that takes longer is not
//! waited for until it asks again. It is told then that anything may have changed. The same is told
//! to a mount that has more notices than [`NOTICES_MAX`], and to one whose daemon was restarted.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_transport_shm::layout::FILE_MAPPED;
use mayfly_types::{Errno, FileId, OpenRef, SessionId};
use mayfly_wire::{
    Notices, Tell, Wire, Writer,
    notices::{self, NAME_HEAD_BYTES, NOTICE_BYTES, Name},
};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::state::background::encoded,
    leases::state::mounts::{Asked, Key, Mount, News, is_late},
    message::{Change, Question},
    shard::{Shard, state::task::Purpose},
    shards::{
        numbering::{origin, session_of_node},
        slots::ShardId,
    },
};

/// Files that were mapped while they may have been being opened here. What more there is shows what
/// is changed here when somebody asks for the attributes.
const MAPPED_MAX: usize = 256;

pub(super) fn body_of(news: News) -> Result<Vec<u8>, Errno> {
    let mut packed = vec![0; news.changes.len() * NOTICE_BYTES];
    let mut to = Writer::new(&mut packed);
    for change in &news.changes {
        notices::push(change, &mut to).map_err(|_| Errno::EOVERFLOW)?;
    }
    let mut names = vec![0; news.names.iter().map(|(.., name)| NAME_HEAD_BYTES + name.len()).sum()];
    let mut to = Writer::new(&mut names);
    for (directory, file, name) in &news.names {
        let name = Name { directory: *directory, file: *file, name };
        name.encode(&mut to).map_err(|_| Errno::EOVERFLOW)?;
    }
    let all = Notices { all: news.all, changes: &packed, names: &names };
    encoded(packed.len() + names.len(), &all)
}

impl Shard {
    /// A mount's kernel keeps pages of a file: all that have it open learn so.
    pub(crate) fn map(&mut self, caller: Caller, open: OpenRef) -> Outcome<Served> {
        let id = self.files.opens.get(open)?.id;
        self.content_is_mapped();
        let node = self.node_of(caller);
        // Before others are asked, so that whoever opens it meanwhile hears of it.
        self.files.opens.set_flag(id, FILE_MAPPED);
        if let Some(file) = self.files.opens.file_mut(id)
            && !file.mapped_at.contains(&node)
        {
            file.mapped_at.push(node);
        }
        if !self.place.alone {
            // Not those that open it while these are asked.
            let nodes = match self.run.mapped_with.take() {
                Some(nodes) => nodes,
                None => self.files.opens.nodes_with(id),
            };
            self.run.mapped_with = Some(nodes.clone());
            let shards = nodes.into_iter().flat_map(|node| {
                let first = self.place.numbering.front_of(node).0;
                first..first + self.place.numbering.shards
            });
            let shards: Vec<u32> = shards.collect();
            self.facts(&shards, &Question::Mapped(id))?;
        }
        Ok(Served::Replied)
    }

    /// A mount of another node keeps pages of a file.
    pub(crate) fn mapped_elsewhere(&mut self, file: FileId) {
        if self.files.opens.file(file).is_some() {
            self.files.opens.set_flag(file, FILE_MAPPED);
            return;
        }
        // The answer to an open may be on its way.
        if self.leases.mounts.mapped.len() >= MAPPED_MAX {
            self.leases.mounts.mapped.pop_front();
        }
        self.leases.mounts.mapped.push_back(file);
    }

    fn node_of(&self, caller: Caller) -> u32 {
        origin(caller.session).map_or(self.place.numbering.node, |(node, _)| node)
    }

    /// A file was changed: answers when the mounts that may keep pages of it have dealt with that.
    pub(crate) fn tell(&mut self, caller: Caller, tell: &Tell) -> Outcome<Served> {
        let file = self.files.opens.get(tell.open)?.id;
        if !self.files.opens.has_flag(file, FILE_MAPPED) {
            return Ok(Served::Replied);
        }
        let by = self.place.numbering.session_of_all(caller.session);
        let Tell { start, end, .. } = *tell;
        let change = Change { by, request_id: caller.request_id, file, start, end };
        let mut nodes =
            self.files.opens.file(file).map_or(Vec::new(), |file| file.mapped_at.clone());
        if nodes.is_empty() {
            // An earlier daemon knew.
            nodes = self.files.opens.nodes_with(file);
            nodes.push(self.place.numbering.node);
        }
        let fronts: Vec<ShardId> =
            nodes.into_iter().map(|node| self.place.numbering.front_of(node)).collect();
        let question = Question::Changed(change);
        let own = self.place.shard;
        let others = fronts.iter().filter(|front| **front != own);
        let others: Vec<u32> =
            others.filter(|front| self.may_wait_for(**front, &question)).map(|to| to.0).collect();
        let here = fronts.contains(&self.place.shard);
        // All are told before any is waited for.
        let notified = if here { self.notify_mounts(&change) } else { Ok(()) };
        self.facts(&others, &question)?;
        for front in others {
            self.has_answered(ShardId(front));
        }
        notified.map(|()| Served::Replied)
    }

    /// Whether a node is to be told of this, and waited for; if it has not answered for long it
    /// hears later that anything may have changed.
    fn may_wait_for(&mut self, front: ShardId, question: &Question) -> bool {
        if self.known_fact(front, |known| known == question).is_some() {
            return true;
        }
        let (now, node) = (self.now, self.place.numbering.node_of(front));
        let asked =
            self.leases.mounts.asked.entry(node).or_insert(Asked { since: now, missed: false });
        if !is_late(asked.since, now) {
            return true;
        }
        // Its front hears so, too, and waits no longer for a mount that takes its time.
        if !std::mem::replace(&mut asked.missed, true) {
            self.anything_may_have_changed(front);
        }
        false
    }

    /// A node has answered what it was told.
    fn has_answered(&mut self, front: ShardId) {
        let node = self.place.numbering.node_of(front);
        let Some(asked) = self.leases.mounts.asked.remove(&node) else { return };
        if asked.missed {
            self.anything_may_have_changed(front);
        }
    }

    /// The mounts of another node have missed something.
    pub(crate) fn anything_may_have_changed(&mut self, front: ShardId) {
        self.leases.mounts.own_changes += 1;
        let by = session_of_node(self.place.numbering.node);
        let request_id = self.leases.mounts.own_changes << 16 | u64::from(self.own());
        let change = Change { by, request_id, file: FileId::NONE, start: 0, end: u64::MAX };
        self.ask(front, Question::Changed(change), Purpose::Nothing);
    }

    /// Hands a change to the mounts of this node, when it comes for the first time, and waits until
    /// all have dealt with it.
    pub(crate) fn notify_mounts(&mut self, change: &Change) -> Outcome<()> {
        let key = (change.by, change.request_id);
        match self.leases.mounts.missing.get(&key).copied() {
            None => self.hand_out(key, change),
            Some(0) => {}
            Some(_) => return Err(Fault::Busy),
        }
        match self.leases.mounts.missing.get(&key) {
            Some(0) | None => {
                self.leases.mounts.missing.remove(&key);
                Ok(())
            }
            Some(_) => Err(Fault::Busy),
        }
    }

    fn hand_out(&mut self, key: Key, change: &Change) {
        let now = self.now;
        let maker = origin(change.by).filter(|(node, _)| *node == self.place.numbering.node);
        let late = |(session, mount): (&SessionId, &Mount)| mount.is_late(now).then_some(*session);
        let late: Vec<SessionId> = self.leases.mounts.all.iter().filter_map(late).collect();
        for session in &late {
            self.leases.mounts.give_up(*session);
        }
        let (mut missing, mut answers) = (0, Vec::new());
        for (session, mount) in &mut self.leases.mounts.all {
            if maker.is_some_and(|(_, maker)| maker == *session) {
                continue;
            }
            if mount.silent {
                mount.missed = true;
                continue;
            }
            mount.add(change, now);
            missing += 1;
            if let Some(caller) = mount.waits.take() {
                answers.push((caller, mount.take()));
            }
        }
        self.leases.mounts.missing.insert(key, missing);
        for (caller, news) in answers {
            self.complete(caller, body_of(news));
        }
        if !late.is_empty() {
            self.wake_blocked();
        }
    }

    /// The process of a mount has dealt with what it was told, and waits for more.
    pub(crate) fn watch(&mut self, caller: Caller, to: &mut Writer<'_>) -> Outcome<Served> {
        let now = self.now;
        let fresh = || Mount { missed: true, ..Mount::default() };
        let mount = self.leases.mounts.all.entry(caller.session).or_insert_with(fresh);
        let done = std::mem::take(&mut mount.unanswered);
        let forgotten = std::mem::take(&mut mount.names_asked);
        mount.clean |= std::mem::take(&mut mount.told_all);
        mount.silent = false;
        mount.since = (!mount.queued.is_empty()).then_some(now);
        let news = mount.has_news().then(|| mount.take());
        let before = match &news {
            Some(_) => mount.waits.take(),
            None => mount.waits.replace(caller),
        };
        self.leases.mounts.dealt_with(&done);
        self.has_forgotten(caller.session, &forgotten);
        if !done.is_empty() || !forgotten.is_empty() {
            self.wake_blocked();
        }
        if let Some(before) = before.filter(|before| *before != caller) {
            self.complete(before, Err(Errno::EINTR));
        }
        let Some(news) = news else { return Ok(Served::Pending) };
        let body = body_of(news)?;
        to.put(&body)?;
        Ok(Served::Replied)
    }

    /// The process of a mount is gone: nobody waits for it.
    pub(crate) fn mount_ended(&mut self, session: SessionId) {
        if self.leases.mounts.all.contains_key(&session) {
            self.leases.mounts.give_up(session);
            self.leases.mounts.all.remove(&session);
            self.leases.mount_names.ended(session);
            self.node.head.mounts.known.store(self.leases.mounts.clean(), Relaxed);
            self.wake_blocked();
        }
    }
}

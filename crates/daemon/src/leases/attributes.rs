//! Attributes of other nodes' files under a lease.
//!
//! A process that looks at many files of a directory which another node has would ask that one for
//! each. Its node asks for what it may keep instead ([`Question::File`]): the file's home notes
//! that the asker remembers the one name of the file, and has it forgotten before the name or the
//! file changes, as with names of directories ([`crate::namespace::dentry_cache`]). What is kept
//! stands in the records, too, where processes look by themselves
//! ([`super::shown_names`]).
//!
//! A file is told so only while it is at rest: nobody may write to it, it has one name, and neither
//! it nor its directory has changed for a moment. In a directory that is delegated names are
//! changed by processes, who tell nobody; so that ends.

use mayfly_meta::{
    key,
    record::{Content, Dentry, Inode},
};
use mayfly_types::{Attr, Errno, FileId, FileKind, Times, Timestamp};
use mayfly_wire::{Request, Wire, Writer};

use crate::{
    fault::{Fault, Outcome, Served},
    maps::HashMap,
    message::{Answer, At, MemberFacts, Question, Resolved},
    namespace::{dentry_cache::Cached, open::opens_to_read, state::member::Parent},
    shard::Shard,
    shards::{
        planted::{Planted, is_planted},
        slots::ShardId,
    },
    transactions::state::prepare_locks::PrepareLock,
};

/// Files of one directory are asked for one by one so often, in a row. Then their answers are kept.
const IN_A_ROW: i32 = 4;
/// After an answer that may not be kept so many more are not asked to be.
const REFUSED: i32 = 60;
/// Directories of which it is known how often files in them were asked for.
const DIRECTORIES_MAX: usize = 256;

/// How often files of other nodes' directories were asked for in a row.
#[derive(Debug, Default)]
pub(crate) struct AskedFiles {
    counts: HashMap<FileId, i32>,
}

impl AskedFiles {
    /// One more; true when the answer should be kept.
    fn count(&mut self, directory: FileId) -> bool {
        if self.counts.len() >= DIRECTORIES_MAX && !self.counts.contains_key(&directory) {
            self.counts.clear();
        }
        let count = self.counts.entry(directory).or_default();
        *count = (*count + 1).min(IN_A_ROW);
        *count >= IN_A_ROW
    }

    fn refused(&mut self, directory: FileId) {
        self.counts.insert(directory, -REFUSED);
    }

    /// Something in the directory is changed by this node's processes.
    pub(crate) fn changes(&mut self, directory: FileId) {
        self.counts.remove(&directory);
    }
}

impl Shard {
    /// stat of a file whose name is another shard's, unless that has to be asked by the request
    /// itself.
    pub(crate) fn stat_elsewhere(
        &mut self,
        owner: ShardId,
        place: Box<Resolved>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let At::Path(directory, name, upto) = &place.at else {
            return Err(Fault::Elsewhere(owner, place));
        };
        if self.run.place.at != At::Start || name.contains(&b'/') {
            return Err(Fault::Elsewhere(owner, place));
        }
        let known = self.namespace.cache.get(
            key::cookie(*directory, name),
            *directory,
            name,
            self.now.seconds,
        );
        if let Some(Cached::File(attr)) = known {
            attr.encode(to)?;
            return Ok(Served::Replied);
        }
        let question = Question::File { directory: *directory, name: name.clone(), upto: *upto };
        let is_asked = self.known_fact(owner, |asked| *asked == question).is_some();
        if !is_asked && !self.leases.asked_files.count(*directory) {
            return Err(Fault::Elsewhere(owner, place));
        }
        match self.fact(owner, question)? {
            Answer::File { record, cacheable } => {
                if !cacheable {
                    self.leases.asked_files.refused(*directory);
                }
                let Some(attr) = self.attr_sent(&record) else {
                    return Err(Fault::Elsewhere(owner, place));
                };
                attr.encode(to)?;
                Ok(Served::Replied)
            }
            _ => Err(Fault::Elsewhere(owner, place)),
        }
    }

    /// A request is sent on to another shard. What this node's processes change themselves they
    /// would have to make it forget first.
    pub(crate) fn note_change_elsewhere(&mut self, request: &Request<'_>, place: &Resolved) {
        let reads = matches!(
            request,
            Request::Stat(_)
                | Request::ReadLink(_)
                | Request::List(_)
                | Request::GetXattr(_)
                | Request::ListXattr(_)
                | Request::Reach(_)
        );
        if let At::Path(directory, ..) = &place.at
            && !(reads || matches!(request, Request::Open(open) if opens_to_read(open.flags)))
        {
            self.leases.asked_files.changes(*directory);
        }
    }

    /// The attributes in a record that another shard has sent.
    pub(crate) fn attr_sent(&self, record: &[u8]) -> Option<Attr> {
        let Ok(Dentry::Fused(inode)) = Dentry::decode(record) else { return None };
        let regular = inode.kind() == FileKind::Regular && !inode.unsettled;
        regular.then(|| self.attr_from(&inode, None, &MemberFacts::default()).ok()).flatten()
    }

    /// Tells another shard of a file, which may remember it if it is at rest. What is no regular
    /// file, or has its inode elsewhere, or a length that is not known here, is not told.
    pub(crate) fn tell_file(
        &mut self,
        from: ShardId,
        (directory, upto): (FileId, u64),
        name: &[u8],
    ) -> Outcome<Answer> {
        self.namespace.seats.learn(directory, upto);
        let cookie = key::cookie(directory, name);
        if let Some(answer) = self.name_is_elsewhere(directory, cookie) {
            return Ok(answer);
        }
        let untold = Answer::File { record: Vec::new(), cacheable: false };
        let Some((id, FileKind::Regular)) = self.lookup(directory, name)? else {
            return Ok(untold);
        };
        if !self.is_home(id) {
            return Ok(untold);
        }
        self.links_at_rest(id)?;
        let mut inode = match self.load_under(id, directory, cookie, name.to_vec()) {
            Ok(located) => located.inode,
            Err(Fault::Errno(Errno::ENOENT)) => return Ok(untold),
            Err(fault) => return Err(fault),
        };
        if inode.unsettled {
            return Ok(untold);
        }
        let cacheable = self.is_at_rest(directory, name, &inode)? && {
            let until = self.now.seconds + self.config.lease_seconds + 1;
            let (now, room) = (self.now.seconds, self.config.cached_dentries_max);
            let remembered = &self.namespace.remembered;
            let is_over = |directory, name: &[u8]| remembered.of(directory, name, now).is_empty();
            self.leases.attributes.note(id, (directory, name), (now, room), is_over)
                && self.namespace.remembered.note((directory, name), (from.0, until), (now, room))
        };
        if let Content::Inline(bytes) = &mut inode.content {
            bytes.clear();
        }
        let mut record = Vec::new();
        inode.encode_fused_to(&mut record);
        Ok(Answer::File { record, cacheable })
    }

    /// Whether the file is one that does not change in the next moment, as far as one can know, and
    /// not without this shard.
    fn is_at_rest(&mut self, directory: FileId, name: &[u8], inode: &Inode) -> Outcome<bool> {
        let id = inode.id;
        let claims =
            [(PrepareLock::Name(directory, name.to_vec()), true), (PrepareLock::File(id), true)];
        if inode.links != 1
            || self.config.times == Times::All
            || self.transactions.prepare_locks.in_the_way(&claims, None).is_some()
            || self.is_written(id)
        {
            return Ok(false);
        }
        let changed = match self.load_parent(directory)? {
            Parent::Home(located) => located.inode.mtime,
            Parent::Member(_, member) => member.mtime,
        };
        let rests = |since: Timestamp| {
            let ns = (self.now.seconds - since.seconds).saturating_mul(1_000_000_000)
                + i64::from(self.now.nanoseconds)
                - i64::from(since.nanoseconds);
            ns >= self.config.at_rest_ms * 1_000_000
        };
        if !rests(changed) || !rests(inode.ctime) {
            return Ok(false);
        }
        // Who could change its names without asking has not for a moment. If he has just now, what
        // was looked at may be different already.
        let within = self.covering(directory);
        Ok(!within.is_some_and(|within| self.recall(within.root)))
    }

    /// Whether somebody may write to the file.
    fn is_written(&self, id: FileId) -> bool {
        self.files.opens.file(id).is_some()
            && self.files.opens.all().any(|(_, open)| open.id == id && open.may_write())
    }

    /// A file of this shard is about to change: who may know its attributes forgets them first.
    /// Nothing may have been written before.
    pub(crate) fn have_file_forgotten(&mut self, id: FileId) -> Outcome<()> {
        if self.leases.attributes.is_empty() || is_planted(Planted::FileNotForgotten) {
            return Ok(());
        }
        let Some((directory, name)) = self.leases.attributes.name(id) else { return Ok(()) };
        let (name, now) = (name.to_vec(), self.now.seconds);
        let who = self.namespace.remembered.of(directory, &name, now).to_vec();
        let question = Question::Forget { directory, name };
        // Twice as long as it takes at most until nobody believes it any more.
        self.leases.attributes.is_to_change(id, now + 2 * (self.config.lease_seconds + 1));
        self.facts(&who, &question)?;
        if let Question::Forget { directory, name } = &question {
            self.namespace.remembered.remove(*directory, name);
        }
        self.leases.attributes.remove(id);
        // It may be told again before this run is repeated.
        self.run.facts.retain(|(_, asked, _)| *asked != question);
        Ok(())
    }
}

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
    Scan, key,
    record::{Content, Dentry, Inode},
};
use mayfly_types::{
    Attr, Errno, FileId, FileKind, Times, Timestamp,
    limits::{CONTENTS_TOLD_BYTES_MAX, NAME_BYTES_MAX},
};
use mayfly_wire::{Request, Wire, Writer};

use crate::{
    fault::{Fault, Outcome, Served},
    leases::kept_files::AHEAD_SECONDS,
    maps::HashMap,
    message::{Answer, At, MemberFacts, NamedRecord, Question, Resolved},
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
/// Who goes on where the last answer has ended asks for twice as many behind it as before, and for
/// no more than so many; who does not, for half as many. At none of them answers are kept no more,
/// but of files that are asked for again.
pub(crate) const MORE_FILES_MAX: u16 = 128;
/// No more records are looked at than so many for each of them.
const LOOKED_AT_FOR_EACH: usize = 4;
/// After an answer that may not be kept yet so many are not asked to be. After one that told
/// nothing, or that was not gone on behind, it is the next time twice as many, up to the second
/// number.
const SKIPPED: [i32; 2] = [60, 1 << 12];
/// Files that are known to have been asked for once.
const ONCE_MAX: usize = 65_536;
/// Directories of which it is known how often files in them were asked for.
const DIRECTORIES_MAX: usize = 256;

/// What was asked for in a directory.
#[derive(Debug, Default)]
struct Asked {
    in_a_row: i32,
    /// With how many others.
    more: u16,
    /// The positions in the listing of the first and the last file of the last answer.
    last: Option<(u64, u64)>,
    /// Its files change.
    refused: bool,
    /// So many were not asked to be kept the last time.
    skipped: i32,
}

impl Asked {
    /// The next ones are not asked to be kept.
    fn skip(&mut self, refused: bool, again_soon: bool) {
        let [least, most] = SKIPPED;
        let skipped = if again_soon { least } else { (2 * self.skipped).clamp(least, most) };
        *self = Asked { in_a_row: -skipped, skipped, refused, ..Asked::default() };
    }

    /// Whether the position is about where the last answer has ended. Positions are hashes, so
    /// names are as far apart everywhere.
    fn goes_on_at(&self, cookie: u64) -> bool {
        self.last.is_none_or(|(first, last)| {
            cookie > last && cookie - last <= (last - first).saturating_mul(4)
        })
    }
}

/// How files of other nodes' directories were asked for.
#[derive(Debug, Default)]
pub(crate) struct AskedFiles {
    directories: HashMap<FileId, Asked>,
    /// Positions, which are hashes of directory and name, of files that were asked for, and the
    /// second until which it pays to keep them when they are asked for again.
    once: HashMap<u64, i64>,
}

impl AskedFiles {
    /// One more, at this position of the listing. With how many others it should be asked for, to
    /// be kept.
    pub(super) fn count(
        &mut self,
        (directory, cookie): (FileId, u64),
        (now, pays_seconds): (i64, i64),
    ) -> Option<u16> {
        if self.directories.len() >= DIRECTORIES_MAX && !self.directories.contains_key(&directory) {
            self.directories.clear();
        }
        let asked = self.directories.entry(directory).or_default();
        asked.in_a_row += 1;
        if asked.in_a_row >= IN_A_ROW {
            asked.in_a_row = IN_A_ROW;
            asked.refused = false;
            if asked.goes_on_at(cookie) {
                if asked.more > 0 {
                    asked.skipped = 0;
                }
                asked.more = (2 * asked.more).clamp(IN_A_ROW as u16, MORE_FILES_MAX);
                return Some(asked.more);
            }
            asked.more /= 2;
            if asked.more > 0 {
                return Some(asked.more);
            }
            asked.skip(false, false);
        }
        let refused = asked.refused;
        if self.once.len() >= ONCE_MAX {
            self.once.clear();
        }
        let again = self.once.insert(cookie, now + pays_seconds).is_some_and(|until| now < until);
        (again && !refused).then_some(0)
    }

    /// The answer had files from one position to another.
    fn answered(&mut self, directory: FileId, first: u64, last: u64) {
        if let Some(asked) = self.directories.get_mut(&directory) {
            asked.last = Some((first, last));
        }
    }

    /// What was asked for may not be kept; was it told?
    pub(super) fn refused(&mut self, directory: FileId, told: bool) {
        self.directories.entry(directory).or_default().skip(true, told);
    }

    /// Something in the directory is changed by this node's processes.
    pub(crate) fn changes(&mut self, directory: FileId) {
        self.directories.remove(&directory);
    }
}

/// Whether the question is about this file.
fn is_about(question: &Question, at: FileId, of: &[u8]) -> bool {
    matches!(question, Question::File { directory, name, .. } if *directory == at && *name == of)
}

/// As a dentry's record would be that has the inode; of an empty file unless the bytes are told.
fn record_of(mut inode: Box<Inode>, contents: bool) -> Vec<u8> {
    if let Content::Inline(bytes) = &mut inode.content
        && !contents
    {
        bytes.clear();
    }
    let mut record = Vec::new();
    inode.encode_fused_to(&mut record);
    record
}

/// How many bytes are told with the file, if they are.
fn bytes_of(inode: &Inode) -> usize {
    if let Content::Inline(bytes) = &inode.content { bytes.len() } else { 0 }
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
        let cookie = key::cookie(*directory, name);
        let known = self.namespace.cache.get(cookie, *directory, name, self.leases.now);
        if let Some(Cached::File(attr, _)) = known {
            attr.encode(to)?;
            return Ok(Served::Replied);
        }
        let answer = match self.known_fact(owner, |asked| is_about(asked, *directory, name)) {
            Some(answer) => answer,
            None => {
                let at = (*directory, cookie);
                let Some(more) = self.leases.asked_files.count(at, self.pays()) else {
                    return Err(Fault::Elsewhere(owner, place));
                };
                let (directory, name, upto) = (*directory, name.clone(), *upto);
                let question = Question::File { directory, name, upto, more, contents: false };
                self.fact(owner, question)?
            }
        };
        let Answer::File { record, cacheable, .. } = answer else {
            return Err(Fault::Elsewhere(owner, place));
        };
        if !cacheable {
            self.leases.asked_files.refused(*directory, !record.is_empty());
        }
        let Some(attr) = self.attr_sent(&record) else {
            return Err(Fault::Elsewhere(owner, place));
        };
        attr.encode(to)?;
        Ok(Served::Replied)
    }

    /// The present, and for how long what is kept can be used, seconds.
    pub(super) fn pays(&self) -> (i64, i64) {
        (self.leases.now, self.config.leases.seconds)
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
            self.leases.asked_contents.changes(*directory);
        }
    }

    /// The attributes in a record that another shard has sent.
    pub(crate) fn attr_sent(&self, record: &[u8]) -> Option<Attr> {
        self.file_sent(record).map(|(attr, _)| attr)
    }

    /// The same, and whether all bytes of the file are there.
    fn file_sent(&self, record: &[u8]) -> Option<(Attr, bool)> {
        let Ok(Dentry::Fused(inode)) = Dentry::decode(record) else { return None };
        if inode.kind() != FileKind::Regular || inode.unsettled {
            return None;
        }
        let attr = self.attr_from(&inode, None, &MemberFacts::default()).ok()?;
        let whole = matches!(&inode.content, Content::Inline(bytes)
            if bytes.len() as u64 == attr.size_bytes);
        Some((attr, whole))
    }

    /// Keeps files of which another shard has told that they may be kept until then.
    pub(crate) fn keep_files<'a>(
        &mut self,
        (directory, contents): (FileId, bool),
        files: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        until: i64,
    ) {
        let mut positions = None;
        for (name, record) in files.take(usize::from(MORE_FILES_MAX) + 1) {
            let cookie = key::cookie(directory, name);
            positions = Some((positions.map_or(cookie, |(first, _)| first), cookie));
            let sent = self.file_sent(record).filter(|_| name.len() <= NAME_BYTES_MAX);
            let Some((attr, whole)) = sent else { continue };
            let whole = contents && whole;
            let cached = Cached::File(Box::new(attr), whole);
            self.namespace.cache.insert(directory, name, cached, until);
            let shown_until = if whole { until - AHEAD_SECONDS } else { until };
            self.show_name((directory, name), (attr.id, shown_until), record);
            if whole {
                self.leases.kept_files.may_be_read(self.leases.now, until);
            }
        }
        if let Some((first, last)) = positions {
            let leases = &mut self.leases;
            let asked = if contents { &mut leases.asked_contents } else { &mut leases.asked_files };
            asked.answered(directory, first, last);
        }
    }

    /// Tells another shard of a file and of some behind it, which it may remember if they are at
    /// rest. What is no regular file, or has its inode elsewhere, or a length that is not known
    /// here, is not told.
    pub(crate) fn tell_file(
        &mut self,
        from: ShardId,
        (directory, upto): (FileId, u64),
        name: &[u8],
        (more, contents): (u16, bool),
    ) -> Outcome<Answer> {
        self.namespace.seats.learn(directory, upto);
        let cookie = key::cookie(directory, name);
        if let Some(answer) = self.name_is_elsewhere(directory, cookie) {
            return Ok(answer);
        }
        let untold = Answer::File { record: Vec::new(), cacheable: false, more: Vec::new() };
        let Some((id, FileKind::Regular)) = self.lookup(directory, name)? else {
            return Ok(untold);
        };
        if !self.is_home(id) {
            return Ok(untold);
        }
        self.links_at_rest(id)?;
        let inode = match self.load_under(id, directory, cookie, name.to_vec()) {
            Ok(located) => located.inode,
            Err(Fault::Errno(Errno::ENOENT)) => return Ok(untold),
            Err(fault) => return Err(fault),
        };
        self.file_at_hand(&inode)?;
        if inode.unsettled {
            return Ok(untold);
        }
        // What was seen outside is believed for a shorter time.
        let is_at_rest = inode.origin.is_none() && self.is_directory_at_rest(directory)?;
        let cacheable = is_at_rest && self.lease_file(from, (directory, name), &inode);
        let contents = contents && cacheable;
        let room_bytes = contents.then(|| CONTENTS_TOLD_BYTES_MAX - bytes_of(&inode));
        let more = if cacheable {
            self.files_behind(from, (directory, cookie), more, room_bytes)?
        } else {
            Vec::new()
        };
        Ok(Answer::File { record: record_of(inode, contents), cacheable, more })
    }

    /// Records of files behind that position of a listing, whose inodes are in the records of their
    /// names, and which the other shard may remember from now on; with their bytes, and no more
    /// than have room, if that is said.
    fn files_behind(
        &mut self,
        from: ShardId,
        (directory, cookie): (FileId, u64),
        count: u16,
        room_bytes: Option<usize>,
    ) -> Outcome<Vec<NamedRecord>> {
        let count = usize::from(count.min(MORE_FILES_MAX));
        let (prefix, mut seen, mut bytes) = (key::directory(directory), 0, 0);
        let mut found: Vec<(Vec<u8>, Box<Inode>)> = Vec::new();
        self.store.scan(
            &prefix,
            &key::directory_from(directory, cookie + 1),
            &mut |key, record| {
                seen += 1;
                if let Some((_, _, name)) = key::split_dentry(key)
                    && let Ok(Dentry::Fused(inode)) = Dentry::decode(record)
                    && inode.kind() == FileKind::Regular
                    && !inode.unsettled
                {
                    bytes += bytes_of(&inode);
                    if room_bytes.is_some_and(|room| bytes > room) {
                        return Scan::Enough;
                    }
                    found.push((name.to_vec(), inode));
                }
                let enough = found.len() >= count || seen >= LOOKED_AT_FOR_EACH * count;
                if enough { Scan::Enough } else { Scan::More }
            },
        )?;
        found.retain(|(name, inode)| self.lease_file(from, (directory, name), inode));
        let named = |(name, inode)| {
            let record = record_of(inode, room_bytes.is_some());
            NamedRecord { name, record }
        };
        Ok(found.into_iter().map(named).collect())
    }

    /// The other shard may remember the file, if that is at rest and there is room.
    fn lease_file(
        &mut self,
        to: ShardId,
        (directory, name): (FileId, &[u8]),
        inode: &Inode,
    ) -> bool {
        if !self.is_at_rest(directory, name, inode) {
            return false;
        }
        let until = self.waited_until();
        let (now, room) = (self.leases.now, self.config.cached_dentries_max);
        let remembered = &self.namespace.remembered;
        let is_over = |directory, name: &[u8]| remembered.of(directory, name, now).is_empty();
        self.leases.attributes.note(inode.id, (directory, name), (now, room), is_over)
            && self.namespace.remembered.note((directory, name), (to.0, until), (now, room))
    }

    /// Whether the file is one that does not change in the next moment, as far as one can know.
    pub(super) fn is_at_rest(&self, directory: FileId, name: &[u8], inode: &Inode) -> bool {
        let id = inode.id;
        let claims =
            || [(PrepareLock::Name(directory, name.to_vec()), true), (PrepareLock::File(id), true)];
        let locks = &self.transactions.prepare_locks;
        inode.links == 1
            && self.config.times != Times::All
            && (locks.is_empty() || locks.in_the_way(&claims(), None).is_none())
            && !self.is_written(id)
            && self.rests_since(inode.ctime)
    }

    /// Whether no names of the directory have changed for a moment, and none do from now on without
    /// this shard.
    pub(super) fn is_directory_at_rest(&mut self, directory: FileId) -> Outcome<bool> {
        let changed = match self.load_parent(directory)? {
            Parent::Home(located) => located.inode.mtime,
            Parent::Member(_, member) => member.mtime,
        };
        if !self.rests_since(changed) {
            return Ok(false);
        }
        // Who could change its names without asking has not for a moment. If he has just now, what
        // was looked at may be different already.
        let within = self.covering(directory);
        Ok(!within.is_some_and(|within| self.recall(within.root)))
    }

    fn rests_since(&self, changed: Timestamp) -> bool {
        let ns = (self.now.seconds - changed.seconds).saturating_mul(1_000_000_000)
            + i64::from(self.now.nanoseconds)
            - i64::from(changed.nanoseconds);
        ns >= self.config.leases.at_rest_ms * 1_000_000
    }

    /// Whether somebody may write to the file.
    fn is_written(&self, id: FileId) -> bool {
        self.files.opens.file(id).is_some_and(|file| file.writers > 0)
    }

    /// A file of this shard is about to change: who may know its attributes forgets them first.
    /// Nothing may have been written before.
    pub(crate) fn have_file_forgotten(&mut self, id: FileId) -> Outcome<()> {
        self.have_mounts_forget_file(id)?;
        if self.leases.attributes.is_empty() || is_planted(Planted::FileNotForgotten) {
            return Ok(());
        }
        let Some((directory, name)) = self.leases.attributes.name(id) else { return Ok(()) };
        let (name, now) = (name.to_vec(), self.leases.now);
        let who = self.namespace.remembered.of(directory, &name, now).to_vec();
        // Twice as long as it takes at most until nobody believes it any more.
        self.leases.attributes.is_to_change(id, now + 2 * (self.waited_until() - now));
        let question = Question::Forget { directory, name: name.clone() };
        self.facts(&who, &question)?;
        self.namespace.remembered.remove(directory, &name);
        self.leases.attributes.remove(id);
        // It may be told again before this run is repeated.
        self.run.facts.retain(|(_, asked, _)| *asked != question);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: FileId = FileId(7);
    const NOW: i64 = 1;

    /// What is asked for at these positions, when each answer has as many as were asked for.
    fn asked(positions: impl Iterator<Item = u64>) -> Vec<u16> {
        const APART: u64 = 1000;
        let mut files = AskedFiles::default();
        let mut known_up_to = 0;
        let mut counts = Vec::new();
        for at in positions.map(|position| position * APART) {
            if at > known_up_to
                && let Some(more) = files.count((DIRECTORY, at), (NOW, 4))
            {
                files.answered(DIRECTORY, at, at + u64::from(more) * APART);
                known_up_to = at + u64::from(more) * APART;
                counts.push(more);
            }
        }
        counts
    }

    #[test]
    fn who_goes_on_in_the_order_of_a_listing_is_told_of_more_each_time() {
        assert_eq!(asked(1..400), [4, 8, 16, 32, 64, 128, 128, 128]);
    }

    #[test]
    fn who_asks_here_and_there_is_told_of_what_he_asks_for_again() {
        let mut files = AskedFiles::default();
        let mut ask = |at: u64| {
            let more = files.count((DIRECTORY, at), (NOW, 4))?;
            files.answered(DIRECTORY, at, at + u64::from(more));
            Some(more)
        };
        let positions = || (0..40).map(|at| at * 7919 % 100 * 1_000_000);
        let first: Vec<Option<u16>> = positions().map(&mut ask).collect();
        assert_eq!(first[..6], [None, None, None, Some(4), Some(2), Some(1)]);
        assert_eq!(first[6..], [None; 34]);
        let again: Vec<Option<u16>> = positions().map(&mut ask).collect();
        assert_eq!(again[6..20], [Some(0); 14]);
    }

    #[test]
    fn who_asks_for_the_same_much_later_is_not_told() {
        let mut files = AskedFiles::default();
        let mut ask = |now| files.count((DIRECTORY, 1), (now, 4));
        assert_eq!([ask(10), ask(14), ask(17)], [None, None, Some(0)]);
    }
}

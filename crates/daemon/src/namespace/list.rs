//! Listing a directory.
//!
//! Entries come in the order of their cookies, which follow from the names alone and begin with the
//! slot, so a position also says which shard has the entries that come next. So a listing that
//! goes on after entries were made and removed, or after the daemon was restarted, shows every
//! entry that was there all the time, once.

use mayfly_meta::{
    Scan, key,
    record::{Dentry, DirectoryNode},
};
use mayfly_types::{
    Errno, FileId, FileKind,
    limits::{LISTED_MEMBERS_MAX, NAME_BYTES_MAX, TRANSFER_BYTES_MAX},
};
use mayfly_wire::{
    List, Listing, Wire, Writer,
    listing::{Entry, entries},
};

use crate::{
    fault::{Fault, Outcome, Served},
    message::{Answer, Question},
    namespace::state::member::unexpected,
    shard::Shard,
    shards::slots::ShardId,
};

const COOKIE_DOT: u64 = 1;
const COOKIE_DOT_DOT: u64 = 2;
/// The largest position, since it is reported as a signed number.
const COOKIE_MAX: u64 = u64::MAX >> 1;
/// A packed entry with a name of usual length, bytes.
const ENTRY_BYTES: usize = 40;
/// One with the longest name, and some more.
const ENTRY_BYTES_MAX: usize = NAME_BYTES_MAX + 64;

struct Page {
    packed: Vec<u8>,
    used: usize,
}

/// The shards that may have entries besides the directory's home.
struct Members {
    sorted: Vec<u32>,
    /// Entries at home: as many as each of the others will have, more or less.
    at_home: u64,
}

impl Members {
    fn of(node: &DirectoryNode) -> Members {
        let mut sorted = node.members.clone();
        sorted.sort_unstable();
        Members { sorted, at_home: node.entries }
    }

    fn contains(&self, shard: ShardId) -> bool {
        self.sorted.binary_search(&shard.0).is_ok()
    }

    /// Bytes of the entries that one of them will have.
    fn share_bytes(&self) -> usize {
        let entries = usize::try_from(self.at_home).unwrap_or(usize::MAX);
        entries.saturating_add(1).saturating_mul(ENTRY_BYTES)
    }
}

impl Page {
    fn push(&mut self, entry: &Entry<'_>) -> bool {
        let mut to = Writer::new(&mut self.packed[self.used..]);
        let fits = entry.encode(&mut to).is_ok();
        if fits {
            self.used += to.used();
        }
        fits
    }
}

impl Shard {
    pub(crate) fn list(&mut self, list: &List, to: &mut Writer<'_>) -> Outcome<Served> {
        let open = self.files.opens.get(list.open)?;
        if !open.may_read() {
            return Err(Errno::EBADF.into());
        }
        if list.cookie == 0 {
            self.names_at_hand(open.id)?;
        }
        let located = self.load_own(open.id).map_err(|_| Errno::ENOTDIR)?;
        let (parent, members) = {
            let node = located.directory()?;
            (node.parent, Members::of(node))
        };
        let bytes_max = (list.bytes_max as usize).min(TRANSFER_BYTES_MAX);
        let mut page = Page { packed: vec![0; bytes_max], used: 0 };
        let removed = located.inode.links == 0;
        if !removed && !self.fill(&mut page, open.id, (parent, &members), list.cookie)? {
            return Err(Errno::EINVAL.into());
        }
        Listing { entries: &page.packed[..page.used] }.encode(to)?;
        Ok(Served::Replied)
    }

    /// False when not even the first entry fits.
    fn fill(
        &mut self,
        page: &mut Page,
        directory: FileId,
        (parent, members): (FileId, &Members),
        cookie: u64,
    ) -> Outcome<bool> {
        let dots = [(b".".as_slice(), directory, COOKIE_DOT), (b"..", parent, COOKIE_DOT_DOT)];
        for (name, id, own) in dots {
            let entry = Entry { id, kind: FileKind::Directory, next_cookie: own, name };
            if cookie < own && !page.push(&entry) {
                return Ok(page.used > 0);
            }
        }
        let Some(from) = cookie.max(COOKIE_DOT_DOT).checked_add(1) else { return Ok(true) };
        self.fill_names(page, directory, members, from)
    }

    /// Goes from owner to owner as the cookies do. What is to be had from other members is asked of
    /// several of them at a time, as many as the page will probably have room for: a small
    /// directory is listed at once, and no more is asked for of a wide one than is shown.
    fn fill_names(
        &mut self,
        page: &mut Page,
        directory: FileId,
        members: &Members,
        mut from: u64,
    ) -> Outcome<bool> {
        while from <= COOKIE_MAX {
            let (owner, until) = self.names_at(directory, from);
            if owner == self.place.shard {
                if self.fill_here(page, directory, (from, until))? {
                    return Ok(page.used > 0);
                }
            } else if members.contains(owner) {
                let Some(answer) = self.known_entries(owner, directory, (from, until)) else {
                    return Err(self.ask_members(page, directory, members, from));
                };
                let (packed, more) = match answer {
                    Answer::Entries { packed, more } => (packed, more),
                    Answer::Failed(Errno::EINVAL) => return Ok(page.used > 0),
                    answer => return Err(unexpected(&answer)),
                };
                let mut last = None;
                for entry in entries(&packed) {
                    let entry = entry.map_err(|_| Errno::EIO)?;
                    if !page.push(&entry) {
                        return Ok(page.used > 0);
                    }
                    last = Some(entry.next_cookie);
                }
                if let Some(last) = last.filter(|_| more) {
                    // What did not fit into the answer comes next.
                    from = last + 1;
                    continue;
                }
            }
            from = until;
        }
        Ok(true)
    }

    /// What a member has said of its entries from a position on, however many it was asked for: the
    /// room for them may be another one when the listing is run again.
    fn known_entries(
        &self,
        owner: ShardId,
        directory: FileId,
        range: (u64, u64),
    ) -> Option<Answer> {
        self.known_fact(owner, |question| match question {
            Question::Entries { directory: of, from, until, .. } => {
                *of == directory && (*from, *until) == range
            }
            _ => false,
        })
    }

    /// Asks the member at `from` and those that come next.
    fn ask_members(
        &self,
        page: &Page,
        directory: FileId,
        members: &Members,
        mut from: u64,
    ) -> Fault {
        let room = page.packed.len() - page.used;
        let count = (room / members.share_bytes()).clamp(1, LISTED_MEMBERS_MAX);
        // As much again as each is expected to have.
        let bytes_max = if count == 1 { room } else { (2 * room / count).max(ENTRY_BYTES_MAX) };
        let bytes_max = bytes_max.min(TRANSFER_BYTES_MAX) as u32;
        let mut questions = Vec::with_capacity(count.min(members.sorted.len()));
        while from <= COOKIE_MAX && questions.len() < count {
            let (owner, until) = self.names_at(directory, from);
            if owner != self.place.shard
                && members.contains(owner)
                && self.known_entries(owner, directory, (from, until)).is_none()
            {
                questions.push((owner, Question::Entries { directory, from, until, bytes_max }));
            }
            from = until;
        }
        Fault::Ask(questions)
    }

    /// Packed entries of the directory here, as many as fit, and whether there are more; EINVAL
    /// when not even the first one fits.
    pub(crate) fn entries(
        &mut self,
        directory: FileId,
        range: (u64, u64),
        bytes_max: u32,
    ) -> Outcome<(Vec<u8>, bool)> {
        let bytes_max = (bytes_max as usize).min(TRANSFER_BYTES_MAX);
        let mut page = Page { packed: vec![0; bytes_max], used: 0 };
        let more = self.fill_here(&mut page, directory, range)?;
        if more && page.used == 0 {
            return Err(Errno::EINVAL.into());
        }
        page.packed.truncate(page.used);
        Ok((page.packed, more))
    }

    /// Adds entries of the directory here; true when there are more than fit.
    fn fill_here(
        &mut self,
        page: &mut Page,
        directory: FileId,
        (from, until): (u64, u64),
    ) -> Outcome<bool> {
        let prefix = key::directory(directory);
        let mut corrupt = false;
        let mut full = false;
        self.store.scan(&prefix, &key::directory_from(directory, from), &mut |key, record| {
            let (Some((_, next_cookie, name)), Ok((id, kind))) =
                (key::split_dentry(key), Dentry::peek(record))
            else {
                corrupt = true;
                return Scan::Enough;
            };
            if next_cookie >= until {
                return Scan::Enough;
            }
            full = !page.push(&Entry { id, kind, next_cookie, name });
            if full { Scan::Enough } else { Scan::More }
        })?;
        if corrupt { Err(Errno::EIO.into()) } else { Ok(full) }
    }
}

//! Listing a directory.
//!
//! Entries come in the order of their cookies, which follow from the names alone and begin with the
//! slot, so a position also says which shard has the entries that come next. So a listing that
//! goes on after entries were made and removed, or after the daemon was restarted, shows every
//! entry that was there all the time, once.

use mayfly_meta::{Scan, key, record::Dentry};
use mayfly_types::{Errno, FileId, FileKind, limits::TRANSFER_BYTES_MAX};
use mayfly_wire::{
    List, Listing, Wire, Writer,
    listing::{Entry, entries},
};

use super::{Core, Outcome, Served, member::unexpected};
use crate::message::{Answer, Question};

const COOKIE_DOT: u64 = 1;
const COOKIE_DOT_DOT: u64 = 2;
/// The largest position, since it is reported as a signed number.
const COOKIE_MAX: u64 = u64::MAX >> 1;

struct Page {
    packed: Vec<u8>,
    used: usize,
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

impl Core {
    pub(super) fn list(&mut self, list: &List, to: &mut Writer<'_>) -> Outcome<Served> {
        let open = self.opens.get(list.open)?;
        if !open.may_read() {
            return Err(Errno::EBADF.into());
        }
        let located = self.load_own(open.id).map_err(|_| Errno::ENOTDIR)?;
        let (parent, members) = {
            let node = located.directory()?;
            (node.parent, node.members.clone())
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
        (parent, members): (FileId, &[u32]),
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

    /// Goes from owner to owner as the cookies do.
    fn fill_names(
        &mut self,
        page: &mut Page,
        directory: FileId,
        members: &[u32],
        mut from: u64,
    ) -> Outcome<bool> {
        while from <= COOKIE_MAX {
            let (owner, until) = self.slots.run_at(from);
            let bytes_max = page.packed.len() as u32;
            if owner == self.shard {
                if self.fill_here(page, directory, (from, until))? {
                    return Ok(page.used > 0);
                }
            } else if members.contains(&owner.0) {
                let question = Question::Entries { directory, from, until, bytes_max };
                let packed = match self.fact(owner, question)? {
                    Answer::Entries(packed) => packed,
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
                if let Some(last) = last {
                    // What did not fit into the answer comes next.
                    from = last + 1;
                    continue;
                }
            }
            from = until;
        }
        Ok(true)
    }

    /// Packed entries of the directory here, as many as fit; EINVAL when not even the first one
    /// does.
    pub(super) fn entries(
        &mut self,
        directory: FileId,
        range: (u64, u64),
        bytes_max: u32,
    ) -> Outcome<Vec<u8>> {
        let bytes_max = (bytes_max as usize).min(TRANSFER_BYTES_MAX);
        let mut page = Page { packed: vec![0; bytes_max], used: 0 };
        if self.fill_here(&mut page, directory, range)? && page.used == 0 {
            return Err(Errno::EINVAL.into());
        }
        page.packed.truncate(page.used);
        Ok(page.packed)
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

//! Listing a directory.
//!
//! Entries come in the order of their cookies, which follow from the names alone. So a listing that
//! goes on after entries were made and removed, or after the daemon was restarted, shows every
//! entry that was there all the time, once.

use mayfly_meta::{Scan, key, record::Dentry};
use mayfly_types::{Errno, FileId, FileKind, limits::TRANSFER_BYTES_MAX};
use mayfly_wire::{List, Listing, Wire, Writer, listing::Entry};

use super::{Core, Outcome, Served};

const COOKIE_DOT: u64 = 1;
const COOKIE_DOT_DOT: u64 = 2;

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
        let parent = located.directory()?.parent;
        let bytes_max = (list.bytes_max as usize).min(TRANSFER_BYTES_MAX);
        let mut page = Page { packed: vec![0; bytes_max], used: 0 };
        let removed = located.inode.links == 0;
        if !removed && !self.fill(&mut page, open.id, parent, list.cookie)? {
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
        parent: FileId,
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
        let prefix = key::directory(directory);
        let mut corrupt = None;
        let mut full = false;
        self.store.scan(&prefix, &key::directory_from(directory, from), &mut |key, record| {
            let (Some((_, next_cookie, name)), Ok((id, kind))) =
                (key::split_dentry(key), Dentry::peek(record))
            else {
                corrupt = Some(Errno::EIO);
                return Scan::Enough;
            };
            full = !page.push(&Entry { id, kind, next_cookie, name });
            if full { Scan::Enough } else { Scan::More }
        })?;
        match corrupt {
            Some(errno) => Err(errno.into()),
            None => Ok(!full || page.used > 0),
        }
    }
}

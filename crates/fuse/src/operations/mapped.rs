//! Telling the kernel of changes of what it keeps pages of ([`crate::memory::mapped`]).

use std::{thread, time::Duration};

use mayfly_client::OpenFile;
use mayfly_types::{Errno, limits::NOTICE_MS};
use mayfly_wire::notices;

use crate::{
    memory::{
        consistency::Consistency,
        mapped::{Changed, Item},
    },
    operations::data::handle_of,
    server::{Server, Work},
};

impl Server {
    /// The kernel reads pages to keep them.
    ///
    /// # Errors
    /// EIO: nobody would tell of changes.
    pub(crate) fn pages_are_read(&self, node: u64, handle: u64) -> Result<(), Errno> {
        if self.consistency == Consistency::Session || self.mapped.is_mapped(node) {
            return Ok(());
        }
        self.have_told()?;
        self.client.map(self.handle(handle)?.reference)?;
        self.mapped.set_mapped(node);
        Ok(())
    }

    /// Has the kernel give up what others have changed, for ever. It does not return while there is
    /// a daemon, or may be one.
    pub(crate) fn watch(&self) {
        self.wait_for_watch();
        loop {
            let news = self.client.watch(|news| {
                let names = notices::names(news.names);
                let names = names.map(|of| (of.directory, of.name.to_vec(), of.file));
                let changes = notices::changes(news.changes);
                Ok((news.all, changes.collect::<Vec<_>>(), names.collect::<Vec<_>>()))
            });
            let is_lost = news.is_err();
            // Nobody knows which changes were missed when the daemon is lost, or there is no lane.
            let (all, changes, names) = news.unwrap_or((true, Vec::new(), Vec::new()));
            for (directory, name, file) in names {
                self.forget_name(directory, &name, file);
            }
            if all {
                self.forget_names();
                for node in self.mapped.all() {
                    self.give_up_pages(node, 0, u64::MAX);
                }
            } else {
                for change in changes {
                    self.give_up_pages(change.file.0, change.start, change.end);
                }
            }
            if is_lost {
                thread::sleep(Duration::from_millis(NOTICE_MS.into()));
            }
        }
    }

    fn give_up_pages(&self, node: u64, start: u64, end: u64) {
        let Some((handles, known)) = self.mapped.pages_of(node) else { return };
        let open = |handle: &u64| self.handle(*handle).ok().filter(OpenFile::readable);
        if let Some(open) = handles.iter().find_map(open)
            && let Ok(length) = self.client.size(open)
            && length != known
        {
            let mut last = [0];
            let lengthened = length > known
                && self.client.read_slice(open, length.saturating_sub(1), &mut last) == Ok(1);
            if lengthened {
                self.device.lengthen(node, length, last[0]);
                self.device.give_up_pages(node, length - 1, length);
            }
            self.mapped.set_length(node, length);
        }
        self.device.give_up_pages(node, start, end);
    }

    /// Bytes of a file, or its length, were changed by a request.
    pub(crate) fn was_changed(
        &self,
        open: OpenFile,
        (start, end): (u64, u64),
        of_pages: bool,
        work: &mut Work,
    ) {
        if !self.client.is_mapped(open) {
            return;
        }
        let changed = Changed { open: open.reference, start, end };
        if of_pages {
            self.telling.push_pages(changed);
        } else {
            work.changed = Some(changed);
        }
    }

    /// Leaves the answer to a request until other mounts were told what it has changed.
    pub(crate) fn answer_when_told(&self, unique: u64, changed: Changed, work: &mut Work) {
        let answer = Some((unique, work.body.bytes().to_vec()));
        let closes = work.closes.take();
        self.telling.push(Item::Change { changed, answer, closes });
    }

    /// Tells other mounts what was changed through this one, for ever.
    pub(crate) fn tell_others(&self) {
        loop {
            match self.telling.next() {
                Item::Change { changed, answer, closes } => {
                    self.client.tell(changed.open, changed.start, changed.end);
                    if let Some((unique, body)) = answer {
                        self.device.answer(unique, &body);
                    }
                    if let Some(open) = closes {
                        // The end of the session closes it, too.
                        let _ = self.close_handle(handle_of(open));
                    }
                }
                Item::Close(handle) => {
                    // The kernel was answered.
                    let _ = self.close_handle(handle);
                }
            }
        }
    }
}

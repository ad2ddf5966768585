//! Files that are held for the next use of whoever has lost them ([`crate::memory::held`]).

use mayfly_sys::file::{O_NOFOLLOW, O_PATH};
use mayfly_types::{Attr, Errno, FileId, FileKind, OpenRef};

use crate::{
    kernel::abi::{Header, Opcode},
    operations::attributes::named,
    server::Server,
};

impl Server {
    /// Attributes of the file under a name. The file stays findable if the thread has lost one
    /// before.
    pub(crate) fn stat_to_use(
        &self,
        header: &Header,
        directory: FileId,
        name: &[u8],
    ) -> Result<Attr, Errno> {
        let attr = self.stat(named(directory, name))?;
        if attr.kind == FileKind::Directory || !self.held.was_lost(header.thread) {
            return Ok(attr);
        }
        let opened = self.open_walk(named(directory, name), O_PATH | O_NOFOLLOW)?;
        if let Some(before) = self.held.hold(header.thread, opened.open) {
            self.let_go(before);
        }
        Ok(opened.attr)
    }

    /// A request was performed, with this result. Looking up goes on to the last name of a path.
    pub(crate) fn performed(&self, header: &Header, failure: Option<Errno>) {
        if failure == Some(Errno::ESTALE) {
            if let Some(before) = self.held.lost(header.thread) {
                self.let_go(before);
            }
        } else if !self.held.is_empty() && Opcode::of(header.opcode) != Some(Opcode::Lookup) {
            for open in self.held.used(header.thread) {
                self.let_go(open);
            }
        }
    }

    fn let_go(&self, open: OpenRef) {
        // The end of the session closes it, too.
        let _ = self.client.open_file(open).and_then(|open| self.client.close(open));
    }
}

//! Files that are made and changed without waiting for the daemon.
//!
//! The process of a mount is delegated directories as any process, and puts what its programs make
//! there into its submission ring (`client`, `Client::submit_create` and its like). A description
//! is promised then, and made when somebody needs it.

use mayfly_client::{Attributes, NewOwner, OpenFile};
use mayfly_sys::{file::O_CREAT, text::PathText};
use mayfly_types::{Attr, Errno, FileId};
use mayfly_wire::{Opened, SET_SIZE, Target};

use crate::{
    memory::submitted::apply,
    operations::{
        attributes::{failed, named},
        data::{handle_of, reference_of},
    },
    server::Server,
};

impl Server {
    /// Makes a file without waiting, where that cannot fail and the name is certainly new.
    pub(crate) fn submit_file(
        &self,
        (directory, name): (FileId, &[u8]),
        flags: u32,
        new: NewOwner,
    ) -> Option<Result<Opened, Errno>> {
        let open = self.client.submit_create(named(directory, name), flags | O_CREAT, new)?;
        let told = self.client.look_at_promised(open).map_or_else(|| self.made_by_now(open), Ok);
        Some(told.map(|attr| {
            self.submitted.made(handle_of(open.reference), attr);
            Opened { open: open.reference, attr, created: true, mapped: false }
        }))
    }

    /// Attributes of a file that was submitted and has been made already, or is now.
    fn made_by_now(&self, open: OpenFile) -> Result<Attr, Errno> {
        let open = self.client.open_file(open.reference)?;
        let target = Target::Open(open.reference);
        self.client.stat(target, &mut PathText::new()).map_err(failed)
    }

    /// The description of the handle, if it is promised and not made.
    pub(crate) fn promised(&self, handle: u64) -> Option<OpenFile> {
        self.client.promised(reference_of(handle))
    }

    /// Writes behind what was submitted with the file. `None`: the description is made from now on.
    pub(crate) fn submit_bytes(
        &self,
        promised: OpenFile,
        offset: u64,
        from: &[u8],
    ) -> Option<Result<usize, Errno>> {
        let submitted = self.client.submit_slice(promised, offset, from);
        if submitted.is_none() {
            self.client.settle_to_write(promised, from.len());
        }
        submitted
    }

    /// Changes attributes of a file that was made through an open handle, without waiting, and says
    /// what they are then. `None`: it is to be asked for.
    pub(crate) fn submit_change(&self, node: u64, to: &Attributes) -> Option<Attr> {
        let (handle, mut attr) = self.submitted.find(node)?;
        let target = Target::Open(reference_of(handle));
        if to.which & SET_SIZE != 0 || !self.client.submit_attributes(target, to) {
            return None;
        }
        apply(&mut attr, to);
        self.submitted.told(&attr);
        Some(attr)
    }
}

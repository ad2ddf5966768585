//! Making, moving and removing names.

use mayfly_client::NewOwner;
use mayfly_sys::{
    file::{O_CREAT, O_DIRECTORY, O_EXCL, O_TMPFILE, O_TRUNC, O_WRONLY},
    text::PathText,
};
use mayfly_types::{Errno, FileId};
use mayfly_wire::{Opened, SPECIAL_FIFO, SPECIAL_SOCKET, Target};

use crate::{
    kernel::abi::{Body, Fields, Header},
    memory::nodes::Known,
    moved,
    server::{Server, Work},
};

use super::{
    Reply,
    attributes::{failed, identified, lost, named},
};

fn owner(header: &Header, mode: u32) -> NewOwner {
    NewOwner { mode: mode & 0o7777, uid: header.uid, gid: header.gid }
}

impl Server {
    pub(super) fn forget(&self, header: &Header, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        // Nobody waits for an answer, so there is nobody to be told of a malformed one either.
        if let Ok(times) = fields.u64() {
            self.forgotten(header.node, times);
        }
        Ok(Reply::Later)
    }

    pub(super) fn forget_many(&self, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        if fields.skip(8).is_ok() {
            while let (Ok(node), Ok(times)) = (fields.u64(), fields.u64()) {
                self.forgotten(node, times);
            }
        }
        Ok(Reply::Later)
    }

    fn forgotten(&self, node: u64, times: u64) {
        if self.nodes.forgotten(node, times) == Known::NoMore {
            self.seen.forgotten(node);
        }
    }

    /// Answers with what stands under a name that was just made.
    fn tell_made(&self, directory: FileId, name: &[u8], body: &mut Body) -> Result<(), Errno> {
        let attr = self.stat(named(directory, name))?;
        self.tell(&attr, directory, name, body);
        Ok(())
    }

    pub(super) fn make_directory(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        work: &mut Work,
    ) -> Result<(), Errno> {
        let mode = fields.u32()?;
        fields.skip(4)?;
        let (directory, name) = (FileId(header.node), fields.name()?);
        // The set-id bits are not for directories made by mkdir.
        let new = owner(header, mode & 0o1777);
        self.client
            .make_directory(named(directory, name), new, &mut PathText::new())
            .map_err(failed)?;
        let attr = self.stat(named(directory, name))?;
        let (of, again) = ((directory, name), || self.stat(named(directory, name)));
        let (attr, promise) = self.look_leased(header.thread, of, (attr, true), again)?;
        work.promise = promise;
        self.tell(&attr, directory, name, &mut work.body);
        Ok(())
    }

    /// Regular files, pipes and sockets. What goes through the latter two is the kernel's, which
    /// keeps one for each such file that it has looked up.
    pub(super) fn make_node(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        const TYPE: u32 = 0o170_000;
        const REGULAR: u32 = 0o100_000;
        const FIFO: u32 = 0o010_000;
        const SOCKET: u32 = 0o140_000;
        let mode = fields.u32()?;
        fields.skip(12)?;
        let (directory, name) = (FileId(header.node), fields.name()?);
        let special = match mode & TYPE {
            REGULAR => None,
            FIFO => Some(SPECIAL_FIFO),
            SOCKET => Some(SPECIAL_SOCKET),
            _ => return Err(Errno::EPERM),
        };
        if let Some(what) = special {
            let (walk, new) = (named(directory, name), owner(header, mode));
            self.client.make_special(walk, what, new, b"", &mut PathText::new()).map_err(failed)?;
            return self.tell_made(directory, name, body);
        }
        let flags = O_CREAT | O_EXCL | O_WRONLY;
        let opened = self.open_named(header, name, flags, mode)?;
        self.client.close(self.client.open_file(opened.open)?)?;
        self.tell(&opened.attr, directory, name, body);
        Ok(())
    }

    pub(super) fn create(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let (flags, mode) = (fields.u32()?, fields.u32()?);
        fields.skip(8)?;
        let (directory, name) = (FileId(header.node), fields.name()?);
        if directory == FileId::ROOT
            && let Some(open) = moved::description(name)
        {
            return self.open_moved(open, flags, body);
        }
        // The kernel takes the file for a new one, and cuts nothing, even if somebody else has made
        // it since it looked.
        let flags = crate::operations::data::lasting(flags) | O_CREAT | flags & (O_EXCL | O_TRUNC);
        let submitted = self.submit_file((directory, name), flags, owner(header, mode));
        let opened = match submitted {
            Some(opened) => opened?,
            None => self.open_named(header, name, flags, mode)?,
        };
        self.tell(&opened.attr, directory, name, body);
        self.tell_opened(&opened, flags, body);
        Ok(())
    }

    /// Opens a name in the directory that the request is about, by which a file may be made.
    fn open_named(
        &self,
        header: &Header,
        name: &[u8],
        flags: u32,
        mode: u32,
    ) -> Result<Opened, Errno> {
        let walk = named(FileId(header.node), name);
        self.client.open(walk, flags, owner(header, mode), &mut PathText::new()).map_err(failed)
    }

    /// `O_TMPFILE`: a new file without a name. The kernel keeps `O_EXCL`, which forbids to give it
    /// one, and sends a name of its own, which stands nowhere.
    pub(super) fn create_temporary(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let (flags, mode) = (fields.u32()?, fields.u32()?);
        let flags = crate::operations::data::lasting(flags) | O_TMPFILE | O_DIRECTORY;
        let walk = identified(header.node);
        let opened = self
            .client
            .open(walk, flags, owner(header, mode), &mut PathText::new())
            .map_err(|stop| lost(failed(stop)))?;
        self.tell(&opened.attr, FileId(header.node), b"", body);
        self.tell_opened(&opened, flags, body);
        Ok(())
    }

    pub(super) fn symlink(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let (name, target) = (fields.name()?, fields.name()?);
        let directory = FileId(header.node);
        let new = owner(header, 0o777);
        self.client
            .symlink(target, named(directory, name), new, &mut PathText::new())
            .map_err(failed)?;
        self.tell_made(directory, name, body)
    }

    pub(super) fn read_link(&self, header: &Header, body: &mut Body) -> Result<(), Errno> {
        let name = self.nodes.name(header.node).ok_or(Errno::EINVAL)?;
        let target = Target::Path(named(name.directory, &name.name));
        let copy = |text: &[u8]| {
            body.raw(text);
            Ok(())
        };
        // Another file may have the name by now, which is no link.
        self.client.read_link(target, &mut PathText::new(), copy).map_err(failed).map_err(|errno| {
            match errno {
                Errno::EINVAL => Errno::ESTALE,
                other => lost(other),
            }
        })
    }

    pub(super) fn link(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let (file, directory, name) = (fields.u64()?, FileId(header.node), fields.name()?);
        let (from, to) = (self.nodes.name(file), named(directory, name));
        // A directory is refused by the kernel already.
        if from.is_none() {
            return Err(Errno::EPERM);
        }
        let open = self.open_node(file, mayfly_sys::file::O_PATH)?;
        let from = Target::Open(open.open);
        let linked = self.client.link(from, to, &mut PathText::new()).map_err(failed);
        self.close_again(&open);
        linked?;
        self.tell_made(directory, name, body)
    }

    pub(super) fn unlink(&self, header: &Header, mut fields: Fields<'_>) -> Result<(), Errno> {
        let walk = named(FileId(header.node), fields.name()?);
        if self.client.submit_removal(walk, false) {
            return Ok(());
        }
        self.client.unlink(walk, &mut PathText::new()).map_err(failed)
    }

    pub(super) fn remove_directory(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
    ) -> Result<(), Errno> {
        let walk = named(FileId(header.node), fields.name()?);
        if self.client.submit_removal(walk, true) {
            return Ok(());
        }
        self.client.remove_directory(walk, &mut PathText::new()).map_err(failed)
    }

    pub(super) fn rename(&self, header: &Header, mut fields: Fields<'_>) -> Result<(), Errno> {
        let to = FileId(fields.u64()?);
        self.move_name(FileId(header.node), to, fields, 0)
    }

    pub(super) fn rename_flagged(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
    ) -> Result<(), Errno> {
        let (to, flags) = (FileId(fields.u64()?), fields.u32()?);
        fields.skip(4)?;
        self.move_name(FileId(header.node), to, fields, flags)
    }

    fn move_name(
        &self,
        from: FileId,
        to: FileId,
        mut fields: Fields<'_>,
        flags: u32,
    ) -> Result<(), Errno> {
        let (old, new) = (fields.name()?, fields.name()?);
        self.client
            .rename(named(from, old), named(to, new), flags, &mut PathText::new())
            .map_err(failed)?;
        // A file that nobody has open is found by its name, also by who holds only an O_PATH
        // descriptor of it. Where that is not to be had the kernel looks it up when it needs it.
        for (directory, name) in [(to, new), (from, old)] {
            if let Ok(attr) = self.stat(named(directory, name)) {
                self.nodes.moved(attr.id, directory, name);
            }
            if flags == 0 {
                break;
            }
        }
        Ok(())
    }

    /// A description of a directory for listing it.
    pub(super) fn open_directory(&self, header: &Header, body: &mut Body) -> Result<(), Errno> {
        let flags = mayfly_sys::file::O_DIRECTORY;
        let none = NewOwner { mode: 0, uid: 0, gid: 0 };
        let opened = self
            .client
            .open(identified(header.node), flags, none, &mut PathText::new())
            .map_err(|stop| lost(failed(stop)))?;
        body.opened(crate::operations::data::handle_of(opened.open), 0);
        Ok(())
    }
}

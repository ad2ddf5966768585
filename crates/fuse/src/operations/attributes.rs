//! Attributes: finding a node, stat, chmod and its like, access, statfs.

use mayfly_client::{Attributes, NewOwner, Stop};
use mayfly_sys::{
    file::{O_NOFOLLOW, O_PATH},
    text::PathText,
};
use mayfly_types::{Attr, Errno, FileId, FileKind, Timestamp, limits::NAME_BYTES_MAX};
use mayfly_wire::{
    Opened, SET_ATIME, SET_ATIME_NOW, SET_GID, SET_MODE, SET_MTIME, SET_MTIME_NOW, SET_SIZE,
    SET_UID, Target, WALK_EMPTY, Walk,
};

use crate::{
    kernel::abi::{Body, Fields, Header, valid},
    memory::believed::Promise,
    server::{Server, Work},
};

const NOBODY: NewOwner = NewOwner { mode: 0, uid: 0, gid: 0 };

/// A name in a directory; a link is not followed.
pub(crate) fn named(directory: FileId, name: &[u8]) -> Walk<'_> {
    Walk { start: directory, flags: 0, path: name }
}

/// A directory, or a file that somebody has open.
pub(crate) fn identified(node: u64) -> Walk<'static> {
    Walk { start: FileId(node), flags: WALK_EMPTY, path: b"" }
}

/// The kernel walks by itself, so nothing leads out of the instance.
pub(super) fn failed(stop: Stop) -> Errno {
    match stop {
        Stop::Failed(errno) => errno,
        Stop::Escaped => Errno::EIO,
    }
}

/// The error for a node that cannot be found any more. The kernel then looks the path up anew.
pub(crate) fn lost(errno: Errno) -> Errno {
    match errno {
        Errno::ENOENT | Errno::ENOTDIR | Errno::EBADF => Errno::ESTALE,
        other => other,
    }
}

impl Server {
    pub(crate) fn stat(&self, walk: Walk<'_>) -> Result<Attr, Errno> {
        self.client.stat(Target::Path(walk), &mut PathText::new()).map_err(failed)
    }

    /// Attributes of a node: under its last name if it still stands there, else by identity.
    fn stat_node(&self, node: u64) -> Result<Attr, Errno> {
        if let Some(name) = self.nodes.name(node)
            && let Ok(attr) = self.stat(named(name.directory, &name.name))
            && attr.id.0 == node
        {
            return Ok(attr);
        }
        self.stat(identified(node)).map_err(lost)
    }

    /// A description of a node, with `flags`. The file is the node's whatever happens to its names
    /// meanwhile.
    pub(crate) fn open_node(&self, node: u64, flags: u32) -> Result<Opened, Errno> {
        match self.open_named_node(node, flags)? {
            Some(opened) => Ok(opened),
            None => self.open_walk(identified(node), flags).map_err(lost),
        }
    }

    /// The same by the node's last name; `None` where that is another file's by now, or nobody's.
    pub(crate) fn open_named_node(&self, node: u64, flags: u32) -> Result<Option<Opened>, Errno> {
        let Some(name) = self.nodes.name(node) else { return Ok(None) };
        match self.open_walk(named(name.directory, &name.name), flags | O_NOFOLLOW) {
            Ok(opened) if opened.attr.id.0 == node => Ok(Some(opened)),
            Ok(other) => {
                self.close_again(&other);
                Ok(None)
            }
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EISDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    pub(crate) fn open_walk(&self, walk: Walk<'_>, flags: u32) -> Result<Opened, Errno> {
        self.client.open(walk, flags, NOBODY, &mut PathText::new()).map_err(failed)
    }

    /// Closes it. An error does not matter: the operation is done, or has failed already.
    pub(super) fn close_again(&self, opened: &Opened) {
        let _ = self.client.open_file(opened.open).and_then(|open| self.client.close(open));
    }

    /// Does `work` with a node that cannot become another file meanwhile.
    pub(super) fn with_node<R>(
        &self,
        node: u64,
        work: impl Fn(Target<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        match work(Target::Path(identified(node))) {
            Err(Errno::ENOENT | Errno::ENOTDIR) if self.nodes.name(node).is_some() => {}
            done => return done,
        }
        let open = self.open_node(node, O_PATH)?;
        let done = work(Target::Open(open.open));
        self.close_again(&open);
        done
    }

    /// The kernel was told of a file that it looked up or made.
    pub(super) fn tell(&self, attr: &Attr, directory: FileId, name: &[u8], body: &mut Body) {
        self.nodes.count_lookup(attr, directory, name);
        self.show(attr);
        body.entry(attr);
    }

    pub(super) fn lookup(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        work: &mut Work,
    ) -> Result<(), Errno> {
        let name = fields.name()?;
        let directory = FileId(header.node);
        let attr = self.stat_to_use(header, directory, name)?;
        let again = || self.stat(named(directory, name));
        let of = (directory, name);
        let (attr, promise) = self.look_leased(header.thread, of, (attr, true), again)?;
        work.promise = promise;
        self.recent.remember(header.thread, attr.id.0, attr);
        self.tell(&attr, directory, name, &mut work.body);
        Ok(())
    }

    pub(super) fn get_attributes(&self, header: &Header, work: &mut Work) -> Result<(), Errno> {
        let mut attr = self.stat_known(header)?;
        if self.leases()
            && let Some(name) = self.nodes.name(header.node)
        {
            let again = || self.stat_known(header);
            let of = (name.directory, &*name.name);
            (attr, work.promise) = self.look_leased(header.thread, of, (attr, false), again)?;
            // Another file may have the name by now.
            let is_it = |of: &Promise| of.names.iter().all(|of| of.id.0 == header.node);
            work.promise = work.promise.take().filter(is_it);
        }
        self.tell_attributes(&attr, &mut work.body);
        Ok(())
    }

    /// The kernel makes two requests of one stat. A file that was renamed or removed between them
    /// was there at the first one, which is what it is answered with.
    fn stat_known(&self, header: &Header) -> Result<Attr, Errno> {
        match self.stat_node(header.node) {
            Err(Errno::ESTALE) => {
                self.recent.found(header.thread, header.node).ok_or(Errno::ESTALE)
            }
            stat => stat,
        }
    }

    /// statx, where somebody asks for the time of birth.
    pub(super) fn get_extended(&self, header: &Header, body: &mut Body) -> Result<(), Errno> {
        let attr = self.stat_known(header)?;
        self.show(&attr);
        body.extended_attributes(&attr);
        Ok(())
    }

    pub(super) fn set_attributes(
        &self,
        header: &Header,
        fields: Fields<'_>,
        work: &mut Work,
    ) -> Result<(), Errno> {
        let Wish { to, handle, kill_set_id } = wished(fields)?;
        if !kill_set_id && let Some(attr) = self.submit_change(header.node, &to) {
            self.tell_attributes(&attr, &mut work.body);
            return Ok(());
        }
        let set = |target: Target<'_>| {
            self.client.set_attributes(target, &to, &mut PathText::new()).map_err(failed)
        };
        let attr = match handle {
            // ftruncate; whether the descriptor may write has been checked by the kernel.
            Some(handle) if to.which & SET_SIZE != 0 => {
                let open = self.handle(handle)?;
                let attr = set(Target::Open(open.reference))?;
                self.was_changed(open, (to.size_bytes, u64::MAX), false, work);
                attr
            }
            _ if to.which & SET_SIZE != 0 => self.truncate(header.node, &to, work)?,
            _ => self.with_node(header.node, set)?,
        };
        let attr = match without_set_id(attr.mode).filter(|_| kill_set_id) {
            Some(mode) => {
                let to = Attributes { which: SET_MODE, mode, ..to };
                self.with_node(header.node, |target| {
                    let escape = &mut PathText::new();
                    self.client.set_attributes(target, &to, escape).map_err(failed)
                })?
            }
            None => attr,
        };
        self.submitted.told(&attr);
        self.tell_attributes(&attr, &mut work.body);
        Ok(())
    }

    fn tell_attributes(&self, attr: &Attr, body: &mut Body) {
        self.show(attr);
        body.attributes(attr);
    }

    /// A cut of a path needs a description that may write.
    fn truncate(&self, node: u64, to: &Attributes, work: &mut Work) -> Result<Attr, Errno> {
        let open = self.open_node(node, mayfly_sys::file::O_WRONLY)?;
        let target = Target::Open(open.open);
        let done = self.client.set_attributes(target, to, &mut PathText::new()).map_err(failed);
        if let Ok(file) = self.client.open_file(open.open)
            && done.is_ok()
            && self.client.is_mapped(file)
        {
            // It is closed after it was told of.
            self.was_changed(file, (to.size_bytes, u64::MAX), false, work);
            work.closes = Some(open.open);
            return done;
        }
        self.close_again(&open);
        done
    }

    /// Only the user of the instance gets here, so it comes down to existence; a file that nobody
    /// may execute is not executable to root either.
    pub(super) fn access(&self, header: &Header, mut fields: Fields<'_>) -> Result<(), Errno> {
        const EXECUTE: u32 = 1;
        let wish = fields.u32()?;
        let attr = self.stat_node(header.node)?;
        if wish & EXECUTE != 0 && attr.kind == FileKind::Regular && attr.mode & 0o111 == 0 {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    pub(super) fn capacity(&self, body: &mut Body) -> Result<(), Errno> {
        let in_use = self.client.capacity()?;
        let block = u64::from(in_use.block_bytes.max(1));
        let free = in_use.capacity_bytes.saturating_sub(in_use.used_bytes);
        let for_files = free.saturating_sub(in_use.kept_bytes);
        body.u64(in_use.capacity_bytes / block).u64(free / block).u64(for_files / block);
        body.u64(in_use.files_max).u64(in_use.files_max.saturating_sub(in_use.files));
        body.u32(in_use.block_bytes).u32(NAME_BYTES_MAX as u32).u32(in_use.block_bytes);
        body.zeros(28);
        Ok(())
    }
}

/// The mode of a file that was cut by who may not let others run it as its owner; `None` where it
/// stays as it is. The daemon does the same by itself when the owner changes.
fn without_set_id(mode: u32) -> Option<u32> {
    let gone = if mode & 0o010 == 0 { 0o4000 } else { 0o6000 };
    (mode & gone != 0).then_some(mode & 0o7777 & !gone)
}

/// What a request for other attributes asks for.
struct Wish {
    to: Attributes,
    /// Through which it is asked for.
    handle: Option<u64>,
    /// The caller has no right to leave the set-id bits.
    kill_set_id: bool,
}

fn wished(mut fields: Fields<'_>) -> Result<Wish, Errno> {
    let asked = fields.u32()?;
    fields.skip(4)?;
    let handle = fields.u64()?;
    let size_bytes = fields.u64()?;
    fields.skip(8)?;
    let (atime, mtime, _ctime) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (atime_ns, mtime_ns, _ctime_ns) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let mode = fields.u32()? & 0o7777;
    fields.skip(4)?;
    let (uid, gid) = (fields.u32()?, fields.u32()?);
    let pairs = [
        (valid::MODE, SET_MODE),
        (valid::UID, SET_UID),
        (valid::GID, SET_GID),
        (valid::SIZE, SET_SIZE),
        (valid::ATIME, if asked & valid::ATIME_NOW != 0 { SET_ATIME_NOW } else { SET_ATIME }),
        (valid::MTIME, if asked & valid::MTIME_NOW != 0 { SET_MTIME_NOW } else { SET_MTIME }),
    ];
    let wanted = pairs.iter().filter(|(bit, _)| asked & bit != 0);
    let which = wanted.fold(0, |which, (_, set)| which | set);
    let time = |seconds: u64, nanoseconds| Timestamp { seconds: seconds as i64, nanoseconds };
    let (atime, mtime) = (time(atime, atime_ns), time(mtime, mtime_ns));
    let to = Attributes { which, mode, uid, gid, size_bytes, atime, mtime };
    let handle = (asked & valid::HANDLE != 0).then_some(handle);
    Ok(Wish { to, handle, kill_set_id: asked & valid::KILL_SET_ID != 0 })
}

//! What a session is: the client as this process uses it.
//!
//! It stands below everything that has one: the process ([`crate::process::session`]), and each
//! child in its memory ([`crate::process::flight`]).

use core::ptr::NonNull;

use mayfly_client::Client;
use mayfly_sys::{Errno, memory};
use mayfly_transport::{Answer, Certain, CopyContent, Looked, Patience, Pending, Transport};
use mayfly_transport_shm::ShmTransport;
use mayfly_types::{Attr, FileId, OpenRef, Timestamp};
use mayfly_wire::{Link, MakeDirectory, Open, Operation, Rename, SetAttr, Symlink, Unlink, Walk};

/// The client as this process uses it.
pub(crate) type Session = Client<Lanes, Hidden>;

/// The transport of the process that attached; a child of vfork uses its parent's.
pub(crate) struct Lanes(pub(super) &'static ShmTransport);

/// What hides the descriptors of the client ([`crate::descriptors::hidden`]).
pub(crate) struct Hidden;

impl Transport for Lanes {
    fn exchange<'a, O: Operation<'a>, T>(
        &self,
        request: &O,
        patience: Patience,
        take: impl for<'r> FnOnce(Answer<'r, O::Reply<'r>>) -> T,
    ) -> T {
        self.0.exchange(request, patience, take)
    }

    fn begin<'a, O: Operation<'a>>(&self, request: &O) -> Option<Pending> {
        self.0.begin(request)
    }

    fn finish<'a, O: Operation<'a>, T>(
        &self,
        pending: Pending,
        take: impl for<'r> FnOnce(Answer<'r, O::Reply<'r>>) -> T,
    ) -> T {
        self.0.finish::<O, T>(pending, take)
    }

    fn send_unawaited<'a, O: Operation<'a>>(&self, request: &O) -> Result<(), Errno> {
        self.0.send_unawaited(request)
    }

    fn submit_create(&self, open: &Open<'_>) -> Option<OpenRef> {
        self.0.submit_create(open)
    }

    fn submit_replacement(
        &self,
        open: &Open<'_>,
        copy: &mut CopyContent<'_>,
    ) -> Option<(OpenRef, FileId)> {
        self.0.submit_replacement(open, copy)
    }

    fn submit_length(&self, walk: &Walk<'_>, bytes: usize, copy: &mut CopyContent<'_>) -> bool {
        self.0.submit_length(walk, bytes, copy)
    }

    fn cut_submitted(&self, open: OpenRef, bytes: usize) -> bool {
        self.0.cut_submitted(open, bytes)
    }

    fn read_submitted(&self, open: OpenRef, take: &mut dyn FnMut(u32, &[u8])) -> bool {
        self.0.read_submitted(open, take)
    }

    fn replaces(&self, file: FileId) -> bool {
        self.0.replaces(file)
    }

    fn look_at_replaced(
        &self,
        open: OpenRef,
        now: Timestamp,
        attr_of: &mut dyn FnMut(FileId, &[u8]) -> Option<Attr>,
    ) -> Option<(Attr, Option<(usize, Timestamp)>)> {
        self.0.look_at_replaced(open, now, attr_of)
    }

    fn submit_removal(&self, unlink: &Unlink<'_>) -> bool {
        self.0.submit_removal(unlink)
    }

    fn submit_directory(&self, make: &MakeDirectory<'_>) -> bool {
        self.0.submit_directory(make)
    }

    fn submit_symlink(&self, symlink: &Symlink<'_>) -> bool {
        self.0.submit_symlink(symlink)
    }

    fn submit_content(
        &self,
        open: OpenRef,
        at: u64,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> Option<Result<u64, Errno>> {
        self.0.submit_content(open, at, bytes, fill)
    }

    fn submit_object(
        &self,
        open: OpenRef,
        range: (u64, u64),
        make: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        self.0.submit_object(open, range, make)
    }

    fn submitted_object_end(&self, open: OpenRef) -> Option<u64> {
        self.0.submitted_object_end(open)
    }

    fn submit_changes(
        &self,
        set: &SetAttr<'_>,
        certain: &mut dyn FnMut(FileId, &[u8]) -> Certain,
        time_object: &mut dyn FnMut(OpenRef) -> bool,
    ) -> bool {
        self.0.submit_changes(set, certain, time_object)
    }

    fn submit_changes_known(
        &self,
        set: &SetAttr<'_>,
        walk: &Walk<'_>,
        certain: &mut dyn FnMut(FileId, &[u8]) -> Certain,
    ) -> bool {
        self.0.submit_changes_known(set, walk, certain)
    }

    fn submit_rename(
        &self,
        rename: &Rename<'_>,
        is_certain: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> bool {
        self.0.submit_rename(rename, is_certain)
    }

    fn submit_link(
        &self,
        link: &Link<'_>,
        is_certain: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> bool {
        self.0.submit_link(link, is_certain)
    }

    fn look_at_submitted(
        &self,
        open: OpenRef,
        now: Timestamp,
        gives_group: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> Option<Looked> {
        self.0.look_at_submitted(open, now, gives_group)
    }

    fn look_at_name(
        &self,
        walk: &Walk<'_>,
        now: &mut dyn FnMut() -> Timestamp,
        gives_group: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> Option<(FileId, Timestamp, Looked)> {
        self.0.look_at_name(walk, now, gives_group)
    }

    fn submits_additions_alone(&self) -> bool {
        self.0.submits_additions_alone()
    }

    fn is_there(&self, walk: &Walk<'_>) -> Option<bool> {
        self.0.is_there(walk)
    }

    fn is_quicker_beside(&self) -> bool {
        self.0.is_quicker_beside()
    }

    fn waits(&self, directory: FileId, path: Option<&[u8]>) -> bool {
        self.0.waits(directory, path)
    }

    fn removes_directories(&self) -> bool {
        self.0.removes_directories()
    }

    fn withdraw(&self, open: OpenRef) -> bool {
        self.0.withdraw(open)
    }
}

/// Gives back the memory of a client whose users are gone.
pub(super) fn discard(session: *mut Session) {
    let Some(place) = NonNull::new(session) else { return };
    // SAFETY: the pointer came from attaching; the callers are the only thread of a fresh process,
    // and the parent of children of vfork that are other programs now. Nobody uses the client any
    // more.
    unsafe {
        place.as_ref().abandon();
        memory::unmap(place.cast(), size_of::<Session>());
    }
}

//! How a request reaches its owner and the reply comes back: the seam between `client` and whatever
//! carries its messages.
#![no_std]
#![forbid(unsafe_code)]

use mayfly_types::{Attr, Errno, FileId, OpenRef, Timestamp};
use mayfly_wire::{Link, MakeDirectory, Open, Operation, Rename, SetAttr, Symlink, Unlink, Walk};

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'r, R> {
    /// It was done.
    Done(R),
    /// Nothing was done: the walk left the instance at this absolute path of the host.
    Escaped(&'r [u8]),
    /// It failed. EIO may also mean that nobody knows.
    Failed(Errno),
}

/// How long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Until the request's deadline; then EIO.
    Deadline,
    /// For a moment only (`limits::NOTICE_MS`), then EIO: what is asked for is good to have.
    Brief,
    /// As long as this process lives, whatever becomes of the peer. A thread that has nothing else
    /// to do waits so, and looks at nothing meanwhile.
    Endless,
    /// As long as the peer's node lives; a signal cancels it and the answer is EINTR.
    Interruptible,
}

/// A request that was sent, and whose reply the thread that sent it will wait for.
#[derive(Debug)]
pub struct Pending {
    /// Where it is.
    pub lane: usize,
    /// Its number.
    pub id: u64,
    /// When it was sent, by the processors' counter.
    pub at: u64,
}

/// Says of a name from a directory on which file has it, if that is certain and its bytes are in
/// its record; and copies all of these, unless there is no room for any: how many.
pub type CopyContent<'a> = dyn FnMut(FileId, &[u8], &mut [u8]) -> Option<(FileId, usize)> + 'a;

/// What is told of a file that waits: permission bits, owner, group, bytes.
pub type Looked = (u32, u32, u32, usize);

/// What the records tell of a name whose attributes are to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certain {
    /// Nothing that is certain, or that it is no regular file with one name.
    Nothing,
    /// It is one, whose times an object has.
    AllButTimes,
    /// It is one, whose attributes its record has.
    All,
}

/// Carries requests. An implementation may be used by several threads and inside signal handlers.
pub trait Transport {
    /// Sends `request`, waits for the reply and hands it to `take` while its bytes are still in
    /// place. The request is executed at most once, also across a restart of the peer.
    fn exchange<'a, O: Operation<'a>, T>(
        &self,
        request: &O,
        patience: Patience,
        take: impl for<'r> FnOnce(Answer<'r, O::Reply<'r>>) -> T,
    ) -> T;

    /// Sends `request` and does not wait, so that others can be sent meanwhile. `None` when that
    /// cannot be done at once, or not at all; then nothing was sent.
    fn begin<'a, O: Operation<'a>>(&self, _request: &O) -> Option<Pending> {
        None
    }

    /// Waits for the reply to a request of this operation that was begun, until its deadline, and
    /// hands it to `take`. Every one that was begun has to be finished, by the same thread.
    fn finish<'a, O: Operation<'a>, T>(
        &self,
        _pending: Pending,
        take: impl for<'r> FnOnce(Answer<'r, O::Reply<'r>>) -> T,
    ) -> T {
        take(Answer::Failed(Errno::EIO))
    }

    /// Sends `request`, whose reply nobody needs, and does not wait. It is executed at least once
    /// as long as this process lives, and may be executed after requests that are sent later; so it
    /// should be one that may be repeated.
    ///
    /// # Errors
    /// EIO when it cannot be sent before its deadline.
    fn send_unawaited<'a, O: Operation<'a>>(&self, request: &O) -> Result<(), Errno>;

    /// Submits the making of a file that is certainly new, and certainly made: the description that
    /// it will have. Nobody waits for it, and everybody sees it. `None` when it has to be asked
    /// for.
    fn submit_create(&self, _open: &Open<'_>) -> Option<OpenRef> {
        None
    }

    /// Submits that a regular file that is there is opened for writing, with `O_TRUNC` that its
    /// content goes: the description that it will have, and the file. Nobody waits for it, and
    /// everybody sees it. What is written then is added as to a file that
    /// [`Transport::submit_create`] has submitted. `None` when it has to be asked for.
    fn submit_replacement(
        &self,
        _open: &Open<'_>,
        _copy: &mut CopyContent<'_>,
    ) -> Option<(OpenRef, FileId)> {
        None
    }

    /// Submits that such a file gets this length, bytes. False when it has to be asked for.
    fn submit_length(&self, _walk: &Walk<'_>, _bytes: usize, _copy: &mut CopyContent<'_>) -> bool {
        false
    }

    /// The same of a file that was submitted a moment ago, and is open for writing.
    fn cut_submitted(&self, _open: OpenRef, _bytes: usize) -> bool {
        false
    }

    /// Has `take` read the content of a file that was submitted a moment ago; it gets the flags of
    /// the description, too. False when the file has to be read by asking: then what `take` has
    /// read may not be so.
    fn read_submitted(&self, _open: OpenRef, _take: &mut dyn FnMut(u32, &[u8])) -> bool {
        false
    }

    /// Whether something waits, or may wait, by which bytes of this file change. Who reads them by
    /// himself looks at this first.
    fn replaces(&self, _file: FileId) -> bool {
        false
    }

    /// Looks at a file that [`Transport::submit_replacement`] has submitted a moment ago and that
    /// was changed `now`: what it was before, as `attr_of` says of a name from a directory on, and
    /// how many bytes it has and since when; none when it was not changed. `None` when it has to be
    /// asked for.
    fn look_at_replaced(
        &self,
        _open: OpenRef,
        _now: Timestamp,
        _attr_of: &mut dyn FnMut(FileId, &[u8]) -> Option<Attr>,
    ) -> Option<(Attr, Option<(usize, Timestamp)>)> {
        None
    }

    /// Submits the making of a directory whose name is certainly new. Nobody waits for it, and
    /// everybody sees it. False when it has to be asked for.
    fn submit_directory(&self, _make: &MakeDirectory<'_>) -> bool {
        false
    }

    /// Submits the making of a symbolic link whose name is certainly new. Nobody waits for it, and
    /// everybody sees it. False when it has to be asked for.
    fn submit_symlink(&self, _symlink: &Symlink<'_>) -> bool {
        false
    }

    /// Submits the removal of a name that certainly can be removed. Nobody waits for it, and
    /// everybody sees it. False when it has to be asked for.
    fn submit_removal(&self, _unlink: &Unlink<'_>) -> bool {
        false
    }

    /// Writes `bytes` to a file that was submitted a moment ago, which `fill` writes and everybody
    /// sees: where they end. They go to `at`, or to the end if the description appends. `None` when
    /// it is too late for that, and the file has to be written.
    fn submit_content(
        &self,
        _open: OpenRef,
        _at: u64,
        _bytes: usize,
        _fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> Option<Result<u64, Errno>> {
        None
    }

    /// Has `make` make an object for a file that [`Transport::submit_create`] has submitted a
    /// moment ago, for a write of the bytes of this range. It is handed the content that the file
    /// has, which comes first there. False when the file has to be written by asking: then what
    /// `make` has made is nobody's.
    fn submit_object(
        &self,
        _open: OpenRef,
        _range: (u64, u64),
        _make: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        false
    }

    /// How far the object may be written that was made so; `None` when the file's own entry tells
    /// that. What was written before a look that says so is in the file.
    fn submitted_object_end(&self, _open: OpenRef) -> Option<u64> {
        None
    }

    /// Submits a change of attributes (not of the length) of a regular file that has no other name.
    /// Nobody waits for it, and everybody sees it. Where only the records can tell whether it is
    /// one, `certain` is asked, with where the file is: a name from a directory on. Where an
    /// object has its content that was made by [`Transport::submit_object`], `time_object` sets the
    /// times there, of the file of a promised description. False when it has to be asked for.
    fn submit_changes(
        &self,
        _set: &SetAttr<'_>,
        _certain: &mut dyn FnMut(FileId, &[u8]) -> Certain,
        _time_object: &mut dyn FnMut(OpenRef) -> bool,
    ) -> bool {
        false
    }

    /// The same of a file whose description was opened by this path, if nothing waits about it.
    fn submit_changes_known(
        &self,
        _set: &SetAttr<'_>,
        _walk: &Walk<'_>,
        _certain: &mut dyn FnMut(FileId, &[u8]) -> Certain,
    ) -> bool {
        false
    }

    /// Submits a move of a name that certainly can be moved. Nobody waits for it, and everybody
    /// sees it. `is_certain` is asked where the name is. False when it has to be asked for.
    fn submit_rename(
        &self,
        _rename: &Rename<'_>,
        _is_certain: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> bool {
        false
    }

    /// Submits another name of a regular file that certainly has one, and that name is certainly
    /// new. Nobody waits for it, and everybody sees it. `is_certain` is asked where
    /// the first one is. False when it has to be asked for.
    fn submit_link(
        &self,
        _link: &Link<'_>,
        _is_certain: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> bool {
        false
    }

    /// Looks at a file that [`Transport::submit_create`] has submitted a moment ago, whose times
    /// are `now`: permission bits, owner, group, bytes. `gives_group` is asked whether the
    /// directory from one on leaves the group to who makes files in it. `None` when it has to be
    /// asked for.
    fn look_at_submitted(
        &self,
        _open: OpenRef,
        _now: Timestamp,
        _gives_group: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> Option<Looked> {
        None
    }

    /// Looks at such a file by its name, open or not: which file it is, its times, and the rest.
    fn look_at_name(
        &self,
        _walk: &Walk<'_>,
        _now: &mut dyn FnMut() -> Timestamp,
        _gives_group: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> Option<(FileId, Timestamp, Looked)> {
        None
    }

    /// Whether nothing waits that was submitted but what this process makes: files and directories
    /// that were not there. What the records say of a file that is there is so.
    fn submits_additions_alone(&self) -> bool {
        false
    }

    /// Whether something has a name, or nothing; none where that is not known without asking.
    fn is_there(&self, _walk: &Walk<'_>) -> Option<bool> {
        None
    }

    /// Whether to find out what waits ([`Transport::waits`]) takes less than to ask for something,
    /// after which nothing waits: as long as more is submitted.
    fn is_quicker_beside(&self) -> bool {
        false
    }

    /// Whether something may wait that was submitted about the name at the end of this path from a
    /// directory; without a path, in that directory or anywhere below it. True only if somebody has
    /// that very directory delegated.
    fn waits(&self, _directory: FileId, _path: Option<&[u8]>) -> bool {
        true
    }

    /// Whether something may wait by which a directory goes.
    fn removes_directories(&self) -> bool {
        true
    }

    /// Takes back the wish for a description that [`Transport::submit_create`] has named: true when
    /// it will not be made, false when it is there, or will be.
    fn withdraw(&self, _open: OpenRef) -> bool {
        false
    }
}

//! Open file descriptions as their users see them: an entry in the node's table.
//!
//! A description is shared by all processes that inherited it, so what POSIX keeps with it stands
//! in the table: access mode, status flags, and the file [`offset`], which has a lock of its own.
//! [`locks`] has the calls that lock files. They are requests, as the daemon decides who waits.
//!
//! The number at which an application has a description is not known here.

mod locks;
pub(crate) mod offset;

use core::sync::atomic::Ordering;

use mayfly_sys::file::{O_ACCMODE, O_APPEND, O_PATH, O_RDWR, O_WRONLY};
use mayfly_transport::Transport;
use mayfly_transport_shm::{
    file_leases::is_leased,
    layout::{
        FILE_LOCKED, FileEntry, OPEN_BEHIND, OPEN_FREE, OPEN_LEASED_RECALLED, OPEN_LEASED_USED,
        OPEN_MOVED, OPEN_PRIVATE, OPEN_PROMISED, OPEN_SHARED, OPEN_SHARING, OpenEntry,
    },
    tally::{Done, Kind, Subject, Way},
};
use mayfly_types::{Errno, FileId, FileKind, OpenRef};
use mayfly_wire::{Close, Flush, MakeDirectory, Open, Ping, Stat, Symlink, Target, Unlink, Walk};

use crate::{Client, Descriptors, NewOwner};

/// An open file description.
#[derive(Clone, Copy)]
pub struct OpenFile {
    /// Where it stands in the table.
    pub reference: OpenRef,
    /// Its entry.
    pub entry: &'static OpenEntry,
}

impl OpenFile {
    /// Access mode and status flags.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.entry.flags.load(Ordering::Relaxed) & !(OPEN_MOVED | OPEN_BEHIND)
    }

    /// Has it become a file of the kernel's mount? Its offset is that one's then.
    #[must_use]
    pub fn is_moved(&self) -> bool {
        self.entry.flags.load(Ordering::Acquire) & OPEN_MOVED != 0
    }

    /// Is what was written through it perhaps not at the file's home yet (session consistency)?
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.entry.flags.load(Ordering::Acquire) & OPEN_BEHIND != 0
    }

    /// The file.
    #[must_use]
    pub fn id(&self) -> FileId {
        FileId(self.entry.id.load(Ordering::Relaxed))
    }

    /// Type of the file.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        let raw = self.entry.kind.load(Ordering::Relaxed);
        u8::try_from(raw).ok().and_then(FileKind::from_raw).unwrap_or(FileKind::Regular)
    }

    /// True when it only names the file (O_PATH).
    #[must_use]
    pub fn is_path(&self) -> bool {
        self.flags() & O_PATH != 0
    }

    /// May be read.
    #[must_use]
    pub fn readable(&self) -> bool {
        matches!(self.flags() & (O_ACCMODE | O_PATH), 0 | O_RDWR)
    }

    /// May be written.
    #[must_use]
    pub fn writable(&self) -> bool {
        matches!(self.flags() & (O_ACCMODE | O_PATH), O_WRONLY | O_RDWR)
    }

    /// Writes go to the end.
    #[must_use]
    pub fn appends(&self) -> bool {
        self.flags() & O_APPEND != 0
    }

    /// Is its life time that of a kernel open file description?
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.entry.state.load(Ordering::Acquire) == OPEN_SHARED
    }

    /// Does it belong to this process alone, made, promised or leased?
    pub(crate) fn is_private(&self) -> bool {
        let state = self.entry.state.load(Ordering::Acquire);
        matches!(state, OPEN_PRIVATE | OPEN_PROMISED | OPEN_LEASED_USED | OPEN_LEASED_RECALLED)
    }

    /// Claims a private description, to give it a kernel identity or to close it; false when it is
    /// shared, claimed by somebody else, or gone.
    #[must_use]
    pub fn claim(&self) -> bool {
        if !self.change_state(OPEN_PRIVATE, OPEN_SHARING) {
            return false;
        }
        // The entry may have been freed and taken by another open since it was looked up.
        let same = self.entry.generation.load(Ordering::Acquire) == self.reference.generation;
        if !same {
            self.give_up_sharing();
        }
        same
    }

    /// It has a kernel identity from now on.
    pub fn finish_sharing(&self) {
        self.change_state(OPEN_SHARING, OPEN_SHARED);
    }

    /// It could not be given one.
    pub fn give_up_sharing(&self) {
        self.change_state(OPEN_SHARING, OPEN_PRIVATE);
    }

    fn change_state(&self, from: u32, to: u32) -> bool {
        self.entry.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Changes those of the status flags that `mask` names.
    pub fn set_flags(&self, mask: u32, flags: u32) {
        let _ = self.entry.flags.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |old| {
            Some(old & !mask | flags & mask)
        });
    }

    pub(crate) fn set_moved(&self) {
        self.entry.flags.fetch_or(OPEN_MOVED, Ordering::Release);
    }
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// The open file description.
    ///
    /// # Errors
    /// EBADF when the entry was freed since.
    pub fn open_file(&self, reference: OpenRef) -> Result<OpenFile, Errno> {
        let entry = self.node.opens.get(reference.index as usize).ok_or(Errno::EBADF)?;
        if entry.generation.load(Ordering::Acquire) != reference.generation
            || entry.state.load(Ordering::Acquire) == OPEN_FREE
        {
            return Err(Errno::EBADF);
        }
        match entry.state.load(Ordering::Acquire) {
            OPEN_PROMISED => self.settle(reference, entry)?,
            state if is_leased(state) => self.settle_leased(reference, entry)?,
            _ => {}
        }
        Ok(OpenFile { reference, entry })
    }

    /// Has the reference a description, made or not?
    pub(crate) fn is_open(&self, reference: OpenRef) -> bool {
        self.node.opens.get(reference.index as usize).is_some_and(|entry| {
            entry.state.load(Ordering::Acquire) != OPEN_FREE
                && entry.generation.load(Ordering::Acquire) == reference.generation
        })
    }

    /// Has the description become a file of the kernel's mount? One that is promised has not.
    #[must_use]
    pub fn has_moved(&self, reference: OpenRef) -> bool {
        let entry = self.node.opens.get(reference.index as usize);
        entry.is_some_and(|entry| {
            let open = OpenFile { reference, entry };
            open.is_moved() && entry.generation.load(Ordering::Acquire) == reference.generation
        })
    }

    /// Has a description made that was promised with what this process submitted.
    #[cold]
    fn settle(&self, reference: OpenRef, entry: &OpenEntry) -> Result<(), Errno> {
        // The daemon executes asynchronous operations before anything else.
        self.ask(&Ping {}, |_| Ok(()))?;
        let same = entry.generation.load(Ordering::Acquire) == reference.generation;
        match entry.state.load(Ordering::Acquire) {
            OPEN_PROMISED | OPEN_FREE => Err(Errno::EBADF),
            _ if !same => Err(Errno::EBADF),
            _ => Ok(()),
        }
    }

    /// Was the description promised, and is it not made yet as far as one look tells?
    #[must_use]
    pub fn is_promised(&self, reference: OpenRef) -> bool {
        let entry = self.node.opens.get(reference.index as usize);
        entry.is_some_and(|entry| entry.state.load(Ordering::Acquire) == OPEN_PROMISED)
    }

    /// Makes a file without waiting for it, where that cannot fail and the name is certainly new.
    /// The description is promised: [`Client::open_file`] has it made when it is used.
    #[must_use]
    pub fn submit_create(&self, walk: Walk<'_>, flags: u32, new: NewOwner) -> Option<OpenFile> {
        let NewOwner { mode, uid, gid } = new;
        // The end of a description that was made is told of.
        if self.is_watched() && self.is_told_of(&walk) {
            return None;
        }
        let began = self.begin(0);
        let reference = self.transport.submit_create(&Open { walk, flags, mode, uid, gid })?;
        self.end_at(began, (Kind::Create, Way::Unawaited), &walk, false);
        // What is written before it is made is counted for it.
        self.note_name(reference, &walk);
        let entry = self.node.opens.get(reference.index as usize)?;
        Some(OpenFile { reference, entry })
    }

    /// Makes a directory without waiting for it, where that cannot fail and the name is certainly
    /// new.
    #[must_use]
    pub fn submit_directory(&self, walk: Walk<'_>, new: NewOwner) -> bool {
        let NewOwner { mode, uid, gid } = new;
        let began = self.begin(0);
        let submitted = self.transport.submit_directory(&MakeDirectory { walk, mode, uid, gid });
        if submitted {
            self.end_at(began, (Kind::Mkdir, Way::Unawaited), &walk, false);
            self.tell_made(&walk);
        }
        submitted
    }

    /// Makes a symbolic link that says `target` without waiting for it, where that cannot fail and
    /// the name is certainly new.
    #[must_use]
    pub fn submit_symlink(&self, target: &[u8], at: Walk<'_>, new: NewOwner) -> bool {
        let began = self.begin(0);
        let symlink = Symlink { target, at, uid: new.uid, gid: new.gid };
        let submitted = self.transport.submit_symlink(&symlink);
        if submitted {
            self.end_at(began, (Kind::Link, Way::Unawaited), &at, false);
            self.tell_made(&at);
        }
        submitted
    }

    /// Removes a name without waiting for it, where that cannot fail: a file's that is certainly
    /// there, or a directory's in which certainly nothing is.
    #[must_use]
    pub fn submit_removal(&self, walk: Walk<'_>, directory: bool) -> bool {
        let before = self.before(&walk);
        let began = self.begin(0);
        let submitted = self.transport.submit_removal(&Unlink { walk, directory });
        if submitted {
            let kind = if directory { Kind::Rmdir } else { Kind::Unlink };
            self.end_at(began, (kind, Way::Unawaited), &walk, false);
            self.tell_removed(before, directory);
        }
        submitted
    }

    /// The open file description, also when it is promised and not made yet.
    #[must_use]
    pub fn promised(&self, reference: OpenRef) -> Option<OpenFile> {
        let entry = self.node.opens.get(reference.index as usize)?;
        let promised = entry.state.load(Ordering::Acquire) == OPEN_PROMISED
            && entry.generation.load(Ordering::Acquire) == reference.generation;
        promised.then_some(OpenFile { reference, entry })
    }

    /// Closes a description that was promised, before it is made; false when that is too late.
    #[must_use]
    pub fn withdraw(&self, reference: OpenRef) -> bool {
        let began = self.begin(0);
        let withdrawn = self.transport.withdraw(reference);
        if withdrawn {
            self.end_open(began, (Kind::Close, Way::Unawaited), reference, false);
        }
        withdrawn
    }

    /// The open file description that stands at `index` now: for one whose slot file somebody holds
    /// open, so that it cannot go away.
    ///
    /// # Errors
    /// EBADF when the entry is free.
    pub fn open_file_at(&self, index: u32) -> Result<OpenFile, Errno> {
        let entry = self.node.opens.get(index as usize).ok_or(Errno::EBADF)?;
        let generation = entry.generation.load(Ordering::Acquire);
        self.open_file(OpenRef { index, generation })
    }

    /// Is what was written through the description perhaps not at the file's home yet? One that is
    /// not made has none.
    #[must_use]
    pub fn is_behind(&self, reference: OpenRef) -> bool {
        let entry = self.node.opens.get(reference.index as usize);
        entry.is_some_and(|entry| self.waits_at_close(OpenFile { reference, entry }))
    }

    /// Something may have to be waited for before the description is closed: for its home, or for
    /// an origin.
    fn waits_at_close(&self, open: OpenFile) -> bool {
        let goes_back = self.node.head.tier.at_close.load(Ordering::Relaxed) != 0;
        open.is_behind() || goes_back && open.writable()
    }

    /// Waits until what was written through the description is at the file's home.
    ///
    /// # Errors
    /// What a write failed with that was acknowledged; once.
    pub fn flush(&self, open: OpenFile) -> Result<(), Errno> {
        if !self.waits_at_close(open) {
            return Ok(());
        }
        self.ask(&Flush { open: open.reference }, Ok)
    }

    /// The same where nobody can be told of a failure: the next write, sync or close is.
    ///
    /// # Errors
    /// EIO: nobody knows.
    pub fn send_on(&self, open: OpenFile) -> Result<(), Errno> {
        if !open.is_behind() {
            return Ok(());
        }
        // Whoever looks at the file finds all of it.
        self.ask(&Stat { target: Target::Open(open.reference) }, |_| Ok(()))
    }

    /// Gives up a private open file description. Waits only when locks may go with it, which others
    /// must find free when they learn of the close, or for what was written through it.
    ///
    /// # Errors
    /// EIO; what a write failed with that was acknowledged.
    pub fn close(&self, open: OpenFile) -> Result<(), Errno> {
        let close = Close { open: open.reference };
        let began = self.begin(0);
        let (way, done) = match self.file_entry(open) {
            Ok((_, file))
                if file.flags.load(Ordering::Acquire) & FILE_LOCKED == 0 && !open.is_behind() =>
            {
                (Way::Unawaited, self.transport.send_unawaited(&close))
            }
            _ => (Way::Asked, self.ask(&close, Ok)),
        };
        let id = open.entry.id.load(Ordering::Relaxed);
        let subject = Subject { file: id, ..Subject::default() };
        let failed = done.is_err();
        self.end(began, || Done { kind: Kind::Close, way, failed, bytes: 0, subject });
        done
    }

    /// Has anybody a lock on the file, of any kind?
    #[must_use]
    pub fn is_locked(&self, open: OpenFile) -> bool {
        match self.file_entry(open) {
            Ok((_, file)) => file.flags.load(Ordering::Acquire) & FILE_LOCKED != 0,
            Err(_) => true,
        }
    }

    /// Index and entry of the file.
    pub(crate) fn file_entry(&self, open: OpenFile) -> Result<(u32, &'static FileEntry), Errno> {
        let index = open.entry.file.load(Ordering::Acquire);
        let entry = self.node.files.get(index as usize).ok_or(Errno::EBADF)?;
        if entry.id.load(Ordering::Acquire) != open.entry.id.load(Ordering::Acquire) {
            return Err(Errno::EBADF);
        }
        Ok((index, entry))
    }

    /// Index of the file in the node's table of open files.
    ///
    /// # Errors
    /// EBADF when it is not open any more.
    pub fn file_index(&self, open: OpenFile) -> Result<u32, Errno> {
        self.file_entry(open).map(|(index, _)| index)
    }
}

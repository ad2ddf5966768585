//! Objects that this process was granted, kept open.
//!
//! The table has a place for each entry of the node's table of open files. A place holds a hidden
//! descriptor of the object together with the file's identity and the grant generation it belongs
//! to; who finds another identity or generation asks again. Users of a place are counted in a word
//! whose top bit keeps new ones out while the place changes, so that a descriptor is never closed,
//! and its number never reused, under a transfer. Users never wait while they are counted.
//!
//! At most [`CACHED_MAX`] objects are kept open; the oldest goes first.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use mayfly_sys::{Errno, arch, file, lock::Lock, memory, process, text::PathText};
use mayfly_transport::Transport;
use mayfly_transport_shm::layout::{FILE_APPEND_BY_REQUEST, FILE_BY_REQUEST, FILE_OBJECT};
use mayfly_types::{
    FileId, OBJECT_MAPPED,
    limits::{FILE_BYTES_MAX, INLINE_BYTES_MAX},
};
use mayfly_wire::{GRANT_OBJECT, GRANT_READ, GRANT_WRITE, Grant, OwnPart};

use crate::{Client, Mirror, OpenFile};

/// Objects kept open.
const CACHED_MAX: usize = 256;
/// Places for objects of files that are not made yet, behind those of the node's entries.
const PROMISED_MAX: usize = 4;
/// The place is changing.
const CHANGING: u32 = 1 << 31;

/// Where descriptors of ours go, so that the application does not meet them.
pub trait Descriptors {
    /// Moves a descriptor out of the application's sight; returns its new number. The old one is
    /// closed, also on failure.
    ///
    /// # Errors
    /// EMFILE.
    fn conceal(&self, descriptor: i32) -> Result<i32, Errno>;
    /// Closes a concealed descriptor.
    fn release(&self, descriptor: i32);
    /// Moves a descriptor to where a concealed one is, which is closed, if there is one; returns
    /// its new number. Both are closed on failure.
    ///
    /// # Errors
    /// EMFILE.
    fn conceal_over(&self, descriptor: i32, old: Option<i32>) -> Result<i32, Errno> {
        let concealed = self.conceal(descriptor);
        old.inspect(|old| self.release(*old));
        concealed
    }
    /// Where the files lie that stand for watched ones.
    ///
    /// # Errors
    /// ENOSYS where there are none.
    fn mirror(&self) -> Result<Mirror, Errno> {
        Err(Errno::ENOSYS)
    }
}

/// The node's object directory: a concealed descriptor of it.
#[derive(Debug)]
pub struct ObjectDirectory(pub i32);

/// An object held open by a caller for itself.
#[derive(Debug)]
pub struct ObjectFile {
    /// The descriptor; closed when this is dropped.
    pub descriptor: i32,
}

impl ObjectFile {
    /// Left to the caller.
    fn into_raw(self) -> i32 {
        core::mem::ManuallyDrop::new(self).descriptor
    }
}

impl Drop for ObjectFile {
    fn drop(&mut self) {
        file::close(self.descriptor);
    }
}

#[repr(C)]
#[derive(Debug)]
struct Place {
    users: AtomicU32,
    /// Descriptor plus one; zero for none.
    descriptor: AtomicI32,
    id: AtomicU64,
    generation: AtomicU32,
    /// Zero when the object could only be opened for reading: it is being executed.
    writable: AtomicU32,
    /// The layout of the file that the object is a part of ([`packed`]).
    layout: AtomicU64,
}

/// The layout of a striped file; the object of the node's own part is kept beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) own: OwnPart,
    /// There is no leave to read the part.
    pub(crate) unreadable: bool,
}

impl Layout {
    /// Of what is not striped.
    const WHOLE: Layout = Layout { own: OwnPart::WHOLE, unreadable: false };
}

/// In one word.
fn packed(layout: Layout) -> u64 {
    let OwnPart { width, index, chunk_log2, hashed } = layout.own;
    u64::from(width)
        | u64::from(index) << 16
        | u64::from(chunk_log2) << 32
        | u64::from(hashed) << 40
        | u64::from(layout.unreadable) << 41
}

fn unpacked(word: u64) -> Layout {
    let own = OwnPart {
        width: word as u16,
        index: (word >> 16) as u16,
        chunk_log2: (word >> 32) as u8,
        hashed: word >> 40 & 1 != 0,
    };
    Layout { own, unreadable: word >> 41 & 1 != 0 }
}

/// The caller's use of the object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Need {
    /// Reads, or just the length, if there is an object.
    Look,
    /// Writes that end at this offset, if there is an object.
    Write { end: u64 },
    /// Writes that end at this offset and that are too long for the record.
    Spill { end: u64 },
}

pub(crate) struct Objects<D> {
    places: NonNull<Place>,
    count: usize,
    pub(crate) directory: ObjectDirectory,
    pub(crate) descriptors: D,
    change: Lock,
    cached: [AtomicU32; CACHED_MAX],
    next_cached: AtomicUsize,
}

// SAFETY: the pointer leads to a mapping of atomics that lives as long as the process.
unsafe impl<D: Send> Send for Objects<D> {}
// SAFETY: as above; all changes go through atomics or under the lock.
unsafe impl<D: Sync> Sync for Objects<D> {}

/// An object in use: counted until dropped.
pub(crate) struct InUse<'o> {
    place: &'o Place,
    pub(crate) descriptor: i32,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.place.users.fetch_sub(1, Ordering::Release);
    }
}

impl<D: Descriptors> Objects<D> {
    pub(crate) fn new(
        entries: usize,
        directory: ObjectDirectory,
        descriptors: D,
    ) -> Result<Self, Errno> {
        let count = entries.checked_add(PROMISED_MAX).ok_or(Errno::ENOMEM)?;
        let bytes = count.checked_mul(size_of::<Place>()).ok_or(Errno::ENOMEM)?;
        let places = memory::map_anonymous(bytes.max(1))?.cast();
        Ok(Objects {
            places,
            count,
            directory,
            descriptors,
            change: Lock::new(),
            cached: [const { AtomicU32::new(u32::MAX) }; CACHED_MAX],
            next_cached: AtomicUsize::new(0),
        })
    }

    fn place(&self, index: u32) -> Option<&Place> {
        // SAFETY: the mapping holds `count` places, zeroed at first, which is a valid place.
        let places = unsafe { core::slice::from_raw_parts(self.places.as_ptr(), self.count) };
        places.get(index as usize)
    }

    pub(crate) fn find(
        &self,
        index: u32,
        id: u64,
        generation: u32,
        write: bool,
    ) -> Option<InUse<'_>> {
        let place = self.place(index)?;
        if place.users.fetch_add(1, Ordering::Acquire) & CHANGING == 0 {
            let descriptor = place.descriptor.load(Ordering::Relaxed) - 1;
            if descriptor >= 0
                && place.id.load(Ordering::Relaxed) == id
                && place.generation.load(Ordering::Relaxed) == generation
                && (!write || place.writable.load(Ordering::Relaxed) != 0)
            {
                return Some(InUse { place, descriptor });
            }
        }
        place.users.fetch_sub(1, Ordering::Release);
        None
    }

    /// The file's layout, if it is kept for this generation.
    pub(crate) fn layout(&self, index: u32, id: u64, generation: u32) -> Option<Layout> {
        let place = self.place(index)?;
        let still = place.users.fetch_add(1, Ordering::Acquire) & CHANGING == 0;
        let layout = unpacked(place.layout.load(Ordering::Relaxed));
        let known = still
            && layout.own.width != 0
            && place.id.load(Ordering::Relaxed) == id
            && place.generation.load(Ordering::Relaxed) == generation;
        place.users.fetch_sub(1, Ordering::Release);
        known.then_some(layout)
    }

    /// Keeps an object of a file and grant open; with a negative descriptor, what is known of its
    /// layout.
    pub(crate) fn keep(
        &self,
        index: u32,
        (id, generation): (u64, u32),
        descriptor: i32,
        writable: bool,
        layout: Layout,
    ) {
        let _held = self.change.hold();
        self.make_room_for(index);
        self.put(index, (id, generation), writable, layout, |old| {
            old.inspect(|old| self.descriptors.release(*old));
            descriptor
        });
    }

    /// Keeps an object open that is a whole file, which nobody has concealed yet.
    ///
    /// # Errors
    /// EMFILE; it is closed then.
    fn keep_whole(
        &self,
        index: u32,
        of: (u64, u32),
        object: ObjectFile,
        writable: bool,
    ) -> Result<(), Errno> {
        let _held = self.change.hold();
        self.make_room_for(index);
        let mut concealed = Err(Errno::EMFILE);
        self.put(index, of, writable, Layout::WHOLE, |old| {
            concealed = self.descriptors.conceal_over(object.into_raw(), old);
            concealed.unwrap_or(-1)
        });
        concealed.map(drop)
    }

    /// The object that this process has made for a file that is not made yet.
    pub(crate) fn promised(&self, id: FileId) -> Option<InUse<'_>> {
        self.find(self.place_of_promised(id), id.0, 0, true)
    }

    /// Keeps such an object open, which nobody has concealed yet.
    ///
    /// # Errors
    /// EMFILE; it is closed then.
    pub(crate) fn keep_promised(&self, id: FileId, object: ObjectFile) -> Result<(), Errno> {
        let _held = self.change.hold();
        let mut concealed = Err(Errno::EMFILE);
        self.put(self.place_of_promised(id), (id.0, 0), true, Layout::WHOLE, |old| {
            concealed = self.descriptors.conceal_over(object.into_raw(), old);
            concealed.unwrap_or(-1)
        });
        concealed.map(drop)
    }

    fn place_of_promised(&self, id: FileId) -> u32 {
        let first = self.count - PROMISED_MAX;
        (first + id.0 as usize % PROMISED_MAX) as u32
    }

    /// The oldest object goes when there are too many. The caller holds `change`.
    fn make_room_for(&self, index: u32) {
        let at = self.next_cached.fetch_add(1, Ordering::Relaxed) % CACHED_MAX;
        if let Some(cached) = self.cached.get(at) {
            let oldest = cached.swap(index, Ordering::Relaxed);
            if oldest != index {
                self.put(oldest, (0, 0), false, Layout::WHOLE, |old| {
                    old.inspect(|old| self.descriptors.release(*old));
                    -1
                });
            }
        }
    }

    /// Changes a place; `change` gets the descriptor that was there, and gives another one, or a
    /// negative number. The caller holds the lock.
    fn put(
        &self,
        index: u32,
        (id, generation): (u64, u32),
        writable: bool,
        layout: Layout,
        change: impl FnOnce(Option<i32>) -> i32,
    ) {
        let Some(place) = self.place(index) else { return };
        if id == 0 && place.id.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut tries = 0_u32;
        place.users.fetch_or(CHANGING, Ordering::Acquire);
        while place.users.load(Ordering::Acquire) != CHANGING {
            tries += 1;
            if tries.is_multiple_of(64) { process::give_way() } else { arch::pause() }
        }
        let old = place.descriptor.load(Ordering::Relaxed) - 1;
        let descriptor = change((old >= 0).then_some(old));
        place.descriptor.store(descriptor + 1, Ordering::Relaxed);
        place.id.store(id, Ordering::Relaxed);
        place.generation.store(generation, Ordering::Relaxed);
        place.writable.store(u32::from(writable), Ordering::Relaxed);
        place.layout.store(packed(layout), Ordering::Relaxed);
        place.users.fetch_and(!CHANGING, Ordering::Release);
    }
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Whether the bytes are at another node, or at several.
    pub(crate) fn is_by_request(&self, open: OpenFile) -> bool {
        self.file_entry(open)
            .is_ok_and(|(_, entry)| entry.flags.load(Ordering::Acquire) & FILE_BY_REQUEST != 0)
    }

    /// Leave to use the object of `open`, or `None` when its data go through the daemon.
    pub(crate) fn object(&self, open: OpenFile, need: Need) -> Result<Option<InUse<'_>>, Errno> {
        let (index, entry) = self.file_entry(open)?;
        let flags = entry.flags.load(Ordering::Acquire);
        if flags & FILE_BY_REQUEST != 0 {
            return Ok(None);
        }
        let has_object = flags & FILE_OBJECT != 0;
        let (want, end) = match need {
            Need::Look if open.readable() => (GRANT_READ, 0),
            // A description that may only be written has no leave to read, not even the length.
            Need::Look => (GRANT_WRITE, 0),
            Need::Write { end } => (GRANT_WRITE, end),
            Need::Spill { end } => (GRANT_WRITE | GRANT_OBJECT, end),
        };
        if !has_object && want & GRANT_OBJECT == 0 {
            return Ok(None);
        }
        let write = want & GRANT_WRITE != 0;
        let covered = !write || end <= entry.allowance_end.load(Ordering::Acquire);
        let id = open.id().0;
        if covered
            && let Some(object) =
                self.objects.find(index, id, entry.grant_generation.load(Ordering::Acquire), write)
        {
            return Ok(Some(object));
        }
        // The cached descriptor stays good when only the allowance has to grow.
        let mut path = PathText::new();
        let generation = self.grant(open, want, end, &mut path)?;
        if path.as_bytes().is_empty() {
            return Ok(None);
        }
        if let Some(object) = self.objects.find(index, id, generation, write) {
            return Ok(Some(object));
        }
        self.take_up(index, (id, generation), &path, write)
    }

    /// Opens an object for which there is leave; `None` when the daemon has to do the transfer.
    fn take_up(
        &self,
        index: u32,
        (id, generation): (u64, u32),
        path: &PathText,
        write: bool,
    ) -> Result<Option<InUse<'_>>, Errno> {
        let opened = self
            .open_whole(path, write)
            .and_then(|object| self.objects.keep_whole(index, (id, generation), object, write));
        match opened {
            Ok(()) => Ok(self.objects.find(index, id, generation, write)),
            // The application has used up its descriptors, or has changed its user; the daemon has
            // its own.
            Err(Errno::EMFILE | Errno::ENFILE | Errno::EACCES) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Has a description made that was promised, with leave to write as far as `bytes` from its
    /// offset on: one request and not two, since what is submitted is executed before any. Does
    /// nothing else when there is no such leave: whoever writes then finds out by itself.
    pub fn settle_to_write(&self, promised: OpenFile, bytes: usize) {
        let offset = promised.entry.offset.load(Ordering::Relaxed);
        let end = offset.saturating_add(bytes as u64);
        if bytes <= INLINE_BYTES_MAX || end > FILE_BYTES_MAX {
            return;
        }
        let mut path = PathText::new();
        let want = GRANT_WRITE | GRANT_OBJECT;
        let Ok(generation) = self.grant(promised, want, end, &mut path) else { return };
        let made = self.open_file(promised.reference);
        if let Ok((index, entry)) = made.and_then(|open| self.file_entry(open))
            && !path.as_bytes().is_empty()
        {
            let of = (entry.id.load(Ordering::Acquire), generation);
            // A failure does no harm: the write tries again.
            let _ = self.take_up(index, of, &path, true);
        }
    }

    /// Does what is appended go through the daemon?
    pub(crate) fn appends_by_request(&self, open: OpenFile) -> Result<bool, Errno> {
        let (_, entry) = self.file_entry(open)?;
        Ok(entry.flags.load(Ordering::Acquire) & FILE_APPEND_BY_REQUEST != 0)
    }

    /// Has the grant under which a transfer was done ended meanwhile?
    pub(crate) fn revoked(&self, open: OpenFile, object: &InUse<'_>) -> bool {
        let generation = object.place.generation.load(Ordering::Relaxed);
        self.file_entry(open)
            .is_ok_and(|(_, entry)| entry.grant_generation.load(Ordering::Acquire) != generation)
    }

    fn grant(
        &self,
        open: OpenFile,
        want: u32,
        end: u64,
        path: &mut PathText,
    ) -> Result<u32, Errno> {
        self.ask(&Grant { open: open.reference, want, end }, |granted| {
            path.clear();
            path.push(granted.object_path)?;
            Ok(granted.generation)
        })
    }

    /// A hidden descriptor of the object, and whether it may be written.
    pub(crate) fn open_and_conceal(
        &self,
        path: &PathText,
        write: bool,
    ) -> Result<(i32, bool), Errno> {
        let object = self.open_whole(path, write)?;
        Ok((self.objects.descriptors.conceal(object.into_raw())?, write))
    }

    fn open_whole(&self, path: &PathText, write: bool) -> Result<ObjectFile, Errno> {
        // For reading only unless it is to be written: a file that somebody holds open for writing
        // cannot be executed.
        let access = if write { file::O_RDWR } else { file::O_RDONLY };
        self.open_object(path, access).map(|descriptor| ObjectFile { descriptor })
    }

    fn open_object(&self, path: &PathText, access: u32) -> Result<i32, Errno> {
        // The object was just granted: that it is missing is no answer to the application's call.
        file::open_at(self.objects.directory.0, path, access | file::O_CLOEXEC, 0).map_err(
            |errno| match errno {
                Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ETXTBSY | Errno::EACCES => {
                    errno
                }
                _ => Errno::EIO,
            },
        )
    }

    /// An object of the file, made when there is none, opened for the caller alone: for mappings
    /// and exec, and marked as mapped. `path` receives its path relative to the object directory.
    ///
    /// # Errors
    /// ENODEV when the file cannot have one here; as [`Client::open_file`].
    pub fn own_object(
        &self,
        open: OpenFile,
        access: u32,
        path: &mut PathText,
    ) -> Result<ObjectFile, Errno> {
        let write = if access == file::O_RDONLY { 0 } else { GRANT_WRITE };
        self.grant(open, GRANT_READ | GRANT_OBJECT | write, 0, path)?;
        if path.as_bytes().is_empty() {
            return Err(Errno::ENODEV);
        }
        let descriptor = self.open_object(path, access).map_err(|errno| match errno {
            Errno::EACCES => Errno::ENODEV,
            other => other,
        })?;
        let object = ObjectFile { descriptor };
        mark_mapped(&object).map_err(|_| Errno::EIO)?;
        Ok(object)
    }

    /// Does the file have an object, so that mapping it costs no copy?
    #[must_use]
    pub fn has_object(&self, open: OpenFile) -> bool {
        self.file_entry(open)
            .is_ok_and(|(_, entry)| entry.flags.load(Ordering::Acquire) & FILE_OBJECT != 0)
    }

    /// The memory of the object cache, for the child of a fork that starts over.
    ///
    /// # Safety
    /// Nobody uses this client any more.
    pub unsafe fn abandon(&self) {
        let bytes = self.objects.count * size_of::<Place>();
        // SAFETY: the mapping was made by `Objects::new` and, says the caller, nobody looks at it.
        unsafe { memory::unmap(self.objects.places.cast(), bytes.max(1)) };
        // SAFETY: passed on to the caller.
        unsafe { self.contents.abandon() };
        // SAFETY: as above.
        unsafe { self.records.abandon() };
    }
}

/// Marks an object as mapped, so that it is never cut behind the mapping's back: no descriptor
/// tells of it. Only once, since the mark changes the object's times.
fn mark_mapped(object: &ObjectFile) -> Result<(), Errno> {
    let mode = file::mode(object.descriptor)?;
    if mode & OBJECT_MAPPED != 0 {
        return Ok(());
    }
    file::change_mode(object.descriptor, 0o700 | OBJECT_MAPPED)
}

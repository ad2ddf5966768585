//! The files of an instance: `records`, the pages, and `undo`, the journal.
//!
//! `records` is made under another name and gets its own when it is whole, after `undo`: so a store
//! is there or not, whenever its maker dies. Both are allocated as far as they are used, and never
//! sparse: a store to a page for which the disk has no block would kill the process.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::fd::{AsFd, AsRawFd},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use mayfly_sys::mapped::Mapped;
use rustix::{fs::FallocateFlags, io::Errno};

use super::{
    Tree, empty_leaf,
    journal::Journal,
    page::PAGE_BYTES,
    pages::{Boot, Pages},
    space::{OUTSIDE, Space},
};
use crate::{Scan, Store, StoreError};

/// The pages.
const RECORDS: &str = "records";
/// The pages of a store that is being made.
const RECORDS_NEW: &str = "records.new";
/// The journal.
const UNDO: &str = "undo";

/// How to open a [`TreeStore`].
#[derive(Debug, Clone)]
pub struct TreeOptions {
    /// Directory of the store; made when absent.
    pub directory: PathBuf,
    /// Where [`Store::has_room`] turns false, bytes of pages.
    pub limit_bytes: u64,
    /// Identity of the running kernel (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: Vec<u8>,
}

/// A store in a mapped file that is changed in place. What was committed survives the death of the
/// process at any instruction; after a reboot the store is [`StoreError::Lost`].
#[derive(Debug)]
pub struct TreeStore {
    tree: Tree<FileSpace>,
}

impl TreeStore {
    /// Opens the store in `options.directory`, or makes one.
    ///
    /// # Errors
    /// [`StoreError::Lost`] when it is of another boot, [`StoreError::Corrupt`] when it is none,
    /// [`StoreError::Backend`] when another process has it open, or what the disk says.
    pub fn open(options: &TreeOptions) -> Result<TreeStore, StoreError> {
        let directory = &options.directory;
        fs::create_dir_all(directory).map_err(|error| failed("cannot make", directory, &error))?;
        let undo = open_file(&directory.join(UNDO))?;
        keep_others_out(&undo, directory)?;
        let made = TreeStore::is_in(directory);
        if !made {
            // Of a process that died while it made a store, or nothing.
            undo.set_len(0).map_err(|error| failed("cannot empty", UNDO.as_ref(), &error))?;
        }
        let mut journal = FileSpace::open(undo)?;
        if !made {
            make(options, &mut journal)?;
        }
        let records = FileSpace::open(open_file(&directory.join(RECORDS))?)?;
        if Pages::boot(&records, &options.boot_id) == Boot::Other {
            return Err(StoreError::Lost);
        }
        let pages = Pages::open(records, journal, options.limit_bytes)?;
        Ok(TreeStore { tree: Tree::new(pages) })
    }

    /// The file of pages of a store in `directory`, which others may map to read it
    /// (`mayfly_records`).
    #[must_use]
    pub fn records_in(directory: &Path) -> PathBuf {
        directory.join(RECORDS)
    }

    /// Whether there is such a store in `directory`.
    #[must_use]
    pub fn is_in(directory: &Path) -> bool {
        directory.join(RECORDS).exists()
    }
}

/// Makes an empty store.
fn make(options: &TreeOptions, journal: &mut FileSpace) -> Result<(), StoreError> {
    Journal::create(journal)?;
    let (new, whole) = (options.directory.join(RECORDS_NEW), options.directory.join(RECORDS));
    let file = open_file(&new)?;
    file.set_len(0).map_err(|error| failed("cannot empty", &new, &error))?;
    Pages::create(&mut FileSpace::open(file)?, &options.boot_id, &*empty_leaf()?)?;
    fs::rename(&new, &whole).map_err(|error| failed("cannot rename", &new, &error))
}

fn open_file(path: &Path) -> Result<File, StoreError> {
    let open = File::options().read(true).write(true).create(true).truncate(false).open(path);
    open.map_err(|error| failed("cannot open", path, &error))
}

/// A POSIX lock: it ends with this process, and a child between fork and exec does not have it. It
/// also ends when any descriptor of the file is closed, so there is only one.
fn keep_others_out(file: &File, directory: &Path) -> Result<(), StoreError> {
    use rustix::fs::{FlockOperation::NonBlockingLockExclusive, fcntl_lock};
    match fcntl_lock(file, NonBlockingLockExclusive) {
        Err(Errno::AGAIN | Errno::ACCESS) => Err(StoreError::Backend(format!(
            "{} is in use by another process",
            directory.display()
        ))),
        // A file system without locks: the supervisor starts one daemon all the same.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> StoreError {
    if [Errno::NOSPC, Errno::DQUOT]
        .iter()
        .any(|full| error.raw_os_error() == Some(full.raw_os_error()))
    {
        return StoreError::Full;
    }
    StoreError::Backend(format!("{what} {}: {error}", path.display()))
}

/// A mapped file whose blocks are allocated.
#[derive(Debug)]
struct FileSpace {
    mapped: Mapped,
    file: File,
}

impl FileSpace {
    fn open(file: File) -> Result<FileSpace, StoreError> {
        let data =
            file.metadata().map_err(|error| failed("cannot look at", UNDO.as_ref(), &error))?;
        let length = data.len();
        // A copy of the file may have holes.
        if data.blocks().saturating_mul(512) < length {
            allocate(&file, 0, length)?;
        }
        let usable = usize::try_from(length).map_err(|_| OUTSIDE)? / PAGE_BYTES * PAGE_BYTES;
        let mapped = Mapped::new(file.as_raw_fd(), usable).map_err(cannot_map)?;
        Ok(FileSpace { mapped, file })
    }
}

fn cannot_map(errno: mayfly_sys::Errno) -> StoreError {
    StoreError::Backend(format!("cannot map the store: {errno:?}"))
}

/// Allocates the blocks of a file up to `to`, and makes it so long.
fn allocate(file: &File, from: u64, to: u64) -> Result<(), StoreError> {
    match rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), from, to - from) {
        Ok(()) => Ok(()),
        Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Err(StoreError::Full),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, from, to),
        Err(error) => Err(StoreError::Backend(format!("cannot allocate the store: {error}"))),
    }
}

/// What a file system that cannot allocate does instead, for new bytes.
fn write_zeros(file: &File, from: u64, to: u64) -> Result<(), StoreError> {
    let length = file.metadata().map_or(0, |of| of.len());
    let zeros = vec![0; 1 << 20];
    let mut at = from.max(length);
    while at < to {
        let bytes = (to - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..bytes as usize], at)
            .map_err(|error| failed("cannot extend", RECORDS.as_ref(), &error))?;
        at += bytes;
    }
    (&*file).flush().map_err(|error| failed("cannot extend", RECORDS.as_ref(), &error))
}

impl Space for FileSpace {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.mapped.bytes()
    }

    #[inline]
    fn prefetch<const LINES: usize>(&self, at: usize) {
        self.mapped.prefetch::<LINES>(at);
    }

    #[inline]
    fn write(&mut self, at: usize, from: &[u8]) -> Result<(), StoreError> {
        if self.mapped.write(at, from) { Ok(()) } else { Err(OUTSIDE) }
    }

    #[inline]
    fn shift(&mut self, from: usize, bytes: usize, to: usize) -> Result<(), StoreError> {
        if self.mapped.shift(from, bytes, to) { Ok(()) } else { Err(OUTSIDE) }
    }

    #[inline]
    fn publish(&mut self, at: usize, value: u64) -> Result<(), StoreError> {
        if self.mapped.publish(at, value) { Ok(()) } else { Err(OUTSIDE) }
    }

    #[cold]
    fn grow(&mut self, bytes: usize) -> Result<(), StoreError> {
        let before = self.mapped.bytes().len();
        if bytes <= before {
            return Ok(());
        }
        // To allocate in vain takes long.
        if let Ok(space) = rustix::fs::fstatvfs(&self.file)
            && space.f_bavail.saturating_mul(space.f_frsize) < (bytes - before) as u64
        {
            return Err(StoreError::Full);
        }
        allocate(&self.file, before as u64, bytes as u64)?;
        self.mapped.grow(bytes).map_err(cannot_map)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|error| StoreError::Backend(error.to_string()))
    }
}

impl Store for TreeStore {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        self.tree.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.tree.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        self.tree.delete(key)
    }

    fn scan(
        &mut self,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Scan,
    ) -> Result<(), StoreError> {
        self.tree.scan(prefix, from, visit)
    }

    fn announce(&mut self) -> Result<(), StoreError> {
        self.tree.announce()
    }

    fn move_directory(&mut self) -> Result<(), StoreError> {
        self.tree.move_directory()
    }

    fn commit(&mut self) -> Result<u64, StoreError> {
        self.tree.commit()
    }

    fn pending_transaction(&self) -> u64 {
        self.tree.pending_transaction()
    }

    fn committed_transaction(&self) -> u64 {
        self.tree.committed_transaction()
    }

    fn used_bytes(&self) -> u64 {
        self.tree.used_bytes()
    }

    fn has_room(&mut self) -> bool {
        self.tree.has_room()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.tree.sync()
    }
}

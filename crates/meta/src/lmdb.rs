//! The store of instances that outlive the machine: LMDB through `heed`, one environment for a
//! shard. Those that were kept in it before there was [`crate::TreeStore`] are opened here too.
//!
//! LMDB is a copy-on-write B+ tree in one file. A commit writes the changed pages, then one of two
//! meta pages; a process that dies at any instant leaves the last committed tree. Its log is
//! therefore nothing, and opening costs a tenth of a millisecond whatever the size.
//!
//! * **Write map.** Pages are changed in place in the mapped file: a `pwrite` for each page of each
//!   commit costs more than the rest of a create. A write to a page without a block would be a
//!   SIGBUS on a full disk, so the map never reaches beyond what is allocated: it grows between two
//!   transactions, after the file was allocated *ahead* of its use. What LMDB cannot get from the
//!   map is an error, not a signal.
//! * **Plain writes** with `pwrite` into a map much larger than the limit, where commits are
//!   synchronous, and where the file system cannot allocate ahead.
//! * **Room.** What counts is the number of pages in use, which LMDB keeps exactly, and whether the
//!   file could be allocated ahead. Beyond lies the reserve in which removals work (copy-on-write:
//!   a removal needs pages too).
//! * **Durability.** Without sync (`NO_SYNC`) LMDB reuses pages of older trees before the newer
//!   ones reached the disk, so a power loss can tear everything, also what a late sync had saved
//!   once. So `sync` commits synchronously, and a store kept without is called lost when the boot
//!   id changed.
//! * **Threads.** A write transaction belongs to the thread that began it; the wrapper around it
//!   panics in any other. So the store says that it may not move.

use std::{
    fs::File,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use heed::{Database, Env, EnvFlags, EnvOpenOptions, MdbError, RwTxn, WithoutTls, types::Bytes};
use send_wrapper::SendWrapper;

use crate::{KEY_BYTES_MAX, Scan, Store, StoreError, key};

/// How far the file is allocated ahead of its use at least, bytes. Half of it must do for one
/// transaction: 128 requests that change 16 pages each.
const AHEAD_BYTES_MIN: u64 = 16 << 20;
/// Part of the file that is allocated ahead, so that a large one is seldom mapped anew.
const AHEAD_PART: u64 = 8;
/// Without a write map, the map is larger than the limit by at least this, bytes.
const RESERVE_BYTES_MIN: u64 = 256 << 20;
/// Maps are multiples of this, bytes.
const MAP_UNIT_BYTES: u64 = 1 << 20;

/// LMDB's file of pages.
const DATA: &str = "data.mdb";

/// How to open an [`LmdbStore`].
#[derive(Debug, Clone)]
pub struct LmdbOptions {
    /// Directory of the environment; made when absent.
    pub directory: PathBuf,
    /// Where [`Store::has_room`] turns false, bytes of records.
    pub limit_bytes: u64,
    /// Every commit reaches the disk before it returns.
    pub sync: bool,
    /// Identity of the running kernel (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: Vec<u8>,
}

type Records = Database<Bytes, Bytes>;

/// A store in an LMDB environment.
pub struct LmdbStore {
    /// The transaction under way. Declared before `env`: it is dropped first.
    transaction: Option<SendWrapper<RwTxn<'static>>>,
    changed: bool,
    records: Records,
    committed: u64,
    limit_bytes: u64,
    map_bytes: u64,
    used_bytes: u64,
    page_bytes: u64,
    /// Up to where the file's blocks are allocated.
    allocated_bytes: u64,
    /// The map ends there, and pages are changed in it.
    write_map: bool,
    disk_full: bool,
    poisoned: bool,
    sync: bool,
    file: File,
    /// Boxed, since the transaction borrows it.
    env: Box<Env<WithoutTls>>,
}

impl std::fmt::Debug for LmdbStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LmdbStore")
            .field("path", &self.env.path())
            .field("committed", &self.committed)
            .field("poisoned", &self.poisoned)
            .finish_non_exhaustive()
    }
}

impl LmdbStore {
    /// Opens the store in `options.directory`, or makes one.
    ///
    /// # Errors
    /// [`StoreError::Lost`] when it is of another boot and was not synced, otherwise what LMDB
    /// says.
    pub fn open(options: &LmdbOptions) -> Result<LmdbStore, StoreError> {
        std::fs::create_dir_all(&options.directory).map_err(|error| {
            StoreError::Backend(format!("cannot make {}: {error}", options.directory.display()))
        })?;
        let data = options.directory.join(DATA);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&data)
            .map_err(|error| {
                StoreError::Backend(format!("cannot open {}: {error}", data.display()))
            })?;
        let length = file.metadata().map_or(0, |of| of.len());
        let whole = length.max(AHEAD_BYTES_MIN).next_multiple_of(MAP_UNIT_BYTES);
        let write_map = !options.sync && allocate(&file, whole).is_ok();
        let reserve_bytes = RESERVE_BYTES_MIN.max(options.limit_bytes / 2);
        let roomy = options.limit_bytes.saturating_add(reserve_bytes);
        let map_bytes =
            if write_map { whole } else { roomy.max(length).next_multiple_of(MAP_UNIT_BYTES) };
        let env = Box::new(open_environment(options, map_bytes, write_map)?);
        let mut transaction = env.write_txn().map_err(backend)?;
        let records: Records = env.create_database(&mut transaction, None).map_err(backend)?;
        transaction.commit().map_err(backend)?;
        let mut store = LmdbStore {
            transaction: None,
            changed: false,
            records,
            committed: env.info().last_txn_id as u64,
            limit_bytes: options.limit_bytes,
            map_bytes,
            used_bytes: 0,
            page_bytes: 4096,
            allocated_bytes: if write_map { whole } else { 0 },
            write_map,
            disk_full: false,
            poisoned: false,
            sync: options.sync,
            file,
            env,
        };
        store.allocate_ahead();
        store.check_boot(&options.boot_id)?;
        store.measure()?;
        store.commit()?;
        Ok(store)
    }

    /// Whether there is such a store in `directory`.
    #[must_use]
    pub fn is_in(directory: &Path) -> bool {
        directory.join(DATA).exists()
    }

    /// Compares the boot id with the recorded one, and records the present one.
    fn check_boot(&mut self, boot_id: &[u8]) -> Result<(), StoreError> {
        let mut now = vec![u8::from(self.sync)];
        now.extend_from_slice(boot_id);
        match self.get(key::BOOT)? {
            // A synced store is whole whatever happened since.
            Some([1, ..]) => {}
            Some([_, recorded @ ..]) if recorded != boot_id => return Err(StoreError::Lost),
            Some(_) | None => {}
        }
        if self.get(key::BOOT)? != Some(now.as_slice()) {
            self.put(key::BOOT, &now)?;
        }
        Ok(())
    }

    fn begun(&mut self) -> Result<(), StoreError> {
        if self.poisoned {
            return Err(StoreError::Poisoned);
        }
        if self.transaction.is_none() {
            let transaction = self.env.write_txn().map_err(backend)?;
            // SAFETY: the transaction borrows the environment behind `self.env`, a box that is
            // never replaced and whose content does not move; the field order drops the transaction
            // first.
            let transaction =
                unsafe { std::mem::transmute::<RwTxn<'_>, RwTxn<'static>>(transaction) };
            self.transaction = Some(SendWrapper::new(transaction));
        }
        Ok(())
    }

    fn written<T>(&mut self, result: Result<T, heed::Error>) -> Result<T, StoreError> {
        result.map_err(|error| {
            self.poison();
            backend(error)
        })
    }

    fn poison(&mut self) {
        self.poisoned = true;
        if let Some(transaction) = self.transaction.take() {
            transaction.take().abort();
        }
    }

    fn measure(&mut self) -> Result<(), StoreError> {
        self.begun()?;
        let transaction = self.transaction.as_ref().expect("begun just now");
        let stat = self.records.stat(transaction).map_err(backend)?;
        self.page_bytes = u64::from(stat.page_size);
        let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
        self.used_bytes = pages as u64 * self.page_bytes;
        Ok(())
    }

    /// Keeps the file's blocks allocated ahead of its last page, and the map with them. Called
    /// between two transactions.
    fn allocate_ahead(&mut self) {
        let end = (self.env.info().last_page_number as u64 + 1) * self.page_bytes;
        let ahead = AHEAD_BYTES_MIN.max(end / AHEAD_PART);
        if end + ahead / 2 <= self.allocated_bytes && !self.disk_full {
            return;
        }
        let want = (end + ahead).next_multiple_of(MAP_UNIT_BYTES);
        let want = if self.write_map { want } else { want.min(self.map_bytes) };
        if self.disk_full && !self.may_allocate(want) {
            return;
        }
        match allocate(&self.file, want) {
            Ok(()) => {
                // A map that cannot grow is as good as a full disk.
                self.disk_full = self.write_map && !self.grow_map(want);
                if !self.disk_full {
                    self.allocated_bytes = want;
                }
            }
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => self.disk_full = true,
            // A file system that cannot allocate ahead shows a full disk at the commit only.
            Err(_) if !self.write_map => self.allocated_bytes = want,
            Err(_) => self.disk_full = true,
        }
    }

    /// A look at the free space: to allocate in vain takes long.
    fn may_allocate(&self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.allocated_bytes);
        rustix::fs::fstatvfs(&self.file)
            .is_ok_and(|space| space.f_bavail.saturating_mul(space.f_frsize) >= more)
    }

    fn grow_map(&mut self, bytes: u64) -> bool {
        let Ok(length) = usize::try_from(bytes) else { return false };
        if bytes > self.map_bytes {
            debug_assert!(self.transaction.is_none());
            // SAFETY: no transaction is under way, in this thread or another: all go through
            // `self`, and nobody else has the environment.
            if unsafe { self.env.resize(length) }.is_err() {
                return false;
            }
            self.map_bytes = bytes;
        }
        true
    }
}

fn allocate(file: &File, bytes: u64) -> Result<(), rustix::io::Errno> {
    rustix::fs::fallocate(file.as_fd(), rustix::fs::FallocateFlags::KEEP_SIZE, 0, bytes)
}

fn open_environment(
    options: &LmdbOptions,
    map_bytes: u64,
    write_map: bool,
) -> Result<Env<WithoutTls>, StoreError> {
    let map_bytes = usize::try_from(map_bytes).map_err(|_| StoreError::Full)?;
    let mut open = EnvOpenOptions::new().read_txn_without_tls();
    open.map_size(map_bytes).max_readers(4);
    let mut flags = EnvFlags::NO_READ_AHEAD;
    if write_map {
        flags |= EnvFlags::WRITE_MAP;
    }
    if !options.sync {
        flags |= EnvFlags::NO_SYNC;
    }
    // SAFETY: the flags leave LMDB's locking on, and lose at a power loss only what was never
    // promised.
    unsafe { open.flags(flags) };
    let directory: &Path = &options.directory;
    // SAFETY: the directory belongs to this instance alone (0700) and nothing else maps or changes
    // its files; a second daemon on it is kept out by LMDB's own lock file.
    unsafe { open.open(directory) }.map_err(backend)
}

fn backend(error: heed::Error) -> StoreError {
    match error {
        heed::Error::Mdb(MdbError::MapFull) => StoreError::Full,
        heed::Error::Mdb(MdbError::BadValSize) => StoreError::BadKey,
        heed::Error::Io(error) if error.raw_os_error() == Some(28) => StoreError::Full,
        other => StoreError::Backend(other.to_string()),
    }
}

fn check(key: &[u8]) -> Result<(), StoreError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX { Err(StoreError::BadKey) } else { Ok(()) }
}

impl Store for LmdbStore {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        check(key)?;
        self.begun()?;
        let transaction = self.transaction.as_ref().expect("begun just now");
        self.records.get(transaction, key).map_err(backend)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        check(key)?;
        self.begun()?;
        let transaction = self.transaction.as_mut().expect("begun just now");
        let result = self.records.put(transaction, key, value);
        self.changed = true;
        self.written(result)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        check(key)?;
        self.begun()?;
        let transaction = self.transaction.as_mut().expect("begun just now");
        let result = self.records.delete(transaction, key);
        self.changed |= !matches!(result, Ok(false));
        self.written(result)
    }

    fn scan(
        &mut self,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Scan,
    ) -> Result<(), StoreError> {
        check(from)?;
        self.begun()?;
        let transaction = self.transaction.as_ref().expect("begun just now");
        let range = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        for entry in self.records.range(transaction, &range).map_err(backend)? {
            let (key, value) = entry.map_err(backend)?;
            if !key.starts_with(prefix) || visit(key, value) == Scan::Enough {
                break;
            }
        }
        Ok(())
    }

    fn move_directory(&mut self) -> Result<(), StoreError> {
        // Nobody else reads it.
        Ok(())
    }

    fn commit(&mut self) -> Result<u64, StoreError> {
        if self.poisoned {
            return Err(StoreError::Poisoned);
        }
        if self.changed {
            self.measure()?;
        }
        let Some(transaction) = self.transaction.take() else { return Ok(self.committed) };
        let number = transaction.id() as u64;
        let result = transaction.take().commit();
        self.written(result)?;
        if std::mem::take(&mut self.changed) {
            self.committed = number;
            self.allocate_ahead();
        }
        Ok(self.committed)
    }

    fn pending_transaction(&self) -> u64 {
        match &self.transaction {
            Some(transaction) if self.changed => transaction.id() as u64,
            _ if self.poisoned => self.committed + 1,
            _ => 0,
        }
    }

    fn committed_transaction(&self) -> u64 {
        self.committed
    }

    fn may_move(&self) -> bool {
        false
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn has_room(&mut self) -> bool {
        if self.disk_full && !self.changed && !self.poisoned {
            // It may have been somebody else's bytes. A transaction that has only read can go.
            if let Some(transaction) = self.transaction.take() {
                transaction.take().abort();
            }
            self.allocate_ahead();
        }
        !self.disk_full && self.used_bytes < self.limit_bytes
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        if self.poisoned {
            return Err(StoreError::Poisoned);
        }
        self.env.force_sync().map_err(backend)
    }
}

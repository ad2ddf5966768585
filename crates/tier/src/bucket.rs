//! An origin that is a prefix in a bucket of an object store.
//!
//! What a file has besides bytes is in the metadata of its object, as the stager has it. Those take
//! a look at each object; where nothing may be changed, listings alone tell: a file's time is then
//! that at which it was put there. A directory is what has objects below it, or an object of the
//! keeper's own in it, which one that was made here has, and keeps when it is empty.
//!
//! A copy is known by the object's time and length, and by its ETag, of which a number stands in
//! the fraction of the time of change. A flush puts the object on the condition that the known one
//! is there. Links, moves of directories and owners do not exist; a file is moved by a copy in the
//! store.

mod flush;

use std::{
    collections::HashSet,
    ffi::OsStr,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use mayfly_stage::{About, Bucket, Child, Expected, Object, Refused};
use mayfly_types::{Attr, Errno, FileId, FileKind, Timestamp, limits::INLINE_BYTES_MAX};
use mayfly_wire::{
    SET_ATIME, SET_ATIME_NOW, SET_GID, SET_MODE, SET_MTIME, SET_MTIME_NOW, SET_UID, TierItem,
    tier::{
        TIER_CHECK, TIER_CHUNKS, TIER_CREATE, TIER_FETCH, TIER_FLUSH, TIER_LOOK,
        TIER_MAKE_DIRECTORY, TIER_REMOVE, TIER_REMOVE_DIRECTORY, TIER_REMOVE_XATTR, TIER_RENAME,
        TIER_SET_ATTR, TIER_SET_XATTR, TIER_SYMLINK, TIER_XATTRS, TierEntry, pack,
    },
};

use crate::{
    bytes::{create_object, object_of_chunks, set_times},
    names::{ENTRY_BYTES, was_known},
    outcome::Outcome,
    place::{OWN_PREFIX, io_errno, is_plain, is_same},
};

/// The object that a directory has which was made here, behind `OWN_PREFIX`.
const MARKER: &str = "directory";
/// Bytes that are fetched at a time.
const PIECE_BYTES: u64 = 8 << 20;
/// Modes where no metadata tell any.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
/// Directories are remembered that have an object of their own; so many at most.
const MARKED_MAX: usize = 4096;
/// `RENAME_NOREPLACE`.
const NO_REPLACE: u32 = 1;
/// How often a file is read again that is being changed.
const TRIES: u32 = 3;

/// The bucket of an origin.
pub(crate) struct Store {
    bucket: Bucket,
    read_only: bool,
    owner: (u32, u32),
    marked: Mutex<HashSet<String>>,
}

fn errno_of(path: &str, refused: &Refused) -> Errno {
    let errno = Errno::from_raw(refused.errno).unwrap_or(Errno::EIO);
    if matches!(errno, Errno::EIO | Errno::EACCES) {
        // The instance's log has it.
        eprintln!("origin: {path}: {refused}");
    }
    errno
}

/// A path as object stores have it.
fn text(path: &[u8]) -> Result<&str, Errno> {
    if !is_plain(path) {
        return Err(Errno::EINVAL);
    }
    std::str::from_utf8(path).map_err(|_| Errno::EINVAL)
}

fn joined(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn marker_in(directory: &str) -> String {
    joined(directory, &format!("{}{MARKER}", String::from_utf8_lossy(OWN_PREFIX)))
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
}

/// What is kept of a file with such attributes.
fn about(mode: u32, mtime: Timestamp, mark: u64) -> About {
    About { modified: (mtime.seconds, mtime.nanoseconds.into()), mode, mark }
}

impl Store {
    /// Opens the bucket at an address, if it can be listed.
    pub(crate) fn open(address: &Path, read_only: bool) -> Result<Store, String> {
        let bucket = Bucket::open(address.as_os_str()).map_err(|error| error.to_string())?;
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(Store { bucket, read_only, owner, marked: Mutex::default() })
    }

    /// Is it the address of one?
    pub(crate) fn is_address(path: &Path) -> bool {
        Bucket::is_address(OsStr::new(path))
    }

    pub(crate) fn perform(
        &self,
        item: &TierItem<'_>,
        object: impl Fn() -> Result<std::path::PathBuf, Errno>,
        notes: &Path,
    ) -> Result<Outcome, Errno> {
        let path = text(item.path)?;
        match item.what {
            TIER_LOOK => self.list(path),
            TIER_CHECK => Ok(Outcome::of(self.attr_like(path, item.known.kind)?)),
            TIER_FETCH => self.fetch(path, &object()?),
            TIER_CHUNKS => self.fetch_chunks(path, item, &object()?),
            TIER_FLUSH => self.flush(path, item, object, notes),
            TIER_CREATE => self.create(path, item),
            TIER_MAKE_DIRECTORY => self.make_directory(path, item),
            TIER_SYMLINK => Err(Errno::EPERM),
            TIER_REMOVE => self.remove(path, item),
            TIER_REMOVE_DIRECTORY => self.remove_directory(path, item),
            TIER_RENAME => self.rename(path, text(item.other)?, item),
            TIER_SET_ATTR => self.set_attr(path, item),
            TIER_XATTRS => Ok(Outcome::default()),
            TIER_SET_XATTR | TIER_REMOVE_XATTR => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn told<T>(&self, path: &str, result: Result<T, Refused>) -> Result<T, Errno> {
        result.map_err(|refused| errno_of(path, &refused))
    }

    fn look(&self, path: &str) -> Result<Option<Object>, Errno> {
        self.told(path, self.bucket.look(path))
    }

    fn attr_of(&self, object: &Object) -> Attr {
        let put = Timestamp { seconds: object.put.0, nanoseconds: 0 };
        let told = object.modified.filter(|_| !self.read_only);
        let mtime = told.and_then(|(seconds, part)| {
            Some(Timestamp { seconds, nanoseconds: u32::try_from(part).ok()? })
        });
        let mode = object.mode.filter(|_| !self.read_only).unwrap_or(FILE_MODE);
        let mtime = mtime.unwrap_or(put);
        Attr {
            id: FileId(object.mark.unwrap_or(object.tag)),
            kind: FileKind::Regular,
            mode,
            links: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            size_bytes: object.bytes,
            blocks: object.bytes.div_ceil(512),
            atime: mtime,
            mtime,
            ctime: Timestamp { nanoseconds: (object.tag % 1_000_000_000) as u32, ..put },
            btime: put,
        }
    }

    /// Of a directory, which may have an object of its own.
    fn attr_of_directory(&self, marker: Option<&Object>) -> Attr {
        let zero = Timestamp { seconds: 0, nanoseconds: 0 };
        let told = marker.map(|marker| self.attr_of(marker));
        let mtime = told.map_or(zero, |attr| attr.mtime);
        Attr {
            id: FileId(0),
            kind: FileKind::Directory,
            mode: marker.and_then(|marker| marker.mode).unwrap_or(DIRECTORY_MODE),
            links: 2,
            uid: self.owner.0,
            gid: self.owner.1,
            size_bytes: 0,
            blocks: 0,
            atime: mtime,
            mtime,
            ctime: mtime,
            btime: mtime,
        }
    }

    /// What a path names that is known to be of this kind. Stores that keep their objects in a
    /// directory take one below it for an object, too.
    fn attr_like(&self, path: &str, kind: FileKind) -> Result<Attr, Errno> {
        if kind == FileKind::Directory
            && let Some(attr) = self.directory(path)?
        {
            return Ok(attr);
        }
        self.attr(path)
    }

    /// The directory of a path, if there is one.
    fn directory(&self, path: &str) -> Result<Option<Attr>, Errno> {
        let marker = self.look(&marker_in(path))?;
        let is_there =
            path.is_empty() || marker.is_some() || self.told(path, self.bucket.has_below(path))?;
        Ok(is_there.then(|| self.attr_of_directory(marker.as_ref())))
    }

    /// What a path names.
    fn attr(&self, path: &str) -> Result<Attr, Errno> {
        if !path.is_empty()
            && let Some(object) = self.look(path)?
        {
            return Ok(self.attr_of(&object));
        }
        self.directory(path)?.ok_or(Errno::ENOENT)
    }

    fn list(&self, path: &str) -> Result<Outcome, Errno> {
        let mut children = self.told(path, self.bucket.children(path))?;
        let own = String::from_utf8_lossy(OWN_PREFIX).into_owned();
        if children.is_empty() && !path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let is_marked = children.iter().any(|(name, _)| joined(path, name) == marker_in(path));
        children.retain(|(name, _)| !name.starts_with(&own));
        let mut looks = Vec::new();
        if !self.read_only {
            looks.extend(children.iter().map(|(name, child)| match child {
                Child::Object(_) => joined(path, name),
                Child::Directory => marker_in(&joined(path, name)),
            }));
            looks.extend(is_marked.then(|| marker_in(path)));
        }
        let mut looked = self.told(path, self.bucket.look_at_all(&looks))?.into_iter();
        let (mut packed, mut used) = (Vec::new(), 0);
        for (name, child) in &children {
            let attr = match (child, looked.next()) {
                (Child::Object(object), None) => self.attr_of(object),
                (Child::Object(_), Some(Some(object))) => self.attr_of(&object),
                // It has gone meanwhile.
                (Child::Object(_), Some(None)) => continue,
                (Child::Directory, marker) => self.attr_of_directory(marker.flatten().as_ref()),
            };
            packed.resize(used + name.len() + ENTRY_BYTES, 0);
            let entry = TierEntry { name: name.as_bytes(), attr, target: b"" };
            used = pack(&entry, &mut packed, used).ok_or(Errno::EOVERFLOW)?;
        }
        packed.truncate(used);
        let attr = self.attr_of_directory(looked.next().flatten().as_ref());
        Ok(Outcome { bytes: packed, ..Outcome::of(attr) })
    }

    fn read(&self, path: &str, range: std::ops::Range<u64>) -> Result<(Object, Vec<u8>), Errno> {
        self.told(path, self.bucket.read(path, range))
    }

    fn fetch(&self, path: &str, object: &Path) -> Result<Outcome, Errno> {
        for _ in 0..TRIES {
            let there = self.look(path)?.ok_or(Errno::ENOENT)?;
            let attr = self.attr_of(&there);
            if there.bytes <= INLINE_BYTES_MAX as u64 {
                let (read, bytes) = self.read(path, 0..there.bytes)?;
                if read.is_still(&there) && bytes.len() as u64 == there.bytes {
                    return Ok(Outcome { bytes, ..Outcome::of(attr) });
                }
                continue;
            }
            let to = create_object(object).map_err(|error| io_errno(&error))?;
            if self.copy(path, &there, &to, 0..there.bytes)? {
                set_times(&to, attr.atime, attr.mtime)?;
                let blocks = to.metadata().map_err(|error| io_errno(&error))?.blocks();
                return Ok(Outcome::of(Attr { blocks, ..attr }));
            }
        }
        let _ = std::fs::remove_file(object);
        Err(Errno::EAGAIN)
    }

    /// Copies a range to its place, as long as it is this object; whether it was.
    fn copy(
        &self,
        path: &str,
        object: &Object,
        to: &std::fs::File,
        range: std::ops::Range<u64>,
    ) -> Result<bool, Errno> {
        let mut at = range.start;
        while at < range.end {
            let (read, bytes) = self.read(path, at..range.end.min(at + PIECE_BYTES))?;
            if !read.is_still(object) || bytes.is_empty() {
                return Ok(false);
            }
            to.write_all_at(&bytes, at).map_err(|error| io_errno(&error))?;
            at += bytes.len() as u64;
        }
        Ok(true)
    }

    fn fetch_chunks(
        &self,
        path: &str,
        item: &TierItem<'_>,
        object: &Path,
    ) -> Result<Outcome, Errno> {
        let first = item.start..item.end.min(item.start + PIECE_BYTES);
        let (there, bytes) = self.read(path, first.clone())?;
        let attr = self.attr_of(&there);
        // The known one may have been seen by a look that told no ETag.
        let ctime = item.known.ctime;
        let untagged = there.tag == 0 || ctime.nanoseconds == 0;
        let attr = match untagged && ctime.seconds == attr.ctime.seconds {
            true => Attr { ctime, ..attr },
            false => attr,
        };
        if !is_same(&item.known, &attr) {
            return Ok(Outcome::of(attr));
        }
        let to = object_of_chunks(item, object)?;
        to.write_all_at(&bytes, first.start).map_err(|error| io_errno(&error))?;
        let rest = first.start + bytes.len() as u64..item.end;
        let same = self.copy(path, &there, &to, rest)?;
        set_times(&to, attr.atime, attr.mtime)?;
        Ok(Outcome { same, ..Outcome::of(attr) })
    }

    /// Puts an empty object.
    fn put_empty(&self, path: &str, about: &About, expected: Expected<'_>) -> Result<(), Errno> {
        let nothing: &mut dyn std::io::Read = &mut std::io::empty();
        self.told(path, self.bucket.put_file(path, about, (nothing, 0), expected))
    }

    fn create(&self, path: &str, item: &TierItem<'_>) -> Result<Outcome, Errno> {
        match self.put_empty(path, &about(item.attr.mode, now(), item.number), Expected::Nothing) {
            // One with bytes is somebody else's.
            Err(Errno::EEXIST) if item.again && self.attr(path)?.size_bytes == 0 => {}
            made => made?,
        }
        Ok(Outcome::of(self.attr(path)?))
    }

    fn make_directory(&self, path: &str, item: &TierItem<'_>) -> Result<Outcome, Errno> {
        let same = match self.attr(path) {
            Err(Errno::ENOENT) => {
                let about = about(item.attr.mode, now(), item.number);
                match self.put_empty(&marker_in(path), &about, Expected::Nothing) {
                    Err(Errno::EEXIST) if item.again => true,
                    made => made.map(|()| false)?,
                }
            }
            Ok(attr) if item.again && attr.kind == FileKind::Directory => true,
            Ok(_) => return Err(Errno::EEXIST),
            Err(errno) => return Err(errno),
        };
        Ok(Outcome { same, ..Outcome::of(self.attr_like(path, FileKind::Directory)?) })
    }

    /// A name is about to go from a directory, which stays also when it is empty then.
    fn mark(&self, directory: &str) -> Result<(), Errno> {
        if directory.is_empty() {
            return Ok(());
        }
        let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
        if marked.contains(directory) {
            return Ok(());
        }
        let marker = marker_in(directory);
        if self.look(&marker)?.is_none() {
            match self.put_empty(&marker, &about(DIRECTORY_MODE, now(), 0), Expected::Nothing) {
                Err(Errno::EEXIST) => {}
                made => made?,
            }
        }
        if marked.len() >= MARKED_MAX {
            marked.clear();
        }
        marked.insert(directory.to_owned());
        Ok(())
    }

    fn remove(&self, path: &str, item: &TierItem<'_>) -> Result<Outcome, Errno> {
        if self.look(path)?.is_none() {
            return if item.again { Ok(Outcome::default()) } else { Err(Errno::ENOENT) };
        }
        self.mark(parent_of(path))?;
        self.told(path, self.bucket.remove(path))?;
        Ok(Outcome::default())
    }

    fn remove_directory(&self, path: &str, item: &TierItem<'_>) -> Result<Outcome, Errno> {
        let marker = marker_in(path);
        let children = self.told(path, self.bucket.children(path))?;
        if children.iter().any(|(name, _)| joined(path, name) != marker) {
            return Err(Errno::ENOTEMPTY);
        }
        if children.is_empty() && !item.again {
            return Err(Errno::ENOENT);
        }
        self.mark(parent_of(path))?;
        self.marked.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
        if !children.is_empty() {
            self.told(path, self.bucket.remove(&marker))?;
        }
        Ok(Outcome::default())
    }

    fn rename(&self, from: &str, to: &str, item: &TierItem<'_>) -> Result<Outcome, Errno> {
        if item.which & !NO_REPLACE != 0 {
            return Err(Errno::EINVAL);
        }
        // `mv` copies what cannot be moved.
        if item.known.kind == FileKind::Directory {
            return Err(Errno::EXDEV);
        }
        let Some(object) = self.look(from)? else {
            if self.directory(from)?.is_some() {
                return Err(Errno::EXDEV);
            }
            let there = self.look(to)?.filter(|_| item.again).ok_or(Errno::ENOENT)?;
            let attr = self.attr_of(&there);
            return Ok(Outcome { same: was_known(item, &attr), ..Outcome::of(attr) });
        };
        let replaced = self.look(to)?;
        let by_this = item.again && replaced.as_ref().is_some_and(|to| to.bytes == object.bytes);
        if item.which & NO_REPLACE != 0 && replaced.is_some() && !by_this {
            return Err(Errno::EEXIST);
        }
        self.told(to, self.bucket.copy_to(from, to))?;
        self.mark(parent_of(from))?;
        self.told(from, self.bucket.remove(from))?;
        let same = was_known(item, &self.attr_of(&object));
        Ok(Outcome { same, ..Outcome::of(self.attr(to)?) })
    }

    fn set_attr(&self, path: &str, item: &TierItem<'_>) -> Result<Outcome, Errno> {
        let (which, attr) = (item.which, &item.attr);
        let differs = |set, to, is| which & set != 0 && to != is;
        if differs(SET_UID, attr.uid, self.owner.0) || differs(SET_GID, attr.gid, self.owner.1) {
            return Err(Errno::EPERM);
        }
        let kind = item.known.kind;
        let is_directory = path.is_empty() || kind == FileKind::Directory;
        let object = if is_directory { None } else { self.look(path)? };
        let before = match &object {
            Some(object) => self.attr_of(object),
            None => self.attr_like(path, kind)?,
        };
        let mode = if which & SET_MODE != 0 { attr.mode } else { before.mode };
        let mtime = match which {
            which if which & SET_MTIME_NOW != 0 => now(),
            which if which & SET_MTIME != 0 => attr.mtime,
            _ => before.mtime,
        };
        // Nobody is told when a file was read.
        let only = SET_ATIME | SET_ATIME_NOW | SET_UID | SET_GID;
        if which & !only != 0 && (mode, mtime) != (before.mode, before.mtime) {
            let about = about(mode, mtime, item.number);
            match &object {
                Some(object) => {
                    let put = self.told(path, self.bucket.put_about(path, object, &about));
                    put.map_err(|errno| match errno {
                        Errno::EFBIG => Errno::EOPNOTSUPP,
                        errno => errno,
                    })?;
                }
                None => {
                    let marker = marker_in(path);
                    let there = self.look(&marker)?;
                    let expected = there.as_ref().map_or(Expected::Nothing, Expected::Object);
                    self.put_empty(&marker, &about, expected)?;
                }
            }
        }
        Ok(Outcome { same: was_known(item, &before), ..Outcome::of(self.attr_like(path, kind)?) })
    }
}

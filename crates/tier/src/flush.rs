//! Bytes of a file that go back.
//!
//! They are written to a name of the keeper's own beside the master copy, with mode and time, and
//! are on the disk before that takes the place of the master copy. A note in the instance's data
//! directory says which file that was: a keeper that comes again, after the daemon could not be
//! told, takes it for what it is, and not for a change by somebody else.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
};

use mayfly_types::{Attr, Errno, FileKind, OBJECT_MAPPED, Timestamp, limits::NAME_BYTES_MAX};
use mayfly_wire::{
    TierItem,
    tier::{NO_ATTR, TIER_CONFLICT, TIER_INCOMPLETE, TIER_UNSETTLED, TIER_UNSURE},
};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, fstat, fsync, openat, renameat,
    renameat_with, unlinkat,
};

use crate::{
    bytes::{copy, set_times},
    outcome::Outcome,
    place::{OWN_PREFIX, Place, attr_of, errno, io_errno, is_same},
    xattrs,
};

/// Copies beside one file that are told apart.
pub(crate) const COPIES_MAX: u32 = 10_000;

/// A file that was put in the place of a master copy: its number, time and length.
pub(crate) type Put = (u64, Timestamp, u64);

fn put_of(attr: &Attr) -> Put {
    (attr.id.0, attr.mtime, attr.size_bytes)
}

/// Where it is noted.
pub(crate) fn note_of(notes: &Path, item: &TierItem<'_>) -> PathBuf {
    notes.join(format!("{:016x}", item.file.0))
}

pub(crate) fn noted(note: &Path) -> Option<Put> {
    let text = std::fs::read_to_string(note).ok()?;
    let mut words = text.split_whitespace();
    let mut word = || words.next();
    let number = word()?.parse().ok()?;
    let time = Timestamp { seconds: word()?.parse().ok()?, nanoseconds: word()?.parse().ok()? };
    Some((number, time, word()?.parse().ok()?))
}

/// Notes which file is about to be put.
pub(crate) fn note_put(note: &Path, (number, time, bytes): Put) -> Result<(), Errno> {
    let text = format!("{number} {} {} {bytes}", time.seconds, time.nanoseconds);
    let fresh = note.with_extension("new");
    let written = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, note));
    written.map_err(|error| io_errno(&error))
}

/// All bytes that go are the file's.
pub(crate) fn is_whole(item: &TierItem<'_>) -> bool {
    item.which & TIER_INCOMPLETE == 0
}

/// The name of a copy beside a file that somebody else has changed.
pub(crate) fn copy_name(name: &[u8], number: u32, is_whole: bool) -> Vec<u8> {
    let node = rustix::system::uname();
    let host = node.nodename().to_bytes().iter().take(64);
    let mut tail = b".mayfly-conflict-".to_vec();
    tail.extend(host.map(|byte| if *byte == b'/' { b'_' } else { *byte }));
    let end = if is_whole { "" } else { "-incomplete" };
    tail.extend_from_slice(format!("-{number}{end}").as_bytes());
    [&name[..name.len().min(NAME_BYTES_MAX - tail.len())], &tail].concat()
}

/// Flushes a file.
pub(crate) fn flush(
    place: &Place,
    item: &TierItem<'_>,
    objects: &Path,
    notes: &Path,
) -> Result<Outcome, Errno> {
    let mut own = OWN_PREFIX.to_vec();
    own.extend_from_slice(format!("{:016x}", item.file.0).as_bytes());
    let own =
        Place { directory: place.directory.try_clone().map_err(|_| Errno::EMFILE)?, name: own };
    let flushed = write_own(place, &own, item, objects).and_then(|(written, mapped)| {
        let outcome = put_in_place(place, &own, item, (&written, &note_of(notes, item)))?;
        Ok(Outcome { same: mapped, ..outcome })
    });
    if flushed.is_err() {
        let _ = unlinkat(&own.directory, &*own.name, AtFlags::empty());
    }
    flushed
}

/// The note is of no use any more: the daemon knows.
pub(crate) fn forget_note(notes: &Path, item: &TierItem<'_>) {
    let _ = std::fs::remove_file(note_of(notes, item));
}

/// The object whose bytes go back.
pub(crate) struct Object {
    pub(crate) file: File,
    /// So many of its bytes go.
    pub(crate) limit: u64,
    /// How long it is.
    pub(crate) bytes: u64,
    /// The file's time.
    pub(crate) mtime: Timestamp,
    /// It may be mapped.
    pub(crate) mapped: bool,
}

impl Object {
    pub(crate) fn open(item: &TierItem<'_>, path: &Path) -> Result<Object, Errno> {
        let file = File::open(path).map_err(|error| io_errno(&error))?;
        let metadata = file.metadata().map_err(|error| io_errno(&error))?;
        let (limit, mtime) = match item.which & TIER_UNSETTLED {
            0 => (item.attr.size_bytes, item.attr.mtime),
            _ => {
                let nanoseconds = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
                (u64::MAX, Timestamp { seconds: metadata.mtime(), nanoseconds })
            }
        };
        let mapped = metadata.mode() & OBJECT_MAPPED != 0;
        Ok(Object { file, limit, bytes: metadata.len(), mtime, mapped })
    }
}

/// Whether the master copy is the known one, or what an earlier flush of the file has put there.
pub(crate) fn is_expected(item: &TierItem<'_>, there: Option<&Attr>, earlier: Option<Put>) -> bool {
    let unsure = item.which & TIER_UNSURE != 0;
    there.map_or(unsure, |there| {
        let ctime = if unsure { there.ctime } else { item.known.ctime };
        is_same(&Attr { ctime, ..item.known }, there)
            || there.kind == FileKind::Regular && earlier == Some(put_of(there))
    })
}

/// Writes the bytes beside the master copy; what came of it, and whether the object may be mapped.
fn write_own(
    place: &Place,
    own: &Place,
    item: &TierItem<'_>,
    objects: &Path,
) -> Result<(Attr, bool), Errno> {
    let flags =
        OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let file = openat(&own.directory, &*own.name, flags, mode).map_err(errno)?;
    let mut file = File::from(file);
    let (mut mapped, mut mtime) = (false, item.attr.mtime);
    let copied = if item.other.is_empty() {
        file.write_all(item.bytes)
    } else {
        let object = Object::open(item, &object_path(objects, item.other)?)?;
        (mapped, mtime) = (object.mapped, object.mtime);
        copy(&mut object.file.take(object.limit), &mut file).map(drop)
    };
    copied.map_err(|error| io_errno(&error))?;
    give_away(&file, &item.attr);
    xattrs::take_along(place, &file)?;
    fchmod(&file, Mode::from_raw_mode(item.attr.mode & 0o7777)).map_err(errno)?;
    set_times(&file, item.attr.atime, mtime)?;
    fsync(&file).map_err(errno)?;
    Ok((attr_of(&fstat(&file).map_err(errno)?), mapped))
}

/// The file belongs to whom the instance says, where that is allowed.
fn give_away(file: impl AsFd, attr: &Attr) {
    let Ok(stat) = fstat(&file) else { return };
    let gid = (stat.st_gid != attr.gid).then(|| Gid::from_raw(attr.gid));
    let uid = (stat.st_uid != attr.uid).then(|| Uid::from_raw(attr.uid));
    if gid.is_some() || uid.is_some() {
        let _ = fchown(&file, uid, gid);
    }
}

/// A path that the daemon gives leads to an object.
pub(crate) fn object_path(objects: &Path, path: &[u8]) -> Result<PathBuf, Errno> {
    let text = std::str::from_utf8(path).map_err(|_| Errno::EINVAL)?;
    let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'/' || byte == b'.');
    if !plain || text.contains("..") || text.starts_with('/') {
        return Err(Errno::EINVAL);
    }
    Ok(objects.join(text))
}

fn put_in_place(
    place: &Place,
    own: &Place,
    item: &TierItem<'_>,
    (written, note): (&Attr, &Path),
) -> Result<Outcome, Errno> {
    let earlier = noted(note);
    let there = place.stat()?.map(|stat| attr_of(&stat));
    let (is_known, is_whole) = (is_expected(item, there.as_ref(), earlier), is_whole(item));
    if is_known && !is_whole && there.is_some() {
        return Err(Errno::ESTALE);
    }
    if !is_known || !is_whole {
        let copy = keep_beside(place, own, is_whole)?;
        let attr = there.unwrap_or(NO_ATTR);
        return Ok(Outcome { status: TIER_CONFLICT, bytes: copy, ..Outcome::of(attr) });
    }
    note_put(note, put_of(written))?;
    renameat(&own.directory, &*own.name, &place.directory, &*place.name).map_err(errno)?;
    Ok(Outcome::of(place.attr()?))
}

/// Gives our bytes a name of their own; which.
fn keep_beside(place: &Place, own: &Place, is_whole: bool) -> Result<Vec<u8>, Errno> {
    for number in 1..COPIES_MAX {
        let name = copy_name(&place.name, number, is_whole);
        let flags = RenameFlags::NOREPLACE;
        match renameat_with(&own.directory, &*own.name, &place.directory, &*name, flags) {
            Ok(()) => return Ok(name),
            Err(rustix::io::Errno::EXIST) => {}
            // A file system that cannot do that has links, mostly.
            Err(rustix::io::Errno::INVAL) => {
                let (from, to) = ((&own.directory, &*own.name), (&place.directory, &*name));
                match rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty()) {
                    Ok(()) => {
                        unlinkat(&own.directory, &*own.name, AtFlags::empty()).map_err(errno)?;
                        return Ok(name);
                    }
                    Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(errno(error)),
                }
            }
            Err(error) => return Err(errno(error)),
        }
    }
    Err(Errno::EEXIST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::open_root;
    use mayfly_types::FileId;
    use mayfly_wire::tier::TIER_FLUSH;

    struct Bench {
        outside: tempfile::TempDir,
        notes: tempfile::TempDir,
    }

    impl Bench {
        fn new(content: &str) -> Bench {
            let (outside, notes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            std::fs::write(outside.path().join("file"), content).unwrap();
            Bench { outside, notes }
        }

        fn attr(&self) -> Attr {
            Place::find(open_root(self.outside.path()).unwrap(), b"file").unwrap().attr().unwrap()
        }

        fn flush(&self, known: Attr, bytes: &[u8]) -> Outcome {
            self.flush_with(0, known, bytes)
        }

        fn flush_with(&self, which: u32, known: Attr, bytes: &[u8]) -> Outcome {
            let mtime = Timestamp { seconds: 77, nanoseconds: 5 };
            let attr = Attr { mode: 0o640, mtime, size_bytes: bytes.len() as u64, ..known };
            let item = TierItem {
                number: 1,
                source: 0,
                what: TIER_FLUSH,
                again: false,
                file: FileId(9),
                path: b"file",
                other: b"",
                bytes,
                which,
                start: 0,
                end: 0,
                known,
                attr,
            };
            let place = Place::find(open_root(self.outside.path()).unwrap(), b"file").unwrap();
            flush(&place, &item, Path::new("/"), self.notes.path()).unwrap()
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.outside.path()).unwrap();
            let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
            let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
            names.sort();
            names
        }
    }

    #[test]
    fn a_file_that_is_as_it_was_known_is_replaced_as_a_whole() {
        let bench = Bench::new("before");
        let done = bench.flush(bench.attr(), b"after");
        assert_eq!((done.status, done.attr.mtime.seconds, done.attr.mode), (0, 77, 0o640));
        assert_eq!(std::fs::read(bench.outside.path().join("file")).unwrap(), b"after");
        assert_eq!(bench.names(), ["file"]);
    }

    #[test]
    fn a_file_that_somebody_has_changed_stays_and_ours_is_beside_it() {
        let bench = Bench::new("before");
        let known = bench.attr();
        std::fs::write(bench.outside.path().join("file"), "theirs").unwrap();
        let done = bench.flush(known, b"ours");
        assert_eq!(done.status, TIER_CONFLICT);
        assert_eq!(std::fs::read(bench.outside.path().join("file")).unwrap(), b"theirs");
        let copy = String::from_utf8(done.bytes).unwrap();
        assert!(copy.starts_with("file.mayfly-conflict-") && copy.ends_with("-1"), "{copy}");
        assert_eq!(std::fs::read(bench.outside.path().join(&copy)).unwrap(), b"ours");
        assert_eq!(bench.names().len(), 2);
    }

    /// The mode was set, or the file moved, for a call that failed here.
    #[test]
    fn what_the_instance_may_have_done_itself_is_no_conflict() {
        let bench = Bench::new("before");
        let known = bench.attr();
        let file = bench.outside.path().join("file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).unwrap();
        let known = Attr { ctime: Timestamp { seconds: 1, nanoseconds: 0 }, ..known };
        assert_eq!(bench.flush_with(TIER_UNSURE, known, b"ours").status, 0);
        let known = bench.attr();
        std::fs::rename(&file, bench.outside.path().join("moved")).unwrap();
        assert_eq!(bench.flush_with(TIER_UNSURE, known, b"once more").status, 0);
        assert_eq!(std::fs::read(&file).unwrap(), b"once more");
        std::fs::write(&file, "theirs").unwrap();
        assert_eq!(bench.flush_with(TIER_UNSURE, known, b"ours").status, TIER_CONFLICT);
        assert_eq!(std::fs::read(&file).unwrap(), b"theirs");
    }

    /// The daemon died before it heard that the file was flushed, and took the flushed file for a
    /// change by somebody else.
    #[test]
    fn a_file_that_was_flushed_before_without_anybody_being_told_is_no_conflict() {
        let bench = Bench::new("before");
        let known = bench.attr();
        assert_eq!(bench.flush(known, b"ours").status, 0);
        assert_eq!(bench.flush(known, b"ours, once more").status, 0);
        assert_eq!(std::fs::read(bench.outside.path().join("file")).unwrap(), b"ours, once more");
        assert_eq!(bench.names(), ["file"]);
    }
}

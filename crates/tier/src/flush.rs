//! Bytes of a file that go back.
//!
//! They are written to a name of the keeper's own beside the master copy, with mode and time, and
//! are on the disk before that takes the place of the master copy. A note in the instance's data
//! directory says which file that was: a keeper that comes again, after the daemon could not be
//! told, takes it for what it is, and not for a change by somebody else.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::AsFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};

use mayfly_types::{Attr, Errno, FileKind, Timestamp, limits::NAME_BYTES_MAX};
use mayfly_wire::{
    TierItem,
    tier::{NO_ATTR, TIER_CONFLICT, TIER_INCOMPLETE, TIER_PARTLY, TIER_UNSURE, TierParts},
};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, fstat, fsync, openat, renameat,
    renameat_with, unlinkat,
};

use crate::{
    bytes::{copy, set_times},
    merged::{Merged, Object},
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

/// The rest of the bytes that go are those of the known master copy.
pub(crate) fn is_partly(item: &TierItem<'_>) -> bool {
    item.which & TIER_PARTLY != 0
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
    let note = note_of(notes, item);
    let earlier = noted(&note);
    let flushed = write_own(place, &own, item, (objects, earlier)).and_then(|(written, mapped)| {
        let outcome = put_in_place(place, (&own, &written), item, (&note, earlier))?;
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

/// Whether the master copy is the known one, or what an earlier flush of the file has put there.
pub(crate) fn is_expected(item: &TierItem<'_>, there: Option<&Attr>, earlier: Option<Put>) -> bool {
    let unsure = item.which & TIER_UNSURE != 0;
    there.map_or(unsure, |there| {
        let ctime = if unsure { there.ctime } else { item.known.ctime };
        is_same(&Attr { ctime, ..item.known }, there)
            || there.kind == FileKind::Regular && earlier == Some(put_of(there))
    })
}

/// Writes the bytes beside the master copy; the file, and whether the object may be mapped.
fn write_own(
    place: &Place,
    own: &Place,
    item: &TierItem<'_>,
    (objects, earlier): (&Path, Option<Put>),
) -> Result<(File, bool), Errno> {
    let flags =
        OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let wanted = item.attr.mode & 0o7777;
    // Whoever finds it later, and comes again, may write it.
    let mode = Mode::from_raw_mode(wanted & 0o777 | 0o600);
    let file = openat(&own.directory, &*own.name, flags, mode).map_err(errno)?;
    let mut file = File::from(file);
    // While nothing was written a network file system knows what it has just made.
    let mode = give_away(&file, &item.attr)?;
    let (mut mapped, mut mtime) = (false, item.attr.mtime);
    let copied = if item.other.is_empty() {
        file.write_all(item.bytes)
    } else {
        let object = Object::open(item, &object_path(objects, item.other)?)?;
        (mapped, mtime) = (object.mapped, object.mtime);
        match TierParts::of(item)? {
            Some(parts) => {
                let master = open_known(place, item, earlier)?;
                let read = |at, _end, to: &mut [u8]| master.read_at(to, at);
                copy(&mut Merged::new(object, parts, read), &mut file).map(drop)
            }
            None => copy(&mut object.file.take(object.limit), &mut file).map(drop),
        }
    };
    copied.map_err(|error| io_errno(&error))?;
    let has_other_mode = xattrs::take_along(place, &file)? || mode != Some(wanted);
    if has_other_mode {
        fchmod(&file, Mode::from_raw_mode(wanted)).map_err(errno)?;
    }
    set_times(&file, item.attr.atime, mtime)?;
    fsync(&file).map_err(errno)?;
    Ok((file, mapped))
}

/// The master copy, if it is the expected one.
fn open_known(place: &Place, item: &TierItem<'_>, earlier: Option<Put>) -> Result<File, Errno> {
    let gone = |errno| if errno == Errno::ENOENT { Errno::ESTALE } else { errno };
    let file = place.open().map_err(gone)?;
    let there = attr_of(&fstat(&file).map_err(errno)?);
    let is_it = is_expected(item, Some(&there), earlier);
    if is_it { Ok(file) } else { Err(Errno::ESTALE) }
}

/// The file belongs to whom the instance says, where that is allowed. Its mode, if it was theirs.
fn give_away(file: impl AsFd, attr: &Attr) -> Result<Option<u32>, Errno> {
    let stat = fstat(&file).map_err(errno)?;
    let gid = (stat.st_gid != attr.gid).then(|| Gid::from_raw(attr.gid));
    let uid = (stat.st_uid != attr.uid).then(|| Uid::from_raw(attr.uid));
    if gid.is_none() && uid.is_none() {
        return Ok(Some(stat.st_mode & 0o7777));
    }
    // Nobody else reads it before it has its mode.
    fchmod(&file, Mode::from_raw_mode(0o600)).map_err(errno)?;
    let _ = fchown(&file, uid, gid);
    Ok(None)
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
    (own, file): (&Place, &File),
    item: &TierItem<'_>,
    (note, earlier): (&Path, Option<Put>),
) -> Result<Outcome, Errno> {
    let attr = || fstat(file).map(|stat| attr_of(&stat)).map_err(errno);
    let there = place.stat()?.map(|stat| attr_of(&stat));
    let (is_known, is_whole) = (is_expected(item, there.as_ref(), earlier), is_whole(item));
    if is_known && !is_whole && there.is_some() || !is_known && is_partly(item) {
        return Err(Errno::ESTALE);
    }
    if !is_known || !is_whole {
        let copy = keep_beside(place, own, is_whole)?;
        let attr = there.unwrap_or(NO_ATTR);
        return Ok(Outcome { status: TIER_CONFLICT, bytes: copy, ..Outcome::of(attr) });
    }
    note_put(note, put_of(&attr()?))?;
    renameat(&own.directory, &*own.name, &place.directory, &*place.name).map_err(errno)?;
    // Not that of the name: others may have put another file there by now, which is not ours.
    Ok(Outcome::of(attr()?))
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
            let size_bytes = bytes.len() as u64;
            self.flush_item(&TierItem { bytes, which, ..item(known, size_bytes) }).unwrap()
        }

        fn flush_item(&self, item: &TierItem<'_>) -> Result<Outcome, Errno> {
            let place = Place::find(open_root(self.outside.path()).unwrap(), b"file").unwrap();
            flush(&place, item, self.notes.path(), self.notes.path())
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.outside.path()).unwrap();
            let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
            let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
            names.sort();
            names
        }
    }

    fn item(known: Attr, size_bytes: u64) -> TierItem<'static> {
        let mtime = Timestamp { seconds: 77, nanoseconds: 5 };
        TierItem {
            number: 1,
            source: 0,
            what: TIER_FLUSH,
            again: false,
            file: FileId(9),
            path: b"file",
            other: b"",
            bytes: b"",
            which: 0,
            start: 0,
            end: 0,
            known,
            attr: Attr { mode: 0o640, mtime, size_bytes, ..known },
        }
    }

    #[test]
    fn what_was_not_fetched_of_a_file_is_taken_from_the_known_master_copy() {
        let bench = Bench::new("..aabbccddee");
        let known = bench.attr();
        std::fs::write(bench.notes.path().join("0"), "AABBCCDDEEFFGG").unwrap();
        // Chunks of four bytes up to the eleventh: the second one is here, and what is appended.
        let (bytes, which): (&[u8], _) = (&[0b10], TIER_PARTLY);
        let partly = TierItem { other: b"0", bytes, which, start: 4, end: 11, ..item(known, 14) };
        let outside = || std::fs::read_to_string(bench.outside.path().join("file")).unwrap();
        assert_eq!(bench.flush_item(&partly).unwrap().attr.mtime.seconds, 77);
        assert_eq!(outside(), "..aaCCDDddeFGG");
        // The daemon did not hear of it.
        std::fs::write(bench.notes.path().join("0"), "AABBccDDEEFFGGH").unwrap();
        let longer = TierItem { attr: item(known, 15).attr, ..partly };
        assert_eq!(bench.flush_item(&longer).unwrap().attr.size_bytes, 15);
        assert_eq!(outside(), "..aaccDDddeFGGH");
        std::fs::write(bench.outside.path().join("file"), "theirs").unwrap();
        assert_eq!(bench.flush_item(&longer).err(), Some(Errno::ESTALE));
        std::fs::remove_file(bench.outside.path().join("file")).unwrap();
        assert_eq!(bench.flush_item(&longer).err(), Some(Errno::ESTALE));
        let short = TierItem { start: 1, ..longer };
        assert_eq!(bench.flush_item(&short).err(), Some(Errno::EINVAL), "a bit for each chunk");
        assert!(bench.names().is_empty());
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

//! Names and attributes: looked at, and changed.

use std::{
    os::fd::{AsFd, OwnedFd},
    thread,
};

use mayfly_types::{Attr, Errno, FileKind, Timestamp};
use mayfly_wire::{
    SET_ATIME, SET_ATIME_NOW, SET_GID, SET_MODE, SET_MTIME, SET_MTIME_NOW, SET_UID, TierItem,
    tier::{TierEntry, pack},
};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
    chmodat, chownat, mkdirat, openat, renameat_with, symlinkat, unlinkat, utimensat,
};

use crate::{
    outcome::Outcome,
    place::{Place, attr_at_rest, attr_of, errno, is_same, names_in},
};

/// What one entry takes besides its name and target, bytes.
pub(crate) const ENTRY_BYTES: usize = 256;
/// Entries of one directory that are looked at at a time.
const STATS_AT_ONCE: usize = 8;
/// A thread for fewer entries would cost more than it saves.
const SHARE_MIN: usize = 16;

/// The entries of a directory, unless it is as it is known.
pub(crate) fn look(place: &Place, known: &Attr) -> Result<Outcome, Errno> {
    let directory = place.open_directory()?;
    let attr = attr_at_rest(&directory)?;
    if is_same(known, &attr) {
        return Ok(Outcome { same: true, ..Outcome::of(attr) });
    }
    let inner = directory.try_clone().map_err(|_| Errno::EMFILE)?;
    let names = names_in(directory)?;
    if names.len() <= SHARE_MIN {
        return Ok(Outcome { bytes: entries(&inner, &names)?, ..Outcome::of(attr) });
    }
    let share = names.len().div_ceil(STATS_AT_ONCE).max(SHARE_MIN);
    let shares: Vec<Result<Vec<u8>, Errno>> = thread::scope(|scope| {
        let begun: Vec<_> =
            names.chunks(share).map(|of| scope.spawn(|| entries(&inner, of))).collect();
        begun.into_iter().map(|share| share.join().unwrap_or(Err(Errno::EIO))).collect()
    });
    let bytes = shares.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    Ok(Outcome { bytes, ..Outcome::of(attr) })
}

/// Entries of a directory, packed.
fn entries(directory: &OwnedFd, names: &[Vec<u8>]) -> Result<Vec<u8>, Errno> {
    let directory = directory.try_clone().map_err(|_| Errno::EMFILE)?;
    let mut entry = Place { directory, name: Vec::new() };
    let (mut packed, mut used) = (Vec::new(), 0);
    for name in names {
        entry.name.clone_from(name);
        let Some(stat) = entry.stat()? else { continue };
        let attr = attr_of(&stat);
        let target = if attr.kind == FileKind::Symlink { entry.target() } else { Ok(Vec::new()) };
        let Ok(target) = target else { continue };
        packed.resize(used + name.len() + target.len() + ENTRY_BYTES, 0);
        let entry = TierEntry { name, attr, target: &target };
        used = pack(&entry, &mut packed, used).ok_or(Errno::EOVERFLOW)?;
    }
    packed.truncate(used);
    Ok(packed)
}

/// The attributes of one name, and where a link leads.
pub(crate) fn check(place: &Place) -> Result<Outcome, Errno> {
    let attr = place.attr()?;
    let bytes = if attr.kind == FileKind::Symlink { place.target()? } else { Vec::new() };
    Ok(Outcome { bytes, ..Outcome::of(attr) })
}

/// Whether what is there was perhaps made before, for the same item. A file with bytes, and a link
/// that leads elsewhere, are somebody else's: whoever made the item would write behind their bytes.
fn made_before(place: &Place, item: &TierItem<'_>, kind: FileKind) -> Result<bool, Errno> {
    if !item.again {
        return Ok(false);
    }
    let attr = place.attr()?;
    Ok(attr.kind == kind
        && match kind {
            FileKind::Regular => attr.size_bytes == 0,
            FileKind::Symlink => place.target()? == item.other,
            _ => true,
        })
}

pub(crate) fn create(place: &Place, item: &TierItem<'_>) -> Result<Outcome, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(item.attr.mode);
    match openat(&place.directory, &*place.name, flags, mode) {
        Ok(_) => {}
        Err(rustix::io::Errno::EXIST) if made_before(place, item, FileKind::Regular)? => {}
        Err(error) => return Err(errno(error)),
    }
    Ok(Outcome::of(place.attr()?))
}

pub(crate) fn make_directory(place: &Place, item: &TierItem<'_>) -> Result<Outcome, Errno> {
    let same = match mkdirat(&place.directory, &*place.name, Mode::from_raw_mode(item.attr.mode)) {
        Ok(()) => false,
        Err(rustix::io::Errno::EXIST) if made_before(place, item, FileKind::Directory)? => true,
        Err(error) => return Err(errno(error)),
    };
    Ok(Outcome { same, ..Outcome::of(place.attr()?) })
}

pub(crate) fn symlink(place: &Place, item: &TierItem<'_>) -> Result<Outcome, Errno> {
    match symlinkat(item.other, &place.directory, &*place.name) {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) if made_before(place, item, FileKind::Symlink)? => {}
        Err(error) => return Err(errno(error)),
    }
    Ok(Outcome::of(place.attr()?))
}

pub(crate) fn remove(place: &Place, item: &TierItem<'_>, flags: AtFlags) -> Result<Outcome, Errno> {
    match unlinkat(&place.directory, &*place.name, flags) {
        Err(rustix::io::Errno::NOENT) if item.again => {}
        removed => removed.map_err(errno)?,
    }
    Ok(Outcome::default())
}

/// Whether a master copy was the known one before it was changed. If that was done before, its
/// ctime is of that change.
pub(crate) fn was_known(item: &TierItem<'_>, before: &Attr) -> bool {
    let ctime = if item.again { before.ctime } else { item.known.ctime };
    is_same(&Attr { ctime, ..item.known }, before)
}

pub(crate) fn rename(
    root: impl AsFd,
    place: &Place,
    item: &TierItem<'_>,
) -> Result<Outcome, Errno> {
    let to = Place::find(root, item.other)?;
    let before = place.stat()?.map(|stat| attr_of(&stat));
    let flags = RenameFlags::from_bits(item.which).ok_or(Errno::EINVAL)?;
    let renamed = renameat_with(&place.directory, &*place.name, &to.directory, &*to.name, flags);
    match renamed {
        Err(rustix::io::Errno::NOENT) if item.again && to.stat()?.is_some() => {}
        renamed => renamed.map_err(errno)?,
    }
    let after = to.attr()?;
    let same = was_known(item, &before.unwrap_or(after));
    Ok(Outcome { same, ..Outcome::of(after) })
}

/// A time that is to be set, is the present, or stays.
fn time_of(which: u32, (set, now): (u32, u32), time: Timestamp) -> Timespec {
    match which {
        which if which & now != 0 => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        which if which & set != 0 => {
            Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
        }
        _ => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    }
}

pub(crate) fn set_attr(place: &Place, item: &TierItem<'_>) -> Result<Outcome, Errno> {
    let (which, attr) = (item.which, &item.attr);
    let before = place.attr()?;
    if which & (SET_UID | SET_GID) != 0 {
        let uid = (which & SET_UID != 0).then(|| Uid::from_raw(attr.uid));
        let gid = (which & SET_GID != 0).then(|| Gid::from_raw(attr.gid));
        chownat(&place.directory, &*place.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(errno)?;
    }
    if which & SET_MODE != 0 {
        if before.kind == FileKind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        let mode = Mode::from_raw_mode(attr.mode);
        chmodat(&place.directory, &*place.name, mode, AtFlags::empty()).map_err(errno)?;
    }
    if which & (SET_ATIME | SET_MTIME | SET_ATIME_NOW | SET_MTIME_NOW) != 0 {
        let times = Timestamps {
            last_access: time_of(which, (SET_ATIME, SET_ATIME_NOW), attr.atime),
            last_modification: time_of(which, (SET_MTIME, SET_MTIME_NOW), attr.mtime),
        };
        utimensat(&place.directory, &*place.name, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(errno)?;
    }
    Ok(Outcome { same: was_known(item, &before), ..Outcome::of(place.attr()?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{busy::tests::item, place::open_root};
    use mayfly_wire::tier::{NO_ATTR, TIER_RENAME};

    /// A daemon died while somebody else's file was in the way of one that was to be made. The next
    /// one had it made again, took that file for the new one, and put its own bytes behind zeros.
    #[test]
    fn what_others_have_made_is_not_what_was_made_before() {
        let outside = tempfile::tempdir().unwrap();
        let root = open_root(outside.path()).unwrap();
        let attr = Attr { mode: 0o600, ..NO_ATTR };
        let item = |path: &'static [u8], other: &'static [u8]| TierItem {
            again: true,
            attr,
            ..item(TIER_RENAME, path, other)
        };
        let place = |path: &[u8]| Place::find(&root, path).unwrap();
        std::fs::write(outside.path().join("theirs"), "bytes").unwrap();
        let theirs = item(b"theirs", b"");
        assert_eq!(create(&place(b"theirs"), &theirs).err(), Some(Errno::EEXIST));
        let ours = item(b"ours", b"");
        assert!(create(&place(b"ours"), &ours).is_ok() && create(&place(b"ours"), &ours).is_ok());
        let link = item(b"link", b"here");
        assert!(symlink(&place(b"link"), &link).is_ok() && symlink(&place(b"link"), &link).is_ok());
        let elsewhere = item(b"link", b"there");
        assert_eq!(symlink(&place(b"link"), &elsewhere).err(), Some(Errno::EEXIST));
    }

    /// A daemon died after its dirty file was moved outside. The next one had it moved again, was
    /// not told that it was the known one, and took the file for somebody else's at the flush.
    #[test]
    fn a_file_that_was_moved_before_is_the_known_one() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("from"), "content").unwrap();
        let root = open_root(outside.path()).unwrap();
        let place = Place::find(&root, b"from").unwrap();
        let item = |again| TierItem {
            again,
            known: place.attr().unwrap_or(NO_ATTR),
            ..item(TIER_RENAME, b"from", b"to")
        };
        let first = item(false);
        assert!(rename(&root, &place, &first).unwrap().same);
        let second = TierItem { again: true, ..first };
        assert!(rename(&root, &place, &second).unwrap().same);
        std::fs::write(outside.path().join("to"), "of others").unwrap();
        assert!(!rename(&root, &place, &second).unwrap().same);
        assert_eq!(rename(&root, &place, &first).err(), Some(Errno::ENOENT));
    }
}

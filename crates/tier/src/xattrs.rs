//! Extended attributes: those that programs may set, and, where a file is replaced, its ACL.
//!
//! Calls go by a path through the directory's descriptor, so that no file has to be opened, which
//! its mode may forbid.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, AsRawFd},
};

use mayfly_types::{
    Errno,
    limits::{XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX},
};
use mayfly_wire::{
    TierItem,
    tier::{TierXattr, pack},
};
use rustix::fs::{
    XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, lgetxattr, llistxattr,
    lremovexattr, lsetxattr,
};

use crate::{
    names::was_known,
    outcome::Outcome,
    place::{Place, attr_of, errno},
};

const USER: &[u8] = b"user.";
/// What an instance says of its files itself.
const OWN: &[u8] = b"user.mayfly.";
const ACL: &[u8] = b"system.posix_acl_access";
/// All names of a file together, and one value, have at most this many bytes (the kernel's
/// XATTR_LIST_MAX and XATTR_SIZE_MAX).
const BYTES_MAX: usize = 64 * 1024;

fn path_of(place: &Place) -> Result<CString, Errno> {
    let mut path = format!("/proc/self/fd/{}/", place.directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(&place.name);
    CString::new(path).map_err(|_| Errno::EINVAL)
}

/// The names of a list, or none where there are no such attributes.
fn names_in(listed: rustix::io::Result<usize>, list: &[u8]) -> Result<Vec<CString>, Errno> {
    let used = match listed {
        Ok(used) => used,
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => 0,
        Err(error) => return Err(errno(error)),
    };
    let names = list[..used].split_inclusive(|byte| *byte == 0);
    Ok(names.filter_map(|name| CStr::from_bytes_with_nul(name).ok()).map(CStr::to_owned).collect())
}

fn is_shown(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(USER) && !name.starts_with(OWN) && name.len() <= XATTR_NAME_BYTES_MAX
}

/// All that programs may set.
pub(crate) fn list(place: &Place) -> Result<Outcome, Errno> {
    let (path, attr) = (path_of(place)?, place.attr()?);
    let (mut list, mut value) = (vec![0; BYTES_MAX], vec![0; XATTR_VALUE_BYTES_MAX]);
    let listed = llistxattr(&*path, &mut list);
    let mut packed = vec![0; 2 * XATTRS_BYTES_MAX + 1024];
    let mut used = 0;
    for name in names_in(listed, &list)?.iter().filter(|name| is_shown(name)) {
        let bytes = match lgetxattr(&*path, &**name, &mut value) {
            Ok(bytes) => bytes,
            // It was taken away just now.
            Err(rustix::io::Errno::NODATA) => continue,
            Err(rustix::io::Errno::RANGE) => return Err(Errno::E2BIG),
            Err(error) => return Err(errno(error)),
        };
        let xattr = TierXattr { name: name.to_bytes(), value: &value[..bytes] };
        used = pack(&xattr, &mut packed, used).ok_or(Errno::E2BIG)?;
    }
    packed.truncate(used);
    Ok(Outcome { bytes: packed, ..Outcome::of(attr) })
}

/// Gives one a value.
pub(crate) fn set(place: &Place, item: &TierItem<'_>) -> Result<Outcome, Errno> {
    let (path, before) = (path_of(place)?, place.attr()?);
    let name = CString::new(item.other).map_err(|_| Errno::EINVAL)?;
    let flags = XattrFlags::from_bits(item.which).ok_or(Errno::EINVAL)?;
    let set = lsetxattr(&*path, &*name, item.bytes, flags);
    let had = || {
        let mut value = vec![0; XATTR_VALUE_BYTES_MAX];
        let bytes = lgetxattr(&*path, &*name, &mut value).ok();
        bytes.is_some_and(|bytes| &value[..bytes] == item.bytes)
    };
    match set {
        Err(rustix::io::Errno::EXIST) if item.again && had() => {}
        set => set.map_err(errno)?,
    }
    Ok(Outcome { same: was_known(item, &before), ..Outcome::of(place.attr()?) })
}

/// Takes one away.
pub(crate) fn remove(place: &Place, item: &TierItem<'_>) -> Result<Outcome, Errno> {
    let (path, before) = (path_of(place)?, place.attr()?);
    let name = CString::new(item.other).map_err(|_| Errno::EINVAL)?;
    match lremovexattr(&*path, &*name) {
        Err(rustix::io::Errno::NODATA) if item.again => {}
        removed => removed.map_err(errno)?,
    }
    Ok(Outcome { same: was_known(item, &before), ..Outcome::of(place.attr()?) })
}

/// A file that is to take the place of another one gets its attributes and its ACL. Others, such
/// as labels, are the system's to give. Whether any was set or removed.
pub(crate) fn take_along(from: &Place, to: impl AsFd) -> Result<bool, Errno> {
    match from.stat()? {
        Some(stat) if attr_of(&stat).kind == mayfly_types::FileKind::Regular => {}
        _ => return Ok(false),
    }
    let mut changes = false;
    let (path, to) = (path_of(from)?, to.as_fd());
    let is_kept = |name: &CString| name.to_bytes().starts_with(USER) || name.to_bytes() == ACL;
    let (mut list, mut other) = (vec![0; BYTES_MAX], vec![0; BYTES_MAX]);
    let names = names_in(llistxattr(&*path, &mut list), &list)?;
    let there = names_in(flistxattr(to, &mut other), &other)?;
    let mut value = vec![0; BYTES_MAX];
    for name in names.iter().filter(|name| is_kept(name)) {
        match lgetxattr(&*path, &**name, &mut value) {
            Ok(bytes) => {
                let same = fgetxattr(to, &**name, &mut other).ok().map(|of| &other[..of]);
                if same != Some(&value[..bytes]) {
                    fsetxattr(to, &**name, &value[..bytes], XattrFlags::empty()).map_err(errno)?;
                    changes = true;
                }
            }
            Err(rustix::io::Errno::NODATA) => {}
            Err(error) => return Err(errno(error)),
        }
    }
    // The directory may have given it some.
    for name in there.iter().filter(|name| is_kept(name) && !names.contains(name)) {
        fremovexattr(to, &**name).map_err(errno)?;
        changes = true;
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{busy::tests::item, place::open_root};
    use mayfly_wire::tier::{NO_ATTR, TIER_SET_XATTR, unpacked};

    fn listed(place: &Place) -> Vec<(Vec<u8>, Vec<u8>)> {
        let packed = list(place).unwrap().bytes;
        let xattrs = unpacked::<TierXattr<'_>>(&packed).unwrap();
        let mut all: Vec<_> =
            xattrs.map(|xattr| (xattr.name.to_vec(), xattr.value.to_vec())).collect();
        all.sort();
        all
    }

    #[test]
    fn attributes_are_set_listed_and_taken_away_as_programs_have_them() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("file"), "bytes").unwrap();
        let place = Place::find(open_root(outside.path()).unwrap(), b"file").unwrap();
        let known = place.attr().unwrap();
        let of = |name: &'static [u8], bytes: &'static [u8]| TierItem {
            known,
            bytes,
            ..item(TIER_SET_XATTR, b"file", name)
        };
        assert!(set(&place, &of(b"user.a", b"1")).unwrap().same);
        // As one that was not told of the first: it has changed since.
        assert!(!set(&place, &of(b"user.mayfly.b", b"2")).unwrap().same);
        assert_eq!(listed(&place), [(b"user.a".to_vec(), b"1".to_vec())]);
        let anew = TierItem { which: 1, ..of(b"user.a", b"1") };
        assert_eq!(set(&place, &anew).err(), Some(Errno::EEXIST));
        assert!(set(&place, &TierItem { again: true, ..anew }).is_ok());
        let other = TierItem { again: true, bytes: b"2", ..anew };
        assert_eq!(set(&place, &other).err(), Some(Errno::EEXIST), "of others");
        assert!(remove(&place, &of(b"user.a", b"")).is_ok());
        assert_eq!(remove(&place, &of(b"user.a", b"")).err(), Some(Errno::ENODATA));
        let again = TierItem { again: true, known: NO_ATTR, ..of(b"user.a", b"") };
        assert!(remove(&place, &again).is_ok() && listed(&place).is_empty());
    }
}

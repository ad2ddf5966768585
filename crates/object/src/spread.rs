//! Objects of a node in several directories, on disks of their own for one.
//!
//! An object's path begins with one of 256 short names. Of these each further directory has a part,
//! by the space that it has, and in the object directory symbolic links stand for them: so whoever
//! has the object directory finds every object by the same path.

use std::{
    collections::HashSet,
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};

/// First parts of objects' paths.
const PARTS: usize = 256;

/// A directory that is to have a part of the objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Further {
    /// Where; it is made.
    pub path: PathBuf,
    /// Its space, bytes.
    pub free_bytes: u64,
}

/// Prepares the new object directory `root`, with so much space of its own.
///
/// # Errors
/// What the file system says.
pub fn spread(root: &Path, free_bytes: u64, further: &[Further]) -> io::Result<()> {
    let weights: Vec<u64> =
        std::iter::once(free_bytes).chain(further.iter().map(|one| one.free_bytes)).collect();
    let private = |path: &Path| std::fs::DirBuilder::new().mode(0o700).recursive(true).create(path);
    private(root)?;
    for (part, owner) in deal(&weights).into_iter().enumerate() {
        let Some(other) = owner.checked_sub(1).and_then(|index| further.get(index)) else {
            continue;
        };
        let (name, place) = (format!("{part:02x}"), other.path.join(format!("{part:02x}")));
        private(&place)?;
        symlink(place, root.join(name))?;
    }
    Ok(())
}

/// Whose each part is: highest averages (D'Hondt), so the first parts are as fair as all.
fn deal(weights: &[u64]) -> Vec<usize> {
    let mut had = vec![0_u64; weights.len()];
    let mut owners = Vec::with_capacity(PARTS);
    for _ in 0..PARTS {
        let share = |index: &usize| weights[*index] / (had[*index] + 1);
        // The first of those that are equal.
        let owner = (0..weights.len()).rev().max_by_key(share).unwrap_or(0);
        had[owner] += 1;
        owners.push(owner);
    }
    owners
}

/// One directory on each file system that has objects of `root`, this one first.
pub(crate) fn file_systems(root: OwnedFd) -> Result<Vec<OwnedFd>, rustix::io::Errno> {
    let mut known = HashSet::from([fs::fstat(&root)?.st_dev]);
    let mut further = Vec::new();
    for part in 0..PARTS {
        let name = format!("{part:02x}");
        let kind = fs::statat(&root, &name, AtFlags::SYMLINK_NOFOLLOW).map(|found| found.st_mode);
        if !kind.is_ok_and(|mode| FileType::from_raw_mode(mode) == FileType::Symlink) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let place = fs::openat(&root, &name, flags, Mode::empty())?;
        if known.insert(fs::fstat(&place)?.st_dev) {
            further.push(place);
        }
    }
    further.insert(0, root);
    Ok(further)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_dealt_out_by_space_and_nobody_without_space_has_one() {
        let count = |owners: &[usize], who| owners.iter().filter(|owner| **owner == who).count();
        let owners = deal(&[3 << 40, 1 << 40, 0]);
        assert_eq!((count(&owners, 0), count(&owners, 1), count(&owners, 2)), (192, 64, 0));
        assert_eq!(count(&owners[..32], 1), 8, "not one after the other");
        assert_eq!(count(&deal(&[0]), 0), PARTS);
    }
}

//! What kind of file system a directory is on.

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The kernel's word for it (`tmpfs`, `ext4`, `lustre`), or `directory`. What an instance serves to
/// this process is `mayfly`, of which the kernel knows nothing.
pub(crate) fn kind(directory: &Path) -> String {
    let mount = std::env::var_os("MAYFLY_MOUNT").filter(|mount| !mount.is_empty());
    if mount.is_some_and(|mount| directory.starts_with(mount)) {
        return "mayfly".to_owned();
    }
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    kind_in(&table, directory).unwrap_or("directory").to_owned()
}

/// Lives in memory, so that there is no device to be cold or raw.
pub(super) fn is_memory(directory: &Path) -> bool {
    matches!(kind(directory).as_str(), "tmpfs" | "ramfs")
}

fn kind_in<'t>(table: &'t str, directory: &Path) -> Option<&'t str> {
    let mut best: Option<(usize, &str)> = None;
    for line in table.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(at), Some(kind)) = (words.next(), words.next()) else { continue };
        let at = PathBuf::from(at.replace("\\040", " "));
        let length = at.as_os_str().as_bytes().len();
        // The last of equals lies on top.
        if directory.starts_with(&at) && best.is_none_or(|(longest, _)| length >= longest) {
            best = Some((length, kind));
        }
    }
    best.map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_counts() {
        let table = "/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\nx /a\\040b lustre rw 0 0";
        assert_eq!(kind_in(table, Path::new("/dev/shm/x")), Some("tmpfs"));
        assert_eq!(kind_in(table, Path::new("/dev/shmx")), Some("ext4"));
        assert_eq!(kind_in(table, Path::new("/a b/c")), Some("lustre"));
        assert_eq!(kind_in("", Path::new("/")), None);
    }
}

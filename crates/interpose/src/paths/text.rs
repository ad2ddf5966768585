//! Paths as text: is this one below the mount point?
//!
//! Nothing here asks the kernel. `..` is taken lexically, which is exact below the mount point (the
//! rest is the daemon's to walk) and wrong only behind a symbolic link of the kernel's that leads
//! to a directory elsewhere.

/// The part of `path` below the mount point, with its leading slash, `/` for the mount point
/// itself; `None` when the path is elsewhere. Both are absolute; `mount` is clean.
pub(crate) fn below<'p>(mount: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    if let Some(rest) = path.strip_prefix(mount) {
        match rest {
            [] => return Some(b"/"),
            [b'/', ..] => return Some(rest),
            _ => {}
        }
    }
    if is_clean(path) { None } else { walk_to(mount, path) }
}

/// No empty component and none that starts with a dot: text comparison is exact.
fn is_clean(path: &[u8]) -> bool {
    !path.windows(2).any(|pair| matches!(pair, b"//" | b"/."))
}

/// Walks `path` component by component until it stands on the mount point.
fn walk_to<'p>(mount: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    let wanted = mount.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).count();
    let mut depth = 0_usize;
    let mut matched = 0_usize;
    let mut rest = path;
    loop {
        while let [b'/', after @ ..] = rest {
            rest = after;
        }
        if rest.is_empty() {
            return None;
        }
        let length = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (component, after) = rest.split_at(length);
        match component {
            b"." => {}
            b".." => {
                depth = depth.saturating_sub(1);
                matched = matched.min(depth);
            }
            _ => {
                if matched == depth && nth_component(mount, depth) == Some(component) {
                    matched += 1;
                }
                depth += 1;
            }
        }
        if matched == wanted && depth == wanted {
            return Some(if after.is_empty() { b"/" } else { after });
        }
        rest = after;
    }
}

fn nth_component(path: &[u8], index: usize) -> Option<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).nth(index)
}

/// Could a relative path from some directory outside lead below the mount point? Only if it goes
/// up, or starts with a name that occurs in the mount point's path.
pub(super) fn may_lead_below(mount: &[u8], relative: &[u8]) -> bool {
    let first = first_component(relative);
    first == b"."
        || goes_up(relative)
        || mount.split(|byte| *byte == b'/').any(|part| part == first)
}

/// Could a relative path from some directory of procfs lead to a descriptor or a directory?
pub(super) fn may_lead_through_procfs(relative: &[u8]) -> bool {
    match first_component(relative) {
        b"fd" | b"cwd" | b"self" | b"thread-self" | b"task" => true,
        first => !first.is_empty() && first.iter().all(u8::is_ascii_digit),
    }
}

fn first_component(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'/').next().unwrap_or(&[])
}

/// Has the path a `..`?
pub(super) fn goes_up(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|part| part == b"..")
}

/// Is `directory` the mount point's parent, or above it?
pub(super) fn is_above(mount: &[u8], directory: &[u8]) -> bool {
    match mount.strip_prefix(directory) {
        Some(rest) => directory.ends_with(b"/") || rest.starts_with(b"/"),
        None => false,
    }
}

/// Everything before the last component, and that component. A trailing slash belongs to the
/// component.
pub(crate) fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    let trimmed = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let cut = path
        .get(..trimmed)
        .and_then(|path| path.iter().rposition(|byte| *byte == b'/'))
        .map_or(0, |slash| slash + 1);
    path.split_at(cut)
}

/// A name under which the kernel shows a descriptor, a directory or the program of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special<'p> {
    /// `/proc/self/fd/N`, `/dev/fd/N`, `/dev/stdin`, and what follows.
    Descriptor(i32, &'p [u8]),
    /// `/proc/self/cwd`, and what follows.
    WorkingDirectory(&'p [u8]),
    /// `/proc/self/exe`.
    Program,
    /// A descriptor or directory of another process: the kernel's link of it, and what follows.
    Others(&'p [u8], &'p [u8]),
}

/// Recognises such a name; `process` is the caller's id.
pub(crate) fn special(path: &[u8], process: impl FnOnce() -> u32) -> Option<Special<'_>> {
    if let Some(rest) = path.strip_prefix(b"/dev/") {
        return match rest {
            b"stdin" => Some(Special::Descriptor(0, b"")),
            b"stdout" => Some(Special::Descriptor(1, b"")),
            b"stderr" => Some(Special::Descriptor(2, b"")),
            _ => {
                let (number, rest) = split_component(rest.strip_prefix(b"fd/")?);
                Some(Special::Descriptor(descriptor(number)?, rest))
            }
        };
    }
    let (whose, rest) = split_component(path.strip_prefix(b"/proc/")?);
    let own = match whose {
        b"self" | b"thread-self" => true,
        _ => mayfly_sys::text::parse_decimal(whose)? == u64::from(process()),
    };
    // Threads have the descriptors and the directory of their process.
    let rest = match split_component(rest.strip_prefix(b"/")?) {
        (b"task", threads) => {
            let (thread, rest) = split_component(threads.strip_prefix(b"/")?);
            mayfly_sys::text::parse_decimal(thread)?;
            rest.strip_prefix(b"/")?
        }
        _ => rest.strip_prefix(b"/")?,
    };
    let (name, rest) = split_component(rest);
    let (number, rest) = match name {
        b"exe" => return (own && rest.is_empty()).then_some(Special::Program),
        b"cwd" if own => return Some(Special::WorkingDirectory(rest)),
        b"cwd" => (None, rest),
        b"fd" => {
            let (number, rest) = split_component(rest.strip_prefix(b"/")?);
            (Some(descriptor(number)?), rest)
        }
        _ => return None,
    };
    match number {
        Some(number) if own => Some(Special::Descriptor(number, rest)),
        _ => path.strip_suffix(rest).map(|link| Special::Others(link, rest)),
    }
}

/// Is the path exactly such a name, which the kernel shows as a symbolic link?
pub(super) fn is_special_link(path: &[u8]) -> bool {
    match special(path, mayfly_sys::process::process_id) {
        Some(Special::Program) => true,
        Some(
            Special::Descriptor(_, rest)
            | Special::WorkingDirectory(rest)
            | Special::Others(_, rest),
        ) => rest.is_empty(),
        None => false,
    }
}

/// The first component, and the rest with its slash.
fn split_component(path: &[u8]) -> (&[u8], &[u8]) {
    path.split_at(path.iter().position(|byte| *byte == b'/').unwrap_or(path.len()))
}

fn descriptor(number: &[u8]) -> Option<i32> {
    i32::try_from(mayfly_sys::text::parse_decimal(number)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNT: &[u8] = b"/run/user/7/may/mnt";

    #[test]
    fn a_path_below_the_mount_point_ends_at_a_component() {
        assert_eq!(below(MOUNT, b"/run/user/7/may/mnt"), Some(&b"/"[..]));
        assert_eq!(below(MOUNT, b"/run/user/7/may/mnt/"), Some(&b"/"[..]));
        assert_eq!(below(MOUNT, b"/run/user/7/may/mnt/a/b"), Some(&b"/a/b"[..]));
        assert_eq!(below(MOUNT, b"/run/user/7/may/mntx/a"), None);
        assert_eq!(below(MOUNT, b"/run/user/7/may"), None);
        assert_eq!(below(MOUNT, b"/usr/lib"), None);
    }

    #[test]
    fn odd_spellings_of_the_mount_point_are_found() {
        assert_eq!(below(MOUNT, b"//run/./user//7/may/mnt//a"), Some(&b"//a"[..]));
        assert_eq!(below(MOUNT, b"/run/user/7/../7/may/mnt"), Some(&b"/"[..]));
        assert_eq!(below(MOUNT, b"/x/../run/user/7/may/mnt/.hidden"), Some(&b"/.hidden"[..]));
        assert_eq!(below(MOUNT, b"/run/x/user/7/../7/may/mnt"), None);
        assert_eq!(below(MOUNT, b"/../run/user/7/may/mnt"), Some(&b"/"[..]));
        assert_eq!(below(MOUNT, b"/run/user/7/may/mnt/../other"), Some(&b"/../other"[..]));
    }

    #[test]
    fn relative_paths_that_cannot_lead_below_are_told_by_their_first_name() {
        assert!(may_lead_below(MOUNT, b"mnt/a"));
        assert!(may_lead_below(MOUNT, b"may"));
        assert!(may_lead_below(MOUNT, b"../x"));
        assert!(may_lead_below(MOUNT, b"./mnt"));
        assert!(!may_lead_below(MOUNT, b"src/main.c"));
        assert!(is_above(MOUNT, b"/"));
        assert!(is_above(MOUNT, b"/run/user"));
        assert!(!is_above(MOUNT, b"/run/use"));
        assert!(!is_above(MOUNT, MOUNT));
    }

    #[test]
    fn the_last_component_keeps_its_slash() {
        assert_eq!(split_last(b"a/b/c/"), (&b"a/b/"[..], &b"c/"[..]));
        assert_eq!(split_last(b"c"), (&b""[..], &b"c"[..]));
        assert_eq!(split_last(b"/c"), (&b"/"[..], &b"c"[..]));
    }

    #[test]
    fn names_of_own_descriptors_are_recognised() {
        let special = |path| super::special(path, || 12);
        assert_eq!(special(b"/dev/fd/63"), Some(Special::Descriptor(63, b"")));
        assert_eq!(special(b"/dev/stdout"), Some(Special::Descriptor(1, b"")));
        assert_eq!(special(b"/proc/self/fd/4/x"), Some(Special::Descriptor(4, b"/x")));
        assert_eq!(special(b"/proc/12/fd/4"), Some(Special::Descriptor(4, b"")));
        assert_eq!(special(b"/proc/self/task/13/fd/4"), Some(Special::Descriptor(4, b"")));
        assert_eq!(special(b"/proc/thread-self/cwd/a"), Some(Special::WorkingDirectory(b"/a")));
        assert_eq!(special(b"/proc/self/cwd"), Some(Special::WorkingDirectory(b"")));
        assert_eq!(special(b"/proc/self/exe"), Some(Special::Program));
        assert_eq!(special(b"/proc/self/fdinfo/3"), None);
        assert_eq!(special(b"/proc/self/fd/"), None);
        assert_eq!(special(b"/dev/null"), None);
    }

    #[test]
    fn names_of_others_descriptors_are_told_from_what_follows() {
        let special = |path| super::special(path, || 12);
        let descriptor = Special::Others(b"/proc/13/fd/4", b"");
        assert_eq!(special(b"/proc/13/fd/4"), Some(descriptor));
        let threads = Special::Others(b"/proc/13/task/14/fd/4", b"/x");
        assert_eq!(special(b"/proc/13/task/14/fd/4/x"), Some(threads));
        assert_eq!(special(b"/proc/13/cwd/a"), Some(Special::Others(b"/proc/13/cwd", b"/a")));
        assert_eq!(special(b"/proc/13/exe"), None);
        assert_eq!(special(b"/proc/13/fd"), None);
        assert_eq!(special(b"/proc/uptime"), None);
    }
}

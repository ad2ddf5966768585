//! The short way for calls on paths of others.
//!
//! Most paths that a program names are not ours, and one look at the text tells: it is absolute and
//! written plainly and differs from the mount point's, or it is relative to a directory from which
//! no plain name leads to the mount point. Such a call is issued at once. What cannot be told that
//! way, and a failure that needs a second look ([`crate::paths::links`]), takes the long way, which
//! decides everything anew.

use mayfly_sys::{
    file::{AT_EMPTY_PATH, AT_FDCWD},
    number,
    user::{self, Path},
};

use crate::{
    Call, Outcome,
    calls::serve::{argument, issue},
    class::{CLASSES, PATH_FIRST, PATH_SECOND},
    descriptors::table::{self, Meaning},
    first,
    paths::{cwd, hints::head, links},
    process::{
        flight,
        settings::{self, Settings},
    },
    report,
};

/// Serves the call if it is plainly the kernel's.
///
/// # Safety
/// As [`crate::dispatch`].
#[inline]
pub(crate) unsafe fn look(call: &Call) -> Option<Outcome> {
    // Calls with other paths, or with more than one, take the long way.
    let (directory, path) = match CLASSES.get(call.number) {
        Some(&PATH_FIRST) => (AT_FDCWD, argument(call, 0)),
        Some(&PATH_SECOND) => (argument(call, 0) as i32, argument(call, 1)),
        _ => return None,
    };
    let settings = settings::get()?;
    // SAFETY: passed on to the caller.
    let path = unsafe { user::scanned(path as *const u8) }.ok()?;
    match path.bytes {
        [] => return is_about_foreign(call, directory).then_some(Outcome::Pass),
        [b'/', ..] if !is_elsewhere(settings, path) => return None,
        [b'/', ..] => let_entry_decide(settings),
        [first, ..] if !leads_elsewhere(settings, directory, *first, path.odd) => return None,
        _ => {}
    }
    // SAFETY: passed on to the caller.
    let raw = unsafe { issue(call) };
    if links::is_suspicious(raw) { None } else { Some(Outcome::Done(raw)) }
}

/// From the next such call on, the hook's entry decides by itself ([`first`]).
#[inline]
fn let_entry_decide(settings: &Settings) {
    if !first::is_on() {
        turn_entry_on(settings);
    }
}

#[inline(never)]
fn turn_entry_on(settings: &Settings) {
    let head = settings.hints.head.filter(|_| !report::is_on() && !links::mount_is_directory());
    if let Some(head) = head {
        first::turn_on(head);
    }
}

/// Is an absolute path neither below the mount point nor a name of one of our descriptors?
#[inline]
fn is_elsewhere(settings: &Settings, path: Path<'_>) -> bool {
    const PROC: u64 = u64::from_le_bytes(*b"/proc/\0\0");
    const PROC_MASK: u64 = (1 << 48) - 1;
    const DEV: u64 = u64::from_le_bytes(*b"/dev/\0\0\0");
    const DEV_MASK: u64 = (1 << 40) - 1;
    // The shortest names of descriptors and the shortest mount points of use have as many bytes.
    let (Some(head), Some(mount)) = (head(path.bytes), settings.hints.head) else {
        return !path.odd
            && settings.hints.head.is_some()
            && !path.bytes.starts_with(b"/dev/")
            && !path.bytes.starts_with(b"/proc/");
    };
    !path.odd
        && head & PROC_MASK != PROC
        && head & DEV_MASK != DEV
        && (head != mount || !path.bytes.starts_with(settings.mount.as_bytes()))
}

/// Does a plain relative path lead to the kernel from `directory`?
#[inline]
fn leads_elsewhere(settings: &Settings, directory: i32, first: u8, odd: bool) -> bool {
    if odd || first == b'.' || flight::is_under_way() {
        return false;
    }
    if directory == AT_FDCWD {
        return cwd::directory().is_none() && !cwd::is_near();
    }
    // A number may be the name of a descriptor, in procfs.
    let may_lead_here = settings.hints.may_begin(first) || first.is_ascii_digit();
    !may_lead_here && table::get(directory) == Meaning::Foreign
}

/// Is it the attributes of a descriptor that is not ours that are asked for?
#[inline]
fn is_about_foreign(call: &Call, directory: i32) -> bool {
    let flags = match call.number {
        number::NEWFSTATAT => argument(call, 3),
        number::STATX => argument(call, 2),
        _ => 0,
    };
    flags & AT_EMPTY_PATH != 0
        && directory >= 0
        && !flight::is_under_way()
        && table::get(directory) == Meaning::Foreign
}

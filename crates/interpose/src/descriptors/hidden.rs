//! Descriptors of our own, out of the application's sight.
//!
//! They stand above the soft limit where the hard limit allows it, so that they take no number from
//! the application: the soft limit is raised for the moment of the duplication. They are closed by
//! exec, refused to close and dup2, and skipped by close_range.

use mayfly_client::{Descriptors, Mirror};
use mayfly_sys::{
    Errno,
    file::{self, O_CLOEXEC},
    lock::Lock,
    process,
};
use mayfly_types::mirror;

use super::table;
use crate::process::{flight, lanes::Hidden, run_directory};

/// Lowest number for a hidden descriptor when the limit is larger: higher ones make the kernel's
/// table, which fork copies, larger.
const BASE_MAX: u64 = 4096;
/// Numbers needed above the base.
const ROOM: u64 = 1024;

static RAISING: Lock = Lock::new();

/// Lowest number at which hidden descriptors stand when nothing more can be had.
pub(crate) fn base() -> i32 {
    let limit = process::limit(process::RLIMIT_NOFILE);
    let base = limit.soft.min(BASE_MAX);
    if limit.hard >= base + ROOM { base as i32 } else { (limit.soft - limit.soft / 8) as i32 }
}

/// For the child of a fork.
pub(crate) fn reset() {
    RAISING.reset();
}

/// Moves `descriptor` up and marks it.
///
/// # Errors
/// EMFILE.
pub(crate) fn conceal(descriptor: i32) -> Result<i32, Errno> {
    let base = base();
    if flight::child().is_some() {
        // The number is the child's; in the table it would be the parent's.
        let moved = duplicate_up(descriptor, base);
        file::close(descriptor);
        return moved;
    }
    if descriptor >= base {
        table::hide(descriptor);
        return Ok(descriptor);
    }
    let moved = duplicate_up(descriptor, base);
    file::close(descriptor);
    let moved = moved?;
    table::hide(moved);
    Ok(moved)
}

/// Puts `descriptor` in the place of a hidden one, which is closed.
fn conceal_over(descriptor: i32, old: i32) -> Result<i32, Errno> {
    let duplicate = || file::duplicate_onto(descriptor, old, O_CLOEXEC);
    // Above the soft limit it is refused, and where the limit was lowered since also above the
    // raised one.
    match duplicate().or_else(|_| above_the_limit(base(), duplicate)) {
        Ok(moved) => {
            file::close(descriptor);
            Ok(moved)
        }
        Err(_) => {
            let moved = conceal(descriptor);
            release(old);
            moved
        }
    }
}

fn duplicate_up(descriptor: i32, base: i32) -> Result<i32, Errno> {
    above_the_limit(base, || {
        file::control(descriptor, file::F_DUPFD_CLOEXEC, base as usize).map(|fd| fd as i32)
    })
}

/// Duplicates a descriptor with the soft limit raised for so long, where that is needed.
fn above_the_limit(
    base: i32,
    duplicate: impl FnOnce() -> Result<i32, Errno>,
) -> Result<i32, Errno> {
    let limit = process::limit(process::RLIMIT_NOFILE);
    if limit.soft > base as u64 + ROOM || limit.hard < base as u64 + ROOM {
        return duplicate();
    }
    let _held = RAISING.hold();
    let raised = process::Limit { soft: base as u64 + ROOM, hard: limit.hard };
    process::set_limit(process::RLIMIT_NOFILE, raised)?;
    let moved = duplicate();
    process::set_limit(process::RLIMIT_NOFILE, limit)?;
    moved
}

/// Closes a hidden descriptor.
pub(crate) fn release(descriptor: i32) {
    if flight::child().is_none() {
        table::unhide(descriptor);
    }
    file::close(descriptor);
}

impl Descriptors for Hidden {
    fn conceal(&self, descriptor: i32) -> Result<i32, Errno> {
        conceal(descriptor)
    }

    fn release(&self, descriptor: i32) {
        release(descriptor);
    }

    fn conceal_over(&self, descriptor: i32, old: Option<i32>) -> Result<i32, Errno> {
        match old {
            Some(old) if flight::child().is_none() => conceal_over(descriptor, old),
            _ => {
                let concealed = conceal(descriptor);
                old.inspect(|old| release(*old));
                concealed
            }
        }
    }

    fn mirror(&self) -> Result<Mirror, Errno> {
        let (start, path) = run_directory::entry(mirror::DIRECTORY.as_bytes())?;
        Ok(Mirror { start, path })
    }
}

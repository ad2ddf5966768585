//! Programs that this library cannot enter: static ones, those of another architecture, and those
//! that run as somebody else.
//!
//! Such a program gets what it inherits from the kernel's mount, if there is one: its descriptors
//! ([`crate::descriptors::handover`]) and its working directory.

use mayfly_sys::{
    Errno,
    file::{self, AT_EMPTY_PATH, AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_PATH, O_RDONLY},
    process,
    text::PathText,
};

use super::{
    environment, exec::script::interpreter_of, flight, libraries, run_directory, settings, view,
};
use crate::{
    descriptors::{handover, table},
    paths::cwd,
    report,
};

/// Interpreters of interpreters that are looked through.
const INTERPRETERS_MAX: usize = 5;
/// The path may be that of a FIFO.
const O_NONBLOCK: u32 = 0o4000;

/// Has this process anything that a stranger would inherit, and is there a mount?
fn is_concerned() -> bool {
    let has = !table::is_empty() || flight::child().is_some() || cwd::directory().is_some();
    has && handover::is_possible()
}

/// Says so, once for each program on this node, when the kernel is about to run one at `path` that
/// would not find the instance, which it works in or is given a path of.
///
/// # Safety
/// `arguments` is a valid array of strings.
#[inline(never)]
pub(super) unsafe fn tell(
    arguments: *const *const u8,
    directory: i32,
    path: &PathText,
    flags: usize,
) {
    let Some(settings) = settings::get() else { return };
    let mount = settings.mount.as_bytes();
    let mut concerned = cwd::directory().is_some();
    // SAFETY: passed on to the caller.
    unsafe {
        environment::for_each(arguments, |_, word| {
            concerned |= word.windows(mount.len()).any(|part| part == mount);
        });
    }
    // The cheapest question first: most programs are neither.
    if concerned && !handover::is_possible() && is_stranger(directory, path, flags) {
        tell_of(path.as_bytes());
    }
}

fn tell_of(path: &[u8]) {
    // Where nothing can be written nobody is told.
    let _ = try_to_tell(path);
}

fn try_to_tell(path: &[u8]) -> Result<(), Errno> {
    let mut name = PathText::from_bytes(b"told-")?;
    name.push_hexadecimal(sum_of(path))?;
    let (directory, name) = run_directory::entry(name.as_bytes())?;
    file::make_directory(directory, &name, 0o700)?;
    let mut line = PathText::from_bytes(b"mayfly: ")?;
    line.push(path)?;
    line.push(b" is not served: it is of Go, of another architecture, or runs as another user")?;
    line.push(b"; it finds the instance where it is mounted (--access fuse)\n")?;
    report::write(line.as_bytes());
    Ok(())
}

/// FNV-1a, to tell paths apart.
fn sum_of(text: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    text.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The working directory was put into the mount for a program that then did not start.
pub(super) struct Moved(bool);

impl Moved {
    /// Back to where this process works, as far as the kernel knows.
    pub(super) fn undo(self) {
        if self.0 {
            cwd::enter_again();
        }
    }
}

/// Before the kernel runs the program at `path`.
#[inline(never)]
pub(super) fn before_kernels(directory: i32, path: &PathText, flags: usize) -> Moved {
    view::warn_of_another_root(directory, path);
    if is_concerned() && is_stranger(directory, path, flags) { give() } else { Moved(false) }
}

/// Before the program of the instance at `path` is run, which `read` reads (offset, buffer, bytes
/// read). Without a mount it finds the instance as little as any other stranger.
#[inline(never)]
pub(super) fn before_ours(path: &[u8], read: impl FnMut(u64, &mut [u8]) -> usize) -> Moved {
    if libraries::is_dynamic(read) {
        return Moved(false);
    }
    if !handover::is_possible() {
        tell_of(path);
    }
    if is_concerned() { give() } else { Moved(false) }
}

#[inline(never)]
fn give() -> Moved {
    handover::give_inherited();
    let Some(directory) = cwd::directory() else { return Moved(false) };
    let mut path = PathText::new();
    let opened = cwd::absolute(directory, &mut path)
        .and_then(|()| file::open_at(AT_FDCWD, &path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0));
    let Ok(place) = opened else { return Moved(false) };
    let entered = file::enter(place).is_ok();
    file::close(place);
    Moved(entered)
}

/// False for what cannot be read; the kernel will say why.
#[inline(never)]
fn is_stranger(directory: i32, path: &PathText, flags: usize) -> bool {
    if flags & AT_EMPTY_PATH != 0 && path.as_bytes().is_empty() {
        return is_closed(directory);
    }
    let mut at = directory;
    let mut name = PathText::new();
    if name.push(path.as_bytes()).is_err() {
        return false;
    }
    for _ in 0..INTERPRETERS_MAX {
        let opened = file::open_at(at, &name, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
        let Ok(program) = opened else { return false };
        let mut next = PathText::new();
        let is_script = interpreter_of(program, &mut next);
        let closed = !is_script && is_closed(program);
        file::close(program);
        if !is_script {
            return closed;
        }
        (at, name) = (AT_FDCWD, next);
    }
    false
}

/// Is the open program one that a library cannot enter?
fn is_closed(program: i32) -> bool {
    runs_as_another(program)
        || !libraries::is_dynamic(|offset, to| libraries::read_kernel(program, offset, to))
}

pub(super) fn runs_as_another(program: i32) -> bool {
    const SET_UID: u32 = 0o4000;
    const SET_GID: u32 = 0o2010;
    let Ok((mode, uid, gid)) = file::mode_and_owner(program) else { return false };
    let (own_uid, own_gid) = process::owner();
    mode & SET_UID != 0 && uid != own_uid || mode & SET_GID == SET_GID && gid != own_gid
}

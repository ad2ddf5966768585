//! Static programs where there is no mount: the kernel runs the library in their place, which loads
//! them (`preload::loader`), so that they are served. They travel in `MAYFLY_STATIC`.
//!
//! Go's programs are run as they are: their stacks have no room for a hook. So is whatever cannot
//! be read, runs as another user, or has no name that leads to it.

use mayfly_sys::{
    Errno,
    file::{self, AT_EMPTY_PATH, AT_FDCWD},
    text::PathText,
};

use super::{HEAD_BYTES, Image, Interpreter, ScriptName, hand_over, interpreter};
use crate::{
    descriptors::handover,
    paths::text,
    process::{libraries, loader, settings, strangers},
};

/// Runs the program at the kernel's path, from a directory and with flags, when it is static, or
/// finds the interpreter of a script that is one. `None` when it is something else, or the library
/// cannot be run: then the program is, by itself.
///
/// # Errors
/// ENOMEM, E2BIG; those of a script.
///
/// # Safety
/// The image holds valid arrays.
#[inline(never)]
pub(super) unsafe fn run(
    image: &mut Image<'_>,
    (directory, path, flags): (i32, &PathText, usize),
    script: ScriptName<'_>,
) -> Result<Option<PathText>, Errno> {
    if handover::is_possible() || loader::is_one(path.as_bytes()) {
        return Ok(None);
    }
    let mut head = [0; HEAD_BYTES];
    let mut look = |open| {
        let count = libraries::read_kernel(open, 0, &mut head);
        (program(open), count)
    };
    let found = match flags & AT_EMPTY_PATH != 0 && path.as_bytes().is_empty() {
        true => Some(look(directory)),
        false => libraries::with_kernels(directory, path, look),
    };
    let Some((program, count)) = found else { return Ok(None) };
    if let Some(path) = program {
        // SAFETY: passed on to the caller.
        return match unsafe { load(image, &path, b"") }? {
            errno @ (Errno::ENOMEM | Errno::E2BIG) => Err(errno),
            _ => Ok(None),
        };
    }
    match interpreter(head.get(..count).unwrap_or(&[])) {
        Ok(Some(by)) if is_static(by) => {
            let mut name = PathText::new();
            script.write_to(&mut name)?;
            // SAFETY: passed on to the caller.
            unsafe { image.interpose(by, name.as_bytes()) }?;
            PathText::from_bytes(by.path).map(Some)
        }
        _ => Ok(None),
    }
}

#[inline(never)]
fn is_static(by: Interpreter<'_>) -> bool {
    let Ok(path) = PathText::from_bytes(by.path) else { return false };
    !loader::is_one(by.path)
        && libraries::with_kernels(AT_FDCWD, &path, |open| program(open).is_some()) == Some(true)
}

/// The path of an open program, if it can be loaded in the kernel's place.
#[inline(never)]
fn program(open: i32) -> Option<PathText> {
    const EXECUTE: usize = 1;
    let read = |offset: u64, to: &mut [u8]| libraries::read_kernel(open, offset, to);
    if !libraries::is_loadable(read) || strangers::runs_as_another(open) {
        return None;
    }
    let mut path = PathText::new();
    file::descriptor_link(open, &mut path).ok()?;
    let named = path.as_bytes().starts_with(b"/") && !path.as_bytes().ends_with(b" (deleted)");
    (named && file::check_access(AT_FDCWD, &path, EXECUTE).is_ok()).then_some(path)
}

/// Has the library load the static program at `path`, called `program` in the mount; returns only
/// to say why not.
///
/// # Errors
/// ENOMEM, E2BIG.
///
/// # Safety
/// The image holds valid arrays.
#[inline(never)]
pub(super) unsafe fn load(
    image: &mut Image<'_>,
    path: &PathText,
    program: &[u8],
) -> Result<Errno, Errno> {
    let library = PathText::from_bytes(settings::require()?.library.as_bytes())?;
    image.loads.push(path.as_bytes())?;
    let name = image.name;
    let name = if name.is_empty() { text::split_last(path.as_bytes()).1 } else { name };
    // SAFETY: passed on to the caller.
    let errno = unsafe {
        image.equip(program, name)?;
        hand_over(image, AT_FDCWD, &library, 0)
    };
    image.loads.clear();
    // SAFETY: as above.
    unsafe { image.equip(program, b"") }?;
    Ok(errno)
}

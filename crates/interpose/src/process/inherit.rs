//! The beginning of a program: what the environment says, and what it inherits.
//!
//! Inherited descriptors are believed only when the kernel's link of the descriptor names the slot
//! file. Without `MAYFLY_FDS` (the program was started from a child of vfork, or by something that
//! does not know us) the first three descriptors are looked at, and the rest when there are any.

use mayfly_sys::{
    Errno, file, process,
    text::{PathText, parse_decimal, parse_hexadecimal},
};
use mayfly_types::{FileId, OpenRef};

use super::{daemons, environment, fork, loader, program, session, settings};
use crate::{
    calls::names,
    descriptors::{identity, listing::each_in_kernel, table},
    paths::{cwd, text},
    report,
};

/// Takes everything up.
///
/// # Errors
/// ENOENT when the environment names no instance; ENOMEM.
///
/// # Safety
/// As [`crate::start`].
pub(crate) unsafe fn start(envp: *const *const u8) -> Result<(), Errno> {
    // SAFETY: passed on to the caller; the strings stay for the length of this function.
    let find = |name| unsafe { environment::find(envp, name) };
    let run = find(environment::RUN).filter(|run| run.starts_with(b"/")).ok_or(Errno::ENOENT)?;
    let mount = find(environment::MOUNT).map(without_slashes).ok_or(Errno::ENOENT)?;
    if !mount.starts_with(b"/") {
        return Err(Errno::ENOENT);
    }
    let host = (
        PathText::from_bytes(without_slashes(run))?,
        PathText::from_bytes(find(environment::OBJECTS).map_or(&b""[..], without_slashes))?,
    );
    // SAFETY: passed on to the caller.
    let count = unsafe { daemons::count(envp) };
    // SAFETY: passed on to the caller.
    let chosen = count.and_then(|count| unsafe { daemons::choose(envp, count, &host.0) });
    let (run, objects) = chosen.as_ref().unwrap_or(&host);
    let objects = objects.as_bytes();
    let program =
        find(environment::PROGRAM).and_then(|program| Some((program, program::disguise(objects)?)));
    let libraries = find(environment::PRELOAD).or_else(|| find(environment::AUDIT));
    let library = environment::first_library(libraries.unwrap_or(b""));
    let loads = find(environment::STATIC).filter(|_| program::is(library));
    let loaded = find(environment::LOADED)
        .and_then(|value| loader::take_up(value, program.as_ref().map(|(program, _)| *program)));
    settings::set(|settings| {
        settings.run.push(run.as_bytes())?;
        settings.host_run.push(host.0.as_bytes())?;
        settings.host_objects.push(host.1.as_bytes())?;
        if let Some(count) = count {
            settings.daemons.push_decimal(u64::from(count))?;
        }
        settings.mount.push(mount)?;
        settings.objects.push(objects)?;
        settings.images.push(find(environment::IMAGES).unwrap_or(b""))?;
        settings.library.push(library)?;
        if let Some((program, _)) = &program {
            settings.program.push(program)?;
        }
        // It is loaded by the library, which the kernel's link names.
        if let Some(path) = loads {
            settings.program.push(find(environment::PROGRAM).unwrap_or(path))?;
        }
        // A loader may itself be a program of the mount.
        let taken = program.as_ref().map(|(program, origin)| [*program, origin.as_bytes()]);
        if let Some([program, origin]) = loaded.or(taken) {
            settings.origin.push(origin)?;
            settings.home.push(text::split_last(program).0)?;
        }
        Ok(())
    })?;
    table::set_up()?;
    fork::set_up()?;
    if find(environment::REPORT) == Some(b"1") {
        report::turn_on();
    }
    names::look_at_umask();
    if let Some(directory) = find(environment::DIRECTORY).and_then(parse_hexadecimal) {
        cwd::inherit(FileId(directory));
    }
    cwd::look_at_start();
    if let Some(name) = find(environment::NAME) {
        process::set_name(name);
    }
    match find(environment::DESCRIPTORS) {
        Some(list) => take_up(list),
        None => scan(),
    }
    Ok(())
}

fn without_slashes(path: &[u8]) -> &[u8] {
    let length = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    path.get(..length).unwrap_or(path)
}

/// Descriptors named by the program before.
fn take_up(list: &[u8]) {
    for item in list.split(|byte| *byte == b',') {
        let mut numbers = item.split(|byte| *byte == b':').map(parse_decimal);
        let mut next = || numbers.next().flatten();
        let (Some(descriptor), Some(index), Some(generation)) = (next(), next(), next()) else {
            continue;
        };
        let (Ok(descriptor), Ok(index)) = (i32::try_from(descriptor), u32::try_from(index)) else {
            continue;
        };
        if identity::slot_of(descriptor) == Some(index) {
            let open = OpenRef { index, generation: generation as u32 };
            let _ = table::adopt(descriptor, open);
        }
    }
}

/// Takes up `descriptor` if the kernel's link says that it is ours.
pub(crate) fn recognise(descriptor: i32) {
    if let Some(index) = identity::slot_of(descriptor)
        && let Ok(session) = session::get()
        && let Ok(open) = session.open_file_at(index)
    {
        let _ = table::adopt(descriptor, open.reference);
    }
}

/// Looks at all descriptors: the first three, and the rest as procfs lists them.
fn scan() {
    for descriptor in 0..3 {
        recognise(descriptor);
    }
    each_in_kernel(|descriptor| {
        if descriptor > 2 {
            recognise(descriptor);
        }
    });
}

/// The list for the program after: every descriptor that exec leaves open.
pub(super) fn describe(
    mut each: impl FnMut(i32, OpenRef) -> Result<(), Errno>,
) -> Result<(), Errno> {
    for (descriptor, open) in table::each_open() {
        match file::control(descriptor, file::F_GETFD, 0) {
            Ok(flags) if flags & file::FD_CLOEXEC == 0 => each(descriptor, open)?,
            // Closed unseen, or by another thread meanwhile: exec leaves nothing open there.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

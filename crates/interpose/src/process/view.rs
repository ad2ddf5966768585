//! Before this process, or its next program, sees another file system: a mount, a namespace,
//! another root.
//!
//! The directories of the instance are held by descriptors from then on
//! ([`crate::process::run_directory`]).

use mayfly_sys::{
    file::{self, AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_PATH},
    text::PathText,
};

use super::{
    flight,
    run_directory::{OBJECTS, RUN},
    settings,
};
use crate::{descriptors::hidden, paths::cwd, report};

/// The process is about to see another file system.
pub(crate) fn before_another_view() {
    let Some(settings) = settings::get() else { return };
    // A child of vfork is another program soon; its numbers must not get into its parent's memory.
    if flight::child().is_some() {
        return;
    }
    cwd::settle();
    for (held, path) in [(&RUN, &settings.run), (&OBJECTS, &settings.objects)] {
        if held.get().is_some() {
            continue;
        }
        let flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
        if let Ok(directory) = file::open_at(AT_FDCWD, path, flags, 0).and_then(hidden::conceal) {
            held.set(directory);
        }
    }
}

/// Says so where the program at `path`, which is about to be executed, cannot be served: its root
/// does not show the library.
pub(super) fn warn_of_another_root(directory: i32, path: &PathText) {
    let Some(settings) = settings::get().filter(|_| RUN.get().is_some()) else { return };
    if file::check_access(AT_FDCWD, &settings.library, 0).is_ok()
        || file::check_access(directory, path, 0).is_err()
    {
        return;
    }
    let parts = [
        &b"mayfly: "[..],
        path.as_bytes(),
        b" is not served: its root does not show ",
        settings.run.as_bytes(),
        b"; bind that directory and the data directory there\n",
    ];
    let mut line = PathText::new();
    // Without a line, or where nobody reads it, the program fails as it would.
    if parts.iter().try_for_each(|part| line.push(part)).is_ok() {
        report::write(line.as_bytes());
    }
}

//! Which libraries of this process issue system calls for everybody.

use std::path::{Path, PathBuf};

/// Names that the library in the host process looks for, in the same spelling.
const NAMES: [&str; 5] = [
    "libc.so.6",
    "ld-linux-x86-64.so.2",
    "libpthread.so.0",
    "ld-musl-x86_64.so.1",
    "libc.musl-x86_64.so.1",
];

/// Paths of the C library and the dynamic loader that this process runs with, plus the loaders and
/// C libraries at their usual places, so that programs of the other kind are covered too.
#[must_use]
pub fn libraries_of_this_process() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapped =
        maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    let usual = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"].map(PathBuf::from);
    let mut libraries: Vec<PathBuf> = mapped
        .chain(usual)
        .filter(|path| is_wanted(path) && path.is_file())
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    libraries.sort();
    libraries.dedup();
    libraries
}

fn is_wanted(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
        // Old releases install `libc-2.31.so` and a link to it; the map shows the former.
        let versioned = ["libc-2.", "ld-2.", "libpthread-2."];
        NAMES.contains(&name) || versioned.iter().any(|prefix| name.starts_with(prefix))
    })
}

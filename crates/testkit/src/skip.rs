//! A suite that cannot run says so; it never passes silently.
//!
//! Rust's test runner knows no skipping at run time: such a test counts as passed there. So each
//! skip is printed past the runner's capture, and noted in the file that `MAYFLY_TEST_SKIPS` names,
//! from which `cargo xtask test` corrects its count. With `MAYFLY_TEST_NO_SKIP` a skip is a
//! failure.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// Says that `suite` is skipped because of `reason`.
pub fn note(suite: &str, reason: &str) {
    assert!(
        std::env::var_os("MAYFLY_TEST_NO_SKIP").is_none(),
        "{suite} would be skipped, and MAYFLY_TEST_NO_SKIP is set: {reason}"
    );
    let line = format!("SKIPPED {suite}: {reason}\n");
    // One write each: lines of suites that run side by side stay whole.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("MAYFLY_TEST_SKIPS") {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Whether all `programs` are found on `PATH`; notes the skip when not.
pub fn unless_installed(suite: &str, programs: &[&str], package_hint: &str) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|name| find(name).is_none()).collect();
    if missing.is_empty() {
        return true;
    }
    note(suite, &format!("{} not found; on Debian: {package_hint}", missing.join(", ")));
    false
}

/// Whether this is root; notes the skip when not.
pub fn unless_root(suite: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        note(suite, "needs root");
    }
    is_root
}

/// Whether this suite's environment starts instances of one node; notes the skip when not.
pub fn unless_one_node(suite: &str) -> bool {
    let is_one = std::env::var("MAYFLY_NODES").map_or(true, |value| value.is_empty());
    if !is_one {
        note(suite, "it is about what is on one node");
    }
    is_one
}

/// Whether this user can mount with FUSE; notes the skip when not.
pub fn unless_mountable(suite: &str) -> bool {
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        note(suite, &format!("/dev/fuse cannot be opened: {error}"));
        return false;
    }
    rustix::process::geteuid().is_root() || unless_installed(suite, &["fusermount3"], "fuse3")
}

/// The first `name` on `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

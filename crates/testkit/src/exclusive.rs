//! Suites that start instances take turns.
//!
//! They measure processor time, look for leftovers and use every core; two at once would disturb
//! each other, also when two `cargo test` run on one machine.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::process::getuid;

/// The right to run, given up when dropped.
#[derive(Debug)]
pub struct Exclusive {
    _lock: File,
}

impl Exclusive {
    /// Waits until no other suite of this user runs.
    pub fn take() -> Result<Self> {
        let name = format!("mayfly-tests-{}.lock", getuid().as_raw());
        // Not `TMPDIR`, which is another one in each run.
        let path = Path::new("/tmp").join(name);
        let lock = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        flock(&lock, FlockOperation::LockExclusive).context("locking the suites' turn")?;
        Ok(Self { _lock: lock })
    }
}

//! `cargo deny`: licences, advisories and sources of the dependencies, by `deny.toml`.
//!
//! Building `cargo-deny` takes longer than the rest of the tests, so it is used when it is there,
//! and its absence is said.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::skip;

/// Whether the check could be made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// It was made and found nothing.
    Yes,
    /// `cargo-deny` is not installed.
    NotInstalled,
}

/// Runs it, or says that it is not run.
pub(crate) fn run() -> Result<Checked> {
    if skip::find("cargo-deny").is_none() {
        skip::note("cargo deny", "not installed; `cargo install --locked cargo-deny` gets it");
        return Ok(Checked::NotInstalled);
    }
    // Advisories need their database from the network; what is banned and licensed does not.
    let arguments = ["deny", "--all-features", "check", "bans", "licenses", "sources"];
    let status = Command::new("cargo").args(arguments).status().context("starting cargo deny")?;
    ensure!(status.success(), "cargo deny found something");
    Ok(Checked::Yes)
}

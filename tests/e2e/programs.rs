//! Unmodified programs give the same output, exit status and tree in a mount as on the local file
//! system.

use anyhow::Result;
use mayfly_testkit::{Exclusive, Scratch};
use mayfly_tests::program::Program;
use mayfly_tests::suite;

fn compare(
    label: &str,
    program: impl FnOnce(&Exclusive, &Scratch) -> Result<Option<Program>>,
) -> Result<()> {
    let turn = Exclusive::take()?;
    let scratch = Scratch::new(label)?;
    match program(&turn, &scratch)? {
        Some(program) => program.compare(&turn, &scratch, |_| ()),
        None => Ok(()),
    }
}

#[test]
fn a_source_tree_configures_builds_and_runs() -> Result<()> {
    compare("source", suite::source_tree)
}

#[test]
fn git_adds_commits_checks_and_clones() -> Result<()> {
    compare("git", |_, _| Ok(suite::git()))
}

#[test]
fn python_walks_copies_and_writes_in_parallel() -> Result<()> {
    compare("python", |_, _| Ok(suite::python_files()))
}

#[test]
fn bash_redirects_appends_and_shares_offsets() -> Result<()> {
    compare("bash", |_, _| Ok(suite::bash_redirections()))
}

#[test]
fn mpi_ranks_share_a_file_by_posix_and_mpi_io() -> Result<()> {
    compare("mpi", |_, _| Ok(suite::mpi()))
}

#[test]
fn openfoam_computes_the_same_fields_serial_and_decomposed() -> Result<()> {
    compare("openfoam", |_, _| Ok(suite::openfoam()))
}

#[test]
fn programs_find_their_libraries_in_the_mount() -> Result<()> {
    compare("libraries", |_, _| Ok(suite::libraries()))
}

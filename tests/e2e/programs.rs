//! Unmodified programs give the same output, exit status and tree in a mount as on the local file
//! system.

use anyhow::Result;
use mayfly_testkit::{Scratch, Turn};
use mayfly_tests::lines::LINES;
use mayfly_tests::program::Program;
use mayfly_tests::suite;
use mayfly_tests::verdicts::{self, Verdict};

fn compare(
    test: &str,
    label: &str,
    program: impl FnOnce(&Scratch) -> Result<Option<Program>>,
) -> Result<()> {
    let turn = Turn::take()?;
    let scratch = Scratch::new(label)?;
    // What is missing was said by who looked for it.
    let Some(program) = program(&scratch)? else { return Ok(()) };
    let compared = program.compare(&turn, &scratch, |_| ());
    let verdict =
        compared.map_or_else(|error| Verdict::Fails(format!("{error:#}")), |()| Verdict::Passes);
    verdicts::settle(LINES, test, &verdict)
}

#[test]
fn a_source_tree_configures_builds_and_runs() -> Result<()> {
    compare("a_source_tree_configures_builds_and_runs", "source", suite::source_tree)
}

#[test]
fn git_adds_commits_checks_and_clones() -> Result<()> {
    compare("git_adds_commits_checks_and_clones", "git", |_| Ok(suite::git()))
}

#[test]
fn python_walks_copies_and_writes_in_parallel() -> Result<()> {
    compare("python_walks_copies_and_writes_in_parallel", "python", |_| Ok(suite::python_files()))
}

#[test]
fn bash_redirects_appends_and_shares_offsets() -> Result<()> {
    compare("bash_redirects_appends_and_shares_offsets", "bash", |_| Ok(suite::bash_redirections()))
}

#[test]
fn mpi_ranks_share_a_file_by_posix_and_mpi_io() -> Result<()> {
    compare("mpi_ranks_share_a_file_by_posix_and_mpi_io", "mpi", |_| Ok(suite::mpi()))
}

#[test]
fn openfoam_computes_the_same_fields_serial_and_decomposed() -> Result<()> {
    compare("openfoam_computes_the_same_fields_serial_and_decomposed", "openfoam", |_| {
        Ok(suite::openfoam())
    })
}

#[test]
fn programs_find_their_libraries_in_the_mount() -> Result<()> {
    compare("programs_find_their_libraries_in_the_mount", "libraries", |_| Ok(suite::libraries()))
}

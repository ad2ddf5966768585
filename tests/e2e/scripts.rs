//! The oracle of the program suite holds: two native runs of each script print and leave the same.
//!
//! Needs no `mayfly`. A script that fails here would fail in a mount for no fault of the file
//! system.

use anyhow::Result;
use mayfly_testkit::{Scratch, Turn};
use mayfly_tests::program::Program;
use mayfly_tests::suite;

fn repeats(label: &str, program: impl FnOnce(&Scratch) -> Result<Option<Program>>) -> Result<()> {
    let turn = Turn::take()?;
    let scratch = Scratch::new(label)?;
    let Some(program) = program(&scratch)? else { return Ok(()) };
    let first = program.native(&turn, &scratch, "native")?;
    first.expect_same(&program.native(&turn, &scratch, "again")?)
}

#[test]
fn the_source_tree_script_is_deterministic() -> Result<()> {
    repeats("source", suite::source_tree)
}

#[test]
fn the_git_script_is_deterministic() -> Result<()> {
    repeats("git", |_| Ok(suite::git()))
}

#[test]
fn the_python_script_is_deterministic() -> Result<()> {
    repeats("python", |_| Ok(suite::python_files()))
}

#[test]
fn the_bash_script_is_deterministic() -> Result<()> {
    repeats("bash", |_| Ok(suite::bash_redirections()))
}

#[test]
fn the_mpi_script_is_deterministic() -> Result<()> {
    repeats("mpi", |_| Ok(suite::mpi()))
}

#[test]
fn the_openfoam_script_is_deterministic() -> Result<()> {
    repeats("openfoam", |_| Ok(suite::openfoam()))
}

#[test]
fn the_libraries_script_is_deterministic() -> Result<()> {
    repeats("libraries", |_| Ok(suite::libraries()))
}

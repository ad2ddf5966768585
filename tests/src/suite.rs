//! The seven programs, with what each needs.

use std::time::Duration;

use anyhow::Result;
use mayfly_testkit::{Scratch, skip};

use crate::program::Program;
use crate::source;

const BUILD_TOOLS: &[&str] = &["gcc", "make", "tar", "diff", "apt-get"];

/// Program 1, or nothing when the machine cannot run it; so for the others.
pub fn source_tree(scratch: &Scratch) -> Result<Option<Program>> {
    if !skip::unless_installed("source tree", BUILD_TOOLS, "gcc make diffutils") {
        return Ok(None);
    }
    match source::fetch(scratch) {
        Ok(input) => {
            let deadline = Duration::from_secs(300);
            let program = Program::new("source_tree", deadline);
            Ok(Some(Program { input: Some(input), ignored: &["config.log"], ..program }))
        }
        Err(error) => {
            skip::note("source tree", &format!("no source archive could be fetched: {error:#}"));
            Ok(None)
        }
    }
}

/// Program 2. The index holds inode numbers and times; the script prints what it lists.
pub fn git() -> Option<Program> {
    let installed = skip::unless_installed("git", &["git"], "git");
    let program = Program::new("git", Duration::from_secs(180));
    installed.then_some(Program { ignored: &[".git/index"], ..program })
}

/// Program 3.
pub fn python_files() -> Option<Program> {
    let installed = skip::unless_installed("python", &["python3"], "python3");
    installed.then(|| Program::new("python_files", Duration::from_secs(120)))
}

/// Program 4.
pub fn bash_redirections() -> Option<Program> {
    let installed = skip::unless_installed("bash", &["bash", "awk"], "bash mawk");
    installed.then(|| Program::new("bash_redirections", Duration::from_secs(60)))
}

/// Program 5.
pub fn mpi() -> Option<Program> {
    let needed = &["mpicc.mpich", "mpirun.mpich"];
    let installed = skip::unless_installed("MPI", needed, "mpich libmpich-dev");
    installed.then(|| Program::new("mpi", Duration::from_secs(120)))
}

/// Program 6.
pub fn openfoam() -> Option<Program> {
    let needed = &["simpleFoam", "blockMesh", "decomposePar", "mpirun.openmpi"];
    let packages = "openfoam openfoam-examples openmpi-bin";
    let installed = skip::unless_installed("OpenFOAM", needed, packages);
    installed.then(|| Program::new("openfoam", Duration::from_secs(240)))
}

/// Program 7.
pub fn libraries() -> Option<Program> {
    let installed = skip::unless_installed("libraries", &["gcc"], "gcc libc6-dev");
    installed.then(|| Program::new("libraries", Duration::from_secs(60)))
}

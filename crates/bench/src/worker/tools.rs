//! Tools: a shell runs each in the process's own directory.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::{Prepared, at, own_directory};
use crate::workloads::{
    pattern::Pattern,
    step::Task,
    tools::{ARCHIVE, FILES_EACH, SIZES, TOOLS},
};

pub(super) fn prepare(task: &Task, tool: usize, files: u64) -> Result<Prepared> {
    let tool = TOOLS.get(tool).with_context(|| format!("there is no tool {tool}"))?;
    let directory = own_directory(&task.root, task.rank);
    if !directory.join(ARCHIVE).exists() {
        make_archive(&directory, files)?;
    }
    let mut command = shell(tool.script, &directory);
    Ok(Box::new(move |clock| {
        let output = command.output().context("cannot start sh")?;
        clock.lap()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}\n{error}", tool.script, output.status);
        Ok(())
    }))
}

fn shell(script: &str, directory: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(directory).stdin(Stdio::null());
    command
}

/// The archive that the tree comes out of.
fn make_archive(directory: &Path, files: u64) -> Result<()> {
    make_tree(&directory.join("source"), files)?;
    let script = format!("tar -cf {ARCHIVE} -C source . && rm -r source");
    let status = shell(&script, directory).status().context("cannot start sh")?;
    ensure!(status.success(), "{script}: {status}");
    Ok(())
}

fn make_tree(root: &Path, files: u64) -> Result<()> {
    let most = SIZES.iter().copied().max().unwrap_or(0);
    let contents = Pattern::new(1, most).at(0).to_vec();
    for index in 0..files {
        let (number, of) = (index / FILES_EACH, index % FILES_EACH);
        let directory = root.join(format!("d{}/e{}", number / 10, number % 10));
        if of == 0 {
            fs::create_dir_all(&directory).map_err(|error| at(&directory, &error))?;
        }
        let bytes = SIZES.get(index as usize % SIZES.len()).copied().unwrap_or(0);
        let file = directory.join(format!("f{of}"));
        fs::write(&file, &contents[..bytes]).map_err(|error| at(&file, &error))?;
    }
    Ok(())
}

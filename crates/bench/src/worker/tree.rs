//! Trees by branch, depth and items: each process makes, looks at and removes its own.

use std::{
    ffi::CString,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use super::{Prepared, files, neighbour, own_directory};
use crate::workloads::step::{Call, Task, Tree};

/// Directories with parents first, and files.
#[derive(Default)]
struct Paths {
    directories: Vec<CString>,
    files: Vec<CString>,
}

fn paths(roots: Vec<PathBuf>, tree: Tree) -> Result<Paths> {
    let mut found = Paths::default();
    let mut level = roots;
    for depth in 0..=tree.depth {
        for directory in &level {
            found.directories.push(super::c_path(directory.clone())?);
            for item in 0..tree.items {
                found.files.push(files::inside(directory, &format!("f{item}"))?);
            }
        }
        let children = |directory: &PathBuf| -> Vec<PathBuf> {
            (0..tree.branch).map(|branch| directory.join(format!("d{branch}"))).collect()
        };
        if depth < tree.depth {
            level = level.iter().flat_map(children).collect();
        }
    }
    Ok(found)
}

fn roots(directory: &Path, count: u64) -> Vec<PathBuf> {
    (0..count).map(|number| directory.join(format!("tree{number}"))).collect()
}

pub(super) fn prepare(task: &Task, call: Call, tree: Tree, count: u64) -> Result<Prepared> {
    let maker = if call.looks() { neighbour(task) } else { task.rank };
    let roots = roots(&own_directory(&task.root, maker), count);
    let Paths { directories, files } = paths(roots, tree)?;
    Ok(match call {
        Call::Create => Box::new(move |clock| {
            files::each(&directories, clock, files::make_directory)?;
            files::each(&files, clock, |path| files::create(path, &[]))
        }),
        Call::Stat => Box::new(move |clock| {
            files::each(&directories, clock, |path| files::stat(path).map(drop))?;
            files::each(&files, clock, |path| files::stat(path).map(drop))
        }),
        Call::Remove => Box::new(move |clock| {
            files::each(&files, clock, files::remove)?;
            for path in directories.iter().rev() {
                files::remove_directory(path)?;
                clock.lap()?;
            }
            Ok(())
        }),
        Call::Read => bail!("trees are not read"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_as_many_parts_as_its_form_says() {
        let tree = Tree { branch: 3, depth: 2, items: 4 };
        let paths = paths(roots(Path::new("/t"), 2), tree).expect("paths");
        assert_eq!(paths.directories.len() as u64, 2 * tree.directories());
        assert_eq!(paths.files.len() as u64, 2 * tree.files());
    }
}

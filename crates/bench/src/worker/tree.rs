//! Trees by branch, depth and items: each process makes, looks at and removes one of its own.

use std::{
    ffi::CString,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use super::{Prepared, files, neighbour, own_directory};
use crate::step::{Call, Task, Tree};

/// Directories with parents first, and files.
#[derive(Default)]
struct Paths {
    directories: Vec<CString>,
    files: Vec<CString>,
}

fn paths(root: PathBuf, tree: Tree) -> Result<Paths> {
    let mut found = Paths::default();
    let mut level = vec![root];
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

fn root(directory: &Path) -> PathBuf {
    directory.join("tree")
}

pub(super) fn prepare(task: &Task, call: Call, tree: Tree) -> Result<Prepared> {
    let maker = if call.looks() { neighbour(task) } else { task.rank };
    let Paths { directories, files } = paths(root(&own_directory(&task.root, maker)), tree)?;
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
        let paths = paths(PathBuf::from("/t"), tree).expect("paths");
        assert_eq!(paths.directories.len() as u64, tree.directories());
        assert_eq!(paths.files.len() as u64, tree.files());
    }
}

//! Finding files by name and size, as IO500's find does.
//!
//! Directories of 100 files are dealt to the processes in turn; each walks over those of the next
//! process, reads the listing, and asks for the attributes of every file whose name matches.

use std::ffi::CString;

use anyhow::{Result, anyhow, ensure};
use nix::{
    dir::{Dir, Entry},
    fcntl::{AT_FDCWD, AtFlags, OFlag},
    sys::stat::{Mode, fstatat},
};

use super::{Prepared, clock::Clock, failed, files, neighbour};
use crate::workloads::{pattern::Pattern, step::Task};

/// Files in each directory.
const FILES: u64 = 100;
/// Every second file has this size, as in mdtest-hard; the others are empty.
const BYTES: usize = 3901;
/// Names with this in them match, as `find -name '*01*'`.
const WANTED: &[u8] = b"01";

fn directories(task: &Task, maker: u32, count: u64) -> Result<Vec<CString>> {
    (0..count).map(|index| files::inside(&task.root, &format!("find.{maker}.{index}"))).collect()
}

fn name(maker: u32, directory: u64, index: u64) -> String {
    format!("file.mdtest.{maker:03}.{}", directory * FILES + index)
}

fn size(index: u64) -> usize {
    if index.is_multiple_of(2) { BYTES } else { 0 }
}

/// How many files of a maker's directories match.
fn expected(maker: u32, directories: u64) -> u64 {
    let all = (0..directories).flat_map(|d| (0..FILES).map(move |index| (d, index)));
    let fits = |(directory, index): &(u64, u64)| {
        size(*index) == BYTES && matches(name(maker, *directory, *index).as_bytes())
    };
    all.filter(fits).count() as u64
}

fn matches(name: &[u8]) -> bool {
    name.windows(WANTED.len()).any(|part| part == WANTED)
}

pub(super) fn prepare_hiding(task: &Task, count: u64) -> Result<Prepared> {
    let directories = directories(task, task.rank, count)?;
    let mut paths = Vec::new();
    for (number, directory) in (0..count).zip(&directories) {
        let directory = std::path::Path::new(directory.to_str()?);
        for index in 0..FILES {
            let path = files::inside(directory, &name(task.rank, number, index))?;
            paths.push((path, size(index)));
        }
    }
    let contents = Pattern::new(u64::from(task.rank), BYTES).at(0).to_vec();
    Ok(Box::new(move |clock| {
        files::each(&directories, clock, files::make_directory)?;
        for (path, bytes) in &paths {
            files::create(path, &contents[..*bytes])?;
            clock.lap()?;
        }
        Ok(())
    }))
}

pub(super) fn prepare_seeking(task: &Task, count: u64) -> Result<Prepared> {
    let maker = neighbour(task);
    let directories = directories(task, maker, count)?;
    let expected = expected(maker, count);
    Ok(Box::new(move |clock| {
        let mut found = 0;
        for directory in &directories {
            found += seek(directory, clock)?;
        }
        ensure!(found == expected, "{found} files were found where {expected} match");
        Ok(())
    }))
}

/// Every entry is an operation.
fn seek(path: &CString, clock: &mut Clock) -> Result<u64> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    let mut directory = Dir::openat(AT_FDCWD, path.as_c_str(), flags, Mode::empty())
        .map_err(|errno| failed("opendir", path, errno))?;
    let mut entries = Vec::with_capacity(FILES as usize + 2);
    for entry in directory.iter() {
        entries.push(entry.map_err(|errno| failed("readdir", path, errno))?);
    }
    let mut found = 0;
    for entry in entries.iter().filter(|entry| !is_dot(entry)) {
        if matches(entry.file_name().to_bytes()) {
            let attributes = fstatat(&directory, entry.file_name(), AtFlags::AT_SYMLINK_NOFOLLOW)
                .map_err(|errno| anyhow!("{}: {errno}", path.to_string_lossy()))?;
            found += u64::from(attributes.st_size == BYTES as i64);
        }
        clock.lap()?;
    }
    Ok(found)
}

fn is_dot(entry: &Entry) -> bool {
    matches!(entry.file_name().to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_the_shell_pattern_says() {
        assert!(matches(b"file.mdtest.000.101"));
        assert!(!matches(b"file.mdtest.000.110"));
        // 1, 101, 201, ... are odd and so empty; 10x with 01 in it is even only within 010, 100...
        assert!(expected(0, 12) > 0);
        assert!(expected(0, 12) < 1200);
    }
}

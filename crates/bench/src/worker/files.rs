//! Files and directories by the thousand, as mdtest makes them.
//!
//! Paths are whole and made before the clock, as programs use them; the content of a file is that
//! of its maker, and is compared when it is read.

use std::{ffi::CString, path::Path};

use anyhow::{Result, bail, ensure};
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, openat},
    sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat},
    unistd::{UnlinkatFlags, close, read, unlinkat, write},
};

use super::{Prepared, c_path, clock::Clock, failed, neighbour, own_directory, wrong_byte};
use crate::{
    pattern::Pattern,
    step::{Call, Layout, Task},
};

/// The names of one maker's files or directories.
fn paths(task: &Task, call: Call, layout: Layout, kind: char, count: u64) -> Result<Vec<CString>> {
    let maker = if call.looks() { neighbour(task) } else { task.rank };
    let directory = match layout {
        Layout::Own => own_directory(&task.root, maker),
        Layout::Shared => task.root.clone(),
    };
    let path = |index| c_path(directory.join(format!("{kind}.{maker}.{index}")));
    (0..count).map(path).collect()
}

pub(super) fn prepare(
    task: &Task,
    call: Call,
    layout: Layout,
    bytes: u64,
    count: u64,
) -> Result<Prepared> {
    let paths = paths(task, call, layout, 'f', count)?;
    let maker = if call.looks() { neighbour(task) } else { task.rank };
    let mut pattern = Pattern::new(u64::from(maker), usize::try_from(bytes)?);
    Ok(match call {
        Call::Create => {
            let contents = pattern.at(0).to_vec();
            Box::new(move |clock| {
                for path in &paths {
                    create(path, &contents)?;
                    clock.moved(bytes);
                    clock.lap()?;
                }
                Ok(())
            })
        }
        Call::Stat => Box::new(move |clock| {
            for path in &paths {
                let found = stat(path)?;
                clock.lap()?;
                ensure!(found.st_size as u64 == bytes, "{path:?} has {} bytes", found.st_size);
            }
            Ok(())
        }),
        Call::Read => Box::new(move |clock| read_all(&paths, &mut pattern, bytes, clock)),
        Call::Remove => Box::new(move |clock| each(&paths, clock, remove)),
    })
}

pub(super) fn prepare_directories(
    task: &Task,
    call: Call,
    layout: Layout,
    count: u64,
) -> Result<Prepared> {
    let paths = paths(task, call, layout, 'd', count)?;
    Ok(match call {
        Call::Create => Box::new(move |clock| each(&paths, clock, make_directory)),
        Call::Remove => Box::new(move |clock| each(&paths, clock, remove_directory)),
        Call::Stat => Box::new(move |clock| {
            for path in &paths {
                let found = stat(path)?;
                clock.lap()?;
                let kind = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT;
                ensure!(kind == SFlag::S_IFDIR, "{path:?} is no directory");
            }
            Ok(())
        }),
        Call::Read => bail!("directories are not read"),
    })
}

pub(super) fn each(
    paths: &[CString],
    clock: &mut Clock,
    call: impl Fn(&CString) -> Result<()>,
) -> Result<()> {
    for path in paths {
        call(path)?;
        clock.lap()?;
    }
    Ok(())
}

fn read_all(paths: &[CString], pattern: &mut Pattern, bytes: u64, clock: &mut Clock) -> Result<()> {
    // One more than is there: the read that finds the end is part of reading a file whole.
    let mut buffer = vec![0; usize::try_from(bytes)? + 1];
    clock.aside()?;
    for path in paths {
        let count = read_whole(path, &mut buffer)?;
        clock.moved(count as u64);
        clock.lap()?;
        ensure!(count as u64 == bytes, "{path:?}: {count} bytes were read of {bytes}");
        pattern.check(0, &buffer[..count]).map_err(|wrong| wrong_byte(path, &wrong))?;
        clock.aside()?;
    }
    Ok(())
}

fn read_whole(path: &CString, buffer: &mut [u8]) -> Result<usize> {
    let open = openat(AT_FDCWD, path.as_c_str(), OFlag::O_RDONLY, Mode::empty());
    let file = open.map_err(|errno| failed("open", path, errno))?;
    let mut count = 0;
    while count < buffer.len() {
        match read(&file, &mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(failed("read", path, errno)),
        }
    }
    close(file).map_err(|errno| failed("close", path, errno))?;
    Ok(count)
}

/// Opens a new file, writes it in one call, and closes it.
pub(super) fn create(path: &CString, contents: &[u8]) -> Result<()> {
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = openat(AT_FDCWD, path.as_c_str(), flags, mode)
        .map_err(|errno| failed("create", path, errno))?;
    let mut rest = contents;
    while !rest.is_empty() {
        match write(&file, rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(failed("write", path, errno)),
        }
    }
    close(file).map_err(|errno| failed("close", path, errno))
}

pub(super) fn stat(path: &CString) -> Result<FileStat> {
    fstatat(AT_FDCWD, path.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
        .map_err(|errno| failed("stat", path, errno))
}

pub(super) fn remove(path: &CString) -> Result<()> {
    unlinkat(AT_FDCWD, path.as_c_str(), UnlinkatFlags::NoRemoveDir)
        .map_err(|errno| failed("unlink", path, errno))
}

pub(super) fn make_directory(path: &CString) -> Result<()> {
    let mode = Mode::S_IRWXU;
    mkdirat(AT_FDCWD, path.as_c_str(), mode).map_err(|errno| failed("mkdir", path, errno))
}

pub(super) fn remove_directory(path: &CString) -> Result<()> {
    unlinkat(AT_FDCWD, path.as_c_str(), UnlinkatFlags::RemoveDir)
        .map_err(|errno| failed("rmdir", path, errno))
}

/// The path as the library's callers write it.
pub(super) fn inside(directory: &Path, name: &str) -> Result<CString> {
    c_path(directory.join(name))
}

//! Files and directories by the thousand, as mdtest makes them.
//!
//! Paths are whole and made before the clock, as programs use them; the content of a file is that
//! of its maker, and is compared when it is read.

use std::{ffi::CString, os::fd::OwnedFd, path::Path};

use anyhow::{Result, bail, ensure};
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, openat},
    sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat},
    unistd::{UnlinkatFlags, Whence, close, lseek, read, unlinkat, write},
};

use super::{Prepared, c_path, clock::Clock, failed, neighbour, own_directory, wrong_byte};
use crate::workloads::{
    pattern::Pattern,
    step::{Call, Layout, Manner, Task},
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

/// What kind of files.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) layout: Layout,
    pub(super) manner: Manner,
    pub(super) bytes: u64,
    pub(super) count: u64,
}

pub(super) fn prepare(task: &Task, call: Call, form: Form) -> Result<Prepared> {
    let Form { layout, manner, bytes, count } = form;
    let paths = paths(task, call, layout, 'f', count)?;
    let maker = if call.looks() { neighbour(task) } else { task.rank };
    let mut pattern = Pattern::new(u64::from(maker), usize::try_from(bytes)?);
    Ok(match call {
        Call::Create => {
            let contents = pattern.at(0).to_vec();
            Box::new(move |clock| {
                for path in &paths {
                    create_as(path, &contents, manner)?;
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
        Call::Read => Box::new(move |clock| read_all(&paths, &mut pattern, form, clock)),
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

fn read_all(paths: &[CString], pattern: &mut Pattern, form: Form, clock: &mut Clock) -> Result<()> {
    let bytes = form.bytes;
    // One more than is there: the read that finds the end is part of reading a file whole. mdtest
    // knows how much there is.
    let more = usize::from(form.manner == Manner::Plain);
    let mut buffer = vec![0; usize::try_from(bytes)? + more];
    clock.aside()?;
    for path in paths {
        let count = read_whole(path, &mut buffer, form.manner)?;
        clock.moved(count as u64);
        clock.lap()?;
        ensure!(count as u64 == bytes, "{path:?}: {count} bytes were read of {bytes}");
        pattern.check(0, &buffer[..count]).map_err(|wrong| wrong_byte(path, &wrong))?;
        clock.aside()?;
    }
    Ok(())
}

fn read_whole(path: &CString, buffer: &mut [u8], manner: Manner) -> Result<usize> {
    let flags = match manner {
        Manner::Plain => OFlag::O_RDONLY,
        Manner::Mdtest => OFlag::O_RDWR,
    };
    let open = openat(AT_FDCWD, path.as_c_str(), flags, Mode::empty());
    let file = open.map_err(|errno| failed("open", path, errno))?;
    to_start(&file, path, manner)?;
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
    create_as(path, contents, Manner::Plain)
}

/// Where mdtest seeks before it transfers anything.
fn to_start(file: &OwnedFd, path: &CString, manner: Manner) -> Result<()> {
    match manner {
        Manner::Plain => Ok(()),
        Manner::Mdtest => {
            lseek(file, 0, Whence::SeekSet).map(drop).map_err(|errno| failed("lseek", path, errno))
        }
    }
}

fn create_as(path: &CString, contents: &[u8], manner: Manner) -> Result<()> {
    let flags = match manner {
        Manner::Plain => OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY,
        Manner::Mdtest => OFlag::O_CREAT | OFlag::O_RDWR,
    };
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = openat(AT_FDCWD, path.as_c_str(), flags, mode)
        .map_err(|errno| failed("create", path, errno))?;
    if !contents.is_empty() {
        to_start(&file, path, manner)?;
    }
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

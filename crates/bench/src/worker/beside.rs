//! One process looks at files while others write: what a stream does to the latency of others.
//!
//! Only the looks are operations. Writers go on for as long, over the same file again and again.

use std::ffi::CString;

use anyhow::Result;
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, openat},
    sys::{stat::Mode, uio::pwrite},
    unistd::{close, unlink},
};

use super::{Prepared, clock::Clock, failed, files};
use crate::workloads::step::Task;

/// Files that are looked at, one after the other.
const FILES: u32 = 1000;

pub(super) fn prepare(task: &Task, milliseconds: u64, transfer_bytes: u64) -> Result<Prepared> {
    let time_ns = milliseconds * 1_000_000;
    if task.rank == 0 {
        return prepare_looking(task, time_ns);
    }
    let path = files::inside(&task.root, &format!("stream.{}", task.rank))?;
    // Touched before the clock: first touches of memory are not the file system's.
    let buffer = vec![0x5a; usize::try_from(transfer_bytes)?];
    Ok(Box::new(
        move |clock| if buffer.is_empty() { Ok(()) } else { write(&path, &buffer, time_ns, clock) },
    ))
}

fn prepare_looking(task: &Task, time_ns: u64) -> Result<Prepared> {
    let name = |index| files::inside(&task.root, &format!("file.{index}"));
    let paths = (0..FILES).map(name).collect::<Result<Vec<CString>>>()?;
    for path in &paths {
        match files::stat(path) {
            Ok(_) => {}
            Err(_) => files::create(path, b"")?,
        }
    }
    Ok(Box::new(move |clock| {
        while clock.elapsed_ns() < time_ns {
            for path in &paths {
                files::stat(path)?;
                clock.lap()?;
            }
        }
        Ok(())
    }))
}

fn write(path: &CString, buffer: &[u8], time_ns: u64, clock: &mut Clock) -> Result<()> {
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
    let file = openat(AT_FDCWD, path.as_c_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(|errno| failed("create", path, errno))?;
    while clock.elapsed_ns() < time_ns {
        let mut done = 0;
        while done < buffer.len() {
            match pwrite(&file, &buffer[done..], i64::try_from(done)?) {
                Ok(count) => done += count,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed("pwrite", path, errno)),
            }
        }
        clock.moved(done as u64);
        clock.split()?;
    }
    close(file).map_err(|errno| failed("close", path, errno))?;
    unlink(path.as_c_str()).map_err(|errno| failed("unlink", path, errno))
}

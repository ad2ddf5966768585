//! What the other workloads do not show: first calls of processes, listings with attributes,
//! creates beside processes that want the processors, and what an instance costs that nobody uses.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::{
    dir::Dir,
    fcntl::{AT_FDCWD, AtFlags, OFlag},
    sys::stat::{Mode, fstatat},
};

use super::{Prepared, WORKER, c_path, failed, files, own_directory};
use crate::workloads::step::{GO, Reply, Step, Task};

/// Loops of a burner between two looks at the clock.
const LOOPS: u64 = 100_000;

pub(super) fn prepare_rest(milliseconds: u64) -> Prepared {
    Box::new(move |clock| {
        thread::sleep(Duration::from_millis(milliseconds));
        clock.lap()
    })
}

/// The lower half of the ranks makes files as long as the others burn.
pub(super) fn prepare_burning(task: &Task, milliseconds: u64) -> Result<Prepared> {
    if task.rank >= task.procs / 2 {
        return Ok(Box::new(move |_| {
            burn(Duration::from_millis(milliseconds));
            Ok(())
        }));
    }
    let directory = own_directory(&task.root, task.rank);
    Ok(Box::new(move |clock| {
        let mut count = 0_u64;
        while clock.elapsed_ns() < milliseconds * 1_000_000 {
            files::create(&files::inside(&directory, &format!("f.{count}"))?, b"")?;
            clock.lap()?;
            count += 1;
        }
        Ok(())
    }))
}

fn burn(how_long: Duration) {
    let begun = Instant::now();
    let mut sum = 0_u64;
    while begun.elapsed() < how_long {
        for number in 0..LOOPS {
            sum = std::hint::black_box(sum.wrapping_add(number));
        }
    }
}

/// Each operation is the call of a process that has just started, timed by itself.
pub(super) fn prepare_first(task: &Task, count: u64) -> Prepared {
    let look = Task { rank: 0, procs: 1, step: Step::Look, ..task.clone() };
    Box::new(move |clock| {
        for _ in 0..count {
            clock.took(first_call(&look)?)?;
        }
        Ok(())
    })
}

/// Nanoseconds of the call.
fn first_call(look: &Task) -> Result<u64> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(WORKER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("a pipe was asked for")?;
    writeln!(input, "{}\n{GO}", serde_json::to_string(look)?)?;
    drop(input);
    let output = child.stdout.take().context("a pipe was asked for")?;
    let mut took = Err(anyhow!("a process ended without its call"));
    for line in BufReader::new(output).lines() {
        match serde_json::from_str(&line?).context("that is no answer")? {
            Reply::Ready => {}
            Reply::Failed(why) => took = Err(anyhow!(why)),
            Reply::Done(share) => took = Ok(share.end_ns - share.start_ns),
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "a process ended with {status}");
    took
}

pub(super) fn prepare_look(task: &Task) -> Result<Prepared> {
    let path = c_path(task.root.clone())?;
    Ok(Box::new(move |clock| {
        files::stat(&path)?;
        clock.lap()
    }))
}

/// Every entry is an operation.
pub(super) fn prepare_listing(task: &Task, count: u64) -> Result<Prepared> {
    let path = c_path(own_directory(&task.root, task.rank))?;
    Ok(Box::new(move |clock| {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let mut directory = Dir::openat(AT_FDCWD, path.as_c_str(), flags, Mode::empty())
            .map_err(|errno| failed("opendir", &path, errno))?;
        // A stream of its own, since the names are looked up from the directory meanwhile.
        let from = Dir::openat(AT_FDCWD, path.as_c_str(), flags, Mode::empty())
            .map_err(|errno| failed("opendir", &path, errno))?;
        let mut listed = 0;
        for entry in directory.iter() {
            let entry = entry.map_err(|errno| failed("readdir", &path, errno))?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            fstatat(&from, entry.file_name(), AtFlags::AT_SYMLINK_NOFOLLOW)
                .map_err(|errno| failed("fstatat", &path, errno))?;
            listed += 1;
            clock.lap()?;
        }
        if listed != count {
            bail!("{}: {listed} entries were listed of {count}", path.to_string_lossy());
        }
        Ok(())
    }))
}

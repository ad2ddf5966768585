//! A worker: the separate, unmodified process that makes the calls.
//!
//! It knows no instance. It takes tasks from its standard input, makes plain calls of the C
//! library, and answers on its standard output; where the library of an instance is loaded into
//! it, the same calls are served by the instance. It ends with its input.

mod bars;
mod beside;
mod calls;
mod clock;
mod data;
mod files;
mod find;
mod tools;
mod tree;

use std::{
    ffi::CString,
    fs,
    io::{self, BufRead, Write},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;

use crate::workloads::{
    pattern::Wrong,
    step::{GO, Reply, Share, Step, Task},
};
use clock::Clock;

/// The hidden subcommand that a worker runs as.
pub const WORKER: &str = "__bench-worker";

/// Work that is prepared and only has to be started.
type Prepared = Box<dyn FnOnce(&mut Clock) -> Result<()>>;

/// Serves tasks until the input ends.
///
/// # Errors
/// When the pipes break or carry something else; failures of the measured calls are answers.
pub fn worker() -> Result<()> {
    let (stdin, mut stdout) = (io::stdin().lock(), io::stdout());
    let mut lines = stdin.lines();
    while let Some(line) = lines.next() {
        let task: Task = serde_json::from_str(&line?).context("this is no task")?;
        let reply = match perform(&task, &mut lines, &mut stdout) {
            Ok(Some(share)) => Reply::Done(Box::new(share)),
            Ok(None) => return Ok(()),
            Err(error) => Reply::Failed(format!("{}: {error:#}", task.phase)),
        };
        say(&mut stdout, &reply)?;
    }
    Ok(())
}

fn say(stdout: &mut io::Stdout, reply: &Reply) -> Result<()> {
    writeln!(stdout, "{}", serde_json::to_string(reply)?)?;
    stdout.flush()?;
    Ok(())
}

/// `None`: the input ended instead of letting the work start.
fn perform(
    task: &Task,
    lines: &mut impl Iterator<Item = io::Result<String>>,
    stdout: &mut io::Stdout,
) -> Result<Option<Share>> {
    let work = prepare(task)?;
    let mut clock = Clock::default();
    say(stdout, &Reply::Ready)?;
    match lines.next().transpose()?.as_deref() {
        Some(GO) => {}
        None => return Ok(None),
        Some(other) => bail!("{other:?} instead of the word to start"),
    }
    clock.start()?;
    work(&mut clock)?;
    clock.end().map(Some)
}

fn prepare(task: &Task) -> Result<Prepared> {
    match task.step {
        Step::Calibrate { count } => Ok(Box::new(move |clock| {
            for _ in 0..count {
                clock.lap()?;
            }
            Ok(())
        })),
        Step::Begin => {
            let own = own_directory(&task.root, task.rank);
            Ok(Box::new(move |_| fs::create_dir_all(&own).map_err(|e| at(&own, &e))))
        }
        Step::End => {
            let root = (task.rank == 0).then(|| task.root.clone());
            Ok(Box::new(move |_| root.map_or(Ok(()), |root| clear(&root))))
        }
        Step::Files { call, layout, manner, bytes, count } => {
            let form = files::Form { layout, manner, bytes, count };
            files::prepare(task, call, form)
        }
        Step::Calls { row, count } => calls::prepare(task, row, count),
        Step::Tool { tool, files } => tools::prepare(task, tool, files),
        Step::Directories { call, layout, count } => {
            files::prepare_directories(task, call, layout, count)
        }
        Step::Trees { call, tree, count } => tree::prepare(task, call, tree, count),
        Step::Data(transfers) => data::prepare(task, transfers),
        Step::Beside { milliseconds, transfer_bytes } => {
            beside::prepare(task, milliseconds, transfer_bytes)
        }
        Step::Burn { milliseconds } => bars::prepare_burning(task, milliseconds),
        Step::First { count } => Ok(bars::prepare_first(task, count)),
        Step::Look => bars::prepare_look(task),
        Step::List { count } => bars::prepare_listing(task, count),
        Step::Rest { milliseconds } => Ok(bars::prepare_rest(milliseconds)),
        Step::Hide { directories } => find::prepare_hiding(task, directories),
        Step::Seek { directories } => find::prepare_seeking(task, directories),
    }
}

fn clear(root: &Path) -> Result<()> {
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(root, &error)),
        _ => Ok(()),
    }
}

/// A process's directory of its own in a group.
fn own_directory(root: &Path, rank: u32) -> PathBuf {
    root.join(format!("p{rank}"))
}

/// The process whose files this one looks at: the next, so that what it wrote itself does not help.
fn neighbour(task: &Task) -> u32 {
    (task.rank + 1) % task.procs.max(1)
}

/// A path as system calls take it.
fn c_path(path: PathBuf) -> Result<CString> {
    let shown = path.display().to_string();
    CString::new(path.into_os_string().into_vec()).with_context(|| format!("{shown}: no path"))
}

/// The error of a call on `path`, with both.
fn failed(call: &str, path: &CString, errno: Errno) -> anyhow::Error {
    anyhow!("{call} {}: {} ({errno:?})", path.to_string_lossy(), errno.desc())
}

fn at(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("{}: {error}", path.display())
}

fn wrong_byte(path: &CString, wrong: &Wrong) -> anyhow::Error {
    let Wrong { offset, expected, found } = wrong;
    anyhow!(
        "{}: the byte at {offset} is {found:#04x}, and {expected:#04x} was written",
        path.to_string_lossy()
    )
}

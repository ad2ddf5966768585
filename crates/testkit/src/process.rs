//! Finding and ending the processes that a suite started, by the mark in their environment.
//!
//! Daemons leave their process group on purpose, so groups do not find them; the environment that a
//! process was started with, in `/proc/PID/environ`, does. Only processes that carry the mark are
//! ever signalled.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// The variable that carries a suite's mark to all its descendants.
pub const MARK: &str = "MAYFLY_TEST_MARK";

/// A process that carries a mark.
#[derive(Debug, Clone)]
pub struct Marked {
    /// Its process number.
    pub pid: u32,
    /// Its command line, arguments joined by blanks.
    pub command: String,
    /// Its executable, where that can be told.
    pub executable: Option<PathBuf>,
}

/// The living processes whose environment has `mark`, without this one and without zombies.
pub fn marked(mark: &str) -> Vec<Marked> {
    with_variable(MARK, mark)
}

/// The same for any variable.
pub fn with_variable(variable: &str, value: &str) -> Vec<Marked> {
    let wanted = format!("{variable}={value}").into_bytes();
    let own = std::process::id();
    numbers()
        .filter(|pid| *pid != own)
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
        })
        .map(describe)
        .collect()
}

/// The living processes that have mapped or opened `path` or what lies below it.
pub fn using(path: &Path) -> Vec<u32> {
    let text = path.to_string_lossy();
    let maps = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let opened = |pid: &u32| {
        let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        links.filter_map(|link| fs::read_link(link.path()).ok()).any(|to| to.starts_with(path))
    };
    numbers().filter(|pid| maps(pid).contains(text.as_ref()) || opened(pid)).collect()
}

fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn describe(pid: u32) -> Marked {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned();
    Marked { pid, command, executable: fs::read_link(format!("/proc/{pid}/exe")).ok() }
}

/// The process that started it, while both live.
pub fn parent(pid: u32) -> Option<u32> {
    field(pid, "PPid")?.parse().ok()
}

/// What the kernel says of a process or a thread, by a name in `/proc/PID/status`.
pub fn field(pid: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    value.map(str::to_owned)
}

/// The threads of a process; none when it is gone.
pub fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Sends `signal`; a process that is already gone is no error.
pub fn signal(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// `kill -9`.
pub fn kill(pid: u32) -> bool {
    signal(pid, Signal::KILL)
}

/// Asks `pid` to end.
pub fn terminate(pid: u32) -> bool {
    signal(pid, Signal::TERM)
}

/// Kills the supervisor that carries `mark`, and waits until its daemon has ended as well.
///
/// # Errors
/// There is none, or something outlives it by `patience`.
pub fn kill_supervisor(mark: &str, patience: Duration) -> Result<()> {
    let all = marked(mark);
    let supervisor = all.iter().find(|process| process.command.contains(" __supervise "));
    let supervisor = supervisor.context("there is no supervisor")?.pid;
    ensure!(kill(supervisor), "the supervisor was gone already");
    let deadline = Instant::now() + patience;
    while !marked(mark).is_empty() {
        ensure!(Instant::now() < deadline, "the daemon outlived its supervisor");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Ends every process that carries `mark`, again and again until none is left or `patience` is
/// over: a supervisor may be starting another one.
pub fn end_marked(mark: &str, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        let left = marked(mark);
        if left.is_empty() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        for process in left {
            kill(process.pid);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The processor time that `pid` has used, its own and the kernel's, all threads.
pub fn processor_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name, in parentheses, may hold blanks; utime and stime are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_millis(ticks * 1000 / ticks_per_second))
}

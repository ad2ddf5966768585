//! The end of a process as a descriptor that becomes ready with it.
//!
//! Linux has these since 5.3 (pidfd_open). Before, a thread looks at `/proc` again and again, and
//! closes its end of a pipe when the process has ended: whoever waits for the other end is told.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, PidfdFlags, pidfd_open},
    time::Timespec,
};

use crate::processes::proc_stat::ProcStat;

/// A thread that looks does so as often with few processes, and the less often the more there are.
const PAUSE: Duration = Duration::from_millis(10);
/// So many are looked at in one such time.
const AT_ONCE: usize = 64;

/// A descriptor that is ready when the process has ended, reaped or not.
///
/// # Errors
/// There is no such process, or the kernel refuses a descriptor.
pub(crate) fn of(pid: Pid) -> io::Result<OwnedFd> {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::NOSYS) => looked_for(pid),
        opened => Ok(opened?),
    }
}

/// A process that is looked at.
struct Watched {
    pid: i32,
    /// When it was started: its number may be another one's later.
    started: u64,
    line: OwnedFd,
}

/// All of them, and whether a thread looks.
struct All {
    watched: Vec<Watched>,
    is_looking: bool,
}

static ALL: Mutex<All> = Mutex::new(All { watched: Vec::new(), is_looking: false });

fn looked_for(pid: Pid) -> io::Result<OwnedFd> {
    let pid = pid.as_raw_nonzero().get();
    let started = started(pid).ok_or(Errno::SRCH)?;
    let (told, line) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.watched.push(Watched { pid, started, line });
    if !all.is_looking {
        thread::Builder::new().name("ends".to_owned()).spawn(look)?;
        all.is_looking = true;
    }
    Ok(told)
}

/// Until nothing is left to be looked at.
fn look() {
    loop {
        let count = {
            let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
            all.watched.retain(|watched| {
                started(watched.pid) == Some(watched.started) && is_wanted(&watched.line)
            });
            if all.watched.is_empty() {
                all.is_looking = false;
                return;
            }
            all.watched.len()
        };
        thread::sleep(PAUSE * (1 + (count / AT_ONCE) as u32));
    }
}

/// Has somebody the other end?
fn is_wanted(line: &OwnedFd) -> bool {
    let mut looked = [PollFd::new(line, PollFlags::empty())];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut looked, Some(&none)).is_ok() && !looked[0].revents().contains(PollFlags::ERR)
}

/// When a process was started, in ticks since the machine was; none when it has ended, also while
/// nobody has taken note of that.
fn started(pid: i32) -> Option<u64> {
    let stat = ProcStat::of(pid.cast_unsigned())?;
    if matches!(stat.state()?, "Z" | "X" | "x") {
        return None;
    }
    stat.number(22)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().expect("sleep")
    }

    fn is_told(end: &OwnedFd, within: i64) -> bool {
        let mut looked = [PollFd::new(end, PollFlags::IN)];
        poll(&mut looked, Some(&Timespec { tv_sec: within, tv_nsec: 0 })) == Ok(1)
    }

    #[test]
    fn an_end_is_told_before_anybody_has_reaped_the_process() {
        for find in [of, looked_for] {
            let (mut one, mut other) = (sleeper(), sleeper());
            let pid = |child: &Child| Pid::from_child(child);
            let (first, second) = (find(pid(&one)), find(pid(&other)));
            let (first, second) = (first.expect("it lives"), second.expect("it lives"));
            assert!(!is_told(&first, 0) && !is_told(&second, 0));
            one.kill().expect("ours");
            assert!(is_told(&first, 30), "nobody was told");
            assert!(!is_told(&second, 0), "the other one lives");
            one.wait().expect("ours");
            other.kill().expect("ours");
            other.wait().expect("ours");
            assert!(is_told(&second, 30), "nobody was told");
            assert!(find(pid(&other)).is_err(), "there is no such process");
        }
    }
}

//! Running the user's command in an instance.

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    process::{Child, ExitStatus},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH},
    iterator::{Handle, SignalsInfo, exfiltrator::origin::WithOrigin},
    low_level::siginfo::Cause,
};

use super::namespace;

pub use super::cannot_run::CannotRun;
use crate::{Config, environment};

/// Signals that are handed on to the command when somebody sends them to us.
const HANDED_ON: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];

/// Somebody has asked for the end, and not the command itself.
static END_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Has somebody asked for the command's end while it ran: the terminal, or a batch system that
/// leaves some time before it kills?
#[must_use]
pub fn is_end_requested() -> bool {
    END_REQUESTED.load(Relaxed)
}

/// Runs `command` (program and arguments) served by the instance; waits for its end. Signals sent
/// to this process go to the command; what the terminal sends reaches the command by itself.
///
/// # Errors
/// When the command cannot be started.
pub fn run(config: &Config, command: &[OsString]) -> Result<ExitStatus> {
    let (program, arguments) = command.split_first().context("no command")?;
    let mut signals =
        SignalsInfo::<WithOrigin>::new(HANDED_ON).context("cannot listen for signals")?;
    let child = namespace::command(config, program)?
        .args(arguments)
        .envs(environment::variables(config))
        .spawn()
        .map_err(|error| CannotRun::new(program, error))?;
    let handle = signals.handle();
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let forwarder = thread::spawn(move || {
        for origin in signals.forever() {
            if [SIGHUP, SIGINT, SIGTERM].contains(&origin.signal) {
                END_REQUESTED.store(true, Relaxed);
            }
            // The terminal's driver signals the whole foreground group, the command included.
            let by_terminal = origin.cause == Cause::Kernel;
            let signal = Signal::from_named_raw(origin.signal);
            if let (false, Some(pid), Some(signal)) = (by_terminal, pid, signal) {
                let _ = kill_process(pid, signal);
            }
        }
    });
    let status = wait(child, &handle);
    let _ = forwarder.join();
    status
}

fn wait(mut child: Child, forwarding: &Handle) -> Result<ExitStatus> {
    let status: io::Result<ExitStatus> = child.wait();
    forwarding.close();
    status.context("cannot wait for the command")
}

/// Ends this process as the command ended: with its exit status, or by the same signal.
pub fn end_like(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        // Returns for signals that do not end a process by default; the status says it then.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(1));
}

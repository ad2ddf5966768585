//! Processor time of processes, to the nanosecond.

use std::fs;

/// What all threads of these processes have used, ns.
pub(crate) fn time_ns(processes: &[u32]) -> u64 {
    processes.iter().map(|pid| of_process(*pid)).sum()
}

/// What all threads of these processes and of this one use while `work` is done, ns. The files of
/// many processes are long to read: that time is not counted.
pub(crate) fn used_ns<T>(others: &[u32], work: impl FnOnce() -> T) -> (T, u64) {
    let me = [std::process::id()];
    let before = (time_ns(others), time_ns(&me));
    let done = work();
    let mine = time_ns(&me) - before.1;
    (done, mine + time_ns(others) - before.0)
}

fn of_process(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |path: std::path::PathBuf| -> Option<u64> {
        fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    tasks.filter_map(|task| of_task(task.path())).sum()
}

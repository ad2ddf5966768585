//! Processor time of processes, to the nanosecond.

use std::fs;

/// What all threads of these processes have used, ns.
pub(crate) fn time_ns(processes: &[u32]) -> u64 {
    processes.iter().map(|pid| of_process(*pid)).sum()
}

fn of_process(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |path: std::path::PathBuf| -> Option<u64> {
        fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    tasks.filter_map(|task| of_task(task.path())).sum()
}

//! What processes use, by `/proc`.

use std::fs;

/// Processor time of a process's threads, nanoseconds; 0 when the process is gone.
///
/// The scheduler's sum (`schedstat`) and not `stat`, whose unit of 10 ms is longer than a phase.
pub(crate) fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |entry: fs::DirEntry| -> Option<u64> {
        let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok()
    };
    tasks.filter_map(of_task).sum()
}

/// Most memory that a process had resident since [`reset_peak`], bytes.
pub(crate) fn peak_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    peak_in(&status).unwrap_or(0)
}

fn peak_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Starts the peak anew. Where that is not allowed, it is the peak of the process's life.
pub(crate) fn reset_peak(pid: u32) {
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_in_bytes() {
        assert_eq!(peak_in("Name:\tx\nVmHWM:\t    2048 kB\n"), Some(2 << 20));
        assert!(peak_bytes(std::process::id()) > 1 << 16);
    }
}

//! Standing back behind a job: calls of the C library that no safe crate makes.

use std::io;

/// `IOPRIO_CLASS_IDLE` in its place: disks serve it when nobody else asks.
const IDLE: libc::c_int = 3 << 13;
/// `IOPRIO_WHO_PROCESS`.
const WHO_PROCESS: libc::c_int = 1;
/// The lowest priority for processors.
const NICE: libc::c_int = 19;

/// From here on this thread, and those that it makes, have the lowest priority for processors and
/// disks.
///
/// # Errors
/// The kernel does not let it.
pub fn stand_back() -> io::Result<()> {
    // SAFETY: numbers only; zero is the calling thread.
    let nice = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    if nice != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let idle = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, IDLE) };
    if idle != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_made_afterwards_stand_back_too() {
        let nice = std::thread::spawn(|| {
            stand_back().expect("nobody is kept from standing back");
            let inner = std::thread::spawn(|| std::fs::read_to_string("/proc/thread-self/stat"));
            inner.join().expect("a thread").expect("a line")
        });
        let line = nice.join().expect("a thread");
        // The nineteenth field; the name in the second one has no blanks here.
        let after_name = line.rsplit(')').next().unwrap_or_default();
        assert_eq!(after_name.split_whitespace().nth(16), Some("19"), "{line}");
    }
}

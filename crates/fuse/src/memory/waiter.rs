//! Whether a process or an open file description waits for a lock of fcntl.
//!
//! The kernel's request does not say it. Linux never tells a description (F_OFD_SETLKW) that it
//! waits for itself, and always a process.

use std::time::Duration;

use mayfly_sys::number;

const LOOKS_MAX: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);

/// Whose wait it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    Process,
    Description,
    Unknown,
}

impl Waiter {
    /// By the call in which the thread is.
    pub(crate) fn of(thread: u32) -> Waiter {
        for _ in 0..LOOKS_MAX {
            match std::fs::read_to_string(format!("/proc/{thread}/syscall")) {
                // It has sent its request and does not sleep yet.
                Ok(call) if call.starts_with("running") => std::thread::sleep(BETWEEN_LOOKS),
                Ok(call) => return Waiter::in_call(&call),
                Err(_) => break,
            }
        }
        Waiter::Unknown
    }

    /// `call`: number and arguments, as procfs shows them.
    fn in_call(call: &str) -> Waiter {
        const F_SETLKW: &str = "0x7";
        const F_OFD_SETLKW: &str = "0x26";
        let mut words = call.split(' ');
        let number = words.next().and_then(|word| word.parse().ok());
        match (number == Some(number::FCNTL), words.nth(1)) {
            (true, Some(F_SETLKW)) => Waiter::Process,
            (true, Some(F_OFD_SETLKW)) => Waiter::Description,
            _ => Waiter::Unknown,
        }
    }

    /// Does the wait of one that holds something through `held` count, when it is through `waits`?
    pub(super) fn counts(self, held: u64, waits: u64) -> bool {
        match self {
            Waiter::Process => true,
            Waiter::Description => false,
            Waiter::Unknown => held != waits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_of_the_thread_tells_a_process_from_a_description() {
        assert_eq!(Waiter::in_call("72 0x3 0x7 0x7ffc8 0x0 0x0 0x0 0x1 0x2"), Waiter::Process);
        assert_eq!(Waiter::in_call("72 0x3 0x26 0x7ffc8 0x0 0x0 0x0 0x1 0x2"), Waiter::Description);
        assert_eq!(Waiter::in_call("73 0x3 0x7 0x0"), Waiter::Unknown);
        assert_eq!(Waiter::in_call("running\n"), Waiter::Unknown);
    }
}

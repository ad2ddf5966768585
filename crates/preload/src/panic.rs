//! A bug in the library ends the process, loudly and at once: there is nobody to unwind to.

use core::fmt::Write;

use mayfly_sys::number;

use crate::kernel;

/// One line, built without allocating.
struct Line {
    bytes: [u8; 256],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            if let Some(place) = self.bytes.get_mut(self.used) {
                *place = byte;
                self.used += 1;
            }
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut line = Line { bytes: [0; 256], used: 0 };
    let written = match info.location() {
        Some(at) => {
            writeln!(line, "mayfly: bug in the preload library, {}:{}", at.file(), at.line())
        }
        None => line.write_str("mayfly: bug in the preload library\n"),
    };
    if written.is_ok() {
        kernel::write_to_stderr(&line.bytes[..line.used]);
    }
    die()
}

/// Ends the process as `abort` would: by SIGABRT, whatever the host made of that signal.
pub(crate) fn die() -> ! {
    const SIGABRT: usize = 6;
    let default = kernel::Action::default();
    kernel::set_action(SIGABRT, Some(&default), None);
    kernel::unblock(1 << (SIGABRT - 1));
    let (pid, tid) = (kernel::process_id(), kernel::thread_id());
    // SAFETY: no pointers; the signal ends this process.
    unsafe { mayfly_sys::arch::syscall3(number::TGKILL, pid as usize, tid as usize, SIGABRT) };
    loop {
        // SAFETY: no pointers; exits.
        unsafe { mayfly_sys::arch::syscall3(number::EXIT_GROUP, 134, 0, 0) };
    }
}

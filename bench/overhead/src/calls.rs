//! Calls that pass: by class, by descriptor, and through the hook.

use std::time::Instant;

use mayfly_hosttest::{self as hosttest, Mode};

/// One kind of call.
pub(crate) struct Kind {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) says: &'static str,
    call: fn(),
}

/// Calls of one measurement.
const COUNT: u32 = 1_000_000;

/// All kinds.
pub(crate) const CALLS: &[Kind] = &[
    Kind { name: "umask", says: "umask: passes by its number", call: umask },
    Kind { name: "getppid", says: "getppid: answered in the hook", call: getppid },
    Kind { name: "read", says: "read of /dev/null: by descriptor", call: read },
    Kind { name: "open", says: "open and close: passed by the hook", call: open },
];

fn umask() {
    libc::umask();
}

fn getppid() {
    libc::getppid();
}

fn read() {
    libc::read();
}

fn open() {
    libc::open();
}

/// Measures the kind called `name` and prints nanoseconds a call: the child's side.
pub(crate) fn child(name: &str) {
    let Some(kind) = CALLS.iter().find(|kind| kind.name == name) else {
        eprintln!("no such call: {name}");
        std::process::exit(2);
    };
    for _ in 0..COUNT / 10 {
        (kind.call)();
    }
    let start = Instant::now();
    for _ in 0..COUNT {
        (kind.call)();
    }
    println!("{}", start.elapsed().as_nanos() as f64 / f64::from(COUNT));
}

/// Nanoseconds a call in `mode`, measured in a process of its own.
pub(crate) fn nanos(kind: &Kind, mode: Mode) -> f64 {
    let own = std::env::current_exe().expect("the program has a path");
    let left = hosttest::run(hosttest::command(own, mode).arg(kind.name));
    left.output.trim().parse().unwrap_or_else(|_| panic!("the child failed: {left:?}"))
}

/// The C library's functions: what a program would call.
mod libc {
    use std::ffi::{c_char, c_int, c_uint, c_void};
    use std::sync::OnceLock;

    mod c {
        use super::{c_char, c_int, c_uint, c_void};
        // SAFETY: declarations as in the C library's headers.
        unsafe extern "C" {
            pub(super) safe fn getppid() -> c_int;
            pub(super) safe fn umask(mask: c_uint) -> c_uint;
            pub(super) safe fn close(fd: c_int) -> c_int;
            pub(super) fn read(fd: c_int, bytes: *mut c_void, count: usize) -> isize;
            pub(super) fn open(path: *const c_char, flags: c_int) -> c_int;
        }
    }

    pub(super) fn umask() {
        std::hint::black_box(c::umask(0o22));
    }

    pub(super) fn getppid() {
        std::hint::black_box(c::getppid());
    }

    fn null() -> c_int {
        // SAFETY: a null-terminated path.
        unsafe { c::open(c"/dev/null".as_ptr(), 0) }
    }

    pub(super) fn read() {
        static NULL: OnceLock<c_int> = OnceLock::new();
        let mut byte = 0_u8;
        // SAFETY: room for one byte.
        let read = unsafe { c::read(*NULL.get_or_init(null), (&raw mut byte).cast(), 1) };
        std::hint::black_box(read);
    }

    pub(super) fn open() {
        c::close(null());
    }
}

//! Calls that are none of ours.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::Side;

/// One kind of call.
pub(crate) struct Kind {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) says: &'static str,
    call: fn(c_int),
}

/// Calls of one measurement.
const COUNT: u32 = 100_000;
const THERE: &CStr = c"/usr/bin/env";
const MISSING: &CStr = c"/usr/bin/no such program";

/// All kinds.
pub(crate) const CALLS: &[Kind] = &[
    Kind { name: "getppid", says: "getppid: not a call on files", call: parent },
    Kind { name: "read", says: "read of /dev/zero: by its descriptor", call: read },
    Kind { name: "seek", says: "lseek: by its descriptor", call: seek },
    Kind { name: "access", says: "access: a path of the host", call: |_| access(THERE) },
    Kind { name: "missing", says: "access: a missing path of the host", call: |_| access(MISSING) },
    Kind { name: "open", says: "open and close: two calls", call: open },
];

mod c {
    use super::{c_char, c_int, c_uint, c_void};
    // SAFETY: declarations as in the C library's headers.
    unsafe extern "C" {
        pub(super) safe fn getppid() -> c_int;
        pub(super) safe fn close(fd: c_int) -> c_int;
        pub(super) safe fn lseek(fd: c_int, offset: i64, whence: c_int) -> i64;
        pub(super) fn read(fd: c_int, bytes: *mut c_void, count: usize) -> isize;
        pub(super) fn access(path: *const c_char, mode: c_uint) -> c_int;
        pub(super) fn open(path: *const c_char, flags: c_int) -> c_int;
    }
}

fn parent(_fd: c_int) {
    std::hint::black_box(c::getppid());
}

fn seek(fd: c_int) {
    std::hint::black_box(c::lseek(fd, 0, 0));
}

fn read(fd: c_int) {
    let mut byte = 0_u8;
    // SAFETY: room for one byte.
    std::hint::black_box(unsafe { c::read(fd, (&raw mut byte).cast(), 1) });
}

fn access(path: &CStr) {
    // SAFETY: a null-terminated path.
    std::hint::black_box(unsafe { c::access(path.as_ptr(), 0) });
}

fn opened(path: &CStr) -> c_int {
    // SAFETY: a null-terminated path.
    unsafe { c::open(path.as_ptr(), 0) }
}

fn open(_fd: c_int) {
    c::close(opened(THERE));
}

/// Measures the kind called `name` and prints nanoseconds a call: the child's side.
pub(crate) fn child(name: &str) -> Result<()> {
    let Some(kind) = CALLS.iter().find(|kind| kind.name == name) else {
        bail!("no such call: {name}");
    };
    let zero = opened(c"/dev/zero");
    for _ in 0..COUNT / 10 {
        (kind.call)(zero);
    }
    let start = Instant::now();
    for _ in 0..COUNT {
        (kind.call)(zero);
    }
    println!("{}", start.elapsed().as_nanos() as f64 / f64::from(COUNT));
    Ok(())
}

/// Nanoseconds a call on one side, measured in a process of its own.
pub(crate) fn nanos(kind: &Kind, side: Side<'_>) -> Result<f64> {
    let output = side.command(std::env::current_exe()?).arg(kind.name).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("the measured process failed: {output:?}"))
}

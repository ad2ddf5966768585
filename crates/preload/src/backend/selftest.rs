//! Known answers, so that tests of the machinery need no file system.
//!
//! `MAYFLY_RUN` switches it on. `MAYFLY_SELFTEST` has letters: `a` sends every call through the
//! hook (which lets it pass, unless its entry has issued it by its path), `e` puts areas elsewhere
//! than usual.
//!
//! | call | answer |
//! |---|---|
//! | getppid | 4242 |
//! | getpgid(-1) | calls dispatched so far |
//! | getpgid(-2) | libraries left unpatched |
//! | getpgid(-3) | signals deferred, ever |
//! | getpgid(-4) | a bug |
//! | getsid(-n) | n microseconds spent in the hook |
//! | getsid(-1,000,000,000) | sleeps in the hook until a signal is deferred, -EINTR |
//! | fork, clone and clone3 without a stack | issued in the hook, after 100 microseconds in it |
//! | read and write of descriptor 700 | the byte count |

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, Ordering};

use mayfly_interpose::class::{
    ALWAYS, CALLS_MAX, CLASSES, DESCRIPTOR_FIRST, DESCRIPTORS_MAX, PATH_FIRST, PATH_SECOND,
};
use mayfly_interpose::image::Wanted;
use mayfly_interpose::{Call, Outcome, Start, first};
use mayfly_sys::{Errno, arch, interrupt, number};

const DESCRIPTOR: usize = 700;
const EINTR: isize = 4;
/// Spent before a fork.
const FORK_MICROS: u64 = 100;

static DESCRIPTORS: [AtomicU32; DESCRIPTORS_MAX] = [const { AtomicU32::new(0) }; DESCRIPTORS_MAX];
static DISPATCHED: AtomicIsize = AtomicIsize::new(0);
static ELSEWHERE: AtomicBool = AtomicBool::new(false);
static ALL: AtomicBool = AtomicBool::new(false);

static SOME_CALLS: [u8; CALLS_MAX] = some_calls();
static ALL_CALLS: [u8; CALLS_MAX] = all_calls();

const fn some_calls() -> [u8; CALLS_MAX] {
    let mut classes = [0; CALLS_MAX];
    classes[number::GETPPID] = ALWAYS;
    classes[number::GETPGID] = ALWAYS;
    classes[number::GETSID] = ALWAYS;
    classes[number::FORK] = ALWAYS;
    classes[number::CLONE] = ALWAYS;
    classes[number::CLONE3] = ALWAYS;
    classes[number::OPENAT] = PATH_SECOND;
    classes[number::READ] = DESCRIPTOR_FIRST;
    classes[number::WRITE] = DESCRIPTOR_FIRST;
    classes
}

const fn all_calls() -> [u8; CALLS_MAX] {
    let (mut classes, mut call) = ([ALWAYS; CALLS_MAX], 0);
    while call < CALLS_MAX {
        if matches!(CLASSES[call], PATH_FIRST | PATH_SECOND) {
            classes[call] = CLASSES[call];
        }
        call += 1;
    }
    classes
}

/// Reads the switches.
pub(crate) unsafe fn start(start: &Start) -> bool {
    DESCRIPTORS[DESCRIPTOR].store(1, Ordering::Relaxed);
    first::turn_on(u64::from_le_bytes(*b"/mayfly/"));
    let (mut at, mut run) = (start.envp, false);
    // SAFETY: the caller's promise: a null-terminated array of null-terminated strings.
    unsafe {
        while !(*at).is_null() {
            let entry = CStr::from_ptr((*at).cast()).to_bytes();
            run |= entry.starts_with(b"MAYFLY_RUN=");
            if let Some(letters) = entry.strip_prefix(b"MAYFLY_SELFTEST=") {
                ALL.store(letters.contains(&b'a'), Ordering::Relaxed);
                ELSEWHERE.store(letters.contains(&b'e'), Ordering::Relaxed);
            }
            at = at.add(1);
        }
    }
    run
}

pub(crate) fn avoids_usual_place() -> bool {
    ELSEWHERE.load(Ordering::Relaxed)
}

pub(crate) fn classes() -> &'static [u8; CALLS_MAX] {
    if ALL.load(Ordering::Relaxed) { &ALL_CALLS } else { &SOME_CALLS }
}

pub(crate) fn descriptor_table() -> *const u32 {
    DESCRIPTORS.as_ptr().cast()
}

/// No call is of a watched class.
pub(crate) fn watched_word() -> *const u32 {
    DESCRIPTORS.as_ptr().cast()
}

pub(crate) unsafe fn dispatch(call: &mut Call) -> Outcome {
    DISPATCHED.fetch_add(1, Ordering::Relaxed);
    let first = call.args[0] as i32 as isize;
    match call.number {
        number::GETPPID => Outcome::Done(4242),
        number::GETPGID if first == -1 => Outcome::Done(DISPATCHED.load(Ordering::Relaxed)),
        number::GETPGID if first == -2 => {
            Outcome::Done(crate::patch::MISSING.load(Ordering::Relaxed) as isize)
        }
        number::GETPGID if first == -3 => Outcome::Done(crate::deferral::count() as isize),
        number::GETPGID if first == -4 => panic!("a bug that was asked for"),
        number::GETSID if first == -1_000_000_000 => sleep_until_deferred(),
        number::GETSID if first < 0 => {
            spin(first.unsigned_abs() as u64);
            Outcome::Done(first.abs())
        }
        number::READ | number::WRITE if call.args[0] == DESCRIPTOR => {
            Outcome::Done(call.args[2].cast_signed())
        }
        _ => Outcome::Pass,
    }
}

/// Takes some time, so that signals are deferred here.
pub(crate) fn before_fork(_call: &Call) -> Result<(), Errno> {
    spin(FORK_MICROS);
    Ok(())
}

/// The hook's entry has issued the call, and it failed.
pub(crate) unsafe fn dispatch_slowly(_call: &mut Call) -> Outcome {
    Outcome::Pass
}

/// Spins for about `micros`, clobbering vector registers on the way.
fn spin(micros: u64) {
    let end = arch::cycles() + micros * 2500;
    let mut value = 1.5_f64;
    while arch::cycles() < end {
        value = core::hint::black_box(value * 1.000_001 + 0.5);
    }
}

/// Waits as a blocking lock would, without a deadline in one case of two. A signal that is deferred
/// in the few instructions between the look and the call is not heard of before the next one.
fn sleep_until_deferred() -> Outcome {
    static WORD: AtomicU32 = AtomicU32::new(0);
    const FUTEX_WAIT_PRIVATE: usize = 128;
    let second = [1_usize, 0];
    for round in 0.. {
        if interrupt::DEFERRED.load(Ordering::Relaxed) != 0 {
            break;
        }
        let wait = if round % 2 == 0 { 0 } else { second.as_ptr() as usize };
        let word = &raw const WORD as usize;
        // SAFETY: word and time live through the call.
        unsafe { arch::syscall6(number::FUTEX, word, FUTEX_WAIT_PRIVATE, 0, wait, 0, 0) };
    }
    Outcome::Done(-EINTR)
}

/// Nobody makes images here.
pub(crate) fn have_image_made(_wanted: &Wanted<'_>) -> Result<i32, Errno> {
    Err(Errno::ENOENT)
}

/// Nothing is remembered here.
pub(crate) fn open_plain(_name: &[u8]) -> Result<i32, Errno> {
    Err(Errno::ENOENT)
}

/// Counted by `patch` as well.
pub(crate) fn note_unserved(_name: &[u8], _why: Errno) {}

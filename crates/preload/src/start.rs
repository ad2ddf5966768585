//! The beginning, before `main`.
//!
//! glibc hands `argc, argv, envp` to entries of `.init_array`; musl does not. The three are
//! recognised by `envp = argv + argc + 1`. Otherwise they are found without ([`crate::given`]).
//!
//! There are two ways in. As a preloaded library the constructor runs when all libraries are
//! loaded, and patches them. As an audit library ([`crate::audit`]) it runs before the loader has
//! published its list, so it only keeps what it was given; libraries are patched as they come. A
//! process that has both copies is served by the one that is first; it marks the end of the
//! auxiliary vector.

use core::sync::atomic::Ordering;

use mayfly_image::format::{CALLS_MAX, DESCRIPTORS_MAX};
use mayfly_interpose::{Start, class};
use mayfly_sys::number;

use crate::given::{self, Given};
use crate::patch::{self, Other};
use crate::plain::Plain;
use crate::prepared::{self, IMAGES_PATH_BYTES_MAX, Pointers, Prepared};
use crate::process::{self, Library};
use crate::{backend, deferral, signal};

const _: () = assert!(CALLS_MAX == class::CALLS_MAX);
const _: () = assert!(DESCRIPTORS_MAX == class::DESCRIPTORS_MAX);
const _: () = assert!(class::PASS == 0 && class::DESCRIPTOR_FIRST == 1);
const _: () = assert!(class::ALWAYS == 2 && class::DESCRIPTOR_FIFTH == 3);
const _: () = assert!(class::DESCRIPTOR_FIRST_WATCHED == 4 && class::PASS_WATCHED == 5);
const _: () = assert!(class::PATH_FIRST == 6 && class::PATH_SECOND == 7);

/// Run by the dynamic loader.
#[used]
#[unsafe(link_section = ".init_array")]
static START: unsafe extern "C" fn(i32, *const usize, *const usize) = start;

/// The class table that the trampolines read: interpose's, and what this library needs itself.
static mut CLASSES: [u8; CALLS_MAX] = [0; CALLS_MAX];

core::arch::global_asm!(".hidden __ehdr_start");

// SAFETY: the linker puts this at the library's file header.
unsafe extern "C" {
    static __ehdr_start: u8;
}

/// Value of the terminator of an auxiliary vector whose process is served. The kernel leaves zero
/// there and nobody looks.
const SERVED: usize = usize::from_ne_bytes(*b"mayfly\0\0");

unsafe extern "C" fn start(
    argument_count: i32,
    arguments: *const usize,
    environment: *const usize,
) {
    let count = argument_count as usize;
    let passed = count < 1 << 24 && arguments.wrapping_add(count.wrapping_add(1)) == environment;
    let given = if passed && !arguments.is_null() {
        // SAFETY: this relation of the three does not come about by chance.
        Some(unsafe { given::on_stack(environment) })
    } else {
        given::from_proc()
    };
    let Some(given) = given else { return };
    // SAFETY: the vector is the kernel's; the loader is waiting for us.
    unsafe {
        if !process::list_is_published(given.auxiliary) {
            return given::keep(given);
        }
        let Some(prepared) = prepare(&given) else { return };
        process::for_each_library(given.auxiliary, |library, name| {
            patch::patch(library, name, prepared.images, prepared.pointers);
        });
        if patch::MISSING.load(Ordering::Relaxed) == 0 {
            let mut plain = Plain::new();
            process::for_each_other(given.auxiliary, own_place(), |library, name| {
                patch_other(library, name, prepared, &mut plain);
            });
        }
    }
}

/// Serves a static program, whose code is there and has not begun; nothing when the process belongs
/// to no instance.
///
/// # Safety
/// `given` is this process's, and no other thread runs.
pub(crate) unsafe fn begin(given: &Given, program: &Library<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        if let Some(prepared) = prepare(given) {
            patch_other(program, process::PROGRAM, prepared, &mut Plain::new());
        }
    }
}

/// What was there at the start, and was not told to make system calls for others.
///
/// # Safety
/// Its code is mapped, and nobody has replaced it.
unsafe fn patch_other(library: &Library<'_>, name: &[u8], prepared: Prepared, plain: &mut Plain) {
    let Some(text) = library.text() else { return };
    let other = Other { text, build_id: library.build_id(), stays: true };
    // SAFETY: passed on to the caller.
    if let Err(why) = unsafe { patch::patch_other(&other, prepared, plain) } {
        backend::note_unserved(name, why);
    }
}

/// The same for the program itself, before its libraries are there.
///
/// # Safety
/// `given` is this process's, and no other thread runs.
pub(crate) unsafe fn patch_program(given: &Given, prepared: Prepared) {
    // SAFETY: passed on to the caller.
    unsafe {
        if let Some(program) = process::program(given.auxiliary) {
            patch_other(&program, process::PROGRAM, prepared, &mut Plain::new());
        }
    }
}

/// Where this library is.
fn own_place() -> usize {
    (&raw const __ehdr_start) as usize
}

/// Sets everything up but the libraries; nothing when the process belongs to no instance or is
/// served already.
///
/// # Safety
/// `given` is this process's, and no other thread runs.
pub(crate) unsafe fn prepare(given: &Given) -> Option<Prepared> {
    // SAFETY: the vector ends with a zero key, and the memory is this process's own to write.
    let mark = unsafe {
        let mut end = given.auxiliary;
        while (*end)[0] != 0 {
            end = end.add(1);
        }
        &mut (*end)[1]
    };
    // SAFETY: first call in this copy, and the environment is null-terminated.
    if *mark == SERVED || !unsafe { backend::start(&Start { envp: given.environment.cast() }) } {
        return None;
    }
    // SAFETY: as above.
    let images = unsafe { keep_images(given::variable(given, b"MAYFLY_IMAGES=")?) }?;
    // SAFETY: the library's own file header.
    let own = unsafe { Library::at(own_place()) };
    signal::set_up(own.text()?.range);
    deferral::set_up();
    *mark = SERVED;
    let prepared = Prepared { images, pointers: set_up_classes() };
    // SAFETY: one thread, and no code is replaced yet.
    unsafe { prepared::keep(prepared) };
    Some(prepared)
}

/// The path in memory of our own: programs write over their environment.
///
/// # Safety
/// The process has one thread.
unsafe fn keep_images(path: &[u8]) -> Option<&'static [u8]> {
    static mut PATH: [u8; IMAGES_PATH_BYTES_MAX] = [0; IMAGES_PATH_BYTES_MAX];
    let place = &raw mut PATH;
    // SAFETY: the caller's promise, and this is called once.
    let kept = unsafe { &mut *place }.get_mut(..path.len())?;
    kept.copy_from_slice(path);
    Some(kept)
}

fn set_up_classes() -> Pointers {
    let classes = &raw mut CLASSES;
    // SAFETY: nothing reads the table before a library is patched.
    unsafe {
        *classes = *backend::classes();
        for call in [number::RT_SIGACTION, number::RT_SIGPROCMASK, number::MMAP] {
            (*classes)[call] = class::ALWAYS;
        }
    }
    Pointers {
        classes: classes.cast(),
        descriptors: backend::descriptor_table(),
        watched: backend::watched_word(),
    }
}

//! The way in through `LD_AUDIT`, before the program's libraries are looked for.
//!
//! A preloaded library's constructor runs when every needed library has been found, too late for
//! one that lies in the mount. glibc loads audit libraries before anything else, in a namespace of
//! their own, and tells them of every library it maps (rtld-audit(7)): of the loader first, so that
//! it finds the others through us, then of libc, whose text is replaced before any of it runs.
//! Relocations do not touch text.
//!
//! `LD_PRELOAD` names this library as well, for loaders without auditing (musl). The loader reads
//! that list only after we have started, from the environment itself; its mention of us is blanked
//! until then, so that the program gets one copy, and put back when the first C library comes.
//!
//! glibc before 2.35 (audit version 1) sends every call between libraries through the auditing code
//! and does not tell unwinders of other namespaces; there we decline, and are preloaded.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use mayfly_sys::number;

use crate::given::{self, Given};
use crate::patch;
use crate::prepared;
use crate::process::{self, LinkMap};
use crate::start;

/// First version of the interface in which auditing costs those nothing who do not ask for calls.
const VERSION_MIN: u32 = 2;

/// Our name in the environment's `LD_PRELOAD` while it is blanked, and its length.
static BLANKED: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static BLANKED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The same name elsewhere in the environment, to put it back from.
static NAME: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// Called by the loader first. Zero makes it unload this library again.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn la_version(version: u32) -> u32 {
    // SAFETY: the process has one thread, which is the loader's.
    unsafe {
        let Some(given) = given::kept().filter(|_| version >= VERSION_MIN) else { return 0 };
        if start::prepare(&given).is_none() {
            return 0;
        }
        blank(&given);
    }
    version
}

/// Called by the loader for every library it has mapped, under its lock. No symbol bindings are of
/// interest: zero.
///
/// Code in this section is the host's to interrupt. Signals are held back, not deferred, because no
/// hook's exit follows that would let them in.
///
/// # Safety
/// The record is the loader's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = "mayfly_signal")]
pub(crate) unsafe extern "C" fn la_objopen(
    map: *const LinkMap,
    namespace: isize,
    cookie: *mut usize,
) -> u32 {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 24",
        ".cfi_adjust_cfa_offset 24",
        "mov [rsp + 16], rdi",
        "mov qword ptr [rsp + 8], -1",
        "mov eax, {sigprocmask}",
        "xor edi, edi",
        "lea rsi, [rsp + 8]",
        "mov rdx, rsp",
        "mov r10d, 8",
        "syscall",
        "mov rdi, [rsp + 16]",
        "call {opened}",
        "mov eax, {sigprocmask}",
        "mov edi, 2",
        "mov rsi, rsp",
        "xor edx, edx",
        "mov r10d, 8",
        "syscall",
        "xor eax, eax",
        "add rsp, 24",
        ".cfi_adjust_cfa_offset -24",
        "ret",
        ".cfi_endproc",
        sigprocmask = const number::RT_SIGPROCMASK,
        opened = sym opened,
    )
}

unsafe extern "C" fn opened(map: *const LinkMap) {
    let Some(prepared) = prepared::prepared() else { return };
    // SAFETY: the loader has just mapped it, or it is the program; one thread runs.
    let found = unsafe {
        if process::is_program(map) {
            given::kept().inspect(|given| start::patch_program(given, prepared));
        }
        process::wanted(map)
    };
    let Some((library, name)) = found else { return };
    if !name.starts_with(b"ld-") {
        put_back();
    }
    patch::patch(&library, name, prepared.images, prepared.pointers);
}

/// Blanks our name in `LD_PRELOAD`: colons are empty elements, which the loader skips.
///
/// # Safety
/// The environment is this process's, and nobody else looks at it now.
unsafe fn blank(given: &Given) {
    // SAFETY: the caller's promise.
    let (audit, preload) =
        unsafe { (given::variable(given, b"LD_AUDIT="), given::variable(given, b"LD_PRELOAD=")) };
    let separates = |byte: &u8| matches!(byte, b':' | b' ');
    let own = audit.and_then(|list| list.split(separates).find(|part| !part.is_empty()));
    let (Some(own), Some(preload)) = (own, preload) else { return };
    let Some(found) = preload.split(separates).find(|part| *part == own) else { return };
    let (from, to) = (own.as_ptr() as usize, found.as_ptr() as usize);
    let to = core::ptr::with_exposed_provenance_mut::<u8>(to);
    NAME.store(core::ptr::with_exposed_provenance_mut(from), Ordering::Relaxed);
    BLANKED.store(to, Ordering::Relaxed);
    BLANKED_BYTES.store(found.len(), Ordering::Relaxed);
    // SAFETY: the string lies on the writable stack, and `preload` is not used any more.
    unsafe { to.write_bytes(b':', found.len()) };
}

/// Undoes [`blank`]: preloaded libraries are loaded before needed ones.
fn put_back() {
    let blanked = BLANKED.swap(core::ptr::null_mut(), Ordering::Relaxed);
    if !blanked.is_null() {
        let (name, bytes) = (NAME.load(Ordering::Relaxed), BLANKED_BYTES.load(Ordering::Relaxed));
        // SAFETY: both have that many bytes, in different strings of the environment.
        unsafe { core::ptr::copy_nonoverlapping(name, blanked, bytes) };
    }
}

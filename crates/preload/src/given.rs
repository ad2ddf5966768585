//! What a new process is given: environment and auxiliary vector, from the stack or, where the
//! loader does not say where that is, from /proc.

use core::ffi::CStr;

use mayfly_image::format::PAGE_BYTES;

use crate::kernel::{self, MAP_PRIVATE, Mapping, PROT_READ, PROT_WRITE};

/// What the kernel left on the stack of the new process.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    pub(crate) environment: *const *const u8,
    pub(crate) auxiliary: *mut [usize; 2],
}

/// What the constructor was given.
static mut GIVEN: Option<Given> = None;

/// Keeps what the constructor was given for [`crate::audit`], whose functions are called next if we
/// are an audit library.
pub(crate) fn keep(given: Given) {
    // SAFETY: the process has one thread, which is the loader's.
    unsafe { GIVEN = Some(given) };
}

/// What was kept, if it was.
pub(crate) fn kept() -> Option<Given> {
    // SAFETY: as in `keep`; it is written once.
    unsafe { GIVEN }
}

/// The auxiliary vector follows the environment.
///
/// # Safety
/// The environment is where the kernel left it for a new program.
pub(crate) unsafe fn on_stack(environment: *const usize) -> Given {
    let mut end = environment;
    // SAFETY: the environment ends with a null pointer, the vector begins behind it.
    unsafe {
        while *end != 0 {
            end = end.add(1);
        }
        Given { environment: environment.cast(), auxiliary: end.add(1).cast_mut().cast() }
    }
}

/// The value of an environment variable; `name` includes the equals sign.
///
/// # Safety
/// `given` is this process's.
pub(crate) unsafe fn variable(given: &Given, name: &[u8]) -> Option<&'static [u8]> {
    let mut at = given.environment;
    // SAFETY: null-terminated array of null-terminated strings.
    unsafe {
        while !(*at).is_null() {
            if let Some(value) = CStr::from_ptr((*at).cast()).to_bytes().strip_prefix(name) {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

/// Bytes set aside for the environment when it must be read: the kernel's limit for one string,
/// many times over.
const ENVIRONMENT_BYTES: usize = 2 << 20;

/// Environment and auxiliary vector as the kernel remembers them. The memory stays.
pub(crate) fn from_proc() -> Option<Given> {
    let pointers_bytes = ENVIRONMENT_BYTES;
    // SAFETY: new memory.
    let base = unsafe {
        kernel::map(&Mapping {
            address: 0,
            bytes: PAGE_BYTES + ENVIRONMENT_BYTES + pointers_bytes,
            protection: PROT_READ | PROT_WRITE,
            flags: MAP_PRIVATE,
            file: None,
        })
    }?;
    let auxiliary = core::ptr::with_exposed_provenance_mut::<u8>(base);
    let strings = auxiliary.wrapping_add(PAGE_BYTES);
    let pointers = strings.wrapping_add(ENVIRONMENT_BYTES).cast::<*const u8>();
    // SAFETY: the three parts of the mapping; what is not read stays zero and terminates each.
    unsafe {
        let vector = core::slice::from_raw_parts_mut(auxiliary, PAGE_BYTES - 16);
        read_file(c"/proc/self/auxv", vector)?;
        let bytes = core::slice::from_raw_parts_mut(strings, ENVIRONMENT_BYTES - 1);
        let used = read_file(c"/proc/self/environ", bytes)?;
        split(strings, used, pointers, pointers_bytes / size_of::<usize>() - 1);
    }
    Some(Given { environment: pointers, auxiliary: auxiliary.cast() })
}

fn read_file(path: &CStr, buffer: &mut [u8]) -> Option<usize> {
    // SAFETY: null-terminated.
    let fd = usize::try_from(unsafe { kernel::open(path.as_ptr().cast()) }).ok()?;
    let used = kernel::read_at_start(fd, buffer);
    kernel::close(fd);
    if used > 0 { Some(used) } else { None }
}

/// Writes pointers to the strings in `used` bytes at `strings`.
unsafe fn split(strings: *const u8, used: usize, pointers: *mut *const u8, pointers_max: usize) {
    let (mut at, mut count) = (0, 0);
    while at < used && count < pointers_max {
        // SAFETY: inside of the memory that the caller set aside; strings are terminated.
        unsafe {
            pointers.add(count).write(strings.add(at));
            at += CStr::from_ptr(strings.add(at).cast()).count_bytes() + 1;
        }
        count += 1;
    }
}

//! Every descriptor that the kernel has of the calling process, as procfs lists them.
//!
//! For who cannot believe the table: a program at its start, and a child of vfork, whose numbers
//! are in no table.

use mayfly_sys::{
    arch::syscall3,
    file::{self, AT_FDCWD, O_CLOEXEC, O_DIRECTORY},
    number,
    text::{PathText, parse_decimal},
};

/// Calls `each` for every descriptor that procfs lists.
pub(crate) fn each_in_kernel(each: impl FnMut(i32)) {
    if let Ok(path) = PathText::from_bytes(b"/proc/self/fd")
        && let Ok(directory) = file::open_at(AT_FDCWD, &path, O_DIRECTORY | O_CLOEXEC, 0)
    {
        scan_directory(directory, each);
        file::close(directory);
    }
}

fn scan_directory(directory: i32, mut each: impl FnMut(i32)) {
    const NAME_AT: usize = 19;
    let mut buffer = [0_u64; 128];
    loop {
        let bytes = size_of_val(&buffer);
        // SAFETY: the buffer has that length and outlives the call.
        let raw = unsafe {
            syscall3(number::GETDENTS64, directory as usize, buffer.as_mut_ptr() as usize, bytes)
        };
        let Ok(count) = usize::try_from(raw) else { return };
        if count == 0 {
            return;
        }
        // SAFETY: the kernel wrote `count` bytes into the buffer.
        let mut rest = unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), count) };
        while let Some([low, high]) = rest.get(16..18) {
            let (entry, after) =
                rest.split_at(usize::from(u16::from_ne_bytes([*low, *high])).clamp(1, rest.len()));
            let name = entry.get(NAME_AT..).and_then(|name| name.split(|byte| *byte == 0).next());
            if let Some(number) = name.and_then(parse_decimal)
                && let Ok(descriptor) = i32::try_from(number)
                && descriptor != directory
            {
                each(descriptor);
            }
            rest = after;
        }
    }
}

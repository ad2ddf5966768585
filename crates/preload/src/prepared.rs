//! What libraries are patched with, once this copy serves the process.

/// Longest path of the image cache, bytes.
pub(crate) const IMAGES_PATH_BYTES_MAX: usize = 900;

/// The pointers that every area's data page holds.
#[derive(Clone, Copy)]
pub(crate) struct Pointers {
    /// The class table, one byte for each call number.
    pub(crate) classes: *const u8,
    /// The descriptor table.
    pub(crate) descriptors: *const u32,
    /// The word for the watched classes.
    pub(crate) watched: *const u32,
}

/// What patching needs: the directory of the images, and what the areas point to.
#[derive(Clone, Copy)]
pub(crate) struct Prepared {
    pub(crate) images: &'static [u8],
    pub(crate) pointers: Pointers,
}

static mut PREPARED: Option<Prepared> = None;

/// Keeps it for libraries that come later.
///
/// # Safety
/// The process has one thread, and no code is replaced yet.
pub(crate) unsafe fn keep(prepared: Prepared) {
    // SAFETY: the caller's promise.
    unsafe { PREPARED = Some(prepared) };
}

/// What libraries are patched with; `None` unless this copy serves the process.
pub(crate) fn prepared() -> Option<Prepared> {
    // SAFETY: written once, before there is another thread or a hook.
    unsafe { PREPARED }
}

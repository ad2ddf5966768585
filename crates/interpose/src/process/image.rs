//! Libraries without a prepared image.
//!
//! `preload` maps images over the code of the C library and the loader, and knows nothing of the
//! instance; this asks for an image that is missing, through the instance's socket. It happens
//! before `main`, with one thread, and at most once for each library. A supervisor that does not
//! answer in time is not asked again by this process.

use core::sync::atomic::{AtomicBool, Ordering};

use mayfly_sys::{
    Errno,
    file::{self, O_CLOEXEC, O_RDWR},
    text::PathText,
};
use mayfly_transport_shm::image::{ImageRequest, KEY_BYTES_MAX, request_image};

use super::{run_directory, settings};
use crate::report;

static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// A library of the host whose code is to be replaced.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Its file name, for people.
    pub name: &'a [u8],
    /// Where its code is.
    pub address: usize,
    /// Address of its code in its own numbering.
    pub text_vaddr: usize,
    /// Bytes of code, whole pages.
    pub text_bytes: usize,
    /// What its image is found by.
    pub key: &'a [u8],
}

/// Has an image made, if the cache has none; a descriptor of it, which is closed by exec. The cache
/// may be where this process does not see it.
///
/// # Errors
/// ENOEXEC when there can be none, ETIMEDOUT, or why the supervisor cannot be asked.
pub fn have_image_made(wanted: &Wanted<'_>) -> Result<i32, Errno> {
    if GIVEN_UP.load(Ordering::Relaxed) {
        return Err(Errno::ETIMEDOUT);
    }
    let mut key = [0; KEY_BYTES_MAX];
    let room = key.get_mut(..wanted.key.len()).ok_or(Errno::ENOEXEC)?;
    room.copy_from_slice(wanted.key);
    let mut socket = PathText::from_bytes(settings::require()?.run.as_bytes())?;
    socket.push(b"/sock")?;
    let made = request_image(
        socket.as_bytes(),
        &ImageRequest {
            address: wanted.address as u64,
            text_vaddr: wanted.text_vaddr as u64,
            text_bytes: wanted.text_bytes as u64,
            key_bytes: wanted.key.len() as u32,
            key,
        },
    );
    if made == Err(Errno::ETIMEDOUT) {
        GIVEN_UP.store(true, Ordering::Relaxed);
    }
    made
}

/// Opens the node's table of code without system calls (`mayfly_image::plain`).
///
/// # Errors
/// The kernel's.
pub fn open_plain(name: &[u8]) -> Result<i32, Errno> {
    let (directory, path) = run_directory::entry(name)?;
    file::open_at(directory, &path, O_RDWR | O_CLOEXEC, 0)
}

/// Counts a library that keeps its code, and why; a report says it at once, because a process
/// whose C library it is is not heard of at its end.
pub fn note_unserved(name: &[u8], why: Errno) {
    report::note_unserved(name, why);
}

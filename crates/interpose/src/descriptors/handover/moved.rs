//! Descriptions that have become the kernel's, and how this process follows them.
//!
//! This is below whatever uses a descriptor, which may have moved by then, so it needs nothing but
//! the session and the numbers.

use mayfly_client::OpenFile;
use mayfly_sys::{
    Errno,
    file::{self, O_CLOEXEC},
};
use mayfly_transport_shm::keeper;
use mayfly_types::OpenRef;

use crate::{
    Outcome,
    descriptors::{identity, listing, table},
    process::{flight, run_directory, session::attach},
};

/// Connects to who keeps the files of such descriptions.
///
/// # Errors
/// Why that cannot be.
pub(super) fn connect() -> Result<i32, Errno> {
    run_directory::connected(keeper::SOCKET_NAME.as_bytes(), keeper::connect)
}

/// Is the instance mounted, as far as one look tells?
pub(crate) fn is_possible() -> bool {
    run_directory::entry(keeper::SOCKET_NAME.as_bytes())
        .is_ok_and(|(directory, path)| file::check_access(directory, &path, 0).is_ok())
}

/// Has the description become the kernel's?
pub(crate) fn has_moved(reference: OpenRef) -> bool {
    attach::get().is_ok_and(|session| session.has_moved(reference))
}

/// Puts the kernel's file in place of the descriptors of a description that has moved.
///
/// # Errors
/// EIO when the file is not to be had: the mount has ended.
pub(crate) fn follow(open: OpenFile) -> Result<(), Errno> {
    let kept = connect().and_then(|connection| keeper::take(connection, open.reference));
    let descriptor = kept.map_err(|_| Errno::EIO)?;
    replace(open, descriptor);
    file::close(descriptor);
    Ok(())
}

/// What becomes of a call on a descriptor whose description has moved.
pub(crate) fn pass_on(reference: OpenRef) -> Outcome {
    let open = attach::get().and_then(|session| session.open_file(reference));
    match open.and_then(follow) {
        Ok(()) => Outcome::Pass,
        Err(errno) => Outcome::Done(errno.as_result()),
    }
}

/// Puts `descriptor` over every placeholder that this process has of `open`.
///
/// A placeholder that could not be replaced stays one, and is tried again at its next use.
pub(super) fn replace(open: OpenFile, descriptor: i32) {
    if flight::child().is_some() {
        // The child's numbers are the kernel's alone.
        listing::each_in_kernel(|number| {
            if identity::slot_of(number) == Some(open.reference.index) {
                let _ = put_over(descriptor, number);
            }
        });
        return;
    }
    let _held = identity::hold_numbers();
    for (number, reference) in table::each_open() {
        if reference == open.reference && put_over(descriptor, number).is_ok() {
            table::release(number);
        }
    }
}

fn put_over(descriptor: i32, placeholder: i32) -> Result<i32, Errno> {
    let flags = file::control(placeholder, file::F_GETFD, 0)?;
    let cloexec = if flags & file::FD_CLOEXEC == 0 { 0 } else { O_CLOEXEC };
    file::duplicate_onto(descriptor, placeholder, cloexec)
}

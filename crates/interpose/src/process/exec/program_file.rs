//! The program's file: its object, or a copy in memory where there is none to run.

use mayfly_client::OpenFile;
use mayfly_sys::{
    Errno,
    file::{self, IoVec},
    scratch::Scratch,
    text::PathText,
};

use crate::process::{program, session::Session, settings};

/// The path of an object.
pub(super) fn object_path(name: &[u8]) -> Result<PathText, Errno> {
    let mut path = PathText::from_bytes(settings::require()?.objects.as_bytes())?;
    path.push_component(name)?;
    Ok(path)
}

/// Bytes read of a file of the instance.
pub(super) fn read_ours(session: &Session, open: OpenFile, offset: u64, to: &mut [u8]) -> usize {
    let room = [IoVec { base: to.as_mut_ptr(), bytes: to.len() }];
    // SAFETY: the buffer is the caller's to write.
    unsafe { session.read_at(open, offset as i64, &room) }.unwrap_or(0)
}

/// A copy in memory that cannot be changed.
pub(super) fn sealed_copy(session: &Session, open: OpenFile, bytes: u64) -> Result<i32, Errno> {
    const F_ADD_SEALS: usize = 1033;
    const ALL_SEALS: usize = 15;
    let copy = file::memory_file(&PathText::from_bytes(program::COPY_NAME)?)?;
    match copy_to(session, open, bytes, copy) {
        Ok(()) => {
            // Without seals the copy would still run; nobody else has a descriptor of it.
            let _ = file::control(copy, F_ADD_SEALS, ALL_SEALS);
            Ok(copy)
        }
        Err(errno) => {
            file::close(copy);
            Err(errno)
        }
    }
}

fn copy_to(session: &Session, open: OpenFile, bytes: u64, to: i32) -> Result<(), Errno> {
    let mut scratch = Scratch::take(1)?;
    let buffer = scratch.as_mut_slice();
    let mut done = 0;
    while done < bytes {
        let room = [IoVec { base: buffer.as_mut_ptr(), bytes: buffer.len() }];
        // SAFETY: the buffer is ours.
        let count = unsafe { session.read_at(open, done as i64, &room) }?;
        if count == 0 {
            break;
        }
        // SAFETY: as above.
        let written = unsafe { file::write_at(to, buffer.as_ptr(), count, done) }?;
        done += written as u64;
    }
    Ok(())
}

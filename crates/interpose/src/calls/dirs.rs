//! Directories: getdents64, which lists one in the kernel's form, and chdir, fchdir, getcwd.
//!
//! The daemon's cookie of the next entry is both `d_off` and the description's offset, so lseek to
//! a `d_off`, rewinddir and telldir work, and processes that share the description share the
//! position.

use mayfly_client::Stop;
use mayfly_sys::{Errno, text::PathText, user};
use mayfly_types::FileKind;
use mayfly_wire::listing::{Entry, entries};

use super::serve::{PLAIN, argument, done, issue, with_path};
use crate::{Call, Outcome, descriptors::leased, paths::cwd, process::session};

/// Bytes before the name: inode, offset, record length, type.
const HEAD_BYTES: usize = 19;
const NAME_BYTES_MAX: usize = 255;
const RECORD_BYTES_MAX: usize = (HEAD_BYTES + NAME_BYTES_MAX + 1).next_multiple_of(8);

/// Length of the record for an entry.
fn record_bytes(entry: &Entry<'_>) -> usize {
    (HEAD_BYTES + entry.name.len() + 1).next_multiple_of(8)
}

/// `struct linux_dirent64` of an entry; `None` for a name that cannot be one.
fn pack<'b>(entry: &Entry<'_>, record: &'b mut [u8; RECORD_BYTES_MAX]) -> Option<&'b [u8]> {
    let bytes = record_bytes(entry);
    let record = record.get_mut(..bytes)?;
    record.fill(0);
    record.get_mut(0..8)?.copy_from_slice(&entry.id.0.to_ne_bytes());
    record.get_mut(8..16)?.copy_from_slice(&entry.next_cookie.to_ne_bytes());
    record.get_mut(16..18)?.copy_from_slice(&u16::try_from(bytes).ok()?.to_ne_bytes());
    *record.get_mut(18)? = entry.kind.dirent_type();
    record.get_mut(HEAD_BYTES..HEAD_BYTES + entry.name.len())?.copy_from_slice(entry.name);
    Some(record)
}

/// Writes as many entries as fit; how many bytes, and where the next listing starts.
///
/// # Safety
/// The host wants up to `room` bytes written at `to`.
unsafe fn pack_all(
    packed: &[u8],
    to: *mut u8,
    room: usize,
    cookie: u64,
) -> Result<(usize, u64), Errno> {
    let mut used = 0;
    let mut next = cookie;
    let mut record = [0; RECORD_BYTES_MAX];
    for entry in entries(packed) {
        let entry = entry.map_err(|_| Errno::EIO)?;
        if record_bytes(&entry) > room - used {
            return if used == 0 { Err(Errno::EINVAL) } else { Ok((used, next)) };
        }
        let bytes = pack(&entry, &mut record).ok_or(Errno::EIO)?;
        // SAFETY: the record fits what is left of the host's buffer.
        unsafe { user::copy_out(bytes, to.wrapping_add(used)) }?;
        used += bytes.len();
        next = entry.next_cookie;
    }
    Ok((used, next))
}

/// getdents64.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn list(call: &Call) -> Outcome {
    let to = argument(call, 1) as *mut u8;
    let room = (argument(call, 2) as u32 as usize).min(i32::MAX as usize);
    let leased = leased::listed(argument(call, 0)).map(Ok);
    let open = leased.unwrap_or_else(|| session::require_open(argument(call, 0) as i32));
    done(open.and_then(|(session, open)| {
        if !open.readable() {
            return Err(Errno::EBADF);
        }
        if open.kind() != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        session.with_position(open, |cookie| {
            session.list(open, cookie, room.max(RECORD_BYTES_MAX), |packed| {
                // SAFETY: passed on to the caller.
                let (used, next) = unsafe { pack_all(packed, to, room, cookie) }?;
                Ok((used as isize, next))
            })
        })
    }))
}

/// chdir.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn chdir(call: &Call) -> Outcome {
    let mut entered = false;
    // SAFETY: passed on to the caller.
    let outcome = unsafe {
        with_path(call, PLAIN, &mut |place, escape| {
            let attr = session::get()?.stat(place.target(true)?, escape)?;
            if attr.kind != FileKind::Directory {
                return Err(Stop::Failed(Errno::ENOTDIR));
            }
            entered = true;
            Ok(cwd::enter(attr.id)?)
        })
    };
    match outcome {
        Outcome::Done(raw) if !entered => cwd::left(raw),
        other => other,
    }
}

/// fchdir to a descriptor of ours.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn fchdir(call: &Call) -> Outcome {
    if let Some(directory) = session::leased_directory(argument(call, 0) as i32) {
        return done(cwd::enter(directory));
    }
    match session::open_file(argument(call, 0) as i32) {
        Ok(None) => {
            // SAFETY: passed on to the caller.
            cwd::left(unsafe { issue(call) })
        }
        Ok(Some(open)) if open.kind() != FileKind::Directory => {
            Outcome::Done(Errno::ENOTDIR.as_result())
        }
        Ok(Some(open)) => done(cwd::enter(open.id())),
        Err(errno) => Outcome::Done(errno.as_result()),
    }
}

/// getcwd.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn getcwd(call: &Call) -> Outcome {
    let Some(directory) = cwd::directory() else { return Outcome::Pass };
    let mut path = PathText::new();
    if let Err(errno) = cwd::absolute(directory, &mut path) {
        return Outcome::Done(errno.as_result());
    }
    let bytes = path.as_bytes().len() + 1;
    if argument(call, 1) < bytes {
        return Outcome::Done(Errno::ERANGE.as_result());
    }
    // SAFETY: the text is followed by its terminating zero inside the buffer.
    let text = unsafe { core::slice::from_raw_parts(path.as_ptr(), bytes) };
    // SAFETY: the host wants that many bytes written there.
    done(unsafe { user::copy_out(text, argument(call, 0) as *mut u8) }.map(|()| bytes as isize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_types::FileId;
    use mayfly_wire::{Wire, Writer};
    use std::vec;

    fn packed(names: &[&str]) -> vec::Vec<u8> {
        let mut bytes = vec![0; 4096];
        let mut to = Writer::new(&mut bytes);
        for (number, name) in names.iter().enumerate() {
            let entry = Entry {
                id: FileId(100 + number as u64),
                kind: FileKind::Regular,
                next_cookie: 1 + number as u64,
                name: name.as_bytes(),
            };
            entry.encode(&mut to).expect("room");
        }
        let used = to.used();
        bytes.truncate(used);
        bytes
    }

    #[test]
    fn a_buffer_takes_whole_records_and_remembers_where_it_stopped() {
        let packed = packed(&["a", "bcdef", "g"]);
        let mut buffer = [0_u8; 60];
        // SAFETY: the buffer has that length.
        let result = unsafe { pack_all(&packed, buffer.as_mut_ptr(), buffer.len(), 0) };
        assert_eq!(result, Ok((24 + 32, 2)));
        assert_eq!(&buffer[24 + 19..24 + 25], b"bcdef\0");
        assert_eq!(buffer[24 + 16], 32);
        assert_eq!(buffer[18], 8);
    }

    #[test]
    fn a_buffer_too_small_for_one_entry_is_invalid() {
        let packed = packed(&["a-name-of-some-length"]);
        let mut buffer = [0_u8; 24];
        // SAFETY: the buffer has that length.
        let result = unsafe { pack_all(&packed, buffer.as_mut_ptr(), buffer.len(), 0) };
        assert_eq!(result, Err(Errno::EINVAL));
    }
}

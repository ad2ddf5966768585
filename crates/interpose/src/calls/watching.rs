//! inotify_add_watch on what is in the instance: the kernel watches what stands for it
//! ([`mayfly_client::Client::watch_file`]), so the descriptor, its queue and its numbers are the
//! kernel's, for files of ours and of others.

use mayfly_client::Stop;
use mayfly_sys::{
    Errno,
    arch::syscall3,
    file::{self, AT_FDCWD},
    number,
    text::PathText,
};

use super::serve::{PathArguments, argument, with_path};
use crate::{Call, Outcome, process::session};

const IN_DONT_FOLLOW: usize = 0x0200_0000;
/// So often a watch is tried whose file went before it was watched.
const TRIES: usize = 3;

/// inotify_add_watch.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn add(call: &Call) -> Outcome {
    let (queue, mask) = (argument(call, 0), argument(call, 2));
    let follow = mask & IN_DONT_FOLLOW == 0;
    let at = PathArguments::plain(1).taking_links(follow);
    // SAFETY: passed on to the caller.
    unsafe {
        with_path(call, at, &mut |place, escape| {
            let session = session::get()?;
            let attr = session.stat(place.target(follow)?, escape)?;
            let mut added = Err(Errno::ENOENT);
            for _ in 0..TRIES {
                added = session.watch_file(&attr, |start, path| watch(queue, start, path, mask));
                if added != Err(Errno::ENOENT) {
                    break;
                }
            }
            added.map_err(Stop::Failed)
        })
    }
}

fn watch(queue: usize, start: i32, path: &PathText, mask: usize) -> Result<isize, Errno> {
    let mut absolute = PathText::new();
    if start != AT_FDCWD {
        absolute = file::descriptor_path(start)?;
    }
    absolute.push_component(path.as_bytes())?;
    // SAFETY: the path is a terminated string that outlives the call.
    let raw =
        unsafe { syscall3(number::INOTIFY_ADD_WATCH, queue, absolute.as_ptr() as usize, mask) };
    mayfly_sys::result(raw).map(|number| number as isize)
}

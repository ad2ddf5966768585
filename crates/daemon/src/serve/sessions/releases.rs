//! When shared open file descriptions end.
//!
//! Processes that share an open file description hold the same kernel file description of a slot
//! file, `ofd/<index>`. Its last close, by whatever way (close, exec, exit, kill), raises
//! `IN_CLOSE` on the directory. The supervisor owns the inotify queue, so nothing is lost while the
//! daemon restarts; what a dying daemon had read but not acted on, and what an overflow swallowed,
//! is found by looking through `/proc` ([`holders`]). A descriptor that travels in a socket message
//! at that moment is not seen there.
//!
//! A user has so many inotify instances on a machine, 128 if nobody has raised the number. A node
//! that gets none has a timer instead, and looks through `/proc` whenever it would read the queue.

use std::{
    collections::HashSet,
    ffi::OsStr,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::inotify::{self, ReadFlags},
    io::Errno,
    time::timerfd_gettime,
};

/// What the queue said.
#[derive(Debug, Default)]
pub struct Released {
    /// Indexes whose slot file was closed.
    pub indexes: Vec<u32>,
    /// Events were lost: ask [`holders`].
    pub overflow: bool,
}

/// What tells of closes.
#[derive(Debug)]
pub enum Queue {
    /// Of inotify.
    Watch(OwnedFd),
    /// Nothing does: a timer says when to look.
    Timer(OwnedFd),
}

impl Queue {
    /// What the supervisor has handed over; the descriptor is non-blocking.
    #[must_use]
    pub fn of(descriptor: OwnedFd) -> Queue {
        match timerfd_gettime(&descriptor) {
            Ok(_) => Queue::Timer(descriptor),
            Err(_) => Queue::Watch(descriptor),
        }
    }

    /// All that it holds.
    #[must_use]
    pub fn drain(&self) -> Released {
        match self {
            Queue::Watch(queue) => drain(queue),
            Queue::Timer(timer) => {
                // How often it has run out does not matter.
                let _ = rustix::io::read(timer, &mut [0; 8]);
                Released { indexes: Vec::new(), overflow: true }
            }
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Queue::Watch(descriptor) | Queue::Timer(descriptor) => descriptor.as_fd(),
        }
    }
}

/// Reads all that a queue of inotify holds; the descriptor is non-blocking.
#[must_use]
pub fn drain(queue: &OwnedFd) -> Released {
    let mut released = Released::default();
    let mut space = [MaybeUninit::uninit(); 8192];
    let mut reader = inotify::Reader::new(queue, &mut space);
    loop {
        match reader.next() {
            Ok(event) => {
                released.overflow |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                let index = event.file_name().and_then(|name| index_of(name.to_bytes()));
                released.indexes.extend(index);
            }
            Err(Errno::INTR) => {}
            Err(_) => return released,
        }
    }
}

fn index_of(name: &[u8]) -> Option<u32> {
    std::str::from_utf8(name).ok()?.parse().ok()
}

/// Indexes of the slot files in `directory` that some process of ours holds open.
#[must_use]
pub fn holders(directory: &Path) -> HashSet<u32> {
    processes().flat_map(|process| held_by(&process, directory)).collect()
}

/// The directories of all processes in procfs.
pub fn processes() -> impl Iterator<Item = PathBuf> {
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_one = |name: &OsStr| name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit);
    listed.filter(move |entry| is_one(&entry.file_name())).map(|entry| entry.path())
}

/// A process of another user cannot be looked into, and cannot hold a file of a 0700 directory
/// either.
fn held_by(process: &Path, directory: &Path) -> Vec<u32> {
    let Ok(descriptors) = std::fs::read_dir(process.join("fd")) else { return Vec::new() };
    descriptors
        .flatten()
        .filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok())
        .filter_map(|target: PathBuf| {
            let inside = target.strip_prefix(directory).ok()?;
            index_of(inside.as_os_str().as_encoded_bytes())
        })
        .collect()
}

//! The connection to the kernel: `/dev/fuse`.

use std::{io::IoSlice, os::fd::OwnedFd};

use mayfly_types::Errno;
use rustix::{
    io,
    pipe::{SpliceFlags, splice},
};

use super::abi::{
    EXPIRE_ONLY, NOTIFY_INVALID_ENTRY, NOTIFY_INVALID_NODE, NOTIFY_STORE, OUT_HEADER_BYTES,
};

/// An open `/dev/fuse` that belongs to a mount.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

/// The result of a wait for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// The file system is not mounted any more.
    Unmounted,
}

impl Device {
    pub(crate) fn new(descriptor: OwnedFd) -> Device {
        Device(descriptor)
    }

    /// Waits for a request.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            match io::read(&self.0, &mut *buffer) {
                Ok(count) => return Ok(Received::Request(count)),
                Err(io::Errno::NODEV) => return Ok(Received::Unmounted),
                // A request that was taken back while it was handed over, or a signal.
                Err(io::Errno::NOENT | io::Errno::INTR | io::Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Answers request `unique`.
    pub(crate) fn answer(&self, unique: u64, body: &[u8]) {
        self.send(unique, 0, body);
    }

    /// Answers request `unique` with what is in a pipe: a header and data, `bytes` together.
    ///
    /// # Errors
    /// Part of it may be left in the pipe.
    pub(crate) fn answer_from(&self, pipe: &OwnedFd, unique: u64, bytes: usize) -> io::Result<()> {
        match splice(pipe, None, &self.0, None, bytes, SpliceFlags::empty()) {
            Ok(sent) if sent == bytes => return Ok(()),
            // As with `send`: nobody waits any more, or somebody must not be left waiting.
            Err(io::Errno::NOENT | io::Errno::NODEV) => {}
            Ok(_) | Err(_) => self.refuse(unique, Errno::EIO),
        }
        Err(io::Errno::PIPE)
    }

    /// Has the kernel forget the attributes of a node, if it knows any. This waits for nobody.
    pub(crate) fn forget_attributes(&self, node: u64) {
        // The place is negative: no page is given up.
        self.invalidate(node, -1, 0);
    }

    /// Has the kernel give up the pages of a node from `start` up to `end`, and its attributes. It
    /// writes back first what was changed in them, and waits for pages that are being read: whoever
    /// serves these must not call this.
    pub(crate) fn give_up_pages(&self, node: u64, start: u64, end: u64) {
        let longest = i64::MAX as u64;
        let start = start.min(longest);
        // A length of zero, or one that the kernel cannot add up, is "to the end".
        let bytes = if end > longest { 0 } else { end.saturating_sub(start) };
        self.invalidate(node, start as i64, bytes as i64);
    }

    fn invalidate(&self, node: u64, start: i64, bytes: i64) {
        let mut notice = [0; 24];
        notice[0..8].copy_from_slice(&node.to_ne_bytes());
        notice[8..16].copy_from_slice(&start.to_ne_bytes());
        notice[16..24].copy_from_slice(&bytes.to_ne_bytes());
        // The code of a notice stands where an answer has its error, and no request has this
        // number.
        self.send(0, NOTIFY_INVALID_NODE, &notice);
    }

    /// Has the kernel ask again before it believes a name of a directory. It waits for the lock of
    /// the directory, which programs hold during requests: whoever serves these must not call this.
    pub(crate) fn expire(&self, directory: u64, name: &[u8]) {
        let mut notice = Vec::with_capacity(17 + name.len());
        notice.extend_from_slice(&directory.to_ne_bytes());
        notice.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        notice.extend_from_slice(&EXPIRE_ONLY.to_ne_bytes());
        notice.extend_from_slice(name);
        notice.push(0);
        self.send(0, NOTIFY_INVALID_ENTRY, &notice);
    }

    /// Tells the kernel that a node is at least `size` bytes long, of which `last` is the last one.
    /// No other notice says how long a file is.
    pub(crate) fn lengthen(&self, node: u64, size: u64, last: u8) {
        let mut notice = [0; 25];
        notice[0..8].copy_from_slice(&node.to_ne_bytes());
        notice[8..16].copy_from_slice(&size.saturating_sub(1).to_ne_bytes());
        notice[16..20].copy_from_slice(&1_u32.to_ne_bytes());
        notice[24] = last;
        self.send(0, NOTIFY_STORE, &notice);
    }

    /// Answers request `unique` with an error.
    pub(crate) fn refuse(&self, unique: u64, errno: Errno) {
        self.send(unique, -errno.raw(), &[]);
    }

    fn send(&self, unique: u64, error: i32, body: &[u8]) {
        let header = header(unique, error, body.len());
        // It fails when nobody waits any more: the request was aborted, or the mount is gone. An
        // answer that the kernel cannot make sense of must not leave its caller waiting.
        let sent = io::writev(&self.0, &[IoSlice::new(&header), IoSlice::new(body)]);
        if sent == Err(io::Errno::INVAL) && error == 0 {
            self.send(unique, -Errno::EIO.raw(), &[]);
        }
    }
}

/// The header of an answer with `bytes` bytes of data.
pub(super) fn header(unique: u64, error: i32, bytes: usize) -> [u8; OUT_HEADER_BYTES] {
    let mut header = [0; OUT_HEADER_BYTES];
    header[0..4].copy_from_slice(&((OUT_HEADER_BYTES + bytes) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..16].copy_from_slice(&unique.to_ne_bytes());
    header
}

//! Bytes of a file that come in.

use std::{
    fs::File,
    io::{Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use mayfly_types::{Attr, Errno, FileKind, Timestamp, limits::INLINE_BYTES_MAX};
use mayfly_wire::TierItem;
use rustix::fs::{Timespec, Timestamps, futimens};

use crate::{
    outcome::Outcome,
    place::{Place, attr_at_rest, attr_of_open, errno, io_errno, is_same},
};

/// So many bytes are copied at a time.
pub(crate) const COPY_BYTES: usize = 1 << 20;
/// How often a file that is being changed is read again.
const TRIES: u32 = 3;

/// Fetches a file: a small one into the answer, another one into the object.
pub(crate) fn fetch(place: &Place, object: &Path) -> Result<Outcome, Errno> {
    let mut file = place.open()?;
    for _ in 0..TRIES {
        let attr = attr_at_rest(&file)?;
        if attr.kind != FileKind::Regular {
            return Err(Errno::ESTALE);
        }
        let read = match attr.size_bytes <= INLINE_BYTES_MAX as u64 {
            true => small(&mut file, attr)?,
            false => large(&mut file, object, attr)?,
        };
        let after = attr_of_open(&file)?;
        if let Some(outcome) = read.filter(|_| is_same(&attr, &after)) {
            return Ok(outcome);
        }
        std::io::Seek::rewind(&mut file).map_err(|error| io_errno(&error))?;
    }
    // Somebody writes it all the time.
    let _ = std::fs::remove_file(object);
    Err(Errno::EAGAIN)
}

/// The bytes, if there are as many as there should be.
fn small(file: &mut File, attr: Attr) -> Result<Option<Outcome>, Errno> {
    let mut bytes = Vec::new();
    let limited = Read::by_ref(file).take(INLINE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    limited.map_err(|error| io_errno(&error))?;
    let whole = bytes.len() as u64 == attr.size_bytes;
    Ok(whole.then(|| Outcome { bytes, ..Outcome::of(attr) }))
}

fn large(file: &mut File, object: &Path, attr: Attr) -> Result<Option<Outcome>, Errno> {
    let mut to = create_object(object).map_err(|error| io_errno(&error))?;
    let count = copy(file, &mut to).map_err(|error| {
        let _ = std::fs::remove_file(object);
        io_errno(&error)
    })?;
    // The object tells of the time while somebody may write it.
    set_times(&to, attr.atime, attr.mtime)?;
    let blocks = to.metadata().map_err(|error| io_errno(&error))?.blocks();
    Ok((count == attr.size_bytes).then(|| Outcome::of(Attr { blocks, ..attr })))
}

/// Copies what is left of a file; how many bytes. What the standard library does may go through a
/// pipe, in pieces that cost an origin more than the bytes do.
pub(crate) fn copy(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<u64> {
    let (mut buffer, mut copied) = (vec![0; COPY_BYTES], 0);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(count) => {
                to.write_all(&buffer[..count])?;
                copied += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The object that a part of a file goes to, which is made when the item says so.
pub(crate) fn object_of_chunks(item: &TierItem<'_>, object: &Path) -> Result<File, Errno> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).mode(0o700);
    let opened = match item.which {
        0 => options.open(object),
        _ => create_in(options.create(true), object),
    };
    opened.map_err(|error| io_errno(&error))
}

/// As the daemon makes one.
pub(crate) fn create_object(object: &Path) -> std::io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    create_in(options.write(true).create(true).truncate(true).mode(0o700), object)
}

/// Opens an object with these options, and makes the directory for it if there is none.
fn create_in(options: &mut std::fs::OpenOptions, object: &Path) -> std::io::Result<File> {
    match options.open(object) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = object.parent().ok_or(error)?;
            // Another thread may be making it.
            let _ = std::fs::DirBuilder::new().mode(0o700).create(parent);
            options.open(object)
        }
        opened => opened,
    }
}

pub(crate) fn set_times(file: &File, atime: Timestamp, mtime: Timestamp) -> Result<(), Errno> {
    let time =
        |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    futimens(file, &times).map_err(errno)
}

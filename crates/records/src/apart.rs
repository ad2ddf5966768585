//! What is above a file: where somebody else may be changing something.
//!
//! Changes may wait that the records do not have yet, each in a directory that its process has been
//! given, or below it. The records are right all the same about a name if none of those directories
//! is above it, or if in none of them something waits about that name. So the directories above a
//! name are looked at one after the other, each with the path from there.

use mayfly_types::{FileId, limits::NAME_BYTES_MAX};

use crate::{
    Question, Unsure,
    attributes::of_directory_with_name,
    key,
    search::{Source, get},
    walk::{Last, is_there, settled, to_last},
};

/// So many directories above a name are looked at.
const DEPTH_MAX: usize = 64;
/// More than the record of a directory takes up to the end of its name, in eights.
const DIRECTORY_CHUNKS: usize = 48;

/// What may be changed.
#[derive(Debug, Clone, Copy)]
pub enum Changed<'a> {
    /// Something in this directory, or below it.
    Directory(FileId),
    /// What a path names.
    Name(Question<'a>),
}

/// A path, written from its end.
struct Path {
    room: [u8; NAME_BYTES_MAX],
    start: usize,
    fits: bool,
}

impl Path {
    fn prepend(&mut self, name: &[u8]) {
        let end = self.start;
        let slash = usize::from(end < NAME_BYTES_MAX);
        match end.checked_sub(name.len() + slash) {
            Some(start) => {
                if let Some(room) = self.room.get_mut(start..end) {
                    let (to, behind) = room.split_at_mut(name.len());
                    to.copy_from_slice(name);
                    behind.fill(b'/');
                }
                self.start = start;
            }
            None => self.fits = false,
        }
    }

    fn get(&self) -> &[u8] {
        self.room.get(self.start..).unwrap_or_default()
    }
}

/// The path of a directory that is there, from the root on and with a slash in front: written to
/// the end of `to`, which begins with so many other bytes. One that is longer than a name can be is
/// not told.
///
/// # Errors
/// [`Unsure`].
pub fn path_of<S: Source>(
    source: &S,
    directory: FileId,
    to: &mut [u8; NAME_BYTES_MAX],
) -> Result<usize, Unsure> {
    settled(source, |_| {
        if !is_there(source, directory)? {
            return Err(Unsure);
        }
        let mut path = Path { room: [0; NAME_BYTES_MAX], start: NAME_BYTES_MAX, fits: true };
        let mut at = directory;
        for _ in 0..DEPTH_MAX {
            if at == FileId::ROOT {
                path.prepend(b"");
                *to = path.room;
                return if path.fits { Ok(path.start) } else { Err(Unsure) };
            }
            at = above(source, at, &mut path)?;
        }
        Err(Unsure)
    })
}

/// The directory above one, whose name is put before a path.
fn above<S: Source>(source: &S, at: FileId, path: &mut Path) -> Result<FileId, Unsure> {
    let mut record = [[0; 8]; DIRECTORY_CHUNKS];
    let bytes = get(source, &key::numbered(key::INODE, at), &mut record)?.ok_or(Unsure)?;
    let record = record.as_flattened();
    let (parent, name) = of_directory_with_name(record.get(..bytes).unwrap_or(record))?;
    path.prepend(name);
    Ok(parent)
}

/// Asks `waits` about each directory above a name, with the path from there; or without one, where
/// anything in the directory counts, or below it. Nobody submits about names whose path is longer
/// than a name can be. It is true of the moment at which the records have this version.
///
/// # Errors
/// [`Unsure`]: something may wait, or the records do not tell.
pub fn apart<S: Source>(
    source: &S,
    (subject, version): (Changed<'_>, u64),
    waits: &mut dyn FnMut(FileId, Option<&[u8]>) -> bool,
) -> Result<(), Unsure> {
    let mut path = Path { room: [0; NAME_BYTES_MAX], start: NAME_BYTES_MAX, fits: true };
    let (mut at, has_name) = match subject {
        Changed::Directory(directory) => (directory, false),
        Changed::Name(question) => match to_last(source, version, question.start, question.path)? {
            Last::Name { directory, name, .. } => {
                path.prepend(name);
                (directory, true)
            }
            Last::Nothing | Last::Directory(_) => return Err(Unsure),
        },
    };
    for _ in 0..DEPTH_MAX {
        let waits_here = match (has_name, path.fits) {
            (false, _) => waits(at, None),
            (true, true) => waits(at, Some(path.get())),
            (true, false) => false,
        };
        if waits_here {
            return Err(Unsure);
        }
        if at == FileId::ROOT {
            return Ok(());
        }
        at = above(source, at, &mut path)?;
    }
    Err(Unsure)
}

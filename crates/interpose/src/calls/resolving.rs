//! The walks of openat2 that the daemon does not make: without symbolic links
//! (RESOLVE_NO_SYMLINKS), beneath a directory (RESOLVE_BENEATH), and with a directory as root
//! (RESOLVE_IN_ROOT).
//!
//! One name after the other is looked up, by the identity of the directory that it is in, and `..`
//! goes back to the identity from which the walk came: whatever others rename meanwhile, no step
//! leads above where it began. Sandboxes and capability libraries rest on that.

use mayfly_client::Stop;
use mayfly_sys::{Errno, scratch::Scratch, text::PathText};
use mayfly_types::{FileId, FileKind, limits::SYMLINK_FOLLOWS_MAX};
use mayfly_wire::{Target, Walk};

use crate::process::session::{self, Session};

/// No component may be a symbolic link.
pub(super) const NO_SYMLINKS: u64 = 4;
/// The walk stays below its beginning.
pub(super) const BENEATH: u64 = 8;
/// Its beginning is the root, to absolute paths and links too.
pub(super) const IN_ROOT: u64 = 16;

const ID_BYTES: usize = size_of::<FileId>();

/// Where a walk has come.
pub(super) struct Found {
    /// The directory.
    pub(crate) directory: FileId,
    /// A name in it, which need not exist; `.` for itself. No link of it is to be followed.
    pub(super) name: PathText,
}

/// What is asked of a walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(crate) resolve: u64,
    /// A link at the end is followed.
    pub(crate) follow: bool,
}

/// The directories that lead to where a walk is.
struct Trail {
    room: Scratch,
    depth: usize,
}

impl Trail {
    fn push(&mut self, id: FileId) -> Result<(), Errno> {
        let at = self.depth * ID_BYTES;
        let place = self.room.as_mut_slice().get_mut(at..at + ID_BYTES);
        place.ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(&id.0.to_le_bytes());
        self.depth += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<FileId> {
        self.depth = self.depth.checked_sub(1)?;
        let at = self.depth * ID_BYTES;
        let bytes = self.room.as_slice().get(at..at + ID_BYTES)?;
        Some(FileId(u64::from_le_bytes(bytes.try_into().ok()?)))
    }
}

struct Step<'w> {
    session: &'static Session,
    rules: Rules,
    base: FileId,
    at: FileId,
    trail: &'w mut Trail,
    links: u32,
}

/// Walks from the directory `base`.
///
/// # Errors
/// As openat2: ELOOP for a link that must not be, EXDEV for what leads out, ENOENT, ENOTDIR.
pub(crate) fn resolve(base: FileId, path: &[u8], rules: Rules) -> Result<Found, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let session = session::get()?;
    let trail = &mut Trail { room: Scratch::take(1)?, depth: 0 };
    let mut step = Step { session, rules, base, at: base, trail, links: 0 };
    let mut rest = PathText::from_bytes(path)?;
    step.begin(path)?;
    loop {
        let text = rest.as_bytes();
        let begin = text.iter().position(|byte| *byte != b'/').unwrap_or(text.len());
        let text = text.get(begin..).unwrap_or(&[]);
        let end = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
        let (name, tail) = text.split_at(end);
        if name.is_empty() {
            return Ok(Found { directory: step.at, name: PathText::from_bytes(b".")? });
        }
        let mut next = PathText::new();
        if step.take(name, tail, &mut next)? {
            return Ok(Found { directory: step.at, name: PathText::from_bytes(name)? });
        }
        next.push(tail)?;
        rest = next;
    }
}

impl Step<'_> {
    /// A path, or a link's text, begins.
    fn begin(&mut self, path: &[u8]) -> Result<(), Errno> {
        if !path.starts_with(b"/") || self.rules.resolve & (BENEATH | IN_ROOT) == 0 {
            return Ok(());
        }
        if self.rules.resolve & BENEATH != 0 {
            return Err(Errno::EXDEV);
        }
        (self.at, self.trail.depth) = (self.base, 0);
        Ok(())
    }

    /// Goes on by one name, or says that it is the end, whatever stands there. The text of a link
    /// is put into `next`.
    fn take(&mut self, name: &[u8], tail: &[u8], next: &mut PathText) -> Result<bool, Errno> {
        let is_confined = self.rules.resolve & (BENEATH | IN_ROOT) != 0;
        match name {
            b"." => return Ok(false),
            b".." if is_confined => {
                match self.trail.pop() {
                    Some(above) => self.at = above,
                    None if self.rules.resolve & BENEATH != 0 => return Err(Errno::EXDEV),
                    None => {}
                }
                return Ok(false);
            }
            _ => {}
        }
        let target = Target::Path(Walk { start: self.at, flags: 0, path: name });
        let is_last = tail.is_empty();
        let found = match self.session.stat(target, &mut PathText::new()) {
            Ok(attr) => attr,
            Err(Stop::Failed(Errno::ENOENT)) if is_last => return Ok(true),
            Err(stop) => return Err(failed(stop)),
        };
        match found.kind {
            FileKind::Directory => {
                self.trail.push(self.at)?;
                self.at = found.id;
                Ok(false)
            }
            FileKind::Symlink if is_last && !self.rules.follow => Ok(true),
            FileKind::Symlink => {
                self.links += 1;
                if self.rules.resolve & NO_SYMLINKS != 0 || self.links > SYMLINK_FOLLOWS_MAX {
                    return Err(Errno::ELOOP);
                }
                self.session
                    .read_link(target, &mut PathText::new(), |text| next.push(text))
                    .map_err(failed)?;
                self.begin(next.as_bytes()).map(|()| false)
            }
            _ if is_last => Ok(true),
            _ => Err(Errno::ENOTDIR),
        }
    }
}

/// The error of a step by a single name, which leads nowhere else.
pub(super) fn failed(stop: Stop) -> Errno {
    match stop {
        Stop::Failed(errno) => errno,
        Stop::Escaped => Errno::EXDEV,
    }
}

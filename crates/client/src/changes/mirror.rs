//! Real files that stand for files of the instance which somebody watches with inotify.
//!
//! The kernel's watch is on these, so its queue is the program's, for files of ours and of others.
//! A change of a file of the instance is repeated on its stand-in, in the way that raises the same
//! event and no other: mknod is IN_CREATE, a time of change that is set IN_MODIFY, a mode that is
//! set IN_ATTRIB, an open for writing and its close IN_OPEN and IN_CLOSE_WRITE. Where they lie is
//! in [`mayfly_types::mirror`]; [`crate::changes::watched`] says when.

use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_sys::{
    Errno,
    file::{self, RENAME_EXCHANGE},
    process,
    text::PathText,
};
use mayfly_types::{
    FileId, FileKind,
    mirror::{DIRECTORIES, FILES, NAMES, PASSING},
};

/// Tries to find a name that nobody else in the run directory has.
const PASSING_TRIES: u32 = 64;

static PASSED: AtomicU32 = AtomicU32::new(0);

/// The directory of all that stands for something: a path, and where that begins.
pub struct Mirror {
    /// A descriptor, or AT_FDCWD.
    pub start: i32,
    /// The path from there.
    pub path: PathText,
}

/// A name in a directory of the instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'n> {
    pub(super) directory: FileId,
    pub(super) name: &'n [u8],
}

impl Mirror {
    fn below(&self, kind: &str) -> Result<PathText, Errno> {
        let mut path = PathText::from_bytes(self.path.as_bytes())?;
        path.push_component(kind.as_bytes())?;
        Ok(path)
    }

    fn of(&self, kind: &str, file: FileId) -> Result<PathText, Errno> {
        let mut path = self.below(kind)?;
        path.push(b"/")?;
        path.push_hexadecimal(file.0)?;
        Ok(path)
    }

    /// The path of a name's stand-in.
    fn path_of_name(&self, name: Name<'_>) -> Result<PathText, Errno> {
        let mut path = self.of(DIRECTORIES, name.directory)?;
        path.push_component(name.name)?;
        Ok(path)
    }

    /// The path of the stand-in of a watched file or directory.
    pub(super) fn itself(&self, file: FileId, kind: FileKind) -> Result<PathText, Errno> {
        self.of(if kind == FileKind::Directory { DIRECTORIES } else { FILES }, file)
    }

    /// Is the directory watched?
    pub(super) fn has(&self, directory: FileId) -> bool {
        self.of(DIRECTORIES, directory)
            .is_ok_and(|path| file::check_access(self.start, &path, 0).is_ok())
    }

    /// A path among what nobody watches.
    fn passing(&self) -> Result<PathText, Errno> {
        let mut path = self.below(PASSING)?;
        path.push(b"/")?;
        path.push_decimal(u64::from(process::process_id()))?;
        path.push(b"-")?;
        path.push_decimal(u64::from(PASSED.fetch_add(1, Ordering::Relaxed)))?;
        Ok(path)
    }

    fn make(&self, path: &PathText, kind: FileKind) -> Result<(), Errno> {
        match kind {
            FileKind::Directory => file::make_directory(self.start, path, 0o700),
            _ => file::make_node(self.start, path, 0o600),
        }
    }

    fn remove(&self, path: &PathText, kind: FileKind) -> Result<(), Errno> {
        match kind {
            FileKind::Directory => file::remove_directory(self.start, path),
            _ => file::remove(self.start, path),
        }
    }

    /// Makes what holds everything else.
    pub(super) fn prepare(&self) -> Result<(), Errno> {
        let there = |made| if made == Err(Errno::EEXIST) { Ok(()) } else { made };
        there(file::make_directory(self.start, &self.path, 0o700))?;
        [DIRECTORIES, FILES, NAMES, PASSING]
            .iter()
            .try_for_each(|kind| there(file::make_directory(self.start, &self.below(kind)?, 0o700)))
    }

    /// A directory under a name that nobody watches.
    pub(super) fn begin(&self) -> Result<PathText, Errno> {
        for _ in 0..PASSING_TRIES {
            let path = self.passing()?;
            match file::make_directory(self.start, &path, 0o700) {
                // A process of another namespace has the same number.
                Err(Errno::EEXIST) => {}
                made => return made.map(|()| path),
            }
        }
        Err(Errno::EEXIST)
    }

    /// Something in a directory that was begun, where `name` will be.
    pub(super) fn add(
        &self,
        begun: &PathText,
        name: Name<'_>,
        file: FileId,
        kind: FileKind,
    ) -> Result<(), Errno> {
        let mut path = PathText::from_bytes(begun.as_bytes())?;
        path.push_component(name.name)?;
        self.make(&path, kind)?;
        self.note(name, file);
        Ok(())
    }

    /// A directory that was begun stands for `directory` from now on, unless another one does.
    pub(super) fn settle(&self, begun: &PathText, directory: FileId) -> Result<(), Errno> {
        let path = self.of(DIRECTORIES, directory)?;
        match file::rename(self.start, begun, &path, 0) {
            Err(Errno::EEXIST | Errno::ENOTEMPTY) => Ok(()),
            done => done,
        }
    }

    /// Remembers that the file has the name. A file that has several keeps the first.
    fn note(&self, name: Name<'_>, file: FileId) {
        let noted = || {
            let mut to = PathText::from_bytes(b"../")?;
            to.push(DIRECTORIES.as_bytes())?;
            to.push(b"/")?;
            to.push_hexadecimal(name.directory.0)?;
            to.push_component(name.name)?;
            file::make_link(&to, self.start, &self.of(NAMES, file)?)
        };
        // If this fails, changes are not told under that name.
        let _ = noted();
    }

    fn forget(&self, file: FileId) {
        if let Ok(path) = self.of(NAMES, file) {
            let _ = file::remove(self.start, &path);
        }
    }

    /// A watched file from now on.
    pub(super) fn add_file(&self, file: FileId) -> Result<(), Errno> {
        match file::make_node(self.start, &self.of(FILES, file)?, 0o600) {
            Err(Errno::EEXIST) => Ok(()),
            made => made,
        }
    }

    /// IN_CREATE. One that is there was removed without our knowing.
    pub(super) fn created(
        &self,
        name: Name<'_>,
        file: FileId,
        kind: FileKind,
    ) -> Result<(), Errno> {
        let path = self.path_of_name(name)?;
        if self.make(&path, kind) == Err(Errno::EEXIST) {
            self.remove(&path, kind)?;
            self.make(&path, kind)?;
        }
        self.note(name, file);
        Ok(())
    }

    /// The same where it may be there already, and nothing has happened to it.
    pub(super) fn complete(&self, name: Name<'_>, file: FileId, kind: FileKind) {
        if self.path_of_name(name).and_then(|path| self.make(&path, kind)).is_ok() {
            self.note(name, file);
        }
    }

    /// IN_DELETE of the name.
    pub(super) fn removed(&self, name: Name<'_>, kind: FileKind) -> Result<(), Errno> {
        self.remove(&self.path_of_name(name)?, kind)
    }

    /// IN_DELETE_SELF of what has no name any more.
    pub(super) fn ended(&self, file: FileId, kind: FileKind) -> Result<(), Errno> {
        self.forget(file);
        self.remove(&self.itself(file, kind)?, kind)
    }

    /// IN_MOVED_FROM and IN_MOVED_TO, where both directories are watched with one cookie.
    pub(super) fn moved(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        (file, kind): (FileId, FileKind),
    ) -> Result<(), Errno> {
        let (old, new) = (self.path_of_name(from)?, self.path_of_name(to)?);
        let comes = self.has(to.directory);
        if file::rename(self.start, &old, &new, 0).is_err() {
            let between = self.passing()?;
            if file::rename(self.start, &old, &between, 0).is_err() && comes {
                self.make(&between, kind)?;
            }
            // It leaves what is watched, or comes there.
            let _ = match comes {
                true => file::rename(self.start, &between, &new, 0),
                false => self.remove(&between, kind),
            };
        }
        self.forget(file);
        if comes {
            self.note(to, file);
        }
        self.moved_itself(file, kind)
    }

    /// Both names change what they stand for.
    pub(super) fn exchanged(&self, one: Name<'_>, other: Name<'_>) -> Result<(), Errno> {
        file::rename(
            self.start,
            &self.path_of_name(one)?,
            &self.path_of_name(other)?,
            RENAME_EXCHANGE,
        )
    }

    /// IN_MOVE_SELF: there and back, which the kernel makes one event of.
    pub(super) fn moved_itself(&self, file: FileId, kind: FileKind) -> Result<(), Errno> {
        let (path, between) = (self.itself(file, kind)?, self.passing()?);
        file::rename(self.start, &path, &between, 0)?;
        file::rename(self.start, &between, &path, 0)
    }

    /// IN_ATTRIB.
    pub(super) fn attributes(&self, file: FileId) {
        for kind in [NAMES, FILES, DIRECTORIES] {
            if let Ok(path) = self.of(kind, file) {
                let _ = file::change_mode_at(self.start, &path, 0o700);
            }
        }
    }

    /// IN_ATTRIB of the file alone: it has more names than before, or fewer.
    pub(super) fn links_changed(&self, file: FileId) {
        if let Ok(path) = self.of(FILES, file) {
            let _ = file::change_mode_at(self.start, &path, 0o600);
        }
    }

    /// IN_MODIFY.
    pub(super) fn written(&self, file: FileId) {
        for kind in [NAMES, FILES] {
            if let Ok(path) = self.of(kind, file) {
                let _ =
                    file::set_times(self.start, &path, file::SetTime::Stays, file::SetTime::Now);
            }
        }
    }
}

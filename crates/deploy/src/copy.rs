//! Copying a tree out of an instance (`--save`).
//!
//! It runs as an ordinary program under the preload library (the hidden subcommand [`COPY`]), so it
//! sees the instance as any program does. It keeps types, contents, modes, modification times,
//! extended attributes, symbolic links, hard links and pipes, leaves sockets out, goes on after an
//! error, and counts: the caller keeps the instance unless all is there.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use crate::xattrs;

/// The hidden subcommand that copies: `__copy FROM TO`.
pub const COPY: &str = "__copy";

/// What was copied.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Files and links.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// What could not be copied, and why.
    pub failed: Vec<String>,
}

/// Copies everything below `from` into the directory `to`, which is made when it is missing.
/// `progress` is told of every file.
pub fn copy_tree(from: &Path, to: &Path, progress: &mut dyn FnMut(&Copied)) -> Copied {
    let mut copier = Copier { copied: Copied::default(), links: HashMap::new(), progress };
    copier.directory(from, to);
    copier.copied
}

struct Copier<'p> {
    copied: Copied,
    links: HashMap<u64, PathBuf>,
    progress: &'p mut dyn FnMut(&Copied),
}

impl Copier<'_> {
    fn note<T>(&mut self, path: &Path, result: io::Result<T>) -> Option<T> {
        result.map_err(|error| self.copied.failed.push(format!("{}: {error}", path.display()))).ok()
    }

    fn directory(&mut self, from: &Path, to: &Path) {
        let made = match fs::create_dir(to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
        if self.note(to, made).is_none() {
            return;
        }
        let Some(entries) = self.note(from, fs::read_dir(from)) else { return };
        for entry in entries {
            if let Some(entry) = self.note(from, entry) {
                self.entry(&entry.path(), &to.join(entry.file_name()));
            }
        }
        self.copied.directories += 1;
        // Last: a directory without write permission, and the time of the last entry made in it.
        let settled = fs::metadata(from).and_then(|meta| settle(from, &meta, to));
        self.note(to, settled);
    }

    fn entry(&mut self, from: &Path, to: &Path) {
        let Some(meta) = self.note(from, fs::symlink_metadata(from)) else { return };
        if meta.is_dir() {
            return self.directory(from, to);
        }
        let done = if meta.is_symlink() {
            fs::read_link(from).and_then(|target| symlink(target, to)).map(|()| 0)
        } else if let Some(earlier) = self.links.get(&meta.ino()).filter(|_| meta.nlink() > 1) {
            fs::hard_link(earlier, to).map(|()| 0)
        } else if meta.file_type().is_socket() {
            // Nobody could be reached through a copy.
            return;
        } else if meta.file_type().is_fifo() {
            self.links.insert(meta.ino(), to.to_path_buf());
            pipe(&meta, to).map(|()| 0)
        } else {
            self.links.insert(meta.ino(), to.to_path_buf());
            contents(from, to, &meta)
        };
        if let Some(bytes) = self.note(from, done) {
            self.copied.files += 1;
            self.copied.bytes += bytes;
        }
        (self.progress)(&self.copied);
    }
}

fn contents(from: &Path, to: &Path, meta: &fs::Metadata) -> io::Result<u64> {
    let mut source = fs::File::open(from)?;
    let mut target = fs::File::create(to)?;
    let bytes = io::copy(&mut source, &mut target)?;
    if bytes != meta.len() {
        return Err(io::Error::other(format!("{bytes} of {} bytes were read", meta.len())));
    }
    drop(target);
    settle(from, meta, to)?;
    Ok(bytes)
}

/// A pipe of the same mode; it is not opened, since that would wait.
fn pipe(meta: &fs::Metadata, to: &Path) -> io::Result<()> {
    let mode = rustix::fs::Mode::from_raw_mode(meta.mode() & 0o7777);
    rustix::fs::mknodat(rustix::fs::CWD, to, rustix::fs::FileType::Fifo, mode, 0)?;
    fs::set_permissions(to, fs::Permissions::from_mode(meta.mode() & 0o7777))
}

fn settle(from: &Path, meta: &fs::Metadata, to: &Path) -> io::Result<()> {
    xattrs::copy(from, to)?;
    let times = fs::FileTimes::new().set_modified(meta.modified()?);
    fs::File::open(to)?.set_times(times)?;
    fs::set_permissions(to, fs::Permissions::from_mode(meta.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_tree_has_the_same_contents_links_modes_and_times() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("inner")).expect("a directory");
        fs::write(from.join("inner/file"), b"contents").expect("a file");
        fs::hard_link(from.join("inner/file"), from.join("second")).expect("a link");
        symlink("inner/file", from.join("symbolic")).expect("a link");
        let pipe = fs::Permissions::from_mode(0o620);
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            from.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        );
        made.expect("a pipe");
        fs::set_permissions(from.join("pipe"), pipe).expect("a mode");
        let _bound = std::os::unix::net::UnixListener::bind(from.join("socket")).expect("bound");
        fs::set_permissions(from.join("second"), fs::Permissions::from_mode(0o750))
            .expect("a mode");
        let copied = copy_tree(&from, &to, &mut |_| ());
        assert_eq!(copied.failed, Vec::<String>::new());
        assert_eq!((copied.files, copied.directories, copied.bytes), (4, 2, 8));
        let pipe = fs::symlink_metadata(to.join("pipe")).expect("it was copied");
        assert!(pipe.file_type().is_fifo() && pipe.mode() & 0o7777 == 0o620);
        assert!(!to.join("socket").exists());
        let meta = fs::metadata(to.join("second")).expect("it was copied");
        assert_eq!((meta.nlink(), meta.mode() & 0o7777), (2, 0o750));
        let original = fs::metadata(from.join("second")).expect("it is there");
        assert_eq!(meta.mtime_nsec(), original.mtime_nsec());
        assert_eq!(fs::read_link(to.join("symbolic")).expect("a link"), Path::new("inner/file"));
    }

    #[test]
    fn what_cannot_be_copied_is_named() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let missing = place.path().join("missing");
        let copied = copy_tree(&missing, &place.path().join("to"), &mut |_| ());
        let [failed] = copied.failed.as_slice() else { panic!("{:?}", copied.failed) };
        assert!(failed.starts_with(&*missing.to_string_lossy()), "{failed}");
    }
}

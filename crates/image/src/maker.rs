//! Makes images: finds every `syscall` instruction of a library and redirects it.
//!
//! [`elf`] reads what is needed of the file, [`sweep`] decodes the code and collects branch
//! targets, [`window`] chooses which instructions a jump may replace, [`emit`] writes trampolines,
//! and this module puts the result where processes find it.

mod elf;
mod emit;
mod mapped;
mod process;
mod sweep;
mod window;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::format;
pub use mapped::{Mapped, prepare_mapped};
pub use process::libraries_of_this_process;

/// Why a library has no image.
#[derive(Debug)]
pub enum Error {
    /// Reading the library or writing the image failed.
    Io(PathBuf, io::Error),
    /// The file is not a shared library that can be patched; says why.
    Unfit(PathBuf, String),
    /// The cache directory belongs to somebody else or is open to others.
    Cache(PathBuf),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Error::Unfit(path, why) => write!(f, "{}: {why}", path.display()),
            Error::Cache(path) => {
                write!(f, "{}: must be a directory of yours with mode 0700", path.display())
            }
        }
    }
}

impl std::error::Error for Error {}

/// A `syscall` instruction that keeps trapping into the kernel unseen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpatched {
    /// Address in the library's own numbering.
    pub vaddr: u64,
    /// Why it was left.
    pub why: Reason,
}

/// Why an instruction was left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Returns from a signal handler: debuggers and unwinders know its bytes.
    SignalReturn,
    /// No five bytes around it could be replaced without crossing a branch target.
    NoRoom,
    /// The bytes around it did not decode as code.
    Undecodable,
    /// What follows looks at flags from in front of it.
    Flags,
}

/// An image in memory, and what it does not cover.
#[derive(Debug)]
pub struct BuiltImage {
    /// The file's contents.
    pub bytes: Vec<u8>,
    /// Its header.
    pub header: format::Header,
    /// Instructions left alone.
    pub unpatched: Vec<Unpatched>,
}

/// Makes the image of the library at `path`.
///
/// # Errors
/// When the file cannot be read or is not a library with one executable segment.
pub fn make(path: &Path) -> Result<BuiltImage, Error> {
    let bytes = fs::read(path).map_err(|error| Error::Io(path.into(), error))?;
    make_from(&bytes).map_err(|why| Error::Unfit(path.into(), why))
}

/// Makes the image of the library whose file contents are `bytes`.
///
/// # Errors
/// Says why the library cannot be patched.
pub fn make_from(bytes: &[u8]) -> Result<BuiltImage, String> {
    let library = elf::Library::parse(bytes)?;
    let code = sweep::sweep(&library);
    let plan = window::plan(&code);
    emit::emit(&library, plan)
}

/// Makes sure that `cache_dir` holds the image of the library at `library_path`; returns its path.
///
/// # Errors
/// As [`make`], and when the cache directory is not private to the caller or cannot be written.
pub fn prepare(library_path: &Path, cache_dir: &Path) -> Result<PathBuf, Error> {
    private_directory(cache_dir)?;
    let bytes = fs::read(library_path).map_err(|error| Error::Io(library_path.into(), error))?;
    let unfit = |why| Error::Unfit(library_path.into(), why);
    let key = elf::key_of(&bytes).map_err(unfit)?;
    let path = cache_dir.join(image_name(&key));
    if present(&path) {
        return Ok(path);
    }
    let made = make_from(&bytes).map_err(unfit)?;
    write_atomically(&path, &made.bytes).map_err(|error| Error::Io(path.clone(), error))?;
    Ok(path)
}

/// The file name of the image of the library with this key.
#[must_use]
pub fn image_name(key: &[u8]) -> String {
    let mut name = [0; 2 * format::KEY_BYTES_MAX + 16];
    let bytes = format::file_name(key, &mut name).unwrap_or(0);
    String::from_utf8_lossy(&name[..bytes]).into_owned()
}

/// Whether a usable image of ours is already there.
fn present(path: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    let ours =
        metadata.is_file() && metadata.uid() == effective_user() && metadata.mode() & 0o077 == 0;
    let says_nothing = || metadata.len() == 0;
    let is_image =
        || fs::read(path).is_ok_and(|bytes| format::Header::parse(&bytes, metadata.len()).is_ok());
    ours && (says_nothing() || is_image())
}

fn private_directory(path: &Path) -> Result<(), Error> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| Error::Io(path.into(), error))?;
    let metadata = fs::symlink_metadata(path).map_err(|error| Error::Io(path.into(), error))?;
    let private = metadata.is_dir()
        && metadata.uid() == effective_user()
        && metadata.permissions().mode() & 0o077 == 0;
    if private { Ok(()) } else { Err(Error::Cache(path.into())) }
}

fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        drop(file);
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        // The error that matters is the one being returned.
        let _ = fs::remove_file(&temporary);
    })
}

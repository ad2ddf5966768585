//! The file behind the code of another process.
//!
//! A path that a process gives may mean another file there (a container's root, a loader that was
//! run by its name), so the file is looked up in what the kernel says is mapped, and opened in that
//! process's own root. A file that has no name any more is found when it is the process's program.
//! What is read is believed when it has the key and the code that are mapped.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{Error, make_from, present, private_directory, write_atomically};
use crate::maker::{elf, image_name};

/// Files that are longer are no C libraries.
const LIBRARY_BYTES_MAX: u64 = 256 << 20;

/// Code that is mapped in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// The process.
    pub pid: u32,
    /// Where the code begins there.
    pub address: u64,
    /// The same in the library's own numbering.
    pub text_vaddr: u64,
    /// Bytes of code, whole pages.
    pub text_bytes: u64,
    /// The library's key.
    pub key: Vec<u8>,
}

/// Makes sure that `cache_dir` holds the image of a library that a process has mapped; returns the
/// library's path there when it had to be made. An empty image says that nothing is to be
/// redirected: there is no `syscall` in the code, or it must be left alone.
///
/// # Errors
/// When the process or the file is gone or cannot be read, the file is not the mapped one, cannot
/// be patched, or the cache is not the caller's.
pub fn prepare_mapped(mapped: &Mapped, cache_dir: &Path) -> Result<Option<PathBuf>, Error> {
    private_directory(cache_dir)?;
    let path = path_of(mapped)?;
    let image = cache_dir.join(image_name(&mapped.key));
    if present(&image) {
        return Ok(None);
    }
    let bytes = read(mapped.pid, &path).map_err(|error| Error::Io(path.clone(), error))?;
    let unfit = |why| Error::Unfit(path.clone(), why);
    let differs = || unfit("is not the file that is mapped".to_owned());
    if elf::key_of(&bytes).map_err(unfit)? != mapped.key {
        return Err(differs());
    }
    let write = |bytes: &[u8]| {
        write_atomically(&image, bytes).map_err(|error| Error::Io(image.clone(), error))
    };
    if elf::is_left_alone(&bytes).map_err(unfit)? {
        return write(&[]).map(|()| None);
    }
    let made = make_from(&bytes).map_err(unfit)?;
    if (made.header.text_vaddr, made.header.text_bytes) != (mapped.text_vaddr, mapped.text_bytes) {
        return Err(differs());
    }
    if made.header.sites == 0 {
        return write(&[]).map(|()| None);
    }
    write(&made.bytes).map(|()| Some(path))
}

/// The path that the kernel gives for the mapping.
fn path_of(mapped: &Mapped) -> Result<PathBuf, Error> {
    let maps = PathBuf::from(format!("/proc/{}/maps", mapped.pid));
    let text = fs::read_to_string(&maps).map_err(|error| Error::Io(maps.clone(), error))?;
    let found = text.lines().find_map(|line| path_in(line, mapped.address));
    // Of this process; in another the library may have one.
    let missing = || io::Error::other(format!("no file is mapped at {:#x}", mapped.address));
    found.map(PathBuf::from).ok_or_else(|| Error::Io(maps, missing()))
}

/// The path in a line of `/proc/PID/maps` when its range begins at `address`.
fn path_in(line: &str, address: u64) -> Option<&str> {
    let (range, rest) = line.split_once(' ')?;
    let start = u64::from_str_radix(range.split_once('-')?.0, 16).ok()?;
    let path = rest.get(rest.find('/')?..)?;
    // A device is written with a colon, an inode in digits: the first slash begins the path.
    (start == address).then_some(path)
}

fn read(pid: u32, path: &Path) -> io::Result<Vec<u8>> {
    let process = Path::new("/proc").join(pid.to_string());
    // The path may lead elsewhere by now: nothing that blocks, no link.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(flags.bits() as i32);
    let file = if path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)") {
        let program = process.join("exe");
        if fs::read_link(&program)? != path {
            return Err(io::ErrorKind::NotFound.into());
        }
        fs::File::open(program)?
    } else {
        options.open(process.join("root").join(path.strip_prefix("/").unwrap_or(path)))?
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > LIBRARY_BYTES_MAX {
        return Err(io::Error::other("is no library"));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.take(LIBRARY_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_found_by_its_beginning() {
        let line = "7f12a000-7f13b000 r-xp 00028000 fe:01 1234      /opt/a dir/libc.so.6";
        assert_eq!(path_in(line, 0x7f12_a000), Some("/opt/a dir/libc.so.6"));
        assert_eq!(path_in(line, 0x7f12_b000), None);
        assert_eq!(path_in("7f12a000-7f13b000 r-xp 00000000 00:00 0 ", 0x7f12_a000), None);
        let deleted = "7f12a000-7f13b000 r-xp 00028000 00:01 1234      /memfd:name (deleted)";
        assert_eq!(path_in(deleted, 0x7f12_a000), Some("/memfd:name (deleted)"));
        assert_eq!(path_in("", 0), None);
    }
}

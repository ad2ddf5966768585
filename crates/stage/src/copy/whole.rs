//! A file at the destination, complete or absent.
//!
//! It is written under a temporary name beside its own, whose first part names the stage, and gets
//! its own name when it is whole.

use std::{
    ffi::{CStr, CString, OsStr},
    fs::File,
    hash::{DefaultHasher, Hasher},
    io::Write,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat, renameat},
    sys::stat::{Mode, SFlag},
    unistd::{UnlinkatFlags, unlinkat},
};

use crate::{
    copy::settle::{Stat, set_times_at},
    report::Problem,
};

/// What the temporary names of all stages begin with.
const PREFIX: &str = ".mayfly-";

/// The temporary name of a file that is written by this stage, on a node with this number in it.
pub(crate) fn temporary_name((stage, node): (u64, u32), name: &OsStr) -> CString {
    let mut hasher = DefaultHasher::new();
    hasher.write_u32(node);
    hasher.write(name.as_bytes());
    let text = format!("{PREFIX}{stage:016x}-{:016x}", hasher.finish());
    // Hexadecimal digits have no zero.
    CString::new(text).unwrap_or_default()
}

/// Was it written by this stage, or by an earlier try of it?
pub(crate) fn is_temporary(stage: u64, name: &OsStr) -> bool {
    name.as_bytes().starts_with(format!("{PREFIX}{stage:016x}-").as_bytes())
}

/// Makes something under a name that an earlier try of this stage may have left.
pub(super) fn make_anew<T>(
    directory: BorrowedFd<'_>,
    name: &CStr,
    make: impl Fn() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match make() {
        Err(Errno::EEXIST) => {
            let _ = unlinkat(directory, name, UnlinkatFlags::NoRemoveDir);
            make()
        }
        made => made,
    }
}

/// A file that is not whole yet: removed when it is dropped before [`Partial::finish`].
#[derive(Debug)]
pub(crate) struct Partial<'a> {
    directory: BorrowedFd<'a>,
    name: CString,
    file: Option<File>,
}

impl<'a> Partial<'a> {
    /// Makes the file, with the permissions of its source but for bits that every write would take
    /// away.
    pub(crate) fn make(
        directory: BorrowedFd<'a>,
        name: CString,
        stat: &Stat,
    ) -> Result<Partial<'a>, Problem> {
        let flags =
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let mode = Mode::from_bits_truncate(stat.permissions() & 0o777);
        let made = make_anew(directory, &name, || openat(directory, name.as_c_str(), flags, mode));
        let file = made.map_err(Problem::not_made("make the file"))?;
        Ok(Partial { directory, name, file: Some(File::from(file)) })
    }

    /// One of that length that an earlier try has left, if there is one.
    pub(super) fn find(directory: BorrowedFd<'a>, name: &CStr, stat: &Stat) -> Option<Partial<'a>> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let file = openat(directory, name, flags, Mode::empty()).ok()?;
        let found = Stat::of(&file).ok()?;
        let is_it = found.is(SFlag::S_IFREG) && found.bytes == stat.bytes && found.links == 1;
        is_it.then(|| Partial { directory, name: name.to_owned(), file: Some(File::from(file)) })
    }

    pub(crate) fn as_file(&self) -> Result<&File, Problem> {
        self.file.as_ref().ok_or(Problem::Ended)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.as_file()?.write_all(bytes).map_err(|error| failed("write the file", &error))
    }

    /// It is whole: it gets its times and its name.
    pub(crate) fn finish(mut self, name: &OsStr, stat: &Stat) -> Result<(), Problem> {
        // Some file systems tell of a full disk here; the standard library would not.
        if let Some(file) = self.file.take() {
            close(file).map_err(Problem::of("close the file"))?;
        }
        // By its name: an instance would have to make the file known first for its descriptor.
        set_times_at(self.directory, self.name.as_c_str(), stat)
            .map_err(Problem::of("set the times"))?;
        if self.name.as_bytes() == name.as_bytes() {
            self.name = CString::default();
            return Ok(());
        }
        let renamed = renameat(self.directory, self.name.as_c_str(), self.directory, name);
        renamed.map_err(Problem::not_made("give the file its name"))?;
        self.name = CString::default();
        Ok(())
    }

    /// Its name for a later [`Partial::take_up`]: it stays.
    pub(super) fn leave(mut self) -> (CString, Option<File>) {
        (std::mem::take(&mut self.name), self.file.take())
    }

    /// One that was left.
    pub(super) fn take_up(directory: BorrowedFd<'a>, name: CString, file: File) -> Partial<'a> {
        Partial { directory, name, file: Some(file) }
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            let name = self.name.as_c_str();
            let _ = unlinkat(self.directory.as_fd(), name, UnlinkatFlags::NoRemoveDir);
        }
    }
}

pub(crate) fn close(file: File) -> Result<(), Errno> {
    nix::unistd::close(file)
}

/// A failed call of the standard library's.
pub(crate) fn failed(doing: &'static str, error: &std::io::Error) -> Problem {
    let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
    Problem::Failed { doing, errno }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_tell_their_stage_and_fit_whatever_the_name() {
        let long = "n".repeat(255);
        let name = temporary_name((7, 0), OsStr::new(&long));
        assert!(name.as_bytes().len() <= 64);
        assert!(is_temporary(7, OsStr::from_bytes(name.as_bytes())));
        assert!(!is_temporary(8, OsStr::from_bytes(name.as_bytes())));
        assert!(!is_temporary(7, OsStr::new("name")));
        assert_ne!(name, temporary_name((7, 0), OsStr::new("other")));
        assert_ne!(name, temporary_name((7, 1), OsStr::new(&long)), "two nodes write to one file");
    }
}

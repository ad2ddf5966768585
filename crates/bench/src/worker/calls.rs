//! Patterns: a row of calls on each file, as one operation.

use std::{
    ffi::CString,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use anyhow::{Context, Result, anyhow, ensure};
use mayfly_sys::memory;
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat, renameat},
    sys::{
        stat::{
            FchmodatFlags, FileStat, Mode, UtimensatFlags, fchmod, fchmodat, fstat, fstatat,
            futimens, utimensat,
        },
        time::TimeSpec,
    },
    unistd::{
        AccessFlags, Whence, close, faccessat, fsync, linkat, lseek, read, symlinkat, truncate,
        write,
    },
};

use super::{Prepared, failed, files, own_directory, wrong_byte};
use crate::workloads::{
    calls::{Act, Given, Name, Opening, ROWS, Row},
    pattern::Pattern,
    step::Task,
};

/// A time that is set.
const TIME: TimeSpec = TimeSpec::new(1_000_000_000, 0);

pub(super) fn prepare(task: &Task, row: usize, count: u64) -> Result<Prepared> {
    let row = ROWS.get(row).with_context(|| format!("there is no row {row}"))?;
    let pattern = Pattern::new(u64::from(task.rank), row.bytes() as usize);
    let directory = own_directory(&task.root, task.rank);
    let subjects =
        (0..count).map(|index| Subject::make(&directory, index)).collect::<Result<Vec<_>>>()?;
    let mut hand = Hand::new(pattern);
    for subject in &subjects {
        hand.give(subject, row.given)?;
    }
    Ok(Box::new(move |clock| {
        for subject in &subjects {
            let moved = hand.perform(row, subject)?;
            clock.moved(moved);
            clock.lap()?;
            // Between operations that read nothing, nothing is touched: making a pattern takes the
            // caches from the next call, and from a kernel's call more than from a short one.
            if row.reads_data() {
                hand.check(subject)?;
                clock.aside()?;
            }
        }
        Ok(())
    }))
}

/// The two names of a file.
struct Subject {
    own: CString,
    other: CString,
}

impl Subject {
    fn make(directory: &Path, index: u64) -> Result<Subject> {
        let name = |kind: char| files::inside(directory, &format!("{kind}.{index}"));
        Ok(Subject { own: name('f')?, other: name('o')? })
    }

    fn path(&self, name: Name) -> &CString {
        match name {
            Name::Own => &self.own,
            Name::Other => &self.other,
        }
    }
}

/// What makes the calls: the descriptor that is open, contents, and what was read.
struct Hand {
    file: Option<OwnedFd>,
    contents: Vec<u8>,
    pattern: Pattern,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read and not yet compared.
    unchecked: usize,
}

impl Hand {
    fn new(mut pattern: Pattern) -> Hand {
        let contents = pattern.at(0).to_vec();
        let buffer = vec![0; contents.len()];
        Hand { file: None, contents, pattern, buffer, unchecked: 0 }
    }

    /// Makes what is there before the clock.
    fn give(&self, subject: &Subject, given: Given) -> Result<()> {
        match given {
            Given::Nothing => Ok(()),
            Given::File(bytes) => files::create(&subject.own, &self.contents[..bytes as usize]),
            Given::Linked(bytes) => {
                files::create(&subject.own, &self.contents[..bytes as usize])?;
                symlink(subject)
            }
        }
    }

    /// All calls of a row; the bytes that they moved.
    fn perform(&mut self, row: &Row, subject: &Subject) -> Result<u64> {
        let mut moved = 0;
        for act in row.acts {
            match *act {
                Act::Open(name, opening) => self.file = Some(open(subject.path(name), opening)?),
                Act::Close => {
                    let file = self.file.take().context("the row has opened nothing")?;
                    close(file).map_err(|errno| failed("close", &subject.own, errno))?;
                }
                Act::Write(bytes) | Act::Read(bytes) => {
                    self.transfer(*act, bytes as usize, subject)?;
                    moved += u64::from(bytes);
                }
                Act::Map(bytes) => {
                    let file = self.file.as_ref().context("the row has opened nothing")?;
                    let to = &mut self.buffer[..bytes as usize];
                    memory::read_mapped(file.as_raw_fd(), to)
                        .map_err(|errno| anyhow!("{:?}: mapping it: {errno}", subject.own))?;
                    self.unchecked = bytes as usize;
                    moved += u64::from(bytes);
                }
                Act::ReadEnd
                | Act::Seek
                | Act::Fstat
                | Act::Fsync
                | Act::Futimens
                | Act::Fchmod => self.on_descriptor(*act, subject)?,
                _ => on_name(*act, subject)?,
            }
        }
        Ok(moved)
    }

    fn transfer(&mut self, act: Act, bytes: usize, subject: &Subject) -> Result<()> {
        let file = self.file.as_ref().context("the row has opened nothing")?;
        let is_write = matches!(act, Act::Write(_));
        let mut done = 0;
        while done < bytes {
            let outcome = match is_write {
                true => write(file, &self.contents[done..bytes]),
                false => read(file, &mut self.buffer[done..bytes]),
            };
            match outcome {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(Errno::EINTR) => {}
                Err(errno) => {
                    let call = if is_write { "write" } else { "read" };
                    return Err(failed(call, &subject.own, errno));
                }
            }
        }
        ensure!(done == bytes, "{:?}: {done} bytes were moved of {bytes}", subject.own);
        if !is_write {
            self.unchecked = bytes;
        }
        Ok(())
    }

    fn on_descriptor(&mut self, act: Act, subject: &Subject) -> Result<()> {
        let file = self.file.as_ref().context("the row has opened nothing")?;
        let outcome = match act {
            Act::ReadEnd => {
                let mut byte = [0];
                let count = read(file, &mut byte);
                ensure!(count != Ok(1), "{:?}: there is more than was written", subject.own);
                count.map(drop)
            }
            Act::Seek => lseek(file, 0, Whence::SeekSet).map(drop),
            Act::Fstat => fstat(file).map(drop),
            Act::Fsync => fsync(file),
            Act::Futimens => futimens(file, &TIME, &TIME),
            _ => fchmod(file, Mode::S_IRUSR | Mode::S_IWUSR | Mode::S_IRGRP),
        };
        outcome.map_err(|errno| failed(&format!("{act:?}"), &subject.own, errno))
    }

    /// Compares what was read.
    fn check(&mut self, subject: &Subject) -> Result<()> {
        let read = &self.buffer[..std::mem::take(&mut self.unchecked)];
        self.pattern.check(0, read).map_err(|wrong| wrong_byte(&subject.own, &wrong))
    }
}

fn open(path: &CString, opening: Opening) -> Result<OwnedFd> {
    let new = OFlag::O_CREAT;
    let flags = match opening {
        Opening::Read => OFlag::O_RDONLY,
        Opening::Write => OFlag::O_WRONLY,
        Opening::Both => OFlag::O_RDWR,
        Opening::Append => OFlag::O_WRONLY | OFlag::O_APPEND,
        Opening::Cut => OFlag::O_WRONLY | OFlag::O_TRUNC,
        Opening::New => OFlag::O_WRONLY | new,
        Opening::NewBoth => OFlag::O_RDWR | new,
        Opening::NewAppend => OFlag::O_WRONLY | new | OFlag::O_APPEND,
        Opening::NewCut => OFlag::O_WRONLY | new | OFlag::O_TRUNC,
        Opening::NewExclusive => OFlag::O_WRONLY | new | OFlag::O_EXCL,
    };
    openat(AT_FDCWD, path.as_c_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(|errno| failed("open", path, errno))
}

fn on_name(act: Act, subject: &Subject) -> Result<()> {
    let own = subject.own.as_c_str();
    let outcome = match act {
        Act::Stat(name) => look(subject.path(name), AtFlags::AT_SYMLINK_NOFOLLOW).map(drop),
        Act::StatFollowing(name) => look(subject.path(name), AtFlags::empty()).map(drop),
        Act::StatMissing(name) => match look(subject.path(name), AtFlags::empty()) {
            Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno),
            Ok(_) => Err(Errno::EEXIST),
        },
        Act::Access(name) => {
            faccessat(AT_FDCWD, subject.path(name).as_c_str(), AccessFlags::R_OK, AtFlags::empty())
        }
        Act::Utimens(name) => {
            let follow = UtimensatFlags::FollowSymlink;
            utimensat(AT_FDCWD, subject.path(name).as_c_str(), &TIME, &TIME, follow)
        }
        Act::Chmod(name) => {
            let (mode, follow) = (Mode::S_IRUSR | Mode::S_IWUSR, FchmodatFlags::FollowSymlink);
            fchmodat(AT_FDCWD, subject.path(name).as_c_str(), mode | Mode::S_IRGRP, follow)
        }
        Act::Truncate(name) => truncate(subject.path(name).as_c_str(), 0),
        Act::Rename(from, to) => {
            let (from, to) = (subject.path(from).as_c_str(), subject.path(to).as_c_str());
            renameat(AT_FDCWD, from, AT_FDCWD, to)
        }
        Act::Link => linkat(AT_FDCWD, own, AT_FDCWD, subject.other.as_c_str(), AtFlags::empty()),
        Act::Symlink => return symlink(subject),
        Act::Readlink => readlinkat(AT_FDCWD, subject.other.as_c_str()).map(drop),
        Act::Unlink(name) => return files::remove(subject.path(name)),
        Act::Mkdir(name) => return files::make_directory(subject.path(name)),
        _ => Err(Errno::EINVAL),
    };
    outcome.map_err(|errno| failed(&format!("{act:?}"), &subject.own, errno))
}

fn look(path: &CString, flags: AtFlags) -> nix::Result<FileStat> {
    fstatat(AT_FDCWD, path.as_c_str(), flags)
}

fn symlink(subject: &Subject) -> Result<()> {
    symlinkat(subject.own.as_c_str(), AT_FDCWD, subject.other.as_c_str())
        .map_err(|errno| failed("symlink", &subject.other, errno))
}

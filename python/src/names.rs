//! What can be done with paths, and with the instance as a whole.

use std::path::PathBuf;

use mayfly_client::{Attributes, Stop};
use mayfly_sys::{
    Errno,
    file::{O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_LARGEFILE, O_TRUNC, O_WRONLY},
    text::PathText,
};
use mayfly_types::{FileKind, Timestamp, limits::TRANSFER_BYTES_MAX};
use mayfly_wire::{SET_ATIME, SET_MODE, SET_MTIME, SET_SIZE, Target, listing::entries};
use pyo3::{
    Bound, Py, PyAny, PyResult, Python,
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    buffers::{Memory, unset_bytes},
    errors::{Failure, os_error},
    file::{Description, File, Opening},
    paths::{Last, Path},
    session::{Attached, Place},
    stat::Stat,
};

const NANOSECONDS: i64 = 1_000_000_000;

/// This process's access to an instance. Paths begin at the root of the instance, with or without a
/// slash. Every method may raise OSError with the errno of the system call of that name; EIO means
/// that the instance has ended, or that a node of it does not answer.
#[pyclass(frozen, module = "mayfly._native")]
pub(crate) struct Session {
    place: &'static Place,
}

/// A name in a directory, and what it names.
type Listed = (Vec<u8>, FileKind);

impl Session {
    /// Does `work` with Python's lock given away.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        work: impl FnOnce(&'static Attached, &mut PathText) -> Result<R, Stop> + Send,
    ) -> PyResult<R> {
        self.with_two(py, (path, None), work)
    }

    fn with_two<R: Send>(
        &self,
        py: Python<'_>,
        (path, other): (&Path, Option<&Path>),
        work: impl FnOnce(&'static Attached, &mut PathText) -> Result<R, Stop> + Send,
    ) -> PyResult<R> {
        let done = py.detach(|| {
            let (session, _) = self.place.session()?;
            let mut escape = PathText::new();
            work(session, &mut escape).map_err(|stop| Failure::of(stop, &escape))
        });
        done.map_err(|failure: Failure| failure.about(py, path, other))
    }

    fn names_in(&self, py: Python<'_>, path: &Path) -> PyResult<Vec<Listed>> {
        self.with(py, path, |session, escape| listed(session, path, escape))
    }
}

/// Everything in a directory but itself and the one above.
fn listed(session: &Attached, path: &Path, escape: &mut PathText) -> Result<Vec<Listed>, Stop> {
    let client = &session.client;
    let flags = O_DIRECTORY | O_CLOEXEC | O_LARGEFILE;
    let opened = client.open(path.walk(Last::Followed), flags, session.owner(0), escape)?;
    let open = client.open_file(opened.open)?;
    let mut names = Vec::new();
    let mut cookie = 0;
    let read = loop {
        let before = cookie;
        let page = client.list(open, cookie, TRANSFER_BYTES_MAX, |packed| {
            for entry in entries(packed) {
                let entry = entry.map_err(|_| Errno::EIO)?;
                cookie = entry.next_cookie;
                if !matches!(entry.name, b"." | b"..") {
                    names.push((entry.name.to_vec(), entry.kind));
                }
            }
            Ok(packed.is_empty())
        });
        match page {
            Ok(is_end) if is_end || cookie == before => break Ok(()),
            Ok(_) => {}
            Err(errno) => break Err(errno),
        }
    };
    // What it was opened for is done or has failed.
    let _ = client.close(open);
    read.map(|()| names).map_err(Stop::Failed)
}

/// A name below a directory.
fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

fn time(nanoseconds: i64) -> Timestamp {
    Timestamp {
        seconds: nanoseconds.div_euclid(NANOSECONDS),
        nanoseconds: nanoseconds.rem_euclid(NANOSECONDS) as u32,
    }
}

#[pymethods]
impl Session {
    /// The instance with this run directory, object directory and identity; `mayfly.attach` finds
    /// them. Attaches at the first call.
    #[new]
    fn new(run_dir: PathBuf, objects: PathBuf, instance: u64) -> Session {
        Session { place: Place::of(run_dir, objects, instance) }
    }

    /// Another process, also of another node, finds the instance anew.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (PathBuf, u64))> {
        let again = py.import("mayfly._find")?.getattr("again")?;
        Ok((again, (self.place.run_dir().to_path_buf(), self.place.instance())))
    }

    /// Attaches this process now, if it has not yet.
    fn attach(&self, py: Python<'_>) -> PyResult<()> {
        let attached = py.detach(|| self.place.session().map(drop));
        attached.map_err(|errno| {
            let name = self.place.run_dir().as_os_str().into_pyobject(py);
            os_error(errno, name.ok().map(|name| name.into_any().unbind()))
        })
    }

    /// Opens a file with the flags of `os.open`.
    #[pyo3(signature = (path, flags=0, mode=0o666))]
    fn open(&self, py: Python<'_>, path: Path, flags: u32, mode: u32) -> PyResult<File> {
        let opening = Opening { flags: flags | O_CLOEXEC | O_LARGEFILE, mode };
        let opened = self
            .with(py, &path, |_, escape| Description::open(self.place, &path, opening, escape))?;
        Ok(File::new(opened, path))
    }

    /// The bytes of a whole file, or those from `start` to `end`. Negative numbers count from the
    /// file's end, as in a slice.
    #[pyo3(signature = (path, start=None, end=None))]
    fn read_file<'py>(
        &self,
        py: Python<'py>,
        path: Path,
        start: Option<i64>,
        end: Option<i64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let opening = Opening { flags: O_CLOEXEC | O_LARGEFILE, mode: 0 };
        let (file, size) = self.with(py, &path, |_, escape| {
            let file = Description::open(self.place, &path, opening, escape)?;
            let size = file.size()?;
            Ok((file, size))
        })?;
        let at = |said: Option<i64>, otherwise: u64| match said {
            None => otherwise,
            Some(from_end @ ..0) => size.saturating_sub(from_end.unsigned_abs()),
            Some(offset) => (offset as u64).min(size),
        };
        let (start, end) = (at(start, 0), at(end, size));
        let length = end.saturating_sub(start) as usize;
        let (bytes, span) = unset_bytes(py, length)?;
        let read = py.detach(|| {
            let count = file.read_whole(start, span);
            // It has written nothing.
            let _ = file.end();
            count
        });
        let count = read.map_err(|errno| os_error(errno, Some(path.shown(py))))?;
        Ok(if count == length { bytes } else { PyBytes::new(py, &bytes.as_bytes()[..count]) })
    }

    /// Makes a file with these bytes, in place of what the name had. With `append` they go to the
    /// end; with `exclusive` there must be no such file (FileExistsError).
    #[pyo3(signature = (path, data, *, append=false, exclusive=false, mode=0o666))]
    fn write_file(
        &self,
        py: Python<'_>,
        path: Path,
        data: &Bound<'_, PyAny>,
        append: bool,
        exclusive: bool,
        mode: u32,
    ) -> PyResult<usize> {
        let memory = Memory::to_read(data)?;
        let span = memory.span();
        let begins = if append { O_APPEND } else { O_TRUNC };
        let new = if exclusive { O_EXCL } else { 0 };
        let flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_LARGEFILE | begins | new;
        self.with(py, &path, |_, escape| {
            let file = Description::open(self.place, &path, Opening { flags, mode }, escape)?;
            let written = file.write_whole(span);
            let closed = file.end();
            written.and(closed).map_err(Stop::Failed)?;
            Ok(span.bytes())
        })
    }

    /// Attributes.
    #[pyo3(signature = (path, *, follow_symlinks=true))]
    fn stat(&self, py: Python<'_>, path: Path, follow_symlinks: bool) -> PyResult<Stat> {
        let last = Last::of(follow_symlinks);
        let stat = |session: &Attached, escape: &mut PathText| {
            session.client.stat(path.target(last), escape)
        };
        self.with(py, &path, stat).map(Stat)
    }

    /// Names in a directory, in no order.
    #[pyo3(signature = (path=Path::root()))]
    fn listdir(&self, py: Python<'_>, path: Path) -> PyResult<Vec<Py<PyAny>>> {
        let names = self.names_in(py, &path)?;
        Ok(names.iter().map(|(name, _)| path.like_it(py, name)).collect())
    }

    /// Names in a directory with the attributes of what they name, links not followed, in no order.
    /// What is removed meanwhile is left out.
    #[pyo3(signature = (path=Path::root()))]
    fn scandir(&self, py: Python<'_>, path: Path) -> PyResult<Vec<(Py<PyAny>, Stat)>> {
        let found = self.with(py, &path, |session, escape| {
            let names = listed(session, &path, escape)?;
            let mut found = Vec::with_capacity(names.len());
            for (name, _) in names {
                let full = Path::of_bytes(below(path.bytes(), &name));
                match session.client.stat(full.target(Last::Itself), escape) {
                    Ok(attr) => found.push((name, attr)),
                    Err(Stop::Failed(Errno::ENOENT)) => {}
                    Err(stop) => return Err(stop),
                }
            }
            Ok(found)
        })?;
        let shown = |(name, attr): (Vec<u8>, _)| (path.like_it(py, &name), Stat(attr));
        Ok(found.into_iter().map(shown).collect())
    }

    /// Makes a directory.
    #[pyo3(signature = (path, mode=0o777))]
    fn mkdir(&self, py: Python<'_>, path: Path, mode: u32) -> PyResult<()> {
        self.with(py, &path, |session, escape| {
            let (walk, new) = (path.walk(Last::Itself), session.owner(mode));
            if session.client.submit_directory(walk, new) {
                return Ok(());
            }
            session.client.make_directory(walk, new, escape)
        })
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: Path) -> PyResult<()> {
        self.with(py, &path, |session, escape| {
            let walk = path.walk(Last::Itself);
            if session.client.submit_removal(walk, true) {
                return Ok(());
            }
            session.client.remove_directory(walk, escape)
        })
    }

    /// Removes a name of something that is no directory.
    fn unlink(&self, py: Python<'_>, path: Path) -> PyResult<()> {
        self.with(py, &path, |session, escape| {
            let walk = path.walk(Last::Itself);
            if session.client.submit_removal(walk, false) {
                return Ok(());
            }
            session.client.unlink(walk, escape)
        })
    }

    /// Moves a name, over another one where there is one, at one moment.
    fn rename(&self, py: Python<'_>, from: Path, to: Path) -> PyResult<()> {
        self.with_two(py, (&from, Some(&to)), |session, escape| {
            session.client.rename(from.walk(Last::Itself), to.walk(Last::Itself), 0, escape)
        })
    }

    /// Gives a file another name.
    fn link(&self, py: Python<'_>, from: Path, to: Path) -> PyResult<()> {
        self.with_two(py, (&from, Some(&to)), |session, escape| {
            session.client.link(from.target(Last::Itself), to.walk(Last::Itself), escape)
        })
    }

    /// Makes a symbolic link at `path` that says `target`. One that leads out of the instance is
    /// not followed here: whoever goes there gets OSError with EXDEV and, as `filename2`, where to.
    fn symlink(&self, py: Python<'_>, target: Path, path: Path) -> PyResult<()> {
        self.with_two(py, (&target, Some(&path)), |session, escape| {
            let new = session.owner(0o777);
            session.client.symlink(target.bytes(), path.walk(Last::Itself), new, escape)
        })
    }

    /// What a symbolic link says.
    fn readlink(&self, py: Python<'_>, path: Path) -> PyResult<Py<PyAny>> {
        let said = self.with(py, &path, |session, escape| {
            session.client.read_link(path.target(Last::Itself), escape, |text| Ok(text.to_vec()))
        })?;
        Ok(path.like_it(py, &said))
    }

    /// Sets the times of last access and last change, nanoseconds since 1970.
    #[pyo3(signature = (path, atime_ns, mtime_ns, *, follow_symlinks=true))]
    fn utime(
        &self,
        py: Python<'_>,
        path: Path,
        atime_ns: i64,
        mtime_ns: i64,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let which = SET_ATIME | SET_MTIME;
        let (atime, mtime) = (time(atime_ns), time(mtime_ns));
        let to = Attributes { which, atime, mtime, ..Attributes::default() };
        self.set(py, &path, &to, Last::of(follow_symlinks))
    }

    /// Sets the permission bits.
    fn chmod(&self, py: Python<'_>, path: Path, mode: u32) -> PyResult<()> {
        let to = Attributes { which: SET_MODE, mode: mode & 0o7777, ..Attributes::default() };
        self.set(py, &path, &to, Last::Followed)
    }

    /// Sets the length, bytes.
    fn truncate(&self, py: Python<'_>, path: Path, size: u64) -> PyResult<()> {
        let to = Attributes { which: SET_SIZE, size_bytes: size, ..Attributes::default() };
        self.set(py, &path, &to, Last::Followed)
    }

    /// Capacity and use: `capacity_bytes`, `used_bytes`, `files`, `files_max`, `block_bytes`.
    fn statfs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let asked = py.detach(|| self.place.session().and_then(|(it, _)| it.client.capacity()));
        let used = asked.map_err(|errno| os_error(errno, None))?;
        let said = PyDict::new(py);
        said.set_item("capacity_bytes", used.capacity_bytes)?;
        said.set_item("used_bytes", used.used_bytes)?;
        said.set_item("files", used.files)?;
        said.set_item("files_max", used.files_max)?;
        said.set_item("block_bytes", used.block_bytes)?;
        Ok(said)
    }

    /// Makes everything durable, as far as the instance promises durability.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let done = py.detach(|| self.place.session().and_then(|(it, _)| it.client.sync_all()));
        done.map_err(|errno| os_error(errno, None))
    }
}

impl Session {
    fn set(&self, py: Python<'_>, path: &Path, to: &Attributes, last: Last) -> PyResult<()> {
        self.with(py, path, |session, escape| {
            let target: Target<'_> = path.target(last);
            session.client.set_attributes(target, to, escape).map(drop)
        })
    }
}

//! From the client's errors to Python's.

use mayfly_client::Stop;
use mayfly_sys::{Errno, text::PathText};
use pyo3::{Py, PyAny, PyErr, Python, exceptions::PyOSError};

use crate::paths::Path;

/// Why a call with a path failed; where the path leads, when that is out of the instance.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It failed.
    Errno(Errno),
    /// The path leads out of the instance.
    Escaped(Vec<u8>),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Errno(errno)
    }
}

impl Failure {
    /// Of a call that would have put the path it escapes to in `escape`.
    pub(crate) fn of(stop: Stop, escape: &PathText) -> Failure {
        match stop {
            Stop::Failed(errno) => Failure::Errno(errno),
            Stop::Escaped => Failure::Escaped(escape.as_bytes().to_vec()),
        }
    }

    /// The exception, about `path`, and about a second one where the call has two.
    pub(crate) fn about(&self, py: Python<'_>, path: &Path, other: Option<&Path>) -> PyErr {
        let name = path.shown(py);
        match (self, other) {
            (Failure::Errno(errno), None) => os_error(*errno, Some(name)),
            (Failure::Errno(errno), Some(other)) => {
                let words = (errno.raw(), errno.text(), name, py.None(), other.shown(py));
                PyOSError::new_err(words)
            }
            (Failure::Escaped(place), _) => {
                let text = "The path leads out of the instance";
                let place = path.like_it(py, place);
                PyOSError::new_err((Errno::EXDEV.raw(), text, name, py.None(), place))
            }
        }
    }
}

/// `OSError`, of the subclass that belongs to the number.
pub(crate) fn os_error(errno: Errno, name: Option<Py<PyAny>>) -> PyErr {
    match name {
        Some(name) => PyOSError::new_err((errno.raw(), errno.text(), name)),
        None => PyOSError::new_err((errno.raw(), errno.text())),
    }
}

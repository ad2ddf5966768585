//! Paths as Python says them: text in the file system's encoding, or bytes.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use mayfly_types::FileId;
use mayfly_wire::{Target, WALK_FOLLOW, Walk};
use pyo3::{
    Borrowed, FromPyObject, Py, PyAny, PyErr, PyResult, Python,
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyString},
};

/// A path from the root of the instance.
#[derive(Debug)]
pub(crate) struct Path {
    bytes: Vec<u8>,
    is_text: bool,
}

/// What a symbolic link at the end of a path means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// What it leads to.
    Followed,
    /// The link.
    Itself,
}

impl Last {
    pub(crate) fn of(follows: bool) -> Last {
        if follows { Last::Followed } else { Last::Itself }
    }
}

impl Path {
    /// The root of the instance.
    pub(crate) fn root() -> Path {
        Path { bytes: b"/".to_vec(), is_text: true }
    }

    /// A path that nobody is shown.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Path {
        Path { bytes, is_text: false }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn walk(&self, last: Last) -> Walk<'_> {
        let flags = if last == Last::Followed { WALK_FOLLOW } else { 0 };
        Walk { start: FileId::ROOT, flags, path: &self.bytes }
    }

    pub(crate) fn target(&self, last: Last) -> Target<'_> {
        Target::Path(self.walk(last))
    }

    /// The path as an argument of an exception.
    pub(crate) fn shown(&self, py: Python<'_>) -> Py<PyAny> {
        self.like_it(py, &self.bytes)
    }

    /// A name in the form in which this path came: text, or bytes.
    pub(crate) fn like_it(&self, py: Python<'_>, name: &[u8]) -> Py<PyAny> {
        if self.is_text { text(py, name) } else { PyBytes::new(py, name).into_any().unbind() }
    }
}

/// Text, with what is none in it as surrogates, as `os.fsdecode` does it.
fn text(py: Python<'_>, name: &[u8]) -> Py<PyAny> {
    match OsStr::from_bytes(name).into_pyobject(py) {
        Ok(text) => text.into_any().unbind(),
        // The conversion cannot fail.
        Err(never) => match never {},
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Path {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Path> {
        let path = plain(&object)?;
        if path.bytes.contains(&0) {
            return Err(PyValueError::new_err("embedded null byte"));
        }
        Ok(path)
    }
}

fn plain(object: &Bound<'_, PyAny>) -> PyResult<Path> {
    if let Ok(text) = object.cast::<PyString>() {
        let bytes = match text.to_str() {
            Ok(text) => text.as_bytes().to_vec(),
            // Surrogates stand for bytes that are no text.
            Err(_) => object.extract::<std::ffi::OsString>()?.as_bytes().to_vec(),
        };
        return Ok(Path { bytes, is_text: true });
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Path { bytes: bytes.as_bytes().to_vec(), is_text: false });
    }
    let inner = object.py().import("os")?.getattr("fspath")?.call1((object,))?;
    if inner.is_instance_of::<PyString>() || inner.is_instance_of::<PyBytes>() {
        return plain(&inner);
    }
    Err(PyTypeError::new_err("a path is str, bytes or os.PathLike"))
}

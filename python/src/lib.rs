//! Python's way into an instance: a skin over `client`, as the preload library and the mount are.
//!
//! A Python process attaches as a session of its own, by the socket in the instance's run
//! directory ([`session`]). It need not have been started in the instance, and the calls of its
//! other libraries are not looked at. Where the preload library serves the same process, there are
//! two sessions, which know nothing of each other.
//!
//! **Threads.** Each call gives Python's lock away while it is under way ([`names`], [`file`]).
//!
//! **Forks.** A child finds out at its first call that it is one ([`fork`]), lets go of what was
//! its parent's, and attaches anew. Files that it has inherited it opens once more.
//!
//! What is here is what the client can do, in Python's words: paths, flags, numbers, buffers. How
//! instances are found and what fsspec wants is written in Python, beside this.

mod buffers;
mod described;
mod descriptors;
mod errors;
mod file;
mod fork;
mod names;
mod paths;
mod session;
mod stat;

use pyo3::pymodule;

/// The part of `mayfly` that is written in Rust.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{described::described, file::File, names::Session, stat::Stat};

    use pyo3::{Bound, PyResult, exceptions::PyImportError, pyfunction, types::PyModule};

    /// Tells that this process may be the child of a fork, so that it lets go of its parent's
    /// descriptors at once. It would find out by itself at its next call.
    #[pyfunction]
    fn after_fork() {
        super::fork::notice();
    }

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::fork::set_up().map_err(|errno| {
            PyImportError::new_err(format!("mayfly needs Linux 4.14 or newer: {errno}"))
        })
    }
}

//! What an instance says of itself in its run directory.
//!
//! It is read here since Python's `json` takes 20 ms to import, more than everything else until the
//! first file is open.

use std::path::{Path, PathBuf};

use pyo3::{PyErr, PyResult, exceptions::PyValueError, pyfunction};
use serde::Deserialize;

/// Name of the file in the run directory.
const FILE: &str = "instance.json";

#[derive(Deserialize)]
struct Description {
    name: String,
    run_dir: String,
    mount: String,
    object_dir: String,
    instance: u64,
    node: Option<u32>,
}

/// Name, run directory, mount point, object directory, identity and node number of the instance
/// whose run directory this is. FileNotFoundError when there is none.
#[pyfunction]
pub(crate) fn described(
    run_dir: PathBuf,
) -> PyResult<(String, String, String, String, u64, Option<u32>)> {
    let Description { name, run_dir, mount, object_dir, instance, node } = read(&run_dir)?;
    Ok((name, run_dir, mount, object_dir, instance, node))
}

fn read(run_dir: &Path) -> PyResult<Description> {
    let path = run_dir.join(FILE);
    let text = std::fs::read(&path).map_err(PyErr::from)?;
    serde_json::from_slice(&text)
        .map_err(|error| PyValueError::new_err(format!("{}: {error}", path.display())))
}

//! Attributes, under the names that `os.stat_result` has for them.

use mayfly_types::{Attr, FileKind, Timestamp};
use pyo3::{pyclass, pymethods};

/// Attributes of a file. Times ending in `_ns` are whole nanoseconds since 1970, the others
/// seconds; sizes are bytes, `st_blocks` counts 512 bytes.
#[pyclass(frozen, module = "mayfly._native")]
pub(crate) struct Stat(pub(crate) Attr);

fn nanoseconds(time: Timestamp) -> i64 {
    time.seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nanoseconds))
}

fn seconds(time: Timestamp) -> f64 {
    time.seconds as f64 + f64::from(time.nanoseconds) * 1e-9
}

/// The word for a type of file.
pub(crate) fn word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "link",
        FileKind::Fifo | FileKind::Socket => "other",
    }
}

#[pymethods]
impl Stat {
    /// Type and permission bits.
    #[getter]
    fn st_mode(&self) -> u32 {
        self.0.kind.mode_bits() | self.0.mode
    }

    /// Number of the file in its instance.
    #[getter]
    fn st_ino(&self) -> u64 {
        self.0.id.0
    }

    /// Names that the file has.
    #[getter]
    fn st_nlink(&self) -> u32 {
        self.0.links
    }

    /// Owner.
    #[getter]
    fn st_uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    #[getter]
    fn st_gid(&self) -> u32 {
        self.0.gid
    }

    /// Length, bytes.
    #[getter]
    fn st_size(&self) -> u64 {
        self.0.size_bytes
    }

    /// Space that is taken, in units of 512 bytes.
    #[getter]
    fn st_blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Last access, seconds.
    #[getter]
    fn st_atime(&self) -> f64 {
        seconds(self.0.atime)
    }

    /// Last change of the content, seconds.
    #[getter]
    fn st_mtime(&self) -> f64 {
        seconds(self.0.mtime)
    }

    /// Last change of content or attributes, seconds.
    #[getter]
    fn st_ctime(&self) -> f64 {
        seconds(self.0.ctime)
    }

    /// Creation, seconds.
    #[getter]
    fn st_birthtime(&self) -> f64 {
        seconds(self.0.btime)
    }

    /// Last access, nanoseconds.
    #[getter]
    fn st_atime_ns(&self) -> i64 {
        nanoseconds(self.0.atime)
    }

    /// Last change of the content, nanoseconds.
    #[getter]
    fn st_mtime_ns(&self) -> i64 {
        nanoseconds(self.0.mtime)
    }

    /// Last change of content or attributes, nanoseconds.
    #[getter]
    fn st_ctime_ns(&self) -> i64 {
        nanoseconds(self.0.ctime)
    }

    /// `file`, `directory`, `link` or `other`.
    #[getter]
    fn kind(&self) -> &'static str {
        word(self.0.kind)
    }

    fn __repr__(&self) -> String {
        let Attr { id, kind, mode, size_bytes, .. } = self.0;
        format!("<mayfly.Stat {} {} {mode:#o} {size_bytes} bytes>", word(kind), id.0)
    }
}

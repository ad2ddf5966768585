//! Memory of Python objects, for the duration of one transfer.

use mayfly_sys::file::IoVec;
use pyo3::{
    Bound, PyAny, PyResult, Python,
    buffer::PyUntypedBuffer,
    exceptions::{PyBufferError, PyMemoryError, PyTypeError},
    ffi,
    types::PyBytes,
};

/// An object's memory, held in place until this is dropped.
pub(crate) struct Memory(PyUntypedBuffer);

/// Where it is: it may be used by a thread that has given Python's lock away.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    address: usize,
    bytes: usize,
}

impl Span {
    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    /// What follows the first `done` bytes.
    pub(crate) fn after(self, done: usize) -> Span {
        let done = done.min(self.bytes);
        Span { address: self.address + done, bytes: self.bytes - done }
    }

    pub(crate) fn piece(self) -> IoVec {
        IoVec { base: self.address as *mut u8, bytes: self.bytes }
    }
}

impl Memory {
    /// Memory that is read.
    pub(crate) fn to_read(object: &Bound<'_, PyAny>) -> PyResult<Memory> {
        let buffer = PyUntypedBuffer::get(object)
            .map_err(|_| PyTypeError::new_err("a bytes-like object is required"))?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        Ok(Memory(buffer))
    }

    /// Memory that is written.
    pub(crate) fn to_write(object: &Bound<'_, PyAny>) -> PyResult<Memory> {
        let memory = Memory::to_read(object)?;
        if memory.0.readonly() {
            return Err(PyTypeError::new_err("a read-write bytes-like object is required"));
        }
        Ok(memory)
    }

    pub(crate) fn span(&self) -> Span {
        Span { address: self.0.buf_ptr() as usize, bytes: self.0.len_bytes() }
    }
}

/// A new `bytes` of this length, whose bytes are not set yet. Nobody else may see it before they
/// are.
pub(crate) fn unset_bytes(py: Python<'_>, length: usize) -> PyResult<(Bound<'_, PyBytes>, Span)> {
    let length_signed = isize::try_from(length)
        .map_err(|_| PyMemoryError::new_err("no object has so many bytes"))?;
    // SAFETY: without a source the function makes an object of that length, or returns null with an
    // exception set, which is what the conversion expects.
    let made: Bound<'_, PyAny> = unsafe {
        let made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length_signed);
        Bound::from_owned_ptr_or_err(py, made)?
    };
    // SAFETY: it is a `bytes`, made above.
    let address = unsafe { ffi::PyBytes_AsString(made.as_ptr()) } as usize;
    let made = made.cast_into::<PyBytes>()?;
    Ok((made, Span { address, bytes: length }))
}

//! The node's table of code without system calls of its own ([`mayfly_image::plain`]), as long as
//! somebody looks into it. Where it cannot be had nothing is known.

use core::sync::atomic::AtomicU64;

use mayfly_image::plain::{self, BYTES, NAME, SLOTS};
use mayfly_sys::arch::syscall6;
use mayfly_sys::number;

use crate::backend;
use crate::kernel::{self, MAP_SHARED, Mapping, PROT_READ};

/// The table, opened when it is first asked for.
pub(crate) struct Plain {
    tried: bool,
    open: Option<Open>,
}

struct Open {
    fd: usize,
    table: usize,
}

impl Plain {
    pub(crate) const fn new() -> Plain {
        Plain { tried: false, open: None }
    }

    fn open(&mut self) -> Option<&Open> {
        if !self.tried {
            self.tried = true;
            self.open = Open::new();
        }
        self.open.as_ref()
    }

    /// Is the code known to have none?
    pub(crate) fn has(&mut self, word: u64) -> bool {
        self.open().is_some_and(|open| plain::has(open.table(), word))
    }

    /// It was looked through, and has none.
    pub(crate) fn add(&mut self, word: u64) {
        let Some(open) = self.open() else { return };
        let Some(place) = plain::room_for(open.table(), word) else { return };
        let (from, offset) = (&raw const word as usize, place * size_of::<u64>());
        // SAFETY: the word outlives the call. A table that cannot be written to stays as it is.
        unsafe { syscall6(number::PWRITE64, open.fd, from, size_of::<u64>(), offset, 0, 0) };
    }
}

impl Open {
    fn new() -> Option<Open> {
        let fd = usize::try_from(backend::open_plain(NAME.as_bytes()).ok()?).ok()?;
        let mapping = Mapping {
            address: 0,
            bytes: BYTES,
            protection: PROT_READ,
            flags: MAP_SHARED,
            file: Some((fd, 0)),
        };
        let whole = kernel::own_file_bytes(fd) == Some(BYTES as u64);
        // SAFETY: a new mapping, anywhere, of a file that nobody cuts.
        match whole.then(|| unsafe { kernel::map(&mapping) }).flatten() {
            Some(table) => Some(Open { fd, table }),
            None => {
                kernel::close(fd);
                None
            }
        }
    }

    fn table(&self) -> &[AtomicU64] {
        let first = core::ptr::with_exposed_provenance(self.table);
        // SAFETY: the mapping is of this size, and lives as long as this.
        unsafe { core::slice::from_raw_parts(first, SLOTS) }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it any more.
        unsafe { kernel::unmap(self.table, BYTES) };
        kernel::close(self.fd);
    }
}

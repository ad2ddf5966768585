//! A transfer in pieces of the host's memory, and how far it has come.

use mayfly_sys::{
    Errno,
    file::IoVec,
    user::{copy_in, copy_out_shown},
};
use mayfly_types::limits::TRANSFER_BYTES_MAX;

/// Most bytes that one call transfers (`MAX_RW_COUNT`).
pub const TRANSFER_MAX: usize = 0x7fff_f000;

/// The rest of a transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces<'p> {
    list: &'p [IoVec],
    /// Bytes of the first piece that are done.
    skip: usize,
    /// Bytes left in all.
    left: usize,
}

impl<'p> Pieces<'p> {
    /// A whole transfer, cut to [`TRANSFER_MAX`].
    ///
    /// # Errors
    /// EINVAL when the lengths add up to more than a signed number holds.
    pub(crate) fn new(list: &'p [IoVec]) -> Result<Self, Errno> {
        let total = list
            .iter()
            .try_fold(0_usize, |sum, piece| sum.checked_add(piece.bytes))
            .filter(|sum| *sum <= isize::MAX as usize)
            .ok_or(Errno::EINVAL)?;
        Ok(Pieces { list, skip: 0, left: total.min(TRANSFER_MAX) })
    }

    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// At most `bytes` of what is left.
    pub(super) fn cut_to(self, bytes: u64) -> Self {
        let left = usize::try_from(bytes).map_or(self.left, |bytes| bytes.min(self.left));
        Pieces { left, ..self }
    }

    /// The list as the host gave it, while nothing is done and nothing was cut off.
    pub(super) fn untouched(&self) -> Option<&'p [IoVec]> {
        let whole = self.list.iter().fold(0_usize, |sum, piece| sum.wrapping_add(piece.bytes));
        (self.skip == 0 && whole == self.left).then_some(self.list)
    }

    /// Is what is left one run of memory?
    pub(super) fn is_one_run(&self) -> bool {
        self.run().is_none_or(|run| run.bytes == self.left)
    }

    /// The next run of memory.
    pub(super) fn run(&self) -> Option<IoVec> {
        let mut skip = self.skip;
        if self.left == 0 {
            return None;
        }
        for piece in self.list {
            if piece.bytes > skip {
                let bytes = (piece.bytes - skip).min(self.left);
                return Some(IoVec { base: piece.base.wrapping_add(skip), bytes });
            }
            skip -= piece.bytes;
        }
        None
    }

    /// The rest, when it is one run of memory and several transfers long.
    pub(super) fn long_run(&self) -> Option<IoVec> {
        let long = self.left > TRANSFER_BYTES_MAX && self.is_one_run();
        self.run().filter(|_| long)
    }

    /// `count` more bytes are done.
    pub(super) fn advance(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count);
        self.skip += count;
        while let Some((first, rest)) = self.list.split_first()
            && self.skip >= first.bytes
        {
            self.skip -= first.bytes;
            self.list = rest;
        }
    }

    /// Writes `bytes` to the pieces and advances.
    ///
    /// # Safety
    /// The host wants its memory at the pieces written.
    pub(crate) unsafe fn scatter(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        // SAFETY: passed on to the caller.
        unsafe { self.scatter_from(bytes.as_ptr(), bytes.len()) }
    }

    /// The same with `bytes` bytes at `from`, which others may be changing.
    ///
    /// # Safety
    /// As [`Pieces::scatter`]; so many bytes are mapped at `from`.
    pub(crate) unsafe fn scatter_from(
        &mut self,
        from: *const u8,
        bytes: usize,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        while let Some(run) = self.run() {
            let now = run.bytes.min(bytes - done);
            if now == 0 {
                break;
            }
            // SAFETY: passed on to the caller.
            unsafe { copy_out_shown(from.wrapping_add(done), now, run.base)? };
            self.advance(now);
            done += now;
        }
        Ok(done)
    }

    /// Copies what is left, as far as it fits and can be read, to `to` without advancing.
    ///
    /// # Errors
    /// EFAULT when nothing can be read.
    ///
    /// # Safety
    /// The host wants its memory at the pieces read.
    pub(super) unsafe fn gather(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let mut from = *self;
        let mut done = 0;
        while let Some(run) = from.run() {
            let room = to.get_mut(done..).unwrap_or(&mut []);
            let count = run.bytes.min(room.len());
            let Some(room) = room.get_mut(..count).filter(|room| !room.is_empty()) else { break };
            // SAFETY: passed on to the caller.
            if let Err(errno) = unsafe { copy_in(run.base, room) } {
                return if done == 0 { Err(errno) } else { Ok(done) };
            }
            from.advance(count);
            done += count;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn scattering_and_gathering_cross_piece_bounds() {
        let mut first = vec![0_u8; 3];
        let mut second = vec![0_u8; 5];
        let list = [
            IoVec { base: first.as_mut_ptr(), bytes: 3 },
            IoVec { base: core::ptr::null_mut(), bytes: 0 },
            IoVec { base: second.as_mut_ptr(), bytes: 5 },
        ];
        let mut pieces = Pieces::new(&list).expect("small");
        // SAFETY: the pieces are the vectors above.
        assert_eq!(unsafe { pieces.scatter(b"abcde") }, Ok(5));
        assert_eq!(pieces.left(), 3);
        // SAFETY: as above.
        assert_eq!(unsafe { pieces.scatter(b"fghij") }, Ok(3));
        assert_eq!((first.as_slice(), second.as_slice()), (&b"abc"[..], &b"defgh"[..]));
        let mut copy = [0_u8; 6];
        // SAFETY: as above.
        let count = unsafe { Pieces::new(&list).expect("small").gather(&mut copy) };
        assert_eq!((count, &copy), (Ok(6), b"abcdef"));
    }
}

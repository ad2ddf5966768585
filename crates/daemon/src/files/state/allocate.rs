//! What [`crate::files::allocate`] keeps and works with.

use mayfly_object::Allocation;
use mayfly_types::Errno;
use mayfly_wire::{ALLOCATE_KEEP_SIZE, ALLOCATE_PUNCH_HOLE, ALLOCATE_ZERO_RANGE, Allocate};

use crate::fault::Outcome;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) what: Allocation,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

pub(crate) const KEEP_AND_PUNCH: u32 = ALLOCATE_KEEP_SIZE | ALLOCATE_PUNCH_HOLE;

pub(crate) const KEEP_AND_ZERO: u32 = ALLOCATE_KEEP_SIZE | ALLOCATE_ZERO_RANGE;

pub(crate) fn what_of(mode: u32) -> Option<Allocation> {
    Some(match mode {
        0 => Allocation::Extend,
        ALLOCATE_KEEP_SIZE => Allocation::Reserve,
        KEEP_AND_PUNCH => Allocation::Punch,
        ALLOCATE_ZERO_RANGE => Allocation::ZeroExtend,
        KEEP_AND_ZERO => Allocation::Zero,
        _ => return None,
    })
}

impl Wish {
    /// The checks of the kernel's `vfs_fallocate`, in its order.
    pub(crate) fn of(ask: &Allocate) -> Outcome<Wish> {
        let signed = |value: u64| value <= i64::MAX as u64;
        if !signed(ask.offset) || !signed(ask.bytes) || ask.bytes == 0 {
            return Err(Errno::EINVAL.into());
        }
        let what = what_of(ask.mode).ok_or(Errno::EOPNOTSUPP)?;
        Ok(Wish { what, start: ask.offset, end: ask.offset + ask.bytes })
    }

    pub(crate) fn extends(self) -> bool {
        matches!(self.what, Allocation::Extend | Allocation::ZeroExtend)
    }

    pub(crate) fn zeroes(self) -> bool {
        !matches!(self.what, Allocation::Extend | Allocation::Reserve)
    }

    /// The same as far as it concerns a file of this length.
    pub(crate) fn within(self, size_bytes: u64) -> Wish {
        match self.what {
            Allocation::Reserve | Allocation::Zero => {
                Wish { end: self.end.min(size_bytes).max(self.start), ..self }
            }
            // A whole block goes with its last byte, so a hole may reach beyond the end.
            Allocation::Extend | Allocation::ZeroExtend | Allocation::Punch => self,
        }
    }
}

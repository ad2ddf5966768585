//! The machine context that the kernel saves when it delivers a signal (x86-64 `ucontext_t`).

/// Byte offset of the interrupted instruction pointer.
pub(crate) const RIP: usize = 168;
/// Byte offset of the interrupted rdx.
pub(crate) const RDX: usize = 136;

/// `ucontext_t` up to and including the signal mask.
#[repr(C)]
pub(crate) struct Context {
    flags: u64,
    link: usize,
    stack: [usize; 3],
    /// General registers.
    pub(crate) registers: Registers,
    /// XSAVE area, or null.
    pub(crate) floating: *mut u8,
    reserved: [u64; 8],
    /// The mask that returning from the handler restores.
    pub(crate) mask: u64,
}

/// General registers in the kernel's order.
#[repr(C)]
pub(crate) struct Registers {
    pub(crate) r8: usize,
    pub(crate) r9: usize,
    pub(crate) r10: usize,
    pub(crate) r11: usize,
    pub(crate) callee_saved: [usize; 4],
    pub(crate) rdi: usize,
    pub(crate) rsi: usize,
    pub(crate) rbp: usize,
    pub(crate) rbx: usize,
    pub(crate) rdx: usize,
    pub(crate) rax: usize,
    pub(crate) rcx: usize,
    pub(crate) rsp: usize,
    pub(crate) rip: usize,
    pub(crate) rest: [usize; 6],
}

const _: () = assert!(core::mem::offset_of!(Context, mask) == 296);
const _: () = assert!(core::mem::offset_of!(Context, floating) == 224);
const _: () = assert!(core::mem::offset_of!(Context, registers) + 16 * 8 == RIP);
const _: () = assert!(core::mem::offset_of!(Context, registers) + 12 * 8 == RDX);

impl Context {
    /// Sets xmm0–15 as they will be after the handler returned.
    ///
    /// # Safety
    /// `self` was written by the kernel for the handler that is running.
    #[inline(always)]
    pub(crate) unsafe fn set_vectors(&mut self, vectors: &[[u64; 2]; 16]) {
        const VECTORS: usize = 160;
        const SOFTWARE_RESERVED: usize = 464;
        const EXTENDED: u32 = 0x4650_5853;
        const PRESENT: usize = 512;
        const PRESENT_SSE: u64 = 2;
        if self.floating.is_null() {
            return;
        }
        // SAFETY: a non-null pointer leads to an FXSAVE area of 512 bytes; when its
        // software-reserved part carries the mark, an XSAVE header follows.
        unsafe {
            let target = self.floating.add(VECTORS).cast::<[u64; 2]>();
            for (index, vector) in vectors.iter().enumerate() {
                // One by one and volatile: a call to memcpy would leave the wrapper's section.
                target.add(index).write_volatile(*vector);
            }
            if self.floating.add(SOFTWARE_RESERVED).cast::<u32>().read_unaligned() == EXTENDED {
                let present = self.floating.add(PRESENT).cast::<u64>();
                present.write_unaligned(present.read_unaligned() | PRESENT_SSE);
            }
        }
    }
}

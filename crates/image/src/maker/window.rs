//! Chooses, for each `syscall`, the instructions that a five-byte jump replaces.
//!
//! A `syscall` has two bytes, so neighbours have to move. The *window* is a run of whole
//! instructions around it, at least as long as the jump, into whose inside nothing branches.
//! Everything in it moves to the trampoline. Windows that need nothing after the `syscall` are
//! preferred: then the bytes from the `syscall` on stay in place, and an address behind it is valid
//! in the patched text as well.

use std::collections::HashSet;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register, RflagsBits};

use super::sweep::Sweep;
use super::{Reason, Unpatched};

/// Bytes of `jmp rel32`.
pub(super) const JUMP_BYTES: usize = 5;
/// Number of rt_sigreturn.
const SIGNAL_RETURN: u64 = 15;
/// More neighbours than this on a side are never needed: the shortest take one byte each.
const NEIGHBOURS_MAX: usize = 4;

/// One `syscall` and the instructions that move with it.
pub(super) struct Window {
    /// Moved instructions in front of the `syscall`.
    pub(super) before: Vec<Instruction>,
    /// The `syscall`.
    pub(super) syscall: Instruction,
    /// Moved instructions behind it.
    pub(super) after: Vec<Instruction>,
}

impl Window {
    /// Address of the first moved instruction.
    pub(super) fn start(&self) -> u64 {
        self.before.first().unwrap_or(&self.syscall).ip()
    }

    /// Address behind the last moved instruction.
    pub(super) fn end(&self) -> u64 {
        self.after.last().unwrap_or(&self.syscall).next_ip()
    }

    /// Whether control can leave the window at its end.
    pub(super) fn falls_through(&self) -> bool {
        let last = self.after.last().unwrap_or(&self.syscall);
        !matches!(last.flow_control(), FlowControl::UnconditionalBranch | FlowControl::Return)
    }
}

/// What to patch, and what not.
pub(super) struct Plan {
    /// Windows by address; they do not overlap.
    pub(super) windows: Vec<Window>,
    /// The rest.
    pub(super) unpatched: Vec<Unpatched>,
}

/// Finds a window for every `syscall` of the code.
pub(super) fn plan(sweep: &Sweep) -> Plan {
    let undecodable = |vaddr: &u64| Unpatched { vaddr: *vaddr, why: Reason::Undecodable };
    let mut plan =
        Plan { windows: Vec::new(), unpatched: sweep.unreliable.iter().map(undecodable).collect() };
    for stretch in &sweep.stretches {
        let mut free_from = 0;
        for at in 0..stretch.len() {
            if stretch[at].code() != Code::Syscall {
                continue;
            }
            let vaddr = stretch[at].ip();
            if returns_from_signal(stretch, at) {
                plan.unpatched.push(Unpatched { vaddr, why: Reason::SignalReturn });
            } else if needs_flags(&stretch[at + 1..]) {
                plan.unpatched.push(Unpatched { vaddr, why: Reason::Flags });
            } else if let Some((first, last)) = choose(stretch, at, free_from, &sweep.targets) {
                plan.windows.push(Window {
                    before: stretch[first..at].to_vec(),
                    syscall: stretch[at],
                    after: stretch[at + 1..=last].to_vec(),
                });
                free_from = last + 1;
            } else {
                plan.unpatched.push(Unpatched { vaddr, why: Reason::NoRoom });
            }
        }
    }
    plan
}

/// Do instructions behind a `syscall` look at flags from in front of it? The kernel keeps them, a
/// trampoline does not, and compilers may be told that they are kept.
fn needs_flags(behind: &[Instruction]) -> bool {
    const ARITHMETIC: u32 = RflagsBits::OF
        | RflagsBits::SF
        | RflagsBits::ZF
        | RflagsBits::AF
        | RflagsBits::CF
        | RflagsBits::PF;
    let mut kept = ARITHMETIC;
    for instruction in behind.iter().filter(|instruction| instruction.code() != Code::Syscall) {
        if instruction.rflags_read() & kept != 0 {
            return true;
        }
        kept &= !instruction.rflags_modified();
        // No flags are handed to a function, or back. Where a jump leads is not looked at.
        if kept == 0 || instruction.flow_control() != FlowControl::Next {
            return false;
        }
    }
    false
}

/// `mov $15, %eax; syscall`: debuggers and unwinders recognise a signal frame by these bytes.
fn returns_from_signal(stretch: &[Instruction], at: usize) -> bool {
    let Some(previous) = at.checked_sub(1).and_then(|index| stretch.get(index)) else {
        return false;
    };
    let loads = previous.mnemonic() == Mnemonic::Mov
        && matches!(previous.op0_register(), Register::RAX | Register::EAX)
        && !matches!(previous.op1_kind(), OpKind::Register | OpKind::Memory);
    loads && previous.immediate(1) == SIGNAL_RETURN
}

/// First and last index of the best window, if there is one.
fn choose(
    stretch: &[Instruction],
    at: usize,
    free_from: usize,
    targets: &HashSet<u64>,
) -> Option<(usize, usize)> {
    let before_max = (0..=NEIGHBOURS_MAX)
        .take_while(|count| {
            *count == 0 || at >= free_from + count && may_precede(&stretch[at - count])
        })
        .last()?;
    let after_max = (0..=NEIGHBOURS_MAX)
        .take_while(|count| *count == 0 || may_follow(stretch, at, *count))
        .last()?;
    let candidates = (0..=before_max)
        .flat_map(|before| (0..=after_max).map(move |after| (at - before, at + after)));
    candidates
        .filter(|(first, last)| fits(&stretch[*first..=*last], targets))
        .min_by_key(|(first, last)| (*last > at, last - first))
}

fn fits(window: &[Instruction], targets: &HashSet<u64>) -> bool {
    let bytes: usize = window.iter().map(Instruction::len).sum();
    bytes >= JUMP_BYTES && !window[1..].iter().any(|inside| targets.contains(&inside.ip()))
}

fn may_precede(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Next
        && !matches!(instruction.code(), Code::Endbr64 | Code::Syscall)
        && movable(instruction)
}

fn may_follow(stretch: &[Instruction], at: usize, count: usize) -> bool {
    let Some(instruction) = stretch.get(at + count) else { return false };
    let previous_continues = matches!(
        stretch[at + count - 1].flow_control(),
        FlowControl::Next | FlowControl::Call | FlowControl::ConditionalBranch
    );
    let allowed = match instruction.flow_control() {
        FlowControl::Next => !matches!(instruction.code(), Code::Endbr64),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
            super::sweep::has_near_target(instruction)
        }
        FlowControl::Return => true,
        // A call would leave a return address in the trampoline, where no unwinder finds its way.
        _ => false,
    };
    previous_continues && allowed && instruction.code() != Code::Syscall && movable(instruction)
}

/// Whether the instruction can be encoded at another address: loop and jrcxz have short forms only.
fn movable(instruction: &Instruction) -> bool {
    let short_only = instruction.is_loop() || instruction.is_loopcc() || instruction.is_jcx_short();
    !short_only
        && instruction.mnemonic() != Mnemonic::Xbegin
        && !(instruction.is_ip_rel_memory_operand() && instruction.memory_base() == Register::EIP)
}

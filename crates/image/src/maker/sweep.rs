//! Decodes a library's code and collects every address that control may come to other than by
//! falling through.
//!
//! Code is decoded linearly from each known function start to the next; a start in the middle of an
//! instruction or bytes that do not decode make that stretch and the next *unreliable*, and nothing
//! in them is patched. Branch targets are: near branches, function starts, addresses taken with
//! `lea`, words in data that point into the code, and entries of the position-independent jump
//! tables that compilers emit for `switch` (32-bit offsets relative to the table, whose address is
//! taken in a function that jumps to where a register says). Taking too many is harmless, so
//! nothing tries to tell a table from an array that looks like one.
//!
//! Of a program with 50 MB of code few stretches have a `syscall`. Only these are kept, and only
//! targets in them; the others are decoded for their branches.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::elf::Library;

/// Decoded code.
pub(super) struct Sweep {
    /// Stretches with a `syscall` that decoded cleanly, by address; instructions are contiguous
    /// within one.
    pub(super) stretches: Vec<Vec<Instruction>>,
    /// Addresses in these that are or may be jumped to.
    pub(super) targets: HashSet<u64>,
    /// Addresses where the bytes of a `syscall` occur in unreliable stretches.
    pub(super) unreliable: Vec<u64>,
}

/// Addresses that are or may be jumped to, as far as anybody asks.
struct Targets {
    /// Stretches that have the bytes of a `syscall`, by their start.
    asked_for: BTreeMap<u64, u64>,
    found: HashSet<u64>,
    /// Addresses of data that are taken, and whether by a function that jumps to where a register
    /// says: only there is a jump table.
    taken: BTreeMap<u64, bool>,
}

impl Targets {
    fn insert(&mut self, vaddr: u64) {
        let stretch = self.asked_for.range(..=vaddr).next_back();
        if stretch.is_some_and(|(_, end)| vaddr < *end) {
            self.found.insert(vaddr);
        }
    }
}

/// Decodes all code of `library`.
pub(super) fn sweep(library: &Library<'_>) -> Sweep {
    let cut: Vec<Vec<Range<u64>>> =
        library.code.iter().map(|range| stretches(library, range)).collect();
    let has_syscall = |stretch: &Range<u64>| !byte_matches(library, stretch).is_empty();
    let asked_for = cut.iter().flatten().filter(|stretch| has_syscall(stretch));
    let asked_for = asked_for.map(|stretch| (stretch.start, stretch.end)).collect();
    let mut targets = Targets { asked_for, found: HashSet::new(), taken: BTreeMap::new() };
    let (mut kept, mut unreliable) = (Vec::new(), Vec::new());
    for range in &cut {
        let mut in_step = true;
        for stretch in range {
            let decoded = decode(library, stretch);
            let arrived_in_step = std::mem::replace(&mut in_step, decoded.is_some());
            match decoded {
                Some(instructions) if arrived_in_step => {
                    note_targets(library, &instructions, &mut targets);
                    if targets.asked_for.contains_key(&stretch.start) {
                        kept.push(instructions);
                    }
                }
                _ => unreliable.extend(byte_matches(library, stretch)),
            }
        }
    }
    for start in &library.starts {
        targets.insert(*start);
    }
    note_tables(library, &mut targets);
    for (vaddr, bytes) in &library.data {
        note_pointers(library, *vaddr, bytes, &mut targets);
    }
    Sweep { stretches: kept, targets: targets.found, unreliable }
}

/// Cuts a range of code at the known function starts.
fn stretches(library: &Library<'_>, range: &Range<u64>) -> Vec<Range<u64>> {
    let mut cuts: Vec<u64> = library.starts.range(range.clone()).copied().collect();
    cuts.push(range.end);
    if cuts.first() != Some(&range.start) {
        cuts.insert(0, range.start);
    }
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

fn decode(library: &Library<'_>, stretch: &Range<u64>) -> Option<Vec<Instruction>> {
    let bytes = library.code_bytes(stretch);
    let mut decoder = Decoder::with_ip(64, bytes, stretch.start, DecoderOptions::NONE);
    let mut instructions = Vec::with_capacity(bytes.len() / 4);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        instructions.push(instruction);
    }
    Some(instructions)
}

fn byte_matches(library: &Library<'_>, stretch: &Range<u64>) -> Vec<u64> {
    let bytes = library.code_bytes(stretch);
    let matches = bytes.windows(2).enumerate().filter(|(_, pair)| *pair == [0x0f, 0x05]);
    matches.map(|(at, _)| stretch.start + at as u64).collect()
}

fn note_targets(library: &Library<'_>, instructions: &[Instruction], targets: &mut Targets) {
    let jumps = instructions.iter().any(|instruction| {
        instruction.flow_control() == FlowControl::IndirectBranch
            && instruction.op0_kind() == OpKind::Register
    });
    for instruction in instructions {
        if has_near_target(instruction) {
            targets.insert(instruction.near_branch_target());
        }
        let takes_address = matches!(instruction.code(), Code::Lea_r64_m | Code::Lea_r32_m);
        if takes_address && instruction.is_ip_rel_memory_operand() {
            let address = instruction.ip_rel_memory_address();
            if library.in_text(address) {
                targets.insert(address);
            } else {
                *targets.taken.entry(address).or_default() |= jumps;
            }
        }
    }
}

/// Whether the instruction branches to an address that is part of it.
pub(super) fn has_near_target(instruction: &Instruction) -> bool {
    let near = matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    );
    near && instruction.flow_control() != FlowControl::Next
}

/// Entries of what may be jump tables, as far as they lead into the code. A table ends where the
/// next address that is taken begins.
fn note_tables(library: &Library<'_>, targets: &mut Targets) {
    let data: BTreeMap<u64, &[u8]> = library.data.iter().copied().collect();
    let taken = std::mem::take(&mut targets.taken);
    let ends = taken.keys().skip(1).copied().chain([u64::MAX]);
    for ((table, jumps), end) in taken.iter().zip(ends) {
        if !jumps {
            continue;
        }
        let Some((segment, bytes)) = data.range(..=table).next_back() else { continue };
        let bytes = bytes.get((table - segment) as usize..).unwrap_or(&[]);
        let entries = bytes.as_chunks::<4>().0.iter().take(((end - table) / 4) as usize);
        for entry in entries {
            let target = table.wrapping_add_signed(i64::from(i32::from_le_bytes(*entry)));
            if !library.in_text(target) {
                break;
            }
            targets.insert(target);
        }
    }
}

/// Words that, as they stand in the file, point into the code (relocation addends included).
fn note_pointers(library: &Library<'_>, vaddr: u64, bytes: &[u8], targets: &mut Targets) {
    let skew = (vaddr.next_multiple_of(8) - vaddr) as usize;
    for word in bytes.get(skew..).unwrap_or(&[]).as_chunks::<8>().0 {
        let pointer = u64::from_le_bytes(*word);
        if library.in_text(pointer) {
            targets.insert(pointer);
        }
    }
}

//! Decodes a library's code and collects every address that control may come to other than by
//! falling through.
//!
//! Code is decoded linearly from each known function start to the next; a start in the middle of an
//! instruction or bytes that do not decode make that stretch and the next *unreliable*, and nothing
//! in them is patched. Branch targets are: near branches, function starts, addresses taken with
//! `lea`, words in data that point into the code, and entries of the position-independent jump
//! tables that compilers emit for `switch` (32-bit offsets relative to the table). Taking too many
//! is harmless, so nothing tries to tell a table from an array that looks like one.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::elf::Library;

/// Decoded code.
pub(super) struct Sweep {
    /// Stretches that decoded cleanly, by address; instructions are contiguous within one.
    pub(super) stretches: Vec<Vec<Instruction>>,
    /// Addresses that are or may be jumped to.
    pub(super) targets: HashSet<u64>,
    /// Addresses where the bytes of a `syscall` occur in unreliable stretches.
    pub(super) unreliable: Vec<u64>,
}

/// Decodes all code of `library`.
pub(super) fn sweep(library: &Library<'_>) -> Sweep {
    let mut sweep =
        Sweep { stretches: Vec::new(), targets: HashSet::new(), unreliable: Vec::new() };
    sweep.targets.extend(&library.starts);
    for range in &library.code {
        let mut in_step = true;
        for stretch in stretches(library, range) {
            let decoded = decode(library, &stretch);
            let arrived_in_step = std::mem::replace(&mut in_step, decoded.is_some());
            match decoded {
                Some(instructions) if arrived_in_step => sweep.stretches.push(instructions),
                _ => sweep.unreliable.extend(byte_matches(library, &stretch)),
            }
        }
    }
    let data: BTreeMap<u64, &[u8]> = library.data.iter().copied().collect();
    for instruction in sweep.stretches.iter().flatten() {
        note_targets(library, &data, instruction, &mut sweep.targets);
    }
    for (vaddr, bytes) in &library.data {
        note_pointers(library, *vaddr, bytes, &mut sweep.targets);
    }
    sweep
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

fn note_targets(
    library: &Library<'_>,
    data: &BTreeMap<u64, &[u8]>,
    instruction: &Instruction,
    targets: &mut HashSet<u64>,
) {
    if has_near_target(instruction) {
        targets.insert(instruction.near_branch_target());
    }
    let takes_address = matches!(instruction.code(), Code::Lea_r64_m | Code::Lea_r32_m);
    if takes_address && instruction.is_ip_rel_memory_operand() {
        let address = instruction.ip_rel_memory_address();
        if library.in_text(address) {
            targets.insert(address);
        } else {
            note_table(library, data, address, targets);
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

/// Entries of a jump table at `table`, as far as they lead into the code.
fn note_table(
    library: &Library<'_>,
    data: &BTreeMap<u64, &[u8]>,
    table: u64,
    targets: &mut HashSet<u64>,
) {
    let Some((segment, bytes)) = data.range(..=table).next_back() else { return };
    let Some(bytes) = bytes.get((table - segment) as usize..) else { return };
    for entry in bytes.as_chunks::<4>().0 {
        let target = table.wrapping_add_signed(i64::from(i32::from_le_bytes(*entry)));
        if !library.in_text(target) {
            break;
        }
        targets.insert(target);
    }
}

/// Words that, as they stand in the file, point into the code (relocation addends included).
fn note_pointers(library: &Library<'_>, vaddr: u64, bytes: &[u8], targets: &mut HashSet<u64>) {
    let skew = (vaddr.next_multiple_of(8) - vaddr) as usize;
    for word in bytes.get(skew..).unwrap_or(&[]).as_chunks::<8>().0 {
        let pointer = u64::from_le_bytes(*word);
        if library.in_text(pointer) {
            targets.insert(pointer);
        }
    }
}

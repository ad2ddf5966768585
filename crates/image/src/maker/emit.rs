//! Writes trampolines and assembles the image.
//!
//! One site of the area:
//!
//! ```text
//!          [instructions moved from in front of the syscall]
//! filter:  cmp rax, 512 ; jae pass
//!          mov r11, [classes] ; cmp byte [r11 + rax], 0 ; jne slow
//! pass:    syscall
//!          [instructions moved from behind it] ; jmp back
//! slow:    lea rcx, [pass] ; movzx r11d, byte [r11 + rax] ; cmp r11d, 6 ; jb common
//!          jmp [entry]
//! ```
//!
//! Calls on paths (classes 6, 7) go to the hook's entry by the shortest way. `common` looks at the
//! class and, for calls on a descriptor, at the descriptor table, and then jumps to the entry or to
//! `pass` (in rcx). Calls of the watched classes (4, 5) go to the entry while the watched word is
//! not zero. The entry finds in r11 the class or, for calls on a descriptor and watched ones, the
//! address of a word. The filter uses rcx, r11 and the flags only: `syscall` overwrites the
//! registers, and no code relies on flags across it.

use iced_x86::{Encoder, Instruction};

use super::elf::Library;
use super::sweep::has_near_target;
use super::window::{JUMP_BYTES, Plan, Window};
use super::{BuiltImage, Reason, Unpatched};
use crate::format::{
    CALLS_MAX, DELTA, DESCRIPTORS_MAX, FILTER_BYTES, Header, KEY_BYTES_MAX, PAGE_BYTES,
    SLOT_CLASSES, SLOT_DESCRIPTORS, SLOT_ENTRY, SLOT_WATCHED, Table,
};

/// Trampolines begin on such boundaries.
const SITE_ALIGNMENT: usize = 16;

/// The area and the patched text while they grow.
struct Emitter {
    text_vaddr: u64,
    /// From the text to the area.
    delta: i64,
    text: Vec<u8>,
    area: Vec<u8>,
    common: usize,
    points: Vec<(u32, u32)>,
    text_relocations: Vec<u32>,
    area_relocations: Vec<u32>,
}

/// Makes the image of `library` with the windows of `plan` redirected.
pub(super) fn emit(library: &Library<'_>, plan: Plan) -> Result<BuiltImage, String> {
    let mut unpatched = plan.unpatched;
    let mut emitter = Emitter {
        text_vaddr: library.text_vaddr,
        // There is nothing below the place of a program that has one.
        delta: if library.has_its_place { -DELTA } else { DELTA },
        text: library.text.clone(),
        area: vec![0; PAGE_BYTES],
        common: PAGE_BYTES,
        points: Vec::new(),
        text_relocations: Vec::new(),
        area_relocations: Vec::new(),
    };
    emitter.common();
    let common_end = emitter.area.len();
    let mut sites = 0;
    for window in &plan.windows {
        if emitter.site(window).is_some() {
            sites += 1;
        } else {
            unpatched.push(Unpatched { vaddr: window.syscall.ip(), why: Reason::NoRoom });
        }
    }
    unpatched.sort_by_key(|left| left.vaddr);
    emitter.finish(library, common_end, sites, unpatched)
}

impl Emitter {
    fn area_vaddr(&self) -> u64 {
        self.text_vaddr.wrapping_add_signed(self.delta)
    }

    /// Address, in the library's numbering, of the next byte of the area.
    fn here(&self) -> u64 {
        self.area_vaddr().wrapping_add(self.area.len() as u64)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.area.extend_from_slice(bytes);
    }

    /// An instruction whose last four bytes are a displacement to the area offset `to`.
    fn put_to(&mut self, opcode: &[u8], to: usize) {
        self.put(opcode);
        let from = self.area.len() + 4;
        self.put(&(to as i64 - from as i64).to_le_bytes()[..4]);
    }

    /// The shared last part of the filter. rcx = address of the site's `syscall`, r11d = class.
    fn common(&mut self) {
        self.put(&[0x41, 0x83, 0xfb, 0x03]); // cmp r11d, 3
        let to_fifth = self.short_jump(&[0x74]); // je fifth
        let to_watched = self.short_jump(&[0x77]); // ja watched
        self.put(&[0x41, 0x83, 0xfb, 0x02]); // cmp r11d, 2
        let to_go = self.short_jump(&[0x74]); // je go
        let first = self.area.len();
        self.put(&[0x41, 0x89, 0xfb]); // first: mov r11d, edi
        let check = self.area.len();
        self.put(&[0x41, 0x81, 0xfb]); // check: cmp r11d, DESCRIPTORS_MAX
        self.put(&(DESCRIPTORS_MAX as u32).to_le_bytes());
        let to_pass = self.short_jump(&[0x73]); // jae pass
        self.put(&[0x49, 0xc1, 0xe3, 0x02]); // shl r11, 2
        self.put_to(&[0x4c, 0x03, 0x1d], SLOT_DESCRIPTORS); // add r11, [descriptors]
        self.put(&[0x41, 0x83, 0x3b, 0x00]); // cmp dword [r11], 0
        let also_to_pass = self.short_jump(&[0x74]); // je pass
        let go = self.area.len();
        self.put_to(&[0xff, 0x25], SLOT_ENTRY); // go: jmp [entry]
        let pass = self.area.len();
        self.put(&[0xff, 0xe1]); // pass: jmp rcx
        let fifth = self.area.len();
        self.put(&[0x45, 0x89, 0xc3]); // fifth: mov r11d, r8d
        let to_check = self.short_jump(&[0xeb]); // jmp check
        let watched = self.area.len();
        self.put_to(&[0x4c, 0x8b, 0x1d], SLOT_WATCHED); // watched: mov r11, [watched]
        self.put(&[0x41, 0x83, 0x3b, 0x00]); // cmp dword [r11], 0
        let to_first = self.short_jump(&[0x74]); // je first
        let also_to_go = self.short_jump(&[0xeb]); // jmp go
        for (jump, target) in [
            (to_fifth, fifth),
            (to_watched, watched),
            (to_go, go),
            (to_pass, pass),
            (also_to_pass, pass),
            (to_check, check),
            (to_first, first),
            (also_to_go, go),
        ] {
            self.area[jump - 1] = (target as i64 - jump as i64) as u8;
        }
    }

    /// A jump with a displacement of one byte, to be completed; returns the offset behind it.
    fn short_jump(&mut self, opcode: &[u8]) -> usize {
        self.put(opcode);
        self.put(&[0]);
        self.area.len()
    }

    /// Writes the trampoline of one site and the jump to it; `None` (and nothing written) when an
    /// instruction cannot be moved.
    fn site(&mut self, window: &Window) -> Option<()> {
        let (area_bytes, points, relocations) =
            (self.area.len(), self.points.len(), self.area_relocations.len());
        let written = self.trampoline(window);
        if let Some(start) = written {
            self.patch(window, start);
        } else {
            self.area.truncate(area_bytes);
            self.points.truncate(points);
            self.area_relocations.truncate(relocations);
        }
        written.map(|_| ())
    }

    fn trampoline(&mut self, window: &Window) -> Option<usize> {
        self.area.resize(self.area.len().next_multiple_of(SITE_ALIGNMENT), 0xcc);
        let start = self.area.len();
        for instruction in &window.before {
            self.moved(instruction)?;
        }
        let to_slow = self.filter(window.syscall.ip());
        let pass = self.area.len();
        self.point(window.syscall.ip());
        self.put(&[0x0f, 0x05]);
        for instruction in &window.after {
            self.moved(instruction)?;
        }
        if window.falls_through() {
            self.point(window.end());
            self.put(&[0xe9]);
            self.put_back(window.end())?;
        }
        let slow = self.area.len();
        let distance = (slow - to_slow) as u32;
        self.area[to_slow - 4..to_slow].copy_from_slice(&distance.to_le_bytes());
        self.point(window.syscall.ip());
        self.put_to(&[0x48, 0x8d, 0x0d], pass); // lea rcx, [pass]
        self.point(window.syscall.ip());
        self.put(&[0x45, 0x0f, 0xb6, 0x1c, 0x03]); // movzx r11d, byte [r11 + rax]
        self.point(window.syscall.ip());
        self.put(&[0x41, 0x83, 0xfb, 0x06]); // cmp r11d, 6
        self.point(window.syscall.ip());
        self.put_to(&[0x0f, 0x82], self.common); // jb common
        self.point(window.syscall.ip());
        self.put_to(&[0xff, 0x25], SLOT_ENTRY); // jmp [entry]
        Some(start)
    }

    /// The first half of the filter; returns the offset behind the branch to `slow`, to be
    /// completed.
    fn filter(&mut self, syscall: u64) -> usize {
        let start = self.area.len();
        let calls_max = (CALLS_MAX as u32).to_le_bytes();
        self.point(syscall);
        self.put(&[0x48, 0x3d]); // cmp rax, CALLS_MAX
        self.put(&calls_max);
        self.point(syscall);
        self.put(&[0x73, 18]); // jae pass
        self.point(syscall);
        self.put_to(&[0x4c, 0x8b, 0x1d], SLOT_CLASSES); // mov r11, [classes]
        self.point(syscall);
        self.put(&[0x41, 0x80, 0x3c, 0x03, 0x00]); // cmp byte [r11 + rax], 0
        self.point(syscall);
        self.put(&[0x0f, 0x85, 0, 0, 0, 0]); // jne slow
        debug_assert_eq!(self.area.len() - start, FILTER_BYTES, "the hook steps back this far");
        self.area.len()
    }

    /// The next instruction of the area stands for the one at `vaddr`.
    fn point(&mut self, vaddr: u64) {
        self.points.push((self.area.len() as u32, (vaddr - self.text_vaddr) as u32));
    }

    /// Re-encodes an instruction of the library here.
    fn moved(&mut self, instruction: &Instruction) -> Option<()> {
        self.point(instruction.ip());
        let mut moved = *instruction;
        if has_near_target(&moved) {
            moved.as_near_branch();
        }
        let here = self.here();
        let mut encoder = Encoder::new(64);
        let bytes = encoder.encode(&moved, here).ok()?;
        let encoded = encoder.take_buffer();
        let at = self.area.len();
        if has_near_target(&moved) {
            self.area_relocations.push((at + bytes - 4) as u32);
        } else if moved.is_ip_rel_memory_operand() {
            let offset = encoder.get_constant_offsets().displacement_offset();
            self.area_relocations.push((at + offset) as u32);
        }
        self.put(&encoded);
        Some(())
    }

    /// The displacement of a jump into the library's text.
    fn put_back(&mut self, vaddr: u64) -> Option<()> {
        let from = self.here().wrapping_add(4);
        let distance = i32::try_from(vaddr.wrapping_sub(from).cast_signed()).ok()?;
        self.area_relocations.push(self.area.len() as u32);
        self.put(&distance.to_le_bytes());
        Some(())
    }

    /// Writes the jump over the window. Whole instructions behind it stay: they are valid code
    /// still.
    fn patch(&mut self, window: &Window, start: usize) {
        let at = (window.start() - self.text_vaddr) as usize;
        let destination = self.area_vaddr().wrapping_add(start as u64);
        let distance = destination.wrapping_sub(window.start() + JUMP_BYTES as u64) as u32;
        let all = window.before.iter().chain([&window.syscall]).chain(&window.after);
        let torn_end = all
            .map(|instruction| (instruction.next_ip() - self.text_vaddr) as usize)
            .find(|end| *end >= at + JUMP_BYTES)
            .unwrap_or(at + JUMP_BYTES);
        self.text[at] = 0xe9;
        self.text[at + 1..at + JUMP_BYTES].copy_from_slice(&distance.to_le_bytes());
        self.text[at + JUMP_BYTES..torn_end].fill(0xcc);
        self.text_relocations.push((at + 1) as u32);
    }

    fn finish(
        mut self,
        library: &Library<'_>,
        common_end: usize,
        sites: u32,
        unpatched: Vec<Unpatched>,
    ) -> Result<BuiltImage, String> {
        let code_end = self.area.len().next_multiple_of(8);
        self.area.resize(code_end, 0xcc);
        let points: Vec<u32> = self.points.iter().flat_map(|(at, of)| [*at, *of]).collect();
        let points = self.table(&points, 2);
        let text_relocations = self.table(&self.text_relocations.clone(), 1);
        let area_relocations = self.table(&self.area_relocations.clone(), 1);
        self.area.resize(self.area.len().next_multiple_of(PAGE_BYTES), 0);
        let mut key = [0; KEY_BYTES_MAX];
        key[..library.key.len()].copy_from_slice(&library.key);
        let header = Header {
            key,
            key_bytes: library.key.len() as u32,
            text_vaddr: library.text_vaddr,
            text_bytes: self.text.len() as u64,
            text_offset: PAGE_BYTES as u64,
            area_offset: (PAGE_BYTES + self.text.len()) as u64,
            area_bytes: self.area.len() as u64,
            delta: self.delta,
            code_end: code_end as u32,
            common_start: self.common as u32,
            common_end: common_end as u32,
            points,
            text_relocations,
            area_relocations,
            sites,
            unpatched: unpatched.len() as u32,
        };
        let bytes = [&header.encode()[..], &self.text, &self.area].concat();
        Header::parse(&bytes, bytes.len() as u64)
            .map_err(|invalid| format!("gives an image that is refused: {invalid:?}"))?;
        Ok(BuiltImage { bytes, header, unpatched })
    }

    fn table(&mut self, words: &[u32], words_per_record: usize) -> Table {
        let offset = self.area.len() as u32;
        for word in words {
            self.put(&word.to_le_bytes());
        }
        Table { offset, count: (words.len() / words_per_record) as u32 }
    }
}

//! What the library's file says.

use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use mayfly_hosttest as hosttest;
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

fn libraries() -> [&'static Path; 2] {
    [hosttest::library(), hosttest::shipped_library()]
}

fn with_file(path: &Path, look: impl FnOnce(&ElfFile64<'_, Endianness>)) {
    let bytes = std::fs::read(path).expect("the library was built");
    look(&ElfFile64::parse(&*bytes).expect("it is an ELF file"));
}

#[test]
fn the_library_needs_no_other() {
    for library in libraries() {
        with_file(library, |file| {
            let endian = file.endian();
            let sections = file.elf_header().sections(endian, file.data()).unwrap();
            let (entries, _) = sections.dynamic(endian, file.data()).unwrap().unwrap();
            let needed = |entry: &&object::elf::Dyn64<Endianness>| {
                entry.d_tag(endian) == u64::from(object::elf::DT_NEEDED)
            };
            assert_eq!(entries.iter().filter(needed).count(), 0);
        });
    }
}

#[test]
fn the_library_has_no_undefined_symbol() {
    for library in libraries() {
        with_file(library, |file| {
            let undefined = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
            let names: Vec<_> = undefined.filter_map(|symbol| symbol.name().ok()).collect();
            assert!(names.is_empty(), "{names:?}");
        });
    }
}

#[test]
fn the_library_exports_only_what_the_loader_asks_audit_libraries_for() {
    for library in libraries() {
        with_file(library, |file| {
            let exported = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
            let mut names: Vec<_> = exported.filter_map(|symbol| symbol.name().ok()).collect();
            names.sort_unstable();
            let expected = ["la_objopen", "la_version"];
            assert_eq!(names, expected, "any other symbol here would replace the host's");
        });
    }
}

/// A nested signal tells by the address whether it interrupted a hook; the wrapper must not look
/// like one. The only ways out are the host's handler (through a register), the code that defers,
/// and the patching of a library that was just opened, which runs with signals held back.
#[test]
fn the_signal_wrapper_stays_in_its_section() {
    for library in libraries() {
        with_file(library, |file| {
            let section = file.section_by_name("mayfly_signal").unwrap();
            let range = section.address()..section.address() + section.size();
            let bytes = section.data().unwrap();
            let out: Vec<_> = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE)
                .iter()
                .filter(|instruction| match instruction.flow_control() {
                    FlowControl::Next | FlowControl::Return => false,
                    FlowControl::Call if instruction.code() == iced_x86::Code::Syscall => false,
                    FlowControl::IndirectCall | FlowControl::IndirectBranch => {
                        instruction.memory_base() != iced_x86::Register::None
                    }
                    _ => !range.contains(&instruction.near_branch_target()),
                })
                .map(|instruction| format!("{:x}: {instruction:?}", instruction.ip()))
                .collect();
            assert!(out.len() <= 2, "{out:#?}");
        });
    }
}

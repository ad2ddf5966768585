//! Images of the system's libraries, and of bytes that are not images.

use std::path::{Path, PathBuf};

use iced_x86::{Code, Decoder, DecoderOptions};
use mayfly_image::format::{self, Header, PAGE_BYTES};
use mayfly_image::maker::{self, BuiltImage, Reason};
use proptest::prelude::*;

fn libraries() -> Vec<PathBuf> {
    let libraries = maker::libraries_of_this_process();
    assert!(!libraries.is_empty(), "this process has a C library");
    libraries
}

fn area(made: &BuiltImage) -> &[u8] {
    &made.bytes[made.header.area_offset as usize..]
}

fn text(made: &BuiltImage) -> &[u8] {
    let start = made.header.text_offset as usize;
    &made.bytes[start..start + made.header.text_bytes as usize]
}

fn words(made: &BuiltImage, table: format::Table) -> Vec<u32> {
    let bytes = &area(made)[table.offset as usize..][..4 * table.count as usize];
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

#[test]
fn nearly_every_syscall_of_the_c_library_is_redirected() {
    for library in libraries() {
        let made = maker::make(&library).unwrap();
        println!("{}: {} sites, left {:x?}", library.display(), made.header.sites, made.unpatched);
        assert!(made.header.sites > 30, "{}", library.display());
        let missed = made.unpatched.iter().filter(|left| left.why != Reason::SignalReturn).count();
        assert!(missed <= 2, "{}: {:x?}", library.display(), made.unpatched);
    }
}

#[test]
fn the_signal_return_stub_is_left_alone() {
    for library in libraries() {
        let made = maker::make(&library).unwrap();
        let stubs = made.unpatched.iter().filter(|left| left.why == Reason::SignalReturn);
        let stubs: Vec<_> = stubs.collect();
        assert_eq!(stubs.len(), 1, "{}", library.display());
        for stub in stubs {
            let at = (stub.vaddr - made.header.text_vaddr) as usize;
            assert_eq!(text(&made)[at..at + 2], [0x0f, 0x05]);
        }
    }
}

/// Decodes what a processor would run: every jump leads to the beginning of a trampoline whose
/// instructions decode, contain exactly one `syscall`, and lead back behind the window.
#[test]
fn every_trampoline_decodes_and_leads_back() {
    for library in libraries() {
        let made = maker::make(&library).unwrap();
        let jumps = words(&made, made.header.text_relocations);
        assert_eq!(jumps.len(), made.header.sites as usize);
        for field in jumps {
            check_site(&made, field as usize - 1);
        }
    }
}

fn check_site(made: &BuiltImage, jump_at: usize) {
    let header = &made.header;
    let jump_vaddr = header.text_vaddr + jump_at as u64;
    let jump =
        Decoder::with_ip(64, &text(made)[jump_at..], jump_vaddr, DecoderOptions::NONE).decode();
    assert_eq!(jump.code(), Code::Jmp_rel32_64);
    let area_vaddr = header.text_vaddr.wrapping_add_signed(header.delta);
    let start = (jump.near_branch_target() - area_vaddr) as usize;
    let code = &area(made)[start..header.code_end as usize];
    let decoder = Decoder::with_ip(64, code, area_vaddr + start as u64, DecoderOptions::NONE);
    let points = points(made);
    let common = area_vaddr + u64::from(header.common_start);
    let (mut syscalls, mut to_common) = (0, 0);
    for instruction in decoder {
        assert!(!instruction.is_invalid());
        let offset = (instruction.ip() - area_vaddr) as u32;
        let original = format::original(&points, offset).expect("every instruction has a point");
        syscalls += usize::from(instruction.code() == Code::Syscall);
        if instruction.code() == Code::Jmp_rel32_64 {
            let target = instruction.near_branch_target();
            let back = header.text_vaddr + u64::from(original);
            assert!(target == back || syscalls == 1);
        }
        if instruction.code() == Code::Jb_rel32_64 && instruction.near_branch_target() == common {
            to_common += 1;
        }
        // The last instruction: to the entry.
        if instruction.code() == Code::Jmp_rm64 && syscalls == 1 && to_common == 1 {
            let slot = area_vaddr + format::SLOT_ENTRY as u64;
            assert_eq!(instruction.ip_rel_memory_address(), slot);
            break;
        }
    }
    assert_eq!((syscalls, to_common), (1, 1));
}

fn points(made: &BuiltImage) -> Vec<u8> {
    let table = made.header.points;
    area(made)[table.offset as usize..][..8 * table.count as usize].to_vec()
}

#[test]
fn an_image_is_written_once_and_privately() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("images");
    let library = &libraries()[0];
    let first = maker::prepare(library, &cache).unwrap();
    let written = std::fs::metadata(&first).unwrap();
    assert_eq!(written.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(maker::prepare(library, &cache).unwrap(), first);
    assert_eq!(std::fs::metadata(&first).unwrap().modified().unwrap(), written.modified().unwrap());
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn a_cache_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = maker::prepare(&libraries()[0], directory.path());
    assert!(matches!(refused, Err(maker::Error::Cache(_))));
}

#[test]
fn a_damaged_image_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("images");
    let library = &libraries()[0];
    let path = maker::prepare(library, &cache).unwrap();
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    maker::prepare(library, &cache).unwrap();
    assert!(std::fs::read(&path).unwrap() == whole);
}

#[test]
fn what_is_not_a_library_is_refused() {
    assert!(maker::make(Path::new("/etc/passwd")).is_err());
    assert!(maker::make_from(b"\x7fELF").is_err());
}

fn valid_header() -> Header {
    let table = format::Table { offset: 8192, count: 10 };
    Header {
        key: [7; 32],
        key_bytes: 20,
        text_vaddr: 0x2_6000,
        text_bytes: 4096,
        text_offset: 4096,
        area_offset: 8192,
        area_bytes: 12288,
        delta: format::DELTA,
        code_end: 8192,
        common_start: 4096,
        common_end: 4200,
        points: table,
        text_relocations: table,
        area_relocations: table,
        sites: 1,
        unpatched: 0,
    }
}

#[test]
fn a_header_survives_encoding() {
    let header = valid_header();
    assert_eq!(Header::parse(&header.encode(), 20480), Ok(header.clone()));
    assert_eq!(Header::parse(&header.encode(), 20479), Err(format::Invalid::Short));
}

/// The offsets in docs/design/interposition.md.
#[test]
fn the_header_is_where_the_page_says() {
    let mut header = valid_header();
    header.points.count = 3;
    header.text_relocations.count = 5;
    header.area_relocations.offset = 8196;
    let page = header.encode();
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    assert_eq!(page[..12], *b"MAYFLYIM\x04\0\0\0");
    assert_eq!((word(12), &page[16..48]), (20, &[7; 32][..]));
    assert_eq!([48, 56, 64, 72, 80].map(word), [0x2_6000, 4096, 4096, 8192, 12288]);
    assert_eq!(page[88..96], (-1_i64 << 30).to_le_bytes());
    assert_eq!([96, 100, 104, 108, 112].map(word), [8192, 4096, 4200, 8192, 3]);
    assert_eq!([116, 120, 124, 128, 132, 136].map(word), [8192, 5, 8196, 10, 1, 0]);
    assert_eq!(page[4088..], format::checksum(&page[..4088]).to_le_bytes());
}

proptest! {
    // Failures are printed; no file beside the source.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_never_an_image(bytes in proptest::collection::vec(any::<u8>(), 0..8192)) {
        prop_assert!(Header::parse(&bytes, bytes.len() as u64).is_err());
    }

    /// Even with a right checksum, what parses lies within the file.
    #[test]
    fn a_header_that_parses_stays_within_the_file(
        at in 12usize..180, value in any::<u64>(), file_bytes in 0u64..1 << 20,
    ) {
        let mut page = valid_header().encode();
        page[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let sum = format::checksum(&page[..PAGE_BYTES - 8]);
        page[PAGE_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        if let Ok(header) = Header::parse(&page, file_bytes) {
            prop_assert!(header.area_offset + header.area_bytes <= file_bytes);
            prop_assert!(header.text_offset + header.text_bytes <= header.area_offset);
            prop_assert!(u64::from(header.code_end) <= header.area_bytes);
            let end = u64::from(header.points.offset) + 8 * u64::from(header.points.count);
            prop_assert!(end <= header.area_bytes);
        }
    }

    #[test]
    fn looking_up_a_point_never_fails_badly(
        points in proptest::collection::vec(any::<u8>(), 0..256), at in any::<u32>(),
    ) {
        let _ = format::original(&points, at);
    }
}

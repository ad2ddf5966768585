//! What every object store must do, run on each of them.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use mayfly_object::{Allocation, DirectoryStore, MemoryStore, ObjectId, ObjectStore};
use mayfly_types::{Errno, FileId, OBJECT_MAPPED, Timestamp};
use proptest::prelude::*;

fn id(number: u64, generation: u32) -> ObjectId {
    ObjectId { file: FileId(number), generation }
}

fn on_each(check: impl Fn(&dyn ObjectStore)) {
    check(&MemoryStore::new(1 << 40));
    let directory = tempfile::tempdir().unwrap();
    check(&DirectoryStore::open(&directory.path().join("objects")).unwrap());
    // So few descriptors that every other operation opens one.
    let directory = tempfile::tempdir().unwrap();
    check(&DirectoryStore::open_with(&directory.path().join("objects"), 2).unwrap());
}

fn read(store: &dyn ObjectStore, id: ObjectId, offset: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0xff; count];
    let count = store.read(id, offset, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

#[test]
fn an_object_that_was_never_made_is_missing() {
    on_each(|store| {
        assert_eq!(store.attr(id(1, 1)).unwrap_err(), Errno::ENOENT);
        assert_eq!(store.read(id(1, 1), 0, &mut [0]).unwrap_err(), Errno::ENOENT);
        assert_eq!(store.write(id(1, 1), 0, b"x").unwrap_err(), Errno::ENOENT);
        store.remove(id(1, 1)).unwrap();
    });
}

#[test]
fn an_empty_object_takes_the_place_of_what_has_its_name() {
    on_each(|store| {
        let time = Timestamp { seconds: 7, nanoseconds: 5 };
        for bytes in [&b""[..], b"text", b""] {
            store.create(id(5, 1), bytes).unwrap();
            store.set_times(id(5, 1), Some(time), Some(time)).unwrap();
            let attr = store.attr(id(5, 1)).unwrap();
            assert_eq!((attr.size_bytes, attr.mtime), (bytes.len() as u64, time));
            assert_eq!(read(store, id(5, 1), 0, 9), bytes);
        }
        store.remove(id(5, 1)).unwrap();
        assert_eq!(store.set_times(id(5, 1), None, Some(time)), Err(Errno::ENOENT));
        assert_eq!(store.attr(id(5, 1)), Err(Errno::ENOENT));
    });
}

#[test]
fn pages_have_every_object_once() {
    on_each(|store| {
        assert!(store.list(None, 3).unwrap().is_empty());
        // Several in one directory, in neighbouring ones, and of several generations.
        let mut made: Vec<ObjectId> = (0..40).map(|number| id(number * 64 + 1, 1)).collect();
        made.extend([id(1, 2), id(1, 10), id(u64::MAX, u32::MAX)]);
        for (size, object) in made.iter().enumerate() {
            store.create(*object, &vec![b'x'; size]).unwrap();
        }
        for count_max in [1, 7, made.len(), 1000] {
            let mut seen = Vec::new();
            loop {
                let page = store.list(seen.last().copied(), count_max).unwrap();
                assert!(page.len() <= count_max);
                for listed in &page {
                    let which = made.iter().position(|id| *id == listed.id).unwrap();
                    assert_eq!(listed.size_bytes, which as u64);
                }
                seen.extend(page.iter().map(|listed| listed.id));
                if page.len() < count_max {
                    break;
                }
            }
            assert_eq!(seen.len(), made.len());
            assert_eq!(seen.iter().collect::<std::collections::HashSet<_>>().len(), made.len());
        }
        let last = store.list(None, 1000).unwrap().last().unwrap().id;
        store.remove(last).unwrap();
        assert!(store.list(Some(last), 1000).unwrap().is_empty(), "after one that is gone");
    });
}

#[test]
fn what_is_no_object_is_not_listed() {
    let directory = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(directory.path()).unwrap();
    store.create(id(0x105, 3), b"x").unwrap();
    for name in ["05/note", "05/0000000000000105.03", "05/0000000000000106.1", "stray"] {
        std::fs::write(directory.path().join(name), b"x").unwrap();
    }
    let listed: Vec<ObjectId> =
        store.list(None, 10).unwrap().into_iter().map(|listed| listed.id).collect();
    assert_eq!(listed, [id(0x105, 3)]);
}

#[test]
fn an_object_can_be_executed_once_nobody_writes_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(directory.path()).unwrap();
    store.create(id(1, 1), &std::fs::read("/bin/true").unwrap()).unwrap();
    let run = || std::process::Command::new(directory.path().join(id(1, 1).path())).status();
    let busy = Some(rustix::io::Errno::TXTBSY.raw_os_error());
    assert_eq!(run().unwrap_err().raw_os_error(), busy, "made just now");
    store.let_run(id(1, 1));
    assert!(run().unwrap().success());
    store.attr(id(1, 1)).unwrap();
    store.read(id(1, 1), 0, &mut [0; 4]).unwrap();
    store.set_times(id(1, 1), None, Some(Timestamp::default())).unwrap();
    store.sync(id(1, 1)).unwrap();
    assert!(run().unwrap().success(), "it is only looked at");
    store.write(id(1, 1), 0, b"\x7f").unwrap();
    assert_eq!(run().unwrap_err().raw_os_error(), busy);
    store.let_run(id(1, 1));
    assert!(run().unwrap().success());
}

#[test]
fn a_program_that_is_removed_runs_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(directory.path()).unwrap();
    store.create(id(1, 1), &std::fs::read("/bin/cat").unwrap()).unwrap();
    store.let_run(id(1, 1));
    let mut running = std::process::Command::new(directory.path().join(id(1, 1).path()))
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    store.remove(id(1, 1)).unwrap();
    assert_eq!(store.attr(id(1, 1)).unwrap_err(), Errno::ENOENT);
    drop(running.stdin.take());
    assert!(running.wait().unwrap().success());
}

#[test]
fn holes_read_as_zeros_and_reading_ends_with_the_object() {
    on_each(|store| {
        store.create(id(1, 1), b"abc").unwrap();
        store.write(id(1, 1), 10_000, b"end").unwrap();
        assert_eq!(store.attr(id(1, 1)).unwrap().size_bytes, 10_003);
        assert_eq!(read(store, id(1, 1), 1, 4), b"bc\0\0");
        assert_eq!(read(store, id(1, 1), 9_999, 100), b"\0end");
        assert_eq!(read(store, id(1, 1), 20_000, 100), b"");
    });
}

#[test]
fn bytes_behind_a_cut_do_not_come_back() {
    on_each(|store| {
        store.create(id(1, 1), &[7; 9000]).unwrap();
        store.set_size(id(1, 1), 10).unwrap();
        store.set_size(id(1, 1), 9000).unwrap();
        assert_eq!(read(store, id(1, 1), 0, 9000)[..12], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
    });
}

#[test]
fn ranges_are_zeroed_punched_and_extended() {
    on_each(|store| {
        store.create(id(1, 1), &[7; 20_000]).unwrap();
        let size = |store: &dyn ObjectStore| store.attr(id(1, 1)).unwrap().size_bytes;
        store.allocate(id(1, 1), Allocation::Punch, 4096, 8192).unwrap();
        assert_eq!(read(store, id(1, 1), 4095, 3), [7, 0, 0]);
        assert_eq!(read(store, id(1, 1), 12_287, 2), [0, 7]);
        store.allocate(id(1, 1), Allocation::Zero, 19_990, 100).unwrap();
        store.allocate(id(1, 1), Allocation::Reserve, 15_000, 15_000).unwrap();
        store.allocate(id(1, 1), Allocation::Punch, 30_000, 1).unwrap();
        assert_eq!((size(store), read(store, id(1, 1), 19_989, 2)), (20_000, vec![7, 0]));
        store.allocate(id(1, 1), Allocation::Extend, 15_000, 10_000).unwrap();
        assert_eq!((size(store), read(store, id(1, 1), 19_989, 2)), (25_000, vec![7, 0]));
        store.allocate(id(1, 1), Allocation::ZeroExtend, 15_000, 15_000).unwrap();
        assert_eq!((size(store), read(store, id(1, 1), 14_999, 2)), (30_000, vec![7, 0]));
        store.allocate(id(1, 1), Allocation::Extend, 0, 10).unwrap();
        assert_eq!((size(store), read(store, id(1, 1), 0, 2)), (30_000, vec![7, 7]));
        let nothing = store.allocate(id(1, 1), Allocation::Extend, 0, 0);
        assert_eq!(nothing.unwrap_err(), Errno::EINVAL);
        let absent = store.allocate(id(2, 1), Allocation::Extend, 0, 1);
        assert_eq!(absent.unwrap_err(), Errno::ENOENT);
    });
}

#[test]
fn a_punched_range_takes_no_space_and_an_extended_one_does() {
    for place in [std::env::temp_dir().as_path(), std::path::Path::new("/dev/shm")] {
        let Ok(directory) = tempfile::tempdir_in(place) else { continue };
        let store = DirectoryStore::open(&directory.path().join("objects")).unwrap();
        store.create(id(1, 1), b"").unwrap();
        let blocks = || store.attr(id(1, 1)).unwrap().blocks;
        store.allocate(id(1, 1), Allocation::Extend, 0, 1 << 20).unwrap();
        assert!(blocks() >= 2048, "{place:?}");
        store.allocate(id(1, 1), Allocation::Punch, 0, 1 << 19).unwrap();
        assert!((1024..2048).contains(&blocks()), "{place:?}");
        store.allocate(id(1, 1), Allocation::Zero, 0, 1 << 20).unwrap();
        assert!(blocks() >= 2048, "{place:?}");
    }
}

#[test]
fn appends_go_to_the_end_and_leave_writes_where_they_belong() {
    on_each(|store| {
        store.create(id(1, 1), b"one").unwrap();
        assert_eq!(store.append(id(1, 1), b"two").unwrap(), 6);
        store.write(id(1, 1), 0, b"O").unwrap();
        assert_eq!(read(store, id(1, 1), 0, 10), b"Onetwo");
    });
}

#[test]
fn generations_and_files_do_not_meet() {
    on_each(|store| {
        for number in [1, 0x101, 0x0001_0000_0000_0001] {
            for generation in [1, 2, 12] {
                store
                    .create(id(number, generation), format!("{number}.{generation}").as_bytes())
                    .unwrap();
            }
        }
        store.remove(id(1, 1)).unwrap();
        assert!(store.attr(id(1, 1)).is_err());
        assert_eq!(read(store, id(1, 12), 0, 100), b"1.12");
        assert_eq!(read(store, id(0x101, 1), 0, 100), b"257.1");
        store.create(id(1, 2), b"new").unwrap();
        assert_eq!(read(store, id(1, 2), 0, 100), b"new");
    });
}

#[test]
fn times_are_set_one_by_one() {
    on_each(|store| {
        store.create(id(1, 1), b"x").unwrap();
        let at = |seconds| Timestamp { seconds, nanoseconds: 5 };
        store.set_times(id(1, 1), Some(at(100)), Some(at(200))).unwrap();
        store.set_times(id(1, 1), None, Some(at(300))).unwrap();
        let attr = store.attr(id(1, 1)).unwrap();
        assert_eq!((attr.atime, attr.mtime), (at(100), at(300)));
        store.sync(id(1, 1)).unwrap();
        store.sync_all().unwrap();
        assert!(store.space().unwrap().free_bytes <= store.space().unwrap().total_bytes);
    });
}

/// A process that mapped an object and closed it was killed by its next touch of a page, when the
/// object was cut before it was removed.
#[test]
fn a_mapped_object_that_is_removed_keeps_its_bytes_for_who_has_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(directory.path()).unwrap();
    store.create(id(5, 1), b"mapped").unwrap();
    assert!(!store.attr(id(5, 1)).unwrap().mapped);
    let path = directory.path().join(id(5, 1).path());
    let file = std::fs::File::open(&path).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700 | OBJECT_MAPPED);
    file.set_permissions(mode).unwrap();
    assert!(store.attr(id(5, 1)).unwrap().mapped);
    store.remove(id(5, 1)).unwrap();
    assert!(!path.exists());
    assert_eq!(file.metadata().unwrap().len(), 6);
}

#[test]
fn a_removed_object_takes_no_space_even_while_somebody_has_it_open() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("objects");
    let store = DirectoryStore::open(&root).unwrap();
    store.create(id(1, 1), &[1; 100_000]).unwrap();
    let open = std::fs::File::open(root.join(id(1, 1).path())).unwrap();
    store.remove(id(1, 1)).unwrap();
    assert_eq!(open.metadata().unwrap().len(), 0);
}

#[derive(Debug, Clone)]
enum Op {
    Create(u64, usize),
    Write(u64, u64, usize, u8),
    Append(u64, usize, u8),
    Resize(u64, u64),
    Allocate(u64, Allocation, u64, u64),
    Remove(u64),
    Read(u64, u64, usize),
}

fn allocation() -> impl Strategy<Value = Allocation> {
    use Allocation::{Extend, Punch, Reserve, Zero, ZeroExtend};
    prop::sample::select(vec![Extend, Reserve, Punch, ZeroExtend, Zero])
}

fn op() -> impl Strategy<Value = Op> {
    let object = 1..4_u64;
    prop_oneof![
        (object.clone(), 0..5000_usize).prop_map(|(o, n)| Op::Create(o, n)),
        (object.clone(), 0..9000_u64, 0..5000_usize, any::<u8>())
            .prop_map(|(o, at, n, b)| Op::Write(o, at, n, b)),
        (object.clone(), 1..500_usize, any::<u8>()).prop_map(|(o, n, b)| Op::Append(o, n, b)),
        (object.clone(), 0..9000_u64).prop_map(|(o, n)| Op::Resize(o, n)),
        (object.clone(), allocation(), 0..9000_u64, 0..9000_u64)
            .prop_map(|(o, what, at, n)| Op::Allocate(o, what, at, n)),
        object.clone().prop_map(Op::Remove),
        (object, 0..9000_u64, 0..9000_usize).prop_map(|(o, at, n)| Op::Read(o, at, n)),
    ]
}

fn run(store: &dyn ObjectStore, op: &Op) -> (Result<Vec<u8>, Errno>, Result<u64, Errno>) {
    let nothing = |()| Vec::new();
    let (seen, of) = match *op {
        Op::Create(o, count) => (store.create(id(o, 1), &vec![9; count]).map(nothing), o),
        Op::Write(o, at, count, byte) => {
            (store.write(id(o, 1), at, &vec![byte; count]).map(nothing), o)
        }
        Op::Append(o, count, byte) => {
            (store.append(id(o, 1), &vec![byte; count]).map(|end| end.to_le_bytes().to_vec()), o)
        }
        Op::Resize(o, size) => (store.set_size(id(o, 1), size).map(nothing), o),
        Op::Allocate(o, what, at, count) => {
            (store.allocate(id(o, 1), what, at, count).map(nothing), o)
        }
        Op::Remove(o) => (store.remove(id(o, 1)).map(nothing), o),
        Op::Read(o, at, count) => {
            let mut bytes = vec![0; count];
            let seen = store.read(id(o, 1), at, &mut bytes).map(|count| bytes[..count].to_vec());
            (seen, o)
        }
    };
    (seen, store.attr(id(of, 1)).map(|attr| attr.size_bytes))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_stores_are_indistinguishable(ops in prop::collection::vec(op(), 1..60)) {
        let memory = MemoryStore::new(1 << 40);
        let directory = tempfile::tempdir().unwrap();
        let files = DirectoryStore::open_with(&directory.path().join("objects"), 2).unwrap();
        for op in &ops {
            prop_assert_eq!(run(&memory, op), run(&files, op), "{:?}", op);
        }
    }
}

#[test]
fn an_object_is_at_hand_while_its_descriptor_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open_with(&directory.path().join("objects"), 2).unwrap();
    if !store.may_wait() {
        eprintln!("SKIPPED: the directory for temporary files is in memory");
        return;
    }
    let is_at_hand = |number| store.attr_at_hand(id(number, 1)).unwrap().is_some();
    store.create(id(1, 1), b"x").unwrap();
    assert!(is_at_hand(1) && !is_at_hand(2));
    for number in 2..5 {
        store.create(id(number, 1), b"x").unwrap();
    }
    assert!(!is_at_hand(1), "others took its place");
    store.attr(id(1, 1)).unwrap();
    assert!(is_at_hand(1));
    store.remove(id(1, 1)).unwrap();
    assert!(!is_at_hand(1));
}

#[test]
fn what_lies_in_memory_waits_for_no_disk() {
    assert!(!MemoryStore::new(1).may_wait());
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() {
        let directory = tempfile::tempdir_in(memory).unwrap();
        let store = DirectoryStore::open(&directory.path().join("objects")).unwrap();
        store.create(id(1, 1), b"x").unwrap();
        let attr = store.attr_at_hand(id(1, 1)).unwrap();
        assert!(!store.may_wait() && attr.is_some_and(|attr| attr.size_bytes == 1));
    }
}

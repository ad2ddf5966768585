//! Where a way led is remembered as long as no directory has moved.

use std::cell::{Cell, RefCell};

use mayfly_meta::{
    Store, TreeStore, key,
    record::{Content, Dentry},
};
use mayfly_records::{
    Found, Question, Source, Unsure, look,
    page::{MOVES_AT, VERSION_AT},
    way::Way,
};
use mayfly_types::{FileId, FileKind};

use super::{Bytes, listing::inode, open, read};

const ROOT: FileId = FileId::ROOT;

/// A process that looks into the records, and remembers one way.
struct Process {
    bytes: Bytes,
    remembered: RefCell<Option<(u64, Vec<u8>, FileId)>>,
    /// A transaction begins after so many looks at the version.
    disturbed_after: Cell<u32>,
}

impl Source for Process {
    fn word(&self, at: usize) -> Option<u64> {
        let word = self.bytes.word(at)?;
        if at != VERSION_AT {
            return Some(word);
        }
        let left = self.disturbed_after.get();
        self.disturbed_after.set(left.saturating_sub(1));
        Some(if left == 0 { word + 1 } else { word })
    }

    fn chunk(&self, at: usize) -> Option<[u8; 8]> {
        self.bytes.chunk(at)
    }

    fn recall(&self, way: Way<'_>) -> Option<FileId> {
        let remembered = self.remembered.borrow();
        let (moves, path, directory) = remembered.as_ref()?;
        (*moves == way.moves && path == way.path && way.start == ROOT).then_some(*directory)
    }

    fn remember(&self, way: Way<'_>, directory: FileId, _until: u64) {
        *self.remembered.borrow_mut() = Some((way.moves, way.path.to_vec(), directory));
    }
}

fn process(directory: &tempfile::TempDir) -> Process {
    Process {
        bytes: read(directory.path()),
        remembered: RefCell::new(None),
        disturbed_after: Cell::new(u32::MAX),
    }
}

fn found(process: &Process, path: &[u8]) -> Result<Option<FileId>, Unsure> {
    let found = look(process, Question { start: ROOT, path, follow: false })?;
    Ok(match found {
        Found::File(attr) => Some(attr.id),
        Found::Nothing => None,
    })
}

/// `way/file` and `way/sub/` in the root.
fn records(directory: &tempfile::TempDir) -> TreeStore {
    let mut store = open(directory.path());
    let inode = inode(9, 1, Content::Inline(Vec::new()));
    store.put(&key::numbered(key::INODE, FileId(9)), &inode.encode_own()).unwrap();
    for (parent, name, id, kind) in [
        (ROOT, "way", 5, FileKind::Directory),
        (FileId(5), "sub", 6, FileKind::Directory),
        (FileId(5), "file", 9, FileKind::Regular),
    ] {
        let dentry = Dentry::Plain { id: FileId(id), kind };
        store.put(&key::dentry(parent, name.as_bytes()), &dentry.encode()).unwrap();
    }
    store.commit().unwrap();
    store
}

#[test]
fn a_way_is_remembered_and_not_gone_again() {
    let place = tempfile::tempdir().unwrap();
    records(&place);
    let process = process(&place);
    assert_eq!(found(&process, b"way/file"), Ok(Some(FileId(9))));
    assert_eq!(process.remembered.borrow().as_ref().unwrap().2, FileId(5));
    // As if it led elsewhere: that is where it goes, and the name is not there.
    process.remembered.borrow_mut().as_mut().unwrap().2 = FileId(6);
    assert_eq!(found(&process, b"way/file"), Ok(None));
    // Not what has other bytes, or ends with no name.
    assert_eq!(found(&process, b"./way/file"), Ok(Some(FileId(9))));
    process.remembered.borrow_mut().as_mut().unwrap().1 = b"way/".to_vec();
    assert_eq!(found(&process, b"way/."), Err(Unsure));
    assert_eq!(found(&process, b"way/.."), Err(Unsure));
}

#[test]
fn a_move_of_a_directory_is_counted_before_its_transaction_is_over() {
    let place = tempfile::tempdir().unwrap();
    let mut store = records(&place);
    let moves = |place: &tempfile::TempDir| read(place.path()).word(MOVES_AT).unwrap();
    let before = moves(&place);
    store.put(b"something else", b"").unwrap();
    store.commit().unwrap();
    assert_eq!(moves(&place), before);
    store.move_directory().unwrap();
    assert_eq!(moves(&place), before + 1);
    assert_eq!(read(place.path()).word(VERSION_AT).unwrap() % 2, 1);
    store.commit().unwrap();
    assert_eq!(moves(&place), before + 1);
    // Nor does it come back when a transaction is undone.
    store.move_directory().unwrap();
    drop(store);
    let store = open(place.path());
    assert_eq!(moves(&place), before + 2);
    assert_eq!(read(place.path()).word(VERSION_AT).unwrap(), 2 * store.committed_transaction());
}

#[test]
fn what_was_remembered_does_not_hold_after_a_move() {
    let place = tempfile::tempdir().unwrap();
    let mut store = records(&place);
    let mut process = process(&place);
    assert_eq!(found(&process, b"way/file"), Ok(Some(FileId(9))));
    let moved = store.get(&key::dentry(ROOT, b"way")).unwrap().unwrap().to_vec();
    store.delete(&key::dentry(ROOT, b"way")).unwrap();
    store.put(&key::dentry(ROOT, b"away"), &moved).unwrap();
    store.move_directory().unwrap();
    store.commit().unwrap();
    process.bytes = read(place.path());
    assert_eq!(found(&process, b"way/file"), Ok(None));
    assert_eq!(found(&process, b"away/file"), Ok(Some(FileId(9))));
}

#[test]
fn a_way_during_which_something_changed_is_not_remembered() {
    let place = tempfile::tempdir().unwrap();
    records(&place);
    let process = process(&place);
    process.disturbed_after.set(1);
    assert_eq!(found(&process, b"way/file"), Err(Unsure));
    assert_eq!(*process.remembered.borrow(), None);
}

//! The pages of a tree of records with some bytes changed: a daemon that takes it up, and a process
//! that looks into it, meet errors and wrong answers and nothing worse.

use std::{fs, path::Path, sync::OnceLock};

use mayfly_meta::{Scan, Store, TreeOptions, TreeStore};
use mayfly_records::{Question, Source, key, look};
use mayfly_types::FileId;

use crate::input::Input;

const NAMES: u64 = 300;

struct Tree {
    records: Vec<u8>,
    undo: Vec<u8>,
}

fn options(directory: &Path) -> TreeOptions {
    let boot_id = b"a boot".to_vec();
    TreeOptions { directory: directory.to_owned(), limit_bytes: 1 << 24, boot_id }
}

/// A tree of three levels with long values, made once.
fn tree() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut store = TreeStore::open(&options(directory.path())).expect("a new store");
        for number in 0..NAMES {
            let value = vec![number as u8; if number % 50 == 0 { 9000 } else { 150 }];
            store.put(&name(number), &value).expect("there is room");
        }
        store.commit().expect("committed");
        let file = |name: &str| fs::read(directory.path().join(name)).expect("a file of the store");
        Tree { records: file("records"), undo: file("undo") }
    })
}

fn name(number: u64) -> Vec<u8> {
    mayfly_meta::key::dentry(FileId(1 + number % 3), format!("name-{number}").as_bytes()).to_vec()
}

/// The bytes of a file that nobody else changes.
struct Bytes<'a>(&'a [u8]);

impl Source for Bytes<'_> {
    fn word(&self, at: usize) -> Option<u64> {
        self.chunk(at).filter(|_| at.is_multiple_of(8)).map(u64::from_le_bytes)
    }

    fn chunk(&self, at: usize) -> Option<[u8; 8]> {
        self.0.get(at..at.checked_add(8)?)?.try_into().ok()
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let tree = tree();
    let (mut records, mut undo) = (tree.records.clone(), tree.undo.clone());
    let mut input = Input::new(bytes);
    let writes = input.u8().is_multiple_of(2);
    while !input.is_over() {
        let (what, at) = (input.u8(), input.u32() as usize);
        let into = if what % 8 == 0 { &mut undo } else { &mut records };
        let count = 1 + usize::from(what >> 5);
        let change = input.take(count);
        let at = at % into.len().max(1);
        let end = into.len().min(at + change.len());
        into[at..end].copy_from_slice(&change[..end - at]);
    }
    by_another_process(&records);
    by_a_daemon(&records, &undo, writes);
}

fn by_another_process(records: &[u8]) {
    let source = Bytes(records);
    for directory in [FileId::ROOT, FileId(2)] {
        for path in [&b"name-7"[..], b"name-150/x", b"nothing", b"/name-3"] {
            let _ = look(&source, Question { start: directory, path, follow: true });
        }
        let mut entries = 0;
        let _ = mayfly_records::list(&source, directory, 0, |_| {
            entries += 1;
            entries < 10_000
        });
        let _ = mayfly_records::get(&source, &key::numbered(b'I', directory), &mut [[0; 8]; 32]);
    }
}

fn by_a_daemon(records: &[u8], undo: &[u8], writes: bool) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join("records"), records).expect("there is room");
    fs::write(directory.path().join("undo"), undo).expect("there is room");
    let Ok(mut store) = TreeStore::open(&options(directory.path())) else { return };
    for number in [0, 7, 150, NAMES] {
        let _ = store.get(&name(number));
    }
    let mut seen = 0;
    let _ = store.scan(b"", b"", &mut |_, _| {
        seen += 1;
        if seen < 10_000 { Scan::More } else { Scan::Enough }
    });
    if writes {
        let _ = store.put(&name(NAMES + 1), &[1; 200]);
        let _ = store.put(&name(7), &[2; 5000]);
        let _ = store.delete(&name(100));
        let _ = store.commit();
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let change = |at: u32, value: u8| {
        let mut bytes = vec![1, 0xe1];
        bytes.extend(at.to_le_bytes());
        bytes.extend([value; 8]);
        bytes
    };
    let places = [0, 24, 104, 4096, 4100, 4128, 8192, 8200, 12_288, 40_960];
    places.iter().flat_map(|at| [change(*at, 0), change(*at, 0xff), change(*at, 2)]).collect()
}

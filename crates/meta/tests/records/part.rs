//! Records that have what is at home at one shard of several.

use mayfly_meta::{
    Store, key,
    record::{Content, Dentry, DirectoryNode, Spread},
};
use mayfly_records::{Found, Question, Source, Unsure, directory, list, look};
use mayfly_types::{FileId, FileKind};

use super::{Bytes, listing::inode, open, read};

const ROOT: FileId = FileId::ROOT;
const OWN: FileId = FileId(5);

/// Those of one shard, when the processors' counter says `now`.
struct Part {
    bytes: Bytes,
    now: u64,
}

impl Source for Part {
    fn word(&self, at: usize) -> Option<u64> {
        self.bytes.word(at)
    }

    fn chunk(&self, at: usize) -> Option<[u8; 8]> {
        self.bytes.chunk(at)
    }

    fn has_all(&self) -> bool {
        false
    }

    fn now(&self) -> u64 {
        self.now
    }
}

/// The root is another shard's, which has said that `own` is a directory of this one until 100; in
/// there is a file.
fn records(at: &tempfile::TempDir) -> impl Store + use<> {
    let mut store = open(at.path());
    let file = inode(9, 1, Content::Inline(Vec::new()));
    store.put(&key::numbered(key::INODE, FileId(9)), &file.encode_own()).unwrap();
    let node = DirectoryNode { parent: ROOT, name: b"own".to_vec(), ..DirectoryNode::default() };
    let own = inode(OWN.0, 2, Content::Directory(node));
    store.put(&key::numbered(key::INODE, OWN), &own.encode_own()).unwrap();
    let dentry = Dentry::Plain { id: FileId(9), kind: FileKind::Regular };
    store.put(&key::dentry(OWN, b"file"), &dentry.encode()).unwrap();
    let shown = [OWN.0, 100].map(u64::to_le_bytes).concat();
    store.put(&key::remembered(ROOT, b"own"), &shown).unwrap();
    store.commit().unwrap();
    store
}

fn at(place: &tempfile::TempDir, now: u64, path: &[u8]) -> Result<Option<FileId>, Unsure> {
    let part = Part { bytes: read(place.path()), now };
    let found = look(&part, Question { start: ROOT, path, follow: false })?;
    Ok(match found {
        Found::File(attr) => Some(attr.id),
        Found::Nothing => None,
    })
}

#[test]
fn a_name_of_another_shard_leads_on_until_its_time_is_over() {
    let place = tempfile::tempdir().unwrap();
    let mut store = records(&place);
    assert_eq!(at(&place, 99, b"/own/file"), Ok(Some(FileId(9))));
    assert_eq!(at(&place, 99, b"/own/none"), Ok(None), "all names of `own` are here");
    assert_eq!(at(&place, 100, b"/own/file"), Err(Unsure));
    store.delete(&key::remembered(ROOT, b"own")).unwrap();
    store.commit().unwrap();
    assert_eq!(at(&place, 99, b"/own/file"), Err(Unsure));
}

#[test]
fn what_may_be_at_another_shard_is_not_said_to_be_nowhere() {
    let place = tempfile::tempdir().unwrap();
    let mut store = records(&place);
    for path in [&b"/none"[..], b"/none/file", b"/own", b"/", b"."] {
        assert_eq!(at(&place, 0, path), Err(Unsure), "{}", path.escape_ascii());
    }
    let attributes = || directory(&Part { bytes: read(place.path()), now: 0 }, OWN).map(|of| of.id);
    let listed = || list(&Part { bytes: read(place.path()), now: 0 }, OWN, 0, |_| true);
    assert_eq!((attributes(), listed()), (Ok(OWN), Ok(true)));
    // Some of its names are at other shards from here on.
    store.put(&key::numbered(key::SPREAD, OWN), &Spread(1 << 20).encode()).unwrap();
    store.commit().unwrap();
    assert_eq!(at(&place, 0, b"/own/file"), Ok(Some(FileId(9))), "what is here is here");
    assert_eq!(at(&place, 0, b"/own/none"), Err(Unsure));
    assert_eq!((attributes(), listed()), (Err(Unsure), Err(Unsure)));
}

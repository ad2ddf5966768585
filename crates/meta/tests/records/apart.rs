//! Of each directory above a name it is asked whether something waits there.

use mayfly_meta::{
    Store, key,
    record::{Content, Dentry, DirectoryNode, Inode},
};
use mayfly_records::{Changed, Question, Unsure, apart, path_of, version};
use mayfly_types::{FileId, FileKind, limits::NAME_BYTES_MAX};

use super::{listing::inode, open, read};

const ROOT: FileId = FileId::ROOT;

/// A directory, and the path from there.
type Asked = (u64, Option<String>);

/// Directories, each in the one before, with these names, from number 2 on.
fn records(names: &[&str]) -> (tempfile::TempDir, FileId) {
    let place = tempfile::tempdir().unwrap();
    let mut store = open(place.path());
    let mut parent = ROOT;
    for (number, name) in (2..).zip(names) {
        let id = FileId(number);
        let name = name.as_bytes().to_vec();
        let dentry = Dentry::Plain { id, kind: FileKind::Directory };
        store.put(&key::dentry(parent, &name), &dentry.encode()).unwrap();
        let node = DirectoryNode { parent, name, ..DirectoryNode::default() };
        let made = inode(number, 2, Content::Directory(node));
        store.put(&key::numbered(key::INODE, id), &made.encode_own()).unwrap();
        parent = id;
    }
    store.commit().unwrap();
    (place, parent)
}

/// What is asked about, until something waits in `waits`.
fn asked(
    place: &tempfile::TempDir,
    subject: Changed<'_>,
    waits: Option<FileId>,
) -> (Result<(), Unsure>, Vec<Asked>) {
    let (bytes, mut asked) = (read(place.path()), Vec::new());
    let subject = (subject, version(&bytes).unwrap());
    let result = apart(&bytes, subject, &mut |directory, path| {
        let path = path.map(|path| String::from_utf8(path.to_vec()).unwrap());
        asked.push((directory.0, path));
        Some(directory) == waits
    });
    (result, asked)
}

fn named(start: FileId, path: &str) -> Changed<'_> {
    Changed::Name(Question { start, path: path.as_bytes(), follow: false })
}

fn path(directory: u64, path: &str) -> Asked {
    (directory, Some(path.to_owned()))
}

#[test]
fn each_directory_above_a_name_is_asked_about_with_the_path_from_there() {
    let (place, inside) = records(&["a", "bc", "def"]);
    let all = [path(4, "f"), path(3, "def/f"), path(2, "bc/def/f"), path(ROOT.0, "a/bc/def/f")];
    for (start, name) in [(ROOT, "a/bc/def/f"), (ROOT, "./a//bc/def/f"), (inside, "f")] {
        assert_eq!(asked(&place, named(start, name), None), (Ok(()), all.to_vec()), "{name}");
    }
    let waits = asked(&place, named(inside, "f"), Some(FileId(3)));
    assert_eq!(waits, (Err(Unsure), all[..2].to_vec()));
    assert_eq!(asked(&place, named(ROOT, "f"), None), (Ok(()), vec![path(ROOT.0, "f")]));
}

#[test]
fn the_records_tell_the_path_of_a_directory_that_is_there() {
    let told = |place: &tempfile::TempDir, directory| {
        let mut room = [0; NAME_BYTES_MAX];
        let start = path_of(&read(place.path()), directory, &mut room)?;
        Ok::<_, Unsure>(String::from_utf8(room[start..].to_vec()).unwrap())
    };
    let (place, inside) = records(&["a", "bc", "def"]);
    assert_eq!(told(&place, inside), Ok("/a/bc/def".to_owned()));
    assert_eq!(told(&place, FileId(2)), Ok("/a".to_owned()));
    assert_eq!(told(&place, FileId(9)), Err(Unsure));
    let long = "l".repeat(NAME_BYTES_MAX - 3);
    for (names, fits) in [(["a", &long[1..]], true), (["ab", &long], false)] {
        let (place, inside) = records(&names);
        assert_eq!(told(&place, inside).is_ok(), fits);
    }
    // Its last name is gone.
    let mut store = open(place.path());
    let gone = Inode { links: 0, ..inode(4, 0, Content::Directory(DirectoryNode::default())) };
    store.put(&key::numbered(key::INODE, inside), &gone.encode_own()).unwrap();
    store.commit().unwrap();
    drop(store);
    assert_eq!(told(&place, inside), Err(Unsure));
}

#[test]
fn of_a_directory_all_that_is_below_counts() {
    let (place, inside) = records(&["a", "b"]);
    let all = vec![(inside.0, None), (2, None), (ROOT.0, None)];
    assert_eq!(asked(&place, Changed::Directory(inside), None), (Ok(()), all));
}

#[test]
fn a_path_that_is_longer_than_a_name_is_in_no_table() {
    let long = "n".repeat(NAME_BYTES_MAX - 2);
    let (place, inside) = records(&["a", &long]);
    let (result, asked) = asked(&place, named(inside, "f"), None);
    assert_eq!(result, Ok(()));
    assert_eq!(asked, [path(3, "f"), path(2, &format!("{long}/f"))]);
}

#[test]
fn what_the_records_do_not_tell_is_asked_for() {
    let (place, inside) = records(&["a"]);
    for (start, name) in [(FileId(77), "f"), (ROOT, "none/f"), (ROOT, "a/.."), (ROOT, ".")] {
        assert_eq!(asked(&place, named(start, name), None).0, Err(Unsure), "{name}");
    }
    assert_eq!(asked(&place, Changed::Directory(FileId(77)), None).0, Err(Unsure));
    assert_eq!(asked(&place, named(inside, "f"), None).0, Ok(()));
}

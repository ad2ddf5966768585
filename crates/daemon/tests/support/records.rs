//! What a process finds in the records is what the daemon says, or it does not know.

use std::{cell::Cell, fs::File, os::unix::fs::FileExt};

use mayfly_records::{
    Bytes, Changed, Found, Question, Reached, Regular, Runs, Source, apart, look, reach, version,
};
use mayfly_types::{Attr, Errno, FileId, FileKind};

use super::{Answer, Failed, Kept};

struct OnDisk {
    file: File,
    looks: Cell<u32>,
}

impl OnDisk {
    fn read(&self, runs: &Runs) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        for (at, bytes) in runs.from(0) {
            let mut run = vec![0; bytes];
            self.file.read_exact_at(&mut run, at as u64).ok()?;
            all.extend(run);
        }
        Some(all)
    }
}

impl Source for OnDisk {
    fn word(&self, at: usize) -> Option<u64> {
        self.chunk(at).map(u64::from_le_bytes)
    }

    fn chunk(&self, at: usize) -> Option<[u8; 8]> {
        self.looks.set(self.looks.get() + 1);
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at as u64).ok().map(|()| bytes)
    }
}

/// The regular file that a path leads to by its one name, if the records tell.
pub fn alone(kept: &Kept, (start, path): (FileId, &[u8])) -> Option<Regular> {
    let Kept::Disk(directory) = kept else { return None };
    let file = File::open(directory.join("records")).ok()?;
    let source = OnDisk { file, looks: Cell::new(0) };
    match reach(&source, Question { start, path, follow: false }).ok()? {
        Reached::Regular(found, ..) => (found.attr.links == 1).then_some(found),
        Reached::Nothing => None,
    }
}

/// The same if the file has its bytes in the record of its name: which one it is, and the bytes.
pub fn small(kept: &Kept, (start, path): (FileId, &[u8])) -> Option<(FileId, Vec<u8>)> {
    let Kept::Disk(directory) = kept else { return None };
    let file = File::open(directory.join("records")).ok()?;
    let source = OnDisk { file, looks: Cell::new(0) };
    match reach(&source, Question { start, path, follow: false }).ok()? {
        Reached::Regular(found, directory, _) => {
            let Bytes::Runs(runs) = &found.bytes else { return None };
            let is_own = directory != FileId::NONE && found.attr.links == 1;
            is_own.then(|| Some((found.attr.id, source.read(runs)?))).flatten()
        }
        Reached::Nothing => None,
    }
}

/// The bytes of such a file, if the records tell, whatever waits.
pub fn bytes(kept: &Kept, path: &str) -> Option<Vec<u8>> {
    let Kept::Disk(directory) = kept else { return None };
    let source = OnDisk { file: File::open(directory.join("records")).ok()?, looks: Cell::new(0) };
    let question = Question { start: FileId::ROOT, path: path.as_bytes(), follow: false };
    let Reached::Regular(Regular { bytes: Bytes::Runs(runs), .. }, ..) =
        reach(&source, question).ok()?
    else {
        return None;
    };
    source.read(&runs)
}

/// What a path names, if the records tell, although something may wait that was submitted: `waits`
/// says so of a path from a directory.
pub fn beside(
    kept: &Kept,
    path: &str,
    waits: &mut dyn FnMut(FileId, Option<&[u8]>) -> bool,
) -> Option<Found> {
    let Kept::Disk(directory) = kept else { return None };
    let file = File::open(directory.join("records")).ok()?;
    let source = OnDisk { file, looks: Cell::new(0) };
    let question = Question { start: FileId::ROOT, path: path.as_bytes(), follow: false };
    let version = version(&source)?;
    let found = look(&source, question).ok()?;
    let subject = match found {
        Found::File(attr) if attr.kind == FileKind::Directory => Changed::Directory(attr.id),
        Found::File(attr) if attr.links != 1 => return None,
        Found::File(_) | Found::Nothing => Changed::Name(question),
    };
    apart(&source, (subject, version), waits).ok()?;
    Some(found)
}

/// Compares an answer with what the records of a tree, if there is one, tell.
pub fn check(kept: &Kept, path: &str, follow: bool, answer: &Answer<Attr>) {
    let Kept::Disk(directory) = kept else { return };
    let Ok(file) = File::open(directory.join("records")) else { return };
    let source = OnDisk { file, looks: Cell::new(0) };
    let question = Question { start: FileId::ROOT, path: path.as_bytes(), follow };
    match look(&source, question) {
        Ok(Found::File(attr)) => assert_eq!(Ok(attr), *answer, "{path}"),
        Ok(Found::Nothing) => {
            assert_eq!(Err(Failed::Errno(Errno::ENOENT)), *answer, "{path}");
        }
        Err(_) => {}
    }
    assert!(source.looks.get() < 1000, "a walk is short");
}

//! Which parts of large files an earlier try of a stage has copied.
//!
//! A log beside the stage's journal gets a line for each part when it is copied: a key, which tells
//! the file at the destination and the content it is a copy of, and the part's number. A copy that
//! is made anew forgets its parts by a line of its own. Half a line, as a crash may leave it, goes.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File},
    hash::{DefaultHasher, Hasher},
    io::{self, Read, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::copy::settle::Still;

/// A log grows no longer, bytes: parts of some 80 TB.
const BYTES_MAX: u64 = 64 << 20;
/// What stands for a part's number where all are forgotten.
const NONE: &str = "-";

/// The log of one stage.
#[derive(Debug)]
pub(crate) struct DoneParts {
    path: PathBuf,
    file: Mutex<File>,
    bytes: AtomicU64,
    /// What was there when it was opened.
    earlier: HashMap<u64, BTreeSet<u64>>,
}

impl DoneParts {
    /// The log at this path; with `restart` what is there is forgotten.
    pub(crate) fn open(path: PathBuf, restart: bool) -> io::Result<DoneParts> {
        let mut options = File::options();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(&path)?;
        if restart {
            file.set_len(0)?;
        }
        let mut text = Vec::new();
        (&file).take(BYTES_MAX).read_to_end(&mut text)?;
        let mut earlier: HashMap<u64, BTreeSet<u64>> = HashMap::new();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            match entry(line) {
                Some((key, Some(part))) => drop(earlier.entry(key).or_default().insert(part)),
                Some((key, None)) => drop(earlier.remove(&key)),
                None => {}
            }
        }
        // Half a line must not become one with the next.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        file.set_len(whole as u64)?;
        let bytes = AtomicU64::new(whole as u64);
        Ok(DoneParts { path, file: Mutex::new(file), bytes, earlier })
    }

    /// What tells the copy of a file with this content at this path.
    pub(crate) fn key(copy: &Path, still: &Still) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(copy.as_os_str().as_bytes());
        hasher.write_u8(0);
        hasher.write_u64(still.inode);
        hasher.write_u64(still.bytes);
        for (seconds, nanoseconds) in [still.modified, still.changed] {
            hasher.write_i64(seconds);
            hasher.write_i64(nanoseconds);
        }
        hasher.finish()
    }

    /// The parts that were copied before.
    pub(crate) fn earlier(&self, key: u64) -> Option<&BTreeSet<u64>> {
        self.earlier.get(&key)
    }

    /// A part is copied.
    pub(crate) fn note(&self, key: u64, part: u64) {
        self.write(&format!("{key:016x} {part}\n"));
    }

    /// The copy is made anew.
    pub(crate) fn forget(&self, key: u64) {
        if self.earlier.contains_key(&key) {
            self.write(&format!("{key:016x} {NONE}\n"));
        }
    }

    /// A line that is not written costs the next try a part.
    fn write(&self, line: &str) {
        let Ok(mut file) = self.file.lock() else { return };
        let length = line.len() as u64;
        if self.bytes.fetch_add(length, Relaxed) + length <= BYTES_MAX {
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// Nothing is left to be taken up.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn entry(line: &[u8]) -> Option<(u64, Option<u64>)> {
    let line = str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (key, part) = line.split_once(' ')?;
    let key = u64::from_str_radix(key, 16).ok()?;
    if part == NONE { Some((key, None)) } else { Some((key, Some(part.parse().ok()?))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, restart: bool) -> DoneParts {
        DoneParts::open(path.to_owned(), restart).expect("a log")
    }

    fn seen(path: &Path, key: u64) -> Vec<u64> {
        let log = open(path, false);
        log.earlier(key).into_iter().flatten().copied().collect()
    }

    #[test]
    fn what_was_noted_is_there_next_time_and_half_a_line_is_not() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let path = place.path().join("parts");
        let log = open(&path, false);
        log.note(1, 5);
        log.note(2, 7);
        assert_eq!(seen(&path, 1), [5]);
        let text = fs::read(&path).expect("the log");
        for cut in 0..text.len() {
            fs::write(&path, &text[..cut]).expect("to cut it");
            open(&path, false).note(3, 9);
            assert_eq!(seen(&path, 3), [9], "cut at {cut}");
            assert!(seen(&path, 2).is_empty(), "cut at {cut}");
        }
        assert!(open(&path, true).earlier(1).is_none());
        assert!(seen(&path, 3).is_empty());
    }

    #[test]
    fn a_copy_that_is_made_anew_has_no_parts() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let path = place.path().join("parts");
        open(&path, false).note(1, 5);
        open(&path, false).forget(1);
        assert!(seen(&path, 1).is_empty());
        open(&path, false).note(1, 6);
        assert_eq!(seen(&path, 1), [6]);
    }
}

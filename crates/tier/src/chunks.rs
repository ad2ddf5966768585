//! Bytes of a part of a file that come in.
//!
//! The object gets them at their places, if the master copy is the one that the daemon knows before
//! they are read and afterwards. Files stay open for a while, since the next part is mostly wanted
//! soon.

use std::{
    collections::VecDeque,
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use mayfly_types::{Errno, FileId, FileKind};
use mayfly_wire::TierItem;

use crate::{
    bytes::{COPY_BYTES, object_of_chunks, set_times},
    outcome::Outcome,
    place::{Place, attr_at_rest, attr_of_open, io_errno, is_same},
};

/// Files that stay open.
const OPEN_MAX: usize = 32;

/// Files outside that were read lately, by the daemon's numbers; the latest ones last.
#[derive(Default)]
pub(crate) struct OpenFiles(Mutex<VecDeque<(u32, FileId, Arc<File>)>>);

impl OpenFiles {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(u32, FileId, Arc<File>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, item: &TierItem<'_>) -> Option<Arc<File>> {
        let mut all = self.lock();
        let at = all.iter().position(|(source, id, _)| (*source, *id) == (item.source, item.file));
        at.and_then(|at| all.remove(at)).map(|(_, _, file)| file)
    }

    fn keep(&self, item: &TierItem<'_>, file: &Arc<File>) {
        let mut all = self.lock();
        all.retain(|(source, id, _)| (*source, *id) != (item.source, item.file));
        if all.len() >= OPEN_MAX {
            all.pop_front();
        }
        all.push_back((item.source, item.file, Arc::clone(file)));
    }

    /// The file that an item is about: one that is open and as the daemon knows it, or what has the
    /// name now.
    fn get(&self, place: &Place, item: &TierItem<'_>) -> Result<Arc<File>, Errno> {
        if let Some(file) = self.take(item)
            && attr_of_open(&file).is_ok_and(|attr| is_same(&item.known, &attr))
        {
            self.keep(item, &file);
            return Ok(file);
        }
        place.open().map(Arc::new)
    }
}

/// Fetches a part of a file.
pub(crate) fn fetch(
    open: &OpenFiles,
    place: &Place,
    item: &TierItem<'_>,
    object: &Path,
) -> Result<Outcome, Errno> {
    let file = open.get(place, item)?;
    let attr = attr_at_rest(&file)?;
    if attr.kind != FileKind::Regular {
        return Err(Errno::ESTALE);
    }
    if !is_same(&item.known, &attr) {
        return Ok(Outcome::of(attr));
    }
    let to = object_of_chunks(item, object)?;
    copy(&file, &to, item.start..item.end)?;
    // The object tells of the time while somebody may write it.
    set_times(&to, attr.atime, attr.mtime)?;
    let after = attr_of_open(&file)?;
    let same = is_same(&attr, &after);
    if same {
        open.keep(item, &file);
    }
    Ok(Outcome { same, ..Outcome::of(after) })
}

fn copy(from: &File, to: &File, range: std::ops::Range<u64>) -> Result<(), Errno> {
    let length = range.end.saturating_sub(range.start);
    let mut buffer = vec![0; COPY_BYTES.min(usize::try_from(length).unwrap_or(COPY_BYTES))];
    let mut at = range.start;
    while at < range.end {
        let left = usize::try_from(range.end - at).unwrap_or(buffer.len()).min(buffer.len());
        let count = from.read_at(&mut buffer[..left], at).map_err(|error| io_errno(&error))?;
        if count == 0 {
            // It has become shorter, and is another one.
            return Err(Errno::ESTALE);
        }
        to.write_all_at(&buffer[..count], at).map_err(|error| io_errno(&error))?;
        at += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::open_root;
    use mayfly_wire::tier::{NO_ATTR, TIER_CHUNKS};

    struct Bench {
        outside: tempfile::TempDir,
        objects: tempfile::TempDir,
        open: OpenFiles,
    }

    impl Bench {
        fn new(content: &[u8]) -> Bench {
            let (outside, objects) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            std::fs::write(outside.path().join("file"), content).unwrap();
            Bench { outside, objects, open: OpenFiles::default() }
        }

        fn item(&self, range: (u64, u64), which: u32) -> TierItem<'static> {
            let place = Place::find(open_root(self.outside.path()).unwrap(), b"file").unwrap();
            TierItem {
                number: 1,
                source: 0,
                what: TIER_CHUNKS,
                again: false,
                file: FileId(1),
                path: b"file",
                other: b"",
                bytes: b"",
                which,
                start: range.0,
                end: range.1,
                known: place.attr().unwrap(),
                attr: NO_ATTR,
            }
        }

        fn fetch(&self, item: &TierItem<'_>) -> Result<Outcome, Errno> {
            let place = Place::find(open_root(self.outside.path()).unwrap(), b"file").unwrap();
            fetch(&self.open, &place, item, &self.object())
        }

        fn object(&self) -> std::path::PathBuf {
            self.objects.path().join("aa/object")
        }
    }

    #[test]
    fn parts_come_to_their_places_from_a_file_that_was_opened_once() {
        let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        let bench = Bench::new(&content);
        let last = bench.item((60_000, 100_000), 0);
        assert_eq!(bench.fetch(&last).err(), Some(Errno::ENOENT), "nobody has made the object");
        assert!(bench.fetch(&bench.item((0, 30_000), 1)).unwrap().same);
        let kept = bench.item((30_000, 60_000), 0);
        // What is open is read on without its name.
        let (there, away) = (bench.outside.path().join("file"), bench.outside.path().join("away"));
        let known = bench.item((0, 0), 0).known;
        assert_eq!(bench.open.lock().len(), 1);
        assert!(bench.fetch(&kept).unwrap().same && bench.fetch(&last).unwrap().same);
        assert_eq!(std::fs::read(bench.object()).unwrap(), content);
        std::fs::rename(&there, &away).unwrap();
        std::fs::write(&there, "another one").unwrap();
        let seen = bench.fetch(&TierItem { known, ..bench.item((0, 30_000), 0) }).unwrap();
        assert!(!seen.same, "its name stands for another file");
        assert_eq!(seen.attr.size_bytes, 11);
        assert_eq!(std::fs::read(bench.object()).unwrap(), content);
    }

    #[test]
    fn a_file_that_is_another_one_changes_no_object() {
        let bench = Bench::new(&[7; 5000]);
        let item = bench.item((0, 5000), 1);
        std::fs::write(bench.outside.path().join("file"), [8; 6000]).unwrap();
        let seen = bench.fetch(&item).unwrap();
        assert!(!seen.same && seen.attr.size_bytes == 6000);
        assert!(!bench.object().exists());
    }
}

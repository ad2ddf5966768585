//! From directories into an object store.

use std::{
    ffi::CStr,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::errno::Errno;

use crate::{
    BadPattern, Bucket, Cancel, Journal, Note, Options, Pair, Problem, Report, Selection, Watcher,
    bucket::{PART_BYTES, sink::Sink},
    copy::settle::Stat,
    report::counts::count,
    stager::{Stager, prepare_process, selections},
    walk::tree::{Dir, Tree, os},
};

/// Puts files into a bucket; the destination of a pair is the path below the bucket's prefix.
///
/// # Errors
/// A pattern is none; nothing was done then.
pub fn upload(
    bucket: &Bucket,
    pairs: &[Pair],
    options: &Options,
    journal: &mut Journal,
    cancel: &Cancel,
    watcher: &dyn Watcher,
) -> Result<Report, BadPattern> {
    let selections = selections(pairs, options)?;
    prepare_process();
    let options = &Options { changed: options.changed || journal.is_resumed(), ..options.clone() };
    let mut stager = Stager::new(options, watcher, cancel, journal.stage());
    let listing = match options.changed || options.delete {
        true => match bucket.list_all() {
            Ok(listing) => Some(listing),
            Err(problem) => {
                stager.notes.problem(Path::new(bucket.prefix()), problem);
                return Ok(stager.notes.report(cancel.is_cancelled()));
            }
        },
        false => None,
    };
    stager.sink = Some(Sink { bucket, listing });
    for (pair, selection) in pairs.iter().zip(selections) {
        let Some((source, source_name)) = stager.open_source(pair) else { continue };
        let name = source_name.clone();
        let tree = Tree { pair: pair.clone(), selection, began: None, name, like: None };
        let no_directory = Err(Problem::of("make a directory")(Errno::ENOTSUP));
        let above = Arc::new(Dir::above(Arc::new(tree), source, no_directory, None));
        stager.begin_at(&above, &source_name);
        stager.work(&[]);
    }
    stager.delete_strays(pairs);
    let report = stager.notes.report(cancel.is_cancelled());
    journal.finish(&report);
    Ok(report)
}

impl Stager<'_> {
    /// Puts a file, of which the first bytes are read already.
    pub(crate) fn put(
        &self,
        sink: &Sink<'_>,
        dir: &Dir,
        name: &CStr,
        (source, stat): (&File, &Stat),
        content: &[u8],
    ) -> Result<(), Problem> {
        let path = dir.path(os(name));
        if stat.links > 1 {
            self.notes.tell(Note::NotKept(&path, "that it is one file with others"));
        }
        crate::xattrs::names(source, |attribute| {
            let text = format!("the extended attribute {}", attribute.to_string_lossy());
            self.notes.tell(Note::NotKept(&path, &text));
        });
        let key = sink.bucket.key(&dir.target_path(os(name)))?;
        let is_still = || {
            let now = Stat::of(source).map_err(Problem::of("look at the file"))?;
            if stat.is_still(&now) { Ok(()) } else { Err(Problem::Changing) }
        };
        if stat.bytes <= content.len() as u64 {
            self.turn(stat.bytes)?;
            sink.bucket.put(&key, stat, content)?;
        } else if stat.bytes <= PART_BYTES {
            self.turn(stat.bytes)?;
            let mut all = vec![0; stat.bytes as usize];
            read_all(source, &mut all)?;
            is_still()?;
            sink.bucket.put(&key, stat, &all)?;
        } else {
            let again = std::io::Seek::rewind(&mut &*source);
            again.map_err(|error| crate::copy::whole::failed("read the file", &error))?;
            sink.bucket.put_large(&key, stat, source, |bytes| self.turn(bytes), is_still)?;
        }
        if self.options.verify {
            sink.bucket.compare(&key, stat.bytes, source)?;
        }
        self.copied(stat.bytes);
        Ok(())
    }

    /// Removes what the sources have not and the patterns would have put there, if all of the
    /// sources was seen.
    fn delete_strays(&self, pairs: &[Pair]) {
        let whole = self.notes.counters.now().failed == 0 && !self.is_over();
        let Some(Sink { bucket, listing: Some(listing) }) = &self.sink else { return };
        if !self.options.delete || !whole {
            return;
        }
        for key in listing.strays() {
            let Some(inner) = bucket.inner(&key).map(Path::new) else { continue };
            let of = |pair: &Pair| {
                let below = inner.strip_prefix(&pair.destination).ok()?;
                let chosen = Selection::new(&self.options.wanted, &pair.patterns).ok()?;
                Some(chosen.takes_name(below))
            };
            if !pairs.iter().any(|pair| of(pair) == Some(true)) {
                continue;
            }
            let path = PathBuf::from(key.as_ref());
            if self.options.dry_run {
                self.notes.tell(Note::WouldDelete(&path));
            } else {
                match bucket.delete(&key) {
                    Ok(()) => count(&self.notes.counters.deleted),
                    Err(problem) => self.notes.problem(&path, problem),
                }
            }
        }
    }
}

fn read_all(source: &File, to: &mut [u8]) -> Result<(), Problem> {
    let read = std::os::unix::fs::FileExt::read_exact_at(source, to, 0);
    read.map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Problem::Changing,
        _ => crate::copy::whole::failed("read the file", &error),
    })
}

//! From an object store into directories.

use std::{
    collections::HashMap,
    ffi::OsString,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
    thread,
};

use nix::{errno::Errno, sys::stat::SFlag};
use object_store::path::Path as Key;

use crate::{
    BadPattern, Bucket, Cancel, Journal, Note, Options, Problem, Report, STREAMS_MAX, Selection,
    Watcher,
    bucket::{Listed, ObjectMetadata, PART_BYTES},
    copy::{
        settle::{Stat, set_permissions},
        whole::{Partial, temporary_name},
    },
    report::counts::count,
    stager::Stager,
    walk::tree::{make_all, split},
};

/// So many objects are listed ahead.
const AHEAD: usize = 1000;

/// Makes files of what a bucket has below its prefix, at `destination`; the prefix itself may be
/// one object.
///
/// # Errors
/// A pattern is none; nothing was done then.
pub fn download(
    bucket: &Bucket,
    destination: &Path,
    options: &Options,
    journal: &mut Journal,
    cancel: &Cancel,
    watcher: &dyn Watcher,
) -> Result<Report, BadPattern> {
    let selection = Selection::new(&options.wanted, &[])?;
    let stager = Stager::new(options, watcher, cancel, journal.stage());
    let fetch = Fetch {
        bucket,
        destination,
        selection,
        // An earlier try has made files with the times of their objects.
        changed: options.changed || journal.is_resumed(),
        stager: &stager,
        parents: Mutex::default(),
    };
    fetch.all();
    let report = stager.notes.report(cancel.is_cancelled());
    journal.finish(&report);
    Ok(report)
}

struct Fetch<'a> {
    bucket: &'a Bucket,
    destination: &'a Path,
    selection: Selection,
    changed: bool,
    stager: &'a Stager<'a>,
    /// Directories that were made.
    parents: Mutex<HashMap<PathBuf, Arc<OwnedFd>>>,
}

impl Fetch<'_> {
    fn all(&self) {
        let streams = self.stager.options.streams.clamp(1, STREAMS_MAX);
        let (sender, objects) = mpsc::sync_channel::<(Key, Listed)>(AHEAD);
        let objects = Mutex::new(objects);
        thread::scope(|scope| {
            for _ in 0..streams {
                scope.spawn(|| {
                    while let Some((key, listed)) =
                        objects.lock().ok().and_then(|objects| objects.recv().ok())
                    {
                        self.object(&key, listed);
                        self.stager.notes.progress(&[]);
                    }
                });
            }
            let mut any = false;
            let mut take = |key, listed| {
                any = true;
                !self.stager.is_over() && sender.send((key, listed)).is_ok()
            };
            let listed = self.bucket.list(&mut take);
            // The prefix may be the name of an object, which no listing of what is below it has.
            let itself = || self.bucket.itself();
            if let Some((key, listed)) = (!any).then(itself).flatten() {
                any = sender.send((key, listed)).is_ok();
            }
            drop(sender);
            let found = listed.and_then(|()| match any || self.stager.is_over() {
                true => Ok(()),
                false => Err(Problem::of("find anything of this name")(Errno::ENOENT)),
            });
            if let Err(problem) = found {
                self.stager.notes.problem(Path::new(self.bucket.prefix()), problem);
            }
        });
    }

    fn object(&self, key: &Key, listed: Listed) {
        let Some(inner) = self.bucket.inner(key).filter(|_| !self.stager.is_over()) else { return };
        let inner = Path::new(inner);
        if !self.selection.takes(inner, listed) {
            return;
        }
        let path = match inner.as_os_str().is_empty() {
            true => self.destination.to_owned(),
            false => self.destination.join(inner),
        };
        if let Err(problem) = self.file(key, listed, &path)
            && problem != Problem::Ended
        {
            self.stager.notes.problem(&path, problem);
        }
    }

    fn file(&self, key: &Key, listed: Listed, path: &Path) -> Result<(), Problem> {
        if self.changed && self.is_unchanged(key, listed, path) {
            count(&self.stager.notes.counters.unchanged);
            return Ok(());
        }
        if self.stager.options.dry_run {
            self.stager.copied(listed.bytes);
            self.stager.notes.tell(Note::WouldCopy(path, listed.bytes));
            return Ok(());
        }
        self.stager.pace.file(|| self.stager.is_over());
        let (parent, name) = self.parent(path)?;
        let temporary = temporary_name((self.stager.stage, 0), &name);
        let new = Stat { mode: 0o666, bytes: listed.bytes, ..Stat::unseen() };
        let mut partial = Partial::make(parent.as_fd(), temporary, &new)?;
        let metadata = match listed.bytes <= PART_BYTES {
            true => {
                self.stager.turn(listed.bytes)?;
                let (content, metadata) = self.bucket.get(key, listed.bytes)?;
                partial.write(&content)?;
                metadata
            }
            false => self.parts(key, listed, &partial)?,
        };
        if let Some(mode) = metadata.mode {
            set_permissions(partial.as_file()?, mode)
                .map_err(Problem::of("set the permissions"))?;
        }
        let time = metadata.modified.unwrap_or(listed.put);
        partial.finish(&name, &Stat { modified: time, accessed: time, ..new })?;
        if self.stager.options.verify {
            let copy = std::fs::File::open(path);
            let copy = copy.map_err(|error| crate::copy::whole::failed("open the copy", &error))?;
            self.bucket.compare(key, listed.bytes, &copy)?;
        }
        self.stager.copied(listed.bytes);
        Ok(())
    }

    /// Gets a large object, range by range.
    fn parts(
        &self,
        key: &Key,
        listed: Listed,
        partial: &Partial<'_>,
    ) -> Result<ObjectMetadata, Problem> {
        let mut at = 0;
        while at < listed.bytes {
            let end = (at + PART_BYTES).min(listed.bytes);
            self.stager.turn(end - at)?;
            let content = self.bucket.range(key, at, end)?;
            let written = partial.as_file()?.write_all_at(&content, at);
            written.map_err(|error| crate::copy::whole::failed("write the file", &error))?;
            at = end;
        }
        // Ranges of two objects would be neither.
        match self.bucket.metadata(key)? {
            (metadata, now) if listed.is_still(&now) => Ok(metadata),
            _ => Err(Problem::Changing),
        }
    }

    /// Is the file as long as the object, and as old as that is or the file that it was?
    fn is_unchanged(&self, key: &Key, listed: Listed, path: &Path) -> bool {
        let Ok(copy) = Stat::at(nix::fcntl::AT_FDCWD, path, false) else { return false };
        let is_file = copy.is(SFlag::S_IFREG) && copy.bytes == listed.bytes;
        is_file
            && (copy.modified == listed.put
                || self.bucket.metadata(key).is_ok_and(|(metadata, now)| {
                    listed.is_still(&now) && metadata.modified == Some(copy.modified)
                }))
    }

    fn parent(&self, path: &Path) -> Result<(Arc<OwnedFd>, OsString), Problem> {
        let (parent, name) = split(path);
        let mut parents = self.parents.lock().map_err(|_| Problem::Ended)?;
        if let Some(known) = parents.get(&parent) {
            return Ok((Arc::clone(known), name));
        }
        if parents.len() >= AHEAD {
            parents.clear();
        }
        let made = Arc::new(make_all(&parent, self.stager.options.above)?);
        parents.insert(parent, Arc::clone(&made));
        Ok((made, name))
    }
}

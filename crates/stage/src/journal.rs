//! What a stage that was killed leaves for the same stage when it is begun again.
//!
//! A file under its own name at the destination is whole, so the destination itself says what is
//! done: what is as long and as old as the source, and was changed there after the stage began. The
//! journal keeps when that was, by the destination's own clock, and the number that is in the
//! temporary names, so that what a try has left is found and removed. It is one small file for each
//! unfinished stage, however many files that has, and held by a lock while the stage runs. Beside
//! it is a log of the parts of large files that are done ([`done_parts`]). The [`registry`] says
//! which stages run in an instance, and how the last ones ended.

pub(crate) mod done_parts;
pub mod registry;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    hash::{BuildHasher, DefaultHasher, Hasher, RandomState},
    io::{self, Read, Seek, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use serde::{Deserialize, Serialize};

use done_parts::DoneParts;

use crate::{Report, copy::settle::Moment};

/// What was begun so long ago is not taken up again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);
/// A journal is at most so long, bytes.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Saved {
    stage: u64,
    /// When each destination was begun, by the bytes of its path in hexadecimal digits.
    began: BTreeMap<String, Moment>,
}

/// The journal of one stage.
#[derive(Debug)]
pub struct Journal {
    /// None when nothing is kept.
    file: Option<(Flock<File>, PathBuf)>,
    saved: Saved,
    is_resumed: bool,
    parts: Option<Arc<DoneParts>>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The same stage runs already.
    #[error("the same stage is running already")]
    Running,
    /// It cannot be kept.
    #[error("cannot keep a journal in {}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Journal {
    /// Nothing is kept: a stage that is killed begins anew.
    #[must_use]
    pub fn none() -> Journal {
        Journal { file: None, saved: Saved::new(), is_resumed: false, parts: None }
    }

    /// The journal in `directory` of the stage that `what` describes; with `restart` what an
    /// earlier try has left there is forgotten.
    ///
    /// # Errors
    /// The same stage runs; the directory cannot be used.
    pub fn open(directory: &Path, what: &[u8], restart: bool) -> Result<Journal, JournalError> {
        let mut hasher = DefaultHasher::new();
        hasher.write(what);
        let path = directory.join(format!("{:016x}.json", hasher.finish()));
        Journal::open_file(directory, &path, restart).map_err(|source| {
            match source.kind() == io::ErrorKind::WouldBlock {
                true => JournalError::Running,
                false => JournalError::Io { path, source },
            }
        })
    }

    fn open_file(directory: &Path, path: &Path, restart: bool) -> io::Result<Journal> {
        fs::create_dir_all(directory)?;
        forget(directory);
        let mut options = File::options();
        let file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno): (_, Errno)| io::Error::from(errno))?;
        let mut text = Vec::new();
        (&*file).take(BYTES_MAX).read_to_end(&mut text)?;
        // What was cut short by a crash is as good as none.
        let earlier = serde_json::from_slice(&text).ok().filter(|_| !restart);
        let is_resumed = earlier.is_some();
        let saved = earlier.unwrap_or_else(Saved::new);
        let parts = DoneParts::open(path.with_extension("parts"), !is_resumed)?;
        let file = Some((file, path.to_owned()));
        let mut journal = Journal { file, saved, is_resumed, parts: Some(Arc::new(parts)) };
        journal.write()?;
        Ok(journal)
    }

    fn write(&mut self) -> io::Result<()> {
        let Some((file, _)) = &mut self.file else { return Ok(()) };
        let text = serde_json::to_vec(&self.saved)?;
        file.rewind()?;
        file.write_all(&text)?;
        file.set_len(text.len() as u64)
    }

    /// Did an earlier try begin this stage?
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// The number in the stage's temporary names.
    pub(crate) fn stage(&self) -> u64 {
        self.saved.stage
    }

    /// Which parts of large files are done.
    pub(crate) fn parts(&self) -> Option<Arc<DoneParts>> {
        self.parts.clone()
    }

    /// When an earlier try began with this destination; `now` is noted if none did.
    pub(crate) fn began(
        &mut self,
        destination: &Path,
        now: impl FnOnce() -> Option<Moment>,
    ) -> Option<Moment> {
        self.file.as_ref()?;
        let bytes = destination.as_os_str().as_bytes();
        let key: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if let Some(began) = self.saved.began.get(&key) {
            return Some(*began);
        }
        self.saved.began.insert(key, now()?);
        // Without it the next try copies everything again.
        let _ = self.write();
        None
    }

    /// Nothing is left to be done once the stage is whole.
    pub(crate) fn finish(&mut self, report: &Report) {
        if let Some((_, path)) = self.file.take()
            && report.is_whole()
        {
            let _ = fs::remove_file(path);
            self.parts.iter().for_each(|parts| parts.remove());
        }
    }
}

/// Removes journals of stages that nobody has taken up for so long.
fn forget(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|file| file.modified()).ok();
        let age = age.and_then(|modified| modified.elapsed().ok());
        if age.is_some_and(|age| age > FORGOTTEN_AFTER)
            && let Ok(file) = File::open(entry.path())
            && Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Saved {
    fn new() -> Saved {
        Saved { stage: RandomState::new().build_hasher().finish(), ..Saved::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn journals_that_nobody_takes_up_go_after_a_month() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let open = |what: &[u8]| Journal::open(place.path(), what, false).expect("a journal");
        let count = || {
            let entries = fs::read_dir(place.path()).expect("a directory").flatten();
            entries.filter(|entry| entry.path().extension() == Some("json".as_ref())).count()
        };
        drop(open(b"one"));
        let held = open(b"two");
        assert!(open(b"one").is_resumed());
        let old = SystemTime::now() - 2 * FORGOTTEN_AFTER;
        for entry in fs::read_dir(place.path()).expect("a directory") {
            let file = File::options().write(true).open(entry.expect("an entry").path());
            file.and_then(|file| file.set_modified(old)).expect("its own");
        }
        drop(open(b"three"));
        // The one that runs is kept, however long that takes.
        assert_eq!(count(), 2);
        drop(held);
        assert!(!open(b"one").is_resumed());
    }
}

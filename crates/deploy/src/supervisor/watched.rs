//! Removes the stand-ins of watched files when nobody watches them with inotify any more.
//!
//! The kernel does not tell the end of a watch. So the supervisor looks for it when a process of
//! the instance has ended while there were watches. It looks in `/proc/PID/fdinfo`, where the
//! kernel lists the watches of each inotify descriptor. A process that begins to watch at that
//! moment tries again ([`mayfly_client::Client::watch_file`]).

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::{Duration, Instant, SystemTime},
};

use mayfly_daemon::serve::releases;
use mayfly_types::mirror::{DIRECTORIES, DIRECTORY, FILES, NAMES, PASSING};
use rustix::{
    fs::{major, minor},
    time::Timespec,
};

/// Processes end together; they are looked for once.
const PAUSE: Duration = Duration::from_secs(1);
/// Nothing is on its way from one place to another for so long.
const PASSING_MAX: Duration = Duration::from_secs(60);

/// When to look.
#[derive(Debug, Default)]
pub(super) struct Watched(Option<Instant>);

/// An inode as `fdinfo` has it: device and number.
type Watch = (u64, u64);

impl Watched {
    /// A process has ended that may have watched.
    pub(super) fn may_have_ended(&mut self, watched: &AtomicU32) {
        if watched.load(SeqCst) != 0 && self.0.is_none() {
            self.0 = Some(Instant::now() + PAUSE);
        }
    }

    /// How long to wait for something else at most.
    pub(super) fn wait(&self) -> Option<Timespec> {
        let left = self.0?.saturating_duration_since(Instant::now());
        Timespec::try_from(left).ok()
    }

    /// Looks, if it is time.
    pub(crate) fn look(&mut self, run_dir: &Path, watched: &AtomicU32) {
        if self.0.take_if(|due| *due <= Instant::now()).is_none() {
            return;
        }
        let place = run_dir.join(DIRECTORY);
        let in_use = watches();
        for kind in [DIRECTORIES, FILES] {
            for path in children(&place.join(kind)) {
                if !watch_of(&path).is_some_and(|watch| in_use.contains(&watch)) {
                    remove(&path);
                }
            }
        }
        for path in children(&place.join(NAMES)) {
            // A link to nothing.
            if fs::metadata(&path).is_err() {
                remove(&path);
            }
        }
        for path in children(&place.join(PASSING)) {
            if is_old(&path) {
                remove(&path);
            }
        }
        let none =
            || [DIRECTORIES, FILES].iter().all(|kind| children(&place.join(kind)).is_empty());
        if none() {
            watched.store(0, SeqCst);
            if !none() {
                watched.store(1, SeqCst);
            }
        }
    }
}

fn children(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Removes it. It does not matter if somebody else has done so meanwhile.
fn remove(path: &Path) {
    let _ = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        _ => fs::remove_file(path),
    };
}

fn is_old(path: &Path) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|found| found.modified());
    changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > PASSING_MAX))
}

fn watch_of(path: &Path) -> Option<Watch> {
    let found = fs::symlink_metadata(path).ok()?;
    let device = u64::from(major(found.dev())) << 20 | u64::from(minor(found.dev()));
    Some((device, found.ino()))
}

/// All that processes of this user watch.
fn watches() -> HashSet<Watch> {
    let mut found = HashSet::new();
    for process in releases::processes() {
        // Those of others cannot be looked into.
        for descriptor in children(&process.join("fd")) {
            let is_queue =
                fs::read_link(&descriptor).is_ok_and(|to| to.as_os_str() == "anon_inode:inotify");
            let number = descriptor.file_name().unwrap_or_default();
            if is_queue && let Ok(lines) = fs::read_to_string(process.join("fdinfo").join(number)) {
                found.extend(lines.lines().filter_map(watch_in));
            }
        }
    }
    found
}

/// `inotify wd:1 ino:2f sdev:19 mask:… …`, numbers in hexadecimal.
fn watch_in(line: &str) -> Option<Watch> {
    let field = |key| {
        let word =
            line.strip_prefix("inotify ")?.split(' ').find_map(|word| word.strip_prefix(key));
        u64::from_str_radix(word?, 16).ok()
    };
    Some((field("sdev:")?, field("ino:")?))
}

#[cfg(test)]
mod tests {
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

    use super::*;

    #[test]
    fn what_is_watched_is_found_in_procfs() {
        let directory = tempfile::tempdir().expect("a directory");
        let queue = inotify::init(CreateFlags::CLOEXEC).expect("a queue");
        let watch = watch_of(directory.path()).expect("it is there");
        assert!(!watches().contains(&watch));
        inotify::add_watch(&queue, directory.path(), WatchFlags::CREATE).expect("a watch");
        assert!(watches().contains(&watch));
        drop(queue);
        assert!(!watches().contains(&watch));
    }

    #[test]
    fn what_nobody_watches_goes_and_the_rest_stays() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let place = run_dir.path().join(DIRECTORY);
        for path in ["directories/1", "directories/2", "files", "names", "passing/7-0"] {
            fs::create_dir_all(place.join(path)).expect("a directory");
        }
        for path in ["directories/1/kept", "directories/2/a", "files/a3"] {
            fs::write(place.join(path), "").expect("a file");
        }
        for (name, to) in [("names/b", "kept"), ("names/c", "a")] {
            let directory = if to == "a" { 2 } else { 1 };
            std::os::unix::fs::symlink(
                format!("../directories/{directory}/{to}"),
                place.join(name),
            )
            .expect("a link");
        }
        let queue = inotify::init(CreateFlags::CLOEXEC).expect("a queue");
        inotify::add_watch(&queue, place.join("directories/1"), WatchFlags::CREATE)
            .expect("a watch");
        let (word, mut watched) = (AtomicU32::new(1), Watched(Some(Instant::now())));
        watched.look(run_dir.path(), &word);
        let there = |path: &str| fs::symlink_metadata(place.join(path)).is_ok();
        assert!(there("directories/1/kept") && there("names/b") && there("passing/7-0"));
        assert!(!there("directories/2") && !there("files/a3") && !there("names/c"));
        assert_eq!(word.load(SeqCst), 1);
        drop(queue);
        watched.may_have_ended(&word);
        assert!(watched.wait().is_some_and(|wait| wait.tv_sec <= 1));
        watched.0 = Some(Instant::now());
        watched.look(run_dir.path(), &word);
        assert!(!there("directories/1") && !there("names/b"));
        assert_eq!(word.load(SeqCst), 0);
        watched.may_have_ended(&word);
        assert!(watched.wait().is_none());
    }
}

//! Which stages run in an instance, and how the last ones ended.
//!
//! A directory has for each stage a file that says what it does and how far it is, and one that is
//! locked while it runs: a stage that was killed is told from one that goes on.

use std::{
    fs::{self, File},
    io::{self, Seek, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use nix::{
    fcntl::{Flock, FlockArg},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use crate::{Counts, Moment, Report};

/// The file with the counts of the stages that are not shown any more.
const PAST: &str = "past";
/// So many that have ended are shown.
const ENDED_MAX: usize = 20;
/// An instance has at most so many stages at a time.
const STAGES_MAX: u32 = 10_000;
/// Whoever waits looks so often.
const NAP: Duration = Duration::from_millis(50);

/// How a stage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It goes on.
    Running,
    /// All is there.
    Done,
    /// Some of it could not be copied.
    Partly,
    /// It was ended before all was done.
    Ended,
    /// Its process died.
    Killed,
}

/// A stage, as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shown {
    /// Its number in the instance.
    pub id: u32,
    /// Its process.
    pub pid: u32,
    /// What it copies, for people.
    pub what: String,
    /// How it is.
    pub state: State,
    /// It copies again and again.
    pub is_periodic: bool,
    /// When the last of its copies that were whole was begun, seconds since 1970.
    pub last_whole: Option<u64>,
    /// How far it is.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The entry of a stage that runs, until it is dropped.
#[derive(Debug)]
pub struct Entry {
    directory: PathBuf,
    shown: Shown,
    lock: Option<Flock<File>>,
}

impl Entry {
    /// A new one.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn new(directory: &Path, what: String, is_periodic: bool) -> io::Result<Entry> {
        fs::create_dir_all(directory)?;
        forget(directory);
        let mut options = File::options();
        options.write(true).create_new(true);
        for id in 1..=STAGES_MAX {
            let file = match options.open(directory.join(format!("{id}.lock"))) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
            let state = State::Running;
            let counts = Counts::default();
            let pid = std::process::id();
            let shown = Shown { id, pid, what, state, is_periodic, last_whole: None, counts };
            let entry = Entry { directory: directory.to_owned(), shown, lock: Some(lock) };
            entry.write(&entry.shown)?;
            return Ok(entry);
        }
        Err(io::Error::other(format!("{STAGES_MAX} stages are there already")))
    }

    fn write(&self, shown: &Shown) -> io::Result<()> {
        let (new, path) = (format!(".{}.new", shown.id), format!("{}.json", shown.id));
        let new = self.directory.join(new);
        fs::write(&new, serde_json::to_vec(shown)?)?;
        fs::rename(new, self.directory.join(path))
    }

    /// How far it is. Who cannot be told is not told.
    pub fn progress(&self, counts: &Counts) {
        let _ = self.write(&Shown { counts: *counts, ..self.shown.clone() });
    }

    /// The copy that was begun then is whole.
    pub fn is_whole_since(&mut self, began: SystemTime) {
        let since = began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.shown.last_whole = Some(since.as_secs());
        let _ = self.write(&self.shown);
    }

    /// How it ended.
    pub fn end(mut self, report: &Report) {
        let state = match report {
            Report { ended: true, .. } => State::Ended,
            report if report.is_whole() => State::Done,
            _ => State::Partly,
        };
        let _ = self.write(&Shown { counts: report.counts, state, ..self.shown.clone() });
        self.lock = None;
    }
}

/// The file that says when the last stage into the instance ended.
const LAST_IN: &str = "last-in";

/// A stage into the instance has ended, at this moment by its clock.
///
/// # Errors
/// The directory cannot be written to.
pub fn note_stage_in(directory: &Path, ended: Moment) -> io::Result<()> {
    let new = directory.join(format!(".{LAST_IN}.{}", std::process::id()));
    fs::write(&new, serde_json::to_vec(&ended)?)?;
    fs::rename(new, directory.join(LAST_IN))
}

/// When the last one did, as far as this node knows.
#[must_use]
pub fn last_stage_in(directory: &Path) -> Option<Moment> {
    serde_json::from_slice(&fs::read(directory.join(LAST_IN)).ok()?).ok()
}

/// Forgets the oldest of those that have ended.
fn forget(directory: &Path) {
    let mut ended = list(directory);
    ended.retain(|shown| shown.state != State::Running);
    let too_many = ended.len().saturating_sub(ENDED_MAX);
    for shown in &ended[..too_many] {
        // Of several that forget it at once, one removes it.
        if fs::remove_file(directory.join(format!("{}.json", shown.id))).is_ok() {
            let _ = add_to_past(directory, &shown.counts);
        }
        let _ = fs::remove_file(directory.join(format!("{}.lock", shown.id)));
    }
}

/// Adds what a forgotten stage did to what all of those did before.
fn add_to_past(directory: &Path, counts: &Counts) -> io::Result<()> {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false);
    let file = file.open(directory.join(PAST))?;
    let mut file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
    let mut past = serde_json::from_reader(&*file).unwrap_or(Counts::default());
    past.add_with_failures(counts);
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(&serde_json::to_vec(&past)?)
}

/// What all stages together have done: those that run, those that ended, and those that are
/// forgotten.
#[must_use]
pub fn sum(directory: &Path) -> Counts {
    let past = fs::read(directory.join(PAST)).unwrap_or_default();
    let mut sum = serde_json::from_slice(&past).unwrap_or(Counts::default());
    for shown in list(directory) {
        sum.add_with_failures(&shown.counts);
    }
    sum
}

/// All that are known, by number.
#[must_use]
pub fn list(directory: &Path) -> Vec<Shown> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let texts = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "json"));
    let read = texts.filter_map(|entry| fs::read(entry.path()).ok());
    let mut all: Vec<Shown> = read.filter_map(|text| serde_json::from_slice(&text).ok()).collect();
    for shown in &mut all {
        // Looked at after the text: who has just ended has written that before it let go.
        if shown.state == State::Running && !is_locked(directory, shown.id) {
            shown.state = ended_state(directory, shown.id);
        }
    }
    all.sort_by_key(|shown| shown.id);
    all
}

fn ended_state(directory: &Path, id: u32) -> State {
    let text = fs::read(directory.join(format!("{id}.json"))).unwrap_or_default();
    match serde_json::from_slice::<Shown>(&text).map(|shown| shown.state) {
        Ok(State::Running) | Err(_) => State::Killed,
        Ok(state) => state,
    }
}

fn is_locked(directory: &Path, id: u32) -> bool {
    let Ok(file) = File::open(directory.join(format!("{id}.lock"))) else { return false };
    Flock::lock(file, FlockArg::LockSharedNonblock).is_err()
}

impl Shown {
    /// Asks it to end: what is under way is given up, what is done stays.
    ///
    /// # Errors
    /// Its process cannot be told.
    pub fn cancel(&self) -> io::Result<()> {
        let pid = i32::try_from(self.pid).map_err(io::Error::other)?;
        Ok(kill(Pid::from_raw(pid), Signal::SIGTERM)?)
    }
}

/// Waits until none of these runs, or the time is over; how they are then.
#[must_use]
pub fn wait(directory: &Path, ids: &[u32], until: Option<Instant>) -> Vec<Shown> {
    loop {
        let mut all = list(directory);
        all.retain(|shown| ids.contains(&shown.id));
        let is_over = until.is_some_and(|until| Instant::now() >= until);
        if is_over || all.iter().all(|shown| shown.state != State::Running) {
            return all;
        }
        thread::sleep(NAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_shown_while_it_runs_and_how_it_ended() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let one = Entry::new(place.path(), "one".to_owned(), false).expect("an entry");
        let two = Entry::new(place.path(), "two".to_owned(), true).expect("an entry");
        let states = || list(place.path()).iter().map(|shown| shown.state).collect::<Vec<_>>();
        assert_eq!(states(), [State::Running, State::Running]);
        one.end(&Report::default());
        // Its process is gone before it said how.
        drop(two);
        assert_eq!(states(), [State::Done, State::Killed]);
        let waited = wait(place.path(), &[1, 2], None);
        assert_eq!(waited.len(), 2);
    }

    #[test]
    fn of_those_that_have_ended_the_last_are_kept() {
        let place = tempfile::tempdir().expect("a temporary directory");
        for _ in 0..ENDED_MAX + 5 {
            Entry::new(place.path(), "x".to_owned(), false)
                .expect("an entry")
                .end(&Report::default());
        }
        assert!(list(place.path()).len() <= ENDED_MAX + 1);
    }
}

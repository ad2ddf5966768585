//! The log of a node: what its supervisor and their children have to say to people.
//!
//! One file in the run directory, one line an event ([`line`]), written by the supervisor. Its
//! children (the daemon, the processes of mounts, those that make images) write to a pipe of the
//! supervisor's instead of standard error ([`Ear`]): they need no clock for it, whatever they say
//! becomes lines, a panic too, and a flood of it does not fill the disk. Their ends of the pipe do
//! not block: a child whose supervisor is stopped loses words, not time.
//!
//! The file is bounded: with more than [`LOG_BYTES_MAX`] it becomes the older one ([`OLDER_NAME`])
//! and a new one is begun. So a node keeps at most twice as much, and the newest always.

mod ear;
mod line;
mod reader;

use std::{
    fmt::Display,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

pub(crate) use ear::Ear;
pub use line::{Level, Line, Part};
pub(crate) use reader::{LogRead, Reader};

/// The log in the run directory.
pub(crate) const LOG_NAME: &str = "log";
/// The one before.
pub(crate) const OLDER_NAME: &str = "log.1";
/// Longest log, bytes; there is one older one of that length at most. Run directories may be in
/// memory.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// The log that this process writes.
static OURS: OnceLock<Mutex<Log>> = OnceLock::new();

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// From here on this process writes the log in `run_dir`, that of node `node`; its own standard
/// error, where a panic would go, leads there too.
pub(crate) fn begin(run_dir: &Path, node: u32) -> io::Result<()> {
    let mut log = Log::open(run_dir, node, LOG_BYTES_MAX)?;
    log.is_standard_error = true;
    log.take_standard_error();
    // A process has one instance.
    let _ = OURS.set(Mutex::new(log));
    Ok(())
}

/// Writes a line of this process: of the supervisor in a log that was begun, otherwise on standard
/// error.
fn say(level: Level, what: &dyn Display) {
    if OURS.get().is_some() {
        return write(Part::Supervisor, level, &what.to_string());
    }
    // Nobody may be there to read it.
    let _ = writeln!(io::stderr(), "mayfly: {what}");
}

/// Says something that a person may want to know later.
pub(crate) fn info(what: impl Display) {
    say(Level::Info, &what);
}

/// Says that something is wrong; the work goes on.
pub(crate) fn warn(what: impl Display) {
    say(Level::Warn, &what);
}

/// A person must look.
pub(crate) fn error(what: impl Display) {
    say(Level::Error, &what);
}

/// A child's word, on standard error, which its supervisor listens to. It may have gone.
pub(crate) fn tell(level: Level, what: impl Display) {
    let _ = io::stderr().write_all(format!("{level} {what}\n").as_bytes());
}

/// Writes a line of `part`, if this process writes a log.
pub(crate) fn write(part: Part, level: Level, text: &str) {
    if let Some(log) = OURS.get() {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.write(part, level, text);
    }
}

/// Adds a line to the log in `run_dir` from a process that is none of its node's.
pub fn add(run_dir: &Path, node: u32, part: Part, level: Level, text: &str) {
    // Its directory may have gone, and the lock on its length is its supervisor's.
    let open = OpenOptions::new().append(true).open(run_dir.join(LOG_NAME));
    if let Ok(mut file) = open {
        let line = Line::new(now_ms(), level, node, part, text);
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

/// An open log.
#[derive(Debug)]
struct Log {
    run_dir: PathBuf,
    node: u32,
    file: File,
    bytes_max: u64,
    /// Standard error leads to it.
    is_standard_error: bool,
}

impl Log {
    fn open(run_dir: &Path, node: u32, bytes_max: u64) -> io::Result<Log> {
        let run_dir = run_dir.to_owned();
        let file = append(&run_dir)?;
        Ok(Log { run_dir, node, file, bytes_max, is_standard_error: false })
    }

    fn take_standard_error(&self) {
        // Without it a panic is not seen.
        let _ = rustix::stdio::dup2_stderr(&self.file);
    }

    fn write(&mut self, part: Part, level: Level, text: &str) {
        let line = Line::new(now_ms(), level, self.node, part, text);
        // In one piece, since others add to it. A full disk has other symptoms.
        let _ = self.file.write_all(format!("{line}\n").as_bytes());
        if self.file.metadata().is_ok_and(|file| file.len() > self.bytes_max) {
            self.turn();
        }
    }

    /// Begins a new file. When that fails the old one grows on.
    fn turn(&mut self) {
        let older = self.run_dir.join(OLDER_NAME);
        let Ok(()) = fs::rename(self.run_dir.join(LOG_NAME), &older) else { return };
        match append(&self.run_dir) {
            Ok(file) => {
                self.file = file;
                if self.is_standard_error {
                    self.take_standard_error();
                }
            }
            Err(_) => drop(fs::rename(&older, self.run_dir.join(LOG_NAME))),
        }
    }
}

fn append(run_dir: &Path) -> io::Result<File> {
    let path = run_dir.join(LOG_NAME);
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_bounded_and_keeps_the_newest() {
        let place = tempfile::tempdir().expect("a directory");
        let mut log = Log::open(place.path(), 3, 2000).expect("a file");
        for number in 0..1000 {
            log.write(Part::Daemon, Level::Info, &format!("event {number}"));
        }
        let bytes = |name| fs::metadata(place.path().join(name)).expect("a file").len();
        assert!(bytes(OLDER_NAME) < 2200 && bytes(LOG_NAME) < 2200);
        let mut reader = Reader::new(place.path());
        let mut lines = Vec::new();
        while let LogRead::Some(more) = reader.take(500) {
            lines.extend(more);
        }
        assert!(lines.len() > 30, "{} lines", lines.len());
        let first = 1000 - lines.len();
        for (line, number) in lines.iter().zip(first..) {
            assert_eq!((line.node, line.text.as_str()), (3, format!("event {number}").as_str()));
        }
    }
}

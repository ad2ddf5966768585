//! `mayfly stage every`: a whole copy outside that is never older than it has to be.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, ensure};
use mayfly_stage::{Cancel, Journal, Options, Pair, Report, Worker};

use super::{
    buckets,
    choices::{cancelled_by_signals, options, stand_back},
    known,
    places::pairs,
    show::Screen,
    workers,
};
use crate::arguments::Every;

/// Whoever waits for the next time looks so often whether it is over.
const NAP: Duration = Duration::from_millis(100);

/// The process that copies again and again.
pub(super) fn copy(every: &Every) -> Result<ExitCode> {
    let staging = &every.staging;
    ensure!(
        !buckets::are_meant(&staging.paths),
        "`stage every` keeps a whole copy by renaming it, which an object store cannot do; use \
         `mayfly stage out --changed` from time to time"
    );
    let pairs = pairs(staging, false)?;
    let [pair] = &pairs[..] else { anyhow::bail!("`stage every` has one source") };
    ensure!(!staging.dry_run && !staging.delete, "--dry-run and --delete mean nothing here");
    mayfly_stage::leave_terminal()?;
    stand_back();
    let cancel = cancelled_by_signals()?;
    let span = humantime::format_duration(every.span);
    let mut entry = known::entry(&format!("every {span}"), &staging.paths, true)
        .context("what it does cannot be told to others")?;
    let options = Options { sync: true, idle: true, ..options(staging)? };
    let workers = workers::handed_on()?;
    let mut last = Report::default();
    while !cancel.is_cancelled() {
        let (began, now) = (SystemTime::now(), Instant::now());
        let screen = Screen::new(staging, false, Some(&entry));
        match once(&workers, pair, &options, &cancel, &screen) {
            Ok(report) => last = report,
            // It may do the next time.
            Err(error) => eprintln!("mayfly: {error:#}"),
        }
        if last.is_whole_but_for_open() {
            entry.is_whole_since(began);
        }
        while !cancel.is_cancelled() && now.elapsed() < every.span {
            thread::sleep(NAP);
        }
    }
    entry.end(&Report { ended: true, ..last });
    Ok(ExitCode::SUCCESS)
}

/// Makes the next copy, and has it take the place of the last one.
fn once(
    workers: &[Worker],
    pair: &Pair,
    options: &Options,
    cancel: &Cancel,
    screen: &Screen<'_>,
) -> Result<Report> {
    let whole = &pair.destination;
    let [next, old] = [".next", ".old"].map(|end| beside(whole, end));
    finish(&next, &old, whole)?;
    let like = fs::symlink_metadata(whole).is_ok().then(|| whole.clone());
    let pair = Pair { destination: next.clone(), like, ..pair.clone() };
    let mut journal = Journal::none();
    let report = mayfly_stage::stage_with(workers, &[pair], options, &mut journal, cancel, screen)?;
    screen.end(&report);
    if report.is_whole_but_for_open() {
        replace(&next, &old, whole).with_context(|| format!("{} stays old", whole.display()))?;
    }
    Ok(report)
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut text = OsString::from(path);
    text.push(end);
    PathBuf::from(text)
}

/// Clears up what a process left that was killed: half a copy, or a whole one on its way out.
fn finish(next: &Path, old: &Path, whole: &Path) -> io::Result<()> {
    if fs::symlink_metadata(whole).is_err() && fs::symlink_metadata(old).is_ok() {
        fs::rename(old, whole)?;
    }
    remove(old)?;
    remove(next)
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(file) if file.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// At each moment one of them is whole, under its own name or beside it.
fn replace(next: &Path, old: &Path, whole: &Path) -> io::Result<()> {
    match fs::rename(whole, old) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        renamed => renamed?,
    }
    fs::rename(next, whole)?;
    remove(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whenever_it_was_killed_the_whole_copy_is_found_again() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let whole = place.path().join("copy");
        let [next, old] = [".next", ".old"].map(|end| beside(&whole, end));
        let read = || fs::read_to_string(&whole).expect("a copy");
        fs::write(&next, "one").expect("written");
        replace(&next, &old, &whole).expect("the first copy");
        assert_eq!(read(), "one");
        // Between the two renames.
        fs::write(&next, "two").expect("written");
        fs::rename(&whole, &old).expect("renamed");
        finish(&next, &old, &whole).expect("found again");
        assert_eq!(read(), "one");
        assert!(!next.exists() && !old.exists());
        // Before the old one was removed.
        fs::write(&old, "zero").expect("written");
        finish(&next, &old, &whole).expect("found again");
        assert_eq!(read(), "one");
        assert!(!old.exists());
    }
}

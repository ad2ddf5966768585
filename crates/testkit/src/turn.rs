//! Tests that start instances take turns: as many at a time as the machine has processors.
//!
//! Such a test waits for much of its time: for a process to start or to end, for a disk, for a
//! daemon that was killed. Each has a directory and a mark of its own, by which it finds its
//! processes and what they leave, so some can run side by side. More than there are processors
//! would make each of them slow, and tests have deadlines; nor do two `cargo test` on one machine
//! run twice as many, since they take the same turns. What measures time or memory runs alone.

use std::fs::File;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::getuid;

/// How often somebody who is next looks for a free place.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The right to run, given up when dropped.
#[derive(Debug)]
pub struct Turn {
    _places: Vec<File>,
}

impl Turn {
    /// Waits until fewer of this user's tests run than there are processors.
    pub fn take() -> Result<Self> {
        Places::of_this_machine().take_one()
    }

    /// Waits until no other test of this user runs; none begins meanwhile.
    pub fn alone() -> Result<Self> {
        Places::of_this_machine().take_all()
    }
}

/// Files whose locks are places to run in, and one of which everybody holds the lock who waits for
/// them: so who is to run alone is not passed by all others.
struct Places {
    /// How the files' names begin.
    path: PathBuf,
    count: usize,
}

impl Places {
    fn of_this_machine() -> Self {
        // Not in `TMPDIR`, which is another one in each run.
        let path = Path::new("/tmp").join(format!("mayfly-tests-{}", getuid().as_raw()));
        Self { path, count: std::thread::available_parallelism().map_or(1, NonZero::get) }
    }

    fn take_one(&self) -> Result<Turn> {
        let _next = self.become_next()?;
        loop {
            for number in 0..self.count {
                let place = self.place(number)?;
                match flock(&place, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => return Ok(Turn { _places: vec![place] }),
                    Err(Errno::WOULDBLOCK) => {}
                    Err(error) => return Err(error).context("locking a place to run in"),
                }
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn take_all(&self) -> Result<Turn> {
        let _next = self.become_next()?;
        let take = |number| {
            let place = self.place(number)?;
            flock(&place, FlockOperation::LockExclusive).context("locking a place to run in")?;
            Ok(place)
        };
        Ok(Turn { _places: (0..self.count).map(take).collect::<Result<_>>()? })
    }

    fn become_next(&self) -> Result<File> {
        let row = open(self.path.with_extension("lock"))?;
        flock(&row, FlockOperation::LockExclusive).context("waiting for a place to run in")?;
        Ok(row)
    }

    fn place(&self, number: usize) -> Result<File> {
        open(self.path.with_extension(format!("{number}.lock")))
    }
}

fn open(path: PathBuf) -> Result<File> {
    File::create(&path).with_context(|| format!("creating {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const COUNT: usize = 2;

    fn places(name: &str) -> (PathBuf, Places) {
        let directory = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a new directory");
        let path = directory.join("turns");
        (directory, Places { path, count: COUNT })
    }

    #[test]
    fn no_more_run_than_there_are_places_and_who_runs_alone_is_alone() {
        let (directory, places) = places("turns-many");
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let run = |turn: Result<Turn>| {
            let turn = turn.expect("a turn comes");
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            running.fetch_sub(1, Ordering::SeqCst);
            drop(turn);
            now
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| run(places.take_one()));
                scope.spawn(|| assert_eq!(run(places.take_all()), 1));
            }
        });
        assert!(most.into_inner() <= COUNT);
        std::fs::remove_dir_all(directory).expect("it is there");
    }

    #[test]
    fn a_second_one_has_a_place_beside_the_first_and_the_row_is_left() {
        let (directory, places) = places("turns-two");
        let turns = [places.take_one(), places.take_one()].map(|turn| turn.expect("it is free"));
        drop(turns);
        drop(places.take_all().expect("both are free"));
        std::fs::remove_dir_all(directory).expect("it is there");
    }
}

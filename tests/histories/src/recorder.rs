//! Does random operations on the objects in a directory and prints what they returned, and when.
//!
//! `recorder DIRECTORY PROCESS PROCESSES OPERATIONS SEED`. The first process makes the files; all
//! begin when all are there.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use histories::{
    Action, Event,
    model::{NAMES, digest},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// A register in a file that outgrew its record, and how large that is: three of the shortest
/// chunks that an instance can have, of which the register is in the second one.
const LARGE_AT: u64 = 96 * 1024;
const LARGE_BYTES: usize = 192 * 1024;
/// The log stays shorter.
const LOG_BYTES_MAX: usize = 64 * 1024;

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// F_SETLK on the whole file. By the C library: a system call of this program's own would not be
/// served.
fn set_lock(file: &File, kind: libc::c_int) -> std::io::Result<()> {
    let whole = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the structure outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const whole) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

struct Recorder {
    directory: PathBuf,
    process: u64,
    small: File,
    large: File,
    log: File,
    lock: File,
    random: Random,
    values: u64,
}

/// Makes the files, and then the name that says so.
fn make(directory: &Path) -> Result<()> {
    File::create(directory.join("small"))?.write_all(&[0; 8])?;
    File::create(directory.join("large"))?.write_all(&[0; LARGE_BYTES])?;
    for name in ["log", "lock", "made"] {
        File::create(directory.join(name))?;
    }
    Ok(())
}

fn wait_for(path: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !path.exists() {
        ensure!(Instant::now() < deadline, "{} does not appear", path.display());
        std::thread::yield_now();
    }
    Ok(())
}

impl Recorder {
    fn open(directory: &Path, process: u64, seed: u64) -> Result<Recorder> {
        let open =
            |name: &str| OpenOptions::new().read(true).write(true).open(directory.join(name));
        let log = OpenOptions::new().read(true).append(true).open(directory.join("log"))?;
        let random = Random((seed.wrapping_mul(0x9e37_79b9) ^ process << 32) | 1);
        Ok(Recorder {
            directory: directory.to_owned(),
            process,
            small: open("small")?,
            large: open("large")?,
            log,
            lock: open("lock")?,
            random,
            values: 0,
        })
    }

    fn name(&self, number: usize) -> PathBuf {
        self.directory.join(format!("name{number}"))
    }

    /// A value that no other write has.
    fn value(&mut self) -> u64 {
        self.values += 1;
        self.process << 32 | self.values
    }

    fn step(&mut self, called: u64) -> Result<(&'static str, Action)> {
        // On a busy machine a process would do all of its part in one slice, beside nobody.
        if self.random.below(4) == 0 {
            std::thread::yield_now();
        }
        let (object, done) = match self.random.below(10) {
            0..=4 => ("names", self.on_names()),
            5 => ("small", self.on_register(false)),
            6 => ("large", self.on_register(true)),
            7 => ("log", self.on_log()),
            _ => ("lock", self.on_lock()),
        };
        let took = || format!("on {object}, after {} us", (now() - called) / 1000);
        Ok((object, done.with_context(took)?))
    }

    fn on_names(&mut self) -> Result<Action> {
        let name = self.random.below(NAMES);
        let path = self.name(name);
        Ok(match self.random.below(6) {
            0 | 1 => match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => Action::Create(name, Some(file.metadata()?.ino())),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    Action::Create(name, None)
                }
                Err(error) => return Err(error).context("create"),
            },
            2 => {
                let to = (name + 1 + self.random.below(NAMES - 1)) % NAMES;
                let moved = there(std::fs::rename(&path, self.name(to))).context("rename")?;
                Action::Rename(self.process, name, to, moved.is_some())
            }
            3 => Action::Remove(
                name,
                there(std::fs::remove_file(&path)).context("remove")?.is_some(),
            ),
            _ => Action::Look(
                name,
                there(std::fs::metadata(&path)).context("stat")?.map(|found| found.ino()),
            ),
        })
    }

    fn on_register(&mut self, large: bool) -> Result<Action> {
        let value = self.value();
        let (file, at) = if large { (&self.large, LARGE_AT) } else { (&self.small, 0) };
        if self.random.below(2) == 0 {
            file.write_all_at(&value.to_le_bytes(), at)?;
            return Ok(Action::Write(value));
        }
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at)?;
        Ok(Action::Read(u64::from_le_bytes(bytes)))
    }

    fn on_log(&mut self) -> Result<Action> {
        if self.random.below(2) == 0 {
            let value = self.value();
            ensure!((&self.log).write(&value.to_le_bytes())? == 8, "an append was cut");
            return Ok(Action::Append(value));
        }
        let mut bytes = vec![0; LOG_BYTES_MAX];
        let count = self.log.read_at(&mut bytes, 0)?;
        ensure!(count % 8 == 0 && count < LOG_BYTES_MAX, "{count} bytes of a log of values");
        let values = bytes[..count]
            .chunks_exact(8)
            .map(|value| u64::from_le_bytes(value.try_into().expect("a chunk of eight bytes")));
        Ok(Action::Whole(count as u64 / 8, values.fold(0, digest)))
    }

    fn on_lock(&mut self) -> Result<Action> {
        if self.random.below(2) == 0 {
            return self.unlock();
        }
        match set_lock(&self.lock, libc::F_WRLCK) {
            Ok(()) => Ok(Action::Lock(self.process, true)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                Ok(Action::Lock(self.process, false))
            }
            Err(error) => Err(error).context("lock"),
        }
    }

    fn unlock(&mut self) -> Result<Action> {
        set_lock(&self.lock, libc::F_UNLCK).context("unlock")?;
        Ok(Action::Unlock(self.process))
    }
}

/// What came of it, or that the name was not there.
fn there<T>(result: std::io::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, numbers @ ..] = arguments.as_slice() else { bail!("no directory") };
    let numbers = numbers.iter().map(|word| word.parse()).collect::<Result<Vec<u64>, _>>()?;
    let &[process, processes, operations, seed] = numbers.as_slice() else { bail!("what?") };
    let directory = Path::new(directory);
    if process == 1 {
        make(directory)?;
    }
    wait_for(&directory.join("made"))?;
    let mut recorder = Recorder::open(directory, process, seed)?;
    File::create(directory.join(format!("ready{process}")))?;
    for other in 1..=processes {
        wait_for(&directory.join(format!("ready{other}")))?;
    }
    let mut lines = String::new();
    for left in (0..operations).rev() {
        let called = now();
        // The end of a process would give up its lock, and note nothing.
        let (object, action) =
            if left == 0 { ("lock", recorder.unlock()?) } else { recorder.step(called)? };
        let event = Event { called, returned: now(), action };
        lines.push_str(&event.line(object));
        lines.push('\n');
    }
    std::io::stdout().write_all(lines.as_bytes())?;
    Ok(())
}

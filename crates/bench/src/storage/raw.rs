//! What the storage below gives a plain stream: the measure of "as fast as the hardware".
//!
//! One file, written and read by some streams in large aligned transfers past the page cache
//! (`O_DIRECT`) where the file system can do that; in memory (tmpfs), and where `O_DIRECT` is
//! refused, through the page cache, and the report says so. Taken anew in each repetition, since
//! neighbours come and go.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, anyhow, ensure};
use nix::fcntl::OFlag;

use super::mounts;

/// Bytes of one transfer.
const TRANSFER_BYTES: usize = 4 << 20;
/// `O_DIRECT` wants memory aligned to the device's blocks; no device has larger ones.
const ALIGNMENT: usize = 4096;
/// What is written.
const FILL: u8 = 0x5a;

/// Storage that one or more targets lie on.
#[derive(Debug)]
pub(super) struct Device {
    /// Its number.
    pub(super) id: u64,
    directory: PathBuf,
    direct: bool,
}

/// Rates of one repetition, MiB/s.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    pub(super) write: f64,
    pub(super) read: f64,
}

impl Device {
    /// Below `directory`.
    pub(super) fn of(directory: &Path) -> Result<Device> {
        let id = fs::metadata(directory)?.dev();
        // tmpfs accepts the flag and copies all the same.
        let direct = !mounts::is_memory(directory) && takes_direct(directory)?;
        Ok(Device { id, directory: directory.to_owned(), direct })
    }

    /// How it is measured.
    pub(super) fn how(&self) -> String {
        let kind = mounts::kind(&self.directory);
        if self.direct {
            format!("{kind}, O_DIRECT, 4 MiB transfers")
        } else {
            format!("{kind}, through memory, 4 MiB transfers")
        }
    }

    /// Writes and reads `bytes` by each of `streams`.
    pub(super) fn measure(&self, bytes: u64, streams: u32) -> Result<Rates> {
        let path = self.directory.join("raw");
        let rates = self.stream(&path, bytes, u64::from(streams.max(1)));
        let removed = remove(&path);
        let rates = rates.with_context(|| format!("the raw rate in {}", path.display()))?;
        removed?;
        Ok(rates)
    }

    fn stream(&self, path: &Path, bytes: u64, streams: u64) -> Result<Rates> {
        let file = open(path, self.direct)?;
        let count = (bytes / TRANSFER_BYTES as u64).max(1);
        let mut rooms: Vec<Vec<u8>> =
            (0..streams).map(|_| vec![FILL; TRANSFER_BYTES + ALIGNMENT]).collect();
        let mut rate = |way: fn(&File, &mut [u8], u64) -> io::Result<()>| -> Result<f64> {
            let began = Instant::now();
            together(&mut rooms, |stream, buffer| {
                let offsets = stream * count..(stream + 1) * count;
                offsets
                    .map(|index| index * TRANSFER_BYTES as u64)
                    .try_for_each(|at| way(&file, buffer, at))
            })?;
            if self.direct {
                file.sync_data()?;
            }
            let mib = (streams * count) as f64 * TRANSFER_BYTES as f64 / f64::from(1 << 20);
            Ok(mib / began.elapsed().as_secs_f64().max(1e-9))
        };
        let write = rate(|file, buffer, at| file.write_all_at(buffer, at))?;
        let read = rate(|file, buffer, at| file.read_exact_at(buffer, at))?;
        let wrong = rooms.iter().any(|room| room.iter().any(|byte| *byte != FILL));
        ensure!(!wrong, "a wrong byte was read");
        Ok(Rates { write, read })
    }
}

/// Runs `work` with each stream's number and its aligned buffer, all at once.
fn together(
    rooms: &mut [Vec<u8>],
    work: impl Fn(u64, &mut [u8]) -> io::Result<()> + Sync,
) -> Result<()> {
    let work = &work;
    thread::scope(|scope| {
        // All are started before any is waited for.
        let mut streams = Vec::with_capacity(rooms.len());
        for (stream, room) in (0..).zip(rooms) {
            let start = room.as_ptr().align_offset(ALIGNMENT);
            let buffer = &mut room[start..start + TRANSFER_BYTES];
            streams.push(scope.spawn(move || work(stream, buffer)));
        }
        for stream in streams {
            stream.join().map_err(|_| anyhow!("a stream died"))??;
        }
        Ok(())
    })
}

fn open(path: &Path, direct: bool) -> io::Result<File> {
    let flags = if direct { OFlag::O_DIRECT.bits() } else { 0 };
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).read(true).write(true).custom_flags(flags).open(path)
}

/// Removes the file, and what it held before that: a file system that gives room back behind a
/// removal's answer would do so while the first phases are measured.
fn remove(path: &Path) -> io::Result<()> {
    let emptied = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(0));
    fs::remove_file(path)?;
    emptied
}

fn takes_direct(directory: &Path) -> Result<bool> {
    let path = directory.join("raw");
    let opened = open(&path, true).is_ok();
    // A refused open may have made the file all the same.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(opened),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_measured_and_nothing_is_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let device = Device::of(directory.path()).expect("a device");
        let rates = device.measure(8 << 20, 2).expect("rates");
        assert!(rates.write > 0.0 && rates.read > 0.0, "{rates:?} of {}", device.how());
        assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 0);
    }
}

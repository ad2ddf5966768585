//! What the storage below gives a plain stream: the measure of "as fast as the hardware".
//!
//! One file, written and read in large aligned transfers past the page cache (`O_DIRECT`) where the
//! file system can do that; in memory (tmpfs), and where `O_DIRECT` is refused, through the page
//! cache, and the report says so. Taken anew in each repetition, since neighbours come and go.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use nix::fcntl::OFlag;

use crate::mounts;

/// Bytes of one transfer.
const TRANSFER_BYTES: usize = 4 << 20;
/// `O_DIRECT` wants memory aligned to the device's blocks; no device has larger ones.
const ALIGNMENT: usize = 4096;

/// Storage that one or more targets lie on.
#[derive(Debug)]
pub(crate) struct Device {
    /// Its number.
    pub(crate) id: u64,
    directory: PathBuf,
    direct: bool,
}

/// Rates of one repetition, MiB/s.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) write: f64,
    pub(crate) read: f64,
}

impl Device {
    /// Below `directory`.
    pub(crate) fn of(directory: &Path) -> Result<Device> {
        let id = fs::metadata(directory)?.dev();
        // tmpfs accepts the flag and copies all the same.
        let direct = !mounts::is_memory(directory) && takes_direct(directory)?;
        Ok(Device { id, directory: directory.to_owned(), direct })
    }

    /// How it is measured.
    pub(crate) fn how(&self) -> String {
        let kind = mounts::kind(&self.directory);
        if self.direct {
            format!("{kind}, O_DIRECT, 4 MiB transfers")
        } else {
            format!("{kind}, through memory, 4 MiB transfers")
        }
    }

    /// Writes and reads `bytes`.
    pub(crate) fn measure(&self, bytes: u64) -> Result<Rates> {
        let path = self.directory.join("raw");
        let rates = self.stream(&path, bytes);
        let removed = fs::remove_file(&path);
        let rates = rates.with_context(|| format!("the raw rate in {}", path.display()))?;
        removed?;
        Ok(rates)
    }

    fn stream(&self, path: &Path, bytes: u64) -> Result<Rates> {
        let file = open(path, self.direct)?;
        let mut room = vec![0x5a_u8; TRANSFER_BYTES + ALIGNMENT];
        let start = room.as_ptr().align_offset(ALIGNMENT);
        let buffer = &mut room[start..start + TRANSFER_BYTES];
        let count = (bytes / TRANSFER_BYTES as u64).max(1);
        let rate = |began: Instant| {
            let mib = count as f64 * TRANSFER_BYTES as f64 / f64::from(1 << 20);
            mib / began.elapsed().as_secs_f64().max(1e-9)
        };
        let began = Instant::now();
        for index in 0..count {
            file.write_all_at(buffer, index * TRANSFER_BYTES as u64)?;
        }
        if self.direct {
            file.sync_data()?;
        }
        let write = rate(began);
        let began = Instant::now();
        for index in 0..count {
            file.read_exact_at(buffer, index * TRANSFER_BYTES as u64)?;
        }
        let read = rate(began);
        ensure!(buffer.iter().all(|byte| *byte == 0x5a), "a wrong byte was read");
        Ok(Rates { write, read })
    }
}

fn open(path: &Path, direct: bool) -> std::io::Result<File> {
    let flags = if direct { OFlag::O_DIRECT.bits() } else { 0 };
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).read(true).write(true).custom_flags(flags).open(path)
}

fn takes_direct(directory: &Path) -> Result<bool> {
    let path = directory.join("raw");
    let opened = open(&path, true).is_ok();
    // A refused open may have made the file all the same.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
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
        let rates = device.measure(8 << 20).expect("rates");
        assert!(rates.write > 0.0 && rates.read > 0.0, "{rates:?} of {}", device.how());
        assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 0);
    }
}

//! Transfers between memory and files, as IOR makes them.
//!
//! Open and close are inside the clock, as in IOR, but are no operations. Patterns are made and
//! compared outside of it. A process reads what the next one wrote.

use std::ffi::CString;

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, openat},
    sys::stat::Mode,
    sys::uio::{pread, pwrite},
    unistd::{close, fsync},
};

use super::{Prepared, clock::Clock, failed, files, neighbour, wrong_byte};
use crate::workloads::{
    pattern::Pattern,
    step::{Layout, Order, Task, Transfers, Way},
};

/// The transfers of one process, in their order.
struct Work {
    path: CString,
    offsets: Vec<u64>,
    pattern: Pattern,
    buffer: Vec<u8>,
    fsync: bool,
}

pub(super) fn prepare(task: &Task, transfers: Transfers) -> Result<Prepared> {
    let writer = if transfers.way == Way::Read { neighbour(task) } else { task.rank };
    let name = match transfers.layout {
        Layout::Own => format!("data.{writer}"),
        Layout::Shared => "data".to_owned(),
    };
    let length = usize::try_from(transfers.transfer_bytes)?;
    let mut work = Work {
        path: files::inside(&task.root, &name)?,
        offsets: offsets(transfers, writer, task.procs),
        pattern: Pattern::new(u64::from(writer), length),
        // Touched before the clock: first touches of memory are not the file system's.
        buffer: vec![0xa5; length],
        fsync: transfers.fsync,
    };
    Ok(match transfers.way {
        Way::Write => Box::new(move |clock| work.write(clock)),
        Way::Read => Box::new(move |clock| work.read(clock)),
    })
}

/// Where the transfers of a process lie.
fn offsets(transfers: Transfers, writer: u32, procs: u32) -> Vec<u64> {
    let Transfers { layout, order, transfer_bytes, count, .. } = transfers;
    let (writer, procs) = (u64::from(writer), u64::from(procs));
    let offset = |index: u64| match (layout, order) {
        (Layout::Own, _) => index * transfer_bytes,
        (Layout::Shared, Order::Strided) => (index * procs + writer) * transfer_bytes,
        (Layout::Shared, _) => (writer * count + index) * transfer_bytes,
    };
    let mut offsets: Vec<u64> = (0..count).map(offset).collect();
    if order == Order::Random {
        shuffle(&mut offsets, writer);
    }
    offsets
}

/// Fisher and Yates with a generator of Marsaglia's (xorshift64), the same in every run.
fn shuffle(offsets: &mut [u64], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for index in (1..offsets.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        offsets.swap(index, (state % (index as u64 + 1)) as usize);
    }
}

impl Work {
    fn write(&mut self, clock: &mut Clock) -> Result<()> {
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = openat(AT_FDCWD, self.path.as_c_str(), flags, mode)
            .map_err(|errno| failed("create", &self.path, errno))?;
        clock.split()?;
        for offset in &self.offsets {
            let bytes = self.pattern.at(*offset);
            clock.aside()?;
            let mut done = 0;
            while done < bytes.len() {
                let place = i64::try_from(*offset)? + i64::try_from(done)?;
                match pwrite(&file, &bytes[done..], place) {
                    Ok(count) => done += count,
                    Err(Errno::EINTR) => {}
                    Err(errno) => return Err(failed("pwrite", &self.path, errno)),
                }
            }
            clock.moved(done as u64);
            clock.lap()?;
        }
        if self.fsync {
            fsync(&file).map_err(|errno| failed("fsync", &self.path, errno))?;
        }
        close(file).map_err(|errno| failed("close", &self.path, errno))
    }

    fn read(&mut self, clock: &mut Clock) -> Result<()> {
        let file = openat(AT_FDCWD, self.path.as_c_str(), OFlag::O_RDONLY, Mode::empty())
            .map_err(|errno| failed("open", &self.path, errno))?;
        clock.split()?;
        for offset in &self.offsets {
            let mut done = 0;
            while done < self.buffer.len() {
                let place = i64::try_from(*offset)? + i64::try_from(done)?;
                match pread(&file, &mut self.buffer[done..], place) {
                    Ok(0) => bail!("{:?} ends at {place}", self.path),
                    Ok(count) => done += count,
                    Err(Errno::EINTR) => {}
                    Err(errno) => return Err(failed("pread", &self.path, errno)),
                }
            }
            clock.moved(done as u64);
            clock.lap()?;
            let checked = self.pattern.check(*offset, &self.buffer);
            checked.map_err(|wrong| wrong_byte(&self.path, &wrong)).context("verification")?;
            clock.aside()?;
        }
        close(file).map_err(|errno| failed("close", &self.path, errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfers(layout: Layout, order: Order) -> Transfers {
        Transfers { layout, order, way: Way::Write, transfer_bytes: 10, count: 50, fsync: false }
    }

    #[test]
    fn together_the_processes_cover_a_shared_file_once() {
        for order in [Order::Sequential, Order::Random, Order::Strided] {
            let part = |writer| offsets(transfers(Layout::Shared, order), writer, 3);
            let mut all: Vec<u64> = (0..3).flat_map(part).collect();
            all.sort_unstable();
            assert_eq!(all, (0..150).map(|index| index * 10).collect::<Vec<_>>(), "{order:?}");
        }
    }

    #[test]
    fn a_byte_flipped_in_the_file_fails_the_reading_phase_with_its_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let perform = |way| {
            let step = Transfers { way, ..transfers(Layout::Own, Order::Random) };
            let task = Task {
                phase: "test".to_owned(),
                root: directory.path().to_owned(),
                rank: 0,
                procs: 1,
                step: crate::workloads::step::Step::Data(step),
            };
            prepare(&task, step).expect("prepared")(&mut Clock::default())
        };
        perform(Way::Write).expect("written");
        perform(Way::Read).expect("read as it was written");
        let path = directory.path().join("data.0");
        let mut bytes = std::fs::read(&path).expect("there");
        bytes[123] ^= 1;
        std::fs::write(&path, bytes).expect("flipped");
        let error = format!("{:#}", perform(Way::Read).expect_err("a wrong byte"));
        assert!(error.contains("data.0: the byte at 123 is"), "{error}");
    }

    #[test]
    fn a_random_order_is_a_shuffled_one() {
        let random = offsets(transfers(Layout::Own, Order::Random), 0, 1);
        let mut sorted = random.clone();
        sorted.sort_unstable();
        assert_ne!(random, sorted);
        assert_eq!(sorted, offsets(transfers(Layout::Own, Order::Sequential), 0, 1));
    }
}

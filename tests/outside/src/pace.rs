//! How long everything takes.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::calls::{Call, Calls};

/// The neighbour works for so long, and rests for as long.
const NEIGHBOUR_PERIOD: Duration = Duration::from_millis(200);

/// How fast the file system is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speeds {
    /// A call without bytes keeps the one queue for so long.
    pub metadata: Duration,
    /// Bytes a second, read and written together; 0: as fast as the disk.
    pub bytes_per_second: u64,
    /// From the queue to whoever asks; several wait for theirs at the same time.
    pub latency: Duration,
    /// The part of both queues that somebody else takes while he works, from 0 to below 1.
    pub neighbour: f64,
}

impl Default for Speeds {
    /// As the disk below.
    fn default() -> Self {
        let none = Duration::ZERO;
        Speeds { metadata: none, bytes_per_second: 0, latency: none, neighbour: 0.0 }
    }
}

#[derive(Debug)]
struct State {
    speeds: Speeds,
    /// When each queue is free again.
    metadata_free: Instant,
    bytes_free: Instant,
    calls: Calls,
    /// What the next so many calls of a kind fail with.
    failures: BTreeMap<Call, (i32, u64)>,
}

/// The queues, and the counts.
#[derive(Debug)]
pub struct Pace {
    state: Mutex<State>,
    began: Instant,
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

impl Pace {
    pub(crate) fn new(speeds: Speeds) -> Pace {
        let began = Instant::now();
        let (calls, failures) = (Calls::default(), BTreeMap::new());
        let (metadata_free, bytes_free) = (began, began);
        let state = State { speeds, metadata_free, bytes_free, calls, failures };
        Pace { state: Mutex::new(state), began }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.lock().calls.clone()
    }

    /// They begin anew.
    pub fn reset(&self) {
        self.lock().calls = Calls::default();
    }

    /// Another speed from now on.
    pub fn set_speeds(&self, speeds: Speeds) {
        self.lock().speeds = speeds;
    }

    /// The next so many calls of a kind fail.
    pub fn fail(&self, call: Call, errno: i32, count: u64) {
        self.lock().failures.insert(call, (errno, count));
    }

    /// Does what a line says that was written to `.outside`: `reset`; `fail CALL ERRNO COUNT`;
    /// `metadata-us N`, `mib-per-second N`, `latency-us N`, `neighbour PART`.
    ///
    /// # Errors
    /// EINVAL.
    pub fn order(&self, line: &str) -> io::Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse::<u64>().map_err(|_| invalid());
        match words[..] {
            ["reset"] => self.reset(),
            ["fail", call, errno, count] => {
                let call = Call::of_name(call).ok_or_else(invalid)?;
                let errno = errno.parse().map_err(|_| invalid())?;
                self.fail(call, errno, number(count)?);
            }
            ["metadata-us", of] => {
                self.lock().speeds.metadata = Duration::from_micros(number(of)?);
            }
            ["latency-us", of] => self.lock().speeds.latency = Duration::from_micros(number(of)?),
            ["mib-per-second", of] => self.lock().speeds.bytes_per_second = number(of)? << 20,
            ["neighbour", of] => {
                let part = of.parse().ok().filter(|part| (0.0..1.0).contains(part));
                self.lock().speeds.neighbour = part.ok_or_else(invalid)?;
            }
            _ => return Err(invalid()),
        }
        Ok(())
    }

    /// A call takes its turn and is counted.
    ///
    /// # Errors
    /// That which it was told to fail with.
    pub(crate) fn enter(&self, call: Call, path: &Path, bytes: u64) -> io::Result<()> {
        let mut state = self.lock();
        state.calls.count(call, path);
        match call {
            Call::Read => state.calls.bytes_read += bytes,
            Call::Write => state.calls.bytes_written += bytes,
            _ => {}
        }
        let now = Instant::now();
        let speeds = state.speeds;
        let is_noisy = (now - self.began).as_nanos() / NEIGHBOUR_PERIOD.as_nanos() % 2 == 1;
        let own_part = if is_noisy { 1.0 - speeds.neighbour } else { 1.0 };
        let done = if matches!(call, Call::Read | Call::Write) {
            let seconds = match speeds.bytes_per_second {
                0 => 0.0,
                rate => bytes as f64 / rate as f64,
            };
            state.bytes_free =
                state.bytes_free.max(now) + Duration::from_secs_f64(seconds / own_part);
            state.bytes_free
        } else {
            state.metadata_free = state.metadata_free.max(now) + speeds.metadata.div_f64(own_part);
            state.metadata_free
        };
        let failure = state.failures.get_mut(&call).filter(|(_, left)| *left > 0);
        let failure = failure.map(|(errno, left)| {
            *left -= 1;
            io::Error::from_raw_os_error(*errno)
        });
        drop(state);
        thread::sleep((done + speeds.latency).saturating_duration_since(Instant::now()));
        failure.map_or(Ok(()), Err)
    }
}

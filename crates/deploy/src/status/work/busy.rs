//! Which directories and files are busy, estimated from samples.
//!
//! A sample stands for several operations of its process. What the samples of a process stand for
//! together is scaled, kind by kind, to what the process has counted, so that sums agree.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use mayfly_metrics::work::{Busy, Place};
use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::{
    ShmTransport,
    tally::{Kind, LONG_BYTES, SIZES, Seen, Stripe, Tally, WAYS, Way, size_bucket},
};
use mayfly_types::FileId;
use mayfly_wire::PathOf;

use super::{Clock, operations_of, sum};

/// Directories and files that are told.
const PLACES_MAX: usize = 100;
/// Directories whose names are asked for.
const NAMES_MAX: usize = 4096;

/// Which samples count.
#[derive(Debug, Clone, Copy)]
pub(super) enum Window {
    /// Those of the whole life.
    Always,
    /// The latest, from that moment on.
    Since(u64),
}

impl Window {
    fn samples(self, tally: &Tally) -> Vec<Seen> {
        match self {
            Window::Always => tally.chosen().collect(),
            Window::Since(since) => tally.latest().filter(|seen| seen.at >= since).collect(),
        }
    }
}

/// Names of directories.
pub(super) struct Names<'a> {
    transport: &'a ShmTransport,
    known: HashMap<u64, Option<Vec<u8>>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(transport: &'a ShmTransport) -> Names<'a> {
        let root = (FileId::ROOT.0, Some(Vec::new()));
        Names { transport, known: HashMap::from([root]) }
    }

    /// Path of a directory, without a slash at its end; `None` when it is gone.
    fn of(&mut self, directory: u64) -> Option<Vec<u8>> {
        if let Some(known) = self.known.get(&directory) {
            return known.clone();
        }
        if self.known.len() >= NAMES_MAX {
            return None;
        }
        let question = PathOf { file: FileId(directory) };
        let name = self.transport.exchange(&question, Patience::Deadline, |answer| match answer {
            Answer::Done(text) => Some(trimmed(text.bytes)),
            _ => None,
        });
        self.known.insert(directory, name.clone());
        name
    }
}

fn trimmed(path: &[u8]) -> Vec<u8> {
    let inner = path.strip_prefix(b"/").unwrap_or(path);
    inner.strip_suffix(b"/").unwrap_or(inner).to_vec()
}

/// A path from `directory`, without the components that lead nowhere.
fn joined(directory: &[u8], path: &[u8]) -> Vec<u8> {
    let mut all: Vec<&[u8]> = Vec::new();
    for component in directory.split(|byte| *byte == b'/').chain(path.split(|byte| *byte == b'/')) {
        match component {
            b"" | b"." => {}
            b".." => {
                all.pop();
            }
            component => all.push(component),
        }
    }
    all.join(&b'/')
}

/// As people read it: from the root, and what is no text escaped.
fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    format!("/{}", text.escape_debug())
}

/// Time of the operations that waited for nobody, estimated, cycles.
pub(super) fn cycles_without_waiting(tally: &Tally) -> u64 {
    let samples: Vec<Seen> = tally.chosen().collect();
    let itself = |seen: &&Seen| seen.way != Way::Asked as u8;
    let per_operation = |samples: &[Seen]| {
        let all: u64 = samples.iter().map(|seen| u64::from(seen.weight)).sum();
        let took: u64 =
            samples.iter().filter(itself).map(|seen| seen.took * u64::from(seen.weight)).sum();
        if all == 0 { 0.0 } else { took as f64 / all as f64 }
    };
    (per_operation(&samples) * operations_of(tally) as f64) as u64
}

/// What a process has counted exactly: operations by kind, long transfers apart, which are all
/// noted.
type Stratum = (u8, bool);

fn stratum(seen: &Seen) -> Stratum {
    (seen.kind, seen.bytes > LONG_BYTES as u64)
}

/// What a sample stands for, in numbers of its process.
pub(super) struct Scale {
    operations: HashMap<Stratum, f64>,
    read: f64,
    written: f64,
}

impl Scale {
    /// Each stratum by itself: of a process that writes one log, all writes are the log's, however
    /// many of them chance has noted.
    pub(super) fn of(tally: &Tally, samples: &[Seen]) -> Scale {
        let mut noted: HashMap<Stratum, f64> = HashMap::new();
        for seen in samples {
            *noted.entry(stratum(seen)).or_default() += f64::from(seen.weight);
        }
        let operations = noted
            .into_iter()
            .map(|(stratum, noted)| (stratum, counted(tally, stratum) as f64 / noted.max(1.0)))
            .collect();
        let mut scale = Scale { operations, read: 1.0, written: 1.0 };
        let bytes = |of: fn(&Stripe) -> &[AtomicU64; WAYS]| -> f64 {
            (0..WAYS).map(|way| sum(&tally.stripes, |stripe| &of(stripe)[way]) as f64).sum()
        };
        let share = |whole: f64, kind: Kind| {
            let of_kind = samples.iter().filter(|seen| seen.kind == kind as u8);
            let noted: f64 = of_kind.map(|seen| scale.operations(seen) * seen.bytes as f64).sum();
            if noted > 0.0 { whole / noted } else { 0.0 }
        };
        let read = share(bytes(|stripe| &stripe.read_bytes), Kind::Read);
        let written = share(bytes(|stripe| &stripe.written_bytes), Kind::Write);
        (scale.read, scale.written) = (read, written);
        scale
    }

    /// The latest samples stand for themselves.
    fn plain() -> Scale {
        Scale { operations: HashMap::new(), read: 1.0, written: 1.0 }
    }

    /// Operations for which a sample stands.
    pub(super) fn operations(&self, seen: &Seen) -> f64 {
        let scale = self.operations.get(&stratum(seen)).copied().unwrap_or(1.0);
        f64::from(seen.weight) * scale
    }
}

/// Operations of a stratum.
fn counted(tally: &Tally, (kind, is_long): Stratum) -> u64 {
    let stripes = &tally.stripes[..];
    let by_size: Option<fn(&Stripe) -> &[AtomicU64; SIZES]> = match kind {
        kind if kind == Kind::Read as u8 => Some(|stripe| &stripe.reads),
        kind if kind == Kind::Write as u8 => Some(|stripe| &stripe.writes),
        _ => None,
    };
    let above = size_bucket(LONG_BYTES as u64) + 1;
    let long = by_size.map_or(0, |sizes| {
        (above..SIZES).map(|size| sum(stripes, |stripe| &sizes(stripe)[size])).sum()
    });
    if is_long {
        return long;
    }
    let of_way = |way: usize| sum(stripes, |stripe| &stripe.operations[way][usize::from(kind)]);
    (0..WAYS).map(of_way).sum::<u64>().saturating_sub(long)
}

#[derive(Default)]
struct Sum {
    operations: f64,
    opens: f64,
    read: f64,
    written: f64,
    cycles: f64,
    processes: BTreeSet<u32>,
}

impl Sum {
    fn add(&mut self, seen: &Seen, scale: &Scale, process: u32) {
        let operations = scale.operations(seen);
        self.operations += operations;
        self.cycles += operations * seen.took as f64;
        let bytes = operations * seen.bytes as f64;
        match seen.kind {
            kind if kind == Kind::Read as u8 => self.read += bytes * scale.read,
            kind if kind == Kind::Write as u8 => self.written += bytes * scale.written,
            kind if kind == Kind::Open as u8 || kind == Kind::Create as u8 => {
                self.opens += operations;
            }
            _ => {}
        }
        self.processes.insert(process);
    }
}

/// Is the sample about a file, by its path?
fn is_of_file(seen: &Seen) -> bool {
    [Kind::Open, Kind::Create, Kind::Read, Kind::Write].iter().any(|kind| seen.kind == *kind as u8)
}

pub(super) fn of(
    tallies: &[&Tally],
    window: Window,
    names: &mut Names<'_>,
    clock: &Clock<'_>,
) -> Busy {
    let mut directories: HashMap<Vec<u8>, Sum> = HashMap::new();
    let mut files: HashMap<Vec<u8>, Sum> = HashMap::new();
    for tally in tallies {
        let process = tally.pid.load(Relaxed);
        let samples = window.samples(tally);
        let scale = match window {
            Window::Always => Scale::of(tally, &samples),
            Window::Since(_) => Scale::plain(),
        };
        for seen in &samples {
            let Some((directory, file)) = place(seen, names) else { continue };
            directories.entry(directory).or_default().add(seen, &scale, process);
            if let Some(file) = file {
                files.entry(file).or_default().add(seen, &scale, process);
            }
        }
    }
    let shared = files.values().filter(|sum| sum.processes.len() > 1).count() as u64;
    Busy {
        files_seen: files.len() as u64,
        shared_files_seen: shared,
        directories: places_of(directories, clock),
        files: places_of(files, clock),
    }
}

/// Directory, and file if it is about one.
fn place(seen: &Seen, names: &mut Names<'_>) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    if seen.directory == 0 {
        return None;
    }
    let start = names.of(seen.directory)?;
    let path = &seen.path[..seen.path_bytes];
    let whole = joined(&start, path);
    // A path that was too long ends with the slash behind its last directory.
    if path.is_empty() || path.ends_with(b"/") {
        return Some((whole, None));
    }
    let end = whole.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let directory = whole.get(..end).unwrap_or_default().to_vec();
    Some((directory, is_of_file(seen).then_some(whole)))
}

fn places_of(sums: HashMap<Vec<u8>, Sum>, clock: &Clock<'_>) -> Vec<Place> {
    // By name where they are equal, so that nobody sees the order of a hash map.
    let sums: BTreeMap<Vec<u8>, Sum> = sums.into_iter().collect();
    let mut places: Vec<Place> = sums
        .into_iter()
        .map(|(path, sum)| Place {
            path: shown(&path),
            operations: sum.operations.round() as u64,
            opens: sum.opens.round() as u64,
            read_bytes: sum.read as u64,
            written_bytes: sum.written as u64,
            seconds: clock.seconds(sum.cycles as u64),
            processes: sum.processes.len(),
        })
        .collect();
    places.sort_by_key(|place| Reverse(place.operations));
    places.truncate(PLACES_MAX);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_and_shown_from_the_root() {
        assert_eq!(joined(b"a/b", b"../c//./d"), b"a/c/d");
        assert_eq!(joined(b"", b""), b"");
        assert_eq!(shown(&joined(b"", b"x\ny")), "/x\\ny");
        assert_eq!(trimmed(b"/a/b/"), b"a/b");
    }
}

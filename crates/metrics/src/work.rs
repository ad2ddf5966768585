//! What the processes of a node did, as a node reports it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Sizes of transfers that are told apart.
pub const SIZES: usize = 16;
/// Times of waits that are told apart.
pub const WAITS: usize = 24;
/// Counts by the way that operations went: `itself`, `unawaited`, `asked`.
pub type ByWay = BTreeMap<String, u64>;

/// What some processes have done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// Operations, by kind and way.
    pub operations: BTreeMap<String, ByWay>,
    /// Those among them that failed.
    pub failed: u64,
    /// Bytes read, by way.
    pub read_bytes: ByWay,
    /// Bytes written, by way.
    pub written_bytes: ByWay,
    /// Reads of up to 512 bytes, 1 KiB and so on to 8 MiB, and longer ones.
    pub reads_by_size: [u64; SIZES],
    /// Writes, likewise.
    pub writes_by_size: [u64; SIZES],
    /// Reads that began where the last transfer by the same description ended.
    pub reads_in_order: u64,
    /// Writes that did.
    pub writes_in_order: u64,
    /// Waits for the daemon's answers, by operation of the protocol.
    pub waits: BTreeMap<String, Wait>,
}

/// How long requests were waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wait {
    /// Requests.
    pub count: u64,
    /// All waits together, seconds.
    pub seconds: f64,
    /// Requests that were waited for up to 1 µs, 2 µs and so on to 4.2 s, and longer ones.
    pub by_time: [u64; WAITS],
}

/// One process, and what it has done. A program that becomes another one by exec is another process
/// here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessWork {
    /// Its number.
    pub pid: u32,
    /// Name of the thread that came to the instance first.
    pub name: String,
    /// It is still there.
    pub lives: bool,
    /// Seconds after the node's begin when it came.
    pub began_seconds: f64,
    /// Seconds after the node's begin when it was seen last.
    pub seen_seconds: f64,
    /// Time that it spent in calls on the instance, over all its threads, seconds: exact where it
    /// waited for an answer, estimated from samples otherwise.
    pub busy_seconds: f64,
    /// What it did.
    #[serde(flatten)]
    pub work: Work,
}

/// What was done in a span of time, estimated from samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// When it began, seconds after the node's begin.
    pub began_seconds: f64,
    /// How long it is.
    pub seconds: f64,
    /// Operations.
    pub operations: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// Directories and files, the busiest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Busy {
    /// Directories: what was done with names in them, and with the bytes of their files.
    pub directories: Vec<Place>,
    /// Files.
    pub files: Vec<Place>,
    /// How many files the samples are about.
    pub files_seen: u64,
    /// How many of these several processes have used.
    pub shared_files_seen: u64,
}

/// What was done in a place, estimated from samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// Its path from the root of the instance.
    pub path: String,
    /// Operations.
    pub operations: u64,
    /// Of these, opens and creates.
    pub opens: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time spent in these operations, over all processes, seconds.
    pub seconds: f64,
    /// Processes that the samples tell of.
    pub processes: usize,
}

/// Everything that is known of a node's work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// How long the node has been there.
    pub age_seconds: f64,
    /// Processes that did something here, as far as they are remembered one by one.
    pub processes_seen: u64,
    /// Those that did the most.
    pub by_process: Vec<ProcessWork>,
    /// Directories and files over the whole time.
    pub busiest: Busy,
    /// Those of the latest moments.
    pub latest: Busy,
    /// The last minutes in short spans.
    pub lately: Vec<Span>,
    /// The whole time in longer ones.
    pub line: Vec<Span>,
}

fn add_ways(to: &mut ByWay, from: &ByWay) {
    for (way, count) in from {
        *to.entry(way.clone()).or_default() += count;
    }
}

impl Work {
    /// Adds what others did.
    pub fn add(&mut self, other: &Work) {
        for (kind, ways) in &other.operations {
            add_ways(self.operations.entry(kind.clone()).or_default(), ways);
        }
        self.failed += other.failed;
        add_ways(&mut self.read_bytes, &other.read_bytes);
        add_ways(&mut self.written_bytes, &other.written_bytes);
        let sizes = [
            (&mut self.reads_by_size, &other.reads_by_size),
            (&mut self.writes_by_size, &other.writes_by_size),
        ];
        for (to, from) in sizes {
            to.iter_mut().zip(from).for_each(|(to, more)| *to += more);
        }
        self.reads_in_order += other.reads_in_order;
        self.writes_in_order += other.writes_in_order;
        for (op, wait) in &other.waits {
            self.waits.entry(op.clone()).or_default().add(wait);
        }
    }

    /// Operations of all kinds.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.operations.values().flat_map(BTreeMap::values).sum()
    }

    /// Operations of a kind.
    #[must_use]
    pub fn count_of(&self, kind: &str) -> u64 {
        self.operations.get(kind).map_or(0, |ways| ways.values().sum())
    }

    /// Operations that went a way.
    #[must_use]
    pub fn count_by(&self, way: &str) -> u64 {
        self.operations.values().filter_map(|ways| ways.get(way)).sum()
    }

    /// Bytes read, whichever way.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read_bytes.values().sum()
    }

    /// Bytes written, whichever way.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written_bytes.values().sum()
    }
}

impl Place {
    /// Places of several nodes, those of one path added up, the busiest first.
    #[must_use]
    pub fn merged(places: impl IntoIterator<Item = Place>) -> Vec<Place> {
        let mut all: BTreeMap<String, Place> = BTreeMap::new();
        for place in places {
            match all.get_mut(&place.path) {
                Some(sum) => sum.add(&place),
                None => drop(all.insert(place.path.clone(), place)),
            }
        }
        let mut all: Vec<Place> = all.into_values().collect();
        all.sort_by_key(|place| std::cmp::Reverse(place.operations));
        all
    }

    /// Adds what was done in the same place elsewhere.
    pub fn add(&mut self, other: &Place) {
        self.operations += other.operations;
        self.opens += other.opens;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.seconds += other.seconds;
        self.processes += other.processes;
    }
}

impl Wait {
    /// Adds others.
    pub fn add(&mut self, other: &Wait) {
        self.count += other.count;
        self.seconds += other.seconds;
        self.by_time.iter_mut().zip(other.by_time).for_each(|(to, more)| *to += more);
    }

    /// The longest wait of a bucket, seconds; nothing for the last one.
    #[must_use]
    pub fn edge(bucket: usize) -> Option<f64> {
        (bucket + 1 < WAITS).then(|| 1e-6 * f64::from(1_u32 << bucket))
    }

    /// The wait that such a share of the requests does not exceed, as far as the buckets tell,
    /// seconds. Nothing where there is no request.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = share * self.count as f64;
        let mut below = 0.0;
        for (bucket, count) in self.by_time.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= wanted {
                let from = bucket.checked_sub(1).and_then(Wait::edge).unwrap_or(0.0);
                let to = Wait::edge(bucket).unwrap_or(from * 2.0);
                return Some(from + (to - from) * ((wanted - below) / count).clamp(0.0, 1.0));
            }
            below += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        let mut wait = Wait { count: 100, ..Wait::default() };
        (wait.by_time[0], wait.by_time[3], wait.by_time[WAITS - 1]) = (50, 49, 1);
        assert_eq!(wait.quantile(0.5), Some(1e-6));
        let p99 = wait.quantile(0.99).expect("requests");
        assert!((4e-6..=8e-6).contains(&p99), "{p99}");
        assert!(wait.quantile(1.0).expect("requests") > 4.0);
        assert_eq!(Wait::default().quantile(0.5), None);
    }
}

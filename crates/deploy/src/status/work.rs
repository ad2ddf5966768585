//! What the processes of a node do, from what each counts in shared memory.

mod busy;

use std::{
    fs,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use mayfly_daemon::name_of;
use mayfly_metrics::work::{Detail, ProcessWork, SIZES, Span, WAITS, Wait, Work};
use mayfly_transport_shm::{
    ShmTransport,
    layout::NodeRegion,
    region::cycles,
    tally::{self, KINDS, Kind, LONG_SHIFT, Period, SHORT_SHIFT, Stripe, Tally, Waits, Way},
};
use mayfly_wire::Op;

/// Processes that are told of, those that did the most first.
const PROCESSES_MAX: usize = 200;

fn sum<'a>(stripes: &'a [Stripe], of: impl Fn(&'a Stripe) -> &'a AtomicU64) -> u64 {
    stripes.iter().map(|stripe| of(stripe).load(Relaxed)).sum()
}

fn each<const N: usize>(of: impl Fn(usize) -> u64) -> [u64; N] {
    std::array::from_fn(of)
}

const _: () = assert!(SIZES == tally::SIZES && WAITS == tally::WAITS);

/// What all processes of a node did since it began.
pub(super) fn of_node(node: &NodeRegion) -> Work {
    let mut work = Work::default();
    for tally in used(node).chain([&node.past]) {
        work.add(&of_tally(tally));
    }
    work
}

fn of_tally(tally: &Tally) -> Work {
    let stripes = &tally.stripes[..];
    let mut work = Work {
        failed: sum(stripes, |stripe| &stripe.failed),
        reads_by_size: each(|at| sum(stripes, |stripe| &stripe.reads[at])),
        writes_by_size: each(|at| sum(stripes, |stripe| &stripe.writes[at])),
        reads_in_order: sum(stripes, |stripe| &stripe.in_order[0]),
        writes_in_order: sum(stripes, |stripe| &stripe.in_order[1]),
        ..Work::default()
    };
    for (way, way_name) in Way::ALL {
        let way = way as usize;
        for (kind, name) in Kind::ALL {
            let count = sum(stripes, |stripe| &stripe.operations[way][kind as usize]);
            if count > 0 {
                let ways = work.operations.entry(name.to_owned()).or_default();
                ways.insert(way_name.to_owned(), count);
            }
        }
        for (to, bytes) in [
            (&mut work.read_bytes, sum(stripes, |stripe| &stripe.read_bytes[way])),
            (&mut work.written_bytes, sum(stripes, |stripe| &stripe.written_bytes[way])),
        ] {
            if bytes > 0 {
                to.insert(way_name.to_owned(), bytes);
            }
        }
    }
    for op in Op::ALL {
        let waits = tally.waits.get(*op as usize).map(of_waits);
        if let Some(wait) = waits.filter(|wait| wait.count > 0) {
            work.waits.insert(name_of(*op), wait);
        }
    }
    work
}

/// What is counted in shared memory as what is told.
pub(crate) fn of_waits(waits: &Waits) -> Wait {
    let by_time = each::<WAITS>(|at| waits.requests[at].load(Relaxed));
    let seconds = waits.sum_ns.load(Relaxed) as f64 / 1e9;
    Wait { count: by_time.iter().sum(), seconds, by_time }
}

/// Tallies of sessions that are there, or were.
fn used(node: &NodeRegion) -> impl Iterator<Item = &Tally> {
    // Numbers are handed out from 1 on, and used again: behind the first that nobody has had, none
    // was.
    node.tallies.iter().skip(1).take_while(|tally| tally.pid.load(Relaxed) != 0)
}

fn operations_of(tally: &Tally) -> u64 {
    let counts = tally.stripes.iter().flat_map(|stripe| stripe.operations.iter().flatten());
    const { assert!(KINDS >= Kind::ALL.len()) };
    counts.map(|count| count.load(Relaxed)).sum()
}

/// Does the process that has this tally still live, with this session?
fn lives(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

/// The node's clock.
struct Clock<'a> {
    node: &'a NodeRegion,
    began: u64,
    now: u64,
}

impl Clock<'_> {
    fn of(node: &NodeRegion) -> Clock<'_> {
        let began = node.head.began.cycles.load(Relaxed);
        Clock { node, began, now: cycles() }
    }

    fn seconds(&self, cycles: u64) -> f64 {
        self.node.head.nanoseconds(cycles) as f64 / 1e9
    }

    fn since_begin(&self, at: u64) -> f64 {
        self.seconds(at.saturating_sub(self.began))
    }

    fn spans(&self, periods: &[Period], shift: u32) -> Vec<Span> {
        let oldest = (self.now >> shift).saturating_sub(periods.len() as u64);
        let mut spans: Vec<(u64, Span)> = periods
            .iter()
            .filter_map(|period| {
                let number = period.number.load(Relaxed).checked_sub(1)?;
                let is_known = number > oldest && number <= self.now >> shift;
                let span = || Span {
                    began_seconds: self.since_begin(number << shift),
                    seconds: self.seconds(1 << shift),
                    operations: period.operations.load(Relaxed),
                    read_bytes: period.read_bytes.load(Relaxed),
                    written_bytes: period.written_bytes.load(Relaxed),
                };
                is_known.then(|| (number, span()))
            })
            .collect();
        spans.sort_by_key(|(number, _)| *number);
        spans.into_iter().map(|(_, span)| span).collect()
    }
}

fn of_process(tally: &Tally, clock: &Clock<'_>) -> ProcessWork {
    let name: Vec<u8> =
        tally.name.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let pid = tally.pid.load(Relaxed);
    let work = of_tally(tally);
    let waited: f64 = work.waits.values().map(|wait| wait.seconds).sum();
    let lives = lives(pid);
    let seen = if lives { Some(clock.now) } else { tally.latest().map(|seen| seen.at).max() };
    let began = tally.began.load(Relaxed);
    ProcessWork {
        pid,
        name: String::from_utf8_lossy(&name[..end]).into_owned(),
        lives,
        began_seconds: clock.since_begin(began),
        seen_seconds: clock.since_begin(seen.unwrap_or(began)),
        busy_seconds: waited + clock.seconds(busy::cycles_without_waiting(tally)),
        work,
    }
}

/// Asks the daemon for the names of directories, by `transport`.
pub(super) fn detail(node: &NodeRegion, transport: &ShmTransport) -> Detail {
    let clock = Clock::of(node);
    let mut tallies: Vec<&Tally> = used(node).filter(|tally| operations_of(tally) > 0).collect();
    let processes_seen = tallies.len() as u64;
    tallies.sort_by_key(|tally| std::cmp::Reverse(operations_of(tally)));
    let mut names = busy::Names::new(transport);
    let latest = busy::Window::Since(clock.now.saturating_sub(1 << (SHORT_SHIFT + 1)));
    let busiest = busy::of(&tallies, busy::Window::Always, &mut names, &clock);
    let latest = busy::of(&tallies, latest, &mut names, &clock);
    tallies.truncate(PROCESSES_MAX);
    Detail {
        age_seconds: clock.since_begin(clock.now),
        processes_seen,
        by_process: tallies.iter().map(|tally| of_process(tally, &clock)).collect(),
        busiest,
        latest,
        lately: clock.spans(&node.timeline.short, SHORT_SHIFT),
        line: clock.spans(&node.timeline.long, LONG_SHIFT),
    }
}

#[cfg(test)]
mod tests;

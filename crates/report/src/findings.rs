//! What stands out, in plain words, with what to do.

use serde::Serialize;

use crate::{
    Report,
    figures::{count, time},
};

/// Something that a user may want to change, or know.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What kind it is, for programs: `small-reads`.
    pub kind: &'static str,
    /// What was seen.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

/// Fewer operations of a kind are too few to judge.
const OPERATIONS_MIN: u64 = 1000;
/// Transfers up to this size are small, bytes.
const SMALL: &str = "4 KiB";
/// Sizes that are as small: buckets up to 512 bytes, 1, 2 and 4 KiB.
const SMALL_BUCKETS: usize = 4;

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// All of them, what matters most first.
pub(crate) fn of(report: &Report) -> Vec<Finding> {
    let looks: [fn(&Report) -> Option<Finding>; 13] = [
        silent_nodes,
        little_time,
        small_reads,
        small_writes,
        random_reads,
        many_opens,
        many_looks,
        failures,
        waits,
        other_nodes,
        origin,
        imbalance,
        syncs,
    ];
    looks.iter().filter_map(|look| look(report)).collect()
}

fn finding(kind: &'static str, what: String, advice: &str) -> Option<Finding> {
    Some(Finding { kind, what, advice: advice.to_owned() })
}

fn silent_nodes(report: &Report) -> Option<Finding> {
    let silent: Vec<String> = report
        .nodes
        .iter()
        .filter(|node| !node.answers)
        .map(|node| format!("{} ({})", node.node, node.host))
        .collect();
    if silent.is_empty() {
        return None;
    }
    let what = format!("Nothing is known of node {}: it did not answer.", silent.join(", "));
    finding("silent-nodes", what, "`mayfly status` and `mayfly logs` say why.")
}

fn little_time(report: &Report) -> Option<Finding> {
    let all: f64 = report.processes.iter().map(crate::OfProcess::seconds).sum();
    let busy: f64 = report.processes.iter().map(|process| process.work.busy_seconds).sum();
    if all <= 0.0 {
        return None;
    }
    let share = 100.0 * busy / all;
    let what = format!("Processes spent {share:.1} % of their time in calls on the file system.");
    match share {
        share if share < 5.0 => {
            finding("little-time", what, "Faster storage would not make this job faster.")
        }
        share if share > 40.0 => finding(
            "much-time",
            what,
            "The storage is a large part of this job's run time: the findings below say where.",
        ),
        _ => None,
    }
}

fn small(sizes: &[u64]) -> (u64, u64) {
    (sizes.iter().take(SMALL_BUCKETS).sum(), sizes.iter().sum())
}

fn small_reads(report: &Report) -> Option<Finding> {
    let (small, all) = small(&report.work.reads_by_size);
    let share = percent(small, all);
    // Small files are read by small reads, and nothing is wrong with that.
    let opens = report.work.count_of("open") + report.work.count_of("create");
    let is_bad = all >= OPERATIONS_MIN && share >= 50.0 && all > 4 * opens;
    let asked = report.work.operations.get("read").and_then(|ways| ways.get("asked")).copied();
    let asked = asked
        .filter(|asked| *asked > 0)
        .map_or(String::new(), |asked| format!(" {} of them had to ask a daemon.", count(asked)));
    let what = format!(
        "{share:.0} % of {} reads got up to {SMALL}, and each open was followed by {:.0} of them.\
         {asked}",
        count(all),
        all as f64 / opens.max(1) as f64
    );
    let advice = "Read more at a time: a larger buffer (`setvbuf`, `open(…, buffering=2**20)`), or \
                  whole files where they are small.";
    is_bad.then(|| finding("small-reads", what, advice)).flatten()
}

fn small_writes(report: &Report) -> Option<Finding> {
    let (small, all) = small(&report.work.writes_by_size);
    let share = percent(small, all);
    let creates = report.work.count_of("create") + report.work.count_of("open");
    let is_bad = all >= OPERATIONS_MIN && share >= 50.0 && all > 4 * creates;
    let what = format!("{share:.0} % of {} writes were of up to {SMALL}.", count(all));
    let advice = "Write more at a time: a larger buffer, or a library that collects (HDF5 chunks, \
                  ADIOS2). A log that is flushed line by line is a usual cause.";
    is_bad.then(|| finding("small-writes", what, advice)).flatten()
}

fn random_reads(report: &Report) -> Option<Finding> {
    let all: u64 = report.work.reads_by_size.iter().sum();
    let share = percent(all.saturating_sub(report.work.reads_in_order), all);
    let what = format!(
        "{share:.0} % of {} reads began elsewhere than where the last one ended.",
        count(all)
    );
    let advice = "Nothing is wrong with random reads of local files; of files on other nodes each \
                  is a request. `mayfly layout` says where files are.";
    let is_much = all >= OPERATIONS_MIN && share >= 50.0;
    is_much.then(|| finding("random-reads", what, advice)).flatten()
}

fn many_opens(report: &Report) -> Option<Finding> {
    let busiest = report.busy_files.iter().max_by_key(|place| place.opens)?;
    let is_bad = busiest.opens >= OPERATIONS_MIN;
    let what = format!("{} was opened about {} times.", busiest.path, count(busiest.opens));
    let advice = "Keep it open, or read it once and keep its content.";
    is_bad.then(|| finding("many-opens", what, advice)).flatten()
}

fn many_looks(report: &Report) -> Option<Finding> {
    let looks = report.work.count_of("stat") + report.work.count_of("list");
    let share = percent(looks, report.work.count());
    let what = format!(
        "{share:.0} % of all operations, {}, only looked at names and attributes.",
        count(looks)
    );
    let advice = "`find` and `ls -l` over everything, imports of Python modules, and makefiles do \
                  that. They are cheap here; on a shared file system they would have been the \
                  largest part of its load.";
    let is_much = looks >= 10 * OPERATIONS_MIN && share >= 50.0;
    is_much.then(|| finding("many-looks", what, advice)).flatten()
}

fn failures(report: &Report) -> Option<Finding> {
    let share = percent(report.work.failed, report.work.count());
    let what = format!("{share:.0} % of all operations failed: {}.", count(report.work.failed));
    let advice = "Mostly somebody looks for what is not there, as search paths of libraries and of \
                  Python do. A shorter path, or a virtual environment in the instance, helps.";
    let is_much = report.work.failed >= OPERATIONS_MIN && share >= 10.0;
    is_much.then(|| finding("failures", what, advice)).flatten()
}

fn waits(report: &Report) -> Option<Finding> {
    let (asked, all) = (report.work.count_by("asked"), report.work.count());
    let waited: f64 = report.work.waits.values().map(|wait| wait.seconds).sum();
    let busy: f64 = report.processes.iter().map(|process| process.work.busy_seconds).sum();
    let (op, most) = report
        .work
        .waits
        .iter()
        .max_by(|(_, one), (_, other)| one.seconds.total_cmp(&other.seconds))?;
    let is_much = all >= OPERATIONS_MIN && busy > 0.0 && waited > 0.5 * busy && waited > 1.0;
    let what = format!(
        "{:.0} % of all operations asked a daemon, and waiting for its answers was {:.0} % of the \
         time in the file system. Most of it went to {op}: {} requests, half of them within {}.",
        percent(asked, all),
        (100.0 * waited / busy).min(100.0),
        count(most.count),
        time(most.quantile(0.5).unwrap_or(0.0)),
    );
    let advice = if report.requests_between_nodes > 0 {
        "Requests to other nodes take the longest. Let the process that made files use them, or \
         choose where they are by `mayfly layout`."
    } else {
        "Operations that need no answer are faster: create files with O_CREAT in directories that \
         this node made, and leave out chmod, utime and fsync where nobody needs them."
    };
    is_much.then(|| finding("waits", what, advice)).flatten()
}

fn other_nodes(report: &Report) -> Option<Finding> {
    let (asked, wait) = (report.work.count_by("asked"), report.held.get("node")?);
    let what = format!(
        "{:.0} % of all requests, {}, were answered by another node; half of these within {}, 99 \
         of 100 within {}.",
        percent(wait.count, asked),
        count(wait.count),
        time(wait.quantile(0.5).unwrap_or(0.0)),
        time(wait.quantile(0.99).unwrap_or(0.0)),
    );
    let advice = "Files and directories are at the node that made them. Let the processes that \
                  made them use them, or make those that all use before the others begin.";
    let is_much = wait.count >= OPERATIONS_MIN && percent(wait.count, asked) >= 20.0;
    is_much.then(|| finding("other-nodes", what, advice)).flatten()
}

/// All waits for an origin together that are worth a word, seconds.
const ORIGIN_SECONDS_MIN: f64 = 1.0;

fn origin(report: &Report) -> Option<Finding> {
    let wait = report.held.get("origin")?;
    let what = format!(
        "{} requests waited for an origin, {} in all; half of them up to {}, 99 of 100 up to {}.",
        count(wait.count),
        time(wait.seconds),
        time(wait.quantile(0.5).unwrap_or(0.0)),
        time(wait.quantile(0.99).unwrap_or(0.0)),
    );
    let advice = "Fetch what the job reads while it does something else (`mayfly tier prefetch`), \
                  believe for longer what was seen there (`--validate`), and let names be made \
                  there later (`--names async`).";
    (wait.seconds >= ORIGIN_SECONDS_MIN).then(|| finding("origin", what, advice)).flatten()
}

fn imbalance(report: &Report) -> Option<Finding> {
    let answering: Vec<_> = report.nodes.iter().filter(|node| node.answers).collect();
    if answering.len() < 2 {
        return None;
    }
    let most = answering.iter().max_by_key(|node| node.used_bytes)?;
    let mean = report.used_bytes as f64 / answering.len() as f64;
    let is_bad = most.used_bytes as f64 > 2.0 * mean && most.used_bytes > 1 << 30;
    let what = format!(
        "Node {} ({}) has {:.0} % of all bytes.",
        most.node,
        most.host,
        percent(most.used_bytes, report.used_bytes)
    );
    let advice = "Its processes wrote most of them. `mayfly layout set --layout stripe DIRECTORY` \
                  spreads large files over all nodes.";
    is_bad.then(|| finding("imbalance", what, advice)).flatten()
}

fn syncs(report: &Report) -> Option<Finding> {
    let syncs = report.work.count_of("sync");
    let what = format!("Programs asked {} times for durability (fsync).", count(syncs));
    let advice = "An instance ends with its job; what has to outlive it is staged out. Turn \
                  off the program's own syncs where it lets you.";
    (syncs >= OPERATIONS_MIN).then(|| finding("syncs", what, advice)).flatten()
}

//! The report of a job: what its programs did with the file system, whether that was good, and what
//! would make it better.
//!
//! It is made from what the nodes report ([`mayfly_metrics::work`]); [`Report`] is the form of
//! `--json`, [`page`] makes one page of it that needs nothing else.

mod figures;
mod findings;
mod page;
mod plot;

use std::collections::BTreeMap;

use mayfly_metrics::{
    Node,
    work::{Detail, Place, ProcessWork, Span, Wait, Work},
};
use serde::{Deserialize, Serialize};

pub use findings::Finding;
pub use page::page;

/// Version of the form.
const FORM: u32 = 1;
/// Processes, directories and files that are told.
const ROWS_MAX: usize = 30;

/// What a job did.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this form.
    pub form: u32,
    /// The instance's name.
    pub name: String,
    /// The command, if it ran in the instance's own `mayfly run`.
    pub command: Option<Vec<String>>,
    /// How long the instance has been there, seconds.
    pub seconds: f64,
    /// What stands out, and what to do.
    pub findings: Vec<Finding>,
    /// What all did.
    pub work: Work,
    /// Regular files and symbolic links that are there.
    pub files: u64,
    /// Space in use, bytes.
    pub used_bytes: u64,
    /// Requests between nodes.
    pub requests_between_nodes: u64,
    /// How long processes waited for answers that were not there at once, by what the request
    /// waited for: another node that executed it (`node`), other shards (`shards`), the disk or
    /// what others hold (`held`).
    pub held: BTreeMap<String, Wait>,
    /// Processes that did something.
    pub processes_seen: u64,
    /// Files that the samples are about, and those among them that several processes of a node
    /// have used.
    pub files_seen: u64,
    /// As [`Report::files_seen`].
    pub shared_files_seen: u64,
    /// Each node.
    pub nodes: Vec<OfNode>,
    /// The processes that did the most.
    pub processes: Vec<OfProcess>,
    /// The busiest directories.
    pub directories: Vec<Place>,
    /// The busiest files.
    pub busy_files: Vec<Place>,
    /// The course of time, all nodes together.
    pub line: Vec<Span>,
}

/// As much of what a node's daemon did as is needed here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Activity {
    held: BTreeMap<String, BTreeMap<String, Wait>>,
}

/// What was done on a node.
#[derive(Debug, Clone, Serialize)]
pub struct OfNode {
    /// Its number.
    pub node: u32,
    /// Where it is.
    pub host: String,
    /// Does it answer? There are no numbers of one that does not.
    pub answers: bool,
    /// Operations of its processes.
    pub operations: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Requests of other nodes that it answered.
    pub answers_to_nodes: u64,
    /// Space in use there, bytes.
    pub used_bytes: u64,
    /// Processor time of Mayfly's own processes there, seconds.
    pub cpu_seconds: f64,
}

/// What a process did.
#[derive(Debug, Clone, Serialize)]
pub struct OfProcess {
    /// The node where it ran.
    pub node: u32,
    /// What it did.
    #[serde(flatten)]
    pub work: ProcessWork,
}

impl OfProcess {
    /// How long it was seen, seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.work.seen_seconds - self.work.began_seconds).max(self.work.busy_seconds)
    }

    /// The share of its time that it spent in the file system.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.seconds() > 0.0 { self.work.busy_seconds / self.seconds() } else { 0.0 }
    }
}

/// The busiest places of all nodes.
fn busiest(places: impl IntoIterator<Item = Place>) -> Vec<Place> {
    let mut all = Place::merged(places);
    all.truncate(ROWS_MAX);
    all
}

/// The course of time: short spans while they tell of everything, long ones otherwise.
fn line(details: &[Detail]) -> Vec<Span> {
    let whole = |of: &Detail| {
        let first = |spans: &[Span]| spans.first().map_or(f64::MAX, |span| span.began_seconds);
        // The ring of short ones has not lost what the long ones still know.
        first(&of.lately) <= first(&of.line) + 40.0
    };
    let short = details.iter().all(whole);
    let spans = details.iter().flat_map(|of| if short { &of.lately } else { &of.line });
    // Nodes began within moments of each other, and their periods are as long to within little.
    let width = spans.clone().map(|span| span.seconds).fold(0.0, f64::max);
    if width <= 0.0 {
        return Vec::new();
    }
    let mut sums: BTreeMap<u64, Span> = BTreeMap::new();
    for span in spans {
        let at = (span.began_seconds / width).round() as u64;
        let began_seconds = at as f64 * width;
        let sum = sums.entry(at).or_insert_with(|| Span {
            began_seconds,
            seconds: width,
            ..Span::default()
        });
        sum.operations += span.operations;
        sum.read_bytes += span.read_bytes;
        sum.written_bytes += span.written_bytes;
    }
    sums.into_values().collect()
}

impl Report {
    /// The report of an instance, from what all its nodes say.
    #[must_use]
    pub fn of(name: &str, command: Option<Vec<String>>, nodes: &[Node]) -> Report {
        let details: Vec<Detail> = nodes.iter().map(|node| node.part("detail")).collect();
        let mut work = Work::default();
        let mut of_nodes = Vec::new();
        for node in nodes {
            let of_node: Work = node.part("work");
            of_nodes.push(OfNode {
                node: node.node,
                host: node.host.clone(),
                answers: node.serves(),
                operations: of_node.count(),
                read_bytes: of_node.read(),
                written_bytes: of_node.written(),
                answers_to_nodes: whole(node, "/activity/answers_to_nodes"),
                used_bytes: whole(node, "/used_bytes"),
                cpu_seconds: cpu(node),
            });
            work.add(&of_node);
        }
        let mut processes: Vec<OfProcess> = nodes
            .iter()
            .zip(&details)
            .flat_map(|(node, detail)| {
                let of = |work: &ProcessWork| OfProcess { node: node.node, work: work.clone() };
                detail.by_process.iter().map(of)
            })
            .collect();
        processes.sort_by(|one, other| other.work.busy_seconds.total_cmp(&one.work.busy_seconds));
        let mut report = Report {
            form: FORM,
            name: name.to_owned(),
            command,
            seconds: details.iter().map(|detail| detail.age_seconds).fold(0.0, f64::max),
            findings: Vec::new(),
            files: nodes.iter().map(|node| whole(node, "/files")).sum(),
            used_bytes: of_nodes.iter().map(|node| node.used_bytes).sum(),
            requests_between_nodes: of_nodes.iter().map(|node| node.answers_to_nodes).sum(),
            processes_seen: details.iter().map(|detail| detail.processes_seen).sum(),
            files_seen: details.iter().map(|detail| detail.busiest.files_seen).sum(),
            shared_files_seen: details.iter().map(|detail| detail.busiest.shared_files_seen).sum(),
            held: held(nodes),
            directories: busiest(details.iter().flat_map(|of| of.busiest.directories.clone())),
            busy_files: busiest(details.iter().flat_map(|of| of.busiest.files.clone())),
            line: line(&details),
            nodes: of_nodes,
            work,
            processes,
        };
        report.findings = findings::of(&report);
        report.processes.truncate(ROWS_MAX);
        report
    }
}

/// Over all nodes and operations.
fn held(nodes: &[Node]) -> BTreeMap<String, Wait> {
    let mut sums: BTreeMap<String, Wait> = BTreeMap::new();
    for activity in nodes.iter().map(|node| node.part::<Activity>("activity")) {
        for (hold, by_op) in activity.held {
            let sum = sums.entry(hold).or_default();
            by_op.values().for_each(|wait| sum.add(wait));
        }
    }
    sums
}

fn whole(node: &Node, pointer: &str) -> u64 {
    node.number(pointer).unwrap_or(0.0) as u64
}

fn cpu(node: &Node) -> f64 {
    let processes: Vec<serde_json::Value> = node.part("processes");
    processes.iter().filter_map(|process| process["cpu_seconds"].as_f64()).sum()
}

#[cfg(test)]
mod tests;

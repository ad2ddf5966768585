//! Every metric, declared once: what is exposed, and the page that explains it.

use prometheus_client::registry::Unit;

/// How a value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only up, from the beginning of the node.
    Counter,
    /// Up and down.
    Gauge,
    /// How many were how long.
    Histogram,
}

/// What its unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

impl Measure {
    pub(crate) fn unit(self) -> Option<Unit> {
        match self {
            Measure::Count => None,
            Measure::Bytes => Some(Unit::Bytes),
            Measure::Seconds => Some(Unit::Seconds),
        }
    }
}

/// Where in a node's report the values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// 1 while the node serves, otherwise 0.
    Serving,
    /// One number, by a JSON pointer.
    Number(&'static str),
    /// An object of numbers, by a JSON pointer: its keys are values of the label.
    Object(&'static str, &'static str),
    /// An object of such objects: the keys of either are values of a label.
    Nested(&'static str, [&'static str; 2]),
    /// An object of waits ([`crate::work::Wait`]); its keys are values of the label.
    Waits(&'static str, &'static str),
    /// An object of such objects.
    NestedWaits(&'static str, [&'static str; 2]),
    /// A field of each of the node's processes; the label is `process`.
    Process(&'static str),
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name, without what its kind and unit add.
    pub name: &'static str,
    /// How its values go.
    pub kind: Kind,
    /// Its unit.
    pub measure: Measure,
    /// Where its values are.
    pub source: Source,
    /// What it means.
    pub help: &'static str,
}

const fn counter(name: &'static str, source: Source, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, measure: Measure::Count, source, help }
}

const fn gauge(name: &'static str, source: Source, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, measure: Measure::Count, source, help }
}

const fn bytes(metric: Metric) -> Metric {
    Metric { measure: Measure::Bytes, ..metric }
}

const fn seconds(metric: Metric) -> Metric {
    Metric { measure: Measure::Seconds, ..metric }
}

/// All of them, in the order in which they are told.
pub const METRICS: &[Metric] = &[
    gauge("mayfly_up", Source::Serving, "Whether the node's daemon answers."),
    counter(
        "mayfly_answers",
        Source::Object("/activity/answers", "op"),
        "Answers to requests of the node's processes and mounts, by operation. What a process does \
         itself, such as reading and writing the objects of its node, is no request.",
    ),
    counter(
        "mayfly_refusals",
        Source::Object("/activity/refusals", "op"),
        "Answers that refuse, by operation.",
    ),
    counter(
        "mayfly_errors",
        Source::Object("/activity/errors", "errno"),
        "Answers that refuse, by error. ENOENT is what a look for something absent ends with, and \
         nothing bad.",
    ),
    counter(
        "mayfly_unawaited",
        Source::Object("/activity/unawaited", "op"),
        "Operations for which their processes did not wait.",
    ),
    counter(
        "mayfly_answers_to_nodes",
        Source::Number("/activity/answers_to_nodes"),
        "Answers to requests that came from other nodes.",
    ),
    counter(
        "mayfly_operations",
        Source::Nested("/work/operations", ["op", "way"]),
        "Operations of the node's processes and mounts, by kind and by the way they went: a \
         process did it itself, did not wait for it (unawaited), or asked the daemon (asked).",
    ),
    counter(
        "mayfly_operations_failed",
        Source::Number("/work/failed"),
        "Operations among them that failed.",
    ),
    bytes(counter(
        "mayfly_read",
        Source::Object("/work/read_bytes", "way"),
        "Bytes that processes and mounts read, by way. What is read by mmap is not counted.",
    )),
    bytes(counter(
        "mayfly_written",
        Source::Object("/work/written_bytes", "way"),
        "Bytes that processes and mounts wrote, by way.",
    )),
    Metric {
        name: "mayfly_wait",
        kind: Kind::Histogram,
        measure: Measure::Seconds,
        source: Source::Waits("/work/waits", "op"),
        help: "Waits of processes and mounts for answers of the daemon, by request.",
    },
    Metric {
        name: "mayfly_held",
        kind: Kind::Histogram,
        measure: Measure::Seconds,
        source: Source::NestedWaits("/activity/held", ["for", "op"]),
        help: "Waits for those answers among them that were not there at once, by what the request \
               waited for: another node that executed it (node); other shards of its node, or \
               steps at other nodes (shards); the disk, or what other requests hold (held); \
               what an origin has (origin).",
    },
    counter(
        "mayfly_messages",
        Source::Nested("/activity/messages", ["peer", "what"]),
        "Messages between this node and another one: requests, answers to them, requests heard \
         from there; requests that were late (not answered in time) or lost with a connection; \
         connections made.",
    ),
    bytes(counter(
        "mayfly_message",
        Source::Nested("/activity/message_bytes", ["peer", "way"]),
        "Bytes of these messages, sent and received.",
    )),
    gauge(
        "mayfly_unawaited_waiting",
        Source::Number("/posted_waiting"),
        "Operations for which nobody waits and that the daemon has not executed yet.",
    ),
    gauge(
        "mayfly_processes_waiting",
        Source::Number("/processes_waiting"),
        "Processes and mounts with a request that no thread has taken up yet.",
    ),
    bytes(counter(
        "mayfly_requested",
        Source::Number("/activity/requested_bytes"),
        "Bytes of files that were read by requests.",
    )),
    counter(
        "mayfly_transactions",
        Source::Number("/transactions"),
        "Committed batches of changes.",
    ),
    counter(
        "mayfly_restarts",
        Source::Number("/restarts"),
        "Starts of the daemon after the first: it had died.",
    ),
    counter(
        "mayfly_waits",
        Source::Object("/waits", "outcome"),
        "Waits of the thread that takes requests: polls that found one, polls in vain, sleeps, and \
         moves to another processor.",
    ),
    gauge("mayfly_sessions", Source::Number("/sessions"), "Attached processes."),
    gauge("mayfly_open_files", Source::Number("/open_files"), "Open file descriptions."),
    gauge("mayfly_locks", Source::Number("/locks"), "Held locks."),
    gauge("mayfly_files", Source::Number("/files"), "Regular files and symbolic links."),
    gauge("mayfly_directories", Source::Number("/directories"), "Directories."),
    gauge("mayfly_objects", Source::Number("/objects"), "Files whose bytes are in an object."),
    gauge(
        "mayfly_orphans",
        Source::Number("/orphans"),
        "Files without a name that are still open.",
    ),
    bytes(gauge("mayfly_used", Source::Number("/used_bytes"), "Space in use, metadata included.")),
    bytes(gauge("mayfly_capacity", Source::Number("/capacity_bytes"), "Space that may be used.")),
    gauge(
        "mayfly_tier_files",
        Source::Number("/tier/files"),
        "Files, directories and links of origins that the node knows.",
    ),
    gauge(
        "mayfly_tier_files_state",
        Source::Object("/tier/files_that_are", "state"),
        "Files among them that are not written back (dirty), stay here (pinned), or are being \
         fetched (fetching).",
    ),
    bytes(gauge(
        "mayfly_tier_state",
        Source::Object("/tier/bytes_that_are", "state"),
        "Bytes of files of origins that are here (cached), and of those that are dirty or pinned.",
    )),
    counter(
        "mayfly_tier_reads",
        Source::Object("/tier/reads", "from"),
        "Reads of files of origins that the daemon was asked for: of what was here, or after a \
         wait for the origin (outside). It begins anew with the daemon, as the next ones do.",
    ),
    bytes(counter(
        "mayfly_tier_read",
        Source::Object("/tier/read_bytes", "from"),
        "Bytes of these reads.",
    )),
    counter(
        "mayfly_tier_moves",
        Source::Object("/tier/done", "what"),
        "Files and parts of files that were fetched from origins, flushed there, or evicted here.",
    ),
    bytes(counter("mayfly_tier_moved", Source::Object("/tier/done_bytes", "what"), "Their bytes.")),
    counter(
        "mayfly_tier_conflicts",
        Source::Number("/tier/conflicts"),
        "Copies that were written beside what somebody had changed outside.",
    ),
    counter("mayfly_tier_errors", Source::Number("/tier/errors"), "What failed at origins."),
    gauge("mayfly_stages", Source::Number("/staging/running"), "Stages under way."),
    counter(
        "mayfly_staged",
        Source::Object("/staging/files", "outcome"),
        "Files of the stages that were begun on the node's machine: copied, found unchanged, \
         failed. Nodes on other machines do not tell theirs.",
    ),
    bytes(counter(
        "mayfly_staged_content",
        Source::Number("/staging/bytes"),
        "Bytes that these stages copied.",
    )),
    seconds(counter(
        "mayfly_cpu",
        Source::Process("cpu_seconds"),
        "Processor time of the node's own processes, since each began.",
    )),
    bytes(gauge(
        "mayfly_resident",
        Source::Process("resident_bytes"),
        "Memory of the node's own processes; pages that they share count for each.",
    )),
];

impl Metric {
    /// The name under which samples are found.
    #[must_use]
    pub fn sample(&self) -> String {
        let unit = self.measure.unit().map_or(String::new(), |unit| format!("_{}", unit.as_str()));
        let kind = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{kind}", self.name)
    }

    /// Labels besides `name` and `node`.
    #[must_use]
    pub fn labels(&self) -> Vec<&'static str> {
        match self.source {
            Source::Object(_, label) | Source::Waits(_, label) => vec![label],
            Source::Nested(_, labels) | Source::NestedWaits(_, labels) => labels.to_vec(),
            Source::Process(_) => vec!["process"],
            Source::Serving | Source::Number(_) => Vec::new(),
        }
    }
}

/// The page that explains them.
#[must_use]
pub fn page() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         `mayfly metrics` prints them in the OpenMetrics text format. This page is made from the \
         table in\n`crates/metrics/src/table.rs`: `mayfly metrics --reference`.\n\n\
         Every sample has the labels `name`, the instance's, and `node`, a number. No label has a \
         path.\nNames and labels are not yet stable: they may change with every version below \
         1.0.\n\n| metric | kind | label | |\n|---|---|---|---|\n",
    );
    for metric in METRICS {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels = metric.labels().into_iter().map(|label| format!("`{label}`"));
        let label = labels.collect::<Vec<_>>().join(", ");
        text.push_str(&format!("| `{}` | {kind} | {label} | {} |\n", metric.sample(), metric.help));
    }
    text
}

//! What nodes and their processes do in a second, from what they report at two moments.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    Node,
    work::{ByWay, Detail, Place, ProcessWork, WAITS, Wait, Work},
};

/// What goes on between two moments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rates {
    /// Time between them.
    pub seconds: f64,
    /// Each node.
    pub nodes: Vec<NodeRates>,
    /// Each kind of operations that was ever done, over all nodes.
    pub operations: Vec<OperationRates>,
    /// Each request that was ever waited for, over all nodes.
    pub waits: Vec<WaitRates>,
    /// Processes that did something meanwhile, and those that live.
    pub processes: Vec<ProcessRates>,
    /// Directories of the latest moments, the busiest first.
    pub directories: Vec<Place>,
    /// Files, likewise.
    pub files: Vec<Place>,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeRates {
    /// The instance's name.
    pub name: String,
    /// The node's number.
    pub node: u32,
    /// Where it is.
    pub host: String,
    /// Does its daemon answer? The numbers are 0 otherwise.
    pub serves: bool,
    /// Operations of its processes and mounts a second.
    pub operations_per_second: f64,
    /// Those among them for which the daemon was asked.
    pub asked_per_second: f64,
    /// Bytes that they read a second.
    pub read_bytes_per_second: f64,
    /// Bytes that they write a second.
    pub written_bytes_per_second: f64,
    /// Half of the waits for answers are not longer, seconds; nothing where nobody waited.
    pub wait_p50_seconds: Option<f64>,
    /// 99 of 100 waits are not longer.
    pub wait_p99_seconds: Option<f64>,
    /// Answers to other nodes a second.
    pub answers_to_nodes_per_second: f64,
    /// Processors that its own processes keep busy.
    pub processors: f64,
    /// Memory that they have, bytes.
    pub resident_bytes: f64,
    /// Space in use, bytes.
    pub used_bytes: f64,
    /// Space that may be used, bytes.
    pub capacity_bytes: f64,
    /// Open file descriptions.
    pub open_files: f64,
    /// Attached processes.
    pub sessions: f64,
}

/// How often something is done.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OperationRates {
    /// Its kind.
    pub op: String,
    /// A second.
    pub per_second: f64,
    /// Of these, for which the daemon was asked.
    pub asked_per_second: f64,
    /// Of these, for which nobody waited.
    pub unawaited_per_second: f64,
    /// Since the nodes began.
    pub total: u64,
}

/// How long a request is waited for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaitRates {
    /// The request.
    pub op: String,
    /// A second.
    pub per_second: f64,
    /// Half are waited for no longer, seconds; nothing where there was none.
    pub p50_seconds: Option<f64>,
    /// 99 of 100 are not.
    pub p99_seconds: Option<f64>,
    /// Since the nodes began.
    pub total: u64,
}

/// What a process does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessRates {
    /// The node where it is.
    pub node: u32,
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// Operations a second.
    pub per_second: f64,
    /// Bytes that it reads a second.
    pub read_bytes_per_second: f64,
    /// Bytes that it writes a second.
    pub written_bytes_per_second: f64,
    /// Share of the time that its threads together spend in the file system: 2 when two do nothing
    /// else.
    pub busy: f64,
    /// Operations so far.
    pub total: u64,
}

/// What was added since; all of it when it has begun anew.
fn grown(now: u64, before: u64) -> f64 {
    (if now < before { now } else { now - before }) as f64
}

fn grown_f64(now: f64, before: f64) -> f64 {
    if now < before { now } else { now - before }
}

/// What was waited for since.
fn waited(now: &Wait, before: Option<&Wait>) -> Wait {
    let none = Wait::default();
    let before = before.filter(|before| before.count <= now.count).unwrap_or(&none);
    let mut by_time = [0; WAITS];
    for (at, to) in by_time.iter_mut().enumerate() {
        *to = now.by_time[at].saturating_sub(before.by_time[at]);
    }
    let seconds = (now.seconds - before.seconds).max(0.0);
    Wait { count: by_time.iter().sum(), seconds, by_time }
}

fn bytes_grown(now: &ByWay, before: &ByWay) -> f64 {
    grown(now.values().sum(), before.values().sum())
}

/// How long requests waited at their daemon for what an origin has, by operation.
fn at_origins(node: Option<&Node>) -> BTreeMap<String, Wait> {
    let held = node.and_then(|node| node.at("/activity/held/origin"));
    held.and_then(|held| serde_json::from_value(held.clone()).ok()).unwrap_or_default()
}

/// A node at two moments.
struct Pair<'a> {
    node: &'a Node,
    now: Work,
    before: Work,
    detail: Detail,
    earlier: Option<&'a Node>,
}

impl<'a> Pair<'a> {
    fn of(node: &'a Node, before: &'a [Node]) -> Pair<'a> {
        let is_same = |other: &&Node| other.name == node.name && other.node == node.node;
        let earlier = before.iter().find(is_same);
        let before = earlier.map(|node| node.part("work")).unwrap_or_default();
        Pair { node, now: node.part("work"), before, detail: node.part("detail"), earlier }
    }

    /// Waits for any answer.
    fn all_waits(&self) -> Wait {
        let mut all = Wait::default();
        for (op, now) in &self.now.waits {
            all.add(&waited(now, self.before.waits.get(op)));
        }
        all
    }

    fn rates(&self, seconds: f64) -> NodeRates {
        let number = |pointer: &str| self.node.number(pointer).unwrap_or(0.0);
        let own = |node: &Node, field| node.of_processes(field).values().sum::<f64>();
        let since = |of: &dyn Fn(&Node) -> f64| {
            grown_f64(of(self.node), self.earlier.map_or(0.0, of)) / seconds
        };
        let waits = self.all_waits();
        NodeRates {
            name: self.node.name.clone(),
            node: self.node.node,
            host: self.node.host.clone(),
            serves: self.node.serves(),
            operations_per_second: grown(self.now.count(), self.before.count()) / seconds,
            asked_per_second: grown(self.now.count_by("asked"), self.before.count_by("asked"))
                / seconds,
            read_bytes_per_second: bytes_grown(&self.now.read_bytes, &self.before.read_bytes)
                / seconds,
            written_bytes_per_second: bytes_grown(
                &self.now.written_bytes,
                &self.before.written_bytes,
            ) / seconds,
            wait_p50_seconds: waits.quantile(0.5),
            wait_p99_seconds: waits.quantile(0.99),
            answers_to_nodes_per_second: since(&|node| {
                node.number("/activity/answers_to_nodes").unwrap_or(0.0)
            }),
            processors: since(&|node| own(node, "cpu_seconds")),
            resident_bytes: own(self.node, "resident_bytes"),
            used_bytes: number("/used_bytes"),
            capacity_bytes: number("/capacity_bytes"),
            open_files: number("/open_files"),
            sessions: number("/sessions"),
        }
    }

    fn processes(&self, seconds: f64) -> Vec<ProcessRates> {
        let now = &self.detail;
        let before: Detail = self.earlier.map(|node| node.part("detail")).unwrap_or_default();
        let key = |process: &ProcessWork| (process.pid, process.began_seconds.to_bits());
        let known: BTreeMap<_, &ProcessWork> =
            before.by_process.iter().map(|process| (key(process), process)).collect();
        let none = ProcessWork::default();
        let rates = now.by_process.iter().map(|process| {
            let then = known.get(&key(process)).copied().unwrap_or(&none);
            let ProcessWork { work, .. } = process;
            ProcessRates {
                node: self.node.node,
                pid: process.pid,
                program: process.name.clone(),
                per_second: grown(work.count(), then.work.count()) / seconds,
                read_bytes_per_second: bytes_grown(&work.read_bytes, &then.work.read_bytes)
                    / seconds,
                written_bytes_per_second: bytes_grown(
                    &work.written_bytes,
                    &then.work.written_bytes,
                ) / seconds,
                // What is estimated may go back a little.
                busy: (process.busy_seconds - then.busy_seconds).max(0.0) / seconds,
                total: work.count(),
            }
        });
        let lives: Vec<bool> = now.by_process.iter().map(|process| process.lives).collect();
        rates
            .zip(lives)
            .filter(|(one, lives)| *lives || one.per_second > 0.0)
            .map(|(one, _)| one)
            .collect()
    }

    fn add_operations(&self, to: &mut BTreeMap<String, OperationRates>, seconds: f64) {
        let none = ByWay::new();
        for (op, now) in &self.now.operations {
            let before = self.before.operations.get(op).unwrap_or(&none);
            let by = |way: &str| {
                let of = |ways: &ByWay| ways.get(way).copied().unwrap_or(0);
                grown(of(now), of(before)) / seconds
            };
            let sum = to
                .entry(op.clone())
                .or_insert_with(|| OperationRates { op: op.clone(), ..OperationRates::default() });
            sum.per_second += grown(now.values().sum(), before.values().sum()) / seconds;
            sum.asked_per_second += by("asked");
            sum.unawaited_per_second += by("unawaited");
            sum.total += now.values().sum::<u64>();
        }
    }
}

impl Rates {
    /// Of all nodes that are there now. One that was not there before, or that began anew since,
    /// has what it has done so far.
    #[must_use]
    pub fn between(before: &[Node], now: &[Node], seconds: f64) -> Rates {
        let seconds = seconds.max(f64::EPSILON);
        let mut operations = BTreeMap::new();
        let mut waits: BTreeMap<String, (Wait, u64)> = BTreeMap::new();
        let (mut nodes, mut processes) = (Vec::new(), Vec::new());
        let (mut directories, mut files) = (Vec::new(), Vec::new());
        for node in now {
            let pair = Pair::of(node, before);
            pair.add_operations(&mut operations, seconds);
            let (now_outside, outside) = (at_origins(Some(node)), at_origins(pair.earlier));
            let of_requests =
                pair.now.waits.iter().map(|(op, now)| (op.clone(), now, pair.before.waits.get(op)));
            let at_origins = now_outside
                .iter()
                .map(|(op, now)| (format!("{op}, for an origin"), now, outside.get(op)));
            for (op, now, before) in of_requests.chain(at_origins) {
                let (sum, total) = waits.entry(op).or_default();
                sum.add(&waited(now, before));
                *total += now.count;
            }
            processes.extend(pair.processes(seconds));
            nodes.push(pair.rates(seconds));
            directories.extend(pair.detail.latest.directories);
            files.extend(pair.detail.latest.files);
        }
        let waits = waits.into_iter().map(|(op, (wait, total))| WaitRates {
            op,
            per_second: wait.count as f64 / seconds,
            p50_seconds: wait.quantile(0.5),
            p99_seconds: wait.quantile(0.99),
            total,
        });
        Rates {
            seconds,
            nodes,
            operations: operations.into_values().collect(),
            waits: waits.collect(),
            processes,
            directories: Place::merged(directories),
            files: Place::merged(files),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(opens: u64, made: u64, cpu: f64) -> Node {
        let mut by_time = [0; WAITS];
        by_time[3] = opens;
        let process = json!({
            "pid": 7, "name": "tar", "lives": true, "began_seconds": 1.5, "seen_seconds": 2.0,
            "busy_seconds": cpu,
            "operations": {"open": {"asked": opens}},
            "written_bytes": {"itself": made * 10},
        });
        let report = json!({
            "state": "serving", "used_bytes": 10,
            "work": {
                "operations": {
                    "open": {"asked": opens}, "stat": {"itself": 5},
                    "create": {"unawaited": made},
                },
                "written_bytes": {"itself": made * 10},
                "waits": {"open": {"count": opens, "seconds": 1.0, "by_time": by_time}},
            },
            "activity": {"held": {"origin": {"open": {
                "count": opens / 2, "seconds": 1.0, "by_time": by_time,
            }}}},
            "detail": {"by_process": [process]},
            "processes": [{"process": "daemon", "cpu_seconds": cpu, "resident_bytes": 4096}],
        });
        Node { name: "a".to_owned(), node: 0, host: "h".to_owned(), report: Some(report) }
    }

    #[test]
    fn rates_are_what_was_added_in_a_second() {
        let rates = Rates::between(&[node(10, 100, 1.0)], &[node(30, 500, 2.0)], 2.0);
        let of = |op: &str| rates.operations.iter().find(|row| row.op == op).expect("it is there");
        assert_eq!((of("open").per_second, of("open").asked_per_second), (10.0, 10.0));
        assert_eq!((of("create").per_second, of("create").total), (200.0, 500));
        assert_eq!(of("create").unawaited_per_second, 200.0);
        assert_eq!(of("stat").per_second, 0.0);
        let node = &rates.nodes[0];
        assert_eq!((node.operations_per_second, node.processors), (210.0, 0.5));
        assert_eq!(node.written_bytes_per_second, 2000.0);
        assert!(node.wait_p99_seconds.is_some_and(|wait| (4e-6..=8e-6).contains(&wait)));
        assert!(node.serves && node.used_bytes == 10.0);
        let process = &rates.processes[0];
        assert_eq!((process.per_second, process.busy), (10.0, 0.5));
        assert_eq!((rates.waits[0].per_second, rates.waits[0].total), (10.0, 30));
        assert_eq!(rates.waits[1].op, "open, for an origin");
        assert_eq!((rates.waits[1].per_second, rates.waits[1].total), (10.0, 15));
    }

    #[test]
    fn a_node_that_began_anew_has_what_it_has_done_so_far_and_a_silent_one_nothing() {
        let rates = Rates::between(&[node(100, 0, 9.0)], &[node(20, 0, 0.0)], 1.0);
        let opens = rates.operations.iter().find(|row| row.op == "open").expect("it is there");
        assert_eq!(opens.per_second, 20.0);
        let silent = Node { report: None, ..node(0, 0, 0.0) };
        let rates = Rates::between(&[node(100, 0, 9.0)], &[silent], 1.0);
        assert!(!rates.nodes[0].serves && rates.nodes[0].operations_per_second == 0.0);
    }
}

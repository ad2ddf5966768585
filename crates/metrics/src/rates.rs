//! What nodes do in a second, from what they report at two moments.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Node;

/// What goes on between two moments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rates {
    /// Time between them.
    pub seconds: f64,
    /// Each node.
    pub nodes: Vec<NodeRates>,
    /// Each operation that was ever asked for, over all nodes.
    pub operations: Vec<OperationRates>,
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
    /// Answers to its own processes, and what these did not wait for, a second.
    pub operations_per_second: f64,
    /// Answers to other nodes a second.
    pub answers_to_nodes_per_second: f64,
    /// Answers that refuse, a second.
    pub refusals_per_second: f64,
    /// Bytes that are read by requests, a second.
    pub requested_bytes_per_second: f64,
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

/// How often an operation is asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperationRates {
    /// Its name.
    pub op: String,
    /// A second.
    pub per_second: f64,
    /// Refusals a second.
    pub refusals_per_second: f64,
    /// Since the nodes began.
    pub total: f64,
}

/// Everything that was asked for, whether somebody waited for it or not.
fn asked_for(node: &Node) -> BTreeMap<String, f64> {
    let mut asked = node.numbers("/activity/answers");
    for (op, count) in node.numbers("/activity/unawaited") {
        *asked.entry(op).or_default() += count;
    }
    asked
}

impl Rates {
    /// Of all nodes that are there now. One that was not there before, or that began anew since,
    /// has what it has done so far.
    #[must_use]
    pub fn between(before: &[Node], now: &[Node], seconds: f64) -> Rates {
        let seconds = seconds.max(f64::EPSILON);
        let mut operations: BTreeMap<String, OperationRates> = BTreeMap::new();
        let mut nodes = Vec::new();
        for node in now {
            let is_same = |other: &&Node| other.name == node.name && other.node == node.node;
            let earlier = before.iter().find(is_same);
            let since = |of: &dyn Fn(&Node) -> f64| {
                let (now, then) = (of(node), earlier.map_or(0.0, of));
                (if now < then { now } else { now - then }) / seconds
            };
            for (op, total) in asked_for(node) {
                let count = |node: &Node| asked_for(node).get(&op).copied().unwrap_or(0.0);
                let refused =
                    |node: &Node| node.number(&format!("/activity/refusals/{op}")).unwrap_or(0.0);
                let entry = operations.entry(op.clone()).or_insert_with(|| OperationRates {
                    op: op.clone(),
                    per_second: 0.0,
                    refusals_per_second: 0.0,
                    total: 0.0,
                });
                entry.per_second += since(&count);
                entry.refusals_per_second += since(&refused);
                entry.total += total;
            }
            let number = |node: &Node, pointer: &str| node.number(pointer).unwrap_or(0.0);
            let of_processes = |node: &Node, field| node.of_processes(field).values().sum::<f64>();
            nodes.push(NodeRates {
                name: node.name.clone(),
                node: node.node,
                host: node.host.clone(),
                serves: node.serves(),
                operations_per_second: since(&|node| asked_for(node).values().sum()),
                answers_to_nodes_per_second: since(&|node| {
                    number(node, "/activity/answers_to_nodes")
                }),
                refusals_per_second: since(&|node| {
                    node.numbers("/activity/refusals").values().sum()
                }),
                requested_bytes_per_second: since(&|node| {
                    number(node, "/activity/requested_bytes")
                }),
                processors: since(&|node| of_processes(node, "cpu_seconds")),
                resident_bytes: of_processes(node, "resident_bytes"),
                used_bytes: number(node, "/used_bytes"),
                capacity_bytes: number(node, "/capacity_bytes"),
                open_files: number(node, "/open_files"),
                sessions: number(node, "/sessions"),
            });
        }
        Rates { seconds, nodes, operations: operations.into_values().collect() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(opens: u64, made: u64, cpu: f64) -> Node {
        let report = json!({
            "state": "serving", "used_bytes": 10,
            "activity": {
                "answers": {"open": opens, "stat": 5}, "refusals": {"open": opens / 2},
                "unawaited": {"create": made},
            },
            "processes": [{"process": "daemon", "cpu_seconds": cpu, "resident_bytes": 4096}],
        });
        Node { name: "a".to_owned(), node: 0, host: "h".to_owned(), report: Some(report) }
    }

    #[test]
    fn rates_are_what_was_added_in_a_second() {
        let rates = Rates::between(&[node(10, 100, 1.0)], &[node(30, 500, 2.0)], 2.0);
        let of = |op: &str| rates.operations.iter().find(|row| row.op == op).expect("it is there");
        assert_eq!((of("open").per_second, of("open").refusals_per_second), (10.0, 5.0));
        assert_eq!((of("create").per_second, of("create").total), (200.0, 500.0));
        assert_eq!(of("stat").per_second, 0.0);
        let node = &rates.nodes[0];
        assert_eq!((node.operations_per_second, node.processors), (210.0, 0.5));
        assert!(node.serves && node.used_bytes == 10.0);
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

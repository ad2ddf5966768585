//! Links with bandwidth: what is sent waits for each stage on its way, and stages are shared.
//!
//! Nodes hang on leaf switches, leaves on core switches, one link from each leaf to each core. A
//! pair of nodes always uses the same core, as switches choose by a hash of the addresses. What is
//! sent is cut into segments, which go from stage to stage; a stage serves the flows that wait for
//! it in turn, a segment at a time. A flow is one lane of one pair of nodes, so small messages do
//! not stand behind long ones, and long-lived flows get equal parts of a link, which is what TCP
//! comes to.
//!
//! A node's network threads are stages as well, the first of what it sends and the last of what it
//! receives, with a cost for each frame and for each byte. Each has a part of the other nodes.
//!
//! Switches have room for everything: nothing is lost, and nobody is slowed down but by waiting.

use std::collections::{BTreeMap, VecDeque};

/// What goes at once, bytes. Shorter ones share links more evenly and take longer to simulate.
const SEGMENT_BYTES: u64 = 64 * 1024;
const STAGES_MAX: usize = 6;

/// Time that a stage takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// For each frame, nanoseconds.
    pub frame_ns: f64,
    /// For each byte, nanoseconds.
    pub byte_ns: f64,
}

impl Speed {
    /// A link of so many gigabits a second.
    #[must_use]
    pub fn of_link(gigabits: f64) -> Speed {
        Speed { frame_ns: 0.0, byte_ns: 8.0 / gigabits }
    }
}

/// How nodes are connected.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Nodes.
    pub nodes: u32,
    /// Nodes under one leaf switch.
    pub per_leaf: u32,
    /// Core switches; each leaf has one link to each.
    pub cores: u32,
    /// Both directions of a node's network interface, each.
    pub nic: Speed,
    /// Each direction of a link between a leaf and a core switch.
    pub uplink: Speed,
    /// Network threads of each node.
    pub threads: u32,
    /// One of them, which sends to and receives from its part of the nodes.
    pub thread: Speed,
    /// What is added to each frame on the wire, bytes.
    pub overhead_bytes: u64,
}

impl Topology {
    /// The leaf switch of a node.
    #[must_use]
    pub fn leaf(&self, node: u32) -> u32 {
        node / self.per_leaf
    }

    /// Leaf switches.
    #[must_use]
    pub fn leaves(&self) -> u32 {
        self.nodes.div_ceil(self.per_leaf)
    }
}

/// One lane of one pair of nodes: who sends, who receives, which lane.
pub type Flow = (u32, u32, usize);

#[derive(Debug)]
struct Segment {
    flow: Flow,
    bytes: u64,
    first: bool,
    /// Of the last segment only: what arrives.
    cargo: Option<u64>,
    stages: [u32; STAGES_MAX],
    count: usize,
    at: usize,
}

#[derive(Debug, Default)]
struct Stage {
    busy: Option<Segment>,
    turns: VecDeque<Flow>,
    waiting: BTreeMap<Flow, VecDeque<Segment>>,
    busy_ns: u64,
}

/// All stages, and what is on its way.
#[derive(Debug)]
pub struct Fabric {
    topology: Topology,
    stages: Vec<Stage>,
    /// Stages whose segment is through, and when.
    pub agenda: Vec<(u64, usize)>,
}

impl Fabric {
    /// With nothing on its way.
    #[must_use]
    pub fn new(topology: Topology) -> Fabric {
        let links = topology.leaves() * topology.cores * 2;
        let count = topology.nodes * (topology.threads + 2) + links;
        let stages = (0..count).map(|_| Stage::default()).collect();
        Fabric { topology, stages, agenda: Vec::new() }
    }

    /// How nodes are connected.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    fn speed(&self, stage: usize) -> Speed {
        let (nodes, threads) = (self.topology.nodes as usize, self.topology.threads as usize);
        match stage / nodes {
            of if of < threads => self.topology.thread,
            of if of < threads + 2 => self.topology.nic,
            _ => self.topology.uplink,
        }
    }

    fn way(&self, from: u32, to: u32) -> ([u32; STAGES_MAX], usize) {
        let topology = &self.topology;
        let (nodes, threads) = (topology.nodes, topology.threads);
        let thread = |node, other| other % threads * nodes + node;
        let (out, into) = (|node| threads * nodes + node, |node| (threads + 1) * nodes + node);
        let links = (threads + 2) * nodes;
        let (here, there) = (topology.leaf(from), topology.leaf(to));
        if here == there {
            return ([thread(from, to), out(from), into(to), thread(to, from), 0, 0], 4);
        }
        let core = (pair_hash(from, to) % u64::from(topology.cores)) as u32;
        let up = links + here * topology.cores + core;
        let down = links + (topology.leaves() + there) * topology.cores + core;
        ([thread(from, to), out(from), up, down, into(to), thread(to, from)], STAGES_MAX)
    }

    /// Sends so many bytes; `cargo` comes out of [`Fabric::done`] when all have arrived.
    pub fn send(&mut self, now_ns: u64, flow: Flow, bytes: u64, cargo: u64) {
        let (stages, count) = self.way(flow.0, flow.1);
        let all = bytes + self.topology.overhead_bytes;
        let mut left = all;
        while left > 0 {
            let part = left.min(SEGMENT_BYTES);
            let first = left == all;
            left -= part;
            let cargo = (left == 0).then_some(cargo);
            let segment = Segment { flow, bytes: part, first, cargo, stages, count, at: 0 };
            self.enter(now_ns, segment);
        }
    }

    fn enter(&mut self, now_ns: u64, segment: Segment) {
        let number = segment.stages[segment.at] as usize;
        let stage = &mut self.stages[number];
        if stage.busy.is_some() {
            let queue = stage.waiting.entry(segment.flow).or_default();
            if queue.is_empty() {
                stage.turns.push_back(segment.flow);
            }
            queue.push_back(segment);
        } else {
            self.serve(now_ns, number, segment);
        }
    }

    fn serve(&mut self, now_ns: u64, number: usize, segment: Segment) {
        let speed = self.speed(number);
        let frame_ns = if segment.first { speed.frame_ns } else { 0.0 };
        let takes_ns = (frame_ns + speed.byte_ns * segment.bytes as f64).round() as u64;
        let stage = &mut self.stages[number];
        stage.busy = Some(segment);
        stage.busy_ns += takes_ns;
        self.agenda.push((now_ns + takes_ns, number));
    }

    /// A stage's segment is through; what has arrived with it.
    pub fn done(&mut self, now_ns: u64, number: usize) -> Option<u64> {
        let stage = &mut self.stages[number];
        let mut segment = stage.busy.take()?;
        if let Some(flow) = stage.turns.pop_front()
            && let Some(queue) = stage.waiting.get_mut(&flow)
        {
            let next = queue.pop_front();
            if queue.is_empty() {
                stage.waiting.remove(&flow);
            } else {
                stage.turns.push_back(flow);
            }
            if let Some(next) = next {
                self.serve(now_ns, number, next);
            }
        }
        segment.at += 1;
        if segment.at < segment.count {
            self.enter(now_ns, segment);
            return None;
        }
        segment.cargo
    }

    /// The part of a time that the busiest of all stages of a kind was busy.
    #[must_use]
    pub fn busiest(&self, kind: Kind, time_ns: u64) -> f64 {
        let (nodes, threads) = (self.topology.nodes as usize, self.topology.threads as usize);
        let range = match kind {
            Kind::Thread => 0..threads * nodes,
            Kind::Nic => threads * nodes..(threads + 2) * nodes,
            Kind::Uplink => (threads + 2) * nodes..self.stages.len(),
        };
        let most = self.stages[range].iter().map(|stage| stage.busy_ns).max();
        most.unwrap_or(0) as f64 / time_ns.max(1) as f64
    }
}

/// A kind of stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Network threads.
    Thread,
    /// Network interfaces.
    Nic,
    /// Links between leaf and core switches.
    Uplink,
}

fn pair_hash(from: u32, to: u32) -> u64 {
    let mut value = (u64::from(from) << 32 | u64::from(to)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Speed = Speed { frame_ns: 0.0, byte_ns: 8.0 };

    fn fabric(nodes: u32, cores: u32) -> Fabric {
        Fabric::new(Topology {
            nodes,
            per_leaf: 2,
            cores,
            nic: GIGABIT,
            uplink: GIGABIT,
            threads: 2,
            thread: Speed { frame_ns: 100.0, byte_ns: 0.0 },
            overhead_bytes: 0,
        })
    }

    /// When each cargo arrives.
    fn run(fabric: &mut Fabric) -> BTreeMap<u64, u64> {
        let mut arrived = BTreeMap::new();
        let mut due: Vec<(u64, usize)> = std::mem::take(&mut fabric.agenda);
        while let Some(at) = (0..due.len()).min_by_key(|at| due[*at]) {
            let (now_ns, stage) = due.swap_remove(at);
            if let Some(cargo) = fabric.done(now_ns, stage) {
                arrived.insert(cargo, now_ns);
            }
            due.append(&mut fabric.agenda);
        }
        arrived
    }

    #[test]
    fn a_long_frame_takes_the_time_of_its_bytes_on_the_slowest_link() {
        let mut fabric = fabric(4, 1);
        let bytes = 64 * SEGMENT_BYTES;
        fabric.send(0, (0, 1, 0), bytes, 7);
        let arrived = run(&mut fabric)[&7] as f64;
        // One segment is stored and sent on once; all stages work at the same time.
        let least = bytes as f64 * 8.0;
        assert!(arrived > least && arrived < least * 1.03, "{arrived} of {least}");
    }

    #[test]
    fn flows_share_an_uplink_evenly() {
        let mut fabric = fabric(4, 1);
        let bytes = 64 * SEGMENT_BYTES;
        fabric.send(0, (0, 2, 0), bytes, 1);
        fabric.send(0, (1, 3, 0), bytes, 2);
        let arrived = run(&mut fabric);
        let alone = bytes as f64 * 8.0;
        for cargo in [1, 2] {
            let ratio = arrived[&cargo] as f64 / alone;
            assert!((1.95..2.1).contains(&ratio), "{cargo}: {ratio}");
        }
    }

    #[test]
    fn a_short_frame_does_not_stand_behind_a_long_one() {
        let mut fabric = fabric(4, 1);
        fabric.send(0, (0, 1, 1), 64 * SEGMENT_BYTES, 1);
        fabric.send(0, (0, 1, 0), 64, 2);
        let arrived = run(&mut fabric);
        // It waits for the segment under way in both interfaces, at most.
        assert!(arrived[&2] < 4 * SEGMENT_BYTES * 8, "{arrived:?}");
        assert!(arrived[&1] > 64 * SEGMENT_BYTES * 8);
    }

    #[test]
    fn frames_of_a_flow_arrive_in_order() {
        let mut fabric = fabric(6, 2);
        for cargo in 0..40 {
            fabric.send(0, (0, 5, 0), 1 + (cargo * 7919) % 200_000, cargo);
            fabric.send(0, (1, 5, 0), 100_000, 100 + cargo);
        }
        let arrived = run(&mut fabric);
        for cargo in 1..40 {
            assert!(arrived[&(cargo - 1)] < arrived[&cargo], "{cargo}");
        }
    }
}

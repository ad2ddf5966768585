//! Long transfers over the links alone: what pools under a leaf switch are good for.
//!
//! Each node keeps four transfers of 1 MiB under way, each to a node drawn anew: from all, or from
//! those under its own leaf switch, which is what a pool for each leaf comes to. Daemons have only
//! the speed that they are given.

use std::{cmp::Reverse, collections::BinaryHeap};

use mayfly_sim::{
    dice::Dice,
    fabric::{Fabric, Kind, Speed, Topology},
};

use crate::costs::{NIC_GIGABITS, PER_LEAF, UPLINK_GIGABITS};

const TRANSFER_BYTES: u64 = 1 << 20;
const UNDER_WAY: u64 = 4;
/// Transfers of each node, the first ones of which are not measured.
const TRANSFERS: u64 = 12;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moved {
    /// GiB a second of all nodes together.
    pub gib_per_second: f64,
    /// The part of the time for which the busiest link between switches was busy.
    pub uplink: f64,
}

/// Moves bytes between so many nodes. A daemon moves `daemon_gib` GiB a second, in and out
/// together.
#[must_use]
pub fn transfers(nodes: u32, cores: u32, pools: bool, daemon_gib: f64) -> Moved {
    let topology = Topology {
        nodes,
        per_leaf: PER_LEAF,
        cores,
        nic: Speed::of_link(NIC_GIGABITS),
        uplink: Speed::of_link(UPLINK_GIGABITS),
        threads: 1,
        thread: Speed { frame_ns: 0.0, byte_ns: 1e9 / (daemon_gib * f64::from(1 << 30)) },
        overhead_bytes: 0,
    };
    let mut fabric = Fabric::new(topology);
    let mut dice = Dice::new(u64::from(nodes), 20);
    let mut left = vec![TRANSFERS - UNDER_WAY; nodes as usize];
    for node in 0..nodes {
        for lane in 0..UNDER_WAY {
            begin(&mut fabric, &mut dice, 0, (node, lane), pools);
        }
    }
    let mut queue: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut done_ns = Vec::new();
    loop {
        queue.extend(fabric.agenda.drain(..).map(Reverse));
        let Some(Reverse((now_ns, stage))) = queue.pop() else { break };
        let Some(cargo) = fabric.done(now_ns, stage) else { continue };
        done_ns.push(now_ns);
        let (node, lane) = ((cargo / UNDER_WAY) as u32, cargo % UNDER_WAY);
        let left = &mut left[node as usize];
        if *left > 0 {
            *left -= 1;
            begin(&mut fabric, &mut dice, now_ns, (node, lane), pools);
        }
    }
    let (first, last) = (done_ns.len() / 4, done_ns.len() * 5 / 8);
    let seconds = (done_ns[last] - done_ns[first]).max(1) as f64 / 1e9;
    let bytes = (last - first) as f64 * TRANSFER_BYTES as f64;
    let whole_ns = done_ns[done_ns.len() - 1];
    Moved {
        gib_per_second: bytes / seconds / f64::from(1 << 30),
        uplink: fabric.busiest(Kind::Uplink, whole_ns),
    }
}

fn begin(fabric: &mut Fabric, dice: &mut Dice, now_ns: u64, (node, lane): (u32, u64), pools: bool) {
    let nodes = fabric.topology().nodes;
    let (first, count) = match pools {
        true => {
            let first = fabric.topology().leaf(node) * PER_LEAF;
            (first, PER_LEAF.min(nodes - first))
        }
        false => (0, nodes),
    };
    let others = u64::from(count.max(2) - 1);
    let to = first + (node - first + 1 + dice.below(others) as u32) % count.max(1);
    let cargo = u64::from(node) * UNDER_WAY + lane;
    fabric.send(now_ns, (node, to, lane as usize), TRANSFER_BYTES, cargo);
}

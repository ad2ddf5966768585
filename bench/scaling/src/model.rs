//! The model that goes on where simulating every daemon is too heavy: a closed queueing network.
//!
//! Every node has a front thread, network threads, threads of other shards, and 16 processes. All
//! nodes are alike, so one recursion over the number of processes gives the exact mean values for
//! stations with random service (Reiser and Lavenberg, "Mean-value analysis of closed multichain
//! queuing networks", JACM 27, 1980). Daemons need about the same time for each request, and
//! requests of many processes gather, so the model is off by some factor; that is taken from the
//! simulated points, and how well the model with it meets those that it was not taken from is said
//! beside it.

use crate::costs::{Cost, Machine};

/// A kind of station: how many there are, and what one operation asks of all of them together.
#[derive(Debug, Clone, Copy)]
pub struct Stations {
    /// So many.
    pub count: f64,
    /// Of all, nanoseconds.
    pub demand_ns: f64,
}

/// Operations a second of `processes`, each of which also spends `think_ns` waiting for nobody.
#[must_use]
pub fn mean_values(stations: &[Stations], processes: u32, think_ns: f64) -> f64 {
    let mut queues = vec![0.0; stations.len()];
    let mut rate = 0.0;
    for others in 1..=processes {
        let times: Vec<f64> = stations
            .iter()
            .zip(&queues)
            .map(|(of, queue)| of.demand_ns / of.count * (1.0 + queue))
            .collect();
        let all: f64 = stations.iter().zip(&times).map(|(of, time)| of.count * time).sum();
        rate = f64::from(others) / (think_ns + all);
        for (queue, time) in queues.iter_mut().zip(&times) {
            *queue = rate * time;
        }
    }
    rate * 1e9
}

/// Where the operations go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To all nodes alike, as names hash.
    All,
    /// To one node.
    One,
    /// Each to the node of its process, which asks nobody.
    Own,
}

/// Operations a second of an instance of so many nodes with so many `processes` each (or as many
/// requests under way); an operation is so many requests.
#[must_use]
pub fn rate(
    cost: &Cost,
    machine: &Machine,
    nodes: u32,
    target: Target,
    requests: f64,
    processes: u32,
) -> f64 {
    let count = f64::from(nodes);
    let elsewhere = if target == Target::Own { 0.0 } else { 1.0 - 1.0 / count };
    let here = 1.0 - elsewhere;
    let passed = 2.0 * cost.pass_ns * elsewhere * requests;
    let served = (cost.serve_ns * elsewhere + cost.own_ns * here) * requests;
    let (others, threads) = (machine.daemon.shards - 1, machine.daemon.network_threads);
    let of_others = f64::from(others) / f64::from(others + 1);
    let dealt = cost.shard_ns * of_others * elsewhere * requests;
    let frames = 4.0 * cost.frame_ns * elsewhere * requests;
    let think_ns = machine.client_ns as f64 + 2.0 * machine.one_way_ns as f64 * elsewhere;
    let stations = match target {
        Target::All | Target::Own => vec![
            Stations { count, demand_ns: passed + served },
            Stations { count: count * f64::from(others.max(1)), demand_ns: dealt },
            Stations { count: count * f64::from(threads), demand_ns: frames },
        ],
        Target::One => vec![
            Stations { count, demand_ns: passed },
            Stations { count: 1.0, demand_ns: served },
            Stations { count, demand_ns: frames / 2.0 },
            Stations { count: 1.0, demand_ns: frames / 2.0 },
        ],
    };
    mean_values(&stations, nodes * processes, think_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_station_gives_what_it_can_once_it_is_full() {
        let one = [Stations { count: 1.0, demand_ns: 1000.0 }];
        assert!((mean_values(&one, 1, 9000.0) - 1e5).abs() < 1.0);
        let full = mean_values(&one, 1000, 9000.0);
        assert!((0.99e6..1.0001e6).contains(&full), "{full}");
    }

    #[test]
    fn twice_the_stations_and_processes_give_twice_the_rate() {
        let of = |count: f64, processes| {
            mean_values(&[Stations { count, demand_ns: 5000.0 }], processes, 20_000.0)
        };
        let ratio = of(64.0, 1024) / of(32.0, 512);
        assert!((1.98..2.02).contains(&ratio), "{ratio}");
    }
}

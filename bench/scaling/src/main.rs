//! Predicts what an instance of up to 4,096 nodes would do:
//!
//! `cargo run --release -p scaling [-- --nodes-max 256] [--write]`

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Parser;
use scaling::{
    costs::Daemon,
    document, report,
    study::{self, Curve, Workload},
};

/// Simulates the daemons of many nodes with what things cost, and goes on by a model.
#[derive(Debug, Parser)]
struct Arguments {
    /// Simulate every daemon up to so many nodes.
    #[arg(long, default_value_t = 64)]
    nodes_max: u32,
    /// Write the tables and plots of docs/benchmarks/scaling.md instead of printing the tables.
    #[arg(long)]
    write: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let one = |(workload, daemon): (Workload, Daemon)| {
        let start = Instant::now();
        let nodes_max = (arguments.nodes_max * Daemon::USUAL.shards / daemon.shards).max(8);
        let curve = study::curve(workload, daemon, nodes_max);
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("{}, {} shards: {seconds:.1} s", workload.name(), daemon.shards);
        curve
    };
    // Each workload has instances of its own, and a seed decides each.
    let curves: Vec<Curve> = std::thread::scope(|scope| {
        let all = Workload::ALL.map(|workload| (workload, Daemon::USUAL)).into_iter();
        let all = all.chain(study::with_more_threads());
        let threads: Vec<_> = all.map(|of| scope.spawn(move || one(of))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Curve>>| {
            thread.join().unwrap_or_else(|_| bail!("a workload's thread has ended"))
        };
        threads.into_iter().map(join).collect::<Result<_>>()
    })?;
    let peak = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = peak.lines().find(|line| line.starts_with("VmHWM"));
    eprintln!("memory at most: {}", peak.unwrap_or("unknown"));
    let mut blocks = report::computed();
    blocks.extend(report::blocks(&curves));
    if arguments.write {
        return document::write(&blocks, &report::plots(&curves)?);
    }
    for (name, text) in blocks {
        println!("\n{name}\n\n{text}");
    }
    Ok(())
}

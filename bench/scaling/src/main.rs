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
    /// Only what has this in its name, such as `create, one directory, 4 x 1`: daemons of a host,
    /// and shards of each. Prints the rates.
    #[arg(long, value_name = "TEXT", conflicts_with = "write")]
    only: Option<String>,
    /// Write the tables and plots of docs/benchmarks/scaling.md instead of printing the tables.
    #[arg(long)]
    write: bool,
}

fn name(workload: Workload, daemon: Daemon) -> String {
    format!("{}, {} x {}", workload.name(), daemon.of_host, daemon.shards)
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let one = |(workload, daemon): (Workload, Daemon)| {
        let start = Instant::now();
        // Several daemons of a host have the processes of one.
        let parts = daemon.shards.max(daemon.of_host / 2);
        let nodes_max = (arguments.nodes_max / parts).max(8);
        let curve = study::curve(workload, daemon, nodes_max);
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("{}: {seconds:.1} s", name(workload, daemon));
        curve
    };
    // Each workload has instances of its own, and a seed decides each.
    let curves: Vec<Curve> = std::thread::scope(|scope| {
        let all = Workload::ALL.map(|workload| (workload, Daemon::USUAL)).into_iter();
        let all = all.chain(study::with_more_threads()).chain(study::with_more_daemons());
        let wanted = arguments.only.as_deref().unwrap_or_default();
        let all = all.filter(|(workload, daemon)| name(*workload, *daemon).contains(wanted));
        let threads: Vec<_> = all.map(|of| scope.spawn(move || one(of))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Curve>>| {
            thread.join().unwrap_or_else(|_| bail!("a workload's thread has ended"))
        };
        threads.into_iter().map(join).collect::<Result<_>>()
    })?;
    let peak = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = peak.lines().find(|line| line.starts_with("VmHWM"));
    eprintln!("memory at most: {}", peak.unwrap_or("unknown"));
    if arguments.only.is_some() {
        for curve in &curves {
            println!("{}\n{}", name(curve.workload, curve.daemon), report::rates(&[curve]));
            for (nodes, of) in &curve.measured {
                println!("{nodes}: {of:?}");
            }
        }
        return Ok(());
    }
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

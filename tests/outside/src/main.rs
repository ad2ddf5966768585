//! Shows a directory as a busy parallel file system would, until it is interrupted.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Parser;
use outside::{Outside, Speeds};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

/// Shows DIRECTORY at MOUNT, slowly. `cat MOUNT/.outside` tells how often what was called; what is
/// written to that file changes the speeds, makes calls fail, or begins to count anew.
#[derive(Debug, Parser)]
struct Arguments {
    /// What is shown
    directory: PathBuf,
    /// Where; an empty directory
    mount: PathBuf,
    /// A call without bytes keeps the one queue for so long, microseconds
    #[arg(long, default_value_t = 1000)]
    metadata_us: u64,
    /// Bytes are read and written so fast, MiB a second; 0: as fast as the disk
    #[arg(long, default_value_t = 200)]
    mib_per_second: u64,
    /// From the queue to whoever asks, microseconds
    #[arg(long, default_value_t = 0)]
    latency_us: u64,
    /// The part of everything that a neighbour takes while he works
    #[arg(long, default_value_t = 0.0)]
    neighbour: f64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    anyhow::ensure!((0.0..1.0).contains(&arguments.neighbour), "--neighbour: from 0 to below 1");
    let speeds = Speeds {
        metadata: Duration::from_micros(arguments.metadata_us),
        bytes_per_second: arguments.mib_per_second << 20,
        latency: Duration::from_micros(arguments.latency_us),
        neighbour: arguments.neighbour,
    };
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let outside = Outside::show(&arguments.directory, &arguments.mount, speeds)?;
    println!("{}", arguments.mount.display());
    signals.forever().next();
    drop(outside);
    Ok(())
}

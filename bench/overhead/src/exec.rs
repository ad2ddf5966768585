//! Time from spawning a program to its end, with the library's start-up in it.

use std::process::Stdio;
use std::time::Instant;

use anyhow::Result;

use crate::Side;

/// Programs that do next to nothing.
pub(crate) const PROGRAMS: &[&str] = &["/bin/true", "/bin/bash"];

/// Processes of one measurement.
const COUNT: u32 = 50;

/// Microseconds for spawning `program` and waiting for it.
pub(crate) fn micros(program: &str, side: Side<'_>) -> Result<f64> {
    let mut command = side.command(program);
    command.args(["-c", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut spawn = |count| -> Result<()> {
        for _ in 0..count {
            command.status()?;
        }
        Ok(())
    };
    spawn(COUNT / 10)?;
    let start = Instant::now();
    spawn(COUNT)?;
    Ok(start.elapsed().as_micros() as f64 / f64::from(COUNT))
}

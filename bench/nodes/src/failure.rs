//! A daemon that is killed and comes back, and a node that does not.

use std::{
    fs::{self, File},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Scratch, process};

use crate::{
    instance::{self, mount},
    placing, report,
};

const KILLS: usize = 5;
const NODES: usize = 3;
const VICTIM: usize = 2;
/// From one look to the next.
const PAUSE: Duration = Duration::from_millis(1);
/// From one kill to the next.
const BETWEEN: Duration = Duration::from_secs(1);
/// How long the child looks.
const LOOKING: Duration = BETWEEN.saturating_mul(KILLS as u32 + 2);

pub(crate) fn run() -> Result<()> {
    let scratch = Scratch::new("nodes-failure")?;
    let instance = instance::start(&scratch, "failure", NODES)?;
    let name = placing::name("there", VICTIM, NODES)?;
    let said = std::thread::scope(|scope| -> Result<String> {
        let child = scope.spawn(|| instance::child(&instance, 0, &["__failure", &name]));
        for _ in 0..KILLS {
            std::thread::sleep(BETWEEN);
            process::kill(instance.daemon_pid_of(VICTIM)?);
        }
        child.join().ok().context("the thread panicked")?
    })?;
    // Of each kill one; the others are those of stretches without any.
    let mut pauses = report::numbers(&said, "pause");
    pauses.sort_by(|one, other| other.total_cmp(one));
    pauses.truncate(KILLS);
    println!("\n| a node that fails |  |\n|---|---:|");
    println!(
        "| longest wait of a stat, daemon killed and restarted, s | {} |",
        report::span(&pauses)
    );
    let daemon = instance.daemon_pid_of(VICTIM)?;
    let supervisor = process::parent(daemon).context("a daemon has a supervisor")?;
    let said = std::thread::scope(|scope| -> Result<String> {
        let child = scope.spawn(|| instance::child(&instance, 0, &["__failure", &name]));
        std::thread::sleep(BETWEEN);
        process::kill(supervisor);
        process::kill(daemon);
        child.join().ok().context("the thread panicked")?
    })?;
    let error = report::numbers(&said, "error");
    ensure!(!error.is_empty(), "a killed node was not noticed: {said}");
    println!("| EIO after its node was killed, s | {} |", report::span(&error));
    // Says that a node is dead.
    instance.command("stop").run().map(drop)
}

/// Looks at a file again and again, and tells the longest wait of each stretch, or that it failed.
pub(crate) fn child(name: &str) -> Result<()> {
    let path = mount()?.join(name);
    File::create(&path)?;
    let begun = Instant::now();
    let (mut stretch, mut longest) = (Instant::now(), Duration::ZERO);
    while begun.elapsed() < LOOKING {
        let start = Instant::now();
        let looked = fs::metadata(&path);
        let took = start.elapsed();
        if looked.is_err() {
            println!("error {}", took.as_secs_f64());
            return Ok(());
        }
        longest = longest.max(took);
        if stretch.elapsed() >= BETWEEN {
            println!("pause {}", longest.as_secs_f64());
            (stretch, longest) = (Instant::now(), Duration::ZERO);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

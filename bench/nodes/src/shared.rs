//! 8 KiB writes of four processes, each on a node of its own, to one shared file, against the same
//! to a file for each.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use mayfly_testkit::{Instance, Scratch};

use crate::{
    instance::{self, mount},
    report,
};

const NODES: usize = 4;
const ROUNDS: usize = 7;
const WRITES: usize = 2000;
const PIECE_BYTES: usize = 8 << 10;
/// Until all are there.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run() -> Result<()> {
    println!(
        "\n| 8 KiB writes from each of {NODES} nodes | one file | a file each | ratio |\n\
         |---|---:|---:|---:|"
    );
    for layout in ["home", "stripe"] {
        let scratch = Scratch::new("nodes-shared")?;
        let instance = Instance::named(&scratch, "shared")?;
        let nodes = format!("local:{NODES}");
        instance.command("start").args(["--nodes", &nodes, "--layout", layout]).run_ok()?;
        let (mut one, mut each) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let rates = [rate(&instance, round, "one")?, rate(&instance, round, "each")?];
            // The first round is for nobody: connections are made.
            if round > 0 {
                one.push(rates[0]);
                each.push(rates[1]);
            }
        }
        report::row(layout, "writes/s", &one, &each);
        instance.stop()?;
    }
    Ok(())
}

/// Writes in a second, of all processes together.
fn rate(instance: &Instance<'_>, round: usize, way: &str) -> Result<f64> {
    let round = round.to_string();
    let said: Result<Vec<String>> = std::thread::scope(|scope| {
        let child = |node: usize| {
            let (round, number) = (&round, node.to_string());
            scope.spawn(move || instance::child(instance, node, &["__shared", round, way, &number]))
        };
        let children: Vec<_> = (0..NODES).map(child).collect();
        children.into_iter().map(|child| child.join().expect("it does not panic")).collect()
    });
    let said = said?.concat();
    let first = report::numbers(&said, "from").into_iter().fold(f64::INFINITY, f64::min);
    let last = report::numbers(&said, "until").into_iter().fold(0.0, f64::max);
    Ok((NODES * WRITES) as f64 / (last - first))
}

fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

pub(crate) fn child(words: &[&str]) -> Result<()> {
    let &[round, way, number] = words else { anyhow::bail!("a round, a way and a number") };
    let (mount, number): (_, usize) = (mount()?, number.parse()?);
    let sign = |node: usize| mount.join(format!("{way}-{round}-{node}-ready"));
    let name = if way == "one" { "all".to_owned() } else { number.to_string() };
    let path = mount.join(format!("{way}-{round}-{name}"));
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    let piece = vec![7; PIECE_BYTES];
    File::create(sign(number))?;
    let begin = SystemTime::now();
    while !(0..NODES).all(|node| sign(node).exists()) {
        anyhow::ensure!(begin.elapsed()? < PATIENCE, "the others do not come");
        std::thread::sleep(Duration::from_millis(1));
    }
    let from = now()?;
    for write in 0..WRITES {
        let place = if way == "one" { write * NODES + number } else { write };
        file.write_all_at(&piece, (place * PIECE_BYTES) as u64).context("a write")?;
    }
    println!("from {from}\nuntil {}", now()?);
    Ok(())
}

//! How long a chmod takes beside another process's 64 MiB transfers to and from a file at one other
//! node, against the same beside a bare TCP stream of as much: both keep the processors as busy.

use std::{
    fs::{self, File, Permissions},
    io::{Read, Write},
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use mayfly_testkit::Scratch;

use crate::{
    bulk,
    instance::{self, mount},
    placing, report, stream,
};

const ROUNDS: usize = 5;
/// For how long chmods are made in each round, and what lies between two of them.
const ROUND: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_micros(200);
/// Until what the other process was told has begun.
const SETTLE: Duration = Duration::from_millis(300);
/// What that one does.
const KINDS: [&str; 5] = ["nothing", "bare-write", "write", "bare-read", "read"];
/// Where the changed file is at home.
const PLACES: [&str; 2] = ["here", "there"];

pub(crate) fn run() -> Result<()> {
    let scratch = Scratch::new("nodes-beside")?;
    let instance = instance::start(&scratch, "beside", 2)?;
    let directory = scratch.join("tmp");
    let server = stream::start(&scratch, &["__sink", &directory.display().to_string()])?;
    let name = |prefix: &str, node| placing::name(prefix, node, 2);
    let (long, here, there) = (name("long", 1)?, name("here", 0)?, name("there", 1)?);
    let words = ["__beside", &server.address, &long, &here, &there];
    let said = instance::child(&instance, 0, &words)?;
    println!("\n| chmod beside 64 MiB transfers | here | beside bare TCP | ratio |");
    println!("|---|---:|---:|---:|");
    for (place, what) in PLACES.iter().flat_map(|place| ["median", "p99"].map(|it| (place, it))) {
        let of = |kind: &str| report::numbers(&said, &format!("{place}-{what}-{kind}"));
        report::row(&format!("{place}, {what}, alone"), "µs", &of("nothing"), &of("nothing"));
        for (kind, bare) in [("write", "bare-write"), ("read", "bare-read")] {
            report::row(&format!("{place}, {what}, {kind}"), "µs", &of(kind), &of(bare));
        }
    }
    server.end()?;
    instance.stop()
}

/// Changes files while a process of its own does each of [`KINDS`].
pub(crate) fn child(address: &str, long: &str, files: [&str; 2]) -> Result<()> {
    let mount = mount()?;
    let paths = files.map(|file| mount.join(file));
    let program = std::env::current_exe().context("this program has a path")?;
    let mut other = Command::new(program)
        .args(["__beside_stream", address, long])
        .stdin(Stdio::piped())
        .spawn()?;
    let mut orders = other.stdin.take().context("its input is a pipe")?;
    for path in &paths {
        File::create(path)?;
    }
    for round in 0..=ROUNDS {
        for (number, kind) in (0..).zip(KINDS) {
            orders.write_all(&[number])?;
            std::thread::sleep(SETTLE);
            for (place, path) in PLACES.iter().zip(&paths) {
                let took = changes(path)?;
                // The first round is for nobody: connections are made and the file grows.
                if round > 0 {
                    println!("{place}-median-{kind} {}", took[took.len() / 2]);
                    println!("{place}-p99-{kind} {}", took[took.len() * 99 / 100]);
                }
            }
        }
    }
    drop(orders);
    other.wait()?;
    Ok(())
}

/// What single changes took, µs, shortest first.
fn changes(path: &Path) -> Result<Vec<f64>> {
    let (mut took, begin) = (Vec::new(), Instant::now());
    while begin.elapsed() < ROUND {
        let mode = 0o600 + u32::from(took.len() % 2 == 0) * 0o44;
        let start = Instant::now();
        fs::set_permissions(path, Permissions::from_mode(mode))?;
        took.push(start.elapsed().as_secs_f64() * 1e6);
        std::thread::sleep(PAUSE);
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

/// Transfers as it is told, by the number of a kind in each byte of its input, until that ends.
pub(crate) fn transfers(address: &str, name: &str) -> Result<()> {
    let path = mount()?.join(name);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut bytes = vec![7; bulk::TRANSFER_BYTES];
    let mut bare = stream::connect(address)?;
    file.write_all_at(&bytes, 0)?;
    let order = &AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut byte = [0];
            while std::io::stdin().read_exact(&mut byte).is_ok() {
                order.store(byte[0].into(), Relaxed);
            }
            order.store(KINDS.len(), Relaxed);
        });
        while let Some(kind) = KINDS.get(order.load(Relaxed)) {
            match *kind {
                "nothing" => std::thread::sleep(Duration::from_millis(1)),
                "write" => file.write_all_at(&bytes, 0)?,
                "read" => file.read_exact_at(&mut bytes, 0)?,
                bare_kind => bulk::bare(&mut bare, bare_kind == "bare-write", &mut bytes)?,
            }
        }
        Ok(())
    })
}

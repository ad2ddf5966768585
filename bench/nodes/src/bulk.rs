//! 64 MiB to and from a file at one other node, against a bare TCP stream whose other end writes to
//! and reads from a file of the same file system.

use std::{
    fs::File,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::FileExt,
    time::Instant,
};

use anyhow::Result;
use mayfly_testkit::Scratch;

use crate::{
    instance::{self, mount},
    placing, processor, report, stream,
};

/// So many that the median of one run is that of the next to within some hundredths: one ratio may
/// be half of another.
const ROUNDS: usize = 31;
pub(crate) const TRANSFER_BYTES: usize = 64 << 20;

pub(crate) fn run() -> Result<()> {
    let scratch = Scratch::new("nodes-bulk")?;
    let instance = instance::start(&scratch, "bulk", 2)?;
    let directory = scratch.join("tmp");
    let server = stream::start(&scratch, &["__sink", &directory.display().to_string()])?;
    let name = placing::name("there", 1, 2)?;
    let mut processes = vec![server.pid()];
    processes.extend(instance::processes(&instance)?);
    let processes: Vec<String> = processes.iter().map(u32::to_string).collect();
    let mut words = vec!["__bulk", &server.address, &name];
    words.extend(processes.iter().map(String::as_str));
    let said = instance::child(&instance, 0, &words)?;
    println!("\n| 64 MiB, one other node | here | bare TCP | ratio |\n|---|---:|---:|---:|");
    for kind in ["write", "read"] {
        let ours = report::numbers(&said, kind);
        report::row(kind, "MiB/s", &ours, &report::numbers(&said, &format!("bare-{kind}")));
    }
    for kind in ["write", "read"] {
        let (ours, bare) = (format!("time-{kind}"), format!("time-bare-{kind}"));
        let name = format!("{kind}, processor time");
        report::row(&name, "ms", &report::numbers(&said, &ours), &report::numbers(&said, &bare));
    }
    server.end()?;
    instance.stop()
}

/// Rate and processor time of this process and of `others`.
fn time(name: &str, others: &[u32], once: impl FnOnce() -> Result<()>) -> Result<()> {
    let all = || processor::time_ns(others) + processor::time_ns(&[std::process::id()]);
    let (before, start) = (all(), Instant::now());
    once()?;
    let mib = TRANSFER_BYTES as f64 / f64::from(1 << 20);
    println!("{name} {}", mib / start.elapsed().as_secs_f64());
    println!("time-{name} {}", (all() - before) as f64 / 1e6);
    Ok(())
}

/// To or from the file of the other end of a bare stream.
pub(crate) fn bare(stream: &mut TcpStream, writes: bool, bytes: &mut [u8]) -> Result<()> {
    stream.write_all(&order(if writes { b'w' } else { b'r' }))?;
    if writes {
        stream.write_all(bytes)?;
        return Ok(stream.read_exact(&mut [0])?);
    }
    Ok(stream.read_exact(bytes)?)
}

fn order(what: u8) -> [u8; 9] {
    let mut order = [what; 9];
    order[1..].copy_from_slice(&(TRANSFER_BYTES as u64).to_le_bytes());
    order
}

pub(crate) fn child(address: &str, name: &str, processes: &[&str]) -> Result<()> {
    let processes: Vec<u32> = processes.iter().map(|pid| pid.parse()).collect::<Result<_, _>>()?;
    let (sink, daemons) = processes.split_at(1);
    let path = mount()?.join(name);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut bytes = vec![7; TRANSFER_BYTES];
    let mut stream = stream::connect(address)?;
    for round in 0..=ROUNDS {
        // The first one is for nobody: files grow.
        let name = |name: &str| if round == 0 { "warm".to_owned() } else { name.to_owned() };
        // Who is second finds caches and processors as the other one left them.
        let turns = if round % 2 == 0 { [true, false] } else { [false, true] };
        for bare_one in turns {
            if bare_one {
                time(&name("bare-write"), sink, || bare(&mut stream, true, &mut bytes))?;
            } else {
                time(&name("write"), daemons, || Ok(file.write_all_at(&bytes, 0)?))?;
            }
        }
        for bare_one in turns {
            if bare_one {
                time(&name("bare-read"), sink, || bare(&mut stream, false, &mut bytes))?;
            } else {
                time(&name("read"), daemons, || Ok(file.read_exact_at(&mut bytes, 0)?))?;
            }
        }
    }
    Ok(())
}

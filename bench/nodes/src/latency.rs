//! One request to another node and its answer, against a request over TCP with as many bytes that
//! a relay process passes on.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    time::Instant,
};

use anyhow::Result;
use mayfly_testkit::Scratch;

use crate::{
    instance::{self, mount},
    placing, report, stream,
};

const ROUNDS: usize = 15;
const TRIPS: usize = 300;
const PAYLOAD_BYTES: usize = 8 << 10;
/// A frame's header, the words between nodes, and what a request says besides its payload.
const REQUEST_BYTES: usize = 112;
/// The same of a reply, with a file's attributes.
const ATTRIBUTES_BYTES: usize = 160;
const REPLY_BYTES: usize = 72;

const KINDS: [(&str, usize, usize); 3] = [
    ("stat", REQUEST_BYTES, ATTRIBUTES_BYTES),
    ("write", REQUEST_BYTES + PAYLOAD_BYTES, REPLY_BYTES),
    ("read", REQUEST_BYTES, REPLY_BYTES + PAYLOAD_BYTES),
];

pub(crate) fn run() -> Result<()> {
    let scratch = Scratch::new("nodes-latency")?;
    let instance = instance::start(&scratch, "latency", 2)?;
    let server = stream::start(&scratch, &["__echo"])?;
    let relay = stream::start(&scratch, &["__relay", &server.address])?;
    let name = placing::name("there", 1, 2)?;
    let said = instance::child(&instance, 0, &["__latency", &relay.address, &name])?;
    println!(
        "\n| request to another node | here | TCP through a relay | ratio |\n|---|---:|---:|---:|"
    );
    for (kind, ..) in KINDS {
        let ours = report::numbers(&said, kind);
        report::row(kind, "µs", &ours, &report::numbers(&said, &format!("bare-{kind}")));
    }
    relay.end()?;
    server.end()?;
    instance.stop()
}

fn time(name: &str, mut once: impl FnMut(usize) -> Result<()>) -> Result<()> {
    let start = Instant::now();
    for trip in 0..TRIPS {
        once(trip)?;
    }
    println!("{name} {}", start.elapsed().as_secs_f64() * 1e6 / TRIPS as f64);
    Ok(())
}

pub(crate) fn child(address: &str, name: &str) -> Result<()> {
    let path = mount()?.join(name);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
    let mut payload = vec![7; PAYLOAD_BYTES];
    let at = |trip: usize| (trip % 64 * PAYLOAD_BYTES) as u64;
    (0..64).try_for_each(|trip| file.write_all_at(&payload, at(trip)))?;
    let mut bare = stream::connect(address)?;
    for round in 0..=ROUNDS {
        // The first one is for nobody: connections are made and files grow.
        let name = |name: &str| if round == 0 { "warm".to_owned() } else { name.to_owned() };
        for (kind, request, reply) in KINDS {
            let mut bytes = vec![0; request];
            time(&name(&format!("bare-{kind}")), |_| stream::trip(&mut bare, &mut bytes, reply))?;
            time(&name(kind), |trip| {
                match kind {
                    "stat" => _ = fs::metadata(&path)?,
                    "write" => file.write_all_at(&payload, at(trip))?,
                    _ => file.read_exact_at(&mut payload, at(trip))?,
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

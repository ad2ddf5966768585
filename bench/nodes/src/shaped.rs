//! Four nodes, two on each of two bridges that one slow link joins: what two of them write to the
//! other two at the same time, against what the scaling study's links (`mayfly_sim::fabric`)
//! predict. Needs root, for network namespaces.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_sim::fabric::{Fabric, Speed, Topology};
use mayfly_testkit::{Instance, Scratch, launcher};

use crate::{instance::mount, placing, report};

/// Of the link between the bridges, each way.
const MEGABITS: u32 = 200;
const ROUNDS: usize = 5;
const PIECE_BYTES: usize = 1 << 20;
const PIECES: usize = 16;
const NODES: usize = 4;
/// Headers of Ethernet, IP and TCP for each full packet: what the shaped link counts as well.
const HEADERS: f64 = 1514.0 / (1514.0 - 66.0);
const PREPARE: Duration = Duration::from_millis(1500);
/// Who writes to whom at the same time; then two that share a bridge.
const ACROSS: [(usize, usize); 2] = [(0, 2), (1, 3)];
const BESIDE: [(usize, usize); 2] = [(0, 1), (2, 3)];

fn ip(words: &str) -> Result<()> {
    run("ip", words)
}

fn run(program: &str, words: &str) -> Result<()> {
    let output = Command::new(program).args(words.split(' ')).output().context("iproute2")?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{program} {words}: {error}");
    Ok(())
}

/// Four hosts and the bridges. They go when this does.
struct Hosts {
    switch: String,
    names: Vec<String>,
}

impl Hosts {
    fn new() -> Result<Hosts> {
        let name = |of: &str| format!("mfs-{}-{of}", std::process::id());
        let names = (0..NODES).map(|node| name(&node.to_string())).collect();
        let hosts = Hosts { switch: name("switch"), names };
        let switch = &hosts.switch;
        for name in hosts.names.iter().chain([switch]) {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        ip(&format!("-n {switch} link add up0 type veth peer name up1"))?;
        for bridge in 0..2 {
            ip(&format!("-n {switch} link add br{bridge} type bridge"))?;
            ip(&format!("-n {switch} link set br{bridge} up"))?;
            let shape = format!("root tbf rate {MEGABITS}mbit burst 64kb latency 50ms");
            let add = format!("netns exec {switch} tc qdisc add dev up{bridge} {shape}");
            ip(&add)?;
            hosts.plug(&format!("up{bridge}"), bridge)?;
        }
        for (node, name) in hosts.names.iter().enumerate() {
            let peer = format!("type veth peer name n{node} netns {switch}");
            ip(&format!("link add fab netns {name} {peer}"))?;
            ip(&format!("-n {name} addr add 10.79.0.{}/24 dev fab", node + 1))?;
            ip(&format!("-n {name} link set fab up"))?;
            hosts.plug(&format!("n{node}"), node / 2)?;
        }
        Ok(hosts)
    }

    fn plug(&self, interface: &str, bridge: usize) -> Result<()> {
        let switch = &self.switch;
        ip(&format!("-n {switch} link set {interface} master br{bridge}"))?;
        ip(&format!("-n {switch} link set {interface} up"))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in self.names.iter().chain([&self.switch]) {
            if let Err(error) = ip(&format!("netns del {name}")) {
                eprintln!("{error}");
            }
        }
    }
}

/// Bytes a second of two writers, as the study's links have it.
fn predicted(pairs: [(usize, usize); 2]) -> f64 {
    let mut fabric = Fabric::new(Topology {
        nodes: NODES as u32,
        per_leaf: 2,
        cores: 1,
        // Bridges on one machine are as fast as its memory; nothing here says how fast.
        nic: Speed { frame_ns: 0.0, byte_ns: 0.0 },
        uplink: Speed::of_link(f64::from(MEGABITS) / 1000.0 / HEADERS),
        threads: 1,
        thread: Speed { frame_ns: 0.0, byte_ns: 0.0 },
        overhead_bytes: 0,
    });
    let bytes = (PIECES * PIECE_BYTES) as u64;
    for (from, to) in pairs {
        fabric.send(0, (from as u32, to as u32, 1), bytes, 0);
    }
    let (mut due, mut end_ns) = (std::mem::take(&mut fabric.agenda), 0);
    while let Some(at) = (0..due.len()).min_by_key(|at| due[*at]) {
        let (now_ns, stage) = due.swap_remove(at);
        if fabric.done(now_ns, stage).is_some() {
            end_ns = now_ns;
        }
        due.append(&mut fabric.agenda);
    }
    bytes as f64 * 2.0 / (end_ns as f64 / 1e9)
}

pub(crate) fn bar() -> Result<()> {
    let hosts = Hosts::new()?;
    let scratch = Scratch::new("nodes-shaped")?;
    let instance = Instance::named(&scratch, "shaped")?;
    let (launcher, list) = (launcher::into_namespaces(&scratch)?, hosts.names.join(","));
    let options = ["--nodes", &list, "--launcher", &launcher, "--net", "fab"];
    instance.command("start").args(options).run_ok()?;
    println!(
        "\n| two writers, link of {MEGABITS} Mbit/s | measured | predicted | ratio |\n\
         |---|---:|---:|---:|"
    );
    for (says, pairs) in [("over the link", ACROSS), ("under one switch", BESIDE)] {
        let rates = (0..=ROUNDS).map(|_| measure(&scratch, &instance, &hosts, pairs));
        let rates: Vec<f64> = rates.skip(1).collect::<Result<_>>()?;
        let mib = f64::from(1 << 20);
        let rates: Vec<f64> = rates.iter().map(|rate| rate / mib).collect();
        if pairs == ACROSS {
            let predicted = vec![predicted(pairs) / mib; ROUNDS];
            report::row(says, "MiB/s", &rates, &predicted);
        } else {
            println!("| {says} | {:.1} MiB/s | | |", report::median(&rates));
        }
    }
    instance.command("stop").env("XDG_RUNTIME_DIR", run_dir(&scratch, &hosts, 0)).run_ok()?;
    Ok(())
}

fn run_dir(scratch: &Scratch, hosts: &Hosts, node: usize) -> PathBuf {
    scratch.join(&hosts.names[node]).join("run")
}

/// Bytes a second of both together, from the first one's start to the last one's end.
fn measure(
    scratch: &Scratch,
    instance: &Instance<'_>,
    hosts: &Hosts,
    pairs: [(usize, usize); 2],
) -> Result<f64> {
    let program = std::env::current_exe()?.display().to_string();
    let begin = SystemTime::now().duration_since(UNIX_EPOCH)? + PREPARE;
    let mut running = Vec::new();
    for (from, to) in pairs {
        let script = format!("exec '{program}' __shaped {to} {}", begin.as_nanos());
        let job = instance.shell(&format!("writer-{from}"), &script);
        running.push(job.env("XDG_RUNTIME_DIR", run_dir(scratch, hosts, from)).start()?);
    }
    let mut end = 0.0_f64;
    for job in running {
        let outcome = job.wait()?;
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let seconds = report::numbers(&said, "end").first().copied();
        end = end.max(seconds.with_context(|| format!("a writer failed: {outcome:?}"))?);
    }
    Ok((2 * PIECES * PIECE_BYTES) as f64 / end)
}

/// A writer: says how long after `begin` it had written everything.
pub(crate) fn child(words: &[&str]) -> Result<()> {
    let [to, begin] = words else { bail!("no such role: {words:?}") };
    let root = mount()?;
    let mut names = placing::names_in(fs::metadata(&root)?.ino(), "long", to.parse()?, NODES);
    let path = root.join(names.next().context("names are endless")?);
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    let bytes = vec![7; PIECE_BYTES];
    file.write_all_at(&bytes, 0)?;
    let begin = UNIX_EPOCH + Duration::from_nanos(begin.parse()?);
    let wait = begin.duration_since(SystemTime::now()).context("it took too long to begin")?;
    std::thread::sleep(wait);
    for piece in 0..PIECES {
        file.write_all_at(&bytes, (piece * PIECE_BYTES) as u64)?;
    }
    println!("end {}", begin.elapsed()?.as_secs_f64());
    Ok(())
}

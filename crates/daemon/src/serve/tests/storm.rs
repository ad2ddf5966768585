//! Kills and stops under load.

use std::{
    collections::HashMap,
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::host::{Host, spawn};

/// SplitMix64 (Steele et al. 2014): the kills differ from run to run, and are repeated by their
/// seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % bound
    }

    fn pause(&mut self) {
        thread::sleep(Duration::from_micros(500 + self.below(25_000)));
    }
}

fn seed() -> u64 {
    let chosen = std::env::var("MAYFLY_SEED").ok().and_then(|text| text.parse().ok());
    let seed = chosen.unwrap_or_else(|| u64::from(std::process::id()));
    println!("MAYFLY_SEED={seed}");
    seed
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn end(mut child: Child) -> ExitStatus {
    child.wait().expect("the child can be waited for")
}

/// Every acknowledged request was executed, and none twice.
fn check(host: &Host) -> usize {
    let mut executed: HashMap<String, u32> = HashMap::new();
    let done = host.done();
    for name in &done {
        // A daemon that died in between may leave the end of a session to the next, and one that
        // sent a request on may have to send it again.
        if !name.starts_with("closed-") && !name.starts_with("sent-") {
            *executed.entry(name.clone()).or_default() += 1;
        }
    }
    host.ledgers().check_senders();
    let twice: Vec<_> = executed.iter().filter(|(_, count)| **count > 1).take(5).collect();
    assert!(twice.is_empty(), "executed more than once: {twice:?}");
    let acknowledged =
        std::fs::read_to_string(host.directory.join("acknowledged")).unwrap_or_default();
    for name in acknowledged.lines() {
        assert!(executed.contains_key(name), "{name} was acknowledged and is lost");
    }
    acknowledged.lines().count()
}

fn finish(host: &Host, clients: Vec<Child>, daemon: Child) -> usize {
    std::fs::write(host.directory.join("stop"), "").expect("a file");
    for client in clients {
        assert!(end(client).success(), "a client that was left alone saw an error");
    }
    let patience = Instant::now();
    while host.sessions() > 0 {
        assert!(patience.elapsed() < Duration::from_secs(5), "sessions are left over");
        thread::sleep(Duration::from_millis(1));
    }
    host.stop();
    end(daemon);
    check(host)
}

#[test]
fn a_daemon_killed_under_load_executes_every_request_once() {
    kill_daemons(&Host::new("killed", 20_000));
}

#[test]
fn a_daemon_of_three_shards_killed_under_load_executes_every_request_once() {
    kill_daemons(&Host::of_shards("killed-3", 20_000, 3));
}

fn kill_daemons(host: &Host) {
    let mut chance = Chance(seed());
    let mut daemon = host.start_daemon();
    let clients: Vec<Child> = (0..3)
        .map(|number| spawn("client", &host.directory, number).spawn().expect("a client"))
        .collect();
    for _ in 0..40 {
        chance.pause();
        kill_process(pid(&daemon), Signal::KILL).expect("killed");
        end(daemon);
        daemon = host.start_daemon();
    }
    let acknowledged = finish(host, clients, daemon);
    assert!(acknowledged > 1000, "only {acknowledged} requests went through");
}

#[test]
fn clients_killed_and_stopped_anywhere_disturb_nobody_else() {
    kill_clients(&Host::new("clients", 20_000));
}

#[test]
fn clients_of_three_shards_killed_and_stopped_anywhere_disturb_nobody_else() {
    kill_clients(&Host::of_shards("clients-3", 20_000, 3));
}

fn kill_clients(host: &Host) {
    let mut chance = Chance(seed());
    let daemon = host.start_daemon();
    let steady = spawn("client", &host.directory, 1_000_000).spawn().expect("a client");
    for number in 0..30 {
        let client = spawn("client", &host.directory, number).spawn().expect("a client");
        chance.pause();
        if number % 3 == 0 {
            kill_process(pid(&client), Signal::STOP).expect("stopped");
            chance.pause();
        }
        kill_process(pid(&client), Signal::KILL).expect("killed");
        end(client);
    }
    let acknowledged = finish(host, vec![steady], daemon);
    assert!(acknowledged > 1000, "only {acknowledged} requests went through");
}

#[test]
fn a_stopped_daemon_is_a_pause() {
    let mut chance = Chance(seed());
    let host = Host::new("stopped", 20_000);
    let daemon = host.start_daemon();
    let client = spawn("client", &host.directory, 1).spawn().expect("a client");
    for _ in 0..20 {
        chance.pause();
        kill_process(pid(&daemon), Signal::STOP).expect("stopped");
        chance.pause();
        kill_process(pid(&daemon), Signal::CONT).expect("continued");
    }
    let acknowledged = finish(&host, vec![client], daemon);
    assert!(acknowledged > 1000, "only {acknowledged} requests went through");
}

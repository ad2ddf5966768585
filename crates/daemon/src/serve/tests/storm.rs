//! Kills and stops under load.

use std::{
    collections::HashMap,
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::serve::tests::host::{Host, PATIENCE, spawn, until};

/// So many requests that were answered are a load.
const LOAD: usize = 1000;

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
    host.ledgers().check_lines();
    host.ledgers().check_senders();
    let twice: Vec<_> = executed.iter().filter(|(_, count)| **count > 1).take(5).collect();
    assert!(twice.is_empty(), "executed more than once: {twice:?}");
    let acknowledged = host.acknowledged();
    for name in &acknowledged {
        assert!(executed.contains_key(name), "{name} was acknowledged and is lost");
    }
    acknowledged.len()
}

/// So many times, and on until there was a load meanwhile: where other programs use the processors
/// it takes longer.
fn disturb(host: &Host, times: u32, mut one: impl FnMut(u32)) {
    let end = Instant::now() + PATIENCE;
    for time in 0.. {
        let is_enough = time >= times && host.acknowledged().len() > LOAD;
        if is_enough || Instant::now() > end {
            return;
        }
        one(time);
    }
}

fn finish(host: &Host, clients: Vec<Child>, daemon: Child) -> usize {
    std::fs::write(host.directory.join("stop"), "").expect("a file");
    for client in clients {
        assert!(end(client).success(), "a client that was left alone saw an error");
    }
    until("no session is left over", || host.sessions() == 0);
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
    disturb(host, 40, |_| {
        chance.pause();
        kill_process(pid(&daemon), Signal::KILL).expect("killed");
        daemon.wait().expect("the child can be waited for");
        daemon = host.start_daemon();
    });
    let acknowledged = finish(host, clients, daemon);
    assert!(acknowledged > LOAD, "only {acknowledged} requests went through");
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
    disturb(host, 30, |number| {
        let client = spawn("client", &host.directory, number).spawn().expect("a client");
        chance.pause();
        if number % 3 == 0 {
            kill_process(pid(&client), Signal::STOP).expect("stopped");
            chance.pause();
        }
        kill_process(pid(&client), Signal::KILL).expect("killed");
        end(client);
    });
    let acknowledged = finish(host, vec![steady], daemon);
    assert!(acknowledged > LOAD, "only {acknowledged} requests went through");
}

#[test]
fn a_stopped_daemon_is_a_pause() {
    let mut chance = Chance(seed());
    let host = Host::new("stopped", 20_000);
    let daemon = host.start_daemon();
    let client = spawn("client", &host.directory, 1).spawn().expect("a client");
    disturb(&host, 20, |_| {
        chance.pause();
        kill_process(pid(&daemon), Signal::STOP).expect("stopped");
        chance.pause();
        kill_process(pid(&daemon), Signal::CONT).expect("continued");
    });
    let acknowledged = finish(&host, vec![client], daemon);
    assert!(acknowledged > LOAD, "only {acknowledged} requests went through");
}

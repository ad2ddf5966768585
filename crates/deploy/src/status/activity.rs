//! What a node has done since it began, and what its processes take.

use std::{collections::BTreeMap, fs, sync::atomic::AtomicU64, sync::atomic::Ordering::Relaxed};

use mayfly_daemon::name_of;
use mayfly_metrics::work::Wait;
use mayfly_transport_shm::layout::{Done, Hold, NodeRegion, RECORD_KINDS, Traffic};
use mayfly_types::Errno;
use mayfly_wire::Op;
use serde::Serialize;

use crate::{processes::proc_stat::ProcStat, status::work::of_waits};

/// What is counted of a record of a submission ring, by its kind's number.
const RECORDS: [&str; RECORD_KINDS] =
    ["create", "mkdir", "unlink", "rmdir", "set_attr", "rename", "link"];

/// What a node has done. Everything counts on through a restart of the daemon.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Activity {
    /// Answers to processes of the node, by operation: `open`, `set_attr`.
    pub answers: BTreeMap<String, u64>,
    /// Those among them that refuse, by operation.
    pub refusals: BTreeMap<String, u64>,
    /// The same, by error: `ENOENT`.
    pub errors: BTreeMap<String, u64>,
    /// Operations that processes did not wait for: create, mkdir, unlink, rmdir, set_attr,
    /// rename.
    pub unawaited: BTreeMap<String, u64>,
    /// Answers to other nodes.
    pub answers_to_nodes: u64,
    /// Messages by the other node's number and by what they are: `requests` of this node, `answers`
    /// to them, requests `heard` from the other one; requests that were `late` or `lost`;
    /// `connections`.
    pub messages: BTreeMap<u32, BTreeMap<&'static str, u64>>,
    /// Their bytes, by the other node's number: `sent`, `received`.
    pub message_bytes: BTreeMap<u32, BTreeMap<&'static str, u64>>,
    /// How long processes waited for answers that were not there at once, by what the request
    /// waited for (`node`, `shards`, `held`) and by operation.
    pub held: BTreeMap<&'static str, BTreeMap<String, Wait>>,
    /// Bytes of files that were read by requests, not by processes themselves.
    pub requested_bytes: u64,
}

impl Activity {
    pub(crate) fn of(node: &NodeRegion) -> Activity {
        let mut activity = Activity::default();
        for done in &node.done {
            activity.add(done);
        }
        // What is behind the last node has no memory, and would if it were read.
        let nodes = node.head.nodes.load(Relaxed) as usize;
        for (peer, traffic) in (0..).zip(node.traffic.iter().take(nodes)) {
            activity.add_traffic(peer, traffic);
        }
        activity
    }

    fn add_traffic(&mut self, peer: u32, traffic: &Traffic) {
        let messages = [
            ("requests", &traffic.requests),
            ("answers", &traffic.answers),
            ("heard", &traffic.heard),
            ("late", &traffic.late),
            ("lost", &traffic.lost),
            ("connections", &traffic.connections),
        ];
        let bytes = [("sent", &traffic.sent_bytes), ("received", &traffic.received_bytes)];
        for (to, counters) in
            [(&mut self.messages, &messages[..]), (&mut self.message_bytes, &bytes[..])]
        {
            for (what, counter) in counters {
                match counter.load(Relaxed) {
                    0 => {}
                    count => drop(to.entry(peer).or_default().insert(what, count)),
                }
            }
        }
    }

    fn add(&mut self, done: &Done) {
        for op in Op::ALL {
            let at = *op as usize;
            let name = name_of(*op);
            add(&mut self.refusals, &name, done.refusals.get(at));
            add(&mut self.answers, &name, done.answers.get(at));
        }
        for ((_, hold), waits) in Hold::ALL.iter().zip(&done.held) {
            for op in Op::ALL {
                let wait = waits.get(*op as usize).map(of_waits).unwrap_or_default();
                if wait.count > 0 {
                    let held = self.held.entry(hold).or_default();
                    held.entry(name_of(*op)).or_default().add(&wait);
                }
            }
        }
        for (raw, errors) in done.errors.iter().enumerate() {
            if let Some(errno) = i32::try_from(raw).ok().and_then(Errno::from_raw) {
                add(&mut self.errors, &format!("{errno:?}"), Some(errors));
            }
        }
        for (kind, records) in RECORDS.iter().zip(&done.records) {
            add(&mut self.unawaited, kind, Some(records));
        }
        self.answers_to_nodes += done.for_others.load(Relaxed);
        self.requested_bytes += done.read_bytes.load(Relaxed);
    }
}

/// What never happened is left out.
fn add(to: &mut BTreeMap<String, u64>, name: &str, counter: Option<&AtomicU64>) {
    let count = counter.map_or(0, |counter| counter.load(Relaxed));
    if count > 0 {
        *to.entry(name.to_owned()).or_default() += count;
    }
}

/// What a process of the node takes.
#[derive(Debug, Clone, Serialize)]
pub struct Usage {
    /// `supervisor`, `daemon`, `mount`, `keeper`, `image`.
    pub process: &'static str,
    /// Its number.
    pub pid: i32,
    /// Processor time so far, seconds.
    pub cpu_seconds: f64,
    /// Memory that it has, bytes; what it shares with others counts too.
    pub resident_bytes: u64,
}

/// The supervisor and its children.
pub(super) fn usage(supervisor: i32) -> Vec<Usage> {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    let roles = children.filter_map(|pid| Some((role(pid)?, pid)));
    let all = std::iter::once(("supervisor", supervisor)).chain(roles);
    all.filter_map(|(process, pid)| Usage::of(process, pid)).collect()
}

/// What a child does, by its hidden subcommand.
fn role(pid: i32) -> Option<&'static str> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    match words.split(|byte| *byte == 0).nth(1)? {
        b"__daemon" => Some("daemon"),
        b"__fuse" => Some("mount"),
        b"__keep" => Some("keeper"),
        b"__image" => Some("image"),
        _ => None,
    }
}

impl Usage {
    fn of(process: &'static str, pid: i32) -> Option<Usage> {
        let stat = ProcStat::of(pid.cast_unsigned())?;
        let ticks = stat.number(14)? + stat.number(15)?;
        let cpu_seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let resident_bytes = stat.number(24)? * rustix::param::page_size() as u64;
        Some(Usage { process, pid, cpu_seconds, resident_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_takes_is_read_from_the_kernel() {
        let pid = i32::try_from(std::process::id()).expect("a number of a process");
        let usage = Usage::of("daemon", pid).expect("it runs");
        assert!(usage.resident_bytes > 1 << 16 && usage.cpu_seconds < 3600.0, "{usage:?}");
        assert!(Usage::of("daemon", i32::MAX).is_none());
    }
}

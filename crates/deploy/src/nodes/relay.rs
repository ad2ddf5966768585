//! A relay: starts the nodes of its own host, relays on others for the rest, and passes lines on in
//! both directions.
//!
//! A process that starts, stops or looks at an instance of several nodes starts the first relay, on
//! its own host. So there is one way of doing all of it. A relay with more than [`FANOUT`] other
//! hosts divides them among as many relays, which divide again: a tree. Where hosts are reached
//! through a relay, the nodes are the relay's children, not those of the process that reached the
//! host. So they outlive that process.
//!
//! One thread, one epoll, no shared file: lines downwards are passed on as they are, lines upwards
//! too, and a relay only remembers from which of its nodes nothing final was heard. It speaks for
//! such a node when the node, or the relay to it, has ended. When the line from above is cut it
//! cuts those below, and every node that was not left to itself ends.

use std::{
    fs::File,
    io::{BufReader, Read, Write},
    os::fd::{AsFd, OwnedFd},
    process::Child,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::{
    event::epoll::{self, EventFlags},
    time::Timespec,
};

use super::{
    below::{Below, Heard},
    local,
    words::{Job, Lines, NodeMessage, Order, Place, read_line},
};
use crate::{default_run_root, instance::Shared, signals, supervisor::raise_descriptor_limit};

/// Other hosts that one relay reaches itself.
const FANOUT: usize = 32;
/// When the line from above was cut, nodes may take this long to end before they are let go.
const CUT_MAX: Duration = Duration::from_secs(20);
const EVENTS: usize = 256;
/// The event of the line from above.
const ABOVE: u64 = u64::MAX;

/// Serves until nothing more is to be heard from below.
///
/// # Errors
/// When it is given no order that makes sense.
pub fn run_relay() -> Result<()> {
    // A key pressed at a terminal is for programs, not for their file system.
    let _ = rustix::process::setsid();
    signals::outlive()?;
    raise_descriptor_limit();
    let mut above = BufReader::new(File::from(std::io::stdin().as_fd().try_clone_to_owned()?));
    let order: Order = read_line(&mut above)?.context("nothing is ordered")?;
    let ours = env!("CARGO_PKG_VERSION");
    ensure!(
        order.program == ours,
        "this is mayfly {ours}, and that of the other hosts {}; give the same one by --remote-path",
        order.program
    );
    let starts = matches!(order.job, Job::Start(_));
    let mut relay = Relay::new(above)?;
    relay.start(&order);
    relay.serve()?;
    if starts {
        // Made for what the nodes share; it stays while anything is in it.
        let _ = std::fs::remove_dir(default_run_root());
    }
    if starts && order.launcher.must_stay() {
        relay.wait_for_own();
    }
    Ok(())
}

struct Relay {
    above: BufReader<File>,
    epoll: OwnedFd,
    below: Vec<Below>,
    /// The line from above is cut, and then.
    cut: Option<Instant>,
    /// The library that several nodes here share; held until they have linked to it.
    library: Option<File>,
    /// Lines from above that are not whole.
    down: Lines,
}

impl Relay {
    fn new(above: BufReader<File>) -> Result<Relay> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, std::io::stdin(), epoll::EventData::new_u64(ABOVE), EventFlags::IN)?;
        Ok(Relay {
            above,
            epoll,
            below: Vec::new(),
            cut: None,
            library: None,
            down: Lines::default(),
        })
    }

    fn start(&mut self, order: &Order) {
        let (here, there) = divide(order);
        match &order.job {
            Job::Start(_) => {
                let shared = (here.len() > 1).then(Shared::make).flatten();
                let (shared, library) = shared.unzip();
                self.library = library;
                for place in here {
                    let node = Below::node(order, place.clone(), shared.clone());
                    self.add(node, &[place]);
                }
            }
            _ if here.is_empty() => {}
            _ => self.add(local::perform(order, here.clone()), &here),
        }
        for part in there {
            self.add(Below::relay(order, part.clone()), &part);
        }
    }

    /// Watches what was started, or says that it was not.
    fn add(&mut self, below: Result<Below>, places: &[Place]) {
        let added = below.and_then(|below| {
            let number = self.below.len() as u64;
            for (kind, fd) in below.watched() {
                let data = epoll::EventData::new_u64(number << 1 | kind);
                let out = if kind == 0 { EventFlags::OUT } else { EventFlags::empty() };
                epoll::add(&self.epoll, fd, data, EventFlags::IN | out | EventFlags::ET)?;
            }
            self.below.push(below);
            Ok(())
        });
        if let Err(error) = added {
            for place in places {
                let said = NodeMessage::Failed { why: format!("{error:#}"), log: String::new() };
                super::agent::say(&mut std::io::stdout(), place.node, said);
            }
        }
    }

    fn serve(&mut self) -> Result<()> {
        // Lines that came together with the order.
        let early = self.above.buffer().to_vec();
        self.pass_down(&early);
        let mut events = Vec::with_capacity(EVENTS);
        while self.below.iter().any(|below| !below.is_done()) {
            let left = self.cut.map(|since| CUT_MAX.saturating_sub(since.elapsed()));
            if left == Some(Duration::ZERO) {
                break;
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, left.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    ABOVE => self.hear_above(),
                    token => self.hear_below((token >> 1) as usize, token & 1),
                }
            }
        }
        Ok(())
    }

    fn hear_above(&mut self) {
        let mut bytes = [0; 65536];
        match self.above.get_mut().read(&mut bytes) {
            Ok(0) | Err(_) => {
                let _ = epoll::delete(&self.epoll, std::io::stdin());
                self.cut = Some(Instant::now());
                self.below.iter_mut().for_each(Below::cut);
            }
            Ok(count) => self.pass_down(&bytes[..count]),
        }
    }

    fn pass_down(&mut self, bytes: &[u8]) {
        match self.down.add(bytes) {
            Ok(lines) => {
                for line in lines {
                    // A node that is told anything has made its directories, and linked to the
                    // library.
                    self.library = None;
                    self.below.iter_mut().for_each(|below| below.owe(&line));
                }
            }
            Err(_) => self.below.iter_mut().for_each(Below::cut),
        }
    }

    fn hear_below(&mut self, number: usize, kind: u64) {
        let Some(below) = self.below.get_mut(number) else { return };
        let Heard { lines, ended } = if kind == 0 { below.hear() } else { below.hear_complaint() };
        let mut above = std::io::stdout().lock();
        for line in lines {
            // A reader that has gone need not know.
            let _ = above.write_all(&line);
        }
        let _ = above.flush();
        if ended {
            below.finish(&mut above);
        }
    }

    /// Nodes whose hosts would end them with this process.
    fn wait_for_own(mut self) {
        if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(null.as_fd());
            let _ = rustix::stdio::dup2_stdout(null.as_fd());
        }
        for child in self.below.iter_mut().filter_map(|below| below.node_process()) {
            let _ = Child::wait(child);
        }
    }
}

/// The places on this host, and parts of the others: those of one host stay together.
fn divide(order: &Order) -> (Vec<Place>, Vec<Vec<Place>>) {
    let local = order.launcher == super::Launcher::Local;
    let is_here = |place: &&Place| local || order.here.as_deref() == Some(&place.host);
    let (here, others): (Vec<&Place>, Vec<&Place>) = order.places.iter().partition(is_here);
    let mut hosts: Vec<Vec<Place>> = Vec::new();
    let mut known = std::collections::BTreeMap::new();
    for place in others {
        let at = *known.entry(&place.host).or_insert_with(|| {
            hosts.push(Vec::new());
            hosts.len() - 1
        });
        hosts[at].push(place.clone());
    }
    let size = hosts.len().div_ceil(FANOUT).max(1);
    let parts = hosts.chunks(size).map(<[_]>::concat).collect();
    (here.into_iter().cloned().collect(), parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Depth,
        nodes::{Launcher, Roles},
    };

    fn order(hosts: &[String], here: &str) -> Order {
        let places = hosts.iter().zip(0..);
        Order {
            program: String::new(),
            job: Job::Status(Depth::Sums),
            launcher: Launcher::Ssh,
            remote_path: "/".into(),
            name: "x".to_owned(),
            instance: 1,
            here: Some(here.to_owned()),
            shared: None,
            places: places
                .map(|(host, node)| Place {
                    node,
                    host: host.clone(),
                    shares: false,
                    roles: Roles::ALL,
                })
                .collect(),
        }
    }

    #[test]
    fn a_few_hosts_are_reached_one_by_one_and_many_as_a_tree() {
        let hosts: Vec<String> = (0..20).map(|n| format!("n{n}")).collect();
        let (here, there) = divide(&order(&hosts, "n0"));
        assert_eq!((here.len(), there.len()), (1, 19));
        let hosts: Vec<String> = (0..4000).map(|n| format!("n{n}")).collect();
        let (here, there) = divide(&order(&hosts, "elsewhere"));
        assert!(here.is_empty() && there.len() <= FANOUT);
        let mut all: Vec<u32> = there.iter().flatten().map(|place| place.node).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..4000), "each node once");
    }

    #[test]
    fn nodes_of_one_host_are_started_by_one_relay() {
        let hosts: Vec<String> = (0..100).map(|n| format!("n{}", n % 50)).collect();
        let (here, there) = divide(&order(&hosts, "n7"));
        assert_eq!(here.iter().map(|place| place.node).collect::<Vec<_>>(), [7, 57]);
        for part in there {
            for place in &part {
                let other = (place.node + 50) % 100;
                assert!(part.iter().any(|place| place.node == other));
            }
        }
    }
}

//! Looks at everything that a running instance keeps, and says what does not fit together
//! ([`mayfly_daemon::fsck`]).
//!
//! One node's daemon is asked, as an attached process asks it; it passes on what is about other
//! nodes. Descriptions are looked at first, then objects, then records: what is made while the look
//! lasts has its record before it has the rest.

use std::{collections::BTreeSet, thread::sleep, time::Duration};

use anyhow::{Context, Result, bail, ensure};
pub use mayfly_daemon::fsck::{Counts, Finding, Kind, Stray};
use mayfly_daemon::fsck::{Doubts, Look};
use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::Attachment;
use mayfly_types::Errno;
use mayfly_wire::{
    INSPECT_OBJECTS, INSPECT_OPENS, INSPECT_RECORDS, Inspect, RemoveStray, inspection::facts,
};

use crate::{Config, attached::attached};

/// Looks that have to agree before anything is called wrong.
const LOOKS: u32 = 4;
/// Time between the first two looks; it doubles from one to the next.
const PAUSE: Duration = Duration::from_millis(250);
/// More shards than an instance can have: who says so is not believed.
const SHARDS_MAX: u32 = 1 << 20;

/// How far a look is.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// Which look it is, from 1.
    pub look: u32,
    /// Facts that were taken in.
    pub facts: u64,
    /// Pages' worth of steps: shards and nodes that were asked.
    pub done: u32,
    /// All of them.
    pub all: u32,
}

/// What came of it.
#[derive(Debug)]
pub struct Checked {
    /// Nodes of the instance.
    pub nodes: u32,
    /// Shards of all nodes.
    pub shards: u32,
    /// What was looked at, in the last look.
    pub counts: Counts,
    /// How often.
    pub looks: u32,
    /// What is wrong.
    pub found: BTreeSet<Finding>,
    /// Objects that were removed, and that could not be.
    pub repaired: Vec<(Stray, Result<(), Errno>)>,
}

/// A page as it was told.
struct Page {
    nodes: u32,
    shards: u32,
    next: Vec<u8>,
}

struct Inspector<'c> {
    config: &'c Config,
    attached: Attachment,
    /// Of each node; 0 as long as nobody has said.
    shards: u32,
    nodes: u32,
}

/// Looks until nothing is in doubt, or the same is wrong in each of several looks.
///
/// # Errors
/// When a node cannot be looked at.
pub fn check(config: &Config, progress: &mut dyn FnMut(Stage)) -> Result<Checked> {
    let mut inspector = Inspector::new(config)?;
    let mut doubts = Doubts::default();
    let mut pause = PAUSE;
    loop {
        let look = inspector.look(doubts.looks() + 1, progress)?;
        doubts.add(look.findings());
        if doubts.found().is_empty() || doubts.looks() == LOOKS {
            let Inspector { nodes, shards, .. } = inspector;
            return Ok(Checked {
                nodes,
                shards: nodes * shards,
                counts: look.counts(),
                looks: doubts.looks(),
                found: doubts.found().clone(),
                repaired: Vec::new(),
            });
        }
        sleep(pause);
        pause *= 2;
    }
}

/// Removes the objects among the findings that nothing stands for.
///
/// # Errors
/// When the instance cannot be asked.
pub fn repair(config: &Config, checked: &mut Checked) -> Result<()> {
    let inspector = Inspector::new(config)?;
    for stray in checked.found.iter().filter_map(|finding| finding.stray) {
        let shard = stray.node * (checked.shards / checked.nodes.max(1));
        let (file, generation) = (stray.id.file, stray.id.generation);
        let removed = inspector.remove(&RemoveStray { shard, file, generation });
        checked.repaired.push((stray, removed));
    }
    Ok(())
}

impl<'c> Inspector<'c> {
    fn new(config: &'c Config) -> Result<Inspector<'c>> {
        let attached = attached(config)?;
        Ok(Inspector { config, attached, shards: 0, nodes: 0 })
    }

    fn look(&mut self, number: u32, progress: &mut dyn FnMut(Stage)) -> Result<Look> {
        // How many there are stands on every page; the daemon's own number is not known before.
        let own = self.config.node.unwrap_or(0);
        if self.shards == 0 {
            self.count(own)?;
        }
        let (nodes, shards) = (self.nodes, self.shards);
        let all = nodes * shards;
        let mut look = Look::new(shards);
        let mut stage = Stage { look: number, facts: 0, done: 0, all: 2 * all + nodes };
        let fronts = (0..nodes).map(|node| node * shards);
        let opens = (0..all).map(|shard| (INSPECT_OPENS, shard));
        let objects = fronts.map(|shard| (INSPECT_OBJECTS, shard));
        let records = (0..all).map(|shard| (INSPECT_RECORDS, shard));
        for (what, shard) in opens.chain(objects).chain(records) {
            let mut after = Vec::new();
            loop {
                let page = self.page(&mut look, &mut stage, (shard, what), &after)?;
                ensure!(
                    (page.nodes, page.shards) == (nodes, shards),
                    "the nodes of {:?} do not agree how many they are",
                    self.config.name
                );
                progress(stage);
                if page.next.is_empty() {
                    break;
                }
                ensure!(page.next != after, "shard {shard} tells the same page again and again");
                after = page.next;
            }
            stage.done += 1;
        }
        Ok(look)
    }

    /// Learns how many nodes and shards there are.
    fn count(&mut self, own: u32) -> Result<()> {
        let mut look = Look::new(1);
        let mut stage = Stage { look: 0, facts: 0, done: 0, all: 0 };
        let shards = self.config.options.shards;
        let front = own.checked_mul(shards).context("an impossible number of shards")?;
        let page = self.page(&mut look, &mut stage, (front, INSPECT_OPENS), &[])?;
        let all = page.nodes.checked_mul(page.shards).unwrap_or(0);
        ensure!(all > 0 && all <= SHARDS_MAX, "an impossible number of shards: {all}");
        (self.nodes, self.shards) = (page.nodes, page.shards);
        Ok(())
    }

    fn page(
        &self,
        look: &mut Look,
        stage: &mut Stage,
        (shard, what): (u32, u8),
        after: &[u8],
    ) -> Result<Page> {
        let request = Inspect { shard, what, after };
        let told = self.attached.transport.exchange(&request, Patience::Deadline, |answer| {
            let page = match answer {
                Answer::Done(page) => page,
                Answer::Failed(errno) => return Err(errno),
                Answer::Escaped(_) => return Err(Errno::EPROTO),
            };
            for fact in facts(page.facts) {
                look.take(shard, &fact.map_err(|_| Errno::EPROTO)?);
                stage.facts += 1;
            }
            Ok(Page { nodes: page.nodes, shards: page.shards, next: page.next.to_vec() })
        });
        let node = shard.checked_div(self.shards).unwrap_or(0);
        match told {
            Ok(page) => Ok(page),
            Err(Errno::EIO) => bail!(
                "node {node} of {:?} does not answer; `mayfly status --name {0}` says more",
                self.config.name
            ),
            Err(errno) => bail!("shard {shard} on node {node} of {:?}: {errno}", self.config.name),
        }
    }

    fn remove(&self, request: &RemoveStray) -> Result<(), Errno> {
        self.attached.transport.exchange(request, Patience::Deadline, |answer| match answer {
            Answer::Done(()) => Ok(()),
            Answer::Failed(errno) => Err(errno),
            Answer::Escaped(_) => Err(Errno::EPROTO),
        })
    }
}

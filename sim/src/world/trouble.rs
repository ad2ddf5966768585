//! How what goes wrong begins and ends.

use std::sync::atomic::Ordering::Relaxed;

use super::{Due, World};
use crate::plan::Trouble;

impl World<'_> {
    pub(super) fn trouble(&mut self, at: usize) {
        let nodes = self.plan.nodes;
        let trouble = self.plan.troubles[at].1;
        let time_ns = match trouble {
            Trouble::Crash(node, down_ns) => return self.kill(node as usize, down_ns),
            Trouble::Within(node, place, count, down_ns) => {
                let member = &mut self.members[node as usize];
                member.down_ns = down_ns;
                return member.node.fuse.light(place, count);
            }
            Trouble::Pause(node, time_ns) => {
                let until_ns = self.now_ns + time_ns;
                let member = &mut self.members[node as usize];
                member.paused_until_ns = member.paused_until_ns.max(until_ns);
                return;
            }
            Trouble::Break(a, b) if a != b => return self.network.lock().disconnect(a, b),
            Trouble::FailCommit(node, shard) => {
                return self.members[node as usize].node.fail_commit(shard);
            }
            Trouble::KillClient(client) => {
                let of = &mut self.clients[client + 1];
                if !of.is_done() {
                    of.kill(&mut self.members[of.node as usize].node);
                    self.pause(client + 1);
                }
                return;
            }
            Trouble::SetClock(node, by) => {
                let clock = &self.members[node as usize].node.clock;
                clock.off_ns.fetch_add(by, Relaxed);
                return;
            }
            Trouble::Slow(from, to, by_ns, time_ns) if from != to => {
                self.network.lock().slow(from, to, by_ns);
                time_ns
            }
            Trouble::OneWay(_, _, time_ns)
            | Trouble::Isolate(_, time_ns)
            | Trouble::Halves(_, time_ns) => {
                self.cut(trouble, nodes, true);
                time_ns
            }
            Trouble::SlowDisk(_, time_ns)
            | Trouble::FullDisk(_, time_ns)
            | Trouble::FailingDisk(_, time_ns) => {
                self.disk(trouble, true);
                time_ns
            }
            Trouble::Slow(..) | Trouble::Break(..) => return,
        };
        self.after(time_ns, Due::Over(at));
    }

    pub(super) fn over(&mut self, at: usize) {
        let trouble = self.plan.troubles[at].1;
        match trouble {
            Trouble::Slow(from, to, ..) => self.network.lock().slow(from, to, 0),
            Trouble::SlowDisk(..) | Trouble::FullDisk(..) | Trouble::FailingDisk(..) => {
                self.disk(trouble, false);
            }
            trouble => self.cut(trouble, self.plan.nodes, false),
        }
    }

    fn cut(&mut self, trouble: Trouble, nodes: u32, cut: bool) {
        let mut network = self.network.lock();
        for from in 0..nodes {
            for to in (0..nodes).filter(|to| *to != from) {
                let is_cut = match trouble {
                    Trouble::OneWay(a, b, _) => (a, b) == (from, to),
                    Trouble::Isolate(node, _) => node == from || node == to,
                    Trouble::Halves(half, _) => (half >> from ^ half >> to) & 1 == 1,
                    _ => false,
                };
                if is_cut {
                    network.cut(from, to, cut);
                }
            }
        }
    }

    fn disk(&mut self, trouble: Trouble, on: bool) {
        match trouble {
            Trouble::SlowDisk(node, _) => {
                let slow = &mut self.members[node as usize].slow_disk;
                *slow = if on { *slow + 1 } else { slow.saturating_sub(1) };
            }
            Trouble::FullDisk(node, _) => {
                self.members[node as usize].node.disk.full.store(on, Relaxed);
            }
            Trouble::FailingDisk(node, _) => {
                self.members[node as usize].node.disk.failing.store(on, Relaxed);
            }
            _ => {}
        }
    }
}

//! The end of a run: everything is well again, goes back, is compared, and goes.

use mayfly_wire::tier::{TIER_FLUSH_LAST, TIER_FLUSH_NOW, TIER_UNPIN};

use super::{Due, World};
use crate::{
    fits,
    network::{MS, SECOND},
    node::Node,
    origin::{
        client::{Client, Heard, Job},
        keeper::Keeper,
        plan::DIRECTORIES,
    },
};

/// What is flushed in the end is asked for so often.
const FLUSHES_MAX: u32 = 100;
/// Every trouble is over after so long.
const TROUBLE_NS: u64 = 5 * SECOND;

impl World<'_> {
    pub(super) fn end(&mut self) {
        let last_ns = self.plan.troubles.iter().map(|of| of.0).max().unwrap_or(0) + TROUBLE_NS;
        self.wait(last_ns.saturating_sub(self.now_ns) + SECOND);
        self.members.iter_mut().for_each(|member| member.doom = None);
        let others = self.plan.others.iter().map(|of| of.0).max().unwrap_or(0);
        self.wait(others.saturating_sub(self.now_ns) + SECOND);
        if self.is_wrong() {
            return;
        }
        for client in &mut self.clients {
            client.end(&mut self.members[client.node].node, &mut self.external);
        }
        // Directories are there again in which something may be dirty. One that was moved for a
        // call that failed then has not what it had.
        let made = self.external.judge.own.clone();
        let made = made.iter().filter_map(|path| path.split_once('/')).map(|(made, _)| made);
        for path in DIRECTORIES.into_iter().map(str::to_owned).chain(made.map(str::to_owned)) {
            if self.external.make_directory(&path) {
                self.external.note_touched(&path);
            }
        }
        self.flush_all();
        self.unpin_all();
        self.look_again();
        self.compare();
        self.clear();
    }

    /// One job of a process of its own; what it heard.
    fn ask(&mut self, node: usize, job: Job) -> Option<Heard> {
        let number = self.clients.len();
        self.clients.push(Client::new(node, [(0, job)].into()));
        self.pause(number);
        self.go_on_until(|world| world.clients[number].is_done());
        self.clients[number].end(&mut self.members[node].node, &mut self.external);
        self.clients[number].heard.take()
    }

    fn wait(&mut self, time_ns: u64) {
        let until_ns = self.now_ns + time_ns;
        self.after(time_ns, Due::Wait);
        self.go_on_until(|world| world.now_ns >= until_ns);
    }

    /// Keepers end what they are at, which may take long where everything is slow. What nobody
    /// wants any more is kept for them until then: the object of a chunk that was read ahead.
    fn wait_for_keepers(&mut self) {
        let is_idle = |member: &super::Member| {
            member.node.daemon.is_some() && member.keeper.as_ref().is_some_and(Keeper::is_idle)
        };
        self.go_on_until(|world| world.members.iter().all(is_idle));
    }

    fn flush_all(&mut self) {
        for round in 0..FLUSHES_MAX {
            let what = if self.dice.once_in(2) { TIER_FLUSH_NOW } else { TIER_FLUSH_LAST };
            let (mut heard, mut clean) = (Vec::new(), true);
            for node in 0..self.plan.nodes {
                let shard = node * self.plan.shards;
                heard.push(self.ask(0, Job::Ask { what, shard }));
                if self.is_wrong() {
                    return;
                }
                let last = heard.last().cloned().flatten();
                clean &= last == Some(Heard::Told { failed: 0, left: 0, dirty: 0 });
            }
            if clean {
                return self.external.judge.expect_all_flushed();
            }
            if round + 1 == FLUSHES_MAX {
                self.say(format!("what is dirty is never flushed: {heard:?}"));
            }
            self.wait(100 * MS);
            self.wait_for_keepers();
        }
    }

    /// What is pinned may take all the space that there is.
    fn unpin_all(&mut self) {
        if self.plan.policy.space_bytes.is_none() {
            return;
        }
        for node in 0..self.members.len() {
            self.ask(node, Job::AskOf { what: TIER_UNPIN, path: String::new() });
        }
    }

    /// What was seen is believed no more, if it was so for ever.
    fn look_again(&mut self) {
        if self.is_wrong() || self.plan.valid_ms.is_some() {
            return;
        }
        self.external.judge.valid_ns = Some(0);
        for node in 0..self.members.len() {
            self.members[node].node.link_origin(Some(0));
            self.kill(node, MS);
        }
        self.wait(SECOND);
    }

    /// Inside is what is outside.
    fn compare(&mut self) {
        self.wait(2 * SECOND);
        self.wait_for_keepers();
        self.wait(SECOND);
        self.check_records();
        for directory in self.external.directories() {
            let mut names = self.external.names(&directory);
            names.sort_unstable();
            match self.ask_any(Job::List { path: directory.clone() }) {
                Some(Heard::Names(seen)) if seen == names => {}
                _ if self.is_wrong() => return,
                other => self.say(format!("{directory:?} has {names:?} outside, inside {other:?}")),
            }
        }
        for (path, (content, mode)) in self.external.files() {
            match self.ask_any(Job::Read { path: path.clone(), owned: false }) {
                Some(Heard::Content(seen)) if seen == content => {}
                _ if self.is_wrong() => return,
                other => self.say(format!("{path} is {content:?} outside, inside {other:?}")),
            }
            let bytes = (content.len() * super::super::MARK_BYTES) as u64;
            match self.ask_any(Job::Stat { path: path.clone() }) {
                Some(heard) if heard == Heard::Attr(mode, bytes) => {}
                _ if self.is_wrong() => return,
                other => self.say(format!("{path} has {mode:o} {bytes} outside, inside {other:?}")),
            }
        }
    }

    fn ask_any(&mut self, job: Job) -> Option<Heard> {
        let node = self.dice.index(self.members.len());
        self.ask(node, job)
    }

    /// All that the daemons keep fits together.
    fn check_records(&mut self) {
        if self.is_wrong() {
            return;
        }
        let mut nodes = self.members.iter_mut().map(|member| &mut member.node);
        let wrong =
            fits::check(&mut nodes as &mut dyn Iterator<Item = &mut Node>, self.plan.shards);
        wrong.into_iter().for_each(|wrong| self.say(wrong.0));
    }

    /// All files go outside: nothing is left here of them.
    fn clear(&mut self) {
        if self.is_wrong() {
            return;
        }
        self.external.clear();
        self.wait(2 * SECOND);
        for path in [""].into_iter().chain(DIRECTORIES) {
            self.ask_any(Job::List { path: path.to_owned() });
        }
        self.wait(20 * SECOND);
        self.wait_for_keepers();
        self.wait(SECOND);
        self.check_records();
        for node in 0..self.members.len() {
            let member = &mut self.members[node];
            let objects = member.node.disk.count();
            let open =
                member.node.daemon.as_mut().map_or(0, |of| of.service(0).counters().open_files);
            if objects > 0 {
                self.say(format!("{objects} objects of no file are left at {node}"));
            }
            if open > 0 {
                self.say(format!("{open} open files are left at {node}"));
            }
        }
    }
}

//! Processes that wait for each other's locks on files of several shards.
//!
//! Messages travel in any order, waits are cancelled, locks are given up by other threads of those
//! that wait, and the daemon dies now and then. What clients see at each moment bounds what the
//! shards can have: whoever is told of a circle was in one that the clients cannot rule out, and
//! when nothing moves any more there is none left.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use mayfly_daemon::{Caller, Completion};
use mayfly_types::{Errno, OpenRef, SessionId};
use mayfly_wire::{
    Cancel, LOCK_OFD, LOCK_POSIX, LOCK_UNLOCK, LOCK_WRITE, Lock, LockRange, Open, OpenReply,
    Request,
};
use support::{
    Node, O_CREAT, O_RDWR, config_of,
    crowd::{Sent, sent},
    walk,
};

/// A file, as all clients number them.
type File = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Lock(File),
    Unlock(File),
    Cancel,
}

/// Clients that lock files, one after the other or in each other's way.
struct Play {
    node: Node,
    opens: BTreeMap<(u32, File), OpenRef>,
    /// What is not answered.
    under_way: Vec<(Caller, Sent, What)>,
    /// Locks that the clients know to have.
    held: BTreeSet<(u32, File)>,
    /// Locks that they may have, as far as they know.
    perhaps: BTreeSet<(u32, File)>,
    /// Clients that may have been in a circle since they began to wait.
    suspicious: BTreeSet<u32>,
    /// Who was answered with what.
    statuses: Vec<(u32, What, u32)>,
    deaths: usize,
    owner: u32,
    /// What is locked of a file.
    range: (u64, u64),
}

const EDEADLK: u32 = 35;

impl Play {
    fn new(clients: u32, files: usize, shards: u32, seed: u64) -> Play {
        assert_eq!(Errno::EDEADLK.raw() as u32, EDEADLK);
        let mut node = Node::several(config_of(seed), shards, seed, false);
        node.sessions = (1..=clients).map(|client| (SessionId(client), 100 + client)).collect();
        node.restart();
        let mut opens = BTreeMap::new();
        for client in 1..=clients {
            for file in 0..files {
                let name = format!("file-{file}");
                let flags = O_CREAT | O_RDWR;
                let open = Open { walk: walk(&name, 0), flags, mode: 0o644, uid: 0, gid: 0 };
                let take = |reply: OpenReply<'_>| reply.opened.open;
                let open = node.ask_as(SessionId(client), &open, take).unwrap();
                opens.insert((client, file), open);
            }
        }
        node.several.published.clear();
        Play {
            node,
            opens,
            under_way: Vec::new(),
            held: BTreeSet::new(),
            perhaps: BTreeSet::new(),
            suspicious: BTreeSet::new(),
            statuses: Vec::new(),
            deaths: 0,
            owner: LOCK_POSIX,
            range: (0, 10),
        }
    }

    fn dice(&mut self, below: usize) -> usize {
        self.node.several.dice.below(below)
    }

    /// Waits of the first thread go by one lane, what the second one does by another.
    fn begin(&mut self, client: u32, lane: u32, what: What) {
        let caller = Caller { lane, ..self.node.next_caller(SessionId(client)) };
        let lock = |open, kind, wait| {
            let (start, end) = self.range;
            let range = LockRange { owner: self.owner, kind, start, end };
            sent(&Lock { open, range, wait })
        };
        let request = match what {
            What::Lock(file) => lock(self.opens[&(client, file)], LOCK_WRITE, true),
            What::Unlock(file) => lock(self.opens[&(client, file)], LOCK_UNLOCK, false),
            What::Cancel => {
                let waits = self.wait_of(client).map(|(caller, ..)| caller.request_id);
                sent(&Cancel { request_id: waits.unwrap_or_default() })
            }
        };
        match what {
            What::Lock(file) => {
                self.perhaps.insert((client, file));
                self.suspicious.remove(&client);
            }
            What::Unlock(file) => drop(self.held.remove(&(client, file))),
            What::Cancel => {}
        }
        self.under_way.push((caller, request.clone(), what));
        self.hand_in(caller, &request);
        self.look();
    }

    fn hand_in(&mut self, caller: Caller, request: &Sent) {
        let mut body = vec![0; 2000];
        self.node.hand_in(caller, Request::decode(request.op, &request.body).unwrap(), &mut body);
    }

    fn wait_of(&self, client: u32) -> Option<(Caller, File)> {
        self.under_way.iter().find_map(|(caller, _, what)| match what {
            What::Lock(file) if caller.session.0 == client => Some((*caller, *file)),
            _ => None,
        })
    }

    /// Who may wait for whom, as far as the clients know.
    fn may_wait_for(&self, client: u32) -> impl Iterator<Item = u32> + '_ {
        let file = self.wait_of(client).map(|(_, file)| file);
        let holds = move |(_, of): &&(u32, File)| Some(*of) == file;
        let others = self.perhaps.iter().filter(holds).map(|(other, _)| *other);
        others.filter(move |other| *other != client)
    }

    fn may_be_in_a_circle(&self, client: u32) -> bool {
        let (mut seen, mut next) = (BTreeSet::new(), vec![client]);
        while let Some(one) = next.pop() {
            for other in self.may_wait_for(one) {
                if other == client {
                    return true;
                }
                if seen.insert(other) {
                    next.push(other);
                }
            }
        }
        false
    }

    /// Takes the answers, and looks at what the clients know now.
    fn look(&mut self) {
        let waiting: Vec<u32> =
            self.under_way.iter().map(|(caller, ..)| caller.session.0).collect();
        for client in waiting {
            if !self.suspicious.contains(&client) && self.may_be_in_a_circle(client) {
                self.suspicious.insert(client);
            }
        }
        for done in std::mem::take(&mut self.node.several.published) {
            self.answered(&done);
        }
    }

    fn answered(&mut self, done: &Completion) {
        let of_it = |(caller, ..): &(Caller, Sent, What)| *caller == done.caller;
        let Some(at) = self.under_way.iter().position(of_it) else { return };
        let (_, _, what) = self.under_way.swap_remove(at);
        let client = done.caller.session.0;
        match (what, done.status) {
            (What::Lock(file), 0) => drop(self.held.insert((client, file))),
            (What::Lock(file), status) => {
                self.perhaps.remove(&(client, file));
                if status == EDEADLK {
                    assert!(self.suspicious.contains(&client), "no circle: {:?}", self.statuses);
                }
            }
            (What::Unlock(file), 0) => drop(self.perhaps.remove(&(client, file))),
            (What::Cancel, 0) => {}
            other => panic!("{other:?}"),
        }
        self.statuses.push((client, what, done.status));
    }

    fn step(&mut self) -> bool {
        let deaths = self.deaths;
        let moved = if deaths > 0 && self.dice(deaths) == 0 {
            self.die();
            true
        } else {
            self.node.move_on()
        };
        self.look();
        moved
    }

    fn die(&mut self) {
        let stored = std::mem::take(&mut self.node.several.stored);
        self.node.restart();
        for (_, transaction, done) in stored {
            if self.node.several.was_committed(transaction) {
                self.node.several.published.push(done);
            }
        }
        self.look();
        for (caller, request, _) in self.under_way.clone() {
            self.hand_in(caller, &request);
        }
    }

    /// Until nothing moves by itself. Nobody is in a circle then.
    fn calm_down(&mut self) {
        let deaths = std::mem::take(&mut self.deaths);
        while self.step() {}
        self.deaths = deaths;
        assert!(self.under_way.iter().all(|(_, _, what)| matches!(what, What::Lock(_))));
        if self.owner == LOCK_POSIX {
            let waiting = self.under_way.iter().map(|(caller, ..)| caller.session.0);
            let stuck: Vec<u32> = waiting.filter(|client| self.certainly_stuck(*client)).collect();
            assert!(stuck.is_empty(), "they wait for ever: {stuck:?}");
        }
    }

    /// As [`Play::may_be_in_a_circle`], by locks that somebody knows to have.
    fn certainly_stuck(&self, client: u32) -> bool {
        let holder = |file| self.held.iter().find(|(_, of)| *of == file).map(|(who, _)| *who);
        let mut at = client;
        for _ in 0..=self.node.sessions.len() {
            let Some((_, file)) = self.wait_of(at) else { return false };
            let Some(next) = holder(file) else { return false };
            at = next;
            if at == client {
                return true;
            }
        }
        false
    }

    fn told(&self) -> Vec<u32> {
        let told = self.statuses.iter().filter(|(_, _, status)| *status == EDEADLK);
        told.map(|(client, ..)| *client).collect()
    }

    fn act(&mut self, client: u32, files: usize) {
        let file = self.dice(files);
        let mine: Vec<File> =
            self.held.iter().filter(|(who, _)| *who == client).map(|(_, file)| *file).collect();
        let second_is_busy = self.under_way.iter().any(|(caller, ..)| {
            *caller == Caller { session: SessionId(client), lane: 1, ..*caller }
        });
        match self.dice(8) {
            0..5 if self.wait_of(client).is_none() && !self.perhaps.contains(&(client, file)) => {
                self.begin(client, 0, What::Lock(file));
            }
            5 | 6 if !mine.is_empty() && !second_is_busy => {
                let file = mine[self.dice(mine.len())];
                self.begin(client, 1, What::Unlock(file));
            }
            7 if self.wait_of(client).is_some() && !second_is_busy => {
                self.begin(client, 1, What::Cancel);
            }
            _ => {}
        }
    }
}

/// Each of `clients` has a lock, and asks for that of the next one.
fn circle(clients: u32, shards: u32, seed: u64, owner: u32) -> Play {
    let mut play = Play::new(clients, clients as usize, shards, seed);
    play.owner = owner;
    for client in 1..=clients {
        play.begin(client, 0, What::Lock(client as usize - 1));
        play.calm_down();
    }
    for client in 1..=clients {
        play.begin(client, 0, What::Lock((client % clients) as usize));
        for _ in 0..seed % 5 {
            play.step();
        }
    }
    play.calm_down();
    play
}

#[test]
fn one_of_a_circle_over_shards_is_told_and_the_others_go_on() {
    for seed in 0..60 {
        let clients = 2 + (seed % 4) as u32;
        let mut play = circle(clients, 2 + (seed % 3) as u32, seed, LOCK_POSIX);
        let told = play.told();
        assert_eq!(told.len(), 1, "seed {seed}: {told:?} of {clients}");
        let mut free = told[0];
        for _ in 1..clients {
            let file = free as usize - 1;
            play.begin(free, 1, What::Unlock(file));
            play.calm_down();
            free = if free == 1 { clients } else { free - 1 };
            assert!(play.held.contains(&(free, file)), "seed {seed}: {free} goes on");
            if free != told[0] {
                play.begin(free, 1, What::Unlock(file));
                play.calm_down();
            }
        }
        assert_eq!(play.told().len(), 1);
    }
}

#[test]
fn who_closes_a_circle_is_told() {
    for seed in 0..20 {
        let mut play = Play::new(3, 3, 3, seed);
        for client in 1..=3 {
            play.begin(client, 0, What::Lock(client as usize - 1));
            play.calm_down();
        }
        for client in [2, 3, 1] {
            play.begin(client, 0, What::Lock((client % 3) as usize));
            play.calm_down();
        }
        assert_eq!(play.told(), [1], "seed {seed}");
    }
}

#[test]
fn descriptions_that_wait_for_each_other_are_not_told() {
    for seed in 0..6 {
        let play = circle(3, 3, seed, LOCK_OFD);
        assert!(play.told().is_empty());
        assert_eq!(play.under_way.len(), 3);
    }
}

/// One waits for the second, who waits for the third, who waits for somebody else. When it is known
/// that the second one waits, a signal ends that; only then another thread of the first one gets in
/// the way of the third. All of it was there once, and never at a time.
#[test]
fn a_wait_that_ended_before_the_circle_closed_is_part_of_none() {
    for seed in 0..60 {
        let mut play = Play::new(4, 4, 5, seed);
        let calmly = |play: &mut Play, client, file, range| {
            play.range = range;
            play.begin(client, 0, What::Lock(file));
            play.calm_down();
        };
        let (second, third, other) = (2, 3, 0);
        calmly(&mut play, 2, second, (0, 10));
        calmly(&mut play, 3, third, (0, 10));
        calmly(&mut play, 4, other, (0, 5));
        calmly(&mut play, 3, other, (0, 10));
        calmly(&mut play, 2, third, (0, 10));
        play.begin(1, 0, What::Lock(second));
        for _ in 0..2 + seed % 9 {
            play.step();
        }
        play.begin(2, 1, What::Cancel);
        while play.wait_of(2).is_some() && play.step() {}
        play.range = (5, 10);
        play.begin(1, 1, What::Lock(other));
        play.calm_down();
        assert!(play.told().is_empty(), "seed {seed}: {:?}", play.statuses);
        assert!(play.held.contains(&(1, other)));
    }
}

/// Plays at random; how many were told.
fn at_random(deaths: usize, seed: u64) -> usize {
    let (clients, files) = (2 + (seed % 4) as u32, 2 + (seed % 3) as usize);
    let mut play = Play::new(clients, files, 2 + (seed % 3) as u32, seed);
    play.deaths = deaths;
    for _ in 0..200 {
        let client = 1 + play.dice(clients as usize) as u32;
        play.act(client, files);
        for _ in 0..play.dice(6) {
            play.step();
        }
        if play.dice(10) == 0 {
            play.calm_down();
        }
    }
    play.calm_down();
    play.told().len()
}

#[test]
fn nobody_is_told_of_a_circle_that_never_was_and_nobody_is_left_in_one() {
    let told: usize = (0..150).map(|seed| at_random(0, seed)).sum();
    assert!(told > 150, "only {told} circles");
}

#[test]
fn so_it_is_with_a_daemon_that_dies() {
    let told: usize = (0..60).map(|seed| at_random(40, seed)).sum();
    assert!(told > 40, "only {told} circles");
}

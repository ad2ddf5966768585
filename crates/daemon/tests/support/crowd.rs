//! Several clients at once, each with one request under way at most.

use mayfly_daemon::Caller;
use mayfly_types::SessionId;
use mayfly_wire::{Operation, Request, Writer};

use super::Node;

/// A request of a client, in bytes.
#[derive(Debug, Clone)]
pub struct Sent {
    pub op: mayfly_wire::Op,
    pub body: Vec<u8>,
}

pub fn sent<'a, O: Operation<'a>>(request: &O) -> Sent {
    let mut body = vec![0; 20_000];
    let mut to = Writer::new(&mut body);
    request.encode(&mut to).unwrap();
    let used = to.used();
    body.truncate(used);
    Sent { op: O::OP, body }
}

/// All clients' requests, each client's one after the other.
pub struct Crowd {
    pub node: Node,
    clients: u32,
    waiting: Vec<(Caller, Sent)>,
    /// Who was answered with what, in that order.
    pub statuses: Vec<(u32, u32)>,
}

impl Crowd {
    /// `clients` sessions, from 1 on; the daemon dies once in `deaths` steps, or never.
    pub fn new(mut node: Node, clients: u32, deaths: usize) -> Crowd {
        node.sessions = (1..=clients).map(|session| (SessionId(session), 100 + session)).collect();
        node.restart();
        node.several.deaths = deaths;
        Crowd { node, clients, waiting: Vec::new(), statuses: Vec::new() }
    }

    pub fn is_busy(&self, client: u32) -> bool {
        self.waiting.iter().any(|(caller, _)| caller.session.0 == client)
    }

    pub fn begin(&mut self, client: u32, sent: Sent) {
        let caller = self.node.next_caller(SessionId(client));
        self.waiting.push((caller, sent.clone()));
        let mut body = vec![0; 200_000];
        let request = Request::decode(sent.op, &sent.body).unwrap();
        self.node.hand_in(caller, request, &mut body);
        self.take_answers();
    }

    fn take_answers(&mut self) {
        for done in std::mem::take(&mut self.node.several.published) {
            let before = self.waiting.len();
            self.waiting.retain(|(caller, _)| *caller != done.caller);
            if self.waiting.len() < before {
                self.statuses.push((done.caller.session.0, done.status));
            }
        }
    }

    fn die(&mut self) {
        let stored = std::mem::take(&mut self.node.several.stored);
        self.node.restart();
        for (_, transaction, done) in stored {
            if self.node.several.was_committed(transaction) {
                self.node.several.published.push(done);
            }
        }
        self.take_answers();
        let mut body = vec![0; 200_000];
        for (caller, sent) in self.waiting.clone() {
            let request = Request::decode(sent.op, &sent.body).unwrap();
            self.node.hand_in(caller, request, &mut body);
        }
        self.take_answers();
    }

    pub fn step(&mut self) -> bool {
        let deaths = self.node.several.deaths;
        if deaths > 0 && self.node.several.dice.below(deaths) == 0 {
            self.die();
            return true;
        }
        let moved = self.node.move_on();
        self.take_answers();
        moved
    }

    /// One step towards the answer that a client waits for.
    pub fn wait_for(&mut self, client: u32) {
        let moved = self.step() || self.node.several.deaths > 0;
        assert!(moved || !self.is_busy(client), "not answered: {:?}", self.waiting);
    }

    /// Begins what is planned, for each client one after the other, with so many steps after each
    /// beginning, and goes on until everything is answered.
    pub fn play<D>(
        &mut self,
        plan: &[(u32, D, usize)],
        mut begin: impl FnMut(&mut Crowd, u32, &D),
    ) {
        for (client, what, steps) in plan {
            while self.is_busy(*client) {
                self.wait_for(*client);
            }
            begin(self, *client, what);
            for _ in 0..*steps {
                self.step();
            }
        }
        self.finish();
    }

    pub fn finish(&mut self) {
        while self.step() || self.node.several.deaths > 0 && !self.waiting.is_empty() {}
        assert!(self.waiting.is_empty(), "nobody waits for ever: {:?}", self.waiting);
    }

    /// All clients end.
    pub fn leave(mut self) -> Node {
        self.node.several.deaths = 0;
        for client in 1..=self.clients {
            for core in &mut self.node.cores {
                core.session_closed(SessionId(client));
            }
        }
        self.node.sessions.clear();
        self.node
    }
}

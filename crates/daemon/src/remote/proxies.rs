//! Descriptions here that belong to other nodes, and whether anybody there stands for them.
//!
//! A node that is killed may have been giving back a description, or never have taken in the answer
//! to an open; its successor does not know of it. So whenever a node can be reached again it is
//! asked for which of its descriptions here it stands. One whose open is under way there it leaves
//! out. One whose answer may come again is spared until the lane of that request goes on: a request
//! that comes again before the node's answer about it has been heard is not asked about any more.
//! Descriptions that are still being opened for a daemon that is gone are spared in the same way.
//!
//! At the same moment it is asked which of its operations that this shard has a part in are over,
//! since what it said of them may have been lost.
//!
//! An open whose answer a node has given up it names itself, behind that request on its way.

use mayfly_types::{OpenRef, SessionId};

use crate::{
    api::{Caller, Reached},
    maps::HashSet,
    message::{Answer, Description, Question},
    shard::{Shard, state::task::Purpose},
    shards::{
        numbering::{node_of_owner, origin, session_elsewhere, session_of_node},
        slots::ShardId,
    },
};

impl Shard {
    /// A node can be reached, perhaps again: asks it what it may not have been able to tell.
    pub(super) fn ask_what_was_missed(&mut self, node: u32, reached: Reached) {
        let numbering = self.place.numbering;
        if reached == Reached::Restarted {
            self.end_what_was_agreed(node);
        }
        for transaction in self.unfinished_of(|shard| numbering.node_of(shard) == node) {
            let coordinator = ShardId(transaction.shard());
            self.ask(
                coordinator,
                Question::IsOver(transaction),
                Purpose::PrepareLocks(transaction),
            );
        }
        if reached == Reached::Restarted {
            let theirs = |caller: &&Caller| origin(caller.session).is_some_and(|of| of.0 == node);
            let unheard: Vec<Caller> = self.remote.noted().filter(theirs).copied().collect();
            self.remote.unheard.extend(unheard);
        }
        let proxied = self.open_for(node);
        if proxied.is_empty() {
            return;
        }
        self.remote.asked_about.extend(proxied.iter().map(|proxied| caller_of(node, proxied)));
        self.ask(numbering.front_of(node), Question::Proxies(proxied), Purpose::Proxies(node));
    }

    /// What the daemon before asked for and was not given yet nobody waits for. Each of the node's
    /// shards says that it is back, too, but that may be given up before it gets here.
    fn end_what_was_agreed(&mut self, node: u32) {
        let numbering = self.place.numbering;
        let theirs = |shard: ShardId| numbering.node_of(shard) == node;
        self.forget_prepares(|transaction| theirs(ShardId(transaction.shard())));
        for shard in (0..numbering.all()).map(ShardId).filter(|shard| theirs(*shard)) {
            self.let_ends_of(shard);
        }
    }

    /// Requests that made descriptions before this daemon was restarted are over. One that came
    /// again may have been executed elsewhere, since its path leads elsewhere by now, and until
    /// then its node left it out. So the node is asked whether it stands for what it has here.
    pub(crate) fn ask_for_proxies(&mut self, made: &[Caller]) {
        for made in made {
            let Caller { session, lane, request_id } = *made;
            let index = self.files.unclaimed_opens.get(made).copied();
            let found = index.and_then(|index| self.files.opens.at(index));
            let (Some((node, session)), Some((open, found))) = (origin(session), found) else {
                continue;
            };
            let theirs = node_of_owner(found.session) == Some(node);
            if theirs && self.files.opens.made_by(open.index) == *made {
                self.remote.asked_about.insert(*made);
                let proxied = vec![Description { open, session, lane, request_id }];
                let front = self.place.numbering.front_of(node);
                self.ask(front, Question::Proxies(proxied), Purpose::Proxies(node));
            }
        }
    }

    /// The descriptions that are open here for a node, without those that are being opened.
    fn open_for(&self, node: u32) -> Vec<Description> {
        let mut proxied = Vec::new();
        for open in self.files.opens.of_session(session_of_node(node)) {
            let made_by = self.files.opens.made_by(open.index);
            let Caller { session, lane, request_id } = made_by;
            let known = self.remote.is_noted(made_by) || self.remote.spared.contains_key(&made_by);
            if let Some((_, session)) = origin(session).filter(|_| !known) {
                proxied.push(Description { open, session, lane, request_id });
            }
        }
        proxied
    }

    /// For which of them nothing here stands.
    pub(crate) fn answer_unheld(&self, shard: ShardId, proxied: &[Description]) -> Answer {
        let ended = self.remote.behind.ended_at().filter(|remote| remote.shard == shard);
        let ended = ended.map(|remote| remote.open);
        let held: HashSet<OpenRef> = self.files.opens.proxied_at(shard).chain(ended).collect();
        let opens = proxied.iter().map(|proxied| proxied.open);
        Answer::Unheld(opens.filter(|open| !held.contains(open)).collect())
    }

    /// Ends what a node does not stand for.
    pub(crate) fn proxies_answered(&mut self, node: u32, question: &Question, answer: &Answer) {
        let Question::Proxies(proxied) = question else { return };
        let unheld = match answer {
            Answer::Unheld(unheld) => unheld.as_slice(),
            _ => &[],
        };
        let unheld: HashSet<OpenRef> = unheld.iter().copied().collect();
        for proxied in proxied {
            let caller = caller_of(node, proxied);
            if !self.remote.asked_about.remove(&caller) || !unheld.contains(&proxied.open) {
                continue;
            }
            let theirs =
                self.files.opens.get(proxied.open).map(|found| node_of_owner(found.session));
            if theirs != Ok(Some(node)) || self.files.opens.made_by(proxied.open.index) != caller {
                continue;
            }
            if self.has_answer(caller) {
                self.remote.spared.insert(caller, proxied.open);
            } else {
                self.files.unclaimed_opens.remove(&caller);
                self.end_open(proxied.open);
            }
        }
    }

    /// No answer to this open is taken any more: nobody has what it made, nor stands for it.
    pub(super) fn give_up_open(&mut self, caller: Caller) {
        let owner = origin(caller.session).map(|(node, _)| session_of_node(node));
        for open in self.files.opens.of_session(owner.unwrap_or(caller.session)) {
            if self.files.opens.made_by(open.index) == caller {
                self.files.unclaimed_opens.remove(&caller);
                self.remote.spared.remove(&caller);
                self.end_open(open);
            }
        }
    }

    /// A node says that a lane of its process goes on with this request.
    pub(crate) fn lane_goes_on_at(
        &mut self,
        from: ShardId,
        (session, lane, request_id): (SessionId, u32, u64),
    ) {
        let session = session_elsewhere(self.place.numbering.node_of(from), session);
        self.lane_goes_on(Caller { session, lane, request_id });
    }

    /// A lane of another node's process goes on: when that is behind the request that made a spared
    /// description, nobody will stand for it. One before it was given up, and comes again first.
    pub(crate) fn lane_goes_on(&mut self, caller: Caller) {
        if !self.remote.asked_about.is_empty() {
            self.remote.asked_about.remove(&caller);
        }
        if !self.remote.unheard.is_empty() {
            self.remote.unheard.remove(&caller);
        }
        if self.remote.spared.is_empty() {
            return;
        }
        self.end_spared(|made| caller.is_behind(*made));
        self.remote.spared.remove(&caller);
    }

    /// A request has been executed. When it came from a daemon that is gone, and not again since,
    /// nobody stands yet for what it has opened.
    pub(super) fn spare_unheard(&mut self, caller: Caller) {
        if self.remote.unheard.is_empty() || !self.remote.unheard.remove(&caller) {
            return;
        }
        let Some((node, _)) = origin(caller.session) else { return };
        let opens = self.files.opens.of_session(session_of_node(node));
        let made = opens.into_iter().find(|open| self.files.opens.made_by(open.index) == caller);
        self.remote.spared.extend(made.map(|open| (caller, open)));
    }

    /// Ends spared descriptions that nobody will stand for.
    pub(super) fn end_spared(&mut self, is_it: impl Fn(&Caller) -> bool) {
        for (_, open) in self.remote.spared.extract_if(|made, _| is_it(made)).collect::<Vec<_>>() {
            self.end_open(open);
        }
    }
}

/// Who made it, as that is called here.
fn caller_of(node: u32, proxied: &Description) -> Caller {
    let session = session_elsewhere(node, proxied.session);
    Caller { session, lane: proxied.lane, request_id: proxied.request_id }
}

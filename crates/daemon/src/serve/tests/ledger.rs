//! A file system that only remembers what it did.
//!
//! `MakeDirectory` writes its path down, as do releases and ends of sessions; `Lock` waits until it
//! is cancelled; the rest is ENOSYS. A commit is one `write` of a line: transaction number and
//! paths. The kernel keeps it when we are killed, but a kill may end the `write` where a page of
//! the file ends. So a line without an end is no commit, and who opens the ledger cuts it off.
//!
//! Of several shards each has a ledger. A path belongs to the one that its hash says; the first
//! shard sends it there, a third of them with a stop on the way, and writes down that it did. Locks
//! belong to the second shard. At each start every shard asks all others something, and is
//! recovering until they have answered.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use mayfly_transport_tcp::Body;
use mayfly_types::{Errno, FileId, SessionId};
use mayfly_wire::{Op, Request};

use crate::{
    Message, ShardId,
    message::{Answer, Forward, Question, Resolved},
    serve::{Caller, Completion, Opener, Place, Progress, Reached, Service},
};

/// The ledgers of a daemon.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledgers {
    pub(super) directory: PathBuf,
    pub(super) shards: u32,
    /// This shard cannot commit what was made by requests.
    pub(super) failing: Option<u32>,
    /// This shard cannot be opened, in this step.
    pub(super) refusing: Option<(u32, u32)>,
    /// Opening changes something.
    pub(super) changing: bool,
    /// Shards that are recovering.
    pub(super) recovering: Arc<AtomicU32>,
}

impl Ledgers {
    pub(super) fn new(directory: &Path, shards: u32) -> Ledgers {
        Ledgers { directory: directory.to_owned(), shards, ..Ledgers::default() }
    }

    fn path(&self, shard: u32) -> PathBuf {
        self.directory.join(format!("ledger-{shard}"))
    }

    /// The transactions of a shard.
    pub(super) fn read_shard(&self, shard: u32) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(self.path(shard)).unwrap_or_default();
        text.lines().map(|line| line.split(' ').skip(1).map(str::to_owned).collect()).collect()
    }

    /// Each line is what one commit has written: its number is its place.
    pub(super) fn check_lines(&self) {
        for shard in 0..self.shards {
            let text = std::fs::read_to_string(self.path(shard)).unwrap_or_default();
            for (before, line) in text.split_inclusive('\n').enumerate() {
                let number = line.split(' ').next().and_then(|number| number.parse().ok());
                let is_whole = line.ends_with('\n') && number == Some(before + 1);
                assert!(is_whole, "line {} of shard {shard} is no commit: {line}", before + 1);
            }
        }
    }

    /// What a kill has left of a commit goes.
    fn cut_unfinished(&self, shard: u32) -> Result<(), String> {
        let text = std::fs::read_to_string(self.path(shard)).unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if whole == text.len() {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(self.path(shard));
        file.and_then(|file| file.set_len(whole as u64)).map_err(|error| error.to_string())
    }

    /// The transactions of all shards.
    pub(super) fn read(&self) -> Vec<Vec<String>> {
        (0..self.shards).flat_map(|shard| self.read_shard(shard)).collect()
    }

    /// Those of the shard that has the locks.
    pub(super) fn read_locks(&self) -> Vec<Vec<String>> {
        self.read_shard(owner_of_locks(self.shards))
    }

    /// What came to another shard was written down as sent before.
    pub(super) fn check_senders(&self) {
        let sent: HashSet<String> = self.read_shard(0).into_iter().flatten().collect();
        for name in (1..self.shards).flat_map(|shard| self.read_shard(shard)).flatten() {
            // Other entries are not requests.
            if name.starts_with(|first: char| first.is_ascii_digit()) {
                assert!(sent.contains(&format!("sent-{name}")), "{name} came out of nowhere");
            }
        }
    }

    fn refuse(&self, place: &Place, step: u32) -> Result<(), String> {
        let refused = self.refusing == Some((place.shard(), step));
        if refused { Err(format!("shard {} is broken", place.shard())) } else { Ok(()) }
    }
}

fn owner_of_locks(shards: u32) -> u32 {
    u32::from(shards > 1)
}

/// Shard of a path.
pub(super) fn owner(path: &[u8], shards: u32) -> u32 {
    path.iter().fold(7_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(*byte)))
        % shards
}

impl Opener for Ledgers {
    type Store = u64;
    type Service = Ledger;
    type Error = String;

    fn store(&self, place: &Place) -> Result<(u64, u64), String> {
        self.refuse(place, 1)?;
        self.cut_unfinished(place.shard())?;
        self.recovering.fetch_add(u32::from(self.shards > 1), SeqCst);
        let committed = self.read_shard(place.shard()).len() as u64;
        Ok((committed, committed))
    }

    fn service(&self, place: &Place, committed: u64) -> Result<Ledger, String> {
        self.refuse(place, 2)?;
        let shard = place.shard();
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.path(shard))
            .map_err(|error| error.to_string())?;
        let question = || Message::Ask(u64::from(shard), Question::Directory(FileId::ROOT));
        let others = (0..self.shards).filter(|other| *other != shard);
        let outbox: Vec<_> = others.map(|other| (ShardId(other), question())).collect();
        Ok(Ledger {
            file,
            shard,
            shards: self.shards,
            committed,
            open: if self.changing { vec!["opened".to_owned()] } else { Vec::new() },
            waiting: Vec::new(),
            executed: Vec::new(),
            answered: Vec::new(),
            asked: outbox.len(),
            outbox,
            recovering: Arc::clone(&self.recovering),
            fails: self.failing == Some(shard),
        })
    }
}

pub(super) struct Ledger {
    file: File,
    shard: u32,
    shards: u32,
    committed: u64,
    open: Vec<String>,
    waiting: Vec<Caller>,
    /// Answers that become true with the commit.
    executed: Vec<Completion>,
    /// Answers that rest on nothing.
    answered: Vec<Completion>,
    outbox: Vec<(ShardId, Message)>,
    /// Questions that were not answered yet.
    asked: usize,
    recovering: Arc<AtomicU32>,
    fails: bool,
}

fn completion(caller: Caller, status: u32) -> Completion {
    Completion::new(caller, status, Body::default())
}

impl Ledger {
    fn send_on(&mut self, to: u32, caller: Caller, op: Op, body: &[u8]) -> Progress {
        let forward =
            Forward { caller, op, body: body.to_vec().into(), place: Resolved::default() };
        self.outbox.push((ShardId(to), Message::Forward(Box::new(forward))));
        Progress::Pending
    }

    fn make(&mut self, caller: Caller, path: &[u8]) -> Progress {
        let owner = owner(path, self.shards);
        let name = String::from_utf8_lossy(path).into_owned();
        if owner == self.shard {
            self.open.push(name);
            return Progress::Replied(0, 0);
        }
        self.open.push(format!("sent-{name}"));
        let stop = if path.len().is_multiple_of(3) { (owner + 1) % self.shards } else { owner };
        let next = if stop == self.shard { owner } else { stop };
        self.send_on(next, caller, Op::MakeDirectory, path)
    }

    fn cancel(&mut self, session: SessionId, request_id: u64) {
        let asked = |c: &Caller| c.session == session && c.request_id == request_id;
        let status = Errno::EINTR.raw() as u32;
        let cancelled = self.waiting.extract_if(.., |c| asked(c));
        self.answered.extend(cancelled.map(|caller| completion(caller, status)));
    }

    fn execute(&mut self, forward: Forward) {
        let Forward { caller, op, body, .. } = forward;
        let body = body.to_vec();
        match op {
            Op::MakeDirectory if owner(&body, self.shards) == self.shard => {
                self.open.push(String::from_utf8_lossy(&body).into_owned());
                self.executed.push(completion(caller, 0));
            }
            Op::MakeDirectory => {
                self.send_on(owner(&body, self.shards), caller, op, &body);
            }
            Op::Lock => self.waiting.push(caller),
            _ => self.executed.push(completion(caller, Errno::ENOSYS.raw() as u32)),
        }
    }
}

impl Service for Ledger {
    fn may_move(&self) -> bool {
        true
    }

    fn handle(&mut self, caller: Caller, request: Request<'_>, _body: &mut [u8]) -> Progress {
        assert_eq!(self.recovering.load(SeqCst), 0, "requests wait for the recovery");
        let locks = owner_of_locks(self.shards);
        match request {
            Request::Ping(_) => Progress::Replied(0, 0),
            Request::MakeDirectory(make) => self.make(caller, make.walk.path),
            Request::Lock(_) if locks != self.shard => self.send_on(locks, caller, Op::Lock, &[]),
            Request::TestLock(_) if locks != self.shard => {
                self.send_on(locks, caller, Op::TestLock, &[])
            }
            Request::Lock(_) => {
                self.waiting.push(caller);
                Progress::Pending
            }
            Request::Cancel(cancel) => {
                self.cancel(caller.session, cancel.request_id);
                if locks != self.shard {
                    let message = Message::Cancel(caller.session, cancel.request_id);
                    self.outbox.push((ShardId(locks), message));
                }
                Progress::Replied(0, 0)
            }
            _ => Progress::Replied(Errno::ENOSYS.raw() as u32, 0),
        }
    }

    fn opened_content(&mut self) -> Option<Vec<u8>> {
        None
    }

    fn deliver(&mut self, from: ShardId, message: Message) {
        match message {
            Message::Forward(forward) | Message::Unheard(forward) => self.execute(*forward),
            Message::Cancel(session, request_id) => self.cancel(session, request_id),
            Message::Ask(id, _) => self.outbox.push((from, Message::Answer(id, Answer::Done))),
            Message::LookAgain(..) => unreachable!("a ledger has no locks"),
            Message::GivenUp(_) | Message::OwnDone(_) | Message::SendOn(..) => {}
            Message::Proceed => unreachable!("a ledger sends itself nothing"),
            Message::Answer(..) => {
                self.asked -= 1;
                if self.asked == 0 {
                    self.recovering.fetch_sub(1, SeqCst);
                }
            }
        }
    }

    fn answers(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.executed)
    }

    fn outbox(&mut self) -> Vec<(ShardId, Message)> {
        assert!(self.open.is_empty(), "messages are sent after the commit");
        std::mem::take(&mut self.outbox)
    }

    fn is_recovering(&self) -> bool {
        self.asked > 0
    }

    fn batch_transaction(&self) -> u64 {
        if self.open.is_empty() { 0 } else { (u64::from(self.shard) << 48) | (self.committed + 1) }
    }

    fn commit(&mut self) -> Result<u64, Errno> {
        if self.fails {
            self.open.clear();
            return Err(Errno::ENOSPC);
        }
        assert!(self.executed.is_empty(), "answers are stored before the commit");
        let line = format!("{} {}\n", self.committed + 1, self.open.join(" "));
        self.file.write_all(line.as_bytes()).map_err(|_| Errno::EIO)?;
        self.open.clear();
        self.committed += 1;
        Ok(self.committed)
    }

    fn adopt_open(
        &mut self,
        _caller: Caller,
        _shard: ShardId,
        _request: &[u8],
        answer: &[u8],
    ) -> (u32, Vec<u8>) {
        (0, answer.to_vec())
    }

    fn learn(&mut self, _place: &Resolved) {}

    fn session_opened(&mut self, _session: SessionId, _pid: u32) {}

    fn end_strangers(&mut self, _node: u32, _living: &[(SessionId, u32)]) {}

    fn node_reached(&mut self, _node: u32, _reached: Reached) {}

    fn session_closed(&mut self, session: SessionId) {
        self.waiting.retain(|caller| caller.session != session);
        // As a long end of a session does.
        if !self.open.is_empty() && !self.fails {
            self.commit().expect("written");
        }
        self.open.push(format!("closed-{}", session.0));
    }

    fn written(&mut self) -> Vec<FileId> {
        Vec::new()
    }

    fn open_released(&mut self, index: u32) {
        self.open.push(format!("released-{index}"));
    }

    fn submitted_on(&mut self) -> Option<(u32, u32)> {
        None
    }

    fn recall(&mut self) -> bool {
        false
    }

    fn completions(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.answered)
    }

    fn due(&self) -> Option<std::time::Duration> {
        None
    }

    fn idle_work(&mut self) -> bool {
        false
    }
}

//! A process of the study: acts, a few of them under way at a time, each in a lane of its own.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use anyhow::{Context, Result};
use mayfly_sim::{lanes::Lanes, node::Node};
use mayfly_transport_shm::layout::NodeRegion;
use mayfly_types::{Errno, FileId, OpenRef, limits::LANES};
use mayfly_wire::{
    Close, MakeDirectory, Open, OpenReply, Read, Reader, Request, Stat, Target, Unlink, WALK_EMPTY,
    Walk, Wire, Write,
};

use super::PROCESSES;

const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;

/// What a process does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Makes a directory.
    MakeDirectory(String),
    /// Makes a file; closing it is posted.
    Create(String),
    /// Opens a file, which further acts use.
    Open(String),
    /// Looks at a name.
    Stat(String),
    /// Removes a name.
    Unlink(String),
    /// Writes so many bytes at this offset of the open file.
    Write(u64, u32),
    /// Reads them.
    Read(u64, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Open,
    Close,
    Other,
}

/// A session, whose lanes several processes use.
type Session = Rc<RefCell<Lanes>>;

#[derive(Debug)]
struct Slot {
    session: Session,
    lane: usize,
    /// What is under way in it: the request's number.
    busy: Option<(u64, Kind)>,
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) node: u32,
    slots: Vec<Slot>,
    acts: VecDeque<Act>,
    /// Files to be closed, for which nobody waits.
    posted: VecDeque<OpenRef>,
    open: Option<OpenRef>,
    depth: usize,
}

/// What a process heard.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) answers: u64,
    pub(super) done: u64,
}

/// Sessions with lanes for all processes of a node.
pub(super) fn attach(node: &mut Node, lanes: u32) -> Result<Vec<Session>> {
    let count = (PROCESSES * lanes).div_ceil(LANES as u32);
    let one = |_| {
        let (_, lanes) = node.attach().context("a session for the study")?;
        Ok(Rc::new(RefCell::new(lanes)))
    };
    (0..count).map(one).collect()
}

/// Deals the lanes of a node's sessions out to its processes.
pub(super) fn share(
    node: u32,
    sessions: Vec<Session>,
    lanes: u32,
) -> impl Iterator<Item = Process> {
    (0..PROCESSES).map(move |process| {
        let slot = |at: u32| {
            let number = (process * lanes + at) as usize;
            let session = Rc::clone(&sessions[number / LANES]);
            Slot { session, lane: number % LANES, busy: None }
        };
        Process {
            node,
            slots: (0..lanes).map(slot).collect(),
            acts: VecDeque::new(),
            posted: VecDeque::new(),
            open: None,
            depth: 1,
        }
    })
}

fn walk(path: &str) -> Walk<'_> {
    Walk { start: FileId::ROOT, flags: WALK_EMPTY, path: path.as_bytes() }
}

fn open(path: &str, flags: u32) -> Request<'_> {
    Request::Open(Open { walk: walk(path), flags, mode: 0o644, uid: 1, gid: 1 })
}

impl Process {
    pub(super) fn begin(&mut self, acts: Vec<Act>, depth: usize) {
        (self.acts, self.depth) = (acts.into(), depth);
    }

    pub(super) fn is_done(&self) -> bool {
        let is_idle = self.slots.iter().all(|slot| slot.busy.is_none());
        self.acts.is_empty() && self.posted.is_empty() && is_idle
    }

    /// Begins what can be begun; how many requests that is.
    pub(super) fn go_on(&mut self, node: &NodeRegion) -> u64 {
        let mut asked = 0;
        loop {
            let under_way = self.slots.iter().filter_map(|slot| slot.busy);
            let waited_for = under_way.filter(|busy| busy.1 != Kind::Close).count();
            let Some(slot) = self.slots.iter_mut().find(|slot| slot.busy.is_none()) else { break };
            if let Some(open) = self.posted.pop_front() {
                slot.submit(node, &Request::Close(Close { open }), Kind::Close);
            } else if waited_for < self.depth
                && let Some(act) = self.acts.pop_front()
            {
                slot.act(node, self.open, &act);
            } else {
                break;
            }
            asked += 1;
        }
        asked
    }

    /// Takes answers.
    pub(super) fn hear(&mut self) -> Result<Answers, String> {
        let mut heard = Answers::default();
        for slot in &mut self.slots {
            let Some((id, kind)) = slot.busy else { continue };
            let Some((status, body)) = slot.session.borrow_mut().reply(slot.lane, id) else {
                continue;
            };
            slot.busy = None;
            if status != 0 {
                return Err(format!("{kind:?} failed with {:?}", Errno::from_raw(status as i32)));
            }
            heard.answers += 1;
            heard.done += u64::from(kind != Kind::Close);
            if matches!(kind, Kind::Create | Kind::Open) {
                let reply = OpenReply::decode(&mut Reader::new(&body));
                let open = reply.map_err(|_| "the reply to an open cannot be read")?.opened.open;
                match kind {
                    Kind::Create => self.posted.push_back(open),
                    _ => self.open = Some(open),
                }
            }
        }
        Ok(heard)
    }
}

impl Slot {
    fn act(&mut self, node: &NodeRegion, opened: Option<OpenRef>, act: &Act) {
        let of_open = || opened.expect("the study opens a file before it uses it");
        match act {
            Act::MakeDirectory(path) => {
                let request = MakeDirectory { walk: walk(path), mode: 0o755, uid: 1, gid: 1 };
                self.submit(node, &Request::MakeDirectory(request), Kind::Other);
            }
            Act::Create(path) => {
                self.submit(node, &open(path, O_RDWR | O_CREAT | O_EXCL), Kind::Create);
            }
            Act::Open(path) => self.submit(node, &open(path, O_RDWR | O_CREAT), Kind::Open),
            Act::Stat(path) => {
                let request = Stat { target: Target::Path(walk(path)) };
                self.submit(node, &Request::Stat(request), Kind::Other);
            }
            Act::Unlink(path) => {
                let request = Unlink { walk: walk(path), directory: false };
                self.submit(node, &Request::Unlink(request), Kind::Other);
            }
            Act::Write(offset, count) => {
                let bytes = vec![7; *count as usize];
                let request =
                    Write { open: of_open(), offset: *offset, append: false, bytes: &bytes };
                self.submit(node, &Request::Write(request), Kind::Other);
            }
            Act::Read(offset, count) => {
                let request = Read { open: of_open(), offset: *offset, count: *count };
                self.submit(node, &Request::Read(request), Kind::Other);
            }
        }
    }

    fn submit(&mut self, node: &NodeRegion, request: &Request<'_>, kind: Kind) {
        let id = self.session.borrow_mut().submit(node, self.lane, request);
        self.busy = Some((id, kind));
    }
}

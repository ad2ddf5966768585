//! A process of the study: acts, a few of them under way at a time, each in a lane of its own.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use anyhow::{Context, Result};
use mayfly_sim::{lanes::Lanes, node::Node};
use mayfly_transport_shm::layout::NodeRegion;
use mayfly_types::{Errno, FileId, OpenRef};
use mayfly_wire::{
    Close, MakeDirectory, Open, OpenReply, Read, Reader, Request, Stat, Target, Unlink, WALK_EMPTY,
    Walk, Wire, Write,
};

const O_RDONLY: u32 = 0;
const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;

/// Sessions of a node.
const SESSIONS: u32 = 4;

/// Lanes that several processes use.
type Session = Rc<RefCell<Lanes>>;

/// What a process does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Makes a directory.
    MakeDirectory(String),
    /// Makes a file; closing it is submitted.
    Create(String),
    /// Opens a file for reading, whose content comes with the answer; closing it is submitted.
    Look(String),
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

#[derive(Debug)]
struct Slot {
    lane: usize,
    /// What is under way in it: the request's number.
    busy: Option<(u64, Kind)>,
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) node: u32,
    /// Its session's number.
    pub(super) number: u32,
    session: Session,
    slots: Vec<Slot>,
    acts: VecDeque<Act>,
    /// Files to be closed, for which nobody waits.
    submitted: VecDeque<OpenRef>,
    open: Option<OpenRef>,
    depth: usize,
    /// It looks at something by itself until then.
    busy_until_ns: u64,
}

/// What a process heard.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) answers: u64,
    pub(super) done: u64,
}

/// `count` processes of a node, each with so many lanes. In the product each has a session of its
/// own; here some share one, since a session is several descriptors of this one process. Neighbours
/// do not: a daemon looks at the lanes of a session that asks alone without a look at the others',
/// and then takes requests in smaller batches.
pub(super) fn attach(number: u32, node: &mut Node, count: u32, lanes: u32) -> Result<Vec<Process>> {
    let sessions = (0..SESSIONS).map(|_| {
        let (number, session) = node.attach().context("a session for the study")?;
        Ok((number, Rc::new(RefCell::new(session))))
    });
    let sessions = sessions.collect::<Result<Vec<(u32, Session)>>>()?;
    let one = |process: u32| {
        let first = process / SESSIONS * lanes;
        let slot = |at: u32| Slot { lane: (first + at) as usize, busy: None };
        let (session_number, session) = &sessions[(process % SESSIONS) as usize];
        Process {
            node: number,
            number: *session_number,
            session: Rc::clone(session),
            slots: (0..lanes).map(slot).collect(),
            acts: VecDeque::new(),
            submitted: VecDeque::new(),
            open: None,
            depth: 1,
            busy_until_ns: 0,
        }
    };
    Ok((0..count).map(one).collect())
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
        self.acts.is_empty() && self.submitted.is_empty() && is_idle
    }

    /// The file that it reads next, by opening it.
    pub(super) fn looks_at(&self) -> Option<&Act> {
        let is_free = self.slots.iter().all(|slot| slot.busy.is_none());
        let act = self.acts.front().filter(|act| matches!(act, Act::Look(_) | Act::Stat(_)));
        act.filter(|_| is_free)
    }

    /// It does so by itself, until then.
    pub(super) fn looks_until(&mut self, until_ns: u64) {
        self.acts.pop_front();
        self.busy_until_ns = until_ns;
    }

    /// Whether it looks at something by itself.
    pub(super) fn is_looking(&self, now_ns: u64) -> bool {
        now_ns < self.busy_until_ns
    }

    /// Begins what can be begun; how many requests that is.
    pub(super) fn go_on(&mut self, node: &NodeRegion) -> u64 {
        let mut asked = 0;
        loop {
            let under_way = self.slots.iter().filter_map(|slot| slot.busy);
            let waited_for = under_way.filter(|busy| busy.1 != Kind::Close).count();
            let Some(slot) = self.slots.iter_mut().find(|slot| slot.busy.is_none()) else { break };
            let session = &mut self.session.borrow_mut();
            if let Some(open) = self.submitted.pop_front() {
                slot.submit(session, node, &Request::Close(Close { open }), Kind::Close);
            } else if waited_for < self.depth
                && let Some(act) = self.acts.pop_front()
            {
                slot.act(session, node, self.open, &act);
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
            let Some((status, body)) = self.session.borrow_mut().reply(slot.lane, id) else {
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
                    Kind::Create => self.submitted.push_back(open),
                    _ => self.open = Some(open),
                }
            }
        }
        Ok(heard)
    }
}

impl Slot {
    fn act(&mut self, session: &mut Lanes, node: &NodeRegion, opened: Option<OpenRef>, act: &Act) {
        let mut submit = |request: &Request<'_>, kind| self.submit(session, node, request, kind);
        let of_open = || opened.expect("the study opens a file before it uses it");
        match act {
            Act::MakeDirectory(path) => {
                let request = MakeDirectory { walk: walk(path), mode: 0o755, uid: 1, gid: 1 };
                submit(&Request::MakeDirectory(request), Kind::Other);
            }
            Act::Create(path) => {
                submit(&open(path, O_RDWR | O_CREAT | O_EXCL), Kind::Create);
            }
            Act::Look(path) => submit(&open(path, O_RDONLY), Kind::Create),
            Act::Open(path) => submit(&open(path, O_RDWR | O_CREAT), Kind::Open),
            Act::Stat(path) => {
                let request = Stat { target: Target::Path(walk(path)) };
                submit(&Request::Stat(request), Kind::Other);
            }
            Act::Unlink(path) => {
                let request = Unlink { walk: walk(path), directory: false };
                submit(&Request::Unlink(request), Kind::Other);
            }
            Act::Write(offset, count) => {
                let bytes = vec![7; *count as usize];
                let request =
                    Write { open: of_open(), offset: *offset, append: false, bytes: &bytes };
                submit(&Request::Write(request), Kind::Other);
            }
            Act::Read(offset, count) => {
                let request = Read { open: of_open(), offset: *offset, count: *count };
                submit(&Request::Read(request), Kind::Other);
            }
        }
    }

    fn submit(
        &mut self,
        session: &mut Lanes,
        node: &NodeRegion,
        request: &Request<'_>,
        kind: Kind,
    ) {
        let id = session.submit(node, self.lane, request);
        self.busy = Some((id, kind));
    }
}

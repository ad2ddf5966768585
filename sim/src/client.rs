//! A client: a process that does one thing after the other and notes what it hears.

mod expected;
mod heard;
pub mod locking;
mod making;
pub mod own;
pub mod scraps;
mod sessions;
mod submitting;

use std::collections::{BTreeMap, VecDeque};

use mayfly_types::{Errno, FileId, OpenRef, limits::LANES};
use mayfly_wire::{
    Close, Link, List, Listing, MakeDirectory, Open, OpenReply, Read, Reader, Rename, Request,
    SET_SIZE, SetAttr, Stat, Target, Unlink, WALK_EMPTY, Walk, Wire, Write, listing,
};

use self::{
    expected::Expected,
    heard::heard_attr,
    locking::{Held, Locking},
    making::Making,
    own::{Heed, Of, Own, Work},
    sessions::Row,
};
use crate::{
    bytes::{BLOCK_BYTES, block, bytes_of},
    dice::Dice,
    history::{BytesOp, EntryOp, Event, Heard, NameOp, Op},
    lanes::Lanes,
    names::Group,
    node::Node,
    plan::Act,
};
pub use sessions::Opening;

const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;
const O_DIRECTORY: u32 = 0o200_000;
/// A page of a listing, bytes: a few entries.
const PAGE_BYTES: u32 = 300;

/// What a request is for.
#[derive(Debug, Clone)]
enum What {
    Create {
        bytes: u32,
    },
    OpenFile {
        file: usize,
        then: BytesOp,
        since_ns: u64,
    },
    Bytes(BytesOp),
    /// What was written is sent on.
    Flush,
    Row(Row),
    Plain,
    Stat,
    /// An entry is looked at of which this client knows something.
    Looked(Expected),
    Add {
        directory: usize,
        name: String,
    },
    OpenDirectory {
        directory: usize,
    },
    Page {
        open: OpenRef,
        names: Vec<String>,
    },
    OpenScrap,
    OpenLocked {
        file: u8,
    },
    /// For a lock, or to give one back.
    Lock(Option<Held>),
    /// For a transfer by the process itself, when the generation was this.
    Leave {
        work: Work,
        writable: bool,
        before: u32,
    },
    Unnoted,
}

#[derive(Debug)]
struct Doing {
    what: What,
    lane: usize,
    request_id: u64,
    /// Its place in the history.
    event: Option<usize>,
}

/// What all clients share.
#[derive(Debug)]
pub struct Common {
    /// What happened.
    pub history: Vec<Event>,
    /// Groups of names.
    pub groups: Vec<Group>,
    /// Paths that are made before and removed after everything else; whether they are directories.
    pub paths: Vec<(String, bool)>,
    /// The present, nanoseconds.
    pub now_ns: u64,
    /// Answers to requests so far.
    pub answers: u64,
    /// Operations that were submitted without asking.
    pub submitted: u64,
    /// What a client has seen that is wrong by itself.
    pub wrong: Vec<String>,
}

impl Common {
    fn hear(&mut self, event: usize, heard: Heard) {
        let event = &mut self.history[event];
        event.to_ns = (heard != Heard::Unknown).then_some(self.now_ns);
        event.heard = heard;
    }
}

/// A process, or several in succession.
#[derive(Debug)]
pub struct Client {
    number: usize,
    /// Its node.
    pub node: u32,
    opening: Opening,
    session: Option<(u32, Lanes)>,
    acts: VecDeque<(u64, Act)>,
    made: VecDeque<OpenRef>,
    files: BTreeMap<usize, OpenRef>,
    entries: Vec<(usize, String)>,
    /// The modes of those that it has changed and not looked at since.
    modes: BTreeMap<String, u32>,
    /// The lengths of those that it has written to objects of its own making, in the same way.
    lengths: BTreeMap<String, u64>,
    /// The object that it is making.
    making: Option<Making>,
    /// Those that are open, the first one first.
    scraps: VecDeque<OpenRef>,
    locking: Locking,
    last_entry: u32,
    /// What it does without the daemon, if it does.
    own: Option<Own>,
    /// Whether it submits what it has delegated.
    submits: bool,
    doing: Option<Doing>,
    /// Which process it is.
    pub life: u64,
}

fn walk(path: &str) -> Walk<'_> {
    Walk { start: FileId::ROOT, flags: WALK_EMPTY, path: path.as_bytes() }
}

fn open(path: &str, flags: u32) -> Request<'_> {
    Request::Open(Open { walk: walk(path), flags, mode: 0o644, uid: 1, gid: 1 })
}

fn directory(path: &str) -> Request<'_> {
    Request::MakeDirectory(MakeDirectory { walk: walk(path), mode: 0o755, uid: 1, gid: 1 })
}

fn unlink(path: &str, directory: bool) -> Request<'_> {
    Request::Unlink(Unlink { walk: walk(path), directory })
}

fn cut(target: Target<'_>, blocks: u8) -> Request<'_> {
    Request::SetAttr(SetAttr {
        target,
        which: SET_SIZE,
        mode: 0,
        uid: 0,
        gid: 0,
        size_bytes: bytes_of(blocks),
        atime: Default::default(),
        mtime: Default::default(),
    })
}

fn close(open: OpenRef) -> Request<'static> {
    Request::Close(Close { open })
}

fn decode<'a, T: Wire<'a>>(body: &'a [u8]) -> T {
    T::decode(&mut Reader::new(body)).expect("a daemon's replies can be read")
}

impl Client {
    /// One that does these things.
    #[must_use]
    pub fn new(number: usize, node: u32, acts: Vec<(u64, Act)>, opening: Opening) -> Client {
        Client {
            own: None,
            submits: false,
            number,
            node,
            opening,
            session: None,
            acts: acts.into(),
            made: VecDeque::new(),
            files: BTreeMap::new(),
            entries: Vec::new(),
            modes: BTreeMap::new(),
            lengths: BTreeMap::new(),
            making: None,
            scraps: VecDeque::new(),
            locking: Locking::default(),
            last_entry: 0,
            doing: None,
            life: 0,
        }
    }

    /// It reads and writes by itself what it has leave for.
    #[must_use]
    pub fn by_itself(self, dice: Dice, heed: Heed) -> Client {
        Client { own: Some(Own::new(dice, heed)), ..self }
    }

    /// It makes and removes names without asking where that is delegated to it.
    #[must_use]
    pub fn submitting(self) -> Client {
        Client { submits: true, ..self }
    }

    fn is_at_it(&self) -> bool {
        self.own.as_ref().is_some_and(Own::is_busy)
    }

    /// Whether everything is done, or given up.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.acts.is_empty() && self.doing.is_none() && !self.is_at_it() && self.session.is_none()
    }

    /// Gives up what it has not begun.
    pub fn give_up(&mut self) {
        self.acts.clear();
    }

    /// The pause before the next thing.
    #[must_use]
    pub fn pause_ns(&self) -> u64 {
        if let Some(own) = self.own.as_ref().filter(|own| own.is_busy()) {
            return own.stall_ns();
        }
        self.acts.front().map_or(0, |act| act.0)
    }

    /// Number of the request that is under way.
    #[must_use]
    pub fn request(&self) -> Option<u64> {
        self.doing.as_ref().map(|doing| doing.request_id)
    }

    /// The process is killed.
    pub fn kill(&mut self, node: &mut Node) {
        self.doing = None;
        self.die_by_itself(node);
        self.end(node);
    }

    fn end(&mut self, node: &mut Node) {
        self.making = None;
        if let Some((session, _)) = self.session.take() {
            node.detach(session);
        }
        self.made.clear();
        self.files.clear();
        self.scraps.clear();
        self.locking = Locking::default();
        self.life += 1;
    }

    /// Nobody waits so long: the request is given up.
    pub fn abandon(&mut self, node: &Node) {
        let Some(doing) = self.doing.take() else { return };
        if let Some((_, lanes)) = &mut self.session {
            lanes.abandon(node.region(), doing.lane);
        }
    }

    /// Begins the next thing; false when there is nothing to wait for.
    pub fn begin(&mut self, node: &mut Node, common: &mut Common) -> bool {
        if self.doing.is_some() {
            return true;
        }
        if self.is_at_it() {
            self.go_on_by_itself(node, common);
            return self.doing.is_some();
        }
        if self.session.is_none() && !self.acts.is_empty() {
            self.session = node.attach();
            if self.session.is_none() {
                return false;
            }
        }
        self.go_on_making(node);
        let Some((_, act)) = self.acts.pop_front() else {
            self.end(node);
            return false;
        };
        self.act(node, common, act);
        self.doing.is_some()
    }

    fn act(&mut self, node: &Node, common: &mut Common, act: Act) {
        match act {
            Act::Name(group, op, bytes) => self.name(node, common, group, op, bytes),
            Act::Bytes(file, op) => self.begin_bytes(node, common, file, op),
            Act::CloseFile(file) => {
                if let Some(open) = self.files.remove(&file) {
                    self.ask(node, &close(open), What::Unnoted, None);
                }
            }
            Act::CloseMade => {
                if let Some(open) = self.made.pop_front() {
                    self.ask(node, &close(open), What::Unnoted, None);
                }
            }
            Act::Add(directory) => self.add(node, common, directory),
            Act::Remove(directory) => self.remove(node, common, directory),
            Act::List(directory) => {
                let path = format!("l{directory}");
                let what = What::OpenDirectory { directory };
                self.ask(node, &open(&path, O_DIRECTORY), what, None);
            }
            Act::Scrap(scrap) => self.scrap(node, scrap),
            Act::Lock(act) => self.lock(node, act),
            Act::Make(at) => {
                let (path, is_directory) = common.paths[at].clone();
                let request = match is_directory {
                    true => directory(&path),
                    false => open(&path, O_RDWR | O_CREAT | O_EXCL),
                };
                self.ask(node, &request, What::Unnoted, None);
            }
            Act::Clear(at) => {
                let (path, is_directory) = common.paths[at].clone();
                self.ask(node, &unlink(&path, is_directory), What::Unnoted, None);
            }
        }
    }

    fn name(&mut self, node: &Node, common: &mut Common, number: usize, op: NameOp, bytes: u32) {
        let group = common.groups[number];
        let event = self.note(common, Op::Name(number, op));
        let path = |place| group.path(number, place);
        let (first, second) = match op {
            NameOp::Rename(from, to) | NameOp::Link(from, to) => (path(from), path(to)),
            NameOp::Create(at)
            | NameOp::MakeDirectory(at)
            | NameOp::Unlink(at)
            | NameOp::RemoveDirectory(at)
            | NameOp::Stat(at) => (path(at), String::new()),
        };
        if self.submit_name(node, op, (&first, &second)) {
            return self.hear_at_once(common, event);
        }
        let (from, to) = (walk(&first), walk(&second));
        let (request, what) = match op {
            NameOp::Create(_) => (open(&first, O_RDWR | O_CREAT | O_EXCL), What::Create { bytes }),
            NameOp::MakeDirectory(_) => (directory(&first), What::Plain),
            NameOp::Unlink(_) => (unlink(&first, false), What::Plain),
            NameOp::RemoveDirectory(_) => (unlink(&first, true), What::Plain),
            NameOp::Rename(..) => (Request::Rename(Rename { from, to, flags: 0 }), What::Plain),
            NameOp::Link(..) => (Request::Link(Link { from: Target::Path(from), to }), What::Plain),
            NameOp::Stat(_) => (Request::Stat(Stat { target: Target::Path(from) }), What::Stat),
        };
        self.ask(node, &request, what, event);
    }

    fn begin_bytes(&mut self, node: &Node, common: &mut Common, file: usize, op: BytesOp) {
        let path = format!("d{file}");
        let by_name = matches!(op, BytesOp::Truncate(_) | BytesOp::Length);
        if self.opening == Opening::Session {
            // What was not closed since something failed goes with the process.
            self.files.clear();
        }
        if by_name && self.opening != Opening::Kept {
            return self.bytes_of(node, common, file, Target::Path(walk(&path)), op);
        }
        match self.files.get(&file) {
            Some(open) => self.bytes(node, common, file, *open, op),
            None => {
                let what = What::OpenFile { file, then: op, since_ns: common.now_ns };
                self.ask(node, &open(&path, O_RDWR), what, None);
            }
        }
    }

    fn bytes(&mut self, node: &Node, common: &mut Common, file: usize, open: OpenRef, op: BytesOp) {
        let event = self.note(common, Op::Bytes(file, op));
        self.work(node, Work { of: Of::File, open, op, event, tries: 0 });
    }

    /// Closes what it has had open for one thing.
    fn close_brief(&mut self, node: &Node) {
        if self.opening != Opening::Kept
            && let Some((_, open)) = self.files.pop_first()
        {
            self.ask(node, &close(open), What::Unnoted, None);
        }
    }

    fn work_by_request(&mut self, node: &Node, work: Work) {
        let Work { of, open, op, event, .. } = work;
        let block = match op {
            BytesOp::Write(_, of) | BytesOp::Append(of) => block(of),
            _ => Default::default(),
        };
        let request = match op {
            BytesOp::Write(at, _) => {
                Request::Write(Write { open, offset: bytes_of(at), append: false, bytes: &block })
            }
            BytesOp::Append(_) => {
                Request::Write(Write { open, offset: 0, append: true, bytes: &block })
            }
            BytesOp::Read(at) => {
                Request::Read(Read { open, offset: bytes_of(at), count: BLOCK_BYTES as u32 })
            }
            BytesOp::Truncate(blocks) => cut(Target::Open(open), blocks),
            BytesOp::Length => Request::Stat(Stat { target: Target::Open(open) }),
        };
        let what = match of {
            Of::File => What::Bytes(op),
            Of::Scrap => What::Unnoted,
        };
        self.ask(node, &request, what, event);
    }

    /// What does not need the file to be open.
    fn bytes_of(
        &mut self,
        node: &Node,
        common: &mut Common,
        file: usize,
        target: Target<'_>,
        op: BytesOp,
    ) {
        let event = self.note(common, Op::Bytes(file, op));
        let request = match op {
            BytesOp::Truncate(blocks) => cut(target, blocks),
            _ => Request::Stat(Stat { target }),
        };
        self.ask(node, &request, What::Bytes(op), event);
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the request has it")]
    fn note(&mut self, common: &mut Common, op: Op) -> Option<usize> {
        let (client, from_ns) = (self.number, common.now_ns);
        common.history.push(Event { client, op, from_ns, to_ns: None, heard: Heard::Unknown });
        Some(common.history.len() - 1)
    }

    fn ask(&mut self, node: &Node, request: &Request<'_>, what: What, event: Option<usize>) {
        let Some((_, lanes)) = &mut self.session else { return };
        // All lanes are in use only when requests were given up in all of them.
        let Some(lane) = (0..LANES).find(|lane| lanes.is_free(*lane)) else { return };
        let request_id = lanes.submit(node.region(), lane, request);
        self.doing = Some(Doing { what, lane, request_id, event });
    }

    /// Takes an answer, if it is there; true when the client has got further.
    pub fn hear(&mut self, node: &mut Node, common: &mut Common) -> bool {
        let (Some(doing), Some((_, lanes))) = (&self.doing, &mut self.session) else {
            return false;
        };
        let Some((status, body)) = lanes.reply(doing.lane, doing.request_id) else { return false };
        let Some(doing) = self.doing.take() else { return false };
        common.answers += 1;
        let heard = match status {
            0 => self.take(node, common, &doing, &body),
            status => {
                let errno = Errno::from_raw(status as i32).filter(|errno| *errno != Errno::EIO);
                if matches!(doing.what, What::Lock(_)) {
                    self.take_refusal(errno.is_some());
                }
                Some(errno.map_or(Heard::Unknown, Heard::Failed))
            }
        };
        if let (Some(event), Some(heard)) = (doing.event, heard) {
            common.hear(event, heard);
        }
        true
    }

    fn take(
        &mut self,
        node: &Node,
        common: &mut Common,
        doing: &Doing,
        body: &[u8],
    ) -> Option<Heard> {
        match &doing.what {
            What::Create { bytes } => {
                let opened = decode::<OpenReply<'_>>(body).opened;
                self.made.push_back(opened.open);
                if *bytes > 0 {
                    let bytes = vec![7; *bytes as usize];
                    let write =
                        Write { open: opened.open, offset: 0, append: false, bytes: &bytes };
                    self.ask(node, &Request::Write(write), What::Unnoted, None);
                }
                Some(heard_attr(&opened.attr))
            }
            What::OpenFile { file, then, since_ns } => {
                let open = decode::<OpenReply<'_>>(body).opened.open;
                self.take_file(node, common, (*file, open), *then, *since_ns);
                None
            }
            What::Bytes(op) => self.take_bytes(node, *op, doing.event, body),
            What::Flush => {
                self.close_brief(node);
                Some(Heard::Done)
            }
            What::Row(row) => Some(self.take_row(node, common, *row, body)),
            What::Plain => Some(Heard::Done),
            What::Stat => Some(heard_attr(&decode(body))),
            What::Looked(expected) => {
                let attr = decode(body);
                expected.check(common, &attr);
                self.write_entry(node, common, (&expected.path, &attr));
                None
            }
            What::Add { directory, name } => {
                self.made.push_back(decode::<OpenReply<'_>>(body).opened.open);
                self.entries.push((*directory, name.clone()));
                Some(Heard::Done)
            }
            What::OpenDirectory { directory } => {
                let open = decode::<OpenReply<'_>>(body).opened.open;
                let event = self.note(common, Op::Entry(*directory, EntryOp::List));
                let page = Request::List(List { open, cookie: 0, bytes_max: PAGE_BYTES });
                self.ask(node, &page, What::Page { open, names: Vec::new() }, event);
                None
            }
            What::Page { open, names } => self.page(node, doing.event, *open, names.clone(), body),
            What::OpenScrap => {
                self.take_scrap(body);
                None
            }
            What::Leave { work, writable, before } => {
                self.take_leave(node, (*work, *writable, *before), body);
                None
            }
            What::OpenLocked { file } => {
                self.take_locked(*file, body);
                None
            }
            What::Lock(held) => {
                self.take_lock(*held);
                None
            }
            What::Unnoted => None,
        }
    }

    fn page(
        &mut self,
        node: &Node,
        event: Option<usize>,
        open: OpenRef,
        mut names: Vec<String>,
        body: &[u8],
    ) -> Option<Heard> {
        let mut last = None;
        for entry in listing::entries(decode::<Listing<'_>>(body).entries) {
            let entry = entry.expect("a daemon's listings can be read");
            last = Some(entry.next_cookie);
            names.push(String::from_utf8_lossy(entry.name).into_owned());
        }
        let Some(cookie) = last else {
            self.ask(node, &close(open), What::Unnoted, None);
            return Some(Heard::Names(names));
        };
        let page = Request::List(List { open, cookie, bytes_max: PAGE_BYTES });
        self.ask(node, &page, What::Page { open, names }, event);
        None
    }
}

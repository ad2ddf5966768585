//! Programs inside: each has files of its own that only it changes, and reads all of them.

use std::collections::VecDeque;

use mayfly_types::{Attr, Errno, FileId, OpenRef, Timestamp, limits::LANES};
use mayfly_wire::{
    Close, Data, Flush, Link, List, Listing, MakeDirectory, Open, OpenReply, Read, Reader, Rename,
    Request, SET_MODE, SetAttr, Stat, Target, TierAsk, TierTold, Unlink, WALK_EMPTY, Walk, Wire,
    Write, listing,
    tier::{TierSource, unpacked},
};

use super::{Content, MARK_BYTES, bytes_of, content_of, external::External};
use crate::{lanes::Lanes, node::Node};

const O_WRONLY: u32 = 1;
const O_CREAT: u32 = 0o100;
const O_TRUNC: u32 = 0o1000;
const O_DIRECTORY: u32 = 0o200_000;
/// Bytes that are read at a time.
const READ_BYTES: u32 = 64 << 10;
/// A page of a listing, bytes.
const PAGE_BYTES: u32 = 2000;

/// Something that a program does.
#[derive(Debug, Clone)]
pub enum Job {
    /// A file is read as a whole.
    Read {
        /// Where it is.
        path: String,
        /// Only the program that reads it changes it inside.
        owned: bool,
    },
    /// Some marks of a file are read that nobody changes inside.
    ReadPart {
        /// Where it is.
        path: String,
        /// From this one on.
        at: u32,
        /// So many.
        count: u32,
    },
    /// It is emptied, or made, and written.
    Write {
        /// Where it is.
        path: String,
        /// What is written.
        mark: u32,
    },
    /// Something is added at its end.
    Append {
        /// Where it is.
        path: String,
        /// What is added.
        mark: u32,
        /// It is made if it is not there.
        makes: bool,
    },
    /// It is removed.
    Unlink {
        /// Where it is.
        path: String,
    },
    /// It is moved to another name of the same program.
    Move {
        /// Where it is.
        from: String,
        /// Where it will be.
        to: String,
    },
    /// It gets another mode.
    SetMode {
        /// Where it is.
        path: String,
        /// Which.
        mode: u32,
    },
    /// It is given another name besides, which is refused.
    Link {
        /// Where it is.
        from: String,
        /// Where it would be, too.
        to: String,
    },
    /// A directory is made.
    MakeDirectory {
        /// Where it will be.
        path: String,
    },
    /// A directory is removed.
    RemoveDirectory {
        /// Where it is.
        path: String,
    },
    /// A directory is listed.
    List {
        /// Where it is.
        path: String,
    },
    /// Attributes are looked at.
    Stat {
        /// Of what.
        path: String,
    },
    /// The tier is asked for something.
    Ask {
        /// `TIER_*`.
        what: u32,
        /// At which of all shards.
        shard: u32,
    },
    /// It is asked for something of a path, at the first shard of the program's node.
    AskOf {
        /// `TIER_*`.
        what: u32,
        /// Of what; empty: of all.
        path: String,
    },
}

impl Job {
    /// Names that it changes.
    #[must_use]
    pub fn changes(&self) -> Vec<&str> {
        match self {
            Job::Write { path, .. }
            | Job::Append { path, .. }
            | Job::Unlink { path }
            | Job::SetMode { path, .. }
            | Job::MakeDirectory { path }
            | Job::RemoveDirectory { path } => vec![path],
            Job::Move { from, to } => vec![from, to],
            Job::Read { .. }
            | Job::ReadPart { .. }
            | Job::List { .. }
            | Job::Stat { .. }
            | Job::Link { .. }
            | Job::AskOf { .. }
            | Job::Ask { .. } => Vec::new(),
        }
    }
}

/// What has become of the last job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It was done.
    Done,
    /// Names of a directory.
    Names(Vec<String>),
    /// What a file contains.
    Content(Content),
    /// Mode and length.
    Attr(u32, u64),
    /// What a flush has come to.
    Told {
        /// Files that could not be flushed.
        failed: u64,
        /// Files to be asked for again.
        left: u64,
        /// Files that are dirty.
        dirty: u64,
    },
    /// An error.
    Failed(Errno),
}

#[derive(Debug)]
enum Stage {
    Opening,
    Reading,
    Writing,
    Flushing,
    Paging(Vec<String>),
    Closing(Heard),
    Plain,
}

#[derive(Debug)]
struct Doing {
    job: Job,
    stage: Stage,
    lane: usize,
    request: u64,
    open: Option<OpenRef>,
    bytes: Vec<u8>,
    since_ns: u64,
}

/// A program.
#[derive(Debug)]
pub struct Client {
    /// The number of its node.
    pub node: usize,
    session: Option<(u32, Lanes)>,
    /// What it is to do, each after a pause, nanoseconds.
    pub jobs: VecDeque<(u64, Job)>,
    doing: Option<Doing>,
    /// What became of the last job.
    pub heard: Option<Heard>,
    /// Which process it is.
    pub life: u64,
}

fn walk(path: &str) -> Walk<'_> {
    Walk { start: FileId::ROOT, flags: WALK_EMPTY, path: path.as_bytes() }
}

fn open(path: &str, flags: u32) -> Request<'_> {
    Request::Open(Open { walk: walk(path), flags, mode: 0o644, uid: 1, gid: 1 })
}

fn decode<'a, T: Wire<'a>>(body: &'a [u8]) -> T {
    T::decode(&mut Reader::new(body)).expect("a daemon's replies can be read")
}

fn request_of<'a>(job: &'a Job, shard_of_node: u32) -> Request<'a> {
    match job {
        Job::Link { from, to } => {
            Request::Link(Link { from: Target::Path(walk(from)), to: walk(to) })
        }
        Job::AskOf { what, path } => {
            Request::TierAsk(TierAsk { what: *what, shard: shard_of_node, path: path.as_bytes() })
        }
        Job::Read { path, .. } | Job::ReadPart { path, .. } => open(path, 0),
        Job::Write { path, .. } => open(path, O_WRONLY | O_CREAT | O_TRUNC),
        Job::Append { path, makes: true, .. } => open(path, O_WRONLY | O_CREAT),
        Job::Append { path, makes: false, .. } => open(path, O_WRONLY),
        Job::Unlink { path } => Request::Unlink(Unlink { walk: walk(path), directory: false }),
        Job::Move { from, to } => {
            Request::Rename(Rename { from: walk(from), to: walk(to), flags: 0 })
        }
        Job::SetMode { path, mode } => Request::SetAttr(SetAttr {
            target: Target::Path(walk(path)),
            which: SET_MODE,
            mode: *mode,
            uid: 0,
            gid: 0,
            size_bytes: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
        }),
        Job::MakeDirectory { path } => {
            Request::MakeDirectory(MakeDirectory { walk: walk(path), mode: 0o755, uid: 1, gid: 1 })
        }
        Job::RemoveDirectory { path } => {
            Request::Unlink(Unlink { walk: walk(path), directory: true })
        }
        Job::List { path } => open(path, O_DIRECTORY),
        Job::Stat { path } => Request::Stat(Stat { target: Target::Path(walk(path)) }),
        Job::Ask { what, shard } => {
            Request::TierAsk(TierAsk { what: *what, shard: *shard, path: b"" })
        }
    }
}

impl Client {
    /// One that does these things.
    #[must_use]
    pub fn new(node: usize, jobs: VecDeque<(u64, Job)>) -> Client {
        Client { node, session: None, jobs, doing: None, heard: None, life: 0 }
    }

    /// Whether everything is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.jobs.is_empty() && self.doing.is_none()
    }

    /// What is under way, if there is something.
    #[must_use]
    pub fn tell(&self) -> Option<String> {
        self.doing.as_ref().map(|doing| format!("{:?} since {}", doing.job, doing.since_ns))
    }

    /// Whether something is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.doing.is_some()
    }

    /// The process is killed, or ends.
    pub fn end(&mut self, node: &mut Node, external: &mut External) {
        if let Some(doing) = self.doing.take() {
            external.note_unknown(&doing.job);
        }
        if let Some((session, _)) = self.session.take() {
            node.detach(session);
        }
        self.life += 1;
    }

    /// Begins the next thing.
    pub fn begin(&mut self, node: &mut Node, external: &mut External) {
        if self.doing.is_some() {
            return;
        }
        if self.session.is_none() {
            self.session = node.attach();
        }
        let Some((_, job)) = self.jobs.pop_front() else { return };
        let judge = &mut external.judge;
        match &job {
            Job::Write { path, .. } => judge.begin_emptying(path),
            Job::Unlink { path } => judge.supersede(path),
            Job::Append { path, mark, .. } => judge.begin_write(path, *mark, false),
            Job::Move { from, to } => judge.begin_move(from, to),
            _ => {}
        }
        let stage = match &job {
            Job::Read { .. }
            | Job::ReadPart { .. }
            | Job::Write { .. }
            | Job::Append { .. }
            | Job::List { .. } => Stage::Opening,
            _ => Stage::Plain,
        };
        let since_ns = judge.now_ns;
        let doing =
            Doing { job, stage, lane: 0, request: 0, open: None, bytes: Vec::new(), since_ns };
        let request = doing.job.clone();
        let shard = node.first_shard();
        self.ask(node, doing, &request_of(&request, shard));
    }

    fn ask(&mut self, node: &Node, mut doing: Doing, request: &Request<'_>) {
        let Some((_, lanes)) = &mut self.session else { return };
        let Some(lane) = (0..LANES).find(|lane| lanes.is_free(*lane)) else { return };
        (doing.lane, doing.request) = (lane, lanes.submit(node.region(), lane, request));
        self.doing = Some(doing);
    }

    /// Takes an answer, if it is there; true when the job is over.
    pub fn hear(&mut self, node: &Node, external: &mut External) -> bool {
        let (Some(doing), Some((_, lanes))) = (&self.doing, &mut self.session) else {
            return false;
        };
        let Some((status, body)) = lanes.reply(doing.lane, doing.request) else { return false };
        let Some(doing) = self.doing.take() else { return false };
        if status != 0 {
            let errno = Errno::from_raw(status as i32).unwrap_or(Errno::EIO);
            if !matches!(doing.stage, Stage::Closing(_)) {
                let is_open = !matches!(doing.stage, Stage::Opening);
                external.judge.failed(&doing.job, is_open, doing.since_ns, errno);
                external.note_unknown(&doing.job);
            }
            return self.close(node, doing, Heard::Failed(errno));
        }
        self.take(node, external, doing, &body)
    }

    fn close(&mut self, node: &Node, mut doing: Doing, heard: Heard) -> bool {
        if let Stage::Closing(heard) = doing.stage {
            self.heard = Some(heard);
            return true;
        }
        let Some(open) = doing.open.take() else {
            self.heard = Some(heard);
            return true;
        };
        doing.stage = Stage::Closing(heard);
        self.ask(node, doing, &Request::Close(Close { open }));
        false
    }

    fn take(
        &mut self,
        node: &Node,
        external: &mut External,
        mut doing: Doing,
        body: &[u8],
    ) -> bool {
        match std::mem::replace(&mut doing.stage, Stage::Plain) {
            Stage::Opening => {
                let open = decode::<OpenReply<'_>>(body).opened.open;
                doing.open = Some(open);
                self.opened(node, external, doing, open);
                false
            }
            Stage::Reading => self.took_bytes(node, external, doing, body),
            Stage::Writing => {
                if let Job::Write { mark, .. } | Job::Append { mark, .. } = doing.job {
                    external.judge.acknowledge(mark);
                }
                let Some(open) = doing.open.filter(|_| external.judge.flushed_at_close) else {
                    return self.close(node, doing, Heard::Done);
                };
                // So does a close by a process, before the description goes.
                doing.stage = Stage::Flushing;
                self.ask(node, doing, &Request::Flush(Flush { open }));
                false
            }
            Stage::Flushing => {
                if let Job::Write { mark, .. } | Job::Append { mark, .. } = doing.job {
                    external.judge.closed(mark);
                }
                self.close(node, doing, Heard::Done)
            }
            Stage::Paging(names) => self.took_page((node, external), doing, names, body),
            Stage::Closing(heard) => {
                self.heard = Some(heard);
                true
            }
            Stage::Plain => {
                self.heard = Some(match doing.job {
                    Job::Move { from, to } => {
                        external.judge.moved(&from, &to);
                        Heard::Done
                    }
                    Job::Link { .. } => {
                        external.judge.say(format!("{:?} was done", doing.job));
                        Heard::Done
                    }
                    Job::Ask { .. } => {
                        let TierTold { failed, left, sources, .. } = decode(body);
                        let sources = unpacked::<TierSource>(sources).into_iter().flatten();
                        let dirty = sources.map(|source| source.dirty_files).sum();
                        Heard::Told { failed, left, dirty }
                    }
                    Job::Stat { .. } => {
                        let attr = decode::<Attr>(body);
                        Heard::Attr(attr.mode & 0o7777, attr.size_bytes)
                    }
                    _ => Heard::Done,
                });
                true
            }
        }
    }

    fn opened(&mut self, node: &Node, external: &mut External, mut doing: Doing, open: OpenRef) {
        let bytes;
        let request = match &doing.job {
            Job::Read { .. } => {
                doing.stage = Stage::Reading;
                Request::Read(Read { open, offset: 0, count: READ_BYTES })
            }
            Job::ReadPart { at, count, .. } => {
                doing.stage = Stage::Reading;
                let offset = u64::from(*at) * MARK_BYTES as u64;
                Request::Read(Read { open, offset, count: count * MARK_BYTES as u32 })
            }
            Job::List { .. } => {
                doing.stage = Stage::Paging(Vec::new());
                Request::List(List { open, cookie: 0, bytes_max: PAGE_BYTES })
            }
            Job::Write { path, mark } => {
                external.judge.begin_write(path, *mark, true);
                doing.stage = Stage::Writing;
                bytes = bytes_of(&[*mark]);
                Request::Write(Write { open, offset: 0, append: false, bytes: &bytes })
            }
            Job::Append { mark, .. } => {
                doing.stage = Stage::Writing;
                bytes = bytes_of(&[*mark]);
                Request::Write(Write { open, offset: 0, append: true, bytes: &bytes })
            }
            _ => return,
        };
        self.ask(node, doing, &request);
    }

    fn took_bytes(
        &mut self,
        node: &Node,
        external: &mut External,
        mut doing: Doing,
        body: &[u8],
    ) -> bool {
        let bytes = decode::<Data<'_>>(body).bytes;
        doing.bytes.extend_from_slice(bytes);
        let Some(open) = doing.open else { return true };
        let in_part = matches!(doing.job, Job::ReadPart { .. });
        // Where it ends is not looked at again: it may be another file by then.
        if bytes.len() == READ_BYTES as usize && !in_part {
            let offset = doing.bytes.len() as u64;
            doing.stage = Stage::Reading;
            self.ask(node, doing, &Request::Read(Read { open, offset, count: READ_BYTES }));
            return false;
        }
        let judge = &mut external.judge;
        let heard = match content_of(&doing.bytes) {
            Some(content) => {
                match &doing.job {
                    Job::ReadPart { path, at, .. } => {
                        judge.read_part(path, doing.since_ns, *at as usize, &content);
                    }
                    Job::Read { path, owned } => {
                        judge.read(path, doing.since_ns, &content, *owned);
                    }
                    _ => {}
                }
                Heard::Content(content)
            }
            None => {
                judge.say(format!("{:?} has found a mark that is not whole", doing.job));
                Heard::Done
            }
        };
        self.close(node, doing, heard)
    }

    fn took_page(
        &mut self,
        (node, external): (&Node, &mut External),
        mut doing: Doing,
        mut names: Vec<String>,
        body: &[u8],
    ) -> bool {
        let mut last = None;
        for entry in listing::entries(decode::<Listing<'_>>(body).entries) {
            let entry = entry.expect("a daemon's listings can be read");
            last = Some(entry.next_cookie);
            names.push(String::from_utf8_lossy(entry.name).into_owned());
        }
        let (Some(cookie), Some(open)) = (last, doing.open) else {
            names.retain(|name| name != "." && name != "..");
            names.sort_unstable();
            if let Job::List { path } = &doing.job {
                external.judge.listed(path, doing.since_ns, &names);
            }
            return self.close(node, doing, Heard::Names(names));
        };
        doing.stage = Stage::Paging(names);
        let page = Request::List(List { open, cookie, bytes_max: PAGE_BYTES });
        self.ask(node, doing, &page);
        false
    }
}

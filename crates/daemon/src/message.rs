//! What shards say to each other.
//!
//! A request that belongs to another shard is *forwarded* whole and answered by the shard that
//! finishes it. A shard *asks* another one: for something that it has to know, or for a change
//! there. Every question has one answer. Messages may overtake each other; a message is sent when
//! the batch that it rests on is committed.

use mayfly_meta::record::{BirthKey, Layout, PartOf, Step};
use mayfly_transport_tcp::Body;
use mayfly_types::{Errno, FileId, FileKind, OpenRef, SessionId, Timestamp};
use mayfly_wire::{Malformed, Op, Reader, Request, Wire, Write, WriteHead};
use serde::{Deserialize, Serialize};

use crate::{
    api::{Caller, Completion},
    shards::slots::ShardId,
};

/// Number of an operation over several shards: its age, then the shard that coordinates it. The
/// smaller one is the older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TransactionId(pub u64);

impl TransactionId {
    pub(crate) fn new(age: u64, shard: u32) -> Self {
        TransactionId((age << 16) | u64::from(shard))
    }

    pub(crate) fn age(self) -> u64 {
        self.0 >> 16
    }

    pub(crate) fn shard(self) -> u32 {
        (self.0 & 0xffff) as u32
    }
}

/// A message from one shard to another.
#[derive(Debug, Clone)]
pub enum Message {
    /// A request that is the receiver's.
    Forward(Box<Forward>),
    /// The same, of a daemon that is gone: nobody stands for what it opens unless it comes again.
    Unheard(Box<Forward>),
    /// The request of this session that still waits is answered with EINTR.
    Cancel(SessionId, u64),
    /// This request of the session has come once more while it is executed, so its answer will be
    /// heard. If it waits for a lock, it is looked at once more whether it can ever end.
    LookAgain(SessionId, u64),
    /// Nobody waits for this request any more: if it only waits it ends, and what it has opened is
    /// of no use.
    GivenUp(Caller),
    /// A request of the daemon's own is answered.
    OwnDone(Completion),
    /// A request of this node's that goes on to this shard of another one, behind what was written
    /// to files there.
    SendOn(ShardId, Box<Forward>),
    /// To oneself: the next of what waited for claims can go on.
    Proceed,
    /// Something to answer; `id` is the sender's.
    Ask(u64, Question),
    /// The answer to the question with this id.
    Answer(u64, Answer),
}

/// A client's request on its way.
#[derive(Debug, Clone)]
pub struct Forward {
    pub(crate) caller: Caller,
    pub(crate) op: Op,
    pub(crate) body: Body,
    pub(crate) place: Resolved,
}

/// The request that a body is.
///
/// # Errors
/// [`Malformed`].
pub(crate) fn request_in(op: Op, body: &Body) -> Result<Request<'_>, Malformed> {
    if let Some(bytes) = body.whole() {
        return Request::decode(op, bytes);
    }
    // Nothing is shared but the bytes of a write.
    let (head, bytes) = body.pieces();
    let mut from = Reader::new(head);
    let WriteHead { open, offset, append, count } = WriteHead::decode(&mut from)?;
    from.finish()?;
    if op != Op::Write || count as usize != bytes.len() {
        return Err(Malformed);
    }
    Ok(Request::Write(Write { open, offset, append, bytes }))
}

/// How far the path of a request (the first one, if it has two) was followed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    pub(crate) at: At,
    /// Symbolic links followed.
    pub(crate) follows: u32,
    /// How often the walk was begun anew since the file that it found was gone.
    pub(crate) restarts: u32,
    /// That file, as its home says.
    pub(crate) gone: Option<FileId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum At {
    /// Not at all.
    #[default]
    Start,
    /// What is left of the path, from this directory, which is spread so far.
    Path(FileId, Vec<u8>, u64),
    /// To this file, through a name or by its identity; a slash followed.
    File { id: FileId, slash: bool, by_name: bool },
    /// To the part of this file that has the bytes which it is about.
    Part(PartPlace),
}

/// A part of a striped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartPlace {
    pub(crate) file: FileId,
    pub(crate) part: PartOf,
}

/// An append to a striped file, or a look at its size for which it must not grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Append {
    /// The number that the file's home has for it: another one when its request has come again to
    /// another daemon. 0 when that does not append, and nobody's request does any more.
    pub(crate) number: u64,
    /// Whose request it is, as all nodes call that; nobody's when nothing is appended.
    pub(crate) by: Option<Caller>,
}

/// What a shard asks another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Question {
    /// What a name stands for. Asked of the dentry's owner; the directory is spread so far.
    Lookup { directory: FileId, name: Vec<u8>, upto: u64 },
    /// Attributes of a regular file, and of so many at most that come behind it in a listing, as
    /// far as they may be kept; with the bytes of small ones, if `contents` says so. Asked of the
    /// dentry's owner; the directory is spread so far.
    File { directory: FileId, name: Vec<u8>, upto: u64, more: u16, contents: bool },
    /// A process of the asker's node reads a file by what it was told with the name. It is to have
    /// it open, whatever becomes of the name. Asked of the file's home.
    Keep(Kept),
    /// Where a symbolic link leads. Asked of the inode's home.
    LinkTarget { id: FileId, birth: BirthKey },
    /// A directory. Asked of its home.
    Directory(FileId),
    /// The sender is about to have entries of a directory. Asked of its home, and answered when
    /// that is durable.
    Join(FileId),
    /// The receiver shall be ready to have the entry of a directory with this cookie.
    Host { directory: FileId, cookie: u64 },
    /// What a member knows of a directory.
    Member(FileId),
    /// Entries of a directory with cookies from `from` up to and without `until`.
    Entries { directory: FileId, from: u64, until: u64, bytes_max: u32 },
    /// Can these steps be done? If so they will be done, or released.
    Prepare { transaction: TransactionId, steps: Vec<Step> },
    /// The steps were decided.
    Apply { transaction: TransactionId, wave: u8, steps: Vec<Step>, last: bool },
    /// The steps will not be done.
    Release(TransactionId),
    /// Answered when what the operation met in its way is gone.
    Await(TransactionId),
    /// The name will stand for something else.
    Forget { directory: FileId, name: Vec<u8> },
    /// Will steps of the operation still come? Asked of its coordinator.
    IsOver(TransactionId),
    /// The request was executed before the daemon was restarted, says the sender, who has the
    /// answer.
    Executed(SessionId, u64),
    /// This request of the asker's node is the next of its lane behind one whose answer the
    /// receiver has kept: that one does not come again.
    WentOn { session: SessionId, lane: u32, request_id: u64 },
    /// Allowances that are not used shall be given back.
    Reclaim,
    /// The asker's node has no use any more for a description that it was given, and its session,
    /// if one is named, has closed a descriptor of it.
    Drop { open: OpenRef, closed_by: Option<SessionId>, last: bool },
    /// Capacity and use of the node.
    Space,
    /// Directories of an origin that were found below one of the asker's shall have their seats at
    /// the receiver, which may have given them some already.
    Seats(Seats),
    /// These directories are gone from their origin, and go with what is in them.
    Unseat(Vec<FileId>),
    /// Which of these directories of an origin are there.
    Seated(Vec<FileId>),
    /// Answered when all is done at the origin that was done here in the directory, and below it.
    Written(FileId),
    /// How far a part reaches. `round` tells repetitions in one run apart, and `parts`, of how many
    /// it is asked, those that began anew.
    Part { file: FileId, generation: u32, round: u8, parts: u16 },
    /// The same; from now on the file's home knows its times, until it is changed again.
    CleanPart { file: FileId, generation: u32 },
    /// The same, and whoever changes the part from now on asks the file's home before.
    SettlePart { file: FileId, generation: u32 },
    /// The file is gone, and its parts shall go.
    DropPart { file: FileId, generation: u32 },
    /// The asker is about to change its part of a file: will its home ask it for the length, and
    /// tell it when the file goes? Asked of the home, which remembers it durably.
    Admit { file: FileId, generation: u32, index: u16 },
    /// The length of a striped file. Asked of its home.
    Size { file: FileId, generation: u32 },
    /// How far a part reaches, which is not to change by writes until [`Question::LetEnd`] comes:
    /// bytes are being appended to the file, or its size does not come to rest.
    HoldEnd { file: FileId, generation: u32, append: Append },
    /// The append is over, or the look.
    LetEnd { file: FileId, append: Append },
    /// Bytes for the end of a file, which are to be written if nobody else has written there, and
    /// only while the part is held for this append. `behind`: somebody has written behind them, so
    /// that they are there already, or will not be written.
    AppendPart {
        place: PartPlace,
        append: Append,
        offset: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        behind: bool,
    },
    /// fallocate of a range of the file with this mode, as far as it is the part's. With `look`:
    /// is there room?
    AllocatePart { place: PartPlace, mode: u32, start: u64, end: u64, look: bool },
    /// Where the part's next data of the file, or its next hole, is from `offset` on.
    SeekPart { place: PartPlace, offset: u64, hole: bool },
    /// What was written to the part shall survive the machine.
    SyncPart { file: FileId, generation: u32 },
    /// Numbers of files that the asker will make at the receiver, which gives them to nobody else.
    Numbers,
    /// The sender was restarted: what of the receiver's operations is decided and not finished,
    /// that the sender has a part in? What else was agreed with it is void.
    Returned,
    /// For which of these descriptions at the sender does none at the receiver's node stand, and
    /// will none? Asked of the front of a node, which has all that do.
    Proxies(Vec<Description>),
    /// For whom do these processes wait at the receiver, to get locks, and to which shards has it
    /// sent requests of theirs that may wait?
    Waits { processes: Vec<Process> },
    /// Do these waits last, held up as they were when that was told?
    StillWaiting { delays: Vec<Delay> },
    /// The sender believes that this wait at the receiver can never end.
    Suspect { waiter: Process, wait: u64 },
    /// Mounts may keep pages of a file. Asked of who has it open.
    Mapped(FileId),
    /// Bytes of a file have changed: answered when the mounts of the receiver's node have dealt
    /// with it. Asked of the front of a node.
    Changed(Change),
}

impl Question {
    /// Whether a shard answers it while it does not know yet in which decided operations it has a
    /// part: what changes nothing but by such operations, and promises nothing.
    pub(crate) fn is_of_recovery(&self) -> bool {
        match self {
            Question::Apply { .. }
            | Question::Release(_)
            | Question::Await(_)
            | Question::Forget { .. }
            | Question::IsOver(_)
            | Question::Executed(..)
            | Question::WentOn { .. }
            | Question::Reclaim
            | Question::Drop { .. }
            | Question::Space
            // Waits that are gone with a predecessor are made again, and looked at then.
            | Question::Waits { .. }
            | Question::StillWaiting { .. }
            | Question::Suspect { .. }
            | Question::Mapped(_)
            | Question::Changed(_)
            | Question::Returned
            // A node answers nothing before what its processes read is kept.
            | Question::Keep(_)
            | Question::Proxies(_) => true,
            Question::Lookup { .. }
            | Question::File { .. }
            | Question::LinkTarget { .. }
            | Question::Directory(_)
            | Question::Join(_)
            | Question::Host { .. }
            | Question::Member(_)
            | Question::Entries { .. }
            | Question::Prepare { .. }
            // A part may have to be cut yet.
            | Question::Part { .. }
            | Question::CleanPart { .. }
            | Question::SettlePart { .. }
            | Question::DropPart { .. }
            | Question::Admit { .. }
            | Question::Size { .. }
            // It comes after what it is about.
            | Question::HoldEnd { .. }
            | Question::LetEnd { .. }
            | Question::AppendPart { .. }
            | Question::AllocatePart { .. }
            | Question::SyncPart { .. }
            | Question::SeekPart { .. }
            | Question::Seats(_)
            | Question::Unseat(_)
            | Question::Seated(_)
            | Question::Written(_)
            | Question::Numbers => false,
        }
    }
}

/// A description that is leased to a process, by which that reads a file of another node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kept {
    pub(crate) file: FileId,
    pub(crate) birth: BirthKey,
    /// As its node numbers it.
    pub(crate) session: SessionId,
    /// Where the description is in the node's table.
    pub(crate) at: OpenRef,
    pub(crate) flags: u32,
}

/// Directories below one that shows a directory of an origin.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seats {
    /// Number of the origin.
    pub(crate) source: u32,
    /// The path of the directory above from there.
    pub(crate) path: Vec<u8>,
    pub(crate) parent: FileId,
    pub(crate) layout: Layout,
    pub(crate) directories: Vec<NewSeat>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct NewSeat {
    pub(crate) name: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A change of a file of which mounts are to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Change {
    /// The session that made it, by its number among all nodes. It knows of it.
    pub(crate) by: SessionId,
    /// Number of the request that tells of it.
    pub(crate) request_id: u64,
    /// Any, when there is none.
    pub(crate) file: FileId,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Failed(Errno),
    /// Ask again from the start.
    Retry,
    Done,
    Found {
        file: Option<(FileId, FileKind)>,
        cacheable: bool,
    },
    /// A file's attributes, as the record of a dentry has them, with content if that was asked for;
    /// nothing where there are none to be told.
    File {
        #[serde(with = "serde_bytes")]
        record: Vec<u8>,
        cacheable: bool,
        /// Other files, all of which may be kept.
        more: Vec<NamedRecord>,
    },
    /// The description that was made.
    Kept(OpenRef),
    LinkTarget(Vec<u8>),
    Directory(DirectoryFacts),
    Member(MemberFacts),
    /// Packed entries, and whether there are more than there was room for.
    Entries {
        #[serde(with = "serde_bytes")]
        packed: Vec<u8>,
        more: bool,
    },
    /// The steps can be done. The shards that remember the names that they change.
    Prepared(Vec<(u32, FileId, Vec<u8>)>),
    /// The name is not here: its directory is spread so far.
    Spread(FileId, u64),
    /// An older operation is in the way.
    Busy,
    /// It is not as the asker believes.
    Changed,
    Over(bool),
    Space(SpaceFacts),
    Part(PartFacts),
    Size(u64),
    Involved {
        operations: Vec<(TransactionId, Vec<Step>)>,
        /// Requests of the asking node's processes, as that calls them, whose answers may come
        /// again here and nowhere else.
        executed: Vec<Executed>,
    },
    /// From this one on, `NUMBERS_AT_ONCE` of them.
    Numbers(u64),
    /// The directories that have their seats here now, in the order of the question; or, when some
    /// were to go, those that do not.
    Seats(Vec<FileId>),
    /// Nobody stands for these.
    Unheld(Vec<OpenRef>),
    Waits {
        delays: Vec<Delay>,
        /// Shards to which requests of these processes were sent.
        elsewhere: Vec<(Process, u32)>,
    },
}

/// A request whose answer is kept, and its lane where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    pub(crate) session: SessionId,
    pub(crate) lane: Option<u32>,
    pub(crate) request_id: u64,
}

/// The name of a file, and the record of its dentry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedRecord {
    #[serde(with = "serde_bytes")]
    pub(crate) name: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub(crate) record: Vec<u8>,
}

/// A description that another node has at the one that asks, and the request of a process there
/// that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Description {
    pub(crate) open: OpenRef,
    pub(crate) session: SessionId,
    pub(crate) lane: u32,
    pub(crate) request_id: u64,
}

/// A process, among those of all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    pub(crate) node: u32,
    pub(crate) pid: u32,
}

/// A process waits for a lock, and a lock that another one holds is in its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Delay {
    pub(crate) waiter: Process,
    /// Number of the wait at the shard where it is.
    pub(crate) wait: u64,
    /// By the clock of that shard's node.
    pub(crate) since: Timestamp,
    pub(crate) blocker: Process,
    /// The same only as long as the blocker is in the way without a break.
    pub(crate) sighting: u64,
}

/// A directory, for others than its home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryFacts {
    pub(crate) parent: FileId,
    pub(crate) name: Vec<u8>,
    pub(crate) links: u32,
    pub(crate) mode: u16,
    pub(crate) gid: u32,
    pub(crate) entries: u64,
    pub(crate) members: Vec<u32>,
    /// Of what is made in it.
    pub(crate) layout: Layout,
    /// The origin that it shows a directory of.
    pub(crate) source: Option<u32>,
    /// It shows a whole origin, or leads to one that does.
    pub(crate) linked: bool,
}

/// What a member adds to a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemberFacts {
    pub(crate) entries: u64,
    pub(crate) subdirectories: u32,
    /// When a name was added or removed, if that counts.
    pub(crate) mtime: Timestamp,
}

/// A part of a striped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PartFacts {
    /// Up to where in the file it has bytes.
    pub(crate) end_bytes: u64,
    pub(crate) blocks: u64,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    /// The times are of a change that the home does not know of.
    pub(crate) dirty: bool,
    /// How often it was cut.
    pub(crate) cuts: u32,
}

/// Capacity and use of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpaceFacts {
    pub(crate) capacity_bytes: u64,
    pub(crate) used_bytes: u64,
    /// Of the rest, what no bytes of files get.
    pub(crate) kept_bytes: u64,
    pub(crate) files: u64,
}

impl SpaceFacts {
    /// What bytes of files can still take.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.used_bytes).saturating_sub(self.kept_bytes)
    }
}

#[cfg(test)]
mod tests {
    use mayfly_wire::Writer;

    use super::*;

    #[test]
    fn a_write_is_the_same_however_its_bytes_are_leased() {
        let bytes = b"what is written";
        let open = OpenRef { index: 1, generation: 2 };
        let write = Write { open, offset: 3, append: false, bytes };
        let mut room = [0; 100];
        let mut to = Writer::new(&mut room);
        write.encode(&mut to).unwrap();
        let used = to.used();
        let (head, shared) = room[..used].split_at(used - bytes.len());
        let body = |head: &[u8], shared: &[u8]| Body::new(head.to_vec(), shared.to_vec().into());
        for body in [body(head, shared), body(&room[..used], b""), body(b"", &room[..used])] {
            assert_eq!(request_in(Op::Write, &body), Ok(Request::Write(write)));
        }
        let bad = [
            body(head, &shared[1..]),
            body(&head[1..], shared),
            body(&[head, b"x"].concat(), shared),
        ];
        for body in bad {
            assert_eq!(request_in(Op::Write, &body), Err(Malformed));
        }
        assert_eq!(request_in(Op::Stat, &body(head, shared)), Err(Malformed));
    }
}

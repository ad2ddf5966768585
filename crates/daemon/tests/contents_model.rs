//! Contents that are changed without asking are as if everybody had asked.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::SeqCst;

use mayfly_transport_shm::submission_ring::{Changes, ring_of};
use mayfly_types::{FileId, OpenRef, SessionId};
use mayfly_wire::{
    Close, GRANT_OBJECT, GRANT_READ, Grant, Open, OpenReply, Read, SET_MODE, SET_SIZE, SetAttr,
    Target, Write, Written,
};
use proptest::prelude::*;
use support::{
    Node, O_RDWR, SESSION, set,
    submitting::{
        O_APPEND, O_TRUNC, OTHER, THIRD, add_as, bytes_beside, change_as, cut_as, cut_open_as,
        make_file_as, node_on_disk, open_to_write_as, put_as, read_own_as, ring_at, warm_as,
    },
    walk,
};

const FILES: usize = 3;
const APPEND: u64 = u64::MAX;

/// What is done with a file.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// Opens it for writing and takes its content away.
    Replace,
    /// Opens it for writing.
    Open,
    /// Opens it for writing at its end.
    OpenAtEnd,
    /// Writes so many bytes by the description, where the last write ended.
    Go(usize),
    /// Writes so many bytes there at that offset.
    Put(usize, usize),
    /// Writes so many bytes at the end, by asking.
    Append(usize),
    /// Sets the length by the description.
    CutOpen(u64),
    /// Closes the description.
    Close,
    /// Sets the length, by the path.
    Cut(u64),
    /// The same by asking.
    AskToCut(u64),
    /// Changes the mode, by the path.
    Mode,
    /// Has an object made of it, by a description for reading.
    Object,
    /// Reads it by asking.
    Read,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        8 => Just(Deed::Replace),
        6 => Just(Deed::Open),
        8 => Just(Deed::OpenAtEnd),
        10 => (1..200_usize).prop_map(Deed::Go),
        1 => Just(Deed::Go(3000)),
        4 => (0..600_usize, 1..200_usize).prop_map(|(at, count)| Deed::Put(at, count)),
        2 => (1..200_usize).prop_map(Deed::Append),
        2 => (0..600_u64).prop_map(Deed::CutOpen),
        16 => Just(Deed::Close),
        2 => (0..600_u64).prop_map(Deed::Cut),
        1 => (0..5000_u64).prop_map(Deed::AskToCut),
        2 => Just(Deed::Mode),
        1 => Just(Deed::Object),
        3 => Just(Deed::Read),
    ]
}

/// A description that somebody has of a file.
#[derive(Debug, Clone, Copy)]
struct Held {
    open: OpenRef,
    at: u64,
    /// What is written goes to the end.
    appends: bool,
}

struct Play {
    node: Node,
    ids: [FileId; FILES],
    /// What is in the files.
    contents: [Vec<u8>; FILES],
    held: [[Option<Held>; FILES]; 3],
    /// Bytes that were written so far.
    written: u8,
    /// How often a file was opened without asking, and how often one was cut.
    unasked: [u32; 2],
}

const SESSIONS: [SessionId; 3] = [SESSION, OTHER, THIRD];

fn path_of(file: usize) -> String {
    format!("d/f{file}")
}

impl Play {
    fn new() -> Play {
        let mut node = node_on_disk();
        let ids = std::array::from_fn(|file| {
            make_file_as(&mut node, THIRD, &path_of(file));
            node.stat(&path_of(file), false).unwrap().id
        });
        warm_as(&mut node, SESSION, "d");
        warm_as(&mut node, OTHER, "d");
        let (contents, held) = (<_>::default(), <_>::default());
        Play { node, ids, contents, held, written: 0, unasked: [0; 2] }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let from = self.written;
        self.written = self.written.wrapping_add(count as u8 | 1);
        (0..count).map(|byte| from.wrapping_add(byte as u8)).collect()
    }

    fn open(&mut self, session: SessionId, file: usize, flags: u32) -> OpenRef {
        let path = path_of(file);
        let request = Open { walk: walk(&path, 0), flags, mode: 0, uid: 0, gid: 0 };
        self.node.ask_as(session, &request, |reply: OpenReply<'_>| reply.opened.open).unwrap()
    }

    fn open_to_write(&mut self, who: usize, file: usize, flags: u32) {
        let (session, path) = (SESSIONS[who], path_of(file));
        let unasked = open_to_write_as(&self.node, session, &path, flags);
        self.unasked[0] += u32::from(unasked.is_some());
        let open = unasked.unwrap_or_else(|| self.open(session, file, flags));
        if flags & O_TRUNC != 0 {
            self.contents[file].clear();
        }
        self.held[who][file] = Some(Held { open, at: 0, appends: flags & O_APPEND != 0 });
    }

    /// Writes by a description, without asking where that can be; where the bytes end.
    fn write_by(&mut self, who: usize, file: usize, held: Held, count: usize) -> u64 {
        let (session, Held { open, at, appends }) = (SESSIONS[who], held);
        let (bytes, end) = (self.bytes(count), self.contents[file].len() as u64);
        let addition = ring_at(&self.node, session).addition(open);
        let start = addition.map(|addition| addition.start() as u64);
        let submitted = match start {
            Some(start) if appends || start == at => add_as(&self.node, session, open, &bytes),
            _ => !appends && put_as(&self.node, session, open, at as usize, &bytes),
        };
        if !submitted {
            self.write(session, open, if appends { APPEND } else { at }, &bytes);
        }
        let at = if appends { end } else { at };
        self.put(file, at as usize, &bytes);
        at + count as u64
    }

    fn cut(&mut self, target: Target<'_>, bytes: u64) {
        let cut = SetAttr { size_bytes: bytes, ..set() };
        self.node.set_attr(target, SET_SIZE, cut).unwrap();
    }

    fn write(&mut self, session: SessionId, open: OpenRef, offset: u64, bytes: &[u8]) {
        let append = offset == APPEND;
        let offset = if append { 0 } else { offset };
        let request = Write { open, offset, append, bytes };
        let count = self.node.ask_as(session, &request, |written: Written| written.count);
        assert_eq!(count, Ok(bytes.len() as u32));
    }

    fn put(&mut self, file: usize, at: usize, bytes: &[u8]) {
        let content = &mut self.contents[file];
        content.resize(content.len().max(at + bytes.len()), 0);
        content[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn step(&mut self, who: usize, file: usize, deed: Deed) {
        let (session, path) = (SESSIONS[who], path_of(file));
        let held = self.held[who][file];
        match (deed, held) {
            (Deed::Replace, None) => self.open_to_write(who, file, O_RDWR | O_TRUNC),
            (Deed::Open, None) => self.open_to_write(who, file, O_RDWR),
            (Deed::OpenAtEnd, None) => self.open_to_write(who, file, O_RDWR | O_APPEND),
            (Deed::Go(count), Some(held)) => {
                let at = self.write_by(who, file, held, count);
                self.held[who][file] = Some(Held { at, ..held });
            }
            (Deed::Put(at, count), Some(held)) => {
                let at = at as u64;
                self.write_by(who, file, Held { at, ..held }, count);
            }
            (Deed::CutOpen(bytes), Some(Held { open, .. })) => {
                if !cut_open_as(&self.node, session, open, bytes as usize) {
                    self.cut(Target::Open(open), bytes);
                }
                self.contents[file].resize(bytes as usize, 0);
            }
            (Deed::Append(count), Some(Held { open, .. })) => {
                let (bytes, end) = (self.bytes(count), self.contents[file].len());
                self.write(session, open, APPEND, &bytes);
                self.put(file, end, &bytes);
            }
            (Deed::Close, Some(Held { open, .. })) => {
                if !ring_at(&self.node, session).withdraw(open) {
                    self.node.ask_as(session, &Close { open }, |()| ()).unwrap();
                }
                self.held[who][file] = None;
            }
            (Deed::Cut(bytes), _) => {
                let unasked = cut_as(&self.node, session, &path, bytes as usize);
                self.unasked[1] += u32::from(unasked);
                if !unasked {
                    self.cut(Target::Path(walk(&path, 0)), bytes);
                }
                self.contents[file].resize(bytes as usize, 0);
            }
            (Deed::AskToCut(bytes), _) => {
                self.cut(Target::Path(walk(&path, 0)), bytes);
                self.contents[file].resize(bytes as usize, 0);
            }
            (Deed::Mode, _) => {
                let changes = Changes { which: SET_MODE, mode: 0o640, ..Changes::default() };
                let _ = change_as(&self.node, session, &path, &changes);
            }
            (Deed::Object, _) => {
                let open = self.open(session, file, 0);
                let want = GRANT_READ | GRANT_OBJECT;
                self.node.ask_as(session, &Grant { open, want, end: 0 }, |_| ()).unwrap();
                self.node.ask_as(session, &Close { open }, |()| ()).unwrap();
            }
            (Deed::Read, _) => {
                let open = self.open(session, file, 0);
                let request = Read { open, offset: 0, count: 1 << 16 };
                let read = self.node.ask_as(session, &request, |data| data.bytes.to_vec());
                assert_eq!(read.unwrap(), self.contents[file], "{path}");
                self.node.ask_as(session, &Close { open }, |()| ()).unwrap();
            }
            _ => {}
        }
    }

    /// What a process reads by itself is what the file has, also of what it has submitted.
    fn check_beside(&self) {
        for (who, file) in (0..9).map(|pair| (pair / 3, pair % 3)) {
            if let Some(held) = self.held[who][file]
                && let Some(bytes) = read_own_as(&self.node, SESSIONS[who], held.open)
            {
                assert_eq!(bytes, self.contents[file], "read by the ring: {}", path_of(file));
            }
        }
        for file in 0..FILES {
            if let Some(bytes) = bytes_beside(&self.node, &path_of(file), self.ids[file]) {
                assert_eq!(bytes, self.contents[file], "read beside: {}", path_of(file));
            }
        }
    }

    /// A turn of the daemon's in which nobody has asked.
    fn idle(&mut self) {
        let head = &self.node.region.head;
        head.rings.ripe.fetch_or(head.submitted.load(SeqCst), SeqCst);
        self.node.core().idle_work();
        self.node.core().commit().unwrap();
    }

    /// The daemon dies, after it has executed what waits and has not committed it, or before that.
    fn die(&mut self, executes: bool) {
        if executes {
            let caller = self.node.next_caller(THIRD);
            let stat = mayfly_wire::Stat { target: Target::Path(walk("d", 0)) };
            let _answered = self.node.submit(caller, &stat, &mut [0; 4096]);
        }
        self.node.restart();
        warm_as(&mut self.node, SESSION, "d");
        warm_as(&mut self.node, OTHER, "d");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..<_>::default() })]

    /// Two processes change contents without asking where they may; a third asks for everything;
    /// the daemon executes what waits when nobody asks, and dies. Everybody reads what was written
    /// last, by asking and beside what waits.
    #[test]
    fn contents_are_what_they_would_be_if_everybody_asked(
        steps in prop::collection::vec((0..3_usize, 0..FILES, deed(), 0..40_u8), 1..160),
    ) {
        let mut play = Play::new();
        for (who, file, deed, how) in steps {
            match how {
                0 => play.die(false),
                1 => play.die(true),
                2..8 => play.idle(),
                _ => {}
            }
            play.step(who, file, deed);
            play.check_beside();
        }
        for (who, file) in (0..9).map(|pair| (pair / 3, pair % 3)) {
            play.step(who, file, Deed::Close);
            play.check_beside();
            play.step(2, file, Deed::Read);
        }
        play.check_beside();
        let waits = |session: SessionId| play.node.region.head.submitted.load(SeqCst)
            & 1 << ring_of(session.0);
        prop_assert_eq!(waits(SESSION) | waits(OTHER), 0);
    }
}

#[test]
fn most_of_it_asks_nobody() {
    let mut play = Play::new();
    for turn in 0..60 {
        let (who, file) = (turn % 2, turn % FILES);
        for deed in [Deed::Replace, Deed::Go(9), Deed::Go(1), Deed::Close] {
            play.step(who, file, deed);
            play.check_beside();
        }
    }
    assert!(play.unasked[0] > 20, "{} of 60", play.unasked[0]);
}

#[test]
fn a_file_is_appended_to_in_a_row_without_asking() {
    let mut play = Play::new();
    for turn in 0..60 {
        let last = if turn % 10 == 9 { Deed::Cut(5) } else { Deed::Close };
        for deed in [Deed::OpenAtEnd, Deed::Go(9), Deed::Go(1), Deed::Close, last] {
            play.step(0, 0, deed);
        }
        if turn % 20 == 13 {
            play.check_beside();
            play.step(2, 0, Deed::Read);
        }
    }
    play.step(2, 0, Deed::Read);
    assert!(play.unasked == [60, 6], "{:?}", play.unasked);
}

#[test]
fn a_file_is_written_to_in_its_midst_without_asking() {
    let mut play = Play::new();
    for turn in 0..30 {
        for deed in [Deed::Open, Deed::Put(turn * 7, 50), Deed::Close] {
            play.step(0, turn % FILES, deed);
            play.check_beside();
        }
    }
    (0..FILES).for_each(|file| play.step(2, file, Deed::Read));
    assert!(play.unasked[0] == 30, "{:?}", play.unasked);
}

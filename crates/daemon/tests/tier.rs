//! A shard with an origin, and a keeper that pretends to work there.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::collections::BTreeMap;

use mayfly_daemon::{Caller, Completion, Directories, Link};
use mayfly_types::{
    Attr, Errno, FileKind, OpenRef, SessionId, Timestamp, limits::INLINE_BYTES_MAX,
};
use mayfly_wire::{
    Data, MakeDirectory, Open, OpenReply, Operation, Read, Reader, Request, Stat, Target, TierAsk,
    TierDone, TierItem, TierTold, TierWork, Unlink, Wire, Write, Writer,
    tier::{
        NO_ATTR, TIER_CHECK, TIER_CREATE, TIER_FETCH, TIER_FLUSH, TIER_FLUSH_NOW, TIER_LOOK,
        TIER_MAKE_DIRECTORY, TIER_REMOVE_DIRECTORY, TIER_STATUS, TierEntry, TierSource, pack,
        unpacked,
    },
};
use support::{Node, O_CREAT, O_RDWR, SESSION, config, fsck::findings, walk};

const KEEPER: SessionId = SessionId(7);
const OTHER: SessionId = SessionId(2);

/// An item as the keeper has it.
#[derive(Debug, Clone)]
struct Given {
    number: u64,
    what: u32,
    again: bool,
    path: String,
    other: String,
    bytes: Vec<u8>,
}

struct Bench {
    node: Node,
    /// Files outside, those whose names end with a slash are directories.
    outside: BTreeMap<String, (u64, Vec<u8>)>,
    given: Vec<Given>,
    answers: Vec<Completion>,
    /// Items that were done, in this order.
    done: Vec<(u32, String)>,
    fails: Option<Errno>,
    lanes: u32,
}

fn attr(name: &str, (time, bytes): &(u64, Vec<u8>)) -> Attr {
    let at = Timestamp { seconds: *time as i64, nanoseconds: 0 };
    let kind = if name.ends_with('/') { FileKind::Directory } else { FileKind::Regular };
    let (mode, size_bytes) = (0o644, bytes.len() as u64);
    Attr { kind, mode, size_bytes, mtime: at, ctime: at, atime: at, ..NO_ATTR }
}

impl Bench {
    fn new() -> Bench {
        let config = mayfly_daemon::Config { directories: Directories::Whole, ..config() };
        let mut node = Node::memory(config);
        node.sessions.extend([(KEEPER, 9), (OTHER, 10)]);
        let mut outside = BTreeMap::new();
        outside.insert("/".to_owned(), (1, Vec::new()));
        outside.insert("small".to_owned(), (1, b"small".to_vec()));
        outside.insert("large".to_owned(), (1, vec![7; 3 * INLINE_BYTES_MAX]));
        let (given, answers, done) = (Vec::new(), Vec::new(), Vec::new());
        let mut bench = Bench { node, outside, given, answers, done, fails: None, lanes: 100 };
        bench.restart();
        bench
    }

    /// The daemon dies; the keeper asks the next one.
    fn restart(&mut self) {
        self.node.restart();
        let links = [Link { path: b"in".to_vec(), read_only: false }];
        self.node.core().link_origins(&links, Some(0)).unwrap();
        (self.given, self.answers) = (Vec::new(), Vec::new());
        for lane in 0..4 {
            self.hand_in(Caller { session: KEEPER, lane, request_id: 1 << 40 }, &TierWork {});
        }
    }

    fn hand_in<'a, O: Operation<'a>>(&mut self, caller: Caller, request: &O) {
        let mut sent = vec![0; 100_000];
        let mut to = Writer::new(&mut sent);
        request.encode(&mut to).unwrap();
        let used = to.used();
        let request = Request::decode(O::OP, &sent[..used]).unwrap();
        self.node.hand_in(caller, request, &mut vec![0; 100_000]);
        self.settle();
    }

    /// All that moves by itself.
    fn settle(&mut self) {
        loop {
            while self.node.move_on() {}
            let done = self.node.completions();
            if done.is_empty() {
                return;
            }
            for done in done {
                if done.caller.session != KEEPER || done.body.to_vec().is_empty() {
                    self.answers.push(done);
                    continue;
                }
                let body = done.body.to_vec();
                let item = TierItem::decode(&mut Reader::new(&body)).unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                self.given.push(Given {
                    number: item.number,
                    what: item.what,
                    again: item.again,
                    path: text(item.path),
                    other: text(item.other),
                    bytes: item.bytes.to_vec(),
                });
            }
        }
    }

    /// A request of a process that may have to wait; who asked.
    fn begin<'a, O: Operation<'a>>(&mut self, session: SessionId, request: &O) -> Caller {
        self.lanes += 1;
        let caller = Caller { session, lane: self.lanes, request_id: u64::from(self.lanes) };
        self.hand_in(caller, request);
        caller
    }

    fn answer(&mut self, caller: Caller) -> Option<(u32, Vec<u8>)> {
        let at = self.answers.iter().position(|done| done.caller == caller)?;
        let done = self.answers.swap_remove(at);
        Some((done.status, done.body.to_vec()))
    }

    /// Does what the keeper was given, until nothing is left.
    fn work(&mut self) {
        while !self.given.is_empty() {
            let item = self.given.remove(0);
            self.perform(&item);
        }
    }

    /// The same until it is given such an item.
    fn work_until(&mut self, what: u32) {
        while !self.given.iter().any(|given| given.what == what) {
            let item = self.given.remove(0);
            self.perform(&item);
        }
    }

    fn perform(&mut self, item: &Given) {
        self.done.push((item.what, item.path.clone()));
        let result = match self.fails {
            Some(errno) => Err(errno),
            None => self.act(item),
        };
        let (status, attr, bytes) = match result {
            Ok((attr, bytes)) => (0, attr, bytes),
            Err(errno) => (errno.raw() as u32, NO_ATTR, Vec::new()),
        };
        let number = item.number;
        let told = TierDone { number, status, more: false, same: false, attr, bytes: &bytes };
        self.begin(KEEPER, &told);
        self.begin(KEEPER, &TierWork {});
    }

    fn act(&mut self, item: &Given) -> Result<(Attr, Vec<u8>), Errno> {
        let path = item.path.as_str();
        match item.what {
            TIER_LOOK if path.is_empty() => {
                let (mut packed, mut used) = (vec![0; 10_000], 0);
                for (name, file) in self.outside.iter().filter(|(name, _)| *name != "/") {
                    let attr = attr(name, file);
                    let name = name.trim_end_matches('/').as_bytes();
                    used = pack(&TierEntry { name, attr, target: b"" }, &mut packed, used).unwrap();
                }
                packed.truncate(used);
                Ok((attr("/", &self.outside["/"]), packed))
            }
            TIER_LOOK if !path.is_empty() => {
                let name = format!("{path}/");
                let file = self.outside.get(&name).ok_or(Errno::ENOENT)?;
                Ok((attr(&name, file), Vec::new()))
            }
            TIER_REMOVE_DIRECTORY => match self.outside.remove(&format!("{path}/")) {
                None if !item.again => Err(Errno::ENOENT),
                _ => Ok((NO_ATTR, Vec::new())),
            },
            TIER_CHECK if path.is_empty() => Ok((attr("/", &self.outside["/"]), Vec::new())),
            TIER_CREATE | TIER_MAKE_DIRECTORY => {
                let slash = if item.what == TIER_CREATE { "" } else { "/" };
                let name = format!("{path}{slash}");
                if self.outside.contains_key(&name) && !item.again {
                    return Err(Errno::EEXIST);
                }
                let made = self.outside.entry(name.clone()).or_insert((5, Vec::new()));
                Ok((attr(&name, made), Vec::new()))
            }
            _ => {
                let directory = format!("{path}/");
                let name = if self.outside.contains_key(path) { path } else { &directory };
                let file = self.outside.get_mut(name).ok_or(Errno::ENOENT)?;
                if item.what == TIER_FLUSH {
                    let read = || std::fs::read(self.node.objects.join(&item.other)).unwrap();
                    file.1 = if item.other.is_empty() { item.bytes.clone() } else { read() };
                    file.0 += 1;
                }
                let (attr, bytes) = (attr(name, file), file.1.clone());
                if item.what == TIER_FETCH && bytes.len() > INLINE_BYTES_MAX {
                    let object = self.node.objects.join(&item.other);
                    std::fs::create_dir_all(object.parent().unwrap()).unwrap();
                    std::fs::write(object, bytes).unwrap();
                    return Ok((attr, Vec::new()));
                }
                Ok((attr, if item.what == TIER_FETCH { bytes } else { Vec::new() }))
            }
        }
    }

    /// A request with the keeper at work; its answer.
    fn ask<'a, O: Operation<'a>>(&mut self, request: &O) -> Result<Vec<u8>, Errno> {
        let caller = self.begin(SESSION, request);
        self.work();
        match self.answer(caller).expect("it is answered") {
            (0, body) => Ok(body),
            (status, _) => Err(Errno::from_raw(status as i32).unwrap()),
        }
    }

    fn open(&mut self, path: &str, flags: u32) -> Result<OpenRef, Errno> {
        let open = Open { walk: walk(path, 0), flags, mode: 0o644, uid: 0, gid: 0 };
        let body = self.ask(&open)?;
        Ok(OpenReply::decode(&mut Reader::new(&body)).unwrap().opened.open)
    }

    fn read(&mut self, open: OpenRef) -> Result<Vec<u8>, Errno> {
        let body = self.ask(&Read { open, offset: 0, count: 100_000 })?;
        Ok(Data::decode(&mut Reader::new(&body)).unwrap().bytes.to_vec())
    }

    fn write(&mut self, open: OpenRef, bytes: &[u8]) {
        self.ask(&Write { open, offset: 0, append: false, bytes }).unwrap();
    }

    fn stat(&mut self, path: &str) -> Result<Attr, Errno> {
        let body = self.ask(&Stat { target: Target::Path(walk(path, 0)) })?;
        Ok(Attr::decode(&mut Reader::new(&body)).unwrap())
    }

    fn source(&mut self) -> TierSource {
        let body = self.ask(&TierAsk { what: TIER_STATUS, path: b"" }).unwrap();
        let told = TierTold::decode(&mut Reader::new(&body)).unwrap();
        unpacked(told.sources).unwrap().next().unwrap()
    }

    /// Of what the keeper is given next the first that is this.
    fn take_given(&mut self, what: u32) -> Given {
        let at = self.given.iter().position(|given| given.what == what);
        self.given.remove(at.unwrap_or_else(|| panic!("{what}: {:?}", self.given)))
    }

    fn expect_nothing_wrong(&mut self) {
        self.settle();
        let found = findings(&self.node);
        assert!(found.is_empty(), "{found:#?}");
    }

    fn count(&self, what: u32) -> usize {
        self.done.iter().filter(|done| done.0 == what).count()
    }
}

#[test]
fn who_reads_what_is_being_fetched_waits_and_others_do_not() {
    let mut bench = Bench::new();
    let (large, small) = (bench.open("in/large", 0).unwrap(), bench.open("in/small", 0).unwrap());
    let read = |open| Read { open, offset: 0, count: 100_000 };
    let first = bench.begin(SESSION, &read(large));
    let second = bench.begin(OTHER, &read(large));
    let fetch = bench.take_given(TIER_FETCH);
    assert!(bench.given.is_empty(), "one fetch for both");
    assert_eq!(bench.read(small).unwrap(), b"small");
    assert!(bench.answer(first).is_none() && bench.answer(second).is_none());
    bench.perform(&fetch);
    for reader in [first, second] {
        assert_eq!(bench.answer(reader).unwrap().0, 0);
    }
    assert_eq!(bench.read(large).unwrap(), vec![7; 3 * INLINE_BYTES_MAX]);
    assert_eq!(bench.count(TIER_FETCH), 2, "what is here is not fetched again");
    assert_eq!(bench.source().cached_bytes, 3 * INLINE_BYTES_MAX as u64 + 5);
    bench.expect_nothing_wrong();
}

#[test]
fn a_fetch_that_fails_tells_all_who_wait_and_the_next_reader_tries_again() {
    let mut bench = Bench::new();
    let large = bench.open("in/large", 0).unwrap();
    bench.fails = Some(Errno::EACCES);
    assert_eq!(bench.read(large).err(), Some(Errno::EACCES));
    bench.fails = None;
    assert_eq!(bench.read(large).unwrap().len(), 3 * INLINE_BYTES_MAX);
    assert_eq!(bench.source().errors, 1);
    bench.expect_nothing_wrong();
}

#[test]
fn a_daemon_that_dies_while_a_file_is_fetched_leaves_it_absent() {
    let mut bench = Bench::new();
    let large = bench.open("in/large", 0).unwrap();
    let reader = bench.begin(SESSION, &Read { open: large, offset: 0, count: 9 });
    let fetch = bench.take_given(TIER_FETCH);
    bench.act(&fetch).unwrap();
    bench.restart();
    // The old keeper's word about it comes too late.
    let (number, attr) = (fetch.number, NO_ATTR);
    let told = TierDone { number, status: 0, more: false, same: false, attr, bytes: b"" };
    let late = bench.begin(KEEPER, &told);
    assert_eq!(bench.answer(late).unwrap().0, Errno::ESTALE.raw() as u32);
    assert_eq!(bench.answer(reader), None);
    assert_eq!(bench.source().cached_bytes, 0);
    assert_eq!(bench.read(large).unwrap(), vec![7; 3 * INLINE_BYTES_MAX]);
    assert_eq!(bench.count(TIER_FETCH), 1, "it was fetched once more");
    bench.expect_nothing_wrong();
}

#[test]
fn what_a_dead_keeper_had_is_done_by_another() {
    let mut bench = Bench::new();
    let (walk, flags) = (walk("in/new", 0), O_CREAT | O_RDWR);
    let maker = Open { walk, flags, mode: 0o600, uid: 0, gid: 0 };
    let caller = bench.begin(SESSION, &maker);
    bench.work_until(TIER_CREATE);
    let create = bench.take_given(TIER_CREATE);
    assert!(!create.again);
    bench.act(&create).unwrap();
    bench.node.core().session_closed(KEEPER);
    bench.node.core().session_opened(KEEPER, 9);
    bench.begin(KEEPER, &TierWork {});
    let create = bench.take_given(TIER_CREATE);
    assert!(create.again, "it may have been done");
    bench.perform(&create);
    bench.work();
    assert_eq!(bench.answer(caller).unwrap().0, 0);
    assert_eq!(bench.stat("in/new").unwrap().size_bytes, 0);
}

#[test]
fn a_change_that_comes_again_after_a_restart_may_have_been_made() {
    let mut bench = Bench::new();
    bench.stat("in/small").unwrap();
    let make = MakeDirectory { walk: walk("in/made", 0), mode: 0o755, uid: 0, gid: 0 };
    let caller = bench.begin(SESSION, &make);
    bench.work_until(TIER_MAKE_DIRECTORY);
    let item = bench.take_given(TIER_MAKE_DIRECTORY);
    bench.act(&item).unwrap();
    bench.restart();
    // The next daemon looks at the directory first, and finds what the last one has made there.
    bench.hand_in(caller, &make);
    bench.work_until(TIER_MAKE_DIRECTORY);
    assert!(bench.given.iter().any(|given| given.again), "it may have been done");
    bench.work();
    assert_eq!(bench.answer(caller).expect("it is answered").0, 0);
    assert_eq!(bench.stat("in/made").unwrap().kind, FileKind::Directory);
}

/// The next daemon looked at the directory first, did not find it, and said so.
#[test]
fn a_directory_that_was_removed_before_is_removed_when_the_request_comes_again() {
    let mut bench = Bench::new();
    bench.outside.insert("made/".to_owned(), (1, Vec::new()));
    assert_eq!(bench.stat("in/made").unwrap().kind, FileKind::Directory);
    let remove = Unlink { walk: walk("in/made", 0), directory: true };
    let caller = bench.begin(SESSION, &remove);
    bench.work_until(TIER_REMOVE_DIRECTORY);
    let item = bench.take_given(TIER_REMOVE_DIRECTORY);
    bench.act(&item).unwrap();
    bench.restart();
    bench.hand_in(caller, &remove);
    bench.work();
    assert_eq!(bench.answer(caller).expect("it is answered").0, 0);
    assert_eq!(bench.stat("in/made").err(), Some(Errno::ENOENT));
}

#[test]
fn a_look_that_was_begun_before_a_name_was_made_does_not_remove_it() {
    let mut bench = Bench::new();
    bench.stat("in/small").unwrap();
    let looks = Stat { target: Target::Path(walk("in/small", 0)) };
    let looker = bench.begin(OTHER, &looks);
    let look = bench.take_given(TIER_LOOK);
    let (seen, packed) = bench.act(&look).unwrap();
    // Meanwhile somebody makes a name; he waits for the same look, so it is made at once outside.
    bench.outside.insert("late".to_owned(), (9, b"x".to_vec()));
    let (number, bytes) = (look.number, packed.as_slice());
    let told = TierDone { number, status: 0, more: false, same: false, attr: seen, bytes };
    bench.begin(KEEPER, &told);
    bench.begin(KEEPER, &TierWork {});
    bench.work();
    assert_eq!(bench.answer(looker).unwrap().0, 0);
    assert_eq!(bench.stat("in/late").unwrap().size_bytes, 1);
}

#[test]
fn a_file_that_is_written_while_it_is_flushed_stays_dirty() {
    let mut bench = Bench::new();
    let small = bench.open("in/small", O_RDWR).unwrap();
    bench.write(small, b"SMALL");
    assert_eq!(bench.source().dirty_files, 1);
    let flusher = bench.begin(OTHER, &TierAsk { what: TIER_FLUSH_NOW, path: b"in" });
    let flush = bench.take_given(TIER_FLUSH);
    bench.write(small, b"again");
    bench.perform(&flush);
    assert_eq!(bench.answer(flusher).unwrap().0, 0);
    assert_eq!(bench.outside["small"].1, b"SMALL");
    assert_eq!(bench.source().dirty_files, 1);
    bench.ask(&TierAsk { what: TIER_FLUSH_NOW, path: b"in/small" }).unwrap();
    assert_eq!(bench.outside["small"].1, b"again");
    assert_eq!(bench.source().dirty_files, 0);
    bench.ask(&TierAsk { what: TIER_FLUSH_NOW, path: b"" }).unwrap();
    assert_eq!(bench.count(TIER_FLUSH), 2, "what is clean is not flushed");
}

#[test]
fn a_dirty_file_is_dirty_after_the_daemons_death_whatever_it_was_at() {
    let mut bench = Bench::new();
    let large = bench.open("in/large", O_RDWR).unwrap();
    bench.write(large, b"head");
    bench.restart();
    assert_eq!(bench.source().dirty_files, 1);
    let flusher = bench.begin(SESSION, &TierAsk { what: TIER_FLUSH_NOW, path: b"" });
    let flush = bench.take_given(TIER_FLUSH);
    bench.act(&flush).unwrap();
    bench.restart();
    assert_eq!(bench.answer(flusher), None);
    assert_eq!(bench.source().dirty_files, 1, "nobody has said that it is clean");
    bench.ask(&TierAsk { what: TIER_FLUSH_NOW, path: b"" }).unwrap();
    assert_eq!(bench.source().dirty_files, 0);
    assert!(bench.outside["large"].1.starts_with(b"head\x07"));
    bench.restart();
    assert_eq!(bench.source().dirty_files, 0);
    bench.expect_nothing_wrong();
}

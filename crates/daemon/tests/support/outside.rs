//! A shard with an origin, and a keeper that pretends to work there.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::FileExt,
    path::Path,
};

use mayfly_daemon::{Caller, Completion, Directories, Link};
use mayfly_types::{
    Attr, Errno, FileKind, OpenRef, SessionId, Timestamp, limits::INLINE_BYTES_MAX,
};
use mayfly_wire::{
    Close, Data, Open, OpenReply, Operation, Read, Reader, Request, Stat, Target, TierAsk,
    TierDone, TierItem, TierTold, TierWork, Wire, Write, Writer,
    tier::{
        NO_ATTR, TIER_CHECK, TIER_CHUNKS, TIER_CONFLICT, TIER_CREATE, TIER_EVICT, TIER_FETCH,
        TIER_FLUSH, TIER_INCOMPLETE, TIER_LOOK, TIER_MAKE_DIRECTORY, TIER_PARTLY, TIER_REMOVE,
        TIER_REMOVE_DIRECTORY, TIER_REMOVE_XATTR, TIER_RENAME, TIER_SET_XATTR, TIER_STATUS,
        TIER_XATTRS, TierEntry, TierParts, TierSource, TierXattr, pack, unpacked,
    },
};

use super::{Node, SESSION, config, fsck::findings, walk};

pub const KEEPER: SessionId = SessionId(7);
pub const OTHER: SessionId = SessionId(2);

/// An item as the keeper has it.
#[derive(Debug, Clone)]
pub struct Given {
    pub shard: usize,
    pub number: u64,
    pub what: u32,
    pub again: bool,
    pub path: String,
    pub other: String,
    pub bytes: Vec<u8>,
    pub which: u32,
    pub range: (u64, u64),
    pub known: Attr,
}

/// What the object lacks is the master copy's.
fn bytes_to_flush(
    item: &Given,
    objects: &Path,
    (version, master): &(u64, Vec<u8>),
) -> Result<Vec<u8>, Errno> {
    if item.other.is_empty() {
        return Ok(item.bytes.clone());
    }
    let mut bytes = std::fs::read(objects.join(&item.other)).unwrap();
    if item.which & TIER_PARTLY == 0 {
        return Ok(bytes);
    }
    if *version != item.known.mtime.seconds as u64 || master.len() as u64 != item.known.size_bytes {
        return Err(Errno::ESTALE);
    }
    let parts = TierParts::new(item.range, &item.bytes).unwrap();
    let mut at = 0;
    while at < bytes.len() {
        let (is_here, end) = parts.run_at(at as u64);
        let end = (end as usize).min(bytes.len());
        if !is_here {
            bytes[at..end].copy_from_slice(&master[at..end]);
        }
        at = end;
    }
    Ok(bytes)
}

pub struct Bench {
    pub node: Node,
    /// Files outside, those whose names end with a slash are directories.
    pub outside: BTreeMap<String, (u64, Vec<u8>)>,
    /// Extended attributes outside, by path and name.
    pub xattrs: BTreeMap<(String, String), Vec<u8>>,
    pub given: Vec<Given>,
    pub answers: Vec<Completion>,
    /// Items that were done, in this order.
    pub done: Vec<(u32, String)>,
    pub fails: Option<Errno>,
    /// It fetches chunks of another file than it was told of, and says that it is the same.
    pub is_careless: bool,
    /// Most items that were given at a time.
    pub most_given: usize,
    pub lanes: u32,
    /// At which shard the keeper has asked on a lane.
    pub asked_at: BTreeMap<u32, usize>,
    /// Shards whose keepers have done something.
    pub worked: BTreeSet<usize>,
}

pub fn attr(name: &str, (time, bytes): &(u64, Vec<u8>)) -> Attr {
    let at = Timestamp { seconds: *time as i64, nanoseconds: 0 };
    let kind = if name.ends_with('/') { FileKind::Directory } else { FileKind::Regular };
    let (mode, size_bytes) = (0o644, bytes.len() as u64);
    let blocks = size_bytes.div_ceil(512);
    Attr { kind, mode, size_bytes, blocks, mtime: at, ctime: at, atime: at, ..NO_ATTR }
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with_capacity(config().capacity_bytes)
    }

    pub fn with_capacity(capacity_bytes: u64) -> Bench {
        let directories = Directories::Whole;
        let config = mayfly_daemon::Config { directories, capacity_bytes, ..config() };
        Bench::around(Node::memory(config), Some(0))
    }

    /// One that changes names outside after they are changed here.
    pub fn with_journal(node: Node, valid_ms: Option<u64>) -> Bench {
        let mut bench = Bench::around(node, valid_ms);
        bench.node.links.0[0].names_async = true;
        bench.restart();
        bench
    }

    /// Of several shards, each with a keeper of its own, as nodes have them.
    pub fn several(shards: u32, seed: u64, valid_ms: Option<u64>) -> Bench {
        let directories = Directories::Restless;
        let config = mayfly_daemon::Config { directories, ..config() };
        Bench::around(Node::several(config, shards, seed, false), valid_ms)
    }

    fn around(mut node: Node, valid_ms: Option<u64>) -> Bench {
        let link = Link { path: b"in".to_vec(), ..Link::default() };
        node.links = (vec![link], valid_ms);
        node.sessions.extend([(KEEPER, 9), (OTHER, 10)]);
        let mut outside = BTreeMap::new();
        outside.insert("/".to_owned(), (1, Vec::new()));
        outside.insert("small".to_owned(), (1, b"small".to_vec()));
        outside.insert("large".to_owned(), (1, vec![7; 3 * INLINE_BYTES_MAX]));
        let (given, answers, done) = (Vec::new(), Vec::new(), Vec::new());
        let (asked_at, worked) = (BTreeMap::new(), BTreeSet::new());
        let (fails, lanes, most_given) = (None, 100, 0);
        let mut bench = Bench {
            node,
            outside,
            xattrs: BTreeMap::new(),
            given,
            answers,
            done,
            fails,
            is_careless: false,
            most_given,
            lanes,
            asked_at,
            worked,
        };
        bench.restart();
        bench
    }

    /// The daemon dies; the keeper asks the next one.
    pub fn restart(&mut self) {
        self.node.restart();
        (self.given, self.answers) = (Vec::new(), Vec::new());
        for (lane, shard) in (0..).zip((0..self.node.cores.len()).cycle().take(4 * self.shards())) {
            let caller = Caller { session: KEEPER, lane, request_id: 1 << 40 };
            self.hand_in_at(shard, caller, &TierWork {});
        }
        self.settle();
    }

    pub fn shards(&self) -> usize {
        self.node.cores.len()
    }

    pub fn hand_in<'a, O: Operation<'a>>(&mut self, caller: Caller, request: &O) {
        self.hand_in_at(0, caller, request);
        self.settle();
    }

    /// Nothing moves by that.
    pub fn hand_in_at<'a, O: Operation<'a>>(&mut self, at: usize, caller: Caller, request: &O) {
        self.asked_at.insert(caller.lane, at);
        let mut sent = vec![0; 1 << 20];
        let mut to = Writer::new(&mut sent);
        request.encode(&mut to).unwrap();
        let used = to.used();
        let request = Request::decode(O::OP, &sent[..used]).unwrap();
        self.node.hand_in_at(at, caller, request, &mut vec![0; 1 << 20]);
    }

    /// All that moves by itself.
    pub fn settle(&mut self) {
        loop {
            while self.node.move_on() {}
            if !self.collect() {
                return;
            }
        }
    }

    /// Answers that have come; false when there was none. Nothing moves by that.
    pub fn collect(&mut self) -> bool {
        let done = self.node.completions();
        let came = !done.is_empty();
        for done in done {
            if done.caller.session != KEEPER || done.body.to_vec().is_empty() {
                self.answers.push(done);
                continue;
            }
            let body = done.body.to_vec();
            let item = TierItem::decode(&mut Reader::new(&body)).unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            self.most_given = self.most_given.max(self.given.len() + 1);
            self.given.push(Given {
                shard: self.asked_at[&done.caller.lane],
                number: item.number,
                what: item.what,
                again: item.again,
                path: text(item.path),
                other: text(item.other),
                bytes: item.bytes.to_vec(),
                which: item.which,
                range: (item.start, item.end),
                known: item.known,
            });
        }
        came
    }

    /// A request of a process that may have to wait; who asked.
    pub fn begin<'a, O: Operation<'a>>(&mut self, session: SessionId, request: &O) -> Caller {
        let caller = self.begin_at(0, session, request);
        self.settle();
        caller
    }

    /// The same at some shard. Nothing moves by that.
    pub fn begin_at<'a, O: Operation<'a>>(
        &mut self,
        at: usize,
        session: SessionId,
        request: &O,
    ) -> Caller {
        self.lanes += 1;
        let caller = Caller { session, lane: self.lanes, request_id: u64::from(self.lanes) };
        self.hand_in_at(at, caller, request);
        caller
    }

    pub fn answer(&mut self, caller: Caller) -> Option<(u32, Vec<u8>)> {
        let at = self.answers.iter().position(|done| done.caller == caller)?;
        let done = self.answers.swap_remove(at);
        Some((done.status, done.body.to_vec()))
    }

    /// Does what the keeper was given, until nothing is left.
    pub fn work(&mut self) {
        while !self.given.is_empty() {
            let item = self.given.remove(0);
            self.perform(&item);
        }
    }

    /// The same until it is given such an item.
    pub fn work_until(&mut self, what: u32) {
        while !self.given.iter().any(|given| given.what == what) {
            let item = self.given.remove(0);
            self.perform(&item);
        }
    }

    pub fn perform(&mut self, item: &Given) {
        self.perform_and_stop(item);
        self.settle();
    }

    /// The same, and nothing moves by that.
    pub fn perform_and_stop(&mut self, item: &Given) {
        self.worked.insert(item.shard);
        self.done.push((item.what, item.path.clone()));
        let result = match self.fails {
            Some(errno) => Err(errno),
            None => self.act(item),
        };
        let is_beside = item.what == TIER_FLUSH && item.which & TIER_INCOMPLETE != 0;
        let (status, attr, bytes) = match result {
            Ok((attr, bytes)) => (if is_beside { TIER_CONFLICT } else { 0 }, attr, bytes),
            Err(errno) => (errno.raw() as u32, NO_ATTR, Vec::new()),
        };
        let number = item.number;
        let is_known = attr.mtime == item.known.mtime && attr.size_bytes == item.known.size_bytes;
        let same = item.what == TIER_CHUNKS && (is_known || self.is_careless);
        let told = TierDone { number, status, more: false, same, attr, bytes: &bytes };
        self.begin_at(item.shard, KEEPER, &told);
        self.begin_at(item.shard, KEEPER, &TierWork {});
    }

    pub fn act(&mut self, item: &Given) -> Result<(Attr, Vec<u8>), Errno> {
        let path = item.path.as_str();
        match item.what {
            TIER_LOOK => {
                let (own, above) = match path {
                    "" => ("/".to_owned(), String::new()),
                    path => (format!("{path}/"), format!("{path}/")),
                };
                let listed = self.outside.get(&own).ok_or(Errno::ENOENT)?;
                let (mut packed, mut used) = (vec![0; 10_000], 0);
                for (name, file) in self.outside.iter().filter(|(name, _)| *name != "/") {
                    let below = name.strip_prefix(&above).map(|name| name.trim_end_matches('/'));
                    let is_it = |name: &&str| !name.is_empty() && !name.contains('/');
                    let Some(below) = below.filter(is_it) else { continue };
                    let (name, attr) = (below.as_bytes(), attr(name, file));
                    used = pack(&TierEntry { name, attr, target: b"" }, &mut packed, used).unwrap();
                }
                packed.truncate(used);
                Ok((attr(&own, listed), packed))
            }
            TIER_REMOVE => match self.outside.remove(path) {
                None if !item.again => Err(Errno::ENOENT),
                _ => Ok((NO_ATTR, Vec::new())),
            },
            TIER_REMOVE_DIRECTORY => self.remove_directory_outside(item),
            TIER_CHECK if path.is_empty() => Ok((attr("/", &self.outside["/"]), Vec::new())),
            TIER_CREATE | TIER_MAKE_DIRECTORY => {
                let slash = if item.what == TIER_CREATE { "" } else { "/" };
                let name = format!("{path}{slash}");
                if self.outside.contains_key(&name) && !item.again {
                    return Err(Errno::EEXIST);
                }
                self.parent_of(path)?;
                let made = self.outside.entry(name.clone()).or_insert((5, Vec::new()));
                Ok((attr(&name, made), Vec::new()))
            }
            TIER_RENAME => self.move_outside(item),
            TIER_FLUSH if item.which & TIER_INCOMPLETE != 0 => self.put_beside(item),
            TIER_XATTRS | TIER_SET_XATTR | TIER_REMOVE_XATTR => self.xattr_outside(item),
            _ => {
                let directory = format!("{path}/");
                let name = if self.outside.contains_key(path) { path } else { &directory };
                let file = self.outside.get_mut(name).ok_or(Errno::ENOENT)?;
                if item.what == TIER_FLUSH {
                    let bytes = bytes_to_flush(item, &self.node.objects, file)?;
                    *file = (file.0 + 1, bytes);
                }
                let (attr, bytes) = (attr(name, file), file.1.clone());
                if item.what == TIER_CHUNKS {
                    let object = self.node.objects.join(&item.other);
                    std::fs::create_dir_all(object.parent().unwrap()).unwrap();
                    let mut options = std::fs::OpenOptions::new();
                    let object = options.write(true).create(item.which == 1).open(object);
                    let (start, end) = item.range;
                    let part = &bytes[start as usize..end as usize];
                    object.unwrap().write_all_at(part, start).unwrap();
                    return Ok((attr, Vec::new()));
                }
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

    fn has_below(&self, path: &str) -> bool {
        let above = format!("{path}/");
        self.outside.keys().any(|name| name.len() > above.len() && name.starts_with(&above))
    }

    fn parent_of(&self, path: &str) -> Result<(), Errno> {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        match self.outside.contains_key(&format!("{parent}/")) {
            true => Ok(()),
            false => Err(Errno::ENOENT),
        }
    }

    fn remove_directory_outside(&mut self, item: &Given) -> Result<(Attr, Vec<u8>), Errno> {
        if self.has_below(&item.path) {
            return Err(Errno::ENOTEMPTY);
        }
        match self.outside.remove(&format!("{}/", item.path)) {
            None if !item.again => Err(Errno::ENOENT),
            _ => Ok((NO_ATTR, Vec::new())),
        }
    }

    fn put_beside(&mut self, item: &Given) -> Result<(Attr, Vec<u8>), Errno> {
        let path = &item.path;
        let there = self.outside.get(path).map_or(NO_ATTR, |file| attr(path, file));
        let bytes = std::fs::read(self.node.objects.join(&item.other)).unwrap();
        let copy = format!("{path}-incomplete");
        self.outside.insert(copy.clone(), (1, bytes));
        Ok((there, copy.into_bytes()))
    }

    fn xattr_outside(&mut self, item: &Given) -> Result<(Attr, Vec<u8>), Errno> {
        let (path, key) = (item.path.clone(), (item.path.clone(), item.other.clone()));
        let directory = format!("{path}/");
        let name = if self.outside.contains_key(&path) { &path } else { &directory };
        let file = self.outside.get_mut(name).ok_or(Errno::ENOENT)?;
        match item.what {
            TIER_SET_XATTR => drop(self.xattrs.insert(key, item.bytes.clone())),
            TIER_REMOVE_XATTR => drop(self.xattrs.remove(&key).ok_or(Errno::ENODATA)?),
            _ => {}
        }
        file.0 += u64::from(item.what != TIER_XATTRS);
        let attr = attr(name, file);
        let (mut packed, mut used) = (vec![0; 10_000], 0);
        for ((_, name), value) in self.xattrs.iter().filter(|of| of.0.0 == path) {
            let xattr = TierXattr { name: name.as_bytes(), value };
            used = pack(&xattr, &mut packed, used).unwrap();
        }
        packed.truncate(used);
        Ok((attr, if item.what == TIER_XATTRS { packed } else { Vec::new() }))
    }

    fn move_outside(&mut self, item: &Given) -> Result<(Attr, Vec<u8>), Errno> {
        let (from, to) = (item.path.as_str(), item.other.as_str());
        self.parent_of(to)?;
        let (from_below, to_below) = (format!("{from}/"), format!("{to}/"));
        if let Some(file) = self.outside.remove(from) {
            let seen = attr(to, &file);
            self.outside.insert(to.to_owned(), file);
            return Ok((seen, Vec::new()));
        }
        if self.outside.contains_key(&from_below) && self.has_below(to) {
            return Err(Errno::ENOTEMPTY);
        }
        let is_moved = |name: &String| name.starts_with(&from_below);
        let moved: Vec<String> = self.outside.keys().filter(|of| is_moved(of)).cloned().collect();
        if moved.is_empty() {
            let there = self.outside.get_key_value(to).or(self.outside.get_key_value(&to_below));
            let there = there.filter(|_| item.again).ok_or(Errno::ENOENT)?;
            return Ok((attr(there.0, there.1), Vec::new()));
        }
        for name in moved {
            let file = self.outside.remove(&name).unwrap();
            self.outside.insert(name.replacen(&from_below, &to_below, 1), file);
        }
        Ok((attr(&to_below, &self.outside[&to_below]), Vec::new()))
    }

    /// A request with the keeper at work; its answer.
    pub fn ask<'a, O: Operation<'a>>(&mut self, request: &O) -> Result<Vec<u8>, Errno> {
        let caller = self.begin(SESSION, request);
        self.work();
        match self.answer(caller).expect("it is answered") {
            (0, body) => Ok(body),
            (status, _) => Err(Errno::from_raw(status as i32).unwrap()),
        }
    }

    pub fn open(&mut self, path: &str, flags: u32) -> Result<OpenRef, Errno> {
        let open = Open { walk: walk(path, 0), flags, mode: 0o644, uid: 0, gid: 0 };
        let body = self.ask(&open)?;
        Ok(OpenReply::decode(&mut Reader::new(&body)).unwrap().opened.open)
    }

    pub fn read(&mut self, open: OpenRef) -> Result<Vec<u8>, Errno> {
        self.read_at(open, 0)
    }

    pub fn read_at(&mut self, open: OpenRef, offset: u64) -> Result<Vec<u8>, Errno> {
        let body = self.ask(&Read { open, offset, count: 100_000 })?;
        Ok(Data::decode(&mut Reader::new(&body)).unwrap().bytes.to_vec())
    }

    pub fn write(&mut self, open: OpenRef, bytes: &[u8]) {
        self.ask(&Write { open, offset: 0, append: false, bytes }).unwrap();
    }

    /// Reads all of a file that is opened for that.
    pub fn read_whole(&mut self, path: &str) -> Result<Vec<u8>, Errno> {
        let (open, mut bytes) = (self.open(path, 0)?, Vec::new());
        loop {
            let part = self.read_at(open, bytes.len() as u64)?;
            if part.is_empty() {
                break;
            }
            bytes.extend(part);
        }
        self.ask(&Close { open })?;
        self.settle();
        Ok(bytes)
    }

    /// Evicts what can go at or below a path; how many files.
    pub fn evict(&mut self, path: &str) -> u64 {
        let body =
            self.ask(&TierAsk { what: TIER_EVICT, shard: 0, path: path.as_bytes() }).unwrap();
        self.settle();
        TierTold::decode(&mut Reader::new(&body)).unwrap().flushed
    }

    pub fn stat(&mut self, path: &str) -> Result<Attr, Errno> {
        let body = self.ask(&Stat { target: Target::Path(walk(path, 0)) })?;
        Ok(Attr::decode(&mut Reader::new(&body)).unwrap())
    }

    pub fn source(&mut self) -> TierSource {
        self.source_at(0)
    }

    /// What one shard has of the origin.
    pub fn source_at(&mut self, shard: usize) -> TierSource {
        let told = self.tier_ask_at(shard, TIER_STATUS);
        let told = TierTold::decode(&mut Reader::new(&told)).unwrap();
        unpacked(told.sources).unwrap().next().unwrap()
    }

    /// Asks a shard about all that it has.
    pub fn tier_ask_at(&mut self, shard: usize, what: u32) -> Vec<u8> {
        let caller =
            self.begin_at(shard, SESSION, &TierAsk { what, shard: shard as u32, path: b"" });
        self.settle();
        self.work();
        let (status, body) = self.answer(caller).expect("it is answered");
        assert_eq!(status, 0);
        body
    }

    /// Of what the keeper is given next the first that is this.
    pub fn take_given(&mut self, what: u32) -> Given {
        let at = self.given.iter().position(|given| given.what == what);
        self.given.remove(at.unwrap_or_else(|| panic!("{what}: {:?}", self.given)))
    }

    pub fn expect_nothing_wrong(&mut self) {
        self.settle();
        let found = findings(&self.node);
        assert!(found.is_empty(), "{found:#?}");
    }

    pub fn count(&self, what: u32) -> usize {
        self.done.iter().filter(|done| done.0 == what).count()
    }
}

//! Files whose bytes are on several nodes.

mod held;
mod space;

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed},
    },
    thread,
    time::Duration,
};

use mayfly_meta::record::Policy;
use mayfly_transport_shm::layout::{FILE_STRIPED, FileEntry};
use mayfly_types::{Chunks, Errno, FileId, OpenRef, Tail, limits::CHUNK_BYTES_MIN};
use mayfly_wire::{
    GRANT_PART, GRANT_READ, GRANT_WRITE, Grant, SET_MTIME, SET_SIZE, SetAttr, Stat, StatFs, Target,
    Write,
};

use crate::serve::tests::nodes::Instance;

const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_TRUNC: u32 = 0o1000;
const CHUNK: u64 = CHUNK_BYTES_MIN;

fn stripes(name: &str) -> Instance {
    Instance::striped(name, 4, 1, (CHUNK, Policy::Stripe))
}

impl Instance {
    fn write_all(&self, node: usize, open: OpenRef, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let sent = &bytes[..bytes.len().min(128 * 1024)];
            let count = self.write(node, open, offset, sent).expect("written") as usize;
            assert!(count > 0, "at {offset}");
            offset += count as u64;
            bytes = &bytes[count..];
        }
    }

    fn read_all(&self, node: usize, open: OpenRef, mut offset: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let more = self.read(node, open, offset, 128 * 1024).expect("read");
            if more.is_empty() {
                return bytes;
            }
            offset += more.len() as u64;
            bytes.extend(more);
        }
    }

    fn length(&self, node: usize, open: OpenRef) -> u64 {
        self.ask(node, &Stat { target: Target::Open(open) }, |attr| attr.size_bytes).expect("told")
    }

    fn set(&self, node: usize, open: OpenRef, which: u32, size_bytes: u64) -> Result<(), Errno> {
        let time = mayfly_types::Timestamp { seconds: 77, nanoseconds: 0 };
        let target = Target::Open(open);
        let (mode, uid, gid, atime, mtime) = (0, 0, 0, time, time);
        let set = SetAttr { target, which, mode, uid, gid, size_bytes, atime, mtime };
        self.ask(node, &set, |_| ())
    }

    fn append(&self, node: usize, open: OpenRef, bytes: &[u8]) -> Result<(u32, u64), Errno> {
        let write = Write { open, offset: u64::MAX, append: true, bytes };
        self.ask(node, &write, |written| (written.count, written.end))
    }

    fn objects(&self) -> usize {
        self.served.iter().map(|served| served.objects()).sum()
    }

    /// What goes after an answer goes soon.
    fn wait_until(&self, what: &str, is_so: impl Fn(&Instance) -> bool) {
        for _ in 0..1000 {
            if is_so(self) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("{what}");
    }
}

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at / 251) as u8 ^ at as u8 ^ seed).collect()
}

#[test]
fn the_bytes_of_a_file_are_on_all_nodes_and_read_from_each() {
    for policy in [Policy::Stripe, Policy::Hash] {
        let name = format!("spread-{}", policy as u8);
        let instance = Instance::striped(&name, 4, 2, (CHUNK, policy));
        let bytes = pattern(11 * CHUNK as usize + 777, 3);
        for writer in 0..4 {
            let path = format!("file-{writer}");
            let open = instance.open(writer, &path, O_RDWR | O_CREAT).expect("made");
            instance.write_all(writer, open, 0, &bytes);
            for reader in 0..4 {
                let other = instance.open(reader, &path, 0).expect("opened");
                assert_eq!(instance.length(reader, other), bytes.len() as u64);
                assert!(instance.read_all(reader, other, 0) == bytes, "{writer} {reader}");
                instance.close(reader, other).expect("closed");
            }
            instance.close(writer, open).expect("closed");
            let settled = |instance: &Instance| {
                let attr = instance.stat(0, &path).expect("there");
                attr.size_bytes == bytes.len() as u64 && attr.blocks * 512 >= attr.size_bytes
            };
            instance.wait_until("the size is right", settled);
        }
        for served in &instance.served {
            assert!(served.objects() >= 4, "each node has a part of each file");
        }
        for file in 0..4 {
            instance.unlink(3 - file, &format!("file-{file}"), false).expect("removed");
        }
        instance.wait_until("no part is left", |instance| instance.objects() == 0);
        let used = |instance: &Instance| instance.ask(0, &StatFs {}, |space| space.used_bytes);
        instance.wait_until("no space is counted", |instance| used(instance).unwrap() < 4 << 20);
    }
}

#[test]
fn holes_read_as_zeros_and_the_end_is_where_the_last_byte_is() {
    let instance = stripes("holes");
    let open = instance.open(0, "sparse", O_RDWR | O_CREAT).expect("made");
    let far = 9 * CHUNK + 5;
    instance.write_all(1, instance.open(1, "sparse", O_RDWR).expect("opened"), far, b"end");
    for node in 0..4 {
        let open = instance.open(node, "sparse", O_RDWR).expect("opened");
        assert_eq!(instance.length(node, open), far + 3);
        let bytes = instance.read_all(node, open, 0);
        assert_eq!(bytes.len() as u64, far + 3);
        assert!(bytes[..far as usize].iter().all(|byte| *byte == 0), "a hole");
        assert_eq!(&bytes[far as usize..], b"end");
        assert_eq!(instance.read(node, open, far + 3, 10), Ok(Vec::new()));
    }
    instance.close(0, open).expect("closed");
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let instance = stripes("cuts");
    let bytes = pattern(10 * CHUNK as usize, 9);
    let opens: Vec<OpenRef> =
        (0..4).map(|node| instance.open(node, "file", O_RDWR | O_CREAT).expect("opened")).collect();
    for (round, size) in
        [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1, 5 * CHUNK, 9 * CHUNK + 17].into_iter().enumerate()
    {
        let node = round % 4;
        instance.write_all(node, opens[node], 0, &bytes);
        let node = (round + 1) % 4;
        instance.set(node, opens[node], SET_SIZE, size).expect("cut");
        assert_eq!(instance.length((node + 1) % 4, opens[(node + 1) % 4]), size);
        let longer = 12 * CHUNK + 3;
        instance.set((node + 2) % 4, opens[(node + 2) % 4], SET_SIZE, longer).expect("extended");
        for (node, open) in opens.iter().enumerate() {
            assert_eq!(instance.length(node, *open), longer);
            let found = instance.read_all(node, *open, 0);
            assert_eq!(found.len() as u64, longer);
            assert!(found[..size as usize] == bytes[..size as usize], "below {size}");
            assert!(found[size as usize..].iter().all(|byte| *byte == 0), "above {size}");
        }
        let again = instance.open(node, "file", O_RDWR | O_TRUNC).expect("emptied");
        assert_eq!(instance.length(0, opens[0]), 0);
        instance.close(node, again).expect("closed");
    }
}

/// Several appends that were under way when the file had one object went beyond its first chunk,
/// and what stood there was the file's fifth.
#[test]
fn appends_of_all_nodes_stand_one_behind_the_other() {
    let instance = stripes("appends");
    for round in 0..8 {
        append_from_all(&instance, &format!("log-{round}"));
    }
}

fn append_from_all(instance: &Instance, path: &str) {
    let opens: Vec<OpenRef> =
        (0..4).map(|node| instance.open(node, path, O_RDWR | O_CREAT).expect("opened")).collect();
    const LINES: usize = 40;
    const LINE: usize = 5000;
    thread::scope(|scope| {
        for (node, open) in opens.iter().copied().enumerate() {
            scope.spawn(move || {
                for line in 0..LINES {
                    let text = vec![(node * LINES + line) as u8; LINE];
                    let mut rest = &text[..];
                    while !rest.is_empty() {
                        let (count, _) = instance.append(node, open, rest).expect("appended");
                        assert_eq!(count as usize, rest.len(), "nobody else writes there");
                        rest = &rest[count as usize..];
                    }
                }
            });
        }
    });
    let bytes = instance.read_all(2, opens[2], 0);
    assert_eq!(bytes.len(), 4 * LINES * LINE);
    let mut lines: Vec<u8> = Vec::new();
    for line in bytes.chunks(LINE) {
        assert!(line.iter().all(|byte| *byte == line[0]), "lines are whole");
        lines.push(line[0]);
    }
    lines.sort_unstable();
    assert_eq!(lines, (0..4 * LINES as u32).map(|line| line as u8).collect::<Vec<_>>());
}

#[test]
fn a_time_that_was_set_stays_until_bytes_are_changed() {
    let instance = stripes("times");
    let open = instance.open(1, "file", O_RDWR | O_CREAT).expect("made");
    instance.write_all(1, open, 0, &pattern(5 * CHUNK as usize, 1));
    instance.set(1, open, SET_MTIME, 0).expect("set");
    let mtime = |instance: &Instance| instance.stat(2, "file").expect("there").mtime.seconds;
    assert_eq!(mtime(&instance), 77, "while it is open");
    instance.write_all(1, open, 3 * CHUNK, b"x");
    assert!(mtime(&instance) > 77, "changed");
    instance.set(1, open, SET_MTIME, 0).expect("set");
    instance.close(1, open).expect("closed");
    for _ in 0..20 {
        assert_eq!(mtime(&instance), 77, "when it was closed");
        thread::sleep(Duration::from_millis(2));
    }
    let open = instance.open(3, "file", O_RDWR).expect("opened");
    instance.write_all(3, open, CHUNK, b"y");
    instance.close(3, open).expect("closed");
    for _ in 0..20 {
        assert!(mtime(&instance) > 77, "changed again");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_file_without_a_name_is_used_by_all_until_the_last_one_closes_it() {
    let instance = stripes("orphan");
    let opens: Vec<OpenRef> =
        (0..4).map(|node| instance.open(node, "file", O_RDWR | O_CREAT).expect("opened")).collect();
    let bytes = pattern(6 * CHUNK as usize, 4);
    instance.write_all(0, opens[0], 0, &bytes);
    instance.unlink(1, "file", false).expect("removed");
    instance.write_all(2, opens[2], 7 * CHUNK, &bytes);
    for (node, open) in opens.iter().enumerate() {
        assert_eq!(instance.read_all(node, *open, 7 * CHUNK), bytes);
        instance.close(node, *open).expect("closed");
    }
    instance.wait_until("no part is left", |instance| instance.objects() == 0);
    assert_eq!(instance.open(0, "file", 0), Err(Errno::ENOENT));
}

#[test]
fn daemons_that_come_back_have_their_parts_and_lose_no_cut() {
    let mut instance = stripes("restarts");
    let opens: Vec<OpenRef> =
        (0..4).map(|node| instance.open(node, "file", O_RDWR | O_CREAT).expect("opened")).collect();
    let mut expected = Vec::new();
    for round in 0..8_usize {
        let node = round % 4;
        instance.served[node].stop();
        let Instance { served, clients } = &mut instance;
        let view = Instance { served: Vec::new(), clients: std::mem::take(clients) };
        thread::scope(|scope| {
            let (view, opens, expected) = (&view, &opens, &mut expected);
            let works = scope.spawn(move || {
                let other = (node + 1) % 4;
                let bytes = pattern((3 + round) * CHUNK as usize + 99, round as u8);
                view.write_all(other, opens[other], 0, &bytes);
                if expected.len() < bytes.len() {
                    expected.resize(bytes.len(), 0);
                }
                expected[..bytes.len()].copy_from_slice(&bytes);
                let size = (expected.len() as u64).saturating_sub(CHUNK * 2);
                view.set((node + 2) % 4, opens[(node + 2) % 4], SET_SIZE, size).expect("cut");
                expected.truncate(size as usize);
                let line = vec![round as u8; 3000];
                assert_eq!(view.append(other, opens[other], &line), Ok((3000, size + 3000)));
                expected.extend(&line);
            });
            thread::sleep(Duration::from_millis(50));
            served[node].start();
            works.join().expect("no panic");
        });
        *clients = { view }.take_clients();
        for (node, open) in opens.iter().enumerate() {
            assert_eq!(instance.length(node, *open), expected.len() as u64);
            assert!(instance.read_all(node, *open, 0) == expected, "{round} {node}");
        }
    }
    for (node, open) in opens.iter().enumerate() {
        instance.close(node, *open).expect("closed");
    }
    instance.unlink(0, "file", false).expect("removed");
    instance.wait_until("no part is left", |instance| instance.objects() == 0);
}

/// A process that uses its node's part of a file by itself, as far as it has leave.
struct Direct<'i> {
    instance: &'i Instance,
    objects: PathBuf,
    node: usize,
    open: OpenRef,
}

/// Leave that was given.
struct Leave {
    object: File,
    generation: u32,
}

impl Instance {
    fn direct(&self, node: usize, path: &str) -> Direct<'_> {
        self.direct_in(node, path, self.objects_of(node))
    }

    fn direct_in(&self, node: usize, path: &str, objects: PathBuf) -> Direct<'_> {
        let open = self.open(node, path, O_RDWR | O_CREAT).expect("opened");
        Direct { instance: self, objects, node, open }
    }

    fn objects_of(&self, node: usize) -> PathBuf {
        self.served[node].host.directory.join("objects")
    }
}

impl Direct<'_> {
    fn entry(&self) -> &'static FileEntry {
        let node = self.instance.clients[self.node].node;
        let file = node.opens[self.open.index as usize].file.load(Acquire);
        &node.files[file as usize]
    }

    fn is_striped(&self) -> bool {
        self.entry().flags.load(Acquire) & FILE_STRIPED != 0
    }

    /// Leave for the chunk at `offset`, and where that is in the object, if it is the node's own.
    fn leave(&self, want: u32, offset: u64, end: u64) -> Option<(Leave, u64)> {
        let grant = Grant { open: self.open, want: GRANT_PART | want, end };
        let answer = self.instance.ask(self.node, &grant, |granted| {
            let path = String::from_utf8(granted.object_path.to_vec()).expect("text");
            (path, granted.generation, granted.own)
        });
        let (path, generation, own) = answer.expect("answered");
        let width = own.width.try_into().ok()?;
        let chunks =
            Chunks { width, chunk_log2: own.chunk_log2, hashed: own.hashed, tail: Tail::default() };
        let file = FileId(self.entry().id.load(Relaxed));
        let is_own = chunks.part_of(file, offset) == own.index && !path.is_empty();
        if !is_own || want == GRANT_WRITE && own.hashed {
            return None;
        }
        let object = File::options().read(true).write(true).open(self.objects.join(path));
        let object = object.expect("an object of which leave was given is there");
        Some((Leave { object, generation }, chunks.in_part(offset)))
    }

    fn ended(&self, leave: &Leave) -> bool {
        self.entry().grant_generation.load(Acquire) != leave.generation
    }

    /// Bytes of one chunk; true when they were written without the daemon.
    fn write_chunk(&self, offset: u64, bytes: &[u8]) -> bool {
        let leave =
            self.is_striped().then(|| self.leave(GRANT_WRITE, offset, offset + bytes.len() as u64));
        if let Some((leave, at)) = leave.flatten() {
            leave.object.write_all_at(bytes, at).expect("written");
            if !self.ended(&leave) {
                return true;
            }
        }
        self.instance.write_all(self.node, self.open, offset, bytes);
        false
    }

    /// How many chunks were written without the daemon.
    fn write(&self, offset: u64, bytes: &[u8]) -> usize {
        let (mut at, mut rest, mut direct) = (offset, bytes, 0);
        while !rest.is_empty() {
            let count = (CHUNK - at % CHUNK).min(rest.len() as u64);
            let (now, later) = rest.split_at(count as usize);
            direct += usize::from(self.write_chunk(at, now));
            (at, rest) = (at + count, later);
        }
        direct
    }

    fn read_chunk(&self, offset: u64) -> Option<Vec<u8>> {
        let (leave, at) = self.leave(GRANT_READ, offset, 0)?;
        let mut bytes = vec![0; (CHUNK - offset % CHUNK) as usize];
        leave.object.read_exact_at(&mut bytes, at).ok()?;
        (!self.ended(&leave)).then_some(bytes)
    }
}

#[test]
fn a_process_uses_the_chunks_of_its_own_node_without_the_daemon() {
    for (shards, policy) in [(1, Policy::Stripe), (2, Policy::Stripe), (2, Policy::Hash)] {
        let name = format!("own-{shards}-{}", policy as u8);
        let instance = Instance::striped(&name, 4, shards, (CHUNK, policy));
        let bytes = pattern(12 * CHUNK as usize, 5);
        let mut read_directly = 0;
        for node in 0..4 {
            let path = format!("file-{node}");
            let writer = instance.direct(node, &path);
            // The node learns by the first request where the chunks are.
            writer.write(0, &bytes);
            let direct = writer.write(0, &bytes);
            assert_eq!(direct, if policy == Policy::Hash { 0 } else { 3 }, "of {node}");
            for reader in 0..4 {
                let reader = instance.direct(reader, &path);
                assert_eq!(instance.length(reader.node, reader.open), bytes.len() as u64);
                assert!(instance.read_all(reader.node, reader.open, 0) == bytes, "by requests");
                for chunk in 0..12 {
                    if let Some(read) = reader.read_chunk(chunk * CHUNK) {
                        read_directly += 1;
                        assert!(read == bytes[(chunk * CHUNK) as usize..][..CHUNK as usize]);
                    }
                }
                instance.close(reader.node, reader.open).expect("closed");
            }
            instance.close(node, writer.open).expect("closed");
            let settled = |instance: &Instance| {
                let attr = instance.stat(0, &path).expect("there");
                attr.size_bytes == bytes.len() as u64 && attr.blocks * 512 >= attr.size_bytes
            };
            instance.wait_until("the size is right", settled);
            instance.unlink(3 - node, &path, false).expect("removed");
        }
        assert_eq!(read_directly, 4 * 12, "each chunk by one node");
        instance.wait_until("no part is left", |instance| instance.objects() == 0);
        let used = |instance: &Instance| instance.ask(0, &StatFs {}, |space| space.used_bytes);
        instance.wait_until("no space is counted", |instance| used(instance).unwrap() < 4 << 20);
    }
}

#[test]
fn leave_to_use_a_part_ends_before_a_cut_an_append_or_a_settled_time() {
    let instance = stripes("leave");
    for node in 0..4 {
        let file = instance.direct(node, &format!("file-{node}"));
        file.write(0, &pattern(12 * CHUNK as usize, 2));
        let other = (node + 1) % 4;
        let there = instance.open(other, &format!("file-{node}"), O_RDWR).expect("opened");
        let own = |want| {
            let end = 12 * CHUNK;
            (0..4).find_map(|chunk| file.leave(want, (8 + chunk) * CHUNK, end)).expect("leave")
        };
        let (leave, at) = own(GRANT_WRITE);
        let size = 12 * CHUNK - 100;
        instance.set(other, there, SET_SIZE, size).expect("cut");
        assert!(file.ended(&leave), "by a cut");
        // A transfer that was under way all the time: it is seen until it is made again.
        leave.object.write_all_at(b"late", at + CHUNK - 4).expect("written");
        instance.set(other, there, SET_SIZE, size).expect("cut");
        assert_eq!(instance.length(other, there), size);

        let (reads, _) = own(GRANT_READ);
        let (leave, _) = own(GRANT_WRITE);
        instance.set(other, there, SET_MTIME, 0).expect("set");
        assert!(file.ended(&leave), "by a time");
        let mtime = || instance.stat(2, &format!("file-{node}")).expect("there").mtime.seconds;
        assert_eq!(mtime(), 77);
        let (leave, at) = own(GRANT_WRITE);
        leave.object.write_all_at(b"x", at).expect("written");
        assert!(!file.ended(&leave) && mtime() > 77, "leave says that the part changes");
        drop(reads);

        // Each part is appended to.
        for _ in 0..5 {
            instance.append(other, there, &vec![1; CHUNK as usize]).expect("appended");
        }
        assert!(file.ended(&leave), "by appends");
        let (reads, _) = own(GRANT_READ);
        instance.append(other, there, b"z").expect("appended");
        assert!(!file.ended(&reads), "who reads is in nobody's way");
        instance.close(node, file.open).expect("closed");
        instance.close(other, there).expect("closed");
    }
}

/// Direct writes of all nodes, beside everything that ends leave, and daemons that are restarted.
#[test]
fn nothing_that_was_written_without_the_daemon_is_lost() {
    for shards in [1, 2] {
        let mut instance =
            Instance::striped(&format!("kept-{shards}"), 4, shards, (CHUNK, Policy::Stripe));
        let objects: Vec<PathBuf> = (0..4).map(|node| instance.objects_of(node)).collect();
        let Instance { served, clients } = &mut instance;
        let view = Instance { served: Vec::new(), clients: std::mem::take(clients) };
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (view, over, objects) = (&view, &over, &objects);
            let writers: Vec<_> = (0..4)
                .map(|node| scope.spawn(move || write_records(view, node, &objects[node])))
                .collect();
            let restarts = scope.spawn(move || {
                for node in (0..4).cycle() {
                    if over.load(Relaxed) {
                        break;
                    }
                    served[node].stop();
                    thread::sleep(Duration::from_millis(20));
                    served[node].start();
                    thread::sleep(Duration::from_millis(100));
                }
            });
            let times = view.open(3, "file", O_RDWR | O_CREAT).expect("opened");
            let mut lengths = 0;
            while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
                view.set(3, times, SET_MTIME, 0).expect("set");
                let length = view.length(3, times);
                assert!(length >= lengths, "{length} after {lengths}");
                lengths = length;
            }
            view.close(3, times).expect("closed");
            let direct: usize = writers.into_iter().map(|of| of.join().expect("no panic")).sum();
            assert!(direct > 50, "only {direct} records without the daemon");
            over.store(true, Relaxed);
            restarts.join().expect("no panic");
            for node in 0..4 {
                let open = view.open(node, "file", 0).expect("opened");
                let bytes = view.read_all(node, open, 0);
                assert_eq!(bytes.len() as u64, 4 * ROUNDS * RECORD);
                for (number, record) in bytes.chunks(RECORD as usize).enumerate() {
                    assert!(record == vec![number as u8 | 1; RECORD as usize], "record {number}");
                }
                view.close(node, open).expect("closed");
            }
            view.unlink(0, "file", false).expect("removed");
        });
        *clients = { view }.take_clients();
        instance.wait_until("no part is left", |instance| instance.objects() == 0);
    }
}

/// Length of a record: they lie across the borders of chunks, and of others' pages.
const RECORD: u64 = 5000;
/// Records of each writer.
const ROUNDS: u64 = 150;

/// Every fourth record; how many were written without the daemon. The file is closed from time to
/// time, so that its size is settled.
fn write_records(view: &Instance, node: usize, objects: &Path) -> usize {
    let mut direct = 0;
    for round in 0..ROUNDS {
        let file = view.direct_in(node, "file", objects.to_owned());
        let number = round * 4 + node as u64;
        direct += file.write(number * RECORD, &vec![number as u8 | 1; RECORD as usize]);
        // Again, since by now it is known where the chunks are.
        direct += file.write(number * RECORD, &vec![number as u8 | 1; RECORD as usize]);
        view.close(node, file.open).expect("closed");
    }
    direct
}

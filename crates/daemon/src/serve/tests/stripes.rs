//! Files whose bytes are on several nodes.

use std::{thread, time::Duration};

use mayfly_meta::record::Policy;
use mayfly_types::{Errno, OpenRef, limits::CHUNK_BYTES_MIN};
use mayfly_wire::{SET_MTIME, SET_SIZE, SetAttr, Stat, StatFs, Target, Write};

use super::nodes::Instance;

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

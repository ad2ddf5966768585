//! Layouts of directories: who inherits them, and from when on.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use mayfly_meta::record::Policy;
use mayfly_types::{Errno, limits::CHUNK_BYTES_MIN};
use mayfly_wire::{GetXattr, ListXattr, RemoveXattr, SetXattr, Target, XATTR_CREATE};

use crate::{
    LAYOUT_XATTR, NODES_XATTR,
    serve::tests::nodes::{Instance, walk},
};

const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_TMPFILE: u32 = 0o20_200_000;
const CHUNK: usize = CHUNK_BYTES_MIN as usize;
const NODES: usize = 4;

impl Instance {
    fn text(&self, node: usize, path: &str, name: &str) -> Result<String, Errno> {
        let get = GetXattr { target: Target::Path(walk(path)), name: name.as_bytes() };
        self.ask(node, &get, |value| String::from_utf8(value.bytes.to_vec()).expect("text"))
    }

    fn layout(&self, node: usize, path: &str) -> String {
        self.text(node, path, LAYOUT_XATTR).expect("a layout")
    }

    fn set_text(&self, node: usize, path: &str, name: &str, value: &str) -> Result<(), Errno> {
        let target = Target::Path(walk(path));
        let (name, value) = (name.as_bytes(), value.as_bytes());
        self.ask(node, &SetXattr { target, name, value, flags: 0 }, |()| ())
    }

    fn lay(&self, node: usize, path: &str, value: &str) {
        self.set_text(node, path, LAYOUT_XATTR, value).expect("set");
    }

    /// Makes a file of so many bytes; the nodes that have some of them.
    fn make(&self, node: usize, path: &str, bytes: usize) -> Vec<usize> {
        let open = self.open(node, path, O_RDWR | O_CREAT | O_EXCL).expect("made");
        for start in (0..bytes).step_by(CHUNK) {
            let some = vec![7; CHUNK.min(bytes - start)];
            self.write(node, open, start as u64, &some).expect("written");
        }
        self.close(node, open).expect("closed");
        self.nodes_of(node, path)
    }

    fn nodes_of(&self, node: usize, path: &str) -> Vec<usize> {
        let text = self.text(node, path, NODES_XATTR).expect("a list");
        let node_of = |line: &str| line.split(' ').next().map(|node| node.parse().expect("a node"));
        text.lines().filter_map(node_of).collect()
    }

    fn directory(&self, node: usize, path: &str) {
        self.make_directory(node, path).expect("made");
    }
}

/// Says, however its scope ends, that it has.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn homes(name: &str, shards: u32) -> Instance {
    Instance::laid(name, NODES as u32, shards, (CHUNK_BYTES_MIN, Policy::Stripe), 1)
}

#[test]
fn what_is_made_in_a_directory_has_its_layout_and_keeps_it() {
    let instance = homes("inherited", 2);
    for directory in ["plain", "wide", "wide/below"] {
        instance.directory(0, directory);
    }
    // Members that were there before.
    for number in 0..20 {
        assert_eq!(instance.make(number % NODES, &format!("wide/old{number}"), 5 * CHUNK).len(), 1);
    }
    instance.lay(1, "wide", "stripe:3,chunk=128K");
    assert_eq!(instance.layout(3, "wide"), "stripe:3,chunk=128K");
    assert_eq!(instance.layout(2, "wide/below"), "home,chunk=64K", "it was there before");
    for number in 0..20 {
        let (node, path) = (number % NODES, format!("wide/new{number}"));
        assert_eq!(instance.make(node, &path, 5 * CHUNK).len(), 3, "three chunks of two");
        assert_eq!(instance.layout(node, &path), "stripe:3,chunk=128K");
        assert_eq!(instance.layout(node, &format!("wide/old{number}")), "home,chunk=64K");
        assert_eq!(instance.make(node, &format!("plain/{number}"), 5 * CHUNK).len(), 1);
        instance.directory(node, &format!("wide/directory{number}"));
    }
    instance.lay(2, "wide", "hash:2");
    for number in 0..20 {
        let node = (number + 1) % NODES;
        assert_eq!(instance.layout(node, &format!("wide/new{number}")), "stripe:3,chunk=128K");
        let below = format!("wide/directory{number}");
        assert_eq!(instance.layout(node, &below), "stripe:3,chunk=128K");
        assert_eq!(instance.make(node, &format!("{below}/file"), 7 * CHUNK).len(), 3);
        let path = format!("wide/hashed{number}");
        assert_eq!(instance.make(node, &path, 30 * CHUNK).len(), 2);
        assert_eq!(instance.layout(node, &path), "hash:2,chunk=128K", "the chunks stay as large");
    }
    // One without a name, too.
    let open = instance.open(0, "wide", O_RDWR | O_TMPFILE).expect("made");
    let get = GetXattr { target: Target::Open(open), name: LAYOUT_XATTR.as_bytes() };
    let is = instance.ask(0, &get, |value| value.bytes.to_vec()).expect("told");
    assert_eq!(is, b"hash:2,chunk=128K");
    instance.close(0, open).expect("closed");
    let remove = RemoveXattr { target: Target::Path(walk("wide")), name: LAYOUT_XATTR.as_bytes() };
    instance.ask(3, &remove, |()| ()).expect("removed");
    assert_eq!(instance.layout(0, "wide"), "home,chunk=64K", "as the instance was started");
    assert_eq!(instance.make(1, "wide/again", 5 * CHUNK).len(), 1);
}

#[test]
fn a_create_after_a_layout_was_set_has_it_on_every_node() {
    let instance = homes("at-once", 2);
    instance.directory(0, "d");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ended = Ended(&over);
        for node in 1..NODES {
            let (instance, over) = (&instance, &over);
            scope.spawn(move || {
                for number in 0.. {
                    if over.load(Relaxed) {
                        break;
                    }
                    let path = format!("d/{node}-{number}");
                    let open = instance.open(node, &path, O_RDWR | O_CREAT).expect("made");
                    instance.close(node, open).expect("closed");
                    if number % 3 == 0 {
                        instance.unlink(node, &path, false).expect("removed");
                    }
                }
            });
        }
        for round in 0..30 {
            let wanted = if round % 2 == 0 { "stripe:2,chunk=64K" } else { "hash:3,chunk=256K" };
            // A directory that gets its members just now, too.
            let fresh = format!("fresh{round}");
            instance.directory(0, &fresh);
            for directory in ["d", &fresh] {
                instance.lay(0, directory, wanted);
                for node in 0..NODES {
                    let path = format!("{directory}/after-{round}-{node}");
                    let open = instance.open(node, &path, O_RDWR | O_CREAT).expect("made");
                    assert_eq!(instance.layout(node, &path), wanted, "{path}");
                    instance.close(node, open).expect("closed");
                }
            }
        }
    });
}

#[test]
fn a_layout_is_there_after_all_daemons_were_restarted() {
    let mut instance = homes("kept", 1);
    instance.directory(0, "d");
    for number in 0..12 {
        instance.make(number % NODES, &format!("d/{number}"), 10);
    }
    instance.lay(0, "d", "stripe:4");
    for served in &mut instance.served {
        served.stop();
        served.start();
    }
    assert_eq!(instance.layout(2, "d"), "stripe:4,chunk=64K");
    for number in 0..12 {
        let path = format!("d/after{number}");
        assert_eq!(instance.make(number % NODES, &path, 4 * CHUNK).len(), 4);
    }
}

#[test]
fn a_layout_that_cannot_be_is_refused_and_changes_nothing() {
    let instance = homes("refused", 1);
    instance.directory(0, "d");
    instance.make(0, "d/f", 3 * CHUNK);
    let set = |path, name, value| instance.set_text(1, path, name, value);
    for nonsense in ["", "raid", "stripe:0", "home,chunk=3K", "\u{fc}"] {
        assert_eq!(set("d", LAYOUT_XATTR, nonsense), Err(Errno::EINVAL), "{nonsense:?}");
    }
    assert_eq!(set("d/f", LAYOUT_XATTR, "stripe"), Err(Errno::EOPNOTSUPP), "a file has its own");
    assert_eq!(set("d", NODES_XATTR, "1 2"), Err(Errno::EOPNOTSUPP));
    assert_eq!(set("d", "user.mayfly.other", "1"), Err(Errno::EOPNOTSUPP));
    assert_eq!(set("gone", LAYOUT_XATTR, "stripe"), Err(Errno::ENOENT));
    assert_eq!(instance.text(2, "d", "user.mayfly.other"), Err(Errno::ENODATA));
    assert_eq!(instance.text(2, "d", NODES_XATTR), Err(Errno::ENODATA));
    let (target, name) = (Target::Path(walk("d")), LAYOUT_XATTR.as_bytes());
    let anew = SetXattr { target, name, value: b"stripe", flags: XATTR_CREATE };
    assert_eq!(instance.ask(0, &anew, |()| ()), Err(Errno::EEXIST));
    assert_eq!(instance.layout(0, "d"), "home,chunk=64K");
    let list = ListXattr { target: Target::Path(walk("d")) };
    assert_eq!(instance.ask(0, &list, |names| names.bytes.len()), Ok(0), "no copy takes it along");
    // Wider than there are nodes: as many as there are.
    instance.lay(0, "d", "stripe:500");
    assert_eq!(instance.layout(0, "d"), "stripe:500,chunk=64K");
    assert_eq!(instance.make(3, "d/g", 9 * CHUNK).len(), NODES);
    assert_eq!(instance.layout(0, "d/g"), "stripe:4,chunk=64K");
}

#[test]
fn local_files_are_on_the_node_that_makes_them_whatever_their_name() {
    let instance = homes("local", 2);
    instance.directory(0, "d");
    instance.lay(0, "d", "local");
    for number in 0..40 {
        let (node, path) = (number % NODES, format!("d/{number}"));
        // In its record, and in an object.
        let bytes = if number % 2 == 0 { 100 } else { 5 * CHUNK };
        assert_eq!(instance.make(node, &path, bytes), [node], "{path}");
        assert_eq!(instance.layout(3, &path), "local,chunk=64K");
        let again = instance.open(node, &path, O_RDWR | O_CREAT | O_EXCL);
        assert_eq!(again, Err(Errno::EEXIST), "it was made");
        let other = (node + 1) % NODES;
        assert_eq!(instance.open(other, &path, O_RDWR | O_CREAT | O_EXCL), Err(Errno::EEXIST));
        let open = instance.open(other, &path, O_RDWR | O_CREAT).expect("opened");
        assert_eq!(instance.read(other, open, 0, 100).map(|bytes| bytes.len()), Ok(100));
        instance.close(other, open).expect("closed");
    }
    assert_eq!(instance.names(1, "d").len(), 42);
    for number in 0..40 {
        instance.unlink((number + 2) % NODES, &format!("d/{number}"), false).expect("removed");
    }
    assert_eq!(instance.names(2, "d"), [".", ".."]);
    instance.unlink(3, "d", true).expect("removed");
}

#[test]
fn one_of_many_makes_a_local_file_exclusively() {
    let instance = homes("exclusive", 1);
    instance.directory(0, "d");
    instance.lay(0, "d", "local");
    for number in 0..60 {
        let path = format!("d/{number}");
        let made: Vec<bool> = thread::scope(|scope| {
            let tries: Vec<_> = (0..NODES)
                .map(|node| {
                    let (instance, path) = (&instance, &path);
                    scope.spawn(move || match instance.open(node, path, O_CREAT | O_EXCL) {
                        Ok(open) => instance.close(node, open).is_ok(),
                        Err(errno) => {
                            assert_eq!(errno, Errno::EEXIST);
                            false
                        }
                    })
                })
                .collect();
            tries.into_iter().map(|one| one.join().expect("no panic")).collect()
        });
        assert_eq!(made.iter().filter(|made| **made).count(), 1, "{path}: {made:?}");
    }
}

#[test]
fn files_of_a_pool_are_on_its_nodes_only() {
    let instance = homes("pool", 2);
    for directory in ["d", "one"] {
        instance.directory(0, directory);
    }
    instance.lay(0, "d", "pool:near");
    instance.lay(0, "one", "pool:near:1");
    let mut homes = [0; NODES];
    for number in 0..40 {
        let node = number % NODES;
        let small = instance.make(node, &format!("d/small{number}"), 100);
        assert!(matches!(small[..], [1 | 2]), "{small:?}");
        homes[small[0]] += 1;
        let path = format!("d/large{number}");
        let mut large = instance.make(node, &path, 6 * CHUNK);
        large.sort_unstable();
        assert_eq!(large, [1, 2], "{path}");
        assert_eq!(instance.layout(3, &path), "pool:near:2,chunk=64K");
        let open = instance.open((node + 1) % NODES, &path, 0).expect("opened");
        let middle = instance.read((node + 1) % NODES, open, 3 * CHUNK as u64, 10);
        assert_eq!(middle, Ok(vec![7; 10]));
        instance.close((node + 1) % NODES, open).expect("closed");
        let one = instance.make(node, &format!("one/{number}"), 6 * CHUNK);
        assert!(matches!(one[..], [1 | 2]), "{one:?}");
    }
    assert!(homes[1] > 8 && homes[2] > 8, "{homes:?}");
    let unknown = instance.set_text(0, "d", LAYOUT_XATTR, "pool:far");
    assert_eq!(unknown, Err(Errno::EINVAL));
    for number in 0..40 {
        for path in
            [format!("d/small{number}"), format!("d/large{number}"), format!("one/{number}")]
        {
            instance.unlink(number % NODES, &path, false).expect("removed");
        }
    }
    let objects = || instance.served.iter().map(|served| served.objects()).sum::<usize>();
    for _ in 0..1000 {
        if objects() == 0 {
            return;
        }
        thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{} objects are left", objects());
}

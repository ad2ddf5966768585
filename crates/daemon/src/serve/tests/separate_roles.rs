//! Nodes that own no names, or nothing at all.

use mayfly_meta::record::Policy;
use mayfly_types::limits::CHUNK_BYTES_MIN;
use mayfly_wire::{Rename, StatFs, Status};

use crate::{
    Roles,
    serve::tests::nodes::{Instance, walk},
};

const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;

/// Of four nodes the first one has nothing, and the last one bytes only.
fn separate_roles(name: &str) -> Instance {
    let roles = Roles { metadata: vec![1, 2], servers: vec![1, 2, 3] };
    Instance::of_roles(name, (4, 2), (CHUNK_BYTES_MIN, Policy::Stripe), &roles)
}

impl Instance {
    fn write_file(&self, node: usize, path: &str, bytes: &[u8]) {
        let open = self.open(node, path, O_RDWR | O_CREAT).expect("made");
        for (at, piece) in bytes.chunks(100_000).enumerate() {
            let mut done = 0;
            while done < piece.len() {
                let offset = (at * 100_000 + done) as u64;
                done += self.write(node, open, offset, &piece[done..]).expect("written") as usize;
            }
        }
        self.close(node, open).expect("closed");
    }

    fn content(&self, node: usize, path: &str) -> Vec<u8> {
        let (open, mut bytes) = (self.open(node, path, 0).expect("opened"), Vec::new());
        loop {
            let more = self.read(node, open, bytes.len() as u64, 100_000).expect("read");
            if more.is_empty() {
                break;
            }
            bytes.extend(more);
        }
        self.close(node, open).expect("closed");
        bytes
    }

    fn rename(&self, node: usize, from: &str, to: &str) {
        let rename = Rename { from: walk(from), to: walk(to), flags: 0 };
        self.ask(node, &rename, |()| ()).expect("renamed");
    }
}

#[test]
fn a_node_without_a_role_owns_nothing_and_does_everything() {
    let instance = separate_roles("apart");
    for directory in ["a", "a/b", "c"] {
        instance.make_directory(0, directory).expect("made");
    }
    let large = b"large".repeat(200_000);
    for number in 0..30 {
        instance.write_file(0, &format!("a/b/{number}"), format!("{number}").as_bytes());
    }
    instance.write_file(0, "a/large", &large);
    instance.rename(0, "a/b", "c/b");
    for node in 0..4 {
        assert!(instance.content(node, "a/large") == large, "on {node}");
        assert_eq!(instance.content(node, &format!("c/b/{node}")), format!("{node}").as_bytes());
        assert_eq!(instance.names(node, "c/b").len(), 32);
    }
    let counted: Vec<_> = (0..4)
        .map(|node| instance.ask(node, &Status {}, |counted| counted).expect("told"))
        .collect();
    let names = |node: usize| counted[node].files + counted[node].directories;
    assert_eq!((names(0), names(3)), (0, 0));
    assert!(names(1) > 10 && names(2) > 10, "{counted:?}");
    let objects = [0, 1, 2, 3].map(|node| instance.served[node].objects());
    assert_eq!(objects, [0, 1, 1, 1], "a part of the large file on each server");
    assert_eq!(counted[0].capacity_bytes, 0);
    let space = instance.ask(0, &StatFs {}, |space| space).expect("told");
    assert_eq!((space.capacity_bytes, space.files), (3 << 30, 35));
}

#[test]
fn nobody_misses_a_node_without_a_role() {
    let mut instance = separate_roles("missed");
    instance.make_directory(0, "d").expect("made");
    instance.write_file(0, "d/file", b"text");
    instance.served[0].stop();
    let began = std::time::Instant::now();
    let large = b"large".repeat(200_000);
    for node in 1..4 {
        let directory = format!("d/{node}");
        instance.make_directory(node, &directory).expect("made");
        instance.write_file(node, &format!("{directory}/large"), &large);
        assert!(instance.content(4 - node, &format!("{directory}/large")) == large);
        assert_eq!(instance.content(node, "d/file"), b"text");
        assert!(instance.ask(node, &StatFs {}, |space| space.files).expect("told") > 4);
    }
    assert!(began.elapsed().as_secs() < 5, "somebody waited for it: {:?}", began.elapsed());
    instance.served[0].start();
    assert_eq!(instance.content(0, "d/file"), b"text");
}

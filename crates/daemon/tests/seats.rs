//! Directories that are at one shard, and become spread.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_daemon::{Config, Directories};
use mayfly_meta::{MemoryDisk, MemoryStore, Scan, Store, key};
use mayfly_types::{Errno, FileId, FileKind, SessionId, limits::SESSIONS_MAX};
use mayfly_wire::Open;
use support::{Kept, Node, O_CREAT, O_RDWR, config, failed, fsck, several::begin, walk};

const SHARDS: u32 = 5;
const O_EXCL: u32 = 0o200;

fn node(directories: Directories) -> Node {
    Node::several(Config { directories, ..config() }, SHARDS, 5, false)
}

/// Names of a directory in each shard's store, as it was committed last.
fn names_by_shard(node: &Node, directory: FileId) -> Vec<usize> {
    let kept = std::iter::once(&node.kept).chain(&node.more);
    let count = |kept: &Kept| {
        let Kept::Memory(disk) = kept else { panic!("in memory") };
        let disk: &MemoryDisk = disk;
        let mut count = 0;
        let prefix = key::directory(directory);
        let mut each = |_: &[u8], _: &[u8]| {
            count += 1;
            Scan::More
        };
        MemoryStore::open(disk, 1 << 30).scan(&prefix, &prefix, &mut each).unwrap();
        count
    };
    kept.map(count).collect()
}

fn make(node: &mut Node, path: &str) {
    let open = node.open(path, O_CREAT | O_RDWR).unwrap().0;
    node.close(open);
}

fn listed(node: &mut Node, path: &str) -> Vec<String> {
    let open = node.open(path, 0).unwrap().0;
    let names = node.list(open, 1000).unwrap();
    node.close(open);
    let text = |(name, _): (Vec<u8>, FileKind)| String::from_utf8(name).unwrap();
    let mut names: Vec<String> = names.into_iter().map(text).collect();
    names.sort_unstable();
    names.retain(|name| name != "." && name != "..");
    names
}

#[test]
fn a_directory_of_one_nodes_processes_is_at_one_shard() {
    let mut node = node(Directories::Whole);
    node.mkdir("d").unwrap();
    node.mkdir("d/e").unwrap();
    for number in 0..300 {
        make(&mut node, &format!("d/e/{number}"));
    }
    let asked = node.several.asked;
    assert_eq!(listed(&mut node, "d/e").len(), 300);
    for directory in ["d", "d/e"] {
        let id = node.stat(directory, true).unwrap().id;
        let used = names_by_shard(&node, id).into_iter().filter(|count| *count > 0).count();
        assert_eq!(used, 1, "{directory}");
    }
    assert_eq!(node.several.asked, asked, "a listing asked other shards");
    for number in 0..300 {
        node.unlink(&format!("d/e/{number}"), false).unwrap();
    }
    node.unlink("d/e", true).unwrap();
    fsck::check(&mut node);
}

/// Names move while they are made, looked at and removed, and nobody notices but by where they are.
#[test]
fn a_directory_that_is_spread_while_names_are_made_has_each_of_them_once() {
    let mut node = node(Directories::Restless);
    let paths: Vec<String> = (0..3).map(|number| format!("d{number}")).collect();
    let mut were_spread = 0;
    for path in &paths {
        node.mkdir(path).unwrap();
        // Whole so far, as far as it has names at all.
        for number in 0..200 {
            let name = format!("{path}/{number:03}");
            if number % 10 == 0 {
                node.mkdir(&name).unwrap()
            } else {
                make(&mut node, &name)
            }
            assert_eq!(listed(&mut node, path).len(), number + 1);
            let links = node.stat(path, true).unwrap().links;
            assert_eq!(links, 2 + number as u32 / 10 + 1, "{name}");
        }
        let id = node.stat(path, true).unwrap().id;
        let by_shard = names_by_shard(&node, id);
        assert_eq!(by_shard.iter().sum::<usize>(), 200, "{by_shard:?}");
        let used = by_shard.iter().filter(|count| **count > 0).count();
        assert!(used == 1 || used == SHARDS as usize, "{by_shard:?}");
        were_spread += usize::from(used > 1);
    }
    assert!(were_spread > 0, "nothing moved");
    node.restart();
    for path in &paths {
        assert_eq!(failed(node.unlink(path, true)), Errno::ENOTEMPTY);
        for (number, name) in listed(&mut node, path).iter().enumerate() {
            assert_eq!(*name, format!("{number:03}"));
            node.unlink(&format!("{path}/{name}"), number % 10 == 0).unwrap();
        }
        node.unlink(path, true).unwrap();
    }
    fsck::check(&mut node);
}

/// What a file that is open has, and what has another name, stays when its names move.
#[test]
fn files_stay_what_they_are_when_their_names_move() {
    let mut node = node(Directories::Restless);
    for directory in ["a", "b", "c", "d"] {
        node.mkdir(directory).unwrap();
        let path = |number: usize| format!("{directory}/{number}");
        let open = node.open(&path(0), O_CREAT | O_RDWR).unwrap().0;
        node.write(open, 0, b"bytes").unwrap();
        node.symlink("0", &path(1)).unwrap();
        node.link(&path(0), &path(2)).unwrap();
        for number in 3..150 {
            make(&mut node, &path(number));
        }
        assert_eq!(node.read(open, 0, 100).unwrap(), b"bytes");
        node.write(open, 5, b" more").unwrap();
        for number in 0..3 {
            let attr = node.stat(&path(number), true).unwrap();
            assert_eq!((attr.size_bytes, attr.links), (10, 2), "{}", path(number));
        }
        node.rename(&path(0), &path(3), 0).unwrap();
        assert_eq!(failed(node.stat(&path(1), true)), Errno::ENOENT);
        node.unlink(&path(2), false).unwrap();
        node.unlink(&path(3), false).unwrap();
        assert_eq!(node.fstat(open).unwrap().links, 0);
        assert_eq!(node.read(open, 0, 100).unwrap(), b"bytes more");
        node.close(open);
    }
    fsck::check(&mut node);
}

/// It was sent between the shard of its name, which knew that it had made the file, and the one of
/// its file, which had not heard of the process, until it failed.
#[test]
fn a_create_whose_file_others_remove_before_it_is_opened_makes_another_one() {
    /// A process, as other nodes call it.
    const ELSEWHERE: SessionId = SessionId(SESSIONS_MAX + 3);
    /// So many looks find nothing any more: it was sent to a shard that has not heard of it.
    const LOOKS: u32 = 20;
    let mut made_again = 0;
    for seed in 0..60 {
        let config = Config { directories: Directories::Restless, ..config() };
        let mut node = Node::several(config, SHARDS, seed, false);
        for number in 0..SHARDS {
            let path = format!("f{number}");
            let (late, flags) = (number as usize, O_CREAT | O_EXCL | O_RDWR);
            for (shard, core) in node.cores.iter_mut().enumerate() {
                if shard == late {
                    core.session_closed(ELSEWHERE)
                } else {
                    core.session_opened(ELSEWHERE, 7)
                }
            }
            let create = Open { walk: walk(&path, 0), flags, mode: 0o600, uid: 0, gid: 0 };
            let caller = begin(&mut node, ELSEWHERE, &create);
            let (mut was_removed, mut looks) = (false, 0);
            let done = loop {
                let published = &node.several.published;
                let done = published.iter().find(|done| done.caller == caller).cloned();
                if done.is_some() || looks == LOOKS {
                    break done;
                }
                if !was_removed && node.unlink(&path, false).is_ok() {
                    was_removed = true;
                    node.cores[late].session_opened(ELSEWHERE, 7);
                }
                looks += u32::from(!node.move_on());
            };
            if let Some(done) = done {
                assert_eq!(done.status, 0, "seed {seed}, {path}");
                made_again += usize::from(was_removed && node.stat(&path, false).is_ok());
            }
        }
    }
    assert!(made_again > 0, "none was made again");
}

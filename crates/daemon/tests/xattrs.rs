//! Extended attributes: where they are kept, what ends them, and what is refused whoever asks.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_types::Errno;
use mayfly_wire::Target;
use support::{Node, O_CREAT, O_RDWR, config, failed, walk};

fn at(path: &str) -> Target<'_> {
    Target::Path(walk(path, 0))
}

/// Keys of extended attributes in the store.
fn extended(node: &mut Node) -> usize {
    let support::Kept::Memory(disk) = node.kept.clone() else { panic!("it is in memory") };
    let mut store = mayfly_meta::MemoryStore::open(&disk, 1 << 30);
    let (mut count, tag) = (0, [mayfly_meta::key::XATTRS]);
    let visit = &mut |_: &[u8], _: &[u8]| {
        count += 1;
        mayfly_meta::Scan::More
    };
    mayfly_meta::Store::scan(&mut store, &tag, &tag, visit).unwrap();
    count
}

#[test]
fn extended_attributes_stay_with_the_file_and_end_with_it() {
    let mut node = Node::memory(config());
    let open = node.open("f", O_CREAT | O_RDWR).unwrap().0;
    node.mkdir("d").unwrap();
    node.set_xattr(at("f"), "user.a", b"1", 0).unwrap();
    node.set_xattr(at("d"), "user.a", b"2", 0).unwrap();
    node.rename("f", "d/moved", 0).unwrap();
    node.link("d/moved", "second").unwrap();
    node.write(open, 0, &[5; 10_000]).unwrap();
    node.restart();
    assert_eq!(node.get_xattr(at("second"), "user.a").unwrap(), b"1");
    assert_eq!(node.get_xattr(at("d"), "user.a").unwrap(), b"2");
    node.unlink("second", false).unwrap();
    node.unlink("d/moved", false).unwrap();
    node.unlink("d", true).unwrap();
    assert_eq!(extended(&mut node), 1, "that of the orphan");
    node.restart();
    assert_eq!(node.get_xattr(Target::Open(open), "user.a").unwrap(), b"1");
    node.close(open);
    node.settle_down();
    assert_eq!(extended(&mut node), 0);
    assert_eq!(failed(node.get_xattr(at("f"), "user.a")), Errno::ENOENT);
}

#[test]
fn an_orphan_that_a_dead_daemon_left_takes_its_extended_attributes_along() {
    let mut node = Node::memory(config());
    let open = node.open("f", O_CREAT | O_RDWR).unwrap().0;
    node.set_xattr(Target::Open(open), "user.a", b"1", 0).unwrap();
    node.unlink("f", false).unwrap();
    assert_eq!(extended(&mut node), 1);
    node.sessions.clear();
    node.restart();
    assert_eq!((node.core().counters().orphans, extended(&mut node)), (0, 0));
}

#[test]
fn extended_attributes_are_judged_by_the_daemon_too() {
    let mut node = Node::memory(config());
    node.open("f", O_CREAT | O_RDWR).unwrap();
    let long = format!("user.{}", "n".repeat(251));
    let set = |node: &mut Node, name: &str, value: &[u8], flags| {
        failed(node.set_xattr(at("f"), name, value, flags))
    };
    assert_eq!(set(&mut node, "", b"", 0), Errno::ERANGE);
    assert_eq!(set(&mut node, &long, b"", 0), Errno::ERANGE);
    assert_eq!(set(&mut node, "user.a\0b", b"", 0), Errno::EINVAL);
    assert_eq!(set(&mut node, "user.a", b"", 4), Errno::EINVAL);
    assert_eq!(set(&mut node, "user.a", b"", 2), Errno::ENODATA);
    assert_eq!(set(&mut node, "user.a", &[0; 4097], 0), Errno::ENOSPC);
    assert_eq!(set(&mut node, "trusted.a", b"", 0), Errno::EOPNOTSUPP);
    assert_eq!(extended(&mut node), 0);
    node.set_xattr(at("f"), "user.a", b"", 1).unwrap();
    assert_eq!(set(&mut node, "user.a", b"", 1), Errno::EEXIST);
}

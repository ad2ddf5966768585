//! Extended attributes of what has an origin.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_daemon::Directories;
use mayfly_types::Errno;
use mayfly_wire::{
    GetXattr, ListXattr, MakeDirectory, Reader, RemoveXattr, SetXattr, Target, Text, Wire,
    tier::{TIER_MAKE_DIRECTORY, TIER_SET_XATTR, TIER_XATTRS},
};
use support::{Node, O_CREAT, O_RDWR, SESSION, config, outside::Bench, walk};

fn at(path: &str) -> Target<'_> {
    Target::Path(walk(path, 0))
}

fn set(bench: &mut Bench, path: &str, name: &str, value: &[u8]) -> Result<(), Errno> {
    let set = SetXattr { target: at(path), name: name.as_bytes(), value, flags: 0 };
    bench.ask(&set).map(drop)
}

fn get(bench: &mut Bench, path: &str, name: &str) -> Result<Vec<u8>, Errno> {
    let body = bench.ask(&GetXattr { target: at(path), name: name.as_bytes() })?;
    Ok(Text::decode(&mut Reader::new(&body)).unwrap().bytes.to_vec())
}

fn outside(bench: &Bench, path: &str, name: &str) -> Option<Vec<u8>> {
    bench.xattrs.get(&(path.to_owned(), name.to_owned())).cloned()
}

#[test]
fn those_outside_are_seen_and_what_is_set_is_there_at_once() {
    let mut bench = Bench::new();
    bench.xattrs.insert(("small".to_owned(), "user.theirs".to_owned()), b"1".to_vec());
    assert_eq!(get(&mut bench, "in/small", "user.theirs").unwrap(), b"1");
    set(&mut bench, "in/small", "user.ours", b"2").unwrap();
    set(&mut bench, "in", "user.directory", b"3").unwrap();
    assert_eq!(outside(&bench, "small", "user.ours").unwrap(), b"2");
    assert_eq!(outside(&bench, "", "user.directory").unwrap(), b"3");
    assert_eq!(get(&mut bench, "in/small", "user.ours").unwrap(), b"2");
    let listed = bench.ask(&ListXattr { target: at("in/small") }).unwrap();
    let listed = Text::decode(&mut Reader::new(&listed)).unwrap().bytes.to_vec();
    assert_eq!(listed, b"user.ours\0user.theirs\0");
    bench.ask(&RemoveXattr { target: at("in/small"), name: b"user.theirs" }).unwrap();
    assert_eq!(get(&mut bench, "in/small", "user.theirs").err(), Some(Errno::ENODATA));
    // What is remembered is so until the file changes there.
    let asked = bench.count(TIER_XATTRS);
    assert_eq!(get(&mut bench, "in/small", "user.ours").unwrap(), b"2");
    assert_eq!(bench.count(TIER_XATTRS), asked);
    bench.xattrs.insert(("small".to_owned(), "user.ours".to_owned()), b"4".to_vec());
    bench.outside.get_mut("small").unwrap().0 += 1;
    assert_eq!(get(&mut bench, "in/small", "user.ours").unwrap(), b"4");
    // A dirty file stays the known one, and is no conflict.
    let open = bench.open("in/small", O_RDWR).unwrap();
    bench.write(open, b"dirty");
    set(&mut bench, "in/small", "user.ours", b"5").unwrap();
    bench.restart();
    assert_eq!(get(&mut bench, "in/small", "user.ours").unwrap(), b"5");
    bench.expect_nothing_wrong();
}

#[test]
fn what_the_origin_refuses_is_refused_and_its_layout_is_not_chosen() {
    let mut bench = Bench::new();
    bench.open("in/small", 0).unwrap();
    bench.fails = Some(Errno::EDQUOT);
    assert_eq!(set(&mut bench, "in/small", "user.a", b"1"), Err(Errno::EDQUOT));
    assert_eq!(get(&mut bench, "in/small", "user.a").err(), Some(Errno::EDQUOT));
    bench.fails = None;
    assert_eq!(get(&mut bench, "in/small", "user.a").err(), Some(Errno::ENODATA));
    let layout = set(&mut bench, "in/small", "user.mayfly.layout", b"local");
    assert_eq!(layout, Err(Errno::EOPNOTSUPP));
    bench.expect_nothing_wrong();
}

#[test]
fn they_wait_for_a_name_that_is_made_outside_later() {
    let whole = mayfly_daemon::Config { directories: Directories::Whole, ..config() };
    let mut bench = Bench::with_journal(Node::memory(whole), None);
    bench.open("in/small", 0).unwrap();
    let make = MakeDirectory { walk: walk("in/made", 0), mode: 0o755, uid: 0, gid: 0 };
    let maker = bench.begin(SESSION, &make);
    assert_eq!(bench.answer(maker).unwrap().0, 0, "it waits for nobody");
    let target = at("in/made");
    let set = SetXattr { target, name: b"user.a", value: b"1", flags: 0 };
    let setter = bench.begin(SESSION, &set);
    let made = bench.take_given(TIER_MAKE_DIRECTORY);
    assert!(bench.given.is_empty() && bench.answer(setter).is_none());
    bench.perform(&made);
    let given = bench.take_given(TIER_SET_XATTR);
    bench.perform(&given);
    assert_eq!(bench.answer(setter).unwrap().0, 0);
    assert_eq!(outside(&bench, "made", "user.a").unwrap(), b"1");
    bench.open("in/made/file", O_CREAT | O_RDWR).unwrap();
    assert_eq!(get(&mut bench, "in/made/file", "user.a").err(), Some(Errno::ENODATA));
    bench.expect_nothing_wrong();
}

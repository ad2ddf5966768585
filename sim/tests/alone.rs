//! Runs in which something that is done once, by one daemon, met others who did not wait for it.

use mayfly_daemon::Directories;
use mayfly_sim::{
    plan::{Plan, Shape},
    shrink::Part,
    world::{Options, run},
};

fn find_nothing(seed: u64, part: &str, (shape, options): (Shape, Options)) {
    let part: Part = part.parse().expect("a part");
    let wrong = run(&part.of(&Plan::draw(seed, shape)), options).wrong;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn own_bytes() -> (Shape, Options) {
    let shape = Shape { bytes: true, ..Shape::default() };
    (shape, Options { own: true, ..Options::default() })
}

/// An append was made, and its daemon died before the answer. Another process wrote over its bytes
/// by leave before the request came again: they were not found, and appended once more.
#[test]
fn an_append_whose_place_is_written_over_is_made_once() {
    find_nothing(5_201_597, "1/0-1/0-1/0-1/0-1/0-2", own_bytes());
    let (shape, options) = own_bytes();
    let options = Options { directories: Some(Directories::Spread), ..options };
    find_nothing(71, "0-1///3-5/0,2/0/0-1", (shape, options));
}

/// A cut was noted while an append was under way. A process saw the append's bytes by leave, the
/// next daemon made the cut, and the append's request made it once more behind that.
#[test]
fn an_append_that_was_seen_is_not_made_again_behind_a_cut() {
    find_nothing(5_200_710, "0/0//0,4,6/0/1/1/2", own_bytes());
}

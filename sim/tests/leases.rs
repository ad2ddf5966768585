//! Runs in which what a node may believe of others went wrong once.

use mayfly_daemon::Directories;
use mayfly_sim::{
    plan::{Plan, Shape},
    shrink::Part,
    world::{Options, run},
};

/// A node's clock was set forward. It took the time for which others remember its names to be over,
/// told nobody of a new directory in the place of a removed one, and they found nothing there.
#[test]
fn a_clock_that_is_set_does_not_shorten_what_others_remember() {
    let part: Part = "0/0-7/0-10/0-1,3-9,12/0-1/0-1/0-10,24/0-8,15-16/0-4,6-7".parse().unwrap();
    let shape = Shape { entries: true, ..Shape::default() };
    let options = Options { directories: Some(Directories::Restless), ..Options::default() };
    let wrong = run(&part.of(&Plan::draw(605_089, shape)), options).wrong;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

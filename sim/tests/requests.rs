//! Requests to other nodes: that few may be under way, and those that nobody waits for any more.

use mayfly_daemon::Directories;
use mayfly_sim::{
    node::Chunks,
    plan::{Plan, Shape},
    shrink::Part,
    world::{Options, run},
};

/// As many requests waited for locks as could be under way from one node to another. Whoever was to
/// give one back could not ask for that, and all waited until their deadlines.
#[test]
fn who_waits_for_locks_leaves_room_for_who_gives_them_back() {
    let shape = Shape { nodes: Some(2), shards: Some(1), locks: true, ..Shape::default() };
    let report = run(&Plan::draw(4_820_206, shape), Options::default());
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

/// A client gave an open up that was under way to a node whose daemon had died. The next one there
/// was told so first, and then the request was sent again and executed: what it had opened stayed.
#[test]
fn a_request_that_was_given_up_is_not_sent_again() {
    let shape = Shape { within: true, ..Shape::default() };
    let part: Part = "0,15-18/4-5/1-2/1-3/0-1,3,6-7/0,2-4/0,4/0,5-6/0-5".parse().expect("a part");
    let plan = part.of(&Plan::draw(4_772_094, shape));
    let directories = Some(Directories::Spread);
    let report = run(&plan, Options { chunks: Chunks::OnAll, directories, ..Options::default() });
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

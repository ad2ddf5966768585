//! Waiting for locks at other nodes, where few requests may be under way between two.

use mayfly_sim::{
    plan::{Plan, Shape},
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

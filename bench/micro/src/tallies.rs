//! What it costs to count an operation.

use std::hint::black_box;

use mayfly_transport_shm::{
    layout::NodeRegion,
    region::{self, NodeSettings},
    tally::{Done, Kind, Subject, Way},
};

fn node() -> &'static NodeRegion {
    let settings = NodeSettings { instance: 7, times: 0, locks: 1, deadline_ms: 10_000 };
    region::make_node(&settings).expect("memory").1
}

fn operations(count: u64, kind: Kind, bytes: usize) {
    let node = node();
    let tally = &node.tallies[1];
    for _ in 0..count {
        let began = black_box(tally).begin(black_box(bytes));
        let subject = Subject { file: 7, directory: 1, path: black_box(b"a/file") };
        let done = Done { kind, way: Way::Itself, failed: false, bytes, subject };
        tally.end(began, &node.timeline, || done);
    }
}

pub(crate) fn stat(count: u64) {
    operations(count, Kind::Stat, 0);
}

pub(crate) fn read(count: u64) {
    operations(count, Kind::Read, 4096);
}

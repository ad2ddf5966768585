//! What goes from node to node.

use std::hint::black_box;

use mayfly_transport_tcp::frame::body_checksum;

/// A body is summed in parts of at most so many bytes, as it comes.
const PART_BYTES: usize = 128 << 10;

pub(crate) fn checksum(count: u64) {
    let body = vec![7; PART_BYTES];
    for _ in 0..count {
        black_box(body_checksum(black_box(&body)));
    }
}

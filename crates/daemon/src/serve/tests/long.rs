//! Long reads and writes, whose bytes are shared on their way: to another shard, to another node,
//! to the I/O pool, and back.

use mayfly_meta::record::Policy;
use mayfly_transport_tcp::limits::SHARED_BYTES_MIN;
use mayfly_types::limits::{CHUNK_BYTES_MIN, TRANSFER_BYTES_MAX};

use crate::serve::tests::nodes::Instance;

const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at / 251) ^ at ^ seed) as u8).collect()
}

/// Writes and reads back in pieces around the length from which on they are shared.
fn written_is_read(instance: &Instance) {
    let edges =
        [SHARED_BYTES_MIN - 40, SHARED_BYTES_MIN - 1, SHARED_BYTES_MIN, SHARED_BYTES_MIN + 1];
    let lengths = edges.into_iter().chain([100_000, TRANSFER_BYTES_MAX]);
    let lengths: Vec<usize> = lengths.collect();
    // Names of all shards, so that requests go every way there is.
    for file in 0..12 {
        let (path, node) = (format!("long-{file}"), file % 2);
        let open = instance.open(node, &path, O_RDWR | O_CREAT).expect("made");
        let mut whole = Vec::new();
        for length in &lengths {
            let piece = pattern(*length, file);
            let mut done = 0;
            while done < piece.len() {
                let offset = (whole.len() + done) as u64;
                let count = instance.write(node, open, offset, &piece[done..]).expect("written");
                assert!(count > 0, "at {offset} of {path}");
                done += count as usize;
            }
            whole.extend(piece);
        }
        let other = instance.open(1 - node, &path, 0).expect("opened");
        for (node, open) in [(node, open), (1 - node, other)] {
            let mut at = 0;
            for length in lengths.iter().rev().cycle() {
                let bytes = instance.read(node, open, at as u64, *length as u32).expect("read");
                assert!(bytes == whole[at..at + bytes.len()], "at {at} of {path}, node {node}");
                at += bytes.len();
                if bytes.is_empty() {
                    break;
                }
            }
            assert_eq!(at, whole.len(), "{path}, node {node}");
            instance.close(node, open).expect("closed");
        }
    }
}

#[test]
fn long_pieces_of_whole_files_arrive_as_they_were_sent() {
    written_is_read(&Instance::new("long", 2, 3));
}

#[test]
fn long_pieces_of_striped_files_arrive_as_they_were_sent() {
    written_is_read(&Instance::striped("long-striped", 2, 2, (CHUNK_BYTES_MIN, Policy::Stripe)));
}

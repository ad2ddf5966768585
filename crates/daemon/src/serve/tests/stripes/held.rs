//! Appends beside writes that make the file longer.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use crate::serve::tests::stripes::{CHUNK, Instance, O_CREAT, O_RDWR, stripes};

/// What is appended.
const APPENDED: u8 = 0xaa;
const ROUNDS: u64 = 60;

/// Makes the file longer and longer, by a byte behind a hole each time.
fn write_behind_holes(instance: &Instance, node: usize) {
    let open = instance.open(node, "file", O_RDWR).expect("opened");
    for round in 0..ROUNDS {
        // In another part each time.
        let end = instance.length(node, open) / CHUNK + 2 + round % 3;
        instance.write_all(node, open, end * CHUNK - 1, &[0x55]);
    }
    instance.close(node, open).expect("closed");
}

/// Where a hole was read, as `(offset, length)`.
fn read_holes(instance: &Instance, node: usize, is_over: impl Fn() -> bool) -> Vec<(usize, usize)> {
    let open = instance.open(node, "file", O_RDWR).expect("opened");
    let mut holes = Vec::new();
    while !is_over() {
        let bytes = instance.read_all(node, open, 0);
        let mut at = 0;
        for run in bytes.chunk_by(|one, next| (*one == 0) == (*next == 0)) {
            if run[0] == 0 {
                holes.push((at, run.len()));
            }
            at += run.len();
        }
    }
    instance.close(node, open).expect("closed");
    holes
}

/// An append found the end of the file, somebody wrote further on in another part, and somebody
/// else read the hole; then the bytes were appended into it.
#[test]
fn nobody_writes_behind_bytes_that_are_being_appended() {
    let instance = stripes("held");
    let open = instance.open(0, "file", O_RDWR | O_CREAT).expect("made");
    instance.write_all(0, open, 0, &vec![APPENDED; 2 * CHUNK as usize]);
    let over = AtomicBool::new(false);
    let (instance, over) = (&instance, &over);
    thread::scope(|scope| {
        let appender = scope.spawn(|| {
            let open = instance.open(1, "file", O_RDWR).expect("opened");
            while !over.load(Relaxed) {
                instance.append(1, open, &[APPENDED; 300]).expect("appended");
            }
            instance.close(1, open).expect("closed");
        });
        let readers: Vec<_> = (0..2)
            .map(|node| {
                scope.spawn(move || read_holes(instance, node + 2, move || over.load(Relaxed)))
            })
            .collect();
        write_behind_holes(instance, 3);
        over.store(true, Relaxed);
        appender.join().expect("no panic");
        let bytes = instance.read_all(0, open, 0);
        for (at, length) in readers.into_iter().flat_map(|of| of.join().expect("no panic")) {
            let filled = bytes[at..at + length].iter().position(|byte| *byte != 0);
            assert_eq!(filled, None, "in the hole of {length} bytes at {at}");
        }
    });
    instance.close(0, open).expect("closed");
    instance.unlink(0, "file", false).expect("removed");
    instance.wait_until("no part is left", |instance| instance.objects() == 0);
}

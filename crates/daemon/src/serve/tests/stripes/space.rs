//! Space of striped files, and syncs.

use mayfly_meta::record::Policy;
use mayfly_types::{Durability, Errno, OpenRef};
use mayfly_wire::{
    ALLOCATE_KEEP_SIZE, ALLOCATE_PUNCH_HOLE, ALLOCATE_ZERO_RANGE, Allocate, Seek, StatFs, Sync,
    Target,
};

use crate::serve::tests::stripes::{CHUNK, Instance, O_CREAT, O_RDWR, pattern, stripes};

const PUNCH: u32 = ALLOCATE_KEEP_SIZE | ALLOCATE_PUNCH_HOLE;

impl Instance {
    fn allocate(
        &self,
        (node, open): (usize, OpenRef),
        mode: u32,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Errno> {
        self.ask(node, &Allocate { open, mode, offset, bytes }, |()| ())
    }

    fn used(&self, node: usize) -> u64 {
        self.ask(node, &StatFs {}, |space| space.used_bytes).expect("told")
    }

    fn sync(&self, node: usize, open: OpenRef) -> Result<(), Errno> {
        self.ask(node, &Sync { target: Target::Open(open), all: false }, |()| ())
    }
}

#[test]
fn space_of_a_striped_file_is_taken_given_back_and_filled_with_zeros() {
    for (shards, policy) in [(1, Policy::Stripe), (2, Policy::Stripe), (2, Policy::Hash)] {
        let name = format!("space-{shards}-{}", policy as u8);
        let instance = Instance::striped(&name, 4, shards, (CHUNK, policy));
        for node in 0..4 {
            allocate_from(&instance, node);
        }
        instance.wait_until("no part is left", |instance| instance.objects() == 0);
        instance.wait_until("no space is counted", |instance| instance.used(0) < 4 << 20);
    }
}

fn allocate_from(instance: &Instance, node: usize) {
    let path = format!("file-{node}");
    let open = instance.open(node, &path, O_RDWR | O_CREAT).expect("made");
    let there = instance.open((node + 1) % 4, &path, O_RDWR).expect("opened");
    let (file, other) = ((node, open), ((node + 1) % 4, there));
    // It is small, and striped by this.
    let size = 20 * CHUNK + 100;
    instance.allocate(file, 0, 0, size).expect("allocated");
    assert_eq!(instance.length(other.0, there), size);
    let taken = |instance: &Instance| instance.stat(0, &path).expect("there").blocks * 512;
    assert!(taken(instance) >= size, "{} bytes are taken", taken(instance));
    assert!(instance.read_all(other.0, there, 0) == vec![0; size as usize]);
    let mut bytes = pattern(size as usize, 3);
    instance.write_all(node, open, 0, &bytes);
    let (from, until) = (CHUNK + 17, 14 * CHUNK - 5);
    instance.allocate(other, PUNCH, from, until - from).expect("punched");
    bytes[from as usize..until as usize].fill(0);
    assert!(instance.read_all(node, open, 0) == bytes, "punched");
    assert!(taken(instance) < size / 2, "{} bytes are taken", taken(instance));
    instance.allocate(file, ALLOCATE_KEEP_SIZE, 2 * CHUNK, 80 * CHUNK).expect("allocated");
    assert!(taken(instance) >= size - 2 * CHUNK, "{} bytes are taken", taken(instance));
    assert_eq!(instance.length(other.0, there), size, "the size is kept");
    let zero = ALLOCATE_ZERO_RANGE | ALLOCATE_KEEP_SIZE;
    instance.allocate(other, zero, 15 * CHUNK + 1, 80 * CHUNK).expect("zeroed");
    bytes[15 * CHUNK as usize + 1..].fill(0);
    assert!(instance.read_all(node, open, 0) == bytes, "zeroed");
    instance.allocate(file, ALLOCATE_ZERO_RANGE, 14 * CHUNK, 9 * CHUNK).expect("zeroed");
    bytes[14 * CHUNK as usize..].fill(0);
    bytes.resize(23 * CHUNK as usize, 0);
    assert!(instance.read_all(other.0, there, 0) == bytes, "zeroed and longer");
    // There is not that much on any node.
    assert_eq!(instance.allocate(file, 0, 0, 8 << 30), Err(Errno::ENOSPC));
    assert_eq!(instance.length(other.0, there), 23 * CHUNK, "nothing was changed");
    instance.close(node, open).expect("closed");
    instance.close(other.0, there).expect("closed");
    instance.unlink(0, &path, false).expect("removed");
}

#[test]
fn a_sync_of_a_striped_file_waits_for_every_node_that_has_a_part() {
    let mut instance = stripes("synced");
    let bytes = pattern(9 * CHUNK as usize, 4);
    let open = instance.open(0, "file", O_RDWR | O_CREAT).expect("made");
    instance.write_all(0, open, 0, &bytes);
    instance.served[2].stop();
    instance.sync(0, open).expect("nothing is promised");
    instance.served[2].start();
    for served in &mut instance.served {
        served.stop();
        served.durability = Durability::Sync;
        served.start();
    }
    instance.write_all(0, open, 4 * CHUNK, &bytes);
    instance.sync(0, open).expect("synced");
    instance.served[2].stop();
    assert_eq!(instance.sync(0, open), Err(Errno::EIO), "one of them is not there");
    instance.served[2].start();
    instance.sync(0, open).expect("synced");
    instance.close(0, open).expect("closed");
}

#[test]
fn data_and_holes_of_a_striped_file_are_found() {
    for policy in [Policy::Stripe, Policy::Hash] {
        let name = format!("sought-{}", policy as u8);
        let instance = Instance::striped(&name, 4, 1, (CHUNK, policy));
        let open = instance.open(1, "file", O_RDWR | O_CREAT).expect("made");
        // Data in the second chunk, in all from the tenth to the fourteenth, and at the end.
        instance.write_all(1, open, CHUNK, &[1; CHUNK as usize]);
        instance.write_all(1, open, 10 * CHUNK, &[1; 5 * CHUNK as usize]);
        instance.write_all(1, open, 30 * CHUNK, &[1; 4096]);
        let end = 30 * CHUNK + 4096;
        let seek = |node, open, offset, hole| {
            instance.ask(node, &Seek { open, offset, hole }, |sought| sought.offset)
        };
        for node in 0..4 {
            let open = instance.open(node, "file", O_RDWR).expect("opened");
            assert_eq!(seek(node, open, 0, false), Ok(CHUNK));
            assert_eq!(seek(node, open, 0, true), Ok(0));
            assert_eq!(seek(node, open, CHUNK, true), Ok(2 * CHUNK));
            assert_eq!(seek(node, open, 2 * CHUNK, false), Ok(10 * CHUNK));
            assert_eq!(seek(node, open, 11 * CHUNK + 5, false), Ok(11 * CHUNK + 5));
            assert_eq!(seek(node, open, 11 * CHUNK + 5, true), Ok(15 * CHUNK));
            assert_eq!(seek(node, open, 15 * CHUNK, false), Ok(30 * CHUNK));
            assert_eq!(seek(node, open, 30 * CHUNK + 1, true), Ok(end));
            assert_eq!(seek(node, open, end, true), Err(Errno::ENXIO));
            instance.close(node, open).expect("closed");
        }
        instance.close(1, open).expect("closed");
    }
}

//! The parts of a striped file, against a scripted daemon and the object of the node's own part.

use core::sync::atomic::Ordering::{Relaxed, Release};
use std::{
    fs,
    sync::{Arc, Mutex},
    vec,
    vec::Vec,
};

use mayfly_sys::file::{IoVec, O_RDWR};
use mayfly_transport_shm::layout::{FILE_BY_REQUEST, FILE_OBJECT};
use mayfly_wire::{Data, Granted, Op, Request, Written};

use super::*;
use crate::testing::{InPlace, Objects, Reply, Scripted, body, client, open_entry};

const CHUNK: usize = 1 << 16;
const OWN: OwnPart = OwnPart { width: 3, index: 1, chunk_log2: 16, hashed: false };

/// A file, as the daemons have it, and how a process is to find its node's part of it.
struct File {
    objects: Objects,
    /// All of it but what the process writes by itself.
    bytes: Arc<Mutex<Vec<u8>>>,
    client: Client<Scripted, InPlace>,
    open: OpenFile,
}

impl File {
    fn new(name: &str, own: OwnPart, generation: u32) -> File {
        let objects = Objects::new(name);
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let content = Arc::clone(&bytes);
        let there = objects.path.join("part");
        let client = client(objects.descriptor, move |request| {
            let mut content = content.lock().expect("no panic");
            match request {
                Request::Grant(grant) => {
                    assert_ne!(grant.want & GRANT_PART, 0);
                    let object_path: &[u8] = if there.exists() { b"part" } else { b"" };
                    body(&Granted { object_path, generation, own })
                }
                Request::Write(write) => {
                    let at = write.offset as usize;
                    let count = write.bytes.len().min(CHUNK - at % CHUNK);
                    let length = content.len().max(at + count);
                    content.resize(length, 0);
                    content[at..at + count].copy_from_slice(&write.bytes[..count]);
                    body(&Written { object: true, count: count as u32, end: (at + count) as u64 })
                }
                Request::Read(read) => {
                    let at = (read.offset as usize).min(content.len());
                    let count = (read.count as usize).min(CHUNK - at % CHUNK);
                    let bytes = &content[at..(at + count).min(content.len())];
                    body(&Data { object: true, bytes })
                }
                _ => Reply::Failed(Errno::EIO),
            }
        });
        let open = client.open_file(open_entry(&client, 9, O_RDWR)).expect("open");
        let entry = &client.node.files[1];
        entry.flags.store(FILE_OBJECT | FILE_BY_REQUEST | FILE_STRIPED, Relaxed);
        entry.grant_generation.store(5, Relaxed);
        entry.allowance_end.store(1 << 30, Relaxed);
        File { objects, bytes, client, open }
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<usize, Errno> {
        let piece = [IoVec { base: bytes.as_ptr().cast_mut(), bytes: bytes.len() }];
        // SAFETY: the buffer outlives the call.
        unsafe { self.client.write_at(self.open, at as i64, &piece) }
    }

    fn read(&self, at: usize, count: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; count];
        let piece = [IoVec { base: bytes.as_mut_ptr(), bytes: count }];
        // SAFETY: the buffer outlives the call.
        let count = unsafe { self.client.read_at(self.open, at as i64, &piece) }.expect("read");
        bytes.truncate(count);
        bytes
    }

    fn part(&self) -> Vec<u8> {
        fs::read(self.objects.path.join("part")).unwrap_or_default()
    }

    fn asked(&self, op: Op) -> usize {
        let asked = self.client.transport().asked.lock().expect("no panic");
        asked.iter().filter(|asked| **asked == op).count()
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / CHUNK) as u8 * 16 + (at % 13) as u8).collect()
}

#[test]
fn chunks_of_the_own_part_are_used_in_its_object_and_others_asked_for() {
    let file = File::new("parts", OWN, 5);
    fs::write(file.objects.path.join("part"), b"").expect("an object");
    let bytes = pattern(8 * CHUNK);
    assert_eq!(file.write(0, &bytes), Ok(bytes.len()));
    let own: Vec<&[u8]> = [1, 4, 7].map(|chunk| &bytes[chunk * CHUNK..][..CHUNK]).to_vec();
    assert!(file.part() == own.concat(), "one chunk behind the other");
    let other = file.bytes.lock().expect("no panic").clone();
    for chunk in 0..7 {
        let there = &other[chunk * CHUNK..][..CHUNK];
        let is_own = chunk % 3 == 1;
        assert!(is_own != (there == &bytes[chunk * CHUNK..][..CHUNK]), "chunk {chunk}");
    }
    assert_eq!(file.asked(Op::Grant), 1, "leave is asked for once");
    for (at, count) in [(0, 8 * CHUNK), (CHUNK + 5, 100), (4 * CHUNK - 7, 2 * CHUNK)] {
        assert!(file.read(at, count) == bytes[at..at + count], "{count} bytes at {at}");
    }
    let reads = file.asked(Op::Read);
    assert!(file.read(4 * CHUNK + 9, CHUNK - 9) == bytes[4 * CHUNK + 9..5 * CHUNK]);
    assert_eq!((file.asked(Op::Grant), file.asked(Op::Read)), (1, reads), "nobody was asked");
}

#[test]
fn what_lies_behind_the_end_of_the_part_is_asked_for() {
    let file = File::new("short", OWN, 5);
    let mut bytes = pattern(2 * CHUNK);
    fs::write(file.objects.path.join("part"), &bytes[CHUNK..][..100]).expect("an object");
    bytes[CHUNK + 100..].fill(0);
    *file.bytes.lock().expect("no panic") = bytes.clone();
    assert!(file.read(0, 3 * CHUNK) == bytes, "a hole, and the end of the file");
    assert!(file.read(CHUNK + 50, 100) == bytes[CHUNK + 50..][..100], "from within the part");
    assert_eq!(file.read(2 * CHUNK, 10), b"");
}

#[test]
fn a_part_that_is_not_there_is_asked_for_once_and_its_bytes_each_time() {
    let file = File::new("absent", OWN, 5);
    *file.bytes.lock().expect("no panic") = pattern(3 * CHUNK);
    for round in 1..4 {
        assert!(file.read(CHUNK, 10) == pattern(3 * CHUNK)[CHUNK..][..10]);
        assert_eq!((file.asked(Op::Grant), file.asked(Op::Read)), (1, round));
    }
    // It was made, which voids what was said before.
    file.client.node.files[1].grant_generation.store(6, Release);
    file.read(CHUNK, 10);
    assert!(file.asked(Op::Grant) > 1);
}

#[test]
fn a_transfer_whose_leave_ended_is_made_again_by_a_request() {
    // The leave that is given has ended already.
    let file = File::new("ended", OWN, 4);
    fs::write(file.objects.path.join("part"), b"").expect("an object");
    let bytes = pattern(CHUNK);
    assert_eq!(file.write(CHUNK, &bytes), Ok(CHUNK));
    let there = file.bytes.lock().expect("no panic").clone();
    assert!(there[CHUNK..] == bytes, "asked for");
}

#[test]
fn without_an_allowance_for_it_nothing_is_written_to_the_part() {
    let file = File::new("allowance", OWN, 5);
    fs::write(file.objects.path.join("part"), b"").expect("an object");
    file.client.node.files[1].allowance_end.store(CHUNK as u64 + 10, Relaxed);
    assert_eq!(file.write(4 * CHUNK, &[7; 10]), Ok(10));
    assert_eq!(file.write(4 * CHUNK + 10, &[8; 10]), Ok(10), "the daemon finds room for it");
    assert_eq!(file.part().len(), CHUNK + 10);
    assert_eq!(file.bytes.lock().expect("no panic")[4 * CHUNK + 10..], [8; 10]);
}

#[test]
fn a_node_without_a_part_and_hashed_writes_ask_for_everything() {
    for own in [OwnPart { index: u16::MAX, ..OWN }, OwnPart { hashed: true, ..OWN }] {
        let file = File::new("none", own, 5);
        fs::write(file.objects.path.join("part"), b"").expect("an object");
        let bytes = pattern(7 * CHUNK);
        assert_eq!(file.write(0, &bytes), Ok(bytes.len()));
        assert_eq!(file.part(), b"");
        assert!(*file.bytes.lock().expect("no panic") == bytes);
        assert_eq!(file.asked(Op::Grant), 1);
    }
}

#[test]
fn pieces_that_the_kernel_would_not_take_at_once_stay_together() {
    let file = File::new("pieces", OWN, 5);
    fs::write(file.objects.path.join("part"), b"").expect("an object");
    let (mut first, mut second) = (vec![1; CHUNK + 100], vec![2; 200]);
    let list = [&mut first, &mut second]
        .map(|piece| IoVec { base: piece.as_mut_ptr(), bytes: piece.len() });
    // SAFETY: the buffers outlive the call.
    let written = unsafe { file.client.write_at(file.open, 0, &list) };
    assert_eq!(written, Ok(CHUNK + 300));
    assert_eq!(file.part(), b"", "one request");
    let there = file.bytes.lock().expect("no panic").clone();
    assert!(there == [first, second].concat());
}

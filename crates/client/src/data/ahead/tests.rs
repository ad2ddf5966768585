//! A file at another node, which has no object here.

use std::{sync::Arc, sync::Mutex, vec, vec::Vec};

use mayfly_transport_shm::layout::FILE_BY_REQUEST;
use mayfly_types::OpenRef;
use mayfly_wire::{Data, Granted, OwnPart, Request, Written};

use super::*;
use crate::testing::{InPlace, Reply, Scripted, body, client, open_entry};

const O_RDWR: u32 = 2;
const LENGTH: usize = 7 * TRANSFER_BYTES_MAX + 1000;

/// A file with these bytes, where a write or a read of more than `limit` ends early, and one that
/// begins beyond it fails.
fn far(bytes: Arc<Mutex<Vec<u8>>>, limit: usize) -> Client<Scripted, InPlace> {
    client(-1, move |request| match request {
        Request::Grant(_) => {
            body(&Granted { object_path: b"", generation: 0, own: OwnPart::WHOLE })
        }
        Request::Write(write) => {
            let at = write.offset as usize;
            if at > limit {
                return Reply::Failed(Errno::ENOSPC);
            }
            let count = write.bytes.len().min(limit - at);
            bytes.lock().unwrap()[at..at + count].copy_from_slice(&write.bytes[..count]);
            body(&Written { object: true, count: count as u32, end: (at + count) as u64 })
        }
        Request::Read(read) => {
            let bytes = bytes.lock().unwrap();
            let at = (read.offset as usize).min(limit);
            let end = (at + read.count as usize).min(limit);
            body(&Data { object: true, bytes: &bytes[at..end] })
        }
        other => panic!("{other:?}"),
    })
}

fn open(client: &Client<Scripted, InPlace>) -> (OpenRef, OpenFile) {
    use core::sync::atomic::Ordering::Relaxed;
    let reference = open_entry(client, 9, O_RDWR);
    client.node.files[1].flags.store(FILE_BY_REQUEST, Relaxed);
    (reference, client.open_file(reference).unwrap())
}

fn pattern() -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 3) as u8).collect()
}

fn run_of(bytes: &[u8]) -> [IoVec; 1] {
    [IoVec { base: bytes.as_ptr().cast_mut(), bytes: bytes.len() }]
}

#[test]
fn a_long_transfer_has_several_requests_under_way_and_every_byte_in_its_place() {
    for offset in [0, 77] {
        let bytes = Arc::new(Mutex::new(vec![0; offset + LENGTH]));
        let client = far(Arc::clone(&bytes), usize::MAX / 2);
        let (_, file) = open(&client);
        let text = pattern();
        let at = i64::try_from(offset).unwrap();
        // SAFETY: the memory is there.
        assert_eq!(unsafe { client.write_at(file, at, &run_of(&text)) }, Ok(LENGTH));
        assert_eq!(bytes.lock().unwrap()[offset..], text);
        assert_eq!(*client.transport.most.lock().unwrap(), WINDOW);
        let limit = offset + LENGTH;
        let client = far(bytes, limit);
        let (_, file) = open(&client);
        let read = vec![0; LENGTH + 5];
        // SAFETY: as above.
        assert_eq!(unsafe { client.read_at(file, at, &run_of(&read)) }, Ok(LENGTH));
        assert_eq!(read[..LENGTH], text);
        assert_eq!(*client.transport.most.lock().unwrap(), WINDOW);
    }
}

#[test]
fn what_counts_of_a_transfer_that_ends_early_is_what_came_before() {
    for limit in [0, 100, TRANSFER_BYTES_MAX, 2 * TRANSFER_BYTES_MAX + 5] {
        let bytes = Arc::new(Mutex::new(vec![0; LENGTH]));
        let client = far(Arc::clone(&bytes), limit);
        let (_, file) = open(&client);
        let text = pattern();
        // SAFETY: the memory is there.
        let written = unsafe { client.write_at(file, 0, &run_of(&text)) };
        assert_eq!(written, Ok(limit), "{limit}");
        assert_eq!(bytes.lock().unwrap()[..limit], text[..limit]);
        let read = vec![0; LENGTH];
        // SAFETY: as above.
        assert_eq!(unsafe { client.read_at(file, 0, &run_of(&read)) }, Ok(limit));
        assert_eq!(read[..limit], text[..limit]);
    }
}

//! The data path against a scripted daemon and real objects.

use core::sync::atomic::Ordering::Relaxed;
use std::{
    fs,
    string::String,
    sync::{Arc, Mutex},
    vec,
    vec::Vec,
};

use mayfly_sys::file::{IoVec, O_APPEND, O_RDONLY, O_RDWR, O_WRONLY};
use mayfly_sys::text::PathText;
use mayfly_transport_shm::layout::FILE_OBJECT;
use mayfly_types::{Attr, Errno, FileId, FileKind, OpenRef};
use mayfly_wire::{Content, Data, Granted, Op, OpenReply, Opened, OwnPart, Request, Walk, Written};

use crate::{
    NewOwner, Stop,
    testing::{Objects, Reply, Scripted, body, client, open_entry},
};

type Client = crate::Client<Scripted, crate::testing::InPlace>;

fn piece(bytes: &mut [u8]) -> [IoVec; 1] {
    [IoVec { base: bytes.as_mut_ptr(), bytes: bytes.len() }]
}

fn asked(client: &Client) -> Vec<Op> {
    core::mem::take(&mut client.transport().asked.lock().expect("no panic"))
}

fn granting(client: &Client, allowance: u64) {
    client.node.files[1].flags.store(FILE_OBJECT, Relaxed);
    client.node.files[1].allowance_end.store(allowance, Relaxed);
}

#[test]
fn small_data_travel_through_the_daemon_and_move_the_offset() {
    let content = Arc::new(Mutex::new(Vec::new()));
    let held = content.clone();
    let client = client(-1, move |request| {
        let mut content = held.lock().expect("no panic");
        match request {
            Request::Write(write) => {
                content.extend_from_slice(write.bytes);
                let end = content.len() as u64;
                body(&Written { object: false, count: write.bytes.len() as u32, end })
            }
            Request::Read(read) => {
                let bytes = content.get(read.offset as usize..).unwrap_or(&[]);
                body(&Data { object: false, bytes: &bytes[..bytes.len().min(read.count as usize)] })
            }
            _ => Reply::Failed(Errno::ENOSYS),
        }
    });
    let open = client.open_file(open_entry(&client, 9, O_RDWR)).expect("open");
    let (mut one, mut two) = (*b"hello ", *b"world");
    let pieces = [piece(&mut one)[0], piece(&mut two)[0]];
    // SAFETY: the pieces are the arrays above.
    assert_eq!(unsafe { client.write(open, &pieces) }, Ok(11));
    assert_eq!(content.lock().expect("no panic").as_slice(), b"hello world");
    assert_eq!(asked(&client), [Op::Write], "the pieces of one writev stay together");
    assert_eq!(client.seek(open, -5, 1), Ok(6));
    assert_eq!(client.seek(open, -7, 1), Err(Errno::EINVAL));
    let mut buffer = [0; 20];
    // SAFETY: the buffer outlives the call.
    assert_eq!(unsafe { client.read(open, &piece(&mut buffer)) }, Ok(5));
    assert_eq!(&buffer[..5], b"world");
    assert_eq!(client.position(open), 11);
}

#[test]
fn content_that_came_with_an_open_is_read_without_a_request_until_it_changes() {
    const OPEN: OpenRef = OpenRef { index: 1, generation: 0 };
    let client = client(-1, |request| match request {
        Request::Open(_) => {
            let attr = Attr {
                id: FileId(9),
                kind: FileKind::Regular,
                mode: 0o644,
                links: 1,
                uid: 0,
                gid: 0,
                size_bytes: 5,
                blocks: 0,
                atime: Default::default(),
                mtime: Default::default(),
                ctime: Default::default(),
                btime: Default::default(),
            };
            let opened = Opened { open: OPEN, attr, created: false, mapped: false };
            let data = Data { object: false, bytes: b"first" };
            body(&OpenReply { opened, content: Some(Content { version: 3, data }) })
        }
        Request::Read(_) => body(&Data { object: false, bytes: b"then" }),
        _ => Reply::Failed(Errno::ENOSYS),
    });
    let (open_it, read) = (
        || {
            let walk = Walk { start: FileId::ROOT, flags: 0, path: b"/f" };
            let new = NewOwner { mode: 0, uid: 0, gid: 0 };
            client.open(walk, O_RDONLY, new, &mut PathText::new()).expect("opened").open
        },
        |open, offset| {
            let mut buffer = [0; 20];
            // SAFETY: the buffer outlives the call.
            let count = unsafe { client.read_at(open, offset, &piece(&mut buffer)) };
            buffer[..count.expect("read")].to_vec()
        },
    );
    let open = client.open_file(open_entry(&client, 9, O_RDONLY)).expect("open");
    let file = &client.node.files[1];
    file.content_version.store(3, Relaxed);
    assert_eq!(open_it(), open.reference);
    assert_eq!(read(open, 0), b"first");
    assert_eq!(read(open, 2), b"rst");
    assert_eq!(read(open, 5), b"");
    assert_eq!(asked(&client), [Op::Open]);
    // Changed since, and with what came before the change: neither is read.
    file.content_version.store(4, Relaxed);
    assert_eq!(read(open, 0), b"then");
    open_it();
    assert_eq!(read(open, 0), b"then");
    assert_eq!(asked(&client), [Op::Read, Op::Open, Op::Read]);
    // Another description at the same number.
    file.content_version.store(3, Relaxed);
    assert_eq!(read(open, 0), b"first");
    open.entry.generation.store(1, Relaxed);
    let next = client.open_file(OpenRef { generation: 1, ..OPEN }).expect("open");
    assert_eq!(read(next, 0), b"then");
}

#[test]
fn a_long_write_asks_for_an_object_and_writes_it_directly() {
    let objects = Objects::new("long");
    fs::write(objects.path.join("one"), b"").expect("an object");
    let client = client(objects.descriptor, |request| match request {
        Request::Grant(grant) if grant.end == 10_000 => {
            body(&Granted { object_path: b"one", generation: 0, own: OwnPart::WHOLE })
        }
        _ => Reply::Failed(Errno::EIO),
    });
    let open = client.open_file(open_entry(&client, 9, O_RDWR)).expect("open");
    granting(&client, 10_000);
    client.node.files[1].flags.store(0, Relaxed);
    let mut bytes = vec![7_u8; 10_000];
    // SAFETY: the buffer outlives the call.
    assert_eq!(unsafe { client.write_at(open, 0, &piece(&mut bytes)) }, Ok(10_000));
    assert_eq!(fs::read(objects.path.join("one")).expect("an object"), bytes);
    assert_eq!(asked(&client), [Op::Grant]);
    granting(&client, 10_000);
    // SAFETY: as above.
    assert_eq!(unsafe { client.read_at(open, 9_000, &piece(&mut bytes)) }, Ok(1_000));
    assert_eq!(asked(&client), [], "the object is kept open");
    assert_eq!(client.size(open), Ok(10_000));
}

#[test]
fn growth_beyond_the_allowance_asks_first_and_may_find_the_disk_full() {
    let objects = Objects::new("full");
    fs::write(objects.path.join("one"), [0; 100]).expect("an object");
    let client = client(objects.descriptor, |request| match request {
        Request::Grant(grant) if grant.end <= 100 => {
            body(&Granted { object_path: b"one", generation: 0, own: OwnPart::WHOLE })
        }
        _ => Reply::Failed(Errno::ENOSPC),
    });
    let open = client.open_file(open_entry(&client, 9, O_RDWR)).expect("open");
    granting(&client, 100);
    let mut bytes = [1; 50];
    // SAFETY: the buffer outlives the calls.
    unsafe {
        assert_eq!(client.write_at(open, 50, &piece(&mut bytes)), Ok(50));
        assert_eq!(client.write_at(open, 60, &piece(&mut bytes)), Err(Errno::ENOSPC));
    }
    assert_eq!(fs::metadata(objects.path.join("one")).expect("an object").len(), 100);
}

#[test]
fn a_revoked_grant_is_asked_for_again() {
    let objects = Objects::new("revoked");
    fs::write(objects.path.join("one"), b"old").expect("an object");
    fs::write(objects.path.join("two"), b"new").expect("an object");
    let client = client(objects.descriptor, |request| match request {
        Request::Grant(_) => {
            body(&Granted { object_path: b"two", generation: 5, own: OwnPart::WHOLE })
        }
        _ => Reply::Failed(Errno::EIO),
    });
    let open = client.open_file(open_entry(&client, 9, O_RDONLY)).expect("open");
    granting(&client, 0);
    client.node.files[1].grant_generation.store(5, Relaxed);
    let mut bytes = [0; 3];
    // SAFETY: the buffer outlives the calls.
    unsafe {
        assert_eq!(client.read_at(open, 0, &piece(&mut bytes)), Ok(3));
        assert_eq!((&bytes, asked(&client)), (b"new", vec![Op::Grant]));
        client.node.files[1].grant_generation.store(6, Relaxed);
        // The scripted daemon keeps granting generation 5, so in the end it is asked for the bytes.
        assert_eq!(client.read_at(open, 0, &piece(&mut bytes)), Err(Errno::EIO));
    }
    assert_eq!(asked(&client).last(), Some(&Op::Read));
}

#[test]
fn appends_to_an_object_end_where_the_offset_then_stands() {
    let objects = Objects::new("append");
    fs::write(objects.path.join("one"), b"begun,").expect("an object");
    let client = client(objects.descriptor, |request| match request {
        Request::Grant(_) => {
            body(&Granted { object_path: b"one", generation: 0, own: OwnPart::WHOLE })
        }
        _ => Reply::Failed(Errno::EIO),
    });
    let open = client.open_file(open_entry(&client, 9, O_WRONLY | O_APPEND)).expect("open");
    granting(&client, 1 << 20);
    let mut bytes = *b"more";
    // SAFETY: the buffer outlives the call.
    assert_eq!(unsafe { client.write(open, &piece(&mut bytes)) }, Ok(4));
    assert_eq!(client.position(open), 10);
    let content = fs::read(objects.path.join("one")).expect("an object");
    assert_eq!(String::from_utf8_lossy(&content), "begun,more");
}

#[test]
fn access_and_arguments_are_checked_before_anything_is_sent() {
    let client = client(-1, |_| Reply::Failed(Errno::EIO));
    let reader = client.open_file(open_entry(&client, 9, O_RDONLY)).expect("open");
    let mut bytes = [0; 4];
    // SAFETY: the buffer outlives the calls.
    unsafe {
        assert_eq!(client.write(reader, &piece(&mut bytes)), Err(Errno::EBADF));
        assert_eq!(client.read_at(reader, -1, &piece(&mut bytes)), Err(Errno::EINVAL));
        assert_eq!(client.read_at(reader, 0, &[]), Ok(0));
        let directory = client.open_file(open_entry(&client, 9, O_RDONLY)).expect("open");
        directory.entry.kind.store(2, Relaxed);
        assert_eq!(client.read(directory, &piece(&mut bytes)), Err(Errno::EISDIR));
        directory.entry.kind.store(1, Relaxed);
        let writer = client.open_file(open_entry(&client, 9, O_WRONLY)).expect("open");
        assert_eq!(client.read(writer, &piece(&mut bytes)), Err(Errno::EBADF));
        assert_eq!(client.write(writer, &[]), Ok(0));
        let far = mayfly_types::limits::FILE_BYTES_MAX as i64;
        assert_eq!(client.write_at(writer, far, &piece(&mut bytes)), Err(Errno::EFBIG));
    }
    assert_eq!(asked(&client), []);
    let reference = reader.reference;
    reader.entry.generation.store(1, Relaxed);
    assert_eq!(client.open_file(reference).err(), Some(Errno::EBADF));
}

#[test]
fn a_walk_that_leaves_the_instance_says_where_to() {
    let client = client(-1, |_| Reply::Escaped(b"/etc/passwd"));
    let mut escape = mayfly_sys::text::PathText::new();
    let target = mayfly_wire::Target::Directory(mayfly_types::FileId::ROOT);
    assert_eq!(client.stat(target, &mut escape), Err(Stop::Escaped));
    assert_eq!(escape.as_bytes(), b"/etc/passwd");
}

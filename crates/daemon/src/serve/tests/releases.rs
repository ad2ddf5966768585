//! The life of shared open file descriptions, by the kernel's word.

use std::{
    os::fd::OwnedFd,
    process::{Command, Stdio},
    sync::atomic::Ordering::SeqCst,
    thread,
    time::Duration,
};

use mayfly_transport::{Patience, Transport};
use mayfly_transport_shm::layout::{OPEN_PRIVATE, OPEN_SHARED};
use mayfly_types::OpenRef;
use mayfly_wire::{LOCK_FLOCK, LOCK_WRITE, LockRange, TestLock};
use rustix::fs::{Mode, OFlags, inotify};

use crate::serve::{
    sessions::releases,
    tests::host::{Host, spawn, until},
};

/// As a process does that shares an open file description: access mode 3, neither read nor write.
fn hold(host: &Host, index: u32) -> OwnedFd {
    let path = host.directory.join("ofd").join(index.to_string());
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).expect("held")
}

fn watch(host: &Host) -> OwnedFd {
    let queue = inotify::init(inotify::CreateFlags::NONBLOCK).expect("inotify");
    inotify::add_watch(&queue, host.directory.join("ofd"), inotify::WatchFlags::CLOSE)
        .expect("a watch");
    queue
}

/// The indexes that are released next.
fn released(queue: &OwnedFd) -> Vec<u32> {
    let mut found = Vec::new();
    until("one is released", || {
        found = releases::drain(queue).indexes;
        !found.is_empty()
    });
    found
}

#[test]
fn the_last_close_tells_also_when_the_holder_is_killed() {
    let host = Host::new("release", 1000);
    let held = hold(&host, 41);
    let queue = watch(&host);
    let mut child = Command::new("sleep")
        .arg("100")
        .stdin(Stdio::from(held.try_clone().expect("a descriptor")))
        .spawn()
        .expect("a child");
    drop(held);
    thread::sleep(Duration::from_millis(20));
    assert!(releases::drain(&queue).indexes.is_empty(), "the child still holds it");
    child.kill().expect("killed");
    assert_eq!(released(&queue), [41]);
    child.wait().expect("it ends");
}

#[test]
fn holders_are_found_in_proc() {
    let host = Host::new("holders", 1000);
    let held = hold(&host, 7);
    let other = hold(&host, 8);
    drop(other);
    until_unheld(&host, 8);
    let found = releases::holders(&host.directory.join("ofd"));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [7]);
    drop(held);
    until_unheld(&host, 7);
    assert!(releases::holders(&host.directory.join("ofd")).is_empty());
}

/// Waits until the file system of the test was told.
fn until_told(host: &Host, index: u32) {
    let name = format!("released-{index}");
    until("a release is told", || host.done().contains(&name));
}

#[test]
fn a_release_reaches_the_file_system_also_when_the_daemon_was_dead() {
    let host = Host::new("told", 1000);
    for (index, state) in [(1, OPEN_SHARED), (2, OPEN_PRIVATE), (3, OPEN_SHARED), (4, OPEN_SHARED)]
    {
        host.node.opens[index].state.store(state, SeqCst);
    }
    let [first, private, third, fourth] = [1, 2, 3, 4].map(|index| hold(&host, index));
    let mut daemon = host.start_daemon();
    host.wait_until_ready();
    drop(private);
    drop(first);
    until_told(&host, 1);
    daemon.kill().expect("killed");
    daemon.wait().expect("it ends");
    drop(third);
    let mut daemon = host.start_daemon();
    until_told(&host, 3);
    let names: Vec<String> = host.done();
    assert!(!names.contains(&"released-2".to_owned()), "it was not shared: {names:?}");
    assert!(!names.contains(&"released-4".to_owned()), "it is held: {names:?}");
    drop(fourth);
    host.stop();
    daemon.wait().expect("it ends");
}

#[test]
fn a_lock_is_decided_with_all_that_the_kernel_knows() {
    decide_locks(&Host::new("evidence", 20_000));
}

/// The double decides locks in its second shard.
#[test]
fn a_lock_of_another_shard_is_decided_with_all_that_the_kernel_knows() {
    decide_locks(&Host::of_shards("evidence-3", 20_000, 3));
}

/// A process that another test is just starting has a copy of every descriptor until its exec.
fn until_unheld(host: &Host, index: u32) {
    let directory = host.directory.join("ofd");
    until("nobody holds it", || !releases::holders(&directory).contains(&index));
}

fn decide_locks(host: &Host) {
    let mut daemon = host.start_daemon();
    host.wait_until_ready();
    let attachment = host.attach();
    let range = LockRange { owner: LOCK_FLOCK, kind: LOCK_WRITE, start: 0, end: u64::MAX };
    let look = TestLock { open: OpenRef::default(), range };
    let written = |name: &str| {
        attachment.transport.exchange(&look, Patience::Deadline, |_| ());
        host.ledgers().read_locks().into_iter().flatten().any(|entry| entry == name)
    };
    for index in 10..60 {
        host.node.opens[index as usize].state.store(OPEN_SHARED, SeqCst);
        drop(hold(host, index));
        until_unheld(host, index);
        assert!(written(&format!("released-{index}")), "slot file {index}");
    }
    for session in 2..12 {
        let mut client = spawn("client", &host.directory, session).spawn().expect("a client");
        // Until the daemon has heard of it, its end is not the daemon's to see.
        host.until_answered(session);
        client.kill().expect("killed");
        client.wait().expect("it ends");
        assert!(written(&format!("closed-{session}")), "session {session}");
        until("its session ends", || host.sessions() == 1);
    }
    host.stop();
    daemon.wait().expect("it ends");
}

#[test]
fn a_lock_is_decided_with_releases_that_the_queue_had_no_room_for() {
    let host = Host::new("overflow", 20_000);
    let mut daemon = host.start_daemon();
    host.wait_until_ready();
    let attachment = host.attach();
    let signal = |signal| {
        let pid = rustix::process::Pid::from_child(&daemon);
        rustix::process::kill_process(pid, signal).expect("signalled");
    };
    signal(rustix::process::Signal::STOP);
    let room: usize = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")
        .expect("a number")
        .trim()
        .parse()
        .expect("a number");
    // Two in turn, since the queue joins equal neighbours.
    for _ in 0..room {
        drop(hold(&host, 1));
        drop(hold(&host, 2));
    }
    host.node.opens[9].state.store(OPEN_SHARED, SeqCst);
    drop(hold(&host, 9));
    let range = LockRange { owner: LOCK_FLOCK, kind: LOCK_WRITE, start: 0, end: u64::MAX };
    let look = TestLock { open: OpenRef::default(), range };
    thread::scope(|scope| {
        let asked = scope.spawn(|| {
            attachment.transport.exchange(&look, Patience::Deadline, |_| ());
            host.done().into_iter().any(|entry| entry == "released-9")
        });
        thread::sleep(Duration::from_millis(20));
        signal(rustix::process::Signal::CONT);
        assert!(asked.join().expect("no panic"));
    });
    host.stop();
    daemon.wait().expect("it ends");
}

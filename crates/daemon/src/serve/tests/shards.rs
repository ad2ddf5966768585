//! Several shards: what is forwarded, who hears of what, and how it ends.

use std::{sync::atomic::Ordering::SeqCst, thread, time::Duration};

use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::{
    Attachment,
    layout::{LANE_REQUEST, LANE_SLEEPER},
};
use mayfly_types::{Errno, OpenRef, SessionId};
use mayfly_wire::{LOCK_FLOCK, LOCK_WRITE, LockRange, TestLock};

use crate::serve::{
    Ending, run,
    sessions::channel::Message,
    tests::{
        host::{Host, spawn, until},
        hostile::Client,
        ledger::{Ledgers, owner},
        roles::make,
    },
};

const SHARDS: u32 = 3;

/// Serves in a thread of this process, and waits until it does.
fn serve(host: &Host, ledgers: Ledgers) -> thread::JoinHandle<std::io::Result<Ending>> {
    let channel = host.begin();
    let slot_files = host.directory.join("ofd");
    thread::spawn(move || run(channel, &slot_files, ledgers.shards, None, &ledgers))
}

fn ask(attachment: &Attachment, name: &str) -> Result<(), Errno> {
    attachment.transport.exchange(&make(name), Patience::Deadline, |answer| match answer {
        Answer::Done(()) => Ok(()),
        Answer::Failed(errno) => Err(errno),
        Answer::Escaped(_) => Err(Errno::EPROTO),
    })
}

/// A path of this shard.
fn path_of(shard: u32) -> String {
    let mut names = (0..).map(|number: u32| format!("{number}-of-{shard}"));
    names.find(|name| owner(name.as_bytes(), SHARDS) == shard).expect("there is one")
}

#[test]
fn a_forwarded_request_is_executed_by_its_shard_and_answered() {
    let host = Host::of_shards("forward", 20_000, SHARDS);
    let serving = serve(&host, host.ledgers());
    assert_eq!(host.hear(), Message::Ready);
    let attachment = host.attach();
    thread::scope(|scope| {
        for worker in 0..20 {
            let attachment = &attachment;
            scope.spawn(move || {
                for request in 0..300 {
                    assert_eq!(ask(attachment, &format!("{worker}-{request}")), Ok(()));
                }
            });
        }
    });
    for shard in 0..SHARDS {
        let done: Vec<String> = host.ledgers().read_shard(shard).into_iter().flatten().collect();
        let own = done.iter().filter(|name| !name.starts_with("sent-"));
        assert!(own.clone().all(|name| owner(name.as_bytes(), SHARDS) == shard));
        assert!(own.count() > 1000, "shard {shard} did not do its part");
    }
    host.ledgers().check_senders();
    host.stop();
    assert_eq!(serving.join().expect("no panic").expect("served"), Ending::Stopped);
}

#[test]
fn a_failed_commit_in_any_shard_is_eio_and_ends_the_daemon() {
    for failing in 0..SHARDS {
        let host = Host::of_shards(&format!("commit-{failing}"), 20_000, SHARDS);
        let serving = serve(&host, Ledgers { failing: Some(failing), ..host.ledgers() });
        assert_eq!(host.hear(), Message::Ready);
        let attachment = host.attach();
        // The first shard writes down whatever it sends on, so its failure is everybody's.
        for shard in (0..SHARDS).filter(|shard| failing != 0 && *shard != failing) {
            assert_eq!(ask(&attachment, &path_of(shard)), Ok(()));
        }
        assert_eq!(ask(&attachment, &path_of(failing)), Err(Errno::EIO));
        let ending = serving.join().expect("no panic").expect("served");
        assert_eq!(ending, Ending::StoreFailed(Errno::ENOSPC));
        assert!(!host.done().contains(&path_of(failing)));
        let serving = serve(&host, host.ledgers());
        assert_eq!(ask(&attachment, &path_of(failing)), Ok(()), "a new daemon goes on");
        host.stop();
        assert_eq!(serving.join().expect("no panic").expect("served"), Ending::Stopped);
    }
}

#[test]
fn a_shard_that_cannot_be_opened_is_told_to_the_supervisor() {
    for refusing in [(0, 1), (0, 2), (1, 1), (2, 1), (1, 2), (2, 2)] {
        let host = Host::of_shards("refused", 20_000, SHARDS);
        let serving = serve(&host, Ledgers { refusing: Some(refusing), ..host.ledgers() });
        let why = format!("shard {} is broken", refusing.0);
        assert_eq!(host.hear(), Message::Failed(why));
        serving.join().expect("no panic").expect_err("it cannot serve");
        assert!(host.done().is_empty());
    }
}

/// Waits for the supervisor's sake until the daemon is done with a session.
fn wait_for_end(host: &Host, session: SessionId) {
    while host.hear() != Message::Ended(session) {}
}

#[test]
fn the_end_of_a_session_is_told_when_every_shard_has_committed_it() {
    let host = Host::of_shards("ends", 20_000, SHARDS);
    let serving = serve(&host, host.ledgers());
    assert_eq!(host.hear(), Message::Ready);
    for number in 1..=10 {
        let mut client = spawn("client", &host.directory, number).spawn().expect("a client");
        until("it attaches", || host.sessions() == 1);
        thread::sleep(Duration::from_millis(u64::from(number)));
        client.kill().expect("killed");
        client.wait().expect("it ends");
        wait_for_end(&host, SessionId(number));
        let name = format!("closed-{number}");
        for shard in 0..SHARDS {
            let done: Vec<String> =
                host.ledgers().read_shard(shard).into_iter().flatten().collect();
            assert_eq!(done.iter().filter(|done| **done == name).count(), 1, "shard {shard}");
        }
    }
    host.stop();
    serving.join().expect("no panic").expect("served");
}

#[test]
fn an_end_that_evidence_showed_first_is_told_once() {
    let host = Host::of_shards("evident", 20_000, SHARDS);
    let serving = serve(&host, host.ledgers());
    assert_eq!(host.hear(), Message::Ready);
    let attachment = host.attach();
    let range = LockRange { owner: LOCK_FLOCK, kind: LOCK_WRITE, start: 0, end: u64::MAX };
    let look = TestLock { open: OpenRef::default(), range };
    let mut client = spawn("client", &host.directory, 2).spawn().expect("a client");
    // Until the daemon has heard of it, its end is not the daemon's to see.
    host.until_answered(2);
    client.kill().expect("killed");
    client.wait().expect("it ends");
    attachment.transport.exchange(&look, Patience::Deadline, |_| ());
    wait_for_end(&host, SessionId(2));
    assert_eq!(host.done().iter().filter(|name| *name == "closed-2").count(), SHARDS as usize);
    host.stop();
    serving.join().expect("no panic").expect("served");
}

/// Stores a reply to each of `count` requests, which rests on the first transaction of some shard.
fn answer_all(host: &Host, count: usize) {
    let client = Client::map(&host.region());
    let waiting = || {
        let lanes = client.head().lanes.iter();
        lanes.filter(|lane| lane.state.load(SeqCst) & !LANE_SLEEPER == LANE_REQUEST)
    };
    until("all have asked", || waiting().count() == count);
    for (lane, shard) in waiting().zip((0..host.shards).cycle()) {
        lane.answered_transaction.store(u64::from(shard) << 48 | 1, SeqCst);
        lane.answered_id.store(lane.request_id.load(SeqCst), SeqCst);
    }
}

/// The number of a transaction that died with its daemon is used again by the next one, for
/// something else. A reply that rests on the former was once taken for true when the latter had
/// been committed before anybody looked.
/// The ledger had taken what a kill left of a line for a commit. So the replies of that transaction
/// were believed, and requests that nobody had executed were acknowledged.
#[test]
fn a_commit_that_a_kill_cut_short_did_not_happen() {
    let host = Host::of_shards("cut", 20_000, 1);
    std::fs::write(host.directory.join("ledger-0"), "1 whole\n2 whole cu").expect("written");
    let serving = serve(&host, host.ledgers());
    assert_eq!(host.hear(), Message::Ready);
    let attachment = host.attach();
    assert_eq!(ask(&attachment, "next"), Ok(()));
    let text = std::fs::read_to_string(host.directory.join("ledger-0")).expect("a ledger");
    assert_eq!(text, "1 whole\n2 next\n");
    host.stop();
    assert!(serving.join().expect("no panic").is_ok());
}

#[test]
fn a_reply_of_a_lost_transaction_is_not_taken_for_one_of_the_same_number() {
    for shards in [1, SHARDS] {
        let host = Host::of_shards("lost", 20_000, shards);
        let attachment = host.attach();
        let names: Vec<String> = (0..shards).map(path_of).collect();
        thread::scope(|scope| {
            let asked: Vec<_> = names
                .iter()
                .map(|name| scope.spawn(|| assert_eq!(ask(&attachment, name), Ok(()))))
                .collect();
            // As a daemon leaves it that dies just before its first commit.
            answer_all(&host, asked.len());
            let serving = serve(&host, Ledgers { changing: true, ..host.ledgers() });
            for asked in asked {
                asked.join().expect("answered");
            }
            for name in &names {
                assert!(host.done().contains(name), "{name} was acknowledged and is lost");
            }
            host.stop();
            serving.join().expect("no panic").expect("served");
        });
    }
}

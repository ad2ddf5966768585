//! Everything that needs no violence: waiting, deadlines, cancelling, handing over.

use std::{
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

use mayfly_sys::interrupt::DEFERRED;
use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::{
    Attachment,
    layout::{DAEMON_ASLEEP, LANE_FREE},
};
use mayfly_types::{Errno, OpenRef, limits::LANES};
use mayfly_wire::{Cancel, LOCK_FLOCK, LOCK_WRITE, Lock, LockRange, Operation, Ping};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::serve::{
    Ending, run,
    tests::{
        host::{Host, until},
        hostile::Client,
        ledger::Ledgers,
        roles::make,
    },
};

/// Serves in a thread of this process.
pub(super) fn serve(host: &Host, ledgers: Ledgers) -> thread::JoinHandle<Ending> {
    let channel = host.begin();
    let slot_files = host.directory.join("ofd");
    let serving = thread::spawn(move || {
        run(channel, &slot_files, ledgers.shards, None, &ledgers).expect("served")
    });
    host.wait_until_ready();
    serving
}

fn ping(attachment: &Attachment) -> Result<(), Errno> {
    ask(attachment, &Ping {})
}

pub(super) fn ask<'a, O: Operation<'a>>(attachment: &Attachment, request: &O) -> Result<(), Errno> {
    attachment.transport.exchange(request, Patience::Deadline, |answer| match answer {
        Answer::Done(_) => Ok(()),
        Answer::Failed(errno) => Err(errno),
        Answer::Escaped(_) => Err(Errno::EPROTO),
    })
}

#[test]
fn more_threads_than_lanes_all_get_their_turn() {
    let host = Host::new("threads", 20_000);
    let serving = serve(&host, host.ledgers());
    let attachment = host.attach();
    thread::scope(|scope| {
        for worker in 0..3 * LANES {
            let transport = &attachment.transport;
            scope.spawn(move || {
                for request in 0..200 {
                    let name = format!("{worker}-{request}");
                    let done = transport.exchange(&make(&name), Patience::Deadline, |answer| {
                        matches!(answer, Answer::Done(()))
                    });
                    assert!(done, "{name}");
                }
            });
        }
    });
    assert_eq!(host.done().len(), 3 * LANES * 200);
    host.stop();
    assert_eq!(serving.join().expect("no panic"), Ending::Stopped);
}

#[test]
fn without_a_daemon_a_request_ends_at_its_deadline_and_its_lane_comes_back() {
    let host = Host::new("deadline", 500);
    let attachment = host.attach();
    let begun = Instant::now();
    thread::scope(|scope| {
        // One more than there are lanes, and nobody who frees one.
        let waiting: Vec<_> = (0..=LANES).map(|_| scope.spawn(|| ping(&attachment))).collect();
        for waiter in waiting {
            assert_eq!(waiter.join().expect("no panic"), Err(Errno::EIO));
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(5));
    let serving = serve(&host, host.ledgers());
    for _ in 0..LANES {
        assert_eq!(ping(&attachment), Ok(()));
    }
    host.stop();
    serving.join().expect("no panic");
}

#[test]
fn a_request_made_before_the_daemon_was_there_is_answered() {
    let host = Host::new("early", 20_000);
    let attachment = host.attach();
    thread::scope(|scope| {
        let early = scope.spawn(|| ping(&attachment));
        thread::sleep(Duration::from_millis(30));
        let serving = serve(&host, host.ledgers());
        assert_eq!(early.join().expect("no panic"), Ok(()));
        host.stop();
        serving.join().expect("no panic");
    });
}

/// One after the other: the sign of a deferred signal is the process's.
#[test]
fn a_waiting_lock_is_cancelled_by_a_deferred_signal_and_leaves_lanes_for_others() {
    cancel_locks(&Host::new("cancel", 20_000));
    cancel_locks(&Host::of_shards("cancel-3", 20_000, 3));
}

fn cancel_locks(host: &Host) {
    let serving = serve(host, host.ledgers());
    let attachment = host.attach();
    let range = LockRange { owner: LOCK_FLOCK, kind: LOCK_WRITE, start: 0, end: u64::MAX };
    let lock = Lock { open: OpenRef::default(), range, wait: true };
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..2 * LANES)
            .map(|_| {
                scope.spawn(|| {
                    attachment.transport.exchange(&lock, Patience::Interruptible, |answer| {
                        matches!(answer, Answer::Failed(Errno::EINTR))
                    })
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(150));
        assert_eq!(ping(&attachment), Ok(()), "waiting locks must leave a lane");
        DEFERRED.store(1, SeqCst);
        for waiter in waiting {
            assert!(waiter.join().expect("no panic"));
        }
        DEFERRED.store(0, SeqCst);
    });
    host.stop();
    serving.join().expect("no panic");
}

/// Requests that were given up kept their lanes until they were answered: after 16 of them a
/// process could ask for nothing more.
#[test]
fn a_process_asks_on_when_more_requests_were_given_up_than_there_are_lanes() {
    for shards in [1, 3] {
        let host = Host::of_shards(&format!("given-up-{shards}"), 400, shards);
        let serving = serve(&host, host.ledgers());
        let attachment = host.attach();
        let range = LockRange { owner: LOCK_FLOCK, kind: LOCK_WRITE, start: 0, end: u64::MAX };
        let lock = Lock { open: OpenRef::default(), range, wait: true };
        let give_up = || {
            attachment.transport.exchange(&lock, Patience::Deadline, |answer| {
                assert!(matches!(answer, Answer::Failed(Errno::EIO)));
            });
        };
        for _ in 0..3 {
            thread::scope(|scope| (0..LANES).for_each(|_| drop(scope.spawn(give_up))));
            until("the lanes are free", || free_lanes(&host) == LANES);
        }
        assert_eq!(ping(&attachment), Ok(()));
        // The answers come when others use the lanes.
        let last = Client::map(&host.region()).head().last_request_id.load(SeqCst);
        let given_up = 3 * LANES as u64;
        thread::scope(|scope| {
            let attachment = &attachment;
            for worker in 0..LANES {
                scope.spawn(move || {
                    for request in 0..20 {
                        assert_eq!(ask(attachment, &make(&format!("{worker}-{request}"))), Ok(()));
                    }
                });
            }
            for request_id in last - given_up..last {
                assert_eq!(ask(attachment, &Cancel { request_id }), Ok(()));
            }
        });
        assert_eq!(free_lanes(&host), LANES);
        host.stop();
        assert_eq!(serving.join().expect("no panic"), Ending::Stopped);
        assert_eq!(host.done().iter().filter(|name| !name.contains("sent")).count(), LANES * 20);
    }
}

fn free_lanes(host: &Host) -> usize {
    let client = Client::map(&host.region());
    let lanes = client.head().lanes.iter();
    lanes.filter(|lane| lane.state.load(SeqCst) == LANE_FREE).count()
}

#[test]
fn a_failed_commit_is_eio_and_ends_the_daemon() {
    let host = Host::new("commit", 20_000);
    let serving = serve(&host, Ledgers { failing: Some(0), ..host.ledgers() });
    let attachment = host.attach();
    assert_eq!(ping(&attachment), Ok(()), "what changes nothing needs no commit");
    let failed = attachment.transport.exchange(&make("x"), Patience::Deadline, |answer| {
        matches!(answer, Answer::Failed(Errno::EIO))
    });
    assert!(failed);
    assert_eq!(serving.join().expect("no panic"), Ending::StoreFailed(Errno::ENOSPC));
    let serving = serve(&host, host.ledgers());
    assert_eq!(ping(&attachment), Ok(()), "a new daemon goes on");
    host.stop();
    serving.join().expect("no panic");
}

/// One wait in sixteen used to poll for 38 µs while the only one who could ask waited for the
/// processor: a third of the time of a program that makes many files.
#[test]
fn a_daemon_does_not_poll_where_its_client_could_not_ask() {
    let host = Host::new("together", 20_000);
    let mut daemon = host.start_daemon();
    host.wait_until_ready();
    let attachment = host.attach();
    if host.node.head.processors_readable.load(SeqCst) == 0 {
        eprintln!("skipped: this processor does not tell its number");
        host.stop();
        daemon.wait().expect("it ends");
        return;
    }
    pin(daemon.id());
    let asking = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            pin_this_thread(nth_processor(0).as_ref());
            let waiting = &host.node.head.waiting;
            // It learns where its client is now.
            (0..100).for_each(|_| assert_eq!(ping(&attachment), Ok(())));
            let before = waiting.polls_in_vain.load(SeqCst);
            (0..3200).for_each(|_| assert_eq!(ping(&attachment), Ok(())));
            waiting.polls_in_vain.load(SeqCst) - before
        });
        asking.join().expect("no panic")
    });
    assert!(asking < 3, "{asking} polls in vain in 3200 requests");
    host.stop();
    daemon.wait().expect("it ends");
}

/// Both used to sleep between any two requests, for 100 µs each, and the daemon followed its client
/// from processor to processor: a client that had been slow for a while stayed slow.
#[test]
fn a_daemon_that_has_given_up_polling_takes_it_up_when_requests_come_close_together() {
    const REQUESTS: u64 = 3000;
    let host = Host::new("again", 20_000);
    let mut daemon = host.start_daemon();
    host.wait_until_ready();
    let attachment = host.attach();
    let waiting = &host.node.head.waiting;
    let sleeps_in_a_row = || {
        for _ in 0..40 {
            thread::sleep(Duration::from_millis(1));
            assert_eq!(ping(&attachment), Ok(()));
        }
        let before = waiting.sleeps.load(SeqCst);
        (0..REQUESTS).for_each(|_| assert_eq!(ping(&attachment), Ok(())));
        waiting.sleeps.load(SeqCst) - before
    };
    let alone = thread::available_parallelism().is_ok_and(|processors| processors.get() < 2);
    // Other programs may need the processors for a while.
    let took_it_up = alone || (0..20).any(|_| sleeps_in_a_row() < REQUESTS / 3);
    assert!(took_it_up);
    host.stop();
    daemon.wait().expect("it ends");
}

/// Whoever could run on one processor only took itself for alone and slept between any two
/// requests: at 50 µs a request, and 500 beside others, where batch systems bind processes.
#[test]
fn a_daemon_and_a_client_that_are_bound_to_a_processor_each_need_no_sleep() {
    const REQUESTS: u64 = 3000;
    let host = Host::new("bound", 20_000);
    let (first, second) = (nth_processor(0), nth_processor(1));
    let mut daemon = thread::scope(|scope| {
        let starting = scope.spawn(|| {
            pin_this_thread(first.as_ref());
            host.start_daemon()
        });
        starting.join().expect("no panic")
    });
    host.wait_until_ready();
    let tells = host.node.head.processors_readable.load(SeqCst) != 0;
    let waiting = &host.node.head.waiting;
    let asking = || {
        pin_this_thread(second.as_ref());
        let attachment = host.attach();
        let sleeps_in_a_row = || {
            let before = waiting.sleeps.load(SeqCst);
            (0..REQUESTS).for_each(|_| assert_eq!(ping(&attachment), Ok(())));
            waiting.sleeps.load(SeqCst) - before
        };
        // Other programs may need the processors for a while.
        (0..20).any(|_| sleeps_in_a_row() < REQUESTS / 3)
    };
    if tells && second.is_some() {
        let awake = thread::scope(|scope| scope.spawn(asking).join().expect("no panic"));
        assert!(awake);
    } else {
        eprintln!("skipped: one processor, or none that tells its number");
    }
    host.stop();
    daemon.wait().expect("it ends");
}

/// Confines all threads of a process to the first processor.
fn pin(pid: u32) {
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten() {
        let name = task.file_name();
        let thread = name.to_str().and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
        sched_setaffinity(thread, &nth_processor(0).expect("one at least")).expect("allowed");
    }
}

fn pin_this_thread(to: Option<&CpuSet>) {
    sched_setaffinity(None, to.expect("it is there")).expect("allowed");
}

/// One of the processors that this thread may run on.
fn nth_processor(number: usize) -> Option<CpuSet> {
    let allowed = sched_getaffinity(None).expect("known");
    let cpu = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).nth(number)?;
    let mut only = CpuSet::new();
    only.set(cpu);
    Some(only)
}

#[test]
fn an_idle_daemon_sleeps() {
    sleep(&Host::new("idle", 20_000));
}

#[test]
fn an_idle_daemon_of_three_shards_sleeps() {
    sleep(&Host::of_shards("idle-3", 20_000, 3));
}

fn sleep(host: &Host) {
    let mut daemon = host.start_daemon();
    host.wait_until_ready();
    let attachment = host.attach();
    assert_eq!(ping(&attachment), Ok(()));
    until("it sleeps", || host.node.head.daemon_state.load(SeqCst) == DAEMON_ASLEEP);
    // What its other threads began they may end.
    let rests = || {
        let before = processor_ticks(daemon.id());
        thread::sleep(Duration::from_secs(1));
        processor_ticks(daemon.id()) == before
    };
    assert!((0..3).any(|_| rests()), "an idle daemon uses the processor");
    assert_eq!(ping(&attachment), Ok(()));
    host.stop();
    daemon.wait().expect("it ends");
}

/// User and system time of a process and its context switches so far.
fn processor_ticks(pid: u32) -> (u64, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let after_name = stat.rsplit(')').next().expect("a name in brackets");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let number = |at: usize| fields[at].parse::<u64>().expect("a number");
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let switches = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .flat_map(|text| {
            text.lines()
                .filter(|line| line.contains("ctxt_switches"))
                .filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok())
                .collect::<Vec<_>>()
        })
        .sum();
    (number(11) + number(12), switches)
}

#[test]
fn attaching_takes_less_than_a_millisecond() {
    let host = Host::new("attach", 20_000);
    let serving = serve(&host, host.ledgers());
    let attach = || {
        let begun = Instant::now();
        let attachment = host.attach();
        let took = begun.elapsed();
        assert!(attachment.evidence_fd >= 200);
        took
    };
    let mut times: Vec<Duration> = (0..50).map(|_| attach()).collect();
    // The fastest, and again if need be: other tests run on the same processors.
    while times.len() < 1000 && times.iter().min() >= Some(&Duration::from_millis(1)) {
        times.push(attach());
    }
    times.sort();
    println!("attach: fastest {:?}, median {:?}", times[0], times[times.len() / 2]);
    assert!(times[0] < Duration::from_millis(1), "{times:?}");
    host.stop();
    serving.join().expect("no panic");
}

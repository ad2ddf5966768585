//! Processes of several nodes that wait for each other's locks.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::Attachment;
use mayfly_types::{Errno, OpenRef};
use mayfly_wire::{LOCK_POSIX, LOCK_UNLOCK, LOCK_WRITE, Lock, LockRange};

use crate::{
    serve::tests::nodes::{Instance, Served},
    shards::slots::SlotTable,
};

const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
/// Longer than a node is away here, shorter than it is missed.
const SOON: Duration = Duration::from_secs(20);
/// Until a request has come to where it waits.
const WHILE: Duration = Duration::from_millis(300);

/// A process on each node, each of which has locked a file.
struct Circle {
    served: Vec<Served>,
    clients: Vec<Arc<Attachment>>,
    /// By client and file.
    opens: Vec<Vec<OpenRef>>,
}

type Waiting = JoinHandle<Result<(), Errno>>;

impl Circle {
    /// The file of the process on node K is at home on node `homes[K]`.
    fn new(name: &str, homes: &[u32], shards: u32) -> Circle {
        let nodes = homes.len() as u32;
        let mut instance = Instance::new(name, nodes, shards);
        let slots = SlotTable::even(1, nodes * shards);
        let is_at = |path: &String, home: u32| {
            let made = instance.open(0, path, O_RDWR | O_CREAT).expect("made");
            instance.close(0, made).expect("closed");
            let id = instance.stat(0, path).expect("there").id;
            slots.home(id).0 / shards == home
        };
        let path_at = |(of, home): (usize, &u32)| {
            let mut paths = (0..).map(|number| format!("{of}-{number}"));
            paths.find(|path| is_at(path, *home)).expect("there is one")
        };
        let paths: Vec<String> = homes.iter().enumerate().map(path_at).collect();
        let of_client = |client: usize| {
            let open = |path| instance.open(client, path, O_RDWR).expect("opened");
            paths.iter().map(|path| open(path)).collect()
        };
        let opens: Vec<Vec<OpenRef>> = (0..nodes as usize).map(of_client).collect();
        let served = std::mem::take(&mut instance.served);
        let clients = instance.take_clients().into_iter().map(Arc::new).collect();
        let circle = Circle { served, clients, opens };
        for client in 0..nodes as usize {
            let mine = circle.begin(client, client, LOCK_WRITE);
            assert_eq!(mine.join().expect("no panic"), Ok(()));
        }
        circle
    }

    /// A client locks a file, or gives it up.
    fn begin(&self, client: usize, file: usize, kind: u32) -> Waiting {
        let range = LockRange { owner: LOCK_POSIX, kind, start: 0, end: 10 };
        let open = self.opens[client][file];
        let lock = Lock { open, range, wait: kind != LOCK_UNLOCK };
        let client = Arc::clone(&self.clients[client]);
        thread::spawn(move || {
            client.transport.exchange(&lock, Patience::Deadline, |answer| match answer {
                Answer::Done(()) => Ok(()),
                Answer::Failed(errno) => Err(errno),
                Answer::Escaped(_) => Err(Errno::EPROTO),
            })
        })
    }

    /// A client asks for the file of the next one.
    fn wait(&self, client: usize) -> Waiting {
        let waiting = self.begin(client, (client + 1) % self.clients.len(), LOCK_WRITE);
        thread::sleep(WHILE);
        waiting
    }

    fn end(mut self) {
        self.clients.clear();
        self.served.iter_mut().for_each(Served::stop);
    }
}

fn answer_of(waiting: Waiting) -> Result<(), Errno> {
    let until = Instant::now() + SOON;
    while !waiting.is_finished() {
        assert!(Instant::now() < until, "it waits for ever");
        thread::sleep(Duration::from_millis(5));
    }
    waiting.join().expect("no panic")
}

#[test]
fn who_closes_a_circle_over_nodes_is_told_and_the_others_go_on() {
    for (homes, shards) in [(&[1, 0][..], 1), (&[1, 2, 0], 2)] {
        let nodes = homes.len();
        let circle = Circle::new(&format!("circle-{nodes}"), homes, shards);
        let mut waiting: Vec<Waiting> = (1..nodes).map(|client| circle.wait(client)).collect();
        assert!(!waiting.iter().any(JoinHandle::is_finished));
        assert_eq!(answer_of(circle.wait(0)), Err(Errno::EDEADLK));
        assert!(!waiting.iter().any(JoinHandle::is_finished));
        // The last one waits for the first one's file, the one before for the last one's.
        for client in (1..nodes).rev() {
            let file = (client + 1) % nodes;
            assert_eq!(answer_of(circle.begin(file, file, LOCK_UNLOCK)), Ok(()));
            assert_eq!(answer_of(waiting.pop().expect("it waits")), Ok(()));
        }
        circle.end();
    }
}

/// The daemon of a node has forgotten where its process waits, and hears of it before others ask,
/// or after. No wait is at that node itself.
#[test]
fn a_circle_is_found_when_a_daemon_on_the_way_was_restarted() {
    for away_meanwhile in [false, true] {
        let mut circle = Circle::new(&format!("restarted-{away_meanwhile}"), &[2, 2, 0], 1);
        let first: Vec<Waiting> = [1, 2].map(|client| circle.wait(client)).into();
        circle.served[1].stop();
        let told = if away_meanwhile {
            let told = circle.wait(0);
            circle.served[1].start();
            told
        } else {
            circle.served[1].start();
            thread::sleep(WHILE);
            circle.wait(0)
        };
        assert_eq!(answer_of(told), Err(Errno::EDEADLK));
        assert!(!first.iter().any(JoinHandle::is_finished));
        // Each file is that of the client with its number, for which the one before waits.
        for file in [0, 2] {
            assert_eq!(answer_of(circle.begin(file, file, LOCK_UNLOCK)), Ok(()));
        }
        for one in first {
            assert_eq!(answer_of(one), Ok(()));
        }
        circle.end();
    }
}

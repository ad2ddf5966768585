//! A way between two nodes that can be cut, held, listened to and disturbed.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

#[derive(Default)]
struct State {
    target: Mutex<Option<SocketAddr>>,
    streams: Mutex<Vec<TcpStream>>,
    held: AtomicBool,
    over: AtomicBool,
    /// Bytes of each connection, both ways, after which it is silent; 0 for no bound.
    silent_after: AtomicU64,
    /// The byte with this number from the caller, over all connections, is changed; 0 for none.
    flip_at: AtomicU64,
    /// What the callers sent, each connection of its own.
    recorded: Mutex<Vec<Vec<u8>>>,
    /// Connections whose two sides both are open.
    open: AtomicU64,
}

pub(crate) struct Proxy {
    state: Arc<State>,
    address: SocketAddr,
}

impl Proxy {
    pub(crate) fn new() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.over.load(SeqCst) {
                    return;
                }
                let target = *shared.target.lock().expect("no panic");
                // Who leads nowhere closes.
                let (Ok(one), Some(target)) = (stream, target) else { continue };
                let Ok(other) = TcpStream::connect(target) else { continue };
                shared.join(one, other);
            }
        });
        Proxy { state, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn lead_to(&self, target: Option<SocketAddr>) {
        *self.state.target.lock().expect("no panic") = target;
    }

    pub(crate) fn cut(&self) {
        for stream in self.state.streams.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn hold(&self, held: bool) {
        self.state.held.store(held, SeqCst);
    }
}

/// For the tests of this transport alone.
impl Proxy {
    pub(crate) fn open(&self) -> u64 {
        self.state.open.load(SeqCst)
    }

    pub(crate) fn silent_after(&self, bytes: u64) {
        self.state.silent_after.store(bytes, SeqCst);
    }

    pub(crate) fn flip_at(&self, byte: u64) {
        self.state.flip_at.store(byte, SeqCst);
    }

    pub(crate) fn recorded(&self) -> Vec<Vec<u8>> {
        self.state.recorded.lock().expect("no panic").clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.over.store(true, SeqCst);
        self.cut();
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn join(self: &Arc<State>, one: TcpStream, other: TcpStream) {
        let both = |one: &TcpStream| {
            let _ = one.set_nodelay(true);
            (one.try_clone().expect("descriptors"), one.try_clone().expect("descriptors"))
        };
        let ((one_in, one_out), (other_in, other_out)) = (both(&one), both(&other));
        self.streams.lock().expect("no panic").extend([one, other]);
        let index = {
            let mut recorded = self.recorded.lock().expect("no panic");
            recorded.push(Vec::new());
            recorded.len() - 1
        };
        self.open.fetch_add(1, SeqCst);
        let passed = Arc::new(AtomicU64::new(0));
        let (forth, back) = (Arc::clone(self), Arc::clone(self));
        let passed_back = Arc::clone(&passed);
        std::thread::spawn(move || {
            forth.pass(one_in, other_out, Some(index), &passed);
            forth.open.fetch_sub(1, SeqCst);
        });
        std::thread::spawn(move || back.pass(other_in, one_out, None, &passed_back));
    }

    fn pass(
        &self,
        mut from: TcpStream,
        mut to: TcpStream,
        record: Option<usize>,
        passed: &AtomicU64,
    ) {
        let _ = from.set_read_timeout(Some(Duration::from_millis(50)));
        let mut buffer = vec![0; 64 * 1024];
        while !self.over.load(SeqCst) {
            if self.is_silent(passed) {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let count = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => break,
            };
            if let Some(index) = record {
                self.disturb(&mut buffer[..count]);
                self.recorded.lock().expect("no panic")[index].extend(&buffer[..count]);
            }
            while self.held.load(SeqCst) && !self.over.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let before = passed.fetch_add(count as u64, SeqCst);
            let count = match self.silent_after.load(SeqCst) {
                0 => count,
                bound => count.min(bound.saturating_sub(before) as usize),
            };
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    fn is_silent(&self, passed: &AtomicU64) -> bool {
        let bound = self.silent_after.load(SeqCst);
        self.held.load(SeqCst) || bound > 0 && passed.load(SeqCst) >= bound
    }

    fn disturb(&self, bytes: &mut [u8]) {
        let at = self.flip_at.load(SeqCst);
        let count = bytes.len() as u64;
        if (1..=count).contains(&at) {
            bytes[at as usize - 1] ^= 1;
        }
        if at > 0 {
            self.flip_at.store(at.saturating_sub(count), SeqCst);
        }
    }
}

//! What the transport costs beside bare TCP, in the same run:
//! `cargo test --release -p mayfly-transport-tcp --test tcp -- --ignored --nocapture`.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use mayfly_transport_tcp::{
    Class, Config, Encryption, Endpoint, Event, Lane, NodeId, limits::Limits,
};

use crate::contract::request;
use crate::network::{Lines, answering, config};

const SMALL_BYTES: usize = 64;
const TRIPS: u32 = 20_000;
const BULK_BYTES: usize = 64 << 20;
const ROUNDS: u32 = 8;

fn node(
    number: u32,
    encryption: Encryption,
    answer: impl Fn(&Endpoint, Event) + Send + Sync + 'static,
) -> Arc<Endpoint> {
    let base = config(number, 1, &Lines::default());
    answering(Config { encryption, limits: Limits::default(), ..base }, answer)
}

fn server(encryption: Encryption) -> Arc<Endpoint> {
    node(1, encryption, |endpoint, event| {
        if let Event::Request { ticket, body, .. } = event {
            let answer = if body.len() == SMALL_BYTES { body } else { Vec::new() };
            endpoint.reply(ticket, Lane::Messages, answer.into()).expect("it is short");
        }
    })
}

/// A client that says when a reply has come.
fn client(encryption: Encryption, server: &Endpoint) -> (Arc<Endpoint>, mpsc::Receiver<()>) {
    let (tell, told) = mpsc::channel();
    let client = node(0, encryption, move |_, event| {
        if let Event::Reply { .. } = event {
            let _ = tell.send(());
        }
    });
    client.set_address(NodeId(1), Some(server.local_address()));
    server.set_address(NodeId(0), Some(client.local_address()));
    (client, told)
}

fn trips(encryption: Encryption) -> Duration {
    let server = server(encryption);
    let (client, told) = client(encryption, &server);
    let trip = || {
        client.request(request(1, Class::Leaf, &[1; SMALL_BYTES])).expect("there is room");
        told.recv().expect("the reply comes");
    };
    (0..1000).for_each(|_| trip());
    let start = Instant::now();
    (0..TRIPS).for_each(|_| trip());
    start.elapsed() / TRIPS
}

/// Replies are met by the network thread, which sends the next request itself.
fn trips_on_the_network_thread(encryption: Encryption) -> Duration {
    let server = server(encryption);
    let (tell, told) = mpsc::channel();
    let left = std::sync::atomic::AtomicU32::new(TRIPS);
    let client = node(0, encryption, move |endpoint, event| {
        let Event::Reply { body, .. } = event else { return };
        if left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 1 {
            let _ = tell.send(());
        } else {
            endpoint.request(request(1, Class::Leaf, &body)).expect("there is room");
        }
    });
    client.set_address(NodeId(1), Some(server.local_address()));
    server.set_address(NodeId(0), Some(client.local_address()));
    let start = Instant::now();
    client.request(request(1, Class::Leaf, &[1; SMALL_BYTES])).expect("there is room");
    told.recv().expect("the last reply comes");
    start.elapsed() / TRIPS
}

fn bulk(encryption: Encryption) -> Duration {
    let server = server(encryption);
    let (client, told) = client(encryption, &server);
    let piece = vec![3; Lane::Bulk.bytes_max()];
    let round = || {
        let pieces = BULK_BYTES / piece.len();
        for _ in 0..pieces {
            let mut asked = request(1, Class::Leaf, &piece);
            asked.lane = Lane::Bulk;
            client.request(asked).expect("there is room");
        }
        (0..pieces).for_each(|_| told.recv().expect("the reply comes"));
    };
    round();
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| round());
    start.elapsed() / ROUNDS
}

fn bare(serve: impl FnOnce(TcpStream) + Send + 'static) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || serve(listener.accept().expect("it is connected to").0));
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("it is a socket");
    stream
}

fn bare_trips() -> Duration {
    let mut stream = bare(|mut stream| {
        stream.set_nodelay(true).expect("it is a socket");
        let mut bytes = [0; SMALL_BYTES];
        while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
    });
    let mut bytes = [1; SMALL_BYTES];
    let start = Instant::now();
    for _ in 0..TRIPS {
        stream.write_all(&bytes).expect("it is open");
        stream.read_exact(&mut bytes).expect("it is open");
    }
    start.elapsed() / TRIPS
}

/// Where the bytes of a bare stream lie.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    /// Always in the same place.
    Same,
    /// In a place of its own each MiB, as messages do.
    Own,
}

fn bare_bulk(memory: Memory) -> Duration {
    let mut stream = bare(move |mut stream| {
        let mut bytes = vec![0; 1 << 20];
        'rounds: loop {
            for _ in 0..BULK_BYTES / bytes.len() {
                if memory == Memory::Own {
                    bytes = vec![0; 1 << 20];
                }
                if stream.read_exact(&mut bytes).is_err() {
                    break 'rounds;
                }
            }
            stream.write_all(&[1]).expect("it is open");
        }
    });
    let piece = vec![3; 1 << 20];
    let mut round = || {
        for _ in 0..BULK_BYTES / piece.len() {
            let own = (memory == Memory::Own).then(|| piece.clone());
            stream.write_all(own.as_ref().unwrap_or(&piece)).expect("it is open");
        }
        stream.read_exact(&mut [0]).expect("it is open");
    };
    round();
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| round());
    start.elapsed() / ROUNDS
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

#[test]
#[ignore = "a measurement"]
fn costs_beside_bare_tcp() {
    for _ in 0..3 {
        let (trip, stream) = (bare_trips(), bare_bulk(Memory::Same));
        let own = bare_bulk(Memory::Own);
        println!("bare TCP: round trip {trip:?}, 64 MiB {stream:?}, in own memory {own:?}");
        for encryption in [Encryption::Off, Encryption::On] {
            let (two, one) = (trips(encryption), trips_on_the_network_thread(encryption));
            let many = bulk(encryption);
            println!(
                "encryption {encryption:?}: round trip {two:?} ({:.2} x), without a thread of its \
                 own to wake {one:?} ({:.2} x), 64 MiB {many:?} ({:.2} x the bandwidth; {:.2} x \
                 that in own memory)",
                ratio(two, trip),
                ratio(one, trip),
                ratio(stream, many),
                ratio(own, many),
            );
        }
    }
}

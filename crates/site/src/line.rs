//! A sealed line between two nodes of a job: frames over TCP.
//!
//! Noise `NNpsk0` (the Noise Protocol Framework, revision 34) with the key of the door: whoever has
//! not the key can neither open the line nor read it. Every message has two bytes of length in
//! front, as Noise asks for.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use anyhow::{Context, Result, anyhow};
use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::key::Key;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// A Noise message has at most so many bytes, of which the seal takes some.
const MESSAGE_BYTES: usize = 65_535;
const SEAL_BYTES: usize = 16;
/// What a frame carries at most.
pub(crate) const CONTENT_BYTES: usize = 32 << 10;

/// What a frame is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The program to start: the first one.
    Start(String),
    /// Bytes for standard input, or of standard output.
    Bytes(Vec<u8>),
    /// Bytes of standard error.
    Error(Vec<u8>),
    /// No more bytes come.
    End,
    /// The program has ended with that status.
    Status(u8),
}

impl Frame {
    fn to_bytes(&self) -> Vec<u8> {
        let (kind, content) = match self {
            Frame::Start(text) => (b's', text.as_bytes()),
            Frame::Bytes(bytes) => (b'b', &bytes[..]),
            Frame::Error(bytes) => (b'e', &bytes[..]),
            Frame::End => (b'.', &[][..]),
            Frame::Status(status) => (b'x', std::slice::from_ref(status)),
        };
        [&[kind], content].concat()
    }

    fn of(bytes: &[u8]) -> Option<Frame> {
        let (kind, content) = bytes.split_first()?;
        Some(match kind {
            b's' => Frame::Start(String::from_utf8(content.to_owned()).ok()?),
            b'b' => Frame::Bytes(content.to_owned()),
            b'e' => Frame::Error(content.to_owned()),
            b'.' if content.is_empty() => Frame::End,
            b'x' => Frame::Status(<[u8; 1]>::try_from(content).ok()?[0]),
            _ => return None,
        })
    }
}

/// The half that hears.
pub(crate) struct Ear {
    stream: TcpStream,
    seal: Arc<StatelessTransportState>,
    next: u64,
}

/// The half that speaks; several may at a time.
#[derive(Clone)]
pub(crate) struct Voice {
    stream: Arc<Mutex<TcpStream>>,
    seal: Arc<StatelessTransportState>,
    next: Arc<AtomicU64>,
}

/// Opens the line from the side that has called.
pub(crate) fn call(stream: TcpStream, key: &Key) -> Result<(Ear, Voice)> {
    let mut state = builder(key)?.build_initiator()?;
    shake(&mut state, &stream, &[true, false])?;
    halves(state, stream)
}

/// The same from the other side.
pub(crate) fn answer(stream: TcpStream, key: &Key) -> Result<(Ear, Voice)> {
    let mut state = builder(key)?.build_responder()?;
    shake(&mut state, &stream, &[false, true])?;
    halves(state, stream)
}

fn builder(key: &Key) -> Result<Builder<'_>> {
    Ok(Builder::new(PATTERN.parse()?).psk(0, &key.0)?)
}

/// Messages in turn; true for those that are written here.
fn shake(state: &mut HandshakeState, mut stream: &TcpStream, turns: &[bool]) -> Result<()> {
    let mut buffer = vec![0; MESSAGE_BYTES];
    for is_ours in turns {
        if *is_ours {
            let length = state.write_message(&[], &mut buffer)?;
            write(&mut stream, &buffer[..length])?;
        } else {
            let message = read(&mut stream)?.context("the line was closed")?;
            state.read_message(&message, &mut buffer).map_err(|_| anyhow!("another key"))?;
        }
    }
    Ok(())
}

fn halves(state: HandshakeState, stream: TcpStream) -> Result<(Ear, Voice)> {
    let seal = Arc::new(state.into_stateless_transport_mode()?);
    let ear = Ear { stream: stream.try_clone()?, seal: Arc::clone(&seal), next: 0 };
    let stream = Arc::new(Mutex::new(stream));
    Ok((ear, Voice { stream, seal, next: Arc::default() }))
}

impl Ear {
    /// The next frame; none when the line was closed.
    pub(crate) fn hear(&mut self) -> Result<Option<Frame>> {
        let Some(message) = read(&mut self.stream)? else { return Ok(None) };
        let mut content = vec![0; message.len()];
        let length = self
            .seal
            .read_message(self.next, &message, &mut content)
            .map_err(|_| anyhow!("a message was changed on its way"))?;
        self.next += 1;
        Frame::of(&content[..length]).context("a message that means nothing").map(Some)
    }
}

impl Voice {
    pub(crate) fn say(&self, frame: &Frame) -> Result<()> {
        // Numbers go out in the order in which they are given.
        let mut stream = self.stream.lock().map_err(|_| anyhow!("a thread has panicked"))?;
        let content = frame.to_bytes();
        let mut message = vec![0; content.len() + SEAL_BYTES];
        let number = self.next.fetch_add(1, Relaxed);
        let length = self.seal.write_message(number, &content, &mut message)?;
        Ok(write(&mut *stream, &message[..length])?)
    }

    /// Closes the line.
    pub(crate) fn close(&self) {
        if let Ok(stream) = self.stream.lock() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn write(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    to.write_all(&[&length.to_be_bytes(), message].concat())
}

fn read(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 2];
    match from.read(&mut length[..1])? {
        0 => return Ok(None),
        _ => from.read_exact(&mut length[1..])?,
    }
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    from.read_exact(&mut message)?;
    Ok(Some(message))
}

const _: () = assert!(CONTENT_BYTES + 1 + SEAL_BYTES <= MESSAGE_BYTES);

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use proptest::prelude::*;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let one = TcpStream::connect(listener.local_addr().expect("its own")).expect("listens");
        (one, listener.accept().expect("was called").0)
    }

    #[test]
    fn who_has_the_key_is_understood_and_nobody_else() {
        let (one, other) = pair();
        let answering = thread::spawn(move || answer(other, &Key([1; 32])));
        let (mut ear, voice) = call(one, &Key([1; 32])).expect("the same key");
        let (mut theirs, their_voice) = answering.join().expect("no panic").expect("the same key");
        for number in 0..3 {
            voice.say(&Frame::Bytes(vec![number; CONTENT_BYTES])).expect("open");
            let heard = theirs.hear().expect("sealed by us");
            assert_eq!(heard, Some(Frame::Bytes(vec![number; CONTENT_BYTES])));
        }
        their_voice.say(&Frame::Status(3)).expect("open");
        assert_eq!(ear.hear().expect("sealed by them"), Some(Frame::Status(3)));
        their_voice.close();
        assert_eq!(ear.hear().expect("closed"), None);

        let (one, other) = pair();
        let answering = thread::spawn(move || answer(other, &Key([2; 32])).map(drop));
        assert!(call(one, &Key([1; 32])).is_err());
        assert!(answering.join().expect("no panic").is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_said_to_a_door_it_only_refuses(bytes: Vec<u8>) {
            let (mut one, other) = pair();
            one.write_all(&bytes).expect("open");
            drop(one);
            prop_assert!(answer(other, &Key([1; 32])).is_err());
        }

        #[test]
        fn bytes_are_a_frame_or_none(bytes: Vec<u8>) {
            if let Some(frame) = Frame::of(&bytes) {
                prop_assert_eq!(frame.to_bytes(), bytes);
            }
        }
    }
}

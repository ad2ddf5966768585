//! How two daemons prove to each other that they know the instance's secret, before any other byte
//! is believed.
//!
//! `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s`: fresh keys of both sides for every connection, mixed
//! with the secret. The caller's first bytes ([`Hello`]) are in the clear, since they say which
//! secret is meant; both sides mix them in as the prologue, so a changed byte, another version,
//! instance, node, lane or choice about encryption makes the proof fail. Three messages:
//!
//! 1. caller: hello, `e`, sealed [`Offer`]. Only who knows the secret can make it, but it can be
//!    replayed; so it opens nothing yet.
//! 2. callee: `e, ee`, sealed [`Acceptance`]. The caller now knows that the callee is there.
//! 3. caller: a sealed number, under keys that depend on both fresh ones. The callee now knows that
//!    the caller is there, and a replay ends here.
//!
//! There are no keys of single nodes: whoever knows the secret can claim any number.

use std::fmt;

use mayfly_wire::{Malformed, Reader, Wire, Writer};
use snow::{Builder, HandshakeState, TransportState};

use crate::{
    Lane, NodeId,
    limits::{NODES_MAX, TAG_BYTES},
};

/// Version of the handshake and of the frames; a peer of another version is refused.
pub const PROTOCOL_VERSION: u16 = 8;

const MAGIC: u32 = 0x4e59_464d; // "MFYN"
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const KEY_BYTES: usize = 32;

pub(crate) const HELLO_BYTES: usize = 32;
const OFFER_BYTES: usize = 16;
const ACCEPTANCE_BYTES: usize = 16;
/// First message, bytes.
pub(crate) const CALL_BYTES: usize = HELLO_BYTES + KEY_BYTES + OFFER_BYTES + TAG_BYTES;
/// Second message, bytes.
pub(crate) const ANSWER_BYTES: usize = KEY_BYTES + ACCEPTANCE_BYTES + TAG_BYTES;
/// Third message, bytes.
pub(crate) const CONFIRMATION_BYTES: usize = 8 + TAG_BYTES;

const _: () = assert!(HELLO_BYTES == 4 + 2 + 2 + 4 + 4 + 16);
const _: () = assert!(CALL_BYTES == 96 && ANSWER_BYTES == 64 && CONFIRMATION_BYTES == 24);

/// What the nodes of an instance know and nobody else. Never printed.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What happens to frames after the handshake. Both sides must have chosen the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// They are in the clear: who can change packets can change them.
    Off,
    /// They are sealed.
    On,
}

/// Who this node is.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
    pub(crate) instance: [u8; 16],
    pub(crate) secret: Secret,
    pub(crate) encryption: Encryption,
}

/// Why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Refusal {
    Garbage,
    Version,
    Instance,
    Node,
    Encryption,
    Secret,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Garbage => "it does not speak this protocol",
            Refusal::Version => "it speaks another version of the protocol",
            Refusal::Instance => "it belongs to another instance",
            Refusal::Node => "it wants another node",
            Refusal::Encryption => "only one side wants encryption",
            Refusal::Secret => "it does not know the secret of the instance",
        })
    }
}

/// The clear start of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) encryption: Encryption,
    pub(crate) lane: Lane,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) instance: [u8; 16],
}

impl Hello {
    fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        let encrypted = u16::from(self.encryption == Encryption::On);
        let bulk = u16::from(self.lane == Lane::Bulk) << 1;
        let mut to = Writer::new(&mut bytes);
        let done = MAGIC
            .encode(&mut to)
            .and_then(|()| PROTOCOL_VERSION.encode(&mut to))
            .and_then(|()| (encrypted | bulk).encode(&mut to))
            .and_then(|()| self.from.0.encode(&mut to))
            .and_then(|()| self.to.0.encode(&mut to))
            .and_then(|()| to.put(&self.instance));
        done.expect("the fields have the length of a hello");
        bytes
    }

    /// Looks at as much as has come, so that garbage is refused before more of it is waited for.
    pub(crate) fn check_start(bytes: &[u8]) -> Result<(), Refusal> {
        let mut from = Reader::new(bytes);
        let magic = MAGIC.to_le_bytes();
        let seen = bytes.len().min(magic.len());
        if bytes[..seen] != magic[..seen] {
            return Err(Refusal::Garbage);
        }
        let version = u32::decode(&mut from).and_then(|_| u16::decode(&mut from));
        match version {
            Ok(version) if version != PROTOCOL_VERSION => Err(Refusal::Version),
            Ok(_) | Err(Malformed) => Ok(()),
        }
    }

    /// Who says to send such a first message.
    pub(crate) fn sender(call: &[u8]) -> Result<NodeId, Refusal> {
        let (clear, _) = call.split_first_chunk().ok_or(Refusal::Garbage)?;
        Ok(Hello::decode(clear)?.from)
    }

    fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, Refusal> {
        Hello::check_start(bytes)?;
        Hello::take(&mut Reader::new(&bytes[6..])).map_err(|Malformed| Refusal::Garbage)
    }

    fn take(from: &mut Reader<'_>) -> Result<Hello, Malformed> {
        let flags = u16::decode(from)?;
        if flags > 3 {
            return Err(Malformed);
        }
        let encryption = if flags & 1 == 0 { Encryption::Off } else { Encryption::On };
        let lane = if flags & 2 == 0 { Lane::Messages } else { Lane::Bulk };
        let (source, to) = (NodeId(u32::decode(from)?), NodeId(u32::decode(from)?));
        let instance = from.take(16)?.try_into().map_err(|_| Malformed)?;
        Ok(Hello { encryption, lane, from: source, to, instance })
    }

    fn check(&self, me: &Identity) -> Result<(), Refusal> {
        if self.instance != me.instance {
            Err(Refusal::Instance)
        } else if self.to != me.node || self.from == me.node || self.from.0 >= NODES_MAX {
            Err(Refusal::Node)
        } else if self.encryption != me.encryption {
            Err(Refusal::Encryption)
        } else {
            Ok(())
        }
    }
}

/// What the caller says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) incarnation: u64,
    /// Number of the attempt: larger than that of every other connection that the caller knows.
    pub(crate) attempt: u64,
}

/// What the callee says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acceptance {
    pub(crate) incarnation: u64,
    /// Highest number of a frame that it has of the caller's incarnation.
    pub(crate) received: u64,
}

fn two(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn builder<'a>(me: &'a Identity, hello: &'a [u8]) -> Result<Builder<'a>, snow::Error> {
    Builder::new(PATTERN.parse()?).psk(0, &me.secret.0)?.prologue(hello)
}

/// The side that connected.
pub(crate) struct Caller {
    noise: HandshakeState,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

impl Caller {
    /// The handshake with node `to`, and its first message.
    pub(crate) fn start(me: &Identity, to: NodeId, lane: Lane, attempt: u64) -> (Caller, Vec<u8>) {
        let Identity { encryption, instance, node, incarnation, .. } = *me;
        let hello = Hello { encryption, lane, from: node, to, instance }.encode();
        let mut message = hello.to_vec();
        message.resize(CALL_BYTES, 0);
        let offer = two(incarnation, attempt);
        let noise = builder(me, &hello).and_then(Builder::build_initiator).and_then(|mut noise| {
            noise.write_message(&offer, &mut message[HELLO_BYTES..])?;
            Ok(noise)
        });
        let noise = noise.expect("the pattern is known and the machine has random numbers");
        (Caller { noise }, message)
    }

    /// Reads the second message.
    pub(crate) fn finish(mut self, message: &[u8]) -> Result<(Acceptance, Sealed), Refusal> {
        let mut payload = [0; ANSWER_BYTES];
        let length = self.noise.read_message(message, &mut payload);
        if length != Ok(ACCEPTANCE_BYTES) {
            return Err(Refusal::Secret);
        }
        let (first, second) = payload[..ACCEPTANCE_BYTES].split_at(8);
        let acceptance = Acceptance { incarnation: number(first), received: number(second) };
        let noise = self.noise.into_transport_mode().map_err(|_| Refusal::Secret)?;
        Ok((acceptance, Sealed { noise }))
    }
}

/// The side that was connected to.
pub(crate) struct Callee {
    pub(crate) hello: Hello,
    pub(crate) offer: Offer,
    noise: HandshakeState,
}

impl fmt::Debug for Callee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callee").field("hello", &self.hello).finish_non_exhaustive()
    }
}

impl Callee {
    /// Reads the first message.
    pub(crate) fn start(me: &Identity, message: &[u8; CALL_BYTES]) -> Result<Callee, Refusal> {
        let (clear, sealed) = message.split_first_chunk().expect("longer than a hello");
        let hello = Hello::decode(clear)?;
        hello.check(me)?;
        let noise = builder(me, clear).and_then(Builder::build_responder);
        let mut noise = noise.expect("the pattern is known");
        let mut payload = [0; CALL_BYTES];
        if noise.read_message(sealed, &mut payload) != Ok(OFFER_BYTES) {
            return Err(Refusal::Secret);
        }
        let (first, second) = payload[..OFFER_BYTES].split_at(8);
        let offer = Offer { incarnation: number(first), attempt: number(second) };
        Ok(Callee { hello, offer, noise })
    }

    /// The second message.
    pub(crate) fn answer(
        mut self,
        acceptance: Acceptance,
    ) -> Result<(Vec<u8>, Accepted), snow::Error> {
        let mut message = vec![0; ANSWER_BYTES];
        let payload = two(acceptance.incarnation, acceptance.received);
        self.noise.write_message(&payload, &mut message)?;
        let noise = self.noise.into_transport_mode()?;
        Ok((message, Accepted { offer: self.offer, sealed: Sealed { noise } }))
    }
}

/// A callee that waits for the third message.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) offer: Offer,
    pub(crate) sealed: Sealed,
}

/// The keys of a connection.
pub(crate) struct Sealed {
    noise: TransportState,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed")
    }
}

impl Sealed {
    /// The third message.
    pub(crate) fn confirm(&mut self, received: u64) -> Vec<u8> {
        let mut message = vec![0; CONFIRMATION_BYTES];
        self.seal(&received.to_le_bytes(), &mut message);
        message
    }

    /// Reads the third message.
    pub(crate) fn confirmed(&mut self, message: &[u8]) -> Result<u64, Refusal> {
        let mut payload = [0; CONFIRMATION_BYTES];
        match self.open(message, &mut payload) {
            Ok(8) => Ok(number(&payload[..8])),
            Ok(_) | Err(_) => Err(Refusal::Secret),
        }
    }

    /// `sealed` is longer than `plain` by a tag.
    pub(crate) fn seal(&mut self, plain: &[u8], sealed: &mut [u8]) {
        let length = self.noise.write_message(plain, sealed);
        length.expect("the record fits, and no connection lives for 2^64 of them");
    }

    /// Opens a record; the length of what was in it.
    pub(crate) fn open(&mut self, sealed: &[u8], plain: &mut [u8]) -> Result<usize, Malformed> {
        self.noise.read_message(sealed, plain).map_err(|_| Malformed)
    }
}

#[cfg(test)]
mod tests;

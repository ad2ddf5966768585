//! One TCP connection: its socket, its place in the handshake, and what it has not yet written.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
};

use mayfly_wire::Malformed;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::{
    Bytes, Lane, NodeId,
    frame::{Decoder, FRAME_HEADER_BYTES, Frame, FrameHeader, Sums, body_checksum_of},
    handshake::{Accepted, Caller, Encryption, Sealed},
    limits::WRITE_PIECES_MAX,
    record::{self, Opener},
    session::Pieces,
};

/// Shortest rest of a body that is read in place and not through the scratch buffer, bytes.
const DIRECT_BYTES: usize = 16 * 1024;
/// Bytes of it that are read before they are summed: the kernel's copy of them, theirs, and what is
/// looked at for the sum all stay in the caches of one processor.
const PART_BYTES: usize = 128 * 1024;
/// Bytes that are read at a time where a long frame begins: what comes of its body is copied.
const BEGINNING_BYTES: usize = 4 * 1024;

/// Which of two connections between the same nodes on the same lane is kept: the later attempt, and
/// of two attempts of the same age (both connected at the same time) that of the lower node. Both
/// sides judge by the same numbers, so they keep the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rank {
    pub(crate) attempt: u64,
    pub(crate) by: NodeId,
}

impl Rank {
    pub(crate) fn beats(self, other: Rank) -> bool {
        (self.attempt, std::cmp::Reverse(self.by)) > (other.attempt, std::cmp::Reverse(other.by))
    }
}

/// How far a connection is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// This side connects; the kernel is at work.
    Dialing(Caller, Vec<u8>),
    /// This side has connected and waits for the second message.
    Calling(Caller),
    /// The other side has connected; its first message is awaited.
    Answering,
    /// Its third message is awaited.
    Confirming(Box<Accepted>),
    /// Both sides are proved.
    Up(Box<Channel>),
    /// Being moved from one stage to the next.
    Between,
}

/// A connection that is up.
#[derive(Debug)]
pub(crate) struct Channel {
    decoder: Decoder,
    /// The keys, when frames are sealed.
    sealed: Option<(Sealed, Opener)>,
    plain: Vec<u8>,
}

impl Channel {
    pub(crate) fn new(lane: Lane, encryption: Encryption, keys: Sealed) -> Channel {
        let (sums, sealed) = match encryption {
            Encryption::Off => (Sums::Checked, None),
            Encryption::On => (Sums::Absent, Some((keys, Opener::default()))),
        };
        Channel { decoder: Decoder::new(lane, sums), sealed, plain: Vec::new() }
    }

    fn is_inside(&self) -> bool {
        let sealed = self.sealed.as_ref().is_some_and(|(_, opener)| opener.is_inside());
        sealed || self.decoder.is_inside()
    }

    /// Where the rest of a long body can be read without a copy, and how long it is.
    fn place(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        if self.sealed.is_some() {
            return None;
        }
        self.decoder.hole().filter(|(_, missing)| *missing >= DIRECT_BYTES)
    }

    /// How much is read that is copied afterwards.
    fn scratch_bytes(&self, lane: Lane) -> usize {
        match lane {
            Lane::Bulk if self.sealed.is_none() => BEGINNING_BYTES,
            Lane::Bulk | Lane::Messages => usize::MAX,
        }
    }

    pub(crate) fn feed(
        &mut self,
        mut input: &[u8],
        frames: &mut Vec<Frame>,
    ) -> Result<(), Malformed> {
        let Some((keys, opener)) = &mut self.sealed else {
            return decode_all(&mut self.decoder, input, frames);
        };
        while !input.is_empty() {
            if opener.next(keys, &mut input, &mut self.plain)? {
                decode_all(&mut self.decoder, &self.plain, frames)?;
            }
        }
        Ok(())
    }
}

fn decode_all(
    decoder: &mut Decoder,
    mut input: &[u8],
    frames: &mut Vec<Frame>,
) -> Result<(), Malformed> {
    while !input.is_empty() {
        frames.extend(decoder.next(&mut input)?);
    }
    Ok(())
}

/// A piece of what is to be written.
#[derive(Debug)]
enum Piece {
    Header([u8; FRAME_HEADER_BYTES]),
    Own(Vec<u8>),
    Shared(Bytes),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Header(bytes) => bytes,
            Piece::Own(bytes) => bytes,
            Piece::Shared(bytes) => bytes,
        }
    }
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// So many bytes; there may be more.
    Some(usize),
    /// All that there was.
    Drained,
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) stage: Stage,
    /// The peer, as far as it is known or claimed, and this connection's rank.
    pub(crate) peer: Option<(NodeId, Lane, Rank)>,
    /// When the handshake must be over.
    pub(crate) handshake_until_ns: u64,
    pub(crate) up_ns: u64,
    pub(crate) heard_ns: u64,
    pub(crate) probed_ns: Option<u64>,
    /// When the frame began that is under way.
    pub(crate) frame_since_ns: Option<u64>,
    /// Whether epoll was asked to tell when it can be written to.
    pub(crate) wants_write: bool,
    input: Vec<u8>,
    output: VecDeque<Piece>,
    output_bytes: usize,
    /// Of the first piece, what is written.
    written: usize,
}

impl Connection {
    pub(crate) fn accepted(stream: TcpStream, address: SocketAddr, until_ns: u64) -> Connection {
        Connection::new(stream, address, Stage::Answering, until_ns)
    }

    /// Begins to connect.
    pub(crate) fn dial(address: SocketAddr, stage: Stage, until_ns: u64) -> io::Result<Connection> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket: OwnedFd = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Connection::new(TcpStream::from(socket), address, stage, until_ns))
    }

    fn new(stream: TcpStream, address: SocketAddr, stage: Stage, until_ns: u64) -> Connection {
        // Without it small messages wait for the acknowledgement of earlier ones. A socket that
        // refuses is slow, not wrong.
        let _ = stream.set_nodelay(true);
        Connection {
            stream,
            address,
            stage,
            peer: None,
            handshake_until_ns: until_ns,
            up_ns: 0,
            heard_ns: 0,
            probed_ns: None,
            frame_since_ns: None,
            wants_write: false,
            input: Vec::new(),
            output: VecDeque::new(),
            output_bytes: 0,
            written: 0,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    pub(crate) fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    pub(crate) fn write_raw(&mut self, bytes: Vec<u8>) {
        self.append(Piece::Own(bytes));
    }

    fn append(&mut self, piece: Piece) {
        self.output_bytes += piece.bytes().len();
        self.output.push_back(piece);
    }

    /// Appends a frame to what is to be written.
    pub(crate) fn write_frame(&mut self, mut header: FrameHeader, body: Pieces) {
        let Stage::Up(channel) = &mut self.stage else { return };
        let Some((keys, _)) = &mut channel.sealed else {
            header.body_checksum = body_checksum_of(&[&body[0], &body[1]]);
            self.append(Piece::Header(header.encode()));
            for piece in body.into_iter().filter(|piece| !piece.is_empty()) {
                self.append(Piece::Shared(piece));
            }
            return;
        };
        let mut plain = header.encode().to_vec();
        body.iter().for_each(|piece| plain.extend_from_slice(piece));
        let mut bytes = Vec::with_capacity(plain.len() + 64);
        record::seal(keys, &plain, &mut bytes);
        self.write_raw(bytes);
    }

    /// Writes as much as the kernel takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            let mut pieces = [IoSlice::new(&[]); WRITE_PIECES_MAX];
            let mut count = 0;
            for (slot, piece) in pieces.iter_mut().zip(&self.output) {
                let skip = if count == 0 { self.written } else { 0 };
                *slot = IoSlice::new(&piece.bytes()[skip..]);
                count += 1;
            }
            match self.stream.write_vectored(&pieces[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(done) => self.wrote(done),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wrote(&mut self, count: usize) {
        self.output_bytes -= count;
        self.written += count;
        while let Some(piece) = self.output.front() {
            let length = piece.bytes().len();
            if self.written < length {
                break;
            }
            self.written -= length;
            self.output.pop_front();
        }
    }

    /// Reads up to `wanted` bytes of a handshake. `None`: they are not there yet.
    pub(crate) fn read_handshake(&mut self, wanted: usize) -> io::Result<Option<Vec<u8>>> {
        let mut scratch = [0; crate::handshake::CALL_BYTES];
        while self.input.len() < wanted {
            // Not a byte more, so that what follows the handshake stays for the frames.
            match self.stream.read(&mut scratch[..wanted - self.input.len()]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend(&scratch[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(std::mem::take(&mut self.input)))
    }

    /// A message of the handshake is read once more.
    pub(crate) fn unread(&mut self, message: &[u8]) {
        self.input = message.to_vec();
    }

    /// What has come of a handshake message that is not whole.
    pub(crate) fn start_of_input(&self) -> &[u8] {
        &self.input
    }

    /// Reads once.
    pub(crate) fn read_frames(
        &mut self,
        scratch: &mut [u8],
        now_ns: u64,
        frames: &mut Vec<Frame>,
    ) -> io::Result<Progress> {
        let Stage::Up(channel) = &mut self.stage else { return Ok(Progress::Drained) };
        let lane = self.peer.map_or(Lane::Messages, |(_, lane, _)| lane);
        let before = frames.len();
        let read = match channel.place() {
            Some(_) => read_in_place(&self.stream, channel, frames),
            None => {
                let room = scratch.len().min(channel.scratch_bytes(lane));
                read_by_copy(&self.stream, channel, &mut scratch[..room], frames)
            }
        };
        let progress = match read {
            Ok(progress) => progress,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Progress::Drained);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Ok(Progress::Some(0));
            }
            Err(error) => return Err(error),
        };
        self.heard_ns = now_ns;
        self.probed_ns = None;
        self.frame_since_ns = match (channel.is_inside(), frames.len() > before) {
            (false, _) => None,
            (true, true) => Some(now_ns),
            (true, false) => self.frame_since_ns.or(Some(now_ns)),
        };
        Ok(progress)
    }
}

fn wrong(Malformed: Malformed) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Reads a part of what is missing of a body behind what there is of it, and nothing beyond.
///
/// The library reads 8 KiB at first and twice as much each time: that costs a few system calls, and
/// what is copied is still in the nearest cache when it is copied from and to.
fn read_in_place(
    stream: &TcpStream,
    channel: &mut Channel,
    frames: &mut Vec<Frame>,
) -> io::Result<Progress> {
    let Some((body, missing)) = channel.place() else { return Ok(Progress::Some(0)) };
    let before = body.len();
    let read = stream.take(missing.min(PART_BYTES) as u64).read_to_end(body);
    let count = body.len() - before;
    let progress = match read {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Progress::Some(count),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && count > 0 => Progress::Drained,
        Err(error) => return Err(error),
    };
    frames.extend(channel.decoder.filled().map_err(wrong)?);
    Ok(progress)
}

/// Reads whatever there is.
fn read_by_copy(
    mut stream: &TcpStream,
    channel: &mut Channel,
    scratch: &mut [u8],
    frames: &mut Vec<Frame>,
) -> io::Result<Progress> {
    let count = stream.read(scratch)?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    channel.feed(&scratch[..count], frames).map_err(wrong)?;
    // A short read means that there is no more; the next one would say so at the price of a system
    // call.
    Ok(if count < scratch.len() { Progress::Drained } else { Progress::Some(count) })
}

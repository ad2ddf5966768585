//! The other side: plain TCP.

use std::{
    fs::File,
    io::{Read, Write, stdout},
    net::{TcpListener, TcpStream},
    path::Path,
};

use anyhow::{Context, Result};
use mayfly_testkit::{Scratch, job::Running};

use crate::instance::beside;

/// What a request says in front: how long it is, and its reply, in all.
pub(crate) const HEAD_BYTES: usize = 8;
/// A piece of a stream whose other end is a file.
const PIECE_BYTES: usize = 1 << 20;

/// A process that listens, and where.
pub(crate) struct Listening<'a> {
    running: Running<'a>,
    pub(crate) address: String,
}

impl Listening<'_> {
    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    pub(crate) fn end(self) -> Result<()> {
        mayfly_testkit::process::kill(self.running.pid());
        self.running.wait().map(drop)
    }
}

/// Starts one and reads from its output where it listens.
pub(crate) fn start<'a>(scratch: &'a Scratch, words: &[&str]) -> Result<Listening<'a>> {
    let output = scratch.join(format!("{}.out", words.first().context("a role")?));
    let running = beside(scratch, words)?.start()?;
    loop {
        let text = std::fs::read_to_string(&output).unwrap_or_default();
        if let Some(address) = text.strip_suffix('\n') {
            return Ok(Listening { running, address: address.to_owned() });
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Listens, says where, and takes one connection.
fn accept() -> Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    stdout().flush()?;
    let (stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub(crate) fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a request of so many bytes and takes in its reply.
pub(crate) fn trip(stream: &mut TcpStream, bytes: &mut [u8], reply: usize) -> Result<()> {
    let (request_bytes, reply_bytes) = (bytes.len() as u32, reply as u32);
    bytes[..4].copy_from_slice(&request_bytes.to_le_bytes());
    bytes[4..HEAD_BYTES].copy_from_slice(&reply_bytes.to_le_bytes());
    stream.write_all(bytes)?;
    let mut left = vec![0; reply];
    stream.read_exact(&mut left)?;
    Ok(())
}

/// One request as it came; false at the end of the connection. How long the reply is to be.
fn take(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Result<Option<usize>> {
    let mut head = [0; HEAD_BYTES];
    if stream.read_exact(&mut head).is_err() {
        return Ok(None);
    }
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    bytes.resize(number(0) as usize, 0);
    bytes[..HEAD_BYTES].copy_from_slice(&head);
    stream.read_exact(&mut bytes[HEAD_BYTES..])?;
    Ok(Some(number(4) as usize))
}

/// Answers requests.
pub(crate) fn echo() -> Result<()> {
    let mut stream = accept()?;
    let (mut bytes, mut reply) = (Vec::new(), Vec::new());
    while let Some(length) = take(&mut stream, &mut bytes)? {
        reply.resize(length, 1);
        stream.write_all(&reply)?;
    }
    Ok(())
}

/// Passes requests on, and their replies back.
pub(crate) fn relay(address: &str) -> Result<()> {
    let mut ahead = connect(address)?;
    let mut stream = accept()?;
    let (mut bytes, mut reply) = (Vec::new(), Vec::new());
    while let Some(length) = take(&mut stream, &mut bytes)? {
        ahead.write_all(&bytes)?;
        reply.resize(length, 0);
        ahead.read_exact(&mut reply)?;
        stream.write_all(&reply)?;
    }
    Ok(())
}

/// Takes `w LENGTH` bytes into a file, or gives `r LENGTH` bytes of it, as it is asked.
pub(crate) fn sink(directory: &str) -> Result<()> {
    let mut stream = accept()?;
    let path = Path::new(directory).join("bare");
    let mut piece = vec![0; PIECE_BYTES];
    let mut order = [0; 9];
    while stream.read_exact(&mut order).is_ok() {
        let length: [u8; 8] = order[1..].try_into().context("eight bytes")?;
        let mut left = u64::from_le_bytes(length) as usize;
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        while left > 0 {
            let count = left.min(piece.len());
            if order[0] == b'w' {
                stream.read_exact(&mut piece[..count])?;
                (&file).write_all(&piece[..count])?;
            } else {
                (&file).read_exact(&mut piece[..count])?;
                stream.write_all(&piece[..count])?;
            }
            left -= count;
        }
        if order[0] == b'w' {
            stream.write_all(&[1])?;
        }
    }
    Ok(())
}

//! The client's side of a session's memory, without a process: requests are written and replies
//! read through the file that the memory is.

use std::os::fd::OwnedFd;

use mayfly_transport_shm::layout::{
    LANE_ABANDONED, LANE_FREE, LANE_REPLY, LANE_REQUEST, Lane, LaneBuffers, NodeRegion,
    SessionHead, SessionRegion,
};
use mayfly_types::limits::{REPLY_BYTES_MAX, REQUEST_BYTES_MAX};
use mayfly_wire::{HEADER_BYTES, Header, Request, Writer};
use rustix::io::{pread, pwrite};

/// A session, as its process sees it.
#[derive(Debug)]
pub struct Lanes {
    /// The memory.
    pub region: OwnedFd,
    session: u32,
    last_request_id: u64,
}

fn lane(lane: usize, field: usize) -> u64 {
    let lanes =
        std::mem::offset_of!(SessionRegion, head) + std::mem::offset_of!(SessionHead, lanes);
    (lanes + lane * size_of::<Lane>() + field) as u64
}

fn buffer(lane: usize, field: usize) -> u64 {
    let buffers = std::mem::offset_of!(SessionRegion, buffers);
    (buffers + lane * size_of::<LaneBuffers>() + field) as u64
}

impl Lanes {
    /// For a fresh session; `first_id` tells its requests from those of other sessions with its
    /// number.
    #[must_use]
    pub fn new(region: OwnedFd, session: u32, first_id: u64) -> Lanes {
        Lanes { region, session, last_request_id: first_id }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let written = pwrite(&self.region, bytes, at);
        assert_eq!(written, Ok(bytes.len()), "a memory file takes what fits");
    }

    fn word(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        assert_eq!(pread(&self.region, &mut bytes, at), Ok(4), "a memory file has all its bytes");
        u32::from_ne_bytes(bytes)
    }

    fn state(&self, of: usize) -> u32 {
        self.word(lane(of, std::mem::offset_of!(Lane, state)))
    }

    /// Whether a lane can be used.
    #[must_use]
    pub fn is_free(&self, of: usize) -> bool {
        self.state(of) == LANE_FREE
    }

    /// Hands a request over; its number.
    pub fn submit(&mut self, node: &NodeRegion, of: usize, request: &Request<'_>) -> u64 {
        let mut bytes = vec![0; REQUEST_BYTES_MAX];
        let (header, body) = bytes.split_at_mut(HEADER_BYTES);
        let mut to = Writer::new(body);
        request.encode(&mut to).expect("requests of the simulator are short");
        let used = to.used();
        self.last_request_id += 1;
        let request_id = self.last_request_id;
        let head = Header {
            reply: false,
            op: request.op(),
            request_id,
            submitted_cycles: 0,
            slot_table_version: 0,
            body_bytes: used as u32,
            status: 0,
            body_checksum: 0,
        };
        head.encode(header).expect("a header fits its place");
        let length = HEADER_BYTES + used;
        self.write(buffer(of, std::mem::offset_of!(LaneBuffers, request)), &bytes[..length]);
        self.write(lane(of, std::mem::offset_of!(Lane, request_id)), &request_id.to_ne_bytes());
        let bytes = (length as u32).to_ne_bytes();
        self.write(lane(of, std::mem::offset_of!(Lane, request_bytes)), &bytes);
        self.write(lane(of, std::mem::offset_of!(Lane, state)), &LANE_REQUEST.to_ne_bytes());
        node.mark(self.session);
        node.wake_daemon();
        request_id
    }

    /// Status and body of the reply, if it is there; the lane is free then.
    pub fn reply(&mut self, of: usize, request_id: u64) -> Option<(u32, Vec<u8>)> {
        if self.state(of) != LANE_REPLY {
            return None;
        }
        let length = self.word(lane(of, std::mem::offset_of!(Lane, reply_bytes))) as usize;
        let mut bytes = vec![0; length.min(REPLY_BYTES_MAX)];
        let at = buffer(of, std::mem::offset_of!(LaneBuffers, reply));
        assert_eq!(pread(&self.region, &mut bytes, at), Ok(bytes.len()));
        self.write(lane(of, std::mem::offset_of!(Lane, state)), &LANE_FREE.to_ne_bytes());
        let header = Header::decode(&bytes).expect("a reply has a header");
        assert!(header.reply && header.request_id == request_id, "the reply to another request");
        let body = bytes.split_off(HEADER_BYTES);
        assert_eq!(header.body_bytes as usize, body.len());
        Some((header.status, body))
    }

    /// Waits no more, and says so.
    pub fn abandon(&mut self, node: &NodeRegion, of: usize) {
        self.write(lane(of, std::mem::offset_of!(Lane, state)), &LANE_ABANDONED.to_ne_bytes());
        node.mark(self.session);
        node.wake_daemon();
    }
}

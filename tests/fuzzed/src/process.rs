//! A process that writes into the memory of its session by its descriptor, past all that the
//! library would do.

use std::{mem::offset_of, os::fd::OwnedFd};

use mayfly_transport_shm::{
    layout::{LANE_REQUEST, Lane, LaneBuffers, SessionHead, SessionRegion},
    region,
};
use mayfly_types::SessionId;
use mayfly_wire::{HEADER_BYTES, Header, Op};

pub(crate) struct Process(pub(crate) OwnedFd);

/// Where a lane's words are.
fn lane_at(lane: usize) -> usize {
    offset_of!(SessionRegion, head) + offset_of!(SessionHead, lanes) + lane * size_of::<Lane>()
}

impl Process {
    pub(crate) fn new(session: SessionId) -> Process {
        Process(region::make_session(session, 1).expect("there is memory"))
    }

    /// As far as there is memory.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        let end = size_of::<SessionRegion>();
        let count = bytes.len().min(end.saturating_sub(at));
        rustix::io::pwrite(&self.0, &bytes[..count], at as u64).expect("memory takes it");
    }

    fn read<const BYTES: usize>(&self, at: usize) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        rustix::io::pread(&self.0, &mut bytes, at as u64).expect("it is memory");
        bytes
    }

    /// Fills the front of a lane's request buffer.
    pub(crate) fn request(&self, lane: usize, bytes: &[u8]) {
        let buffers = offset_of!(SessionRegion, buffers) + lane * size_of::<LaneBuffers>();
        self.write(buffers + offset_of!(LaneBuffers, request), bytes);
    }

    /// A request with a right header.
    pub(crate) fn submit(&self, lane: usize, op: Op, request_id: u64, body: &[u8]) {
        let header = Header {
            reply: false,
            op,
            request_id,
            submitted_cycles: 0,
            slot_table_version: 0,
            body_bytes: body.len() as u32,
            status: 0,
            body_checksum: 0,
        };
        let mut bytes = [0; HEADER_BYTES];
        header.encode(&mut bytes).expect("a header has its length");
        self.request(lane, &[&bytes[..], body].concat());
        let length = (HEADER_BYTES + body.len()) as u32;
        self.words(lane, request_id, length, LANE_REQUEST);
    }

    pub(crate) fn words(&self, lane: usize, request_id: u64, length: u32, state: u32) {
        let words = lane_at(lane);
        self.write(words + offset_of!(Lane, request_id), &request_id.to_le_bytes());
        self.write(words + offset_of!(Lane, request_bytes), &length.to_le_bytes());
        self.state(lane, state);
    }

    pub(crate) fn state(&self, lane: usize, state: u32) {
        self.write(lane_at(lane) + offset_of!(Lane, state), &state.to_le_bytes());
    }

    pub(crate) fn state_of(&self, lane: usize) -> u32 {
        u32::from_le_bytes(self.read(lane_at(lane) + offset_of!(Lane, state)))
    }

    /// The request that a lane's reply answers, and the reply's length, bytes.
    pub(crate) fn answered(&self, lane: usize) -> (u64, u32) {
        let words = lane_at(lane);
        let request_id = u64::from_le_bytes(self.read(words + offset_of!(Lane, answered_id)));
        (request_id, u32::from_le_bytes(self.read(words + offset_of!(Lane, reply_bytes))))
    }
}

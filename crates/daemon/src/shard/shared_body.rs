//! What is kept of a request after it was executed, or until it is.
//!
//! A request is decoded where its body lies, and its fields are borrowed from there. Some bytes
//! have to outlive that: those of a request that is put aside or sent on, and those of a write that
//! a job makes. Short ones are copied. A long body is *shared*: who hands it in says where it lies,
//! and the bytes of a write are shared with whoever needs them.

use mayfly_transport_tcp::{Body, Bytes};
use mayfly_types::{Errno, limits::REQUEST_BYTES_MAX};
use mayfly_wire::{Request, Write, WriteHead, Writer};

use crate::{files::state::background::encoded, shard::Shard};

impl Shard {
    /// The body of the request that is handed in next, or, when that was handled, none. What is
    /// kept of it is not copied.
    pub fn share_body(&mut self, body: Bytes) {
        self.batch.body = body;
    }

    /// Bytes of the request that is being executed, to be kept.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Bytes {
        self.batch.body.share(bytes).unwrap_or_else(|| bytes.to_vec().into())
    }

    /// The body of this request, to be kept.
    pub(super) fn body_of(&mut self, request: &Request<'_>) -> Result<Body, Errno> {
        if let Request::Write(Write { open, offset, append, bytes }) = *request
            && let Some(shared) = self.batch.body.share(bytes)
        {
            let count = u32::try_from(bytes.len()).map_err(|_| Errno::EOVERFLOW)?;
            let head = encoded(0, &WriteHead { open, offset, append, count })?;
            return Ok(Body::new(head, shared));
        }
        // Room that is there already, because every request that is forwarded comes by here.
        self.tasks.encoded.resize(REQUEST_BYTES_MAX, 0);
        let mut to = Writer::new(&mut self.tasks.encoded);
        request.encode(&mut to).map_err(|_| Errno::EOVERFLOW)?;
        let used = to.used();
        Ok(self.tasks.encoded[..used].to_vec().into())
    }
}

//! Reading ahead: what processes read of other nodes' files in small pieces, one after the other.
//!
//! Each small read would be a request to the file's home. Under session consistency the process's
//! own node asks for transfers, from the second read on that begins where the one before has ended,
//! and answers from these.
//!
//! Invariants:
//! - What is given was asked for after the description was opened, and not longer ago than
//!   `AHEAD_MS`. So it has what was closed before the open.
//! - What this node's processes write is seen by them at once: what was read ahead of a file goes
//!   when they write to it, and that of a node's files when another change of any of them returns.
//! - The end of a file is believed only where it was asked for by the read that meets it.

use mayfly_transport_tcp::Body;
use mayfly_types::{FileId, OpenRef, limits::SESSION_CALL_BYTES_MAX};
use mayfly_wire::{Data, Op, Read, Wire, Writer};

use crate::{
    fault::{Fault, Outcome},
    files::{descriptions::Elsewhere, state::background::encoded},
    remote::state::{ahead::Found, own_requests::Own},
    shard::Shard,
};

impl Shard {
    /// Reads what was read ahead, if this is a read that goes on. True when it is answered.
    pub(super) fn read_ahead(
        &mut self,
        read: &Read,
        of: (FileId, Elsewhere),
        to: &mut Writer<'_>,
    ) -> Outcome<bool> {
        let Read { open, offset, count } = *read;
        let (count, found) = (count as usize, self.files.opens.get(open)?);
        let node = self.place.numbering.node_of(of.1.shard);
        if !(1..=SESSION_CALL_BYTES_MAX).contains(&count)
            || offset > i64::MAX as u64 - count as u64
            || !found.may_read()
            || !self.files.opens.may_be_deferred(open, &found)
            || self.remote.unreached.contains(&node)
        {
            self.remote.ahead.end(open);
            return Ok(false);
        }
        let (now, waited) = (self.remote.clock, self.run.ahead);
        let mut buffer = std::mem::take(&mut self.tasks.encoded);
        let here = self.remote.ahead.find(open, (offset, count), (now, waited), &mut buffer);
        let served = match here {
            Found::Here(bytes, object) => {
                let bytes = &buffer[..bytes];
                Data { object, bytes }.encode(to).map(|()| true).map_err(Fault::from)
            }
            Found::Soon => Err(Fault::Busy),
            Found::No if waited => Ok(false),
            Found::No if self.remote.ahead.note(open, of, offset, count) => Err(Fault::Busy),
            Found::No => Ok(false),
        };
        self.tasks.encoded = buffer;
        let asked = self.ask_ahead(open);
        match served {
            Err(Fault::Busy) if here == Found::Soon || asked => {
                self.run.ahead = true;
                Err(Fault::Busy)
            }
            Err(Fault::Busy) => Ok(false),
            served => served,
        }
    }

    /// Asks for more, if there should be more; true when it did.
    fn ask_ahead(&mut self, open: OpenRef) -> bool {
        let Some(wanted) = self.remote.ahead.wanted(open) else { return false };
        let node = self.place.numbering.node_of(wanted.remote.shard);
        let Some(caller) = self.remote.own.begin(node, Own::Ahead(open)) else { return false };
        self.remote.ahead.asked(open, caller.request_id, wanted, self.remote.clock);
        let (offset, count) = (wanted.offset, wanted.bytes as u32);
        let read = Read { open: wanted.remote.open, offset, count };
        let body = encoded(0, &read).unwrap_or_default();
        self.send_own(caller, wanted.remote, Op::Read, Body::from(body));
        true
    }
}

//! The messages of Mayfly and their bytes.
//!
//! A message is a fixed header ([`Header`], 48 bytes, little-endian) and a body whose form the
//! operation fixes. The same operations travel over shared memory and over the network. Decoding
//! takes any bytes: it returns [`Malformed`] or a value, and never reads outside its input. Bodies
//! borrow their byte strings from the buffer, so nothing is allocated. `docs/design/wire.md`
//! describes the bytes.
#![no_std]
#![forbid(unsafe_code)]

mod codec;
mod header;
pub mod inspection;
pub mod listing;
pub mod notices;
mod op;
mod request;
pub mod tier;

pub use codec::{Full, Malformed, Reader, Wire, Writer};
pub use header::{HEADER_BYTES, Header, VERSION};
pub use op::Op;
pub use request::*;

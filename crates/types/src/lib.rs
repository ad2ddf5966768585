//! The words of the file system as types: identities, attributes, errors, limits, options.
//!
//! Everything else is built on this crate, in the daemon as in the host process, so it allocates
//! nothing, needs no standard library and has no unsafe code.
#![no_std]
#![forbid(unsafe_code)]

mod attr;
mod chunks;
mod errno;
mod fold;
mod id;
pub mod limits;
pub mod mirror;
mod object;
mod options;
pub mod slot;
pub mod special;

pub use attr::{
    Attr, BLOCK_BYTES, DIRECTORY_BYTES, FileKind, OBJECT_MAPPED, Timestamp, inline_blocks,
};
pub use chunks::{Chunks, Tail};
pub use errno::Errno;
pub use fold::{BuildFold, FoldHasher};
pub use id::{FileId, OpenRef, SessionId};
pub use object::{FIRST_OBJECT, OBJECT_PATH_BYTES_MAX, ObjectPath};
pub use options::{Durability, Times};

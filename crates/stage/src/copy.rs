//! One file or directory entry, copied.
//!
//! [`entry`] decides what an entry of a directory needs and does it. A file is written under a
//! temporary name and renamed when it is whole ([`whole`]); a large one is copied in parts by
//! several threads ([`large`]). [`links`] makes the copies of one file with several names one file
//! too, [`special`] copies what has no content, [`settle`] carries attributes over, and [`sync`]
//! brings all of it to the disk before the stage ends.
//!
//! **Invariants.** A name at the destination is the whole new file or what was there before.
//!
//! What is copied, and in which order, is decided in [`crate::walk`].

pub(crate) mod entry;
pub(crate) mod kind;
pub(crate) mod large;
pub(crate) mod links;
pub(crate) mod parts;
pub(crate) mod settle;
mod special;
pub(crate) mod sync;
pub(crate) mod whole;

//! The caching tier: directories of the instance that show directories outside, their *origins*.
//!
//! A daemon touches nothing outside its instance. What an operation lacks of it
//! ([`state::wanted::Wanted`]) is work for the *tier keeper*, a process of the node, which asks for
//! it ([`items`]). The operation has written nothing by then, and is run again when it is there.
//! So an operation reads the same in a directory that has an origin, but for a few gates:
//!
//! - `names_at_hand`: the directory's entries are taken over, and were seen outside lately
//!   ([`gates`], [`seen`]). `name_at_hand`: one of them was, at least ([`named`]).
//! - `file_at_hand`: so are the attributes of the file.
//! - `bytes_at_hand`: all bytes of the file are here ([`fetched`]).
//! - `change_at_origin`: the name was changed outside ([`through`]), or will be ([`journal`]).
//! - `range_to_change`: so are those that a change leaves of the chunks it meets ([`written`]).
//! - `note_dirty`: the bytes are about to be changed here; they go back later ([`flush`]).
//!
//! Invariants:
//! - A file is here as a whole or is absent. What is absent has no bytes in its record, and no
//!   object of its own, unless it was written to before all of it was here ([`written`]). The
//!   object that is being filled has the mark that removes it until it is the file's, or a record
//!   of the chunks that it has ([`chunks`]).
//! - A file is dirty, durably, before a change of its bytes is acknowledged, and before anybody has
//!   leave to write its object. It is clean again when the keeper has said what the master copy is
//!   then, and nothing was changed since the flush was begun.
//! - Of a name, one thing at a time is done outside, and what the journal has of it first.
//! - No such directory is delegated. Processes read its records, and are leased its files, until
//!   the time that stands in the record ([`seen`]). It is written with each look outside. Whoever
//!   has a file open keeps what it had, however it was opened.

pub(crate) mod chunks;
pub(crate) mod evict;
pub(crate) mod fetched;
pub(crate) mod flush;
pub(crate) mod gates;
pub(crate) mod items;
pub(crate) mod journal;
pub(crate) mod link;
pub(crate) mod named;
pub(crate) mod prefetch;
pub(crate) mod reports;
pub(crate) mod seats;
pub(crate) mod seen;
pub(crate) mod state;
pub(crate) mod through;
pub(crate) mod unlink;
pub(crate) mod write_back;
pub(crate) mod written;
pub(crate) mod xattrs;

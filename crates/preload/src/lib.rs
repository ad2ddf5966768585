//! The library in the host process.
//!
//! `LD_PRELOAD` brings it into programs that were never told about it, and `LD_AUDIT` into those
//! whose libraries may lie in the mount ([`audit`]). At start it asks `interpose` whether the
//! process belongs to an instance; if so it maps prepared images ([`patch`]) over the code of the
//! C library and the dynamic loader, so that every `syscall` instruction in them passes a filter,
//! and what the filter does not let through arrives at [`entry`]. The program itself and its other
//! libraries get images when there are such instructions in them, and so does what is loaded later,
//! when it is mapped ([`late`]). Signals are delivered to the host with the host's
//! view of things ([`signal`]), never in the middle of a hook.
//!
//! The library needs no other library, resolves no symbol, exports none but the two of an audit
//! library, allocates nothing from the host, takes no lock and never unwinds.
//! `docs/design/interposition.md` has the contract line by line.
#![no_std]

// A hook saves xmm0-15 and nothing more; wider instructions would change what it does not save.
#[cfg(target_feature = "avx")]
compile_error!("the preload library must be built for baseline x86-64");

mod action;
mod audit;
mod backend;
mod builtins;
mod deferral;
mod entry;
mod fork;
mod given;
mod hook;
mod kernel;
mod late;
mod loader;
mod panic;
mod patch;
mod plain;
mod prepared;
mod process;
mod signal;
mod start;

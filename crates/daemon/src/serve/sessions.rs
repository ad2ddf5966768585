//! What the supervisor and the kernel tell: processes that come and end, and files that they close.
//!
//! `channel.rs` is the socket pair that the daemon inherits from its supervisor, `handover.rs` what
//! comes over it first, `control.rs` the thread that listens, and `host.rs` the events that it
//! passes on. `releases.rs` and `processes.rs` are the kernel's evidence: a description's last
//! close, a process's end. `ends.rs` says when every shard has ended a session.
//!
//! Invariants:
//! - A session ends once, after its process image is gone, at every shard.
//! - Evidence that was lost (an overflow of inotify) is made good by looking at everything.

pub mod channel;
pub(in crate::serve) mod contents;
pub(in crate::serve) mod control;
pub(in crate::serve) mod ends;
pub(in crate::serve) mod event;
pub(in crate::serve) mod handover;
pub(in crate::serve) mod host_environment;
pub(in crate::serve) mod processes;
pub mod releases;
pub(in crate::serve) mod watched;

//! Every bound of this transport, with its unit, checked against each other when compiled.
//!
//! A bound that has to be the same on both sides is a constant. Other bounds are one side's own:
//! how long it waits, how much it queues. They are in [`Limits`], so that tests can make them
//! small.

/// Node numbers are below this.
pub const NODES_MAX: u32 = 65_536;
/// Network threads of an endpoint.
pub const THREADS_MAX: usize = mayfly_types::limits::NETWORK_THREADS_MAX as usize;
/// Longest message on [`Lane::Messages`](crate::Lane::Messages), bytes: what a small message may
/// have to stand behind.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Longest message on [`Lane::Bulk`](crate::Lane::Bulk), bytes.
pub const BULK_BYTES_MAX: usize = 1024 * 1024;
/// Shortest body that is shared and not copied, bytes: what is shorter is copied sooner than
/// shared.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;
/// Longest record of an encrypted connection with its tag, bytes: a message of the Noise protocol.
pub const RECORD_BYTES_MAX: usize = 65_535;
/// What encryption adds to a record, bytes.
pub const TAG_BYTES: usize = 16;

/// Bytes that a connection has taken from the queues and not yet given to the kernel. Little, since
/// a message of a higher class cannot overtake them.
pub(crate) const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// Bytes that were sent and not acknowledged, for one lane to one node. Beyond it nothing new is
/// sent; the peer's network thread acknowledges whatever its program does.
pub(crate) const UNACKNOWLEDGED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// An acknowledgement is sent on its own after so many frames.
pub(crate) const ACKNOWLEDGE_FRAMES: u64 = 32;
/// Or after so many bytes.
pub(crate) const ACKNOWLEDGE_BYTES: usize = 1024 * 1024;
/// Or after this time, milliseconds, where there is enough to wait for. Long, since mostly a frame
/// that says it by the way goes before, and one that goes alone wakes its receiver for nothing
/// else. The two above bound the frames that are kept until then.
pub(crate) const ACKNOWLEDGE_MS: u64 = 400;
/// Fewer bytes than these are acknowledged by the way only: to keep them is cheaper than to wake
/// two nodes. So many may be kept for each node after the last word to it.
pub(crate) const KEPT_QUIETLY_BYTES: usize = 8 * 1024;
/// After so many attempts in a row nobody connects just to send again what was sent and not
/// acknowledged: who waits for it connects.
pub(crate) const UNHEARD_ATTEMPTS_MAX: u32 = 10;
/// What may wait goes with the next frame to its node, or after this time, milliseconds: longer
/// than a busy node takes until it asks the same one of hundreds again.
pub(crate) const MAY_WAIT_MS: u64 = 10;
/// Everything is looked at before a sleep, to see what need not end it, after so much time for each
/// node and connection, ns: a hundred times what the look at one takes.
pub(crate) const LOOK_EARLY_NS_EACH: u64 = 10_000;
/// By default, silence of a peer from which something is expected, before it is probed,
/// milliseconds.
const PROBE_AFTER_MS: u64 = 1_000;
/// Bytes read from a connection before the next one has its turn.
pub(crate) const READ_TURN_BYTES: usize = 1024 * 1024;
/// Pieces handed to the kernel in one call.
pub(crate) const WRITE_PIECES_MAX: usize = 64;
/// One line about the same kind of trouble in this time, milliseconds.
pub(crate) const COMPLAINT_EVERY_MS: u64 = 60_000;

/// Bounds that one side decides for itself.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Network threads, each of which has a part of the nodes; from 1 to [`THREADS_MAX`].
    pub threads: usize,
    /// Requests of one class that may wait for this program, for each node, on the message lane.
    pub message_credits: u32,
    /// The same on the bulk lane.
    pub bulk_credits: u32,
    /// Requests of one class to one node that are queued or unanswered, on each lane.
    pub outstanding_max: u32,
    /// Connections that have not proved knowledge of the secret. Beyond it the oldest is closed.
    pub handshakes_max: usize,
    /// For the whole handshake, connecting included, milliseconds.
    pub handshake_ms: u64,
    /// From the first to the last byte of a frame, milliseconds.
    pub frame_ms: u64,
    /// Silence of a peer from which something is expected, before it is probed, milliseconds.
    pub probe_after_ms: u64,
    /// For the answer to the probe, milliseconds.
    pub probe_ms: u64,
    /// First pause between two attempts to connect, milliseconds; each further one is twice as
    /// long.
    pub backoff_ms: u64,
    /// Longest such pause, milliseconds.
    pub backoff_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            threads: 1,
            message_credits: 64,
            bulk_credits: 8,
            outstanding_max: 16_384,
            handshakes_max: 128,
            handshake_ms: 2_000,
            frame_ms: 10_000,
            probe_after_ms: PROBE_AFTER_MS,
            probe_ms: 2_000,
            backoff_ms: 10,
            backoff_ms_max: 1_000,
        }
    }
}

const _: () = assert!(MESSAGE_BYTES_MAX <= OUTPUT_BYTES_MAX);
const _: () = assert!(BULK_BYTES_MAX < UNACKNOWLEDGED_BYTES_MAX);
// A sender that waits for acknowledgements must not wait for one that is not due.
const _: () = assert!(ACKNOWLEDGE_BYTES + BULK_BYTES_MAX <= UNACKNOWLEDGED_BYTES_MAX);
// An acknowledgement that is not due yet is no silence.
const _: () = assert!(2 * ACKNOWLEDGE_MS <= PROBE_AFTER_MS);
// What waits is no silence, on its way there or back.
const _: () = assert!(4 * MAY_WAIT_MS <= PROBE_AFTER_MS);
const _: () = assert!(KEPT_QUIETLY_BYTES <= ACKNOWLEDGE_BYTES);
const _: () = assert!(mayfly_types::limits::REQUEST_BYTES_MAX <= BULK_BYTES_MAX);

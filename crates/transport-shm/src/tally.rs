//! What each process does, counted where it happens, in memory that others read.
//!
//! A session has a tally of its own. The process counts its operations by kind and by *way*: it did
//! the operation itself, it did not wait for it, or it asked the daemon. Nothing is locked, and no
//! line is shared with another process: what it costs is some instructions an operation.
//!
//! **Threads.** Counters stand in stripes, of which a thread uses the one that the address of its
//! stack tells. Two threads of one stripe that count in the same nanoseconds on two processors may
//! lose one of the two counts. A thread that is interrupted loses nothing: the processor adds by
//! one instruction.
//!
//! **Samples.** One of some 64 operations is noted with its path, its bytes and the time that it
//! took; so is each long transfer. The first ones of a process are all noted. A sample says for how
//! many operations it stands. The latest are kept, and some of the whole life, chosen evenly
//! (Vitter's reservoir, algorithm R, 1985). They tell which directories and files are busy, how
//! long what nobody asks for takes, and when: the node has a time line.
//!
//! **Waits.** How long each request was waited for is counted exactly, by operation.
//!
//! A tally stays when its session ends, until the session's number is given to another process: who
//! looks finds the latest that ended too. What older ones did is added to the node's *past*.

mod timeline;

pub use timeline::{Period, Timeline};

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use mayfly_sys::arch;

use crate::words;

/// Kinds of operations, as programs know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Opens what is there.
    Open,
    /// Makes a file.
    Create,
    /// Closes.
    Close,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Looks at attributes, or whether something is there.
    Stat,
    /// Lists entries of a directory.
    List,
    /// Removes a name.
    Unlink,
    /// Makes a directory.
    Mkdir,
    /// Removes a directory.
    Rmdir,
    /// Moves a name.
    Rename,
    /// Makes a link, symbolic or not, or a special file; reads a symbolic link.
    Link,
    /// Changes attributes or length, extended ones included.
    Change,
    /// Takes, looks at or gives up a lock.
    Lock,
    /// Makes durable.
    Sync,
}

impl Kind {
    /// All, by their number.
    pub const ALL: [(Kind, &'static str); 15] = [
        (Kind::Open, "open"),
        (Kind::Create, "create"),
        (Kind::Close, "close"),
        (Kind::Read, "read"),
        (Kind::Write, "write"),
        (Kind::Stat, "stat"),
        (Kind::List, "list"),
        (Kind::Unlink, "unlink"),
        (Kind::Mkdir, "mkdir"),
        (Kind::Rmdir, "rmdir"),
        (Kind::Rename, "rename"),
        (Kind::Link, "link"),
        (Kind::Change, "change"),
        (Kind::Lock, "lock"),
        (Kind::Sync, "sync"),
    ];
}

/// How an operation was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    /// By the process itself.
    Itself,
    /// By the daemon, and nobody waited.
    Unawaited,
    /// By the daemon, which was asked.
    Asked,
}

impl Way {
    /// All, by their number.
    pub const ALL: [(Way, &'static str); WAYS] =
        [(Way::Itself, "itself"), (Way::Unawaited, "unawaited"), (Way::Asked, "asked")];
}

/// Ways of an operation.
pub const WAYS: usize = 3;
/// Operations of the protocol that are counted each for itself: one more than their greatest
/// number.
pub const OPS: usize = 42;
/// Kinds of operations, with room.
pub const KINDS: usize = 16;
const _: () = assert!(Kind::ALL.len() <= KINDS);

/// Stripes of counters.
pub const STRIPES: usize = 8;
const STRIPE_SHIFT: u32 = u64::BITS - STRIPES.ilog2();
const _: () = assert!(STRIPES.is_power_of_two());
/// Sizes of transfers that are told apart: up to 512 bytes, up to 1 KiB and so on, and above 8 MiB.
pub const SIZES: usize = 16;
/// Times of waits that are told apart: up to 1 µs, up to 2 µs and so on, and above 4.2 s.
pub const WAITS: usize = 24;
/// Latest samples that are kept.
pub const LATEST: usize = 32;
/// Samples of the whole life that are kept.
pub const CHOSEN: usize = 96;
/// So many operations of a process are all noted.
const FIRST: u32 = 32;
/// Later ones are noted one in so many, on average.
const PERIOD: u32 = 64;
/// A transfer of more bytes is noted by itself: those of the sizes above this one's.
pub const LONG_BYTES: usize = 1 << 16;
const _: () = assert!(size_bucket(LONG_BYTES as u64) < size_bucket(LONG_BYTES as u64 + 1));
/// Longest path that is noted, bytes.
pub const PATH_BYTES: usize = 80;

/// The bucket of the size of a transfer.
#[must_use]
pub const fn size_bucket(bytes: u64) -> usize {
    let above = bytes.saturating_sub(1) >> 9;
    let bucket = (u64::BITS - above.leading_zeros()) as usize;
    if bucket < SIZES { bucket } else { SIZES - 1 }
}

/// The bucket of a wait.
#[must_use]
pub fn wait_bucket(ns: u64) -> usize {
    let above = ns.saturating_sub(1) / 1000;
    ((u64::BITS - above.leading_zeros()) as usize).min(WAITS - 1)
}

/// Counters of some threads.
#[repr(C, align(128))]
pub struct Stripe {
    /// Operations until the next sample; 0: the next one is noted.
    left: AtomicU32,
    /// For how many operations that stands.
    weight: AtomicU32,
    /// Operations, by way and kind.
    pub operations: [[AtomicU64; KINDS]; WAYS],
    /// Operations among them that failed.
    pub failed: AtomicU64,
    /// Bytes that were read, by way.
    pub read_bytes: [AtomicU64; WAYS],
    /// Bytes that were written, by way.
    pub written_bytes: [AtomicU64; WAYS],
    /// Reads by size.
    pub reads: [AtomicU64; SIZES],
    /// Writes by size.
    pub writes: [AtomicU64; SIZES],
    /// Reads and writes that began where the process's last transfer by that description ended.
    pub in_order: [AtomicU64; 2],
}

/// How long requests of an operation were waited for.
#[repr(C)]
pub struct Waits {
    /// Requests by the time of their wait.
    pub requests: [AtomicU64; WAITS],
    /// All waits together, ns.
    pub sum_ns: AtomicU64,
}

impl Waits {
    /// Counts one.
    pub fn add(&self, ns: u64) {
        add(&self.requests[wait_bucket(ns)], 1);
        add(&self.sum_ns, ns);
    }
}

/// A noted operation.
#[repr(C)]
pub struct Sample {
    /// Counted up before and after it is written: odd meanwhile.
    turn: AtomicU32,
    weight: AtomicU32,
    /// When it ended, by the processors' counter.
    at: AtomicU64,
    /// Cycles that it took.
    took: AtomicU64,
    bytes: AtomicU64,
    file: AtomicU64,
    directory: AtomicU64,
    /// Kind, way, and length of the path in the upper half.
    what: AtomicU64,
    path: [AtomicU64; PATH_BYTES / 8],
}

/// What an operation was about.
#[derive(Debug, Clone, Copy, Default)]
pub struct Subject<'a> {
    /// The file; 0: not known.
    pub file: u64,
    /// Directory in which the path begins; 0: not known.
    pub directory: u64,
    /// The path from there.
    pub path: &'a [u8],
}

/// A sample, as somebody found it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Operations for which it stands.
    pub weight: u32,
    /// When it ended, by the processors' counter.
    pub at: u64,
    /// Cycles that it took.
    pub took: u64,
    /// Bytes that were read or written.
    pub bytes: u64,
    /// The file; 0: not known.
    pub file: u64,
    /// Directory in which the path begins; 0: not known.
    pub directory: u64,
    /// [`Kind`], by its number.
    pub kind: u8,
    /// [`Way`], by its number.
    pub way: u8,
    /// Bytes of the path that are there.
    pub path_bytes: usize,
    /// The path.
    pub path: [u8; PATH_BYTES],
}

/// An operation that ended.
#[derive(Debug, Clone, Copy)]
pub struct Done<'a> {
    /// Its kind.
    pub kind: Kind,
    /// How it was done.
    pub way: Way,
    /// Did it fail?
    pub failed: bool,
    /// Bytes that were read or written.
    pub bytes: usize,
    /// What it was about.
    pub subject: Subject<'a>,
}

/// When an operation began, if it will be noted, and where it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Began {
    /// 0: it will not be noted.
    cycles: u64,
    /// Where it is counted: it may end elsewhere on the stack.
    stripe: u8,
}

/// What a session has done.
#[repr(C, align(4096))]
pub struct Tally {
    /// The process; 0: there was none yet.
    pub pid: AtomicU32,
    /// Samples so far.
    taken: AtomicU32,
    /// When the session began, by the processors' counter.
    pub began: AtomicU64,
    /// Name of the process's first thread.
    pub name: [AtomicU64; 2],
    /// Counters.
    pub stripes: [Stripe; STRIPES],
    /// Waits for requests, by [`mayfly_wire::Op`].
    pub waits: [Waits; OPS],
    /// The latest samples.
    latest: [Sample; LATEST],
    /// Samples of the whole life.
    chosen: [Sample; CHOSEN],
}

/// Short periods of the time line that are kept, and long ones.
pub const SHORT_PERIODS: usize = 1024;
/// As [`SHORT_PERIODS`].
pub const LONG_PERIODS: usize = 4096;
/// A short period is two to this power of cycles: a third to half a second.
pub const SHORT_SHIFT: u32 = 30;
/// A long period is two to this power of cycles: some 30 s.
pub const LONG_SHIFT: u32 = 36;

fn add(counter: &AtomicU64, more: u64) {
    arch::add_unlocked(counter, more);
}

impl Tally {
    /// The number of the stripe of this thread, and mostly of no other.
    #[inline]
    fn own_stripe() -> u8 {
        // Stacks lie at even distances: a golden section of them falls everywhere.
        let here = 0_u8;
        let at = (&raw const here) as u64 >> 14;
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> STRIPE_SHIFT) as u8
    }

    #[inline]
    fn stripe(&self, number: u8) -> &Stripe {
        &self.stripes[usize::from(number) % STRIPES]
    }

    /// Before an operation that will transfer so many bytes.
    #[inline]
    #[must_use]
    pub fn begin(&self, bytes: usize) -> Began {
        let stripe = Self::own_stripe();
        let noted = bytes > LONG_BYTES || self.stripe(stripe).left.load(Relaxed) == 0;
        Began { cycles: if noted { arch::cycles() } else { 0 }, stripe }
    }

    /// After it.
    #[inline]
    pub fn end<'a>(&self, began: Began, line: &Timeline, done: impl FnOnce() -> Done<'a>) {
        let stripe = self.stripe(began.stripe);
        let done = done();
        add(&stripe.operations[done.way as usize][done.kind as usize], 1);
        if done.failed {
            add(&stripe.failed, 1);
        }
        // The read that finds the end of a file has no size.
        if done.kind == Kind::Read && done.bytes > 0 {
            add(&stripe.read_bytes[done.way as usize], done.bytes as u64);
            add(&stripe.reads[size_bucket(done.bytes as u64)], 1);
        } else if done.kind == Kind::Write && done.bytes > 0 {
            add(&stripe.written_bytes[done.way as usize], done.bytes as u64);
            add(&stripe.writes[size_bucket(done.bytes as u64)], 1);
        }
        if self.is_noted(began, done.bytes) {
            self.note(stripe, began, line, &done);
        } else {
            let left = stripe.left.load(Relaxed);
            stripe.left.store(left.saturating_sub(1), Relaxed);
        }
    }

    /// Will an operation that has transferred so many bytes be noted? Its subject is needed then.
    #[inline]
    #[must_use]
    pub fn is_noted(&self, began: Began, bytes: usize) -> bool {
        let is_due = || self.stripe(began.stripe).left.load(Relaxed) == 0;
        began.cycles != 0 && (bytes > LONG_BYTES || is_due())
    }

    /// A transfer began where the last one by that description ended.
    #[inline]
    pub fn in_order(&self, kind: Kind) {
        add(&self.stripe(Self::own_stripe()).in_order[usize::from(kind == Kind::Write)], 1);
    }

    #[cold]
    #[inline(never)]
    fn note(&self, stripe: &Stripe, began: Began, line: &Timeline, done: &Done<'_>) {
        let at = arch::cycles();
        let weight = if done.bytes > LONG_BYTES {
            1
        } else {
            let weight = stripe.weight.load(Relaxed).max(1);
            // A program that does the same few things in turn has none of them left out.
            let period = PERIOD / 2 + at as u32 % PERIOD;
            let next = if self.taken.load(Relaxed) < FIRST { 1 } else { period };
            stripe.weight.store(next, Relaxed);
            stripe.left.store(next - 1, Relaxed);
            weight
        };
        let number = self.taken.fetch_add(1, Relaxed);
        let took = at.saturating_sub(began.cycles);
        self.latest[number as usize % LATEST].write(at, took, weight, done);
        // The counter's low bits are chance enough; they are spread over the word.
        let chance = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % (u64::from(number) + 1);
        let place = if (number as usize) < CHOSEN { number as usize } else { chance as usize };
        if let Some(chosen) = self.chosen.get(place) {
            chosen.write(at, took, weight, done);
        }
        line.add(at, u64::from(weight), done);
    }

    /// Counts a wait for the reply to a request.
    pub fn waited(&self, op: usize, ns: u64) {
        if let Some(waits) = self.waits.get(op) {
            waits.add(ns);
        }
    }

    /// Samples so far.
    pub fn samples_taken(&self) -> u32 {
        self.taken.load(Relaxed)
    }

    /// The latest samples, in no order.
    pub fn latest(&self) -> impl Iterator<Item = Seen> {
        self.latest.iter().filter_map(Sample::read)
    }

    /// Samples of the whole life, in no order.
    pub fn chosen(&self) -> impl Iterator<Item = Seen> {
        self.chosen.iter().filter_map(Sample::read)
    }

    /// Says whose tally it is from now on; the counts are 0.
    pub fn start(&self, name: &[u8]) {
        words::write(&self.name, name);
        self.began.store(arch::cycles(), Relaxed);
    }

    /// Every counter.
    fn counters(&self) -> impl Iterator<Item = &AtomicU64> {
        let stripes = self.stripes.iter().flat_map(|stripe| {
            let Stripe { operations, failed, read_bytes, written_bytes, .. } = stripe;
            let transfers = read_bytes.iter().chain(written_bytes);
            let sizes = stripe.reads.iter().chain(&stripe.writes).chain(&stripe.in_order);
            operations.iter().flatten().chain([failed]).chain(transfers).chain(sizes)
        });
        let waits =
            self.waits.iter().flat_map(|waits| waits.requests.iter().chain([&waits.sum_ns]));
        stripes.chain(waits)
    }

    /// Adds what stands in another tally. What was never counted touches no memory.
    pub fn add_all(&self, other: &Tally) {
        for (to, from) in self.counters().zip(other.counters()) {
            match from.load(Relaxed) {
                0 => {}
                more => add(to, more),
            }
        }
    }

    /// For another process.
    pub fn reset(&self) {
        let clear = |word: &AtomicU64| {
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        };
        self.pid.store(0, Relaxed);
        self.taken.store(0, Relaxed);
        self.counters().chain(&self.name).for_each(clear);
        for stripe in &self.stripes {
            if stripe.weight.load(Relaxed) != 0 {
                stripe.weight.store(0, Relaxed);
                stripe.left.store(0, Relaxed);
            }
        }
        for sample in self.latest.iter().chain(&self.chosen) {
            if sample.turn.load(Relaxed) != 0 {
                sample.turn.store(0, Release);
            }
        }
    }
}

impl Sample {
    fn write(&self, at: u64, took: u64, weight: u32, done: &Done<'_>) {
        let turn = self.turn.load(Relaxed);
        let odd = turn.wrapping_add(1) | 1;
        // Another thread is at it: its sample is as good.
        if turn % 2 == 1 || self.turn.compare_exchange(turn, odd, AcqRel, Relaxed).is_err() {
            return;
        }
        let path = cut(done.subject.path);
        self.weight.store(weight, Relaxed);
        self.at.store(at, Relaxed);
        self.took.store(took, Relaxed);
        self.bytes.store(done.bytes as u64, Relaxed);
        self.file.store(done.subject.file, Relaxed);
        self.directory.store(done.subject.directory, Relaxed);
        let what = done.kind as u64 | (done.way as u64) << 8 | (path.len() as u64) << 32;
        self.what.store(what, Relaxed);
        words::write(&self.path, path);
        self.turn.store(odd.wrapping_add(1).max(2), Release);
    }

    fn read(&self) -> Option<Seen> {
        let turn = self.turn.load(Acquire);
        if turn == 0 || turn % 2 == 1 {
            return None;
        }
        let mut path = [0; PATH_BYTES];
        for (to, word) in path.as_chunks_mut().0.iter_mut().zip(&self.path) {
            *to = word.load(Relaxed).to_le_bytes();
        }
        let what = self.what.load(Relaxed);
        let seen = Seen {
            weight: self.weight.load(Relaxed),
            at: self.at.load(Relaxed),
            took: self.took.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            file: self.file.load(Relaxed),
            directory: self.directory.load(Relaxed),
            kind: what as u8,
            way: (what >> 8) as u8,
            path_bytes: ((what >> 32) as usize).min(PATH_BYTES),
            path,
        };
        core::sync::atomic::fence(Acquire);
        (self.turn.load(Relaxed) == turn).then_some(seen)
    }
}

/// As much of a path as is noted: of one that is too long, directories from its beginning.
#[must_use]
pub fn cut(path: &[u8]) -> &[u8] {
    let Some(head) = path.get(..PATH_BYTES) else { return path };
    if path.len() == PATH_BYTES {
        return path;
    }
    let end = head.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    head.get(..end).unwrap_or_default()
}

const _: () = assert!(size_of::<Sample>() == 136);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_and_a_wait_have_their_buckets() {
        let sizes = [0, 1, 512, 513, 1024, 1025, 8 << 20, (8 << 20) + 1, u64::MAX];
        assert_eq!(sizes.map(size_bucket), [0, 0, 0, 1, 1, 2, 14, 15, 15]);
        let waits = [0, 1000, 1001, 2000, 2001, 4001, 4_194_304_000, u64::MAX];
        assert_eq!(waits.map(wait_bucket), [0, 0, 1, 1, 2, 3, 22, 23]);
    }

    #[test]
    fn a_long_path_is_noted_by_its_directories() {
        let long = [&b"a/"[..], &[b'b'; 70], b"/", &[b'c'; 20]].concat();
        assert_eq!(cut(&long), &long[..73]);
        assert_eq!(cut(b"a/b"), b"a/b");
        assert_eq!(cut(&[b'x'; 300]), b"");
    }
}

//! Creates that nobody waits for: the ring in which a process posts them.
//!
//! A process that alone makes the names of a directory may be *delegated* the directory: it writes
//! what is to be made into its ring, goes on, and the daemon executes what stands in the rings
//! before it answers anybody. So nothing that was posted may fail, and everybody sees it who looks
//! later:
//!
//! * **One word** has the number of the delegation and how many records were published. A record
//!   counts from the compare-and-swap that publishes it. The daemon takes a delegation back by
//!   adding to the number in that word: nothing is published after that, and what was before is
//!   executed. Nobody waits for the process, which may be stopped.
//! * **Names that are there** are in a filter: the process puts each name that it makes into it,
//!   the daemon those that were there. What the filter does not have is not there. What it seems to
//!   have is asked for.
//! * **Descriptions** are promised: each place of the ring has one that the daemon has set aside.
//!   What was posted is answered with it. Until the record was executed its state says
//!   [`OPEN_PROMISED`](crate::layout::OPEN_PROMISED), and who wants to use it asks the daemon for
//!   anything at all first. One that is closed before the record was executed is never made.
//! * **Who reads the records by himself** looks first whether any ring has something
//!   ([`NodeHead::posted`](crate::layout::NodeHead)), and asks then.
//!
//! Everything here is written by processes that may write anything. The daemon bounds each number
//! that it reads and keeps its own copy of the delegation, of what it has executed and of the
//! promises.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use mayfly_sys::arch::Moment;
use mayfly_types::{OpenRef, limits::NAME_BYTES_MAX};

/// Rings of a node. A session's is the one of its number's remainder, if nobody else has it.
pub const RINGS: usize = 64;
/// Records of a ring.
pub const RECORDS: usize = 64;
/// Longest path before the name, bytes.
pub const PREFIX_BYTES_MAX: usize = 256;
/// Words of a filter, of 64 bits.
const FILTER_WORDS: usize = 8192;
/// So many names a filter takes: one in some thirty that is not there seems to be then.
pub const FILTER_NAMES_MAX: u32 = 65_536;

/// So many of the latest records are looked through for one that is withdrawn.
const LATEST: u32 = 4;

/// Nobody has closed what the record makes, nor has the daemon executed it.
pub const RECORD_POSTED: u32 = 1;
/// It was closed before it was executed.
pub const RECORD_CLOSED: u32 = 2;
/// The daemon has made the description, or is about to.
pub const RECORD_OPENED: u32 = 3;

const NAME_WORDS: usize = NAME_BYTES_MAX.div_ceil(8);
const EPOCH: u64 = 1 << 32;

/// A create, as a process posts it.
#[derive(Debug, Clone, Copy)]
pub struct Create<'a> {
    /// The name, without a slash.
    pub name: &'a [u8],
    /// Flags of open.
    pub flags: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When and where.
    pub moment: Moment,
}

/// A record of a ring.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Record {
    /// `RECORD_*`.
    pub state: AtomicU32,
    /// The promised description: written by the daemon.
    pub open_index: AtomicU32,
    /// Its generation.
    pub open_generation: AtomicU32,
    /// Flags of open.
    pub flags: AtomicU32,
    /// Permission bits.
    pub mode: AtomicU32,
    /// Owner.
    pub uid: AtomicU32,
    /// Group.
    pub gid: AtomicU32,
    /// Length of the name, bytes.
    pub name_bytes: AtomicU32,
    /// When it was posted, by the processor's counter.
    pub cycles: AtomicU64,
    /// Processor on which that was, its number plus one; 0: not known.
    pub processor: AtomicU32,
    reserved: AtomicU32,
    /// The name, eight bytes to a word, little-endian.
    pub name: [AtomicU64; NAME_WORDS],
}

impl Record {
    fn write(&self, create: &Create<'_>) {
        self.flags.store(create.flags, Relaxed);
        self.mode.store(create.mode, Relaxed);
        self.uid.store(create.uid, Relaxed);
        self.gid.store(create.gid, Relaxed);
        self.name_bytes.store(create.name.len() as u32, Relaxed);
        self.cycles.store(create.moment.cycles, Relaxed);
        self.processor.store(create.moment.processor, Relaxed);
        write_bytes(&self.name, create.name);
        self.state.store(RECORD_POSTED, Relaxed);
    }

    /// The description that is promised with this place.
    #[must_use]
    pub fn promise(&self) -> OpenRef {
        let index = self.open_index.load(Relaxed);
        OpenRef { index, generation: self.open_generation.load(Relaxed) }
    }

    /// Promises a description.
    pub fn set_promise(&self, open: OpenRef) {
        self.open_index.store(open.index, Relaxed);
        self.open_generation.store(open.generation, Relaxed);
    }

    #[cfg(feature = "server")]
    /// Appends the name to `to`, as long as it says it is but not longer than a name can be.
    pub fn read_name(&self, to: &mut Vec<u8>) {
        let bytes = (self.name_bytes.load(Relaxed) as usize).min(NAME_BYTES_MAX);
        for word in &self.name[..bytes.div_ceil(8)] {
            to.extend_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        to.truncate(bytes);
    }

    /// The daemon executes the record; whether the description is wanted.
    #[must_use]
    pub fn execute(&self) -> bool {
        let opened = self.state.compare_exchange(RECORD_POSTED, RECORD_OPENED, SeqCst, Acquire);
        matches!(opened, Ok(_) | Err(RECORD_OPENED))
    }
}

/// Eight bytes to a word, little-endian, with zeros behind the last.
fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    whole.iter().copied().chain([last]).map(u64::from_le_bytes)
}

fn write_bytes(to: &[AtomicU64], bytes: &[u8]) {
    to.iter().zip(words_of(bytes)).for_each(|(to, word)| to.store(word, Relaxed));
}

/// The ring that a session may have.
#[must_use]
pub fn ring_of(session: u32) -> usize {
    session as usize % RINGS
}

/// What is before the last name of a path, with its slash, and that name.
#[must_use]
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    path.split_at_checked(slash).unwrap_or((b"", path))
}

/// A ring with its delegation.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Posts {
    /// Number of the delegation in the upper half; records published so far, modulo 2³², in the
    /// lower. Written by the process, and by the daemon that takes a delegation back.
    pub published: AtomicU64,
    apart: [AtomicU64; 7],
    /// The delegation that counts; 0: none. Written by the daemon, as all that follows.
    pub delegation: AtomicU32,
    /// Whose ring it is; 0: nobody's.
    pub session: AtomicU32,
    /// Records that were executed and committed.
    pub executed: AtomicU32,
    /// Records up to which descriptions are promised.
    pub promised: AtomicU32,
    /// Records that were executed in [`Posts::transaction`].
    pub stored: AtomicU32,
    reserved: AtomicU32,
    /// Transaction whose commit makes that true.
    pub transaction: AtomicU64,
    apart_from_delegation: [AtomicU64; 4],
    /// Where the path begins.
    pub start: AtomicU64,
    /// The directory to which that and the prefix lead.
    pub directory: AtomicU64,
    /// Length of the prefix, bytes.
    pub prefix_bytes: AtomicU32,
    reserved_too: AtomicU32,
    /// What is before the name, with its slash.
    prefix: [AtomicU64; PREFIX_BYTES_MAX / 8],
    /// The records.
    pub records: [Record; RECORDS],
    /// Of each name that may be there: a bit pattern in one word.
    filter: [AtomicU64; FILTER_WORDS],
}

/// Hash of a name, for the filter: FxHash's multiplication on eight bytes at a time, and a last
/// mixing since the filter takes its upper half.
fn hash_of(name: &[u8]) -> u64 {
    const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
    let hash = words_of(name)
        .fold(name.len() as u64, |hash, word| (hash.rotate_left(5) ^ word).wrapping_mul(FACTOR));
    (hash ^ hash >> 32).wrapping_mul(FACTOR)
}

/// The word of the filter, and its bits, that a name has.
fn in_filter(name: &[u8]) -> (usize, u64) {
    let hash = hash_of(name);
    let bits = 1 << (hash >> 16 & 63) | 1 << (hash >> 22 & 63) | 1 << (hash >> 28 & 63);
    ((hash >> 40) as usize % FILTER_WORDS, bits)
}

impl Posts {
    /// The delegation, if `session` has one for names behind this prefix.
    #[must_use]
    pub fn delegation_for(&self, session: u32, start: u64, prefix: &[u8]) -> Option<u32> {
        let delegation = self.delegation.load(Acquire);
        let same = delegation != 0
            && self.session.load(Relaxed) == session
            && self.start.load(Relaxed) == start
            && self.prefix_bytes.load(Relaxed) as usize == prefix.len()
            && self.has_prefix(prefix);
        same.then_some(delegation)
    }

    fn has_prefix(&self, prefix: &[u8]) -> bool {
        let mut words = self.prefix.iter().zip(words_of(prefix));
        prefix.len() < PREFIX_BYTES_MAX && words.all(|(word, said)| word.load(Relaxed) == said)
    }

    /// Posts a create under `delegation`; the description that is promised for it. `None` when it
    /// is to be asked for. One thread at a time.
    #[must_use]
    pub fn post(&self, delegation: u32, create: &Create<'_>) -> Option<OpenRef> {
        let seen = self.published.load(Acquire);
        let count = seen as u32;
        if (seen >> 32) as u32 != delegation || count == self.promised.load(Acquire) {
            return None;
        }
        let (word, bits) = in_filter(create.name);
        let word = &self.filter[word];
        if word.load(Relaxed) & bits == bits {
            return None;
        }
        word.fetch_or(bits, Relaxed);
        let record = &self.records[count as usize % RECORDS];
        record.write(create);
        // Another one may be promised as soon as the record is published.
        let promise = record.promise();
        let next = u64::from(delegation) << 32 | u64::from(count.wrapping_add(1));
        self.published.compare_exchange(seen, next, SeqCst, Relaxed).ok().map(|_| promise)
    }

    /// Closes what was posted a moment ago, before it is executed; false when it was not so lately,
    /// or was executed.
    #[must_use]
    pub fn withdraw(&self, open: OpenRef) -> bool {
        let count = self.published.load(Acquire) as u32;
        let latest = (1..=LATEST).map(|back| count.wrapping_sub(back) as usize % RECORDS);
        let mut records = latest.map(|place| &self.records[place]);
        let record = records.find(|record| record.promise() == open);
        record.is_some_and(|record| {
            record.state.compare_exchange(RECORD_POSTED, RECORD_CLOSED, SeqCst, Relaxed).is_ok()
        })
    }

    /// Records that were published since the node began, modulo 2³².
    #[must_use]
    pub fn count(&self) -> u32 {
        self.published.load(Relaxed) as u32
    }

    /// Records that were published and, as far as the daemon has said, not executed.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        (self.published.load(Relaxed) as u32).wrapping_sub(self.executed.load(Relaxed))
    }

    /// Nothing is posted any more under the present delegation.
    pub fn take_back(&self) {
        self.delegation.store(0, Relaxed);
        self.published.fetch_add(EPOCH, SeqCst);
    }

    /// The session may post, under another number than before it was taken back.
    pub fn give(&self) {
        let mut number = (self.published.load(SeqCst) >> 32) as u32;
        if number == 0 {
            self.published.fetch_add(EPOCH, SeqCst);
            number = 1;
        }
        self.delegation.store(number, Release);
    }

    /// Whose ring it is from now on, and for names behind which path.
    pub fn dedicate(&self, session: u32, start: u64, directory: u64, prefix: &[u8]) {
        self.session.store(session, Relaxed);
        self.start.store(start, Relaxed);
        self.directory.store(directory, Relaxed);
        self.prefix_bytes.store(prefix.len() as u32, Relaxed);
        write_bytes(&self.prefix, prefix);
    }

    /// The filter has no name.
    pub fn clear_filter(&self) {
        for word in self.filter.iter().filter(|word| word.load(Relaxed) != 0) {
            word.store(0, Relaxed);
        }
    }

    /// The filter has a name.
    pub fn add_name(&self, name: &[u8]) {
        let (word, bits) = in_filter(name);
        self.filter[word].fetch_or(bits, Relaxed);
    }
}

// What `docs/SHM.md` states.
const _: () = assert!(size_of::<Record>() == 320);
const _: () = assert!(size_of::<Posts>() == 90_112);
const _: () = assert!(core::mem::offset_of!(Posts, delegation) == 64);
const _: () = assert!(core::mem::offset_of!(Posts, transaction) == 88);
const _: () = assert!(core::mem::offset_of!(Posts, start) == 128);
const _: () = assert!(core::mem::offset_of!(Posts, records) == 448);
const _: () = assert!(core::mem::offset_of!(Posts, filter) == 20_928);

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    const SESSION: u32 = 7;
    const PREFIX: &[u8] = b"a/directory/";

    fn posts() -> Box<Posts> {
        // SAFETY: memory of that layout, from the allocator that the box gives it back to; it
        // consists of atomics, of which zeros are a value.
        let posts = unsafe {
            Box::from_raw(
                std::alloc::alloc_zeroed(std::alloc::Layout::new::<Posts>()).cast::<Posts>(),
            )
        };
        for (index, record) in (0..).zip(&posts.records) {
            record.set_promise(OpenRef { index, generation: 3 });
        }
        posts.promised.store(RECORDS as u32, Relaxed);
        posts.dedicate(SESSION, 1, 5, PREFIX);
        posts.give();
        posts
    }

    fn create(name: &str) -> Create<'_> {
        let (name, moment) = (name.as_bytes(), Moment { cycles: 7, processor: 1 });
        Create { name, flags: 0o101, mode: 0o644, uid: 1, gid: 2, moment }
    }

    fn delegation(posts: &Posts) -> Option<u32> {
        posts.delegation_for(SESSION, 1, PREFIX)
    }

    #[test]
    fn a_create_is_posted_with_its_name_and_the_promise_of_its_place() {
        let posts = posts();
        let given = delegation(&posts).expect("it was given");
        for (index, name) in (0..).zip(["f", "eight by", "nine byte", &"n".repeat(NAME_BYTES_MAX)])
        {
            let promise = posts.post(given, &create(name));
            assert_eq!(promise, Some(OpenRef { index, generation: 3 }), "{name}");
            let mut read = Vec::new();
            posts.records[index as usize].read_name(&mut read);
            assert_eq!(read, name.as_bytes());
        }
        assert_eq!((posts.count(), posts.waiting()), (4, 4));
    }

    #[test]
    fn nothing_is_posted_for_another_path_or_process() {
        let posts = posts();
        assert_eq!(posts.delegation_for(SESSION + 64, 1, PREFIX), None);
        assert_eq!(posts.delegation_for(SESSION, 2, PREFIX), None);
        for other in [&b"a/directory"[..], b"a/directory/b/", b"", b"b/directory/"] {
            assert_eq!(posts.delegation_for(SESSION, 1, other), None);
        }
    }

    #[test]
    fn a_name_that_is_there_or_was_posted_is_asked_for() {
        let posts = posts();
        let given = delegation(&posts).expect("it was given");
        posts.add_name(b"there");
        assert_eq!(posts.post(given, &create("there")), None);
        assert!(posts.post(given, &create("new")).is_some());
        assert_eq!(posts.post(given, &create("new")), None);
        posts.clear_filter();
        assert!(posts.post(given, &create("there")).is_some());
    }

    #[test]
    fn a_full_ring_takes_nothing_until_places_are_free() {
        let posts = posts();
        let given = delegation(&posts).expect("it was given");
        let names: Vec<String> = (0..=RECORDS).map(|number| format!("f{number}")).collect();
        for name in &names[..RECORDS] {
            assert!(posts.post(given, &create(name)).is_some());
        }
        assert_eq!(posts.post(given, &create(&names[RECORDS])), None);
        posts.promised.fetch_add(1, Relaxed);
        assert!(posts.post(given, &create("one more")).is_some());
    }

    #[test]
    fn nothing_is_posted_after_a_delegation_was_taken_back() {
        let posts = posts();
        let given = delegation(&posts).expect("it was given");
        posts.take_back();
        assert_eq!((delegation(&posts), posts.post(given, &create("late"))), (None, None));
        posts.give();
        assert_eq!(posts.post(given, &create("later")), None, "that was another delegation");
        let again = delegation(&posts).expect("it was given again");
        assert!(posts.post(again, &create("now")).is_some());
        assert_eq!(posts.count(), 1);
    }

    #[test]
    fn either_the_process_closes_a_description_or_the_daemon_makes_it() {
        let posts = posts();
        let given = delegation(&posts).expect("it was given");
        let first = posts.post(given, &create("first")).expect("there is room");
        assert!(posts.withdraw(first) && !posts.withdraw(first));
        assert!(!posts.records[0].execute() && !posts.records[0].execute());
        let second = posts.post(given, &create("second")).expect("there is room");
        assert!(posts.records[1].execute());
        assert!(!posts.withdraw(second));
        assert!(posts.records[1].execute(), "and so does a daemon that is started again");
    }

    #[test]
    fn few_names_that_are_not_there_seem_to_be() {
        let posts = posts();
        for number in 0..FILTER_NAMES_MAX {
            posts.add_name(format!("file.{number}").as_bytes());
        }
        let seems = |name: String| {
            let (word, bits) = in_filter(name.as_bytes());
            posts.filter[word].load(Relaxed) & bits == bits
        };
        assert!((0..FILTER_NAMES_MAX).all(|number| seems(format!("file.{number}"))));
        let wrong = (0..10_000).filter(|number| seems(format!("other.{number}"))).count();
        assert!(wrong < 600, "{wrong} of 10000");
    }
}

//! Operations that nobody waits for: the ring in which a process posts them.
//!
//! A process that alone makes and removes the names of a directory may be *delegated* the
//! directory: it writes what is to be done into its ring, goes on, and the daemon executes what
//! stands in the rings before it answers anybody. So nothing that was posted may fail, and
//! everybody sees it who looks later:
//!
//! * **One word** has the number of the delegation and how many records were published. A record
//!   counts from the compare-and-swap that publishes it. The daemon takes a delegation back by
//!   adding to the number in that word: nothing is published after that, and what was before is
//!   executed. Nobody waits for the process, which may be stopped.
//! * **Names that are there** are in a table ([`names`]) that the daemon keeps; what the process
//!   has posted and may not be in it yet stands beside the records. A file is posted when its name
//!   is not there, its removal when it is.
//! * **Descriptions** are promised: each place of the ring has one that the daemon has set aside.
//!   What was posted is answered with it. Until the record was executed its state says
//!   [`OPEN_PROMISED`](crate::layout::OPEN_PROMISED), and who wants to use it asks the daemon for
//!   anything at all first. One that is closed before the record was executed is never made.
//! * **Content** of a small file goes with its record, as long as that was not executed: each place
//!   has room for it, and the word with the record's state says how much of it counts.
//! * **Who reads the records by himself** looks first whether any ring has something
//!   ([`NodeHead::posted`](crate::layout::NodeHead)), and asks then.
//!
//! Everything here but the table is written by processes that may write anything. The daemon bounds
//! each number that it reads and keeps its own copy of the delegation, of what it has executed and
//! of the promises.

pub mod names;
mod record;

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use mayfly_types::{OpenRef, limits::INLINE_BYTES_MAX};

use crate::words;
use names::{Names, Print, Standing};
#[cfg(feature = "server")]
pub use record::Asked;
use record::parts;
pub use record::{
    Create, RECORD_CLOSED, RECORD_OPENED, RECORD_POSTED, RECORD_REMOVES, Record, Removal,
};

/// Rings of a node. A session's is the one of its number's remainder, if nobody else has it.
pub const RINGS: usize = 64;
/// Records of a ring.
pub const RECORDS: usize = 64;
/// Longest path before the name, bytes.
pub const PREFIX_BYTES_MAX: usize = 256;
/// So many of the latest records are looked through for one that is withdrawn.
const LATEST: u32 = 4;

const EPOCH: u64 = 1 << 32;

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
    /// Records that were executed, the last of them in [`Posts::transaction`].
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
    /// The names that the latest records are about, by place: as a slot of the table has one that
    /// may be removed where it was made, and one that is to be asked for where it was removed.
    latest: [AtomicU64; RECORDS],
    /// The records.
    pub records: [Record; RECORDS],
    /// The names that are there, for what was executed.
    pub names: Names,
    /// The content of the files, by place.
    contents: [[AtomicU64; INLINE_BYTES_MAX / 8]; RECORDS],
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
        let mut words = self.prefix.iter().zip(words::of(prefix));
        prefix.len() < PREFIX_BYTES_MAX && words.all(|(word, said)| word.load(Relaxed) == said)
    }

    /// How a name stands for the process whose ring it is, when `count` records are published;
    /// none when it is not there.
    fn standing(&self, print: Print, count: u32) -> Option<Standing> {
        // What was executed is in the table, committed or not; others may have changed it since.
        let waiting = count.wrapping_sub(self.stored.load(Acquire)).min(RECORDS as u32);
        for back in 1..=waiting {
            let word = self.latest[count.wrapping_sub(back) as usize % RECORDS].load(Relaxed);
            match print.in_word(word) {
                Some(Standing::Plain) => return Some(Standing::Plain),
                // It was removed.
                Some(Standing::Asked) => return None,
                None => {}
            }
        }
        self.names.find(print)
    }

    /// The word that publishes, and the place of the next record, where something may be posted
    /// under `delegation`.
    fn next(&self, delegation: u32) -> Option<(u64, usize)> {
        let seen = self.published.load(Acquire);
        let count = seen as u32;
        let may = (seen >> 32) as u32 == delegation && count != self.promised.load(Acquire);
        may.then_some((seen, count as usize % RECORDS))
    }

    fn publish(&self, seen: u64) -> bool {
        let next = seen & !u64::from(u32::MAX) | u64::from((seen as u32).wrapping_add(1));
        self.published.compare_exchange(seen, next, SeqCst, Relaxed).is_ok()
    }

    /// Posts a create under `delegation`; the description that is promised for it. `None` when it
    /// is to be asked for. One thread at a time.
    #[must_use]
    pub fn post_create(&self, delegation: u32, create: &Create<'_>) -> Option<OpenRef> {
        let (seen, place) = self.next(delegation)?;
        let print = Print::of(create.name);
        if self.standing(print, seen as u32).is_some() {
            return None;
        }
        let record = &self.records[place];
        record.write_create(create);
        self.latest[place].store(print.word(Standing::Plain), Relaxed);
        // Another one may be promised as soon as the record is published.
        let promise = record.promise();
        self.publish(seen).then_some(promise)
    }

    /// Posts that a name goes; false when that is to be asked for. One thread at a time.
    #[must_use]
    pub fn post_removal(&self, delegation: u32, removal: &Removal<'_>) -> bool {
        let Some((seen, place)) = self.next(delegation) else { return false };
        let print = Print::of(removal.name);
        if self.standing(print, seen as u32) != Some(Standing::Plain) {
            return false;
        }
        self.records[place].write_removal(removal);
        self.latest[place].store(print.word(Standing::Asked), Relaxed);
        self.publish(seen)
    }

    /// The record with which a description was promised, if it was posted a moment ago: its place
    /// and the state in which nobody has executed or closed it.
    fn posted_lately(&self, open: OpenRef) -> Option<(usize, u32)> {
        let count = self.published.load(Acquire) as u32;
        let latest = (1..=LATEST).map(|back| count.wrapping_sub(back) as usize % RECORDS);
        let place = latest.into_iter().find(|place| self.records[*place].promise() == open)?;
        let state = self.records[place].state.load(Acquire);
        (parts(state).0 == RECORD_POSTED).then_some((place, state))
    }

    /// Closes what was posted a moment ago, before it is executed; false when it was not so lately,
    /// or was executed.
    #[must_use]
    pub fn withdraw(&self, open: OpenRef) -> bool {
        self.posted_lately(open).is_some_and(|(place, state)| {
            self.records[place].change(state, RECORD_CLOSED, parts(state).1)
        })
    }

    /// Where content is added to a file that was posted a moment ago. `None` when it is too late
    /// for that.
    #[must_use]
    pub fn addition(&self, open: OpenRef) -> Option<Addition<'_>> {
        let (place, state) = self.posted_lately(open)?;
        Some(Addition { posts: self, place, state })
    }

    /// The content of a file that has so many bytes, in place of what `to` had.
    #[cfg(feature = "server")]
    pub fn read_content(&self, place: usize, bytes: usize, to: &mut Vec<u8>) {
        let bytes = bytes.min(INLINE_BYTES_MAX);
        to.clear();
        to.reserve(bytes);
        // SAFETY: the place has room for the longest content, and `to` for so much; any bytes are
        // a value of it, whoever writes them.
        unsafe {
            let from = self.contents[place].as_ptr().cast::<u8>();
            core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), bytes);
            to.set_len(bytes);
        }
    }

    /// Whether the last of `count` records makes a file that nobody has closed yet: its process may
    /// be about to add content.
    #[cfg(feature = "server")]
    #[must_use]
    pub fn is_last_open(&self, count: u32) -> bool {
        let last = &self.records[count.wrapping_sub(1) as usize % RECORDS];
        parts(last.state.load(Acquire)).0 == RECORD_POSTED
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
        words::write(&self.prefix, prefix);
    }
}

/// Content that is being added to a file that was posted.
#[derive(Debug)]
pub struct Addition<'a> {
    posts: &'a Posts,
    place: usize,
    state: u32,
}

impl Addition<'_> {
    fn record(&self) -> &Record {
        &self.posts.records[self.place]
    }

    /// Bytes that the file has.
    #[must_use]
    pub fn start(&self) -> usize {
        parts(self.state).1 as usize
    }

    /// Flags with which it was opened.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.record().flags.load(Relaxed)
    }

    /// Room for `bytes` more, which nobody reads before they are added. One thread at a time.
    #[must_use]
    pub fn room(&self, bytes: usize) -> Option<*mut u8> {
        let end = self.start().checked_add(bytes)?;
        let content = self.posts.contents[self.place].as_ptr().cast::<u8>().cast_mut();
        (end <= INLINE_BYTES_MAX).then(|| content.wrapping_add(self.start()))
    }

    /// The file has `bytes` more, which stand in the room; false when it was executed before that.
    #[must_use]
    pub fn add(self, bytes: usize, cycles: u64) -> bool {
        self.record().changed_cycles.store(cycles, Relaxed);
        let content = (self.start() + bytes) as u32;
        self.record().change(self.state, RECORD_POSTED, content)
    }
}

// What `docs/SHM.md` states.
const _: () = assert!(size_of::<Posts>() == 1_335_296);
const _: () = assert!(core::mem::offset_of!(Posts, delegation) == 64);
const _: () = assert!(core::mem::offset_of!(Posts, transaction) == 88);
const _: () = assert!(core::mem::offset_of!(Posts, start) == 128);
const _: () = assert!(core::mem::offset_of!(Posts, latest) == 408);
const _: () = assert!(core::mem::offset_of!(Posts, records) == 960);
const _: () = assert!(core::mem::offset_of!(Posts, names) == 21_440);
const _: () = assert!(core::mem::offset_of!(Posts, contents) == 1_070_080);

#[cfg(all(test, feature = "server"))]
mod tests {
    use mayfly_sys::arch::Moment;
    use mayfly_types::limits::NAME_BYTES_MAX;

    use super::{names::Tally, *};

    const SESSION: u32 = 7;
    const PREFIX: &[u8] = b"a/directory/";

    fn posts_and_tally() -> (Box<Posts>, Tally) {
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
        let mut tally = Tally::default();
        assert!(posts.names.lay_out(&mut tally, 0));
        posts.give();
        (posts, tally)
    }

    fn posts() -> Box<Posts> {
        posts_and_tally().0
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
            let promise = posts.post_create(given, &create(name));
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

    fn put(posts: &Posts, tally: &mut Tally, name: &str, standing: Standing) {
        assert!(posts.names.put(tally, Print::of(name.as_bytes()), standing));
    }

    fn remove(posts: &Posts, given: u32, name: &str) -> bool {
        let (name, moment) = (name.as_bytes(), Moment { cycles: 7, processor: 1 });
        posts.post_removal(given, &Removal { name, moment })
    }

    #[test]
    fn a_name_that_is_there_or_was_posted_is_asked_for() {
        let (posts, mut tally) = posts_and_tally();
        let given = delegation(&posts).expect("it was given");
        put(&posts, &mut tally, "there", Standing::Plain);
        assert_eq!(posts.post_create(given, &create("there")), None);
        assert!(posts.post_create(given, &create("new")).is_some());
        assert_eq!(posts.post_create(given, &create("new")), None);
        posts.names.remove(&mut tally, Print::of(b"there"));
        assert!(posts.post_create(given, &create("there")).is_some());
    }

    #[test]
    fn a_name_is_removed_that_is_there_or_was_posted_and_no_other() {
        let (posts, mut tally) = posts_and_tally();
        let given = delegation(&posts).expect("it was given");
        put(&posts, &mut tally, "there", Standing::Plain);
        put(&posts, &mut tally, "directory", Standing::Asked);
        assert!(!remove(&posts, given, "nowhere") && !remove(&posts, given, "directory"));
        assert!(remove(&posts, given, "there") && !remove(&posts, given, "there"));
        for _ in 0..3 {
            assert!(posts.post_create(given, &create("there")).is_some());
            assert!(remove(&posts, given, "there") && !remove(&posts, given, "there"));
        }
        assert_eq!(posts.records[0].execute(), Asked::Removal);
        // What was executed counts as the table has it.
        posts.stored.store(posts.count(), Relaxed);
        assert!(remove(&posts, given, "there"));
    }

    #[test]
    fn content_goes_with_its_file_until_that_is_executed_or_closed() {
        let posts = posts();
        let given = delegation(&posts).expect("it was given");
        let add = |open, bytes: &[u8]| {
            let addition = posts.addition(open)?;
            let room = addition.room(bytes.len())?;
            // SAFETY: room for so many bytes in a ring that nobody else knows.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), room, bytes.len()) };
            addition.add(bytes.len(), 9).then_some(())
        };
        let first = posts.post_create(given, &create("first")).expect("there is room");
        assert!(add(first, b"some ").is_some() && add(first, b"content").is_some());
        assert!(add(first, &[0; INLINE_BYTES_MAX - 11]).is_none(), "more than a record takes");
        assert_eq!(posts.records[0].execute(), Asked::File { open: true, bytes: 12 });
        assert!(add(first, b"late").is_none());
        let mut content = vec![1, 2];
        posts.read_content(0, 12, &mut content);
        assert_eq!(content, b"some content");
        let second = posts.post_create(given, &create("second")).expect("there is room");
        assert!(add(second, b"x").is_some() && posts.withdraw(second));
        assert!(add(second, b"y").is_none());
        assert_eq!(posts.records[1].execute(), Asked::File { open: false, bytes: 1 });
    }

    #[test]
    fn a_full_ring_takes_nothing_until_places_are_free() {
        let posts = posts();
        let given = delegation(&posts).expect("it was given");
        let names: Vec<String> = (0..=RECORDS).map(|number| format!("f{number}")).collect();
        for name in &names[..RECORDS] {
            assert!(posts.post_create(given, &create(name)).is_some());
        }
        assert_eq!(posts.post_create(given, &create(&names[RECORDS])), None);
        posts.promised.fetch_add(1, Relaxed);
        assert!(posts.post_create(given, &create("one more")).is_some());
    }

    #[test]
    fn nothing_is_posted_after_a_delegation_was_taken_back() {
        let posts = posts();
        let given = delegation(&posts).expect("it was given");
        posts.take_back();
        assert_eq!((delegation(&posts), posts.post_create(given, &create("late"))), (None, None));
        posts.give();
        assert_eq!(posts.post_create(given, &create("later")), None, "that was another delegation");
        let again = delegation(&posts).expect("it was given again");
        assert!(posts.post_create(again, &create("now")).is_some());
        assert_eq!(posts.count(), 1);
    }

    #[test]
    fn either_the_process_closes_a_description_or_the_daemon_makes_it() {
        let posts = posts();
        let given = delegation(&posts).expect("it was given");
        let first = posts.post_create(given, &create("first")).expect("there is room");
        assert!(posts.withdraw(first) && !posts.withdraw(first));
        let closed = Asked::File { open: false, bytes: 0 };
        assert!(posts.records[0].execute() == closed && posts.records[0].execute() == closed);
        let second = posts.post_create(given, &create("second")).expect("there is room");
        let opened = Asked::File { open: true, bytes: 0 };
        assert_eq!(posts.records[1].execute(), opened);
        assert!(!posts.withdraw(second));
        assert_eq!(
            posts.records[1].execute(),
            opened,
            "and so does a daemon that is started again"
        );
    }
}

//! What the kernel believes in a strict instance: names and attributes that are leased.
//!
//! The daemon leases a name to this mount (`daemon/src/leases/mount_names.rs`). Until the lease is
//! over by time the kernel may answer by itself. Before somebody else changes the name or its file,
//! this process is told, has the kernel forget, and says that it has.
//!
//! **No answer is late.** An answer that makes the kernel believe something is given under a lock
//! that shuts out recalls, and only if there was none since before the lease was asked for. So an
//! answer is written before the notice that takes it back, or not at all.
//!
//! **The kernel takes answers in by itself.** A first look at a name holds the lock of its
//! directory until the kernel has taken the answer in, and so does a listing. The notice waits for
//! that lock. A second look (`fuse_dentry_revalidate`) holds no lock: its answer may be taken in
//! after the notice. The thread that asked runs, or waits to run, until it has taken the answer in.
//! It does not sleep on the way, but for pages of the file, which procfs shows as another state.
//! So after the notice this process looks at the thread, and when that sleeps, or is gone, gives
//! the notice once more. Attributes need none of this: the kernel drops those that were asked for
//! before a notice (`attr_version`).
//!
//! **Time.** A lease counts from before it was asked for. What the kernel is told is a second
//! shorter, since it counts from when it takes the answer in.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use mayfly_types::{FileId, limits::MOUNT_NAMES_MAX};

/// Threads at a time whose second look at one name may not be taken in yet. Of more, the name is
/// believed for no time.
const LOOKS_MAX: usize = 8;
/// Names of which it is known that they were looked at, or refused.
const LOOKED_MAX: usize = 4096;
/// A file that is looked at again so soon is leased.
const AGAIN: Duration = Duration::from_secs(4);
/// A name that was not leased is asked for again after this.
const REFUSED: Duration = Duration::from_secs(1);
/// By so much less than its lease the kernel believes something.
const SHORTER: Duration = Duration::from_secs(1);

/// What a lease is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) directory: FileId,
    pub(crate) name: Box<[u8]>,
}

/// A leased name in an answer.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) key: Key,
    pub(crate) id: FileId,
    /// Where its `struct fuse_entry_out` begins, or its `struct fuse_attr_out`.
    pub(crate) at: usize,
    pub(crate) entry: bool,
    pub(crate) attributes: bool,
}

/// An answer by which the kernel will believe something.
#[derive(Debug)]
pub(crate) struct Promise {
    /// How many recalls there were before the lease was asked for.
    pub(crate) recalls: u64,
    pub(crate) until: Instant,
    /// Which thread looks, if it holds no lock for sure.
    pub(crate) thread: Option<u32>,
    pub(crate) names: Vec<Leased>,
}

#[derive(Debug)]
struct Belief {
    id: FileId,
    until: Instant,
    /// Threads that were answered.
    looks: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    hash: u64,
    at: Instant,
    refused: bool,
}

/// What the kernel believes, and what it may come to believe.
#[derive(Debug)]
pub(crate) struct Believed {
    /// The kernel knows the notice that is needed.
    possible: AtomicBool,
    /// Held by who answers, and, exclusively, by who recalls.
    answers: RwLock<()>,
    recalls: AtomicU64,
    names: Mutex<HashMap<Key, Belief>>,
    looked: Mutex<Vec<Option<Look>>>,
    /// When it was looked last which names are over.
    looked_at: Mutex<Option<Instant>>,
}

impl Default for Believed {
    fn default() -> Believed {
        Believed {
            possible: AtomicBool::new(false),
            answers: RwLock::default(),
            recalls: AtomicU64::default(),
            names: Mutex::default(),
            looked: Mutex::new(vec![None; LOOKED_MAX]),
            looked_at: Mutex::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Believed {
    pub(crate) fn make_possible(&self) {
        self.possible.store(true, Relaxed);
    }

    pub(crate) fn is_possible(&self) -> bool {
        self.possible.load(Relaxed)
    }

    /// To be called before a lease is asked for.
    pub(crate) fn recalls(&self) -> u64 {
        let _not_during_one = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        self.recalls.load(Relaxed)
    }

    /// Whether a name is worth a lease now: a directory at once, a file when it is looked at again.
    pub(crate) fn is_wanted(&self, hash: u64, is_directory: bool) -> bool {
        let mut looked = lock(&self.looked);
        let now = Instant::now();
        let Some(place) = looked.get_mut(hash as usize % LOOKED_MAX) else { return false };
        let before = place.filter(|look| look.hash == hash);
        if let Some(look) = before.filter(|look| look.refused)
            && now.duration_since(look.at) < REFUSED
        {
            return false;
        }
        let again = before.is_some_and(|look| now.duration_since(look.at) < AGAIN);
        if !is_directory {
            *place = Some(Look { hash, at: now, refused: false });
        }
        is_directory || again
    }

    /// The name was not leased.
    pub(crate) fn refused(&self, hash: u64) {
        let mut looked = lock(&self.looked);
        if let Some(place) = looked.get_mut(hash as usize % LOOKED_MAX) {
            *place = Some(Look { hash, at: Instant::now(), refused: true });
        }
    }

    /// Gives an answer, in which times are put as far as the promise holds.
    pub(crate) fn answer(&self, promise: &Promise, body: &mut [u8], give: impl FnOnce(&[u8])) {
        let _no_recall = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let valid = promise.until.saturating_duration_since(now + SHORTER);
        if self.recalls.load(Relaxed) == promise.recalls && !valid.is_zero() {
            let mut names = lock(&self.names);
            if names.len() + promise.names.len() > MOUNT_NAMES_MAX {
                self.drop_over(&mut names, now);
            }
            for leased in &promise.names {
                if names.len() < MOUNT_NAMES_MAX && note(&mut names, promise, leased, now) {
                    put_times(body, leased, valid);
                }
            }
        }
        give(body);
    }

    /// Takes out what is over, once in a while: all names are looked at.
    fn drop_over(&self, names: &mut HashMap<Key, Belief>, now: Instant) {
        let mut looked_at = lock(&self.looked_at);
        if looked_at.is_none_or(|last| now.saturating_duration_since(last) >= SHORTER) {
            *looked_at = Some(now);
            names.retain(|_, belief| now < belief.until);
        }
    }

    /// A name is recalled: which file the kernel may believe it to be, if it was told, and the
    /// threads that may not have taken it in. No answer makes the kernel believe it from here on.
    pub(crate) fn recall(&self, key: &Key) -> Option<(FileId, Vec<u32>)> {
        let _no_answer = self.answers.write().unwrap_or_else(PoisonError::into_inner);
        self.recalls.fetch_add(1, Relaxed);
        lock(&self.names).remove(key).map(|belief| (belief.id, belief.looks))
    }

    /// All that the kernel believes is recalled.
    pub(crate) fn recall_all(&self) -> Vec<(Key, FileId, Vec<u32>)> {
        let _no_answer = self.answers.write().unwrap_or_else(PoisonError::into_inner);
        self.recalls.fetch_add(1, Relaxed);
        let all = std::mem::take(&mut *lock(&self.names));
        all.into_iter().map(|(key, belief)| (key, belief.id, belief.looks)).collect()
    }
}

/// Notes what the kernel is about to believe; false when it must not.
fn note(
    names: &mut HashMap<Key, Belief>,
    promise: &Promise,
    leased: &Leased,
    now: Instant,
) -> bool {
    let fresh = || Belief { id: leased.id, until: promise.until, looks: Vec::new() };
    let belief = names.entry(leased.key.clone()).or_insert_with(fresh);
    if now >= belief.until {
        belief.looks.clear();
    }
    if let Some(thread) = promise.thread
        && !belief.looks.contains(&thread)
    {
        if belief.looks.len() >= LOOKS_MAX {
            return false;
        }
        belief.looks.push(thread);
    }
    belief.until = belief.until.max(promise.until);
    belief.id = leased.id;
    true
}

fn put_times(body: &mut [u8], leased: &Leased, valid: Duration) {
    let mut put = |seconds_at: usize, nanoseconds_at: usize| {
        let seconds = leased.at + seconds_at;
        if let Some(to) = body.get_mut(seconds..seconds + 8) {
            to.copy_from_slice(&valid.as_secs().to_ne_bytes());
        }
        let nanoseconds = leased.at + nanoseconds_at;
        if let Some(to) = body.get_mut(nanoseconds..nanoseconds + 4) {
            to.copy_from_slice(&valid.subsec_nanos().to_ne_bytes());
        }
    };
    match (leased.entry, leased.attributes) {
        (true, attributes) => {
            put(16, 32);
            if attributes {
                put(24, 36);
            }
        }
        (false, true) => put(0, 8),
        (false, false) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise(believed: &Believed, thread: u32, lasts: Duration) -> Promise {
        let key = Key { directory: FileId(1), name: (*b"a").into() };
        let leased = Leased { key, id: FileId(9), at: 0, entry: true, attributes: false };
        Promise {
            recalls: believed.recalls(),
            until: Instant::now() + lasts,
            thread: Some(thread),
            names: vec![leased],
        }
    }

    fn seconds(believed: &Believed, promise: &Promise) -> u64 {
        let (mut body, mut told) = ([0; 128], 0);
        believed.answer(promise, &mut body, |body| {
            told = u64::from_ne_bytes(body[16..24].try_into().expect("eight bytes"));
            assert_eq!(body[24..32], [0; 8], "attributes are not leased");
        });
        told
    }

    const LONG: Duration = Duration::from_millis(4500);

    #[test]
    fn an_answer_that_a_recall_has_overtaken_is_believed_for_no_time() {
        let believed = Believed::default();
        let first = promise(&believed, 3, LONG);
        assert_eq!(seconds(&believed, &first), 3, "a second less");
        let late = promise(&believed, 4, LONG);
        let key = &first.names[0].key;
        assert_eq!(believed.recall(key), Some((FileId(9), vec![3])));
        assert_eq!(seconds(&believed, &late), 0);
        assert_eq!(believed.recall(key), None);
    }

    #[test]
    fn an_answer_that_comes_after_the_lease_is_believed_for_no_time() {
        let believed = Believed::default();
        assert_eq!(seconds(&believed, &promise(&believed, 3, SHORTER)), 0);
    }

    #[test]
    fn of_many_threads_that_look_at_one_name_some_believe_it_for_no_time() {
        let believed = Believed::default();
        let told = |thread| seconds(&believed, &promise(&believed, thread, LONG));
        assert!((0..LOOKS_MAX as u32).all(|thread| told(thread) == 3));
        assert_eq!(told(100), 0);
        assert_eq!(told(1), 3, "it looks once more");
        assert_eq!(believed.recall_all().len(), 1);
        assert_eq!(told(100), 3);
    }

    #[test]
    fn a_file_is_wanted_when_it_is_looked_at_again_and_what_was_refused_later() {
        let believed = Believed::default();
        assert!(!believed.is_wanted(5, false) && believed.is_wanted(5, false));
        assert!(believed.is_wanted(6, true));
        believed.refused(6);
        assert!(!believed.is_wanted(6, true));
    }
}

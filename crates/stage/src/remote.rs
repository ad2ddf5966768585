//! Processes on other nodes, among which a tree is dealt out.
//!
//! A thread here stands for each of their threads: it takes what is next from the queue, has it
//! done there, and does itself what they hand back. One that falls silent is left; what it was at
//! is done here, under other temporary names, so that it may come to life again and does no harm.
//!
//! [`words`] is what both sides say to each other, and [`worker`] the process on the other node.

mod deal;
pub(crate) mod words;
pub(crate) mod worker;

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs,
    io::{self, Read},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use nix::errno::Errno;

use words::{Begin, Done, Down, Seen, Up, What};

use crate::{
    Cancel, Counts, Problem,
    copy::{kind::Kind, whole},
    walk::{queue::Names, tree::os},
};

/// Who copies says so often that it goes on.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// Who is silent for so long is left.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(30);
/// Whoever waits for an answer looks so often whether the other side lives.
const NAP: Duration = Duration::from_millis(100);
/// Who is told that nothing more comes ends within that time, or is not waited for.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// Who was started says within that time what he sees of a tree; he may wait for what is left of an
/// earlier try.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// A process on another node that copies what it is told to.
#[derive(Debug)]
pub struct Worker {
    name: String,
    /// In its temporary names.
    node: AtomicU32,
    pub(crate) link: Arc<Link>,
}

/// The way to it.
#[derive(Debug)]
pub(crate) struct Link {
    to: Mutex<UnixStream>,
    /// Who waits for an answer, by its number.
    waiting: Mutex<HashMap<u64, SyncSender<Done>>>,
    sees: Mutex<Option<SyncSender<Result<Seen, String>>>>,
    heard: Mutex<Instant>,
    /// Nothing more is asked of it.
    gone: AtomicBool,
    /// Its line is at its end.
    ended: AtomicBool,
    next: AtomicU64,
    counts: Mutex<Counts>,
}

impl Worker {
    /// The process called `name` at the other end of `line`, which ends when this is dropped.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn new(name: String, line: UnixStream) -> io::Result<Worker> {
        let from = line.try_clone()?;
        let link = Arc::new(Link {
            to: Mutex::new(line),
            waiting: Mutex::default(),
            sees: Mutex::default(),
            heard: Mutex::new(Instant::now()),
            gone: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            next: AtomicU64::new(0),
            counts: Mutex::default(),
        });
        let listener = Arc::clone(&link);
        thread::spawn(move || listener.listen(from));
        let voice = Arc::clone(&link);
        thread::spawn(move || {
            while !voice.is_gone() {
                voice.say(&Down::Alive);
                thread::sleep(ALIVE_EVERY);
            }
        });
        Ok(Worker { name, node: AtomicU32::new(0), link })
    }

    /// How it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What was done there.
    pub(crate) fn counts(&self) -> Counts {
        self.link.counts.lock().map(|counts| *counts).unwrap_or_default()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.link.is_gone()
    }

    /// Begins a tree there: what it sees of both sides.
    fn begin(&self, begin: Begin, cancel: &Cancel) -> Result<Seen, String> {
        let (sender, receiver) = mpsc::sync_channel(1);
        if let Ok(mut sees) = self.link.sees.lock() {
            *sees = Some(sender);
        }
        self.node.store(begin.node, Relaxed);
        // It may have been started just now, through a login.
        self.link.hear();
        self.link.say(&Down::Begin(Box::new(begin)));
        let until = Instant::now() + BEGINS_WITHIN;
        self.link
            .wait(&receiver, cancel, Some(until))
            .unwrap_or_else(|| Err("it does not answer".to_owned()))
    }
}

impl Drop for Worker {
    /// What it has begun and not ended, it removes.
    fn drop(&mut self) {
        self.link.end();
        let until = Instant::now() + ENDS_WITHIN;
        while !self.link.ended.load(Acquire) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Link {
    fn is_gone(&self) -> bool {
        self.gone.load(Acquire)
    }

    fn hear(&self) {
        if let Ok(mut heard) = self.heard.lock() {
            *heard = Instant::now();
        }
    }

    fn listen(&self, mut from: impl Read) {
        while let Ok(Some(word)) = words::read::<Up>(&mut from) {
            self.hear();
            match word {
                Up::Alive => {}
                Up::Sees(seen) => {
                    if let Some(sees) = self.sees.lock().ok().and_then(|mut sees| sees.take()) {
                        let _ = sees.try_send(seen);
                    }
                }
                Up::Done(done) => {
                    let waiting = self.waiting.lock().ok().and_then(|mut all| all.remove(&done.id));
                    if let Some(waiting) = waiting {
                        let _ = waiting.try_send(*done);
                    }
                }
            }
        }
        self.leave();
        self.ended.store(true, Release);
    }

    /// Has it give up what it is at.
    fn end(&self) {
        self.leave();
        if let Ok(line) = self.to.lock() {
            let _ = line.shutdown(Shutdown::Write);
        }
    }

    /// Nothing more is asked of it.
    fn leave(&self) {
        self.gone.store(true, Release);
        if let Ok(mut waiting) = self.waiting.lock() {
            waiting.clear();
        }
        if let Ok(mut sees) = self.sees.lock() {
            *sees = None;
        }
    }

    fn say(&self, word: &Down) {
        let said = self.to.lock().map(|mut to| words::write(&mut *to, word));
        if !matches!(said, Ok(Ok(()))) {
            self.leave();
        }
    }

    /// None when it is gone, or falls silent, or the stage was ended, or it is too late.
    fn wait<T>(
        &self,
        answer: &mpsc::Receiver<T>,
        cancel: &Cancel,
        until: Option<Instant>,
    ) -> Option<T> {
        loop {
            match answer.recv_timeout(NAP) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    if cancel.is_cancelled() {
                        self.end();
                        return None;
                    }
                    let heard = self.heard.lock().map(|heard| heard.elapsed());
                    let is_late = until.is_some_and(|until| Instant::now() > until);
                    if self.is_gone() || is_late || heard.is_ok_and(|silent| silent > SILENT_MAX) {
                        self.leave();
                        return None;
                    }
                }
            }
        }
    }

    pub(crate) fn ask(&self, cancel: &Cancel, word: impl FnOnce(u64) -> Down) -> Option<Done> {
        let id = self.next.fetch_add(1, AcqRel);
        let (sender, answer) = mpsc::sync_channel(1);
        self.waiting.lock().ok()?.insert(id, sender);
        if self.is_gone() {
            self.leave();
            return None;
        }
        self.say(&word(id));
        let done = self.wait(&answer, cancel, None)?;
        if let Ok(mut counts) = self.counts.lock() {
            counts.add(&done.counts);
        }
        Some(done)
    }
}

/// What all nodes read, as long as it is here.
struct Token {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Token {
    fn make(stage: u64, destination: &Path) -> io::Result<Token> {
        let name = whole::temporary_name((stage, 0), OsStr::new("token"));
        let path = crate::walk::tree::split(destination).0.join(os(&name));
        let bytes = format!("{stage:016x}").into_bytes();
        fs::write(&path, &bytes)?;
        Ok(Token { path, bytes })
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl From<Problem> for What {
    fn from(problem: Problem) -> What {
        match problem {
            // Whoever tells it knows the path.
            Problem::Failed { doing, errno } | Problem::NotMade { doing, errno } => {
                What::Failed(doing.to_owned(), errno as i32)
            }
            Problem::Changing => What::Changing,
            Problem::Differs => What::Differs,
            Problem::Special(what) => What::Special(what.to_owned()),
            Problem::Open => What::Open,
            Problem::Loop => What::Loop,
            // Other nodes copy between directories only.
            Problem::NoKey => What::Failed("name it".to_owned(), Errno::EILSEQ as i32),
            Problem::Store { doing, .. } => What::Failed(doing.to_owned(), Errno::EIO as i32),
            Problem::Ended => What::Ended,
        }
    }
}

impl Names {
    /// Is one of them known to be a directory?
    fn has_directories(&self) -> bool {
        self.iter().any(|(kind, _)| kind == Some(Kind::Directory))
    }
}

/// Those that took part, and for how much.
pub(crate) fn shares<'a>(workers: impl Iterator<Item = &'a Worker>) -> Vec<(String, Counts)> {
    workers.map(|worker| (worker.name.clone(), worker.counts())).collect()
}

const _: () = assert!(SILENT_MAX.as_secs() > ALIVE_EVERY.as_secs());

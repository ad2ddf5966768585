//! A process that copies on another node what it is told to.
//!
//! Who deals out reads the directories and makes those of the destination; here files are copied,
//! in batches, and parts of large ones. What needs a look at more than one file (those with several
//! names, large ones as a whole, directories) is handed back.

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    fs::File,
    io::{self, Read, Write},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{Flock, FlockArg, OFlag, openat},
    sys::stat::Mode,
};

use crate::{
    Cancel, Counts, Note, Options, Problem, Selection, Wanted, Watcher,
    copy::{parts::Large, settle::Stat, sync::sync, whole},
    remote::{
        ALIVE_EVERY, SILENT_MAX,
        words::{self, Begin, Done, Down, Event, Seen, Spot, Up, What},
    },
    stager::{PIECE_BYTES, Stager, prepare_process},
    walk::{
        queue::Names,
        tree::{Dir, Tree, open_above, os, split},
    },
};

/// An earlier process of the same stage ends within that time.
const EARLIER_MAX: Duration = Duration::from_secs(10);
/// So many directories are kept open by a thread.
const DIRECTORIES_MAX: usize = 64;

/// Copies what it is told to until nothing more comes; `root` is this node's place of what every
/// node has at a place of its own, and in the directory `locks` those of one stage exclude each
/// other: whoever has started one that was killed may start it again at once.
///
/// # Errors
/// Who deals out says what makes no sense, or cannot be spoken to.
pub fn work(
    mut from: impl Read,
    to: impl Write + Send + 'static,
    root: Option<PathBuf>,
    locks: Option<&Path>,
) -> io::Result<()> {
    prepare_process();
    let to: Voice = Arc::new(Mutex::new(Box::new(to)));
    let (over, alive) = mpsc::channel::<()>();
    let voice = Arc::clone(&to);
    let cancel = Cancel::default();
    let heard = Arc::new(Mutex::new(Instant::now()));
    let (last, over_all) = (Arc::clone(&heard), cancel.clone());
    let ticker = thread::spawn(move || {
        while alive.recv_timeout(ALIVE_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            let silent = last.lock().is_ok_and(|last| last.elapsed() > SILENT_MAX);
            if silent || say(&voice, &Up::Alive).is_err() {
                // The machine of who deals out is gone, or cannot be reached.
                over_all.cancel();
            }
        }
    });
    let mut hands: Vec<thread::JoinHandle<()>> = Vec::new();
    let mut deal: Option<mpsc::Sender<Down>> = None;
    let mut lock = None;
    let ended = loop {
        let word = match words::read::<Down>(&mut from) {
            Ok(Some(word)) => word,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        if let Ok(mut heard) = heard.lock() {
            *heard = Instant::now();
        }
        match word {
            Down::Alive => {}
            Down::Begin(begin) => {
                drop(deal.take());
                hands.drain(..).for_each(|hand| drop(hand.join()));
                if begin.idle {
                    let _ = crate::stand_back();
                }
                // One at a time: this one's own goes first.
                drop(lock.take());
                let task = Arc::new(Task::new(&begin, root.clone()));
                let seen = Lock::take(locks, begin.stage).and_then(|taken| {
                    lock = taken;
                    task.look(&begin)
                });
                say(&to, &Up::Sees(seen))?;
                let (sender, receiver) = mpsc::channel();
                deal = Some(sender);
                let jobs = Arc::new(Mutex::new(receiver));
                for _ in 0..begin.streams.clamp(1, crate::STREAMS_MAX) {
                    let (task, jobs) = (Arc::clone(&task), Arc::clone(&jobs));
                    let (to, cancel) = (Arc::clone(&to), cancel.clone());
                    hands.push(thread::spawn(move || task.work(&jobs, &to, &cancel)));
                }
            }
            word => {
                if deal.as_ref().is_none_or(|deal| deal.send(word).is_err()) {
                    break Err(io::Error::other("nothing was begun"));
                }
            }
        }
    };
    // What is under way is given up: who deals out does it, or has ended.
    cancel.cancel();
    drop(deal);
    hands.drain(..).for_each(|hand| drop(hand.join()));
    drop(over);
    let _ = ticker.join();
    ended
}

type Voice = Arc<Mutex<Box<dyn Write + Send>>>;

fn say(to: &Voice, word: &Up) -> io::Result<()> {
    let mut to = to.lock().map_err(|_| io::Error::other("a thread has panicked"))?;
    words::write(&mut **to, word)
}

/// Held while this node takes part in a stage.
struct Lock {
    _held: Flock<File>,
    path: PathBuf,
}

impl Lock {
    /// Waits for an earlier process of the same stage, which ends when its line does.
    fn take(locks: Option<&Path>, stage: u64) -> Result<Option<Lock>, String> {
        let Some(locks) = locks else { return Ok(None) };
        let path = locks.join(format!("{stage:016x}.hands"));
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(locks).map_err(failed)?;
        let until = Instant::now() + EARLIER_MAX;
        loop {
            let file = File::create(&path).map_err(failed)?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(held) => return Ok(Some(Lock { _held: held, path })),
                Err(_) if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
                Err(_) => return Err("an earlier try of this stage has not ended there".into()),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// One tree.
struct Task {
    options: Options,
    tree: Arc<Tree>,
    root: Option<PathBuf>,
    stage: u64,
    node: u32,
}

impl Task {
    fn new(begin: &Begin, root: Option<PathBuf>) -> Task {
        let pair = begin.pair(root.as_deref());
        let Begin { newer, touched, larger, smaller, .. } = *begin;
        let wanted = Wanted { newer, touched, larger, smaller, ..Wanted::default() };
        // Without patterns there is none that is bad.
        let selection = Selection::new(&wanted, &[]).unwrap_or_else(|_| unreachable!());
        let name = split(&pair.destination).1;
        let like = pair.like.as_deref().map(|like| split(like).1);
        let options = Options {
            wanted,
            changed: begin.changed,
            follow: begin.follow,
            verify: begin.verify,
            sync: begin.sync,
            bandwidth: begin.bandwidth,
            open: begin.open,
            ..Options::default()
        };
        let tree = Arc::new(Tree { pair, selection, began: begin.began, name, like });
        Task { options, tree, root, stage: begin.stage, node: begin.node }
    }

    /// What is seen of both sides.
    fn look(&self, begin: &Begin) -> Result<Seen, String> {
        let ours = env!("CARGO_PKG_VERSION");
        if begin.version != ours {
            return Err(format!("it has mayfly {ours}, and not {}", begin.version));
        }
        let pair = &self.tree.pair;
        let why = |path: &Path| {
            let path = path.display().to_string();
            move |errno: nix::errno::Errno| format!("{path}: {}", errno.desc())
        };
        let source = Stat::at(nix::fcntl::AT_FDCWD, &pair.source, true).map_err(why(&pair.source));
        let source = source.map(|stat| (stat.identity.1, stat.changed))?;
        let token = split(&pair.destination).0.join(os(&cstring(&begin.token)));
        let token =
            std::fs::read(&token).map_err(|error| format!("{}: {error}", token.display()))?;
        Ok(Seen { source, token })
    }

    /// A thread.
    fn work(&self, jobs: &Mutex<mpsc::Receiver<Down>>, to: &Voice, cancel: &Cancel) {
        let recorder = Recorder { root: self.root.clone(), events: Mutex::default() };
        let mut stager = Stager::new(&self.options, &recorder, cancel, self.stage);
        stager.hand_back(self.node);
        let mut hand = Hand {
            task: self,
            stager,
            recorder: &recorder,
            dirs: HashMap::new(),
            buffer: vec![0; PIECE_BYTES],
        };
        loop {
            let job = jobs.lock().ok().and_then(|jobs| jobs.recv().ok());
            let Some(done) = job.and_then(|job| hand.perform(job)) else { return };
            // Of what was given up nothing is said.
            if cancel.is_cancelled() || say(to, &Up::Done(Box::new(done))).is_err() {
                return;
            }
        }
    }

    /// What holds the tree.
    fn above(&self) -> Result<Dir, Problem> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let open = |path: &Path| nix::fcntl::open(path, flags, Mode::empty());
        let pair = &self.tree.pair;
        let doing = Problem::of("open the directory it is in");
        let source = open_above(&split(&pair.source).0).map_err(doing)?;
        let target = open(&split(&pair.destination).0);
        let target = target.map_err(Problem::of("open the directory of the destination"));
        let like = pair.like.as_deref().and_then(|like| open(&split(like).0).ok());
        Ok(Dir::above(Arc::clone(&self.tree), source, target, like))
    }
}

/// What is told meanwhile.
struct Recorder {
    root: Option<PathBuf>,
    events: Mutex<Vec<Event>>,
}

impl Watcher for Recorder {
    fn note(&self, note: Note<'_>) {
        let (path, what) = match note {
            Note::Failed(path, problem) | Note::LeftOut(path, problem) => (path, problem.into()),
            Note::NotKept(path, text) => (path, What::NotKept(text.to_owned())),
            // Of what is only told nothing is dealt out.
            Note::WouldCopy(..) | Note::WouldDelete(_) | Note::Without(..) => return,
        };
        if let Ok(mut events) = self.events.lock() {
            events.push(Event { path: Spot::of(path, self.root.as_deref()), what });
        }
    }

    fn progress(&self, _counts: &Counts, _nodes: &[(String, Counts)]) {}
}

/// What a thread has at hand.
struct Hand<'a> {
    task: &'a Task,
    stager: Stager<'a>,
    recorder: &'a Recorder,
    dirs: HashMap<PathBuf, Arc<Dir>>,
    buffer: Vec<u8>,
}

impl Hand<'_> {
    fn perform(&mut self, job: Down) -> Option<Done> {
        let mut done = match job {
            Down::Alive | Down::Begin(_) => return None,
            Down::Names { id, inner, is_named, names } => {
                let (left, made) = self.names(&inner, is_named, names);
                Done { id, left, made, ..Done::default() }
            }
            Down::Part { id, inner, name, temporary, part, still } => {
                let (name, temporary) = (cstring(&name), cstring(&temporary));
                let seen = (part, still.bytes);
                let dir = match &inner {
                    Some(inner) => self.dir(inner, true),
                    None => self.task.above().map(Arc::new),
                };
                let copied = dir.and_then(|dir| {
                    let of = |stat: &Stat| stat.still() == still;
                    self.part(&dir, &name, &temporary, seen, of)
                });
                if let Err(problem) = copied {
                    self.recorder.note(Note::Failed(&inner.unwrap_or_default(), problem));
                }
                Done { id, ..Done::default() }
            }
            Down::Sync { id } => {
                if let Err(problem) = self.task.above().and_then(|above| sync(&above)) {
                    self.recorder.note(Note::Failed(&self.task.tree.pair.destination, problem));
                }
                Done { id, ..Done::default() }
            }
        };
        done.counts = self.stager.notes.counters.take();
        if let Ok(mut events) = self.recorder.events.lock() {
            done.events = std::mem::take(&mut events);
        }
        Some(done)
    }

    /// Copies what can be copied here; the rest, and how many directories were made.
    fn names(&mut self, inner: &Path, is_named: bool, names: Vec<u8>) -> (Vec<u8>, usize) {
        let Ok(dir) = self.dir(inner, is_named) else { return (names, 0) };
        let was_new = dir.made_upwards();
        for (kind, name) in Names::of(names).iter() {
            self.stager.entry(&dir, (kind, name), &mut self.buffer);
        }
        (self.stager.take_handed_back(), dir.made_upwards().saturating_sub(was_new))
    }

    fn part(
        &mut self,
        dir: &Arc<Dir>,
        name: &CStr,
        temporary: &CStr,
        (part, bytes): (u64, u64),
        is_same: impl Fn(&Stat) -> bool,
    ) -> Result<(), Problem> {
        let source = self.stager.open(dir, name)?;
        let stat = Stat::of(&source).map_err(Problem::of("look at the file"))?;
        if stat.bytes != bytes || !is_same(&stat) {
            return Err(Problem::Changing);
        }
        let target = dir.existing_target().ok_or(Problem::Ended)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let target = openat(target, temporary, flags, Mode::empty())
            .map_err(Problem::of("open the file at the destination"))?;
        let own = (Arc::clone(dir), name.to_owned());
        let large = Large::begun(own, (source, stat), (target.into(), temporary.to_owned()));
        large.copy(part, &mut self.buffer, |bytes| self.stager.turn(bytes))?;
        if self.task.options.sync {
            large.sync()?;
        }
        whole::close(large.target).map_err(Problem::of("close the file"))
    }

    /// The directory with this path below the tree's own; what holds the tree is no such one.
    fn dir(&mut self, inner: &Path, is_named: bool) -> Result<Arc<Dir>, Problem> {
        if let Some(dir) = self.dirs.get(inner) {
            return Ok(Arc::clone(dir));
        }
        if self.dirs.len() >= DIRECTORIES_MAX {
            self.dirs.clear();
        }
        let dir = match inner.components().next_back() {
            Some(Component::Normal(name)) => {
                let parent = self.dir(inner.parent().unwrap_or(Path::new("")), is_named)?;
                self.below(&parent, &cstring(name.as_encoded_bytes()), is_named)?
            }
            _ => {
                let name = split(&self.task.tree.pair.source).1;
                let above = Arc::new(self.task.above()?);
                self.below(&above, &cstring(name.as_encoded_bytes()), is_named)?
            }
        };
        self.dirs.insert(inner.to_owned(), Arc::clone(&dir));
        Ok(dir)
    }

    fn below(&self, parent: &Arc<Dir>, name: &CStr, is_named: bool) -> Result<Arc<Dir>, Problem> {
        let source = self.stager.open_directory(parent, name)?;
        // Who deals out has looked at it.
        let dir = Dir::below(parent, os(name), source, Stat::unseen(), is_named);
        // It is never done here: who deals out gives it its times.
        dir.begin(usize::MAX / 2);
        let _ = dir.existing_target();
        Ok(Arc::new(dir))
    }
}

fn cstring(bytes: &[u8]) -> CString {
    // Names have no zeros; what has one names nothing.
    CString::new(bytes).unwrap_or_default()
}

//! The threads of a stage, and the directories that they walk through.
//!
//! [`tree`] holds the directories of a pair while something in them is left to do, [`queue`] deals
//! out what is left, and [`pace`] keeps to the bytes and files a second that were allowed. What is
//! copied at all is decided by patterns ([`select`]) or by a list ([`listed`]).
//!
//! **Invariants.** A directory is read once, and finished after all that is in it. A failure is
//! noted, and everything else goes on.

pub(crate) mod listed;
pub(crate) mod pace;
pub(crate) mod queue;
pub(crate) mod select;
pub(crate) mod tree;

use std::{
    collections::HashSet,
    ffi::{CStr, CString, OsStr, OsString},
    hash::{BuildHasher, Hasher, RandomState},
    iter,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    dir::{self, Type},
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::stat::{Mode, SFlag},
    unistd::{UnlinkatFlags, unlinkat},
};

use queue::{Entries, Names, Turn};
use tree::{Dir, Tree, make_all, open_above, os, split};

use crate::{
    BadPattern, Cancel, Journal, Note, Options, Pair, Report, STREAMS_MAX, Selection, Watcher,
    copy::{
        kind::Kind,
        parts::PART_BYTES,
        settle::{Moment, Stat, set_permissions, set_times},
        whole,
    },
    remote::{self, Worker},
    report::{Problem, counts::count},
    stager::{PIECE_BYTES, Stager, prepare_process, selections},
    xattrs,
};

/// Watchers are told so often how far it is.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Files that are open for writing, and waited for, are looked at so often.
const ASKED_EVERY: Duration = Duration::from_millis(200);
/// Who waits for them sees so soon that the stage was ended.
const NAP: Duration = Duration::from_millis(20);

/// Copies all pairs, one after the other.
///
/// # Errors
/// A pattern is none; nothing was done then.
pub fn stage(
    pairs: &[Pair],
    options: &Options,
    journal: &mut Journal,
    cancel: &Cancel,
    watcher: &dyn Watcher,
) -> Result<Report, BadPattern> {
    stage_with(&[], pairs, options, journal, cancel, watcher)
}

/// The same, with those of these processes on other nodes that see both sides of a pair.
///
/// # Errors
/// As [`stage`].
pub fn stage_with(
    workers: &[Worker],
    pairs: &[Pair],
    options: &Options,
    journal: &mut Journal,
    cancel: &Cancel,
    watcher: &dyn Watcher,
) -> Result<Report, BadPattern> {
    let selections = selections(pairs, options)?;
    prepare_process();
    let mut stager = Stager::new(options, watcher, cancel, journal.stage());
    stager.parts = journal.parts();
    for (pair, selection) in pairs.iter().zip(selections) {
        if cancel.is_cancelled() {
            break;
        }
        if let Some(above) = stager.begin(pair, selection, journal) {
            let joining = match options.dry_run {
                true => Vec::new(),
                false => stager.joining(workers, &above),
            };
            stager.work(&joining);
            stager.sync(&above, &joining);
        }
    }
    let mut report = stager.notes.report(cancel.is_cancelled());
    report.nodes = remote::shares(workers.iter());
    journal.finish(&report);
    Ok(report)
}

impl Stager<'_> {
    /// Finds both ends of a tree, and puts it into the queue; what holds it.
    fn begin(&self, pair: &Pair, selection: Selection, journal: &mut Journal) -> Option<Arc<Dir>> {
        let (source, source_name) = self.open_source(pair)?;
        let (target_dir, name) = split(&pair.destination);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let target = match self.options.dry_run {
            true => nix::fcntl::open(&target_dir, flags, Mode::empty())
                .map_err(Problem::of("open the directory of the destination")),
            false => make_all(&target_dir, self.options.above),
        };
        let target = match target {
            Err(problem) if !self.options.dry_run => {
                self.notes.problem(&pair.destination, problem);
                return None;
            }
            target => target,
        };
        let began = target.as_ref().ok().and_then(|target| {
            journal.began(&pair.destination, || {
                // What is there may be ours to write to where what holds it is not.
                let own = openat(target, name.as_os_str(), flags, Mode::empty()).ok();
                let own = own.and_then(|own| moment(own.as_fd(), self.stage));
                own.or_else(|| moment(target.as_fd(), self.stage))
            })
        });
        let like = pair.like.as_deref().map(split);
        let (like_dir, like) = like.map_or((None, None), |(dir, name)| (Some(dir), Some(name)));
        let like_dir = like_dir.and_then(|dir| nix::fcntl::open(&dir, flags, Mode::empty()).ok());
        let tree = Tree { pair: pair.clone(), selection, began, name, like };
        let dir = Arc::new(Dir::above(Arc::new(tree), source, target, like_dir));
        self.begin_at(&dir, &source_name);
        Some(dir)
    }

    /// What holds the source, and its name there; it is noted when that cannot be opened.
    pub(crate) fn open_source(&self, pair: &Pair) -> Option<(OwnedFd, OsString)> {
        let (directory, name) = split(&pair.source);
        match open_above(&directory) {
            Ok(source) => Some((source, name)),
            Err(errno) => {
                let problem = Problem::Failed { doing: "open the directory it is in", errno };
                self.notes.problem(&pair.source, problem);
                None
            }
        }
    }

    /// Puts the tree of this name in `above` into the queue.
    pub(crate) fn begin_at(&self, above: &Arc<Dir>, name: &OsStr) {
        let name = CString::new(name.as_encoded_bytes()).unwrap_or_default();
        let mut files = Names::default();
        files.push(None, &name);
        let entries = Entries { dir: Arc::clone(above), files, directories: Names::default() };
        self.queue.push_entries(entries);
    }

    pub(crate) fn work(&self, workers: &[&Worker]) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let teller = scope.spawn(|| {
                while !over.load(Relaxed) {
                    thread::park_timeout(PROGRESS_EVERY);
                    self.notes.progress(&remote::shares(workers.iter().copied()));
                }
            });
            self.second_look.store(false, Relaxed);
            self.all_threads(workers);
            while self.wait_for_writers() {
                self.all_threads(workers);
            }
            over.store(true, Relaxed);
            teller.thread().unpark();
        });
    }

    /// Until the queue is empty.
    fn all_threads(&self, workers: &[&Worker]) {
        let streams = self.options.streams.clamp(1, STREAMS_MAX);
        thread::scope(|scope| {
            for worker in workers.iter().flat_map(|worker| iter::repeat_n(*worker, streams)) {
                scope.spawn(move || self.remote_thread(worker));
            }
            for _ in 1..streams {
                scope.spawn(|| self.thread());
            }
            self.thread();
        });
    }

    /// Has the file copied when nobody has it open for writing.
    pub(crate) fn put_off(&self, dir: &Arc<Dir>, name: &CStr) {
        if let Ok(mut waiting) = self.waiting.lock() {
            waiting.push((Arc::clone(dir), name.to_owned()));
            self.notes.counters.waiting.store(waiting.len() as u64, Relaxed);
        }
    }

    /// Is everything that was put off looked at again?
    pub(crate) fn is_second_look(&self) -> bool {
        self.second_look.load(Relaxed)
    }

    /// Puts what was put off into the queue again, after a while; false when nothing was.
    fn wait_for_writers(&self) -> bool {
        let taken = self.waiting.lock().map(|mut waiting| std::mem::take(&mut *waiting));
        let waiting = taken.unwrap_or_default();
        if waiting.is_empty() {
            return false;
        }
        let until = Instant::now() + ASKED_EVERY;
        while !self.is_over() && Instant::now() < until {
            thread::sleep(NAP);
        }
        self.notes.counters.waiting.store(0, Relaxed);
        self.second_look.store(true, Relaxed);
        for (dir, name) in waiting {
            let mut files = Names::default();
            files.push(Some(Kind::File), &name);
            self.queue.push_entries(Entries { dir, files, directories: Names::default() });
        }
        true
    }

    fn thread(&self) {
        let mut buffer = vec![0; PIECE_BYTES];
        while let Some(turn) = self.queue.take() {
            match turn {
                Turn::Names(dir, names) => self.names(&dir, &names, &mut buffer),
                Turn::Part(large, part) => self.part(&large, part, &mut buffer),
            }
            self.queue.finish();
        }
    }

    /// Does what is to be done about names of a directory.
    pub(crate) fn names(&self, dir: &Arc<Dir>, names: &Names, buffer: &mut [u8]) {
        for (kind, name) in names.iter() {
            self.entry(dir, (kind, name), buffer);
        }
    }

    /// Was it ended?
    pub(crate) fn is_over(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// One entry of a directory is done; and with the last one the directory.
    pub(crate) fn end(&self, dir: &Arc<Dir>) {
        let mut dir = Arc::clone(dir);
        while dir.end() {
            self.settle(&dir);
            let Some(parent) = dir.parent() else { return };
            dir = Arc::clone(parent);
        }
    }

    /// All that is in the directory is done.
    fn settle(&self, dir: &Dir) {
        let (Some(stat), Some(target)) = (dir.stat(), dir.target_to_settle()) else { return };
        if self.options.dry_run || self.is_over() {
            return;
        }
        if dir.has_leftovers() {
            self.clear_temporaries(target);
        }
        let settled = self
            .extended_attributes(dir.source.as_fd(), target, || dir.own_path())
            .and_then(|()| {
                set_permissions(target, stat.permissions())
                    .map_err(Problem::of("set the permissions"))
            })
            .and_then(|()| set_times(target, stat).map_err(Problem::of("set the times")));
        if let Err(problem) = settled {
            self.notes.problem(&dir.own_path(), problem);
        }
    }

    /// Copies extended attributes; those that are not taken are named.
    pub(crate) fn extended_attributes(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        path: impl Fn() -> PathBuf,
    ) -> Result<(), Problem> {
        let copied = xattrs::copy(from, to, |name, errno| {
            let text = format!("the extended attribute {}: {errno}", name.to_string_lossy());
            self.notes.tell(Note::NotKept(&path(), &text));
        });
        copied.map_err(Problem::of("read the extended attributes"))
    }

    /// Walks into a directory: what is in it goes into the queue.
    pub(crate) fn directory(&self, parent: &Arc<Dir>, name: &CStr) -> Result<(), Problem> {
        let source = self.open_directory(parent, name)?;
        let stat = Stat::of(&source).map_err(Problem::of("look at the directory"))?;
        if self.options.follow && parent.leads_back_to(stat.identity) {
            return Err(Problem::Loop);
        }
        let selection = &parent.tree.selection;
        let inner = parent.inner_path(os(name));
        // The tree's own name is no pattern's.
        let is_named = selection.names_all() || !parent.is_above() && selection.names(&inner, true);
        let dir = Arc::new(Dir::below(parent, os(name), source, stat, is_named));
        // Made as soon as it is known to be wanted, so that an empty one is there too.
        let is_made = self.sink.is_none() && !self.options.dry_run;
        if dir.is_named && !selection.by_attributes() && is_made {
            dir.target()?;
        }
        count(&self.notes.counters.directories);
        self.list(&dir);
        Ok(())
    }

    /// Opens a directory of the source.
    pub(crate) fn open_directory(&self, parent: &Dir, name: &CStr) -> Result<OwnedFd, Problem> {
        let follow = parent.is_above() || self.options.follow;
        let link = if follow { OFlag::empty() } else { OFlag::O_NOFOLLOW };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | link;
        openat(&parent.source, name, flags, Mode::empty())
            .map_err(Problem::of("open the directory"))
    }

    fn list(&self, dir: &Arc<Dir>) {
        if !dir.is_named
            && let Some(listed) = dir.tree.selection.listed_in(&dir.own_inner_path())
        {
            return self.take_listed(dir, &listed);
        }
        let (mut files, mut directories, mut total) = (Names::default(), Names::default(), 0);
        let mut listed = Ok(());
        let copy = dir.source.try_clone().map_err(|_| Errno::EMFILE);
        match copy.and_then(dir::Dir::from_fd) {
            Ok(mut stream) => {
                for entry in stream.iter() {
                    match entry {
                        Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                        Ok(entry) => {
                            let kind = kind_of(entry.file_type());
                            let is_directory = kind == Some(Kind::Directory);
                            let names = if is_directory { &mut directories } else { &mut files };
                            names.push(kind, entry.file_name());
                            total += 1;
                        }
                        Err(errno) => listed = Err(errno),
                    }
                }
            }
            Err(errno) => listed = Err(errno),
        }
        if let Err(errno) = listed {
            let problem = Problem::Failed { doing: "read the directory", errno };
            self.notes.problem(&dir.own_path(), problem);
        }
        if total == 0 && self.sink.is_some() {
            self.notes.problem(&dir.own_path(), Problem::Special("empty directories"));
        }
        self.clear(dir, &[&files, &directories], listed.is_ok());
        self.deal_out(dir, total, files, directories);
    }

    /// So many names of a directory are to be done.
    fn deal_out(&self, dir: &Arc<Dir>, total: usize, files: Names, directories: Names) {
        dir.begin(total);
        self.queue.push_entries(Entries { dir: Arc::clone(dir), files, directories });
        // The listing itself.
        self.end(dir);
    }

    /// What is listed of a directory takes the place of what is in it.
    fn take_listed(&self, dir: &Arc<Dir>, listed: &[CString]) {
        let mut files = Names::default();
        listed.iter().for_each(|name| files.push(None, name));
        self.deal_out(dir, listed.len(), files, Names::default());
    }

    /// Removes at the destination what an earlier try has left, and with `--delete` what the source
    /// has not.
    fn clear(&self, dir: &Dir, there: &[&Names], is_whole: bool) {
        let delete = self.options.delete && is_whole;
        if !delete && dir.tree.began.is_none() {
            return;
        }
        let Some(target) = dir.existing_target() else { return };
        let kept: HashSet<&OsStr> =
            there.iter().flat_map(|names| names.iter()).map(|(_, name)| os(name)).collect();
        let names = match list_names(target) {
            Ok(names) => names,
            Err(errno) => {
                let problem = Problem::Failed { doing: "read the directory", errno };
                return self.notes.problem(&dir.own_path(), problem);
            }
        };
        for name in names {
            let text = os(&name);
            if whole::is_temporary(self.stage, text) {
                // A large one may go on where it was; what is not taken up goes at the end.
                match Stat::at(target, name.as_c_str(), false) {
                    Ok(stat) if stat.bytes > PART_BYTES => dir.leave_over(),
                    _ => drop(unlinkat(target, name.as_c_str(), UnlinkatFlags::NoRemoveDir)),
                }
            } else if delete && !kept.contains(text) {
                self.delete(dir, target, &name);
            }
        }
    }

    /// Removes what an earlier try has left when all of the directory is done.
    fn clear_temporaries(&self, target: BorrowedFd<'_>) {
        let names = list_names(target).unwrap_or_default();
        for name in names.iter().filter(|name| whole::is_temporary(self.stage, os(name))) {
            let _ = unlinkat(target, name.as_c_str(), UnlinkatFlags::NoRemoveDir);
        }
    }

    /// Removes a name at the destination that the patterns would have copied.
    fn delete(&self, dir: &Dir, target: BorrowedFd<'_>, name: &CStr) {
        let inner = dir.inner_path(os(name));
        let kind = Stat::at(target, name, false).map(|stat| stat.kind);
        let is_directory = kind == Ok(SFlag::S_IFDIR);
        let selection = &dir.tree.selection;
        let is_named = dir.is_named || selection.names(&inner, is_directory);
        if selection.leaves_out(&inner, is_directory) || !is_named {
            return;
        }
        let path = dir.target_path(os(name));
        if self.options.dry_run {
            return self.notes.tell(Note::WouldDelete(&path));
        }
        match remove(target, name) {
            Ok(()) => count(&self.notes.counters.deleted),
            Err(errno) => {
                let problem = Problem::Failed { doing: "remove it at the destination", errno };
                self.notes.problem(&path, problem);
            }
        }
    }
}

/// What a directory tells of the kind of an entry.
fn kind_of(told: Option<Type>) -> Option<Kind> {
    match told? {
        Type::Directory => Some(Kind::Directory),
        Type::File => Some(Kind::File),
        Type::Symlink => Some(Kind::Link),
        Type::Fifo => Some(Kind::Pipe),
        Type::Socket => Some(Kind::Special("sockets")),
        Type::CharacterDevice | Type::BlockDevice => Some(Kind::Special("devices")),
    }
}

/// The time as the file system of a directory gives it to a new file.
#[must_use]
pub fn now_at(directory: &Path) -> Option<Moment> {
    let stage = RandomState::new().build_hasher().finish();
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = nix::fcntl::open(directory, flags, Mode::empty()).ok()?;
    moment(directory.as_fd(), stage)
}

/// The time at the destination, as it gives it to a new file.
fn moment(directory: BorrowedFd<'_>, stage: u64) -> Option<(i64, i64)> {
    let name = whole::temporary_name((stage, 0), OsStr::new(""));
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let file = openat(directory, name.as_c_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR).ok()?;
    let stat = Stat::of(&file);
    let _ = unlinkat(directory, name.as_c_str(), UnlinkatFlags::NoRemoveDir);
    stat.ok().map(|stat| stat.changed)
}

fn open_directory(directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    openat(directory, name, flags, Mode::empty())
}

fn list_names(directory: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut stream = dir::Dir::from_fd(open_directory(directory, c".")?)?;
    let names = stream.iter().map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    names.retain(|name| !matches!(name.to_bytes(), b"." | b".."));
    Ok(names)
}

/// Removes a name, with all that is below it.
pub(crate) fn remove(directory: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR | Errno::EPERM) => {}
        other => return other,
    }
    let inner = open_directory(directory, name)?;
    for name in list_names(inner.as_fd())? {
        remove(inner.as_fd(), &name)?;
    }
    unlinkat(directory, name, UnlinkatFlags::RemoveDir)
}

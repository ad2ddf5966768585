//! One entry of a directory.

use std::{
    ffi::{CStr, CString, OsStr},
    fs::File,
    io::Read,
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat, renameat},
    sys::stat::{Mode, SFlag},
    unistd::{UnlinkatFlags, linkat, unlinkat},
};

use crate::{
    Note, Options, WhenOpen,
    bucket::sink::Sink,
    copy::{
        kind::{Done, Kind},
        links::{Claim, Name},
        settle::{Stat, set_permissions},
        whole::{Partial, failed, temporary_name},
    },
    report::{Problem, counts::count},
    stager::Stager,
    walk::tree::{Dir, os},
};

/// A file that changes while it is copied is copied again, so often.
const TRIES_MAX: u32 = 4;
/// Shorter files are not looked through for holes, bytes.
const PAGE_BYTES: u64 = 4096;
/// Permission bits that every write takes away.
const ODD_BITS: u32 = 0o7000;

impl Stager<'_> {
    /// Does what is to be done about a name, of this kind if that is known, and ends it.
    pub(crate) fn entry(
        &self,
        dir: &Arc<Dir>,
        (kind, name): (Option<Kind>, &CStr),
        buffer: &mut [u8],
    ) {
        let done = if self.is_over() { Ok(Done::Now) } else { self.look(dir, kind, name, buffer) };
        match done {
            Ok(Done::Now) => self.end(dir),
            Ok(Done::Later) => {}
            Err(problem) => {
                self.fail(dir, name, problem);
                self.end(dir);
            }
        }
    }

    pub(super) fn fail(&self, dir: &Dir, name: &CStr, problem: Problem) {
        if problem != Problem::Ended {
            self.notes.problem(&dir.path_of(os(name), &problem), problem);
        }
    }

    fn look(
        &self,
        dir: &Arc<Dir>,
        listed_kind: Option<Kind>,
        name: &CStr,
        buffer: &mut [u8],
    ) -> Result<Done, Problem> {
        let follow = dir.is_above() || self.options.follow;
        let listed_kind = listed_kind.filter(|kind| !(follow && *kind == Kind::Link));
        let stat = || Stat::at(&dir.source, name, follow).map_err(Problem::of("look at it"));
        let (kind, stat) = match listed_kind {
            // A file is looked at when it has been read.
            Some(kind @ Kind::File) if !self.needs_look(dir) => (kind, None),
            Some(kind @ Kind::Directory) => (kind, None),
            _ => stat().map(|stat| (Kind::of(stat.kind), Some(stat)))?,
        };
        let is_directory = kind == Kind::Directory;
        if !dir.is_above() && !self.is_wanted(dir, name, is_directory) {
            return Ok(Done::Now);
        }
        if is_directory && self.hands_back(Kind::Directory, name) {
            return Ok(Done::Now);
        }
        if is_directory {
            // It is ended with what is in it.
            return self.directory(dir, name).map(|()| Done::Later);
        }
        let listed = self.sink.as_ref().and_then(|sink| sink.listed(dir, name));
        if let Some(stat) = &stat {
            if self.options.changed && listed.is_some_and(|listed| Sink::is_same(listed, stat)) {
                count(&self.notes.counters.unchanged);
                return Ok(Done::Now);
            }
            if !dir.tree.selection.lets(stat) || self.is_unchanged(dir, name, stat) {
                return Ok(Done::Now);
            }
            if self.options.dry_run {
                return self.only_tell(dir, name, kind, stat);
            }
            if kind == Kind::File && self.is_taken_over(dir, name, stat) {
                return Ok(Done::Now);
            }
        }
        self.pace.file(|| self.is_over());
        match kind {
            Kind::Link if self.sink.is_some() => return Err(Problem::Special("symbolic links")),
            Kind::Pipe if self.sink.is_some() => return Err(Problem::Special("pipes")),
            _ => {}
        }
        match (kind, &stat) {
            (Kind::Link, Some(stat)) => self.link(dir, name, stat),
            (Kind::Pipe, Some(stat)) => self.pipe(dir, name, stat),
            (Kind::Special(what), _) => Err(Problem::Special(what)),
            _ => self.file(dir, name, (0, false), buffer),
        }
    }

    /// Have files to be looked at before it is known whether they are copied?
    fn needs_look(&self, dir: &Dir) -> bool {
        let Options { changed, dry_run, .. } = *self.options;
        let of_tree = dir.tree.began.is_some() || dir.tree.like.is_some();
        changed || dry_run || of_tree || dir.tree.selection.by_attributes()
    }

    /// Do the patterns let it be copied, or looked into?
    pub(crate) fn is_wanted(&self, dir: &Dir, name: &CStr, is_directory: bool) -> bool {
        let selection = &dir.tree.selection;
        if !selection.has_patterns() {
            return true;
        }
        let inner = dir.inner_path(os(name));
        let is_named = dir.is_named || is_directory || selection.names(&inner, false);
        is_named && !selection.leaves_out(&inner, is_directory)
    }

    /// Is the copy there, by the user's wish or since this stage has made it before it was killed?
    fn is_unchanged(&self, dir: &Dir, name: &CStr, stat: &Stat) -> bool {
        if !self.options.changed && dir.tree.began.is_none() {
            return false;
        }
        let Some(target) = dir.existing_target() else { return false };
        let Ok(copy) = Stat::at(target, dir.target_name(os(name)), false) else { return false };
        let ours = dir.tree.began.is_some_and(|began| copy.changed >= began);
        let same = stat.is_same_as(&copy) && (self.options.changed || ours);
        if same {
            count(&self.notes.counters.unchanged);
        }
        same
    }

    /// Becomes the file another name of the one in an earlier copy? Not one that has several names:
    /// which of them belong together may have changed.
    fn is_taken_over(&self, dir: &Dir, name: &CStr, stat: &Stat) -> bool {
        let Some(like) = dir.like().filter(|_| stat.links == 1) else { return false };
        let earlier = dir.like_name(os(name));
        let is_same = |copy: &Stat| stat.is_same_as(copy) && stat.permissions() == copy.mode;
        if !Stat::at(like, earlier, false).is_ok_and(|copy| is_same(&copy)) {
            return false;
        }
        let taken = self.take_over(dir, name);
        if taken {
            count(&self.notes.counters.unchanged);
        }
        taken
    }

    /// The file in an earlier copy gets another name here, if there is one.
    fn take_over(&self, dir: &Dir, name: &CStr) -> bool {
        let (Some(like), Ok(target)) = (dir.like(), dir.target()) else { return false };
        let (from, to) = (dir.like_name(os(name)), dir.target_name(os(name)));
        linkat(like, from, target, to, AtFlags::empty()).is_ok()
    }

    fn only_tell(&self, dir: &Dir, name: &CStr, kind: Kind, stat: &Stat) -> Result<Done, Problem> {
        if let Kind::Special(what) = kind {
            return Err(Problem::Special(what));
        }
        if kind == Kind::File
            && self.options.open == WhenOpen::Skip
            && self.is_written(&self.open(dir, name)?, stat)
        {
            return Err(Problem::Open);
        }
        self.copied(if kind == Kind::File { stat.bytes } else { 0 });
        self.notes.tell(Note::WouldCopy(&dir.path(os(name)), stat.bytes));
        Ok(Done::Now)
    }

    pub(crate) fn copied(&self, bytes: u64) {
        count(&self.notes.counters.files);
        self.notes.counters.bytes.fetch_add(bytes, Relaxed);
    }

    /// The copy of a file is there, or is not: other names that waited for it get theirs.
    pub(super) fn names_follow(
        &self,
        dir: &Dir,
        name: &CStr,
        stat: &Stat,
        is_there: bool,
        buffer: &mut [u8],
    ) {
        if stat.links <= 1 {
            return;
        }
        let path = || dir.path_below(Path::new(&dir.tree.name), os(name));
        let waiting = self.links.copied(stat.identity, is_there.then(path));
        for (dir, name) in waiting {
            // Whoever finds no copy to link to makes one.
            let linked = is_there && self.hard_link(&dir, &name, &path()).is_ok();
            let done = match linked || self.is_over() {
                true => Ok(Done::Now),
                false => self.file(&dir, &name, (0, true), buffer),
            };
            match done {
                Ok(Done::Later) => continue,
                Ok(Done::Now) => {}
                Err(problem) => self.fail(&dir, &name, problem),
            }
            self.end(&dir);
        }
    }

    fn hard_link(&self, dir: &Dir, name: &CStr, path: &Path) -> Result<(), Problem> {
        let above = dir.above_target()?;
        let (target, to) = (dir.target()?, dir.target_name(os(name)));
        let link = |to: &OsStr| linkat(above, path, target, to, AtFlags::empty());
        match link(to) {
            Err(Errno::EEXIST) => {
                let temporary = temporary_name((self.stage, self.node), to);
                let _ = unlinkat(target, temporary.as_c_str(), UnlinkatFlags::NoRemoveDir);
                link(os(&temporary)).map_err(Problem::not_made("make the link"))?;
                renameat(target, temporary.as_c_str(), target, to)
                    .map_err(Problem::not_made("give the link its name"))?;
                // Two names of one file: the rename has done nothing.
                let _ = unlinkat(target, temporary.as_c_str(), UnlinkatFlags::NoRemoveDir);
            }
            made => made.map_err(Problem::not_made("make the link"))?,
        }
        self.copied(0);
        Ok(())
    }

    pub(crate) fn open(&self, dir: &Dir, name: &CStr) -> Result<File, Problem> {
        let follow = dir.is_above() || self.options.follow;
        let link = if follow { OFlag::empty() } else { OFlag::O_NOFOLLOW };
        // What has become a pipe meanwhile would keep us waiting.
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | link;
        let opened = openat(&dir.source, name, flags, Mode::empty());
        opened.map(File::from).map_err(Problem::of("open the file"))
    }

    /// Copies a file that has changed so often while it was copied; as one of its own, whatever
    /// other names it has, if `alone`.
    pub(crate) fn file(
        &self,
        dir: &Arc<Dir>,
        name: &CStr,
        (tries, alone): (u32, bool),
        buffer: &mut [u8],
    ) -> Result<Done, Problem> {
        let mut claimed = None;
        let done = self.try_file(dir, name, (tries, alone), &mut claimed, buffer);
        if let Some(stat) = claimed
            && !matches!(done, Ok(Done::Later))
        {
            self.names_follow(dir, name, &stat, done.is_ok(), buffer);
        }
        done
    }

    fn try_file(
        &self,
        dir: &Arc<Dir>,
        name: &CStr,
        (tries, alone): (u32, bool),
        claimed: &mut Option<Stat>,
        buffer: &mut [u8],
    ) -> Result<Done, Problem> {
        for tries in tries..TRIES_MAX {
            let mut source = self.open(dir, name)?;
            let read = source.read(buffer).map_err(|error| failed("read the file", &error))?;
            // The one look: what was read at once is as long as it is now.
            let stat = Stat::of(&source).map_err(Problem::of("look at the file"))?;
            if !stat.is(SFlag::S_IFREG) {
                return Err(Problem::Changing);
            }
            if tries == 0 && !alone && self.is_written(&source, &stat) {
                return self.open_for_writing(dir, name);
            }
            let is_one = alone || self.options.follow || self.sink.is_some();
            if stat.links > 1 && claimed.is_none() && !is_one {
                if self.hands_back(Kind::File, name) {
                    return Ok(Done::Now);
                }
                if let Some(done) = self.other_name(dir, name, &stat) {
                    return Ok(done);
                }
                *claimed = Some(stat);
            }
            let is_sparse = stat.allocated < stat.bytes && stat.bytes > PAGE_BYTES;
            if (read as u64) > stat.bytes {
                // It has become shorter.
                continue;
            }
            if let Some(sink) = &self.sink {
                match self.put(sink, dir, name, (&source, &stat), &buffer[..read]) {
                    Err(Problem::Changing) => continue,
                    put => return put.map(|()| Done::Now),
                }
            }
            if (read as u64) < stat.bytes || is_sparse || read == buffer.len() {
                if self.hands_back(Kind::File, name) {
                    return Ok(Done::Now);
                }
                return self.large(dir, name, (source, stat), tries).map(|()| Done::Later);
            }
            self.pace.bytes(stat.bytes, || self.is_over());
            self.small(dir, name, (&source, &stat), &buffer[..read])?;
            return self.finished(dir, name, &stat, buffer).map(|()| Done::Now);
        }
        Err(Problem::Changing)
    }

    /// Does the user care, and has somebody the file open for writing?
    fn is_written(&self, source: &File, stat: &Stat) -> bool {
        let tells = || self.writers.tells(source.as_fd(), stat.identity.0);
        self.options.open != WhenOpen::Copy && tells().is_written(source.as_fd())
    }

    fn open_for_writing(&self, dir: &Arc<Dir>, name: &CStr) -> Result<Done, Problem> {
        if self.hands_back(Kind::File, name) {
            return Ok(Done::Now);
        }
        // It may be open for a moment only: all of them are looked at once more.
        if self.options.open == WhenOpen::Wait || !self.is_second_look() {
            self.put_off(dir, name);
            return Ok(Done::Later);
        }
        // What an earlier copy has is better than nothing.
        self.take_over(dir, name);
        Err(Problem::Open)
    }

    /// A name of a file with several: made of the copy, or left to who copies. None when it is
    /// copied here.
    fn other_name(&self, dir: &Arc<Dir>, name: &CStr, stat: &Stat) -> Option<Done> {
        let own: Name = (Arc::clone(dir), name.to_owned());
        match self.links.claim(stat.identity, stat.links, own) {
            Claim::Copy => None,
            Claim::Wait => Some(Done::Later),
            Claim::Link(path) => match self.hard_link(dir, name, &path) {
                Ok(()) => Some(Done::Now),
                Err(problem) => {
                    let text = format!("that it is one file with others: {problem}");
                    self.notes.tell(Note::NotKept(&dir.path(os(name)), &text));
                    None
                }
            },
        }
    }

    /// Under which name a file is written.
    pub(super) fn first_name(&self, dir: &Dir, name: &OsStr) -> CString {
        match self.options.unwatched && dir.is_new() {
            true => CString::new(name.as_bytes()).unwrap_or_default(),
            false => temporary_name((self.stage, self.node), name),
        }
    }

    fn small(
        &self,
        dir: &Dir,
        name: &CStr,
        (source, stat): (&File, &Stat),
        content: &[u8],
    ) -> Result<(), Problem> {
        let to = dir.target_name(os(name));
        let mut partial = Partial::make(dir.target()?, self.first_name(dir, to), stat)?;
        partial.write(content)?;
        self.attributes(dir, name, source, partial.as_file()?, stat)?;
        partial.finish(to, stat)
    }

    /// Attributes, but for times, of a copy that has its content.
    pub(super) fn attributes(
        &self,
        dir: &Dir,
        name: &CStr,
        source: &File,
        copy: &File,
        stat: &Stat,
    ) -> Result<(), Problem> {
        self.extended_attributes(source.as_fd(), copy.as_fd(), || dir.path(os(name)))?;
        if stat.permissions() & (ODD_BITS | self.umask) != 0 {
            set_permissions(copy, stat.permissions())
                .map_err(Problem::of("set the permissions"))?;
        }
        Ok(())
    }

    /// The copy has its name.
    pub(super) fn finished(
        &self,
        dir: &Dir,
        name: &CStr,
        stat: &Stat,
        buffer: &mut [u8],
    ) -> Result<(), Problem> {
        if self.options.verify {
            self.verify(dir, name, stat, buffer)?;
        }
        self.copied(stat.bytes);
        Ok(())
    }

    /// Reads both sides again.
    fn verify(
        &self,
        dir: &Dir,
        name: &CStr,
        stat: &Stat,
        buffer: &mut [u8],
    ) -> Result<(), Problem> {
        let source = self.open(dir, name)?;
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let copy = openat(dir.target()?, dir.target_name(os(name)), flags, Mode::empty())
            .map(File::from)
            .map_err(Problem::of("open the copy"))?;
        let half = buffer.len() / 2;
        let (ours, theirs) = buffer.split_at_mut(half);
        let mut at = 0;
        let same = loop {
            self.pace.bytes(2 * half as u64, || self.is_over());
            let count = source.read_at(ours, at).map_err(|e| failed("read the file again", &e))?;
            let Some(room) = theirs.get_mut(..count.max(1)) else { break false };
            let there = copy.read_at(room, at).map_err(|e| failed("read the copy", &e))?;
            if count == 0 || there == 0 {
                break count == there;
            }
            if ours[..there.min(count)] != room[..there.min(count)] {
                break false;
            }
            at += there.min(count) as u64;
        };
        let now = Stat::of(&source).map_err(Problem::of("look at the file"))?;
        match same {
            true => Ok(()),
            false if !stat.is_still(&now) => Err(Problem::Changing),
            false => Err(Problem::Differs),
        }
    }
}

//! Trees that are copied, and their directories while something of them is left to do.

use std::{
    ffi::{CStr, OsStr, OsString},
    fs::{self, DirBuilder},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::DirBuilderExt},
    },
    path::{Component, Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Relaxed},
        },
    },
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat},
    sys::stat::{Mode, mkdirat},
};

use crate::{
    Pair,
    copy::{
        settle::{Moment, Stat},
        whole::failed,
    },
    report::Problem,
    walk::select::Selection,
};

/// One tree, or one file, on its way.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) pair: Pair,
    pub(crate) selection: Selection,
    /// Copies that were changed at the destination since then are this stage's own, of an earlier
    /// try.
    pub(crate) began: Option<Moment>,
    /// The destination's name in the directory that holds it.
    pub(crate) name: OsString,
    /// The name of an earlier copy.
    pub(crate) like: Option<OsString>,
}

/// The directory that a path lies in, and its name there.
pub(crate) fn split(path: &Path) -> (PathBuf, OsString) {
    match (path.parent(), path.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            (parent.to_owned(), name.to_owned())
        }
        _ => (path.to_owned(), OsString::from(".")),
    }
}

/// Opens what holds a source. Its user may be let through it without being let look around there.
pub(crate) fn open_above(path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    match open(path, flags | OFlag::O_RDONLY, Mode::empty()) {
        Err(Errno::EACCES) => open(path, flags | OFlag::O_PATH, Mode::empty()),
        opened => opened,
    }
}

/// A directory of which something is left to do.
#[derive(Debug)]
pub(crate) struct Dir {
    pub(crate) tree: Arc<Tree>,
    /// None for what holds the whole tree, which is looked at and not copied.
    place: Option<Place>,
    pub(crate) source: OwnedFd,
    target: OnceLock<Result<Target, Problem>>,
    /// The directory of an earlier copy.
    like: OnceLock<Option<OwnedFd>>,
    /// Entries that are not done, and one for whoever reads the directory.
    pending: AtomicUsize,
    /// An earlier try has left something at the destination that may be taken up.
    has_leftovers: AtomicBool,
    /// All below is copied, since a pattern names this directory or one above.
    pub(crate) is_named: bool,
}

/// A directory at the destination.
#[derive(Debug)]
struct Target {
    file: OwnedFd,
    /// It was not there before.
    is_new: bool,
}

/// Where a directory is in its tree.
#[derive(Debug)]
struct Place {
    parent: Arc<Dir>,
    name: OsString,
    stat: Stat,
}

impl Dir {
    /// What holds the tree, at the source and at the destination.
    pub(crate) fn above(
        tree: Arc<Tree>,
        source: OwnedFd,
        target: Result<OwnedFd, Problem>,
        like: Option<OwnedFd>,
    ) -> Dir {
        let is_named = tree.selection.names_all();
        let target = OnceLock::from(target.map(|file| Target { file, is_new: false }));
        let (like, pending) = (OnceLock::from(like), AtomicUsize::new(1));
        let has_leftovers = AtomicBool::new(false);
        Dir { tree, place: None, source, target, like, pending, has_leftovers, is_named }
    }

    pub(crate) fn below(
        parent: &Arc<Dir>,
        name: &OsStr,
        source: OwnedFd,
        stat: Stat,
        is_named: bool,
    ) -> Dir {
        let place = Place { parent: Arc::clone(parent), name: name.to_owned(), stat };
        Dir {
            tree: Arc::clone(&parent.tree),
            place: Some(place),
            source,
            target: OnceLock::new(),
            like: OnceLock::new(),
            pending: AtomicUsize::new(1),
            has_leftovers: AtomicBool::new(false),
            is_named: is_named || parent.is_named,
        }
    }

    /// Is it what holds the tree?
    pub(crate) fn is_above(&self) -> bool {
        self.place.is_none()
    }

    pub(super) fn parent(&self) -> Option<&Arc<Dir>> {
        self.place.as_ref().map(|place| &place.parent)
    }

    pub(crate) fn stat(&self) -> Option<&Stat> {
        self.place.as_ref().map(|place| &place.stat)
    }

    /// Is a directory with this identity here or above?
    pub(super) fn leads_back_to(&self, identity: (u64, u64)) -> bool {
        let mut dir = Some(self);
        while let Some(Dir { place: Some(place), .. }) = dir {
            if place.stat.identity == identity {
                return true;
            }
            dir = Some(&place.parent);
        }
        false
    }

    /// The path of a name in it, from the tree's own name on, without that.
    pub(crate) fn inner_path(&self, name: &OsStr) -> PathBuf {
        let mut names = vec![name];
        let mut dir = self;
        while let Some(place) = &dir.place {
            names.push(&place.name);
            dir = &place.parent;
        }
        // The last one is the name of the tree.
        names.pop();
        names.iter().rev().collect()
    }

    /// Its own path, from the tree's own name on, without that.
    pub(crate) fn own_inner_path(&self) -> PathBuf {
        self.place.as_ref().map_or_else(PathBuf::new, |place| place.parent.inner_path(&place.name))
    }

    /// The path of a name in it, for people.
    pub(crate) fn path(&self, name: &OsStr) -> PathBuf {
        self.path_below(&self.tree.pair.source, name)
    }

    /// The same at the destination.
    pub(crate) fn target_path(&self, name: &OsStr) -> PathBuf {
        self.path_below(&self.tree.pair.destination, name)
    }

    /// What a problem with a name in it is about, for people.
    pub(crate) fn path_of(&self, name: &OsStr, problem: &Problem) -> PathBuf {
        match problem {
            Problem::NotMade { .. } => self.path_not_made(name),
            _ => self.path(name),
        }
    }

    /// The path at the destination that could not be made: that of the name, or of the directory
    /// above it without which it has no place.
    fn path_not_made(&self, name: &OsStr) -> PathBuf {
        let (mut path, mut dir) = (self.target_path(name), self);
        while let Some(place) = &dir.place {
            if matches!(dir.target.get(), Some(Err(_))) {
                path = place.parent.target_path(&place.name);
            }
            dir = &place.parent;
        }
        path
    }

    /// The same where the tree itself is `top`.
    pub(crate) fn path_below(&self, top: &Path, name: &OsStr) -> PathBuf {
        let inner = self.inner_path(name);
        if inner.as_os_str().is_empty() { top.to_owned() } else { top.join(inner) }
    }

    pub(super) fn own_path(&self) -> PathBuf {
        match &self.place {
            Some(place) => place.parent.path(&place.name),
            None => self.tree.pair.source.clone(),
        }
    }

    /// What a name of the source is called at the destination.
    pub(crate) fn target_name<'a>(&'a self, name: &'a OsStr) -> &'a OsStr {
        if self.is_above() { &self.tree.name } else { name }
    }

    /// The directory at the destination, made when it is first asked for.
    pub(crate) fn target(&self) -> Result<BorrowedFd<'_>, Problem> {
        let made = self.target.get_or_init(|| self.make());
        made.as_ref().map(|target| target.file.as_fd()).map_err(|problem| *problem)
    }

    /// What holds the whole tree at the destination.
    pub(crate) fn above_target(&self) -> Result<BorrowedFd<'_>, Problem> {
        let mut dir = self;
        while let Some(parent) = dir.parent() {
            dir = parent;
        }
        dir.target()
    }

    /// The directory at the destination, if it was made or is there.
    pub(crate) fn existing_target(&self) -> Option<BorrowedFd<'_>> {
        if let Some(made) = self.target.get() {
            return made.as_ref().ok().map(|target| target.file.as_fd());
        }
        let place = self.place.as_ref()?;
        let parent = place.parent.existing_target()?;
        let file = openat(parent, self.name_at_target(place), self.flags(), Mode::empty()).ok()?;
        let found = self.target.get_or_init(|| Ok(Target { file, is_new: false }));
        found.as_ref().ok().map(|target| target.file.as_fd())
    }

    /// The same directory of an earlier copy, if there is one.
    pub(crate) fn like(&self) -> Option<BorrowedFd<'_>> {
        self.tree.like.as_ref()?;
        let find = || {
            let place = self.place.as_ref()?;
            let parent = place.parent.like()?;
            openat(parent, place.parent.like_name(&place.name), self.flags(), Mode::empty()).ok()
        };
        self.like.get_or_init(find).as_ref().map(AsFd::as_fd)
    }

    /// What a name of the source is called in an earlier copy.
    pub(crate) fn like_name<'a>(&'a self, name: &'a OsStr) -> &'a OsStr {
        self.tree.like.as_deref().filter(|_| self.is_above()).unwrap_or(name)
    }

    /// The directory at the destination that gets the source's attributes now: not what the user
    /// has named and was there before.
    pub(super) fn target_to_settle(&self) -> Option<BorrowedFd<'_>> {
        let target = self.target.get()?.as_ref().ok()?;
        let named = self.parent().is_none_or(|parent| parent.is_above());
        let ours = target.is_new || !named || self.tree.began.is_some();
        (ours && !self.is_above()).then(|| target.file.as_fd())
    }

    pub(super) fn leave_over(&self) {
        self.has_leftovers.store(true, Relaxed);
    }

    pub(super) fn has_leftovers(&self) -> bool {
        self.has_leftovers.load(Relaxed)
    }

    /// Was it not there before this stage?
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.target.get(), Some(Ok(Target { is_new: true, .. })))
    }

    /// So many directories from this one upwards were not there before this stage.
    pub(crate) fn made_upwards(&self) -> usize {
        if !self.is_new() {
            return 0;
        }
        1 + self.parent().map_or(0, |parent| parent.made_upwards())
    }

    /// Another node has made so many directories from this one upwards.
    pub(crate) fn adopt_made(&self, levels: usize) {
        if levels == 0 {
            return;
        }
        let Some(place) = &self.place else { return };
        place.parent.adopt_made(levels - 1);
        if self.target.get().is_none()
            && let Some(parent) = place.parent.existing_target()
            && let Ok(file) =
                openat(parent, self.name_at_target(place), self.flags(), Mode::empty())
        {
            let _ = self.target.set(Ok(Target { file, is_new: true }));
        }
    }

    fn name_at_target<'a>(&'a self, place: &'a Place) -> &'a OsStr {
        place.parent.target_name(&place.name)
    }

    /// A link to a directory is one only where the user has named it.
    fn flags(&self) -> OFlag {
        let named = self.parent().is_some_and(|parent| parent.is_above());
        let follow = if named { OFlag::empty() } else { OFlag::O_NOFOLLOW };
        OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | follow
    }

    fn make(&self) -> Result<Target, Problem> {
        let Some(place) = &self.place else {
            return Err(Problem::of("open the destination")(Errno::EBADF));
        };
        let parent = place.parent.target()?;
        let name = self.name_at_target(place);
        // It has to be written to until it gets its own bits.
        let mode = Mode::from_bits_truncate(place.stat.permissions() & 0o777 | 0o700);
        let is_new = match mkdirat(parent, name, mode) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(errno) => return Err(Problem::not_made("make the directory")(errno)),
        };
        let file = openat(parent, name, self.flags(), Mode::empty())
            .map_err(Problem::not_made("open the directory"))?;
        Ok(Target { file, is_new })
    }

    pub(crate) fn begin(&self, entries: usize) {
        self.pending.fetch_add(entries, AcqRel);
    }

    /// One of its entries is done; true when that was the last one.
    pub(super) fn end(&self) -> bool {
        self.pending.fetch_sub(1, AcqRel) == 1
    }
}

/// A name of a directory, as the rest has it.
pub(crate) fn os(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

/// A directory that is there, or is made with those above it, open.
pub(crate) fn make_all(path: &Path, permissions: u32) -> Result<OwnedFd, Problem> {
    DirBuilder::new()
        .recursive(true)
        .mode(permissions)
        .create(path)
        .and_then(|()| fs::File::open(path))
        .map(OwnedFd::from)
        .map_err(|error| failed("make the directory of the destination", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_into_a_directory_and_a_name() {
        let cases = [
            ("a/b", "a", "b"),
            ("/a", "/", "a"),
            ("a", ".", "a"),
            ("a/b/", "a", "b"),
            (".", ".", "."),
            ("/", "/", "."),
            ("a/..", "a/..", "."),
        ];
        for (path, directory, name) in cases {
            let expected = (PathBuf::from(directory), OsString::from(name));
            assert_eq!(split(Path::new(path)), expected, "{path}");
        }
    }
}

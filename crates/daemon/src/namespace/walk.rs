//! From a path to a place in the namespace, as the kernel's `fs/namei.c` walks.
//!
//! Directories and symbolic links on the way come from the node's dentry cache. `..` is the real
//! parent, so a rename above a working directory shows. A walk leaves the instance through an
//! absolute link whose target is not below the mount point, or through `..` at the root; the answer
//! is then the path of the host at which to go on.

use std::{borrow::Cow, ops::Range};

use mayfly_meta::key;
use mayfly_types::{
    Errno, FileId, FileKind,
    limits::{NAME_BYTES_MAX, PATH_BYTES_MAX, SYMLINK_FOLLOWS_MAX},
};
use mayfly_wire::{WALK_EMPTY, WALK_FOLLOW, Walk};

use crate::{
    fault::{Fault, Outcome},
    message::{At, Resolved},
    namespace::{
        dentry_cache::Way,
        state::{
            dentry::Wanted,
            walk::{Last, Place, Rule},
        },
    },
    shard::Shard,
};

/// Which path of a request. The first one takes the request to the shard that owns its last name;
/// of the second one's last name that shard is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    First,
    Second,
}

struct Progress<'a> {
    /// What is still to be walked.
    path: Cow<'a, [u8]>,
    at: usize,
    directory: FileId,
    slash: bool,
    follows: u32,
    /// Where the path began, and the directories through which it led since, while it led through
    /// nothing else.
    way: Option<(FileId, Way)>,
}

impl Progress<'_> {
    fn place(&self, name: Range<usize>, cookie: u64, found: Option<(FileId, FileKind)>) -> Place {
        Place {
            directory: self.directory,
            name: self.path[name].to_vec(),
            cookie,
            last: Last::Name,
            slash: self.slash,
            found,
        }
    }

    /// The next component and whether it is the last one.
    fn next(&mut self) -> Option<(Range<usize>, bool)> {
        while self.path.get(self.at) == Some(&b'/') {
            self.at += 1;
        }
        let start = self.at;
        let length = self.path[start..].iter().position(|byte| *byte == b'/');
        let end = length.map_or(self.path.len(), |length| start + length);
        if start == end {
            return None;
        }
        self.at = end;
        let last = self.path[end..].iter().all(|byte| *byte == b'/');
        self.slash |= last && end < self.path.len();
        Some((start..end, last))
    }
}

impl Shard {
    /// Follows the path of a request; its first one, if it has two.
    pub(super) fn walk(&mut self, walk: &Walk<'_>, rule: Rule) -> Outcome<Place> {
        self.walk_any(walk, rule, Which::First)
    }

    /// Follows the second path of a request.
    pub(super) fn walk_second(&mut self, walk: &Walk<'_>, rule: Rule) -> Outcome<Place> {
        self.walk_any(walk, rule, Which::Second)
    }

    fn walk_any(&mut self, walk: &Walk<'_>, rule: Rule, which: Which) -> Outcome<Place> {
        if walk.path.len() >= PATH_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let absolute = walk.path.first() == Some(&b'/');
        let mut last = if absolute { Last::Root } else { Last::Dot };
        if walk.path.is_empty() && walk.flags & WALK_EMPTY == 0 {
            return Err(Errno::ENOENT.into());
        }
        let mut progress = Progress {
            path: Cow::Borrowed(walk.path),
            at: 0,
            directory: if absolute { FileId::ROOT } else { walk.start },
            slash: false,
            follows: 0,
            way: None,
        };
        if let (Which::First, At::Path(directory, rest, _)) = (which, &self.run.place.at) {
            progress.path = Cow::Owned(rest.clone());
            progress.directory = *directory;
            progress.follows = self.run.place.follows;
        }
        let known = self.go_ahead(&mut progress);
        while let Some((range, is_last)) = progress.next() {
            match &progress.path[range.clone()] {
                b"." => last = Last::Dot,
                b".." => {
                    progress.directory = self.step_up(&progress)?;
                    progress.way = None;
                    last = Last::DotDot;
                }
                name => {
                    if is_last && which == Which::First {
                        self.stay(&progress, name, range.start)?;
                    }
                    if is_last
                        && let Some((start, way)) = progress.way
                        && way.count > known
                        && self.stays_listed(progress.directory)
                    {
                        let path = (start, &progress.path[..range.start]);
                        self.namespace.cache.tread(path, progress.directory, way);
                    }
                    let follow = walk.flags & WALK_FOLLOW != 0;
                    if let Some(place) = self.step(&mut progress, range, is_last, (rule, follow))? {
                        return Ok(place);
                    }
                    // After a link to the root or to `.` there may be nothing left.
                    last = if progress.directory == FileId::ROOT { Last::Root } else { Last::Dot };
                }
            }
        }
        let Progress { directory, slash, .. } = progress;
        Ok(Place { directory, name: Vec::new(), cookie: 0, last, slash, found: None })
    }

    /// Skips what the last walk led through as well; through how many directories. With several
    /// shards, a name that is another one's may be believed for a time only.
    fn go_ahead(&self, progress: &mut Progress<'_>) -> usize {
        let start = progress.directory;
        if !self.place.alone || !matches!(progress.path, Cow::Borrowed(_)) {
            return 0;
        }
        let known = self.namespace.cache.trodden(start, &progress.path);
        let (at, directory, way) = known.unwrap_or((0, start, Way::default()));
        (progress.at, progress.directory) = (at, directory);
        progress.way = Some((start, way));
        way.count
    }

    /// The rest of the request is for the owner of the last name.
    fn stay(&self, progress: &Progress<'_>, name: &[u8], start: usize) -> Outcome<()> {
        if name.len() > NAME_BYTES_MAX || self.owns(progress.directory, name) {
            return Ok(());
        }
        let upto = self.namespace.seats.spread(progress.directory);
        let at = At::Path(progress.directory, progress.path[start..].to_vec(), upto);
        let (follows, &Resolved { restarts, gone, .. }) = (progress.follows, &self.run.place);
        let owner = self.name_owner(progress.directory, name);
        Err(Fault::Elsewhere(owner, Box::new(Resolved { at, follows, restarts, gone })))
    }

    fn step(
        &mut self,
        progress: &mut Progress<'_>,
        range: Range<usize>,
        is_last: bool,
        (rule, wished): (Rule, bool),
    ) -> Outcome<Option<Place>> {
        let name = &progress.path[range.clone()];
        if is_last && rule == Rule::Create && progress.slash {
            return Err(Errno::EISDIR.into());
        }
        if name.len() > NAME_BYTES_MAX {
            if is_last && rule == Rule::Name {
                return Ok(Some(progress.place(range, 0, None)));
            }
            return Err(Errno::ENAMETOOLONG.into());
        }
        let cookie = key::cookie(progress.directory, name);
        let wanted = if is_last && rule == Rule::Name { Wanted::Name } else { Wanted::File };
        let found = self.lookup_at((progress.directory, cookie, name), wanted)?;
        let follow = match rule {
            Rule::Name => !is_last,
            Rule::Target => !is_last || wished || progress.slash,
            Rule::Create => !is_last || wished,
        };
        match found {
            Some((id, FileKind::Symlink)) if follow => {
                self.step_through(progress, range, id)?;
                return Ok(None);
            }
            Some((id, FileKind::Directory)) if !is_last => {
                progress.directory = id;
                let through = |(start, way): (FileId, Way)| Some((start, way.and(cookie)?));
                progress.way = progress.way.and_then(through);
                return Ok(None);
            }
            Some(_) if !is_last => return Err(Errno::ENOTDIR.into()),
            None if !is_last => return Err(Errno::ENOENT.into()),
            _ => {}
        }
        Ok(Some(progress.place(range, cookie, found)))
    }

    /// Puts the target of a link in front of what is left of the path.
    fn step_through(
        &mut self,
        progress: &mut Progress<'_>,
        name: Range<usize>,
        id: FileId,
    ) -> Outcome<()> {
        progress.follows += 1;
        progress.way = None;
        if progress.follows > SYMLINK_FOLLOWS_MAX {
            return Err(Errno::ELOOP.into());
        }
        let target = self.link_target(progress.directory, &progress.path[name], id)?;
        let rest = &progress.path[progress.at..];
        let mut path = if target.first() == Some(&b'/') {
            let Some(inside) = below_mount(&self.config.mount, &target) else {
                return Err(Fault::Escaped([&*target, rest].concat()));
            };
            progress.directory = FileId::ROOT;
            inside.to_vec()
        } else {
            target.to_vec()
        };
        path.extend_from_slice(rest);
        progress.path = Cow::Owned(path);
        progress.at = 0;
        Ok(())
    }

    fn step_up(&mut self, progress: &Progress<'_>) -> Outcome<FileId> {
        if progress.directory != FileId::ROOT {
            return self.parent_of(progress.directory);
        }
        let mount = &self.config.mount;
        let parent = mount.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let mut path = mount[..parent].to_vec();
        path.extend_from_slice(&progress.path[progress.at..]);
        if path.is_empty() {
            path.push(b'/');
        }
        Err(Fault::Escaped(path))
    }
}

/// The part of an absolute path of the host that lies below the mount point, compared component by
/// component.
fn below_mount<'a>(mount: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let mut rest = path;
    for wanted in mount.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        loop {
            let start = rest.iter().position(|byte| *byte != b'/')?;
            rest = &rest[start..];
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let part;
            (part, rest) = rest.split_at(end);
            if part == wanted {
                break;
            }
            if part != b"." {
                return None;
            }
        }
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_path_below_the_mount_point_goes_on_inside() {
        let below = |path: &'static str| {
            below_mount(b"/run/m", path.as_bytes()).map(|rest| std::str::from_utf8(rest).unwrap())
        };
        assert_eq!(below("/run/m/a/b"), Some("/a/b"));
        assert_eq!(below("//run/.//m/"), Some("/"));
        assert_eq!(below("/run/m"), Some(""));
        assert_eq!(below("/run/mm/a"), None);
        assert_eq!(below("/run"), None);
        assert_eq!(below("/etc/passwd"), None);
    }
}

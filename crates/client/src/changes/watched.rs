//! Telling those who watch files of the instance with inotify.
//!
//! A watched file has a stand-in ([`crate::changes::mirror`]). A process that has changed a file
//! changes its stand-in afterwards. This is any process of the node that is served, or its mount.
//! While nobody on the node watches anything, it costs one look at memory for each change. The end
//! of a description that could be written to is told by the daemon, since it may be the end of its
//! last process. Other nodes tell nothing.
//!
//! A process may die between a change and the change of the stand-in. Then a name is left there, or
//! is missing. When that name is made again, its removal is told first. Nothing here can fail what
//! has been done.

use core::sync::atomic::Ordering;

use mayfly_sys::{file::O_DIRECTORY, text::PathText};
use mayfly_transport::Transport;
use mayfly_types::{Attr, Errno, FileId, FileKind};
use mayfly_wire::{SET_SIZE, Target, WALK_EMPTY, WALK_FOLLOW, Walk, listing::entries};

use super::mirror::{Mirror, Name};
use crate::{Client, Descriptors, NewOwner, OpenFile};

/// Names that a watched directory may have: each has a file that stands for it.
pub const WATCHED_NAMES_MAX: usize = 1 << 16;
/// Bytes of entries that are asked for at once.
const LISTED_BYTES: usize = 1 << 15;
/// `mayfly_wire::Rename::flags`: both names change what they stand for.
const EXCHANGE: u32 = 2;

/// A name before it changed.
pub(crate) struct Before<'n> {
    name: Name<'n>,
    attr: Option<Attr>,
}

/// The last component of a path, and what is in front of it.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let path = path.get(..end)?;
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (parent, name) = path.split_at_checked(start)?;
    (!matches!(name, b"." | b"..")).then_some((parent, name))
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// May somebody on this node watch files?
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.node.head.watched.load(Ordering::Acquire) != 0
    }

    /// Do those who watch hear of all changes, since all processes are on this node?
    #[must_use]
    pub fn tells_everything(&self) -> bool {
        self.node.head.nodes.load(Ordering::Acquire) == 1
    }

    fn mirror(&self) -> Option<Mirror> {
        self.objects.descriptors.mirror().ok()
    }

    /// The name that a walk ends at. None for a path that leads out, or to nothing: nobody is told
    /// of that.
    fn name_of<'n>(&self, walk: &Walk<'n>) -> Option<Name<'n>> {
        let (parent, name) = split(walk.path)?;
        if parent.is_empty() {
            return Some(Name { directory: walk.start, name });
        }
        let parent = Walk { start: walk.start, flags: WALK_FOLLOW, path: parent };
        let attr = self.stat(Target::Path(parent), &mut PathText::new()).ok()?;
        Some(Name { directory: attr.id, name })
    }

    fn behind(&self, name: Name<'_>) -> Option<Attr> {
        let walk = Walk { start: name.directory, flags: 0, path: name.name };
        self.stat(Target::Path(walk), &mut PathText::new()).ok()
    }

    /// Is the directory watched in which `walk` ends?
    #[cold]
    #[inline(never)]
    pub(crate) fn is_told_of(&self, walk: &Walk<'_>) -> bool {
        let told = |mirror: Mirror| Some(mirror.has(self.name_of(walk)?.directory));
        self.mirror().and_then(told).unwrap_or(false)
    }

    /// To be asked for before the name changes; `None` while nobody watches.
    pub(crate) fn before<'n>(&self, walk: &Walk<'n>) -> Option<Before<'n>> {
        if self.is_watched() { self.look_before(walk) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn look_before<'n>(&self, walk: &Walk<'n>) -> Option<Before<'n>> {
        let name = self.name_of(walk)?;
        Some(Before { name, attr: self.behind(name) })
    }

    /// Something was made, or named, at the end of `walk`.
    pub(crate) fn tell_made(&self, walk: &Walk<'_>) {
        if self.is_watched() {
            // A failure only means that the watcher hears nothing.
            let _ = self.try_tell_made(walk);
        }
    }

    #[cold]
    #[inline(never)]
    fn try_tell_made(&self, walk: &Walk<'_>) -> Option<()> {
        let (mirror, name) = (self.mirror()?, self.name_of(walk)?);
        if mirror.has(name.directory) {
            let attr = self.behind(name)?;
            mirror.created(name, attr.id, attr.kind).ok()?;
        }
        Some(())
    }

    /// The name was removed.
    pub(crate) fn tell_removed(&self, before: Option<Before<'_>>, directory: bool) {
        if let Some(before) = before
            && let Some(mirror) = self.mirror()
        {
            let kind = if directory { FileKind::Directory } else { FileKind::Regular };
            // It may be watched itself and have no watched name, or the other way round. The
            // kernel tells the end of a file last, and before everything that another name is left.
            match before.attr {
                Some(attr) if has_another_name(&attr) => {
                    mirror.links_changed(attr.id);
                    let _ = mirror.removed(before.name, kind);
                }
                attr => {
                    let _ = mirror.removed(before.name, kind);
                    let _ = attr.map(|attr| mirror.ended(attr.id, attr.kind));
                }
            }
        }
    }

    /// A name was moved.
    pub(crate) fn tell_moved(
        &self,
        (from, to): (Option<Before<'_>>, Option<Before<'_>>),
        flags: u32,
    ) {
        if let (Some(from), Some(to)) = (from, to) {
            let _ = self.try_tell_moved(&from, &to, flags);
        }
    }

    #[cold]
    #[inline(never)]
    fn try_tell_moved(&self, from: &Before<'_>, to: &Before<'_>, flags: u32) -> Option<()> {
        let (mirror, moved) = (self.mirror()?, from.attr?);
        if flags & EXCHANGE != 0 {
            let other = to.attr?;
            let _ = mirror.exchanged(from.name, to.name);
            let _ = mirror.moved_itself(moved.id, moved.kind);
            return mirror.moved_itself(other.id, other.kind).ok();
        }
        if to.attr.is_some_and(|replaced| replaced.id == moved.id) {
            // Two names of one file: nothing has happened.
            return None;
        }
        let _ = mirror.moved(from.name, to.name, (moved.id, moved.kind));
        match to.attr? {
            replaced if has_another_name(&replaced) => {
                mirror.links_changed(replaced.id);
                Some(())
            }
            replaced => mirror.ended(replaced.id, replaced.kind).ok(),
        }
    }

    /// The file got another name.
    pub(crate) fn tell_linked(&self, to: &Walk<'_>) {
        if self.is_watched() {
            let _ = self.try_tell_linked(to);
        }
    }

    #[cold]
    #[inline(never)]
    fn try_tell_linked(&self, to: &Walk<'_>) -> Option<()> {
        self.try_tell_made(to)?;
        self.mirror()?.links_changed(self.behind(self.name_of(to)?)?.id);
        Some(())
    }

    /// Attributes were changed, those that `which` names (`mayfly_wire::SET_*`).
    pub(crate) fn tell_set(&self, file: FileId, which: u32) {
        if which & SET_SIZE != 0 {
            self.tell_written(file);
        }
        if which & !SET_SIZE != 0 {
            self.tell_attributes(file);
        }
    }

    /// Attributes were changed.
    fn tell_attributes(&self, file: FileId) {
        if self.is_watched()
            && let Some(mirror) = self.mirror()
        {
            mirror.attributes(file);
        }
    }

    /// The same of what stands at a target.
    pub(crate) fn tell_attributes_of(&self, target: Target<'_>) {
        if self.is_watched()
            && let Ok(attr) = self.stat(target, &mut PathText::new())
        {
            self.tell_attributes(attr.id);
        }
    }

    /// The content was changed.
    pub(super) fn tell_written(&self, file: FileId) {
        if self.is_watched()
            && let Some(mirror) = self.mirror()
        {
            mirror.written(file);
        }
    }

    /// Hands to `watch` what stands for a file, from now on: what happens to the file is done to
    /// that. It goes when nobody has watched it for a while, so that `watch` may find nothing there
    /// and has to be tried again.
    ///
    /// # Errors
    /// ENOSPC for a directory with more than [`WATCHED_NAMES_MAX`] names; those of listing it, of
    /// making files in the run directory, and of `watch`.
    pub fn watch_file<R>(
        &self,
        attr: &Attr,
        watch: impl FnOnce(i32, &PathText) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mirror = self.objects.descriptors.mirror()?;
        mirror.prepare()?;
        match attr.kind {
            FileKind::Directory if !mirror.has(attr.id) => self.stand_for(&mirror, attr.id)?,
            FileKind::Directory => {}
            _ => mirror.add_file(attr.id)?,
        }
        self.node.head.watched.store(1, Ordering::SeqCst);
        watch(mirror.start, &mirror.itself(attr.id, attr.kind)?)
    }

    /// Makes stand-ins for the names in a directory. A process that changes a name meanwhile may
    /// not see yet that somebody watches. So the directory is listed twice.
    #[inline(never)]
    fn stand_for(&self, mirror: &Mirror, directory: FileId) -> Result<(), Errno> {
        let begun = mirror.begin()?;
        let mut names = 0;
        self.for_each_name(directory, |name, file, kind| {
            names += 1;
            if names > WATCHED_NAMES_MAX {
                return Err(Errno::ENOSPC);
            }
            mirror.add(&begun, name, file, kind)
        })?;
        mirror.settle(&begun, directory)?;
        self.node.head.watched.store(1, Ordering::SeqCst);
        self.for_each_name(directory, |name, file, kind| {
            mirror.complete(name, file, kind);
            Ok(())
        })
    }

    fn for_each_name(
        &self,
        directory: FileId,
        mut each: impl FnMut(Name<'_>, FileId, FileKind) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let walk = Walk { start: directory, flags: WALK_EMPTY, path: b"" };
        let new = NewOwner { mode: 0, uid: 0, gid: 0 };
        let opened =
            self.open(walk, O_DIRECTORY, new, &mut PathText::new()).map_err(|stop| match stop {
                crate::Stop::Failed(errno) => errno,
                crate::Stop::Escaped => Errno::EIO,
            })?;
        let open = self.open_file(opened.open)?;
        let listed =
            self.for_each_of(open, |name, file, kind| each(Name { directory, name }, file, kind));
        // The listing is what was asked for.
        let _ = self.close(open);
        listed
    }

    fn for_each_of(
        &self,
        open: OpenFile,
        mut each: impl FnMut(&[u8], FileId, FileKind) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut cookie = 0;
        loop {
            let next = self.list(open, cookie, LISTED_BYTES, |packed| {
                let mut next = None;
                for entry in entries(packed) {
                    let entry = entry.map_err(|_| Errno::EIO)?;
                    next = Some(entry.next_cookie);
                    if !matches!(entry.name, b"." | b"..") {
                        each(entry.name, entry.id, entry.kind)?;
                    }
                }
                Ok(next)
            })?;
            match next {
                Some(next) => cookie = next,
                None => return Ok(()),
            }
        }
    }
}

fn has_another_name(attr: &Attr) -> bool {
    attr.kind != FileKind::Directory && attr.links > 1
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_path_is_split_at_its_last_component() {
        for (path, parts) in [
            (&b"name"[..], Some((&b""[..], &b"name"[..]))),
            (b"/name", Some((b"/", b"name"))),
            (b"a/b/name", Some((b"a/b/", b"name"))),
            (b"a//name//", Some((b"a//", b"name"))),
            (b"", None),
            (b"/", None),
            (b"a/..", None),
            (b".", None),
        ] {
            assert_eq!(split(path), parts, "{path:?}");
        }
    }
}

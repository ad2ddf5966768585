//! Before a dynamic loader runs: the program that it was given ([`crate::process::loader`]) gets a
//! name that it can open.

use mayfly_client::{NewOwner, OpenFile, Stop};
use mayfly_sys::{
    Errno,
    file::{self, AT_FDCWD, O_RDONLY},
    text::PathText,
};
use mayfly_types::FileKind;
use mayfly_wire::Target;

use super::{
    Image,
    program_file::{object_path, read_ours, sealed_copy},
};
use crate::{
    paths::{
        cwd,
        locate::{Place, locate},
        text,
    },
    process::{
        environment::{self, Vector},
        libraries::{self, Places},
        loader::{self, Given},
        session::{self, Session},
    },
};

/// When the loader at `path` is given a program of the mount, puts a name of the kernel's in its
/// place, and equips the image for it.
///
/// # Safety
/// The image holds valid arrays.
#[inline(never)]
pub(super) unsafe fn prepare(
    image: &mut Image<'_>,
    path: &[u8],
    knows_names: impl FnOnce() -> bool,
) -> Result<Prepared, Errno> {
    let mut prepared = Prepared { copy: None, argv: image.argv };
    if !loader::is_one(path) {
        return Ok(prepared);
    }
    let mut search = loader::Search::default();
    // SAFETY: passed on to the caller.
    unsafe { environment::for_each(image.argv, |_, argument| search.look(argument)) };
    let Some(given) = search.found() else { return Ok(prepared) };
    let mut room = PathText::new();
    let place = locate(AT_FDCWD, given.path, &mut room)?;
    // SAFETY: passed on to the caller.
    let mut places = unsafe { image.places(place != Place::Kernel) };
    places.library_path = given.library_path.unwrap_or(places.library_path);
    if place == Place::Kernel {
        let program = PathText::from_bytes(given.path)?;
        image.audits = libraries::kernel_program_looks(AT_FDCWD, &program, 0, places);
    } else {
        // The loader will find nothing there either, and say so.
        let Some((session, open)) = open(place) else { return Ok(prepared) };
        let file = File { session, open, place };
        // SAFETY: passed on to the caller.
        let copy = unsafe { give(image, &file, given, places, knows_names) };
        let _ = session.close(open);
        prepared.copy = copy?;
    }
    // SAFETY: passed on to the caller.
    match unsafe { image.equip(b"", b"") } {
        Ok(()) => Ok(prepared),
        Err(errno) => {
            prepared.undo(image);
            Err(errno)
        }
    }
}

/// What has to be taken back when nothing was run.
pub(super) struct Prepared {
    /// Descriptor of a copy of the program.
    copy: Option<i32>,
    /// The arguments as they were.
    argv: *const *const u8,
}

impl Prepared {
    pub(super) fn undo(self, image: &mut Image<'_>) {
        image.argv = self.argv;
        image.loaded.clear();
        close(self.copy);
    }
}

/// The program: a file of the instance.
struct File<'p> {
    session: &'static Session,
    open: OpenFile,
    place: Place<'p>,
}

/// Opens a regular file of the instance.
fn open(place: Place<'_>) -> Option<(&'static Session, OpenFile)> {
    let session = session::get().ok()?;
    let nobody = NewOwner { mode: 0, uid: 0, gid: 0 };
    let opened = session.open(place.walk(true).ok()?, O_RDONLY, nobody, &mut PathText::new());
    let open = session.open_file(opened.ok()?.open).ok()?;
    if open.kind() == FileKind::Regular {
        return Some((session, open));
    }
    let _ = session.close(open);
    None
}

/// # Safety
/// As [`prepare`].
unsafe fn give(
    image: &mut Image<'_>,
    file: &File<'_>,
    given: Given<'_>,
    places: Places<'_>,
    knows_names: impl FnOnce() -> bool,
) -> Result<Option<i32>, Errno> {
    let File { session, open, place } = *file;
    let read = |offset: u64, to: &mut [u8]| read_ours(session, open, offset, to);
    image.audits = libraries::looks(read, libraries::is_there, places);
    let mut own = PathText::new();
    if let Place::Tree { path, .. } = place {
        // A link is not followed: its directory is `$ORIGIN`.
        let directory = session.stat(place.parent().target(true)?, &mut PathText::new());
        cwd::absolute(directory.map_err(failed)?.id, &mut own)?;
        own.push_component(text::split_last(path).1)?;
    }
    let mut object = PathText::new();
    let mut origin = PathText::new();
    let copy = match session.own_object(open, O_RDONLY, &mut object) {
        Ok(_) => {
            loader::origin_of_object(object_path(object.as_bytes())?.as_bytes(), &mut origin)?;
            None
        }
        Err(_) => {
            let copy = sealed_copy(session, open, size_of_file(session, open)?)?;
            let inherited = file::control(copy, file::F_SETFD, 0);
            let named = inherited.and_then(|_| loader::origin_of_copy(&mut origin));
            named.inspect_err(|_| file::close(copy))?;
            Some(copy)
        }
    };
    let names = !given.is_named && knows_names();
    let mut put = || {
        let mut name = PathText::from_bytes(origin.as_bytes())?;
        name.push(b"/")?;
        match copy {
            Some(copy) => name.push_decimal(copy as u64)?,
            None => name.push(text::split_last(object.as_bytes()).1)?,
        }
        loader::describe(own.as_bytes(), origin.as_bytes(), copy, &mut image.loaded)?;
        // SAFETY: passed on to the caller.
        unsafe { put(image, given, name.as_bytes(), names) }
    };
    put().inspect_err(|_| close(copy)).map(|()| copy)
}

fn close(copy: Option<i32>) {
    if let Some(copy) = copy {
        file::close(copy);
    }
}

fn size_of_file(session: &Session, open: OpenFile) -> Result<u64, Errno> {
    let attr = session.stat(Target::Open(open.reference), &mut PathText::new());
    attr.map(|attr| attr.size_bytes).map_err(failed)
}

fn failed(stop: Stop) -> Errno {
    match stop {
        Stop::Failed(errno) => errno,
        Stop::Escaped => Errno::EIO,
    }
}

/// Puts `name` in the argument's place; `names` says that the loader is told what stood there.
///
/// # Safety
/// As [`prepare`].
unsafe fn put(
    image: &mut Image<'_>,
    given: Given<'_>,
    name: &[u8],
    names: bool,
) -> Result<(), Errno> {
    const OPTION: &[u8] = b"--argv0";
    let mut count = 0;
    // SAFETY: passed on to the caller.
    unsafe { environment::for_each(image.argv, |_, _| count += 1) };
    let bytes = OPTION.len() + given.path.len() + name.len() + 3;
    let mut vector = Vector::with_room(count + 2, bytes)?;
    let (mut index, mut pushed) = (0, Ok(()));
    // SAFETY: passed on to the caller.
    unsafe {
        environment::for_each(image.argv, |pointer, _| {
            pushed = pushed.and_then(|()| {
                if index != given.index {
                    return vector.push(pointer);
                }
                if names {
                    vector.push_text(&[OPTION])?;
                    vector.push(given.path.as_ptr())?;
                }
                vector.push_text(&[name])
            });
            index += 1;
        });
    }
    pushed?;
    image.argv = image.keep(vector)?;
    Ok(())
}

//! execve, execveat: programs and scripts, in the mount or not, with what they inherit.
//!
//! Every exec gets a rebuilt environment ([`crate::process::environment`]), and the descriptors
//! that stay open get their identity. A file in the mount is looked at here, as the kernel would: a
//! script's interpreter is found and started with the script's path, anything else is run from its
//! object, or from a sealed copy in memory when there is no object or somebody has it open for
//! writing. A script of the kernel's whose interpreter lies in the mount fails there with ENOENT
//! and is then treated the same.
//!
//! On success nothing returns. What the new program gets stands in buffers of our own, because the
//! kernel copies it before it gives up the old memory; a child of vfork leaves them to its parent.

use core::cell::Cell;

use mayfly_client::{NewOwner, OpenFile, Stop};
use mayfly_sys::{
    Errno,
    arch::syscall6,
    fault,
    file::{self, AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, IoVec, O_CLOEXEC, O_RDONLY},
    number,
    scratch::Scratch,
    text::{PathText, decimal},
};
use mayfly_types::{FileKind, limits::SYMLINK_FOLLOWS_MAX};
use mayfly_wire::Target;

mod loaded;
mod program_file;
pub(super) mod script;
mod statics;

use program_file::{object_path, read_ours, sealed_copy};
use script::{HEAD_BYTES, Interpreter, ScriptName, interpreter};

use super::{
    environment::{self, Additions, Vector},
    flight, inherit,
    libraries::{self, Places},
    loader, program,
    session::{self, Session},
    settings, strangers,
};
use crate::{
    Call, Outcome,
    calls::serve::{AT, PLAIN, argument},
    descriptors::{handover, identity, table},
    paths::{
        cwd, links,
        locate::{Place, locate},
        text,
    },
};

/// Interpreters of interpreters: as many as the kernel follows.
const INTERPRETERS_MAX: usize = 5;
/// Argument lists and environments built on the way: two for each interpreter, those of the
/// program, one more for its libraries, two for a loader, and two for a static program.
const VECTORS_MAX: usize = 2 * INTERPRETERS_MAX + 7;
/// Most that a list of inherited descriptors takes.
const LIST_BYTES: usize = 64 * 1024;

/// Arguments and environment of the new program.
struct Image<'h> {
    argv: *const *const u8,
    envp: *const *const u8,
    /// The caller's environment, to rebuild from when the program's own path changes.
    given: *const *const u8,
    /// Last component of the path that was asked for.
    name: &'h [u8],
    /// The program looks for libraries in the mount.
    audits: bool,
    /// What a program that a loader runs is told about itself.
    loaded: PathText,
    /// The static program that the library loads.
    loads: PathText,
    /// Buffers of replaced argument lists and environments.
    buffers: [Option<Vector>; VECTORS_MAX],
    used: usize,
    /// Arguments and environment are read again and again, until the kernel reads them.
    reading: Cell<Option<fault::Scope>>,
}

impl Image<'_> {
    fn keep(&mut self, vector: Vector) -> Result<*const *const u8, Errno> {
        let pointer = vector.as_ptr();
        *self.buffers.get_mut(self.used).ok_or(Errno::E2BIG)? = Some(vector);
        self.used += 1;
        Ok(pointer)
    }

    /// The arguments for an interpreter: itself, its argument, the script, the script's arguments.
    ///
    /// # Safety
    /// `argv` is a valid argument array.
    #[inline(never)]
    unsafe fn interpose(&mut self, by: Interpreter<'_>, script: &[u8]) -> Result<(), Errno> {
        let mut count = 0;
        // SAFETY: passed on to the caller.
        unsafe { environment::for_each(self.argv, |_, _| count += 1) };
        let bytes = by.path.len() + by.argument.map_or(0, <[u8]>::len) + script.len() + 3;
        let mut vector = Vector::with_room(count + 3, bytes)?;
        vector.push_text(&[by.path])?;
        if let Some(argument) = by.argument {
            vector.push_text(&[argument])?;
        }
        vector.push_text(&[script])?;
        let mut index = 0;
        let mut pushed = Ok(());
        // SAFETY: passed on to the caller.
        unsafe {
            environment::for_each(self.argv, |pointer, _| {
                if index > 0 && pushed.is_ok() {
                    pushed = vector.push(pointer);
                }
                index += 1;
            });
        }
        pushed?;
        self.argv = self.keep(vector)?;
        // The thread is called after the script, not after the interpreter.
        let name = self.name;
        // SAFETY: passed on to the caller.
        unsafe { self.equip(b"", name) }
    }

    /// Where the new program's search paths may lead.
    ///
    /// # Safety
    /// `given` is a valid environment array.
    unsafe fn places(&self, lies_there: bool) -> Places<'static> {
        let mount = settings::get().map_or(&b""[..], |settings| settings.mount.as_bytes());
        // SAFETY: passed on to the caller.
        let list = |name| unsafe { environment::find(self.given, name) }.unwrap_or(b"");
        let (library_path, preload) = (list(environment::LIBRARY_PATH), list(environment::PRELOAD));
        Places { mount, works_there: cwd::directory().is_some(), lies_there, library_path, preload }
    }

    /// Rebuilds the environment; `program` is the program's path in the mount, `name` that of the
    /// thread, where the kernel would find others.
    ///
    /// # Safety
    /// `given` is a valid environment array.
    #[inline(never)]
    unsafe fn equip(&mut self, program: &[u8], name: &[u8]) -> Result<(), Errno> {
        let settings = settings::require()?;
        let mut room = None;
        let mut directory = PathText::new();
        cwd::settle();
        if let Some(id) = cwd::directory() {
            directory.push_hexadecimal(id.0)?;
        }
        let additions = Additions {
            // The new program chooses its daemon itself.
            run: settings.host_run.as_bytes(),
            mount: settings.mount.as_bytes(),
            objects: settings.host_objects.as_bytes(),
            daemons: settings.daemons.as_bytes(),
            images: settings.images.as_bytes(),
            library: settings.library.as_bytes(),
            audits: self.audits,
            descriptors: describe(&mut room)?,
            directory: directory.as_bytes(),
            program,
            loaded: self.loaded.as_bytes(),
            loads: self.loads.as_bytes(),
            name,
        };
        // SAFETY: passed on to the caller.
        let vector = unsafe { environment::rebuild(self.given, &additions) }?;
        self.envp = self.keep(vector)?;
        Ok(())
    }
}

/// The list of descriptors that the new program inherits; `None` when it must look for itself.
#[inline(never)]
fn describe(room: &mut Option<Scratch>) -> Result<Option<&[u8]>, Errno> {
    match flight::child() {
        None if table::is_empty() => return Ok(Some(b"")),
        None => {}
        // Its numbers are in no table.
        Some(_) => return Ok(flight::is_bare().then_some(b"")),
    }
    identity::share_for_child()?;
    let room = room.insert(Scratch::take(LIST_BYTES)?).as_mut_slice();
    let mut used = 0;
    let listed = inherit::describe(|descriptor, open| {
        let numbers = [descriptor as u64, u64::from(open.index), u64::from(open.generation)];
        for (number, end) in numbers.into_iter().zip([b":", b":", b","]) {
            let mut digits = [0; 20];
            for part in [decimal(number, &mut digits), &end[..]] {
                let to = room.get_mut(used..used + part.len()).ok_or(Errno::E2BIG)?;
                to.copy_from_slice(part);
                used += part.len();
            }
        }
        Ok(())
    });
    match listed {
        Ok(()) => Ok(Some(room.get(..used).unwrap_or(&[]))),
        Err(Errno::E2BIG) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// execve, execveat.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn exec(call: &Call) -> Outcome {
    let at = call.number == number::EXECVEAT;
    let (path_at, shift, flags) = if at { (AT, 1, argument(call, 4)) } else { (PLAIN, 0, 0) };
    // SAFETY: passed on to the caller.
    let Ok(path) = (unsafe { path_at.path_of(call) }) else { return Outcome::Pass };
    let given = argument(call, 2 + shift) as *const *const u8;
    let mut image = Image {
        argv: argument(call, 1 + shift) as *const *const u8,
        envp: given,
        given,
        name: text::split_last(path).1,
        audits: false,
        loaded: PathText::new(),
        loads: PathText::new(),
        buffers: [const { None }; VECTORS_MAX],
        used: 0,
        reading: Cell::new(Some(fault::scope())),
    };
    // SAFETY: passed on to the caller.
    let errno = unsafe {
        match image.equip(b"", b"") {
            Err(errno) => errno,
            Ok(()) => run(&mut image, path_at.directory_of(call), path, flags),
        }
    };
    if let Some(child) = flight::child() {
        // It failed, so the buffers are free again; only the last ones wait for the end of the
        // flight.
        for vector in image.buffers.iter_mut().filter_map(Option::take) {
            child.keep(vector.into_scratch());
        }
    }
    Outcome::Done(errno.as_result())
}

/// Runs a program; returns only to say why not.
///
/// # Safety
/// The image holds valid arrays.
unsafe fn run(image: &mut Image<'_>, directory: i32, path: &[u8], flags: usize) -> Errno {
    let mut current = match PathText::from_bytes(path) {
        Ok(path) => path,
        Err(errno) => return errno,
    };
    let (mut directory, mut flags) = (directory, flags);
    for _ in 0..INTERPRETERS_MAX {
        // SAFETY: passed on to the caller.
        match unsafe { run_one(image, directory, &current, flags) } {
            Err(errno) => return errno,
            Ok(next) => current = next,
        }
        (directory, flags) = (AT_FDCWD, 0);
    }
    Errno::ELOOP
}

/// Runs a program, or finds which interpreter has to be run.
///
/// # Safety
/// As [`run`].
#[inline(never)]
unsafe fn run_one(
    image: &mut Image<'_>,
    directory: i32,
    path: &PathText,
    flags: usize,
) -> Result<PathText, Errno> {
    let mut at = directory;
    let mut text = PathText::from_bytes(path.as_bytes())?;
    if let Some(own) = program::own(text.as_bytes()) {
        text = PathText::from_bytes(own)?;
    }
    for _ in 0..SYMLINK_FOLLOWS_MAX {
        let mut room = PathText::new();
        let mut next = PathText::new();
        let place = if text.as_bytes().is_empty() && flags & AT_EMPTY_PATH != 0 {
            match session::open_file(at)? {
                Some(open) => Place::Open(open.reference),
                None => Place::Kernel,
            }
        } else {
            locate(at, text.as_bytes(), &mut room)?
        };
        if place == Place::Kernel {
            let knows_names = || {
                let read = |program| {
                    loader::knows_names(|offset, to| libraries::read_kernel(program, offset, to))
                };
                libraries::with_kernels(at, &text, read).unwrap_or(false)
            };
            // SAFETY: passed on to the caller.
            let prepared = unsafe { loaded::prepare(image, text.as_bytes(), knows_names) }?;
            // SAFETY: passed on to the caller.
            let places = unsafe { image.places(false) };
            if !image.audits && libraries::kernel_program_looks(at, &text, flags, places) {
                image.audits = true;
                // SAFETY: passed on to the caller.
                unsafe { image.equip(b"", b"") }?;
            }
            let script = ScriptName { directory, path: path.as_bytes() };
            // SAFETY: passed on to the caller.
            if let Some(interpreter) = unsafe { statics::run(image, (at, &text, flags), script) }? {
                return Ok(interpreter);
            }
            // SAFETY: passed on to the caller.
            unsafe { strangers::tell(image.argv, at, &text, flags) };
            let moved = strangers::before_kernels(at, &text, flags);
            // SAFETY: passed on to the caller.
            let errno = unsafe { hand_over(image, at, &text, flags) };
            moved.undo();
            prepared.undo(image);
            let suspicious = links::is_suspicious(errno.as_result());
            if !suspicious || !links::resolve(at, text.as_bytes(), true, &mut next) {
                // SAFETY: passed on to the caller.
                let found = unsafe { kernel_script(image, at, &text, errno) };
                return found;
            }
        } else {
            let script = ScriptName { directory, path: path.as_bytes() };
            // SAFETY: passed on to the caller.
            match unsafe { run_ours(image, place, script, flags, &mut next) } {
                Ok(interpreter) => return Ok(interpreter),
                Err(Stop::Failed(errno)) => return Err(errno),
                Err(Stop::Escaped) => {}
            }
        }
        text = next;
        at = AT_FDCWD;
    }
    Err(Errno::ELOOP)
}

/// Has the kernel do it; returns only to say why not.
///
/// # Safety
/// As [`run`].
#[inline(never)]
unsafe fn hand_over(image: &Image<'_>, directory: i32, path: &PathText, flags: usize) -> Errno {
    let (argv, envp) = (image.argv as usize, image.envp as usize);
    let text = path.as_ptr() as usize;
    // The new program gets the mask as it was.
    drop(image.reading.take());
    // SAFETY: the arrays are the host's or were built here, and the path is terminated.
    let raw = unsafe {
        if directory == AT_FDCWD && flags == 0 {
            syscall6(number::EXECVE, text, argv, envp, 0, 0, 0)
        } else {
            syscall6(number::EXECVEAT, directory as usize, text, argv, envp, flags, 0)
        }
    };
    mayfly_sys::result(raw).err().unwrap_or(Errno::EIO)
}

/// A script of the kernel's that it could not run because the interpreter is in the mount.
///
/// # Safety
/// As [`run`].
#[inline(never)]
unsafe fn kernel_script(
    image: &mut Image<'_>,
    directory: i32,
    path: &PathText,
    errno: Errno,
) -> Result<PathText, Errno> {
    if errno != Errno::ENOENT {
        return Err(errno);
    }
    let Ok(script) = file::open_at(directory, path, O_RDONLY | O_CLOEXEC, 0) else {
        return Err(errno);
    };
    let mut head = [0; HEAD_BYTES];
    // SAFETY: the buffer is ours.
    let count = unsafe { file::read_at(script, head.as_mut_ptr(), head.len(), 0) };
    file::close(script);
    let head = head.get(..count?).unwrap_or(&[]);
    let Ok(Some(by)) = interpreter(head) else { return Err(errno) };
    let mut room = PathText::new();
    if locate(AT_FDCWD, by.path, &mut room)? == Place::Kernel {
        return Err(errno);
    }
    let mut name = PathText::new();
    ScriptName { directory, path: path.as_bytes() }.write_to(&mut name)?;
    // SAFETY: passed on to the caller.
    unsafe { image.interpose(by, name.as_bytes()) }?;
    PathText::from_bytes(by.path)
}

/// Runs a file of the instance; or the path of the interpreter to run instead.
///
/// # Safety
/// As [`run`].
#[inline(never)]
unsafe fn run_ours(
    image: &mut Image<'_>,
    place: Place<'_>,
    script: ScriptName<'_>,
    flags: usize,
    escape: &mut PathText,
) -> Result<PathText, Stop> {
    let session = session::get()?;
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    let (open, own) = match place {
        Place::Open(open) => (session.open_file(open)?, false),
        place => {
            let nobody = NewOwner { mode: 0, uid: 0, gid: 0 };
            let opened = session.open(place.walk(follow)?, O_RDONLY, nobody, escape);
            let opened = opened.map_err(|stop| match stop {
                // A pipe or a socket.
                Stop::Failed(Errno::ENXIO) => Stop::Failed(Errno::EACCES),
                stop => stop,
            })?;
            (session.open_file(opened.open)?, true)
        }
    };
    // SAFETY: passed on to the caller.
    let result = unsafe { run_open(image, session, open, place, script) };
    if own {
        let _ = session.close(open);
    }
    Ok(result?)
}

/// # Safety
/// As [`run`].
#[inline(never)]
unsafe fn run_open(
    image: &mut Image<'_>,
    session: &Session,
    open: OpenFile,
    place: Place<'_>,
    script: ScriptName<'_>,
) -> Result<PathText, Errno> {
    let mut escape = PathText::new();
    let target = Target::Open(open.reference);
    let attr = session.stat(target, &mut escape).map_err(|stop| match stop {
        Stop::Failed(errno) => errno,
        Stop::Escaped => Errno::EIO,
    })?;
    if attr.kind != FileKind::Regular || attr.mode & 0o111 == 0 {
        return Err(Errno::EACCES);
    }
    let mut head = [0; HEAD_BYTES];
    let room = [IoVec { base: head.as_mut_ptr(), bytes: head.len() }];
    // SAFETY: the buffer is ours.
    let count = unsafe { session.read_at(open, 0, &room) }?;
    let head = head.get(..count).unwrap_or(&[]);
    if let Some(by) = interpreter(head)? {
        let mut name = PathText::new();
        script.write_to(&mut name)?;
        // SAFETY: passed on to the caller.
        unsafe { image.interpose(by, name.as_bytes()) }?;
        return PathText::from_bytes(by.path);
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(Errno::ENOEXEC);
    }
    let mut name = PathText::new();
    if let Place::Tree { start, path } = place {
        program::canonical(session, start, path, &mut name)?;
    }
    let read = |offset: u64, to: &mut [u8]| read_ours(session, open, offset, to);
    // SAFETY: passed on to the caller.
    let places = unsafe { image.places(true) };
    image.audits = libraries::looks(read, libraries::is_there, places);
    // SAFETY: passed on to the caller.
    unsafe {
        let prepared = loaded::prepare(image, name.as_bytes(), || loader::knows_names(read))?;
        let thread = image.name;
        if let Err(errno) = image.equip(name.as_bytes(), thread) {
            prepared.undo(image);
            return Err(errno);
        }
        if libraries::is_loadable(read)
            && !handover::is_possible()
            && let Ok(object) = object_of(session, open)
        {
            statics::load(image, &object, name.as_bytes())?;
        }
        let moved = strangers::before_ours(name.as_bytes(), read);
        let errno = match run_object(image, session, open) {
            Errno::ETXTBSY | Errno::EACCES | Errno::EPERM | Errno::ENODEV | Errno::EIO => {
                run_copy(image, session, open, attr.size_bytes)
            }
            errno => Ok(errno),
        };
        moved.undo();
        prepared.undo(image);
        Err(errno?)
    }
}

/// The path of a program's object.
fn object_of(session: &Session, open: OpenFile) -> Result<PathText, Errno> {
    let mut name = PathText::new();
    session.own_object(open, O_RDONLY, &mut name).and_then(|_| object_path(name.as_bytes()))
}

/// Runs the object itself; returns only to say why not.
///
/// # Safety
/// As [`run`].
unsafe fn run_object(image: &Image<'_>, session: &Session, open: OpenFile) -> Errno {
    match object_of(session, open) {
        // SAFETY: passed on to the caller.
        Ok(path) => unsafe { hand_over(image, AT_FDCWD, &path, 0) },
        Err(errno) => errno,
    }
}

/// Runs a sealed copy in memory; returns why that failed.
///
/// # Safety
/// As [`run`].
unsafe fn run_copy(
    image: &Image<'_>,
    session: &Session,
    open: OpenFile,
    bytes: u64,
) -> Result<Errno, Errno> {
    let copy = sealed_copy(session, open, bytes)?;
    // SAFETY: passed on to the caller.
    let errno = unsafe { hand_over(image, copy, &PathText::new(), AT_EMPTY_PATH) };
    file::close(copy);
    Ok(errno)
}

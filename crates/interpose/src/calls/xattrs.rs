//! Extended attributes: setxattr, getxattr, listxattr, removexattr and their l, f and at forms.
//!
//! What a call's arguments must be like by themselves is checked here, in the kernel's order; which
//! names and files there are attributes for, the daemon knows.

use mayfly_client::{
    Stop,
    xattrs::{is_recorded, is_refused},
};
use mayfly_sys::{
    Errno,
    file::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW},
    number,
    text::PathText,
    user,
};
use mayfly_types::limits::XATTR_NAME_BYTES_MAX;
use mayfly_wire::{Target, WRITERS_XATTR, XATTR_CREATE, XATTR_REPLACE};

use super::{
    attributes::{on_open, opened_target, with_target},
    serve::{AT, PLAIN, argument, done},
};
use crate::{Call, Outcome, descriptors::leased, process::session};

/// The longest value that the kernel hands to any file system (XATTR_SIZE_MAX).
const VALUE_BYTES_MAX: usize = 65_536;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Set,
    Get,
    List,
    Remove,
}

/// How a call says which file it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A path, whose link at the end is followed, or is not.
    Path {
        flags: usize,
    },
    Descriptor,
    /// A directory, a path and flags.
    At,
}

/// `struct xattr_args`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct KernelArguments {
    value: u64,
    size: u32,
    flags: u32,
}

/// What a call says besides the file, as addresses of the host.
#[derive(Debug, Clone, Copy)]
struct Arguments {
    name: usize,
    value: usize,
    size: usize,
    flags: u32,
}

fn form_of(number: usize) -> Option<(Deed, Form)> {
    use number::*;
    const FOLLOWING: Form = Form::Path { flags: 0 };
    const ITSELF: Form = Form::Path { flags: AT_SYMLINK_NOFOLLOW };
    Some(match number {
        SETXATTR => (Deed::Set, FOLLOWING),
        LSETXATTR => (Deed::Set, ITSELF),
        FSETXATTR => (Deed::Set, Form::Descriptor),
        SETXATTRAT => (Deed::Set, Form::At),
        GETXATTR => (Deed::Get, FOLLOWING),
        LGETXATTR => (Deed::Get, ITSELF),
        FGETXATTR => (Deed::Get, Form::Descriptor),
        GETXATTRAT => (Deed::Get, Form::At),
        LISTXATTR => (Deed::List, FOLLOWING),
        LLISTXATTR => (Deed::List, ITSELF),
        FLISTXATTR => (Deed::List, Form::Descriptor),
        LISTXATTRAT => (Deed::List, Form::At),
        REMOVEXATTR => (Deed::Remove, FOLLOWING),
        LREMOVEXATTR => (Deed::Remove, ITSELF),
        FREMOVEXATTR => (Deed::Remove, Form::Descriptor),
        REMOVEXATTRAT => (Deed::Remove, Form::At),
        _ => return None,
    })
}

/// Any call of the family.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn serve(call: &Call) -> Outcome {
    let Some((deed, form)) = form_of(call.number) else { return Outcome::Pass };
    // SAFETY: passed on to the caller.
    if let Some(done) = unsafe { without_asking(call, deed, form) } {
        return done;
    }
    let mut work = |target: Target<'_>, escape: &mut PathText| {
        // SAFETY: passed on to the caller.
        unsafe {
            check_place(call, form)?;
            let arguments = arguments_of(call, deed, form)?;
            perform(deed, target, arguments, escape)
        }
    };
    // SAFETY: passed on to the caller.
    unsafe {
        match form {
            Form::Descriptor => {
                done(opened_target(call).and_then(|target| on_open(target, &mut work)))
            }
            Form::Path { flags } => with_target(call, PLAIN, flags, &mut work),
            Form::At => with_target(call, AT, argument(call, 2), &mut work),
        }
    }
}

/// What needs no description of the daemon's own of a file that is leased.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn without_asking(call: &Call, deed: Deed, form: Form) -> Option<Outcome> {
    let descriptor = argument(call, 0);
    if form == Form::Descriptor && session::promised(descriptor as i32).is_some() {
        // SAFETY: passed on to the caller.
        return unsafe { of_promised(call, deed) };
    }
    if form != Form::Descriptor || !leased::is_read_so(descriptor) {
        return None;
    }
    // The records do not tell of files that have some.
    if deed == Deed::List {
        return leased::has_attributes(descriptor).then_some(Outcome::Done(0));
    }
    // SAFETY: passed on to the caller.
    unsafe {
        let name = plain_name(call, deed)?;
        let told = match deed {
            Deed::Get if name == WRITERS_XATTR.as_bytes() => {
                let arguments = arguments_of(call, deed, form).ok()?;
                return leased::is_unwritten(descriptor).then(|| done(give(arguments, b"0")));
            }
            _ if is_refused(name) && !leased::is_path(descriptor) => Errno::EOPNOTSUPP,
            Deed::Get if is_recorded(name) && leased::has_no_xattrs(descriptor) => Errno::ENODATA,
            _ => return None,
        };
        Some(Outcome::Done(told.as_result()))
    }
}

/// The name of a call about a descriptor that has nothing else wrong.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn plain_name<'a>(call: &Call, deed: Deed) -> Option<&'a [u8]> {
    // SAFETY: passed on to the caller.
    unsafe {
        let arguments = arguments_of(call, deed, Form::Descriptor).ok()?;
        if deed == Deed::Set {
            if arguments.flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
                return None;
            }
            value_of(arguments.value, arguments.size).ok()?;
        }
        name_of(arguments).ok()
    }
}

/// Of a file that is not made yet: it has no attributes, and there are none but the user's.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn of_promised(call: &Call, deed: Deed) -> Option<Outcome> {
    if deed == Deed::List {
        return Some(Outcome::Done(0));
    }
    // SAFETY: passed on to the caller.
    let name = unsafe { plain_name(call, deed) }?;
    let told = match deed {
        _ if is_refused(name) => Errno::EOPNOTSUPP,
        Deed::Get | Deed::Remove if is_recorded(name) => Errno::ENODATA,
        _ => return None,
    };
    Some(Outcome::Done(told.as_result()))
}

/// # Safety
/// As [`crate::dispatch`].
unsafe fn check_place(call: &Call, form: Form) -> Result<(), Errno> {
    if form != Form::At {
        return Ok(());
    }
    let flags = argument(call, 2);
    if flags as u32 as usize & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: passed on to the caller.
    let empty = argument(call, 1) == 0 || unsafe { AT.path_of(call) } == Ok(b"");
    // A descriptor by itself has to be one that is open for more than its name.
    match session::open_file(AT.directory_of(call)) {
        Ok(Some(open)) if empty && open.is_path() => Err(Errno::EBADF),
        _ => Ok(()),
    }
}

/// # Safety
/// As [`crate::dispatch`].
unsafe fn arguments_of(call: &Call, deed: Deed, form: Form) -> Result<Arguments, Errno> {
    let first = if form == Form::At { 3 } else { 1 };
    let word = |index: usize| argument(call, first + index);
    Ok(match (deed, form) {
        (Deed::Set | Deed::Get, Form::At) => {
            // SAFETY: passed on to the caller.
            let given = unsafe { kernel_arguments(word(1), word(2)) }?;
            if deed == Deed::Get && given.flags != 0 {
                return Err(Errno::EINVAL);
            }
            let (value, size) = (given.value as usize, given.size as usize);
            Arguments { name: word(0), value, size, flags: given.flags }
        }
        (Deed::List, _) => Arguments { name: 0, value: word(0), size: word(1), flags: 0 },
        _ => Arguments { name: word(0), value: word(1), size: word(2), flags: word(3) as u32 },
    })
}

/// A structure that may be longer than we know it, with zeros.
///
/// # Safety
/// The host passes a structure of that many bytes there.
unsafe fn kernel_arguments(from: usize, bytes: usize) -> Result<KernelArguments, Errno> {
    const PAGE_BYTES: usize = 4096;
    const KNOWN: usize = size_of::<KernelArguments>();
    if bytes < KNOWN {
        return Err(Errno::EINVAL);
    }
    if bytes > PAGE_BYTES {
        return Err(Errno::E2BIG);
    }
    for at in KNOWN..bytes {
        // SAFETY: passed on to the caller.
        if unsafe { user::read((from + at) as *const u8) }? != 0 {
            return Err(Errno::E2BIG);
        }
    }
    // SAFETY: passed on to the caller.
    unsafe { user::read(from as *const KernelArguments) }
}

/// # Safety
/// The arguments are what the host passes to the kernel.
unsafe fn name_of<'a>(arguments: Arguments) -> Result<&'a [u8], Errno> {
    // SAFETY: passed on to the caller.
    match unsafe { user::path(arguments.name as *const u8) } {
        Ok(name) if (1..=XATTR_NAME_BYTES_MAX).contains(&name.len()) => Ok(name),
        Ok(_) | Err(Errno::ENAMETOOLONG) => Err(Errno::ERANGE),
        Err(errno) => Err(errno),
    }
}

/// # Safety
/// The arguments are what the host passes to the kernel.
unsafe fn perform(
    deed: Deed,
    target: Target<'_>,
    arguments: Arguments,
    escape: &mut PathText,
) -> Result<isize, Stop> {
    let Arguments { flags, .. } = arguments;
    if deed == Deed::Set && flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
        return Err(Stop::Failed(Errno::EINVAL));
    }
    // SAFETY: passed on to the caller.
    let name = if deed == Deed::List { b"" } else { unsafe { name_of(arguments) }? };
    // SAFETY: passed on to the caller.
    let give = |bytes: &[u8]| unsafe { give(arguments, bytes) };
    let session = session::get()?;
    match deed {
        Deed::Get => session.get_xattr(target, name, escape, give),
        Deed::List => session.list_xattrs(target, escape, give),
        Deed::Remove => session.remove_xattr(target, name, escape).map(|()| 0),
        Deed::Set => {
            // SAFETY: passed on to the caller.
            let bytes = unsafe { value_of(arguments.value, arguments.size) }?;
            session.set_xattr(target, (name, bytes), flags, escape).map(|()| 0)
        }
    }
}

/// Hands a value over; only its length where there is no room for any.
///
/// # Safety
/// The arguments are what the host passes to the kernel.
unsafe fn give(arguments: Arguments, bytes: &[u8]) -> Result<isize, Errno> {
    let Arguments { value, size, .. } = arguments;
    if size != 0 && bytes.len() > size {
        return Err(Errno::ERANGE);
    }
    if size != 0 {
        // SAFETY: the host wants up to `size` bytes written there.
        unsafe { user::copy_out(bytes, value as *mut u8) }?;
    }
    Ok(bytes.len() as isize)
}

/// # Safety
/// The host passes these bytes to the kernel.
unsafe fn value_of<'a>(value: usize, size: usize) -> Result<&'a [u8], Errno> {
    if size > VALUE_BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    if size == 0 {
        return Ok(&[]);
    }
    // SAFETY: passed on to the caller.
    unsafe { user::look_over(value, size) }?;
    // SAFETY: the host vouches for its memory during its call.
    Ok(unsafe { core::slice::from_raw_parts(value as *const u8, size) })
}
